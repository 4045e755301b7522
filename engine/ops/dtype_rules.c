/* dtype_rules.c: dtypes of results from dtypes of inputs, and what the inputs are converted to for the kernel. */
#include <string.h>

#include "core/error.h"
#include "ops/attrs.h"
#include "ops/rules.h"

static ag_dtype input_dtype(const ag_call *call, int i) { return (ag_dtype)call->inputs[i]->dtype; }

static ag_status set_all(ag_call *call, ag_dtype dtype) {
    for (int i = 0; i < call->num_outputs; i++) call->out[i].dtype = dtype;
    return AG_OK;
}

static ag_status refuse_kind(const ag_call *call, const char *arg, const char *expected, ag_dtype got, const char *hint) {
    return call_fail(call, AG_E_KIND, arg, expected, hint, "%s", dtype_name(got));
}

/* The common dtype of the inputs from `first` on. A weak operand (a plain number) yields within its kind: it changes the result
 * only when its kind is higher, and then to f32 or i64. */
static ag_dtype promote_from(const ag_call *call, int first, int last) {
    ag_dtype result = AG_NO_DTYPE;
    int weak_kind = -1;
    for (int i = first; i < last; i++) {
        const ag_tensor *t = call->inputs[i];
        if (!t) continue;
        if (t->is_weak) {
            int kind = dtype_kind((ag_dtype)t->dtype) == KIND_FLOAT ? 2 : 1;
            if (kind > weak_kind) weak_kind = kind;
        } else {
            result = result == AG_NO_DTYPE ? (ag_dtype)t->dtype : dtype_promote(result, (ag_dtype)t->dtype);
        }
    }
    if (result == AG_NO_DTYPE) return weak_kind == 2 ? AG_F32 : AG_I64;
    if (weak_kind == 2 && !dtype_is_float(result)) return AG_F32;
    if (weak_kind == 1 && result == AG_BOOL) return AG_I64;
    return result;
}

/* Inputs that take part in promotion: all but index, bool and device-free ones. */
static void promoted_range(const ag_call *call, int *first, int *last) {
    *first = 0;
    *last = call->num_inputs;
    if (call->op->num_inputs == 1 && call->op->params[0].type == PARAM_TENSOR_LIST) return;
    for (int i = 0; i < call->op->num_params; i++) {
        const param *p = &call->op->params[i];
        if (p->type == PARAM_BOOL_TENSOR && p->slot == 0) *first = 1;
    }
}

ag_status dtype_rule_promote(ag_call *call) {
    int first, last;
    promoted_range(call, &first, &last);
    call->compute = promote_from(call, first, last);
    if (call->compute == AG_BOOL && call->op->params[0].type == PARAM_NUM)
        return refuse_kind(call, NULL, "float or int tensors", AG_BOOL,
                           "logical_and, logical_or and logical_xor join bools; or convert: t:to(\"f32\")");
    return set_all(call, call->compute);
}

ag_status dtype_rule_promote_float(ag_call *call) {
    call->compute = promote_from(call, 0, call->num_inputs);
    if (!dtype_is_float(call->compute)) call->compute = AG_F32;
    return set_all(call, call->compute);
}

ag_status dtype_rule_compare(ag_call *call) {
    call->compute = promote_from(call, 0, call->num_inputs);
    return set_all(call, AG_BOOL);
}

ag_status dtype_rule_test(ag_call *call) {
    call->compute = input_dtype(call, 0);
    return set_all(call, AG_BOOL);
}

ag_status dtype_rule_where(ag_call *call) {
    call->compute = promote_from(call, 1, 3);
    return set_all(call, call->compute);
}

ag_status dtype_rule_masked_fill(ag_call *call) { return set_all(call, input_dtype(call, 0)); }

ag_status dtype_rule_keep(ag_call *call) {
    ag_dtype dtype = input_dtype(call, 0);
    if (dtype == AG_BOOL && call->op->params[0].type == PARAM_NUM)
        return refuse_kind(call, "x", "a float or int tensor", dtype, "convert: t:to(\"f32\") or t:to(\"i64\")");
    if (call->inputs[0]->is_weak) dtype = dtype_is_float(dtype) ? AG_F32 : AG_I64;
    call->compute = dtype;
    return set_all(call, dtype);
}

ag_status dtype_rule_first(ag_call *call) { return dtype_rule_keep(call); }

ag_status dtype_rule_second(ag_call *call) {
    call->compute = input_dtype(call, 1);
    return set_all(call, call->compute);
}

