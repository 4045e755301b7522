/* decompositions_index.c: choosing by mask or position, in terms of where, index_select and scatter. */
#include "exec/decompositions.h"

ag_status decompose_masked_fill(expr *e, ag_call *call) {
    ag_tensor *x = call->inputs[0];
    shape single = {.ndim = 0};
    ag_tensor *filling = ex_full(e, &single, CALL_ATTRS(call, attrs_value)->value, (ag_dtype)x->dtype, call->device);
    return decompose_result(e, call, 0, ex_where(e, call->inputs[1], filling, x));
}

/* x at the positions of a flattened index along dim 0. */
static ag_tensor *select_flat(expr *e, ag_tensor *x, ag_tensor *index) {
    shape flat = {.ndim = 1, .dims = {index->numel}};
    index = ex_reshape(e, index, &flat);
    if (e->status != AG_OK) return NULL;
    ag_call call;
    call_init(&call, OP_index_select);
    call.inputs[0] = x;
    call.inputs[1] = index;
    call.attrs[0].i = 0;
    return ex_run(e, &call);
}

ag_status decompose_take(expr *e, ag_call *call) {
    shape flat = {.ndim = 1, .dims = {call->inputs[0]->numel}};
    ag_tensor *taken = select_flat(e, ex_reshape(e, call->inputs[0], &flat), call->inputs[1]);
    return decompose_result(e, call, 0, ex_reshape(e, taken, &call->out[0].shape));
}

ag_status decompose_embedding(expr *e, ag_call *call) {
    ag_tensor *rows = select_flat(e, call->inputs[0], call->inputs[1]);
    return decompose_result(e, call, 0, ex_reshape(e, rows, &call->out[0].shape));
}

/* index: [...] -> [..., classes]: 1 where the class of the last dim is index's. */
ag_status decompose_one_hot(expr *e, ag_call *call) {
    int64_t classes = CALL_ATTRS(call, attrs_int)->value;
    decompose_check_classes(e, call, "index", call->inputs[0], classes);
    ag_tensor *names = ex_arange(e, call->index_base, classes, AG_I64, call->device);
    ag_tensor *is_class = ex_binary(e, OP_eq, ex_unsqueeze(e, call->inputs[0], -1), names);
    return decompose_result(e, call, 0, is_class);
}
