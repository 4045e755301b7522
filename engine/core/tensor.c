/* tensor.c: making, sharing and giving back tensors and their storage. */
#include "core/tensor.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"

static void (*release_node)(struct node *node); /* set once, before the first tracked tensor */

void tensor_set_node_release(void (*release)(struct node *node)) { release_node = release; }

/* ---- storage ---- */

/* Inline data takes what it needs in steps of 16: a storage of one element is one cache line. */
static size_t storage_bytes(bool has_inline_room, size_t size_bytes) {
    return sizeof(storage) + (!has_inline_room ? 0 : size_bytes ? (size_bytes + 15) / 16 * 16 : 16);
}

static void storage_init(storage *s, ag_device *device, size_t size_bytes, bool has_inline_room) {
    atomic_init(&s->refs, 1);
    atomic_init(&s->version, 0);
    atomic_init(&s->num_tracked_views, 0);
    atomic_init(&s->is_charged, false);
    s->device = device;
    s->size_bytes = size_bytes;
    s->owner = NULL;
    s->has_inline_room = has_inline_room;
}

static void *data_new(storage *s) { return s->has_inline_room ? s->inline_data : s->device->alloc(s->device, s->size_bytes); }

static void data_free(storage *s) {
    if (!s->has_inline_room) s->device->free(s->device, s->data, s->size_bytes);
}

static storage *storage_new(ag_device *device, size_t size_bytes) {
    bool has_inline_room = device->is_host && size_bytes <= STORAGE_INLINE_BYTES;
    size_t struct_bytes = storage_bytes(has_inline_room, size_bytes);
    storage *result = heap_take(struct_bytes);
    if (!result) return NULL;
    storage_init(result, device, size_bytes, has_inline_room);
    result->data = data_new(result);
    if (!result->data) {
        heap_give(result, struct_bytes);
        return NULL;
    }
    return result;
}

/* is_charged from the start: no holder's bookkeeping is to count memory that another one owns. */
static storage *storage_over(ag_device *device, void *data, size_t size_bytes, storage_owner *owner) {
    storage *result = heap_take(storage_bytes(false, size_bytes));
    if (!result) return NULL;
    storage_init(result, device, size_bytes, false);
    atomic_store_explicit(&result->is_charged, true, memory_order_relaxed);
    result->data = data;
    result->owner = owner;
    return result;
}

void storage_move(storage *s, void *data, storage_owner *owner) {
    assert(s->device->is_host && !s->owner && owner);
    data_free(s);
    s->data = data;
    s->owner = owner;
}

ag_status storage_return(storage *s) {
    assert(s->owner);
    void *data = data_new(s);
    if (!data) return error_memory(NULL, s->size_bytes);
    memcpy(data, s->data, s->size_bytes);
    storage_owner *owner = s->owner;
    s->data = data;
    s->owner = NULL;
    owner->release(owner);
    return AG_OK;
}

static storage *storage_retain(storage *s) {
    atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
    return s;
}

/* drop_ref returns true for the last holder. A sole holder needs no read-modify-write: nobody else can take a reference. The
 * release of one thread and the acquire of the last order all uses before the freeing. */
static bool drop_ref(atomic_int *refs) {
    if (atomic_load_explicit(refs, memory_order_acquire) == 1) return true;
    return atomic_fetch_sub_explicit(refs, 1, memory_order_acq_rel) == 1;
}

static void storage_release(storage *s) {
    if (!drop_ref(&s->refs)) return;
    storage_owner *owner = s->owner;
    if (!owner) data_free(s);
    heap_give(s, storage_bytes(s->has_inline_room, s->size_bytes));
    if (owner) owner->release(owner);
}

/* ---- tensors ---- */

/* Sizes and strides lie behind the struct: a tensor of few dims stays within two cache lines. */
static size_t tensor_bytes(int ndim) { return sizeof(ag_tensor) + 2 * (size_t)ndim * sizeof(int64_t); }

/* Makes a struct without strides, offset and storage; NULL when memory is out. */
static ag_tensor *tensor_make(ag_dtype dtype, const shape *s) {
    ag_tensor *tensor = heap_take(tensor_bytes(s->ndim));
    if (!tensor) return NULL;
    tensor->dims = (int64_t *)(tensor + 1);
    tensor->strides = tensor->dims + s->ndim;
    atomic_init(&tensor->refs, 1);
    tensor->dtype = (int8_t)dtype;
    tensor->ndim = (int8_t)s->ndim;
    tensor->is_contiguous = true;
    tensor->is_weak = false;
    tensor->is_tracked_view = false;
    tensor->node_output = 0;
    tensor->numel = shape_numel(s);
    tensor->offset = 0;
    tensor->node = NULL;
    for (int i = 0; i < s->ndim; i++) tensor->dims[i] = s->dims[i];
    return tensor;
}

