/* sort.c: sort and topk along any dim, and unique: rows go to the raw kernels, many at a time over the pool. */
#include "cpu/sort_kernels.h"

#include <stdatomic.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "cpu/cpu.h"
#include "ops/attrs.h"
#include "platform/interrupt.h"
#include "platform/pool.h"

enum {
    CHUNK_ELEMENTS = 8 * 1024, /* what one thread takes at a time: sorting costs tens of ns an element */
    BLOCK_ELEMENTS = 16 * 1024,
    BLOCK_COLUMNS_MAX = 16, /* a cache line of f32 */
};

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
static size_t aligned(size_t size_bytes) { return (size_bytes + 63) & ~(size_t)63; }

static ag_status interrupted(const ag_call *call) {
    return call_fail(call, AG_E_INTERRUPTED, NULL, NULL, NULL, "an interrupt");
}

static ag_status refuse_length(const ag_call *call, int64_t len) {
    return call_fail(call, AG_E_SHAPE, "x", "fewer than 2^32 - 1 elements in a row", NULL, "%lld", (long long)len);
}

/* x: [outer, n, inner] -> y, positions: [outer, k, inner], sorted along n; k < n only for topk. */
struct sort_job {
    const char *x;
    char *y;
    int64_t *positions;
    int64_t outer, n, k, inner;
    int64_t width; /* columns of inner in a block */
    ag_dtype dtype;
    size_t size; /* bytes an element */
    int64_t index_base;
    bool is_topk;
    bool is_falling; /* descending, or largest */
    size_t scratch_bytes;
    atomic_bool is_out_of_memory;
};

static void sort_one(const struct sort_job *job, const void *x, void *y, int64_t *positions, void *scratch) {
    if (job->is_topk) topk_row(job->dtype, x, job->n, job->k, job->is_falling, y, positions, scratch);
    else sort_row(job->dtype, x, job->n, job->is_falling, y, positions, scratch);
    for (int64_t i = 0; job->index_base && i < job->k; i++) positions[i] += job->index_base;
}

/* inner == 1: the row at x goes straight to its place. */
static void sort_rows(void *context, int64_t begin, int64_t end) {
    struct sort_job *job = context;
    void *scratch = memory_alloc(job->scratch_bytes);
    if (!scratch) {
        atomic_store(&job->is_out_of_memory, true);
        return;
    }
    for (int64_t row = begin; row < end && !interrupt_pending(); row++)
        sort_one(job, job->x + row * job->n * (int64_t)job->size, job->y + row * job->k * (int64_t)job->size,
                 job->positions + row * job->k, scratch);
    memory_free(scratch, job->scratch_bytes);
}

/* Copies n elements of size bytes; strides count elements. */
static void copy_elements(size_t size, const char *src, int64_t src_stride, char *dst, int64_t dst_stride, int64_t n) {
#define COPY(type)                                                                                              \
    for (int64_t i = 0; i < n; i++) ((type *)(void *)dst)[i * dst_stride] = ((const type *)(const void *)src)[i * src_stride]
    switch (size) {
    case 1: COPY(uint8_t); break;
    case 2: COPY(uint16_t); break;
    case 4: COPY(uint32_t); break;
    default: COPY(uint64_t); break;
    }
#undef COPY
}

/* Memory of one thread that sorts columns: [block: width x n | y: width x k | positions: width x k | scratch of the kernel] */
struct column_memory {
    char *block, *y;
    int64_t *positions;
    void *scratch;
};

static size_t column_memory_init(const struct sort_job *job, char *base, struct column_memory *m) {
    size_t block = 0, y = block + aligned((size_t)(job->width * job->n) * job->size);
    size_t positions = y + aligned((size_t)(job->width * job->k) * job->size);
    size_t scratch = positions + aligned((size_t)(job->width * job->k) * sizeof *m->positions);
    if (base) *m = (struct column_memory){base + block, base + y, (int64_t *)(void *)(base + positions), base + scratch};
    return scratch + job->scratch_bytes;
}

/* A unit is a block of up to `width` neighbouring columns of one outer index; they become rows in the thread's memory. */
static void sort_columns(void *context, int64_t begin, int64_t end) {
    struct sort_job *job = context;
    struct column_memory m;
    size_t memory_bytes = column_memory_init(job, NULL, &m);
    char *memory = memory_alloc(memory_bytes);
    if (!memory) {
        atomic_store(&job->is_out_of_memory, true);
        return;
    }
    column_memory_init(job, memory, &m);
    int64_t n = job->n, k = job->k, inner = job->inner, size = (int64_t)job->size;
    int64_t blocks_per_outer = (inner + job->width - 1) / job->width;
    for (int64_t unit = begin; unit < end && !interrupt_pending(); unit++) {
        int64_t outer = unit / blocks_per_outer, column = unit % blocks_per_outer * job->width;
        int64_t columns = smaller(job->width, inner - column);
        const char *x = job->x + (outer * n * inner + column) * size;
        for (int64_t i = 0; i < n; i++) copy_elements(job->size, x + i * inner * size, 1, m.block + i * size, n, columns);
        for (int64_t j = 0; j < columns && !interrupt_pending(); j++)
            sort_one(job, m.block + j * n * size, m.y + j * k * size, m.positions + j * k, m.scratch);
        int64_t target = outer * k * inner + column;
        for (int64_t i = 0; i < k; i++, target += inner) {
            copy_elements(job->size, m.y + i * size, k, job->y + target * size, 1, columns);
            copy_elements(sizeof *m.positions, (char *)(m.positions + i), k, (char *)(job->positions + target), 1, columns);
        }
    }
    memory_free(memory, memory_bytes);
}

