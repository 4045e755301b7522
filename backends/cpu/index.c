/* index.c: kernels that read or write at positions held in a tensor: gather, scatter, index_select, index_add and relatives.
 *
 * Positions are checked before anything is written. Negative ones count from the end, whatever the index base. Where several
 * elements go to one place, they do so in the order of the index: only slices that never meet are handled in parallel, so that
 * sums come out the same on any number of threads and the last write wins.
 */
#include <assert.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "core/error.h"
#include "cpu/cpu.h"
#include "ops/attrs.h"
#include "platform/interrupt.h"
#include "platform/pool.h"

enum {
    GRAIN = 32768,     /* elements of a chunk that is worth another thread */
    LANES_MIN = 64,    /* lanes side by side in a chunk: whole cache lines, and some for the prefetcher; */
    LANES_MAX = 1024,  /* more would leave too few chunks to balance */
};

static ag_status finish(const ag_call *call) {
    return interrupt_pending() ? call_fail(call, AG_E_INTERRUPTED, NULL, NULL, NULL, "an interrupt") : AG_OK;
}

/* ---- positions ---- */

/* resolve maps a position to 0..size-1; anything else comes out as a number >= size when read as unsigned. */
static inline int64_t resolve(int64_t position, int64_t size, int64_t base) {
    return position < 0 ? position + size : position - base;
}

struct check {
    const int64_t *index;
    int64_t size, base;
    _Atomic int64_t first_bad; /* INT64_MAX: none */
};

static void check_task(void *context, int64_t begin, int64_t end) {
    struct check *c = context;
    enum { BLOCK = 256 };
    int64_t size = c->size, base = c->base;
    for (int64_t i = begin; i < end; i += BLOCK) {
        int64_t stop = i + BLOCK < end ? i + BLOCK : end;
        int is_bad = 0;
        for (int64_t j = i; j < stop; j++) is_bad |= (uint64_t)resolve(c->index[j], size, base) >= (uint64_t)size;
        for (int64_t j = i; is_bad && j < stop; j++) {
            if ((uint64_t)resolve(c->index[j], size, base) < (uint64_t)size) continue;
            int64_t known = atomic_load(&c->first_bad);
            while (j < known && !atomic_compare_exchange_weak(&c->first_bad, &known, j)) {}
            return;
        }
    }
}

/* check_index refuses a position outside of size elements; the error names the first such one and its place. */
static ag_status check_index(const ag_call *call, const ag_tensor *index, int64_t size) {
    struct check c = {.index = tensor_address(index), .size = size, .base = call->index_base, .first_bad = INT64_MAX};
    pool_run(check_task, &c, index->numel, GRAIN);
    int64_t bad = atomic_load(&c.first_bad);
    if (bad == INT64_MAX) return AG_OK;
    char expected[96], place[192];
    if (size == 0) snprintf(expected, sizeof expected, "no positions: there are no elements");
    else
        snprintf(expected, sizeof expected, "%lld to %lld, or -%lld to -1", (long long)c.base, (long long)(size - 1 + c.base),
                 (long long)size);
    long long got = c.index[bad];
    if (index->ndim <= 1)
        return call_fail(call, AG_E_INDEX, "index", expected, NULL, "%lld at element %lld", got, (long long)(bad + c.base));
    shape coords = {.ndim = index->ndim};
    for (int d = index->ndim - 1; d >= 0; d--) {
        coords.dims[d] = bad % index->dims[d] + c.base;
        bad /= index->dims[d];
    }
    return call_fail(call, AG_E_INDEX, "index", expected, NULL, "%lld at element %s", got,
                     shape_text(&coords, place, sizeof place));
}

/* ---- walking several tensors ---- */

enum { INDEX, DATA, SOURCE, NUM_TENSORS };

/* The dims of the index, with each tensor's strides. DATA is the tensor with the positions: x of gather, the result of the
 * others; its stride along `dim` is for the position, not for the index's coordinate. SOURCE is what is written to DATA. */
