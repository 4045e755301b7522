/* nn_linear.c: the backward of bias and activation behind a product, in one pass over the gradient. */
#include <assert.h>

#include "core/error.h"
#include "core/memory.h"
#include "cpu/cpu.h"
#include "cpu/elementwise.h"
#include "cpu/reduce_kernels.h"
#include "ops/attrs.h"
#include "platform/interrupt.h"
#include "platform/pool.h"

enum {
    BLOCK_ELEMENTS = 8 * 1024, /* a block of rows is still in the L1 or L2 cache when its columns are added up */
    BLOCKS_MAX = 64,           /* blocks of rows with bias gradients of their own */
};

/* Blocks are cut by the shape alone and added up in order, so the result does not depend on the number of threads. */
struct bias_activation_job {
    elementwise_fn activation; /* dz = activation(g, x or NULL, y or NULL) */
    reduce_range_fn sum_columns;
    const char *g, *y;
    char *dz, *partials; /* partials: [num_blocks, n] */
    int64_t rows, n, block_rows;
    size_t size;       /* of an element */
    bool takes_result; /* y is the activation's result, else its argument */
};

static void run_blocks(void *context, int64_t begin, int64_t end) {
    const struct bias_activation_job *job = context;
    for (int64_t block = begin; block < end && !interrupt_pending(); block++) {
        int64_t first = block * job->block_rows, count = job->rows - first;
        if (count > job->block_rows) count = job->block_rows;
        int64_t offset = first * job->n * (int64_t)job->size;
        const void *y = job->y + offset,
                   *inputs[3] = {job->g + offset, job->takes_result ? NULL : y, job->takes_result ? y : NULL};
        job->activation(count * job->n, inputs, job->dz + offset, 0, NULL);
        struct reduce_task sum = {
            .x = job->dz + offset, .y = job->partials + block * job->n * (int64_t)job->size, .n = count, .inner = job->n};
        job->sum_columns(&sum, 0, reduce_column_units(1, job->n));
    }
}

/* dz[i,j] = g[i,j] * activation'(...)   dbias[j] = sum_i dz[i,j]      g, y, dz: [rows, n] */
ag_status cpu_bias_activation_backward(ag_call *call) {
    const ag_tensor *g = call->inputs[0];
    bool is_relu = CALL_ATTRS(call, attrs_activation)->activation == ACTIVATION_RELU;
    ag_dtype dtype = call->compute;
    assert(g->ndim == 2);
    struct bias_activation_job job = {.activation =
                                          cpu_elementwise_kernels()->fn[is_relu ? OP_relu_backward : OP_gelu_backward][dtype],
                                      .sum_columns = cpu_reduce_kernels()->at[REDUCE_SUM][dtype].columns,
                                      .g = tensor_address(g),
                                      .y = tensor_address(call->inputs[1]),
                                      .dz = tensor_address(call->outputs[0]),
                                      .rows = g->dims[0],
                                      .n = g->dims[1],
                                      .size = dtype_size(dtype),
                                      .takes_result = is_relu};
    if (job.n == 0) return AG_OK;
    job.block_rows = BLOCK_ELEMENTS / job.n > 0 ? BLOCK_ELEMENTS / job.n : 1;
    if (job.block_rows * BLOCKS_MAX < job.rows) job.block_rows = (job.rows + BLOCKS_MAX - 1) / BLOCKS_MAX;
    int64_t num_blocks =
        job.rows ? (job.rows + job.block_rows - 1) / job.block_rows : 1; /* without rows one writes the zeros */
    size_t partial_bytes = num_blocks == 1 ? 0 : (size_t)(num_blocks * job.n) * job.size;
    job.partials = partial_bytes ? memory_alloc(partial_bytes) : tensor_address(call->outputs[1]);
    if (!job.partials) return error_memory(call->op->name, partial_bytes);
    pool_run(run_blocks, &job, num_blocks, 1);
    if (partial_bytes) {
        struct reduce_task sum = {.x = job.partials, .y = tensor_address(call->outputs[1]), .n = num_blocks, .inner = job.n};
        job.sum_columns(&sum, 0, reduce_column_units(1, job.n));
        memory_free(job.partials, partial_bytes);
    }
    return interrupt_pending() ? call_fail(call, AG_E_INTERRUPTED, NULL, NULL, NULL, "an interrupt") : AG_OK;
}
