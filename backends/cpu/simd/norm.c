/* norm.c: layer norm and RMS norm over rows, forward and backward. One read of a row from memory, one write. */
#include "cpu/fused.h"

#include <math.h>

#include "cpu/simd/lanes.h"

#define REAL_IS_F64 0
#include "cpu/simd/real.h"
#include "cpu/simd/block_sum.inc"
#include "cpu/simd/norm.inc"
#undef REAL_IS_F64
#define REAL_IS_F64 1
#include "cpu/simd/real.h"
#include "cpu/simd/block_sum.inc"
#include "cpu/simd/norm.inc"

const struct norm_kernels SIMD(norm_kernels) = {
    .layer_norm = {[AG_F32] = layer_norm_f32, [AG_F64] = layer_norm_f64},
    .layer_norm_backward = {[AG_F32] = layer_norm_backward_f32, [AG_F64] = layer_norm_backward_f64},
    .rms_norm = {[AG_F32] = rms_norm_f32, [AG_F64] = rms_norm_f64},
    .rms_norm_backward = {[AG_F32] = rms_norm_backward_f32, [AG_F64] = rms_norm_backward_f64},
    .sum_partials = {[AG_F32] = norm_sum_partials_f32, [AG_F64] = norm_sum_partials_f64},
};
