/* rearrange.c: elements that move but do not change, except for their dtype. */
#include "core/error.h"
#include "ops/attrs.h"
#include "reference/kernels.h"
#include "reference/walk.h"

ag_status reference_copy(ag_call *call) {
    ag_tensor *out = call->outputs[0];
    shape s = tensor_shape(out);
    struct walk w;
    walk_begin(&w, call, &s, 0);
    int x = walk_add(&w, call->inputs[0]), y = walk_add(&w, out);
    for (; walk_more(&w); walk_step(&w)) element_move(call->inputs[0], w.offsets[x], out, w.offsets[y]);
    return w.status;
}

ag_status reference_cat(ag_call *call) {
    ag_tensor *out = call->outputs[0];
    const struct attrs_dim *attrs = CALL_ATTRS(call, attrs_dim);
    int dim = call_dim(call, "dim", attrs->dim, out->ndim);
    if (dim < 0) return AG_E_INDEX;
    int64_t start = 0; /* of the part along dim */
    for (int i = 0; i < call->num_inputs; i++) {
        const ag_tensor *part = call->inputs[i];
        shape s = tensor_shape(part);
        struct walk w;
        walk_begin(&w, call, &s, 0);
        int x = walk_add(&w, part), y = walk_add_part(&w, out);
        for (; walk_more(&w); walk_step(&w))
            element_move(part, w.offsets[x], out, w.offsets[y] + start * out->strides[dim]);
        AG_TRY(w.status);
        start += part->dims[dim];
    }
    return AG_OK;
}

/* y[.., i, ..] = x[.., n - 1 - i, ..] for the dims given */
ag_status reference_flip(ag_call *call) {
    const ag_tensor *x = call->inputs[0];
    const struct attrs_dims *attrs = CALL_ATTRS(call, attrs_dims);
    int_list dims = attrs->dims;
    bool is_flipped[AG_MAX_NDIM] = {false};
    for (int i = 0; i < dims.len; i++) {
        int dim = call_dim(call, "dims", call_ints(call, dims)[i], x->ndim);
        if (dim < 0) return AG_E_INDEX;
        if (is_flipped[dim])
            return call_fail(call, AG_E_VALUE, "dims", "each dim once", NULL, "dim %d twice", dim + call->index_base);
        is_flipped[dim] = true;
    }
    shape s = tensor_shape(x);
    struct walk w;
    walk_begin(&w, call, &s, 0);
    int y = walk_add(&w, call->outputs[0]);
    for (; walk_more(&w); walk_step(&w)) {
        int64_t from = 0;
        for (int d = 0; d < x->ndim; d++) from += x->strides[d] * (is_flipped[d] ? x->dims[d] - 1 - w.index[d] : w.index[d]);
        element_move(x, from, call->outputs[0], w.offsets[y]);
    }
    return w.status;
}

/* value modulo size, in 0 .. size - 1 */
static int64_t wrap_position(int64_t value, int64_t size) {
    int64_t rest = value % size;
    return rest < 0 ? rest + size : rest;
}

/* Without dims the flattened tensor is rolled. */
static ag_status roll_flat(ag_call *call, int64_t shift) {
    const ag_tensor *x = call->inputs[0];
    shape s = tensor_shape(x);
    struct walk w;
    walk_begin(&w, call, &s, 0);
    int source = walk_add(&w, x);
    for (; walk_more(&w); walk_step(&w))
        element_move(x, w.offsets[source], call->outputs[0], wrap_position(w.position + shift % x->numel, x->numel));
    return w.status;
}

/* y[.., (i + shift) mod n, ..] = x[.., i, ..]; a dim named twice is shifted twice. */
ag_status reference_roll(ag_call *call) {
    const struct attrs_roll *attrs = CALL_ATTRS(call, attrs_roll);
    const ag_tensor *x = call->inputs[0];
    const int64_t *shifts = call_ints(call, attrs->shifts);
    int num_dims = attrs->dims.len < 0 ? 1 : attrs->dims.len;
    if (attrs->shifts.len != num_dims)
        return call_fail(call, AG_E_ARGUMENT, "shifts", attrs->dims.len < 0 ? "one shift, or dims" : "one shift a dim", NULL,
                         "%d for %d dims", attrs->shifts.len < 0 ? 0 : attrs->shifts.len, num_dims);
    if (attrs->dims.len < 0) return roll_flat(call, shifts[0]);
    int64_t shift_of[AG_MAX_NDIM] = {0};
    for (int i = 0; i < num_dims; i++) {
        int dim = call_dim(call, "dims", call_ints(call, attrs->dims)[i], x->ndim);
        if (dim < 0) return AG_E_INDEX;
        int64_t size = line_length(x, dim);
        if (size) shift_of[dim] = wrap_position(shift_of[dim] + shifts[i] % size, size);
    }
    shape s = tensor_shape(x);
    struct walk w;
    walk_begin(&w, call, &s, 0);
    int source = walk_add(&w, x);
    for (; walk_more(&w); walk_step(&w)) {
        int64_t to = 0;
        for (int d = 0; d < x->ndim; d++)
            to += call->outputs[0]->strides[d] * wrap_position(w.index[d] + shift_of[d], x->dims[d]);
        element_move(x, w.offsets[source], call->outputs[0], to);
    }
    return w.status;
}

/* Where position i of a padded dim comes from in 0 .. size - 1; -1 = it is filled with the value. */
static int64_t padded_source(int64_t i, int64_t before, int64_t size, int64_t mode) {
    int64_t from = i - before;
    if (from >= 0 && from < size) return from;
    if (mode == PAD_REFLECT) return from < 0 ? -from : 2 * (size - 1) - from;
    if (mode == PAD_REPLICATE) return from < 0 ? 0 : size - 1;
    return -1;
}

ag_status reference_pad(ag_call *call) {
    const struct attrs_pad *attrs = CALL_ATTRS(call, attrs_pad);
    const ag_tensor *x = call->inputs[0];
    ag_tensor *out = call->outputs[0];
    int64_t before[AG_MAX_NDIM] = {0};
    for (int i = 0; i < attrs->padding.len / 2; i++) before[x->ndim - 1 - i] = call_ints(call, attrs->padding)[2 * i];
    shape s = tensor_shape(out);
    struct walk w;
    walk_begin(&w, call, &s, 0);
    int y = walk_add(&w, out);
    for (; walk_more(&w); walk_step(&w)) {
        int64_t from = 0;
        bool is_filled = false;
        for (int d = 0; d < x->ndim; d++) {
            int64_t i = padded_source(w.index[d], before[d], x->dims[d], attrs->mode);
            if (i < 0) is_filled = true;
            else from += i * x->strides[d];
        }
        if (is_filled) element_write((ag_dtype)out->dtype, walk_at(&w, y), attrs->value);
        else element_move(x, from, out, w.offsets[y]);
    }
    return w.status;
}
