/* elementwise_f32.c: all kernels of f32. */
#include "cpu/simd/elementwise_math.h"
#include "cpu/simd/elementwise_names.h"

#define T float
#define TYPE f32
#define M(f) vm_##f
#define NUMBER(v) ((float)(v))
/* In the place of the functions of vmath.h, which do not reduce every x: see elementwise_names.h. */
#define vm_sin(x) (is_far ? (float)vd_sin(x) : vm_sin(x))
#define vm_cos(x) (is_far ? (float)vd_cos(x) : vm_cos(x))
#define vm_tan(x) (is_far ? (float)vd_tan(x) : vm_tan(x))
#define KIND_IS_FLOAT 1
#define KIND_IS_BOOL 0
#include "cpu/simd/elementwise_unary.inc"
#include "cpu/simd/elementwise_binary.inc"
#include "cpu/simd/elementwise_backward.inc"
