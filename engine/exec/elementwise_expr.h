/* elementwise_expr.h: the gradient expressions of ops/elementwise.def as calls of ops.
 *
 * An operand is a `value`: a tensor, or a number that stays a number until it meets a tensor (numbers fold among themselves).
 * The macros at the end give the words of the table's expressions their meaning; they need an `expr *e` in scope. Whoever
 * includes the table defines G, X, Y, A, B and P(i) besides, as values: `value_tensor(t)` and `value_number(v)`.
 */
#ifndef ARGAND_EXEC_ELEMENTWISE_EXPR_H
#define ARGAND_EXEC_ELEMENTWISE_EXPR_H

#include "exec/expr.h"

typedef struct value {
    bool is_number;
    double number;
    ag_tensor *tensor; /* owned by the expr or borrowed; NULL after a failure */
} value;

/* value_tensor takes a plain number that was made a tensor as the number it is, so that no precision is lost on the way. */
value value_tensor(ag_tensor *tensor);
static inline value value_number(double number) { return (value){.is_number = true, .number = number}; }

value value_add(expr *e, value a, value b);
value value_sub(expr *e, value a, value b);
/* value_mul of a tensor by the number 0 is 0 everywhere, also where the tensor is infinite or NaN. */
value value_mul(expr *e, value a, value b);
value value_div(expr *e, value a, value b);
value value_neg(expr *e, value a);
value value_compare(expr *e, op_id id, value a, value b); /* OP_lt, le, gt, ge, eq; of two numbers: 1 or 0 */
value value_select(expr *e, value condition, value a, value b);
value value_unary(expr *e, op_id id, value a); /* a is a tensor; log takes a number, too */
value value_binary(expr *e, op_id id, value a, value b); /* at least one is a tensor */

#define ADD(a, b) value_add(e, a, b)
#define SUB(a, b) value_sub(e, a, b)
#define MUL(a, b) value_mul(e, a, b)
#define DIV(a, b) value_div(e, a, b)
#define NEG(a) value_neg(e, a)
#define SEL(condition, a, b) value_select(e, condition, a, b)
#define LT(a, b) value_compare(e, OP_lt, a, b)
#define LE(a, b) value_compare(e, OP_le, a, b)
#define GT(a, b) value_compare(e, OP_gt, a, b)
#define GE(a, b) value_compare(e, OP_ge, a, b)
#define EQ(a, b) value_compare(e, OP_eq, a, b)
#define F(op, a) value_unary(e, OP_##op, a)
#define F2(op, a, b) value_binary(e, OP_##op, a, b)
#define C(v) value_number(v)

#endif
