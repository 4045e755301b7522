/* hierarchy_run.c: collectives in steps: among the ranks of a host, among the hosts' leaders, and back. */
#include "dist/transport/hierarchy_run.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "core/dtype.h"
#include "core/error.h"
#include "core/memory.h"
#include "dist/algorithm/reduce.h"
#include "platform/clock.h"
#include "platform/interrupt.h"

#define GRACE_NS 250000000

/* task is a call under way. */
typedef struct task {
    hierarchy *h;
    const transport_call *request;
    const collective_call *call;
    uint32_t flags;     /* of the prints that this rank shows on its host */
    ag_dtype dtype;     /* in which elements are combined */
    reduce_op op;       /* mean sums */
    bool overlaps;      /* input and output */
    size_t size_bytes;  /* of the tensor */
    const void *source; /* what this rank contributes, in dtype */
    char *room;         /* of count elements of dtype, NULL = none was needed */
    size_t room_bytes;
    int64_t start_ns;
} task;

/* ---- one step ---- */

static int64_t later(int64_t time_ns, int64_t more_ns) { return time_ns > INT64_MAX - more_ns ? INT64_MAX : time_ns + more_ns; }

/* The call of a step: the user's print with all that a part needs, and none of the user's buffers. */
static transport_call step_of(const task *k, collective_kind kind, ag_dtype dtype) {
    transport_call step = {
        .print = k->request->print, .is_background = k->request->is_background, .deadline_ns = k->request->deadline_ns};
    step.call = (collective_call){.kind = kind, .op = k->op, .dtype = dtype, .sequence = k->call->sequence};
    step.call.count = kind == COLLECTIVE_BARRIER ? 0 : k->call->count;
    step.call.algorithm = kind == k->call->kind ? k->call->algorithm : algorithm_list(kind)[0];
    return step;
}

static ag_status run_part(transport *part, transport_call *step) {
    bool is_over;
    step->call.rank = part->rank;
    step->call.size = part->size;
    return part->ops->run(part, step, &is_over);
}

/* A leader that has failed and left is seen here before the reason is, which comes by the session. */
static ag_status await_reason(const task *k) {
    const ag_error record = *error_record();
    cancel *c = k->h->base.cancel;
    const struct timespec moment = {.tv_nsec = 1000000};
    int64_t end_ns = clock_ns() + GRACE_NS;
    while (!cancel_is_raised(c) && clock_ns() < end_ns && (k->request->is_background || !interrupt_pending()))
        nanosleep(&moment, NULL);
    if (cancel_is_raised(c)) return cancel_error(c, record.op, record.sequence);
    *error_record() = record;
    return record.code;
}

/* Nothing to do for who is alone on its host. */
static ag_status run_local(const task *k, transport_call *step) {
    if (!k->h->local) return AG_OK;
    step->print.flags = (uint8_t)k->flags;
    ag_status status = run_part(k->h->local, step);
    return status == AG_E_PEER ? await_reason(k) : status;
}

/* A step after one in which all on this host have met: the time counts from there. */
static ag_status run_local_again(const task *k, transport_call *step) {
    int64_t waited_ns = clock_ns() - k->start_ns;
    step->deadline_ns = later(step->deadline_ns, waited_ns + 2 * GRACE_NS);
    return run_local(k, step);
}

static ag_status meet_locally(const task *k) {
    transport_call step = step_of(k, COLLECTIVE_BARRIER, AG_BOOL);
    return run_local(k, &step);
}

