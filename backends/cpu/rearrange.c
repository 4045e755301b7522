/* rearrange.c: kernels that put elements elsewhere without changing them: cat, flip, roll, pad; and strided_backward, which
 * adds the gradient of a strided view back into the shape that the view was taken of. */
#include <assert.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "cpu/cpu.h"
#include "ops/attrs.h"
#include "platform/interrupt.h"
#include "platform/pool.h"

enum { GRAIN = 32768 /* elements of a chunk that is worth another thread */ };

static ag_status finish(const ag_call *call) {
    return interrupt_pending() ? call_fail(call, AG_E_INTERRUPTED, NULL, NULL, NULL, "an interrupt") : AG_OK;
}

/* A 0-d tensor is handled as one of 1 dim. */
static shape shape_at_least_1d(const ag_tensor *tensor) {
    shape s = tensor_shape(tensor);
    if (s.ndim == 0) s = (shape){.ndim = 1, .dims = {1}};
    return s;
}

/* A copy of a contiguous tensor's elements into a contiguous one of the same dtype; dims and strides are the caller's. */
static struct strided_copy copy_of(const ag_tensor *source, const ag_tensor *target, const shape *s) {
    struct strided_copy copy = {.ndim = s->ndim, .source = tensor_address(source), .target = tensor_address(target),
                                .source_dtype = (ag_dtype)source->dtype, .target_dtype = (ag_dtype)target->dtype};
    memcpy(copy.dims, s->dims, (size_t)s->ndim * sizeof *copy.dims);
    shape_contiguous_strides(s, copy.source_strides);
    shape_contiguous_strides(s, copy.target_strides);
    return copy;
}

/* ---- cat ---- */

/* out: [outer, row]; a row holds the pieces of all inputs in turn, of input i the elements starts[i] to starts[i + 1]. */
struct cat {
    const ag_call *call;
    int64_t *starts; /* [num_inputs + 1] */
    size_t size;     /* bytes an element */
    char *out;
};

static void cat_task(void *context, int64_t begin, int64_t end) {
    const struct cat *cat = context;
    const int64_t *starts = cat->starts;
    int num_inputs = cat->call->num_inputs, low = 0, high = num_inputs;
    int64_t row_len = starts[num_inputs], row = begin / row_len, column = begin % row_len;
    if (interrupt_pending()) return;
    while (high - low > 1) { /* starts[low] <= column < starts[high] */
        int middle = (low + high) / 2;
        if (starts[middle] <= column) low = middle;
        else high = middle;
    }
    for (int i = low; begin < end;) {
        int64_t piece = starts[i + 1] - starts[i], n = starts[i + 1] - column;
        if (n > end - begin) n = end - begin;
        const char *source = tensor_address(cat->call->inputs[i]);
        if (n > 0)
            memcpy(cat->out + (size_t)begin * cat->size, source + (size_t)(row * piece + column - starts[i]) * cat->size,
                   (size_t)n * cat->size);
        begin += n;
        column += n;
        if (++i < num_inputs) continue;
        i = 0;
        column = 0;
        row++;
    }
}

ag_status cpu_cat(ag_call *call) {
    const struct attrs_dim *attrs = CALL_ATTRS(call, attrs_dim);
    ag_tensor *out = call->outputs[0];
    if (out->numel == 0) return AG_OK;
    int dim = dim_resolve(attrs->dim, out->ndim);
    int64_t inner = 1;
    for (int d = dim + 1; d < out->ndim; d++) inner *= out->dims[d];
    struct cat cat = {.call = call, .size = dtype_size((ag_dtype)out->dtype), .out = tensor_address(out)};
    size_t starts_bytes = (size_t)(call->num_inputs + 1) * sizeof *cat.starts;
    cat.starts = heap_alloc(starts_bytes);
    if (!cat.starts) return error_memory(call->op->name, starts_bytes);
    cat.starts[0] = 0;
    for (int i = 0; i < call->num_inputs; i++) cat.starts[i + 1] = cat.starts[i] + call->inputs[i]->dims[dim] * inner;
    pool_run(cat_task, &cat, out->numel, GRAIN);
    heap_free(cat.starts);
    return finish(call);
}

