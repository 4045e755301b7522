/* shape.c: arithmetic on shapes. */
#include "core/shape.h"

#include <stdio.h>

#include "core/error.h"

int64_t shape_numel(const shape *s) {
    int64_t numel = 1;
    for (int i = 0; i < s->ndim; i++) numel *= s->dims[i];
    return numel;
}

bool shape_equal(const shape *a, const shape *b) {
    if (a->ndim != b->ndim) return false;
    for (int i = 0; i < a->ndim; i++)
        if (a->dims[i] != b->dims[i]) return false;
    return true;
}

/* Empty dims count as one, so that strides stay distinct and positive. */
void shape_contiguous_strides(const shape *s, int64_t *strides) {
    int64_t stride = 1;
    for (int i = s->ndim - 1; i >= 0; i--) {
        strides[i] = stride;
        stride *= s->dims[i] > 1 ? s->dims[i] : 1;
    }
}

ag_status shape_check(const shape *s, size_t element_size, const char *op) {
    char text[192];
    if (s->ndim < 0 || s->ndim > AG_MAX_NDIM)
        return error_set(AG_E_SHAPE, op, "shape", "0 to 8 dims", NULL, "%d dims", s->ndim);
    for (int i = 0; i < s->ndim; i++)
        if (s->dims[i] < 0)
            return error_set(AG_E_SHAPE, op, "shape", "sizes of 0 or more", NULL, "%s", shape_text(s, text, sizeof text));
    /* Strides are products of sizes as well, so an empty dim does not excuse the others. */
    int64_t bytes = (int64_t)element_size;
    for (int i = 0; i < s->ndim; i++)
        if (s->dims[i] > 1 && __builtin_mul_overflow(bytes, s->dims[i], &bytes))
            return error_set(AG_E_SHAPE, op, "shape", "fewer than 2^63 bytes", NULL, "%s", shape_text(s, text, sizeof text));
    return AG_OK;
}

bool shape_broadcast(const shape *a, const shape *b, shape *out) {
    shape result = {.ndim = a->ndim > b->ndim ? a->ndim : b->ndim};
    for (int i = 1; i <= result.ndim; i++) { /* i: position from the end */
        int64_t size_a = i <= a->ndim ? a->dims[a->ndim - i] : 1;
        int64_t size_b = i <= b->ndim ? b->dims[b->ndim - i] : 1;
        if (size_a != size_b && size_a != 1 && size_b != 1) return false;
        result.dims[result.ndim - i] = size_a == 1 ? size_b : size_a;
    }
    *out = result;
    return true;
}

const char *shape_text(const shape *s, char *buffer, size_t len) {
    if (len == 0) return buffer;
    size_t end = (size_t)snprintf(buffer, len, "[");
    for (int i = 0; i < s->ndim && i < AG_MAX_NDIM && end < len; i++)
        end += (size_t)snprintf(buffer + end, len - end, i > 0 ? ", %lld" : "%lld", (long long)s->dims[i]);
    if (end < len) snprintf(buffer + end, len - end, "]");
    return buffer;
}

int dim_resolve(int64_t dim, int ndim) {
    int64_t num = ndim > 0 ? ndim : 1;
    if (dim < -num || dim >= num) return -1;
    return (int)(dim < 0 ? dim + num : dim);
}
