/* lanes.h: the few vector operations that the fused kernels are written with, once for float and once for double.
 *
 * Sources that serve both types are bodies in a .inc file, included once with REAL_IS_F64 0 and once with 1 (see real.h).
 * A row is walked in blocks of LANES_BLOCK elements: partial results are vectors within a block and doubles across blocks,
 * so a row of any length loses no accuracy and the order of a sum depends on its length only.
 */
#ifndef ARGAND_CPU_LANES_H
#define ARGAND_CPU_LANES_H

#include <string.h>

#include "cpu/simd/simd.h"

#if SIMD_BYTES >= 32
#include <immintrin.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#endif

/* Elements of a block: 4 KiB of float, so input, output and a temporary of one block stay in the L1 cache. */
enum { LANES_BLOCK = 1024 };
/* Outputs from this size on cannot be found in the last-level cache later, so they are written past it. */
enum { LANES_STREAM_BYTES = 16 << 20 };

typedef int64_t vi64 __attribute__((vector_size(SIMD_BYTES)));
typedef uint64_t vu64 __attribute__((vector_size(SIMD_BYTES)));

#if SIMD_BYTES == 64
static const vi32 lane_index_f32 = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
static const vi64 lane_index_f64 = {0, 1, 2, 3, 4, 5, 6, 7};
#elif SIMD_BYTES == 32
static const vi32 lane_index_f32 = {0, 1, 2, 3, 4, 5, 6, 7};
static const vi64 lane_index_f64 = {0, 1, 2, 3};
#else
static const vi32 lane_index_f32 = {0, 1, 2, 3};
static const vi64 lane_index_f64 = {0, 1};
#endif

/* What C has no operator for, per lane:
 * max keeps `a` where b is NaN, so a NaN reaches a result through a sum and not through the maximum;
 * multiply_u32 is the 64-bit product of the low halves of 64-bit lanes;
 * stream stores past the caches: dst is aligned to SIMD_BYTES, and stream_fence follows the last one. */
#if SIMD_BYTES == 64
static inline vf32 max_f32(vf32 a, vf32 b) { return (vf32)_mm512_max_ps((__m512)b, (__m512)a); }
static inline vf64 max_f64(vf64 a, vf64 b) { return (vf64)_mm512_max_pd((__m512d)b, (__m512d)a); }
static inline vf32 sqrt_f32(vf32 v) { return (vf32)_mm512_sqrt_ps((__m512)v); }
static inline vf64 sqrt_f64(vf64 v) { return (vf64)_mm512_sqrt_pd((__m512d)v); }
static inline vu64 multiply_u32(vu64 a, vu64 b) { return (vu64)_mm512_mul_epu32((__m512i)a, (__m512i)b); }
static inline void stream_f32(float *dst, vf32 v) { _mm512_stream_ps(dst, (__m512)v); }
static inline void stream_f64(double *dst, vf64 v) { _mm512_stream_pd(dst, (__m512d)v); }
static inline void stream_fence(void) { _mm_sfence(); }
#elif SIMD_BYTES == 32
static inline vf32 max_f32(vf32 a, vf32 b) { return (vf32)_mm256_max_ps((__m256)b, (__m256)a); }
static inline vf64 max_f64(vf64 a, vf64 b) { return (vf64)_mm256_max_pd((__m256d)b, (__m256d)a); }
static inline vf32 sqrt_f32(vf32 v) { return (vf32)_mm256_sqrt_ps((__m256)v); }
static inline vf64 sqrt_f64(vf64 v) { return (vf64)_mm256_sqrt_pd((__m256d)v); }
static inline vu64 multiply_u32(vu64 a, vu64 b) { return (vu64)_mm256_mul_epu32((__m256i)a, (__m256i)b); }
static inline void stream_f32(float *dst, vf32 v) { _mm256_stream_ps(dst, (__m256)v); }
static inline void stream_f64(double *dst, vf64 v) { _mm256_stream_pd(dst, (__m256d)v); }
static inline void stream_fence(void) { _mm_sfence(); }
#elif defined(__SSE2__)
static inline vf32 max_f32(vf32 a, vf32 b) { return (vf32)_mm_max_ps((__m128)b, (__m128)a); }
static inline vf64 max_f64(vf64 a, vf64 b) { return (vf64)_mm_max_pd((__m128d)b, (__m128d)a); }
static inline vf32 sqrt_f32(vf32 v) { return (vf32)_mm_sqrt_ps((__m128)v); }
static inline vf64 sqrt_f64(vf64 v) { return (vf64)_mm_sqrt_pd((__m128d)v); }
static inline vu64 multiply_u32(vu64 a, vu64 b) { return (vu64)_mm_mul_epu32((__m128i)a, (__m128i)b); }
static inline void stream_f32(float *dst, vf32 v) { _mm_stream_ps(dst, (__m128)v); }
static inline void stream_f64(double *dst, vf64 v) { _mm_stream_pd(dst, (__m128d)v); }
static inline void stream_fence(void) { _mm_sfence(); }
#else
static inline vf32 max_f32(vf32 a, vf32 b) {
    for (int j = 0; j < SIMD_F32; j++) a[j] = b[j] > a[j] ? b[j] : a[j];
    return a;
}
static inline vf64 max_f64(vf64 a, vf64 b) {
    for (int j = 0; j < SIMD_F64; j++) a[j] = b[j] > a[j] ? b[j] : a[j];
    return a;
}
static inline vf32 sqrt_f32(vf32 v) {
    for (int j = 0; j < SIMD_F32; j++) v[j] = __builtin_sqrtf(v[j]);
    return v;
}
static inline vf64 sqrt_f64(vf64 v) {
    for (int j = 0; j < SIMD_F64; j++) v[j] = __builtin_sqrt(v[j]);
    return v;
}
static inline vu64 multiply_u32(vu64 a, vu64 b) { return (a & 0xffffffffu) * (b & 0xffffffffu); }
static inline void stream_f32(float *dst, vf32 v) { *(vf32 *)dst = v; }
static inline void stream_f64(double *dst, vf64 v) { *(vf64 *)dst = v; }
static inline void stream_fence(void) {}
#endif