/* ---- flip and roll ---- */

ag_status cpu_flip(ag_call *call) {
    const struct attrs_dims *attrs = CALL_ATTRS(call, attrs_dims);
    ag_tensor *x = call->inputs[0];
    shape s = shape_at_least_1d(x);
    struct strided_copy copy = copy_of(x, call->outputs[0], &s);
    const int64_t *dims = call_ints(call, attrs->dims);
    int64_t first = 0; /* the element of x that comes out first */
    for (int i = 0; i < attrs->dims.len; i++) {
        int dim = call_dim(call, "dims", dims[i], x->ndim);
        if (dim < 0) return AG_E_INDEX;
        if (copy.source_strides[dim] < 0)
            return call_fail(call, AG_E_VALUE, "dims", "each dim once", NULL, "dim %d twice", dim + call->index_base);
        first += (s.dims[dim] - 1) * copy.source_strides[dim];
        copy.source_strides[dim] = -copy.source_strides[dim];
    }
    if (x->numel == 0) return AG_OK;
    copy.source = (const char *)copy.source + first * (int64_t)dtype_size((ag_dtype)x->dtype);
    cpu_strided_copy(&copy);
    return finish(call);
}

/* roll_box copies one of the boxes that x falls into: bit d of `wraps` says whether dim d's part is the one that leaves at the
 * end and comes in at the front. */
static void roll_box(const struct strided_copy *whole, const int64_t *shifts, uint32_t wraps) {
    struct strided_copy box = *whole;
    int64_t source = 0, target = 0, size = (int64_t)dtype_size(whole->source_dtype);
    for (int d = 0; d < whole->ndim; d++) {
        int64_t kept = whole->dims[d] - shifts[d];
        bool is_wrapped = wraps >> d & 1;
        box.dims[d] = is_wrapped ? shifts[d] : kept;
        if (is_wrapped) source += kept * whole->source_strides[d];
        else target += shifts[d] * whole->target_strides[d];
    }
    box.source = (const char *)whole->source + source * size;
    box.target = (char *)whole->target + target * size;
    cpu_strided_copy(&box);
}

ag_status cpu_roll(ag_call *call) {
    const struct attrs_roll *attrs = CALL_ATTRS(call, attrs_roll);
    ag_tensor *x = call->inputs[0];
    bool is_flat = attrs->dims.len < 0;
    shape s = is_flat ? (shape){.ndim = 1, .dims = {x->numel}} : shape_at_least_1d(x);
    if (attrs->shifts.len != (is_flat ? 1 : attrs->dims.len))
        return call_fail(call, AG_E_ARGUMENT, "shifts", is_flat ? "one number, or dims" : "one number for each of dims", NULL,
                         "%d", attrs->shifts.len < 0 ? 0 : attrs->shifts.len);
    int64_t shifts[AG_MAX_NDIM] = {0}; /* to the end, 0 <= shift < size; of a dim named twice: the sum */
    uint32_t shifted = 0;
    for (int i = 0; i < attrs->shifts.len; i++) {
        int dim = is_flat ? 0 : call_dim(call, "dims", call_ints(call, attrs->dims)[i], x->ndim);
        if (dim < 0) return AG_E_INDEX;
        if (s.dims[dim] == 0) continue;
        int64_t shift = call_ints(call, attrs->shifts)[i] % s.dims[dim];
        if (shift < 0) shift += s.dims[dim];
        shifts[dim] = shift >= s.dims[dim] - shifts[dim] ? shift - (s.dims[dim] - shifts[dim]) : shift + shifts[dim];
    }
    if (x->numel == 0) return AG_OK;
    for (int d = 0; d < s.ndim; d++)
        if (shifts[d]) shifted |= 1u << d;
    struct strided_copy copy = copy_of(x, call->outputs[0], &s);
    for (uint32_t wraps = shifted;; wraps = (wraps - 1) & shifted) { /* all subsets of the shifted dims */
        roll_box(&copy, shifts, wraps);
        if (wraps == 0 || interrupt_pending()) break;
    }
    return finish(call);
}

