/* caps.c: the one answer to "can this device run that op", derived from the dtype rules, the kernel tables and the
 * decomposition column. */
#include "backend/caps.h"

#include <stdio.h>
#include <string.h>

#include "core/error.h"

static const char *const decomposition_names[OP_COUNT] = {
#define UNARY_FLOAT(name, ...) [OP_##name##_backward] = "gradient",
#define UNARY_NUM(name, ...)   [OP_##name##_backward] = "gradient",
#define UNARY_TEST(name, ...)
#define UNARY_BIT(name, ...)
#define BINARY_FLOAT(name, ...)
#define BINARY_NUM(name, ...)
#define BINARY_COMPARE(name, ...)
#define BINARY_LOGICAL(name, ...)
#define BINARY_BIT(name, ...)
#include "ops/elementwise.def"
#define VIEW(name, ...)
#define OP(name, signature, shape_rule, dtype_rule, grad, decomposition, doc) [OP_##name] = #decomposition,
#include "ops/ops.def"
};

static bool has_decomposition(int op) { return decomposition_names[op] && strcmp(decomposition_names[op], "none") != 0; }

bool param_admits(param_type type, ag_dtype dtype) {
    switch (type) {
    case PARAM_FLOAT: return dtype_is_float(dtype);
    case PARAM_INDEX:
    case PARAM_INT_TENSOR: return dtype_is_int(dtype);
    case PARAM_BOOL_TENSOR: return dtype == AG_BOOL;
    case PARAM_BITS: return !dtype_is_float(dtype);
    default: return true;
    }
}

/* Gives the call stand-in inputs of dtype where the op's parameters leave a choice; dtype rules read nothing else of them.
 * False, with `which` set, when a parameter does not admit dtype. */
static bool stand_ins(ag_call *call, ag_tensor *tensors, ag_dtype dtype, const param **which) {
    const struct ag_op *op = call->op;
    for (int i = 0; i < op->num_params; i++) {
        const param *p = &op->params[i];
        if (p->type == PARAM_DTYPE) call->attrs[p->slot].i = dtype;
        if (!param_is_tensor(p->type)) continue;
        ag_dtype own = p->type == PARAM_INDEX ? AG_I64 : p->type == PARAM_BOOL_TENSOR ? AG_BOOL : dtype;
        if (!param_admits(p->type, own)) {
            *which = p;
            return false;
        }
        memset(&tensors[p->slot], 0, sizeof tensors[p->slot]);
        tensors[p->slot].dtype = (int8_t)own;
        call->inputs[p->slot] = &tensors[p->slot];
        if (p->type == PARAM_TENSOR_LIST) call->num_inputs = 1;
    }
    return true;
}

ag_support caps_query(const struct ag_op *op, const ag_device *device, ag_dtype dtype, char *reason, size_t len) {
    ag_call call;
    ag_tensor tensors[CALL_MAX_INPUTS];
    const param *which = NULL;
    const backend *b = device->backend;
    call_init(&call, (op_id)op->id);
    if (len) *reason = '\0';
    if (!stand_ins(&call, tensors, dtype, &which)) {
        snprintf(reason, len, "%s takes a tensor of kind %s for %s, not %s", op->name, which->type_word, which->name,
                 dtype_name(dtype));
        return AG_SUPPORT_NONE;
    }
    if (op->dtype_rule(&call) != AG_OK) {
        snprintf(reason, len, "%s", error_record()->message);
        return AG_SUPPORT_NONE;
    }
    if (op->flags & OP_IS_VIEW) return AG_SUPPORT_NATIVE;
    ag_dtype kernel_dtype = call_kernel_dtype(&call);
    if (backend_kernel(b, op->id, kernel_dtype)) return AG_SUPPORT_NATIVE;
    if (call.compute != AG_NO_DTYPE && dtype_is_half(kernel_dtype) && backend_kernel(b, op->id, AG_F32))
        return AG_SUPPORT_COMPOSED;
    if (has_decomposition(op->id)) return AG_SUPPORT_COMPOSED;
    snprintf(reason, len, "device %s has no kernel of %s for %s", device->name, op->name, dtype_name(kernel_dtype));
    return AG_SUPPORT_NONE;
}
