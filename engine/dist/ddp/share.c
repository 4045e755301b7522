/* share.c: a sharded job: each rank updates its share of the parameters.
 *
 * Every rank has the same mean of gradients, so it matters not who makes an update: the values are, bit by bit, those that each
 * rank would have computed for itself. What is saved is the optimizer's state and the time for it: an n-th on each rank.
 *
 * With SHARD_RANKS the ranks then tell one another the new values. With SHARD_HOST those of a host have the parameters in common:
 * their storages are moved into one shared block, and an update is there for all as soon as it is made. So owners may write only
 * while nobody reads: from the end of ddp_sync, which all ranks have entered then (see start_complete), to share_values. */
#include <string.h>

#include "core/dtype.h"
#include "core/error.h"
#include "core/memory.h"
#include "dist/ddp/ddp.h"
#include "exec/exec.h"

#define COMMON_ALIGN 256

static size_t value_bytes(const ddp_slot *slot) {
    return (size_t)slot->tensor->numel * dtype_size((ag_dtype)slot->tensor->dtype);
}

/* Which of `size` ranks updates a parameter: runs of the list in order of registration, each about an n-th of the bytes; a
 * parameter goes where its middle lies. */
static int owner_among(const ddp_slot *slot, int size) {
    int owner = (int)(size * slot->middle);
    return owner < size ? owner : size - 1;
}

/* Gives slot i's storage its place in common memory. Several parameters may lie in one storage, but nothing else. */
static ag_status plan_common(ag_ddp *ddp, int i) {
    ddp_slot *slot = &ddp->slots[i], *first = slot;
    const storage *s = slot->tensor->storage;
    size_t registered_bytes = 0;
    for (int other = ddp->num_slots - 1; other >= 0; other--) {
        if (ddp->slots[other].tensor->storage != s) continue;
        first = &ddp->slots[other];
        registered_bytes += value_bytes(first);
    }
    if (s->owner)
        return error_set(AG_E_ARGUMENT, "register", NULL, NULL, "register a clone() of it, or without shard = \"host\"",
                         "'%s' lies in shared memory already", slot->name);
    if (registered_bytes != s->size_bytes)
        return error_set(AG_E_ARGUMENT, "register", NULL, NULL, "register a clone() of it, or without shard = \"host\"",
                         "'%s' shares its memory with what is not registered, or twice", slot->name);
    slot->common_at = first == slot ? ddp->common_bytes : first->common_at;
    if (first == slot) ddp->common_bytes += (s->size_bytes + COMMON_ALIGN - 1) / COMMON_ALIGN * COMMON_ALIGN;
    return AG_OK;
}

ag_status share_plan(ag_ddp *ddp) {
    double total = 0, before = 0;
    for (int i = 0; i < ddp->num_slots; i++) total += (double)value_bytes(&ddp->slots[i]);
    for (int i = 0; i < ddp->num_slots; i++) {
        ddp_slot *slot = &ddp->slots[i];
        double size_bytes = (double)value_bytes(slot);
        slot->middle = total > 0 ? (before + size_bytes / 2) / total : 0;
        slot->owner = ddp->shard == SHARD_RANKS ? owner_among(slot, ddp->size) : ddp->rank;
        before += size_bytes;
        if (ddp->shard == SHARD_HOST) AG_TRY(plan_common(ddp, i));
    }
    return AG_OK;
}

/* ---- parameters in common ---- */

static char *place_in_common(const ag_ddp *ddp, const ddp_slot *slot) {
    return shared_block_part(&ddp->common->block, ddp->common->block.rank) + slot->common_at;
}

static int group_rank_of(const ag_ddp *ddp, int32_t world_rank) {
    int rank = 0;
    while (ag_group_world_rank(ddp->group, rank) != world_rank) rank++;
    return rank;
}

ag_status share_make(ag_ddp *ddp) {
    if (ddp->shard != SHARD_HOST || ddp->size == 1) return AG_OK;
    AG_TRY(memory_new(ddp, ddp->common_bytes, BLOCK_COMMON, 0, &ddp->common));
    const shared_block *block = &ddp->common->block;
    if (block->size == 1) { /* alone on its host, or without shared memory */
        memory_drop(ddp->common);
        ddp->common = NULL;
        return AG_OK;
    }
    for (int i = 0; i < ddp->num_slots; i++) {
        ddp_slot *slot = &ddp->slots[i];
        const storage *s = slot->tensor->storage;
        slot->owner = group_rank_of(ddp, block->world_ranks[owner_among(slot, block->size)]);
        if (block->rank == 0) memcpy(place_in_common(ddp, slot), s->data, s->size_bytes);
    }
    return AG_OK;
}

