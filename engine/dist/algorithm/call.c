/* call.c: names, the checks of a call, and its buffers. */
#include <assert.h>
#include <string.h>

#include "core/dtype.h"
#include "core/error.h"
#include "core/memory.h"
#include "dist/algorithm/plan.h"

#define NAME(constant, name) name,
static const char *const kind_names[] = {COLLECTIVE_KIND_MAP(NAME)};
static const char *const op_names[] = {REDUCE_OP_MAP(NAME)};
static const char *const algorithm_names[] = {ALGORITHM_MAP(NAME)};
#undef NAME

static const collective_algorithm algorithms[COLLECTIVE_KIND_COUNT][4] = {
    [COLLECTIVE_ALL_REDUCE] = {ALGORITHM_DIRECT, ALGORITHM_HALVING, ALGORITHM_RING, ALGORITHM_ANY},
    [COLLECTIVE_REDUCE] = {ALGORITHM_TREE, ALGORITHM_ANY},
    [COLLECTIVE_BROADCAST] = {ALGORITHM_TREE, ALGORITHM_CHAIN, ALGORITHM_ANY},
    [COLLECTIVE_ALL_GATHER] = {ALGORITHM_DIRECT, ALGORITHM_RING, ALGORITHM_ANY},
    [COLLECTIVE_REDUCE_SCATTER] = {ALGORITHM_DIRECT, ALGORITHM_RING, ALGORITHM_ANY},
    [COLLECTIVE_GATHER] = {ALGORITHM_DIRECT, ALGORITHM_ANY},
    [COLLECTIVE_SCATTER] = {ALGORITHM_DIRECT, ALGORITHM_ANY},
    [COLLECTIVE_ALL_TO_ALL] = {ALGORITHM_DIRECT, ALGORITHM_ANY},
    [COLLECTIVE_SEND] = {ALGORITHM_DIRECT, ALGORITHM_ANY},
    [COLLECTIVE_RECEIVE] = {ALGORITHM_DIRECT, ALGORITHM_ANY},
    [COLLECTIVE_BARRIER] = {ALGORITHM_DISSEMINATION, ALGORITHM_ANY},
};

const char *collective_kind_name(collective_kind kind) { return kind_names[kind]; }
const char *reduce_op_name(reduce_op op) { return op_names[op]; }
const char *algorithm_name(collective_algorithm algorithm) { return algorithm_names[algorithm]; }
const collective_algorithm *algorithm_list(collective_kind kind) { return algorithms[kind]; }

static bool has_root(collective_kind kind) {
    return kind == COLLECTIVE_REDUCE || kind == COLLECTIVE_BROADCAST || kind == COLLECTIVE_GATHER
        || kind == COLLECTIVE_SCATTER || collective_is_pair(kind);
}

ag_status collective_supports(collective_kind kind, reduce_op op, ag_dtype dtype) {
    if (!collective_is_reduction(kind)) return AG_OK;
    const char *name = kind_names[kind], *got = dtype_name(dtype);
    bool is_logical = op == REDUCE_AND || op == REDUCE_OR;
    if (dtype == AG_BOOL && !is_logical)
        return error_set(AG_E_DTYPE, name, op_names[op], "a float or int dtype", "use `and` or `or`, or cast to an int first",
                         "%s", got);
    if (is_logical && dtype != AG_BOOL)
        return error_set(AG_E_DTYPE, name, op_names[op], "bool", "compare with 0 first", "%s", got);
    if (op == REDUCE_MEAN && !dtype_is_float(dtype))
        return error_set(AG_E_DTYPE, name, op_names[op], "a float dtype", "use sum, or cast to a float first", "%s", got);
    return AG_OK;
}

static bool has_algorithm(const collective_call *call) {
    for (const collective_algorithm *a = algorithms[call->kind]; *a != ALGORITHM_ANY; a++)
        if (*a == call->algorithm) return true;
    return false;
}

/* The most elements that a call may have on one rank: its bytes, also as f64, have to be countable. */
#define MAX_COUNT (INT64_MAX / 64)

static bool takes_counts(collective_kind kind) {
    return kind == COLLECTIVE_ALL_GATHER || kind == COLLECTIVE_GATHER || kind == COLLECTIVE_SCATTER
        || kind == COLLECTIVE_ALL_TO_ALL;
}

static ag_status check_counts(const collective_call *call, const char *arg, const int64_t *counts) {
    int64_t total = 0;
    for (int i = 0; i < call->size; i++) {
        int64_t count = counts ? counts[i] : call->count;
        if (count < 0 || count > MAX_COUNT - total)
            return error_set(AG_E_ARGUMENT, kind_names[call->kind], arg, "counts >= 0 whose sum fits memory", NULL,
                             "%lld for rank %d", (long long)count, i);
        total += count;
    }
    return AG_OK;
}

