/* scan.c: cumulative sums, products and extremes along any dim of a contiguous tensor. */
#include "cpu/scan_kernels.h"

#include <assert.h>

#include "cpu/cpu.h"
#include "ops/attrs.h"
#include "platform/interrupt.h"
#include "platform/pool.h"

enum { CHUNK_ELEMENTS = 32 * 1024 }; /* what one thread takes at a time */

struct scan_job {
    struct scan_task task;
    scan_fn scan;
};

static void run_units(void *context, int64_t begin, int64_t end) {
    struct scan_job *job = context;
    if (!interrupt_pending()) job->scan(&job->task, begin, end);
}

static scan_op scan_op_of(const ag_call *call) {
    switch (call->op->id) {
    case OP_cumsum: return SCAN_CUMSUM;
    case OP_cumprod: return SCAN_CUMPROD;
    case OP_cummax: return SCAN_CUMMAX;
    default: assert(call->op->id == OP_cummin); return SCAN_CUMMIN;
    }
}

ag_status cpu_scan(ag_call *call) {
    const ag_tensor *x = call->inputs[0];
    if (x->numel == 0) return AG_OK;
    int dim = dim_resolve(CALL_ATTRS(call, attrs_dim)->dim, x->ndim);
    int64_t outer = 1, n = 1, inner = 1;
    for (int i = 0; i < x->ndim; i++) *(i < dim ? &outer : i == dim ? &n : &inner) *= x->dims[i];
    struct scan_job job = {
        .task = {.x = tensor_address(x), .y = tensor_address(call->outputs[0]), .n = n, .inner = inner},
        .scan = scan_kernels[scan_op_of(call)][x->dtype],
    };
    assert(job.scan);
    if (call->num_outputs > 1) job.task.positions = tensor_address(call->outputs[1]);
    int64_t units = scan_units(outer, inner), unit_elements = x->numel / units;
    pool_run(run_units, &job, units, unit_elements < CHUNK_ELEMENTS ? CHUNK_ELEMENTS / unit_elements : 1);
    if (x->numel >= CHUNK_ELEMENTS && interrupt_pending())
        return call_fail(call, AG_E_INTERRUPTED, NULL, NULL, NULL, "an interrupt");
    for (int64_t i = 0; job.task.positions && call->index_base && i < x->numel; i++) job.task.positions[i] += call->index_base;
    return AG_OK;
}
