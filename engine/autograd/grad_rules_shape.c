/* grad_rules_shape.c: gradients of copies, views, rearranging and choosing by mask. */
#include "autograd/grad_rules.h"

static void run_identity(grad_call *g) { grad_give(g, 0, g->grad_out[0]); } /* clone and cast: grad_give converts back */

static void run_to_device(grad_call *g) {
    ag_call call;
    grad_prepare(g, &call, OP_to_device, false);
    call.inputs[0] = g->grad_out[0];
    ((struct attrs_device *)(void *)call.attrs)->device = g->node->inputs[0].device;
    grad_give(g, 0, ex_run(g->e, &call));
}

/* ---- views ---- */

static void run_reshape(grad_call *g) {
    shape s = grad_input_shape(g, 0);
    grad_give(g, 0, ex_reshape(g->e, g->grad_out[0], &s));
}

static void run_transpose(grad_call *g) {
    const struct attrs_transpose *attrs = CALL_ATTRS(g->call, attrs_transpose);
    grad_give(g, 0, ex_transpose(g->e, g->grad_out[0], attrs->dim0, attrs->dim1));
}

static void run_permute(grad_call *g) {
    int_list dims = CALL_ATTRS(g->call, attrs_dims)->dims;
    int64_t inverse[AG_MAX_NDIM];
    for (int i = 0; i < dims.len; i++) inverse[dim_resolve(call_ints(g->call, dims)[i], dims.len)] = i;
    grad_give(g, 0, grad_permute(g->e, g->grad_out[0], inverse, dims.len));
}

static void run_expand(grad_call *g) { grad_give(g, 0, g->grad_out[0]); } /* grad_give sums over what was repeated */

/* Runs strided_backward or as_strided with the geometry of a view of a contiguous tensor; `s` is the shape attribute. */
static ag_tensor *run_geometry(grad_call *g, op_id id, ag_tensor *t, const shape *s, const int64_t *strides, int num_strides,
                               int64_t offset) {
    ag_call call;
    grad_prepare(g, &call, id, false);
    call.inputs[0] = t;
    call_set_ints(&call, 0, s->dims, s->ndim);
    call_set_ints(&call, 1, strides, num_strides);
    ((struct attrs_strided *)(void *)call.attrs)->offset = offset;
    return ex_run(g->e, &call);
}

/* Any view: what it would read of a contiguous input gets the gradient, summed where windows overlap. */
static void run_strided(grad_call *g) {
    view_geometry source = {.shape = grad_input_shape(g, 0)}, view;
    shape_contiguous_strides(&source.shape, source.strides);
    expr_fail(g->e, exec_view_geometry(g->call, &source, &view));
    if (g->e->status != AG_OK) return;
    grad_give(g, 0,
              run_geometry(g, OP_strided_backward, g->grad_out[0], &source.shape, view.strides, view.shape.ndim, view.offset));
}

/* as_strided counts over a contiguous tensor, which a gradient need not be. */
static void run_strided_backward(grad_call *g) {
    const struct attrs_strided *attrs = CALL_ATTRS(g->call, attrs_strided);
    shape s = grad_input_shape(g, 0);
    ag_tensor *whole = g->grad_out[0]->is_contiguous ? g->grad_out[0] : ex_unary(g->e, OP_clone, g->grad_out[0]);
    grad_give(g, 0, run_geometry(g, OP_as_strided, whole, &s, call_ints(g->call, attrs->strides), s.ndim, attrs->offset));
}

/* ---- rearranging ---- */

static void run_cat(grad_call *g) {
    const tensor_meta *result = &g->node->outputs[0];
    int dim = dim_resolve(CALL_ATTRS(g->call, attrs_dim)->dim, result->ndim);
    int64_t start = 0;
    for (int i = 0; i < (int)g->node->num_inputs; i++) {
        int64_t size = g->node->inputs[i].dims[dim];
        if (grad_needs(g, i)) grad_give(g, i, ex_narrow(g->e, g->grad_out[0], dim, start, size));
        start += size;
    }
}

static void run_flip(grad_call *g) {
    ag_call call;
    grad_prepare(g, &call, OP_flip, true);
    call.inputs[0] = g->grad_out[0];
    grad_give(g, 0, ex_run(g->e, &call));
}

static void run_roll(grad_call *g) {
    ag_call call;
    grad_prepare(g, &call, OP_roll, true);
    call.inputs[0] = g->grad_out[0];
    int_list shifts = CALL_ATTRS(&call, attrs_roll)->shifts;
    for (int i = 0; i < shifts.len; i++) call.ints[shifts.start + i] = -call.ints[shifts.start + i];
    grad_give(g, 0, ex_run(g->e, &call));
}

/* 0, 1, ... in the input's shape, padded as the input was: where each element of the result came from, flat. */
static ag_tensor *padded_positions(grad_call *g, const shape *s) {
    expr *e = g->e;
    ag_call call;
    ag_tensor *positions = ex_arange(e, e->index_base, shape_numel(s), AG_I64, g->node->inputs[0].device);
    positions = ex_reshape(e, positions, s);
    grad_prepare(g, &call, OP_pad, true);
    call.inputs[0] = positions;
    positions = ex_run(e, &call);
    shape flat = {.ndim = 1, .dims = {positions ? positions->numel : 0}};
    return ex_reshape(e, positions, &flat);
}

