/* share.c: a sharded job: each rank updates its share of the parameters, and the ranks then tell one another the new values.
 *
 * Every rank has the same mean of gradients, so it matters not who makes an update: the values are, bit by bit, those that each
 * rank would have computed for itself. What is saved is the optimizer's state and the time for it: an n-th on each rank. */
#include <string.h>

#include "core/dtype.h"
#include "core/error.h"
#include "core/memory.h"
#include "dist/ddp/ddp.h"
#include "exec/exec.h"

static size_t value_bytes(const ddp_slot *slot) {
    return (size_t)slot->tensor->numel * dtype_size((ag_dtype)slot->tensor->dtype);
}

/* Runs of the list in order of registration, each about an n-th of the bytes: a parameter goes where its middle lies. */
void share_plan(ag_ddp *ddp) {
    double total = 0, before = 0;
    for (int i = 0; i < ddp->num_slots; i++) total += (double)value_bytes(&ddp->slots[i]);
    for (int i = 0; i < ddp->num_slots; i++) {
        ddp_slot *slot = &ddp->slots[i];
        double size_bytes = (double)value_bytes(slot);
        int owner = total > 0 ? (int)(ddp->size * (before + size_bytes / 2) / total) : 0;
        slot->owner = owner < ddp->size ? owner : ddp->size - 1;
        before += size_bytes;
    }
}

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

ag_status share_values(ag_ddp *ddp) {
    if (!ddp->is_sharded)
        return error_set(AG_E_STATE, "share", NULL, NULL, "register with shard",
                         "every rank updates all parameters in this job");
    if (ddp->size == 1) return AG_OK;
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
