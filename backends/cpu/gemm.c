/* gemm.c: chooses a kernel for a matrix product and shares the product out over the pool. */
#include "cpu/gemm.h"

#include <assert.h>
#include <stdatomic.h>
#include <string.h>

#include "core/memory.h"
#include "cpu/blas.h"
#include "platform/interrupt.h"
#include "platform/pool.h"

enum method { METHOD_BLOCK, METHOD_STREAM, METHOD_DOT, METHOD_BLAS };

/* All numbers below were measured on a Zen 5 core (265 GFLOP/s in f32, 1 MiB of L2). */
enum {
    STREAM_ROWS = 4,        /* up to here reading B in memory order beats a register tile */
    PIECE_ROW_BYTES = 1792, /* 448 rows of f32 in a piece: packed A [448, 256] is half of the L2 cache */
    PIECES_PER_THREAD = 4,
    BLAS_PIECES = 8,
    WORKSPACES_MAX = 64,
};
/* A piece of this much work (multiply-adds) takes several round trips of the pool; less is not shared out. The skinny kernels
 * wait for memory, so that less work takes as long. */
static const double PIECE_WORK = 512.0 * 1024, SKINNY_PIECE_WORK = 128.0 * 1024;
/* From here on BLAS does the blocking, on processors where it is not slower; it wants larger pieces than our kernels. */
static const double BLAS_WORK = 128.0 * 128 * 128, BLAS_PIECE_WORK = 2048.0 * 1024;
/* One call of BLAS stays below 50 ms, the time within which an interrupt is noticed. */
static const double BLAS_CALL_WORK = 256.0 * 1024 * 1024;
static const int64_t BLAS_DEPTH = 4096;

/* Set once by gemm_select. */
static const struct gemm_kernels *kernels = &gemm_kernels_baseline;
static bool blas_for_large;

void gemm_select(cpu_isa isa)
{
    static const struct gemm_kernels *const by_isa[CPU_ISA_COUNT] = {
        [CPU_BASELINE] = &gemm_kernels_baseline,
        [CPU_AVX2] = &gemm_kernels_avx2,
        [CPU_AVX512] = &gemm_kernels_avx512,
    };
    kernels = by_isa[isa];
    /* OpenBLAS older than a processor runs its AVX2 kernels there, at half the speed of ours. */
    blas_for_large = blas_available() && isa != CPU_AVX512;
}

/* What differs between dtypes. */
struct real_type {
    size_t size;
    const struct gemm_real_kernels *kernels;
};

static struct real_type type_f32(void) { return (struct real_type){sizeof(float), &kernels->f32}; }
static struct real_type type_f64(void) { return (struct real_type){sizeof(double), &kernels->f64}; }

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
static double work_of(const struct gemm_product *p) { return (double)p->m * (double)p->n * (double)p->k; }

static const void *advance(const void *base, int64_t elements, size_t size)
{
    return (const char *)base + elements * (int64_t)size;
}

/* The part of a product that computes C[row : row + m, column : column + n]. */
static struct gemm_product part_of(const struct gemm_product *p, int64_t row, int64_t m, int64_t column, int64_t n, size_t size)
{
    struct gemm_product part = *p;
    part.m = m;
    part.n = n;
    part.a = advance(p->a, row * p->a_rs, size);
    part.b = advance(p->b, column * p->b_cs, size);
    part.c = (char *)p->c + (row * p->ldc + column) * (int64_t)size;
    if (p->bias != NULL) part.bias = advance(p->bias, column, size);
    return part;
}

static enum method choose_method(const struct gemm_product *p, const struct gemm_real_kernels *real)
{
    bool transposed = p->a_cs == 1 && p->b_rs == 1;
    if (transposed && smaller(p->m, p->n) <= real->dot_limit && p->k >= real->tile_columns) return METHOD_DOT;
    if (p->b_cs == 1 && p->m <= STREAM_ROWS && p->n >= real->tile_columns / 2) return METHOD_STREAM;
    bool unit_strides = (p->a_rs == 1 || p->a_cs == 1) && (p->b_rs == 1 || p->b_cs == 1);
    return blas_for_large && unit_strides && work_of(p) >= BLAS_WORK ? METHOD_BLAS : METHOD_BLOCK;
}

