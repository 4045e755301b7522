/* convert.h: conversion of element runs between any two dtypes.
 *
 * Float to int truncates toward zero and saturates, NaN gives 0. Int to int wraps (two's complement). To bool is x != 0, which
 * NaN is; a bool is a byte 0 or 1. f16 and bf16 round to nearest even and are reached through f32, from f64 too.
 */
#ifndef ARGAND_CPU_CONVERT_H
#define ARGAND_CPU_CONVERT_H

#include "argand.h"

/* dst[i * dst_stride] = src[i * src_stride], 0 <= i < n. Strides in elements: 0 repeats, negative runs backward; with a dst
 * stride of 0 the last element stays. src and dst must not overlap. Runs of stride 1 on both sides are vector code. */
typedef void (*convert_run)(int64_t n, const void *src, int64_t src_stride, void *dst, int64_t dst_stride);

struct convert_kernels {
    convert_run convert[AG_DTYPE_COUNT][AG_DTYPE_COUNT]; /* [src][dst] */
};

extern const struct convert_kernels convert_kernels_baseline, convert_kernels_avx2, convert_kernels_avx512;

#endif
