/* sort.c: sorting along a dim, the first k of that, and the distinct elements of a tensor. */
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "ops/attrs.h"
#include "reference/kernels.h"
#include "reference/walk.h"

static const void *line_at(struct line line, int64_t i) {
    return (const char *)line.start + i * line.stride * (int64_t)dtype_size(line.dtype);
}

/* Merges the sorted runs [begin, middle) and [middle, end) of `from` into `to`. Of equal elements the left run's comes first,
 * which keeps the sort stable. */
static void merge_runs(struct line line, bool descending, const int64_t *from, int64_t begin, int64_t middle, int64_t end,
                       int64_t *to) {
    int64_t left = begin, right = middle;
    for (int64_t k = begin; k < end; k++) {
        int order = 0;
        if (left < middle && right < end) {
            order = element_compare(line.dtype, line_at(line, from[left]), line_at(line, from[right]));
            if (descending) order = -order;
        }
        bool takes_left = right >= end || (left < middle && order <= 0);
        to[k] = takes_left ? from[left++] : from[right++];
    }
}

ag_status sort_positions(const ag_call *call, struct line line, bool descending, int64_t *positions) {
    int64_t n = line.length, *merged;
    AG_TRY(scratch_new(call, n, sizeof *merged, &merged));
    ag_status status = AG_OK;
    for (int64_t i = 0; i < n; i++) positions[i] = i;
    for (int64_t run = 1; run < n && status == AG_OK; run *= 2) {
        for (int64_t begin = 0; begin < n; begin += 2 * run) {
            int64_t middle = begin + run < n ? begin + run : n, end = begin + 2 * run < n ? begin + 2 * run : n;
            merge_runs(line, descending, positions, begin, middle, end, merged);
        }
        memcpy(positions, merged, (size_t)n * sizeof *positions);
        status = poll_interrupt(call, 0);
    }
    memory_free(merged, (size_t)n * sizeof *merged);
    return status;
}

/* sort: all of each line. topk: its first k in falling order, or in rising order for the smallest. */
ag_status reference_sort(ag_call *call) {
    const ag_tensor *x = call->inputs[0];
    ag_tensor *values = call->outputs[0], *indices = call->outputs[1];
    const struct attrs_sort *sort = CALL_ATTRS(call, attrs_sort);
    const struct attrs_topk *topk = CALL_ATTRS(call, attrs_topk);
    bool is_topk = call->op->id == OP_topk, descending = is_topk ? topk->largest != 0 : sort->descending != 0;
    int dim = call_dim(call, "dim", is_topk ? topk->dim : sort->dim, x->ndim);
    if (dim < 0) return AG_E_INDEX;
    if (values->numel == 0) return AG_OK;
    struct line line = {.dtype = (ag_dtype)x->dtype, .length = line_length(x, dim), .stride = line_stride(x, dim)};
    int64_t count = is_topk ? topk->k : line.length, *positions;
    AG_TRY(scratch_new(call, line.length, sizeof *positions, &positions));
    shape s = tensor_shape(x);
    struct walk w;
    walk_begin(&w, call, &s, 1u << dim);
    int source = walk_add_part(&w, x), target = walk_add_part(&w, values);
    for (; walk_more(&w); walk_step(&w)) {
        line.start = walk_at(&w, source);
        w.status = sort_positions(call, line, descending, positions);
        if (w.status != AG_OK) break;
        for (int64_t i = 0; i < count; i++) {
            int64_t to = w.offsets[target] + i * line_stride(values, dim); /* both results are contiguous */
            element_convert(line.dtype, line_at(line, positions[i]), (ag_dtype)values->dtype, element_at(values, to));
            element_write_int(AG_I64, element_at(indices, to), positions[i] + call->index_base);
        }
    }
    memory_free(positions, (size_t)line.length * sizeof *positions);
    return w.status;
}

/* Does the element at place i of the order begin a new value? A NaN equals nothing, not even the NaN before it. */
static bool begins_value(struct line line, const int64_t *positions, int64_t i) {
    if (i == 0) return true;
    const void *element = line_at(line, positions[i]), *previous = line_at(line, positions[i - 1]);
    return element_is_nan(line.dtype, element) || element_compare(line.dtype, element, previous) != 0;
}

/* Allocates values: [num_values], inverse: like x, counts: [num_values]; none of them on failure. */
static ag_status new_unique_outputs(ag_call *call, int64_t num_values) {
    shape s = {.ndim = 1, .dims = {num_values}}, x_shape = tensor_shape(call->inputs[0]);
    ag_tensor *made[3] = {NULL};
    for (int k = 0; k < 3; k++) {
        ag_status status = tensor_new(call->out[k].dtype, k == 1 ? &x_shape : &s, call->device, &made[k]);
        if (status == AG_OK) continue;
        for (int i = 0; i < k; i++) tensor_release(made[i]);
        return status;
    }
    memcpy(call->outputs, made, sizeof made);
    return AG_OK;
}

ag_status reference_unique(ag_call *call) {
    const ag_tensor *x = call->inputs[0]; /* contiguous */
    struct line line = {.dtype = (ag_dtype)x->dtype, .start = tensor_address(x), .length = x->numel, .stride = 1};
    int64_t *positions, num_values = 0, count = 0;
    AG_TRY(scratch_new(call, x->numel, sizeof *positions, &positions));
    ag_status status = sort_positions(call, line, false, positions);
    for (int64_t i = 0; status == AG_OK && i < x->numel; i++) num_values += begins_value(line, positions, i);
    if (status == AG_OK) status = new_unique_outputs(call, num_values);
    num_values = 0;
    for (int64_t i = 0; status == AG_OK && i < x->numel; i++) {
        if (begins_value(line, positions, i)) {
            ag_tensor *values = call->outputs[0];
            element_convert(line.dtype, line_at(line, positions[i]), (ag_dtype)values->dtype, element_at(values, num_values++));
            count = 0;
        }
        int64_t value = num_values - 1;
        element_write_int(AG_I64, element_at(call->outputs[1], positions[i]), value + call->index_base);
        element_write_int(AG_I64, element_at(call->outputs[2], value), ++count);
    }
    memory_free(positions, (size_t)x->numel * sizeof *positions);
    return status;
}
