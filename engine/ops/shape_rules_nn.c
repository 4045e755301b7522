/* shape_rules_nn.c: shapes of matrix products, indexing, normalisation and losses. */
#include <stdio.h>
#include <string.h>

#include "core/error.h"
#include "ops/attrs.h"
#include "ops/rules.h"

static const ag_tensor *input(const ag_call *call, int i) { return call->inputs[i]; }

/* ---- products ---- */

/* [n] x [n] -> []; [n, k] x [k] -> [n]; [k] x [k, m] -> [m]; [..., n, k] x [..., k, m] -> [..., n, m], leading dims
 * broadcast. */
ag_status shape_rule_matmul(ag_call *call) {
    shape a = tensor_shape(input(call, 0)), b = tensor_shape(input(call, 1)), lead_a = a, lead_b = b,
          *out = &call->out[0].shape;
    if (a.ndim == 0 || b.ndim == 0) return rule_mismatch(call, NULL, "tensors of at least 1 dim", "a number multiplies with *");
    int64_t k_a = a.dims[a.ndim - 1], k_b = b.dims[b.ndim > 1 ? b.ndim - 2 : 0];
    if (k_a != k_b) {
        bool flips = b.ndim > 1 && k_a == b.dims[b.ndim - 1];
        return rule_mismatch(call, NULL, "the last dim of a equal to the second last of b", flips ? "transpose b" : NULL);
    }
    lead_a.ndim = a.ndim > 2 ? a.ndim - 2 : 0;
    lead_b.ndim = b.ndim > 2 ? b.ndim - 2 : 0;
    if (!shape_broadcast(&lead_a, &lead_b, out)) return rule_mismatch(call, NULL, "leading dims that broadcast", NULL);
    if (a.ndim > 1) out->dims[out->ndim++] = a.dims[a.ndim - 2];
    if (b.ndim > 1) out->dims[out->ndim++] = b.dims[b.ndim - 1];
    return AG_OK;
}

ag_status shape_rule_dot(ag_call *call) {
    if (input(call, 0)->ndim != 1 || input(call, 1)->ndim != 1 || input(call, 0)->numel != input(call, 1)->numel)
        return rule_mismatch(call, NULL, "two 1-d tensors of one length", NULL);
    call->out[0].shape.ndim = 0;
    return AG_OK;
}

ag_status shape_rule_outer(ag_call *call) {
    if (input(call, 0)->ndim != 1 || input(call, 1)->ndim != 1) return rule_mismatch(call, NULL, "two 1-d tensors", NULL);
    call->out[0].shape = (shape){.ndim = 2, .dims = {input(call, 0)->numel, input(call, 1)->numel}};
    return AG_OK;
}

ag_status shape_rule_bmm(ag_call *call) {
    if (input(call, 0)->ndim != 3 || input(call, 1)->ndim != 3 || input(call, 0)->dims[0] != input(call, 1)->dims[0])
        return rule_mismatch(call, NULL, "[batch, n, k] and [batch, k, m]", "matmul broadcasts leading dims");
    return shape_rule_matmul(call);
}

ag_status shape_rule_addmm(ag_call *call) {
    const ag_tensor *a = input(call, 1), *b = input(call, 2);
    if (a->ndim != 2 || b->ndim != 2 || a->dims[1] != b->dims[0])
        return rule_mismatch(call, NULL, "a: [n, k] and b: [k, m]", NULL);
    shape s = tensor_shape(input(call, 0)), result = {.ndim = 2, .dims = {a->dims[0], b->dims[1]}}, common;
    if (!shape_broadcast(&s, &result, &common) || !shape_equal(&common, &result))
        return rule_mismatch(call, "input", "a shape that broadcasts to [n, m]", NULL);
    call->out[0].shape = result;
    return AG_OK;
}

ag_status shape_rule_linear(ag_call *call) {
    const ag_tensor *x = input(call, 0), *weight = input(call, 1), *bias = input(call, 2);
    if (x->ndim < 1 || weight->ndim != 2 || x->dims[x->ndim - 1] != weight->dims[1])
        return rule_mismatch(call, NULL, "x: [..., in] and weight: [out, in]", NULL);
    if (bias && (bias->ndim != 1 || bias->dims[0] != weight->dims[0])) return rule_mismatch(call, "bias", "[out]", NULL);
    call->out[0].shape = tensor_shape(x);
    call->out[0].shape.dims[x->ndim - 1] = weight->dims[0];
    return AG_OK;
}

/* g, y: [rows, out] -> dz: [rows, out], dbias: [out] */
ag_status shape_rule_bias_activation_backward(ag_call *call) {
    shape g = tensor_shape(input(call, 0)), y = tensor_shape(input(call, 1));
    if (g.ndim != 2 || !shape_equal(&g, &y)) return rule_mismatch(call, NULL, "g and y: [rows, out]", NULL);
    if (CALL_ATTRS(call, attrs_activation)->activation == ACTIVATION_NONE)
        return call_fail(call, AG_E_VALUE, "activation", "relu or gelu", NULL, "none");
    call->out[0].shape = g;
    call->out[1].shape = (shape){.ndim = 1, .dims = {g.dims[1]}};
    return AG_OK;
}

