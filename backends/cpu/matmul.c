/* matmul.c: matmul and linear: calls over any shapes and strides become products of matrices.
 *
 * Both operands become views [batch..., m, k] and [batch..., k, n] by their strides; nothing is copied. Where the batch of one
 * side can be seen as more rows of a single matrix, one large product replaces the many. Floats go to gemm.h; ints are
 * multiplied here, in blocks, modulo 2^32 or 2^64: the low bits of a product do not depend on the bits above, so narrow ints
 * wrap as if they were accumulated in 64 bits and cut.
 */
#include <assert.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "cpu/cpu.h"
#include "cpu/elementwise.h"
#include "cpu/gemm.h"
#include "ops/attrs.h"
#include "platform/interrupt.h"
#include "platform/pool.h"

enum {
    LOCAL_BATCH = 32,           /* products whose offsets lie on the stack */
    LOCAL_BIAS = 256,           /* values of a strided bias copied to the stack */
    TILE = 64,                  /* rows, columns and depth of a block of an int product */
    INT_CHUNK_WORK = 64 * 1024, /* multiply-adds worth a thread of their own */
    GELU_GRAIN = 16 * 1024,     /* elements */
};

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* ---- the shape of the products ---- */

/* A matrix for each index of the batch dims; strides in elements. */
struct operand {
    const char *data;
    int64_t rs, cs;
    int64_t batch_strides[AG_MAX_NDIM]; /* 0 where it is broadcast */
    bool is_single;                     /* one matrix for the whole batch */
};

/* c[i] = a[i] b[i]: [m, k] by [k, n], each c contiguous, one after the other */
struct products {
    struct operand a, b;
    char *c;
    int64_t m, n, k;
    int64_t count; /* of products: that of batch_dims */
    int ndim;
    int64_t batch_dims[AG_MAX_NDIM];
    ag_dtype dtype;
};

/* Batch dims of an operand of `lead` leading dims, aligned at the end. */
static void set_batch(struct products *p, struct operand *o, const ag_tensor *t, int lead) {
    o->is_single = true;
    for (int i = 0; i < p->ndim; i++) {
        int d = i - (p->ndim - lead);
        o->batch_strides[i] = d < 0 || t->dims[d] == 1 ? 0 : t->strides[d];
        o->is_single &= d < 0 || t->dims[d] == 1;
    }
    o->data = tensor_address(t);
}

static int leading_dims(const ag_tensor *t) { return t->ndim > 2 ? t->ndim - 2 : 0; }

/* a: [m, k] or [k] */
static void set_left(struct products *p, const ag_tensor *a) {
    p->k = a->dims[a->ndim - 1];
    p->m = a->ndim > 1 ? a->dims[a->ndim - 2] : 1;
    p->a.cs = a->strides[a->ndim - 1];
    p->a.rs = a->ndim > 1 ? a->strides[a->ndim - 2] : 0;
    set_batch(p, &p->a, a, leading_dims(a));
}

/* b: [k, n] or [k] */
static void set_right(struct products *p, const ag_tensor *b) {
    p->n = b->ndim > 1 ? b->dims[b->ndim - 1] : 1;
    p->b.rs = b->strides[b->ndim > 1 ? b->ndim - 2 : 0];
    p->b.cs = b->ndim > 1 ? b->strides[b->ndim - 1] : 0;
    set_batch(p, &p->b, b, leading_dims(b));
}

/* The batch dims of the result: those of a and b, broadcast. */
static void set_batch_dims(struct products *p, const ag_tensor *a, const ag_tensor *b) {
    int lead_a = leading_dims(a), lead_b = leading_dims(b);
    p->ndim = lead_a > lead_b ? lead_a : lead_b;
    p->count = 1;
    for (int i = 0; i < p->ndim; i++) {
        int in_a = i - (p->ndim - lead_a), in_b = i - (p->ndim - lead_b);
        int64_t size_a = in_a < 0 ? 1 : a->dims[in_a], size_b = in_b < 0 ? 1 : b->dims[in_b];
        p->batch_dims[i] = size_a == 1 ? size_b : size_a;
        p->count *= p->batch_dims[i];
    }
}

/* turn makes a product with one column one with one row: (a b)^T = b^T a^T. The result is the same memory. */
static void turn(struct products *p) {
    struct operand column = p->b;
    p->b = p->a;
    p->b.rs = p->a.cs;
    p->b.cs = p->a.rs;
    p->a = column;
    p->a.rs = column.cs;
    p->a.cs = column.rs;
    p->n = p->m;
    p->m = 1;
}