/* The leader of a host waited for in vain may itself wait for a rank of its host: all of them are named. */
static ag_status blame_hosts(const hierarchy *h) {
    const ag_error record = *error_record();
    int32_t culprits[AG_MAX_CULPRITS];
    int num_culprits = 0, num_more = 0;
    char more[96] = "";
    size_t end = 0;
    for (int i = 0; i < record.num_culprits; i++) culprits[num_culprits++] = record.culprits[i];
    for (int i = 0; i < record.num_culprits; i++) {
        int host = 0;
        while (host < h->map->num_hosts && h->map->leader_ranks[host] != record.culprits[i]) host++;
        for (int rank = 0; rank < h->map->size; rank++) {
            if (h->map->host_of[rank] != host || h->map->local_of[rank] == 0) continue;
            if (num_culprits < AG_MAX_CULPRITS) culprits[num_culprits++] = h->base.world_ranks[rank];
            if (end + 16 < sizeof more)
                end += (size_t)snprintf(more + end, sizeof more - end, "%s%d", num_more ? ", " : "",
                                        (int)h->base.world_ranks[rank]);
            num_more++;
        }
    }
    if (num_more == 0) return record.code;
    error_set(record.code, record.op, NULL, NULL, record.hint, "%.150s, or from its host's rank%s %s", record.got,
              num_more == 1 ? "" : "s", more);
    error_set_culprits(culprits, num_culprits, record.sequence);
    return record.code;
}

/* On its host nobody is absent to the leaders: what is missing is missing from its sum already. */
static ag_status run_leaders(const task *k, transport_call *step) {
    step->print.flags = k->h->local ? 0 : k->request->print.flags;
    step->deadline_ns = later(step->deadline_ns, GRACE_NS);
    ag_status status = run_part(k->h->leaders, step);
    return status == AG_E_TIMEOUT ? blame_hosts(k->h) : status;
}

/* Leaders compare prints. Segments hold elements of the print's dtype: so it is an exchange of one each, and a barrier's byte
 * for a barrier only. */
static ag_status meet_leaders(const task *k) {
    const hierarchy *h = k->h;
    if (!h->leaders) return AG_OK;
    if (k->call->kind == COLLECTIVE_BARRIER) {
        transport_call step = step_of(k, COLLECTIVE_BARRIER, AG_BOOL);
        return run_leaders(k, &step);
    }
    transport_call step = step_of(k, COLLECTIVE_ALL_GATHER, k->call->dtype);
    step.call.algorithm = ALGORITHM_DIRECT;
    step.call.count = 1;
    step.call.input = h->marks;
    step.call.output = h->marks + 1;
    return run_leaders(k, &step);
}

/* ---- reductions ---- */

/* Room for what must not be in the output yet, or not in the user's dtype. */
static ag_status take_room(task *k, int64_t count) {
    k->room_bytes = (size_t)count * dtype_size(k->dtype);
    k->room = memory_alloc(k->room_bytes);
    return k->room ? AG_OK : error_memory(collective_kind_name(k->call->kind), k->room_bytes);
}

/* Memory with no contributions at all gives zeros, which are neutral in a sum only. */
static void set_neutral(const task *k) {
    size_t size = dtype_size(k->dtype);
    bool is_min = k->op == REDUCE_MIN, is_max = k->op == REDUCE_MAX;
    int64_t largest = k->dtype == AG_U8 ? 255 : (int64_t)(UINT64_MAX >> (65 - 8 * size));
    int64_t smallest = k->dtype == AG_U8 ? 0 : -largest - 1, one = k->op == REDUCE_PROD || k->op == REDUCE_AND;
    double infinity = __builtin_inf();
    for (int64_t i = 0; i < k->call->count; i++) {
        char *at = k->room + (size_t)i * size;
        if (dtype_is_float(k->dtype))
            element_write(k->dtype, at, is_min ? infinity : is_max ? -infinity : (double)one);
        else
            element_write_int(k->dtype, at, is_min ? largest : is_max ? smallest : one);
    }
}

static bool ranges_overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes) {
    uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
    return a && b && a_bytes > 0 && b_bytes > 0 && x < y + b_bytes && y < x + a_bytes;
}

