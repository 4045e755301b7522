/* elementwise_int.c: all kernels of the int types and bool. Signed arithmetic wraps in this whole source, headers included, so
 * that rows such as a * b have one meaning for every type. */
#pragma GCC optimize("wrapv")
#include "cpu/simd/elementwise_math.h"
#include "cpu/simd/elementwise_names.h"

/* relu asks whether x < 0, which no u8 is. */
#pragma GCC diagnostic ignored "-Wtype-limits"

#define KIND_IS_FLOAT 0
#define KIND_IS_BOOL 0

#define T int64_t
#define TYPE i64
#define M(f) i64_##f
#define NUMBER(v) i64_from_number(v)
#include "cpu/simd/elementwise_unary.inc"
#include "cpu/simd/elementwise_binary.inc"
#undef T
#undef TYPE
#undef M
#undef NUMBER

#define T int32_t
#define TYPE i32
#define M(f) i32_##f
#define NUMBER(v) i32_from_number(v)
#include "cpu/simd/elementwise_unary.inc"
#include "cpu/simd/elementwise_binary.inc"
#undef T
#undef TYPE
#undef M
#undef NUMBER
#define T int16_t
#define TYPE i16
#define M(f) i16_##f
#define NUMBER(v) i16_from_number(v)
#include "cpu/simd/elementwise_unary.inc"
#include "cpu/simd/elementwise_binary.inc"
#undef T
#undef TYPE
#undef M
#undef NUMBER

#define T int8_t
#define TYPE i8
#define M(f) i8_##f
#define NUMBER(v) i8_from_number(v)
#include "cpu/simd/elementwise_unary.inc"
#include "cpu/simd/elementwise_binary.inc"
#undef T
#undef TYPE
#undef M
#undef NUMBER

#define T uint8_t
#define TYPE u8
#define M(f) u8_##f
#define NUMBER(v) u8_from_number(v)
#include "cpu/simd/elementwise_unary.inc"
#include "cpu/simd/elementwise_binary.inc"
#undef T
#undef TYPE
#undef M
#undef NUMBER

/* No bool row has attributes. */
#undef KIND_IS_BOOL
#define KIND_IS_BOOL 1
#define T uint8_t
#define TYPE boolean
#define M(f) bool_##f
#define NUMBER(v) ((uint8_t)1)
#include "cpu/simd/elementwise_unary.inc"
#include "cpu/simd/elementwise_binary.inc"
