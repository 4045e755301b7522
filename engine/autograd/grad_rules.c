/* grad_rules.c: which gradient rule each op has, and what rules of several families share. */
#include "autograd/grad_rules.h"

#include <string.h>

void grad_give(grad_call *g, int input, ag_tensor *t) {
    if (t && !t->is_weak && grad_fits(t, &g->node->inputs[input])) {
        g->grad_in[input] = t;
        return;
    }
    shape s = grad_input_shape(g, input);
    g->grad_in[input] = ex_cast(g->e, ex_sum_to(g->e, t, &s), grad_input_dtype(g, input));
}

ag_tensor *grad_zeros(grad_call *g, int input) {
    shape s = grad_input_shape(g, input);
    return ex_full(g->e, &s, 0, grad_input_dtype(g, input), g->node->inputs[input].device);
}

void grad_prepare(const grad_call *g, ag_call *call, op_id id, bool copies_attrs) {
    const ag_call *forward = g->call;
    call_init(call, id);
    if (!copies_attrs) return;
    memcpy(call->attrs, forward->attrs, sizeof *call->attrs * (size_t)forward->op->num_attrs);
    memcpy(call->ints, forward->ints, sizeof *call->ints * (size_t)forward->num_ints);
    call->num_ints = forward->num_ints;
}

ag_tensor *grad_scatter_add(grad_call *g, int input, int64_t dim, ag_tensor *index, ag_tensor *t) {
    ag_call call;
    grad_prepare(g, &call, OP_scatter_add, false);
    call.inputs[0] = grad_zeros(g, input);
    call.inputs[1] = index;
    call.inputs[2] = t;
    call.attrs[0].i = dim;
    return ex_run(g->e, &call);
}

ag_tensor *grad_index_add(grad_call *g, ag_tensor *x, int64_t dim, ag_tensor *index, ag_tensor *t) {
    ag_call call;
    grad_prepare(g, &call, OP_index_add, false);
    call.inputs[0] = x;
    call.inputs[1] = index;
    call.inputs[2] = t;
    call.attrs[0].i = dim;
    return ex_run(g->e, &call);
}

ag_tensor *grad_permute(expr *e, ag_tensor *x, const int64_t *dims, int num_dims) {
    ag_call call;
    call_init(&call, OP_permute);
    call.inputs[0] = x;
    call_set_ints(&call, 0, dims, num_dims);
    return ex_run(e, &call);
}

ag_tensor *grad_pad(expr *e, ag_tensor *x, int dim, int64_t before, int64_t after, double value) {
    if (e->status != AG_OK) return NULL;
    int64_t padding[2 * AG_MAX_NDIM] = {0};
    int pairs = x->ndim - dim; /* last dim first */
    padding[2 * (pairs - 1)] = before;
    padding[2 * (pairs - 1) + 1] = after;
    ag_call call;
    call_init(&call, OP_pad);
    call.inputs[0] = x;
    call_set_ints(&call, 0, padding, 2 * pairs);
    ((struct attrs_pad *)(void *)call.attrs)->value = value;
    return ex_run(e, &call);
}

const grad_rule grad_rule_composed = {0}, grad_rule_refused = {0};

/* RULE(none) is NULL, RULE(x) is &grad_rule_x: the word `none` alone becomes something with a comma, which moves
 * the arguments. */
#define IS_NONE_none 0,
#define SECOND_OF(first, second, ...) second
#define SECOND(...) SECOND_OF(__VA_ARGS__, 0)
#define RULE(name) SECOND(IS_NONE_##name NULL, &grad_rule_##name)
#define UNARY_ROW(name) [OP_##name] = &elementwise_grad_rules[OP_##name], [OP_##name##_backward] = &grad_rule_composed,
#define BINARY_ROW(name) [OP_##name] = &elementwise_grad_rules[OP_##name],

const grad_rule *const grad_rules[OP_COUNT] = {
#define UNARY_FLOAT(name, ...) UNARY_ROW(name)
#define UNARY_NUM(name, ...) UNARY_ROW(name)
#define UNARY_TEST(name, ...)
#define UNARY_BIT(name, ...)
#define BINARY_FLOAT(name, ...) BINARY_ROW(name)
#define BINARY_NUM(name, ...) BINARY_ROW(name)
#define BINARY_COMPARE(name, ...)
#define BINARY_LOGICAL(name, ...)
#define BINARY_BIT(name, ...)
#include "ops/elementwise.def"
#define VIEW(name, signature, view_rule, grad, doc) [OP_##name] = RULE(grad),
#define OP(name, signature, shape_rule, dtype_rule, grad, decomposition, doc) [OP_##name] = RULE(grad),
#include "ops/ops.def"
};
