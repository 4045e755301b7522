/* grad_rules_elementwise.c: gradients of elementwise ops, made from the gradient columns of ops/elementwise.def. */
#include <string.h>

#include "autograd/grad_rules.h"
#include "exec/elementwise_expr.h"

/* ---- unary: the fused backward op, which stands right behind its op in the table ---- */

#define CHECK_NEIGHBOUR(name, ...) _Static_assert(OP_##name##_backward == OP_##name + 1, #name " and its backward op");
#define UNARY_FLOAT CHECK_NEIGHBOUR
#define UNARY_NUM CHECK_NEIGHBOUR
#define UNARY_TEST(...)
#define UNARY_BIT(...)
#define BINARY_FLOAT(...)
#define BINARY_NUM(...)
#define BINARY_COMPARE(...)
#define BINARY_LOGICAL(...)
#define BINARY_BIT(...)
#include "ops/elementwise.def"

static void run_unary(grad_call *g) {
    ag_call call;
    grad_prepare(g, &call, (op_id)(g->call->op->id + 1), true);
    call.inputs[0] = g->grad_out[0];
    call.inputs[1] = g->saved_in[0];
    call.inputs[2] = g->saved_out[0];
    grad_give(g, 0, ex_run(g->e, &call));
}

/* ---- binary: the expressions as calls of ops ---- */

/* Expressions of two saved tensors have intermediate results (the square of a divisor), which half precision would overflow. */
static value operand(grad_call *g, ag_tensor *t, bool is_wide) {
    if (is_wide && t && dtype_is_half((ag_dtype)t->dtype)) t = ex_cast(g->e, t, AG_F32);
    return value_tensor(t);
}

#define G operand(g, g->grad_out[0], is_wide)
#define A operand(g, g->saved_in[0], is_wide)
#define B operand(g, g->saved_in[1], is_wide)
#define Y operand(g, g->saved_out[0], is_wide)
#define P(i) value_number(g->call->attrs[i].f)

/* What each word of the `saves` columns stands for: inputs, outputs. */
#define IN_N 0
#define IN_X SAVES(0)
#define IN_Y 0
#define IN_XY SAVES(0)
#define IN_A SAVES(0)
#define IN_B SAVES(1)
#define IN_AB (SAVES(0) | SAVES(1))
#define IN_AY SAVES(0)
#define IN_BY SAVES(1)
#define OUT_N 0
#define OUT_X 0
#define OUT_Y SAVES(0)
#define OUT_XY SAVES(0)
#define OUT_A 0
#define OUT_B 0
#define OUT_AB 0
#define OUT_AY SAVES(0)
#define OUT_BY SAVES(0)
enum { IS_WIDE_N = 0, IS_WIDE_A = 0, IS_WIDE_B = 0, IS_WIDE_AB = 1, IS_WIDE_AY = 1, IS_WIDE_BY = 1 };

#define BINARY_SIDE(function, expression, saves_is_wide)  \
    static value function(grad_call *g) {                 \
        expr *e = g->e;                                   \
        const bool is_wide = saves_is_wide;               \
        (void)e;                                          \
        return expression;                                \
    }
#define BINARY_ROW(name, attributes, value_, grad_a, saves_a, grad_b, saves_b, doc) \
    BINARY_SIDE(name##_side_a, grad_a, IS_WIDE_##saves_a)                           \
    BINARY_SIDE(name##_side_b, grad_b, IS_WIDE_##saves_b)                           \
    static void run_##name(grad_call *g) {                                          \
        if (grad_needs(g, 0)) grad_give(g, 0, name##_side_a(g).tensor);             \
        if (grad_needs(g, 1)) grad_give(g, 1, name##_side_b(g).tensor);             \
    }
#define UNARY_FLOAT(...)
#define UNARY_NUM(...)
#define UNARY_TEST(...)
#define UNARY_BIT(...)
#define BINARY_FLOAT BINARY_ROW
#define BINARY_NUM BINARY_ROW
#define BINARY_COMPARE(...)
#define BINARY_LOGICAL(...)
#define BINARY_BIT(...)
#include "ops/elementwise.def"
#undef G
#undef A
#undef B
#undef Y
#undef P

const grad_rule elementwise_grad_rules[OP_COUNT] = {
#define UNARY_RULE(name, attributes, value_, gradient, saves, doc) \
    [OP_##name] = {.run = run_unary, .saves_in = IN_##saves, .saves_out = OUT_##saves},
#define BINARY_RULE(name, attributes, value_, grad_a, saves_a, grad_b, saves_b, doc)                      \
    [OP_##name] = {.run = run_##name, .saves_in = IN_##saves_a, .saves_out = OUT_##saves_a,               \
                   .saves_in_b = IN_##saves_b, .saves_out_b = OUT_##saves_b, .is_binary = true},
#define UNARY_FLOAT UNARY_RULE
#define UNARY_NUM UNARY_RULE
#define UNARY_TEST(...)
#define UNARY_BIT(...)
#define BINARY_FLOAT BINARY_RULE
#define BINARY_NUM BINARY_RULE
#define BINARY_COMPARE(...)
#define BINARY_LOGICAL(...)
#define BINARY_BIT(...)
#include "ops/elementwise.def"
};
