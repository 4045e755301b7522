/* shape_rules.c: shapes of results from shapes of inputs, for the families that most ops share; shape_rules_nn.c has the
 * rest. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/error.h"
#include "ops/attrs.h"
#include "ops/rules.h"

static const ag_tensor *input(const ag_call *call, int i) { return call->inputs[i]; }

ag_status rule_mismatch(const ag_call *call, const char *arg, const char *expected, const char *hint) {
    char got[256] = "", text[96];
    size_t used = 0;
    for (int i = 0; i < call->num_inputs && i < 3; i++) {
        if (!call->inputs[i]) continue;
        shape s = tensor_shape(call->inputs[i]);
        used += (size_t)snprintf(got + used, sizeof got - used, "%s%s", used ? " and " : "", shape_text(&s, text, sizeof text));
    }
    return call_fail(call, AG_E_SHAPE, arg, expected, hint, "%s", got);
}

/* Writes only the dims there are: small calls notice copies of whole shapes. */
static void set_shape(shape *s, const ag_tensor *t) {
    s->ndim = t->ndim;
    for (int i = 0; i < t->ndim; i++) s->dims[i] = t->dims[i];
}

static bool has_shape(const ag_tensor *t, const shape *s) {
    if (t->ndim != s->ndim) return false;
    for (int i = 0; i < t->ndim; i++)
        if (t->dims[i] != s->dims[i]) return false;
    return true;
}

ag_status shape_rule_same(ag_call *call) {
    for (int i = 0; i < call->num_outputs; i++) set_shape(&call->out[i].shape, input(call, 0));
    return AG_OK;
}

ag_status shape_rule_second_shape(ag_call *call) {
    call->out[0].shape = tensor_shape(input(call, 1));
    return AG_OK;
}

ag_status shape_rule_same_dim(ag_call *call) {
    const struct attrs_dim *attrs = CALL_ATTRS(call, attrs_dim);
    if (call_dim(call, "dim", attrs->dim, input(call, 0)->ndim) < 0) return AG_E_INDEX;
    return shape_rule_same(call);
}

ag_status shape_rule_matrix_same(ag_call *call) {
    if (input(call, 0)->ndim < 2) return rule_mismatch(call, "x", "at least 2 dims", NULL);
    return shape_rule_same(call);
}

/* Outputs depend on data: the kernel allocates them. */
ag_status shape_rule_dynamic(ag_call *call) {
    if (call->num_inputs == 2) {
        shape a = tensor_shape(input(call, 0)), b = tensor_shape(input(call, 1)), common;
        if (!shape_broadcast(&a, &b, &common)) return rule_mismatch(call, NULL, "shapes that broadcast", NULL);
    }
    return AG_OK;
}

ag_status shape_rule_step(ag_call *call) {
    (void)call;
    return AG_OK;
}

ag_status shape_rule_broadcast(ag_call *call) {
    shape *result = &call->out[0].shape;
    set_shape(result, input(call, 0));
    for (int i = 1; i < call->num_inputs; i++) {
        const ag_tensor *t = input(call, i);
        if (!t || t->ndim == 0 || has_shape(t, result)) continue;
        shape s = tensor_shape(t), common;
        if (!shape_broadcast(result, &s, &common))
            return rule_mismatch(call, NULL, "shapes that broadcast: aligned at the last dim, sizes equal or 1", NULL);
        *result = common;
    }
    for (int i = 1; i < call->num_outputs; i++) call->out[i].shape = *result;
    return AG_OK;
}

ag_status shape_rule_loss(ag_call *call) {
    AG_TRY(shape_rule_broadcast(call));
    int last = call->op->num_attrs - 1;
    for (int i = 0; i < call->op->num_params; i++)
        if (strcmp(call->op->params[i].name, "reduction") == 0) last = call->op->params[i].slot;
    if (call->attrs[last].i != REDUCTION_NONE) call->out[0].shape.ndim = 0;
    return AG_OK;
}

/* ---- creation ---- */

static ag_status shape_from_list(ag_call *call, int_list list, shape *out) {
    if (list.len < 0) return call_fail(call, AG_E_ARGUMENT, "shape", "sizes", NULL, "none");
    if (list.len > AG_MAX_NDIM) return call_fail(call, AG_E_SHAPE, "shape", "at most 8 dims", NULL, "%d", list.len);
    out->ndim = list.len;
    if (list.len) memcpy(out->dims, call_ints(call, list), (size_t)list.len * sizeof *out->dims);
    return AG_OK;
}

