/* shm_transport.c: the transport over an arena: making it, running a call, comparing prints, and telling how a wait ended. */
#include <stdio.h>
#include <string.h>

#include "core/dtype.h"
#include "core/error.h"
#include "core/memory.h"
#include "dist/transport/shm/shm.h"
#include "platform/clock.h"
#include "platform/cpu.h"

#define LARGE_BYTES ((int64_t)128 << 10) /* above them, steps take longer than a sleep and its wake */

static const char *op_of(const call_print *print) {
    return print->kind < COLLECTIVE_KIND_COUNT ? collective_kind_name((collective_kind)print->kind) : "shared memory";
}

static int32_t world_rank(const shm *s, int rank) { return s->base.world_ranks ? s->base.world_ranks[rank] : rank; }

static void copy_refusal(char dst[REFUSAL_BYTES], const char *text) {
    dst[0] = '\0';
    if (text) snprintf(dst, REFUSAL_BYTES, "%s", text);
}

static call_form form_of(const transport_call *request) {
    if (request->block) return FORM_BLOCK;
    return request->call.kind == COLLECTIVE_ALL_TO_ALL && request->call.counts ? FORM_COUNTS : FORM_PLAIN;
}

void shm_note(call_note *note, const transport_call *request) {
    note->print = request->print;
    note->form = form_of(request);
    note->block = 0;
    note->block_offset = request->block ? (int64_t)request->block_offset : 0;
    copy_refusal(note->refusal, request->refusal);
}

/* ---- how a wait ended ---- */

/* The sentence for ranks that have not come: to a round when peer is -1. */
static ag_status late_error(const shm_call *c, int peer) {
    const shm *s = c->s;
    const call_print *print = &c->request->print;
    const arena_header *h = s->arena->header;
    int32_t culprits[AG_MAX_CULPRITS];
    int num_late = 0;
    char list[96] = "", text[112];
    size_t end = 0;
    for (int rank = 0; rank < s->base.size; rank++) {
        bool is_late =
            peer >= 0 ? rank == peer : atomic_load_explicit(&h->lines[rank].arrived.count, memory_order_acquire) < s->round;
        if (!is_late) continue;
        int32_t world = world_rank(s, rank);
        if (end + 16 < sizeof list)
            end += (size_t)snprintf(list + end, sizeof list - end, "%s%d", num_late ? ", " : "", (int)world);
        if (num_late < AG_MAX_CULPRITS) culprits[num_late] = world;
        num_late++;
    }
    double waited_s = (double)(c->request->deadline_ns - c->start_ns) / 1e9;
    if (waited_s < 0) waited_s = 0;
    error_set(AG_E_TIMEOUT, op_of(print), NULL, NULL, "is a rank slow, or does it not make this call?",
              "rank%s %s %s not come to call %llu, %s, within %.3g s", num_late == 1 ? "" : "s", list,
              num_late == 1 ? "has" : "have", (unsigned long long)print->sequence, call_print_text(print, text, sizeof text),
              waited_s);
    error_set_culprits(culprits, num_late < AG_MAX_CULPRITS ? num_late : AG_MAX_CULPRITS, print->sequence);
    return AG_E_TIMEOUT;
}

static ag_status aborted_error(const shm_call *c) {
    cancel_cause cause = c->s->arena->header->abort;
    return cancel_cause_error(&cause, op_of(&c->request->print), c->request->print.sequence);
}

static int first_left(const shm *s) {
    const arena_header *h = s->arena->header;
    for (int rank = 0; rank < s->base.size; rank++)
        if (atomic_load_explicit(&h->lines[rank].arrived.count, memory_order_acquire) < s->round &&
            atomic_load_explicit(&h->lines[rank].has_left, memory_order_acquire))
            return rank;
    return 0;
}

