/* exec.c: runs a call: rules, outputs, kernel or decomposition, recording. */
#include "exec/exec.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "exec/decompositions.h"
#include "exec/expr.h"
#include "ops/attrs.h"

static const recorder *active_recorder;

void exec_set_recorder(const recorder *r) { active_recorder = r; }

/* ---- rules ---- */

/* All inputs must live on one device; plain numbers follow the others. Ops without inputs say theirs in an attribute. */
static ag_status find_device(ag_call *call) {
    ag_device *device = NULL;
    for (int i = 0; i < call->num_inputs; i++) {
        ag_tensor *t = call->inputs[i];
        if (!t || t->is_weak) continue;
        if (!device)
            device = t->storage->device;
        else if (t->storage->device != device)
            return call_fail(call, AG_E_DEVICE, NULL, "tensors on one device", "move one: t:to(\"cpu\")", "%s and %s",
                             device->name, t->storage->device->name);
    }
    if (!device)
        for (int i = 0; i < call->op->num_params && !device; i++)
            if (call->op->params[i].type == PARAM_DEVICE) device = call->attrs[call->op->params[i].slot].pointer;
    call->device = device ? device : registry_default();
    return AG_OK;
}

ag_status exec_infer(ag_call *call) {
    AG_TRY(find_device(call));
    if (call->op->shape_rule) AG_TRY(call->op->shape_rule(call));
    return call->op->dtype_rule(call);
}

ag_dtype call_kernel_dtype(const ag_call *call) {
    if (call->compute != AG_NO_DTYPE) return call->compute;
    if (call->num_inputs && call->inputs[0]) return (ag_dtype)call->inputs[0]->dtype;
    return call->out[0].dtype;
}

/* ---- views ---- */

ag_status exec_view_geometry(const ag_call *call, const view_geometry *source, view_geometry *result) {
    bool is_possible = true;
    AG_TRY(call->op->view(call, source, result, &is_possible));
    assert(is_possible);
    return AG_OK;
}

static ag_status run_view(ag_call *call) {
    ag_tensor *x = call->inputs[0], *copy = NULL;
    view_geometry source = {.shape = tensor_shape(x), .offset = x->offset}, result;
    memcpy(source.strides, x->strides, (size_t)x->ndim * sizeof *x->strides);
    bool is_possible = true;
    AG_TRY(call->op->view(call, &source, &result, &is_possible));
    if (!is_possible) {
        if (call->op->id == OP_view)
            return call_fail(call, AG_E_SHAPE, "x", "a tensor whose layout allows the view", "reshape copies where it has to",
                             "scattered strides");
        AG_TRY(exec_contiguous(x, &copy));
        memcpy(source.strides, copy->strides, (size_t)copy->ndim * sizeof *copy->strides);
        source.offset = copy->offset;
        is_possible = true;
        ag_status status = call->op->view(call, &source, &result, &is_possible);
        assert(status == AG_OK && is_possible);
        (void)status;
        x = copy;
    }
    ag_status status = tensor_view(x, &result.shape, result.strides, result.offset, &call->outputs[0]);
    tensor_release(copy);
    return status;
}

/* ---- kernels ---- */

static void release_outputs(ag_call *call) {
    for (int i = 0; i < call->num_outputs; i++) {
        tensor_release(call->outputs[i]);
        call->outputs[i] = NULL;
    }
}

static ag_status allocate_outputs(ag_call *call) {
    if (call->op->flags & OP_IS_DYNAMIC) return AG_OK;
    for (int i = 0; i < call->num_outputs; i++) {
        if (call->outputs[i]) continue;
        AG_TRY(shape_check(&call->out[i].shape, dtype_size(call->out[i].dtype), call->op->name));
        AG_TRY(tensor_new(call->out[i].dtype, &call->out[i].shape, call->device, &call->outputs[i]));
    }
    return AG_OK;
}

