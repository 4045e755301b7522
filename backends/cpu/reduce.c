/* reduce.c: reductions over any set of dims, positions of extremes, logsumexp: bring calls into the form of the raw kernels.
 *
 * The dims of x are put in the order in which memory holds them, and neighbours of one kind (kept or reduced) are made one;
 * what is left alternates. One reduced group is the kernels' [outer, n, inner]. Several are reduced one after the other through
 * scratch, the largest first: every op here is associative, and its intermediate results have the dtype of the final one. So a
 * transposed or permuted x is read where it lies; only x with gaps or repeated elements is copied first.
 */
#include "cpu/reduce_kernels.h"

#include <assert.h>

#include "core/error.h"
#include "core/memory.h"
#include "cpu/cpu.h"
#include "ops/attrs.h"
#include "ops/rules.h"
#include "platform/interrupt.h"
#include "platform/pool.h"

enum {
    CHUNK_ELEMENTS = 32 * 1024, /* what one thread takes at a time */
    LOCAL_PARTIALS = 64,        /* blocks of a long row whose partial results lie on the stack */
    FEW_UNITS = 8,              /* fewer units of columns than this are cut along n as well */
    CUTS = 16,                  /* pieces of n then; fixed, so that results do not depend on the number of threads */
};

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* ---- one reduced group ---- */

struct reduce_job {
    struct reduce_task task;
    reduce_range_fn range;
};

static void run_range(void *context, int64_t begin, int64_t end) {
    struct reduce_job *job = context;
    if (!interrupt_pending()) job->range(&job->task, begin, end);
}

/* x: [outer, n, inner] of dtype, y: [outer, inner] of result */
struct group {
    reduce_op op;
    ag_dtype dtype, result;
    const char *x;
    char *y;
    int64_t outer, n, inner;
};

static const struct reduce_kernel *group_kernel(const struct group *g) {
    const struct reduce_kernel *entry = &cpu_reduce_kernels()->at[g->op][g->dtype];
    assert(entry->rows);
    return entry;
}

/* Rows too few to share out and long enough to be cut: the blocks of each row are shared out, with the bits of `rows`. */
static ag_status reduce_long_rows(const ag_call *call, const struct group *g) {
    struct reduce_partial local[LOCAL_PARTIALS], *partials = local;
    const struct reduce_kernel *entry = group_kernel(g);
    int64_t blocks = reduce_block_count(g->n);
    size_t size_bytes = (size_t)blocks * sizeof *partials;
    if (blocks > LOCAL_PARTIALS && !(partials = memory_alloc(size_bytes))) return error_memory(call->op->name, size_bytes);
    struct reduce_job job = {.task = {.y = partials, .n = g->n, .inner = 1}, .range = entry->partials};
    for (int64_t row = 0; row < g->outer && !interrupt_pending(); row++) {
        job.task.x = g->x + row * g->n * (int64_t)dtype_size(g->dtype);
        pool_run(run_range, &job, blocks, 1);
        if (!interrupt_pending()) entry->join(partials, blocks, g->y + row * (int64_t)dtype_size(g->result));
    }
    if (partials != local) memory_free(partials, size_bytes);
    return AG_OK;
}

/* Few columns, many rows: n is cut into pieces that are reduced side by side and then joined like one more group. */
static ag_status reduce_tall_columns(const ag_call *call, const struct group *g) {
    int64_t piece = (g->n + CUTS - 1) / CUTS, whole = g->n / piece, rest = g->n % piece, pieces = whole + (rest > 0);
    int64_t size = (int64_t)dtype_size(g->dtype), result_size = (int64_t)dtype_size(g->result);
    size_t size_bytes = (size_t)(pieces * g->inner * result_size);
    char *partial = memory_alloc(size_bytes);
    if (!partial) return error_memory(call->op->name, size_bytes);
    struct reduce_job job = {.task = {.inner = g->inner}, .range = group_kernel(g)->columns};
    reduce_range_fn join = cpu_reduce_kernels()->at[g->op][g->result].columns;
    for (int64_t i = 0; i < g->outer && !interrupt_pending(); i++) {
        job.task.x = g->x + i * g->n * g->inner * size;
        job.task.y = partial;
        job.task.n = piece;
        pool_run(run_range, &job, reduce_column_units(whole, g->inner), 1);
        struct reduce_task last = {.x = (const char *)job.task.x + whole * piece * g->inner * size,
                                   .y = partial + whole * g->inner * result_size, .n = rest, .inner = g->inner};
        if (rest) job.range(&last, 0, reduce_column_units(1, g->inner));
        struct reduce_task all = {.x = partial, .y = g->y + i * g->inner * result_size, .n = pieces, .inner = g->inner};
        if (!interrupt_pending()) join(&all, 0, reduce_column_units(1, g->inner));
    }
    memory_free(partial, size_bytes);
    return AG_OK;
}

