/* tensor.c: the tensor part of argand.h: making, reading, gradients. */
#include <stdio.h>
#include <string.h>

#include "autograd/grad_rules.h"
#include "autograd/tape.h"
#include "core/error.h"
#include "core/memory.h"

/* ---- making ---- */

ag_status ag_tensor_empty(ag_dtype dtype, int ndim, const int64_t *dims, ag_device *device, ag_tensor **out) {
    shape s = {.ndim = ndim};
    if (dtype < 0 || dtype >= AG_DTYPE_COUNT) return error_set(AG_E_DTYPE, "empty", "dtype", "a dtype", NULL, "%d", (int)dtype);
    if (ndim < 0 || ndim > AG_MAX_NDIM) return error_set(AG_E_SHAPE, "empty", "ndim", "0 to 8", NULL, "%d", ndim);
    if (ndim) memcpy(s.dims, dims, (size_t)ndim * sizeof *dims);
    AG_TRY(shape_check(&s, dtype_size(dtype), "empty"));
    return error_in(tensor_new(dtype, &s, device ? device : registry_default(), out), "empty");
}

ag_status ag_tensor_from_data(ag_dtype dtype, int ndim, const int64_t *dims, ag_device *device, const void *data,
                              ag_tensor **out) {
    ag_tensor *t;
    AG_TRY(ag_tensor_empty(dtype, ndim, dims, device, &t));
    ag_device *on = t->storage->device;
    size_t size = (size_t)t->numel * dtype_size(dtype);
    ag_status status = size ? on->backend->copy_in(on, t->storage->data, data, size) : AG_OK;
    if (status == AG_OK)
        *out = t;
    else
        tensor_release(t);
    return status;
}

ag_tensor *ag_tensor_retain(ag_tensor *tensor) { return tensor_retain(tensor); }
void ag_tensor_release(ag_tensor *tensor) { tensor_release(tensor); }

/* ---- asking ---- */

ag_dtype ag_tensor_dtype(const ag_tensor *tensor) { return (ag_dtype)tensor->dtype; }
ag_device *ag_tensor_device(const ag_tensor *tensor) { return tensor->storage->device; }
int ag_tensor_ndim(const ag_tensor *tensor) { return tensor->ndim; }
const int64_t *ag_tensor_dims(const ag_tensor *tensor) { return tensor->dims; }
const int64_t *ag_tensor_strides(const ag_tensor *tensor) { return tensor->strides; }
int64_t ag_tensor_numel(const ag_tensor *tensor) { return tensor->numel; }
bool ag_tensor_is_contiguous(const ag_tensor *tensor) { return tensor->is_contiguous; }
uint32_t ag_tensor_version(const ag_tensor *tensor) { return tensor_version(tensor); }
bool ag_tensor_shares_storage(const ag_tensor *a, const ag_tensor *b) { return a->storage == b->storage; }
size_t ag_tensor_charge(ag_tensor *tensor) {
    if (atomic_exchange_explicit(&tensor->storage->is_charged, true, memory_order_relaxed)) return sizeof(ag_tensor);
    size_t data = tensor->storage->size_bytes;
    return sizeof(ag_tensor) + sizeof(storage) +
           (data <= STORAGE_INLINE_BYTES ? STORAGE_INLINE_BYTES : memory_block_size(data));
}

/* ---- reading and writing elements ---- */

ag_status ag_tensor_data(ag_tensor *tensor, void **out) {
    if (!tensor->storage->device->is_host)
        return error_set(AG_E_DEVICE, "data", "tensor", "a tensor in host memory", "t:to(\"cpu\")", "%s",
                         tensor->storage->device->name);
    *out = tensor_address(tensor);
    return AG_OK;
}