/* What the kernel wants input `i` to be: its dtype, or AG_NO_DTYPE for as it is. */
static ag_dtype wanted_dtype(const ag_call *call, int i) {
    const struct ag_op *op = call->op;
    param_type type = PARAM_TENSOR_LIST;
    if (op->params[0].type != PARAM_TENSOR_LIST)
        for (int p = 0; p < op->num_params; p++)
            if (param_is_tensor(op->params[p].type) && op->params[p].slot == i) type = op->params[p].type;
    if (type == PARAM_INDEX) return AG_I64;
    if (type == PARAM_BOOL_TENSOR || (op->flags & OP_IS_MUTATING)) return AG_NO_DTYPE;
    return call->compute;
}

/* Converts the inputs as the kernel wants them. `prepared` gets replacements to be released later, NULL where the original
 * serves. */
static ag_status prepare_inputs(ag_call *call, const kernel *k, ag_tensor **prepared) {
    for (int i = 0; i < call->num_inputs; i++) {
        ag_tensor *x = call->inputs[i], *converted = NULL;
        if (!x) continue;
        ag_dtype dtype = wanted_dtype(call, i);
        bool other_device = x->is_weak && x->storage->device != call->device && !call->device->is_host;
        assert(!other_device);
        (void)other_device;
        if (dtype != AG_NO_DTYPE && dtype != (ag_dtype)x->dtype) {
            AG_TRY(exec_convert(x, dtype, &converted));
            call->inputs[i] = prepared[i] = converted;
        } else if (!k->takes_strided && !x->is_contiguous) {
            AG_TRY(exec_contiguous(x, &converted));
            call->inputs[i] = prepared[i] = converted;
        }
    }
    return AG_OK;
}

#define LOCAL_INPUTS 16

/* Runs kernel k on converted inputs; leaves call->inputs as they were. */
static ag_status run_prepared(ag_call *call, const kernel *k) {
    ag_tensor *prepared_space[LOCAL_INPUTS] = {NULL}, *copy_space[LOCAL_INPUTS];
    ag_tensor **prepared = prepared_space, **copies = copy_space, **original = call->inputs;
    size_t count = (size_t)call->num_inputs;
    if (count > LOCAL_INPUTS) {
        prepared = heap_alloc_zero(2 * count * sizeof *prepared);
        if (!prepared) return error_memory(call->op->name, 2 * count * sizeof *prepared);
        copies = prepared + count;
    }
    if (count) memcpy(copies, original, count * sizeof *copies);
    call->inputs = copies;
    ag_status status = prepare_inputs(call, k, prepared);
    if (status == AG_OK) status = k->run(call);
    call->inputs = original;
    for (size_t i = 0; i < count; i++) tensor_release(prepared[i]);
    if (prepared != prepared_space) heap_free(prepared);
    return status;
}

/* A half-precision call without a kernel of its own: the same call in f32, results converted back. */
static ag_status run_widened(ag_call *call, const kernel *k) {
    ag_dtype compute = call->compute, dtypes[AG_MAX_OUTPUTS];
    for (int i = 0; i < call->num_outputs; i++) {
        dtypes[i] = call->out[i].dtype;
        if (dtypes[i] == compute) call->out[i].dtype = AG_F32;
    }
    call->compute = AG_F32;
    ag_status status = allocate_outputs(call);
    if (status == AG_OK) status = run_prepared(call, k);
    for (int i = 0; i < call->num_outputs; i++) {
        ag_tensor *wide = call->outputs[i];
        call->outputs[i] = NULL;
        call->out[i].dtype = dtypes[i];
        if (status == AG_OK) status = exec_convert(wide, dtypes[i], &call->outputs[i]);
        tensor_release(wide);
    }
    call->compute = compute;
    return status;
}

static ag_status unsupported(const ag_call *call, ag_dtype dtype) {
    char expected[128];
    snprintf(expected, sizeof expected, "a device and dtype with a kernel for %s", call->op->name);
    return call_fail(call, AG_E_UNSUPPORTED, NULL, expected,
                     "ag.supports{op=..., dtype=..., device=...} tells beforehand; t:to(\"f32\") or t:to(\"cpu\") converts",
                     "%s on %s", dtype_name(dtype), call->device->name);
}

