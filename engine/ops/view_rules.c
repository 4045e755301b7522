/* view_rules.c: geometry of views: shape, strides and offset of a result that shares its input's storage. */
#include <stdio.h>
#include <string.h>

#include "core/error.h"
#include "ops/attrs.h"
#include "ops/rules.h"

typedef const view_geometry geometry;

/* Fills -1 in a shape so that it holds numel elements. */
static ag_status resolve_shape(const ag_call *call, int_list list, int64_t numel, shape *out) {
    if (list.len < 0 || list.len > AG_MAX_NDIM)
        return call_fail(call, AG_E_SHAPE, "shape", "0 to 8 sizes", NULL, "%d", list.len < 0 ? 0 : list.len);
    int free_dim = -1;
    int64_t known = 1;
    bool bad = false;
    out->ndim = list.len;
    for (int i = 0; i < list.len; i++) {
        out->dims[i] = call_ints(call, list)[i];
        if (out->dims[i] == -1 && free_dim < 0)
            free_dim = i;
        else
            bad |= out->dims[i] < 0 || __builtin_mul_overflow(known, out->dims[i], &known);
    }
    if (!bad && free_dim >= 0) {
        bad = known == 0 || numel % known != 0;
        if (!bad) out->dims[free_dim] = numel / known;
    } else {
        bad |= known != numel;
    }
    if (bad) {
        char text[96], got[96];
        shape asked = {.ndim = list.len}, source = tensor_shape(call->inputs[0]);
        memcpy(asked.dims, call_ints(call, list), (size_t)list.len * sizeof(int64_t));
        return call_fail(call, AG_E_SHAPE, "shape", "as many elements as x has, at most one size -1", NULL,
                         "%s for %s of %lld elements", shape_text(&asked, text, sizeof text),
                         shape_text(&source, got, sizeof got), (long long)numel);
    }
    return AG_OK;
}

/* Strides of `target` over the elements of source in order, when source's dims can be merged and split that way. Walks both
 * shapes from the last dim, taking source dims into a run until its size matches a run of target dims. */
static bool reshape_strides(geometry *source, const shape *target, int64_t *strides) {
    if (shape_numel(target) == 0) {
        shape_contiguous_strides(target, strides);
        return true;
    }
    int t = target->ndim - 1;
    for (int i = source->shape.ndim - 1; i >= 0;) {
        int64_t run = source->shape.dims[i], stride = source->strides[i], done = 1;
        if (run == 1) {
            i--;
            continue;
        }
        int first = i - 1;
        while (first >= 0 && (source->shape.dims[first] == 1 || source->strides[first] == stride * run))
            run *= source->shape.dims[first--];
        while (t >= 0 && done < run) {
            strides[t] = stride * done;
            done *= target->dims[t--];
        }
        if (done != run) return false;
        i = first;
    }
    while (t >= 0) strides[t--] = 1; /* only sizes of 1 are left */
    for (int i = target->ndim - 1; i >= 0; i--)
        if (target->dims[i] == 1) strides[i] = i + 1 < target->ndim ? target->dims[i + 1] * strides[i + 1] : 1;
    return true;
}

static ag_status reshape_to(geometry *source, view_geometry *result, bool *is_possible) {
    result->offset = source->offset;
    *is_possible = reshape_strides(source, &result->shape, result->strides);
    return AG_OK;
}

ag_status view_rule_reshape(const ag_call *call, geometry *source, view_geometry *result, bool *is_possible) {
    AG_TRY(resolve_shape(call, CALL_ATTRS(call, attrs_shape)->shape, shape_numel(&source->shape), &result->shape));
    return reshape_to(source, result, is_possible);
}

ag_status view_rule_flatten(const ag_call *call, geometry *source, view_geometry *result, bool *is_possible) {
    const struct attrs_flatten *attrs = CALL_ATTRS(call, attrs_flatten);
    int ndim = source->shape.ndim, start = call_dim(call, "start_dim", attrs->start_dim, ndim);
    int end = start < 0 ? -1 : call_dim(call, "end_dim", attrs->end_dim, ndim);
    if (end < 0) return AG_E_INDEX;
    if (end < start)
        return call_fail(call, AG_E_VALUE, "end_dim", "a dim not before start_dim", NULL, "%d", end + call->index_base);
    shape *s = &result->shape;
    s->ndim = 0;
    for (int i = 0; i < (ndim ? ndim : 1); i++) {
        int64_t size = ndim ? source->shape.dims[i] : 1;
        if (i > start && i <= end)
            s->dims[s->ndim - 1] *= size;
        else
            s->dims[s->ndim++] = size;
    }
    return reshape_to(source, result, is_possible);
}