ag_status shm_wait_error(const shm_call *c, wait_outcome outcome, int peer) {
    const call_print *print = &c->request->print;
    switch (outcome) {
    case WAIT_ABORTED: return aborted_error(c);
    case WAIT_CANCELLED: return cancel_error(c->s->base.cancel, op_of(print), print->sequence);
    case WAIT_LEFT: {
        int32_t culprit = world_rank(c->s, peer >= 0 ? peer : first_left(c->s));
        char text[112];
        error_set(AG_E_PEER, op_of(print), NULL, NULL, "ranks must make the same number of calls before they close",
                  "rank %d has left the group and does not come to call %llu, %s", (int)culprit,
                  (unsigned long long)print->sequence, call_print_text(print, text, sizeof text));
        error_set_culprits(&culprit, 1, print->sequence);
        return AG_E_PEER;
    }
    case WAIT_INTERRUPTED:
        error_set(AG_E_INTERRUPTED, op_of(print), NULL, NULL, NULL, "interrupted while waiting for other ranks");
        error_set_culprits(&(int32_t){0}, 0, print->sequence);
        return AG_E_INTERRUPTED;
    default: return late_error(c, peer);
    }
}

/* ---- rounds ---- */

ag_status shm_refusal_error(const shm *s, int rank, const call_note *note) {
    char text[112], refusal[REFUSAL_BYTES];
    copy_refusal(refusal, note->refusal);
    int32_t culprit = world_rank(s, rank);
    error_set(AG_E_MISMATCH, op_of(&note->print), NULL, NULL, NULL, "rank %d refused %s: %s", (int)culprit,
              call_print_text(&note->print, text, sizeof text), refusal);
    error_set_culprits(&culprit, 1, note->print.sequence);
    return AG_E_MISMATCH;
}

static bool is_making(const call_note *note) { return note->form >= FORM_NEW; }

/* "rank 0 called all_reduce(sum) of f32[3], rank 1 called …", where one of them makes a block or does it in another form. */
static ag_status form_error(const shm *s, const call_note *first, int rank, const call_note *note) {
    static const char *const forms[] = {[FORM_PLAIN] = " plainly",
                                        [FORM_COUNTS] = " with counts",
                                        [FORM_BLOCK] = " in a shared block",
                                        [FORM_NEW + BLOCK_RESULT] = " with one result",
                                        [FORM_NEW + BLOCK_RESULTS] = " with a result for each rank",
                                        [FORM_NEW + BLOCK_COMMON] = " in common"};
    const call_note *notes[2] = {first, note};
    char texts[2][112];
    int32_t culprits[2] = {world_rank(s, 0), world_rank(s, rank)};
    for (int i = 0; i < 2; i++)
        if (is_making(notes[i]))
            snprintf(texts[i], sizeof texts[i], "shared_tensor of %lld bytes", (long long)notes[i]->print.count);
        else
            call_print_text(&notes[i]->print, texts[i], sizeof texts[i]);
    bool is_elsewhere = first->form == FORM_BLOCK && note->form == FORM_BLOCK;
    const char *place = !is_elsewhere ? "" : note->block == first->block ? ", in another place of it" : ", another one";
    error_set(AG_E_MISMATCH, is_making(first) ? "shared_tensor" : op_of(&first->print), NULL, NULL,
              "all ranks of a group must make the same calls in the same form", "rank %d called %s%s, rank %d %s%s%s",
              (int)culprits[0], texts[0], forms[first->form], (int)culprits[1], texts[1], forms[note->form], place);
    error_set_culprits(culprits, 2, first->print.sequence);
    return AG_E_MISMATCH;
}

/* Compares the notes of round - 1. All ranks see the same notes and come to the same sentence. */
static ag_status compare_prints(shm_call *c) {
    shm *s = c->s;
    const arena_line *lines = s->arena->header->lines;
    uint64_t half = (s->round - 1) % 2;
    for (int rank = 0; rank < s->base.size; rank++)
        if (lines[rank].notes[half].print.flags & CALL_REFUSED) return shm_refusal_error(s, rank, &lines[rank].notes[half]);
    const call_note *first = &lines[0].notes[half];
    for (int rank = 0; rank < s->base.size; rank++) {
        const call_note *note = &lines[rank].notes[half];
        bool agrees = call_print_agree(&first->print, &note->print);
        if (!agrees && !is_making(first) && !is_making(note))
            return call_print_mismatch((int)world_rank(s, 0), &first->print, (int)world_rank(s, rank), &note->print);
        if (!agrees || note->form != first->form || note->block != first->block || note->block_offset != first->block_offset)
            return form_error(s, first, rank, note);
        s->is_absent[rank] = (note->print.flags & CALL_ABSENT) != 0;
    }
    return AG_OK;
}

