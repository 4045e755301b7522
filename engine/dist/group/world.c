/* world.c: what the groups of one rank share: the cancel, the news for the others, and the list of groups to wake. */
#include "dist/group/world.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"

void world_init(world *w) {
    atomic_init(&w->refs, 1);
    pthread_mutex_init(&w->mutex, NULL);
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

static bool is_shared_memory(const transport *t) {
    return strcmp(t->ops->name, "shm") == 0 || strcmp(t->ops->name, "inproc") == 0;
}

/* Called by the service thread, too: nothing here waits for a rank. */
void world_wake(void *context) {
    world *w = context;
    cancel *c = w->cancel;
    pthread_mutex_lock(&w->mutex);
    for (ag_group *g = w->groups; g; g = g->next) {
        if (!g->transport) continue;
        if (is_shared_memory(g->transport))
            shm_cancel_all(g->transport, c->code, c->num_culprits ? c->culprits[0] : -1, c->reason);
        g->transport->ops->wake(g->transport);
    }
    pthread_mutex_unlock(&w->mutex);
}

void world_end(world *w) {
    const ag_error record = *error_record();
    int culprit = record.num_culprits ? record.culprits[0] : -1;
    char reason[256];
    ag_status code = record.code;
    if (code == AG_E_PEER || code == AG_E_TIMEOUT || code == AG_E_MISMATCH) {
        snprintf(reason, sizeof reason, "%s", record.got);
    } else {
        /* What went wrong here is for the others a rank that failed. */
        snprintf(reason, sizeof reason, "rank %d failed: %.200s", w->rank, record.message);
        code = AG_E_PEER;
        culprit = w->rank;
    }
    for (int i = 0; i < record.num_culprits; i++) cancel_add_culprit(w->cancel, record.culprits[i]);
    cancel_raise(w->cancel, code, culprit, reason, record.hint);
    if (w->session) session_abort(w->session, code, culprit, reason);
    world_wake(w);
    *error_record() = record;
}

void world_note(world *w, uint64_t entered, uint64_t finished, const call_print *print) {
    if (!w->session) return;
    char text[160];
    pthread_mutex_lock(&w->mutex);
    w->entered = entered;
    w->finished = finished;
    if (print) {
        char call[112];
        call_print_text(print, call, sizeof call);
        snprintf(w->text, sizeof w->text, "%s%s%.40s", call, w->note[0] ? ", " : "", w->note);
    }
    snprintf(text, sizeof text, "%s", w->text);
    pthread_mutex_unlock(&w->mutex);
    session_note(w->session, entered, finished, text);
}
