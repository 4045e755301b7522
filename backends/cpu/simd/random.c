/* random.c: fills arrays from Philox streams, many blocks at a time: words, uniforms, normals and dropout.
 *
 * One group is SIMD_F64 blocks, one per 64-bit lane; the numbers are those of philox() in core/random.h. Words are made in
 * chunks that stay in the L1 cache and are then mapped by plain loops that the compiler turns into vector code.
 */
#include "cpu/fused.h"

#include <math.h>

#include "core/random.h"
#include "cpu/simd/lanes.h"
#include "cpu/simd/vmath.h"
#include "cpu/simd/vmath_f64.h"

enum { GROUP_WORDS = 4 * SIMD_F64, CHUNK_WORDS = 1024 };

/* philox_group writes the words of SIMD_F64 blocks from `counter` on. The upper half of a lane collects garbage on the way,
 * which multiply_u32 does not see. Even lanes hold the first half of the blocks and odd lanes the second, so that
 * interleaving pairs of words leaves the blocks in order. */
static inline void philox_group(uint64_t seed, uint64_t counter, uint32_t *out) {
    const vi64 lane = lane_index_f64, odd = lane & 1;
    const vi64 low_pairs = lane - odd + odd * SIMD_F64, high_pairs = low_pairs + 1;
    vu64 c0 = (vu64)((lane >> 1) + odd * (SIMD_F64 / 2)) + counter, c1 = c0 >> 32, c2 = {0}, c3 = {0};
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    const vu64 zero = {0}, m0 = zero + 0xD2511F53u, m1 = zero + 0xCD9E8D57u;
    for (int round = 0; round < 10; round++) {
        vu64 p0 = multiply_u32(c0, m0), p1 = multiply_u32(c2, m1);
        c0 = (p1 >> 32) ^ c1 ^ (zero + k0);
        c2 = (p0 >> 32) ^ c3 ^ (zero + k1);
        c1 = p1;
        c3 = p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    vu64 first = (c0 & 0xffffffffu) | (c1 << 32), second = (c2 & 0xffffffffu) | (c3 << 32);
    vu64 low = __builtin_shuffle(first, second, low_pairs), high = __builtin_shuffle(first, second, high_pairs);
    memcpy(out, &low, sizeof low);
    memcpy(out + GROUP_WORDS / 2, &high, sizeof high);
}

/* draw_chunk makes the words of elements `begin` on, `words_per_element` each: *skip words in front belong to elements before
 * begin. Returns how many elements from begin to end they serve, as many as a chunk holds. */
static int64_t draw_chunk(struct random_stream stream, int words_per_element, int64_t begin, int64_t end,
                          uint32_t words[CHUNK_WORDS], int64_t *skip) {
    int64_t per_block = 4 / words_per_element, first_block = begin / per_block;
    *skip = begin % per_block * words_per_element;
    int64_t count = (CHUNK_WORDS - *skip) / words_per_element;
    if (count > end - begin) count = end - begin;
    int64_t needed = *skip + count * words_per_element;
    for (int64_t i = 0; i < needed; i += GROUP_WORDS)
        philox_group(stream.seed, stream.offset + (uint64_t)(first_block + i / 4), words + i);
    return count;
}

static void fill_bits(struct random_stream stream, uint32_t *out, int64_t begin, int64_t end) {
    uint32_t words[CHUNK_WORDS];
    for (int64_t i = begin, skip, count; i < end; i += count) {
        count = draw_chunk(stream, 1, i, end, words, &skip);
        memcpy(out + i, words + skip, (size_t)count * sizeof(uint32_t));
    }
}

/* uniform_float and uniform_double of core/random.h, by conversions from signed 32 bits, which every vector unit has. */
static inline float unit_float(uint32_t bits) { return (float)(int32_t)(bits >> 8) * 0x1p-24f; }
static inline double unit_double(uint32_t high, uint32_t low) {
    return ((double)(int32_t)(high ^ 0x80000000u) + 0x1p31) * 0x1p-32 + (double)(int32_t)(low >> 11) * 0x1p-53;
}

static void uniform_f32(struct random_stream stream, double low, double high, void *out, int64_t begin, int64_t end) {
    uint32_t words[CHUNK_WORDS];
    float from = (float)low, range = (float)(high - low), last = nextafterf((float)high, from);
    for (int64_t i = begin, skip, count; i < end; i += count) {
        count = draw_chunk(stream, 1, i, end, words, &skip);
        float *y = (float *)out + i;
        for (int64_t j = 0; j < count; j++) {
            float v = from + range * unit_float(words[skip + j]);
            y[j] = v > last ? last : v; /* rounding may reach `high` */
        }
    }
}

static void uniform_f64(struct random_stream stream, double low, double high, void *out, int64_t begin, int64_t end) {
    uint32_t words[CHUNK_WORDS];
    double range = high - low, last = nextafter(high, low);
    for (int64_t i = begin, skip, count; i < end; i += count) {
        count = draw_chunk(stream, 2, i, end, words, &skip);
        double *y = (double *)out + i;
        for (int64_t j = 0; j < count; j++) {
            double v = low + range * unit_double(words[skip + 2 * j], words[skip + 2 * j + 1]);
            y[j] = v > last ? last : v;
        }
    }
}

/* sincos_turn: sine and cosine of 2 pi u for u in [0, 1). The nearest quarter turn is taken off exactly; the Taylor series to
 * t^11 and t^10 hold single precision on what is left, |t| <= pi / 4. */
static inline void sincos_turn(float u, float *sine, float *cosine) {
    int32_t quarter = (int32_t)(u * 4.0f + 0.5f);
    float t = (u - (float)quarter * 0.25f) * 6.28318531f, t2 = t * t;
    float s = 1.0f / 120 + t2 * (-1.0f / 5040 + t2 * (1.0f / 362880 - t2 * (1.0f / 39916800)));
    s = t + t * t2 * (-1.0f / 6 + t2 * s);
    float c = 1 + t2 * (-0.5f + t2 * (1.0f / 24 + t2 * (-1.0f / 720 + t2 * (1.0f / 40320 - t2 * (1.0f / 3628800)))));
    float a = quarter & 1 ? c : s, b = quarter & 1 ? s : c;
    *sine = quarter & 2 ? -a : a;
    *cosine = (quarter + 1) & 2 ? -b : b;
}

static void normal_f32(struct random_stream stream, double mean, double std, void *out, int64_t begin, int64_t end) {
    uint32_t words[CHUNK_WORDS];
    float pairs[CHUNK_WORDS], center = (float)mean, scale = (float)std;
    for (int64_t i = begin, skip, count; i < end; i += count) {
        count = draw_chunk(stream, 1, i, end, words, &skip);
        for (int64_t j = 0; j < (skip + count + 1) / 2; j++) {
            float u1 = (float)(int32_t)(words[2 * j] >> 1) * 0x1p-31f + 0x1p-32f, sine, cosine;
            float r = scale * vm_sqrt(-2.0f * vm_log(u1));
            sincos_turn(unit_float(words[2 * j + 1]), &sine, &cosine);
            pairs[2 * j] = center + r * cosine;
            pairs[2 * j + 1] = center + r * sine;
        }
        memcpy((float *)out + i, pairs + skip, (size_t)count * sizeof(float));
    }
}

static void normal_f64(struct random_stream stream, double mean, double std, void *out, int64_t begin, int64_t end) {
    uint32_t words[CHUNK_WORDS];
    double *y = out;
    for (int64_t i = begin, skip, count; i < end; i += count) {
        count = draw_chunk(stream, 2, i, end, words, &skip);
        for (int64_t j = i; j < i + count; j++) {
            const uint32_t *block = words + (j / 2 - i / 2) * 4;
            double r = std * vd_sqrt(-2 * vd_log(unit_double(block[0], block[1]) + 0x1p-54));
            double angle = 6.283185307179586477 * unit_double(block[2], block[3]);
            y[j] = mean + r * (j & 1 ? vd_sin(angle) : vd_cos(angle));
        }
    }
}

/* keep_threshold: uniform_float(word) >= p is (word >> 8) >= ceil(p * 2^24). */
static inline int32_t keep_threshold(double p) { return (int32_t)ceil(p * 0x1p24); }
static inline double keep_scale(double p) { return p < 1 ? 1 / (1 - p) : 0; }

#define DROPOUT(real, suffix)                                                                                                 \
    static void dropout_##suffix(struct random_stream stream, double p, const void *x, void *y, uint8_t *mask, int64_t begin, \
                                 int64_t end) {                                                                               \
        uint32_t words[CHUNK_WORDS];                                                                                          \
        int32_t threshold = keep_threshold(p);                                                                                \
        real scale = (real)keep_scale(p);                                                                                     \
        for (int64_t i = begin, skip, count; i < end; i += count) {                                                           \
            count = draw_chunk(stream, 1, i, end, words, &skip);                                                              \
            const real *src = (const real *)x + i;                                                                            \
            real *dst = (real *)y + i;                                                                                        \
            for (int64_t j = 0; j < count; j++)                                                                               \
                dst[j] = (int32_t)(words[skip + j] >> 8) >= threshold ? src[j] * scale : 0;                                   \
            if (!mask) continue;                                                                                              \
            for (int64_t j = 0; j < count; j++) mask[i + j] = (int32_t)(words[skip + j] >> 8) >= threshold;                   \
        }                                                                                                                     \
    }                                                                                                                         \
    static void dropout_backward_##suffix(double p, const void *g, const uint8_t *mask, void *dx, int64_t begin,              \
                                          int64_t end) {                                                                      \
        const real *src = g;                                                                                                  \
        real *dst = dx, scale = (real)keep_scale(p);                                                                          \
        for (int64_t i = begin; i < end; i++) dst[i] = mask[i] ? src[i] * scale : 0;                                          \
    }
DROPOUT(float, f32)
DROPOUT(double, f64)

const struct random_kernels SIMD(random_kernels) = {
    .bits = fill_bits,
    .uniform = {[AG_F32] = uniform_f32, [AG_F64] = uniform_f64},
    .normal = {[AG_F32] = normal_f32, [AG_F64] = normal_f64},
    .dropout = {[AG_F32] = dropout_f32, [AG_F64] = dropout_f64},
    .dropout_backward = {[AG_F32] = dropout_backward_f32, [AG_F64] = dropout_backward_f64},
};
