/* world.c: what the groups of one rank share: the cancel, the news for the others, and the list of groups to wake. */
#include "dist/group/world.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/error.h"
#include "core/memory.h"
#include "platform/clock.h"

void world_init(world *w) {
    atomic_init(&w->refs, 1);
    pthread_mutex_init(&w->mutex, NULL);
    w->process = getpid();
}

int64_t deadline_after(double seconds) { return seconds < 1e9 ? clock_ns() + (int64_t)(seconds * 1e9) : INT64_MAX; }

ag_status world_check_process(const world *w) {
    if (w->process == getpid()) return AG_OK;
    return error_set(AG_E_STATE, NULL, NULL, NULL, "join a job in the child, after the fork",
                     "a process made by fork cannot use its parent's group");
}

void world_release(world *w) {
    if (!w || atomic_fetch_sub_explicit(&w->refs, 1, memory_order_acq_rel) != 1) return;
    assert(!w->groups);
    session_free(w->session); /* before what its thread calls goes */
    zmq_hub_free(w->hub);
    socket_context_free(w->sockets);
    if (w->shared && atomic_fetch_sub_explicit(&w->shared->refs, 1, memory_order_acq_rel) == 1) heap_free(w->shared);
    pthread_mutex_destroy(&w->mutex);
    heap_free(w);
}

void world_add(world *w, ag_group *g) {
    pthread_mutex_lock(&w->mutex);
    g->next = w->groups;
    w->groups = g;
    pthread_mutex_unlock(&w->mutex);
}

void world_remove(world *w, ag_group *g) {
    pthread_mutex_lock(&w->mutex);
    for (ag_group **at = &w->groups; *at; at = &(*at)->next) {
        if (*at != g) continue;
        *at = g->next;
        break;
    }
    pthread_mutex_unlock(&w->mutex);
}

bool world_is_shared_memory(const transport *t) {
    return strcmp(t->ops->name, "shm") == 0 || strcmp(t->ops->name, "inproc") == 0;
}

/* Called by the service thread, too: nothing here waits for a rank. */
void world_wake(void *context) {
    world *w = context;
    cancel_cause cause;
    cancel_read(w->cancel, &cause);
    pthread_mutex_lock(&w->mutex);
    for (ag_group *g = w->groups; g; g = g->next) {
        if (!g->transport) continue;
        if (world_is_shared_memory(g->transport))
            shm_cancel_all(g->transport, cause.code, cause.num_culprits ? cause.culprits[0] : -1, cause.reason);
        g->transport->ops->wake(g->transport);
    }
    pthread_mutex_unlock(&w->mutex);
}

void world_end(world *w) {
    if (w->process != getpid()) return; /* a forked child sees the same shared memory */
    atomic_store_explicit(&w->is_told, true, memory_order_relaxed); /* whoever calls this knows why */
    const ag_error record = *error_record();
    const int32_t *culprits = record.culprits;
    int num_culprits = record.num_culprits;
    char reason[256];
    ag_status code = record.code;
    if (code == AG_E_PEER || code == AG_E_TIMEOUT || code == AG_E_MISMATCH) {
        snprintf(reason, sizeof reason, "%s", record.got);
    } else {
        /* What went wrong here is for the others a rank that failed. */
        snprintf(reason, sizeof reason, "rank %d failed: %.200s", w->rank, record.message);
        code = AG_E_PEER;
        culprits = &w->rank;
        num_culprits = 1;
    }
    cancel_raise_all(w->cancel, code, culprits, num_culprits, reason, record.hint);
    if (w->session) session_abort(w->session, code, -1, reason);
    world_wake(w);
    *error_record() = record;
}

/* The mutex is held, so that what is told later is newer. */
static void tell_progress(world *w) {
    char text[160];
    snprintf(text, sizeof text, "%s%s%.40s", w->call, w->call[0] && w->note[0] ? ", " : "", w->note);
    session_note(w->session, w->entered, w->finished, text);
}

void world_note(world *w, uint64_t entered, uint64_t finished, const call_print *print) {
    if (!w->session) return;
    pthread_mutex_lock(&w->mutex);
    w->entered = entered;
    w->finished = finished;
    if (print) call_print_text(print, w->call, sizeof w->call);
    tell_progress(w);
    pthread_mutex_unlock(&w->mutex);
}

void world_note_text(world *w, const char *text) {
    pthread_mutex_lock(&w->mutex);
    snprintf(w->note, sizeof w->note, "%s", text ? text : "");
    if (w->session) tell_progress(w);
    pthread_mutex_unlock(&w->mutex);
}
