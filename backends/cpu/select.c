/* select.c: kernels whose work depends on which elements are set: masked_select, masked_scatter, nonzero.
 *
 * All three run in two passes over blocks of the flattened elements: count what each block holds, turn the counts into the
 * place where each block's results begin, fill. The blocks do not depend on the number of threads, nor do the
 * results. */
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "cpu/cpu.h"
#include "platform/interrupt.h"
#include "platform/pool.h"

enum {
    BLOCK = 16384, /* elements of a block */
    FLAGS = 1024,  /* elements whose flags are made at a time */
};

static ag_status interrupted(const ag_call *call) {
    return call_fail(call, AG_E_INTERRUPTED, NULL, NULL, NULL, "an interrupt");
}

static int64_t block_count(int64_t numel) { return numel / BLOCK + (numel % BLOCK != 0); }

/* counts_to_starts replaces each count by the sum of those before it, puts the sum of all at the end and returns it.
 * counts: [len + 1] */
static int64_t counts_to_starts(int64_t *counts, int64_t len) {
    int64_t sum = 0;
    for (int64_t i = 0; i < len; i++) {
        int64_t count = counts[i];
        counts[i] = sum;
        sum += count;
    }
    return counts[len] = sum;
}

/* Bools are bytes 0 or 1. The inner sums fit in a byte, so that they are taken many bytes at a time. */
static int64_t count_flags(const uint8_t *flags, int64_t n) {
    int64_t count = 0;
    for (int64_t i = 0; i < n; i += 192) {
        uint8_t sum = 0;
        for (int64_t j = i; j < i + 192 && j < n; j++) sum = (uint8_t)(sum + flags[j]);
        count += sum;
    }
    return count;
}

/* ---- masked_select ---- */

/* x and mask over their common shape, with strides of 0 where one is broadcast. Dims that both walk in one piece are merged,
 * so equal shapes give a single row. */
struct masked {
    int ndim; /* at least 1 */
    int64_t dims[AG_MAX_NDIM], x_strides[AG_MAX_NDIM], mask_strides[AG_MAX_NDIM];
    int64_t numel;
    size_t size; /* bytes an element of x and out */
    const char *x;
    const uint8_t *mask;
    char *out;
    int64_t *starts; /* [blocks + 1]: counts, then where results begin */
};

/* broadcast_strides aligns the contiguous tensor at the last dim of `common`. */
static void broadcast_strides(const ag_tensor *tensor, const shape *common, int64_t *strides) {
    int lead = common->ndim - tensor->ndim;
    int64_t stride = 1;
    for (int d = common->ndim - 1; d >= 0; d--) {
        int64_t size = d >= lead ? tensor->dims[d - lead] : 1;
        strides[d] = size == 1 ? 0 : stride;
        stride *= size;
    }
}

static void masked_init(struct masked *m, const ag_tensor *x, const ag_tensor *mask) {
    shape a = tensor_shape(x), b = tensor_shape(mask), common;
    int64_t x_strides[AG_MAX_NDIM], mask_strides[AG_MAX_NDIM];
    shape_broadcast(&a, &b, &common);
    broadcast_strides(x, &common, x_strides);
    broadcast_strides(mask, &common, mask_strides);
    *m = (struct masked){.numel = shape_numel(&common), .size = dtype_size((ag_dtype)x->dtype), .x = tensor_address(x),
                         .mask = tensor_address(mask)};
    for (int d = 0; d < common.ndim; d++) {
        int64_t size = common.dims[d];
        if (size == 1) continue;
        int last = m->ndim - 1;
        if (last >= 0 && m->x_strides[last] == x_strides[d] * size && m->mask_strides[last] == mask_strides[d] * size) {
            m->dims[last] *= size;
        } else {
            last = m->ndim++;
            m->dims[last] = size;
        }
        m->x_strides[last] = x_strides[d];
        m->mask_strides[last] = mask_strides[d];
    }
    if (m->ndim == 0) m->dims[m->ndim++] = 1;
}

