/* shm_copy.c: a copy loop that stays a loop, and the reduction of n runs at a time, in blocks that stay in the first cache. */
#include "dist/transport/shm/shm_copy.h"

#include <string.h>

#include "core/dtype.h"
#include "dist/algorithm/reduce.h"

typedef unsigned char lane __attribute__((vector_size(16), aligned(1), may_alias));

#define BLOCK 1024 /* elements: two accumulators of f64 and the runs of sources fit 48 KiB for some ranks */

void shm_copy(void *restrict dst, const void *restrict src, size_t num_bytes) {
    char *to = dst;
    const char *from = src;
    for (; num_bytes >= 64; num_bytes -= 64, to += 64, from += 64) {
        lane a = *(const lane *)from, b = *(const lane *)(from + 16), c = *(const lane *)(from + 32),
             d = *(const lane *)(from + 48);
        *(lane *)to = a;
        *(lane *)(to + 16) = b;
        *(lane *)(to + 32) = c;
        *(lane *)(to + 48) = d;
        __asm__ __volatile__("" ::: "memory"); /* or the compiler makes a memcpy of it */
    }
    if (num_bytes > 0) memcpy(to, from, num_bytes);
}

/* float_to_bfloat without a branch, for vector code. */
static void narrow_bfloat(char *dst, const float *src, float divisor, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        float value = src[i] / divisor;
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        uint32_t is_nan = 0 - (uint32_t)((int32_t)(bits & 0x7FFFFFFFu) > 0x7F800000);
        uint32_t rounded = bits + 0x7FFFu + (bits >> 16 & 1u), kept = bits | 0x400000u;
        uint16_t half = (uint16_t)(((kept & is_nan) | (rounded & ~is_nan)) >> 16);
        memcpy(dst + 2 * i, &half, sizeof half);
    }
}

/* float_to_half without a branch. Adding 0.5 to a magnitude below 2^-14 leaves its subnormal half, rounded to even, in the low
 * bits (Giesen 2012). */
static void narrow_half(char *dst, const float *src, float divisor, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        float value = src[i] / divisor;
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        uint32_t sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7FFFFFFFu;
        int32_t compared = (int32_t)magnitude; /* vector units compare signed numbers */
        uint32_t is_small = 0 - (uint32_t)(compared < 0x38800000), is_large = 0 - (uint32_t)(compared >= 0x477FF000);
        uint32_t is_nan = 0 - (uint32_t)(compared > 0x7F800000);
        uint32_t normal = (magnitude - 0x38000000u + 0xFFFu + (magnitude >> 13 & 1u)) >> 13, small_bits;
        uint32_t limited = magnitude & is_small; /* or an Inf would be added */
        float small;
        memcpy(&small, &limited, sizeof small);
        small += 0.5f;
        memcpy(&small_bits, &small, sizeof small_bits);
        small_bits -= 0x3F000000u;
        uint32_t special = 0x7C00u | (is_nan & (0x200u | (magnitude >> 13 & 0x3FFu)));
        uint32_t finite = (small_bits & is_small) | (normal & ~is_small);
        uint16_t half = (uint16_t)(sign | (special & is_large) | (finite & ~is_large));
        memcpy(dst + 2 * i, &half, sizeof half);
    }
}

static void finish(ag_dtype dtype, char *dst, const void *total, int divisor, int64_t count) {
    if (dtype == AG_BF16)
        narrow_bfloat(dst, total, (float)divisor, count);
    else if (dtype == AG_F16)
        narrow_half(dst, total, (float)divisor, count);
    else
        reduce_finish(dtype, dst, total, divisor, count);
}

/* One block. Two accumulators take turns: a loop that stores to what it loads from is not made vector code. The last step
 * writes to dst itself when nothing is left to do after it. */
static void reduce_block(reduce_op op, ag_dtype dtype, char *dst, const char *const *sources, int num_sources, int divisor,
                         int64_t offset, int64_t count) {
    _Alignas(64) char rooms[2][BLOCK * sizeof(double)];
    bool is_half = dtype_is_half(dtype), is_last_direct = !is_half && divisor == 1;
    ag_dtype left_dtype = dtype;
    const char *left = sources[0] + offset;
    for (int i = 1; i < num_sources; i++) {
        char *target = is_last_direct && i == num_sources - 1 ? dst : rooms[i & 1];
        reduce_elements(op, dtype, target, left, left_dtype, sources[i] + offset, dtype, count);
        left = target;
        if (is_half) left_dtype = AG_F32;
    }
    if (num_sources == 1 && is_half) {
        reduce_widen(rooms[0], left, dtype, count);
        left = rooms[0];
    }
    if (num_sources == 1 && is_last_direct)
        shm_copy(dst, left, (size_t)count * dtype_size(dtype));
    else if (!is_last_direct)
        finish(dtype, dst, left, divisor, count);
}

void shm_reduce(reduce_op op, ag_dtype dtype, void *dst, void *second, const char *const *sources, int num_sources, int divisor,
                int64_t count) {
    int64_t element = (int64_t)dtype_size(dtype);
    if (num_sources == 0) {
        memset(dst, 0, (size_t)(count * element));
        if (second) memset(second, 0, (size_t)(count * element));
        return;
    }
    for (int64_t begin = 0; begin < count; begin += BLOCK) {
        int64_t length = count - begin < BLOCK ? count - begin : BLOCK, offset = begin * element;
        reduce_block(op, dtype, (char *)dst + offset, sources, num_sources, divisor, offset, length);
        if (second) shm_copy((char *)second + offset, (char *)dst + offset, (size_t)(length * element));
    }
}