struct walk {
    int ndim, dim; /* ndim >= 1 */
    int64_t dims[AG_MAX_NDIM];
    int64_t strides[NUM_TENSORS][AG_MAX_NDIM];
};

/* walk_init reads the tensors' shapes; dims next to each other that all tensors have whole are merged. source NULL = index. */
static void walk_init(struct walk *w, const ag_tensor *index, const ag_tensor *data, const ag_tensor *source, int dim) {
    const ag_tensor *tensors[NUM_TENSORS] = {index, data, source ? source : index};
    int64_t sizes[NUM_TENSORS][AG_MAX_NDIM];
    *w = (struct walk){.dim = 0};
    for (int d = 0; d < index->ndim; d++) {
        int last = w->ndim - 1;
        bool is_whole = last >= 0 && d != dim && d - 1 != dim;
        for (int t = 0; t < NUM_TENSORS; t++) is_whole = is_whole && tensors[t]->dims[d] == index->dims[d];
        if (!is_whole) last = w->ndim++;
        if (d == dim) w->dim = last;
        w->dims[last] = is_whole ? w->dims[last] * index->dims[d] : index->dims[d];
        for (int t = 0; t < NUM_TENSORS; t++)
            sizes[t][last] = is_whole ? sizes[t][last] * tensors[t]->dims[d] : tensors[t]->dims[d];
    }
    if (w->ndim == 0) {
        w->ndim = 1;
        w->dims[0] = sizes[INDEX][0] = sizes[DATA][0] = sizes[SOURCE][0] = 1;
    }
    for (int t = 0; t < NUM_TENSORS; t++) {
        int64_t stride = 1;
        for (int d = w->ndim - 1; d >= 0; d--) {
            w->strides[t][d] = stride;
            stride *= sizes[t][d];
        }
    }
}

/* walk_offset is the offset in tensor t of row number `row`, counted over the first num_dims dims, w->dim left out of the
 * count if skip_dim. */
static int64_t walk_offset(const struct walk *w, int t, int num_dims, int64_t row, bool skip_dim) {
    int64_t offset = 0;
    for (int d = num_dims - 1; d >= 0; d--) {
        if (d == w->dim && skip_dim) continue;
        int64_t coordinate = d == 0 ? row : row % w->dims[d];
        if (d != w->dim || t != DATA) offset += coordinate * w->strides[t][d];
        if (d) row /= w->dims[d];
    }
    return offset;
}

/* ---- gather ---- */

struct gather {
    struct walk walk;
    const int64_t *index;
    const char *x;
    char *out;
    int64_t size, base; /* of the dim indexed */
    size_t element_size;
};

#define GATHER_RUN(type)                                                             \
    do {                                                                             \
        const type *src = (const type *)(const void *)g->x + offset;                 \
        type *restrict dst = (type *)(void *)g->out + i;                             \
        for (int64_t j = 0; j < n; j++, src += step)                                 \
            dst[j] = src[resolve(index[j], size, base) * stride];                    \
    } while (0)

/* out and index are walked flat, a row of the last dim (or a part) at a time. */
static void gather_task(void *context, int64_t begin, int64_t end) {
    const struct gather *g = context;
    const struct walk *w = &g->walk;
    int last = w->ndim - 1;
    int64_t len = w->dims[last], stride = w->strides[DATA][w->dim], step = w->dim == last ? 0 : 1;
    int64_t size = g->size, base = g->base, n;
    if (interrupt_pending()) return;
    for (int64_t i = begin; i < end; i += n) {
        int64_t column = i % len, offset = walk_offset(w, DATA, last, i / len, false) + column * step;
        const int64_t *restrict index = g->index + i;
        n = len - column < end - i ? len - column : end - i;
        switch (g->element_size) {
        case 1: GATHER_RUN(uint8_t); break;
        case 2: GATHER_RUN(uint16_t); break;
        case 4: GATHER_RUN(uint32_t); break;
        default: GATHER_RUN(uint64_t);
        }
    }
}

