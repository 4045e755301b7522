/* reduce.c: the element loops of the collectives. Elements are read and written by memcpy, so unaligned runs are fine and the
 * loops still become vector code. */
#include "dist/algorithm/reduce.h"

#include <assert.h>
#include <string.h>

#include "core/dtype.h"
#include "dist/algorithm/plan.h"

/* Halves are widened in blocks of this many elements. */
#define BLOCK 512

#define LOOP(TYPE, EXPRESSION)                                                  \
    for (int64_t i = 0; i < count; i++) {                                       \
        TYPE a, b, result;                                                      \
        memcpy(&a, (const char *)left + i * (int64_t)sizeof(TYPE), sizeof a);   \
        memcpy(&b, (const char *)right + i * (int64_t)sizeof(TYPE), sizeof b);  \
        result = (TYPE)(EXPRESSION);                                            \
        memcpy((char *)dst + i * (int64_t)sizeof(TYPE), &result, sizeof result); \
    }                                                                           \
    return

/* a != a is true for NaN only, and never for whole numbers. */
#define LARGER (a > b || a != a ? a : b)
#define SMALLER (a < b || a != a ? a : b)

#define REDUCE_FLOAT(NAME, TYPE)                                                                        \
    static void NAME(reduce_op op, void *dst, const void *left, const void *right, int64_t count) {     \
        switch (op) {                                                                                   \
        case REDUCE_MIN: LOOP(TYPE, SMALLER);                                                           \
        case REDUCE_MAX: LOOP(TYPE, LARGER);                                                            \
        case REDUCE_PROD: LOOP(TYPE, a * b);                                                            \
        default: LOOP(TYPE, a + b);                                                                     \
        }                                                                                               \
    }

/* Sums and products are taken without a sign, where they wrap. UNSIGNED is at least as wide as unsigned int: narrower types
 * would be promoted to int and could overflow. */
#define REDUCE_INT(NAME, TYPE, UNSIGNED)                                                                \
    static void NAME(reduce_op op, void *dst, const void *left, const void *right, int64_t count) {     \
        switch (op) {                                                                                   \
        case REDUCE_MIN: LOOP(TYPE, a < b ? a : b);                                                     \
        case REDUCE_MAX: LOOP(TYPE, a > b ? a : b);                                                     \
        case REDUCE_PROD: LOOP(TYPE, (UNSIGNED)a * (UNSIGNED)b);                                        \
        default: LOOP(TYPE, (UNSIGNED)a + (UNSIGNED)b);                                                 \
        }                                                                                               \
    }

REDUCE_FLOAT(reduce_f64, double)
REDUCE_FLOAT(reduce_f32, float)
REDUCE_INT(reduce_i64, int64_t, uint64_t)
REDUCE_INT(reduce_i32, int32_t, uint32_t)
REDUCE_INT(reduce_i16, int16_t, uint32_t)
REDUCE_INT(reduce_i8, int8_t, uint32_t)
REDUCE_INT(reduce_u8, uint8_t, uint32_t)

static void reduce_bool(reduce_op op, void *dst, const void *left, const void *right, int64_t count) {
    if (op == REDUCE_AND) {
        LOOP(uint8_t, a & b);
    }
    LOOP(uint8_t, a | b);
}

static void reduce_same(reduce_op op, ag_dtype dtype, void *dst, const void *left, const void *right, int64_t count) {
    switch (dtype) {
    case AG_F64: reduce_f64(op, dst, left, right, count); return;
    case AG_F32: reduce_f32(op, dst, left, right, count); return;
    case AG_I64: reduce_i64(op, dst, left, right, count); return;
    case AG_I32: reduce_i32(op, dst, left, right, count); return;
    case AG_I16: reduce_i16(op, dst, left, right, count); return;
    case AG_I8: reduce_i8(op, dst, left, right, count); return;
    case AG_U8: reduce_u8(op, dst, left, right, count); return;
    case AG_BOOL: reduce_bool(op, dst, left, right, count); return;
    default: assert(!"halves are reduced in f32"); return;
    }
}

/* half_to_float and bfloat_to_float without calls and branches, for vector code. A subnormal is made of two normal numbers: its
 * mantissa behind 2^-14, less 2^-14, which is exact. (Arithmetic on subnormals costs some 150 cycles each.) */