static void append_dim(view_geometry *g, int64_t size, int64_t stride) {
    g->shape.dims[g->shape.ndim] = size;
    g->strides[g->shape.ndim++] = stride;
}

ag_status view_rule_squeeze(const ag_call *call, geometry *source, view_geometry *result, bool *is_possible) {
    uint32_t mask;
    (void)is_possible;
    AG_TRY(rule_reduced_dims(call, CALL_ATTRS(call, attrs_dims)->dims, source->shape.ndim, &mask));
    result->shape.ndim = 0;
    result->offset = source->offset;
    for (int i = 0; i < source->shape.ndim; i++)
        if (!(mask & (1u << i)) || source->shape.dims[i] != 1) append_dim(result, source->shape.dims[i], source->strides[i]);
    return AG_OK;
}

ag_status view_rule_unsqueeze(const ag_call *call, geometry *source, view_geometry *result, bool *is_possible) {
    (void)is_possible;
    int ndim = source->shape.ndim;
    if (ndim == AG_MAX_NDIM) return call_fail(call, AG_E_SHAPE, "x", "at most 7 dims", NULL, "8");
    int dim = call_dim(call, "dim", CALL_ATTRS(call, attrs_dim)->dim, ndim + 1);
    if (dim < 0) return AG_E_INDEX;
    result->shape.ndim = 0;
    result->offset = source->offset;
    for (int i = 0; i <= ndim; i++) {
        if (i == dim) append_dim(result, 1, i < ndim ? source->strides[i] * source->shape.dims[i] : 1);
        if (i < ndim) append_dim(result, source->shape.dims[i], source->strides[i]);
    }
    return AG_OK;
}

static void exchange_dims(view_geometry *g, int a, int b) {
    int64_t size = g->shape.dims[a], stride = g->strides[a];
    g->shape.dims[a] = g->shape.dims[b];
    g->strides[a] = g->strides[b];
    g->shape.dims[b] = size;
    g->strides[b] = stride;
}

ag_status view_rule_transpose(const ag_call *call, geometry *source, view_geometry *result, bool *is_possible) {
    (void)is_possible;
    const struct attrs_transpose *attrs = CALL_ATTRS(call, attrs_transpose);
    int ndim = source->shape.ndim;
    *result = *source;
    if (ndim < 2 && attrs->dim0 == -2 && attrs->dim1 == -1) return AG_OK;
    int dim0 = call_dim(call, "dim0", attrs->dim0, ndim), dim1 = dim0 < 0 ? -1 : call_dim(call, "dim1", attrs->dim1, ndim);
    if (dim1 < 0) return AG_E_INDEX;
    if (ndim) exchange_dims(result, dim0, dim1);
    return AG_OK;
}

ag_status view_rule_permute(const ag_call *call, geometry *source, view_geometry *result, bool *is_possible) {
    (void)is_possible;
    int_list dims = CALL_ATTRS(call, attrs_dims)->dims;
    uint32_t mask;
    if (dims.len != source->shape.ndim)
        return call_fail(call, AG_E_SHAPE, "dims", "every dim once", NULL, "%d dims for a tensor of %d",
                         dims.len < 0 ? 0 : dims.len, source->shape.ndim);
    AG_TRY(rule_reduced_dims(call, dims, source->shape.ndim, &mask));
    result->shape.ndim = 0;
    result->offset = source->offset;
    for (int i = 0; i < dims.len; i++) {
        int dim = dim_resolve(call_ints(call, dims)[i], dims.len);
        append_dim(result, source->shape.dims[dim], source->strides[dim]);
    }
    return AG_OK;
}

ag_status view_rule_movedim(const ag_call *call, geometry *source, view_geometry *result, bool *is_possible) {
    (void)is_possible;
    const struct attrs_movedim *attrs = CALL_ATTRS(call, attrs_movedim);
    int ndim = source->shape.ndim, from = call_dim(call, "source", attrs->source, ndim);
    int to = from < 0 ? -1 : call_dim(call, "destination", attrs->destination, ndim);
    if (to < 0) return AG_E_INDEX;
    *result = *source;
    for (; from < to; from++) exchange_dims(result, from, from + 1);
    for (; from > to; from--) exchange_dims(result, from, from - 1);
    return AG_OK;
}

