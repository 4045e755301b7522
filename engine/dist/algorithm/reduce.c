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

/* half_to_float and bfloat_to_float without calls and branches, for vector code. */
static void widen_half(char *dst, const char *src, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        uint16_t half;
        memcpy(&half, src + 2 * i, sizeof half);
        uint32_t shifted = (uint32_t)(half & 0x7FFFu) << 13, sign = (uint32_t)(half & 0x8000u) << 16, bits;
        float scaled;
        memcpy(&scaled, &shifted, sizeof scaled);
        scaled *= 0x1p112f; /* from f16's exponent bias to f32's; exact, subnormals too */
        memcpy(&bits, &scaled, sizeof bits);
        uint32_t is_special = 0 - (uint32_t)(shifted > 0x0F7FFFFFu); /* all bits for Inf and NaN */
        bits |= sign | (is_special & 0x7F800000u);
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

static void narrow(ag_dtype dtype, char *dst, const char *src, float divisor, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        float value;
        memcpy(&value, src + 4 * i, sizeof value);
        value /= divisor;
        uint16_t bits = dtype == AG_F16 ? float_to_half(value) : float_to_bfloat(value);
        memcpy(dst + 2 * i, &bits, sizeof bits);
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
        narrow(dtype, dst, src, (float)divisor, count);
    } else if (divisor == 1) {
        memmove(dst, src, (size_t)count * dtype_size(dtype));
    } else if (dtype == AG_F64) {
        DIVIDE(double)
    } else {
        assert(dtype == AG_F32);
        DIVIDE(float)
    }
}