static void widen_half(char *dst, const char *src, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        uint16_t half;
        memcpy(&half, src + 2 * i, sizeof half);
        uint32_t shifted = (uint32_t)(half & 0x7FFFu) << 13, sign = (uint32_t)(half & 0x8000u) << 16;
        uint32_t behind = (shifted & 0x007FFFFFu) + 0x38800000u, small_bits;
        float small;
        memcpy(&small, &behind, sizeof small);
        small -= 0x1p-14f;
        memcpy(&small_bits, &small, sizeof small_bits);
        uint32_t is_small = 0 - (uint32_t)((int32_t)shifted < 0x00800000); /* vector units compare signed numbers */
        uint32_t is_special = 0 - (uint32_t)((int32_t)shifted > 0x0F7FFFFF); /* all bits for Inf and NaN */
        uint32_t normal = (shifted + 0x38000000u) | (is_special & 0x7F800000u);
        uint32_t bits = sign | (small_bits & is_small) | (normal & ~is_small);
        memcpy(dst + 4 * i, &bits, sizeof bits);
    }
}

static void widen_bfloat(char *dst, const char *src, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        uint16_t half;
        memcpy(&half, src + 2 * i, sizeof half);
        uint32_t bits = (uint32_t)half << 16;
        memcpy(dst + 4 * i, &bits, sizeof bits);
    }
}

void reduce_widen(void *dst, const void *src, ag_dtype src_dtype, int64_t count) {
    if (src_dtype == AG_F16) widen_half(dst, src, count);
    else if (src_dtype == AG_BF16) widen_bfloat(dst, src, count);
    else memmove(dst, src, (size_t)count * dtype_size(src_dtype));
}

/* The run of an operand as f32: itself, or widened into `room`. */
static const void *as_float(const char *operand, ag_dtype dtype, int64_t begin, int64_t count, float *room) {
    operand += begin * (int64_t)dtype_size(dtype);
    if (dtype == AG_F32) return operand;
    reduce_widen(room, operand, dtype, count);
    return room;
}

void reduce_elements(reduce_op op, ag_dtype dtype, void *dst, const void *left, ag_dtype left_dtype, const void *right,
                     ag_dtype right_dtype, int64_t count) {
    if (!dtype_is_half(dtype)) {
        reduce_same(op, dtype, dst, left, right, count);
        return;
    }
    float left_room[BLOCK], right_room[BLOCK];
    for (int64_t begin = 0; begin < count; begin += BLOCK) {
        int64_t length = count - begin < BLOCK ? count - begin : BLOCK;
        const void *a = as_float(left, left_dtype, begin, length, left_room);
        const void *b = as_float(right, right_dtype, begin, length, right_room);
        reduce_f32(op, (char *)dst + 4 * begin, a, b, length);
    }
}

/* float_to_bfloat without a branch, for vector code. */
static void narrow_bfloat(char *dst, const char *src, float divisor, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        float value;
        memcpy(&value, src + 4 * i, sizeof value);
        value /= divisor;
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
static void narrow_half(char *dst, const char *src, float divisor, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        float value;
        memcpy(&value, src + 4 * i, sizeof value);
        value /= divisor;
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

#define DIVIDE(TYPE)                                                            \
    for (int64_t i = 0; i < count; i++) {                                       \
        TYPE value;                                                             \
        memcpy(&value, (const char *)src + i * (int64_t)sizeof value, sizeof value); \
        value /= (TYPE)divisor;                                                 \
        memcpy((char *)dst + i * (int64_t)sizeof value, &value, sizeof value);  \
    }

void reduce_finish(ag_dtype dtype, void *dst, const void *src, int divisor, int64_t count) {
    if (dtype_is_half(dtype)) {
        if (dtype == AG_F16) narrow_half(dst, src, (float)divisor, count);
        else narrow_bfloat(dst, src, (float)divisor, count);
    } else if (divisor == 1) {
        if (dst != src) memmove(dst, src, (size_t)count * dtype_size(dtype)); /* memmove itself would do it */
    } else if (dtype == AG_F64) {
        DIVIDE(double)
    } else {
        assert(dtype == AG_F32);
        DIVIDE(float)
    }
}
