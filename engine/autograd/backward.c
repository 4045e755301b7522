/* backward.c: walks the tape from a root by falling node number and delivers gradients.
 *
 * A run keeps a heap of the nodes that have a gradient pending, highest number first. Every node that could add to a node's pending
 * gradient was created later, so when a node comes off the heap its gradient is complete. The first gradient that reaches a
 * node is moved, later ones are added, in place when nobody else holds the tensor.
 *
 * Runs nest (a custom function may call backward): a node's `visit` belongs to the innermost run, which restores the outer
 * one's when it ends. Leaves reached by a nested run go where the outermost run's go.
 */
#include <assert.h>
#include <string.h>

#include "autograd/grad_rules.h"
#include "autograd/tape.h"
#include "core/error.h"
#include "core/memory.h"

typedef struct visit {
    node *node; /* held */
    struct run *run;
    struct visit *outer; /* of the same node, in an enclosing run */
    struct visit *next;  /* all of this run */
    bool is_queued, is_needed;
    ag_tensor *pending[]; /* [num_outputs]; owned; NULL = zero so far */
} visit;

typedef struct run {
    struct run *outer;
    bool retain_graph, create_graph;
    bool captures_only; /* ag_grad: leaves are not touched */
    ag_tensor *const *inputs; /* to capture; [num_inputs] */
    int num_inputs;
    ag_tensor **grads; /* captured; [num_inputs]; owned */
    uint64_t root_sequence;
    visit *visits;
    visit **heap;
    size_t heap_len, heap_capacity;
} run;

static _Thread_local run *current_run;
static _Atomic uint64_t next_hook_id = 1;

/* ---- the heap ---- */

static ag_status heap_push(run *r, visit *v) {
    if (r->heap_len == r->heap_capacity) {
        size_t capacity = r->heap_capacity ? 2 * r->heap_capacity : 32;
        visit **grown = heap_realloc(r->heap, capacity * sizeof *grown);
        if (!grown) return error_memory("backward", capacity * sizeof *grown);
        r->heap = grown;
        r->heap_capacity = capacity;
    }
    size_t at = r->heap_len++;
    while (at && r->heap[(at - 1) / 2]->node->sequence < v->node->sequence) {
        r->heap[at] = r->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    r->heap[at] = v;
    v->is_queued = true;
    return AG_OK;
}

static visit *heap_pop(run *r) {
    visit *top = r->heap[0], *last = r->heap[--r->heap_len];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= r->heap_len) break;
        if (child + 1 < r->heap_len && r->heap[child + 1]->node->sequence > r->heap[child]->node->sequence) child++;
        if (r->heap[child]->node->sequence <= last->node->sequence) break;
        r->heap[at] = r->heap[child];
        at = child;
    }
    if (r->heap_len) r->heap[at] = last;
    top->is_queued = false;
    return top;
}

/* ---- visits ---- */

static ag_status visit_of(run *r, node *n, visit **out) {
    if (n->visit && n->visit->run == r) {
        *out = n->visit;
        return AG_OK;
    }
    size_t size = sizeof(visit) + n->num_outputs * sizeof(ag_tensor *);
    visit *v = heap_alloc_zero(size);
    if (!v) return error_memory("backward", size);
    v->node = node_retain(n);
    v->run = r;
    v->outer = n->visit;
    v->next = r->visits;
    r->visits = v;
    n->visit = v;
    *out = v;
    return AG_OK;
}

static void end_visits(run *r) {
    while (r->visits) {
        visit *v = r->visits;
        r->visits = v->next;
        v->node->visit = v->outer;
        for (uint32_t k = 0; k < v->node->num_outputs; k++) tensor_release(v->pending[k]);
        node_release(v->node);
        heap_free(v);
    }
    heap_free(r->heap);
}

