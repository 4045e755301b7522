/* backward.c: walks the tape from a root by falling node number and delivers gradients.
 *
 * A run keeps a heap of the nodes that have a gradient pending, highest number first. Every node that could add to a node's
 * pending gradient was created later, so when a node comes off the heap its gradient is complete. The first gradient that
 * reaches a node is moved, later ones are added, in place when nobody else holds the tensor.
 *
 * A leaf comes off last of all, for it is older than all that was made of it. One with a sink is served earlier: the run counts
 * its uses beforehand and hands its gradient over when the last of them was differentiated. What a custom function will reach
 * is not known beforehand, so while one is to come such leaves wait.
 *
 * Runs nest (a custom function may call backward): a node's visits form a stack, the innermost run's on top, and each run takes
 * its own away when it ends. A nested run is on its own but for that of a checkpoint (ag_backward_inner), which hands gradients
 * of nodes older than the run around it to that run, so that each node is differentiated once, with its full
 * gradient. */
#include <stdio.h>
#include <stdlib.h>
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
    uint32_t num_uses;   /* of a leaf with a sink: edges to it that are still to be walked */
    bool is_queued, is_needed, is_counted;
    ag_tensor *pending[]; /* [num_outputs]; owned; NULL = zero so far */
} visit;

typedef struct run {
    struct run *outer;
    bool retain_graph, create_graph;
    bool captures_only;       /* ag_grad: leaves are not touched */
    bool is_inner;            /* ag_backward_inner */
    ag_tensor *const *inputs; /* to capture; [num_inputs] */
    int num_inputs;
    ag_tensor **grads;  /* captured; [num_inputs]; owned */
    uint64_t start;     /* nodes with lower numbers were there before the run */
    node *custom;       /* the custom function that is asked now */
    bool counts_uses;   /* num_uses and num_customs are kept */
    size_t num_customs; /* custom functions that are still to be asked */
    visit *visits;
    visit **heap;
    size_t heap_len, heap_capacity;
} run;

static _Thread_local run *current_run;

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

/* Where r's visit of n is, or would go below those of the runs inside r. */
static visit **find_visit(const run *r, node *n) {
    visit **at = &n->visit;
    for (const run *inner = current_run; inner != r; inner = inner->outer)
        if (*at && (*at)->run == inner) at = &(*at)->outer;
    return at;
}

static bool is_visited(const run *r, node *n) {
    const visit *v = *find_visit(r, n);
    return v && v->run == r;
}

static ag_status visit_of(run *r, node *n, visit **out) {
    visit **at = find_visit(r, n);
    if (*at && (*at)->run == r) {
        *out = *at;
        return AG_OK;
    }
    size_t size = sizeof(visit) + n->num_outputs * sizeof(ag_tensor *);
    visit *v = heap_take(size);
    if (!v) return error_memory("backward", size);
    memset(v, 0, size);
    v->node = node_retain(n);
    v->run = r;
    v->outer = *at;
    v->next = r->visits;
    r->visits = v;
    *at = v;
    *out = v;
    return AG_OK;
}

static void end_visits(run *r) {
    while (r->visits) {
        visit *v = r->visits;
        r->visits = v->next;
        size_t size = sizeof *v + v->node->num_outputs * sizeof *v->pending;
        v->node->visit = v->outer;
        for (uint32_t k = 0; k < v->node->num_outputs; k++) tensor_release(v->pending[k]);
        node_release(v->node);
        heap_give(v, size);
    }
    heap_free(r->heap);
}

static int compare_sequence(const void *a, const void *b) {
    uint64_t x = (*(visit *const *)a)->node->sequence, y = (*(visit *const *)b)->node->sequence;
    return (x > y) - (x < y);
}

static bool is_needed(const run *r, node *n) { return is_visited(r, n) && (*find_visit(r, n))->is_needed; }

static bool has_needed_input(const run *r, const node *n) {
    for (uint32_t i = 0; i < n->num_inputs; i++)
        if (n->edges[i].node && is_needed(r, n->edges[i].node)) return true;
    return false;
}

