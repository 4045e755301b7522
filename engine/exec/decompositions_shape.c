/* decompositions_shape.c: matrix products, and rearrangements in terms of views, cat and where. */
#include "core/error.h"
#include "core/memory.h"
#include "exec/decompositions.h"

ag_status decompose_dot(expr *e, ag_call *call) {
    ag_tensor *a = decompose_input(e, call, 0), *b = decompose_input(e, call, 1);
    return decompose_result(e, call, 0, ex_matmul(e, a, b));
}

ag_status decompose_bmm(expr *e, ag_call *call) { return decompose_dot(e, call); }

ag_status decompose_outer(expr *e, ag_call *call) {
    ag_tensor *a = ex_unsqueeze(e, decompose_input(e, call, 0), 1), *b = ex_unsqueeze(e, decompose_input(e, call, 1), 0);
    return decompose_result(e, call, 0, ex_mul(e, a, b));
}

ag_status decompose_addmm(expr *e, ag_call *call) {
    const struct attrs_addmm *attrs = CALL_ATTRS(call, attrs_addmm);
    ag_tensor *result = ex_matmul(e, decompose_input(e, call, 1), decompose_input(e, call, 2));
    if (attrs->alpha != 1) result = ex_mul_number(e, result, attrs->alpha);
    if (attrs->beta == 0) return decompose_result(e, call, 0, result); /* input is not read, even where it is NaN */
    ag_tensor *input = decompose_input(e, call, 0);
    if (attrs->beta != 1) input = ex_mul_number(e, input, attrs->beta);
    return decompose_result(e, call, 0, ex_add(e, result, input));
}

ag_status decompose_linear(expr *e, ag_call *call) {
    int64_t activation = CALL_ATTRS(call, attrs_activation)->activation;
    ag_tensor *weight = ex_transpose(e, decompose_input(e, call, 1), 0, 1);
    ag_tensor *result = ex_matmul(e, decompose_input(e, call, 0), weight);
    if (call->inputs[2]) result = ex_add(e, result, decompose_input(e, call, 2));
    if (activation != ACTIVATION_NONE) result = ex_unary(e, activation == ACTIVATION_RELU ? OP_relu : OP_gelu, result);
    return decompose_result(e, call, 0, result);
}

ag_status decompose_stack(expr *e, ag_call *call) {
    int64_t dim = CALL_ATTRS(call, attrs_dim)->dim;
    size_t size_bytes = (size_t)call->num_inputs * sizeof(ag_tensor *);
    ag_tensor **rows = heap_alloc(size_bytes);
    if (!rows) {
        expr_fail(e, error_memory(call->op->name, size_bytes));
        return e->status;
    }
    for (int i = 0; i < call->num_inputs; i++) rows[i] = ex_unsqueeze(e, call->inputs[i], dim);
    ag_call cat;
    call_init(&cat, OP_cat);
    cat.inputs = rows;
    cat.num_inputs = call->num_inputs;
    cat.attrs[0].i = dim;
    decompose_result(e, call, 0, ex_run(e, &cat));
    heap_free(rows);
    return e->status;
}

/* Dim by dim, from the last: [outer, inner] -> [outer, times, inner]; inner counts the elements of that dim and those after. */
ag_status decompose_tile(expr *e, ag_call *call) {
    int_list repeats = CALL_ATTRS(call, attrs_ints)->ints;
    ag_tensor *x = call->inputs[0];
    int ndim = call->out[0].shape.ndim, lead = ndim - x->ndim, not_repeated = ndim - repeats.len;
    int64_t inner = 1;
    ag_tensor *result = x;
    for (int i = ndim - 1; i >= not_repeated; i--) {
        int64_t times = call_ints(call, repeats)[i - not_repeated], outer = 1;
        inner *= i >= lead ? x->dims[i - lead] : 1;
        for (int d = 0; d < i - lead; d++) outer *= x->dims[d];
        if (times != 1) {
            shape rows = {.ndim = 3, .dims = {outer, 1, inner}}, tiled = {.ndim = 3, .dims = {outer, times, inner}};
            shape flat = {.ndim = 1, .dims = {outer * times * inner}};
            result = ex_reshape(e, ex_expand(e, ex_reshape(e, result, &rows), &tiled), &flat);
        }
        inner *= times;
    }
    return decompose_result(e, call, 0, ex_reshape(e, result, &call->out[0].shape));
}