/* masked_locate gives the offsets of flat element i, and returns how many elements are left in its row, i included. */
static int64_t masked_locate(const struct masked *m, int64_t i, int64_t *x_offset, int64_t *mask_offset) {
    int last = m->ndim - 1;
    int64_t column = i % m->dims[last], row = i / m->dims[last];
    *x_offset = column * m->x_strides[last];
    *mask_offset = column * m->mask_strides[last];
    for (int d = last - 1; d >= 0; d--) {
        *x_offset += row % m->dims[d] * m->x_strides[d];
        *mask_offset += row % m->dims[d] * m->mask_strides[d];
        row /= m->dims[d];
    }
    return m->dims[last] - column;
}

static void masked_count_task(void *context, int64_t begin, int64_t end) {
    const struct masked *m = context;
    for (int64_t block = begin; block < end && !interrupt_pending(); block++) {
        int64_t i = block * BLOCK, stop = i + BLOCK < m->numel ? i + BLOCK : m->numel, count = 0, n;
        for (; i < stop; i += n) {
            int64_t x_offset, mask_offset;
            n = masked_locate(m, i, &x_offset, &mask_offset);
            if (n > stop - i) n = stop - i;
            count += m->mask_strides[m->ndim - 1] ? count_flags(m->mask + mask_offset, n) : m->mask[mask_offset] * n;
        }
        m->starts[block] = count;
    }
}

/* No branch on the mask, which is hard to predict: every element is written, but only one that is kept stays. Once the block
 * has all its results none is left to keep, so nothing is written past them. */
#define SELECT_RUN(type)                                               \
    do {                                                               \
        const type *src = (const type *)(const void *)m->x + x_offset; \
        type *dst = (type *)(void *)m->out;                            \
        for (int64_t j = 0; j < n && place < limit; j++) {             \
            dst[place] = src[j * x_stride];                            \
            place += mask[j * mask_stride];                            \
        }                                                              \
    } while (0)

static void masked_fill_task(void *context, int64_t begin, int64_t end) {
    const struct masked *m = context;
    int64_t x_stride = m->x_strides[m->ndim - 1], mask_stride = m->mask_strides[m->ndim - 1];
    for (int64_t block = begin; block < end && !interrupt_pending(); block++) {
        int64_t i = block * BLOCK, stop = i + BLOCK < m->numel ? i + BLOCK : m->numel, n;
        int64_t place = m->starts[block], limit = m->starts[block + 1];
        for (; i < stop; i += n) {
            int64_t x_offset, mask_offset;
            n = masked_locate(m, i, &x_offset, &mask_offset);
            if (n > stop - i) n = stop - i;
            const uint8_t *mask = m->mask + mask_offset;
            switch (m->size) {
            case 1: SELECT_RUN(uint8_t); break;
            case 2: SELECT_RUN(uint16_t); break;
            case 4: SELECT_RUN(uint32_t); break;
            default: SELECT_RUN(uint64_t);
            }
        }
    }
}

/* out: [count] of x's dtype, in the order of the common shape. */
ag_status cpu_masked_select(ag_call *call) {
    struct masked m;
    masked_init(&m, call->inputs[0], call->inputs[1]);
    int64_t blocks = block_count(m.numel);
    ag_status status;
    size_t starts_bytes = (size_t)(blocks + 1) * sizeof *m.starts;
    m.starts = memory_alloc(starts_bytes);
    if (!m.starts) return error_memory(call->op->name, starts_bytes);
    pool_run(masked_count_task, &m, blocks, 2);
    if (interrupt_pending()) {
        status = interrupted(call);
        goto done;
    }
    shape result = {.ndim = 1, .dims = {counts_to_starts(m.starts, blocks)}};
    ag_tensor *out;
    status = tensor_new((ag_dtype)call->inputs[0]->dtype, &result, call->device, &out);
    if (status != AG_OK) goto done;
    m.out = tensor_address(out);
    pool_run(masked_fill_task, &m, blocks, 2);
    if (interrupt_pending()) {
        tensor_release(out);
        status = interrupted(call);
        goto done;
    }
    call->outputs[0] = out;
done:
    memory_free(m.starts, starts_bytes);
    return status;
}

/* ---- masked_scatter ---- */