void share_move(ag_ddp *ddp) {
    for (int i = 0; ddp->common && i < ddp->num_slots; i++) {
        storage *s = ddp->slots[i].tensor->storage;
        if (s->owner) continue; /* with a parameter before */
        storage_move(s, place_in_common(ddp, &ddp->slots[i]), &ddp->common->owner);
        atomic_fetch_add_explicit(&ddp->common->refs, 1, memory_order_relaxed);
    }
    if (ddp->common) ag_memory_trim(); /* what they had is free; it is to be of use to others */
}

/* A parameter for which there is no memory stays where it is, and holds that. */
void share_return(ag_ddp *ddp) {
    for (int i = 0; ddp->common && i < ddp->num_slots; i++) {
        storage *s = ddp->slots[i].tensor->storage;
        if (s->owner == &ddp->common->owner) (void)storage_return(s);
    }
    memory_drop(ddp->common);
    ddp->common = NULL;
}

/* ---- telling one another ---- */

static ag_status read_values(const ddp_slot *slot, char *out) {
    ag_tensor *flat = NULL;
    AG_TRY(exec_contiguous(slot->tensor, &flat));
    memcpy(out, tensor_address(flat), value_bytes(slot));
    tensor_release(flat);
    return AG_OK;
}

static ag_status write_values(ddp_slot *slot, const char *in) {
    ag_tensor *t = slot->tensor, *flat = NULL;
    if (t->is_contiguous) {
        memcpy(tensor_address(t), in, value_bytes(slot));
    } else {
        shape s = tensor_shape(t);
        AG_TRY(tensor_new((ag_dtype)t->dtype, &s, t->storage->device, &flat));
        memcpy(tensor_address(flat), in, value_bytes(slot));
        ag_status status = exec_copy(flat, t);
        tensor_release(flat);
        AG_TRY(status);
    }
    tensor_bump_version(t);
    return AG_OK;
}

/* own: what this rank has updated; all: every rank's, one after the other; counts: bytes, [size]. */
static ag_status exchange(ag_ddp *ddp, char *own, char *all, const int64_t *counts) {
    size_t at = 0;
    for (int i = 0; i < ddp->num_slots; i++) {
        if (ddp->slots[i].owner != ddp->rank) continue;
        AG_TRY(read_values(&ddp->slots[i], own + at));
        at += value_bytes(&ddp->slots[i]);
    }
    group_request request = {
        .call = {.kind = COLLECTIVE_ALL_GATHER, .dtype = AG_U8, .counts = counts, .input = own, .output = all},
        .timeout_s = ddp->timeout_s};
    AG_TRY(group_run(ddp->group, &request));
    for (int rank = 0; rank < ddp->size; rank++)
        for (int i = 0; i < ddp->num_slots; i++) {
            ddp_slot *slot = &ddp->slots[i];
            if (slot->owner != rank) continue;
            if (rank != ddp->rank) AG_TRY(write_values(slot, all));
            all += value_bytes(slot);
        }
    return AG_OK;
}

/* When it is over all owners have written, and everybody may read. */
static ag_status meet_after_update(ag_ddp *ddp) {
    group_request request = {.call = {.kind = COLLECTIVE_BARRIER}, .timeout_s = ddp->timeout_s};
    AG_TRY(group_run(ddp->group, &request));
    for (int i = 0; ddp->common && i < ddp->num_slots; i++) tensor_bump_version(ddp->slots[i].tensor);
    return AG_OK;
}

ag_status share_values(ag_ddp *ddp) {
    if (ddp->shard == SHARD_NONE)
        return error_set(AG_E_STATE, "share", NULL, NULL, "register with shard",
                         "every rank updates all parameters in this job");
    if (ddp->size == 1) return AG_OK;
    if (ddp->shard == SHARD_HOST) return meet_after_update(ddp);
    size_t total = 0;
    int64_t *counts = heap_alloc_zero((size_t)ddp->size * sizeof *counts);
    for (int i = 0; counts && i < ddp->num_slots; i++) {
        counts[ddp->slots[i].owner] += (int64_t)value_bytes(&ddp->slots[i]);
        total += value_bytes(&ddp->slots[i]);
    }
    size_t own_bytes = counts ? (size_t)counts[ddp->rank] : 0;
    char *own = counts ? memory_alloc(own_bytes) : NULL, *all = own ? memory_alloc(total) : NULL;
    ag_status status = all ? exchange(ddp, own, all, counts) : error_memory("share", own_bytes + total);
    memory_free(own, own_bytes);
    memory_free(all, total);
    heap_free(counts);
    return status;
}
