/* backend.h: what a device's code gives to the engine: one const table.
 *
 * A backend is complete when it has kernels for the ops without decomposition; everything else is a gain in speed. exec/ calls
 * a kernel with inputs on the backend's device and outputs allocated (but for dynamic ops), from one thread at a time per call.
 * A kernel may use the pool, polls interrupt_pending() when it is long, and fails only with AG_E_MEMORY, AG_E_INTERRUPTED or an
 * error about values (an index out of range). It never keeps a reference.
 *
 * Elementwise kernels take any strides and read inputs of any dtype, converting to call->compute as they load. Other kernels
 * get contiguous inputs unless `takes_strided`, already converted to call->compute (index and bool inputs excepted).
 */
#ifndef ARGAND_BACKEND_BACKEND_H
#define ARGAND_BACKEND_BACKEND_H

#include "ops/op.h"

typedef ag_status (*kernel_fn)(ag_call *call);

typedef struct kernel {
    kernel_fn run;      /* NULL = no kernel */
    dtype_set dtypes;   /* of the compute dtype, or of the first input where there is none, or of the output */
    bool takes_strided; /* inputs need not be contiguous */
} kernel;

typedef struct backend {
    const char *name;
    bool has_collectives;
    const kernel *kernels; /* [OP_COUNT] */
    /* open is called once, at start, and returns the backend's device, or NULL when the machine has none. */
    ag_device *(*open)(void);
    /* copy_in and copy_out move size_bytes between host memory and a storage; they block until done. */
    ag_status (*copy_in)(ag_device *device, void *dst, const void *src, size_t size_bytes);
    ag_status (*copy_out)(ag_device *device, void *dst, const void *src, size_t size_bytes);
    const char *(*blas_info)(void); /* which BLAS it calls, for people; NULL = none */
} backend;

/* registry.c: the devices there are, in the order of preference; the first is the default. */
void registry_init(const backend *const *backends, int count);
ag_device *registry_default(void);
ag_device *registry_find(const char *name); /* NULL when there is none */
int registry_count(void);
ag_device *registry_at(int position);

/* caps.c: the one answer to "can it", derived from kernels[] and decompositions. */
/* The dtype that decides which kernel serves a call: compute, else first input's, else the output's. */
ag_dtype call_kernel_dtype(const ag_call *call);
static inline const kernel *backend_kernel(const backend *b, int op, ag_dtype dtype) {
    const kernel *k = &b->kernels[op];
    return k->run && (k->dtypes & DTYPE_BIT(dtype)) ? k : NULL;
}

#endif
