/* reduce.c: reductions over dims, and running sums, products and extremes along one.
 *
 * A reduction is two walks: the outer one over the dims that stay, which is the order of the result; for each of its elements
 * the inner one over the dims that go. Float totals are kept in double, those of ints and bool in 64 bits that wrap.
 */
#include <math.h>

#include "core/error.h"
#include "ops/attrs.h"
#include "reference/kernels.h"
#include "reference/walk.h"

static ag_status dims_mask(const ag_call *call, int_list dims, int ndim, uint32_t *mask) {
    *mask = dims.len < 0 ? (1u << ndim) - 1 : 0;
    for (int i = 0; i < dims.len; i++) {
        int dim = call_dim(call, "dims", call_ints(call, dims)[i], ndim);
        if (dim < 0) return AG_E_INDEX;
        *mask |= 1u << dim;
    }
    return AG_OK;
}

/* ---- sum prod amax amin any all ---- */

struct total {
    double real;    /* float dtypes */
    uint64_t whole; /* ints and bool; truth for any and all */
    bool is_set;    /* amax, amin: an element has been seen */
};

static struct total total_start(int op) {
    bool is_one = op == OP_prod || op == OP_all;
    return (struct total){.real = is_one, .whole = is_one};
}

/* Does a new extreme replace the old? NaN wins and stays. */
static bool real_replaces(double value, double best, bool largest) {
    return !isnan(best) && (isnan(value) || (largest ? value > best : value < best));
}

static void total_take(struct total *t, int op, ag_dtype dtype, const void *address) {
    bool is_float = dtype_is_float(dtype), largest = op == OP_amax;
    double real = is_float ? element_read(dtype, address) : 0;
    int64_t whole = is_float ? real != 0 : element_read_int(dtype, address), best = (int64_t)t->whole;
    switch (op) {
    case OP_sum: t->real += real; t->whole += (uint64_t)whole; break;
    case OP_prod: t->real *= real; t->whole *= (uint64_t)whole; break;
    case OP_any: t->whole |= whole != 0; break;
    case OP_all: t->whole &= whole != 0; break;
    default: /* amax, amin */
        if (!t->is_set || real_replaces(real, t->real, largest)) t->real = real;
        if (!t->is_set || (largest ? whole > best : whole < best)) t->whole = (uint64_t)whole;
        t->is_set = true;
    }
}

ag_status reference_reduce(ag_call *call) {
    const ag_tensor *x = call->inputs[0];
    ag_tensor *out = call->outputs[0];
    ag_dtype dtype = (ag_dtype)x->dtype, out_dtype = (ag_dtype)out->dtype;
    uint32_t reduced, all = (1u << x->ndim) - 1;
    const struct attrs_reduce *attrs = CALL_ATTRS(call, attrs_reduce);
    AG_TRY(dims_mask(call, attrs->dims, x->ndim, &reduced));
    shape s = tensor_shape(x);
    struct walk outer, inner;
    walk_begin(&outer, call, &s, reduced);
    int group = walk_add_part(&outer, x);
    for (; walk_more(&outer); walk_step(&outer)) {
        AG_TRY(poll_interrupt(call, 0));
        struct total t = total_start(call->op->id);
        walk_begin(&inner, call, &s, all & ~reduced);
        int element = walk_add_part(&inner, x);
        for (; walk_more(&inner); walk_step(&inner))
            total_take(&t, call->op->id, dtype, element_at(x, outer.offsets[group] + inner.offsets[element]));
        AG_TRY(inner.status);
        if (dtype_is_float(out_dtype)) element_write(out_dtype, element_at(out, outer.position), t.real);
        else element_write_int(out_dtype, element_at(out, outer.position), (int64_t)t.whole);
    }
    return outer.status;
}

/* ---- argmax argmin ---- */

/* NaN counts as the extreme; of equal elements the first is taken. */
static bool element_replaces(ag_dtype dtype, const void *value, const void *best, bool largest) {
    if (element_is_nan(dtype, best)) return false;
    if (element_is_nan(dtype, value)) return true;
    int order = element_compare(dtype, value, best);
    return largest ? order > 0 : order < 0;
}

