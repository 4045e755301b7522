/* convert.c: element conversion between all pairs of dtypes.
 *
 * A pair is one small function over contiguous elements. Strided runs are gathered to a block, converted and scattered, so
 * that a pair has one loop only. f16 and bf16 go through a block of f32. A pair that moves the same bits as another shares
 * its function: int to int depends on the sizes and the sign of the source, and a bool reads as u8.
 */
#include "cpu/convert.h"

#include <stddef.h>
#include <string.h>

#include "cpu/simd/simd.h"

#if defined(__F16C__)
#include <immintrin.h>
#endif

#define BLOCK 512 /* elements: 4 KiB of f64 */

/* Inlining a loop into each of the hundred pairs would double the object and gain nothing. */
#define NOT_CLONED __attribute__((noinline, noclone))

/* Contiguous conversion, the body of a pair. */
typedef void (*block_convert)(int64_t n, const void *src, void *dst);

union block {
    uint64_t wide[BLOCK]; /* gives alignment */
    uint8_t bytes[BLOCK * 8];
};

/* ---- strided copies by element size ---- */

/* The elements may be of any type of that size: hence may_alias. An empty run may come without an address. */
#define DEFINE_COPY(bits)                                                                                             \
    typedef uint##bits##_t __attribute__((may_alias)) any_##bits;                                                     \
    static void copy_##bits(int64_t n, const void *src, int64_t src_stride, void *dst, int64_t dst_stride)            \
    {                                                                                                                 \
        const any_##bits *from = src;                                                                                 \
        any_##bits *to = dst;                                                                                         \
        if (src_stride == 1 && dst_stride == 1 && n > 0)                                                              \
            memcpy(to, from, (size_t)n * sizeof *to);                                                                 \
        else                                                                                                          \
            for (int64_t i = 0; i < n; i++)                                                                           \
                to[i * dst_stride] = from[i * src_stride];                                                            \
    }
DEFINE_COPY(8)
DEFINE_COPY(16)
DEFINE_COPY(32)
DEFINE_COPY(64)

static void copy_run(size_t size, int64_t n, const void *src, int64_t src_stride, void *dst, int64_t dst_stride)
{
    switch (size) {
    case 1: copy_8(n, src, src_stride, dst, dst_stride); break;
    case 2: copy_16(n, src, src_stride, dst, dst_stride); break;
    case 4: copy_32(n, src, src_stride, dst, dst_stride); break;
    default: copy_64(n, src, src_stride, dst, dst_stride); break;
    }
}

/* Offsets are computed on bytes: a stride may be negative, and nothing outside the run is touched. One copy for all pairs. */
static NOT_CLONED void convert_strided(block_convert convert, int64_t n, const char *src, size_t src_size, int64_t src_stride,
                                       char *dst, size_t dst_size, int64_t dst_stride)
{
    if (src_stride == 1 && dst_stride == 1) {
        convert(n, src, dst);
        return;
    }
    union block gathered, converted;
    for (int64_t begin = 0; begin < n; begin += BLOCK) {
        int64_t num = n - begin < BLOCK ? n - begin : BLOCK;
        const char *from = src + begin * src_stride * (int64_t)src_size;
        char *to = dst + begin * dst_stride * (int64_t)dst_size;
        const void *in = from;
        if (src_stride != 1) {
            copy_run(src_size, num, from, src_stride, gathered.bytes, 1);
            in = gathered.bytes;
        }
        if (dst_stride == 1) {
            convert(num, in, to);
        } else {
            convert(num, in, converted.bytes);
            copy_run(dst_size, num, converted.bytes, 1, to, dst_stride);
        }
    }
}

/* ---- single values ---- */

/* Clamped first, so that the conversion is defined for every value and stays vector code. `high` is the largest value of the
 * float type that the int type holds; `above`, its successor or itself, is where saturation starts. */
#define DEFINE_WIDE(name, float_type, int_type, low, high, above, max)                 \
    static inline int_type name(float_type x)                                          \
    {                                                                                  \
        float_type clamped = x > (float_type)(low) ? x : (float_type)(low);            \
        clamped = clamped < (float_type)(high) ? clamped : (float_type)(high);         \
        clamped = x == x ? clamped : (float_type)0;                                    \
        int_type whole = (int_type)clamped;                                            \
        return x >= (float_type)(above) ? (max) : whole;                               \
    }
