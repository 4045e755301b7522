/* nn.c: softmax, layer norm and cross-entropy: wrap the fused row kernels for calls and share the rows out over the pool. */
#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "cpu/cpu.h"
#include "cpu/fused.h"
#include "ops/attrs.h"
#include "platform/interrupt.h"
#include "platform/pool.h"

enum {
    CHUNK_ELEMENTS = 32 * 1024,  /* what one thread takes at a time */
    BLOCK_ELEMENTS = 16 * 1024,  /* a transposed block: half of it stays in the L1 cache, all of it in L2 */
    TILE = 16,                   /* a cache line of f32 */
    BLOCK_ROWS_MIN = 4,          /* the norm kernel adds four rows to the weight gradients at once */
    PARTIALS_MAX = 32,           /* blocks of rows with weight gradients of their own */
};

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static int64_t rows_per_chunk(int64_t row_elements) { return larger(1, CHUNK_ELEMENTS / larger(1, row_elements)); }
static void *advance(const void *base, int64_t elements, size_t size) { return (char *)base + elements * (int64_t)size; }

/* address_of is the data of an optional input: NULL when it is absent. */
static void *address_of(const ag_tensor *tensor) { return tensor ? tensor_address(tensor) : NULL; }

/* The dtype of the call as a slot of the kernel tables. */
static ag_dtype kernel_slot(const ag_call *call) {
    assert(call->compute == AG_F32 || call->compute == AG_F64);
    return call->compute;
}

static ag_status interrupted_or_ok(const ag_call *call) {
    return interrupt_pending() ? call_fail(call, AG_E_INTERRUPTED, NULL, NULL, NULL, "an interrupt") : AG_OK;
}

/* ---- softmax ---- */

/* x, y, g, dx: [outer, n, inner], normalised along n. `forward` or `backward` is set, the other NULL. */
struct softmax_job {
    softmax_fn forward;
    softmax_backward_fn backward;
    const void *source; /* x, or g */
    const void *result; /* y of backward, else NULL */
    void *target;       /* y, or dx */
    int64_t outer, n, inner;
    int64_t width; /* columns of inner in a transposed block */
    size_t size;   /* bytes an element */
    atomic_bool is_out_of_memory;
};

static void softmax_apply(const struct softmax_job *job, const void *source, const void *result, void *target, int64_t begin,
                          int64_t end) {
    if (job->forward) job->forward(source, target, job->n, begin, end);
    else job->backward(source, result, target, job->n, begin, end);
}

static void softmax_rows(void *context, int64_t begin, int64_t end) {
    const struct softmax_job *job = context;
    if (interrupt_pending()) return;
    softmax_apply(job, job->source, job->result, job->target, begin, end);
}

/* transpose: dst[j, i] = src[i, j], src: [rows, columns] and dst: [columns, rows], of the given row lengths in memory. A tile
 * is read and written by whole cache lines, by way of a copy: with row lengths that are powers of two the lines of a tile
 * displace each other, so none may be needed twice. */
#define DEFINE_TRANSPOSE(real)                                                                                                \
    static void transpose_##real(const real *restrict src, int64_t src_stride, real *restrict dst, int64_t dst_stride,        \
                                 int64_t rows, int64_t columns) {                                                             \
        real tile[TILE][TILE];                                                                                                \
        for (int64_t row = 0; row < rows; row += TILE)                                                                        \
            for (int64_t column = 0; column < columns; column += TILE) {                                                      \
                int64_t height = smaller(TILE, rows - row), width = smaller(TILE, columns - column);                          \
                const real *from = src + row * src_stride + column;                                                           \
                real *to = dst + column * dst_stride + row;                                                                   \
                if (height == TILE && width == TILE) {                                                                        \
                    for (int64_t i = 0; i < TILE; i++)                                                                        \
                        for (int64_t j = 0; j < TILE; j++) tile[i][j] = from[i * src_stride + j];                             \
                    for (int64_t j = 0; j < TILE; j++)                                                                        \
                        for (int64_t i = 0; i < TILE; i++) to[j * dst_stride + i] = tile[i][j];                               \
                } else {                                                                                                      \
                    for (int64_t i = 0; i < height; i++)                                                                      \
                        for (int64_t j = 0; j < width; j++) to[j * dst_stride + i] = from[i * src_stride + j];                \
                }                                                                                                             \
            }                                                                                                                 \
    }
DEFINE_TRANSPOSE(float)
DEFINE_TRANSPOSE(double)
#undef DEFINE_TRANSPOSE

static void transpose(const void *src, int64_t src_stride, void *dst, int64_t dst_stride, int64_t rows, int64_t columns,
                      size_t size) {
    if (size == sizeof(float)) transpose_float(src, src_stride, dst, dst_stride, rows, columns);
    else transpose_double(src, src_stride, dst, dst_stride, rows, columns);
}

