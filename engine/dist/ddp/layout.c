/* layout.c: which parameter lies where: buckets, their memory, and the views of it. */
#include <stdlib.h>
#include <string.h>

#include "core/dtype.h"
#include "core/error.h"
#include "core/memory.h"
#include "dist/ddp/ddp.h"

#define SLOT_ALIGN   16
#define BUCKET_ALIGN 256

/* 16 bytes of gradients hold this many elements of dtype. */
static int64_t elements_aligned(int64_t count, ag_dtype dtype) {
    int64_t step = SLOT_ALIGN / (int64_t)dtype_size(dtype);
    return (count + step - 1) / step * step;
}

static ag_dtype dtype_of(const ddp_slot *slot) { return (ag_dtype)slot->tensor->dtype; }

static ag_dtype wire_dtype(const ag_ddp *ddp, ag_dtype dtype) {
    return ddp->compress == AG_NO_DTYPE || ddp->size == 1 || dtype_is_half(dtype) ? dtype : ddp->compress;
}

/* ---- forming buckets ---- */

static int compare_slots(const void *a, const void *b) {
    const ddp_slot *x = a, *y = b;
    return x->bucket != y->bucket ? (x->bucket > y->bucket) - (x->bucket < y->bucket)
                                  : (x->position < y->position) - (x->position > y->position);
}

typedef struct open_bucket {
    int number; /* -1 = none */
    int last;   /* the slot that came last */
    int64_t size_bytes;
} open_bucket;

/* Gives each slot the number of its bucket: one open bucket a dtype, closed when the next slot would overfill it. `order` maps
 * these numbers, given at opening, to the order of closing, which is about the order of completion. */
static void number_buckets(ag_ddp *ddp, int *order) {
    open_bucket open[AG_DTYPE_COUNT];
    int num_closed = 0;
    ddp->num_buckets = 0;
    for (int d = 0; d < AG_DTYPE_COUNT; d++) open[d].number = -1;
    for (int i = ddp->num_slots - 1; i >= 0; i--) {
        ddp_slot *slot = &ddp->slots[i];
        open_bucket *o = &open[dtype_of(slot)];
        int64_t size_bytes = slot->tensor->numel * (int64_t)dtype_size(dtype_of(slot));
        int64_t limit = o->number == 0 ? ddp->first_bucket_bytes : ddp->bucket_bytes;
        if (o->number >= 0 && o->size_bytes + size_bytes > limit) {
            order[o->number] = num_closed++;
            o->number = -1;
        }
        if (o->number < 0) *o = (open_bucket){.number = ddp->num_buckets++};
        slot->bucket = o->number;
        o->last = i;
        o->size_bytes += size_bytes;
    }
    while (num_closed < ddp->num_buckets) { /* first whose last slot comes first in backward: the highest */
        open_bucket *next = NULL;
        for (int d = 0; d < AG_DTYPE_COUNT; d++)
            if (open[d].number >= 0 && (!next || open[d].last > next->last)) next = &open[d];
        order[next->number] = num_closed++;
        next->number = -1;
    }
}

static void place_slots(ag_ddp *ddp, ddp_bucket *b) {
    for (int i = 0; i < b->num_slots; i++) {
        ddp_slot *slot = &ddp->slots[b->first + i];
        slot->offset = b->count;
        b->count += elements_aligned(slot->tensor->numel, b->dtype);
    }
    b->presence = b->count;
    b->contributors = b->presence + b->num_slots;
    b->num_contributor_elements = dtype_is_half(b->wire) ? (ddp->size + 127) / 128 : 1;
    b->count = elements_aligned(b->contributors + b->num_contributor_elements, b->dtype);
}

ag_status layout_plan(ag_ddp *ddp) {
    int *order = heap_alloc((size_t)ddp->num_slots * sizeof *order);
    if (!order) return error_memory("register", (size_t)ddp->num_slots * sizeof *order);
    number_buckets(ddp, order);
    for (int i = 0; i < ddp->num_slots; i++) ddp->slots[i].bucket = order[ddp->slots[i].bucket];
    heap_free(order);
    qsort(ddp->slots, (size_t)ddp->num_slots, sizeof *ddp->slots, compare_slots);
    ddp->buckets = heap_alloc_zero((size_t)ddp->num_buckets * sizeof *ddp->buckets);
    if (!ddp->buckets) return error_memory("register", (size_t)ddp->num_buckets * sizeof *ddp->buckets);
    for (int i = 0; i < ddp->num_slots; i++) {
        ddp_bucket *b = &ddp->buckets[ddp->slots[i].bucket];
        if (b->num_slots++ == 0) b->first = i;
    }
    for (int k = 0; k < ddp->num_buckets; k++) {
        ddp_bucket *b = &ddp->buckets[k];
        b->ddp = ddp;
        b->dtype = dtype_of(&ddp->slots[b->first]);
        b->wire = wire_dtype(ddp, b->dtype);
        place_slots(ddp, b);
    }
    return AG_OK;
}

/* ---- memory ---- */

static void memory_release(storage_owner *owner) {
    ddp_memory *m = (ddp_memory *)owner;
    if (atomic_fetch_sub_explicit(&m->refs, 1, memory_order_acq_rel) != 1) return;
    group_block_free(m->group, &m->block);
    memory_free(m->buffer, m->buffer_bytes);
    group_release(m->group);
    heap_free(m);
}

