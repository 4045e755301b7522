/* group.c: numbers a group's calls and runs them in order, on the caller's thread or on the worker's. */
#include "dist/group/group.h"

#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/dtype.h"
#include "core/error.h"
#include "core/memory.h"
#include "dist/group/world.h"
#include "platform/clock.h"
#include "platform/interrupt.h"

struct group_work {
    atomic_int refs;
    atomic_bool is_done;
    ag_group *group; /* held */
    group_request request;
    transport_call call;
    int64_t *numbers; /* dims and counts, copied; [num_numbers] */
    ag_error *error;  /* of a failure; owned by the work */
    ag_status status;
    struct group_work *next;
};

/* ---- life ---- */

ag_group *group_retain(ag_group *g) {
    atomic_fetch_add_explicit(&g->refs, 1, memory_order_relaxed);
    return g;
}

void group_release(ag_group *g) {
    if (!g || atomic_fetch_sub_explicit(&g->refs, 1, memory_order_acq_rel) != 1) return;
    if (g->world->process != getpid()) return; /* a forked child leaves its parent's things alone */
    assert(!g->has_worker);
    if (g->transport) g->ops->free(g->transport); /* not at the close: blocks lie in its memory */
    world_release(g->world);
    pthread_mutex_destroy(&g->mutex);
    pthread_cond_destroy(&g->changed);
    heap_free(g->world_ranks);
    heap_free(g->num_sent);
    heap_free(g->num_received);
    heap_free(g);
}

ag_status group_make(world *w, const int32_t *world_ranks, int size, int rank, uint32_t id, ag_group **out) {
    ag_group *g = heap_alloc_zero(sizeof *g);
    size_t list = (size_t)size * sizeof *g->world_ranks, numbers = (size_t)size * sizeof *g->num_sent;
    if (g) {
        g->world_ranks = heap_alloc(list);
        g->num_sent = heap_alloc_zero(numbers);
        g->num_received = heap_alloc_zero(numbers);
    }
    if (!g || !g->world_ranks || !g->num_sent || !g->num_received) {
        if (g) {
            heap_free(g->world_ranks);
            heap_free(g->num_sent);
            heap_free(g->num_received);
            heap_free(g);
        }
        return error_memory("group", list + numbers);
    }
    memcpy(g->world_ranks, world_ranks, list);
    atomic_init(&g->refs, 1);
    atomic_fetch_add_explicit(&w->refs, 1, memory_order_relaxed);
    g->world = w;
    g->rank = rank;
    g->size = size;
    g->id = id;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&g->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&g->mutex, NULL);
    *out = g;
    return AG_OK;
}

void group_work_release(group_work *w) {
    if (!w || atomic_fetch_sub_explicit(&w->refs, 1, memory_order_acq_rel) != 1) return;
    group_release(w->group);
    heap_free(w->numbers);
    heap_free(w->error);
    heap_free(w);
}

/* ---- making the call ---- */

static double timeout_of(const ag_group *g, const group_request *r) {
    return r->timeout_s > 0 ? r->timeout_s : g->world->options.timeout_s;
}

/* Chooses what all ranks choose alike and gives the call its number; the mutex is held. */
static void number_call(ag_group *g, const group_request *request, transport_call *out) {
    memset(out, 0, sizeof *out);
    out->call = request->call;
    collective_call *call = &out->call;
    call->rank = g->rank;
    call->size = g->size;
    bool is_pair = collective_is_pair(call->kind);
    uint64_t *number = &g->sequence;
    if (is_pair) number = call->kind == COLLECTIVE_SEND ? &g->num_sent[call->root] : &g->num_received[call->root];
    call->sequence = ++*number;
    if (call->algorithm == ALGORITHM_ANY)
        call->algorithm = g->transport ? transport_choose(g->transport, call) : algorithm_list(call->kind)[0];
    if (request->block) {
        size_t offset = request->block_offset;
        out->block = request->block;
        out->block_offset = offset;
        if (!call->input) call->input = shared_block_part(request->block, g->rank) + offset;
        if (!call->output) call->output = shared_block_result(request->block, g->rank) + offset;
    }
    call_print_make(&out->print, call, request->ndim, request->dims);
    out->print.flags |= (uint8_t)request->making;
    if (request->refusal) out->print.flags |= CALL_REFUSED;
    if (request->is_absent && collective_is_reduction(call->kind)) out->print.flags |= CALL_ABSENT;
    out->refusal = request->refusal;
}

/* ---- running it ---- */