static ag_status prepare_reduction(task *k, bool has_output) {
    const collective_call *call = k->call;
    const hierarchy *h = k->h;
    bool is_half = dtype_is_half(call->dtype), is_absent = (k->flags & CALL_ABSENT) != 0;
    k->dtype = is_half ? AG_F32 : call->dtype;
    k->op = call->op == REDUCE_MEAN ? REDUCE_SUM : call->op;
    k->overlaps = has_output && ranges_overlap(call->input, k->size_bytes, call->output, k->size_bytes);
    k->source = call->input;
    bool needs_neutral = is_absent && h->local && k->op != REDUCE_SUM;
    if ((h->leaders && h->local) || is_half || k->overlaps || needs_neutral) AG_TRY(take_room(k, call->count));
    if (needs_neutral) {
        set_neutral(k);
        k->flags = 0;
        k->source = k->room;
    } else if (is_half) {
        if (!is_absent) reduce_widen(k->room, call->input, call->dtype, call->count);
        k->source = k->room;
    }
    return AG_OK;
}

/* The leader has its host's sum in *sum afterwards. */
static ag_status reduce_locally(task *k, const void **sum) {
    transport_call step = step_of(k, COLLECTIVE_REDUCE, k->dtype);
    step.call.input = k->source;
    step.call.output = k->h->leaders ? k->room : NULL;
    *sum = k->h->local ? k->room : k->source;
    return run_local(k, &step);
}

/* Where a leader may put the sum of all hosts: outputs are written last of all when they lie over inputs. */
static char *sum_place(const task *k, bool has_output) {
    bool is_direct = has_output && !k->overlaps && !dtype_is_half(k->call->dtype);
    return is_direct ? k->call->output : k->room;
}

static void round_and_divide(const task *k, char *sum) {
    bool is_mean = k->call->op == REDUCE_MEAN;
    if (is_mean || dtype_is_half(k->call->dtype))
        reduce_finish(k->call->dtype, sum, sum, is_mean ? k->h->base.size : 1, k->call->count);
}

static ag_status all_reduce(task *k) {
    const hierarchy *h = k->h;
    const void *sum;
    AG_TRY(prepare_reduction(k, true));
    AG_TRY(reduce_locally(k, &sum));
    char *result = k->overlaps ? k->room : k->call->output;
    if (h->leaders) {
        result = sum_place(k, true);
        transport_call step = step_of(k, COLLECTIVE_ALL_REDUCE, k->dtype);
        step.call.input = sum;
        step.call.output = result;
        AG_TRY(run_leaders(k, &step));
        round_and_divide(k, result);
    }
    transport_call step = step_of(k, COLLECTIVE_BROADCAST, k->call->dtype);
    step.call.input = h->leaders ? result : NULL;
    step.call.output = h->leaders ? NULL : result;
    AG_TRY(run_local_again(k, &step));
    if (result != k->call->output) memcpy(k->call->output, result, k->size_bytes);
    return AG_OK;
}

/* The leader of the root's host hands the result on: a scatter in which the others get nothing. */
static ag_status hand_on(task *k, const char *result, char *output) {
    hierarchy *h = k->h;
    int target = h->map->local_of[k->call->root];
    transport_call step = step_of(k, COLLECTIVE_SCATTER, k->call->dtype);
    memset(h->local_counts, 0, (size_t)h->map->num_local * sizeof *h->local_counts);
    h->local_counts[target] = k->call->count;
    step.call.counts = h->local_counts;
    step.call.input = result;
    step.call.output = output;
    return run_local_again(k, &step);
}