void memory_drop(ddp_memory *m) {
    if (m) memory_release(&m->owner);
}

ag_status memory_new(ag_ddp *ddp, size_t part_bytes, block_form form, size_t buffer_bytes, ddp_memory **out) {
    ddp_memory *m = heap_alloc_zero(sizeof *m);
    if (!m) return error_memory("register", sizeof *m);
    m->owner.release = memory_release;
    atomic_init(&m->refs, 1);
    m->group = group_retain(ddp->group);
    m->buffer_bytes = buffer_bytes;
    ag_status status = AG_OK;
    if (buffer_bytes) {
        m->buffer = memory_alloc(buffer_bytes);
        if (m->buffer)
            memset(m->buffer, 0, buffer_bytes);
        else
            status = error_memory("register", buffer_bytes);
    }
    /* Asked for by all ranks together, so also by one that has failed. */
    ag_error first = *error_record();
    ag_status block_status = group_block_new(ddp->group, part_bytes, form, &m->block);
    if (status == AG_OK)
        status = block_status;
    else
        *error_record() = first;
    if (status == AG_OK)
        *out = m;
    else
        memory_drop(m);
    return status;
}

static ag_status view_over(ag_ddp *ddp, ag_dtype dtype, const shape *s, char *data, ag_tensor **out) {
    size_t size_bytes = (size_t)shape_numel(s) * dtype_size(dtype);
    ag_device *device = ddp->slots[0].tensor->storage->device;
    AG_TRY(tensor_from_memory(dtype, s, device, data, size_bytes, &ddp->memory->owner, out));
    atomic_fetch_add_explicit(&ddp->memory->refs, 1, memory_order_relaxed);
    return AG_OK;
}

static ag_status make_views(ag_ddp *ddp, ddp_bucket *b) {
    size_t size = dtype_size(b->dtype);
    for (int i = 0; i < b->num_slots; i++) {
        ddp_slot *slot = &ddp->slots[b->first + i];
        shape s = tensor_shape(slot->tensor);
        size_t at = (size_t)slot->offset * size;
        AG_TRY(view_over(ddp, b->dtype, &s, b->grads + at, &slot->local));
        if (b->wire == b->dtype && b->sum != b->own) AG_TRY(view_over(ddp, b->dtype, &s, b->sum + at, &slot->result));
    }
    if (b->wire == b->dtype) return AG_OK;
    shape flat = {.ndim = 1, .dims = {b->count}};
    AG_TRY(view_over(ddp, b->dtype, &flat, b->grads, &b->grads_view));
    return view_over(ddp, b->wire, &flat, b->own, &b->own_view);
}

/* A result of its own for each rank, if some p.grad is to be a view of it that the user may write to. */
static block_form form_of(const ag_ddp *ddp) {
    bool has_views = false;
    for (int k = 0; k < ddp->num_buckets; k++) has_views |= ddp->buckets[k].wire == ddp->buckets[k].dtype;
    return has_views && !ddp->shared_result ? BLOCK_RESULTS : BLOCK_RESULT;
}

ag_status layout_make(ag_ddp *ddp) {
    size_t part_bytes = 0, buffer_bytes = 0;
    for (int k = 0; k < ddp->num_buckets; k++) {
        ddp_bucket *b = &ddp->buckets[k];
        b->offset = part_bytes;
        part_bytes += ((size_t)b->count * dtype_size(b->wire) + BUCKET_ALIGN - 1) / BUCKET_ALIGN * BUCKET_ALIGN;
        if (b->wire != b->dtype)
            buffer_bytes += ((size_t)b->count * dtype_size(b->dtype) + BUCKET_ALIGN - 1) / BUCKET_ALIGN * BUCKET_ALIGN;
    }
    AG_TRY(memory_new(ddp, part_bytes, form_of(ddp), buffer_bytes, &ddp->memory));
    const shared_block *block = &ddp->memory->block;
    memset(shared_block_part(block, block->rank), 0, part_bytes);
    char *buffer = ddp->memory->buffer;
    for (int k = 0; k < ddp->num_buckets; k++) {
        ddp_bucket *b = &ddp->buckets[k];
        b->own = b->grads = shared_block_part(block, block->rank) + b->offset;
        b->sum = ddp->size == 1 ? b->own : shared_block_result(block, block->rank) + b->offset;
        if (b->wire != b->dtype) {
            b->grads = buffer;
            buffer += ((size_t)b->count * dtype_size(b->dtype) + BUCKET_ALIGN - 1) / BUCKET_ALIGN * BUCKET_ALIGN;
        }
        AG_TRY(make_views(ddp, b));
    }
    return AG_OK;
}

void layout_free(ag_ddp *ddp) {
    for (int k = 0; ddp->buckets && k < ddp->num_buckets; k++) {
        tensor_release(ddp->buckets[k].grads_view);
        tensor_release(ddp->buckets[k].own_view);
    }
    for (int i = 0; i < ddp->num_slots; i++) {
        ddp_slot *slot = &ddp->slots[i];
        tensor_release(slot->local);
        tensor_release(slot->result);
        tensor_release(slot->tensor);
        heap_free(slot->name);
    }
    heap_free(ddp->buckets);
    heap_free(ddp->slots);
    memory_drop(ddp->memory);
}

bool slot_owns(const ddp_slot *slot, const ag_tensor *grad) {
    return grad && grad->storage == slot->local->storage && grad->is_contiguous && grad->offset == 0;
}