/* fold_rows makes one product of many that share b, where the rows of all a are evenly spaced. */
static void fold_rows(struct products *p) {
    if (p->count <= 1) return;
    if (p->a.is_single && p->n == 1 && !p->b.is_single) turn(p);
    if (!p->b.is_single) return;
    int64_t rows = p->m, stride = p->a.rs;
    for (int i = p->ndim - 1; i >= 0; i--) {
        if (p->batch_dims[i] == 1) continue;
        if (rows == 1) stride = p->a.batch_strides[i];
        else if (p->a.batch_strides[i] != rows * stride) return;
        rows *= p->batch_dims[i];
    }
    p->m = rows;
    p->a.rs = stride;
    p->count = 1;
    p->ndim = 0;
}

/* Where each product's a, b and c begin: [count] each. */
static void fill_offsets(const struct products *p, int64_t *a, int64_t *b, int64_t *c) {
    int64_t index[AG_MAX_NDIM] = {0}, at_a = 0, at_b = 0;
    for (int64_t i = 0; i < p->count; i++) {
        a[i] = at_a;
        b[i] = at_b;
        c[i] = i * p->m * p->n;
        for (int d = p->ndim - 1; d >= 0; d--) {
            at_a += p->a.batch_strides[d];
            at_b += p->b.batch_strides[d];
            if (++index[d] < p->batch_dims[d]) break;
            at_a -= index[d] * p->a.batch_strides[d];
            at_b -= index[d] * p->b.batch_strides[d];
            index[d] = 0;
        }
    }
}

/* ---- products of floats ---- */

static void real_single(const struct products *p, const struct gemm_epilogue *epilogue) {
    const struct operand *a = &p->a, *b = &p->b;
    if (p->dtype == AG_F32)
        gemm_f32(p->m, p->n, p->k, (const float *)(const void *)a->data, a->rs, a->cs, (const float *)(const void *)b->data,
                 b->rs, b->cs, (float *)(void *)p->c, p->n, 0, epilogue);
    else
        gemm_f64(p->m, p->n, p->k, (const double *)(const void *)a->data, a->rs, a->cs, (const double *)(const void *)b->data,
                 b->rs, b->cs, (double *)(void *)p->c, p->n, 0, epilogue);
}

static void real_batch(const struct products *p, const int64_t *at_a, const int64_t *at_b, const int64_t *at_c,
                       const struct gemm_epilogue *epilogue) {
    const struct operand *a = &p->a, *b = &p->b;
    if (p->dtype == AG_F32)
        gemm_batched_f32(p->count, at_a, at_b, at_c, p->m, p->n, p->k, (const float *)(const void *)a->data, a->rs, a->cs,
                         (const float *)(const void *)b->data, b->rs, b->cs, (float *)(void *)p->c, p->n, 0, epilogue);
    else
        gemm_batched_f64(p->count, at_a, at_b, at_c, p->m, p->n, p->k, (const double *)(const void *)a->data, a->rs, a->cs,
                         (const double *)(const void *)b->data, b->rs, b->cs, (double *)(void *)p->c, p->n, 0, epilogue);
}

/* ---- products of ints ---- */

/* pack copies a [rows, columns] view to dst [rows, TILE], widened (and so taken modulo 2^32 or 2^64). */
#define PACK_CASE(DTYPE, type, wide)                                                                              \
    case DTYPE:                                                                                                   \
        for (int64_t i = 0; i < rows; i++)                                                                        \
            for (int64_t j = 0; j < columns; j++)                                                                 \
                dst[i * TILE + j] = (wide)((const type *)(const void *)src)[i * rs + j * cs];                     \
        break;
#define UNPACK_CASE(DTYPE, type)                                                                                  \
    case DTYPE:                                                                                                   \
        for (int64_t i = 0; i < rows; i++)                                                                        \
            for (int64_t j = 0; j < columns; j++) ((type *)(void *)dst)[i * stride + j] = (type)src[i * TILE + j]; \
        break;

/* multiply adds a [rows, depth] by b [depth, TILE] to c, all with rows of TILE, four steps of depth for each load of c: b is
 * zero up to the next multiple of four steps. */
#define DEFINE_MULTIPLY(wide)                                                                                     \
    static void multiply_##wide(const wide *a, const wide *b, wide *restrict c, int64_t rows, int64_t depth) {    \
        for (int64_t i = 0; i < rows; i++)                                                                        \
            for (int64_t p = 0; p < depth; p += 4) {                                                              \
                wide a0 = a[i * TILE + p], a1 = a[i * TILE + p + 1];                                              \
                wide a2 = a[i * TILE + p + 2], a3 = a[i * TILE + p + 3];                                          \
                const wide *b0 = b + p * TILE;                                                                    \
                for (int64_t j = 0; j < TILE; j++)                                                                \
                    c[i * TILE + j] += a0 * b0[j] + a1 * b0[TILE + j] +                                           \
                                       a2 * b0[2 * TILE + j] + a3 * b0[3 * TILE + j];                             \
            }                                                                                                     \
    }

