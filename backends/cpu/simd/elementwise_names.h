/* elementwise_names.h: names of the kernel functions and the loops they are made of.
 *
 * The kernels are spread over one source a family of types, so that none takes the compiler long; elementwise.c collects their
 * addresses in the one table. ELEMENTWISE_FN(exp, f32) is elementwise_exp_f32_<instruction set>.
 */
#ifndef ARGAND_CPU_SIMD_ELEMENTWISE_NAMES_H
#define ARGAND_CPU_SIMD_ELEMENTWISE_NAMES_H

#include "cpu/elementwise.h"
#include "cpu/simd/simd.h"
#include "cpu/simd/vmath.h"

#define ELEMENTWISE_FN_(name, type) SIMD(elementwise_##name##_##type)
#define ELEMENTWISE_FN(name, type) ELEMENTWISE_FN_(name, type)

#define ELEMENTWISE_PARAMETERS \
    int64_t n, const void *const *inputs, void *output, unsigned scalar_mask, const double *params

/* ivdep holds because an output is either apart from an input or the same memory, element by element. */
#define ELEMENTWISE_LOOP _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++)

#define HAS_ATTRIBUTES(text) (sizeof(text) > 1)

/* ---- f32 angles beyond what vm_sin, vm_cos and vm_tan reduce ----
 * These ops run block by block. A block with an x of VM_TRIG_LIMIT or more in it goes through libm, element by element; is_far
 * is a constant in each of the two loops, so that the usual one stays vector code. */
#define ANGLE_BLOCK 1024 /* 4 KiB of x: its second reading comes from the first-level cache */
#define REDUCES_ANGLES(name) \
    (sizeof(T) == sizeof(float) && (T)0.5 != 0 && (OP_##name == OP_sin || OP_##name == OP_cos || OP_##name == OP_tan))
#define BLOCK_END(is_blocked, begin) ((is_blocked) && n - (begin) > ANGLE_BLOCK ? (begin) + ANGLE_BLOCK : n)

/* xs: [n] of f32 */
static inline int has_far_angle(const void *xs, int64_t n) {
    const float *angles = xs;
    int found = 0;
    _Pragma("GCC unroll 4") for (int64_t i = 0; i < n; i++) found |= fabsf(angles[i]) >= VM_TRIG_LIMIT;
    return found;
}

#endif