DEFINE_WIDE(f64_to_i64, double, int64_t, INT64_MIN, 0x1.fffffffffffffp62, 0x1p63, INT64_MAX)
DEFINE_WIDE(f64_to_i32, double, int32_t, INT32_MIN, INT32_MAX, INT32_MAX, INT32_MAX)
DEFINE_WIDE(f32_to_i64, float, int64_t, INT64_MIN, 0x1.fffffep62f, 0x1p63f, INT64_MAX)
DEFINE_WIDE(f32_to_i32, float, int32_t, INT32_MIN, 0x1.fffffep30f, 0x1p31f, INT32_MAX)

/* Narrow ints pass through i32: the clamp is exact in either float type. */
#define DEFINE_NARROW(name, float_type, int_type, low, high)                          \
    static inline int_type name(float_type x)                                         \
    {                                                                                 \
        float_type clamped = x > (float_type)(low) ? x : (float_type)(low);           \
        clamped = clamped < (float_type)(high) ? clamped : (float_type)(high);        \
        clamped = x == x ? clamped : (float_type)0;                                   \
        return (int_type)(int32_t)clamped;                                            \
    }
DEFINE_NARROW(f64_to_i16, double, int16_t, INT16_MIN, INT16_MAX)
DEFINE_NARROW(f64_to_i8, double, int8_t, INT8_MIN, INT8_MAX)
DEFINE_NARROW(f64_to_u8, double, uint8_t, 0, UINT8_MAX)
DEFINE_NARROW(f32_to_i16, float, int16_t, INT16_MIN, INT16_MAX)
DEFINE_NARROW(f32_to_i8, float, int8_t, INT8_MIN, INT8_MAX)
DEFINE_NARROW(f32_to_u8, float, uint8_t, 0, UINT8_MAX)

#define PLAIN(x) (x)
#define IS_SET(x) ((x) != 0)

/* ---- contiguous blocks: name, source type, destination type, value ---- */

#define DEFINE_BLOCK(name, src_type, dst_type, value)                   \
    static void block_##name(int64_t n, const void *src, void *dst)     \
    {                                                                   \
        const src_type *restrict from = src;                            \
        dst_type *restrict to = dst;                                    \
        for (int64_t i = 0; i < n; i++)                                 \
            to[i] = (dst_type)value(from[i]);                           \
    }