ag_status view_rule_expand(const ag_call *call, geometry *source, view_geometry *result, bool *is_possible) {
    (void)is_possible;
    int_list list = CALL_ATTRS(call, attrs_shape)->shape;
    const shape *s = &source->shape;
    bool fits = list.len >= s->ndim && list.len <= AG_MAX_NDIM;
    result->shape.ndim = 0;
    result->offset = source->offset;
    for (int i = 0; fits && i < list.len; i++) {
        int at = i - (list.len - s->ndim);
        int64_t size = call_ints(call, list)[i], old = at >= 0 ? s->dims[at] : 1;
        if (size == -1 && at >= 0) size = old;
        fits = size >= 0 && (old == size || old == 1);
        append_dim(result, size, at < 0 || (old == 1 && size != 1) ? 0 : source->strides[at]);
    }
    if (!fits) {
        char text[96], asked_text[96];
        shape asked = {.ndim = list.len < 0 ? 0 : list.len > AG_MAX_NDIM ? AG_MAX_NDIM : list.len};
        memcpy(asked.dims, call_ints(call, list), (size_t)asked.ndim * sizeof(int64_t));
        return call_fail(call, AG_E_SHAPE, "shape", "sizes of x, larger ones only where x has 1", NULL, "%s for %s",
                         shape_text(&asked, asked_text, sizeof asked_text), shape_text(s, text, sizeof text));
    }
    return AG_OK;
}

/* Resolves a position in a dim of `size`: negative counts from the end. */
static int64_t resolve_position(int64_t position, int64_t size) { return position < 0 ? position + size : position; }

static ag_status position_error(const ag_call *call, const char *arg, int64_t position, int64_t size) {
    char expected[96];
    int base = call->index_base;
    snprintf(expected, sizeof expected, "%d to %lld, or -%lld to -1", base, (long long)(size - 1 + base), (long long)size);
    return call_fail(call, AG_E_INDEX, arg, size ? expected : "a dim that is not empty", NULL, "%lld",
                     (long long)(position >= 0 ? position + base : position));
}

ag_status view_rule_narrow(const ag_call *call, geometry *source, view_geometry *result, bool *is_possible) {
    (void)is_possible;
    const struct attrs_narrow *attrs = CALL_ATTRS(call, attrs_narrow);
    int dim = call_dim(call, "dim", attrs->dim, source->shape.ndim);
    if (dim < 0) return AG_E_INDEX;
    int64_t size = source->shape.ndim ? source->shape.dims[dim] : 0, start = resolve_position(attrs->start, size);
    if (start < 0 || start > size || (start == size && attrs->length > 0))
        return position_error(call, "start", attrs->start, size);
    if (attrs->length < 0 || attrs->length > size - start) {
        char expected[64];
        snprintf(expected, sizeof expected, "0 to %lld from there", (long long)(size - start));
        return call_fail(call, AG_E_INDEX, "length", expected, NULL, "%lld", (long long)attrs->length);
    }
    *result = *source;
    if (!source->shape.ndim) return position_error(call, "start", attrs->start, 0);
    result->shape.dims[dim] = attrs->length;
    result->offset += start * source->strides[dim];
    return AG_OK;
}

/* stop is exclusive here; a 1-based caller's inclusive stop is the same number. Out-of-range ends are cut, as in slicing
 * elsewhere. */
ag_status view_rule_slice(const ag_call *call, geometry *source, view_geometry *result, bool *is_possible) {
    (void)is_possible;
    const struct attrs_slice *attrs = CALL_ATTRS(call, attrs_slice);
    int dim = call_dim(call, "dim", attrs->dim, source->shape.ndim);
    if (dim < 0) return AG_E_INDEX;
    if (attrs->step < 1)
        return call_fail(call, AG_E_VALUE, "step", "a step >= 1", "flip() reverses a dim", "%lld", (long long)attrs->step);
    if (!source->shape.ndim) return position_error(call, "start", 0, 0);
    int64_t size = source->shape.dims[dim], start = attrs->start == ATTR_NO_INT ? 0 : resolve_position(attrs->start, size);
    int64_t stop = attrs->stop == ATTR_NO_INT ? size : attrs->stop < 0 ? attrs->stop + size + call->index_base : attrs->stop;
    start = start < 0 ? 0 : start > size ? size : start;
    stop = stop < start ? start : stop > size ? size : stop;
    *result = *source;
    result->shape.dims[dim] = (stop - start + attrs->step - 1) / attrs->step;
    result->strides[dim] *= attrs->step;
    result->offset += start * source->strides[dim];
    return AG_OK;
}