ag_status shape_rule_attr_shape(ag_call *call) {
    int slot = 0;
    for (int i = 0; i < call->op->num_params; i++)
        if (call->op->params[i].type == PARAM_SHAPE) slot = call->op->params[i].slot;
    return shape_from_list(call, call->attrs[slot].list, &call->out[0].shape);
}

static ag_status vector_shape(ag_call *call, const char *arg, int64_t count) {
    if (count < 0) return call_fail(call, AG_E_VALUE, arg, "a count >= 0", NULL, "%lld", (long long)count);
    call->out[0].shape = (shape){.ndim = 1, .dims = {count}};
    return AG_OK;
}

ag_status shape_rule_arange(ag_call *call) {
    struct attrs_arange *attrs = (struct attrs_arange *)(void *)call->attrs;
    if (call->attrs[1].i == ATTR_NO_INT) {
        attrs->stop = attrs->start;
        attrs->start = 0;
    }
    if (!isfinite(attrs->start) || !isfinite(attrs->stop) || !isfinite(attrs->step) || attrs->step == 0)
        return call_fail(call, AG_E_VALUE, "step", "finite numbers and a step other than 0", NULL, "start %g, stop %g, step %g",
                         attrs->start, attrs->stop, attrs->step);
    double count = ceil((attrs->stop - attrs->start) / attrs->step);
    if (count > 0x1p62) return call_fail(call, AG_E_VALUE, "stop", "a shorter range", NULL, "%g elements", count);
    return vector_shape(call, "stop", count > 0 ? (int64_t)count : 0);
}

ag_status shape_rule_linspace(ag_call *call) {
    const struct attrs_linspace *attrs = CALL_ATTRS(call, attrs_linspace);
    if (!isfinite(attrs->start) || !isfinite(attrs->stop))
        return call_fail(call, AG_E_VALUE, "start", "finite numbers", NULL, "start %g, stop %g", attrs->start, attrs->stop);
    return vector_shape(call, "count", attrs->count);
}

ag_status shape_rule_randperm(ag_call *call) { return vector_shape(call, "n", CALL_ATTRS(call, attrs_randperm)->n); }

ag_status shape_rule_eye(ag_call *call) {
    const struct attrs_eye *attrs = CALL_ATTRS(call, attrs_eye);
    int64_t columns = attrs->columns == ATTR_NO_INT ? attrs->rows : attrs->columns;
    if (attrs->rows < 0 || columns < 0)
        return call_fail(call, AG_E_VALUE, "rows", "sizes >= 0", NULL, "%lld and %lld", (long long)attrs->rows,
                         (long long)columns);
    call->out[0].shape = (shape){.ndim = 2, .dims = {attrs->rows, columns}};
    return AG_OK;
}

/* ---- reductions ---- */

ag_status rule_reduced_dims(const ag_call *call, int_list dims, int ndim, uint32_t *mask) {
    *mask = 0;
    if (dims.len < 0) {
        *mask = (1u << ndim) - 1;
        return AG_OK;
    }
    const int64_t *values = call_ints(call, dims);
    for (int i = 0; i < dims.len; i++) {
        int dim = call_dim(call, "dims", values[i], ndim);
        if (dim < 0) return AG_E_INDEX;
        if (ndim == 0) continue;
        if (*mask & (1u << dim))
            return call_fail(call, AG_E_VALUE, "dims", "each dim once", NULL, "dim %d twice", dim + call->index_base);
        *mask |= 1u << dim;
    }
    return AG_OK;
}

void rule_reduced_shape(const shape *s, uint32_t mask, bool keepdim, shape *out) {
    out->ndim = 0;
    for (int i = 0; i < s->ndim; i++) {
        if (!(mask & (1u << i)))
            out->dims[out->ndim++] = s->dims[i];
        else if (keepdim)
            out->dims[out->ndim++] = 1;
    }
}

/* The dims and keepdim attributes stand at different slots: var and norm have a number between or before. */
static void reduce_attrs(const ag_call *call, int_list *dims, bool *keepdim) {
    *keepdim = false;
    for (int i = 0; i < call->op->num_params; i++) {
        const param *p = &call->op->params[i];
        if (p->type == PARAM_DIMS) *dims = call->attrs[p->slot].list;
        if (p->type == PARAM_FLAG) *keepdim = call->attrs[p->slot].i != 0;
    }
}

