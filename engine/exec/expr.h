/* expr.h: writing tensor formulas in C. Decompositions and gradient rules are built with it.
 *
 * An `expr` owns every tensor that its functions return and releases all of them at expr_end; expr_keep hands one out. The
 * first failure sticks: later calls do nothing and return NULL, so a formula is written straight down and the status checked
 * once. Tensor arguments may be NULL after a failure only.
 */
#ifndef ARGAND_EXEC_EXPR_H
#define ARGAND_EXEC_EXPR_H

#include "exec/exec.h"

#define EXPR_INLINE 24

typedef struct expr {
    ag_status status;
    int count, capacity;
    int index_base; /* given to every call */
    ag_tensor **owned;
    ag_tensor *space[EXPR_INLINE];
} expr;

void expr_begin(expr *e);
ag_status expr_end(expr *e);                      /* releases everything; returns the status */
ag_tensor *expr_own(expr *e, ag_tensor *tensor);  /* takes a reference over */
ag_tensor *expr_keep(expr *e, ag_tensor *tensor); /* a new reference, for the world outside */
void expr_fail(expr *e, ag_status status);

/* ex_run runs a prepared call and owns its outputs; returns the first. */
ag_tensor *ex_run(expr *e, ag_call *call);
ag_tensor *ex_unary(expr *e, op_id id, ag_tensor *x); /* attributes at their defaults */
ag_tensor *ex_binary(expr *e, op_id id, ag_tensor *a, ag_tensor *b);
ag_tensor *ex_unary_params(expr *e, op_id id, ag_tensor *x, const double *params, int num_params);
ag_tensor *ex_scalar(expr *e, double value, ag_tensor *like); /* weak 0-d on like's device */
ag_tensor *ex_add(expr *e, ag_tensor *a, ag_tensor *b);
ag_tensor *ex_sub(expr *e, ag_tensor *a, ag_tensor *b);
ag_tensor *ex_mul(expr *e, ag_tensor *a, ag_tensor *b);
ag_tensor *ex_div(expr *e, ag_tensor *a, ag_tensor *b);
ag_tensor *ex_add_number(expr *e, ag_tensor *a, double value);
ag_tensor *ex_mul_number(expr *e, ag_tensor *a, double value);
ag_tensor *ex_neg(expr *e, ag_tensor *x);
ag_tensor *ex_where(expr *e, ag_tensor *condition, ag_tensor *a, ag_tensor *b);
ag_tensor *ex_matmul(expr *e, ag_tensor *a, ag_tensor *b);
/* ex_reduce: op over dims [num_dims] (num_dims < 0: all), attributes (dims, keepdim) as sum has them. */
ag_tensor *ex_reduce(expr *e, op_id id, ag_tensor *x, const int64_t *dims, int num_dims, bool keepdim);
ag_tensor *ex_reduce_list(expr *e, op_id id, ag_tensor *x, const ag_call *call, int_list dims, bool keepdim);
ag_tensor *ex_sum_to(expr *e, ag_tensor *x, const shape *target); /* the inverse of broadcasting */
ag_tensor *ex_reshape(expr *e, ag_tensor *x, const shape *target);
ag_tensor *ex_expand(expr *e, ag_tensor *x, const shape *target);
ag_tensor *ex_transpose(expr *e, ag_tensor *x, int64_t dim0, int64_t dim1);
ag_tensor *ex_unsqueeze(expr *e, ag_tensor *x, int64_t dim);
ag_tensor *ex_squeeze(expr *e, ag_tensor *x, int64_t dim);
ag_tensor *ex_narrow(expr *e, ag_tensor *x, int64_t dim, int64_t start, int64_t length);
ag_tensor *ex_flip(expr *e, ag_tensor *x, int64_t dim);
ag_tensor *ex_cast(expr *e, ag_tensor *x, ag_dtype dtype);
ag_tensor *ex_full(expr *e, const shape *s, double value, ag_dtype dtype, ag_device *device);
ag_tensor *ex_cat2(expr *e, ag_tensor *a, ag_tensor *b, int64_t dim);
/* ex_dim_op runs an op whose only attribute is dim. */
ag_tensor *ex_dim_op(expr *e, op_id id, ag_tensor *x, int64_t dim);
ag_tensor *ex_reduction(expr *e, ag_tensor *loss, int64_t reduction); /* mean, sum or none */
/* ex_detach is x as a constant: the same storage, untracked. */
ag_tensor *ex_detach(expr *e, ag_tensor *x);
/* ex_arange is start, start + 1, ...: [count]. */
ag_tensor *ex_arange(expr *e, int64_t start, int64_t count, ag_dtype dtype, ag_device *device);
ag_tensor *ex_compare_number(expr *e, op_id id, ag_tensor *x, double value); /* OP_eq .. OP_ge of x and value */

#endif
