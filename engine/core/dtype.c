/* dtype.c: tables about element types and the conversion of single elements. */
#include "core/dtype.h"

#include <assert.h>
#include <string.h>

const uint8_t dtype_sizes[AG_DTYPE_COUNT] = {
    [AG_F64] = 8, [AG_F32] = 4, [AG_F16] = 2, [AG_BF16] = 2, [AG_I64] = 8,
    [AG_I32] = 4, [AG_I16] = 2, [AG_I8] = 1,  [AG_U8] = 1,   [AG_BOOL] = 1,
};

const uint8_t dtype_kinds[AG_DTYPE_COUNT] = {
    [AG_F64] = KIND_FLOAT, [AG_F32] = KIND_FLOAT, [AG_F16] = KIND_FLOAT, [AG_BF16] = KIND_FLOAT, [AG_I64] = KIND_INT,
    [AG_I32] = KIND_INT,   [AG_I16] = KIND_INT,   [AG_I8] = KIND_INT,    [AG_U8] = KIND_INT,     [AG_BOOL] = KIND_BOOL,
};

static const char *const names[AG_DTYPE_COUNT] = {
    [AG_F64] = "f64", [AG_F32] = "f32", [AG_F16] = "f16", [AG_BF16] = "bf16", [AG_I64] = "i64",
    [AG_I32] = "i32", [AG_I16] = "i16", [AG_I8] = "i8",   [AG_U8] = "u8",     [AG_BOOL] = "bool",
};

static const char *const kind_names[] = {[KIND_FLOAT] = "float", [KIND_INT] = "int", [KIND_BOOL] = "bool"};

const char *dtype_name(ag_dtype dtype) { return dtype >= 0 && dtype < AG_DTYPE_COUNT ? names[dtype] : "none"; }

const char *kind_name(ag_kind kind) { return kind_names[kind]; }

ag_dtype dtype_find(const char *name) {
    for (int dtype = 0; name && dtype < AG_DTYPE_COUNT; dtype++)
        if (strcmp(name, names[dtype]) == 0) return (ag_dtype)dtype;
    return AG_NO_DTYPE;
}

/* The enum runs from large to small within a kind and from float to bool over kinds, so the smaller number holds the other
 * one except for the two pairs named here. */
ag_dtype dtype_promote(ag_dtype a, ag_dtype b) {
    ag_dtype low = a < b ? a : b, high = a < b ? b : a;
    if (low == AG_F16 && high == AG_BF16) return AG_F32;
    if (low == AG_I8 && high == AG_U8) return AG_I16;
    return low;
}

/* ---- half precision. f16: 1 sign, 5 exponent (bias 15), 10 mantissa bits; bf16: the upper half of an f32 ---- */

static uint32_t float_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float bits_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

float half_to_float(uint16_t bits) {
    uint32_t sign = (uint32_t)(bits & 0x8000u) << 16, exponent = (bits >> 10) & 31u, mantissa = bits & 0x3FFu;
    if (exponent == 31) return bits_float(sign | 0x7F800000u | mantissa << 13);
    if (exponent != 0) return bits_float(sign | (exponent + 112) << 23 | mantissa << 13);
    float magnitude = (float)mantissa * 0x1p-24f; /* zero and subnormals: exact */
    return sign ? -magnitude : magnitude;
}

uint16_t float_to_half(float value) {
    uint32_t bits = float_bits(value), magnitude = bits & 0x7FFFFFFFu;
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000u);
    if (magnitude > 0x7F800000u) return (uint16_t)(sign | 0x7E00u | (magnitude >> 13 & 0x3FFu));
    if (magnitude >= 0x477FF000u) return (uint16_t)(sign | 0x7C00u); /* 65520 and more round to Inf */
    uint32_t kept, rest, half;
    if (magnitude >= 0x38800000u) { /* 2^-14: normal */
        kept = (magnitude - 0x38000000u) >> 13;
        rest = magnitude & 0x1FFFu;
        half = 0x1000u;
    } else if (magnitude >= 0x33000000u) { /* 2^-25: subnormal, in units of 2^-24 */
        uint32_t shift = 126u - (magnitude >> 23), mantissa = (magnitude & 0x7FFFFFu) | 0x800000u;
        kept = mantissa >> shift;
        rest = mantissa & ((1u << shift) - 1);
        half = 1u << (shift - 1);
    } else {
        return sign;
    }
    /* A carry out of the mantissa moves into the exponent, which is the right result. */
    if (rest > half || (rest == half && (kept & 1))) kept++;
    return (uint16_t)(sign | kept);
}