static ag_status element_address(ag_tensor *tensor, const char *op, const int64_t *indices, void **out) {
    int64_t offset = 0;
    for (int i = 0; i < tensor->ndim; i++) {
        if (indices[i] < 0 || indices[i] >= tensor->dims[i]) {
            char expected[48];
            snprintf(expected, sizeof expected, "a position below %lld", (long long)tensor->dims[i]);
            return error_set(AG_E_INDEX, op, "indices", expected, NULL, "%lld in dim %d", (long long)indices[i], i);
        }
        offset += indices[i] * tensor->strides[i];
    }
    AG_TRY(ag_tensor_data(tensor, out));
    *out = (char *)*out + offset * (int64_t)dtype_size((ag_dtype)tensor->dtype);
    return AG_OK;
}

ag_status ag_tensor_get(ag_tensor *tensor, const int64_t *indices, double *out) {
    void *address;
    AG_TRY(element_address(tensor, "get", indices, &address));
    *out = element_read((ag_dtype)tensor->dtype, address);
    return AG_OK;
}

ag_status ag_tensor_set(ag_tensor *tensor, const int64_t *indices, double value) {
    void *address;
    if (tensor->node && context_is_recording())
        return error_set(AG_E_AUTODIFF, "set", "tensor", "an untracked tensor",
                         "wrap the change in ag.no_grad, or change a clone", "a tracked one");
    AG_TRY(element_address(tensor, "set", indices, &address));
    element_write((ag_dtype)tensor->dtype, address, value);
    tensor_bump_version(tensor);
    return AG_OK;
}

ag_status ag_tensor_item(ag_tensor *tensor, double *out) {
    char got[96];
    int64_t zeros[AG_MAX_NDIM] = {0};
    if (tensor->numel != 1)
        return error_set(AG_E_SHAPE, "item", "tensor", "one element", "index it or reduce it first", "%s",
                         tensor_text(tensor, got, sizeof got));
    return ag_tensor_get(tensor, zeros, out);
}

ag_status ag_tensor_read(ag_tensor *tensor, ag_dtype dtype, void *out, int64_t capacity) {
    ag_tensor *converted, *flat;
    if (dtype < 0 || dtype >= AG_DTYPE_COUNT) return error_set(AG_E_DTYPE, "read", "dtype", "a dtype", NULL, "%d", (int)dtype);
    if (capacity < tensor->numel)
        return error_set(AG_E_VALUE, "read", "capacity", "room for every element", NULL, "%lld for %lld", (long long)capacity,
                         (long long)tensor->numel);
    AG_TRY(error_in(exec_convert(tensor, dtype, &converted), "read"));
    ag_status status = error_in(exec_contiguous(converted, &flat), "read");
    tensor_release(converted);
    AG_TRY(status);
    ag_device *device = flat->storage->device;
    size_t size = (size_t)flat->numel * dtype_size(dtype);
    if (size) status = device->backend->copy_out(device, out, tensor_address(flat), size);
    tensor_release(flat);
    return status;
}

/* ---- gradients ---- */

ag_status ag_tensor_set_requires_grad(ag_tensor *tensor, bool requires_grad) {
    bool is_leaf = tensor->node && tensor->node->kind == NODE_LEAF;
    if (tensor->node && !is_leaf)
        return error_set(AG_E_AUTODIFF, "requires_grad", "tensor", "a leaf: a tensor that no recorded op made",
                         "detach() gives one", "the result of %s", node_name(tensor->node));
    if (requires_grad && !is_leaf) {
        if (!dtype_is_float((ag_dtype)tensor->dtype))
            return error_set(AG_E_KIND, "requires_grad", "tensor", "a float tensor",
                             "only floats have gradients; convert: t:to(\"f32\")", "%s", dtype_name((ag_dtype)tensor->dtype));
        return error_in(tape_leaf_new(tensor, &tensor->node), "requires_grad");
    }
    if (!requires_grad && is_leaf) {
        node_release(tensor->node);
        tensor->node = NULL;
    }
    return AG_OK;
}