static ag_status run_alone(const transport_call *call, bool is_absent) {
    if (call->refusal) return AG_OK;
    collective c;
    AG_TRY(collective_init(&c, &call->call));
    assert(c.state == COLLECTIVE_DONE);
    collective_deinit(&c);
    if (is_absent && collective_is_reduction(call->call.kind) && call->call.output)
        memset(call->call.output, 0, (size_t)call->call.count * dtype_size(call->call.dtype));
    return AG_OK;
}

/* Adds what the others are at to an error about ranks that did not come. */
static void explain_timeout(ag_group *g) {
    world *w = g->world;
    if (!w->session) return;
    ag_error record = *error_record();
    session_progress *table = heap_alloc_zero((size_t)w->size * sizeof *table);
    if (!table) {
        *error_record() = record;
        return;
    }
    char hint[256] = "";
    size_t end = 0;
    if (session_table(w->session, 1.0, table) == AG_OK) {
        for (int i = 0; i < record.num_culprits && end + 1 < sizeof hint; i++) {
            int rank = record.culprits[i];
            if (rank < 0 || rank >= w->size) continue;
            const session_progress *p = &table[rank];
            end += (size_t)snprintf(hint + end, sizeof hint - end, "%srank %d: %s call %llu%s%s, %.1f s ago%s", end ? "; " : "",
                                    rank, p->entered > p->finished ? "in" : "finished", (unsigned long long)p->entered,
                                    p->text[0] ? ", " : "", p->text, p->since_s, p->has_left ? ", has left" : "");
        }
    }
    heap_free(table);
    error_set(record.code, record.op, record.arg, record.expected, hint[0] ? hint : record.hint, "%s", record.got);
    error_set_culprits(record.culprits, record.num_culprits, record.sequence);
}

/* Runs a numbered call; only one thread at a time is here. */
static ag_status execute(ag_group *g, const transport_call *call, bool is_absent) {
    world *w = g->world;
    const char *name = collective_kind_name(call->call.kind);
    if (cancel_is_raised(w->cancel)) {
        atomic_store_explicit(&w->is_told, true, memory_order_relaxed);
        return cancel_error(w->cancel, name, call->call.sequence);
    }
    if (!g->transport) return run_alone(call, is_absent);
    bool is_counted = w->session && g->id == 0 && !collective_is_pair(call->call.kind);
    if (is_counted) session_note(w->session, call->call.sequence, call->call.sequence - 1, &call->print);
    bool is_over = false;
    ag_status status = g->transport->ops->run(g->transport, call, &is_over);
    if (is_counted && !is_over) session_note(w->session, call->call.sequence, call->call.sequence, NULL);
    if (status == AG_OK) return AG_OK;
    if (status == AG_E_TIMEOUT) explain_timeout(g);
    if (is_over) {
        world_end(w);
        /* Whoever was first gives the reason, so that all ranks tell the same. */
        if (status != AG_E_INTERRUPTED && status != AG_E_MEMORY) return cancel_error(w->cancel, name, call->call.sequence);
    }
    return status;
}

static ag_status closed_error(const ag_group *g, const group_request *request) {
    return error_set(AG_E_STATE, collective_kind_name(request->call.kind), NULL, NULL,
                     "make it again: dist.init, or dist.group", "the group of %d ranks is closed", g->size);
}

static bool is_idle(const ag_group *g) { return !g->first && !g->is_running; }

void group_give_up(ag_group *g) {
    if (g->size > 1 && !cancel_is_raised(g->world->cancel)) world_end(g->world);
}

/* Looks at the interrupt flag this often while it waits. */
#define WAIT_STEP_NS 50000000

/* The mutex is held. */
static void wait_change(ag_group *g, int64_t deadline_ns) {
    int64_t now = clock_ns(), until = deadline_ns - now < WAIT_STEP_NS ? deadline_ns : now + WAIT_STEP_NS;
    struct timespec at = {.tv_sec = until / 1000000000, .tv_nsec = until % 1000000000};
    pthread_cond_timedwait(&g->changed, &g->mutex, &at);
}

/* Waits for what is queued (each call of it has a deadline), and takes the transport for this thread, with the mutex held. A
 * failure leaves the mutex free. */
static ag_status take_transport(ag_group *g, const group_request *request) {
    const char *name = collective_kind_name(request->call.kind);
    AG_TRY(error_in(world_check_process(g->world), name));
    pthread_mutex_lock(&g->mutex);
    bool has_waited = !is_idle(g);
    while (!is_idle(g) && !interrupt_pending()) wait_change(g, INT64_MAX);
    bool is_closed = g->is_closed, is_interrupted = has_waited && interrupt_pending();
    if (!is_closed && !is_interrupted) {
        g->is_running = true;
        return AG_OK;
    }
    pthread_mutex_unlock(&g->mutex);
    if (is_closed) return closed_error(g, request);
    error_set(AG_E_INTERRUPTED, name, NULL, NULL, NULL, "interrupted while waiting for the calls before it");
    group_give_up(g);
    return AG_E_INTERRUPTED;
}

