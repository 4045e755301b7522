/* walk.c: walking over elements, converting and comparing single ones. */
#include "reference/walk.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "platform/interrupt.h"

void walk_begin(struct walk *w, const ag_call *call, const shape *s, uint32_t still) {
    *w = (struct walk){.shape = *s, .status = AG_OK, .call = call};
    for (int i = 0; i < s->ndim; i++)
        if (still & (1u << i)) w->shape.dims[i] = 1;
    w->count = shape_numel(&w->shape);
}

static int add_operand(struct walk *w, const ag_tensor *tensor) {
    assert(w->num_operands < WALK_MAX_OPERANDS && w->position == 0);
    w->operands[w->num_operands] = tensor;
    return w->num_operands++;
}

int walk_add(struct walk *w, const ag_tensor *tensor) {
    int operand = add_operand(w, tensor), missing = w->shape.ndim - tensor->ndim;
    assert(missing >= 0);
    for (int i = 0; i < tensor->ndim; i++)
        if (tensor->dims[i] != 1) w->strides[operand][missing + i] = tensor->strides[i];
    return operand;
}

int walk_add_part(struct walk *w, const ag_tensor *tensor) {
    int operand = add_operand(w, tensor);
    assert(tensor->ndim == w->shape.ndim);
    for (int i = 0; i < tensor->ndim; i++) w->strides[operand][i] = tensor->strides[i];
    return operand;
}

void walk_step(struct walk *w) {
    w->position++;
    w->status = poll_interrupt(w->call, w->position);
    for (int i = w->shape.ndim - 1; i >= 0; i--) {
        for (int k = 0; k < w->num_operands; k++) w->offsets[k] += w->strides[k][i];
        if (++w->index[i] < w->shape.dims[i]) return;
        for (int k = 0; k < w->num_operands; k++) w->offsets[k] -= w->strides[k][i] * w->index[i];
        w->index[i] = 0;
    }
}

void element_convert(ag_dtype source_dtype, const void *source, ag_dtype target_dtype, void *target) {
    if (source_dtype == target_dtype) {
        memmove(target, source, dtype_size(target_dtype)); /* keeps the bits of a NaN */
    } else if (dtype_is_float(source_dtype)) {
        element_write(target_dtype, target, element_read(source_dtype, source));
    } else {
        element_write_int(target_dtype, target, element_read_int(source_dtype, source));
    }
}

void element_move(const ag_tensor *source, int64_t from, ag_tensor *target, int64_t to) {
    element_convert((ag_dtype)source->dtype, element_at(source, from), (ag_dtype)target->dtype, element_at(target, to));
}

bool element_is_nan(ag_dtype dtype, const void *address) {
    return dtype_is_float(dtype) && isnan(element_read(dtype, address));
}

int element_compare(ag_dtype dtype, const void *a, const void *b) {
    if (!dtype_is_float(dtype)) {
        int64_t x = element_read_int(dtype, a), y = element_read_int(dtype, b);
        return (x > y) - (x < y);
    }
    double x = element_read(dtype, a), y = element_read(dtype, b);
    if (isnan(x) || isnan(y)) return (isnan(x) != 0) - (isnan(y) != 0);
    return (x > y) - (x < y);
}

ag_status poll_interrupt(const ag_call *call, int64_t step) {
    if (step % 16384 != 0 || !interrupt_pending()) return AG_OK;
    return call_fail(call, AG_E_INTERRUPTED, NULL, NULL, NULL, "an interrupt");
}

ag_status index_position(const ag_call *call, const ag_tensor *index, int64_t offset, int64_t size, int64_t element,
                         int64_t *out) {
    int64_t position = element_read_int((ag_dtype)index->dtype, element_at(index, offset)), base = call->index_base;
    if (position >= base && position - base < size) {
        *out = position - base;
        return AG_OK;
    }
    if (position < 0 && position >= -size) {
        *out = position + size;
        return AG_OK;
    }
    char expected[96] = "no position, as the dim is empty";
    if (size > 0)
        snprintf(expected, sizeof expected, "%lld to %lld, or -%lld to -1", (long long)base, (long long)(size - 1 + base),
                 (long long)size);
    return call_fail(call, AG_E_INDEX, "index", expected, NULL, "%lld at element %lld", (long long)position,
                     (long long)(element + base));
}

ag_status scratch_new(const ag_call *call, int64_t count, size_t size_bytes, void *out) {
    size_t total = (size_t)count * size_bytes;
    void *block = memory_alloc(total);
    if (!block) return error_memory(call->op->name, total);
    memcpy(out, &block, sizeof block);
    return AG_OK;
}