struct scatter {
    int64_t numel;
    size_t size;
    const uint8_t *mask; /* [numel] */
    const char *values;  /* [number of trues] */
    char *out;           /* [numel] */
    int64_t *starts;
};

static void scatter_count_task(void *context, int64_t begin, int64_t end) {
    const struct scatter *s = context;
    for (int64_t block = begin; block < end && !interrupt_pending(); block++) {
        int64_t i = block * BLOCK, n = s->numel - i < BLOCK ? s->numel - i : BLOCK;
        s->starts[block] = count_flags(s->mask + i, n);
    }
}

/* Without a branch as well: a value not wanted is masked away and read again. */
#define SCATTER_RUN(type)                                        \
    do {                                                         \
        const type *src = (const type *)(const void *)s->values; \
        type *dst = (type *)(void *)s->out;                      \
        for (; i < stop && place < limit; i++) {                 \
            dst[i] = src[place] & (type)(0 - (type)s->mask[i]);  \
            place += s->mask[i];                                 \
        }                                                        \
        for (; i < stop; i++) dst[i] = 0;                        \
    } while (0)

static void scatter_fill_task(void *context, int64_t begin, int64_t end) {
    const struct scatter *s = context;
    for (int64_t block = begin; block < end && !interrupt_pending(); block++) {
        int64_t i = block * BLOCK, stop = i + BLOCK < s->numel ? i + BLOCK : s->numel;
        int64_t place = s->starts[block], limit = s->starts[block + 1];
        switch (s->size) {
        case 1: SCATTER_RUN(uint8_t); break;
        case 2: SCATTER_RUN(uint16_t); break;
        case 4: SCATTER_RUN(uint32_t); break;
        default: SCATTER_RUN(uint64_t);
        }
    }
}

/* out = zeros in the mask's shape, with the values in order where the mask is true. */
ag_status cpu_masked_scatter(ag_call *call) {
    const ag_tensor *mask = call->inputs[0], *values = call->inputs[1];
    struct scatter s = {.numel = mask->numel, .size = dtype_size((ag_dtype)values->dtype), .mask = tensor_address(mask),
                        .values = tensor_address(values), .out = tensor_address(call->outputs[0])};
    int64_t blocks = block_count(s.numel);
    ag_status status = AG_OK;
    size_t starts_bytes = (size_t)(blocks + 1) * sizeof *s.starts;
    s.starts = memory_alloc(starts_bytes);
    if (!s.starts) return error_memory(call->op->name, starts_bytes);
    pool_run(scatter_count_task, &s, blocks, 2);
    if (interrupt_pending()) goto done;
    int64_t count = counts_to_starts(s.starts, blocks);
    if (count != values->numel) {
        status = call_fail(call, AG_E_SHAPE, "values", "as many elements as the mask has trues", NULL, "%lld for %lld trues",
                           (long long)values->numel, (long long)count);
        goto done;
    }
    pool_run(scatter_fill_task, &s, blocks, 2);
done:
    memory_free(s.starts, starts_bytes);
    return status == AG_OK && interrupt_pending() ? interrupted(call) : status;
}

/* ---- nonzero ---- */

struct nonzero {
    const ag_tensor *x;
    const char *data;
    int64_t *out; /* [count, ndim] */
    int64_t *starts;
    int64_t index_base;
};

#define FLAGS_RUN(type, expression)                                   \
    do {                                                              \
        const type *v = (const type *)(const void *)data + begin;     \
        for (int64_t j = 0; j < n; j++) flags[j] = (expression) != 0; \
    } while (0)

/* make_flags: flags[j] = x[begin + j] is not zero. NaN is not, -0 is. */
static void make_flags(ag_dtype dtype, const char *data, int64_t begin, int64_t n, uint8_t flags[FLAGS]) {
    switch (dtype) {
    case AG_F64: FLAGS_RUN(double, v[j]); return;
    case AG_F32: FLAGS_RUN(float, v[j]); return;
    case AG_F16: case AG_BF16: FLAGS_RUN(uint16_t, v[j] & 0x7FFF); return; /* without the sign */
    case AG_I64: FLAGS_RUN(int64_t, v[j]); return;
    case AG_I32: FLAGS_RUN(int32_t, v[j]); return;
    case AG_I16: FLAGS_RUN(int16_t, v[j]); return;
    default: FLAGS_RUN(uint8_t, v[j]);
    }
}