ag_status view_rule_select(const ag_call *call, geometry *source, view_geometry *result, bool *is_possible) {
    (void)is_possible;
    const struct attrs_select *attrs = CALL_ATTRS(call, attrs_select);
    int ndim = source->shape.ndim, dim = call_dim(call, "dim", attrs->dim, ndim);
    if (dim < 0) return AG_E_INDEX;
    int64_t size = ndim ? source->shape.dims[dim] : 0, index = resolve_position(attrs->index, size);
    if (index < 0 || index >= size) return position_error(call, "index", attrs->index, size);
    result->shape.ndim = 0;
    result->offset = source->offset + index * source->strides[dim];
    for (int i = 0; i < ndim; i++)
        if (i != dim) append_dim(result, source->shape.dims[i], source->strides[i]);
    return AG_OK;
}

ag_status view_rule_diagonal(const ag_call *call, geometry *source, view_geometry *result, bool *is_possible) {
    (void)is_possible;
    const struct attrs_diagonal *attrs = CALL_ATTRS(call, attrs_diagonal);
    int ndim = source->shape.ndim;
    if (ndim < 2) return rule_mismatch(call, "x", "at least 2 dims", NULL);
    int dim1 = call_dim(call, "dim1", attrs->dim1, ndim), dim2 = dim1 < 0 ? -1 : call_dim(call, "dim2", attrs->dim2, ndim);
    if (dim2 < 0) return AG_E_INDEX;
    if (dim1 == dim2) return call_fail(call, AG_E_VALUE, "dim2", "a dim other than dim1", NULL, "%d", dim2 + call->index_base);
    int64_t offset = attrs->offset, rows = source->shape.dims[dim1], columns = source->shape.dims[dim2];
    int64_t len =
        offset >= 0 ? (columns - offset < rows ? columns - offset : rows) : (rows + offset < columns ? rows + offset : columns);
    result->shape.ndim = 0;
    result->offset = source->offset;
    if (len > 0) result->offset += offset >= 0 ? offset * source->strides[dim2] : -offset * source->strides[dim1];
    for (int i = 0; i < ndim; i++)
        if (i != dim1 && i != dim2) append_dim(result, source->shape.dims[i], source->strides[i]);
    append_dim(result, len > 0 ? len : 0, source->strides[dim1] + source->strides[dim2]);
    return AG_OK;
}

ag_status view_rule_unfold(const ag_call *call, geometry *source, view_geometry *result, bool *is_possible) {
    (void)is_possible;
    const struct attrs_unfold *attrs = CALL_ATTRS(call, attrs_unfold);
    int ndim = source->shape.ndim, dim = call_dim(call, "dim", attrs->dim, ndim);
    if (dim < 0) return AG_E_INDEX;
    if (ndim == AG_MAX_NDIM || ndim == 0) return rule_mismatch(call, "x", "1 to 7 dims", NULL);
    int64_t size = source->shape.dims[dim];
    if (attrs->size < 0 || attrs->size > size)
        return call_fail(call, AG_E_VALUE, "size", "a window no longer than the dim", NULL, "%lld for %lld",
                         (long long)attrs->size, (long long)size);
    if (attrs->step < 1) return call_fail(call, AG_E_VALUE, "step", "a step >= 1", NULL, "%lld", (long long)attrs->step);
    *result = *source;
    result->shape.dims[dim] = (size - attrs->size) / attrs->step + 1;
    result->strides[dim] = source->strides[dim] * attrs->step;
    append_dim(result, attrs->size, source->strides[dim]);
    return AG_OK;
}

/* Hidden: shape, strides and offset count over a contiguous x. */
ag_status view_rule_as_strided(const ag_call *call, geometry *source, view_geometry *result, bool *is_possible) {
    (void)is_possible;
    const struct attrs_strided *attrs = CALL_ATTRS(call, attrs_strided);
    result->shape.ndim = attrs->shape.len;
    result->offset = source->offset + attrs->offset;
    for (int i = 0; i < attrs->shape.len; i++) {
        result->shape.dims[i] = call_ints(call, attrs->shape)[i];
        result->strides[i] = call_ints(call, attrs->strides)[i];
    }
    return AG_OK;
}
