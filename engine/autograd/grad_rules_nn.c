/* grad_rules_nn.c: gradients of softmax, layer norm and cross-entropy, by their fused backward ops. */
#include "autograd/grad_rules.h"
#include "core/error.h"

static void run_softmax_like(grad_call *g, op_id id) {
    ag_call call;
    grad_prepare(g, &call, id, true);
    call.inputs[0] = g->grad_out[0];
    call.inputs[1] = g->saved_out[0];
    grad_give(g, 0, ex_run(g->e, &call));
}

static void run_softmax(grad_call *g) { run_softmax_like(g, OP_softmax_backward); }
static void run_log_softmax(grad_call *g) { run_softmax_like(g, OP_log_softmax_backward); }

/* ---- layer norm ---- */

/* Mean and 1 / standard deviation of each row of x: [rows, width]. */
static void row_statistics(grad_call *g, ag_tensor *x, int64_t width, ag_tensor **mean, ag_tensor **rstd) {
    ag_call call;
    grad_prepare(g, &call, OP_layer_norm_stats, false);
    struct attrs_norm_stats *attrs = (struct attrs_norm_stats *)(void *)call.attrs;
    attrs->eps = CALL_ATTRS(g->call, attrs_layer_norm)->eps;
    attrs->width = width;
    call.inputs[0] = x;
    ex_run(g->e, &call);
    *mean = call.outputs[1];
    *rstd = call.outputs[2];
}

/* The statistics are computed again from x, as [rows, width]: cheaper than keeping the normalised rows. */
static void run_layer_norm(grad_call *g) {
    expr *e = g->e;
    shape x_shape = grad_input_shape(g, 0), matrix = {.ndim = 2, .dims = {1, 1}};
    int_list normalised = CALL_ATTRS(g->call, attrs_layer_norm)->shape;
    for (int i = 0; i < x_shape.ndim; i++) matrix.dims[i >= x_shape.ndim - normalised.len] *= x_shape.dims[i];
    int64_t width = matrix.dims[1];
    shape row = {.ndim = 1, .dims = {width}};
    ag_tensor *grad = ex_reshape(e, g->grad_out[0], &matrix), *mean, *rstd;
    ag_tensor *x = ex_reshape(e, ex_cast(e, g->saved_in[0], (ag_dtype)g->grad_out[0]->dtype), &matrix);
    row_statistics(g, x, width, &mean, &rstd);
    ag_call call;
    grad_prepare(g, &call, OP_layer_norm_backward, false);
    call.inputs[0] = grad;
    call.inputs[1] = x;
    call.inputs[2] = mean;
    call.inputs[3] = rstd;
    call.inputs[4] = g->saved_in[1] ? ex_reshape(e, g->saved_in[1], &row) : NULL;
    call.attrs[0].i = width;
    ex_run(e, &call);
    if (e->status != AG_OK) return;
    for (int i = 0; i < 3; i++) {
        shape s = grad_input_shape(g, i);
        if (grad_needs(g, i)) grad_give(g, i, ex_reshape(e, call.outputs[i], &s));
    }
}

/* ---- cross-entropy ---- */

/* loss, lse (log of the sum of exponentials) and row_weight of logits x: [n, classes]. lse is read by this gradient and so may
 * have one itself, softmax(x) a row; row_weight depends on the labels alone. */
static void run_cross_entropy_rows(grad_call *g) {
    expr *e = g->e;
    ag_tensor *x = g->saved_in[0], *lse = g->saved_out[1], *dx = NULL;
    if (grad_needs(g, 2)) {
        expr_fail(e, error_set(AG_E_AUTODIFF, "cross_entropy", "weight", "an untracked tensor", "detach it: t:detach()",
                               "a tracked one"));
        return;
    }
    if (g->grad_out[0]) {
        ag_call call;
        grad_prepare(g, &call, OP_cross_entropy_rows_backward, false);
        call.inputs[0] = g->grad_out[0];
        call.inputs[1] = x;
        call.inputs[2] = g->saved_in[1];
        call.inputs[3] = lse;
        call.inputs[4] = g->saved_out[2];
        call.inputs[5] = g->saved_in[2];
        call.attrs[0].f = CALL_ATTRS(g->call, attrs_cross_entropy_rows)->label_smoothing;
        dx = ex_run(e, &call);
    }
    if (g->grad_out[1]) {
        ag_tensor *probability = ex_unary(e, OP_exp, ex_sub(e, x, ex_unsqueeze(e, lse, 1)));
        ag_tensor *through_lse = ex_mul(e, ex_unsqueeze(e, g->grad_out[1], 1), probability);
        dx = dx ? ex_add(e, dx, through_lse) : through_lse;
    }
    if (dx) grad_give(g, 0, dx);
}

const grad_rule grad_rule_softmax = {.run = run_softmax, .saves_out = SAVES(0)};
const grad_rule grad_rule_log_softmax = {.run = run_log_softmax, .saves_out = SAVES(0)};
const grad_rule grad_rule_layer_norm = {.run = run_layer_norm, .saves_in = SAVES(0) | SAVES(1)};
const grad_rule grad_rule_cross_entropy_rows = {
    .run = run_cross_entropy_rows, .saves_in = SAVES(0) | SAVES(1) | SAVES(2), .saves_out = SAVES(1) | SAVES(2)};