static ag_status check(const collective_call *call) {
    if ((unsigned)call->kind >= COLLECTIVE_KIND_COUNT)
        return error_set(AG_E_ARGUMENT, "collective", "kind", "a known kind", NULL, "%d", (int)call->kind);
    const char *name = kind_names[call->kind];
    if (call->size < 1) return error_set(AG_E_ARGUMENT, name, "size", "at least 1", NULL, "%d", call->size);
    if (call->rank < 0 || call->rank >= call->size)
        return error_set(AG_E_ARGUMENT, name, "rank", "0 to size - 1", NULL, "%d of %d", call->rank, call->size);
    if (has_root(call->kind) && (call->root < 0 || call->root >= call->size))
        return error_set(AG_E_ARGUMENT, name, "root", "a rank of the group", NULL, "%d of %d", call->root, call->size);
    if (collective_is_pair(call->kind) && call->root == call->rank)
        return error_set(AG_E_ARGUMENT, name, "peer", "another rank", NULL, "%d, this rank itself", call->root);
    if ((unsigned)call->dtype >= AG_DTYPE_COUNT)
        return error_set(AG_E_DTYPE, name, "dtype", "a dtype", NULL, "%d", (int)call->dtype);
    if ((unsigned)call->op >= REDUCE_OP_COUNT)
        return error_set(AG_E_ARGUMENT, name, "op", "a reduce op", NULL, "%d", (int)call->op);
    if (call->algorithm != ALGORITHM_ANY && !has_algorithm(call))
        return error_set(AG_E_ARGUMENT, name, "algorithm", algorithm_names[algorithms[call->kind][0]], NULL, "%s",
                         (unsigned)call->algorithm < ALGORITHM_COUNT ? algorithm_names[call->algorithm] : "an unknown one");
    if (call->counts && !takes_counts(call->kind))
        return error_set(AG_E_ARGUMENT, name, "counts", "none", "give count", "counts for every rank");
    if (call->kind == COLLECTIVE_ALL_TO_ALL && call->counts && !call->output_counts)
        return error_set(AG_E_ARGUMENT, name, "output_counts", "counts for every rank", NULL, "none");
    AG_TRY(check_counts(call, "counts", call->counts));
    if (call->kind == COLLECTIVE_ALL_TO_ALL && call->counts) AG_TRY(check_counts(call, "output_counts", call->output_counts));
    return collective_supports(call->kind, call->op, call->dtype);
}

/* Elements of input and output on this rank, and the coordinate of the first one of each. */
typedef struct extents {
    int64_t input, output, input_origin, output_origin;
} extents;

static extents extents_of(const collective_call *call) {
    int64_t total = block_offset(call->counts, call->count, call->size);
    int64_t own = block_offset(call->counts, call->count, call->rank);
    int64_t block = block_offset(call->counts, call->count, call->rank + 1) - own;
    bool is_root = call->rank == call->root;
    switch (call->kind) {
    case COLLECTIVE_ALL_REDUCE: return (extents){call->count, call->count, 0, 0};
    case COLLECTIVE_REDUCE: return (extents){call->count, is_root ? call->count : 0, 0, 0};
    case COLLECTIVE_BROADCAST: return (extents){is_root ? call->count : 0, is_root && !call->output ? 0 : call->count, 0, 0};
    case COLLECTIVE_ALL_GATHER: return (extents){block, total, own, 0};
    case COLLECTIVE_REDUCE_SCATTER:
        own = chunk_offset(call->count, call->size, call->rank);
        return (extents){call->count, chunk_offset(call->count, call->size, call->rank + 1) - own, 0, own};
    case COLLECTIVE_GATHER: return (extents){block, is_root ? total : 0, own, 0};
    case COLLECTIVE_SCATTER: return (extents){is_root ? total : 0, block, 0, own};
    case COLLECTIVE_ALL_TO_ALL:
        if (call->counts) return (extents){total, block_offset(call->output_counts, 0, call->size), 0, 0};
        return (extents){total, total, 0, 0};
    case COLLECTIVE_SEND: return (extents){call->count, 0, 0, 0};
    case COLLECTIVE_RECEIVE: return (extents){0, call->count, 0, 0};
    default: return (extents){0, 0, 0, 0};
    }
}

/* Whether results must be kept aside. The own run of a gather that lies where it has to is never written, nor is what
 * broadcast leaves in place. */