static void pack_uint64_t(ag_dtype dtype, const char *src, int64_t rs, int64_t cs, int64_t rows, int64_t columns,
                          uint64_t *dst) {
    switch (dtype) {
        PACK_CASE(AG_I64, int64_t, uint64_t)
    default: assert(false);
    }
}
static void unpack_uint64_t(ag_dtype dtype, const uint64_t *src, char *dst, int64_t stride, int64_t rows, int64_t columns) {
    switch (dtype) {
        UNPACK_CASE(AG_I64, int64_t)
    default: assert(false);
    }
}
static void pack_uint32_t(ag_dtype dtype, const char *src, int64_t rs, int64_t cs, int64_t rows, int64_t columns,
                          uint32_t *dst) {
    switch (dtype) {
        PACK_CASE(AG_I32, int32_t, uint32_t)
        PACK_CASE(AG_I16, int16_t, uint32_t)
        PACK_CASE(AG_I8, int8_t, uint32_t)
        PACK_CASE(AG_U8, uint8_t, uint32_t)
    default: assert(false);
    }
}
static void unpack_uint32_t(ag_dtype dtype, const uint32_t *src, char *dst, int64_t stride, int64_t rows, int64_t columns) {
    switch (dtype) {
        UNPACK_CASE(AG_I32, int32_t)
        UNPACK_CASE(AG_I16, int16_t)
        UNPACK_CASE(AG_I8, int8_t)
        UNPACK_CASE(AG_U8, uint8_t)
    default: assert(false);
    }
}
DEFINE_MULTIPLY(uint64_t)
DEFINE_MULTIPLY(uint32_t)

/* A block of at most TILE x TILE elements of c, over the whole depth. */
#define DEFINE_BLOCK(wide)                                                                                         \
    static void block_##wide(const struct products *p, const char *a, const char *b, char *c, int64_t rows,        \
                             int64_t columns) {                                                                    \
        wide packed_a[TILE * TILE], packed_b[TILE * TILE], total[TILE * TILE];                                     \
        int64_t size = (int64_t)dtype_size(p->dtype);                                                              \
        /* Columns past the last, and up to three steps past the last, are multiplied too. */                      \
        memset(total, 0, (size_t)rows * TILE * sizeof *total);                                                     \
        memset(packed_a, 0, (size_t)rows * TILE * sizeof *packed_a);                                               \
        memset(packed_b, 0, (size_t)smaller(TILE, p->k + 3) * TILE * sizeof *packed_b);                            \
        for (int64_t done = 0; done < p->k; done += TILE) {                                                        \
            int64_t depth = smaller(TILE, p->k - done);                                                            \
            pack_##wide(p->dtype, a + done * p->a.cs * size, p->a.rs, p->a.cs, rows, depth, packed_a);             \
            pack_##wide(p->dtype, b + done * p->b.rs * size, p->b.rs, p->b.cs, depth, columns, packed_b);          \
            memset(packed_b + depth * TILE, 0, (size_t)(-depth & 3) * TILE * sizeof *packed_b);                    \
            multiply_##wide(packed_a, packed_b, total, rows, depth);                                               \
        }                                                                                                          \
        unpack_##wide(p->dtype, total, c, p->n, rows, columns);                                                    \
    }
DEFINE_BLOCK(uint64_t)
DEFINE_BLOCK(uint32_t)

struct int_job {
    const struct products *p;
    const int64_t *at_a, *at_b, *at_c;
    int64_t grid_rows, grid_columns; /* blocks of one product */
};

/* A unit is a block of one product. */
static void int_blocks(void *context, int64_t begin, int64_t end) {
    const struct int_job *job = context;
    const struct products *p = job->p;
    int64_t size = (int64_t)dtype_size(p->dtype), blocks = job->grid_rows * job->grid_columns;
    for (int64_t unit = begin; unit < end && !interrupt_pending(); unit++) {
        int64_t i = unit / blocks, row = unit % blocks / job->grid_columns * TILE, column = unit % job->grid_columns * TILE;
        int64_t rows = smaller(TILE, p->m - row), columns = smaller(TILE, p->n - column);
        const char *a = p->a.data + (job->at_a[i] + row * p->a.rs) * size;
        const char *b = p->b.data + (job->at_b[i] + column * p->b.cs) * size;
        char *c = p->c + (job->at_c[i] + row * p->n + column) * size;
        if (p->dtype == AG_I64) block_uint64_t(p, a, b, c, rows, columns);
        else block_uint32_t(p, a, b, c, rows, columns);
    }
}

static void int_batch(const struct products *p, const int64_t *at_a, const int64_t *at_b, const int64_t *at_c) {
    struct int_job job = {p, at_a, at_b, at_c, (p->m + TILE - 1) / TILE, (p->n + TILE - 1) / TILE};
    int64_t units = p->count * job.grid_rows * job.grid_columns;
    int64_t unit_work = smaller(p->m, TILE) * TILE * larger(p->k, 1);
    pool_run(int_blocks, &job, units, larger(1, INT_CHUNK_WORK / unit_work));
}