ag_status tensor_new(ag_dtype dtype, const shape *s, ag_device *device, ag_tensor **out) {
    assert(dtype >= 0 && dtype < AG_DTYPE_COUNT && s->ndim >= 0 && s->ndim <= AG_MAX_NDIM);
    ag_tensor *tensor = tensor_make(dtype, s);
    if (!tensor) return error_memory(NULL, tensor_bytes(s->ndim));
    shape_contiguous_strides(s, tensor->strides);
    size_t size_bytes = (size_t)tensor->numel * dtype_size(dtype);
    tensor->storage = storage_new(device, size_bytes);
    if (!tensor->storage) {
        heap_give(tensor, tensor_bytes(tensor->ndim));
        return error_memory(NULL, size_bytes);
    }
    *out = tensor;
    return AG_OK;
}

ag_status tensor_from_memory(ag_dtype dtype, const shape *s, ag_device *device, void *data, size_t size_bytes,
                             storage_owner *owner, ag_tensor **out) {
    assert(device->is_host && data && (uintptr_t)data % 16 == 0 && owner);
    assert(size_bytes >= (size_t)shape_numel(s) * dtype_size(dtype));
    ag_tensor *tensor = tensor_make(dtype, s);
    if (!tensor) return error_memory(NULL, tensor_bytes(s->ndim));
    shape_contiguous_strides(s, tensor->strides);
    tensor->storage = storage_over(device, data, size_bytes, owner);
    if (!tensor->storage) {
        heap_give(tensor, tensor_bytes(tensor->ndim));
        return error_memory(NULL, storage_bytes(false, size_bytes));
    }
    *out = tensor;
    return AG_OK;
}

ag_status tensor_scalar(double value, bool is_integer, ag_device *device, ag_tensor **out) {
    assert(device->is_host);
    ag_dtype dtype = is_integer ? AG_I64 : AG_F64;
    ag_tensor *tensor;
    AG_TRY(tensor_new(dtype, &(shape){.ndim = 0}, device, &tensor));
    element_write(dtype, tensor_address(tensor), value);
    tensor->is_weak = true;
    *out = tensor;
    return AG_OK;
}

ag_status tensor_view(ag_tensor *source, const shape *s, const int64_t *strides, int64_t offset, ag_tensor **out) {
    assert(s->ndim >= 0 && s->ndim <= AG_MAX_NDIM && offset >= 0);
    ag_tensor *tensor = tensor_make((ag_dtype)source->dtype, s);
    if (!tensor) return error_memory(NULL, tensor_bytes(s->ndim));
    for (int i = 0; i < s->ndim; i++) tensor->strides[i] = strides[i];
    tensor->is_contiguous = tensor_strides_are_contiguous(s, strides);
    tensor->offset = offset;
    tensor->storage = storage_retain(source->storage);
    *out = tensor;
    return AG_OK;
}

ag_status tensor_alias(ag_tensor *source, ag_tensor **out) {
    shape s = tensor_shape(source);
    AG_TRY(tensor_view(source, &s, source->strides, source->offset, out));
    (*out)->is_weak = source->is_weak;
    return AG_OK;
}

ag_tensor *tensor_retain(ag_tensor *tensor) {
    atomic_fetch_add_explicit(&tensor->refs, 1, memory_order_relaxed);
    return tensor;
}

void tensor_release(ag_tensor *tensor) {
    if (!tensor || !drop_ref(&tensor->refs)) return;
    struct node *node = tensor->node;
    storage *s = tensor->storage;
    if (tensor->is_tracked_view) atomic_fetch_sub_explicit(&s->num_tracked_views, 1, memory_order_relaxed);
    heap_give(tensor, tensor_bytes(tensor->ndim));
    storage_release(s);
    /* Last, with nothing of this tensor left to look at: it may release further tensors. */
    if (node) release_node(node);
}

const char *tensor_text(const ag_tensor *tensor, char *buffer, size_t len) {
    int end = snprintf(buffer, len, "%s", dtype_name((ag_dtype)tensor->dtype));
    if (end >= 0 && (size_t)end < len) {
        shape s = tensor_shape(tensor);
        shape_text(&s, buffer + end, len - (size_t)end);
    }
    return buffer;
}

/* Strides of dims of size 1 are never used, and an empty tensor has no element to reach. */
bool tensor_strides_are_contiguous(const shape *s, const int64_t *strides) {
    bool result = true;
    int64_t expected = 1;
    for (int i = s->ndim - 1; i >= 0; i--) {
        if (s->dims[i] == 0) return true;
        if (s->dims[i] == 1) continue;
        if (strides[i] != expected) result = false;
        expected *= s->dims[i];
    }
    return result;
}

/* Dims taken by rising stride: each has to step over all that those before it reach. */
bool tensor_may_overlap_itself(const ag_tensor *tensor) {
    if (tensor->is_contiguous || tensor->numel < 2) return false;
    int64_t reach = 1;
    uint32_t taken = 0;
    for (int n = 0; n < tensor->ndim; n++) {
        int next = -1;
        for (int i = 0; i < tensor->ndim; i++)
            if (!(taken & (1u << i)) && (next < 0 || tensor->strides[i] < tensor->strides[next])) next = i;
        taken |= 1u << next;
        if (tensor->dims[next] == 1) continue;
        if (tensor->strides[next] < reach) return true;
        reach += (tensor->dims[next] - 1) * tensor->strides[next];
    }
    return false;
}