bool ag_tensor_requires_grad(const ag_tensor *tensor) { return tensor->node != NULL; }
bool ag_tensor_is_leaf(const ag_tensor *tensor) { return !tensor->node || tensor->node->kind == NODE_LEAF; }
const char *ag_tensor_grad_op(const ag_tensor *tensor) { return ag_tensor_is_leaf(tensor) ? NULL : node_name(tensor->node); }
ag_tensor *ag_tensor_grad(const ag_tensor *tensor) { return tensor->node ? tensor->node->grad : NULL; }

ag_status ag_tensor_set_grad(ag_tensor *tensor, ag_tensor *grad) {
    bool is_leaf = tensor->node && tensor->node->kind == NODE_LEAF;
    if (!is_leaf && !grad) return AG_OK;
    if (!is_leaf)
        return error_set(AG_E_AUTODIFF, "grad", "tensor", "a leaf with requires_grad", NULL, "%s",
                         tensor->node ? "the result of an op" : "an untracked tensor");
    if (grad) {
        shape a = tensor_shape(tensor), b = tensor_shape(grad);
        char expected[96], got[96];
        if (grad->storage->device != tensor->storage->device)
            return error_set(AG_E_DEVICE, "grad", "grad", tensor->storage->device->name, "t:to(device) converts", "%s",
                             grad->storage->device->name);
        if (!shape_equal(&a, &b) || grad->dtype != tensor->dtype)
            return error_set(grad->dtype == tensor->dtype ? AG_E_SHAPE : AG_E_DTYPE, "grad", "grad",
                             tensor_text(tensor, expected, sizeof expected), NULL, "%s", tensor_text(grad, got, sizeof got));
        ag_tensor *alias;
        AG_TRY(error_in(tensor_alias(grad, &alias), "grad"));
        tensor_release(tensor->node->grad);
        tensor->node->grad = alias;
        return AG_OK;
    }
    tensor_release(tensor->node->grad);
    tensor->node->grad = NULL;
    return AG_OK;
}

ag_status ag_tensor_detach(ag_tensor *tensor, ag_tensor **out) { return error_in(tensor_alias(tensor, out), "detach"); }
int64_t ag_autodiff_live_nodes(void) { return node_live_count(); }
bool ag_op_is_differentiable(const ag_op *op) {
    const grad_rule *rule = grad_rules[op->id];
    return rule && rule != &grad_rule_refused;
}

ag_status ag_custom_record(const char *name, ag_tensor *const *inputs, int num_inputs, ag_tensor **outputs, int num_outputs,
                           ag_custom_backward_fn fn, void *context, void (*free_context)(void *), bool force) {
    bool is_tracked = force;
    for (int i = 0; i < num_inputs; i++) is_tracked |= inputs[i]->node != NULL;
    if (!is_tracked || !context_is_recording()) {
        if (free_context) free_context(context);
        return AG_OK;
    }
    for (int i = 0; i < num_outputs; i++)
        if (outputs[i]->node) {
            if (free_context) free_context(context);
            return error_set(AG_E_AUTODIFF, name, "outputs", "untracked results",
                             "compute them inside ag.no_grad, and detach() what is passed through",
                             "a tracked one at position %d", i + 1);
        }
    node *n;
    struct custom *custom = heap_alloc(sizeof *custom);
    ag_status status = custom ? AG_OK : error_memory(name, sizeof *custom);
    if (status == AG_OK)
        status = tape_node_new(NODE_CUSTOM, inputs, (uint32_t)num_inputs, outputs, (uint32_t)num_outputs, 0, 0, 0, &n);
    if (status != AG_OK) {
        heap_free(custom);
        if (free_context) free_context(context);
        return status;
    }
    *custom = (struct custom){.fn = fn, .context = context, .free_context = free_context};
    snprintf(custom->name, sizeof custom->name, "%s", name);
    n->custom = custom;
    n->is_forced = force;
    if (anomaly_enabled) status = tape_note_where(n);
    if (status == AG_OK) tape_attach(n, outputs, (uint32_t)num_outputs);
    node_release(n);
    return status;
}
