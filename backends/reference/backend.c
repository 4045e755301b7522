/* backend.c: the reference backend: its device, and its kernels by op.
 *
 * It has a kernel for each op without a decomposition and for no other, so that on this device every decomposition
 * runs. */
#include "reference/reference.h"

#include <string.h>

#include "core/memory.h"
#include "reference/kernels.h"

static void *reference_alloc(ag_device *device, size_t size_bytes) {
    (void)device;
    return memory_alloc(size_bytes);
}

static void reference_free(ag_device *device, void *block, size_t size_bytes) {
    (void)device;
    memory_free(block, size_bytes);
}

static ag_status reference_copy_bytes(ag_device *device, void *dst, const void *src, size_t size_bytes) {
    (void)device;
    if (size_bytes) memcpy(dst, src, size_bytes);
    return AG_OK;
}

static ag_device device = {
    .name = "reference",
    .description = "naive loops, the oracle of the specs",
    .backend = &reference_backend,
    .is_host = true,
    .alloc = reference_alloc,
    .free = reference_free,
};

static ag_device *reference_open(void) { return &device; }

#define ROW(name, dtypes_, function) [OP_##name] = {.run = reference_##function, .dtypes = dtypes_}
#define STRIDED_ROW(name, dtypes_, function) \
    [OP_##name] = {.run = reference_##function, .dtypes = dtypes_, .takes_strided = true}

static const kernel kernels[OP_COUNT] = {
#define ELEMENTWISE(name, dtypes_) STRIDED_ROW(name, dtypes_, elementwise),
#define UNARY_FLOAT(name, ...) ELEMENTWISE(name, DTYPES_FLOAT) ELEMENTWISE(name##_backward, DTYPES_FLOAT)
#define UNARY_NUM(name, ...) ELEMENTWISE(name, DTYPES_NUMBER) ELEMENTWISE(name##_backward, DTYPES_FLOAT)
#define UNARY_TEST(name, ...) ELEMENTWISE(name, DTYPES_ALL)
#define UNARY_BIT(name, ...) ELEMENTWISE(name, DTYPES_INT | DTYPES_BOOL)
#define BINARY_FLOAT(name, ...) ELEMENTWISE(name, DTYPES_FLOAT)
#define BINARY_NUM(name, ...) ELEMENTWISE(name, DTYPES_NUMBER)
#define BINARY_COMPARE(name, ...) ELEMENTWISE(name, DTYPES_ALL)
#define BINARY_LOGICAL(name, ...) ELEMENTWISE(name, DTYPES_ALL)
#define BINARY_BIT(name, ...) ELEMENTWISE(name, DTYPES_INT | DTYPES_BOOL)
#include "ops/elementwise.def"
    ROW(full, DTYPES_ALL, full),
    ROW(arange, DTYPES_ALL, arange),
    ROW(linspace, DTYPES_FLOAT, linspace),
    ROW(eye, DTYPES_ALL, eye),
    ROW(rand, DTYPES_FLOAT, rand),
    ROW(randn, DTYPES_FLOAT, randn),
    ROW(randint, DTYPES_NUMBER, randint),
    ROW(randperm, DTYPES_NUMBER, randperm),
    ROW(bernoulli, DTYPES_FLOAT, bernoulli),
    ROW(dropout_mask, DTYPES_FLOAT, dropout_mask),
    STRIDED_ROW(cast, DTYPES_ALL, copy),
    STRIDED_ROW(clone, DTYPES_ALL, copy),
    STRIDED_ROW(where, DTYPES_ALL, where),
    ROW(masked_select, DTYPES_ALL, masked_select),
    ROW(masked_scatter, DTYPES_ALL, masked_scatter),
    ROW(nonzero, DTYPES_ALL, nonzero),
    ROW(sum, DTYPES_ALL, reduce),
    ROW(prod, DTYPES_ALL, reduce),
    ROW(amax, DTYPES_NUMBER, reduce),
    ROW(amin, DTYPES_NUMBER, reduce),
    ROW(any, DTYPES_ALL, reduce),
    ROW(all, DTYPES_ALL, reduce),
    ROW(argmax, DTYPES_NUMBER, arg_reduce),
    ROW(argmin, DTYPES_NUMBER, arg_reduce),
    ROW(cumsum, DTYPES_ALL, cumulate),
    ROW(cumprod, DTYPES_ALL, cumulate),
    ROW(cummax, DTYPES_NUMBER, cumextreme),
    ROW(cummin, DTYPES_NUMBER, cumextreme),
    ROW(sort, DTYPES_ALL, sort),
    ROW(topk, DTYPES_NUMBER, sort),
    ROW(unique, DTYPES_ALL, unique),
    ROW(matmul, DTYPES_NUMBER, matmul),
    ROW(cat, DTYPES_ALL, cat),
    ROW(flip, DTYPES_ALL, flip),
    ROW(roll, DTYPES_ALL, roll),
    ROW(pad, DTYPES_ALL, pad),
    ROW(strided_backward, DTYPES_ALL, strided_backward),
    ROW(gather, DTYPES_ALL, gather),
    ROW(scatter, DTYPES_ALL, scatter),
    ROW(scatter_add, DTYPES_NUMBER, scatter_add),
    ROW(index_select, DTYPES_ALL, index_select),
    ROW(index_add, DTYPES_NUMBER, index_add),
    ROW(index_copy, DTYPES_ALL, index_copy),
    ROW(index_put, DTYPES_ALL, index_put),
};

const struct backend reference_backend = {
    .name = "reference",
    .has_collectives = false, /* on purpose: it is the device on which the guard of registration is tested */
    .kernels = kernels,
    .open = reference_open,
    .copy_in = reference_copy_bytes,
    .copy_out = reference_copy_bytes,
};