/* A block is up to `width` neighbouring columns of one outer index; they become rows in the scratch, one or two [width, n]. */
static void softmax_blocks(void *context, int64_t begin, int64_t end) {
    struct softmax_job *job = context;
    int64_t n = job->n, inner = job->inner, blocks_per_outer = ceil_div(inner, job->width);
    size_t size = job->size, scratch_bytes = (size_t)(job->width * n) * size * (job->result ? 2 : 1);
    void *scratch = memory_alloc(scratch_bytes);
    if (!scratch) {
        atomic_store(&job->is_out_of_memory, true);
        return;
    }
    void *second = job->result ? advance(scratch, job->width * n, size) : NULL;
    for (int64_t block = begin; block < end && !interrupt_pending(); block++) {
        int64_t column = block % blocks_per_outer * job->width, columns = smaller(job->width, inner - column);
        int64_t offset = block / blocks_per_outer * n * inner + column;
        transpose(advance(job->source, offset, size), inner, scratch, n, n, columns, size);
        if (second) transpose(advance(job->result, offset, size), inner, second, n, n, columns, size);
        softmax_apply(job, scratch, second, scratch, 0, columns);
        transpose(scratch, n, advance(job->target, offset, size), inner, columns, n, size);
    }
    memory_free(scratch, scratch_bytes);
}

/* softmax_run fills in sizes and arrays and runs the job along dim. */
static ag_status softmax_run(ag_call *call, struct softmax_job *job) {
    const ag_tensor *x = call->inputs[0];
    const struct attrs_dim *attrs = CALL_ATTRS(call, attrs_dim);
    int dim = dim_resolve(attrs->dim, x->ndim);
    assert(dim >= 0);
    if (x->numel == 0) return AG_OK;
    job->outer = job->n = job->inner = 1;
    for (int i = 0; i < x->ndim; i++) *(i < dim ? &job->outer : i == dim ? &job->n : &job->inner) *= x->dims[i];
    job->source = tensor_address(x);
    job->result = job->backward ? tensor_address(call->inputs[1]) : NULL;
    job->target = tensor_address(call->outputs[0]);
    job->size = dtype_size(call->compute);
    if (job->inner == 1) {
        pool_run(softmax_rows, job, job->outer, rows_per_chunk(job->n));
        return interrupted_or_ok(call);
    }
    int64_t width = larger(TILE, BLOCK_ELEMENTS / job->n / TILE * TILE);
    job->width = smaller(width, job->inner);
    pool_run(softmax_blocks, job, job->outer * ceil_div(job->inner, job->width), rows_per_chunk(job->width * job->n));
    if (atomic_load(&job->is_out_of_memory))
        return error_memory(call->op->name, (size_t)(job->width * job->n) * job->size * (job->result ? 2 : 1));
    return interrupted_or_ok(call);
}

ag_status cpu_softmax(ag_call *call) {
    const struct softmax_kernels *kernels = cpu_fused_kernels()->softmax;
    ag_dtype slot = kernel_slot(call);
    struct softmax_job job = {
        .forward = call->op->id == OP_log_softmax ? kernels->log_softmax[slot] : kernels->softmax[slot]};
    return softmax_run(call, &job);
}

ag_status cpu_softmax_backward(ag_call *call) {
    const struct softmax_kernels *kernels = cpu_fused_kernels()->softmax;
    ag_dtype slot = kernel_slot(call);
    struct softmax_job job = {.backward = call->op->id == OP_log_softmax_backward ? kernels->log_softmax_backward[slot]
                                                                                  : kernels->softmax_backward[slot]};
    return softmax_run(call, &job);
}

/* ---- layer norm ---- */

struct norm_job {
    norm_forward_fn forward;
    struct norm_forward args;
};

static void norm_rows(void *context, int64_t begin, int64_t end) {
    const struct norm_job *job = context;
    if (!interrupt_pending()) job->forward(&job->args, begin, end);
}

ag_status cpu_layer_norm_stats(ag_call *call) {
    const ag_tensor *x = call->inputs[0];
    const struct attrs_norm_stats *attrs = CALL_ATTRS(call, attrs_norm_stats);
    assert(x->ndim == 2 && x->dims[1] == attrs->width);
    struct norm_job job = {
        .forward = cpu_fused_kernels()->norm->layer_norm[kernel_slot(call)],
        .args = {.x = tensor_address(x), .weight = address_of(call->inputs[1]), .bias = address_of(call->inputs[2]),
                 .y = tensor_address(call->outputs[0]), .mean = tensor_address(call->outputs[1]),
                 .rstd = tensor_address(call->outputs[2]), .n = attrs->width, .eps = attrs->eps}};
    pool_run(norm_rows, &job, x->dims[0], rows_per_chunk(attrs->width));
    return interrupted_or_ok(call);
}

