/* decompositions_optim.c: optimizer steps, written back in place. The formulas are PyTorch's.
 *
 * The list holds all parameters, then all gradients, then all buffers of each kind. Every parameter has an expr of its own, so
 * that no more temporaries than one parameter's live at a time. Parameters are tracked leaves: all is computed on detached
 * handles. */
#include <math.h>

#include "core/error.h"
#include "exec/decompositions.h"

/* The k-th tensor of a group, as a constant in the dtype that the step computes in. */
static ag_tensor *member(expr *e, const ag_call *call, int i) {
    return ex_cast(e, ex_detach(e, call->inputs[i]), decompose_dtype(call));
}

static void write_back(expr *e, ag_tensor *result, ag_tensor *target) {
    if (e->status != AG_OK) return;
    expr_fail(e, exec_copy(result, target));
    if (e->status == AG_OK) tensor_bump_version(target);
}

/* a * scale_a + b * scale_b */
static ag_tensor *blend(expr *e, ag_tensor *a, double scale_a, ag_tensor *b, double scale_b) {
    if (scale_a != 1) a = ex_mul_number(e, a, scale_a);
    if (scale_b != 1) b = ex_mul_number(e, b, scale_b);
    return ex_add(e, a, b);
}

/* Refuses a list that is not `groups` groups of one length, or whose groups differ in shape. */
static ag_status check_groups(expr *e, const ag_call *call, int groups) {
    if (call->num_inputs % groups != 0)
        return decompose_refuse(e, call, AG_E_ARGUMENT, "tensors", "as many of each kind", NULL, "%d tensors for %d kinds",
                                call->num_inputs, groups);
    int n = call->num_inputs / groups;
    for (int i = n; i < call->num_inputs; i++) {
        shape parameter = tensor_shape(call->inputs[i % n]), other = tensor_shape(call->inputs[i]);
        if (shape_equal(&parameter, &other)) continue;
        char expected[96], got[96];
        return decompose_refuse(e, call, AG_E_SHAPE, "tensors", shape_text(&parameter, expected, sizeof expected), NULL,
                                "%s at position %d", shape_text(&other, got, sizeof got), i + call->index_base);
    }
    return e->status;
}

/* d = grad + weight_decay * param; buffer = momentum * buffer + (1 - dampening) * d, or d at the first step;
 * param -= lr * (nesterov ? d + momentum * buffer : buffer) */
static void sgd_parameter(expr *e, const ag_call *call, int i, int n) {
    const struct attrs_sgd *attrs = CALL_ATTRS(call, attrs_sgd);
    ag_tensor *parameter = member(e, call, i), *step = member(e, call, n + i);
    if (attrs->weight_decay != 0) step = blend(e, step, 1, parameter, attrs->weight_decay);
    if (attrs->momentum != 0) {
        ag_tensor *buffer = step;
        if (!attrs->first) buffer = blend(e, member(e, call, 2 * n + i), attrs->momentum, step, 1 - attrs->dampening);
        write_back(e, buffer, call->inputs[2 * n + i]);
        step = attrs->nesterov ? blend(e, step, 1, buffer, attrs->momentum) : buffer;
    }
    write_back(e, blend(e, parameter, 1, step, -attrs->lr), call->inputs[i]);
}

/* m = beta1 * m + (1 - beta1) * g; v = beta2 * v + (1 - beta2) * g^2, with weight decay in g, or in param when decoupled;
 * param -= lr / (1 - beta1^step) * m / (sqrt(v) / sqrt(1 - beta2^step) + eps) */
static void adam_parameter(expr *e, const ag_call *call, int i, int n) {
    const struct attrs_adam *attrs = CALL_ATTRS(call, attrs_adam);
    double correction1 = 1 - pow(attrs->beta1, (double)attrs->step), correction2 = 1 - pow(attrs->beta2, (double)attrs->step);
    ag_tensor *parameter = member(e, call, i), *g = member(e, call, n + i);
    if (attrs->weight_decay != 0) {
        if (attrs->decoupled) parameter = ex_mul_number(e, parameter, 1 - attrs->lr * attrs->weight_decay);
        else g = blend(e, g, 1, parameter, attrs->weight_decay);
    }
    ag_tensor *m = blend(e, member(e, call, 2 * n + i), attrs->beta1, g, 1 - attrs->beta1);
    ag_tensor *v = blend(e, member(e, call, 3 * n + i), attrs->beta2, ex_mul(e, g, g), 1 - attrs->beta2);
    ag_tensor *root = ex_mul_number(e, ex_unary(e, OP_sqrt, v), 1 / sqrt(correction2));
    ag_tensor *step = ex_div(e, m, ex_add_number(e, root, attrs->eps));
    ag_tensor *result = blend(e, parameter, 1, step, -attrs->lr / correction1);
    write_back(e, m, call->inputs[2 * n + i]);
    write_back(e, v, call->inputs[3 * n + i]);
    write_back(e, result, call->inputs[i]);
}

static ag_status step_all(expr *e, const ag_call *call, int groups,
                          void (*step)(expr *e, const ag_call *call, int i, int n)) {
    AG_TRY(check_groups(e, call, groups));
    int n = call->num_inputs / groups;
    for (int i = 0; i < n && e->status == AG_OK; i++) {
        expr one;
        expr_begin(&one);
        one.index_base = e->index_base;
        step(&one, call, i, n);
        expr_fail(e, expr_end(&one));
    }
    return e->status;
}

ag_status decompose_sgd_step(expr *e, ag_call *call) {
    return step_all(e, call, CALL_ATTRS(call, attrs_sgd)->momentum != 0 ? 3 : 2, sgd_parameter);
}

ag_status decompose_adam_step(expr *e, ag_call *call) {
    if (CALL_ATTRS(call, attrs_adam)->step < 1)
        return decompose_refuse(e, call, AG_E_VALUE, "step", "a count >= 1", NULL, "%lld",
                                (long long)CALL_ATTRS(call, attrs_adam)->step);
    return step_all(e, call, 4, adam_parameter);
}
