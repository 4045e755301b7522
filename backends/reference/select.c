/* select.c: choosing elements by truth. */
#include "core/error.h"
#include "reference/kernels.h"
#include "reference/walk.h"

static bool is_true(const ag_tensor *tensor, int64_t offset) {
    return element_read((ag_dtype)tensor->dtype, element_at(tensor, offset)) != 0; /* NaN is true */
}

/* y = condition ? a : b, all broadcast */
ag_status reference_where(ag_call *call) {
    ag_tensor *out = call->outputs[0];
    shape s = tensor_shape(out);
    struct walk w;
    walk_begin(&w, call, &s, 0);
    int condition = walk_add(&w, call->inputs[0]), a = walk_add(&w, call->inputs[1]), b = walk_add(&w, call->inputs[2]);
    int y = walk_add(&w, out);
    for (; walk_more(&w); walk_step(&w)) {
        int chosen = is_true(call->inputs[0], w.offsets[condition]) ? a : b;
        element_convert((ag_dtype)w.operands[chosen]->dtype, walk_at(&w, chosen), (ag_dtype)out->dtype, walk_at(&w, y));
    }
    return w.status;
}

/* x and mask broadcast; the first walk counts, the second copies. */
ag_status reference_masked_select(ag_call *call) {
    ag_tensor *x = call->inputs[0], *mask = call->inputs[1], *out;
    shape x_shape = tensor_shape(x), mask_shape = tensor_shape(mask), s, result = {.ndim = 1, .dims = {0}};
    shape_broadcast(&x_shape, &mask_shape, &s); /* the shape rule has made sure */
    struct walk w;
    walk_begin(&w, call, &s, 0);
    int chosen = walk_add(&w, mask);
    for (; walk_more(&w); walk_step(&w)) result.dims[0] += is_true(mask, w.offsets[chosen]);
    AG_TRY(w.status);
    AG_TRY(tensor_new(call->out[0].dtype, &result, call->device, &out));
    walk_begin(&w, call, &s, 0);
    int source = walk_add(&w, x);
    chosen = walk_add(&w, mask);
    int64_t next = 0;
    for (; walk_more(&w); walk_step(&w))
        if (is_true(mask, w.offsets[chosen]))
            element_convert((ag_dtype)x->dtype, walk_at(&w, source), (ag_dtype)out->dtype, element_at(out, next++));
    if (w.status == AG_OK) call->outputs[0] = out;
    else tensor_release(out);
    return w.status;
}

/* y[i] = the next of values where mask[i], else 0: the inverse of masked_select. */
ag_status reference_masked_scatter(ag_call *call) {
    ag_tensor *mask = call->inputs[0], *values = call->inputs[1], *out = call->outputs[0];
    shape s = tensor_shape(mask), values_shape = tensor_shape(values);
    struct walk w, from;
    walk_begin(&w, call, &s, 0);
    int chosen = walk_add(&w, mask), y = walk_add(&w, out);
    walk_begin(&from, call, &values_shape, 0);
    int source = walk_add(&from, values);
    for (; walk_more(&w); walk_step(&w)) {
        if (!is_true(mask, w.offsets[chosen])) {
            element_write_int((ag_dtype)out->dtype, walk_at(&w, y), 0);
            continue;
        }
        if (from.position == from.count)
            return call_fail(call, AG_E_SHAPE, "values", "an element for each true one of mask", NULL, "%lld elements",
                             (long long)values->numel);
        element_convert((ag_dtype)values->dtype, walk_at(&from, source), (ag_dtype)out->dtype, walk_at(&w, y));
        walk_step(&from);
    }
    return w.status;
}

/* indices: [count, ndim], row-major */
ag_status reference_nonzero(ag_call *call) {
    ag_tensor *x = call->inputs[0], *out;
    shape s = tensor_shape(x), result = {.ndim = 2, .dims = {0, x->ndim}};
    struct walk w;
    walk_begin(&w, call, &s, 0);
    int source = walk_add(&w, x);
    for (; walk_more(&w); walk_step(&w)) result.dims[0] += is_true(x, w.offsets[source]);
    AG_TRY(w.status);
    AG_TRY(tensor_new(AG_I64, &result, call->device, &out));
    walk_begin(&w, call, &s, 0);
    source = walk_add(&w, x);
    int64_t next = 0;
    for (; walk_more(&w); walk_step(&w)) {
        if (!is_true(x, w.offsets[source])) continue;
        for (int d = 0; d < x->ndim; d++) element_write_int(AG_I64, element_at(out, next++), w.index[d] + call->index_base);
    }
    if (w.status == AG_OK) call->outputs[0] = out;
    else tensor_release(out);
    return w.status;
}