float bfloat_to_float(uint16_t bits) { return bits_float((uint32_t)bits << 16); }

uint16_t float_to_bfloat(float value) {
    uint32_t bits = float_bits(value);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return (uint16_t)(bits >> 16 | 0x40u); /* quiet, and never rounded to Inf */
    return (uint16_t)((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

/* ---- single elements. Addresses need not be aligned ---- */

static int64_t saturate(double value, int64_t low, int64_t high) {
    if (value != value) return 0;
    if (value <= (double)low) return low;
    if (value >= (double)high) return high; /* (double)INT64_MAX is 2^63, the first value too large */
    return (int64_t)value;
}

double element_read(ag_dtype dtype, const void *address) {
    double f64;
    float f32;
    uint16_t half;
    switch (dtype) {
    case AG_F64: memcpy(&f64, address, sizeof f64); return f64;
    case AG_F32: memcpy(&f32, address, sizeof f32); return f32;
    case AG_F16: memcpy(&half, address, sizeof half); return half_to_float(half);
    case AG_BF16: memcpy(&half, address, sizeof half); return bfloat_to_float(half);
    default: return (double)element_read_int(dtype, address);
    }
}

void element_write(ag_dtype dtype, void *address, double value) {
    float f32 = (float)value;
    uint16_t half;
    switch (dtype) {
    case AG_F64: memcpy(address, &value, sizeof value); return;
    case AG_F32: memcpy(address, &f32, sizeof f32); return;
    case AG_F16: half = float_to_half(f32); memcpy(address, &half, sizeof half); return;
    case AG_BF16: half = float_to_bfloat(f32); memcpy(address, &half, sizeof half); return;
    case AG_I64: element_write_int(dtype, address, saturate(value, INT64_MIN, INT64_MAX)); return;
    case AG_I32: element_write_int(dtype, address, saturate(value, INT32_MIN, INT32_MAX)); return;
    case AG_I16: element_write_int(dtype, address, saturate(value, INT16_MIN, INT16_MAX)); return;
    case AG_I8: element_write_int(dtype, address, saturate(value, INT8_MIN, INT8_MAX)); return;
    case AG_U8: element_write_int(dtype, address, saturate(value, 0, UINT8_MAX)); return;
    case AG_BOOL: *(uint8_t *)address = value != 0; return;
    default: assert(!"element_write: no such dtype");
    }
}

int64_t element_read_int(ag_dtype dtype, const void *address) {
    int64_t i64;
    int32_t i32;
    int16_t i16;
    switch (dtype) {
    case AG_I64: memcpy(&i64, address, sizeof i64); return i64;
    case AG_I32: memcpy(&i32, address, sizeof i32); return i32;
    case AG_I16: memcpy(&i16, address, sizeof i16); return i16;
    case AG_I8: return *(const int8_t *)address;
    case AG_U8: return *(const uint8_t *)address;
    case AG_BOOL: return *(const uint8_t *)address != 0;
    default: assert(dtype_is_float(dtype)); return saturate(element_read(dtype, address), INT64_MIN, INT64_MAX);
    }
}

void element_write_int(ag_dtype dtype, void *address, int64_t value) {
    float f32 = (float)value;
    uint16_t half;
    switch (dtype) {
    case AG_F64: element_write(dtype, address, (double)value); return;
    case AG_F32: memcpy(address, &f32, sizeof f32); return;
    case AG_F16: half = float_to_half(f32); memcpy(address, &half, sizeof half); return;
    case AG_BF16: half = float_to_bfloat(f32); memcpy(address, &half, sizeof half); return;
    case AG_I64: memcpy(address, &value, sizeof value); return;
    case AG_I32: memcpy(address, &(int32_t){(int32_t)value}, sizeof(int32_t)); return;
    case AG_I16: memcpy(address, &(int16_t){(int16_t)value}, sizeof(int16_t)); return;
    case AG_I8: *(int8_t *)address = (int8_t)value; return;
    case AG_U8: *(uint8_t *)address = (uint8_t)value; return;
    case AG_BOOL: *(uint8_t *)address = value != 0; return;
    default: assert(!"element_write_int: no such dtype");
    }
}
