/* decompositions_create.c: fresh tensors, and the way from one device to another. */
#include "core/error.h"
#include "core/memory.h"
#include "exec/decompositions.h"

static ag_status fill(expr *e, ag_call *call, double value) {
    ag_tensor *t = ex_full(e, &call->out[0].shape, value, call->out[0].dtype, call->device);
    return decompose_result(e, call, 0, t);
}

ag_status decompose_zeros(expr *e, ag_call *call) { return fill(e, call, 0); }
ag_status decompose_ones(expr *e, ag_call *call) { return fill(e, call, 1); }
ag_status decompose_zeros_like(expr *e, ag_call *call) { return fill(e, call, 0); }
ag_status decompose_ones_like(expr *e, ag_call *call) { return fill(e, call, 1); }
ag_status decompose_full_like(expr *e, ag_call *call) { return fill(e, call, CALL_ATTRS(call, attrs_value)->value); }

ag_status decompose_empty(expr *e, ag_call *call) {
    AG_TRY(shape_check(&call->out[0].shape, dtype_size(call->out[0].dtype), call->op->name));
    expr_fail(e, tensor_new(call->out[0].dtype, &call->out[0].shape, call->device, &call->outputs[0]));
    return e->status;
}

ag_status decompose_empty_like(expr *e, ag_call *call) { return decompose_empty(e, call); }

static ag_status random_like(expr *e, ag_call *call, op_id id) {
    ag_call random;
    call_init(&random, id);
    call_set_ints(&random, 0, call->out[0].shape.dims, call->out[0].shape.ndim);
    struct attrs_random *attrs = (void *)random.attrs;
    attrs->dtype = call->out[0].dtype;
    attrs->device = call->device;
    attrs->generator = CALL_ATTRS(call, attrs_generator)->generator;
    return decompose_result(e, call, 0, ex_run(e, &random));
}

ag_status decompose_rand_like(expr *e, ag_call *call) { return random_like(e, call, OP_rand); }
ag_status decompose_randn_like(expr *e, ag_call *call) { return random_like(e, call, OP_randn); }

/* Two devices meet in host memory: one copy when either is the host, else through a block in between. */
static ag_status copy_across(ag_tensor *from, ag_tensor *to) {
    ag_device *source = from->storage->device, *target = to->storage->device;
    size_t size_bytes = (size_t)from->numel * dtype_size((ag_dtype)from->dtype);
    if (size_bytes == 0) return AG_OK;
    if (target->is_host) return source->backend->copy_out(source, tensor_address(to), tensor_address(from), size_bytes);
    if (source->is_host) return target->backend->copy_in(target, tensor_address(to), tensor_address(from), size_bytes);
    void *block = memory_alloc(size_bytes);
    if (!block) return error_memory(NULL, size_bytes);
    ag_status status = source->backend->copy_out(source, block, tensor_address(from), size_bytes);
    if (status == AG_OK) status = target->backend->copy_in(target, tensor_address(to), block, size_bytes);
    memory_free(block, size_bytes);
    return status;
}

ag_status decompose_to_device(expr *e, ag_call *call) {
    ag_device *target = CALL_ATTRS(call, attrs_device)->device;
    ag_tensor *x = ex_cast(e, call->inputs[0], call->out[0].dtype), *from = NULL, *to = NULL;
    if (e->status != AG_OK) return e->status;
    expr_fail(e, exec_contiguous(x, &from));
    if (e->status == AG_OK) expr_fail(e, tensor_new(call->out[0].dtype, &call->out[0].shape, target, &to));
    if (e->status == AG_OK) expr_fail(e, copy_across(from, to));
    tensor_release(from);
    if (e->status != AG_OK) tensor_release(to);
    else call->outputs[0] = to;
    return e->status;
}
