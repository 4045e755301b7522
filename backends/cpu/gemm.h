/* gemm.h: matrix product for f32 and f64.
 *
 * C[m,n] = beta * C + A[m,k] B[k,n], then bias, then activation. A and B are strided views: a transposed operand is the same
 * memory with its strides swapped, and is never copied by the caller. C is row-major.
 *
 * Three kernels do the work, chosen by shape and strides alone:
 *   block   a register tile of C over packed panels; any shape and any strides
 *   stream  few rows of A and a row-major B, which is read once in memory order
 *   dot     both operands contiguous along k, where packing a transposed B would cost more than the product
 * Every element of C is summed in one order that its shape fixes: threads split m and n, never k. Zeros are never skipped, so
 * NaN and infinity propagate. A product that finds an interrupt pending returns early and leaves C unspecified.
 */
#ifndef ARGAND_CPU_GEMM_H
#define ARGAND_CPU_GEMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "platform/cpu.h"

enum gemm_activation { GEMM_NONE, GEMM_RELU };

struct gemm_epilogue {
    const void *bias; /* [n] of the product's dtype, or NULL */
    enum gemm_activation activation;
};

/* One product, or the part of one that a task computes. Strides count elements. */
struct gemm_product {
    int64_t m, n, k;
    const void *a; /* [m, k] */
    int64_t a_rs, a_cs;
    const void *b; /* [k, n] */
    int64_t b_rs, b_cs;
    void *c; /* [m, n], columns contiguous */
    int64_t ldc;
    bool accumulate; /* beta is 1 */
    const void *bias;
    enum gemm_activation activation;
};

/* Kernels of one dtype. Each computes a whole product on the calling thread and needs k >= 1. */
struct gemm_real_kernels {
    int64_t tile_rows, tile_columns; /* register tile; also the sensible unit of a split */
    int64_t dot_limit; /* `dot` beats `block` while m or n is at most this */
    /* workspace holds block_workspace_bytes(m) for a packed copy of A, or is NULL: A is then read where it lies. */
    void (*block)(const struct gemm_product *product, void *workspace);
    void (*stream)(const struct gemm_product *product); /* needs b_cs == 1 */
    void (*dot)(const struct gemm_product *product);    /* needs a_cs == 1 and b_rs == 1 */
    size_t (*block_workspace_bytes)(int64_t m);
    void (*finish)(const struct gemm_product *product); /* bias and activation over C as it stands */
};

struct gemm_kernels {
    struct gemm_real_kernels f32, f64;
};

extern const struct gemm_kernels gemm_kernels_baseline;
extern const struct gemm_kernels gemm_kernels_avx2;
extern const struct gemm_kernels gemm_kernels_avx512;

/* gemm_select picks the kernels of an instruction set. Call it once, before the first product. */
void gemm_select(cpu_isa isa);

/* gemm_f32 computes c = beta * c + a b over a [m,k], b [k,n], c [m,n]; beta is 0 (c may hold anything) or 1. k = 0 counts as a
 * product of zeros. All memory is borrowed for the call; c overlaps neither input. `epilogue` may be NULL. */
void gemm_f32(int64_t m, int64_t n, int64_t k, const float *a, int64_t a_rs, int64_t a_cs, const float *b, int64_t b_rs,
              int64_t b_cs, float *c, int64_t ldc, float beta, const struct gemm_epilogue *epilogue);
void gemm_f64(int64_t m, int64_t n, int64_t k, const double *a, int64_t a_rs, int64_t a_cs, const double *b, int64_t b_rs,
              int64_t b_cs, double *c, int64_t ldc, double beta, const struct gemm_epilogue *epilogue);

/* gemm_batched_f32 computes `batch` products of one shape; operand i starts at a + a_offsets[i] and so on, in elements. The C
 * matrices must not overlap. */
void gemm_batched_f32(int64_t batch, const int64_t *a_offsets, const int64_t *b_offsets, const int64_t *c_offsets, int64_t m,
                      int64_t n, int64_t k, const float *a, int64_t a_rs, int64_t a_cs, const float *b, int64_t b_rs,
                      int64_t b_cs, float *c, int64_t ldc, float beta, const struct gemm_epilogue *epilogue);
void gemm_batched_f64(int64_t batch, const int64_t *a_offsets, const int64_t *b_offsets, const int64_t *c_offsets, int64_t m,
                      int64_t n, int64_t k, const double *a, int64_t a_rs, int64_t a_cs, const double *b, int64_t b_rs,
                      int64_t b_cs, double *c, int64_t ldc, double beta, const struct gemm_epilogue *epilogue);

#endif