/* Blocks of rows, cut by the shape alone, have weight gradients of their own that are added up in order: the result does not
 * depend on the number of threads. */
struct norm_backward_job {
    norm_backward_fn backward;
    norm_sum_fn sum;
    struct norm_backward args; /* dweight and dbias: [num_blocks, n] */
    int64_t rows, block_rows, num_blocks;
    size_t size; /* bytes an element */
    void *dweight, *dbias; /* [n], the outputs */
};

static void norm_backward_blocks(void *context, int64_t begin, int64_t end) {
    const struct norm_backward_job *job = context;
    for (int64_t block = begin; block < end && !interrupt_pending(); block++) {
        struct norm_backward args = job->args;
        args.dweight = advance(args.dweight, block * args.n, job->size);
        args.dbias = advance(args.dbias, block * args.n, job->size);
        job->backward(&args, block * job->block_rows, smaller(job->rows, (block + 1) * job->block_rows));
    }
}

static void norm_sum_columns(void *context, int64_t begin, int64_t end) {
    const struct norm_backward_job *job = context;
    job->sum(job->args.dweight, job->num_blocks, job->args.n, job->dweight, begin, end);
    job->sum(job->args.dbias, job->num_blocks, job->args.n, job->dbias, begin, end);
}

ag_status cpu_layer_norm_backward(ag_call *call) {
    const ag_tensor *x = call->inputs[1];
    assert(x->ndim == 2);
    const struct norm_kernels *kernels = cpu_fused_kernels()->norm;
    ag_dtype slot = kernel_slot(call);
    int64_t rows = x->dims[0], n = x->dims[1];
    struct norm_backward_job job = {
        .backward = kernels->layer_norm_backward[slot], .sum = kernels->sum_partials[slot], .rows = rows,
        .size = dtype_size(slot), .dweight = tensor_address(call->outputs[1]), .dbias = tensor_address(call->outputs[2]),
        .args = {.g = tensor_address(call->inputs[0]), .x = tensor_address(x), .mean = tensor_address(call->inputs[2]),
                 .rstd = tensor_address(call->inputs[3]), .weight = address_of(call->inputs[4]),
                 .dx = tensor_address(call->outputs[0]), .n = n}};
    int64_t block_rows = larger(rows_per_chunk(n), ceil_div(rows, PARTIALS_MAX));
    job.block_rows = ceil_div(block_rows, BLOCK_ROWS_MIN) * BLOCK_ROWS_MIN;
    job.num_blocks = larger(1, ceil_div(rows, job.block_rows)); /* without rows one block still writes the zeros */
    if (job.num_blocks == 1) {
        job.args.dweight = job.dweight;
        job.args.dbias = job.dbias;
        norm_backward_blocks(&job, 0, 1);
        return interrupted_or_ok(call);
    }
    size_t partial_bytes = 2 * (size_t)(job.num_blocks * n) * job.size;
    void *partials = memory_alloc(partial_bytes);
    if (!partials) return error_memory(call->op->name, partial_bytes);
    job.args.dweight = partials;
    job.args.dbias = advance(partials, job.num_blocks * n, job.size);
    pool_run(norm_backward_blocks, &job, job.num_blocks, 1);
    if (!interrupt_pending()) pool_run(norm_sum_columns, &job, n, rows_per_chunk(2 * job.num_blocks));
    memory_free(partials, partial_bytes);
    return interrupted_or_ok(call);
}

/* ---- cross-entropy ---- */

struct cross_entropy_job {
    const struct cross_entropy_kernels *kernels;
    struct cross_entropy_args args;
    ag_dtype slot;
    size_t size;            /* bytes an element */
    const void *row_weight; /* [rows], backward */
};

static double element(const void *array, int64_t i, ag_dtype slot) {
    return slot == AG_F64 ? ((const double *)array)[i] : (double)((const float *)array)[i];
}

/* Backward is not told ignore_index: forward left an ignored row the weight 0 and the log-sum-exp 0. A row whose class weighs 0
 * has the weight 0 too, but a log-sum-exp of its own. */
static bool row_is_ignored(const struct cross_entropy_job *job, int64_t row) {
    return element(job->row_weight, row, job->slot) == 0 && element(job->args.lse, row, job->slot) == 0;
}

static bool label_is_valid(const struct cross_entropy_args *args, int64_t row) {
    return (uint64_t)args->labels[row] - (uint64_t)args->index_base < (uint64_t)args->num_classes;
}