/* Finds a kernel for the call, or for its f32 form (*widened). */
static const kernel *find_kernel(const ag_call *call, ag_dtype dtype, bool *widened) {
    const backend *b = call->device->backend;
    const kernel *k = backend_kernel(b, call->op->id, dtype);
    *widened = false;
    if (!k && call->compute != AG_NO_DTYPE && dtype_is_half(dtype)) {
        k = backend_kernel(b, call->op->id, AG_F32);
        *widened = k != NULL;
    }
    return k;
}

/* An error inside a composed op is told as one of the op that was called, with the argument's name where the two share it. */
static void blame_composed(const struct ag_op *op) {
    const ag_error *error = error_record();
    if (error->code == AG_E_USER || strcmp(error->op, op->name) == 0) return;
    bool has_arg = false;
    for (int p = 0; p < op->num_params; p++) has_arg |= strcmp(error->arg, op->params[p].name) == 0;
    error_rename_op(op->name, has_arg);
}

static ag_status run_decomposed(ag_call *call) {
    expr e;
    expr_begin(&e);
    e.index_base = call->index_base;
    expr_fail(&e, decompositions[call->op->id](&e, call));
    ag_status status = expr_end(&e);
    for (int i = 0; status == AG_OK && i < call->num_outputs; i++) assert(call->outputs[i]);
    if (status != AG_OK) blame_composed(call->op);
    return status;
}

/* Runs a call that is not a view: kernel, else decomposition. */
static ag_status run_computed(ag_call *call) {
    ag_dtype dtype = call_kernel_dtype(call);
    bool widened;
    const kernel *k = find_kernel(call, dtype, &widened);
    if (!k) return decompositions[call->op->id] ? run_decomposed(call) : unsupported(call, dtype);
    if (widened && !(call->op->flags & OP_IS_ELEMENTWISE)) return run_widened(call, k);
    AG_TRY(allocate_outputs(call));
    return call->op->flags & OP_IS_ELEMENTWISE ? k->run(call) : run_prepared(call, k);
}

ag_status exec_run(ag_call *call) {
    record_plan plan = active_recorder ? active_recorder->plan(call) : RECORD_NOTHING;
    if (plan == RECORD_REFUSED) return error_record()->code;
    ag_status status = exec_infer(call);
    if (status == AG_OK) {
        if (plan == RECORD_COMPOSED) {
            status = run_decomposed(call);
        } else {
            if (plan == RECORD_NODE) active_recorder->pause();
            status = call->op->flags & OP_IS_VIEW ? run_view(call) : run_computed(call);
            if (plan == RECORD_NODE) active_recorder->resume();
            if (status == AG_OK && plan == RECORD_NODE) status = active_recorder->record(call);
        }
    }
    if (status != AG_OK) {
        release_outputs(call);
        error_name_op(call->op->name);
    }
    return status;
}

/* ---- copying ---- */

ag_status exec_copy(ag_tensor *source, ag_tensor *target) {
    ag_call call;
    call_init(&call, OP_cast);
    call.inputs[0] = source;
    call.attrs[0].i = target->dtype;
    call.device = target->storage->device;
    call.outputs[0] = target;
    call.num_outputs = 1;
    call.out[0] = (out_spec){.shape = tensor_shape(target), .dtype = (ag_dtype)target->dtype};
    return call.device->backend->kernels[OP_cast].run(&call);
}

static ag_status fresh_copy(ag_tensor *tensor, ag_dtype dtype, ag_tensor **out) {
    ag_tensor *copy;
    shape s = tensor_shape(tensor);
    AG_TRY(tensor_new(dtype, &s, tensor->storage->device, &copy));
    ag_status status = exec_copy(tensor, copy);
    if (status == AG_OK)
        *out = copy;
    else
        tensor_release(copy);
    return status;
}