static void nonzero_count_task(void *context, int64_t begin, int64_t end) {
    const struct nonzero *z = context;
    uint8_t flags[FLAGS];
    for (int64_t block = begin; block < end && !interrupt_pending(); block++) {
        int64_t i = block * BLOCK, stop = i + BLOCK < z->x->numel ? i + BLOCK : z->x->numel, count = 0;
        for (; i < stop; i += FLAGS) {
            int64_t n = stop - i < FLAGS ? stop - i : FLAGS;
            make_flags((ag_dtype)z->x->dtype, z->data, i, n, flags);
            count += count_flags(flags, n);
        }
        z->starts[block] = count;
    }
}

/* write_positions writes the coordinates of the elements flagged, from flat element `begin` on, and returns what follows. */
static int64_t *write_positions(const struct nonzero *z, const uint8_t *flags, int64_t begin, int64_t n, int64_t *out) {
    int ndim = z->x->ndim, last = ndim - 1;
    int64_t row[AG_MAX_NDIM];
    while (n > 0 && ndim > 0) { /* a row of the last dim at a time; the positions of a 0-d tensor are empty */
        int64_t size = z->x->dims[last], column = begin % size, outer = begin / size;
        int64_t len = size - column < n ? size - column : n;
        for (int d = last - 1; d >= 0; d--) {
            row[d] = outer % z->x->dims[d] + z->index_base;
            outer /= z->x->dims[d];
        }
        int32_t hits[FLAGS]; /* places among flags; len <= FLAGS */
        int count = 0;
        for (int j = 0; j < (int)len; j++) {
            hits[count] = j;
            count += flags[j];
        }
        for (int i = 0; i < count; i++, out += ndim) {
            for (int d = 0; d < last; d++) out[d] = row[d];
            out[last] = column + hits[i] + z->index_base;
        }
        flags += len;
        begin += len;
        n -= len;
    }
    return out;
}

static void nonzero_fill_task(void *context, int64_t begin, int64_t end) {
    const struct nonzero *z = context;
    uint8_t flags[FLAGS];
    for (int64_t block = begin; block < end && !interrupt_pending(); block++) {
        int64_t i = block * BLOCK, stop = i + BLOCK < z->x->numel ? i + BLOCK : z->x->numel;
        int64_t *out = z->out + z->starts[block] * z->x->ndim;
        for (; i < stop; i += FLAGS) {
            int64_t n = stop - i < FLAGS ? stop - i : FLAGS;
            make_flags((ag_dtype)z->x->dtype, z->data, i, n, flags);
            out = write_positions(z, flags, i, n, out);
        }
    }
}

/* out: i64 [count, ndim], the positions of the elements that are not zero, in memory order. */
ag_status cpu_nonzero(ag_call *call) {
    const ag_tensor *x = call->inputs[0];
    struct nonzero z = {.x = x, .data = tensor_address(x), .index_base = call->index_base};
    int64_t blocks = block_count(x->numel);
    ag_status status;
    size_t starts_bytes = (size_t)(blocks + 1) * sizeof *z.starts;
    z.starts = memory_alloc(starts_bytes);
    if (!z.starts) return error_memory(call->op->name, starts_bytes);
    pool_run(nonzero_count_task, &z, blocks, 2);
    if (interrupt_pending()) {
        status = interrupted(call);
        goto done;
    }
    shape result = {.ndim = 2, .dims = {counts_to_starts(z.starts, blocks), x->ndim}};
    ag_tensor *out;
    status = tensor_new(AG_I64, &result, call->device, &out);
    if (status != AG_OK) goto done;
    z.out = tensor_address(out);
    pool_run(nonzero_fill_task, &z, blocks, 2);
    if (interrupt_pending()) {
        tensor_release(out);
        status = interrupted(call);
        goto done;
    }
    call->outputs[0] = out;
done:
    memory_free(z.starts, starts_bytes);
    return status;
}