/* ---- indexing ---- */

ag_status shape_rule_gather(ag_call *call) {
    const ag_tensor *x = input(call, 0), *index = input(call, 1);
    int dim = call_dim(call, "dim", CALL_ATTRS(call, attrs_dim)->dim, x->ndim);
    if (dim < 0) return AG_E_INDEX;
    bool fits = index->ndim == x->ndim;
    for (int i = 0; fits && i < x->ndim; i++) fits = i == dim || index->dims[i] <= x->dims[i];
    if (!fits) return rule_mismatch(call, "index", "as many dims as x, no larger than x but along dim", NULL);
    call->out[0].shape = tensor_shape(index);
    return AG_OK;
}

ag_status shape_rule_scatter(ag_call *call) {
    const ag_tensor *x = input(call, 0), *index = input(call, 1), *src = input(call, 2);
    int dim = call_dim(call, "dim", CALL_ATTRS(call, attrs_dim)->dim, x->ndim);
    if (dim < 0) return AG_E_INDEX;
    bool fits = index->ndim == x->ndim && src->ndim == x->ndim;
    for (int i = 0; fits && i < x->ndim; i++)
        fits = index->dims[i] <= src->dims[i] && (i == dim || index->dims[i] <= x->dims[i]);
    if (!fits)
        return rule_mismatch(call, "index", "as many dims as x and src, no larger than src, nor than x but along dim", NULL);
    call->out[0].shape = tensor_shape(x);
    return AG_OK;
}

ag_status shape_rule_index_select(ag_call *call) {
    const ag_tensor *x = input(call, 0), *index = input(call, 1);
    int dim = call_dim(call, "dim", CALL_ATTRS(call, attrs_dim)->dim, x->ndim);
    if (dim < 0) return AG_E_INDEX;
    if (x->ndim == 0) return rule_mismatch(call, "x", "at least 1 dim", NULL);
    if (index->ndim > 1)
        return rule_mismatch(call, "index", "a 1-d tensor of positions", "gather takes one position an element");
    call->out[0].shape = tensor_shape(x);
    call->out[0].shape.dims[dim] = index->numel;
    return AG_OK;
}

ag_status shape_rule_index_add(ag_call *call) {
    const ag_tensor *x = input(call, 0), *index = input(call, 1), *source = input(call, 2);
    int dim = call_dim(call, "dim", CALL_ATTRS(call, attrs_dim)->dim, x->ndim);
    if (dim < 0) return AG_E_INDEX;
    bool fits = x->ndim > 0 && index->ndim <= 1 && source->ndim == x->ndim && source->dims[dim] == index->numel;
    for (int i = 0; fits && i < x->ndim; i++) fits = i == dim || source->dims[i] == x->dims[i];
    if (!fits) return rule_mismatch(call, NULL, "index of 1 dim, source like x with the index's length along dim", NULL);
    call->out[0].shape = tensor_shape(x);
    return AG_OK;
}

ag_status shape_rule_take(ag_call *call) {
    call->out[0].shape = tensor_shape(input(call, 1));
    return AG_OK;
}

ag_status shape_rule_index_put(ag_call *call) {
    shape index = tensor_shape(input(call, 1)), values = tensor_shape(input(call, 2)), common;
    if (!shape_broadcast(&index, &values, &common) || !shape_equal(&common, &index))
        return rule_mismatch(call, "values", "a shape that broadcasts to that of index", NULL);
    call->out[0].shape = tensor_shape(input(call, 0));
    return AG_OK;
}

ag_status shape_rule_one_hot(ag_call *call) {
    int64_t classes = CALL_ATTRS(call, attrs_int)->value;
    shape s = tensor_shape(input(call, 0));
    if (s.ndim == AG_MAX_NDIM) return rule_mismatch(call, "index", "at most 7 dims", NULL);
    if (classes < 0) return call_fail(call, AG_E_VALUE, "num_classes", "a count >= 0", NULL, "%lld", (long long)classes);
    s.dims[s.ndim++] = classes;
    call->out[0].shape = s;
    return AG_OK;
}

