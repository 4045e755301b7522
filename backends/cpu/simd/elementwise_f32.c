/* elementwise_f32.c: all kernels of f32. */
#include "cpu/simd/elementwise_math.h"
#include "cpu/simd/elementwise_names.h"

#define T float
#define TYPE f32
#define M(f) vm_##f
#define NUMBER(v) ((float)(v))
#define KIND_IS_FLOAT 1
#define KIND_IS_BOOL 0
#include "cpu/simd/elementwise_unary.inc"
#include "cpu/simd/elementwise_binary.inc"
#include "cpu/simd/elementwise_backward.inc"