static bool call_blas(const struct gemm_product *p, int64_t k, size_t size, bool accumulate)
{
    if (size == sizeof(float)) {
        return blas_sgemm(p->m, p->n, k, p->a, p->a_rs, p->a_cs, p->b, p->b_rs, p->b_cs, p->c, p->ldc, accumulate);
    }
    return blas_dgemm(p->m, p->n, k, p->a, p->a_rs, p->a_cs, p->b, p->b_rs, p->b_cs, p->c, p->ldc, accumulate);
}

/* BLAS in steps of k, so that interrupts are polled. A product it cannot take goes to the block kernel. */
static void run_blas(const struct gemm_product *p, const struct real_type *type)
{
    struct gemm_product step = *p;
    for (int64_t done = 0; done < p->k; done += BLAS_DEPTH) {
        if (interrupt_pending()) return;
        step.a = advance(p->a, done * p->a_cs, type->size);
        step.b = advance(p->b, done * p->b_rs, type->size);
        if (!call_blas(&step, smaller(p->k - done, BLAS_DEPTH), type->size, p->accumulate || done > 0)) {
            type->kernels->block(p, NULL);
            return;
        }
    }
    type->kernels->finish(p);
}

static void run_method(const struct gemm_product *p, enum method method, const struct real_type *type, void *workspace)
{
    switch (method) {
    case METHOD_BLOCK: type->kernels->block(p, workspace); break;
    case METHOD_STREAM: type->kernels->stream(p); break;
    case METHOD_DOT: type->kernels->dot(p); break;
    case METHOD_BLAS: run_blas(p, type); break;
    }
}

/* A product cut into a grid of pieces. */
struct split {
    const struct gemm_product *product;
    const struct real_type *type;
    enum method method;
    int64_t piece_rows, piece_columns; /* of every piece but the last in its direction */
    int64_t grid_columns;
    /* Packing space, one slot for each thread that can be at work; claimed for the length of a piece. NULL: pack nothing. */
    char *workspaces;
    size_t workspace_bytes;
    int64_t num_workspaces;
    atomic_bool claimed[WORKSPACES_MAX];
};

static int64_t claim_workspace(struct split *split)
{
    for (int64_t i = 0; i < split->num_workspaces; i++) {
        if (!atomic_exchange_explicit(&split->claimed[i], true, memory_order_acquire)) return i;
    }
    return -1;
}

static void run_pieces(void *context, int64_t begin, int64_t end)
{
    struct split *split = context;
    const struct gemm_product *whole = split->product;
    int64_t slot = claim_workspace(split);
    void *workspace = slot < 0 ? NULL : split->workspaces + (size_t)slot * split->workspace_bytes;
    for (int64_t i = begin; i < end && !interrupt_pending(); i++) {
        int64_t row = i / split->grid_columns * split->piece_rows, column = i % split->grid_columns * split->piece_columns;
        struct gemm_product piece = part_of(whole, row, smaller(split->piece_rows, whole->m - row), column,
                                            smaller(split->piece_columns, whole->n - column), split->type->size);
        run_method(&piece, split->method, split->type, workspace);
    }
    if (slot >= 0) atomic_store_explicit(&split->claimed[slot], false, memory_order_release);
}

static double piece_work(const struct gemm_product *p, bool by_blas)
{
    if (by_blas) return BLAS_PIECE_WORK;
    return p->m <= STREAM_ROWS || p->n <= STREAM_ROWS ? SKINNY_PIECE_WORK : PIECE_WORK;
}

/* Chooses the grid: rows first as far as the cache asks, then columns, then more rows, until there are a few pieces for every
 * thread, none smaller than piece_work. Our kernels sum an element in the same order in any grid, so it may follow the number
 * of threads; BLAS promises nothing of the kind and gets a grid that follows from the shape. Returns the number of pieces. */