static bool gives_positions(reduce_op op) { return op == REDUCE_ARGMAX || op == REDUCE_ARGMIN; }

static ag_status reduce_group(const ag_call *call, const struct group *g) {
    const struct reduce_kernel *entry = group_kernel(g);
    struct reduce_job job = {.task = {.x = g->x, .y = g->y, .n = g->n, .inner = g->inner}};
    bool is_rows = g->inner == 1;
    int64_t units = is_rows ? g->outer : reduce_column_units(g->outer, g->inner);
    job.range = is_rows ? entry->rows : entry->columns;
    int64_t numel = g->outer * g->n * g->inner;
    if (numel < 2 * CHUNK_ELEMENTS) {
        job.range(&job.task, 0, units);
        return AG_OK;
    }
    ag_status status = AG_OK;
    if (is_rows && g->n >= 2 * REDUCE_BLOCK_LEN && units < 2 * pool_num_threads()) {
        status = reduce_long_rows(call, g);
    } else if (!is_rows && units < FEW_UNITS && g->n >= 16 * CUTS && numel >= 4 * CHUNK_ELEMENTS && !gives_positions(g->op)) {
        status = reduce_tall_columns(call, g);
    } else {
        pool_run(run_range, &job, units, larger(1, CHUNK_ELEMENTS / larger(1, numel / units)));
    }
    if (status == AG_OK && interrupt_pending())
        status = call_fail(call, AG_E_INTERRUPTED, NULL, NULL, NULL, "an interrupt");
    return status;
}

/* ---- any set of dims ---- */

struct axis {
    int64_t size, stride;
    int dim;
    bool is_reduced;
};

/* The axes of x that are longer than 1, outermost in memory first. */
struct layout {
    struct axis axes[AG_MAX_NDIM];
    int num_axes;
    bool is_dense;    /* each element of one piece of memory occurs once */
    bool is_permuted; /* the kept axes stand in another order in memory than in the result */
};

static void layout_init(struct layout *l, const ag_tensor *x, const int64_t *strides, uint32_t mask) {
    l->num_axes = 0;
    for (int d = 0; d < x->ndim; d++) {
        if (x->dims[d] == 1) continue;
        struct axis axis = {x->dims[d], strides[d], d, (mask >> d & 1) != 0};
        int place = l->num_axes++;
        for (; place > 0 && l->axes[place - 1].stride < axis.stride; place--) l->axes[place] = l->axes[place - 1];
        l->axes[place] = axis;
    }
    int64_t expected = 1;
    int next_kept = AG_MAX_NDIM;
    l->is_dense = true;
    l->is_permuted = false;
    for (int i = l->num_axes - 1; i >= 0; i--) {
        const struct axis *axis = &l->axes[i];
        l->is_dense &= axis->stride == expected;
        expected *= axis->size;
        if (axis->is_reduced) continue;
        l->is_permuted |= axis->dim > next_kept;
        next_kept = axis->dim;
    }
}

/* merge_axes joins neighbours of one kind; strides and dims of the axes have no meaning afterwards. */
static void merge_axes(struct layout *l) {
    int last = 0;
    for (int i = 1; i < l->num_axes; i++) {
        if (l->axes[i].is_reduced == l->axes[last].is_reduced) l->axes[last].size *= l->axes[i].size;
        else l->axes[++last] = l->axes[i];
    }
    if (l->num_axes) l->num_axes = last + 1;
}