/* Marks the nodes from which a captured input can be reached; iterative, so that depth does not matter. */
static ag_status mark_needed(run *r, node *root) {
    size_t len = 0, capacity = 64;
    visit *v = NULL, **list = heap_alloc(capacity * sizeof *list);
    if (!list) return error_memory("backward", capacity * sizeof *list);
    ag_status status = visit_of(r, root, &v);
    if (status == AG_OK) list[len++] = v;
    for (size_t at = 0; status == AG_OK && at < len; at++) {
        node *n = list[at]->node;
        for (uint32_t i = 0; status == AG_OK && i < n->num_inputs; i++) {
            node *next = n->edges[i].node;
            if (!next || (next->visit && next->visit->run == r)) continue;
            if (len == capacity) {
                visit **grown = heap_realloc(list, 2 * capacity * sizeof *list);
                if (!grown) status = error_memory("backward", 2 * capacity * sizeof *list);
                else list = grown, capacity *= 2;
            }
            if (status == AG_OK) status = visit_of(r, next, &v);
            if (status == AG_OK) list[len++] = v;
        }
    }
    for (int i = 0; i < r->num_inputs; i++) {
        node *n = r->inputs[i]->node;
        if (n && n->visit && n->visit->run == r) n->visit->is_needed = true;
    }
    /* Breadth-first order may list a node before its consumers' other inputs, so go on until nothing changes: few passes. */
    for (bool changed = status == AG_OK; changed;) {
        changed = false;
        for (size_t at = len; at-- > 0;) {
            visit *one = list[at];
            if (one->is_needed) continue;
            bool needed = one->node->is_forced;
            for (uint32_t i = 0; !needed && i < one->node->num_inputs; i++) {
                node *next = one->node->edges[i].node;
                needed = next && next->visit->is_needed;
            }
            if (needed) one->is_needed = changed = true;
        }
    }
    heap_free(list);
    return status;
}

/* ---- adding gradients ---- */

static bool is_exclusive(const ag_tensor *t) {
    return atomic_load_explicit(&t->refs, memory_order_acquire) == 1 && atomic_load_explicit(&t->storage->refs, memory_order_acquire) == 1 &&
           t->is_contiguous && !t->node;
}

static ag_status add_call(ag_tensor *a, ag_tensor *b, ag_tensor *target, ag_tensor **out) {
    ag_call call;
    call_init(&call, OP_add);
    call.inputs[0] = a;
    call.inputs[1] = b;
    if (target) return exec_run_into(&call, target);
    AG_TRY(exec_run(&call));
    *out = call.outputs[0];
    return AG_OK;
}

/* Adds grad (one reference, taken over even on failure) to *sum. */
static ag_status accumulate(ag_tensor **sum, ag_tensor *grad, bool create_graph) {
    if (!*sum) {
        *sum = grad;
        return AG_OK;
    }
    ag_status status;
    if (!create_graph && is_exclusive(*sum)) {
        status = add_call(*sum, grad, *sum, NULL);
    } else {
        ag_tensor *total = NULL;
        status = add_call(*sum, grad, NULL, &total);
        if (status == AG_OK) {
            tensor_release(*sum);
            *sum = total;
        }
    }
    tensor_release(grad);
    return status;
}

static ag_status clone_of(ag_tensor *t, ag_tensor **out) {
    ag_call call;
    call_init(&call, OP_clone);
    call.inputs[0] = t;
    context_pause();
    ag_status status = exec_run(&call);
    context_resume();
    if (status == AG_OK) *out = call.outputs[0];
    return status;
}

/* Puts a finished gradient into a leaf: the leaf owns its gradient alone, so that adding to it later changes nothing else. */
static ag_status accumulate_leaf(node *leaf, ag_tensor *grad) {
    if (leaf->grad) return add_call(leaf->grad, grad, leaf->grad, NULL);
    if (is_exclusive(grad)) {
        leaf->grad = tensor_retain(grad);
        return AG_OK;
    }
    return clone_of(grad, &leaf->grad);
}

/* Delivers gradient `grad` (taken over) for output `output` of n. */
static ag_status deliver(run *r, node *n, uint32_t output, ag_tensor *grad) {
    visit *v = NULL;
    ag_status status = visit_of(r, n, &v);
    if (status != AG_OK) {
        tensor_release(grad);
        return status;
    }
    AG_TRY(accumulate(&v->pending[output], grad, r->create_graph));
    return v->is_queued ? AG_OK : heap_push(r, v);
}