/* The mutex is held. */
static void leave_transport(ag_group *g) {
    if (g->transport) g->ops->stats(g->transport, &g->stats);
    g->is_running = false;
    pthread_cond_broadcast(&g->changed);
}

ag_status group_run(ag_group *g, const group_request *request) {
    AG_TRY(take_transport(g, request));
    transport_call call;
    number_call(g, request, &call);
    pthread_mutex_unlock(&g->mutex);
    call.deadline_ns = deadline_after(timeout_of(g, request));
    ag_status status = execute(g, &call, request->is_absent);
    pthread_mutex_lock(&g->mutex);
    leave_transport(g);
    pthread_mutex_unlock(&g->mutex);
    if (request->done) request->done(request->context, status);
    return status;
}

void group_tell_refusal(ag_group *g, const group_request *request) {
    const ag_error record = *error_record();
    group_request refused = *request;
    refused.refusal = record.message;
    if (g->size > 1 && group_run(g, &refused) == AG_E_MEMORY) group_give_up(g);
    *error_record() = record;
}

void group_refuse(ag_group *g) { group_tell_refusal(g, &(group_request){.call = {.kind = COLLECTIVE_BARRIER}}); }

void group_stats(ag_group *g, transport_stats *out) {
    pthread_mutex_lock(&g->mutex);
    if (g->transport && !g->is_running) g->ops->stats(g->transport, &g->stats);
    *out = g->stats;
    pthread_mutex_unlock(&g->mutex);
}

/* ---- the worker ---- */

static void finish_work(group_work *w, ag_status status) {
    w->status = status;
    if (status != AG_OK && w->error) *w->error = *error_record();
    if (w->request.done) w->request.done(w->request.context, status);
    ag_group *g = w->group;
    pthread_mutex_lock(&g->mutex);
    leave_transport(g);
    atomic_store_explicit(&w->is_done, true, memory_order_release);
    pthread_mutex_unlock(&g->mutex);
}

static void *serve(void *context) {
    ag_group *g = context;
    pthread_mutex_lock(&g->mutex);
    for (;;) {
        while (g->is_running || (!g->first && !g->is_stopping)) pthread_cond_wait(&g->changed, &g->mutex);
        group_work *w = g->first;
        if (!w) break;
        g->first = w->next;
        if (!g->first) g->last = NULL;
        g->is_running = true;
        pthread_mutex_unlock(&g->mutex);
        w->call.deadline_ns = deadline_after(timeout_of(g, &w->request));
        w->call.is_background = true;
        finish_work(w, execute(g, &w->call, w->request.is_absent));
        group_work_release(w);
        pthread_mutex_lock(&g->mutex);
    }
    pthread_mutex_unlock(&g->mutex);
    return NULL;
}

/* The mutex is held. Signals are for the caller's threads. */
static ag_status start_worker(ag_group *g) {
    if (g->has_worker) return AG_OK;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    int fault = pthread_create(&g->worker, NULL, serve, g);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (fault)
        return error_set(AG_E_STATE, "group", NULL, NULL, "raise the limit on processes: ulimit -u",
                         "no thread can be started: %s", strerror(fault));
    g->has_worker = true;
    return AG_OK;
}

void group_stop(ag_group *g) {
    pthread_mutex_lock(&g->mutex);
    g->is_closed = true;
    g->is_stopping = true;
    bool has_worker = g->has_worker;
    pthread_cond_broadcast(&g->changed);
    while (g->is_running || (has_worker && g->first)) {
        wait_change(g, INT64_MAX);
        if (!interrupt_pending() || cancel_is_raised(g->world->cancel)) continue;
        pthread_mutex_unlock(&g->mutex);
        error_set(AG_E_INTERRUPTED, "close", NULL, NULL, NULL, "interrupted while calls were under way");
        group_give_up(g);
        pthread_mutex_lock(&g->mutex);
    }
    pthread_mutex_unlock(&g->mutex);
    if (has_worker) pthread_join(g->worker, NULL);
    g->has_worker = false;
}