static int64_t axes_numel(const struct layout *l, int begin, int end) {
    int64_t numel = 1;
    for (int i = begin; i < end; i++) numel *= l->axes[i].size;
    return numel;
}

/* The largest reduced axis, or -1; *count is how many there are. */
static int find_reduced(const struct layout *l, int *count) {
    int best = -1;
    *count = 0;
    for (int i = 0; i < l->num_axes; i++) {
        if (!l->axes[i].is_reduced) continue;
        ++*count;
        if (best < 0 || l->axes[i].size > l->axes[best].size) best = i;
    }
    return best;
}

/* Reduces x, in the dense layout l, into y: the kept axes in the order of memory. */
static ag_status reduce_layout(const ag_call *call, reduce_op op, struct layout *l, const void *x, void *y) {
    struct group g = {.op = op, .dtype = call->compute, .result = call->out[0].dtype, .x = x};
    void *scratch = NULL;
    size_t scratch_bytes = 0;
    for (;;) {
        merge_axes(l);
        int count, axis = find_reduced(l, &count);
        g.outer = axis < 0 ? 1 : axes_numel(l, 0, axis);
        g.n = axis < 0 ? 1 : l->axes[axis].size;
        g.inner = axes_numel(l, axis + 1, l->num_axes);
        bool is_last = count <= 1;
        size_t size_bytes = is_last ? 0 : (size_t)(g.outer * g.inner) * dtype_size(g.result);
        void *target = is_last ? y : memory_alloc(size_bytes);
        g.y = target;
        ag_status status = target ? reduce_group(call, &g) : error_memory(call->op->name, size_bytes);
        memory_free(scratch, scratch_bytes);
        if (is_last) return status;
        if (status != AG_OK) {
            memory_free(target, size_bytes);
            return status;
        }
        g.x = scratch = target;
        scratch_bytes = size_bytes;
        g.dtype = g.result;
        l->num_axes--;
        for (int i = axis; i < l->num_axes; i++) l->axes[i] = l->axes[i + 1];
    }
}

/* Writes the result, whose kept axes lie in the order of memory, to y in the order of dims. */
static void copy_permuted(const struct layout *l, const void *source, const ag_tensor *y) {
    struct strided_copy copy = {.source = source, .target = tensor_address(y), .source_dtype = (ag_dtype)y->dtype,
                                .target_dtype = (ag_dtype)y->dtype};
    for (int i = 0; i < l->num_axes; i++) {
        if (l->axes[i].is_reduced) continue;
        int64_t source_stride = 1, target_stride = 1;
        for (int k = 0; k < l->num_axes; k++) {
            if (l->axes[k].is_reduced) continue;
            if (k > i) source_stride *= l->axes[k].size;
            if (l->axes[k].dim > l->axes[i].dim) target_stride *= l->axes[k].size;
        }
        copy.dims[copy.ndim] = l->axes[i].size;
        copy.source_strides[copy.ndim] = source_stride;
        copy.target_strides[copy.ndim++] = target_stride;
    }
    cpu_strided_copy(&copy);
}

static void copy_contiguous(const ag_tensor *x, const int64_t *strides, void *target) {
    struct strided_copy copy = {.ndim = x->ndim, .source = tensor_address(x), .target = target,
                                .source_dtype = (ag_dtype)x->dtype, .target_dtype = (ag_dtype)x->dtype};
    for (int d = 0; d < x->ndim; d++) {
        copy.dims[d] = x->dims[d];
        copy.source_strides[d] = x->strides[d];
        copy.target_strides[d] = strides[d];
    }
    cpu_strided_copy(&copy);
}

