/* grad_rules_index.c: gradients of indexing. Positions are those of the forward call, negative ones and index_base included. */
#include "autograd/grad_rules.h"

/* Of all but index_put and embedding. */
static int64_t dim_of(const grad_call *g) { return CALL_ATTRS(g->call, attrs_dim)->dim; }

/* Reads t at the index of the forward call, input 1: gather, index_select or take. */
static ag_tensor *read_at_index(grad_call *g, op_id id, ag_tensor *t) {
    ag_call call;
    grad_prepare(g, &call, id, false);
    call.inputs[0] = t;
    call.inputs[1] = g->saved_in[1];
    if (id != OP_take) call.attrs[0].i = dim_of(g);
    return ex_run(g->e, &call);
}

/* t with zeros at the index of the forward call: scatter, index_copy or index_put of `zeros`. */
static ag_tensor *clear_at_index(grad_call *g, op_id id, ag_tensor *t, const shape *zeros) {
    ag_call call;
    if (!t) return NULL;
    grad_prepare(g, &call, id, true);
    call.inputs[0] = t;
    call.inputs[1] = g->saved_in[1];
    call.inputs[2] = ex_full(g->e, zeros, 0, (ag_dtype)t->dtype, t->storage->device);
    return ex_run(g->e, &call);
}

/* ---- one position an element ---- */

static void run_gather(grad_call *g) {
    grad_give(g, 0, grad_scatter_add(g, 0, dim_of(g), g->saved_in[1], g->grad_out[0]));
}

/* src may be larger than index; what is beyond was not written. */
static void give_source(grad_call *g) {
    shape s = grad_input_shape(g, 2);
    ag_tensor *grad = read_at_index(g, OP_gather, g->grad_out[0]);
    for (int i = 0; i < s.ndim && grad; i++)
        if (grad->dims[i] < s.dims[i]) grad = grad_pad(g->e, grad, i, 0, s.dims[i] - grad->dims[i], 0);
    grad_give(g, 2, grad);
}

static void run_scatter(grad_call *g) {
    shape s = grad_input_shape(g, 1);
    if (grad_needs(g, 0)) grad_give(g, 0, clear_at_index(g, OP_scatter, g->grad_out[0], &s));
    if (grad_needs(g, 2)) give_source(g);
}

static void run_scatter_add(grad_call *g) {
    if (grad_needs(g, 0)) grad_give(g, 0, g->grad_out[0]);
    if (grad_needs(g, 2)) give_source(g);
}

/* ---- whole parts of a dim ---- */

static void run_index_select(grad_call *g) {
    grad_give(g, 0, grad_index_add(g, grad_zeros(g, 0), dim_of(g), g->saved_in[1], g->grad_out[0]));
}

static void run_index_add(grad_call *g) {
    double alpha = CALL_ATTRS(g->call, attrs_index_add)->alpha;
    if (grad_needs(g, 0)) grad_give(g, 0, g->grad_out[0]);
    if (!grad_needs(g, 2)) return;
    ag_tensor *grad = read_at_index(g, OP_index_select, g->grad_out[0]);
    grad_give(g, 2, alpha == 1 ? grad : ex_mul_number(g->e, grad, alpha));
}

static void run_index_copy(grad_call *g) {
    shape s = grad_input_shape(g, 2);
    if (grad_needs(g, 0)) grad_give(g, 0, clear_at_index(g, OP_index_copy, g->grad_out[0], &s));
    if (grad_needs(g, 2)) grad_give(g, 2, read_at_index(g, OP_index_select, g->grad_out[0]));
}

/* ---- positions of the flattened tensor ---- */

static void run_index_put(grad_call *g) {
    shape single = {.ndim = 0};
    bool accumulates = CALL_ATTRS(g->call, attrs_flag)->flag != 0;
    if (grad_needs(g, 0))
        grad_give(g, 0, accumulates ? g->grad_out[0] : clear_at_index(g, OP_index_put, g->grad_out[0], &single));
    if (grad_needs(g, 2)) grad_give(g, 2, read_at_index(g, OP_take, g->grad_out[0]));
}

/* weight: [rows, width], index: [...], g: [..., width] */
static void run_embedding(grad_call *g) {
    expr *e = g->e;
    int64_t padding = g->call->attrs[0].i;
    shape weight = grad_input_shape(g, 0), index = grad_input_shape(g, 1);
    shape flat = {.ndim = 1, .dims = {shape_numel(&index)}}, lines = {.ndim = 2, .dims = {flat.dims[0], weight.dims[1]}};
    ag_tensor *rows = ex_reshape(e, g->saved_in[1], &flat), *grad = ex_reshape(e, g->grad_out[0], &lines);
    ag_tensor *sum = grad_index_add(g, grad_zeros(g, 0), 0, rows, grad);
    if (padding != ATTR_NO_INT && sum) { /* its row back to zero */
        shape one = {.ndim = 1, .dims = {1}}, line = {.ndim = 2, .dims = {1, weight.dims[1]}};
        ag_device *device = g->node->inputs[0].device;
        ag_call call;
        grad_prepare(g, &call, OP_index_copy, false);
        call.inputs[0] = sum;
        call.inputs[1] = ex_full(e, &one, (double)(padding < 0 ? padding : padding + e->index_base), AG_I64, device);
        call.inputs[2] = ex_full(e, &line, 0, (ag_dtype)sum->dtype, device);
        call.attrs[0].i = 0;
        sum = ex_run(e, &call);
    }
    grad_give(g, 0, sum);
}

const grad_rule grad_rule_gather = {.run = run_gather, .saves_in = SAVES(1)};
const grad_rule grad_rule_scatter = {.run = run_scatter, .saves_in = SAVES(1)};
const grad_rule grad_rule_scatter_add = {.run = run_scatter_add, .saves_in = SAVES(1)};
const grad_rule grad_rule_index_select = {.run = run_index_select, .saves_in = SAVES(1)};
const grad_rule grad_rule_index_add = {.run = run_index_add, .saves_in = SAVES(1)};
const grad_rule grad_rule_index_copy = {.run = run_index_copy, .saves_in = SAVES(1)};
const grad_rule grad_rule_index_put = {.run = run_index_put, .saves_in = SAVES(1)};
const grad_rule grad_rule_embedding = {.run = run_embedding, .saves_in = SAVES(1)};