static int64_t plan_split(struct split *split)
{
    const struct gemm_product *p = split->product;
    const struct gemm_real_kernels *real = split->type->kernels;
    bool by_blas = split->method == METHOD_BLAS;
    int64_t most = (int64_t)pool_num_threads() * PIECES_PER_THREAD;
    if (by_blas) most = larger(BLAS_PIECES, (int64_t)(work_of(p) / BLAS_CALL_WORK));
    double pieces = work_of(p) / piece_work(p, by_blas);
    int64_t wanted = pieces > (double)most ? most : larger(1, (int64_t)pieces);
    int64_t grid_rows = ceil_div(p->m, PIECE_ROW_BYTES / (int64_t)split->type->size);
    int64_t grid_columns = larger(1, smaller(ceil_div(wanted, grid_rows), p->n / (2 * real->tile_columns)));
    if (grid_rows * grid_columns < wanted) {
        grid_rows = larger(grid_rows, smaller(wanted / grid_columns, p->m / (4 * real->tile_rows)));
    }
    split->piece_rows = ceil_div(ceil_div(p->m, grid_rows), real->tile_rows) * real->tile_rows;
    split->piece_columns = ceil_div(ceil_div(p->n, grid_columns), real->tile_columns) * real->tile_columns;
    split->grid_columns = ceil_div(p->n, split->piece_columns);
    return ceil_div(p->m, split->piece_rows) * split->grid_columns;
}

/* Packing A pays when many columns use it and it does not stay in the L1 cache anyway. */
static bool wants_workspace(const struct split *split)
{
    const struct gemm_product *p = split->product;
    return split->method == METHOD_BLOCK && split->piece_columns >= 4 * split->type->kernels->tile_columns &&
           p->m >= 4 * split->type->kernels->tile_rows && p->k >= 192;
}

/* Small products run on the calling thread, without memory of their own. */
static void run_serial(const struct gemm_product *p, const struct real_type *type)
{
    run_method(p, choose_method(p, type->kernels), type, NULL);
}

static void run_parallel(const struct gemm_product *p, const struct real_type *type)
{
    struct split split = {.product = p, .type = type, .method = choose_method(p, type->kernels)};
    int64_t num_pieces = plan_split(&split);
    size_t total = 0;
    if (wants_workspace(&split)) {
        split.num_workspaces = smaller(smaller(pool_num_threads(), num_pieces), WORKSPACES_MAX);
        split.workspace_bytes = (type->kernels->block_workspace_bytes(smaller(p->m, split.piece_rows)) + 63) & ~(size_t)63;
        total = split.workspace_bytes * (size_t)split.num_workspaces;
        split.workspaces = memory_alloc(total);
        /* Without memory the product is slower, not wrong. */
        if (split.workspaces == NULL) split.num_workspaces = 0;
    }
    pool_run(run_pieces, &split, num_pieces, 1);
    if (split.workspaces != NULL) memory_free(split.workspaces, total);
}

/* k = 0: a product of zeros. */
static void run_empty(const struct gemm_product *p, const struct real_type *type)
{
    for (int64_t i = 0; i < p->m && !p->accumulate; i++) {
        memset((char *)p->c + i * p->ldc * (int64_t)type->size, 0, (size_t)p->n * type->size);
    }
    type->kernels->finish(p);
}

/* Strides along a dim of size 1 mean nothing; the ones that open the fast kernels are written there. One column times a
 * column-major A is the same memory as one row times a row-major B, which the stream kernel reads in order. */
static void normalize(struct gemm_product *p)
{
    if (p->k == 1) p->a_cs = p->b_rs = 1;
    if (p->n == 1) p->b_cs = p->b_rs == 1 ? larger(p->k, 1) : 1;
    if (p->m == 1) p->a_rs = p->k;
    if (p->n == 1 && p->m > 1 && p->a_rs == 1 && p->a_cs != 1 && p->ldc == 1 && p->bias == NULL) {
        struct gemm_product turned = *p;
        turned.m = 1;
        turned.n = p->m;
        turned.a = p->b;
        turned.a_rs = p->k;
        turned.a_cs = p->b_rs;
        turned.b = p->a;
        turned.b_rs = p->a_cs;
        turned.b_cs = 1;
        turned.ldc = p->m;
        *p = turned;
    }
}

static void run_product(struct gemm_product *p, const struct real_type *type)
{
    if (p->m == 0 || p->n == 0) return;
    normalize(p);
    if (p->k == 0) run_empty(p, type);
    else if (work_of(p) < 2 * piece_work(p, false)) run_serial(p, type);
    else run_parallel(p, type);
}

struct batch {
    const struct gemm_product *product; /* of the first bases */
    const struct real_type *type;
    const int64_t *a_offsets, *b_offsets, *c_offsets;
};