/* Lists what can be reached from root and had no visit of r yet; the caller frees the list. */
static ag_status list_reachable(run *r, node *root, visit ***out, size_t *out_len) {
    size_t len = 0, capacity = 64;
    visit *v = NULL, **list = heap_alloc(capacity * sizeof *list);
    if (!list) return error_memory("backward", capacity * sizeof *list);
    ag_status status = visit_of(r, root, &v);
    if (status == AG_OK) list[len++] = v;
    for (size_t at = 0; status == AG_OK && at < len; at++) {
        node *n = list[at]->node;
        for (uint32_t i = 0; status == AG_OK && i < n->num_inputs; i++) {
            node *next = n->edges[i].node;
            if (!next || is_visited(r, next)) continue;
            if (len == capacity) {
                visit **grown = heap_realloc(list, 2 * capacity * sizeof *list);
                if (!grown)
                    status = error_memory("backward", 2 * capacity * sizeof *list);
                else
                    list = grown, capacity *= 2;
            }
            if (status == AG_OK) status = visit_of(r, next, &v);
            if (status == AG_OK) list[len++] = v;
        }
    }
    *out = list;
    *out_len = len;
    return status;
}

/* Marks the nodes from root on down from which a captured input can be reached. */
static ag_status mark_needed(run *r, node *root) {
    visit **list = NULL;
    size_t len = 0;
    ag_status status = list_reachable(r, root, &list, &len);
    for (int i = 0; i < r->num_inputs; i++) {
        node *n = r->inputs[i]->node;
        if (n && is_visited(r, n)) (*find_visit(r, n))->is_needed = true;
    }
    if (status == AG_OK) qsort(list, len, sizeof *list, compare_sequence); /* inputs before what was made of them */
    for (size_t at = 0; status == AG_OK && at < len; at++)
        if (list[at]->node->is_forced || has_needed_input(r, list[at]->node)) list[at]->is_needed = true;
    heap_free(list);
    return status;
}

/* ---- adding gradients ---- */

static bool is_exclusive(const ag_tensor *t) {
    return atomic_load_explicit(&t->refs, memory_order_acquire) == 1 &&
           atomic_load_explicit(&t->storage->refs, memory_order_acquire) == 1 && t->is_contiguous && !t->node;
}

static ag_status add_call(ag_tensor *a, ag_tensor *b, ag_tensor *target, ag_tensor **out) {
    ag_call call;
    call_init(&call, OP_add);
    call.inputs[0] = a;
    call.inputs[1] = b;
    if (target) return exec_run_into(&call, target, call.op->params[0].name);
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

/* Puts a finished gradient into a leaf, which owns it alone, so that adding to it later changes nothing else. With create_graph
 * it stays tied to the tape. */
static ag_status accumulate_leaf(node *leaf, ag_tensor *grad, bool create_graph) {
    if (!leaf->grad) {
        if (!is_exclusive(grad) && !(create_graph && grad->node)) return clone_of(grad, &leaf->grad);
        leaf->grad = tensor_retain(grad);
        return AG_OK;
    }
    if (!create_graph && !leaf->grad->node) return add_call(leaf->grad, grad, leaf->grad, NULL);
    ag_tensor *sum = NULL;
    AG_TRY(add_call(leaf->grad, grad, NULL, &sum));
    tensor_release(leaf->grad);
    leaf->grad = sum;
    return AG_OK;
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
    /* A custom function went where no edge from the root leads: nothing is known to be complete before its turn. */
    if (!v->is_counted && n->kind != NODE_LEAF) r->counts_uses = false;
    return v->is_queued ? AG_OK : heap_push(r, v);
}

/* ---- one node ---- */

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
                             "NaN in the gradient of input %u of %s, forward at %s", i + 1, node_name(n),
                             n->where ? n->where : "(recorded before anomaly mode)");
    return AG_OK;
}

static ag_status run_custom(run *r, node *n, visit *v, ag_tensor **grads) {
    if (n->is_released) return tape_released_error(n);
    r->custom = n;
    ag_status status = n->custom->fn(n->custom->context, (int)n->num_outputs, v->pending, (int)n->num_inputs, grads);
    r->custom = NULL;
    return status;
}

#define LOCAL_GRADS 16

/* A list of one tensor an input, NULL so far: in space, or on the heap when there are many. */
static ag_status list_for(const node *n, ag_tensor **space, ag_tensor ***list) {
    *list = space;
    if (n->num_inputs > LOCAL_GRADS) {
        *list = heap_alloc_zero(n->num_inputs * sizeof **list);
        return *list ? AG_OK : error_memory("backward", n->num_inputs * sizeof **list);
    }
    for (uint32_t i = 0; i < n->num_inputs; i++) space[i] = NULL;
    return AG_OK;
}