/* ---- pad ---- */

struct pad {
    int ndim;                                         /* at least 1 */
    int64_t in[AG_MAX_NDIM], out[AG_MAX_NDIM];        /* sizes of x and of the result */
    int64_t before[AG_MAX_NDIM];                      /* negative where positions are cut off */
    int64_t strides[AG_MAX_NDIM];                     /* of x */
    int64_t mode;                                     /* PAD_CONSTANT ... */
    size_t size; /* bytes an element */
    unsigned char value[8];
    const char *x;
    char *y;
};

/* pad_source maps position c of dim d of the result to one of x; -1 where the value goes. */
static inline int64_t pad_source(const struct pad *pad, int d, int64_t c) {
    int64_t at = c - pad->before[d], size = pad->in[d];
    if (at >= 0 && at < size) return at;
    switch (pad->mode) {
    case PAD_REFLECT: return at < 0 ? -at : 2 * (size - 1) - at;
    case PAD_REPLICATE: return at < 0 ? 0 : size - 1;
    default: return -1;
    }
}

static inline void copy_element(char *dst, const void *src, size_t size) {
    switch (size) {
    case 1: memcpy(dst, src, 1); return;
    case 2: memcpy(dst, src, 2); return;
    case 4: memcpy(dst, src, 4); return;
    default: memcpy(dst, src, 8);
    }
}

/* pad_edge writes positions [begin, end) of a row where they lie outside of x; row: x's, NULL when all of it is outside. */
static void pad_edge(const struct pad *pad, const char *row, char *y, int64_t begin, int64_t end) {
    int last = pad->ndim - 1;
    for (int64_t c = begin; c < end; c++) {
        int64_t at = row ? pad_source(pad, last, c) : -1;
        copy_element(y + (size_t)c * pad->size, at < 0 ? (const void *)pad->value : row + (size_t)at * pad->size, pad->size);
    }
}

/* pad_row writes positions [begin, end) of one row of the last dim: an edge, a run of x, an edge. */
static void pad_row(const struct pad *pad, const char *row, char *y, int64_t begin, int64_t end) {
    int last = pad->ndim - 1;
    int64_t from = pad->before[last], to = from + pad->in[last];
    if (from < begin) from = begin;
    if (to > end) to = end;
    if (!row || from >= to) {
        pad_edge(pad, row, y, begin, end);
        return;
    }
    pad_edge(pad, row, y, begin, from);
    memcpy(y + (size_t)from * pad->size, row + (size_t)(from - pad->before[last]) * pad->size, (size_t)(to - from) * pad->size);
    pad_edge(pad, row, y, to, end);
}

static void pad_task(void *context, int64_t begin, int64_t end) {
    const struct pad *pad = context;
    int last = pad->ndim - 1;
    int64_t len = pad->out[last], row = begin / len, column = begin % len, coords[AG_MAX_NDIM];
    if (interrupt_pending()) return;
    for (int d = last - 1; d >= 0; d--) {
        coords[d] = row % pad->out[d];
        row /= pad->out[d];
    }
    for (int64_t i = begin; i < end;) {
        int64_t n = len - column < end - i ? len - column : end - i, offset = 0;
        bool is_outside = false;
        for (int d = 0; d < last; d++) {
            int64_t at = pad_source(pad, d, coords[d]);
            is_outside |= at < 0;
            offset += at * pad->strides[d];
        }
        pad_row(pad, is_outside ? NULL : pad->x + offset * (int64_t)pad->size, pad->y + (size_t)(i - column) * pad->size,
                column, column + n);
        i += n;
        column = 0;
        for (int d = last - 1; d >= 0 && ++coords[d] == pad->out[d]; d--) coords[d] = 0;
    }
}

/* pad_init merges a dim that is not padded with the one before it: its positions are a run of both x and the result.
 * Reflection and replication go by positions of the padded dim, so there the one before must not be padded either. */