/* ---- running ---- */

static ag_status run_products(const ag_call *call, struct products *p, const struct gemm_epilogue *epilogue) {
    if (p->count == 0 || p->m == 0 || p->n == 0) return AG_OK;
    fold_rows(p);
    bool is_real = dtype_is_float(p->dtype);
    if (!is_real && p->n == 1 && p->m > 1) turn(p); /* the blocks are as wide as many columns */
    if (is_real && p->count == 1) {
        real_single(p, epilogue);
    } else {
        int64_t local[3 * LOCAL_BATCH], *offsets = local;
        size_t size_bytes = 3 * (size_t)p->count * sizeof *offsets;
        if (p->count > LOCAL_BATCH && !(offsets = memory_alloc(size_bytes))) return error_memory(call->op->name, size_bytes);
        int64_t *at_a = offsets, *at_b = offsets + p->count, *at_c = offsets + 2 * p->count;
        fill_offsets(p, at_a, at_b, at_c);
        if (is_real) real_batch(p, at_a, at_b, at_c, epilogue);
        else int_batch(p, at_a, at_b, at_c);
        if (offsets != local) memory_free(offsets, size_bytes);
    }
    if (interrupt_pending()) return call_fail(call, AG_E_INTERRUPTED, NULL, NULL, NULL, "an interrupt");
    return AG_OK;
}

ag_status cpu_matmul(ag_call *call) {
    const ag_tensor *a = call->inputs[0], *b = call->inputs[1];
    struct products p;
    p.dtype = call->compute;
    p.c = tensor_address(call->outputs[0]);
    set_batch_dims(&p, a, b);
    set_left(&p, a);
    set_right(&p, b);
    return run_products(call, &p, NULL);
}

/* ---- linear ---- */

struct gelu_job {
    elementwise_fn gelu;
    char *y;
    int64_t size;
};

static void gelu_part(void *context, int64_t begin, int64_t end) {
    const struct gelu_job *job = context;
    void *y = job->y + begin * job->size;
    const void *inputs[] = {y};
    if (!interrupt_pending()) job->gelu(end - begin, inputs, y, 0, NULL);
}

static ag_status gelu_in_place(const ag_call *call, const ag_tensor *y) {
    struct gelu_job job = {cpu_elementwise_kernels()->fn[OP_gelu][y->dtype], tensor_address(y),
                           (int64_t)dtype_size((ag_dtype)y->dtype)};
    pool_run(gelu_part, &job, y->numel, GELU_GRAIN);
    if (interrupt_pending()) return call_fail(call, AG_E_INTERRUPTED, NULL, NULL, NULL, "an interrupt");
    return AG_OK;
}

/* y = activation(x weight^T + bias)    x: [..., in], weight: [out, in], bias: [out], y: [..., out] */
static ag_status linear_with_bias(ag_call *call, const void *bias) {
    const ag_tensor *x = call->inputs[0], *weight = call->inputs[1], *y = call->outputs[0];
    int64_t activation = CALL_ATTRS(call, attrs_activation)->activation;
    struct gemm_epilogue epilogue = {bias, activation == ACTIVATION_RELU ? GEMM_RELU : GEMM_NONE};
    struct products p;
    p.dtype = call->compute;
    p.c = tensor_address(y);
    set_batch_dims(&p, x, weight);
    set_left(&p, x);
    p.n = weight->dims[0];
    p.b.rs = weight->strides[1];
    p.b.cs = weight->strides[0];
    set_batch(&p, &p.b, weight, 0);
    AG_TRY(run_products(call, &p, &epilogue));
    return activation == ACTIVATION_GELU ? gelu_in_place(call, y) : AG_OK;
}

ag_status cpu_linear(ag_call *call) {
    const ag_tensor *bias = call->inputs[2];
    if (!bias) return linear_with_bias(call, NULL);
    if (bias->is_contiguous) return linear_with_bias(call, tensor_address(bias));
    double local[LOCAL_BIAS];
    size_t size_bytes = (size_t)bias->numel * dtype_size(call->compute);
    void *packed = size_bytes <= sizeof local ? local : memory_alloc(size_bytes);
    if (!packed) return error_memory(call->op->name, size_bytes);
    struct strided_copy copy = {.ndim = 1, .dims = {bias->numel}, .source_strides = {bias->strides[0]}, .target_strides = {1},
                                .source = tensor_address(bias), .target = packed, .source_dtype = call->compute,
                                .target_dtype = call->compute};
    cpu_strided_copy(&copy);
    ag_status status = linear_with_bias(call, packed);
    if (packed != local) memory_free(packed, size_bytes);
    return status;
}
