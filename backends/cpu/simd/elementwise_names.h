/* elementwise_names.h: names of the kernel functions and the loops they are made of.
 *
 * The kernels are spread over one source a family of types, so that none takes the compiler long; elementwise.c collects their
 * addresses in the one table. ELEMENTWISE_FN(exp, f32) is elementwise_exp_f32_<instruction set>.
 */
#ifndef ARGAND_CPU_SIMD_ELEMENTWISE_NAMES_H
#define ARGAND_CPU_SIMD_ELEMENTWISE_NAMES_H

#include "cpu/elementwise.h"
#include "cpu/simd/simd.h"

#define ELEMENTWISE_FN_(name, type) SIMD(elementwise_##name##_##type)
#define ELEMENTWISE_FN(name, type) ELEMENTWISE_FN_(name, type)

#define ELEMENTWISE_PARAMETERS \
    int64_t n, const void *const *inputs, void *output, unsigned scalar_mask, const double *params

/* ivdep holds because an output is either apart from an input or the same memory, element by element. */
#define ELEMENTWISE_LOOP _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++)

#define HAS_ATTRIBUTES(text) (sizeof(text) > 1)

#endif