/* out[.., i, ..] = x[.., index[.., i, ..], ..]    index, out: the same shape */
ag_status cpu_gather(ag_call *call) {
    const struct attrs_dim *attrs = CALL_ATTRS(call, attrs_dim);
    const ag_tensor *x = call->inputs[0], *index = call->inputs[1];
    int dim = dim_resolve(attrs->dim, x->ndim);
    struct gather g = {.index = tensor_address(index), .x = tensor_address(x), .out = tensor_address(call->outputs[0]),
                       .size = x->ndim ? x->dims[dim] : 1, .base = call->index_base,
                       .element_size = dtype_size((ag_dtype)x->dtype)};
    AG_TRY(check_index(call, index, g.size));
    walk_init(&g.walk, index, x, NULL, dim);
    pool_run(gather_task, &g, index->numel, GRAIN);
    return finish(call);
}

/* ---- index_select ---- */

struct select_rows {
    const int64_t *index; /* [count] */
    const char *x;        /* [outer, size, row_bytes] */
    char *out;            /* [outer, count, row_bytes] */
    int64_t count, size, base;
    size_t row_bytes;
};

#define SELECT_ELEMENTS(type)                                                              \
    do {                                                                                   \
        const type *src = (const type *)(const void *)x;                                   \
        type *dst = (type *)(void *)out;                                                   \
        for (int64_t k = 0; k < n; k++) dst[k] = src[resolve(index[k], s->size, s->base)]; \
    } while (0)

static void select_task(void *context, int64_t begin, int64_t end) {
    const struct select_rows *s = context;
    if (interrupt_pending()) return;
    while (begin < end) { /* the rows of one outer part */
        int64_t outer = begin / s->count, k_begin = begin % s->count, n = s->count - k_begin;
        if (n > end - begin) n = end - begin;
        const int64_t *index = s->index + k_begin;
        const char *x = s->x + (size_t)(outer * s->size) * s->row_bytes;
        char *out = s->out + (size_t)begin * s->row_bytes;
        switch (s->row_bytes) {
        case 1: SELECT_ELEMENTS(uint8_t); break;
        case 2: SELECT_ELEMENTS(uint16_t); break;
        case 4: SELECT_ELEMENTS(uint32_t); break;
        case 8: SELECT_ELEMENTS(uint64_t); break;
        default:
            for (int64_t k = 0; k < n; k++) {
                size_t row = (size_t)resolve(index[k], s->size, s->base);
                memcpy(out + (size_t)k * s->row_bytes, x + row * s->row_bytes, s->row_bytes);
            }
        }
        begin += n;
    }
}

/* out[o, k, :] = x[o, index[k], :] */
ag_status cpu_index_select(ag_call *call) {
    const struct attrs_dim *attrs = CALL_ATTRS(call, attrs_dim);
    const ag_tensor *x = call->inputs[0], *index = call->inputs[1];
    int dim = dim_resolve(attrs->dim, x->ndim);
    int64_t outer = 1, inner = 1;
    for (int d = 0; d < dim; d++) outer *= x->dims[d];
    for (int d = dim + 1; d < x->ndim; d++) inner *= x->dims[d];
    struct select_rows s = {.index = tensor_address(index), .x = tensor_address(x), .out = tensor_address(call->outputs[0]),
                            .count = index->numel, .size = x->dims[dim], .base = call->index_base,
                            .row_bytes = (size_t)inner * dtype_size((ag_dtype)x->dtype)};
    AG_TRY(check_index(call, index, s.size));
    if (call->outputs[0]->numel) pool_run(select_task, &s, outer * s.count, inner < GRAIN ? GRAIN / inner : 1);
    return finish(call);
}

/* ---- writing: scatter, scatter_add, index_add, index_copy, index_put ---- */

