/* crc.c: CRC-32C: by carry-less products of 64 bytes, three streams at a time through the SSE 4.2 instruction, or eight bytes at a
 * time through tables. */
#include "platform/crc.h"

#include <stdatomic.h>
#include <string.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

/* Kounavis, Berry 2005: eight bytes a step, a table for each distance from the end of the step. */
static const uint32_t tables[8][256] = {
#include "platform/crc_table.inc"
};

uint32_t crc32c_portable(uint32_t crc, const void *bytes, size_t num_bytes) {
    const unsigned char *at = bytes;
    crc = ~crc;
    for (; num_bytes >= 8; at += 8, num_bytes -= 8) {
        uint32_t low = crc ^ ((uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24);
        crc = tables[7][low & 255] ^ tables[6][low >> 8 & 255] ^ tables[5][low >> 16 & 255] ^ tables[4][low >> 24] ^
              tables[3][at[4]] ^ tables[2][at[5]] ^ tables[1][at[6]] ^ tables[0][at[7]];
    }
    for (; num_bytes > 0; at++, num_bytes--) crc = tables[0][(crc ^ *at) & 255] ^ crc >> 8;
    return ~crc;
}

#define COPY_BYTES 24576 /* three streams of the instruction, within the first cache */

static uint32_t copy_in_blocks(uint32_t crc, char *restrict target, const char *restrict source, size_t num_bytes) {
    for (size_t at = 0; at < num_bytes; at += COPY_BYTES) {
        size_t length = num_bytes - at < COPY_BYTES ? num_bytes - at : COPY_BYTES;
        memcpy(target + at, source + at, length);
        crc = crc32c(crc, target + at, length);
    }
    return crc;
}

#if defined(__x86_64__)

#define POLYNOMIAL   0x82F63B78u
#define STREAM_BYTES 8192
#define STREAM_SHIFT 0x28461564u /* x^(8 * STREAM_BYTES) mod P */

/* What a state becomes when STREAM_BYTES zeros follow: its product with STREAM_SHIFT mod P; the highest bit is x^0. */
static uint32_t skip_stream(uint32_t crc) {
    uint32_t product = 0;
    for (uint32_t bit = 1u << 31, factor = STREAM_SHIFT; bit != 0; bit >>= 1) {
        product ^= crc & bit ? factor : 0;
        factor = factor >> 1 ^ (factor & 1 ? POLYNOMIAL : 0);
    }
    return product;
}

static inline uint64_t load(const unsigned char *at) {
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

/* The instruction takes three cycles and one can begin in each, so three parts of the data run side by side. */
__attribute__((target("sse4.2"))) static uint32_t crc_instruction(uint32_t start, const void *bytes, size_t num_bytes) {
    const unsigned char *at = bytes;
    uint64_t crc = ~start;
    for (; num_bytes >= 3 * STREAM_BYTES; at += 3 * STREAM_BYTES, num_bytes -= 3 * STREAM_BYTES) {
        uint64_t second = 0, third = 0;
        for (size_t i = 0; i < STREAM_BYTES; i += 8) {
            crc = __builtin_ia32_crc32di(crc, load(at + i));
            second = __builtin_ia32_crc32di(second, load(at + STREAM_BYTES + i));
            third = __builtin_ia32_crc32di(third, load(at + 2 * STREAM_BYTES + i));
        }
        crc = skip_stream(skip_stream((uint32_t)crc) ^ (uint32_t)second) ^ (uint32_t)third;
    }
    for (; num_bytes >= 8; at += 8, num_bytes -= 8) crc = __builtin_ia32_crc32di(crc, load(at));
    for (; num_bytes > 0; at++, num_bytes--) crc = __builtin_ia32_crc32qi((uint32_t)crc, *at);
    return ~(uint32_t)crc;
}

/* Gopal et al. 2009: a run of 128 bits and what lies a distance D behind it have the CRC of their sum once the run is moved there:
 * its first half times x^(D + 32), its second one times x^(D - 32), both mod P. Bits are mirrored, so products come out shifted by
 * one place, which the constants make good. */
#define VECTOR_TARGET __attribute__((target("avx512f,vpclmulqdq,pclmul,sse4.2")))
#define SHIFT_2048    0xdcb17aa4, 0xb9e02b86
#define SHIFT_128     0xf20c0dfe, 0x14cd00bd6
#define SHIFT_512     0x740eef02, 0x9e4addf8

VECTOR_TARGET static inline __m512i move_to(__m512i run, __m512i shift, __m512i target) {
    __m512i low = _mm512_clmulepi64_epi128(run, shift, 0x00), high = _mm512_clmulepi64_epi128(run, shift, 0x11);
    return _mm512_ternarylogic_epi64(low, high, target, 0x96); /* the sum of three */
}

VECTOR_TARGET static inline __m128i move_lane_to(__m128i run, __m128i shift, __m128i target) {
    __m128i low = _mm_clmulepi64_si128(run, shift, 0x00), high = _mm_clmulepi64_si128(run, shift, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), target);
}

VECTOR_TARGET static inline __m512i shift_of(uint64_t first, uint64_t second) {
    return _mm512_broadcast_i32x4(_mm_set_epi64x((long long)second, (long long)first));
}

VECTOR_TARGET static inline __m512i take(const unsigned char *at, unsigned char *target) {
    __m512i run = _mm512_loadu_si512(at);
    if (target) _mm512_storeu_si512(target, run);
    return run;
}

/* As crc_instruction, and copies the bytes unless target is NULL. num_bytes >= 256. */
VECTOR_TARGET static uint32_t crc_vectors(uint32_t start, unsigned char *target, const unsigned char *at, size_t num_bytes) {
    __m512i runs[4], shift = shift_of(SHIFT_2048);
    const size_t step = sizeof runs;
    for (size_t i = 0; i < 4; i++) runs[i] = take(at + 64 * i, target ? target + 64 * i : NULL);
    runs[0] = _mm512_xor_si512(runs[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)~start)));
    size_t done = step;
    for (; num_bytes - done >= step; done += step)
        for (size_t i = 0; i < 4; i++)
            runs[i] = move_to(runs[i], shift, take(at + done + 64 * i, target ? target + done + 64 * i : NULL));
    shift = shift_of(SHIFT_512);
    for (size_t i = 1; i < 4; i++) runs[i] = move_to(runs[i - 1], shift, runs[i]);
    for (; num_bytes - done >= 64; done += 64)
        runs[3] = move_to(runs[3], shift, take(at + done, target ? target + done : NULL));
    __m128i lane_shift = _mm512_castsi512_si128(shift_of(SHIFT_128));
    __m128i lane = _mm512_castsi512_si128(runs[3]);
    lane = move_lane_to(lane, lane_shift, _mm512_extracti32x4_epi32(runs[3], 1));
    lane = move_lane_to(lane, lane_shift, _mm512_extracti32x4_epi32(runs[3], 2));
    lane = move_lane_to(lane, lane_shift, _mm512_extracti32x4_epi32(runs[3], 3));
    uint64_t crc = __builtin_ia32_crc32di(0, (uint64_t)_mm_cvtsi128_si64(lane));
    crc = __builtin_ia32_crc32di(crc, (uint64_t)_mm_extract_epi64(lane, 1));
    if (target) memcpy(target + done, at + done, num_bytes - done);
    return crc_instruction(~(uint32_t)crc, at + done, num_bytes - done);
}