ag_status dtype_rule_float_only(ag_call *call) {
    ag_dtype dtype = input_dtype(call, 0);
    if (!dtype_is_float(dtype))
        return refuse_kind(call, call->op->params[0].name, "a float tensor", dtype, "convert: t:to(\"f32\")");
    call->compute = call->inputs[0]->is_weak ? AG_F32 : dtype;
    return set_all(call, call->compute);
}

ag_status dtype_rule_first_float(ag_call *call) { return dtype_rule_float_only(call); }

/* Statistics are kept in f32 (f64 for f64). */
static ag_dtype stats_dtype(ag_dtype dtype) { return dtype == AG_F64 ? AG_F64 : AG_F32; }

ag_status dtype_rule_float_three(ag_call *call) {
    AG_TRY(dtype_rule_float_only(call));
    call->out[1].dtype = call->out[2].dtype = stats_dtype(call->compute);
    return AG_OK;
}

ag_status dtype_rule_norm_stats(ag_call *call) {
    AG_TRY(dtype_rule_promote_float(call));
    call->out[1].dtype = call->out[2].dtype = stats_dtype(call->compute);
    return AG_OK;
}

ag_status dtype_rule_norm_backward(ag_call *call) {
    call->compute = input_dtype(call, 1);
    return set_all(call, call->compute);
}

ag_status dtype_rule_float_result(ag_call *call) {
    ag_dtype dtype = input_dtype(call, 0);
    call->compute = dtype_is_float(dtype) && !call->inputs[0]->is_weak ? dtype : AG_F32;
    return set_all(call, call->compute);
}

ag_status dtype_rule_sum(ag_call *call) {
    ag_dtype dtype = input_dtype(call, 0);
    call->compute = dtype;
    return set_all(call, dtype_is_float(dtype) ? dtype : AG_I64);
}

ag_status dtype_rule_count(ag_call *call) {
    call->compute = input_dtype(call, 0);
    return set_all(call, AG_I64);
}

ag_status dtype_rule_index_result(ag_call *call) { return dtype_rule_count(call); }

ag_status dtype_rule_bool_result(ag_call *call) {
    call->compute = input_dtype(call, 0);
    return set_all(call, AG_BOOL);
}

ag_status dtype_rule_values_indices(ag_call *call) {
    AG_TRY(dtype_rule_keep(call));
    call->out[1].dtype = AG_I64;
    return AG_OK;
}

ag_status dtype_rule_unique(ag_call *call) {
    AG_TRY(dtype_rule_values_indices(call));
    call->out[2].dtype = AG_I64;
    return AG_OK;
}

ag_status dtype_rule_step(ag_call *call) {
    call->compute = call->num_inputs ? input_dtype(call, 0) : AG_F32;
    if (!dtype_is_float(call->compute)) return refuse_kind(call, "tensors", "float tensors", call->compute, NULL);
    return AG_OK;
}

/* ---- the dtype is an attribute ---- */

static ag_dtype attr_dtype(const ag_call *call) {
    for (int i = 0; i < call->op->num_params; i++)
        if (call->op->params[i].type == PARAM_DTYPE) return (ag_dtype)call->attrs[call->op->params[i].slot].i;
    return AG_NO_DTYPE;
}

ag_status dtype_rule_attr_dtype(ag_call *call) { return set_all(call, attr_dtype(call)); }

ag_status dtype_rule_attr_dtype_float(ag_call *call) {
    ag_dtype dtype = attr_dtype(call);
    if (!dtype_is_float(dtype)) return refuse_kind(call, "dtype", "f64, f32, f16 or bf16", dtype, NULL);
    return set_all(call, dtype);
}

ag_status dtype_rule_attr_dtype_int(ag_call *call) {
    ag_dtype dtype = attr_dtype(call);
    if (dtype == AG_BOOL) return refuse_kind(call, "dtype", "an int or float dtype", dtype, NULL);
    return set_all(call, dtype);
}

ag_status dtype_rule_like(ag_call *call) {
    ag_dtype dtype = attr_dtype(call);
    return set_all(call, dtype == AG_NO_DTYPE ? input_dtype(call, 0) : dtype);
}

ag_status dtype_rule_cast(ag_call *call) {
    ag_dtype dtype = attr_dtype(call);
    if (dtype == AG_NO_DTYPE) return call_fail(call, AG_E_ARGUMENT, "dtype", "a dtype", NULL, "none");
    return set_all(call, dtype);
}
