/* session_regroup.c: joins the next epoch with those of an ended session that still live.
 *
 * The candidates for coordinator are the old ranks that nobody blames, lowest first. Each rank asks those below itself in turn
 * and keeps to the first that answers; when none does, it listens itself. A candidate is passed over when its process has
 * ended, or when it has not answered for grace_s. A rank says HELLO to one candidate at a time, and a candidate closes its
 * table only over ranks that said HELLO to it a moment ago, so no rank is a member of two. One that is blamed may come too; it
 * is waited for when it is known to live.
 */
#include <poll.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "dist/group/session_internal.h"
#include "platform/clock.h"
#include "platform/interrupt.h"

#define REBIND_NS (2 * SECOND_NS)

typedef struct candidate {
    session *old;
    int rank;
} candidate;

static bool is_gone(const session *old, int rank) {
    return atomic_load_explicit(&((session *)old)->is_gone[rank], memory_order_relaxed) != 0;
}

static bool has_candidate_ended(void *context) {
    const candidate *c = context;
    return is_gone(c->old, c->rank);
}

/* is_blamed: [size], from the cancel: most likely the same on all ranks. A mismatch and a timeout blame nobody here: those they
 * name live, and over sockets ranks may name different ones. */
static void list_blamed(session *old, bool *is_blamed) {
    memset(is_blamed, 0, (size_t)old->size * sizeof *is_blamed);
    cancel_cause cause;
    cancel_read(old->cancel, &cause);
    if (cause.code == AG_E_MISMATCH || cause.code == AG_E_TIMEOUT) return;
    for (int i = 0; i < cause.num_culprits; i++) {
        int32_t rank = cause.culprits[i];
        if (rank >= 0 && rank < old->size) is_blamed[rank] = true;
    }
}

/* Whether the next candidate is to be asked after this failure, or it is the end for this rank too. */
static bool goes_on(ag_status status, int candidate_rank) {
    const ag_error *record = error_record();
    bool gave_up = status == AG_E_PEER && record->num_culprits == 1 && record->culprits[0] == candidate_rank;
    return status == AG_E_TIMEOUT || status == AG_E_NETWORK || gave_up;
}

/* One attempt: *out stays NULL when the candidate is dead or silent. */
static ag_status ask(socket_context *sockets, session *old, const session_setup *setup, session_join *join, cancel *end,
                     session **out) {
    candidate context = {.old = old, .rank = join->coordinator};
    bool is_own = join->coordinator == old->rank, has_given_up = false;
    session *s = NULL;
    ag_status status = session_start(sockets, setup, join, end, &s);
    if (status == AG_OK) status = session_await(s, is_own ? NULL : has_candidate_ended, &context, &has_given_up);
    if (status == AG_OK && !has_given_up) {
        *out = s;
        return AG_OK;
    }
    session_free(s);
    return status == AG_OK || (!is_own && goes_on(status, join->coordinator)) ? AG_OK : status;
}

/* Our address may be bound already, by a socket of the old session: it is taken over. One of another context cannot be; its
 * address is free again only when ZeroMQ's thread has closed it. */
static ag_status listen_oneself(socket_context *sockets, session *old, const session_setup *setup, session_join *join,
                                cancel *end, session **out) {
    void *standby = old->standby;
    old->standby = NULL;
    if (standby && old->sockets == sockets) {
        join->listener = standby;
        join->endpoint = setup->coordinator;
        return ask(sockets, old, setup, join, end, out);
    }
    socket_close(old->sockets, standby);
    int64_t deadline_ns = clock_ns() + REBIND_NS;
    ag_status status;
    while ((status = ask(sockets, old, setup, join, end, out)) == AG_E_NETWORK && standby && clock_ns() < deadline_ns &&
           !interrupt_pending())
        poll(NULL, 0, 10);
    return status;
}

static ag_status ask_in_turn(socket_context *sockets, session *old, session_setup *setup, session_join *join,
                             const bool *is_blamed, double grace_s, cancel *end, session **out) {
    int num_known_here = 0;
    for (int rank = 0; rank < old->size; rank++) {
        bool is_own = rank == old->rank;
        const char *address = is_own ? old->own.shown.control_address : old->members[rank].shown.control_address;
        if (!is_own && is_blamed[rank]) continue;
        if (!is_own && (is_gone(old, rank) || session_has_left(old, rank))) {
            num_known_here++;
            continue;
        }
        if (address[0] == '\0' || (is_own && is_blamed[rank])) continue;
        if (rank > old->rank && !is_blamed[old->rank]) break; /* whoever is above us asks us */
        setup->coordinator = address;
        join->coordinator = rank;
        /* Others may not know yet of the dead that only we know of, and wait for them in turn. */
        join->grace_s = is_own ? grace_s * (1 + num_known_here) : grace_s;
        ag_status status =
            is_own ? listen_oneself(sockets, old, setup, join, end, out) : ask(sockets, old, setup, join, end, out);
        join->listener = NULL;
        if (status != AG_OK || *out) return status;
    }
    return error_set(AG_E_PEER, NULL, NULL, NULL, NULL, "no rank is left that rank %d could regroup with", old->rank);
}

ag_status session_regroup_open(socket_context *sockets, session *old, const session_setup *setup, int min_size, double grace_s,
                               cancel *end, session **out, int *new_rank, int *new_size, int32_t *old_ranks) {
    if (old->state != SESSION_LIVE || !cancel_is_raised(old->cancel))
        return error_set(AG_E_STATE, NULL, NULL, NULL, "regroup after an error has ended it", "the group has not ended");
    size_t count = (size_t)old->size;
    bool *is_blamed = heap_alloc(count * sizeof *is_blamed), *is_given_up = heap_alloc(count * sizeof *is_given_up);
    session *s = NULL;
    ag_status status = AG_OK;
    if (!is_blamed || !is_given_up) {
        status = error_memory(NULL, count);
        goto done;
    }
    list_blamed(old, is_blamed);
    for (int i = 0; i < old->size; i++)
        is_given_up[i] = session_has_left(old, i) || (is_blamed[i] && !old->members[i].shown.is_same_host);
    session_setup next = *setup;
    next.rank = old->rank;
    next.size = old->size;
    next.job = old->job_name;
    next.coordinator_fd = -1;
    if (next.epoch <= old->epoch) next.epoch = old->epoch + 1;
    session_join join = {.is_regroup = true,
                         .is_given_up = is_given_up,
                         .is_gone = old->is_gone,
                         .min_size = min_size < 1 ? 1 : min_size,
                         .answer_s = grace_s};
    status = ask_in_turn(sockets, old, &next, &join, is_blamed, grace_s, end, &s);
    if (status != AG_OK) goto done;
    *new_rank = s->rank;
    *new_size = s->size;
    for (int i = 0; i < s->size; i++) old_ranks[i] = s->members[i].old_rank;
    *out = s;
done:
    heap_free(is_blamed);
    heap_free(is_given_up);
    return status;
}