static bool must_set_aside(const collective_call *call, const extents *e) {
    uintptr_t input = (uintptr_t)call->input, output = (uintptr_t)call->output, size = dtype_size(call->dtype);
    uintptr_t input_end = input + (uintptr_t)e->input * size, output_end = output + (uintptr_t)e->output * size;
    if (e->input == 0 || e->output == 0 || input >= output_end || output >= input_end) return false;
    bool is_move = !collective_is_reduction(call->kind) && call->kind != COLLECTIVE_ALL_TO_ALL;
    return !(is_move && output + (uintptr_t)(e->input_origin - e->output_origin) * size == input);
}

/* The elements that reductions on this rank may touch: [*begin, *begin + return value). */
static int64_t accumulator_range(const collective_call *call, int64_t *begin) {
    *begin = 0;
    if (!collective_is_reduction(call->kind) || call->size == 1) return 0;
    if (call->kind == COLLECTIVE_REDUCE) {
        int place = (call->rank - call->root + call->size) % call->size;
        bool is_leaf = (place & 1) != 0 || place == call->size - 1;
        return is_leaf ? 0 : call->count;
    }
    if (call->algorithm != ALGORITHM_DIRECT) return call->count;
    *begin = chunk_offset(call->count, call->size, call->rank);
    return chunk_offset(call->count, call->size, call->rank + 1) - *begin;
}

static ag_status set_buffers(collective *c) {
    const collective_call *call = &c->call;
    extents e = extents_of(call);
    size_t size = dtype_size(call->dtype);
    if ((e.input > 0 && !call->input) || (e.output > 0 && !call->output))
        return error_set(AG_E_ARGUMENT, kind_names[call->kind], e.input > 0 && !call->input ? "input" : "output", "an address",
                         NULL, "NULL");
    c->buffers[BUFFER_INPUT] = (collective_buffer){(char *)call->input, e.input_origin, call->dtype};
    c->buffers[BUFFER_WORK] = (collective_buffer){call->output, e.output_origin, call->dtype};
    bool is_barrier = call->kind == COLLECTIVE_BARRIER;
    if (is_barrier || must_set_aside(call, &e)) {
        c->output_length = e.output;
        c->work_bytes = is_barrier ? 2 : (size_t)e.output * size; /* a barrier's tokens: one out, one in */
        c->work = memory_alloc(c->work_bytes);
        if (!c->work) return error_memory(kind_names[call->kind], c->work_bytes);
        if (is_barrier) memset(c->work, 0, c->work_bytes);
        c->buffers[BUFFER_WORK].data = c->work;
    }
    int64_t begin, length = accumulator_range(call, &begin);
    c->buffers[BUFFER_ACCUMULATOR] = c->buffers[BUFFER_WORK];
    c->buffers[BUFFER_ACCUMULATOR].dtype = accumulator_dtype(call->dtype);
    bool lies_in_work = begin >= e.output_origin && begin + length <= e.output_origin + e.output;
    if (length == 0 || (lies_in_work && !dtype_is_half(call->dtype))) return AG_OK;
    c->accumulator_bytes = (size_t)length * dtype_size(accumulator_dtype(call->dtype));
    c->accumulator = memory_alloc(c->accumulator_bytes);
    if (!c->accumulator) return error_memory(kind_names[call->kind], c->accumulator_bytes);
    c->buffers[BUFFER_ACCUMULATOR].data = c->accumulator;
    c->buffers[BUFFER_ACCUMULATOR].origin = begin;
    return AG_OK;
}

ag_status collective_init(collective *c, const collective_call *call) {
    memset(c, 0, sizeof *c);
    AG_TRY(check(call));
    c->call = *call;
    if (c->call.algorithm == ALGORITHM_ANY) c->call.algorithm = algorithms[call->kind][0];
    if (call->kind == COLLECTIVE_BARRIER) c->call.dtype = AG_U8;
    ag_status status = set_buffers(c);
    if (status != AG_OK) goto failed;
    int64_t room = plan_room(call);
    c->max_transfers = (int32_t)room;
    c->transfers = heap_alloc((size_t)room * sizeof *c->transfers);
    c->send_head = heap_alloc(2 * (size_t)call->size * sizeof *c->send_head);
    if (!c->transfers || !c->send_head) {
        status = error_memory(kind_names[call->kind], (size_t)room * sizeof *c->transfers);
        goto failed;
    }
    c->receive_head = c->send_head + call->size;
    plan_make(c);
    c->next_peer = (call->rank + 1) % call->size; /* not all at one rank at once */
    collective_start(c);
    return AG_OK;
failed:
    collective_deinit(c);
    return status;
}