static void pad_init(struct pad *pad, const ag_tensor *x, const ag_tensor *out, const int64_t *padding, int len) {
    for (int d = 0; d < x->ndim; d++) {
        int pair = x->ndim - 1 - d, merged = pad->ndim - 1;
        bool is_padded = pair < len / 2 && (padding[2 * pair] || padding[2 * pair + 1]);
        if (merged >= 0 && !is_padded && (pad->mode == PAD_CONSTANT || pad->in[merged] == pad->out[merged])) {
            pad->in[merged] *= x->dims[d];
            pad->out[merged] *= x->dims[d];
            pad->before[merged] *= x->dims[d];
        } else {
            merged = pad->ndim++;
            pad->in[merged] = x->dims[d];
            pad->out[merged] = out->dims[d];
            pad->before[merged] = is_padded ? padding[2 * pair] : 0;
        }
    }
    if (pad->ndim == 0) {
        pad->in[0] = pad->out[0] = 1;
        pad->ndim = 1;
    }
    int64_t stride = 1;
    for (int d = pad->ndim - 1; d >= 0; d--) {
        pad->strides[d] = stride;
        stride *= pad->in[d];
    }
}

ag_status cpu_pad(ag_call *call) {
    const struct attrs_pad *attrs = CALL_ATTRS(call, attrs_pad);
    ag_tensor *x = call->inputs[0], *out = call->outputs[0];
    if (out->numel == 0) return AG_OK;
    struct pad pad = {.mode = attrs->mode, .size = dtype_size((ag_dtype)x->dtype), .x = tensor_address(x),
                      .y = tensor_address(out)};
    element_write((ag_dtype)out->dtype, pad.value, attrs->value);
    pad_init(&pad, x, out, call_ints(call, attrs->padding), attrs->padding.len);
    pool_run(pad_task, &pad, out->numel, GRAIN);
    return finish(call);
}

/* ---- strided_backward ---- */

/* The dims of g by falling stride in the output. The first num_free of them keep their slices apart: different coordinates
 * there never meet in one element of the output, so the slices may be added in parallel. */
struct strided_add {
    int ndim, num_free;
    int64_t dims[AG_MAX_NDIM], out_strides[AG_MAX_NDIM], g_strides[AG_MAX_NDIM];
    ag_dtype dtype;
    const char *g;
    char *out; /* at the view's offset */
    int64_t slice; /* elements of g in a slice */
};

static int64_t magnitude(int64_t stride) { return stride < 0 ? -stride : stride; }

static void strided_add_init(struct strided_add *a, const ag_tensor *g, const int64_t *strides) {
    shape s = tensor_shape(g);
    int64_t g_strides[AG_MAX_NDIM], reach = 0; /* reach: how far the dims from d on go */
    shape_contiguous_strides(&s, g_strides);
    for (int d = 0; d < s.ndim; d++) {
        if (s.dims[d] == 1) continue;
        int at = a->ndim++;
        for (; at > 0 && magnitude(a->out_strides[at - 1]) < magnitude(strides[d]); at--) {
            a->dims[at] = a->dims[at - 1];
            a->out_strides[at] = a->out_strides[at - 1];
            a->g_strides[at] = a->g_strides[at - 1];
        }
        a->dims[at] = s.dims[d];
        a->out_strides[at] = strides[d];
        a->g_strides[at] = g_strides[d];
    }
    a->num_free = a->ndim; /* comes down to the first dim that is not free */
    a->slice = 1;
    for (int d = a->ndim - 1; d >= 0; d--) {
        if (magnitude(a->out_strides[d]) <= reach) a->num_free = d;
        reach += (a->dims[d] - 1) * magnitude(a->out_strides[d]);
    }
    for (int d = a->num_free; d < a->ndim; d++) a->slice *= a->dims[d];
    if (a->ndim == 0) a->dims[a->ndim++] = 1, a->num_free = 1;
}

