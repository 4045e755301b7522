/* elementwise_math.h: what the value expressions of elementwise.def call beside the functions of vmath.h: minimum, sign,
 * remainder, bit operations. One family of names a type: vm_ (f32), vd_ (f64), i64_ i32_ i16_ i8_ u8_ and bool_. Branch-free
 * where a vector instruction exists. Integer arithmetic counts on wrapping, which elementwise_int.c asks of the
 * compiler. */
#ifndef ARGAND_CPU_SIMD_ELEMENTWISE_MATH_H
#define ARGAND_CPU_SIMD_ELEMENTWISE_MATH_H

#include "cpu/simd/vmath.h"

/* min and max: NaN wins. Two single conditions, because a joined one keeps gcc 12 from vector code.
 * The quick remainder is exact while the quotient is below 2^28 for f32: it then has its bits in double, and so has its product
 * with b. f64 has no wider type and asks libm. */
#define DEFINE_FLOAT_MATH(prefix, type, fabs_)                                                      \
    VM_INLINE type prefix##_abs(type x) { return fabs_(x); }                                        \
    VM_INLINE type prefix##_sign(type x) {                                                          \
        type still = x == 0 ? (type)0 : x; /* NaN stays */                                          \
        type below = x < 0 ? (type)-1 : still;                                                      \
        return x > 0 ? (type)1 : below;                                                             \
    }                                                                                               \
    VM_INLINE type prefix##_max(type a, type b) {                                                   \
        type larger = a > b ? a : b;                                                                \
        return a != a ? a : larger;                                                                 \
    }                                                                                               \
    VM_INLINE type prefix##_min(type a, type b) {                                                   \
        type smaller = a < b ? a : b;                                                               \
        return a != a ? a : smaller;                                                                \
    }                                                                                               \
    VM_INLINE int prefix##_isnan(type x) { return x != x; }                                         \
    VM_INLINE int prefix##_isinf(type x) { return fabs_(x) == (type)INFINITY; }                     \
    VM_INLINE int prefix##_isfinite(type x) { return fabs_(x) < (type)INFINITY; }                   \
    VM_INLINE type prefix##_remainder(type a, type b) {                                             \
        type r = prefix##_fmod(a, b);                                                               \
        return r != 0 && (r < 0) != (b < 0) ? r + b : r;                                            \
    }                                                                                               \
    /* In double, lest an f32 quotient round up to a whole number or underflow to -0. */            \
    VM_INLINE type prefix##_floordiv(type a, type b) { return (type)floor((double)a / (double)b); }

VM_INLINE double vd_fmod(double a, double b) { return fmod(a, b); }

VM_INLINE float vm_fmod(float a, float b) {
    double quotient = (double)a / (double)b;
    if (!(fabs(quotient) < 0x1p28)) return fmodf(a, b);
    float r = (float)((double)a - trunc(quotient) * (double)b);
    return fabsf(b) < INFINITY ? copysignf(r, a) : a;
}

DEFINE_FLOAT_MATH(vm, float, fabsf)
DEFINE_FLOAT_MATH(vd, double, fabs)