struct writer;
/* Writes or adds src[k * src_stride + j] to data[position(index[k * index_stride + j * index_step]) * data_stride + j], for k
 * in [0, count) and j in [0, n). The pointers are those of k = 0 and the first j. */
typedef void (*write_fn)(const struct writer *w, const int64_t *index, char *data, const char *src, int64_t count,
                         int64_t n);

/* A lane is one coordinate of all dims but walk.dim; two lanes never meet. Lanes that differ in the last dim only lie side by
 * side and are written together, one position of walk.dim after the other. */
struct writer {
    struct walk walk;
    const int64_t *index;
    char *data;
    const char *src;
    write_fn write;
    int64_t size, base;   /* of the dim indexed */
    int64_t index_step;   /* along the last dim; 0: lanes side by side share their positions */
    int64_t index_stride, data_stride, src_stride; /* along walk.dim */
    double alpha;         /* factor of what is added */
    size_t element_size;
};

/* Where lanes share a position, it is looked up once and the inner loop has unit strides. */
#define WRITER(name, type, factor, expression)                                                                 \
    static void name(const struct writer *w, const int64_t *index, char *data, const char *src, int64_t count, \
                     int64_t n) {                                                                              \
        type *y = (type *)(void *)data;                                                                        \
        const type *x = (const type *)(const void *)src;                                                       \
        const type alpha = (factor);                                                                           \
        int64_t size = w->size, base = w->base, data_stride = w->data_stride, is_shared = w->index_step == 0;  \
        (void)alpha;                                                                                           \
        for (int64_t k = 0; k < count; k++, index += w->index_stride, x += w->src_stride) {                    \
            type *restrict row = y + (is_shared ? resolve(*index, size, base) * data_stride : 0);              \
            for (int64_t j = 0; is_shared && j < n; j++) {                                                     \
                const type old = row[j], value = x[j];                                                         \
                (void)old;                                                                                     \
                row[j] = (type)(expression);                                                                   \
            }                                                                                                  \
            for (int64_t j = 0; !is_shared && j < n; j++) {                                                    \
                int64_t at = resolve(index[j], size, base) * data_stride + j;                                  \
                const type old = y[at], value = x[j];                                                          \
                (void)old;                                                                                     \
                y[at] = (type)(expression);                                                                    \
            }                                                                                                  \
        }                                                                                                      \
    }

WRITER(write_1, uint8_t, 0, value)
WRITER(write_2, uint16_t, 0, value)
WRITER(write_4, uint32_t, 0, value)
WRITER(write_8, uint64_t, 0, value)
WRITER(add_f64, double, w->alpha, old + alpha * value)
WRITER(add_f32, float, (float)w->alpha, old + alpha * value)
/* Ints are added as unsigned: they wrap. */
WRITER(add_64, uint64_t, (uint64_t)(int64_t)w->alpha, old + alpha * value)
WRITER(add_32, uint32_t, (uint32_t)(int64_t)w->alpha, old + alpha * value)
WRITER(add_16, uint16_t, (uint16_t)(int64_t)w->alpha, old + (uint32_t)alpha * value)
WRITER(add_8, uint8_t, (uint8_t)(int64_t)w->alpha, old + alpha * value)
WRITER(add_bool, uint8_t, 0, old | value)

static write_fn writer_of(ag_dtype dtype, bool is_adding) {
    static const write_fn movers[9] = {[1] = write_1, [2] = write_2, [4] = write_4, [8] = write_8}; /* by bytes an element */
    static const write_fn adders[AG_DTYPE_COUNT] = {
        [AG_F64] = add_f64, [AG_F32] = add_f32, [AG_I64] = add_64, [AG_I32] = add_32,
        [AG_I16] = add_16,  [AG_I8] = add_8,    [AG_U8] = add_8,   [AG_BOOL] = add_bool,
    };
    write_fn write = is_adding ? adders[dtype] : movers[dtype_size(dtype)];
    assert(write && "the engine adds half dtypes in f32");
    return write;
}

