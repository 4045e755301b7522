/* elementwise_f64.c: all kernels of f64. */
#include "cpu/simd/elementwise_math.h"
#include "cpu/simd/elementwise_names.h"

#define T double
#define TYPE f64
#define M(f) vd_##f
#define NUMBER(v) (v)
#define KIND_IS_FLOAT 1
#define KIND_IS_BOOL 0
#include "cpu/simd/elementwise_unary.inc"
#include "cpu/simd/elementwise_binary.inc"
#include "cpu/simd/elementwise_backward.inc"