/* A divisor of 0 gives 0 here: the driver refuses it beforehand. The smallest integer by -1 would trap: -1 is its own case. */
#define DEFINE_INT_MATH(prefix, type, unsigned_type, width, lowest, highest, above)                            \
    VM_INLINE type prefix##_from_number(double v) { /* toward zero, saturating, NaN gives 0 */                \
        return v >= (above) ? (highest) : v <= (double)(lowest) ? (lowest) : v == v ? (type)v : 0;            \
    }                                                                                                         \
    VM_INLINE type prefix##_abs(type x) { return (type)((type)-1 < 0 && x < (type)1 ? -x : x); }              \
    VM_INLINE type prefix##_sign(type x) { return (type)((x > 0) - ((type)-1 < 0 && x < (type)1 && x != 0)); } \
    VM_INLINE type prefix##_floor(type x) { return x; }                                                       \
    VM_INLINE type prefix##_ceil(type x) { return x; }                                                        \
    VM_INLINE type prefix##_trunc(type x) { return x; }                                                       \
    VM_INLINE type prefix##_round(type x) { return x; }                                                       \
    VM_INLINE type prefix##_max(type a, type b) { return a > b ? a : b; }                                     \
    VM_INLINE type prefix##_min(type a, type b) { return a < b ? a : b; }                                     \
    VM_INLINE int prefix##_isnan(type x) { return (void)x, 0; }                                               \
    VM_INLINE int prefix##_isinf(type x) { return (void)x, 0; }                                               \
    VM_INLINE int prefix##_isfinite(type x) { return (void)x, 1; }                                            \
    VM_INLINE type prefix##_fmod(type a, type b) {                                                            \
        if (b == 0 || ((type)-1 < 0 && b == (type)-1)) return 0;                                              \
        return (type)(a % b);                                                                                 \
    }                                                                                                         \
    VM_INLINE type prefix##_remainder(type a, type b) {                                                       \
        type r = prefix##_fmod(a, b);                                                                         \
        return (type)(r != 0 && (r > 0) != (b > 0) ? r + b : r);                                              \
    }                                                                                                         \
    VM_INLINE type prefix##_floordiv(type a, type b) {                                                        \
        if (b == 0) return 0;                                                                                 \
        if ((type)-1 < 0 && b == (type)-1) return (type)-a;                                                   \
        type quotient = (type)(a / b), rest = (type)(a % b);                                                  \
        return (type)(quotient - (rest != 0 && (rest > 0) != (b > 0)));                                       \
    }                                                                                                         \
    /* A negative exponent gives the whole part of the fraction: 0, but for 1 and -1. */                      \
    VM_INLINE type prefix##_pow(type a, type b) {                                                             \
        if ((type)-1 < 0 && b < (type)1 && b != 0) {                                                          \
            type odd = (type)(b & 1 ? a : 1);                                                                 \
            return (type)(a == 1 || a == (type)-1 ? odd : 0);                                                 \
        }                                                                                                     \
        uint64_t result = 1, base = (uint64_t)a;                                                              \
        for (unsigned_type rest = (unsigned_type)b; rest != 0; rest = (unsigned_type)(rest >> 1)) {           \
            result = rest & 1 ? result * base : result;                                                       \
            base *= base;                                                                                     \
        }                                                                                                     \
        return (type)result;                                                                                  \
    }                                                                                                         \
    VM_INLINE type prefix##_bitnot(type x) { return (type)~x; }                                               \
    VM_INLINE type prefix##_bitand(type a, type b) { return (type)(a & b); }                                  \
    VM_INLINE type prefix##_bitor(type a, type b) { return (type)(a | b); }                                   \
    VM_INLINE type prefix##_bitxor(type a, type b) { return (type)(a ^ b); }                                  \
    VM_INLINE type prefix##_shiftleft(type a, type b) {                                                       \
        unsigned_type count = (unsigned_type)b;                                                               \
        type shifted = (type)((unsigned_type)a << (count & ((width) - 1)));                                   \
        return count < (width) ? shifted : (type)0;                                                           \
    }                                                                                                         \
    VM_INLINE type prefix##_shiftright(type a, type b) {                                                      \
        unsigned_type count = (unsigned_type)b;                                                               \
        type inside = (type)(a >> (count & ((width) - 1)));                                                   \
        type outside = (type)((type)-1 < 0 ? a >> ((width) - 1) : 0); /* the sign everywhere */               \
        return count < (width) ? inside : outside;                                                            \
    }

DEFINE_INT_MATH(i64, int64_t, uint64_t, 64, INT64_MIN, INT64_MAX, 0x1p63)
DEFINE_INT_MATH(i32, int32_t, uint32_t, 32, INT32_MIN, INT32_MAX, 0x1p31)
DEFINE_INT_MATH(i16, int16_t, uint16_t, 16, INT16_MIN, INT16_MAX, 0x1p15)
DEFINE_INT_MATH(i8, int8_t, uint8_t, 8, INT8_MIN, INT8_MAX, 0x1p7)
DEFINE_INT_MATH(u8, uint8_t, uint8_t, 8, 0, UINT8_MAX, 0x1p8)

/* A bool is a byte 0 or 1 and counts as one bit wide. */
VM_INLINE int bool_isnan(uint8_t x) { return (void)x, 0; }
VM_INLINE int bool_isinf(uint8_t x) { return (void)x, 0; }
VM_INLINE int bool_isfinite(uint8_t x) { return (void)x, 1; }
VM_INLINE uint8_t bool_bitnot(uint8_t x) { return x == 0; }
VM_INLINE uint8_t bool_bitand(uint8_t a, uint8_t b) { return a & b; }
VM_INLINE uint8_t bool_bitor(uint8_t a, uint8_t b) { return a | b; }
VM_INLINE uint8_t bool_bitxor(uint8_t a, uint8_t b) { return a ^ b; }
VM_INLINE uint8_t bool_shiftleft(uint8_t a, uint8_t b) { return b == 0 ? a : 0; }
VM_INLINE uint8_t bool_shiftright(uint8_t a, uint8_t b) { return b == 0 ? a : 0; }

#endif
