/* optimizer.c: SGD, Adam and AdamW steps over flat arrays: every array is read once and written once. */
#include "cpu/fused.h"

#include <math.h>

#include "cpu/simd/lanes.h"

#define REAL_IS_F64 0
#include "cpu/simd/real.h"
#include "cpu/simd/optimizer.inc"
#undef REAL_IS_F64
#define REAL_IS_F64 1
#include "cpu/simd/real.h"
#include "cpu/simd/optimizer.inc"

const struct optimizer_kernels SIMD(optimizer_kernels) = {
    .sgd = {[AG_F32] = sgd_f32, [AG_F64] = sgd_f64},
    .adam = {[AG_F32] = adam_f32, [AG_F64] = adam_f64},
};