static ag_status reduce(task *k) {
    const hierarchy *h = k->h;
    int root_host = h->map->host_of[k->call->root];
    bool is_root = h->base.rank == k->call->root, is_on_root_host = h->map->own_host == root_host;
    const void *sum;
    AG_TRY(prepare_reduction(k, is_root));
    AG_TRY(reduce_locally(k, &sum));
    char *result = is_root ? k->overlaps ? k->room : k->call->output : NULL;
    if (h->leaders) {
        if (is_on_root_host) result = sum_place(k, is_root);
        transport_call step = step_of(k, COLLECTIVE_REDUCE, k->dtype);
        step.call.root = root_host;
        step.call.input = sum;
        step.call.output = result;
        AG_TRY(run_leaders(k, &step));
        if (is_on_root_host) round_and_divide(k, result);
    }
    bool is_root_leader = h->map->local_of[k->call->root] == 0;
    if (is_on_root_host && !is_root_leader) AG_TRY(hand_on(k, h->leaders ? result : NULL, is_root ? result : NULL));
    if (is_root && result != k->call->output) memcpy(k->call->output, result, k->size_bytes);
    return AG_OK;
}

/* ---- all_gather ---- */

static int64_t count_of(const collective_call *call, int rank) { return call->counts ? call->counts[rank] : call->count; }

/* Copies the runs of all ranks, which lie in the order of hosts, into that of ranks. */
static void put_in_order(const task *k, char *dst, const char *src) {
    const hierarchy_map *m = k->h->map;
    size_t element = dtype_size(k->dtype);
    for (int host = 0; host < m->num_hosts; host++) {
        char *to = dst;
        for (int rank = 0; rank < m->size; rank++) {
            size_t num_bytes = (size_t)count_of(k->call, rank) * element;
            if (m->host_of[rank] == host && num_bytes > 0) {
                memcpy(to, src, num_bytes);
                src += num_bytes;
            }
            to += num_bytes;
        }
    }
}

/* The leader's steps. all: the runs in the order of hosts; those of this host begin at `own`. */
static ag_status gather_hosts(task *k, char *all, char *own) {
    hierarchy *h = k->h;
    if (!h->local && own != k->call->input && k->size_bytes > 0) memcpy(own, k->call->input, k->size_bytes);
    transport_call step = step_of(k, COLLECTIVE_ALL_GATHER, k->dtype);
    step.call.counts = h->host_counts;
    step.call.input = own;
    step.call.output = all;
    return run_leaders(k, &step);
}

/* A run that lies in its place of the output is written over with what it is. */
static ag_status all_gather(task *k) {
    hierarchy *h = k->h;
    const hierarchy_map *m = h->map;
    const collective_call *call = k->call;
    size_t element = dtype_size(k->dtype);
    int64_t total = 0, host_at = 0, own_at = 0;
    memset(h->host_counts, 0, (size_t)m->num_hosts * sizeof *h->host_counts);
    for (int rank = 0; rank < m->size; rank++) {
        int64_t count = count_of(call, rank);
        h->host_counts[m->host_of[rank]] += count;
        if (m->host_of[rank] == m->own_host) h->local_counts[m->local_of[rank]] = count;
        if (m->host_of[rank] < m->own_host) host_at += count;
        if (rank < m->rank) own_at += count;
        total += count;
    }
    char *output = call->output;
    size_t total_bytes = (size_t)total * element;
    k->size_bytes = (size_t)count_of(call, m->rank) * element;
    k->overlaps =
        call->input != output + own_at * (int64_t)element && ranges_overlap(call->input, k->size_bytes, output, total_bytes);
    bool sorts = h->leaders && !m->is_in_order;
    if (sorts || k->overlaps) AG_TRY(take_room(k, sorts && k->overlaps ? 2 * total : total));
    char *all = sorts || k->overlaps ? k->room : output, *result = k->overlaps ? all : output;
    char *own = all + host_at * (int64_t)element;
    transport_call step = step_of(k, COLLECTIVE_GATHER, k->dtype);
    step.call.counts = h->local_counts;
    step.call.input = call->input;
    step.call.output = h->leaders ? own : NULL;
    AG_TRY(run_local(k, &step));
    if (h->leaders) AG_TRY(gather_hosts(k, all, own));
    if (sorts && k->overlaps) result += total_bytes;
    if (sorts) put_in_order(k, result, all);
    step = step_of(k, COLLECTIVE_BROADCAST, k->dtype);
    step.call.count = total;
    step.call.input = h->leaders ? result : NULL;
    step.call.output = h->leaders ? NULL : result;
    AG_TRY(run_local_again(k, &step));
    if (result != output && total > 0) memcpy(output, result, total_bytes);
    return AG_OK;
}

