/* index_add.c: results whose elements are sums of elements from several places.
 *
 * All totals of a result are kept side by side, in double for floats and in 64 wrapping bits for ints and bool, and written
 * at the end: so half precision is rounded once, however many terms an element has.
 */
#include <math.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "ops/attrs.h"
#include "reference/kernels.h"
#include "reference/walk.h"

typedef union total {
    double real;
    uint64_t whole;
} total;

/* The totals of call->outputs[0], one an element in its (contiguous) order. */
struct totals {
    total *at;
    ag_tensor *out;
    bool is_float;
};

static void totals_add(struct totals *t, int64_t position, const ag_tensor *source, int64_t offset, double factor) {
    const void *address = element_at(source, offset);
    ag_dtype dtype = (ag_dtype)source->dtype;
    if (t->is_float) {
        t->at[position].real += factor * element_read(dtype, address);
    } else { /* the factor loses its fraction */
        uint64_t whole_factor = (uint64_t)element_read_int(AG_F64, &factor);
        t->at[position].whole += whole_factor * (uint64_t)element_read_int(dtype, address);
    }
}

/* totals_set keeps the sign of a zero, which adding to 0 would lose. */
static void totals_set(struct totals *t, int64_t position, const ag_tensor *source, int64_t offset) {
    const void *address = element_at(source, offset);
    ag_dtype dtype = (ag_dtype)source->dtype;
    if (t->is_float) t->at[position].real = element_read(dtype, address);
    else t->at[position].whole = (uint64_t)element_read_int(dtype, address);
}

/* totals_new starts at the elements of `initial`, or at zero when it is NULL. */
static ag_status totals_new(ag_call *call, const ag_tensor *initial, struct totals *t) {
    ag_tensor *out = call->outputs[0];
    *t = (struct totals){.out = out, .is_float = dtype_is_float((ag_dtype)out->dtype)};
    AG_TRY(scratch_new(call, out->numel, sizeof *t->at, &t->at));
    memset(t->at, 0, (size_t)out->numel * sizeof *t->at); /* 0.0 as well */
    if (!initial) return AG_OK;
    shape s = tensor_shape(initial);
    struct walk w;
    walk_begin(&w, call, &s, 0);
    int source = walk_add_part(&w, initial);
    for (; walk_more(&w); walk_step(&w)) totals_set(t, w.position, initial, w.offsets[source]);
    if (w.status != AG_OK) memory_free(t->at, (size_t)out->numel * sizeof *t->at);
    return w.status;
}

/* totals_end writes the totals to the output when the status is AG_OK, frees them, and returns the status. */
static ag_status totals_end(struct totals *t, ag_status status) {
    ag_dtype dtype = (ag_dtype)t->out->dtype;
    for (int64_t i = 0; status == AG_OK && i < t->out->numel; i++) {
        if (t->is_float) element_write(dtype, element_at(t->out, i), t->at[i].real);
        else element_write_int(dtype, element_at(t->out, i), (int64_t)t->at[i].whole);
    }
    memory_free(t->at, (size_t)t->out->numel * sizeof *t->at);
    return status;
}

/* y = x; y[i, index[i, j, k], k] += src[i, j, k], here for dim 1 */
ag_status reference_scatter_add(ag_call *call) {
    const ag_tensor *x = call->inputs[0], *index = call->inputs[1], *src = call->inputs[2];
    struct totals t;
    const struct attrs_dim *attrs = CALL_ATTRS(call, attrs_dim);
    int dim = call_dim(call, "dim", attrs->dim, x->ndim);
    if (dim < 0) return AG_E_INDEX;
    AG_TRY(totals_new(call, x, &t));
    shape s = tensor_shape(index);
    struct walk w;
    walk_begin(&w, call, &s, 0);
    int at = walk_add_part(&w, index), source = walk_add_part(&w, src), y = walk_add_part(&w, t.out);
    while (walk_more(&w)) {
        int64_t position;
        w.status = index_position(call, index, w.offsets[at], line_length(x, dim), w.position, &position);
        if (w.status != AG_OK) break;
        int64_t to = w.offsets[y] + (position - w.index[dim]) * line_stride(t.out, dim);
        totals_add(&t, to, src, w.offsets[source], 1);
        walk_step(&w);
    }
    return totals_end(&t, w.status);
}

