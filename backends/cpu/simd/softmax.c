/* softmax.c: softmax and log_softmax over rows, forward and backward. A row comes from memory once; a long one, twice. */
#include "cpu/fused.h"

#include <math.h>

#include "cpu/simd/lanes.h"
#include "cpu/simd/vmath.h"
#include "cpu/simd/vmath_f64.h"

/* Up to this size a row of input and output is taken to stay in the second-level cache between passes. */
enum { SOFTMAX_CACHED_BYTES = 256 << 10 };

#define REAL_IS_F64 0
#include "cpu/simd/real.h"
#include "cpu/simd/block_sum.inc"
#include "cpu/simd/softmax_row.inc"
#include "cpu/simd/softmax.inc"
#undef REAL_IS_F64
#define REAL_IS_F64 1
#include "cpu/simd/real.h"
#include "cpu/simd/block_sum.inc"
#include "cpu/simd/softmax_row.inc"
#include "cpu/simd/softmax.inc"

const struct softmax_kernels SIMD(softmax_kernels) = {
    .softmax = {[AG_F32] = softmax_f32, [AG_F64] = softmax_f64},
    .log_softmax = {[AG_F32] = log_softmax_f32, [AG_F64] = log_softmax_f64},
    .softmax_backward = {[AG_F32] = softmax_backward_f32, [AG_F64] = softmax_backward_f64},
    .log_softmax_backward = {[AG_F32] = log_softmax_backward_f32, [AG_F64] = log_softmax_backward_f64},
};