typedef enum crc_way { WAY_UNKNOWN, WAY_TABLES, WAY_INSTRUCTION, WAY_VECTORS } crc_way;

static crc_way way(void) {
    static _Atomic crc_way known;
    crc_way found = atomic_load_explicit(&known, memory_order_relaxed);
    if (found != WAY_UNKNOWN) return found;
    found = !__builtin_cpu_supports("sse4.2")                                           ? WAY_TABLES
            : __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq") ? WAY_VECTORS
                                                                                        : WAY_INSTRUCTION;
    atomic_store_explicit(&known, found, memory_order_relaxed); /* threads that find out at once find the same */
    return found;
}

uint32_t crc32c(uint32_t crc, const void *bytes, size_t num_bytes) {
    crc_way found = way();
    if (found == WAY_VECTORS && num_bytes >= 256) return crc_vectors(crc, NULL, bytes, num_bytes);
    return (found == WAY_TABLES ? crc32c_portable : crc_instruction)(crc, bytes, num_bytes);
}

uint32_t crc32c_copy(uint32_t crc, void *restrict target, const void *restrict source, size_t num_bytes) {
    if (way() == WAY_VECTORS && num_bytes >= 256) return crc_vectors(crc, target, source, num_bytes);
    return copy_in_blocks(crc, target, source, num_bytes);
}

#else

uint32_t crc32c(uint32_t crc, const void *bytes, size_t num_bytes) { return crc32c_portable(crc, bytes, num_bytes); }

uint32_t crc32c_copy(uint32_t crc, void *restrict target, const void *restrict source, size_t num_bytes) {
    return copy_in_blocks(crc, target, source, num_bytes);
}

#endif