/* write_pieces is w->write over long lanes, with a look at the interrupt flag now and then. */
static void write_pieces(const struct writer *w, const int64_t *index, char *data, const char *src, int64_t count,
                         int64_t n) {
    for (int64_t k = 0; k < count && !interrupt_pending(); k += GRAIN) {
        int64_t piece = count - k < GRAIN ? count - k : GRAIN;
        w->write(w, index + k * w->index_stride, data, src + k * w->src_stride * (int64_t)w->element_size, piece, n);
    }
}

static void write_task(void *context, int64_t begin, int64_t end) {
    const struct writer *w = context;
    int last = w->walk.ndim - 1;
    int64_t side = w->walk.dim == last ? 1 : w->walk.dims[last]; /* lanes side by side */
    while (begin < end) {
        int64_t unit = begin / side, column = begin % side, n = side - column;
        if (n > end - begin) n = end - begin;
        int64_t index = walk_offset(&w->walk, INDEX, last, unit, true) + column * w->index_step;
        int64_t data = walk_offset(&w->walk, DATA, last, unit, true) + column;
        int64_t src = walk_offset(&w->walk, SOURCE, last, unit, true) + column;
        write_pieces(w, w->index + index, w->data + (size_t)data * w->element_size, w->src + (size_t)src * w->element_size,
                     w->walk.dims[w->walk.dim], n);
        begin += n;
    }
}

static void write_lanes(struct writer *w) {
    int dim = w->walk.dim, last = w->walk.ndim - 1;
    int64_t count = w->walk.dims[dim], lanes = 1;
    for (int d = 0; d <= last; d++) lanes *= d == dim ? 1 : w->walk.dims[d];
    if (count == 0 || lanes == 0) return;
    w->index_stride = w->walk.strides[INDEX][dim];
    w->data_stride = w->walk.strides[DATA][dim];
    w->src_stride = w->walk.strides[SOURCE][dim];
    int64_t grain = count < GRAIN ? GRAIN / count : 1;
    if (dim != last) {
        /* Wide runs are read faster. No lane's result depends on its chunk, so the number of threads may decide here. */
        int64_t wide = lanes / (2 * pool_num_threads());
        wide = wide < LANES_MIN ? LANES_MIN : wide > LANES_MAX ? LANES_MAX : wide;
        if (grain < wide) grain = wide;
    }
    pool_run(write_task, w, lanes, grain);
}

struct duplicate {
    const char *src;
    char *dst;
};

static void duplicate_task(void *context, int64_t begin, int64_t end) {
    const struct duplicate *d = context;
    memcpy(d->dst + begin, d->src + begin, (size_t)(end - begin));
}

/* writer_init checks the positions and starts the result as a copy of x. */
static ag_status writer_init(struct writer *w, ag_call *call, int64_t size, bool is_adding) {
    const ag_tensor *x = call->inputs[0], *index = call->inputs[1], *src = call->inputs[2];
    ag_tensor *out = call->outputs[0];
    AG_TRY(check_index(call, index, size));
    *w = (struct writer){.index = tensor_address(index), .data = tensor_address(out), .src = tensor_address(src),
                         .write = writer_of((ag_dtype)out->dtype, is_adding), .size = size, .base = call->index_base,
                         .alpha = 1, .element_size = dtype_size((ag_dtype)out->dtype)};
    struct duplicate duplicate = {.src = tensor_address(x), .dst = w->data};
    pool_run(duplicate_task, &duplicate, x->numel * (int64_t)w->element_size, GRAIN * 4);
    return AG_OK;
}

/* out = x; out[.., index[.., i, ..], ..] = or += src[.., i, ..]    index is no larger than src, nor than x but along dim */
ag_status cpu_scatter(ag_call *call) {
    const struct attrs_dim *attrs = CALL_ATTRS(call, attrs_dim);
    const ag_tensor *x = call->inputs[0];
    int dim = dim_resolve(attrs->dim, x->ndim);
    struct writer w;
    AG_TRY(writer_init(&w, call, x->ndim ? x->dims[dim] : 1, call->op->id == OP_scatter_add));
    walk_init(&w.walk, call->inputs[1], call->outputs[0], call->inputs[2], dim);
    w.index_step = 1;
    write_lanes(&w);
    return finish(call);
}