ag_status shape_rule_reduce(ag_call *call) {
    shape s = tensor_shape(input(call, 0));
    int_list dims = {0, -1};
    bool keepdim;
    uint32_t mask;
    reduce_attrs(call, &dims, &keepdim);
    AG_TRY(rule_reduced_dims(call, dims, s.ndim, &mask));
    rule_reduced_shape(&s, mask, keepdim, &call->out[0].shape);
    return AG_OK;
}

static ag_status refuse_empty(ag_call *call, const char *arg) {
    return call_fail(call, AG_E_SHAPE, arg, "at least one element to choose from", NULL, "none");
}

ag_status shape_rule_reduce_nonempty(ag_call *call) {
    AG_TRY(shape_rule_reduce(call));
    if (input(call, 0)->numel == 0 && shape_numel(&call->out[0].shape) != 0) return refuse_empty(call, "x");
    return AG_OK;
}

ag_status shape_rule_reduce_one(ag_call *call) {
    const struct attrs_reduce_one *attrs = CALL_ATTRS(call, attrs_reduce_one);
    shape s = tensor_shape(input(call, 0));
    uint32_t mask = (1u << s.ndim) - 1;
    if (attrs->dim != ATTR_NO_INT) {
        int dim = call_dim(call, "dim", attrs->dim, s.ndim);
        if (dim < 0) return AG_E_INDEX;
        mask = s.ndim ? 1u << dim : 0;
    }
    for (int i = 0; i < call->num_outputs; i++) rule_reduced_shape(&s, mask, attrs->keepdim != 0, &call->out[i].shape);
    if (input(call, 0)->numel == 0 && shape_numel(&call->out[0].shape) != 0) return refuse_empty(call, "x");
    return AG_OK;
}

ag_status shape_rule_topk(ag_call *call) {
    const struct attrs_topk *attrs = CALL_ATTRS(call, attrs_topk);
    AG_TRY(shape_rule_same(call));
    shape *s = &call->out[0].shape;
    int dim = call_dim(call, "dim", attrs->dim, s->ndim);
    if (dim < 0) return AG_E_INDEX;
    int64_t size = s->ndim ? s->dims[dim] : 1, least = s->ndim ? 0 : 1; /* a 0-d result has one element */
    if (attrs->k < least || attrs->k > size) {
        char expected[64];
        snprintf(expected, sizeof expected, "%lld to %lld", (long long)least, (long long)size);
        return call_fail(call, AG_E_VALUE, "k", expected, NULL, "%lld", (long long)attrs->k);
    }
    if (s->ndim) s->dims[dim] = attrs->k;
    call->out[1].shape = *s;
    return AG_OK;
}

/* ---- joining and rearranging ---- */

ag_status shape_rule_cat(ag_call *call) {
    const struct attrs_dim *attrs = CALL_ATTRS(call, attrs_dim);
    if (call->num_inputs == 0) return call_fail(call, AG_E_ARGUMENT, "tensors", "at least one tensor", NULL, "an empty list");
    shape s = tensor_shape(input(call, 0)), other;
    if (s.ndim == 0) return call_fail(call, AG_E_SHAPE, "tensors", "at least 1 dim", "stack joins 0-d tensors", "a 0-d tensor");
    int dim = call_dim(call, "dim", attrs->dim, s.ndim);
    if (dim < 0) return AG_E_INDEX;
    for (int i = 1; i < call->num_inputs; i++) {
        other = tensor_shape(input(call, i));
        bool fits = other.ndim == s.ndim;
        for (int d = 0; fits && d < s.ndim; d++) fits = d == dim || other.dims[d] == s.dims[d];
        if (!fits) {
            char first[96], text[96];
            shape head = tensor_shape(input(call, 0));
            return call_fail(call, AG_E_SHAPE, "tensors", "equal shapes but for the dim joined", NULL,
                             "%s first and %s at position %d", shape_text(&head, first, sizeof first),
                             shape_text(&other, text, sizeof text), i + call->index_base);
        }
        if (__builtin_add_overflow(s.dims[dim], other.dims[dim], &s.dims[dim]))
            return call_fail(call, AG_E_SHAPE, "tensors", "a size below 2^63", NULL, "more");
    }
    call->out[0].shape = s;
    return AG_OK;
}