/* Fills in sizes and arrays of the job, and runs it along dim. */
static ag_status sort_run(ag_call *call, struct sort_job *job, int64_t attr_dim) {
    const ag_tensor *x = call->inputs[0], *y = call->outputs[0];
    if (y->numel == 0) return AG_OK;
    int dim = dim_resolve(attr_dim, x->ndim);
    job->outer = job->n = job->inner = 1;
    for (int i = 0; i < x->ndim; i++) *(i < dim ? &job->outer : i == dim ? &job->n : &job->inner) *= x->dims[i];
    if (job->n >= SORT_MAX_LEN) return refuse_length(call, job->n);
    job->k = job->is_topk && x->ndim ? y->dims[dim] : job->n;
    job->dtype = (ag_dtype)x->dtype;
    job->size = dtype_size(job->dtype);
    job->x = tensor_address(x);
    job->y = tensor_address(y);
    job->positions = tensor_address(call->outputs[1]);
    job->index_base = call->index_base;
    job->scratch_bytes = job->is_topk ? topk_scratch_bytes(job->dtype, job->n, job->k) : sort_scratch_bytes(job->dtype, job->n);
    if (job->inner == 1) {
        pool_run(sort_rows, job, job->outer, larger(1, CHUNK_ELEMENTS / job->n));
    } else {
        job->width = smaller(job->inner, smaller(BLOCK_COLUMNS_MAX, larger(1, BLOCK_ELEMENTS / job->n)));
        int64_t units = job->outer * ((job->inner + job->width - 1) / job->width);
        pool_run(sort_columns, job, units, larger(1, CHUNK_ELEMENTS / (job->n * job->width)));
    }
    if (atomic_load(&job->is_out_of_memory)) return error_memory(call->op->name, job->scratch_bytes);
    return interrupt_pending() ? interrupted(call) : AG_OK;
}

ag_status cpu_sort(ag_call *call) {
    const struct attrs_sort *attrs = CALL_ATTRS(call, attrs_sort);
    struct sort_job job = {.is_falling = attrs->descending != 0};
    return sort_run(call, &job, attrs->dim);
}

ag_status cpu_topk(ag_call *call) {
    const struct attrs_topk *attrs = CALL_ATTRS(call, attrs_topk);
    struct sort_job job = {.is_topk = true, .is_falling = attrs->largest != 0};
    return sort_run(call, &job, attrs->dim);
}

/* ---- unique ---- */

/* Results of unique while their length is unknown: one block of memory. */
struct unique_work {
    char *memory;
    size_t size_bytes;
    void *values;    /* [n] */
    int64_t *counts; /* [n] */
    void *scratch;
};

static ag_status unique_work_init(struct unique_work *work, const ag_call *call, ag_dtype dtype, int64_t n) {
    size_t values = aligned((size_t)n * dtype_size(dtype)), counts = aligned((size_t)n * sizeof *work->counts);
    work->size_bytes = values + counts + sort_scratch_bytes(dtype, n);
    work->memory = memory_alloc(work->size_bytes);
    if (!work->memory) return error_memory(call->op->name, work->size_bytes);
    work->values = work->memory;
    work->counts = (int64_t *)(void *)(work->memory + values);
    work->scratch = work->memory + values + counts;
    return AG_OK;
}

ag_status cpu_unique(ag_call *call) {
    const ag_tensor *x = call->inputs[0];
    ag_dtype dtype = (ag_dtype)x->dtype;
    if (x->numel >= SORT_MAX_LEN) return refuse_length(call, x->numel);
    ag_tensor *values = NULL, *inverse = NULL, *counts = NULL;
    struct unique_work work = {0};
    AG_TRY(unique_work_init(&work, call, dtype, x->numel));
    shape s = tensor_shape(x);
    ag_status status = tensor_new(AG_I64, &s, call->device, &inverse);
    if (status != AG_OK) goto done;
    int64_t *places = tensor_address(inverse);
    shape found = {.ndim = 1};
    found.dims[0] = unique_flat(dtype, tensor_address(x), x->numel, work.values, places, work.counts, work.scratch);
    for (int64_t i = 0; call->index_base && i < x->numel; i++) places[i] += call->index_base;
    status = interrupt_pending() ? interrupted(call) : tensor_new(dtype, &found, call->device, &values);
    if (status == AG_OK) status = tensor_new(AG_I64, &found, call->device, &counts);
    if (status != AG_OK) goto done;
    memcpy(tensor_address(values), work.values, (size_t)found.dims[0] * dtype_size(dtype));
    memcpy(tensor_address(counts), work.counts, (size_t)found.dims[0] * sizeof *work.counts);
    call->outputs[0] = values;
    call->outputs[1] = inverse;
    call->outputs[2] = counts;
    values = inverse = counts = NULL;
done:
    memory_free(work.memory, work.size_bytes);
    tensor_release(values);
    tensor_release(inverse);
    tensor_release(counts);
    return status;
}