ag_status shape_rule_embedding(ag_call *call) {
    const ag_tensor *weight = input(call, 0);
    shape s = tensor_shape(input(call, 1));
    if (weight->ndim != 2) return rule_mismatch(call, "weight", "[rows, width]", NULL);
    if (s.ndim == AG_MAX_NDIM) return rule_mismatch(call, "index", "at most 7 dims", NULL);
    int64_t padding = CALL_ATTRS(call, attrs_int)->value, rows = weight->dims[0], base = call->index_base;
    if (padding != ATTR_NO_INT && (padding < -rows || padding >= rows)) {
        char expected[96];
        snprintf(expected, sizeof expected, "a row of weight: %lld to %lld, or a negative one from the end", (long long)base,
                 (long long)(rows - 1 + base));
        return call_fail(call, AG_E_INDEX, "padding_idx", expected, NULL, "%lld",
                         (long long)(padding < 0 ? padding : padding + base));
    }
    s.dims[s.ndim++] = weight->dims[1];
    call->out[0].shape = s;
    return AG_OK;
}

/* ---- normalisation ---- */

ag_status shape_rule_norm_shape(ag_call *call) {
    const ag_tensor *x = input(call, 0);
    int_list list = CALL_ATTRS(call, attrs_shape)->shape;
    bool fits = list.len >= 1 && list.len <= x->ndim;
    for (int i = 0; fits && i < list.len; i++) fits = call_ints(call, list)[i] == x->dims[x->ndim - list.len + i];
    if (!fits) return rule_mismatch(call, "shape", "the sizes of the last dims of x", NULL);
    for (int k = 1; k < call->num_inputs; k++) {
        const ag_tensor *parameter = input(call, k);
        if (!parameter) continue;
        fits = parameter->ndim == list.len;
        for (int i = 0; fits && i < list.len; i++) fits = parameter->dims[i] == call_ints(call, list)[i];
        if (!fits) return rule_mismatch(call, call->op->params[k == 1 ? 2 : 3].name, "the normalised shape", NULL);
    }
    call->out[0].shape = tensor_shape(x);
    return AG_OK;
}

/* x: [rows, width] -> y: [rows, width], mean and rstd: [rows] */
ag_status shape_rule_norm_stats(ag_call *call) {
    if (input(call, 0)->ndim != 2) return rule_mismatch(call, "x", "[rows, width]", NULL);
    call->out[0].shape = tensor_shape(input(call, 0));
    call->out[1].shape = call->out[2].shape = (shape){.ndim = 1, .dims = {input(call, 0)->dims[0]}};
    return AG_OK;
}

/* g, x: [rows, width] -> dx: [rows, width], dweight and dbias: [width] */
ag_status shape_rule_norm_backward(ag_call *call) {
    if (input(call, 0)->ndim != 2 || input(call, 1)->ndim != 2) return rule_mismatch(call, "x", "[rows, width]", NULL);
    call->out[0].shape = tensor_shape(input(call, 1));
    call->out[1].shape = call->out[2].shape = (shape){.ndim = 1, .dims = {input(call, 1)->dims[1]}};
    return AG_OK;
}

/* ---- losses ---- */

/* x: [n, classes, ...] or [classes]; target: labels [n, ...] or [], or probabilities in the shape of x. */
ag_status shape_rule_cross_entropy(ag_call *call) {
    const ag_tensor *x = input(call, 0), *target = input(call, 1), *weight = input(call, 2);
    if (x->ndim == 0) return rule_mismatch(call, "x", "[n, classes, ...] or [classes]", NULL);
    int class_dim = x->ndim == 1 ? 0 : 1;
    shape labels = {.ndim = 0};
    for (int i = 0; i < x->ndim; i++)
        if (i != class_dim) labels.dims[labels.ndim++] = x->dims[i];
    shape t = tensor_shape(target), xs = tensor_shape(x);
    bool is_float = dtype_is_float((ag_dtype)target->dtype);
    if (is_float ? !shape_equal(&t, &xs) : !shape_equal(&t, &labels)) {
        char text[96];
        return call_fail(call, AG_E_SHAPE, "target",
                         is_float ? "probabilities in the shape of x" : "one label a row: x without its class dim", NULL,
                         "%s for x of another shape", shape_text(&t, text, sizeof text));
    }
    if (weight && (weight->ndim != 1 || weight->dims[0] != x->dims[class_dim]))
        return rule_mismatch(call, "weight", "one weight a class: [classes]", NULL);
    int slot = 1; /* reduction */
    call->out[0].shape = labels;
    if (call->attrs[slot].i != REDUCTION_NONE) call->out[0].shape.ndim = 0;
    return AG_OK;
}

ag_status shape_rule_cross_entropy_rows(ag_call *call) {
    const ag_tensor *x = input(call, 0), *target = input(call, 1), *weight = input(call, 2);
    if (x->ndim != 2 || target->ndim != 1 || target->dims[0] != x->dims[0] ||
        (weight && (weight->ndim != 1 || weight->dims[0] != x->dims[1])))
        return rule_mismatch(call, NULL, "x: [rows, classes], target: [rows], weight: [classes]", NULL);
    for (int i = 0; i < 3; i++) call->out[i].shape = (shape){.ndim = 1, .dims = {input(call, 0)->dims[0]}};
    return AG_OK;
}