static bool is_whole(double value) { return value == trunc(value) && fabs(value) < 0x1p63; }

/* out = x; out[o, index[k], :] = or += alpha * source[o, k, :]    x: [outer, size, inner], source: [outer, count, inner] */
ag_status cpu_index_add(ag_call *call) {
    const struct attrs_index_add *attrs = CALL_ATTRS(call, attrs_index_add);
    const ag_tensor *x = call->inputs[0];
    int dim = dim_resolve(attrs->dim, x->ndim);
    bool is_adding = call->op->id == OP_index_add; /* index_copy has no alpha */
    if (is_adding && !dtype_is_float((ag_dtype)x->dtype) && !is_whole(attrs->alpha))
        return call_fail(call, AG_E_VALUE, "alpha", "a whole number for int tensors", "convert: t:to(\"f32\")", "%g",
                         attrs->alpha);
    int64_t outer = 1, inner = 1, size = x->dims[dim], count = call->inputs[1]->numel;
    for (int d = 0; d < dim; d++) outer *= x->dims[d];
    for (int d = dim + 1; d < x->ndim; d++) inner *= x->dims[d];
    struct writer w;
    AG_TRY(writer_init(&w, call, size, is_adding));
    if (is_adding) w.alpha = attrs->alpha;
    w.walk = (struct walk){.ndim = inner == 1 ? 2 : 3, .dim = 1, .dims = {outer, count, inner}};
    w.walk.strides[INDEX][1] = 1;
    w.walk.strides[DATA][0] = size * inner;
    w.walk.strides[SOURCE][0] = count * inner;
    w.walk.strides[DATA][1] = w.walk.strides[SOURCE][1] = inner;
    w.walk.strides[DATA][2] = w.walk.strides[SOURCE][2] = 1;
    write_lanes(&w);
    return finish(call);
}

/* out = x; flat(out)[index[i]] = or += values[i], values broadcast to the index's shape */
ag_status cpu_index_put(ag_call *call) {
    const struct attrs_flag *attrs = CALL_ATTRS(call, attrs_flag);
    const ag_tensor *x = call->inputs[0], *index = call->inputs[1], *values = call->inputs[2];
    struct writer w;
    AG_TRY(writer_init(&w, call, x->numel, attrs->flag != 0));
    if (index->numel == 0) return finish(call);
    w.index_stride = w.data_stride = 1;
    /* Rows of the index whose values lie in one piece, or are a single one: trailing dims that values has whole, or has not. */
    int lead = index->ndim - values->ndim, outer_dims = index->ndim;
    int64_t row_len = 1, run = 1;
    for (int d = index->ndim - 1; d >= 0; d--) {
        int64_t size = d < lead ? 1 : values->dims[d - lead];
        bool is_whole = size == index->dims[d];
        if (index->dims[d] != 1 && (is_whole ? run != row_len : run != 1)) break;
        run *= size;
        row_len *= index->dims[d];
        outer_dims = d;
    }
    w.src_stride = run == 1 ? 0 : 1;
    for (int64_t row = 0, rows = index->numel / row_len; row < rows && !interrupt_pending(); row++) {
        int64_t rest = row, offset = 0, stride = run;
        for (int d = outer_dims - 1; d >= 0; d--) {
            int64_t size = d < lead ? 1 : values->dims[d - lead];
            if (size != 1) offset += rest % index->dims[d] * stride;
            rest /= index->dims[d];
            stride *= size;
        }
        write_pieces(&w, w.index + row * row_len, w.data, w.src + (size_t)offset * w.element_size, row_len, 1);
    }
    return finish(call);
}