/* ---- one node ---- */

static ag_status run_hooks(visit *v) {
    for (hook *h = v->node->hooks; h; h = h->next) {
        if (!v->pending[h->output]) continue;
        ag_tensor *before = v->pending[h->output];
        AG_TRY(h->fn(h->context, &v->pending[h->output]));
        ag_tensor *after = v->pending[h->output];
        if (after == before) continue;
        const tensor_meta *meta = &v->node->outputs[h->output];
        bool fits = after && after->ndim == meta->ndim && after->dtype == meta->dtype;
        for (int d = 0; fits && d < meta->ndim; d++) fits = after->dims[d] == meta->dims[d];
        if (!fits) return error_set(AG_E_SHAPE, "hook", "grad", "a gradient of the tensor's shape and dtype", NULL, "another one");
    }
    return AG_OK;
}

/* The outermost run decides where leaves' gradients go. */
static run *leaf_run(run *r) {
    while (r->outer) r = r->outer;
    return r;
}

static ag_status capture(run *r, visit *v) {
    for (int i = 0; i < r->num_inputs; i++) {
        ag_tensor *input = r->inputs[i];
        if (input->node != v->node || !v->pending[input->node_output]) continue;
        AG_TRY(accumulate(&r->grads[i], tensor_retain(v->pending[input->node_output]), r->create_graph));
    }
    return AG_OK;
}

static ag_status check_nan(const node *n, ag_tensor *const *grads) {
    for (uint32_t i = 0; i < n->num_inputs; i++)
        if (grads[i] && anomaly_has_nan(grads[i]))
            return error_set(AG_E_VALUE, "backward", node_name(n), "gradients without NaN (anomaly mode is on)", NULL,
                             "NaN in the gradient of input %u of %s, forward at %s", i + 1, node_name(n), n->where ? n->where : "(recorded before anomaly mode)");
    return AG_OK;
}

static ag_status run_custom(node *n, visit *v, ag_tensor **grads) {
    return n->custom->fn(n->custom->context, (int)n->num_outputs, v->pending, (int)n->num_inputs, grads);
}

/* Takes the saved tensors back and runs the rule; grads gets references of its own. */
static ag_status run_rule(run *r, node *n, visit *v, expr *e, ag_tensor **grads) {
    ag_call call;
    ag_tensor *in_space[32] = {NULL}, *out_space[AG_MAX_OUTPUTS] = {NULL}, **in = in_space;
    tape_call_of(n, &call);
    if (n->is_released && n->num_saved) {
        ag_tensor *unused;
        return tape_saved(n, &n->saved[0], false, &unused);
    }
    if (n->num_inputs > 32) {
        in = heap_alloc_zero(n->num_inputs * sizeof *in);
        if (!in) return error_memory("backward", n->num_inputs * sizeof *in);
    }
    const grad_rule *rule = grad_rules[n->op->id];
    ag_status status = AG_OK;
    for (uint32_t i = 0; status == AG_OK && i < n->num_saved; i++) {
        saved *s = &n->saved[i];
        ag_tensor *t = NULL;
        status = tape_saved(n, s, r->create_graph, &t);
        if (status != AG_OK) break;
        expr_own(e, t);
        if (s->position >= 0) in[s->position] = t;
        else out_space[-1 - s->position] = t;
    }
    if (status == AG_OK) {
        e->index_base = n->index_base;
        grad_call g = {.node = n, .e = e, .call = &call, .grad_out = v->pending, .grad_in = grads, .saved_in = in, .saved_out = out_space};
        rule->run(&g);
        status = e->status;
    }
    for (uint32_t i = 0; i < n->num_inputs; i++) grads[i] = status == AG_OK && grads[i] ? tensor_retain(grads[i]) : NULL;
    if (in != in_space) heap_free(in);
    return status;
}

