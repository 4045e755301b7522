/* grad_rules_matmul.c: gradients of matrix products. */
#include <string.h>

#include "autograd/grad_rules.h"

/* s with a dim of `size` put in at `dim`. */
static shape insert_dim(shape s, int dim, int64_t size) {
    memmove(s.dims + dim + 1, s.dims + dim, (size_t)(s.ndim - dim) * sizeof *s.dims);
    s.dims[dim] = size;
    s.ndim++;
    return s;
}

/* [..., columns] as [rows, columns] */
static ag_tensor *as_matrix(expr *e, ag_tensor *t) {
    if (!t || t->ndim == 2) return t;
    shape s = {.ndim = 2, .dims = {1, t->dims[t->ndim - 1]}};
    for (int i = 0; i < t->ndim - 1; i++) s.dims[0] *= t->dims[i];
    return ex_reshape(e, t, &s);
}

static ag_tensor *transposed(expr *e, ag_tensor *t) { return ex_transpose(e, t, -2, -1); }

/* c = a b. da = g b', db = a' g over matrices a: [..., n, k], b: [..., k, m], g: [..., n, m]; a 1-d a is [1, k], a 1-d b
 * is [k, 1]. Where b is one matrix for all leading dims of a, these are made rows, and each gradient is one product. */
static void run_matmul(grad_call *g) {
    expr *e = g->e;
    shape shape_a = grad_input_shape(g, 0), shape_b = grad_input_shape(g, 1);
    shape a_matrix = shape_a, b_matrix = shape_b;
    shape shape_g = {.ndim = g->node->outputs[0].ndim};
    for (int i = 0; i < shape_g.ndim; i++) shape_g.dims[i] = g->node->outputs[0].dims[i];
    if (shape_b.ndim == 1) {
        b_matrix = insert_dim(shape_b, 1, 1);
        shape_g = insert_dim(shape_g, shape_g.ndim, 1);
    }
    if (shape_a.ndim == 1) {
        a_matrix = insert_dim(shape_a, 0, 1);
        shape_g = insert_dim(shape_g, shape_g.ndim - 1, 1);
    }
    ag_tensor *grad = ex_reshape(e, g->grad_out[0], &shape_g);
    bool is_flat = b_matrix.ndim == 2;
    if (is_flat) grad = as_matrix(e, grad);
    if (grad_needs(g, 0)) {
        ag_tensor *b = ex_reshape(e, g->saved_in[1], &b_matrix), *da = ex_matmul(e, grad, transposed(e, b));
        if (!is_flat) da = ex_sum_to(e, da, &a_matrix);
        grad_give(g, 0, ex_reshape(e, da, &shape_a));
    }
    if (grad_needs(g, 1)) {
        ag_tensor *a = ex_reshape(e, g->saved_in[0], &a_matrix);
        ag_tensor *db = ex_matmul(e, transposed(e, is_flat ? as_matrix(e, a) : a), grad);
        grad_give(g, 1, ex_reshape(e, ex_sum_to(e, db, &b_matrix), &shape_b));
    }
}

/* What the activation's gradient reads: relu is told from its result; gelu needs its argument, computed again. */
static ag_tensor *activation_reads(grad_call *g, int64_t activation) {
    ag_call call;
    if (activation == ACTIVATION_RELU) return g->saved_out[0];
    grad_prepare(g, &call, OP_linear, false);
    for (int i = 0; i < 3; i++) call.inputs[i] = g->saved_in[i];
    return ex_run(g->e, &call);
}

/* y = activation(z), z = x w' + b: dx = dz w, dw = dz' x, db = sum of dz over rows. x: [..., in], w: [out, in], g: [..., out] */
static void run_linear(grad_call *g) {
    expr *e = g->e;
    int64_t activation = CALL_ATTRS(g->call, attrs_activation)->activation;
    shape x = grad_input_shape(g, 0);
    ag_tensor *dz = as_matrix(e, g->grad_out[0]), *dbias = NULL;
    if (activation != ACTIVATION_NONE) {
        ag_call call;
        grad_prepare(g, &call, OP_bias_activation_backward, true);
        call.inputs[0] = dz;
        call.inputs[1] = as_matrix(e, activation_reads(g, activation));
        dz = ex_run(e, &call);
        dbias = call.outputs[1];
    } else if (grad_needs(g, 2)) {
        dbias = ex_reduce(e, OP_sum, dz, (int64_t[]){0}, 1, false);
    }
    if (grad_needs(g, 0)) grad_give(g, 0, ex_reshape(e, ex_matmul(e, dz, g->saved_in[1]), &x));
    if (grad_needs(g, 1)) grad_give(g, 1, ex_matmul(e, transposed(e, dz), as_matrix(e, g->saved_in[0])));
    if (grad_needs(g, 2)) grad_give(g, 2, dbias);
}

const grad_rule grad_rule_matmul = {.run = run_matmul, .saves_in = SAVES(1), .saves_in_b = SAVES(0), .is_binary = true};
const grad_rule grad_rule_linear = {.run = run_linear, .saves_in = SAVES(0) | SAVES(1) | SAVES(2), .saves_out = SAVES(0)};
