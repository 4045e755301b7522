/* tape.c: makes nodes for calls, keeps what backward will read, and frees them. */
#include "autograd/tape.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "autograd/grad_rules.h"
#include "core/error.h"
#include "core/memory.h"
#include "platform/hot_thread_local.h"

#define MAX_RECOMPUTE_DEPTH 64

static _Atomic uint64_t next_sequence = 1;
static _Atomic int64_t live_nodes;
static HOT_THREAD_LOCAL node *free_list;
static HOT_THREAD_LOCAL bool is_freeing;

/* ---- lifetime ---- */

node *node_retain(node *n) {
    if (n) atomic_fetch_add_explicit(&n->refs, 1, memory_order_relaxed);
    return n;
}

uint64_t tape_next_sequence(void) { return atomic_load_explicit(&next_sequence, memory_order_relaxed); }
int64_t node_live_count(void) { return atomic_load_explicit(&live_nodes, memory_order_relaxed); }

const char *node_name(const node *n) {
    return n->kind == NODE_OP ? n->op->name : n->kind == NODE_CUSTOM ? n->custom->name : "leaf";
}

void tape_release_recomputed(node *n) {
    if (!n->recomputed) return;
    for (uint32_t i = 0; i < n->num_outputs; i++) tensor_release(n->recomputed[i]);
    heap_free(n->recomputed);
    n->recomputed = NULL;
}

static void drop_saved(node *n);

/* The last user of a producer that backward is through with frees what it saves. Recursion is at most MAX_RECOMPUTE_DEPTH
 * deep. */
static void release_producer(node *producer) {
    if (atomic_fetch_sub_explicit(&producer->num_users, 1, memory_order_relaxed) == 1) {
        tape_release_recomputed(producer);
        if (producer->is_released) drop_saved(producer);
    }
    node_release(producer);
}

static void drop_saved(node *n) {
    for (uint32_t i = 0; i < n->num_saved; i++) {
        saved *s = &n->saved[i];
        ag_tensor *tensor = s->tensor;
        node *producer = s->producer;
        s->tensor = NULL;
        s->producer = NULL;
        tensor_release(tensor);
        if (producer) release_producer(producer);
    }
}

void tape_release_saved(node *n) {
    n->is_released = true;
    if (atomic_load_explicit(&n->num_users, memory_order_relaxed) == 0) drop_saved(n);
    tape_release_recomputed(n);
    if (!n->custom || !n->custom->free_context) return;
    void (*free_context)(void *) = n->custom->free_context;
    n->custom->free_context = NULL;
    free_context(n->custom->context);
}

static void free_node(node *n) {
    for (uint32_t i = 0; i < n->num_inputs; i++) node_release(n->edges[i].node);
    tape_release_saved(n);
    hooks_free(n);
    heap_free(n->custom);
    tensor_release(n->grad);
    heap_free(n->where);
    heap_give(n, n->size_bytes);
    atomic_fetch_sub_explicit(&live_nodes, 1, memory_order_relaxed);
}

/* The last release frees the node and, in a loop rather than by recursion, whatever only it held. */
void node_release(node *n) {
    if (!n) return;
    /* A sole holder needs no read-modify-write: nobody else can take a reference. */
    if (atomic_load_explicit(&n->refs, memory_order_acquire) != 1 &&
        atomic_fetch_sub_explicit(&n->refs, 1, memory_order_acq_rel) != 1)
        return;
    n->next_free = free_list;
    free_list = n;
    if (is_freeing) return;
    is_freeing = true;
    while (free_list) {
        node *head = free_list;
        free_list = head->next_free;
        free_node(head);
    }
    is_freeing = false;
}

/* ---- making nodes ---- */

static size_t dims_count(ag_tensor *const *tensors, uint32_t count) {
    size_t total = 0;
    for (uint32_t i = 0; i < count; i++)
        if (tensors[i]) total += (size_t)tensors[i]->ndim;
    return total;
}

static int64_t *fill_metas(tensor_meta *metas, ag_tensor *const *tensors, uint32_t count, int64_t *dims) {
    for (uint32_t i = 0; i < count; i++) {
        const ag_tensor *t = tensors[i];
        if (!t) {
            metas[i] = (tensor_meta){.dtype = AG_NO_DTYPE};
            continue;
        }
        metas[i] = (tensor_meta){.dtype = t->dtype, .ndim = t->ndim, .device = t->storage->device, .dims = dims};
        for (int d = 0; d < t->ndim; d++) *dims++ = t->dims[d];
    }
    return dims;
}

