/* world.c: what the groups of one rank share: the cancel, the news for the others, and the list of groups to wake. */
#include "dist/group/world.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "platform/clock.h"
#include "platform/process.h"

void world_init(world *w) {
    atomic_init(&w->refs, 1);
    pthread_mutex_init(&w->mutex, NULL);
    w->process = process_id();
}

int64_t deadline_after(double seconds) { return seconds < 1e9 ? clock_ns() + (int64_t)(seconds * 1e9) : INT64_MAX; }

ag_status world_check_process(const world *w) {
    if (w->process == process_id()) return AG_OK;
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

/* Called by the service thread, too: nothing here waits for a rank. */
void world_wake(void *context) {
    world *w = context;
    pthread_mutex_lock(&w->mutex);
    for (ag_group *g = w->groups; g; g = g->next) {
        if (g->transport) g->transport->ops->wake(g->transport);
    }
    pthread_mutex_unlock(&w->mutex);
}

void world_end(world *w) {
    if (w->process != process_id()) return;                         /* a forked child sees the same shared memory */
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
