/* elementwise.h: the kernels of every op of elementwise.def over contiguous blocks, and the driver that feeds them.
 *
 * A kernel computes output[i] from inputs[k][i], 0 <= i < n, all of the compute dtype; tests, comparisons and logical ops write
 * bytes 0 or 1. The output may be the very memory of an input of the same element size, but must not overlap one otherwise.
 * Bit k of scalar_mask says that input k is a single value: binary kernels take masks 0, 1 and 2, select takes 0, 2, 4 and 6,
 * all others 0 only. params are the op's attributes, [2] where it has any, else not read. Inputs that the gradient of a
 * backward kernel does not read may be NULL. f16 and bf16 have no kernels: they compute in f32.
 */
#ifndef ARGAND_CPU_ELEMENTWISE_H
#define ARGAND_CPU_ELEMENTWISE_H

#include "ops/op.h"

typedef void (*elementwise_fn)(int64_t n, const void *const *inputs, void *output, unsigned scalar_mask, const double *params);

struct elementwise_kernels {
    elementwise_fn fn[OP_COUNT][AG_DTYPE_COUNT]; /* by compute dtype; NULL = not defined */
    elementwise_fn select[4];                    /* condition (bytes) ? a : b, by log2 of the element size */
};

extern const struct elementwise_kernels elementwise_kernels_baseline, elementwise_kernels_avx2, elementwise_kernels_avx512;

#define ELEMENTWISE_MAX_INPUTS 3

/* One run of a kernel over broadcast, strided tensors of any dtype. */
struct elementwise_run {
    elementwise_fn fn;
    int num_inputs;
    unsigned scalar_inputs; /* bit k: the kernel takes input k as a single value */
    unsigned not_together;  /* of these bits not all at once; 0 = no such limit */
    const ag_tensor *inputs[ELEMENTWISE_MAX_INPUTS]; /* NULL when absent */
    ag_dtype wanted[ELEMENTWISE_MAX_INPUTS];         /* what the kernel reads */
    ag_tensor *output;
    ag_dtype result;    /* what the kernel writes; converted when the output's dtype differs */
    int64_t grain;      /* elements worth a thread of their own */
    double params[2];
};

/* elementwise_run_strided does the run; each input broadcasts to the output's shape. A pending interrupt ends it early. */
void elementwise_run_strided(const struct elementwise_run *run);
/* elementwise_status is AG_OK, or AG_E_INTERRUPTED when an interrupt may have ended the run early. */
ag_status elementwise_status(const ag_call *call);

#endif