/* x where column - row compares with diagonal, else 0. */
static ag_status triangle(expr *e, ag_call *call, op_id comparison) {
    ag_tensor *x = call->inputs[0];
    int64_t diagonal = CALL_ATTRS(call, attrs_int)->value;
    ag_tensor *rows = ex_arange(e, diagonal, x->dims[x->ndim - 2], AG_I64, call->device);
    ag_tensor *columns = ex_arange(e, 0, x->dims[x->ndim - 1], AG_I64, call->device);
    ag_tensor *is_kept = ex_binary(e, comparison, columns, ex_unsqueeze(e, rows, 1));
    return decompose_result(e, call, 0, ex_where(e, is_kept, x, ex_scalar(e, 0, x)));
}

ag_status decompose_tril(expr *e, ag_call *call) { return triangle(e, call, OP_le); }
ag_status decompose_triu(expr *e, ag_call *call) { return triangle(e, call, OP_ge); }

/* [n] -> [m, m]: x along the rows of the diagonal, and zeros off it. Row i of the result holds x at column i + offset. */
static ag_status diagonal_matrix(expr *e, ag_call *call, int64_t offset) {
    ag_tensor *x = call->inputs[0];
    int64_t distance = offset < 0 ? -offset : offset, size = x->numel + distance;
    if (distance) {
        shape gap = {.ndim = 1, .dims = {distance}};
        ag_tensor *zeros = ex_full(e, &gap, 0, (ag_dtype)x->dtype, call->device);
        x = offset > 0 ? ex_cat2(e, x, zeros, 0) : ex_cat2(e, zeros, x, 0);
    }
    ag_tensor *rows = ex_unsqueeze(e, ex_arange(e, offset, size, AG_I64, call->device), 1);
    ag_tensor *columns = ex_arange(e, 0, size, AG_I64, call->device);
    ag_tensor *is_diagonal = ex_binary(e, OP_eq, columns, rows);
    if (e->status != AG_OK) return e->status;
    return decompose_result(e, call, 0, ex_where(e, is_diagonal, ex_unsqueeze(e, x, 1), ex_scalar(e, 0, x)));
}

ag_status decompose_diag(expr *e, ag_call *call) {
    int64_t offset = CALL_ATTRS(call, attrs_int)->value;
    if (call->inputs[0]->ndim == 1) return diagonal_matrix(e, call, offset);
    ag_call diagonal;
    call_init(&diagonal, OP_diagonal);
    diagonal.inputs[0] = call->inputs[0];
    diagonal.attrs[0].i = offset;
    return decompose_result(e, call, 0, ex_run(e, &diagonal));
}

/* A copy of x whose part at the given geometry, counted over a contiguous x, is src. */
ag_status decompose_strided_scatter(expr *e, ag_call *call) {
    const struct attrs_strided *attrs = CALL_ATTRS(call, attrs_strided);
    ag_tensor *result = ex_unary(e, OP_clone, call->inputs[0]), *view = NULL;
    if (!result) return e->status;
    shape s = {.ndim = attrs->shape.len};
    int64_t strides[AG_MAX_NDIM];
    for (int i = 0; i < s.ndim; i++) {
        s.dims[i] = call_ints(call, attrs->shape)[i];
        strides[i] = call_ints(call, attrs->strides)[i];
    }
    ag_status status = tensor_view(result, &s, strides, result->offset + attrs->offset, &view);
    if (status == AG_OK) status = exec_copy(call->inputs[1], view);
    tensor_release(view);
    expr_fail(e, status);
    return decompose_result(e, call, 0, result);
}
