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

/* The gradient of what went into the activation. relu is told from its result; gelu needs its argument, computed again. */
static ag_tensor *activation_gradient(grad_call *g) {
    int64_t activation = CALL_ATTRS(g->call, attrs_activation)->activation;
    ag_call call;
    if (activation == ACTIVATION_NONE) return g->grad_out[0];
    bool is_relu = activation == ACTIVATION_RELU;
    ag_tensor *argument = NULL;
    if (!is_relu) {
        grad_prepare(g, &call, OP_linear, false);
        for (int i = 0; i < 3; i++) call.inputs[i] = g->saved_in[i];
        argument = ex_run(g->e, &call);
    }
    grad_prepare(g, &call, is_relu ? OP_relu_backward : OP_gelu_backward, false);
    call.inputs[0] = g->grad_out[0];
    call.inputs[1] = argument;
    call.inputs[2] = is_relu ? g->saved_out[0] : NULL;
    return ex_run(g->e, &call);
}

/* z = x w' + b: dx = g w, dw = g' x, db = sum of g over rows. x: [..., in], w: [out, in], b: [out], g: [..., out] */
static void run_linear(grad_call *g) {
    expr *e = g->e;
    shape x = grad_input_shape(g, 0);
    ag_tensor *grad = as_matrix(e, activation_gradient(g));
    if (grad_needs(g, 0)) grad_give(g, 0, ex_reshape(e, ex_matmul(e, grad, g->saved_in[1]), &x));
    if (grad_needs(g, 1)) grad_give(g, 1, ex_matmul(e, transposed(e, grad), as_matrix(e, g->saved_in[0])));
    if (grad_needs(g, 2)) grad_give(g, 2, ex_reduce(e, OP_sum, grad, (int64_t[]){0}, 1, false));
}

const grad_rule grad_rule_matmul = {.run = run_matmul, .saves_in = SAVES(1), .saves_in_b = SAVES(0), .is_binary = true};
const grad_rule grad_rule_linear = {.run = run_linear, .saves_in = SAVES(0) | SAVES(1) | SAVES(2), .saves_out = SAVES(0)};