/* Takes the saved tensors back and runs the rule; grads gets references of its own. */
static ag_status run_rule(run *r, node *n, visit *v, expr *e, ag_tensor **grads) {
    ag_call call;
    ag_tensor *in_space[LOCAL_GRADS], *out_space[AG_MAX_OUTPUTS] = {NULL}, **in = in_space;
    tape_call_of(n, &call);
    for (uint32_t i = 0; i < n->num_saved; i++)
        if (n->is_released && n->saved[i].is_for_rule) return tape_released_error(n);
    AG_TRY(list_for(n, in_space, &in));
    const grad_rule *rule = grad_rules[n->op->id];
    ag_status status = AG_OK;
    for (uint32_t i = 0; status == AG_OK && i < n->num_saved; i++) {
        saved *s = &n->saved[i];
        ag_tensor *t = NULL;
        if (!s->is_for_rule) continue;
        status = tape_saved(n, s, r->create_graph, &t);
        if (status != AG_OK) break;
        expr_own(e, t);
        if (s->position >= 0)
            in[s->position] = t;
        else
            out_space[-1 - s->position] = t;
    }
    if (status == AG_OK) {
        e->index_base = n->index_base;
        grad_call g = {
            .node = n, .e = e, .call = &call, .grad_out = v->pending, .grad_in = grads, .saved_in = in, .saved_out = out_space};
        rule->run(&g);
        status = e->status;
    }
    for (uint32_t i = 0; i < n->num_inputs; i++) grads[i] = status == AG_OK && grads[i] ? tensor_retain(grads[i]) : NULL;
    if (in != in_space) heap_free(in);
    return status;
}

ag_status grad_check(const ag_tensor *grad, const tensor_meta *meta, const char *op, const char *what) {
    if (grad_fits(grad, meta)) return AG_OK;
    shape expected = {.ndim = meta->ndim};
    for (int d = 0; d < meta->ndim; d++) expected.dims[d] = meta->dims[d];
    char shape_part[64], wanted[96], text[96];
    shape_text(&expected, shape_part, sizeof shape_part);
    snprintf(wanted, sizeof wanted, "%s%s on %s", dtype_name((ag_dtype)meta->dtype), shape_part, meta->device->name);
    return error_set(AG_E_SHAPE, op, what, wanted, NULL, "%s on %s", tensor_text(grad, text, sizeof text),
                     grad->storage->device->name);
}

/* The run that differentiates n, which r has reached. */
static run *home_of(run *r, const node *n) {
    while (r->is_inner && n->sequence < r->outer->start) r = r->outer;
    return r;
}

/* Not wanted: what lies below n in a run that looks for certain gradients and finds none there. */
static ag_status is_wanted(const run *r, run *home, node *n, bool *wanted) {
    *wanted = true;
    if (!home->captures_only) return AG_OK;
    if (home != r && !is_visited(home, n)) AG_TRY(mark_needed(home, n));
    *wanted = is_needed(home, n);
    return AG_OK;
}

/* Takes grad over. */
static ag_status send_grad(run *r, node *n, uint32_t input, ag_tensor *grad) {
    node *next = n->edges[input].node;
    bool wanted = false;
    ag_status status = AG_OK;
    if (grad && next) status = is_wanted(r, home_of(r, next), next, &wanted);
    if (status == AG_OK && wanted && !grad_fits(grad, &n->inputs[input])) {
        char what[40];
        snprintf(what, sizeof what, "gradient of input %u", input + 1);
        status = grad_check(grad, &n->inputs[input], node_name(n), what);
    }
    if (status == AG_OK && wanted) return deliver(home_of(r, next), next, n->edges[input].output, grad);
    tensor_release(grad);
    return status;
}

static ag_status send_grads(run *r, node *n, ag_tensor **grads) {
    ag_status status = AG_OK;
    for (uint32_t i = 0; i < n->num_inputs; i++) {
        if (status == AG_OK)
            status = send_grad(r, n, i, grads[i]);
        else
            tensor_release(grads[i]);
    }
    return status;
}

/* ---- leaves with a sink ---- */