static ag_status send_grads(run *r, node *n, ag_tensor **grads) {
    ag_status status = AG_OK;
    for (uint32_t i = 0; i < n->num_inputs; i++) {
        node *next = n->edges[i].node;
        bool wanted = status == AG_OK && grads[i] && next && (!r->captures_only || (next->visit && next->visit->run == r && next->visit->is_needed));
        if (!wanted) {
            tensor_release(grads[i]);
            continue;
        }
        const tensor_meta *meta = &n->inputs[i];
        bool fits = grads[i]->ndim == meta->ndim && grads[i]->dtype == meta->dtype;
        for (int d = 0; fits && d < meta->ndim; d++) fits = grads[i]->dims[d] == meta->dims[d];
        if (!fits) {
            char got[96];
            status = error_set(AG_E_SHAPE, node_name(n), "backward", "a gradient in the shape and dtype of its input", NULL, "%s for input %u",
                               tensor_text(grads[i], got, sizeof got), i + 1);
            tensor_release(grads[i]);
            continue;
        }
        status = deliver(r, next, n->edges[i].output, grads[i]);
    }
    return status;
}

#define LOCAL_GRADS 16

static ag_status differentiate(run *r, visit *v) {
    node *n = v->node;
    ag_tensor *space[LOCAL_GRADS] = {NULL}, **grads = space;
    if (n->num_inputs > LOCAL_GRADS) {
        grads = heap_alloc_zero(n->num_inputs * sizeof *grads);
        if (!grads) return error_memory("backward", n->num_inputs * sizeof *grads);
    }
    expr e;
    expr_begin(&e);
    ag_status status = n->kind == NODE_CUSTOM ? run_custom(n, v, grads) : run_rule(r, n, v, &e, grads);
    if (status == AG_OK && anomaly_enabled) {
        status = check_nan(n, grads);
        for (uint32_t i = 0; status != AG_OK && i < n->num_inputs; i++) tensor_release(grads[i]);
    }
    ag_status ended = expr_end(&e);
    if (status == AG_OK) status = ended;
    for (uint32_t k = 0; k < n->num_outputs; k++) { /* freed before the gradients travel on, so that adding can be in place */
        tensor_release(v->pending[k]);
        v->pending[k] = NULL;
    }
    if (status == AG_OK && !r->retain_graph) tape_release_saved(n);
    else if (n->recomputed && !r->create_graph) {
        for (uint32_t k = 0; k < n->num_outputs; k++) tensor_release(n->recomputed[k]);
        heap_free(n->recomputed);
        n->recomputed = NULL;
    }
    if (status == AG_OK) status = send_grads(r, n, grads);
    if (grads != space) heap_free(grads);
    return status;
}

static ag_status process(run *r, visit *v) {
    node *n = v->node;
    AG_TRY(run_hooks(v));
    AG_TRY(capture(r, v));
    if (n->kind != NODE_LEAF) return differentiate(r, v);
    run *owner = leaf_run(r);
    ag_status status = AG_OK;
    bool is_local = n->sequence > owner->root_sequence; /* made by the nested run's own forward */
    if (owner != r && owner->captures_only && !is_local) status = capture(owner, v);
    else if (!r->captures_only) status = accumulate_leaf(n, v->pending[0]);
    tensor_release(v->pending[0]);
    v->pending[0] = NULL;
    return status;
}

/* ---- entry ---- */

static ag_status make_seed(ag_tensor *root, ag_tensor *seed, ag_tensor **out) {
    if (!root->node)
        return error_set(AG_E_AUTODIFF, "backward", "root", "a tensor that depends on one with requires_grad",
                         "make leaves with {requires_grad=true} and compute outside ag.no_grad", "an untracked tensor");
    if (seed) {
        shape a = tensor_shape(root), b = tensor_shape(seed);
        char expected[96], got[96];
        if (!shape_equal(&a, &b) || seed->dtype != root->dtype || seed->storage->device != root->storage->device)
            return error_set(AG_E_SHAPE, "backward", "gradient", tensor_text(root, expected, sizeof expected), NULL, "%s", tensor_text(seed, got, sizeof got));
        *out = tensor_retain(seed);
        return AG_OK;
    }
    if (root->numel != 1) {
        char got[96];
        return error_set(AG_E_SHAPE, "backward", "root", "one element, or a gradient to start from", "reduce it, t:sum():backward(), or pass t:backward{gradient=g}",
                         "%s", tensor_text(root, got, sizeof got));
    }
    expr e;
    expr_begin(&e);
    shape s = tensor_shape(root);
    ag_tensor *ones = ex_full(&e, &s, 1, (ag_dtype)root->dtype, root->storage->device);
    *out = e.status == AG_OK ? expr_keep(&e, ones) : NULL;
    return expr_end(&e);
}