static struct gemm_product product_at(const struct batch *batch, int64_t i)
{
    size_t size = batch->type->size;
    struct gemm_product p = *batch->product;
    p.a = advance(p.a, batch->a_offsets[i], size);
    p.b = advance(p.b, batch->b_offsets[i], size);
    p.c = (char *)p.c + batch->c_offsets[i] * (int64_t)size;
    return p;
}

static void run_batch_part(void *context, int64_t begin, int64_t end)
{
    const struct batch *batch = context;
    for (int64_t i = begin; i < end && !interrupt_pending(); i++) {
        struct gemm_product p = product_at(batch, i);
        normalize(&p);
        run_serial(&p, batch->type);
    }
}

/* Small products are shared out whole; large ones are each shared out by themselves. */
static void run_batch(struct gemm_product *p, const struct real_type *type, int64_t count, const int64_t *a_offsets,
                      const int64_t *b_offsets, const int64_t *c_offsets)
{
    if (p->m == 0 || p->n == 0) return;
    struct batch batch = {p, type, a_offsets, b_offsets, c_offsets};
    if (p->k > 0 && work_of(p) < 4 * PIECE_WORK) {
        int64_t grain = (int64_t)(PIECE_WORK / work_of(p)) + 1;
        pool_run(run_batch_part, &batch, count, grain);
        return;
    }
    for (int64_t i = 0; i < count && !interrupt_pending(); i++) {
        struct gemm_product one = product_at(&batch, i);
        run_product(&one, type);
    }
}

/* The arguments of the public functions as a record. */
#define PRODUCT()                                                                                               \
    (struct gemm_product)                                                                                       \
    {                                                                                                           \
        .m = m, .n = n, .k = k, .a = a, .a_rs = a_rs, .a_cs = a_cs, .b = b, .b_rs = b_rs, .b_cs = b_cs, .c = c, \
        .ldc = ldc, .accumulate = beta != 0, .bias = epilogue != NULL ? epilogue->bias : NULL,                  \
        .activation = epilogue != NULL ? epilogue->activation : GEMM_NONE,                                      \
    }

void gemm_f32(int64_t m, int64_t n, int64_t k, const float *a, int64_t a_rs, int64_t a_cs, const float *b, int64_t b_rs,
              int64_t b_cs, float *c, int64_t ldc, float beta, const struct gemm_epilogue *epilogue)
{
    assert(beta == 0 || beta == 1);
    struct gemm_product product = PRODUCT();
    struct real_type type = type_f32();
    run_product(&product, &type);
}

void gemm_f64(int64_t m, int64_t n, int64_t k, const double *a, int64_t a_rs, int64_t a_cs, const double *b, int64_t b_rs,
              int64_t b_cs, double *c, int64_t ldc, double beta, const struct gemm_epilogue *epilogue)
{
    assert(beta == 0 || beta == 1);
    struct gemm_product product = PRODUCT();
    struct real_type type = type_f64();
    run_product(&product, &type);
}

void gemm_batched_f32(int64_t batch, const int64_t *a_offsets, const int64_t *b_offsets, const int64_t *c_offsets, int64_t m,
                      int64_t n, int64_t k, const float *a, int64_t a_rs, int64_t a_cs, const float *b, int64_t b_rs,
                      int64_t b_cs, float *c, int64_t ldc, float beta, const struct gemm_epilogue *epilogue)
{
    assert(beta == 0 || beta == 1);
    struct gemm_product product = PRODUCT();
    struct real_type type = type_f32();
    run_batch(&product, &type, batch, a_offsets, b_offsets, c_offsets);
}

void gemm_batched_f64(int64_t batch, const int64_t *a_offsets, const int64_t *b_offsets, const int64_t *c_offsets, int64_t m,
                      int64_t n, int64_t k, const double *a, int64_t a_rs, int64_t a_cs, const double *b, int64_t b_rs,
                      int64_t b_cs, double *c, int64_t ldc, double beta, const struct gemm_epilogue *epilogue)
{
    assert(beta == 0 || beta == 1);
    struct gemm_product product = PRODUCT();
    struct real_type type = type_f64();
    run_batch(&product, &type, batch, a_offsets, b_offsets, c_offsets);
}