/* y = x; y[.., index[j], ..] += alpha * source[.., j, ..] */
ag_status reference_index_add(ag_call *call) {
    const ag_tensor *x = call->inputs[0], *index = call->inputs[1], *source = call->inputs[2];
    const struct attrs_index_add *attrs = CALL_ATTRS(call, attrs_index_add);
    struct totals t;
    int dim = call_dim(call, "dim", attrs->dim, x->ndim);
    if (dim < 0) return AG_E_INDEX;
    if (!dtype_is_float((ag_dtype)x->dtype) && !(attrs->alpha == floor(attrs->alpha) && fabs(attrs->alpha) < 0x1p63))
        return call_fail(call, AG_E_VALUE, "alpha", "a whole number for int tensors", NULL, "%g", attrs->alpha);
    AG_TRY(totals_new(call, x, &t));
    shape s = tensor_shape(source);
    struct walk w = {.status = AG_OK};
    for (int64_t j = 0; j < index->numel && w.status == AG_OK; j++) {
        int64_t position;
        w.status = poll_interrupt(call, 0);
        if (w.status == AG_OK) w.status = index_position(call, index, j, x->dims[dim], j, &position);
        if (w.status != AG_OK) break;
        walk_begin(&w, call, &s, 1u << dim);
        int from = walk_add_part(&w, source), y = walk_add_part(&w, t.out);
        for (; walk_more(&w); walk_step(&w))
            totals_add(&t, w.offsets[y] + position * t.out->strides[dim], source, w.offsets[from] + j * source->strides[dim],
                       attrs->alpha);
    }
    return totals_end(&t, w.status);
}

/* y = x flattened; y[index[i]] = values[i], or += with accumulate; values broadcast to index. Of equal positions the last
 * wins. */
ag_status reference_index_put(ag_call *call) {
    const ag_tensor *x = call->inputs[0], *index = call->inputs[1], *values = call->inputs[2];
    const struct attrs_flag *attrs = CALL_ATTRS(call, attrs_flag);
    bool accumulate = attrs->flag != 0;
    struct totals t;
    AG_TRY(totals_new(call, x, &t));
    shape s = tensor_shape(index);
    struct walk w;
    walk_begin(&w, call, &s, 0);
    int at = walk_add(&w, index), source = walk_add(&w, values);
    while (walk_more(&w)) {
        int64_t position;
        w.status = index_position(call, index, w.offsets[at], x->numel, w.position, &position);
        if (w.status != AG_OK) break;
        if (accumulate) totals_add(&t, position, values, w.offsets[source], 1);
        else totals_set(&t, position, values, w.offsets[source]);
        walk_step(&w);
    }
    return totals_end(&t, w.status);
}

/* The gradient of a strided view of a tensor of the given shape: y = 0; y.flat[offset + sum of i_d * stride_d] += g[i]. */
ag_status reference_strided_backward(ag_call *call) {
    const struct attrs_strided *attrs = CALL_ATTRS(call, attrs_strided);
    const ag_tensor *g = call->inputs[0];
    const int64_t *strides = call_ints(call, attrs->strides);
    struct totals t;
    AG_TRY(totals_new(call, NULL, &t));
    shape s = tensor_shape(g);
    struct walk w;
    walk_begin(&w, call, &s, 0);
    int source = walk_add_part(&w, g);
    for (; walk_more(&w); walk_step(&w)) {
        int64_t to = attrs->offset;
        for (int d = 0; d < g->ndim; d++) to += w.index[d] * strides[d];
        totals_add(&t, to, g, w.offsets[source], 1);
    }
    return totals_end(&t, w.status);
}
