/* decompositions.c: the table of decompositions, joined from the op table, and what all families share. */
#include "exec/decompositions.h"

#include <stdio.h>

#include "core/error.h"

static bool shares_input(const ag_call *call, const ag_tensor *t) {
    for (int i = 0; i < call->num_inputs; i++)
        if (call->inputs[i] && call->inputs[i]->storage == t->storage) return true;
    return false;
}

ag_status decompose_result(expr *e, ag_call *call, int k, ag_tensor *t) {
    if (e->status != AG_OK) return e->status;
    t = ex_cast(e, t, call->out[k].dtype);
    if (t && (!t->is_contiguous || shares_input(call, t))) t = ex_unary(e, OP_clone, t);
    call->outputs[k] = expr_keep(e, t);
    return e->status;
}

/* Reads the only element of an int tensor. */
static ag_status read_int(ag_tensor *t, int64_t *out) {
    ag_device *device = t->storage->device;
    unsigned char bytes[8];
    if (!device->is_host)
        AG_TRY(device->backend->copy_out(device, bytes, tensor_address(t), dtype_size((ag_dtype)t->dtype)));
    *out = element_read_int((ag_dtype)t->dtype, device->is_host ? tensor_address(t) : bytes);
    return AG_OK;
}

ag_status decompose_check_classes(expr *e, const ag_call *call, const char *arg, ag_tensor *labels, int64_t classes) {
    if (e->status != AG_OK || labels->numel == 0) return e->status;
    ag_tensor *smallest = ex_reduce(e, OP_amin, labels, NULL, -1, false);
    ag_tensor *largest = ex_reduce(e, OP_amax, labels, NULL, -1, false);
    int64_t low = 0, high = 0, base = call->index_base;
    if (e->status == AG_OK) expr_fail(e, read_int(smallest, &low));
    if (e->status == AG_OK) expr_fail(e, read_int(largest, &high));
    if (e->status == AG_OK && (low < base || high > classes - 1 + base)) {
        char expected[64];
        snprintf(expected, sizeof expected, "classes %lld to %lld", (long long)base, (long long)(classes - 1 + base));
        return decompose_refuse(e, call, AG_E_INDEX, arg, expected, NULL, "%lld", (long long)(low < base ? low : high));
    }
    return e->status;
}

/* ---- the table ---- */

#define decompose_none NULL

const decomposition_fn decompositions[OP_COUNT] = {
#define UNARY_FLOAT(name, ...) [OP_##name##_backward] = decompose_##name##_backward,
#define UNARY_NUM(name, ...) [OP_##name##_backward] = decompose_##name##_backward,
#define UNARY_TEST(name, ...)
#define UNARY_BIT(name, ...)
#define BINARY_FLOAT(name, ...)
#define BINARY_NUM(name, ...)
#define BINARY_COMPARE(name, ...)
#define BINARY_LOGICAL(name, ...)
#define BINARY_BIT(name, ...)
#include "ops/elementwise.def"
#define VIEW(name, ...)
#define OP(name, signature, shape_rule, dtype_rule, grad_rule, decomposition, doc) [OP_##name] = decompose_##decomposition,
#include "ops/ops.def"
};
