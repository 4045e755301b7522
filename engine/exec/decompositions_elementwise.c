/* decompositions_elementwise.c: the gradient expressions of the elementwise table as ops: the values they are made of, and a
 * decomposition of every unary row's fused backward op. */
#include "exec/elementwise_expr.h"

#include <assert.h>
#include <math.h>

#include "exec/decompositions.h"

static value result(ag_tensor *tensor) { return (value){.tensor = tensor}; }

value value_tensor(ag_tensor *tensor) {
    if (!tensor || !tensor->is_weak || tensor->node || !tensor->storage->device->is_host) return result(tensor);
    return value_number(element_read((ag_dtype)tensor->dtype, tensor_address(tensor)));
}

/* One of a and b is a tensor. */
static ag_tensor *operand(expr *e, value v, value other) {
    return v.is_number ? ex_scalar(e, v.number, other.tensor) : v.tensor;
}

value value_binary(expr *e, op_id id, value a, value b) {
    return result(ex_binary(e, id, operand(e, a, b), operand(e, b, a)));
}

value value_unary(expr *e, op_id id, value a) {
    if (!a.is_number) return result(ex_unary(e, id, a.tensor));
    assert(id == OP_log);
    return value_number(log(a.number));
}

value value_compare(expr *e, op_id id, value a, value b) {
    if (!a.is_number || !b.is_number) return value_binary(e, id, a, b);
    switch (id) {
    case OP_lt: return value_number(a.number < b.number);
    case OP_le: return value_number(a.number <= b.number);
    case OP_gt: return value_number(a.number > b.number);
    case OP_ge: return value_number(a.number >= b.number);
    default: return value_number(a.number == b.number);
    }
}

static bool is_number(value v, double number) { return v.is_number && v.number == number; }

value value_add(expr *e, value a, value b) {
    if (a.is_number && b.is_number) return value_number(a.number + b.number);
    if (is_number(a, 0)) return b;
    if (is_number(b, 0)) return a;
    return value_binary(e, OP_add, a, b);
}

value value_sub(expr *e, value a, value b) {
    if (a.is_number && b.is_number) return value_number(a.number - b.number);
    if (is_number(b, 0)) return a;
    return value_binary(e, OP_sub, a, b);
}

value value_mul(expr *e, value a, value b) {
    if (a.is_number && b.is_number) return value_number(a.number * b.number);
    if (a.is_number) return value_mul(e, b, a);
    if (is_number(b, 1)) return a;
    if (is_number(b, 0) && e->status == AG_OK) {
        shape s = tensor_shape(a.tensor);
        return result(ex_full(e, &s, 0, (ag_dtype)a.tensor->dtype, a.tensor->storage->device));
    }
    return value_binary(e, OP_mul, a, b);
}

value value_div(expr *e, value a, value b) {
    if (a.is_number && b.is_number) return value_number(a.number / b.number);
    return is_number(b, 1) ? a : value_binary(e, OP_div, a, b);
}

value value_neg(expr *e, value a) { return a.is_number ? value_number(-a.number) : value_unary(e, OP_neg, a); }

value value_select(expr *e, value condition, value a, value b) {
    if (condition.is_number) return condition.number != 0 ? a : b;
    return result(ex_where(e, condition.tensor, operand(e, a, condition), operand(e, b, condition)));
}

/* ---- backward of the unary rows: G, X and Y are its inputs, in that order ---- */

#define P(i) value_number(call->attrs[i].f)
#define UNARY_BACKWARD(name, gradient)                                             \
    ag_status decompose_##name##_backward(expr *e, ag_call *call) {               \
        value G = value_tensor(decompose_input(e, call, 0));                      \
        value X = value_tensor(decompose_input(e, call, 1));                      \
        value Y = value_tensor(decompose_input(e, call, 2));                      \
        (void)X, (void)Y;                                                         \
        return decompose_result(e, call, 0, (gradient).tensor);                   \
    }

#define UNARY_FLOAT(name, attributes, formula, gradient, saves, doc) UNARY_BACKWARD(name, gradient)
#define UNARY_NUM(name, attributes, formula, gradient, saves, doc) UNARY_BACKWARD(name, gradient)
#define UNARY_TEST(name, formula, doc)
#define UNARY_BIT(name, formula, doc)
#define BINARY_FLOAT(name, ...)
#define BINARY_NUM(name, ...)
#define BINARY_COMPARE(name, formula, doc)
#define BINARY_LOGICAL(name, formula, doc)
#define BINARY_BIT(name, formula, doc)
#include "ops/elementwise.def"