static ag_status count_uses(run *r, node *root) {
    visit **list = NULL;
    size_t len = 0;
    ag_status status = list_reachable(r, root, &list, &len);
    for (size_t at = 0; status == AG_OK && at < len; at++) {
        const node *n = list[at]->node;
        list[at]->is_counted = true;
        if (n->kind == NODE_CUSTOM) r->num_customs++;
        for (uint32_t i = 0; i < n->num_inputs; i++)
            if (n->edges[i].node && n->edges[i].node->sink.take) (*find_visit(r, n->edges[i].node))->num_uses++;
    }
    for (size_t at = 0; status == AG_OK && r->num_customs == 0 && at < len; at++)
        if (list[at]->node->sink.expect) list[at]->node->sink.expect(list[at]->node->sink.context);
    heap_free(list);
    r->counts_uses = status == AG_OK;
    return status;
}

static ag_status finish_leaf(run *r, visit *v) {
    node *n = v->node;
    if (!v->pending[0]) return AG_OK; /* served before its turn */
    AG_TRY(hooks_run(n, v->pending));
    AG_TRY(capture(r, v));
    ag_status status = AG_OK;
    if (!r->captures_only)
        status =
            n->sink.take ? n->sink.take(n->sink.context, n, v->pending[0]) : accumulate_leaf(n, v->pending[0], r->create_graph);
    tensor_release(v->pending[0]);
    v->pending[0] = NULL;
    return status;
}

/* n was differentiated: serves the leaves for which it was the last to wait for. */
static ag_status serve_leaves(run *r, const node *n) {
    bool was_last_custom = n->kind == NODE_CUSTOM && --r->num_customs == 0;
    for (uint32_t i = 0; i < n->num_inputs; i++) {
        node *leaf = n->edges[i].node;
        if (!leaf || !leaf->sink.take) continue;
        visit *v = *find_visit(r, leaf);
        if (!v || v->run != r || v->num_uses == 0) continue; /* it got its sink during this run */
        if (--v->num_uses == 0 && r->num_customs == 0) AG_TRY(finish_leaf(r, v));
    }
    if (!was_last_custom) return AG_OK;
    for (visit *v = r->visits; v; v = v->next)
        if (v->node->sink.take && v->num_uses == 0) AG_TRY(finish_leaf(r, v));
    return AG_OK;
}

static ag_status differentiate(run *r, visit *v) {
    node *n = v->node;
    ag_tensor *space[LOCAL_GRADS], **grads;
    AG_TRY(list_for(n, space, &grads));
    expr e;
    expr_begin(&e);
    ag_status status = n->kind == NODE_CUSTOM ? run_custom(r, n, v, grads) : run_rule(r, n, v, &e, grads);
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
    if (status == AG_OK && !r->retain_graph)
        tape_release_saved(n);
    else if (!r->create_graph)
        tape_release_recomputed(n);
    if (status == AG_OK) status = send_grads(r, n, grads);
    if (grads != space) heap_free(grads);
    if (status == AG_OK && r->counts_uses) status = serve_leaves(r, n);
    return status;
}

static ag_status process(run *r, visit *v) {
    node *n = v->node;
    if (n->kind == NODE_LEAF) return finish_leaf(r, v);
    AG_TRY(hooks_run(n, v->pending));
    AG_TRY(capture(r, v));
    return !r->captures_only || n->is_forced || has_needed_input(r, n) ? differentiate(r, v) : AG_OK;
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
            return error_set(AG_E_SHAPE, "backward", "gradient", tensor_text(root, expected, sizeof expected), NULL, "%s",
                             tensor_text(seed, got, sizeof got));
        *out = tensor_retain(seed);
        return AG_OK;
    }
    if (root->numel != 1) {
        char got[96];
        return error_set(AG_E_SHAPE, "backward", "root", "one element, or a gradient to start from",
                         "reduce it, t:sum():backward(), or pass t:backward{gradient=g}", "%s",
                         tensor_text(root, got, sizeof got));
    }
    expr e;
    expr_begin(&e);
    shape s = tensor_shape(root);
    ag_tensor *ones = ex_full(&e, &s, 1, (ag_dtype)root->dtype, root->storage->device);
    *out = e.status == AG_OK ? expr_keep(&e, ones) : NULL;
    return expr_end(&e);
}