#define LANES_DECLARE(real, suffix, vector, unaligned, lanes)                                                     \
    static inline vector splat_##suffix(real value) { return value - (vector){0}; }                               \
    static inline vector load_##suffix(const real *src) { return *(const unaligned *)src; }                       \
    static inline void store_##suffix(real *dst, vector v) { *(unaligned *)dst = v; }                             \
    static inline real lanes_sum_##suffix(vector v) {                                                             \
        if (lanes > 8) v += __builtin_shuffle(v, lane_index_##suffix ^ 8);                                        \
        if (lanes > 4) v += __builtin_shuffle(v, lane_index_##suffix ^ 4);                                        \
        if (lanes > 2) v += __builtin_shuffle(v, lane_index_##suffix ^ 2);                                        \
        v += __builtin_shuffle(v, lane_index_##suffix ^ 1);                                                       \
        return v[0];                                                                                              \
    }                                                                                                             \
    static inline real lanes_max_##suffix(vector v) {                                                             \
        if (lanes > 8) v = max_##suffix(v, __builtin_shuffle(v, lane_index_##suffix ^ 8));                        \
        if (lanes > 4) v = max_##suffix(v, __builtin_shuffle(v, lane_index_##suffix ^ 4));                        \
        if (lanes > 2) v = max_##suffix(v, __builtin_shuffle(v, lane_index_##suffix ^ 2));                        \
        v = max_##suffix(v, __builtin_shuffle(v, lane_index_##suffix ^ 1));                                       \
        return v[0];                                                                                              \
    }

LANES_DECLARE(float, f32, vf32, vf32u, SIMD_F32)
LANES_DECLARE(double, f64, vf64, vf64u, SIMD_F64)

/* load_part and store_part touch 0 < len <= LANES elements; the lanes beyond are `fill`, or are not written. */
#if SIMD_BYTES == 64
static inline vf32 load_part_f32(const float *src, int64_t len, float fill) {
    return (vf32)_mm512_mask_loadu_ps((__m512)splat_f32(fill), (__mmask16)((1u << len) - 1), src);
}
static inline vf64 load_part_f64(const double *src, int64_t len, double fill) {
    return (vf64)_mm512_mask_loadu_pd((__m512d)splat_f64(fill), (__mmask8)((1u << len) - 1), src);
}
static inline void store_part_f32(float *dst, vf32 v, int64_t len) {
    _mm512_mask_storeu_ps(dst, (__mmask16)((1u << len) - 1), (__m512)v);
}
static inline void store_part_f64(double *dst, vf64 v, int64_t len) {
    _mm512_mask_storeu_pd(dst, (__mmask8)((1u << len) - 1), (__m512d)v);
}
#elif SIMD_BYTES == 32
static inline vf32 load_part_f32(const float *src, int64_t len, float fill) {
    __m256i mask = (__m256i)(lane_index_f32 < (int32_t)len);
    return (vf32)_mm256_blendv_ps((__m256)splat_f32(fill), _mm256_maskload_ps(src, mask), (__m256)mask);
}
static inline vf64 load_part_f64(const double *src, int64_t len, double fill) {
    __m256i mask = (__m256i)(lane_index_f64 < len);
    return (vf64)_mm256_blendv_pd((__m256d)splat_f64(fill), _mm256_maskload_pd(src, mask), (__m256d)mask);
}
static inline void store_part_f32(float *dst, vf32 v, int64_t len) {
    _mm256_maskstore_ps(dst, (__m256i)(lane_index_f32 < (int32_t)len), (__m256)v);
}
static inline void store_part_f64(double *dst, vf64 v, int64_t len) {
    _mm256_maskstore_pd(dst, (__m256i)(lane_index_f64 < len), (__m256d)v);
}
#else
static inline vf32 load_part_f32(const float *src, int64_t len, float fill) {
    vf32 v = splat_f32(fill);
    memcpy(&v, src, (size_t)len * sizeof(float));
    return v;
}
static inline vf64 load_part_f64(const double *src, int64_t len, double fill) {
    vf64 v = splat_f64(fill);
    memcpy(&v, src, (size_t)len * sizeof(double));
    return v;
}
static inline void store_part_f32(float *dst, vf32 v, int64_t len) { memcpy(dst, &v, (size_t)len * sizeof(float)); }
static inline void store_part_f64(double *dst, vf64 v, int64_t len) { memcpy(dst, &v, (size_t)len * sizeof(double)); }
#endif

#endif