/* Constant padding is cut off again (and what was cut off gets zeros); other modes repeat elements, whose gradients add up. */
static void run_pad(grad_call *g) {
    expr *e = g->e;
    const struct attrs_pad *attrs = CALL_ATTRS(g->call, attrs_pad);
    shape s = grad_input_shape(g, 0);
    if (attrs->mode == PAD_CONSTANT) {
        ag_call call;
        grad_prepare(g, &call, OP_pad, true);
        call.inputs[0] = g->grad_out[0];
        ((struct attrs_pad *)(void *)call.attrs)->value = 0;
        for (int i = 0; i < attrs->padding.len; i++) call.ints[attrs->padding.start + i] = -call.ints[attrs->padding.start + i];
        grad_give(g, 0, ex_run(e, &call));
        return;
    }
    ag_tensor *positions = padded_positions(g, &s);
    shape flat = {.ndim = 1, .dims = {shape_numel(&s)}}, padded = {.ndim = 1, .dims = {g->grad_out[0]->numel}};
    ag_tensor *zeros = ex_reshape(e, grad_zeros(g, 0), &flat);
    ag_tensor *sum = grad_index_add(g, zeros, 0, positions, ex_reshape(e, g->grad_out[0], &padded));
    grad_give(g, 0, ex_reshape(e, sum, &s));
}

/* ---- choosing by mask ---- */

/* Selects, never multiplies: 0 times an infinite gradient would be NaN. */
static void run_where(grad_call *g) {
    expr *e = g->e;
    ag_tensor *condition = g->saved_in[0], *grad = g->grad_out[0], *zero = ex_scalar(e, 0, grad);
    if (grad_needs(g, 1)) grad_give(g, 1, ex_where(e, condition, grad, zero));
    if (grad_needs(g, 2)) grad_give(g, 2, ex_where(e, condition, zero, grad));
}

static void run_masked_select(grad_call *g) {
    shape s = grad_input_shape(g, 0), mask = grad_input_shape(g, 1), common;
    if (!shape_broadcast(&s, &mask, &common)) return; /* the forward call has checked it */
    ag_tensor *grad = ex_binary(g->e, OP_masked_scatter, ex_expand(g->e, g->saved_in[1], &common), g->grad_out[0]);
    grad_give(g, 0, grad);
}

static void run_masked_scatter(grad_call *g) {
    grad_give(g, 1, ex_binary(g->e, OP_masked_select, g->grad_out[0], g->saved_in[0]));
}

const grad_rule grad_rule_identity = {.run = run_identity};
const grad_rule grad_rule_cast = {.run = run_identity};
const grad_rule grad_rule_to_device = {.run = run_to_device};
const grad_rule grad_rule_reshape = {.run = run_reshape};
const grad_rule grad_rule_transpose = {.run = run_transpose};
const grad_rule grad_rule_permute = {.run = run_permute};
const grad_rule grad_rule_expand = {.run = run_expand};
const grad_rule grad_rule_strided = {.run = run_strided};
/* x gets the gradient with zeros where src was written; src gets what was written over. */
static void run_strided_scatter(grad_call *g) {
    const struct attrs_strided *attrs = CALL_ATTRS(g->call, attrs_strided);
    shape part = {.ndim = attrs->shape.len};
    for (int i = 0; i < part.ndim; i++) part.dims[i] = call_ints(g->call, attrs->shape)[i];
    ag_tensor *whole = g->grad_out[0]->is_contiguous ? g->grad_out[0] : ex_unary(g->e, OP_clone, g->grad_out[0]);
    if (!whole) return;
    if (grad_needs(g, 0)) {
        ag_call call;
        grad_prepare(g, &call, OP_strided_scatter, true);
        call.inputs[0] = whole;
        call.inputs[1] = ex_full(g->e, &part, 0, (ag_dtype)whole->dtype, whole->storage->device);
        grad_give(g, 0, ex_run(g->e, &call));
    }
    if (grad_needs(g, 1))
        grad_give(g, 1,
                  run_geometry(g, OP_as_strided, whole, &part, call_ints(g->call, attrs->strides), part.ndim, attrs->offset));
}

const grad_rule grad_rule_strided_scatter = {.run = run_strided_scatter};
const grad_rule grad_rule_as_strided = {.run = run_strided};
const grad_rule grad_rule_strided_backward = {.run = run_strided_backward};
const grad_rule grad_rule_cat = {.run = run_cat};
const grad_rule grad_rule_flip = {.run = run_flip};
const grad_rule grad_rule_roll = {.run = run_roll};
const grad_rule grad_rule_pad = {.run = run_pad};
const grad_rule grad_rule_where = {.run = run_where, .saves_in = SAVES(0)};
const grad_rule grad_rule_masked_select = {.run = run_masked_select, .saves_in = SAVES(1)};
const grad_rule grad_rule_masked_scatter = {.run = run_masked_scatter, .saves_in = SAVES(0)};
