/* decompositions_reduce.c: reductions in terms of sum, amax, argmax and sort. */
#include <math.h>

#include "exec/decompositions.h"

/* Elements that go into one result; any number will do when there is no result. */
static double reduced_count(const ag_call *call) {
    int64_t results = shape_numel(&call->out[0].shape);
    return results ? (double)(call->inputs[0]->numel / results) : 1;
}

ag_status decompose_mean(expr *e, ag_call *call) {
    const struct attrs_reduce *attrs = CALL_ATTRS(call, attrs_reduce);
    ag_tensor *x = decompose_input(e, call, 0);
    ag_tensor *sum = ex_reduce_list(e, OP_sum, x, call, attrs->dims, attrs->keepdim != 0);
    return decompose_result(e, call, 0, ex_div(e, sum, ex_scalar(e, reduced_count(call), x)));
}

/* sum((x - mean)^2) / max(0, n - correction), in two passes for the sake of precision. */
static ag_tensor *variance(expr *e, const ag_call *call) {
    const struct attrs_var *attrs = CALL_ATTRS(call, attrs_var);
    ag_tensor *x = decompose_input(e, call, 0);
    ag_tensor *centred = ex_sub(e, x, ex_reduce_list(e, OP_mean, x, call, attrs->dims, true));
    ag_tensor *sum = ex_reduce_list(e, OP_sum, ex_mul(e, centred, centred), call, attrs->dims, attrs->keepdim != 0);
    return ex_div(e, sum, ex_scalar(e, fmax(0, reduced_count(call) - attrs->correction), x));
}

/* f(x), and 0 with a gradient of 0 where x is 0, where the derivative of f is infinite. */
static ag_tensor *zero_at_zero(expr *e, ag_tensor *x, ag_tensor *(*f)(expr *e, ag_tensor *x, double p), double p) {
    ag_tensor *is_zero = ex_compare_number(e, OP_eq, x, 0), *inside = ex_where(e, is_zero, ex_scalar(e, 1, x), x);
    return ex_where(e, is_zero, ex_scalar(e, 0, x), f(e, inside, p));
}

static ag_tensor *square_root(expr *e, ag_tensor *x, double p) {
    (void)p;
    return ex_unary(e, OP_sqrt, x);
}

static ag_tensor *power(expr *e, ag_tensor *x, double p) { return ex_binary(e, OP_pow, x, ex_scalar(e, p, x)); }

ag_status decompose_var(expr *e, ag_call *call) { return decompose_result(e, call, 0, variance(e, call)); }

ag_status decompose_std(expr *e, ag_call *call) {
    return decompose_result(e, call, 0, zero_at_zero(e, variance(e, call), square_root, 0));
}

ag_status decompose_count_nonzero(expr *e, ag_call *call) {
    ag_tensor *is_set = ex_compare_number(e, OP_ne, call->inputs[0], 0);
    return decompose_result(e, call, 0, ex_reduce_list(e, OP_sum, is_set, call, CALL_ATTRS(call, attrs_dims)->dims, false));
}

/* log(sum(exp(x - m))) + m with m = max(x), 0 where that is infinite. */
ag_status decompose_logsumexp(expr *e, ag_call *call) {
    const struct attrs_reduce *attrs = CALL_ATTRS(call, attrs_reduce);
    bool keepdim = attrs->keepdim != 0;
    ag_tensor *x = decompose_input(e, call, 0);
    if (call->inputs[0]->numel == 0) {
        ag_tensor *sum = ex_reduce_list(e, OP_sum, x, call, attrs->dims, keepdim);
        return decompose_result(e, call, 0, ex_unary(e, OP_log, sum));
    }
    ag_tensor *largest = ex_reduce_list(e, OP_amax, ex_detach(e, x), call, attrs->dims, true);
    largest = ex_where(e, ex_unary(e, OP_isinf, largest), ex_scalar(e, 0, largest), largest);
    ag_tensor *sum = ex_reduce_list(e, OP_sum, ex_unary(e, OP_exp, ex_sub(e, x, largest)), call, attrs->dims, keepdim);
    ag_tensor *result = ex_add(e, ex_unary(e, OP_log, sum), ex_reshape(e, largest, &call->out[0].shape));
    return decompose_result(e, call, 0, result);
}

ag_status decompose_norm(expr *e, ag_call *call) {
    const struct attrs_norm *attrs = CALL_ATTRS(call, attrs_norm);
    bool keepdim = attrs->keepdim != 0;
    double p = attrs->p;
    if (isnan(p) || (p < 0 && !isinf(p)))
        return decompose_refuse(e, call, AG_E_VALUE, "p", "a number >= 0, inf or -inf", NULL, "%g", p);
    ag_tensor *x = decompose_input(e, call, 0), *terms;
    if (isinf(p)) {
        terms = ex_reduce_list(e, p > 0 ? OP_amax : OP_amin, ex_unary(e, OP_abs, x), call, attrs->dims, keepdim);
        return decompose_result(e, call, 0, terms);
    }
    if (p == 0) /* the sign of 0 is 0, and ties the result to x with a gradient of 0 */
        terms = ex_where(e, ex_compare_number(e, OP_ne, x, 0), ex_scalar(e, 1, x), ex_unary(e, OP_sign, x));
    else if (p == 1) terms = ex_unary(e, OP_abs, x);
    else if (p == 2) terms = ex_mul(e, x, x);
    else terms = zero_at_zero(e, ex_unary(e, OP_abs, x), power, p);
    ag_tensor *result = ex_reduce_list(e, OP_sum, terms, call, attrs->dims, keepdim);
    if (p == 2) result = zero_at_zero(e, result, square_root, 0);
    else if (p != 0 && p != 1) result = zero_at_zero(e, result, power, 1 / p);
    return decompose_result(e, call, 0, result);
}

static ag_status extreme_dim(expr *e, ag_call *call, op_id arg_op) {
    const struct attrs_reduce_one *attrs = CALL_ATTRS(call, attrs_reduce_one);
    ag_tensor *x = decompose_input(e, call, 0);
    if (e->status != AG_OK) return e->status;
    ag_call position, gather;
    call_init(&position, arg_op);
    position.inputs[0] = ex_detach(e, x);
    position.attrs[0].i = attrs->dim;
    position.attrs[1].i = true;
    ag_tensor *indices = ex_run(e, &position);
    call_init(&gather, OP_gather);
    gather.inputs[0] = x;
    gather.inputs[1] = indices;
    gather.attrs[0].i = attrs->dim;
    ag_tensor *values = ex_run(e, &gather);
    decompose_result(e, call, 0, ex_reshape(e, values, &call->out[0].shape));
    return decompose_result(e, call, 1, ex_reshape(e, indices, &call->out[1].shape));
}

ag_status decompose_max_dim(expr *e, ag_call *call) { return extreme_dim(e, call, OP_argmax); }
ag_status decompose_min_dim(expr *e, ag_call *call) { return extreme_dim(e, call, OP_argmin); }

ag_status decompose_argsort(expr *e, ag_call *call) {
    const struct attrs_sort *attrs = CALL_ATTRS(call, attrs_sort);
    ag_call sort;
    call_init(&sort, OP_sort);
    sort.inputs[0] = ex_detach(e, call->inputs[0]);
    sort.attrs[0].i = attrs->dim;
    sort.attrs[1].i = attrs->descending;
    ex_run(e, &sort);
    return e->status == AG_OK ? decompose_result(e, call, 0, sort.outputs[1]) : e->status;
}
