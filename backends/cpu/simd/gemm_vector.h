/* gemm_vector.h: the few vector operations of the matrix product that the language's own vector type lacks. */
#ifndef ARGAND_CPU_SIMD_GEMM_VECTOR_H
#define ARGAND_CPU_SIMD_GEMM_VECTOR_H

#include <string.h>

#include "cpu/simd/simd.h"

#if SIMD_BYTES > 16
#include <immintrin.h>
#endif

typedef int64_t vi64 __attribute__((vector_size(SIMD_BYTES)));

/* fma_*: a * b + c, rounded once where the instruction set can (the baseline rounds twice).
 * load_part_*: the first `count` lanes of memory, zeros in the rest; reads nothing past them. store_part_* is its mirror. */
static inline vf32 splat_f32(float x) { return x - (vf32){0}; } /* not +: that would turn -0 into 0 */
static inline vf64 splat_f64(double x) { return x - (vf64){0}; }
#if SIMD_BYTES == 64
static inline vf32 fma_f32(vf32 a, vf32 b, vf32 c) { return (vf32)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c); }
static inline vf64 fma_f64(vf64 a, vf64 b, vf64 c) { return (vf64)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c); }
static inline vf32 load_part_f32(const float *src, int64_t count)
{
    return (vf32)_mm512_maskz_loadu_ps((__mmask16)((1u << count) - 1), src);
}
static inline vf64 load_part_f64(const double *src, int64_t count)
{
    return (vf64)_mm512_maskz_loadu_pd((__mmask8)((1u << count) - 1), src);
}
static inline void store_part_f32(float *dst, vf32 value, int64_t count)
{
    _mm512_mask_storeu_ps(dst, (__mmask16)((1u << count) - 1), (__m512)value);
}
static inline void store_part_f64(double *dst, vf64 value, int64_t count)
{
    _mm512_mask_storeu_pd(dst, (__mmask8)((1u << count) - 1), (__m512d)value);
}
static inline float sum_lanes_f32(vf32 value) { return _mm512_reduce_add_ps((__m512)value); }
static inline double sum_lanes_f64(vf64 value) { return _mm512_reduce_add_pd((__m512d)value); }
#else
#if SIMD_BYTES == 32
static inline vf32 fma_f32(vf32 a, vf32 b, vf32 c) { return (vf32)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c); }
static inline vf64 fma_f64(vf64 a, vf64 b, vf64 c) { return (vf64)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c); }
#else
static inline vf32 fma_f32(vf32 a, vf32 b, vf32 c) { return a * b + c; }
static inline vf64 fma_f64(vf64 a, vf64 b, vf64 c) { return a * b + c; }
#endif
static inline vf32 load_part_f32(const float *src, int64_t count)
{
    vf32 value = {0};
    memcpy(&value, src, (size_t)count * sizeof(float));
    return value;
}
static inline vf64 load_part_f64(const double *src, int64_t count)
{
    vf64 value = {0};
    memcpy(&value, src, (size_t)count * sizeof(double));
    return value;
}
static inline void store_part_f32(float *dst, vf32 value, int64_t count)
{
    memcpy(dst, &value, (size_t)count * sizeof(float));
}
static inline void store_part_f64(double *dst, vf64 value, int64_t count)
{
    memcpy(dst, &value, (size_t)count * sizeof(double));
}
/* Pairwise, as a tree over the lanes. */
static inline float sum_lanes_f32(vf32 value)
{
    float lanes[SIMD_F32];
    memcpy(lanes, &value, sizeof lanes);
    for (int half = SIMD_F32 / 2; half > 0; half /= 2) {
        for (int i = 0; i < half; i++) lanes[i] += lanes[i + half];
    }
    return lanes[0];
}
static inline double sum_lanes_f64(vf64 value)
{
    double lanes[SIMD_F64];
    memcpy(lanes, &value, sizeof lanes);
    for (int half = SIMD_F64 / 2; half > 0; half /= 2) {
        for (int i = 0; i < half; i++) lanes[i] += lanes[i + half];
    }
    return lanes[0];
}
#endif

#endif