ag_status exec_contiguous(ag_tensor *tensor, ag_tensor **out) {
    if (!tensor->is_contiguous) return fresh_copy(tensor, (ag_dtype)tensor->dtype, out);
    *out = tensor_retain(tensor);
    return AG_OK;
}

ag_status exec_convert(ag_tensor *tensor, ag_dtype dtype, ag_tensor **out) {
    if ((ag_dtype)tensor->dtype != dtype) return fresh_copy(tensor, dtype, out);
    *out = tensor_retain(tensor);
    return AG_OK;
}

/* True when writing the result straight into target gives what a fresh output would: elementwise, right dtype, and any input
 * that shares the storage lies exactly on target. */
static bool can_write_directly(const ag_call *call, const ag_tensor *target) {
    if (!(call->op->flags & OP_IS_ELEMENTWISE) || call->out[0].dtype != (ag_dtype)target->dtype || call->num_outputs != 1)
        return false;
    for (int i = 0; i < call->num_inputs; i++) {
        const ag_tensor *x = call->inputs[i];
        if (!x || x->storage != target->storage) continue;
        bool same = x->dtype == target->dtype && x->offset == target->offset && x->ndim == target->ndim;
        for (int d = 0; same && d < x->ndim; d++) same = x->dims[d] == target->dims[d] && x->strides[d] == target->strides[d];
        if (!same) return false;
    }
    bool widened;
    return find_kernel(call, call_kernel_dtype(call), &widened) != NULL;
}

ag_status exec_refuse_overlap(const ag_tensor *target, const char *op, const char *arg) {
    char got[96];
    if (!tensor_may_overlap_itself(target)) return AG_OK;
    return error_set(AG_E_STATE, op, arg, "a tensor to write to with memory of its own for each element", "clone() gives one",
                     "a view that repeats elements, %s", tensor_text(target, got, sizeof got));
}

ag_status exec_run_into(ag_call *call, ag_tensor *target, const char *arg) {
    AG_TRY(exec_infer(call));
    AG_TRY(exec_refuse_overlap(target, call->op->name, arg));
    shape s = tensor_shape(target);
    if (target->storage->device != call->device)
        return call_fail(call, AG_E_DEVICE, arg, "a tensor on the inputs' device", NULL, "%s", target->storage->device->name);
    bool is_dynamic = call->op->flags & OP_IS_DYNAMIC;
    if (!is_dynamic && call->op->shape_rule && !shape_equal(&s, &call->out[0].shape)) {
        char expected[96], got[96];
        return call_fail(call, AG_E_SHAPE, arg, shape_text(&call->out[0].shape, expected, sizeof expected), NULL, "%s",
                         shape_text(&s, got, sizeof got));
    }
    if (dtype_kind((ag_dtype)target->dtype) >
        dtype_kind(call->out[0].dtype)) /* a float result does not fit an int, nor an int a bool */
        return call_fail(call, AG_E_KIND, arg,
                         dtype_is_float(call->out[0].dtype) ? "a float tensor, as the result is"
                                                            : "a tensor of the result's kind, int",
                         "convert first, t:to(\"f32\"), or use the pure form", "%s", dtype_name((ag_dtype)target->dtype));
    ag_status status;
    if (can_write_directly(call, target)) {
        call->outputs[0] = target;
        status = run_computed(call);
        call->outputs[0] = NULL;
    } else {
        status = call->op->flags & OP_IS_VIEW ? run_view(call) : run_computed(call);
        if (status == AG_OK) {
            shape result = tensor_shape(call->outputs[0]);
            if (!shape_equal(&s, &result)) {
                char expected[96], got[96];
                status = call_fail(call, AG_E_SHAPE, arg, shape_text(&result, expected, sizeof expected), NULL, "%s",
                                   shape_text(&s, got, sizeof got));
            } else {
                status = exec_copy(call->outputs[0], target);
            }
        }
        release_outputs(call);
    }
    if (status == AG_OK)
        tensor_bump_version(target);
    else
        error_name_op(call->op->name);
    return status;
}