ag_status tape_node_new(node_kind kind, ag_tensor *const *inputs, uint32_t num_inputs, ag_tensor *const *outputs,
                        uint32_t num_outputs, uint32_t num_saved, uint32_t num_attrs, uint32_t num_ints, node **out) {
    size_t num_dims = dims_count(inputs, num_inputs) + dims_count(outputs, num_outputs);
    size_t size = sizeof(node) + num_inputs * sizeof(edge) + (num_inputs + num_outputs) * sizeof(tensor_meta) +
                  num_saved * sizeof(saved) + num_attrs * sizeof(attr) + (num_ints + num_dims) * sizeof(int64_t);
    node *n = heap_take(size);
    if (!n) return error_memory("autodiff", size);
    memset(n, 0, sizeof *n);
    n->size_bytes = (uint32_t)size;
    atomic_init(&n->refs, 1);
    atomic_init(&n->num_users, 0);
    n->kind = (uint8_t)kind;
    n->num_inputs = num_inputs;
    n->num_outputs = num_outputs;
    n->num_saved = num_saved;
    n->num_attrs = num_attrs;
    n->num_ints = num_ints;
    n->sequence = atomic_fetch_add_explicit(&next_sequence, 1, memory_order_relaxed);
    n->edges = (edge *)(n + 1);
    n->inputs = (tensor_meta *)(n->edges + num_inputs);
    n->outputs = n->inputs + num_inputs;
    n->saved = (saved *)(n->outputs + num_outputs);
    n->attrs = (attr *)(n->saved + num_saved);
    n->ints = (int64_t *)(n->attrs + num_attrs);
    int64_t *dims = fill_metas(n->inputs, inputs, num_inputs, n->ints + num_ints);
    fill_metas(n->outputs, outputs, num_outputs, dims);
    for (uint32_t i = 0; i < num_inputs; i++) {
        const ag_tensor *t = inputs[i];
        n->edges[i] = (edge){.node = t ? node_retain(t->node) : NULL, .output = t ? t->node_output : 0};
        if (n->edges[i].node && n->edges[i].node->reaches_sink) n->reaches_sink = true;
    }
    memset(n->saved, 0, num_saved * sizeof(saved));
    atomic_fetch_add_explicit(&live_nodes, 1, memory_order_relaxed);
    *out = n;
    return AG_OK;
}

ag_status tape_leaf_new(const ag_tensor *tensor, node **out) {
    ag_tensor *outputs[1] = {(ag_tensor *)tensor};
    return tape_node_new(NODE_LEAF, NULL, 0, outputs, 1, 0, 0, 0, out);
}

void tape_set_sink(node *leaf, leaf_sink sink) {
    assert(leaf->kind == NODE_LEAF);
    leaf->sink = sink;
    leaf->reaches_sink = sink.take != NULL;
}

void tape_attach(node *n, ag_tensor **outputs, uint32_t num_outputs) {
    for (uint32_t i = 0; i < num_outputs; i++) {
        ag_tensor *t = outputs[i];
        if (!t || t->node || !dtype_is_float((ag_dtype)t->dtype)) continue; /* a custom function may give one tensor twice */
        t->node = node_retain(n);
        t->node_output = (uint16_t)i;
    }
}

/* ---- recording ---- */

static record_plan plan_call(const ag_call *call) {
    bool is_tracked = false;
    for (int i = 0; i < call->num_inputs; i++)
        if (call->inputs[i] && call->inputs[i]->node) {
            is_tracked = true;
            break;
        }
    if (!is_tracked || !context_is_recording()) return RECORD_NOTHING;
    const grad_rule *rule = grad_rules[call->op->id];
    if (!rule) return RECORD_NOTHING;
    if (rule == &grad_rule_composed) return RECORD_COMPOSED;
    if (rule == &grad_rule_refused) {
        call_fail(call, AG_E_AUTODIFF, NULL, "an untracked tensor, since this op has no gradient",
                  "detach it: t:detach(), or use ag.no_grad", "a tracked one");
        return RECORD_REFUSED;
    }
    return RECORD_NODE;
}

/* Which inputs and outputs the rule will read, given which inputs are tracked. */
static void masks_to_save(const ag_call *call, const grad_rule *rule, uint32_t *in, uint32_t *out) {
    if (!rule->is_binary) {
        *in = rule->saves_in;
        *out = rule->saves_out;
        if (call->op->id == OP_linear && CALL_ATTRS(call, attrs_activation)->activation != ACTIVATION_RELU)
            *out = 0; /* read by relu only */
        return;
    }
    bool a = call->inputs[0]->node != NULL, b = call->inputs[1]->node != NULL;
    *in = (a ? rule->saves_in : 0u) | (b ? rule->saves_in_b : 0u);
    *out = (a ? rule->saves_out : 0u) | (b ? rule->saves_out_b : 0u);
}

