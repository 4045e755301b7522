/* expr.c: calls of ops as C functions, and the list of what they made. */
#include "exec/expr.h"

#include <math.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "ops/attrs.h"

/* ---- ownership ---- */

void expr_begin(expr *e) {
    e->status = AG_OK;
    e->count = 0;
    e->capacity = EXPR_INLINE;
    e->index_base = 0;
    e->owned = e->space;
}

ag_status expr_end(expr *e) {
    for (int i = 0; i < e->count; i++) tensor_release(e->owned[i]);
    if (e->owned != e->space) heap_free(e->owned);
    e->owned = e->space;
    e->count = 0;
    e->capacity = EXPR_INLINE;
    return e->status;
}

void expr_fail(expr *e, ag_status status) {
    if (e->status == AG_OK) e->status = status;
}

static bool grow(expr *e) {
    size_t size_bytes = (size_t)e->capacity * 2 * sizeof(ag_tensor *);
    bool is_inline = e->owned == e->space;
    ag_tensor **larger = is_inline ? heap_alloc(size_bytes) : heap_realloc(e->owned, size_bytes);
    if (!larger) {
        expr_fail(e, error_memory(NULL, size_bytes));
        return false;
    }
    if (is_inline) memcpy(larger, e->space, sizeof e->space);
    e->owned = larger;
    e->capacity *= 2;
    return true;
}

ag_tensor *expr_own(expr *e, ag_tensor *tensor) {
    if (!tensor) return NULL;
    if (e->status != AG_OK || (e->count == e->capacity && !grow(e))) {
        tensor_release(tensor);
        return NULL;
    }
    return e->owned[e->count++] = tensor;
}

ag_tensor *expr_keep(expr *e, ag_tensor *tensor) { return e->status == AG_OK && tensor ? tensor_retain(tensor) : NULL; }

/* ---- calls ---- */

ag_tensor *ex_run(expr *e, ag_call *call) {
    if (e->status != AG_OK) return NULL;
    call->index_base = e->index_base;
    ag_status status = exec_run(call);
    if (status != AG_OK) {
        expr_fail(e, status);
        return NULL;
    }
    for (int i = 0; i < call->num_outputs; i++) call->outputs[i] = expr_own(e, call->outputs[i]);
    return e->status == AG_OK ? call->outputs[0] : NULL;
}

/* Prepares a call of one or two inputs; false after a failure, when the inputs may be NULL. */
static bool prepare(expr *e, ag_call *call, op_id id, ag_tensor *a, ag_tensor *b) {
    if (e->status != AG_OK) return false;
    call_init(call, id);
    call->inputs[0] = a;
    if (b) call->inputs[1] = b;
    return true;
}

ag_tensor *ex_unary(expr *e, op_id id, ag_tensor *x) {
    ag_call call;
    return prepare(e, &call, id, x, NULL) ? ex_run(e, &call) : NULL;
}

ag_tensor *ex_binary(expr *e, op_id id, ag_tensor *a, ag_tensor *b) {
    ag_call call;
    return prepare(e, &call, id, a, b) ? ex_run(e, &call) : NULL;
}

ag_tensor *ex_unary_params(expr *e, op_id id, ag_tensor *x, const double *params, int num_params) {
    ag_call call;
    if (!prepare(e, &call, id, x, NULL)) return NULL;
    for (int i = 0; i < num_params; i++) call.attrs[i].f = params[i];
    return ex_run(e, &call);
}

ag_tensor *ex_dim_op(expr *e, op_id id, ag_tensor *x, int64_t dim) {
    ag_call call;
    if (!prepare(e, &call, id, x, NULL)) return NULL;
    call.attrs[0].i = dim;
    return ex_run(e, &call);
}