/* ---- the others ---- */

static ag_status broadcast(task *k) {
    const hierarchy *h = k->h;
    int root_host = h->map->host_of[k->call->root];
    bool is_root = h->base.rank == k->call->root, is_on_root_host = h->map->own_host == root_host;
    transport_call local = step_of(k, COLLECTIVE_BROADCAST, k->call->dtype), step = local;
    local.call.root = is_on_root_host ? h->map->local_of[k->call->root] : 0;
    local.call.input = is_root ? k->call->input : k->call->output;
    local.call.output = k->call->output;
    /* On the other hosts, too, prints are compared before anybody waits for the network. */
    AG_TRY(is_on_root_host ? run_local(k, &local) : meet_locally(k));
    if (h->leaders) {
        step.call.root = root_host;
        step.call.input = local.call.input;
        step.call.output = local.call.output;
        AG_TRY(run_leaders(k, &step));
    }
    return is_on_root_host ? AG_OK : run_local_again(k, &local);
}

static ag_status barrier(task *k) {
    AG_TRY(meet_locally(k));
    AG_TRY(meet_leaders(k));
    transport_call step = step_of(k, COLLECTIVE_BARRIER, AG_BOOL);
    return run_local_again(k, &step);
}

/* The kinds that gain nothing: over the flat transport, once all are known to make this call. */
static ag_status run_flat(task *k) {
    AG_TRY(meet_locally(k));
    AG_TRY(meet_leaders(k));
    transport_call step = *k->request;
    step.deadline_ns = later(step.deadline_ns, clock_ns() - k->start_ns + 2 * GRACE_NS);
    return run_part(k->h->flat, &step);
}

/* Tells those who wait for this rank, and waits for nobody. The other ranks of its host tell all others, by the cancel. */
static ag_status refuse(const task *k) {
    transport_call step = step_of(k, COLLECTIVE_BARRIER, AG_BOOL);
    step.refusal = k->request->refusal;
    AG_TRY(run_local(k, &step));
    return k->h->leaders ? run_part(k->h->leaders, &step) : AG_OK;
}

ag_status hierarchy_run(transport *t, const transport_call *request, bool *is_over) {
    hierarchy *h = (hierarchy *)t;
    task k = {.h = h,
              .request = request,
              .call = &request->call,
              .flags = request->print.flags,
              .dtype = request->call.dtype,
              .op = request->call.op,
              .size_bytes = (size_t)request->call.count * dtype_size(request->call.dtype),
              .start_ns = clock_ns()};
    collective_kind kind = request->call.kind;
    h->num_calls++;
    if (collective_is_pair(kind)) return h->flat->ops->run(h->flat, request, is_over);
    ag_status status;
    if (k.flags & CALL_REFUSED)
        status = refuse(&k);
    else if (kind == COLLECTIVE_ALL_REDUCE)
        status = all_reduce(&k);
    else if (kind == COLLECTIVE_REDUCE)
        status = reduce(&k);
    else if (kind == COLLECTIVE_BROADCAST)
        status = broadcast(&k);
    else if (kind == COLLECTIVE_ALL_GATHER)
        status = all_gather(&k);
    else
        status = kind == COLLECTIVE_BARRIER ? barrier(&k) : run_flat(&k);
    memory_free(k.room, k.room_bytes);
    if (status != AG_OK) error_rename_op(collective_kind_name(kind), true);
    *is_over = status != AG_OK; /* other parts are in the middle of the call */
    return status;
}