static ag_status run_backward(run *r, ag_tensor *root, ag_tensor *seed) {
    ag_tensor *first;
    AG_TRY(ag_autodiff_push(r->create_graph, context_checkpointing()));
    ag_status status = make_seed(root, seed, &first);
    if (status != AG_OK) {
        ag_autodiff_pop();
        return status;
    }
    r->outer = current_run;
    current_run = r;
    node *start = node_retain(root->node);
    r->root_sequence = start->sequence;
    if (r->captures_only) status = mark_needed(r, start);
    if (status == AG_OK) status = deliver(r, start, root->node_output, first);
    else tensor_release(first);
    while (status == AG_OK && r->heap_len) {
        status = process(r, heap_pop(r));
        if (status == AG_OK && ag_interrupt_pending()) status = error_set(AG_E_INTERRUPTED, "backward", NULL, NULL, NULL, "interrupted");
    }
    end_visits(r);
    node_release(start);
    current_run = r->outer;
    ag_autodiff_pop();
    return status;
}

ag_status ag_backward(ag_tensor *root, ag_tensor *seed, bool retain_graph, bool create_graph) {
    run r = {.retain_graph = retain_graph || create_graph, .create_graph = create_graph};
    return run_backward(&r, root, seed);
}

ag_status ag_grad(ag_tensor *root, ag_tensor *seed, ag_tensor *const *inputs, int num_inputs, bool retain_graph, bool create_graph,
                  bool allow_unused, ag_tensor **grads) {
    for (int i = 0; i < num_inputs; i++) {
        grads[i] = NULL;
        if (!inputs[i]->node && !allow_unused)
            return error_set(AG_E_AUTODIFF, "grad", "inputs", "tensors with requires_grad", NULL, "an untracked one at position %d", i + 1);
    }
    run r = {.retain_graph = retain_graph || create_graph, .create_graph = create_graph, .captures_only = true,
             .inputs = inputs, .num_inputs = num_inputs, .grads = grads};
    ag_status status = run_backward(&r, root, seed);
    for (int i = 0; status == AG_OK && !allow_unused && i < num_inputs; i++)
        if (!grads[i])
            status = error_set(AG_E_AUTODIFF, "grad", "inputs", "tensors that the root depends on", "pass {allow_unused=true} to get nil there",
                               "one at position %d that it does not depend on", i + 1);
    for (int i = 0; status != AG_OK && i < num_inputs; i++) {
        tensor_release(grads[i]);
        grads[i] = NULL;
    }
    return status;
}

/* ---- hooks ---- */

ag_status ag_tensor_add_hook(ag_tensor *tensor, ag_hook_fn fn, void *context, void (*free_context)(void *), uint64_t *id) {
    if (!tensor->node)
        return error_set(AG_E_AUTODIFF, "register_hook", "tensor", "a tracked tensor", "set requires_grad first", "an untracked one");
    hook *h = heap_alloc(sizeof *h), **end = &tensor->node->hooks;
    if (!h) return error_memory("register_hook", sizeof *h);
    *h = (hook){.fn = fn, .context = context, .free_context = free_context, .output = tensor->node_output,
                .id = atomic_fetch_add_explicit(&next_hook_id, 1, memory_order_relaxed)};
    while (*end) end = &(*end)->next;
    *end = h;
    *id = h->id;
    return AG_OK;
}

void ag_tensor_remove_hook(ag_tensor *tensor, uint64_t id) {
    if (!tensor->node) return;
    for (hook **at = &tensor->node->hooks; *at; at = &(*at)->next) {
        if ((*at)->id != id) continue;
        hook *h = *at;
        *at = h->next;
        if (h->free_context) h->free_context(h->context);
        heap_free(h);
        return;
    }
}