/* An op whose attributes start with a list and may go on with one more number. */
static ag_tensor *run_list(expr *e, op_id id, ag_tensor *x, const int64_t *values, int len, int64_t second) {
    ag_call call;
    if (!prepare(e, &call, id, x, NULL)) return NULL;
    if (len >= 0) call_set_ints(&call, 0, values, len);
    if (call.op->num_attrs > 1) call.attrs[1].i = second;
    return ex_run(e, &call);
}

/* ---- arithmetic ---- */

/* Whole numbers are made ints, so that int tensors stay ints; -0 keeps its sign as a float. */
ag_tensor *ex_scalar(expr *e, double value, ag_tensor *like) {
    if (e->status != AG_OK) return NULL;
    bool is_integer = value == trunc(value) && fabs(value) < 0x1p53 && !(value == 0 && signbit(value));
    ag_tensor *scalar = NULL;
    ag_status status = tensor_scalar(value, is_integer, like->storage->device, &scalar);
    if (status != AG_OK) expr_fail(e, status);
    return expr_own(e, scalar);
}

ag_tensor *ex_add(expr *e, ag_tensor *a, ag_tensor *b) { return ex_binary(e, OP_add, a, b); }
ag_tensor *ex_sub(expr *e, ag_tensor *a, ag_tensor *b) { return ex_binary(e, OP_sub, a, b); }
ag_tensor *ex_mul(expr *e, ag_tensor *a, ag_tensor *b) { return ex_binary(e, OP_mul, a, b); }
ag_tensor *ex_div(expr *e, ag_tensor *a, ag_tensor *b) { return ex_binary(e, OP_div, a, b); }
ag_tensor *ex_neg(expr *e, ag_tensor *x) { return ex_unary(e, OP_neg, x); }
ag_tensor *ex_matmul(expr *e, ag_tensor *a, ag_tensor *b) { return ex_binary(e, OP_matmul, a, b); }
ag_tensor *ex_add_number(expr *e, ag_tensor *a, double value) { return ex_add(e, a, ex_scalar(e, value, a)); }
ag_tensor *ex_mul_number(expr *e, ag_tensor *a, double value) { return ex_mul(e, a, ex_scalar(e, value, a)); }

ag_tensor *ex_compare_number(expr *e, op_id id, ag_tensor *x, double value) {
    return ex_binary(e, id, x, ex_scalar(e, value, x));
}

ag_tensor *ex_where(expr *e, ag_tensor *condition, ag_tensor *a, ag_tensor *b) {
    ag_call call;
    if (!prepare(e, &call, OP_where, condition, a)) return NULL;
    call.inputs[2] = b;
    return ex_run(e, &call);
}

/* ---- reductions ---- */

ag_tensor *ex_reduce(expr *e, op_id id, ag_tensor *x, const int64_t *dims, int num_dims, bool keepdim) {
    return run_list(e, id, x, dims, num_dims, keepdim);
}

ag_tensor *ex_reduce_list(expr *e, op_id id, ag_tensor *x, const ag_call *call, int_list dims, bool keepdim) {
    return ex_reduce(e, id, x, dims.len > 0 ? call_ints(call, dims) : NULL, dims.len, keepdim);
}

ag_tensor *ex_sum_to(expr *e, ag_tensor *x, const shape *target) {
    if (e->status != AG_OK) return NULL;
    int64_t dims[AG_MAX_NDIM];
    int num_dims = 0, lead = x->ndim - target->ndim;
    for (int i = 0; i < x->ndim; i++)
        if (i < lead || (target->dims[i - lead] == 1 && x->dims[i] != 1)) dims[num_dims++] = i;
    if (num_dims) x = ex_reduce(e, OP_sum, x, dims, num_dims, true);
    return ex_reshape(e, x, target);
}

ag_tensor *ex_reduction(expr *e, ag_tensor *loss, int64_t reduction) {
    if (reduction == REDUCTION_NONE) return loss;
    return ex_reduce(e, reduction == REDUCTION_MEAN ? OP_mean : OP_sum, loss, NULL, -1, false);
}

