/* fused.c: the one table that ties the fused kernel families of this instruction set together. */
#include "cpu/fused.h"

#include "cpu/simd/simd.h"

const struct fused_kernels SIMD(fused_kernels) = {
    .softmax = &SIMD(softmax_kernels),
    .norm = &SIMD(norm_kernels),
    .cross_entropy = &SIMD(cross_entropy_kernels),
    .optimizer = &SIMD(optimizer_kernels),
    .random = &SIMD(random_kernels),
};