/* Reduces through a copy of x (when it has gaps), of the result (when its dims come out in another order), or both. */
static ag_status reduce_copied(const ag_call *call, reduce_op op, uint32_t mask, struct layout *l, bool copies_x) {
    const ag_tensor *x = call->inputs[0], *y = call->outputs[0];
    size_t x_bytes = 0, y_bytes = (size_t)y->numel * dtype_size(call->out[0].dtype);
    const void *source = tensor_address(x);
    void *x_copy = NULL, *result = NULL;
    ag_status status = AG_OK;
    if (copies_x) {
        int64_t strides[AG_MAX_NDIM];
        shape s = tensor_shape(x);
        shape_contiguous_strides(&s, strides);
        x_bytes = (size_t)x->numel * dtype_size(call->compute);
        x_copy = memory_alloc(x_bytes);
        if (!x_copy) return error_memory(call->op->name, x_bytes);
        copy_contiguous(x, strides, x_copy);
        layout_init(l, x, strides, mask);
        source = x_copy;
    }
    struct layout merged = *l;
    if (l->is_permuted && !(result = memory_alloc(y_bytes))) status = error_memory(call->op->name, y_bytes);
    if (status == AG_OK) status = reduce_layout(call, op, &merged, source, result ? result : tensor_address(y));
    if (status == AG_OK && result) copy_permuted(l, result, y);
    memory_free(x_copy, x_bytes);
    memory_free(result, y_bytes);
    return status;
}

/* Reduces input 0 over the dims of mask into output 0. needs_order: positions count the elements of x in row-major order. */
static ag_status reduce_dims(const ag_call *call, reduce_op op, uint32_t mask, bool needs_order) {
    const ag_tensor *x = call->inputs[0], *y = call->outputs[0];
    assert((ag_dtype)x->dtype == call->compute);
    if (y->numel == 0) return AG_OK;
    if (x->numel == 0) {
        struct group g = {op, call->compute, call->out[0].dtype, tensor_address(x), tensor_address(y), y->numel, 0, 1};
        return reduce_group(call, &g);
    }
    struct layout l;
    layout_init(&l, x, x->strides, mask);
    bool copies_x = !l.is_dense || (needs_order && !x->is_contiguous);
    if (copies_x || l.is_permuted) return reduce_copied(call, op, mask, &l, copies_x);
    return reduce_layout(call, op, &l, tensor_address(x), tensor_address(y));
}

/* ---- the ops ---- */

ag_status cpu_reduce(ag_call *call) {
    reduce_op op = REDUCE_SUM;
    switch (call->op->id) {
    case OP_sum: op = REDUCE_SUM; break;
    case OP_prod: op = REDUCE_PROD; break;
    case OP_amax: op = REDUCE_MAX; break;
    case OP_amin: op = REDUCE_MIN; break;
    case OP_any: op = REDUCE_ANY; break;
    case OP_all: op = REDUCE_ALL; break;
    default: assert(false);
    }
    uint32_t mask;
    AG_TRY(rule_reduced_dims(call, CALL_ATTRS(call, attrs_reduce)->dims, call->inputs[0]->ndim, &mask));
    return reduce_dims(call, op, mask, false);
}

ag_status cpu_logsumexp(ag_call *call) {
    uint32_t mask;
    AG_TRY(rule_reduced_dims(call, CALL_ATTRS(call, attrs_reduce)->dims, call->inputs[0]->ndim, &mask));
    return reduce_dims(call, REDUCE_LOGSUMEXP, mask, false);
}

ag_status cpu_arg_reduce(ag_call *call) {
    const ag_tensor *x = call->inputs[0], *y = call->outputs[0];
    int64_t dim = CALL_ATTRS(call, attrs_reduce_one)->dim;
    bool is_flat = dim == ATTR_NO_INT;
    uint32_t mask = is_flat ? (1u << x->ndim) - 1 : 1u << dim_resolve(dim, x->ndim);
    AG_TRY(reduce_dims(call, call->op->id == OP_argmax ? REDUCE_ARGMAX : REDUCE_ARGMIN, mask, is_flat));
    int64_t *positions = tensor_address(y);
    for (int64_t i = 0; call->index_base && i < y->numel; i++) positions[i] += call->index_base;
    return AG_OK;
}