/* Runs from roots: [num_roots], each with its gradient in seeds (NULL = 1). */
static ag_status run_backward(run *r, ag_tensor *const *roots, ag_tensor *const *seeds, int num_roots) {
    AG_TRY(ag_autodiff_push(r->create_graph, AG_CHECKPOINT_INHERIT));
    ag_status status = AG_OK;
    r->outer = current_run;
    r->start = tape_next_sequence();
    current_run = r;
    for (int i = 0; status == AG_OK && i < num_roots; i++) {
        ag_tensor *seed = NULL;
        node *start = roots[i]->node;
        status = make_seed(roots[i], seeds[i], &seed);
        if (status == AG_OK && r->captures_only) status = mark_needed(r, start);
        if (status == AG_OK && start->reaches_sink && num_roots == 1 && !r->captures_only && !r->is_inner)
            status = count_uses(r, start);
        if (status == AG_OK)
            status = deliver(home_of(r, start), start, roots[i]->node_output, seed);
        else
            tensor_release(seed);
    }
    while (status == AG_OK && r->heap_len) {
        status = process(r, heap_pop(r));
        if (status == AG_OK && ag_interrupt_pending())
            status = error_set(AG_E_INTERRUPTED, "backward", NULL, NULL, NULL, "interrupted");
    }
    end_visits(r);
    current_run = r->outer;
    ag_autodiff_pop();
    return status;
}

ag_status ag_backward(ag_tensor *root, ag_tensor *seed, bool retain_graph, bool create_graph) {
    run r = {.retain_graph = retain_graph || create_graph, .create_graph = create_graph};
    return error_in(run_backward(&r, &root, &seed, 1), "backward");
}

static ag_status not_in_custom(const char *op) {
    return error_set(AG_E_STATE, op, NULL, "a call by the backward function of a custom function", NULL, "another");
}

ag_status ag_backward_inner(ag_tensor *const *roots, ag_tensor *const *seeds, int num_roots) {
    run *outer = current_run;
    if (!outer || !outer->custom) return not_in_custom("backward_inner");
    run r = {.retain_graph = outer->create_graph, .create_graph = outer->create_graph, .is_inner = true};
    return error_in(run_backward(&r, roots, seeds, num_roots), "backward");
}

ag_status ag_custom_tie(ag_tensor *result, int output, ag_tensor **out) {
    node *n = current_run ? current_run->custom : NULL;
    if (!n || output < 0 || output >= (int)n->num_outputs) return not_in_custom("custom_tie");
    AG_TRY(tensor_alias(result, out));
    (*out)->node = node_retain(n);
    (*out)->node_output = (uint16_t)output;
    return AG_OK;
}

/* What is handed out belongs to the caller alone, who may change it in place, unless it is tied to the tape. */
static ag_status own_grad(ag_tensor **grad) {
    ag_tensor *copy = NULL;
    if (!*grad || (*grad)->node || is_exclusive(*grad)) return AG_OK;
    AG_TRY(clone_of(*grad, &copy));
    tensor_release(*grad);
    *grad = copy;
    return AG_OK;
}

ag_status ag_grad(ag_tensor *root, ag_tensor *seed, ag_tensor *const *inputs, int num_inputs, bool retain_graph,
                  bool create_graph, bool allow_unused, ag_tensor **grads) {
    for (int i = 0; i < num_inputs; i++) grads[i] = NULL;
    for (int i = 0; i < num_inputs; i++)
        if (!inputs[i]->node && !allow_unused)
            return error_set(AG_E_AUTODIFF, "grad", "inputs", "tensors with requires_grad", NULL,
                             "an untracked one at position %d", i + 1);
    run r = {.retain_graph = retain_graph || create_graph,
             .create_graph = create_graph,
             .captures_only = true,
             .inputs = inputs,
             .num_inputs = num_inputs,
             .grads = grads};
    ag_status status = run_backward(&r, &root, &seed, 1);
    for (int i = 0; status == AG_OK && i < num_inputs; i++) {
        if (!grads[i] && !allow_unused)
            status =
                error_set(AG_E_AUTODIFF, "grad", "inputs", "tensors that the root depends on",
                          "pass {allow_unused=true} to get nil there", "one at position %d that it does not depend on", i + 1);
        else
            status = own_grad(&grads[i]);
    }
    for (int i = 0; status != AG_OK && i < num_inputs; i++) {
        tensor_release(grads[i]);
        grads[i] = NULL;
    }
    return error_in(status, "grad");
}