#define FLOAT_BLOCKS(src, src_type)                            \
    DEFINE_BLOCK(src##_i64, src_type, int64_t, src##_to_i64)   \
    DEFINE_BLOCK(src##_i32, src_type, int32_t, src##_to_i32)   \
    DEFINE_BLOCK(src##_i16, src_type, int16_t, src##_to_i16)   \
    DEFINE_BLOCK(src##_i8, src_type, int8_t, src##_to_i8)      \
    DEFINE_BLOCK(src##_u8, src_type, uint8_t, src##_to_u8)     \
    DEFINE_BLOCK(src##_bool, src_type, uint8_t, IS_SET)
FLOAT_BLOCKS(f64, double)
FLOAT_BLOCKS(f32, float)
DEFINE_BLOCK(f64_f32, double, float, PLAIN)
DEFINE_BLOCK(f32_f64, float, double, PLAIN)

#define INT_TO_FLOAT_BLOCKS(src, src_type)                \
    DEFINE_BLOCK(src##_f64, src_type, double, PLAIN)      \
    DEFINE_BLOCK(src##_f32, src_type, float, PLAIN)       \
    DEFINE_BLOCK(src##_bool, src_type, uint8_t, IS_SET)
INT_TO_FLOAT_BLOCKS(i64, int64_t)
INT_TO_FLOAT_BLOCKS(i32, int32_t)
INT_TO_FLOAT_BLOCKS(i16, int16_t)
INT_TO_FLOAT_BLOCKS(i8, int8_t)
DEFINE_BLOCK(u8_f64, uint8_t, double, PLAIN)
DEFINE_BLOCK(u8_f32, uint8_t, float, PLAIN)

DEFINE_BLOCK(i64_i32, int64_t, int32_t, PLAIN)
DEFINE_BLOCK(i64_i16, int64_t, int16_t, PLAIN)
DEFINE_BLOCK(i64_i8, int64_t, int8_t, PLAIN)
DEFINE_BLOCK(i32_i64, int32_t, int64_t, PLAIN)
DEFINE_BLOCK(i32_i16, int32_t, int16_t, PLAIN)
DEFINE_BLOCK(i32_i8, int32_t, int8_t, PLAIN)
DEFINE_BLOCK(i16_i64, int16_t, int64_t, PLAIN)
DEFINE_BLOCK(i16_i32, int16_t, int32_t, PLAIN)
DEFINE_BLOCK(i16_i8, int16_t, int8_t, PLAIN)
DEFINE_BLOCK(i8_i64, int8_t, int64_t, PLAIN)
DEFINE_BLOCK(i8_i32, int8_t, int32_t, PLAIN)
DEFINE_BLOCK(i8_i16, int8_t, int16_t, PLAIN)
DEFINE_BLOCK(u8_i64, uint8_t, int64_t, PLAIN)
DEFINE_BLOCK(u8_i32, uint8_t, int32_t, PLAIN)
DEFINE_BLOCK(u8_i16, uint8_t, int16_t, PLAIN)

/* ---- half precision ---- */

static inline uint32_t float_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float float_from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

#if defined(__F16C__)
static inline float half_decode(uint16_t half) { return _cvtsh_ss(half); }
static inline uint16_t half_encode(float x) { return (uint16_t)_cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT); }
#else
/* Moved up 13 bits a half is a float whose exponent is 112 too small. Subnormals: with exponent 113 the fraction stands
 * behind a one that is 2^-14, which the subtraction takes off. A signalling NaN becomes quiet, as F16C does it. */
static inline float half_decode(uint16_t half)
{
    uint32_t magnitude = (half & 0x7fffu) << 13;
    uint32_t normal = magnitude + (112u << 23);
    uint32_t special = magnitude + (224u << 23);
    uint32_t quiet = magnitude > 0x0f800000u ? special | 0x400000u : special;
    float small = float_from_bits(magnitude + (113u << 23)) - 0x1p-14f;
    uint32_t bits = magnitude >= 0x0f800000u ? quiet : magnitude < 0x00800000u ? float_bits(small) : normal;
    return float_from_bits(bits | (uint32_t)(half & 0x8000u) << 16);
}

/* Round to nearest even by adding half of the last place, less one when the bit kept is even; a carry runs into the exponent
 * and up to Inf. Below 2^-14 the float addition of 1/2 does the rounding: its last place is that of a subnormal half. */
static inline uint16_t half_encode(float x)
{
    uint32_t bits = float_bits(x), magnitude = bits & 0x7fffffffu;
    uint32_t normal = (magnitude + 0xfffu + (magnitude >> 13 & 1u) - (112u << 23)) >> 13;
    uint32_t small = float_bits(float_from_bits(magnitude) + 0.5f) - 0x3f000000u;
    uint32_t special = magnitude > 0x7f800000u ? 0x7e00u | (magnitude >> 13 & 0x3ffu) : 0x7c00u;
    uint32_t half = magnitude >= 0x47800000u ? special : magnitude < 0x38800000u ? small : normal;
    return (uint16_t)(half | (bits >> 16 & 0x8000u));
}
#endif

/* gcc 12 makes no vector code of the F16C conversions, so whole vectors are written out and the loop does the rest. */
static void block_f16_f32(int64_t n, const void *src, void *dst)
{
    const uint16_t *restrict from = src;
    float *restrict to = dst;
    int64_t i = 0;
#if defined(__AVX512F__)
    for (; i + 16 <= n; i += 16)
        _mm512_storeu_ps(to + i, _mm512_cvtph_ps(_mm256_loadu_si256((const void *)(from + i))));
#elif defined(__F16C__)
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128((const void *)(from + i))));
#endif
    for (; i < n; i++)
        to[i] = half_decode(from[i]);
}

static void block_f32_f16(int64_t n, const void *src, void *dst)
{
    const float *restrict from = src;
    uint16_t *restrict to = dst;
    int64_t i = 0;
#if defined(__AVX512F__)
    for (; i + 16 <= n; i += 16)
        _mm256_storeu_si256((void *)(to + i), _mm512_cvtps_ph(_mm512_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
#elif defined(__F16C__)
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((void *)(to + i), _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
#endif
    for (; i < n; i++)
        to[i] = half_encode(from[i]);
}

static inline float bfloat_decode(uint16_t bfloat) { return float_from_bits((uint32_t)bfloat << 16); }

static inline uint16_t bfloat_encode(float x)
{
    uint32_t bits = float_bits(x);
    uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    return (uint16_t)(x == x ? rounded : bits >> 16 | 0x40u);
}

DEFINE_BLOCK(bf16_f32, uint16_t, float, bfloat_decode)
DEFINE_BLOCK(f32_bf16, float, uint16_t, bfloat_encode)

/* Source to f32, f32 to destination, block by block. */
static NOT_CLONED void convert_twice(block_convert first, block_convert second, int64_t n, const char *src, size_t src_size,
                                     char *dst, size_t dst_size)
{
    union block middle;
    for (int64_t begin = 0; begin < n; begin += BLOCK) {
        int64_t num = n - begin < BLOCK ? n - begin : BLOCK;
        first(num, src + (size_t)begin * src_size, middle.bytes);
        second(num, middle.bytes, dst + (size_t)begin * dst_size);
    }
}

#define DEFINE_TWICE(src, src_size, dst, dst_size)                                                    \
    static void block_##src##_##dst(int64_t n, const void *from, void *to)                            \
    {                                                                                                 \
        convert_twice(block_##src##_f32, block_f32_##dst, n, from, src_size, to, dst_size);           \
    }
#define HALF_BLOCKS(half, other)           \
    DEFINE_TWICE(half, 2, f64, 8)          \
    DEFINE_TWICE(half, 2, other, 2)        \
    DEFINE_TWICE(half, 2, i64, 8)          \
    DEFINE_TWICE(half, 2, i32, 4)          \
    DEFINE_TWICE(half, 2, i16, 2)          \
    DEFINE_TWICE(half, 2, i8, 1)           \
    DEFINE_TWICE(half, 2, u8, 1)           \
    DEFINE_TWICE(half, 2, bool, 1)         \
    DEFINE_TWICE(f64, 8, half, 2)          \
    DEFINE_TWICE(i64, 8, half, 2)          \
    DEFINE_TWICE(i32, 4, half, 2)          \
    DEFINE_TWICE(i16, 2, half, 2)          \
    DEFINE_TWICE(i8, 1, half, 2)           \
    DEFINE_TWICE(u8, 1, half, 2)
HALF_BLOCKS(f16, bf16)
HALF_BLOCKS(bf16, f16)

/* ---- one run function a pair ---- */

#define RUN(src, src_size, dst, dst_size)                                                                            \
    static void run_##src##_##dst(int64_t n, const void *from, int64_t src_stride, void *to, int64_t dst_stride)     \
    {                                                                                                                \
        convert_strided(block_##src##_##dst, n, from, src_size, src_stride, to, dst_size, dst_stride);               \
    }

#define FLOAT_RUNS(src, src_size)   \
    RUN(src, src_size, i64, 8)      \
    RUN(src, src_size, i32, 4)      \
    RUN(src, src_size, i16, 2)      \
    RUN(src, src_size, i8, 1)       \
    RUN(src, src_size, u8, 1)       \
    RUN(src, src_size, bool, 1)
FLOAT_RUNS(f64, 8)
FLOAT_RUNS(f32, 4)
FLOAT_RUNS(f16, 2)
FLOAT_RUNS(bf16, 2)

#define TO_FLOAT_RUNS(src, src_size) \
    RUN(src, src_size, f64, 8)       \
    RUN(src, src_size, f32, 4)       \
    RUN(src, src_size, f16, 2)       \
    RUN(src, src_size, bf16, 2)
TO_FLOAT_RUNS(i64, 8)
TO_FLOAT_RUNS(i32, 4)
TO_FLOAT_RUNS(i16, 2)
TO_FLOAT_RUNS(i8, 1)
TO_FLOAT_RUNS(u8, 1)

RUN(f64, 8, f32, 4) RUN(f64, 8, f16, 2) RUN(f64, 8, bf16, 2)
RUN(f32, 4, f64, 8) RUN(f32, 4, f16, 2) RUN(f32, 4, bf16, 2)
RUN(f16, 2, f64, 8) RUN(f16, 2, f32, 4) RUN(f16, 2, bf16, 2)
RUN(bf16, 2, f64, 8) RUN(bf16, 2, f32, 4) RUN(bf16, 2, f16, 2)

RUN(i64, 8, i32, 4) RUN(i64, 8, i16, 2) RUN(i64, 8, i8, 1) RUN(i64, 8, bool, 1)
RUN(i32, 4, i64, 8) RUN(i32, 4, i16, 2) RUN(i32, 4, i8, 1) RUN(i32, 4, bool, 1)
RUN(i16, 2, i64, 8) RUN(i16, 2, i32, 4) RUN(i16, 2, i8, 1) RUN(i16, 2, bool, 1)
RUN(i8, 1, i64, 8) RUN(i8, 1, i32, 4) RUN(i8, 1, i16, 2) RUN(i8, 1, bool, 1)
RUN(u8, 1, i64, 8) RUN(u8, 1, i32, 4) RUN(u8, 1, i16, 2)

/* A row: what a source becomes, in the order of ag_dtype. */
#define ROW(f64, f32, f16, bf16, i64, i32, i16, i8, u8, is_set)                                          \
    {                                                                                                    \
        [AG_F64] = f64, [AG_F32] = f32, [AG_F16] = f16, [AG_BF16] = bf16, [AG_I64] = i64,                \
        [AG_I32] = i32, [AG_I16] = i16, [AG_I8] = i8, [AG_U8] = u8, [AG_BOOL] = is_set                   \
    }
#define FROM_FLOAT(src) run_##src##_i64, run_##src##_i32, run_##src##_i16, run_##src##_i8, run_##src##_u8, run_##src##_bool
#define TO_FLOAT(src) run_##src##_f64, run_##src##_f32, run_##src##_f16, run_##src##_bf16
#define ROW_LIST(...) ROW(__VA_ARGS__)

const struct convert_kernels SIMD(convert_kernels) = {
    .convert = {
        [AG_F64] = ROW_LIST(copy_64, run_f64_f32, run_f64_f16, run_f64_bf16, FROM_FLOAT(f64)),
        [AG_F32] = ROW_LIST(run_f32_f64, copy_32, run_f32_f16, run_f32_bf16, FROM_FLOAT(f32)),
        [AG_F16] = ROW_LIST(run_f16_f64, run_f16_f32, copy_16, run_f16_bf16, FROM_FLOAT(f16)),
        [AG_BF16] = ROW_LIST(run_bf16_f64, run_bf16_f32, run_bf16_f16, copy_16, FROM_FLOAT(bf16)),
        [AG_I64] = ROW_LIST(TO_FLOAT(i64), copy_64, run_i64_i32, run_i64_i16, run_i64_i8, run_i64_i8, run_i64_bool),
        [AG_I32] = ROW_LIST(TO_FLOAT(i32), run_i32_i64, copy_32, run_i32_i16, run_i32_i8, run_i32_i8, run_i32_bool),
        [AG_I16] = ROW_LIST(TO_FLOAT(i16), run_i16_i64, run_i16_i32, copy_16, run_i16_i8, run_i16_i8, run_i16_bool),
        [AG_I8] = ROW_LIST(TO_FLOAT(i8), run_i8_i64, run_i8_i32, run_i8_i16, copy_8, copy_8, run_i8_bool),
        [AG_U8] = ROW_LIST(TO_FLOAT(u8), run_u8_i64, run_u8_i32, run_u8_i16, copy_8, copy_8, run_i8_bool),
        [AG_BOOL] = ROW_LIST(TO_FLOAT(u8), run_u8_i64, run_u8_i32, run_u8_i16, copy_8, copy_8, copy_8),
    },
};
