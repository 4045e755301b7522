/* cross_entropy.c: cross-entropy over class labels, forward and backward, without ever storing the softmax. */
#include "cpu/fused.h"

#include <math.h>

#include "cpu/simd/lanes.h"
#include "cpu/simd/vmath.h"
#include "cpu/simd/vmath_f64.h"

#define REAL_IS_F64 0
#include "cpu/simd/real.h"
#include "cpu/simd/block_sum.inc"
#include "cpu/simd/softmax_row.inc"
#include "cpu/simd/cross_entropy.inc"
#undef REAL_IS_F64
#define REAL_IS_F64 1
#include "cpu/simd/real.h"
#include "cpu/simd/block_sum.inc"
#include "cpu/simd/softmax_row.inc"
#include "cpu/simd/cross_entropy.inc"

const struct cross_entropy_kernels SIMD(cross_entropy_kernels) = {
    .forward = {[AG_F32] = cross_entropy_f32, [AG_F64] = cross_entropy_f64},
    .backward = {[AG_F32] = cross_entropy_backward_f32, [AG_F64] = cross_entropy_backward_f64},
};