/* Ints are added as unsigned: they wrap. */
#define ADD_ROW(type, expression)                                     \
    do {                                                              \
        const type *src = (const type *)(const void *)a->g + g;       \
        type *dst = (type *)(void *)a->out + out;                     \
        for (int64_t j = 0; j < n; j++) {                             \
            type old = dst[j * out_stride], more = src[j * g_stride]; \
            dst[j * out_stride] = (type)(expression);                 \
        }                                                             \
    } while (0)

/* add_row adds the last dim's run; g and out: offsets in elements. */
static void add_row(const struct strided_add *a, int64_t g, int64_t out) {
    int last = a->ndim - 1;
    int64_t n = a->dims[last], out_stride = a->out_strides[last], g_stride = a->g_strides[last];
    switch (a->dtype) {
    case AG_F64: ADD_ROW(double, old + more); return;
    case AG_F32: ADD_ROW(float, old + more); return;
    case AG_I64: ADD_ROW(uint64_t, old + more); return;
    case AG_I32: ADD_ROW(uint32_t, old + more); return;
    case AG_I16: ADD_ROW(uint16_t, old + more); return;
    case AG_I8: case AG_U8: ADD_ROW(uint8_t, old + more); return;
    case AG_BOOL: ADD_ROW(uint8_t, old | more); return;
    default: assert(!"strided_backward: the engine runs half dtypes in f32");
    }
}

static void strided_add_task(void *context, int64_t begin, int64_t end) {
    const struct strided_add *a = context;
    int last = a->ndim - 1;
    for (int64_t i = begin; i < end && !interrupt_pending(); i++) {
        int64_t rest = i, g = 0, out = 0, coords[AG_MAX_NDIM] = {0};
        for (int d = a->num_free - 1; d >= 0; d--) {
            g += rest % a->dims[d] * a->g_strides[d];
            out += rest % a->dims[d] * a->out_strides[d];
            rest /= a->dims[d];
        }
        for (int64_t row = 0, rows = a->slice / a->dims[last]; row < rows && !interrupt_pending(); row++) {
            add_row(a, g, out);
            int d = last - 1;
            for (; d >= a->num_free; d--) {
                g += a->g_strides[d];
                out += a->out_strides[d];
                if (++coords[d] < a->dims[d]) break;
                g -= coords[d] * a->g_strides[d];
                out -= coords[d] * a->out_strides[d];
                coords[d] = 0;
            }
        }
    }
}

static void zero_task(void *context, int64_t begin, int64_t end) { memset((char *)context + begin, 0, (size_t)(end - begin)); }

/* out = 0; out[offset + sum_d i_d * strides[d]] += g[i] for every i. */
ag_status cpu_strided_backward(ag_call *call) {
    const struct attrs_strided *attrs = CALL_ATTRS(call, attrs_strided);
    ag_tensor *g = call->inputs[0], *out = call->outputs[0];
    int64_t size = (int64_t)dtype_size((ag_dtype)g->dtype);
    assert(attrs->strides.len == g->ndim);
    pool_run(zero_task, tensor_address(out), out->numel * size, GRAIN * 4);
    if (g->numel == 0) return finish(call);
    struct strided_add a = {.dtype = (ag_dtype)g->dtype, .g = tensor_address(g),
                            .out = (char *)tensor_address(out) + attrs->offset * size};
    strided_add_init(&a, g, call_ints(call, attrs->strides));
    if (a.num_free == a.ndim) { /* no two elements meet */
        struct strided_copy copy = {.ndim = a.ndim, .source = a.g, .target = a.out, .source_dtype = a.dtype,
                                    .target_dtype = a.dtype};
        memcpy(copy.dims, a.dims, sizeof copy.dims);
        memcpy(copy.source_strides, a.g_strides, sizeof copy.source_strides);
        memcpy(copy.target_strides, a.out_strides, sizeof copy.target_strides);
        cpu_strided_copy(&copy);
    } else {
        pool_run(strided_add_task, &a, g->numel / a.slice, a.slice < GRAIN ? GRAIN / a.slice : 1);
    }
    return finish(call);
}