/* Waits until all ranks have arrived at round - 1. Starts behind the own rank, so that not all sleep at one gate. */
static ag_status wait_for_all(shm_call *c) {
    shm *s = c->s;
    arena_line *lines = s->arena->header->lines;
    for (int i = 1; i < s->base.size; i++) {
        int rank = (s->base.rank + i) % s->base.size;
        wait_outcome outcome = gate_wait(&s->waiter, &lines[rank].arrived, rank, s->round, c->request->deadline_ns);
        if (outcome != WAIT_DONE) return shm_wait_error(c, outcome, -1);
    }
    if (s->round == 1) s->waiter.is_crowded = shm_is_crowded(s->arena->header, s->base.rank, cpu_quota());
    return AG_OK;
}

static void arrive(shm *s) {
    s->round++;
    s->stats.num_messages++;
    gate_raise(&s->arena->header->lines[s->base.rank].arrived, s->round);
}

ag_status shm_settle(shm_call *c) {
    if (!c->s->owes_wait) return AG_OK;
    AG_TRY(wait_for_all(c));
    c->s->owes_wait = false;
    return AG_OK;
}

bool shm_is_crowded(const arena_header *h, int rank, int quota) {
    const uint64_t *own = h->lines[rank].processors;
    uint64_t all[CPU_SET_WORDS] = {0};
    int num_ranks = 0, num_processors = 0;
    for (int other = 0; other < h->size; other++) {
        const uint64_t *its = h->lines[other].processors;
        bool is_beside = false;
        for (int i = 0; i < CPU_SET_WORDS; i++) is_beside |= (its[i] & own[i]) != 0;
        for (int i = 0; i < CPU_SET_WORDS && is_beside; i++) all[i] |= its[i];
        num_ranks += is_beside;
    }
    for (int i = 0; i < CPU_SET_WORDS; i++) num_processors += __builtin_popcountll(all[i]);
    return num_ranks > num_processors || (quota > 0 && h->size > quota);
}

ag_status shm_meet(shm_call *c) {
    arrive(c->s);
    AG_TRY(wait_for_all(c));
    if (c->is_agreed) return AG_OK;
    ag_status status = compare_prints(c);
    c->is_agreed = status == AG_OK;
    c->is_over = status == AG_OK; /* a disagreement is seen by all in the same round, and the next call can begin */
    return status;
}

/* ---- the table of functions ---- */

static ag_status run(transport *t, const transport_call *request, bool *is_over) {
    shm *s = (shm *)t;
    shm_call c = {.s = s, .request = request, .start_ns = clock_ns(), .is_over = true};
    collective_kind kind = request->call.kind;
    ag_status status;
    s->stats.num_calls++;
    s->waiter.ignores_interrupt = request->is_background;
    s->waiter.is_large = request->call.count * (int64_t)dtype_size(request->call.dtype) >= LARGE_BYTES;
    if (collective_is_pair(kind)) {
        status = shm_point_to_point(&c);
        *is_over = status != AG_OK && c.is_over;
        return status;
    }
    status = shm_settle(&c);
    if (status == AG_OK) {
        shm_note(&s->arena->header->lines[t->rank].notes[s->round % 2], request);
        if (request->print.flags & CALL_REFUSED) {
            arrive(s);
            s->owes_wait = true;
        } else if (request->block) {
            status = shm_block_reduce(&c);
        } else {
            status = shm_collective(&c);
        }
    }
    *is_over = status != AG_OK && c.is_over;
    return status;
}

static void stats(const transport *t, transport_stats *out) { *out = ((const shm *)t)->stats; }

/* Rings the gates at which others may wait for this rank, or for all of them. */
static void ring_all(const arena_header *h, int rank) {
    arena_header *header = (arena_header *)h;
    for (int i = 0; i < h->size; i++) {
        if (rank < 0 || rank == i) gate_ring(&header->lines[i].arrived);
        for (int k = 0; k < h->size; k++)
            if (rank < 0 || rank == i || rank == k)
                for (int side = 0; side < 2; side++) gate_ring(&arena_pair(h, i, k)->gates[side]);
    }
}

