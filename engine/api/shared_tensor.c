/* shared_tensor.c: tensors in memory that the ranks of a host share, in which all_reduce need not copy. */
#include "api/shared_tensor.h"

#include <unistd.h>

#include "backend/backend.h"
#include "core/error.h"
#include "core/memory.h"
#include "dist/group/world.h"

/* shared_memory is what both tensors of a shared block hold. */
typedef struct shared_memory {
    storage_owner owner; /* first: it is the struct */
    atomic_int refs;
    ag_group *group; /* held */
    shared_block block;
} shared_memory;

static void shared_memory_drop(storage_owner *owner) {
    shared_memory *m = (shared_memory *)owner;
    if (atomic_fetch_sub_explicit(&m->refs, 1, memory_order_acq_rel) != 1) return;
    world *w = m->group->world;
    if (w->process != getpid()) return; /* a forked child leaves its parent's block alone; the mutex may be held there */
    pthread_mutex_lock(&w->mutex);
    for (known_block **at = &m->group->blocks; *at; at = &(*at)->next) {
        if ((*at)->block != &m->block) continue;
        known_block *known = *at;
        *at = known->next;
        heap_free(known);
        break;
    }
    pthread_mutex_unlock(&w->mutex);
    group_block_free(m->group, &m->block);
    group_release(m->group);
    heap_free(m);
}

ag_status ag_group_shared_tensor(ag_group *group, ag_dtype dtype, int64_t numel, bool shared_result, ag_tensor **own,
                                 ag_tensor **result) {
    if (numel < 0 || dtype < 0 || dtype >= AG_DTYPE_COUNT || numel > INT64_MAX / 64) {
        error_set(AG_E_VALUE, "shared_tensor", "numel", "a count of elements", NULL, "%lld", (long long)numel);
        group_refuse(group);
        return AG_E_VALUE;
    }
    shared_memory *m = heap_alloc_zero(sizeof *m);
    known_block *known = heap_alloc_zero(sizeof *known);
    size_t bytes = (size_t)numel * dtype_size(dtype);
    ag_status status;
    if (m && known) {
        status = error_in(group_block_new(group, bytes ? bytes : 1, shared_result ? BLOCK_RESULT : BLOCK_RESULTS, &m->block),
                          "shared_tensor");
    } else {
        status = error_memory("shared_tensor", sizeof *m);
        group_refuse(group);
    }
    if (status != AG_OK) {
        heap_free(m);
        heap_free(known);
        return status;
    }
    m->owner.release = shared_memory_drop;
    atomic_init(&m->refs, 3); /* the two tensors, and this function */
    m->group = group_retain(group);
    known->block = &m->block;
    pthread_mutex_lock(&group->world->mutex);
    known->next = group->blocks;
    group->blocks = known;
    pthread_mutex_unlock(&group->world->mutex);
    ag_tensor *tensors[2] = {NULL, NULL};
    shape s = {.ndim = 1, .dims = {numel}};
    for (int i = 0; i < 2; i++) {
        char *part = (i == 0 ? shared_block_part : shared_block_result)(&m->block, group->rank);
        if (status == AG_OK) status = tensor_from_memory(dtype, &s, registry_default(), part, bytes, &m->owner, &tensors[i]);
        if (!tensors[i]) shared_memory_drop(&m->owner);
    }
    shared_memory_drop(&m->owner);
    if (status != AG_OK) {
        tensor_release(tensors[0]);
        tensor_release(tensors[1]);
        return status;
    }
    *own = tensors[0];
    *result = tensors[1];
    return AG_OK;
}

void shared_tensor_find(ag_group *g, const tensor_call *p, group_request *request) {
    const collective_call *call = &p->call;
    if (call->kind != COLLECTIVE_ALL_REDUCE || !p->is_given) return;
    pthread_mutex_lock(&g->world->mutex);
    for (const known_block *known = g->blocks; known; known = known->next) {
        const shared_block *b = known->block;
        size_t bytes = (size_t)call->count * dtype_size(call->dtype);
        const char *own = shared_block_part(b, g->rank), *result = shared_block_result(b, g->rank);
        size_t offset = (size_t)((uintptr_t)call->input - (uintptr_t)own);
        if ((uintptr_t)call->input < (uintptr_t)own || offset > b->part_bytes || bytes > b->part_bytes - offset) continue;
        if (call->output != own + offset && call->output != result + offset) continue;
        request->block = b;
        request->block_offset = offset;
        break;
    }
    pthread_mutex_unlock(&g->world->mutex);
}
