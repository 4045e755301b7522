/* tensor.h: storage and tensor.
 *
 * A `storage` is the only counted thing with memory behind it. An `ag_tensor` is a cheap counted view of one: dtype, shape,
 * strides and offset never change after construction. Writing in place goes to the storage and bumps its version; when
 * such a write has to be recorded for gradients, a new tensor takes the place of the old one (autograd/tape.h).
 *
 * Small data (<= 64 bytes) lies inside the storage struct, so a small result costs two small allocations. Memory that something
 * else owns (a shared block) becomes a storage that calls back when its last view goes.
 *
 * node: what autograd knows about the tensor; NULL = untracked. That pointer is the only sign of being tracked.
 */
#ifndef ARGAND_CORE_TENSOR_H
#define ARGAND_CORE_TENSOR_H

#include <stdatomic.h>

#include "core/device.h"
#include "core/dtype.h"
#include "core/shape.h"

#define STORAGE_INLINE_BYTES 64

/* storage_owner is who owns memory that is not the device's: a part of the owner's struct. release is called once for each
 * storage over the memory, by the thread that gives the storage's last view back. */
typedef struct storage_owner {
    void (*release)(struct storage_owner *owner);
} storage_owner;

typedef struct storage {
    atomic_int refs;
    _Atomic uint32_t version;     /* in-place changes so far */
    atomic_int num_tracked_views; /* live views that the tape knows: in-place changes are then refused */
    atomic_bool is_charged;       /* some holder's bookkeeping counts these bytes: ag_tensor_charge */
    bool has_inline_room;
    ag_device *device;
    void *data;
    size_t size_bytes;
    storage_owner *owner;                     /* of memory that is not the device's; else NULL */
    _Alignas(16) unsigned char inline_data[]; /* room for the data when it is small, else none */
} storage;

struct node; /* autograd/tape.h */

struct ag_tensor {
    atomic_int refs;
    int8_t dtype; /* ag_dtype */
    int8_t ndim;
    bool is_contiguous;
    bool is_weak;         /* a plain number made tensor: it yields to the other operand's dtype within its kind */
    bool is_tracked_view; /* counted in storage->num_tracked_views */
    uint16_t node_output; /* which output of node this is */
    int64_t numel;
    int64_t offset; /* elements from the start of the storage */
    storage *storage;
    struct node *node;
    int64_t *dims;    /* [ndim], behind the struct */
    int64_t *strides; /* [ndim], behind dims; in elements; 0 where broadcast */
};

/* tensor_new makes a contiguous tensor over fresh, uninitialised storage on device. s is checked by the caller. */
ag_status tensor_new(ag_dtype dtype, const shape *s, ag_device *device, ag_tensor **out);
/* tensor_from_memory makes a contiguous tensor over size_bytes of memory at data (aligned to 16) that somebody else owns; it counts
 * as no memory of the device. The owner's release is never called when this fails. */
ag_status tensor_from_memory(ag_dtype dtype, const shape *s, ag_device *device, void *data, size_t size_bytes,
                             storage_owner *owner, ag_tensor **out);
/* storage_move puts a storage of a host device into its owner's memory at data, which holds the values already; views stay what
 * they are, addresses that were taken do not. Nobody may use the storage meanwhile. */
void storage_move(storage *s, void *data, storage_owner *owner);
/* storage_return brings it back into memory of the device, with its values; on failure it stays where it is. */
ag_status storage_return(storage *s);
/* tensor_scalar makes a weak 0-d tensor that holds value: i64 when is_integer, else f64. */
ag_status tensor_scalar(double value, bool is_integer, ag_device *device, ag_tensor **out);
/* tensor_view makes another handle on source's storage. */
ag_status tensor_view(ag_tensor *source, const shape *s, const int64_t *strides, int64_t offset, ag_tensor **out);
ag_status tensor_alias(ag_tensor *source, ag_tensor **out); /* same view, untracked */
ag_tensor *tensor_retain(ag_tensor *tensor);
void tensor_release(ag_tensor *tensor); /* NULL is accepted */
/* tensor_set_node_release names what gives a tensor's node back; autograd calls it once at start. */
void tensor_set_node_release(void (*release)(struct node *node));

static inline shape tensor_shape(const ag_tensor *tensor) {
    shape s = {.ndim = tensor->ndim};
    for (int i = 0; i < tensor->ndim; i++) s.dims[i] = tensor->dims[i];
    return s;
}
/* tensor_address is the first element's address; host devices only. Storage is read through here and nowhere else. */
static inline void *tensor_address(const ag_tensor *tensor) {
    return (char *)tensor->storage->data + tensor->offset * (int64_t)dtype_size((ag_dtype)tensor->dtype);
}
static inline uint32_t tensor_version(const ag_tensor *tensor) {
    return atomic_load_explicit(&tensor->storage->version, memory_order_relaxed);
}
static inline void tensor_bump_version(ag_tensor *tensor) {
    atomic_fetch_add_explicit(&tensor->storage->version, 1, memory_order_relaxed);
}
/* tensor_text writes "f32[2, 3]" and returns buffer. */
const char *tensor_text(const ag_tensor *tensor, char *buffer, size_t len);
bool tensor_strides_are_contiguous(const shape *s, const int64_t *strides);
/* tensor_may_overlap_itself tells whether two elements may lie at one address (expand, unfold): nothing can be written
 * there. */
bool tensor_may_overlap_itself(const ag_tensor *tensor);

#endif