static ag_status refuse_label(const ag_call *call, const struct cross_entropy_args *args, int64_t row) {
    char expected[80];
    long long base = args->index_base;
    if (args->num_classes == 0) snprintf(expected, sizeof expected, "a class, but x has none");
    else snprintf(expected, sizeof expected, "%lld to %lld", base, (long long)args->num_classes - 1 + base);
    return call_fail(call, AG_E_INDEX, "target", expected, NULL, "%lld in row %lld", (long long)args->labels[row],
                     (long long)row + base);
}

/* The label smoothing and the tensors that both directions have. x: [rows, classes], labels: [rows]. */
static ag_status cross_entropy_prepare(const ag_call *call, const ag_tensor *x, const ag_tensor *labels,
                                       const ag_tensor *weight, double smoothing, struct cross_entropy_job *job) {
    assert(x->ndim == 2 && labels->numel == x->dims[0] && (!weight || weight->numel == x->dims[1]));
    if (!(smoothing >= 0 && smoothing <= 1))
        return call_fail(call, AG_E_VALUE, "label_smoothing", "a number from 0 to 1", NULL, "%g", smoothing);
    job->kernels = cpu_fused_kernels()->cross_entropy;
    job->slot = kernel_slot(call);
    job->size = dtype_size(job->slot);
    job->args = (struct cross_entropy_args){
        .logits = tensor_address(x), .labels = tensor_address(labels), .class_weights = address_of(weight),
        .num_classes = x->dims[1], .num_rows = x->dims[0], .ignore_label = ATTR_NO_INT, .index_base = call->index_base,
        .label_smoothing = smoothing};
    return AG_OK;
}

static void cross_entropy_rows(void *context, int64_t begin, int64_t end) {
    const struct cross_entropy_job *job = context;
    if (!interrupt_pending()) job->kernels->forward[job->slot](&job->args, begin, end);
}

ag_status cpu_cross_entropy_rows(ag_call *call) {
    const struct attrs_cross_entropy_rows *attrs = CALL_ATTRS(call, attrs_cross_entropy_rows);
    struct cross_entropy_job job = {0};
    struct cross_entropy_args *args = &job.args;
    AG_TRY(cross_entropy_prepare(call, call->inputs[0], call->inputs[1], call->inputs[2], attrs->label_smoothing, &job));
    args->ignore_label = attrs->ignore_index;
    args->loss = tensor_address(call->outputs[0]);
    args->lse = tensor_address(call->outputs[1]);
    args->weight = tensor_address(call->outputs[2]);
    /* Labels are checked ahead, so that the first bad one is reported whatever the threads do. */
    bool has_ignored = attrs->ignore_index != ATTR_NO_INT;
    for (int64_t row = 0; row < args->num_rows; row++)
        if (!label_is_valid(args, row) && !(has_ignored && args->labels[row] == args->ignore_label))
            return refuse_label(call, args, row);
    pool_run(cross_entropy_rows, &job, args->num_rows, rows_per_chunk(args->num_classes));
    return interrupted_or_ok(call);
}

/* The kernel gets the runs of rows between ignored ones; those have the gradient 0. */
static void cross_entropy_backward_rows(void *context, int64_t begin, int64_t end) {
    const struct cross_entropy_job *job = context;
    int64_t n = job->args.num_classes;
    if (interrupt_pending()) return;
    for (int64_t row = begin; row < end;) {
        int64_t run_end = row;
        while (run_end < end && !row_is_ignored(job, run_end)) run_end++;
        if (run_end > row) job->kernels->backward[job->slot](&job->args, row, run_end);
        for (row = run_end; row < end && row_is_ignored(job, row); row++)
            memset(advance(job->args.dlogits, row * n, job->size), 0, (size_t)n * job->size);
    }
}

ag_status cpu_cross_entropy_rows_backward(ag_call *call) {
    const struct attrs_value *attrs = CALL_ATTRS(call, attrs_value); /* label_smoothing */
    struct cross_entropy_job job = {0};
    struct cross_entropy_args *args = &job.args;
    AG_TRY(cross_entropy_prepare(call, call->inputs[1], call->inputs[2], call->inputs[5], attrs->value, &job));
    args->row_scale = tensor_address(call->inputs[0]); /* the kernel multiplies by the class weight itself */
    args->lse = tensor_address(call->inputs[3]);
    args->dlogits = tensor_address(call->outputs[0]);
    job.row_weight = tensor_address(call->inputs[4]);
    for (int64_t row = 0; row < args->num_rows; row++)
        if (!label_is_valid(args, row) && !row_is_ignored(&job, row)) return refuse_label(call, args, row);
    pool_run(cross_entropy_backward_rows, &job, args->num_rows, rows_per_chunk(args->num_classes));
    return interrupted_or_ok(call);
}
