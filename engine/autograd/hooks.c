/* hooks.c: functions of the user that see, and may replace, a tensor's finished gradient in backward. */
#include "autograd/tape.h"
#include "core/error.h"
#include "core/memory.h"

static _Atomic uint64_t next_hook_id = 1;

ag_status ag_tensor_add_hook(ag_tensor *tensor, ag_hook_fn fn, void *context, void (*free_context)(void *), uint64_t *id) {
    if (!tensor->node)
        return error_set(AG_E_AUTODIFF, "register_hook", "tensor", "a tracked tensor", "set requires_grad first",
                         "an untracked one");
    hook *h = heap_alloc(sizeof *h), **end = &tensor->node->hooks;
    if (!h) return error_memory("register_hook", sizeof *h);
    *h = (hook){.fn = fn,
                .context = context,
                .free_context = free_context,
                .output = tensor->node_output,
                .id = atomic_fetch_add_explicit(&next_hook_id, 1, memory_order_relaxed)};
    while (*end) end = &(*end)->next;
    *end = h;
    *id = h->id;
    return AG_OK;
}

static void free_hook(hook *h) {
    if (h->free_context) h->free_context(h->context);
    heap_free(h);
}

void ag_tensor_remove_hook(ag_tensor *tensor, uint64_t id) {
    if (!tensor->node) return;
    for (hook **at = &tensor->node->hooks; *at; at = &(*at)->next) {
        if ((*at)->id != id) continue;
        hook *h = *at;
        *at = h->next;
        free_hook(h);
        return;
    }
}

void hooks_free(node *n) {
    while (n->hooks) {
        hook *h = n->hooks;
        n->hooks = h->next;
        free_hook(h);
    }
}

/* Hooks may add and remove hooks of the same tensor, so each step looks the next one up by its id; ids rise along the list. */
static hook *hook_after(const node *n, uint64_t id) {
    hook *h = n->hooks;
    while (h && h->id <= id) h = h->next;
    return h;
}

ag_status hooks_run(const node *n, ag_tensor **grads) {
    uint64_t id = 0;
    for (hook *h; (h = hook_after(n, id));) {
        uint32_t output = h->output;
        ag_tensor *before = grads[output];
        id = h->id;
        if (!before) continue;
        AG_TRY(h->fn(h->context, &grads[output]));
        if (grads[output] != before)
            AG_TRY(grad_check(grads[output], &n->outputs[output], "register_hook", "the gradient that the hook returned"));
    }
    return AG_OK;
}