ag_status shape_rule_stack(ag_call *call) {
    const struct attrs_dim *attrs = CALL_ATTRS(call, attrs_dim);
    if (call->num_inputs == 0) return call_fail(call, AG_E_ARGUMENT, "tensors", "at least one tensor", NULL, "an empty list");
    shape s = tensor_shape(input(call, 0));
    if (s.ndim == AG_MAX_NDIM) return call_fail(call, AG_E_SHAPE, "tensors", "at most 7 dims", NULL, "8");
    int dim = call_dim(call, "dim", attrs->dim, s.ndim + 1);
    if (dim < 0) return AG_E_INDEX;
    for (int i = 1; i < call->num_inputs; i++) {
        shape other = tensor_shape(input(call, i));
        if (!shape_equal(&s, &other)) {
            char first[96], text[96];
            return call_fail(call, AG_E_SHAPE, "tensors", "equal shapes", NULL, "%s first and %s at position %d",
                             shape_text(&s, first, sizeof first), shape_text(&other, text, sizeof text), i + call->index_base);
        }
    }
    memmove(s.dims + dim + 1, s.dims + dim, (size_t)(s.ndim - dim) * sizeof *s.dims);
    s.dims[dim] = call->num_inputs;
    s.ndim++;
    call->out[0].shape = s;
    return AG_OK;
}

ag_status shape_rule_tile(ag_call *call) {
    int_list repeats = CALL_ATTRS(call, attrs_ints)->ints;
    shape s = tensor_shape(input(call, 0)), *out = &call->out[0].shape;
    if (repeats.len < 0 || repeats.len > AG_MAX_NDIM)
        return call_fail(call, AG_E_SHAPE, "repeats", "0 to 8 numbers", NULL, "%d", repeats.len);
    out->ndim = repeats.len > s.ndim ? repeats.len : s.ndim;
    int new_dims = out->ndim - s.ndim, not_repeated = out->ndim - repeats.len; /* one of them is 0 */
    for (int i = 0; i < out->ndim; i++) {
        int64_t times = i < not_repeated ? 1 : call_ints(call, repeats)[i - not_repeated];
        int64_t size = i < new_dims ? 1 : s.dims[i - new_dims];
        if (times < 0 || __builtin_mul_overflow(times, size, &out->dims[i]))
            return call_fail(call, AG_E_VALUE, "repeats", "numbers >= 0 that give sizes below 2^63", NULL, "%lld",
                             (long long)times);
    }
    return AG_OK;
}

ag_status shape_rule_pad(ag_call *call) {
    const struct attrs_pad *attrs = CALL_ATTRS(call, attrs_pad);
    shape s = tensor_shape(input(call, 0));
    int len = attrs->padding.len;
    if (len < 0 || len % 2 || len / 2 > s.ndim)
        return call_fail(call, AG_E_SHAPE, "padding", "a (before, after) pair for each dim, last dim first", NULL,
                         "%d numbers for %d dims", len, s.ndim);
    for (int i = 0; i < len / 2; i++) {
        int dim = s.ndim - 1 - i;
        int64_t before = call_ints(call, attrs->padding)[2 * i], after = call_ints(call, attrs->padding)[2 * i + 1],
                size = s.dims[dim];
        bool bad = __builtin_add_overflow(size, before, &size) || __builtin_add_overflow(size, after, &size) || size < 0 ||
                   s.dims[dim] + (before < 0 ? before : 0) + (after < 0 ? after : 0) < 0;
        if (attrs->mode == PAD_REFLECT) bad |= before >= s.dims[dim] || after >= s.dims[dim] || before < 0 || after < 0;
        if (attrs->mode == PAD_REPLICATE) bad |= (s.dims[dim] == 0 && size) || before < 0 || after < 0;
        if (bad)
            return call_fail(call, AG_E_VALUE, "padding", "amounts that the dim's size allows", NULL,
                             "(%lld, %lld) for size %lld", (long long)before, (long long)after, (long long)s.dims[dim]);
        s.dims[dim] = size;
    }
    call->out[0].shape = s;
    return AG_OK;
}

ag_status shape_rule_diag(ag_call *call) {
    int64_t offset = CALL_ATTRS(call, attrs_int)->value;
    shape s = tensor_shape(input(call, 0)), *out = &call->out[0].shape;
    int64_t distance = offset < 0 ? -offset : offset;
    if (s.ndim == 1) {
        *out = (shape){.ndim = 2, .dims = {s.dims[0] + distance, s.dims[0] + distance}};
    } else if (s.ndim == 2) {
        int64_t rows = s.dims[0] + (offset < 0 ? offset : 0), columns = s.dims[1] - (offset > 0 ? offset : 0);
        int64_t len = rows < columns ? rows : columns;
        *out = (shape){.ndim = 1, .dims = {len > 0 ? len : 0}};
    } else {
        return rule_mismatch(call, "x", "1 or 2 dims", "diagonal() takes more dims");
    }
    return AG_OK;
}