ag_status reference_arg_reduce(ag_call *call) {
    const ag_tensor *x = call->inputs[0];
    const struct attrs_reduce_one *attrs = CALL_ATTRS(call, attrs_reduce_one);
    ag_dtype dtype = (ag_dtype)x->dtype;
    uint32_t all = (1u << x->ndim) - 1, reduced = all;
    if (attrs->dim != ATTR_NO_INT) {
        int dim = call_dim(call, "dim", attrs->dim, x->ndim);
        if (dim < 0) return AG_E_INDEX;
        reduced = 1u << dim;
    }
    shape s = tensor_shape(x);
    struct walk outer, inner;
    walk_begin(&outer, call, &s, reduced);
    int group = walk_add_part(&outer, x);
    for (; walk_more(&outer); walk_step(&outer)) {
        AG_TRY(poll_interrupt(call, 0));
        const void *best = NULL;
        int64_t best_position = 0;
        walk_begin(&inner, call, &s, all & ~reduced);
        int element = walk_add_part(&inner, x);
        for (; walk_more(&inner); walk_step(&inner)) {
            const void *value = element_at(x, outer.offsets[group] + inner.offsets[element]);
            if (best && !element_replaces(dtype, value, best, call->op->id == OP_argmax)) continue;
            best = value;
            best_position = inner.position;
        }
        AG_TRY(inner.status);
        element_write_int(AG_I64, element_at(call->outputs[0], outer.position), best_position + call->index_base);
    }
    return outer.status;
}

/* ---- running along one dim: a walk over the lines, and a loop along each ---- */

ag_status reference_cumulate(ag_call *call) {
    const ag_tensor *x = call->inputs[0];
    ag_tensor *out = call->outputs[0];
    bool is_sum = call->op->id == OP_cumsum;
    const struct attrs_dim *attrs = CALL_ATTRS(call, attrs_dim);
    int dim = call_dim(call, "dim", attrs->dim, x->ndim);
    if (dim < 0) return AG_E_INDEX;
    shape s = tensor_shape(x);
    struct walk w;
    if (x->numel == 0) return AG_OK;
    walk_begin(&w, call, &s, 1u << dim);
    int source = walk_add_part(&w, x), target = walk_add_part(&w, out);
    for (; walk_more(&w); walk_step(&w)) {
        double real = !is_sum;
        uint64_t whole = !is_sum;
        for (int64_t i = 0; i < line_length(x, dim); i++) {
            const void *value = element_at(x, w.offsets[source] + i * line_stride(x, dim));
            void *result = element_at(out, w.offsets[target] + i * line_stride(out, dim));
            if (dtype_is_float((ag_dtype)out->dtype)) {
                double v = element_read((ag_dtype)x->dtype, value);
                real = is_sum ? real + v : real * v;
                element_write((ag_dtype)out->dtype, result, real);
            } else {
                uint64_t v = (uint64_t)element_read_int((ag_dtype)x->dtype, value);
                whole = is_sum ? whole + v : whole * v;
                element_write_int((ag_dtype)out->dtype, result, (int64_t)whole);
            }
            AG_TRY(poll_interrupt(call, i));
        }
    }
    return w.status;
}

/* A NaN stays to the end; of equal elements the last is taken, and of NaNs too. */
static bool extreme_moves(ag_dtype dtype, const void *value, const void *best, bool largest) {
    if (element_is_nan(dtype, value)) return true;
    if (element_is_nan(dtype, best)) return false;
    int order = element_compare(dtype, value, best);
    return largest ? order >= 0 : order <= 0;
}

ag_status reference_cumextreme(ag_call *call) {
    const ag_tensor *x = call->inputs[0];
    ag_tensor *values = call->outputs[0], *indices = call->outputs[1];
    ag_dtype dtype = (ag_dtype)x->dtype;
    const struct attrs_dim *attrs = CALL_ATTRS(call, attrs_dim);
    int dim = call_dim(call, "dim", attrs->dim, x->ndim);
    if (dim < 0) return AG_E_INDEX;
    shape s = tensor_shape(x);
    struct walk w;
    if (x->numel == 0) return AG_OK;
    walk_begin(&w, call, &s, 1u << dim);
    int source = walk_add_part(&w, x), target = walk_add_part(&w, values);
    for (; walk_more(&w); walk_step(&w)) {
        int64_t best = 0;
        for (int64_t i = 0; i < line_length(x, dim); i++) {
            const void *value = element_at(x, w.offsets[source] + i * line_stride(x, dim));
            const void *extreme = element_at(x, w.offsets[source] + best * line_stride(x, dim));
            if (extreme_moves(dtype, value, extreme, call->op->id == OP_cummax)) best = i, extreme = value;
            int64_t to = w.offsets[target] + i * line_stride(values, dim); /* both results are contiguous */
            element_convert(dtype, extreme, (ag_dtype)values->dtype, element_at(values, to));
            element_write_int(AG_I64, element_at(indices, to), best + call->index_base);
            AG_TRY(poll_interrupt(call, i));
        }
    }
    return w.status;
}