static void free_state(shm *s) {
    arena_release(s->arena);
    heap_free(s->is_absent);
    heap_free(s->sources);
    heap_free(s->results);
    heap_free(s->events_out);
    heap_free(s->events_in);
    heap_free(s);
}

static void leave(transport *t) {
    arena_header *h = ((shm *)t)->arena->header;
    /* Release: the last arrival comes before it. */
    atomic_store_explicit(&h->lines[t->rank].has_left, 1, memory_order_release);
    ring_all(h, t->rank);
}

static void free_transport(transport *t) {
    leave(t);
    free_state((shm *)t);
}

void shm_cancel_all(transport *t, const cancel_cause *cause) {
    arena_header *h = ((shm *)t)->arena->header;
    uint32_t expected = ABORT_NONE;
    /* The first one writes. Should it die half-way, the word stays unset, and the others' waits see their own cancels a little
     * later. */
    if (!atomic_compare_exchange_strong_explicit(&h->abort_state, &expected, ABORT_BEING_WRITTEN, memory_order_relaxed,
                                                 memory_order_relaxed))
        return;
    h->abort = *cause;
    /* Release: pairs with the acquire of whoever sees the word. */
    atomic_store_explicit(&h->abort_state, ABORT_SET, memory_order_release);
    ring_all(h, -1);
}

static void wake(transport *t) {
    cancel_cause cause;
    if (!cancel_is_raised(t->cancel)) return;
    cancel_read(t->cancel, &cause);
    shm_cancel_all(t, &cause);
}

#define SHM_OPS(NAME)                                                                                                     \
    {                                                                                                                     \
        .name = NAME, .run = run, .block_new = shm_block_new, .block_free = shm_block_free, .wake = wake, .stats = stats, \
        .leave = leave, .free = free_transport                                                                            \
    }

static const transport_ops shm_ops = SHM_OPS("shm"), inproc_ops = SHM_OPS("inproc");

ag_status shm_transport_new(arena *a, int rank, const int32_t *world_ranks, cancel *stop, const char *address_prefix,
                            const char token[ARENA_TOKEN_BYTES], transport **out) {
    size_t size = (size_t)a->header->size;
    if (address_prefix && strlen(address_prefix) >= sizeof((shm *)0)->address_prefix)
        return error_set(AG_E_ARGUMENT, "shared memory", "address_prefix", "up to 63 bytes", NULL, "%s", address_prefix);
    shm *s = heap_alloc_zero(sizeof *s);
    if (!s) return error_memory("shared memory", sizeof *s);
    s->arena = arena_retain(a);
    s->is_absent = heap_alloc_zero(size);
    s->sources = heap_alloc_zero(size * sizeof *s->sources);
    s->results = heap_alloc_zero(size * sizeof *s->results);
    s->events_out = heap_alloc_zero(size * sizeof *s->events_out);
    s->events_in = heap_alloc_zero(size * sizeof *s->events_in);
    if (!s->is_absent || !s->sources || !s->results || !s->events_out || !s->events_in) {
        free_state(s);
        return error_memory("shared memory", size * sizeof *s->events_in);
    }
    s->base = (transport){.ops = a->is_local ? &inproc_ops : &shm_ops,
                          .rank = rank,
                          .size = (int)size,
                          .world_ranks = world_ranks,
                          .cancel = stop,
                          /* A round with a wake; staged bytes; n-way sums. Only orders of magnitude matter: one algorithm. */
                          .cost = {.alpha_s = 2e-6, .beta_s_per_byte = 1.2e-10, .gamma_s_per_byte = 0.8e-10, .congestion = 1}};
    s->waiter.header = a->header;
    s->waiter.cancel = stop;
    s->waiter.is_crowded = (int)size > cpu_count(); /* until the first round tells where the others run */
    cpu_set_allowed(a->header->lines[rank].processors);
    if (address_prefix) snprintf(s->address_prefix, sizeof s->address_prefix, "%s", address_prefix);
    if (token) memcpy(s->token, token, sizeof s->token);
    *out = &s->base;
    return AG_OK;
}
