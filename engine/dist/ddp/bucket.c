/* bucket.c: one bucket's way: what this rank contributes, the reduction, and the mean back into the gradients. */
#include <math.h>
#include <string.h>

#include "core/dtype.h"
#include "core/error.h"
#include "core/memory.h"
#include "dist/algorithm/reduce.h"
#include "dist/ddp/ddp.h"
#include "exec/exec.h"
#include "platform/clock.h"

#define RANKS_PER_ELEMENT 128 /* f16 and bf16 hold all whole numbers up to 256 */

static size_t element_bytes(const ddp_bucket *b) { return dtype_size(b->wire); }
static char *element_at(const ddp_bucket *b, char *part, int64_t i) { return part + (size_t)i * element_bytes(b); }

/* ---- what this rank contributes ---- */

static ag_status copy_into(ag_tensor *source, ag_tensor *target) {
    ag_call call;
    call_init(&call, OP_clone);
    call.inputs[0] = source;
    return exec_run_into(&call, target, "grad"); /* source may be another view of the same memory */
}

/* Brings p.grad, whatever it is now, into the slot. */
static ag_status fill_slot(ddp_slot *slot, ddp_bucket *b, bool contributes) {
    ag_tensor *grad = contributes && slot->leaf ? slot->leaf->grad : NULL;
    size_t size = dtype_size(b->dtype);
    slot->is_present = grad != NULL;
    if (!grad)
        memset(b->grads + (size_t)slot->offset * size, 0, (size_t)slot->tensor->numel * size);
    else if (!slot_owns(slot, grad))
        AG_TRY(copy_into(grad, slot->local));
    tensor_bump_version(slot->local);
    return AG_OK;
}

static ag_status fill(ddp_bucket *b, bool contributes) {
    ag_ddp *ddp = b->ddp;
    for (int i = 0; i < b->num_slots; i++) AG_TRY(fill_slot(&ddp->slots[b->first + i], b, contributes));
    if (b->wire != b->dtype) AG_TRY(exec_copy(b->grads_view, b->own_view));
    for (int i = 0; i < b->num_slots; i++)
        element_write(b->wire, element_at(b, b->own, b->presence + i), ddp->slots[b->first + i].is_present);
    for (int i = 0; i < b->num_contributor_elements; i++) {
        bool is_mine = b->num_contributor_elements == 1 || i == ddp->rank / RANKS_PER_ELEMENT;
        element_write(b->wire, element_at(b, b->own, b->contributors + i), contributes && is_mine);
    }
    return AG_OK;
}

/* ---- the mean ---- */

/* grads[i] = sum[i] * scale    from f16 or bf16 to any float dtype; the product is rounded once */
static void expand_half(const ddp_bucket *b, float scale) {
    float wide[1024];
    size_t size = dtype_size(b->dtype);
    for (int64_t begin = 0; begin < b->presence; begin += 1024) {
        int64_t len = b->presence - begin < 1024 ? b->presence - begin : 1024;
        reduce_widen(wide, b->sum + 2 * begin, b->wire, len);
        char *out = b->grads + (size_t)begin * size;
        for (int64_t i = 0; i < len; i++) wide[i] *= scale;
        if (b->dtype == AG_F32)
            memcpy(out, wide, (size_t)len * sizeof *wide);
        else
            for (int64_t i = 0; i < len; i++) element_write(b->dtype, out + (size_t)i * size, wide[i]);
    }
}

bool bucket_delivers_result(const ddp_bucket *b) {
    return b->ddp->slots[b->first].result && b->num_contributors == b->ddp->size;
}

void bucket_deliver(ddp_bucket *b) {
    int size = b->ddp->size;
    if (b->num_contributors == 0 || b->sum == b->own || bucket_delivers_result(b)) return;
    if (b->wire == b->dtype && b->num_contributors == size) {
        memcpy(b->grads, b->sum, (size_t)b->presence * element_bytes(b));
    } else if (dtype_is_half(b->wire)) {
        expand_half(b, (float)size / (float)b->num_contributors);
    } else if (b->wire == AG_F32) {
        float scale = (float)size / (float)b->num_contributors;
        for (int64_t i = 0; i < b->presence; i++) ((float *)b->grads)[i] = ((const float *)b->sum)[i] * scale;
    } else {
        double scale = (double)size / b->num_contributors;
        for (int64_t i = 0; i < b->presence; i++) ((double *)b->grads)[i] = ((const double *)b->sum)[i] * scale;
    }
}

static int read_contributors(const ddp_bucket *b) {
    double total = 0;
    for (int i = 0; i < b->num_contributor_elements; i++)
        total += round(element_read(b->wire, element_at(b, b->sum, b->contributors + i)) * b->ddp->size);
    return (int)total;
}

/* On the group's worker thread. All ranks read the same bits here, so they find the same. */
static void bucket_done(void *context, ag_status status) {
    ddp_bucket *b = context;
    ag_ddp *ddp = b->ddp;
    if (status == AG_OK) {
        b->num_contributors = read_contributors(b);
        b->is_finite = ddp->check_finite == FINITE_IGNORED || elements_are_finite(b->wire, b->sum, b->presence);
        for (int i = 0; i < b->num_slots; i++)
            ddp->slots[b->first + i].is_present = element_read(b->wire, element_at(b, b->sum, b->presence + i)) > 0;
        /* Where it is not finite the contributions are still needed: ddp_sync delivers. */
        if (b->is_finite) bucket_deliver(b);
    }
    b->done_ns = clock_ns();
}

/* ---- starting and waiting ---- */

ag_status bucket_start(ddp_bucket *b, bool contributes) {
    ag_ddp *ddp = b->ddp;
    context_pause();
    ag_status status = fill(b, contributes);
    context_resume();
    AG_TRY(status);
    b->is_finite = true;
    b->num_contributors = 0;
    b->started_ns = clock_ns();
    if (ddp->size == 1) {
        bucket_done(b, AG_OK);
    } else {
        group_request request = {
            .call = {.kind = COLLECTIVE_ALL_REDUCE, .op = REDUCE_MEAN, .dtype = b->wire, .count = b->count},
            .ndim = 1,
            .dims = &b->count,
            .block = &ddp->memory->block,
            .block_offset = b->offset,
            .timeout_s = ddp->timeout_s,
            .done = bucket_done,
            .context = b,
        };
        AG_TRY(group_start(ddp->group, &request, &b->work));
    }
    b->is_started = true;
    return AG_OK;
}

/* AG_E_INTERRUPTED leaves the bucket under way. */
ag_status bucket_wait(ddp_bucket *b) {
    if (!b->work) return AG_OK;
    ag_status status = group_wait(b->work, 0);
    if (status == AG_E_INTERRUPTED && !group_work_is_done(b->work)) return status;
    group_work_release(b->work);
    b->work = NULL;
    return status;
}
