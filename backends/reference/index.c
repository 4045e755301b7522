/* index.c: reading and writing at positions along a dim. index_add.c has the ops that add.
 *
 * Positions are checked one by one as they are met; a bad one ends the call with an error that says which and where.
 */
#include "core/error.h"
#include "ops/attrs.h"
#include "reference/kernels.h"
#include "reference/walk.h"

/* y[i, j, k] = x[i, index[i, j, k], k], here for dim 1; index may be smaller than x along the other dims. */
ag_status reference_gather(ag_call *call) {
    const ag_tensor *x = call->inputs[0], *index = call->inputs[1];
    const struct attrs_dim *attrs = CALL_ATTRS(call, attrs_dim);
    int dim = call_dim(call, "dim", attrs->dim, x->ndim);
    if (dim < 0) return AG_E_INDEX;
    shape s = tensor_shape(index);
    struct walk w;
    walk_begin(&w, call, &s, 0);
    int at = walk_add_part(&w, index), source = walk_add_part(&w, x), y = walk_add_part(&w, call->outputs[0]);
    for (; walk_more(&w); walk_step(&w)) {
        int64_t position;
        AG_TRY(index_position(call, index, w.offsets[at], line_length(x, dim), w.position, &position));
        int64_t along = (position - w.index[dim]) * line_stride(x, dim);
        element_move(x, w.offsets[source] + along, call->outputs[0], w.offsets[y]);
    }
    return w.status;
}

/* y = x; y[i, index[i, j, k], k] = src[i, j, k], here for dim 1; of equal positions the last wins. */
ag_status reference_scatter(ag_call *call) {
    const ag_tensor *x = call->inputs[0], *index = call->inputs[1], *src = call->inputs[2];
    ag_tensor *out = call->outputs[0];
    const struct attrs_dim *attrs = CALL_ATTRS(call, attrs_dim);
    int dim = call_dim(call, "dim", attrs->dim, x->ndim);
    if (dim < 0) return AG_E_INDEX;
    AG_TRY(reference_copy(call));
    shape s = tensor_shape(index);
    struct walk w;
    walk_begin(&w, call, &s, 0);
    int at = walk_add_part(&w, index), source = walk_add_part(&w, src), y = walk_add_part(&w, out);
    for (; walk_more(&w); walk_step(&w)) {
        int64_t position;
        AG_TRY(index_position(call, index, w.offsets[at], line_length(x, dim), w.position, &position));
        element_move(src, w.offsets[source], out, w.offsets[y] + (position - w.index[dim]) * line_stride(out, dim));
    }
    return w.status;
}

/* y[.., j, ..] = x[.., index[j], ..] */
ag_status reference_index_select(ag_call *call) {
    const ag_tensor *x = call->inputs[0], *index = call->inputs[1];
    ag_tensor *out = call->outputs[0];
    const struct attrs_dim *attrs = CALL_ATTRS(call, attrs_dim);
    int dim = call_dim(call, "dim", attrs->dim, x->ndim);
    if (dim < 0) return AG_E_INDEX;
    shape s = tensor_shape(x);
    for (int64_t j = 0; j < index->numel; j++) {
        int64_t position;
        AG_TRY(poll_interrupt(call, 0));
        AG_TRY(index_position(call, index, j, x->dims[dim], j, &position));
        struct walk w;
        walk_begin(&w, call, &s, 1u << dim);
        int source = walk_add_part(&w, x), y = walk_add_part(&w, out);
        for (; x->numel && walk_more(&w); walk_step(&w))
            element_move(x, w.offsets[source] + position * x->strides[dim], out, w.offsets[y] + j * out->strides[dim]);
        AG_TRY(w.status);
    }
    return AG_OK;
}

/* y = x; y[.., index[j], ..] = source[.., j, ..]; of equal positions the last wins. */
ag_status reference_index_copy(ag_call *call) {
    const ag_tensor *x = call->inputs[0], *index = call->inputs[1], *source = call->inputs[2];
    ag_tensor *out = call->outputs[0];
    const struct attrs_dim *attrs = CALL_ATTRS(call, attrs_dim);
    int dim = call_dim(call, "dim", attrs->dim, x->ndim);
    if (dim < 0) return AG_E_INDEX;
    AG_TRY(reference_copy(call));
    shape s = tensor_shape(source);
    for (int64_t j = 0; j < index->numel; j++) {
        int64_t position;
        AG_TRY(poll_interrupt(call, 0));
        AG_TRY(index_position(call, index, j, x->dims[dim], j, &position));
        struct walk w;
        walk_begin(&w, call, &s, 1u << dim);
        int from = walk_add_part(&w, source), y = walk_add_part(&w, out);
        for (; walk_more(&w); walk_step(&w))
            element_move(source, w.offsets[from] + j * source->strides[dim], out, w.offsets[y] + position * out->strides[dim]);
        AG_TRY(w.status);
    }
    return AG_OK;
}