/* Copies what the request borrows beyond the buffers. */
static ag_status copy_numbers(group_work *w) {
    group_request *r = &w->request;
    int size = w->group->size;
    bool has_counts = r->call.counts, has_output_counts = r->call.output_counts;
    size_t count = (size_t)r->ndim + (size_t)(has_counts + has_output_counts) * (size_t)size;
    if (count == 0) return AG_OK;
    int64_t *at = w->numbers = heap_alloc(count * sizeof *w->numbers);
    if (!at) return error_memory("group", count * sizeof *w->numbers);
    if (r->ndim) memcpy(at, r->dims, (size_t)r->ndim * sizeof *at);
    r->dims = at;
    at += r->ndim;
    if (has_counts) {
        memcpy(at, r->call.counts, (size_t)size * sizeof *at);
        r->call.counts = at;
        at += size;
    }
    if (has_output_counts) {
        memcpy(at, r->call.output_counts, (size_t)size * sizeof *at);
        r->call.output_counts = at;
    }
    return AG_OK;
}

ag_status group_start(ag_group *g, const group_request *request, group_work **out) {
    AG_TRY(error_in(world_check_process(g->world), collective_kind_name(request->call.kind)));
    group_work *w = heap_alloc_zero(sizeof *w);
    if (!w) return error_memory("group", sizeof *w);
    atomic_init(&w->refs, 2); /* the caller and the queue */
    atomic_init(&w->is_done, false);
    w->group = group_retain(g);
    w->request = *request;
    w->error = heap_alloc_zero(sizeof *w->error);
    ag_status status = w->error ? copy_numbers(w) : error_memory("group", sizeof *w->error);
    if (status == AG_OK) {
        pthread_mutex_lock(&g->mutex);
        if (g->is_closed)
            status = closed_error(g, request);
        else
            status = start_worker(g);
        if (status == AG_OK) {
            number_call(g, &w->request, &w->call);
            if (g->last)
                g->last->next = w;
            else
                g->first = w;
            g->last = w;
            *out = w;
            pthread_cond_broadcast(&g->changed);
        }
        pthread_mutex_unlock(&g->mutex);
    }
    if (status != AG_OK) {
        group_work_release(w);
        group_work_release(w);
    }
    return status;
}

bool group_work_is_done(const group_work *w) { return atomic_load_explicit(&((group_work *)w)->is_done, memory_order_acquire); }

ag_status group_wait(group_work *w, double timeout_s) {
    ag_group *g = w->group;
    if (!group_work_is_done(w)) AG_TRY(error_in(world_check_process(g->world), collective_kind_name(w->request.call.kind)));
    int64_t deadline = timeout_s > 0 ? deadline_after(timeout_s) : INT64_MAX;
    ag_status early = AG_OK;
    pthread_mutex_lock(&g->mutex);
    while (!group_work_is_done(w) && early == AG_OK) {
        wait_change(g, deadline);
        if (group_work_is_done(w)) break;
        if (interrupt_pending())
            early = AG_E_INTERRUPTED;
        else if (clock_ns() >= deadline)
            early = AG_E_TIMEOUT;
    }
    pthread_mutex_unlock(&g->mutex);
    const char *name = collective_kind_name(w->request.call.kind);
    if (early == AG_E_INTERRUPTED)
        return error_set(early, name, NULL, NULL, "wait again to learn how it ends", "interrupted while waiting for it");
    if (early == AG_E_TIMEOUT)
        return error_set(early, name, NULL, NULL, "wait again, or for longer", "not done after %g s; it goes on", timeout_s);
    if (w->status != AG_OK) *error_record() = *w->error;
    return w->status;
}

/* ---- blocks ---- */

ag_status group_block_new(ag_group *g, size_t part_bytes, block_form form, shared_block *out) {
    part_bytes = (part_bytes + 4095) / 4096 * 4096;
    if (!g->transport) {
        shared_block block = {
            .part_bytes = part_bytes, .size = 1, .world_ranks = g->world_ranks, .form = form, .is_shared = true};
        block.base = memory_alloc(shared_block_bytes(&block));
        if (!block.base) return error_memory("group", shared_block_bytes(&block));
        memset(block.base, 0, shared_block_bytes(&block));
        *out = block;
        return AG_OK;
    }
    AG_TRY(take_transport(g, &(group_request){.call = {.kind = COLLECTIVE_BARRIER}}));
    pthread_mutex_unlock(&g->mutex);
    ag_status status =
        cancel_is_raised(g->world->cancel)
            ? cancel_error(g->world->cancel, "group", 0)
            : g->transport->ops->block_new(g->transport, part_bytes, form, deadline_after(g->world->options.timeout_s), out);
    if (status != AG_OK) group_give_up(g);
    pthread_mutex_lock(&g->mutex);
    leave_transport(g);
    pthread_mutex_unlock(&g->mutex);
    return status;
}

void group_block_free(ag_group *g, shared_block *block) {
    if (!block->base || g->world->process != getpid()) return;
    if (block->owner)
        g->ops->block_free(g->transport, block);
    else
        memory_free(block->base, shared_block_bytes(block));
    block->base = NULL;
}
