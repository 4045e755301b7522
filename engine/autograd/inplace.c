/* inplace.c: calls whose result replaces their first input. */
#include <string.h>

#include "autograd/grad_rules.h"
#include "autograd/tape.h"
#include "core/error.h"

static ag_status refuse(const ag_call *call, const char *got, const char *hint) {
    return call_fail(call, AG_E_AUTODIFF, call->op->params[0].name, "a tensor that may be changed in place", hint, "%s", got);
}

/* The tape can follow an in-place change of a whole tensor only: a view's change would have to reach its base and the other
 * views. */
static ag_status check_target(const ag_call *call, int own_views) {
    const ag_tensor *target = call->inputs[0];
    const storage *s = target->storage;
    if (target->is_tracked_view)
        return refuse(call, "a view of a tracked tensor", "assign through the base: x[{...}] = v, or clone() first");
    if (atomic_load_explicit(&s->num_tracked_views, memory_order_relaxed) > own_views)
        return refuse(call, "a tensor with views that the tape knows",
                      "make the change before the views, or use the pure form");
    size_t covered = (size_t)target->numel * dtype_size((ag_dtype)target->dtype);
    if (covered != s->size_bytes || !target->is_contiguous)
        return refuse(call, "a view that a tracked value would be written to",
                      "assign through the base: x[{...}] = v, or use the pure form");
    return AG_OK;
}

static ag_status refuse_leaf(const ag_call *call) {
    return refuse(call, "a leaf that requires grad", "wrap the update in ag.no_grad(function() ... end)");
}

/* Runs a recorded call and lets its result stand in target's storage: *out is target's new handle, tied to the call's node. */
static ag_status run_recorded(ag_call *call, ag_tensor *target, ag_tensor **out) {
    AG_TRY(exec_run(call));
    ag_tensor *result = call->outputs[0], *replacement = NULL;
    shape s = tensor_shape(target), r = tensor_shape(result);
    ag_status status = AG_OK;
    if (!shape_equal(&s, &r) || result->dtype != target->dtype) {
        char expected[96], got[96];
        status = call_fail(call, AG_E_SHAPE, call->op->params[0].name, tensor_text(target, expected, sizeof expected), NULL,
                           "%s as the result", tensor_text(result, got, sizeof got));
    }
    if (status == AG_OK) status = tensor_alias(target, &replacement);
    if (status == AG_OK) status = exec_copy(result, target);
    if (status == AG_OK) {
        tensor_bump_version(target);
        replacement->node = node_retain(result->node);
        replacement->node_output = result->node_output;
        if (result->node) result->node->version = tensor_version(target);
        *out = replacement;
    } else {
        tensor_release(replacement);
    }
    for (int i = 0; i < call->num_outputs; i++) {
        tensor_release(call->outputs[i]);
        call->outputs[i] = NULL;
    }
    return status;
}

ag_status tape_run_inplace(ag_call *call, ag_tensor **out) {
    ag_tensor *target = call->inputs[0];
    bool is_tracked = false;
    for (int i = 0; i < call->num_inputs; i++) is_tracked |= call->inputs[i] && call->inputs[i]->node;
    if (!is_tracked || !context_is_recording()) {
        context_pause();
        ag_status status = exec_run_into(call, target, call->op->params[0].name);
        context_resume();
        if (status == AG_OK) *out = tensor_retain(target);
        return status;
    }
    if (target->node && target->node->kind == NODE_LEAF) return refuse_leaf(call);
    AG_TRY(check_target(call, 0));
    return run_recorded(call, target, out);
}

/* ---- assignment to a part ---- */

static ag_status assign_untracked(ag_tensor *base, ag_tensor *view, ag_tensor *value, ag_tensor **out) {
    ag_tensor *source = tensor_retain(value);
    ag_status status = AG_OK;
    if (value->storage == view->storage) { /* may overlap: copy first */
        tensor_release(source);
        shape s = tensor_shape(value);
        AG_TRY(tensor_new((ag_dtype)value->dtype, &s, value->storage->device, &source));
        status = exec_copy(value, source);
    }
    if (status == AG_OK) status = exec_copy(source, view);
    tensor_release(source);
    AG_TRY(status);
    tensor_bump_version(base);
    *out = tensor_retain(base);
    return AG_OK;
}

static ag_status check_assignment(const ag_tensor *base, const ag_tensor *view, const ag_tensor *value) {
    shape s = tensor_shape(view), v = tensor_shape(value);
    char expected[96], got[96];
    if (view->storage != base->storage)
        return error_set(AG_E_ARGUMENT, "assign", "view", "a view of base", NULL, "a tensor with memory of its own");
    if (value->storage->device != base->storage->device)
        return error_set(AG_E_DEVICE, "assign", "value", base->storage->device->name, "t:to(device) moves it", "%s",
                         value->storage->device->name);
    if (!shape_equal(&s, &v))
        return error_set(AG_E_SHAPE, "assign", "value", tensor_text(view, expected, sizeof expected), NULL, "%s",
                         tensor_text(value, got, sizeof got));
    return exec_refuse_overlap(view, "assign", "view");
}

ag_status ag_tensor_assign(ag_tensor *base, ag_tensor *view, ag_tensor *value, ag_tensor **out) {
    AG_TRY(check_assignment(base, view, value));
    if (!context_is_recording() || (!base->node && !value->node))
        return error_in(assign_untracked(base, view, value, out), "assign");
    ag_call call;
    call_init(&call, OP_strided_scatter);
    call.inputs[0] = base;
    call.inputs[1] = value;
    call_set_ints(&call, 0, view->dims, view->ndim);
    call_set_ints(&call, 1, view->strides, view->ndim);
    call.attrs[2].i = view->offset - base->offset;
    if (base->node && base->node->kind == NODE_LEAF) return refuse_leaf(&call);
    AG_TRY(check_target(&call, view->is_tracked_view ? 1 : 0));
    return error_in(run_recorded(&call, base, out), "assign");
}

ag_status ag_tensor_broadcast_like(ag_tensor *value, double number, ag_tensor *like, ag_tensor **out) {
    if (value && value->storage->device != like->storage->device)
        return error_set(AG_E_DEVICE, "assign", "value", like->storage->device->name, "t:to(device) moves it", "%s",
                         value->storage->device->name);
    expr e;
    expr_begin(&e);
    shape s = tensor_shape(like), common;
    if (value) {
        shape v = tensor_shape(value);
        char expected[128] = "a shape that broadcasts to ", got[96];
        shape_text(&s, expected + strlen(expected), sizeof expected - strlen(expected));
        if (!shape_broadcast(&v, &s, &common) || !shape_equal(&common, &s))
            return error_set(AG_E_SHAPE, "assign", "value", expected, NULL, "%s", shape_text(&v, got, sizeof got));
    }
    shape scalar = {.ndim = 0};
    ag_tensor *t = value ? ex_cast(&e, value, (ag_dtype)like->dtype)
                         : ex_full(&e, &scalar, number, (ag_dtype)like->dtype, like->storage->device);
    t = ex_expand(&e, t, &s);
    ag_tensor *kept = e.status == AG_OK ? expr_keep(&e, t) : NULL;
    AG_TRY(error_in(expr_end(&e), "assign"));
    *out = kept;
    return AG_OK;
}