/* An input is kept as it is, or, under balanced checkpointing, as the cheap call that can make it again: unless its content
 * was changed behind the tape's back since. */
static void save_input(saved *s, ag_tensor *t, int position, bool balanced) {
    node *producer = t->node;
    s->position = (int16_t)position;
    if (balanced && producer && producer->kind == NODE_OP && producer->is_recomputable &&
        producer->recompute_depth < MAX_RECOMPUTE_DEPTH && producer->version == tensor_version(t)) {
        s->producer = node_retain(producer);
        atomic_fetch_add_explicit(&producer->num_users, 1, memory_order_relaxed);
        s->output = t->node_output;
        return;
    }
    s->tensor = tensor_retain(t);
    s->version = tensor_version(t);
}

/* An output is kept through an untracked alias, so that node and tensor do not hold each other. */
static ag_status save_output(saved *s, ag_tensor *t, int position) {
    AG_TRY(tensor_alias(t, &s->tensor));
    s->position = (int16_t)(-1 - position);
    s->version = tensor_version(t);
    return AG_OK;
}

/* in, out: what is kept; rule_in: those inputs among them that the gradient rule reads. */
static ag_status fill_saved(node *n, ag_call *call, uint32_t in, uint32_t rule_in, uint32_t out, bool balanced) {
    uint32_t count = 0;
    uint8_t depth = 0;
    for (int i = 0; i < call->num_inputs && i < 32; i++) {
        if (!(in & (1u << i)) || !call->inputs[i]) continue;
        saved *s = &n->saved[count++];
        s->is_for_rule = (rule_in >> i & 1u) != 0;
        save_input(s, call->inputs[i], i, balanced);
        if (s->producer && s->producer->recompute_depth >= depth) depth = (uint8_t)(s->producer->recompute_depth + 1);
    }
    n->recompute_depth = depth;
    for (int k = 0; k < call->num_outputs; k++) {
        if (!(out & (1u << k))) continue;
        saved *s = &n->saved[count++];
        s->is_for_rule = true;
        if (n->is_recomputable)
            s->position = (int16_t)(-1 - k);
        else
            AG_TRY(save_output(s, call->outputs[k], k));
    }
    n->num_saved = count;
    return AG_OK;
}

ag_status tape_note_where(node *n) {
    char where[160] = "";
    anomaly_where(where, sizeof where);
    n->where = heap_alloc(strlen(where) + 1);
    if (!n->where) return error_memory("autodiff", strlen(where) + 1);
    strcpy(n->where, where);
    return AG_OK;
}

static ag_status note_anomaly(node *n, ag_call *call) {
    AG_TRY(tape_note_where(n));
    for (int k = 0; k < call->num_outputs; k++)
        if (call->outputs[k] && anomaly_has_nan(call->outputs[k]))
            return call_fail(call, AG_E_VALUE, NULL, "a result without NaN (anomaly mode is on)", NULL, "NaN at %s", n->where);
    return AG_OK;
}

static uint32_t count_bits(uint32_t mask) {
    uint32_t count = 0;
    for (; mask; mask &= mask - 1) count++;
    return count;
}

static ag_status record_call(ag_call *call) {
    bool has_float = false;
    for (int k = 0; k < call->num_outputs; k++) has_float |= dtype_is_float((ag_dtype)call->outputs[k]->dtype);
    if (!has_float) return AG_OK;
    const grad_rule *rule = grad_rules[call->op->id];
    uint32_t in, rule_in, out;
    masks_to_save(call, rule, &in, &out);
    rule_in = in;
    bool balanced = context_checkpointing() == AG_CHECKPOINT_BALANCED;
    bool recomputable = balanced && (call->op->flags & OP_IS_MEMORY_BOUND) != 0;
    if (recomputable) in = (1u << call->num_inputs) - 1;
    uint32_t num_saved = count_bits(in) + count_bits(out);
    node *n;
    AG_TRY(tape_node_new(NODE_OP, call->inputs, (uint32_t)call->num_inputs, call->outputs, (uint32_t)call->num_outputs,
                         num_saved, (uint32_t)call->op->num_attrs, (uint32_t)call->num_ints, &n));
    n->op = call->op;
    n->index_base = (int8_t)call->index_base;
    n->is_recomputable = recomputable;
    memcpy(n->attrs, call->attrs, n->num_attrs * sizeof(attr));
    memcpy(n->ints, call->ints, n->num_ints * sizeof(int64_t));
    ag_status status = fill_saved(n, call, in, rule_in, out, balanced);
    if (status == AG_OK && anomaly_enabled) status = note_anomaly(n, call);
    if (status == AG_OK) {
        tape_attach(n, call->outputs, (uint32_t)call->num_outputs);
        ag_tensor *result = call->outputs[0];
        n->version = tensor_version(result);
        if ((call->op->flags & OP_IS_VIEW) && result->storage == call->inputs[0]->storage) {
            result->is_tracked_view = true;
            atomic_fetch_add_explicit(&result->storage->num_tracked_views, 1, memory_order_relaxed);
        }
    }
    node_release(n);
    return status;
}