/* ---- shape ---- */

static bool has_shape(const ag_tensor *x, const shape *s) {
    shape own = tensor_shape(x);
    return shape_equal(&own, s);
}

ag_tensor *ex_reshape(expr *e, ag_tensor *x, const shape *target) {
    if (e->status != AG_OK || has_shape(x, target)) return x;
    return run_list(e, OP_reshape, x, target->dims, target->ndim, 0);
}

ag_tensor *ex_expand(expr *e, ag_tensor *x, const shape *target) {
    if (e->status != AG_OK || has_shape(x, target)) return x;
    return run_list(e, OP_expand, x, target->dims, target->ndim, 0);
}

ag_tensor *ex_transpose(expr *e, ag_tensor *x, int64_t dim0, int64_t dim1) {
    ag_call call;
    if (!prepare(e, &call, OP_transpose, x, NULL)) return NULL;
    call.attrs[0].i = dim0;
    call.attrs[1].i = dim1;
    return ex_run(e, &call);
}

ag_tensor *ex_unsqueeze(expr *e, ag_tensor *x, int64_t dim) { return ex_dim_op(e, OP_unsqueeze, x, dim); }
ag_tensor *ex_squeeze(expr *e, ag_tensor *x, int64_t dim) { return run_list(e, OP_squeeze, x, &dim, 1, 0); }
ag_tensor *ex_flip(expr *e, ag_tensor *x, int64_t dim) { return run_list(e, OP_flip, x, &dim, 1, 0); }

ag_tensor *ex_narrow(expr *e, ag_tensor *x, int64_t dim, int64_t start, int64_t length) {
    ag_call call;
    if (!prepare(e, &call, OP_narrow, x, NULL)) return NULL;
    struct attrs_narrow *attrs = (void *)call.attrs;
    *attrs = (struct attrs_narrow){dim, start, length};
    return ex_run(e, &call);
}

ag_tensor *ex_cat2(expr *e, ag_tensor *a, ag_tensor *b, int64_t dim) {
    ag_call call;
    if (e->status != AG_OK) return NULL;
    call_init(&call, OP_cat);
    call.num_inputs = 2;
    call.inputs[0] = a;
    call.inputs[1] = b;
    call.attrs[0].i = dim;
    return ex_run(e, &call);
}

/* ---- making and converting ---- */

ag_tensor *ex_cast(expr *e, ag_tensor *x, ag_dtype dtype) {
    ag_call call;
    if (e->status != AG_OK || (x->dtype == dtype && !x->is_weak)) return x;
    if (!prepare(e, &call, OP_cast, x, NULL)) return NULL;
    call.attrs[0].i = dtype;
    return ex_run(e, &call);
}

ag_tensor *ex_full(expr *e, const shape *s, double value, ag_dtype dtype, ag_device *device) {
    ag_call call;
    if (e->status != AG_OK) return NULL;
    call_init(&call, OP_full);
    call_set_ints(&call, 0, s->dims, s->ndim);
    call.attrs[1].f = value;
    call.attrs[2].i = dtype;
    call.attrs[3].pointer = device;
    return ex_run(e, &call);
}

ag_tensor *ex_arange(expr *e, int64_t start, int64_t count, ag_dtype dtype, ag_device *device) {
    ag_call call;
    if (e->status != AG_OK) return NULL;
    call_init(&call, OP_arange);
    call.attrs[0].f = (double)start;
    call.attrs[1].f = (double)(start + count);
    call.attrs[3].i = dtype;
    call.attrs[4].pointer = device;
    return ex_run(e, &call);
}

ag_tensor *ex_detach(expr *e, ag_tensor *x) {
    if (e->status != AG_OK || !x->node) return x;
    ag_tensor *constant = NULL;
    ag_status status = tensor_alias(x, &constant);
    if (status != AG_OK) expr_fail(e, status);
    return expr_own(e, constant);
}