/* ---- reading back ---- */

void tape_call_of(const node *n, ag_call *call) {
    call_init(call, (op_id)n->op->id);
    call->index_base = n->index_base;
    call->num_ints = (int)n->num_ints;
    memcpy(call->attrs, n->attrs, n->num_attrs * sizeof(attr));
    memcpy(call->ints, n->ints, n->num_ints * sizeof(int64_t));
}

ag_status tape_released_error(const node *n) {
    return error_set(AG_E_AUTODIFF, "backward", node_name(n), "a graph that backward has not used up",
                     "pass {retain_graph=true} to the first backward, or build the graph again; detach() what outlives a step",
                     "a second backward through %s, whose saved tensors are gone", node_name(n));
}

/* Runs n's call again, its inputs taken from what it saved, which is there while it has users; n->recomputed keeps the results
 * until backward has passed n. */
static ag_status recompute(node *n) {
    if (n->recomputed) return AG_OK;
    ag_call call;
    ag_tensor *inputs[CALL_MAX_INPUTS] = {NULL};
    ag_status status = AG_OK;
    tape_call_of(n, &call);
    for (uint32_t i = 0; status == AG_OK && i < n->num_saved; i++)
        if (n->saved[i].position >= 0) status = tape_saved(n, &n->saved[i], false, &inputs[n->saved[i].position]);
    if (status == AG_OK) {
        for (int i = 0; i < call.num_inputs; i++) call.inputs[i] = inputs[i];
        context_pause();
        status = exec_run(&call);
        context_resume();
    }
    if (status == AG_OK) {
        n->recomputed = heap_alloc_zero(n->num_outputs * sizeof *n->recomputed);
        for (uint32_t k = 0; k < n->num_outputs; k++) {
            if (n->recomputed)
                n->recomputed[k] = call.outputs[k];
            else
                tensor_release(call.outputs[k]);
        }
        if (!n->recomputed) status = error_memory("backward", n->num_outputs * sizeof *n->recomputed);
    }
    for (int i = 0; i < CALL_MAX_INPUTS; i++) tensor_release(inputs[i]);
    return status;
}

/* A handle on t that the tape knows as output `output` of n. */
static ag_status tied_alias(ag_tensor *t, node *n, uint16_t output, ag_tensor **out) {
    AG_TRY(tensor_alias(t, out));
    (*out)->node = node_retain(n);
    (*out)->node_output = output;
    return AG_OK;
}

ag_status tape_saved(node *n, saved *s, bool create_graph, ag_tensor **out) {
    node *producer = s->producer ? s->producer : !s->tensor ? n : NULL;
    if (producer) {
        uint16_t output = s->producer ? s->output : (uint16_t)(-1 - s->position);
        AG_TRY(recompute(producer));
        if (create_graph) return tied_alias(producer->recomputed[output], producer, output, out);
        *out = tensor_retain(producer->recomputed[output]);
        return AG_OK;
    }
    if (tensor_version(s->tensor) != s->version) {
        char text[96];
        return error_set(AG_E_STALE, node_name(n), NULL, "the tensor that the forward call saw",
                         "change a clone instead: t:clone(), or change it after backward",
                         "%s %s was changed in place since: version %u, saved at %u%s%s", s->position >= 0 ? "input" : "result",
                         tensor_text(s->tensor, text, sizeof text), tensor_version(s->tensor), s->version,
                         n->where ? ", forward at " : "", n->where ? n->where : "");
    }
    if (create_graph && s->position < 0) return tied_alias(s->tensor, n, (uint16_t)(-1 - s->position), out);
    *out = tensor_retain(s->tensor);
    return AG_OK;
}

static const recorder tape_recorder = {
    .plan = plan_call, .record = record_call, .pause = context_pause, .resume = context_resume};

void tape_init(void) {
    tensor_set_node_release(node_release);
    exec_set_recorder(&tape_recorder);
}
