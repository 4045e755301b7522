/* backend.c: the CPU backend: its device, and its kernels by op. */
#include <string.h>

#include "core/device.h"
#include "core/memory.h"
#include "cpu/backend_cpu.h"
#include "cpu/blas.h"
#include "cpu/cpu.h"

static void *host_alloc(ag_device *device, size_t size_bytes) {
    (void)device;
    return memory_alloc(size_bytes);
}

static void host_free(ag_device *device, void *block, size_t size_bytes) {
    (void)device;
    memory_free(block, size_bytes);
}

static ag_status host_copy(ag_device *device, void *dst, const void *src, size_t size_bytes) {
    (void)device;
    memcpy(dst, src, size_bytes);
    return AG_OK;
}

static ag_device cpu_device = {
    .name = "cpu",
    .description = "the processors of this machine",
    .backend = &cpu_backend,
    .is_host = true,
    .alloc = host_alloc,
    .free = host_free,
};

static ag_device *cpu_open(void) {
    cpu_dispatch_init();
    blas_init();
    return &cpu_device;
}

#define DTYPES_WIDE (DTYPE_BIT(AG_F64) | DTYPE_BIT(AG_F32))
#define DTYPES_COUNTABLE \
    (DTYPES_WIDE | DTYPES_INT) /* what reductions, sorts and sums of scattered values take; halves go through f32 */
#define ELEMENTWISE(dtypes_) {.run = cpu_elementwise, .dtypes = dtypes_, .takes_strided = true}
#define KERNEL(name, function, dtypes_) [OP_##name] = {.run = function, .dtypes = dtypes_}
#define STRIDED(name, function, dtypes_) [OP_##name] = {.run = function, .dtypes = dtypes_, .takes_strided = true}

static const kernel cpu_kernels[OP_COUNT] = {
#define UNARY_FLOAT(name, ...) [OP_##name] = ELEMENTWISE(DTYPES_FLOAT), [OP_##name##_backward] = ELEMENTWISE(DTYPES_FLOAT),
#define UNARY_NUM(name, ...) [OP_##name] = ELEMENTWISE(DTYPES_NUMBER), [OP_##name##_backward] = ELEMENTWISE(DTYPES_FLOAT),
#define UNARY_TEST(name, ...) [OP_##name] = ELEMENTWISE(DTYPES_ALL),
#define UNARY_BIT(name, ...) [OP_##name] = ELEMENTWISE(DTYPES_INT | DTYPES_BOOL),
#define BINARY_FLOAT(name, ...) [OP_##name] = ELEMENTWISE(DTYPES_FLOAT),
#define BINARY_NUM(name, ...) [OP_##name] = ELEMENTWISE(DTYPES_NUMBER),
#define BINARY_COMPARE(name, ...) [OP_##name] = ELEMENTWISE(DTYPES_ALL),
#define BINARY_LOGICAL(name, ...) [OP_##name] = ELEMENTWISE(DTYPES_ALL),
#define BINARY_BIT(name, ...) [OP_##name] = ELEMENTWISE(DTYPES_INT | DTYPES_BOOL),
#include "ops/elementwise.def"
    KERNEL(full, cpu_full, DTYPES_ALL),
    KERNEL(arange, cpu_arange, DTYPES_ALL),
    KERNEL(linspace, cpu_linspace, DTYPES_FLOAT),
    KERNEL(eye, cpu_eye, DTYPES_ALL),
    KERNEL(rand, cpu_rand, DTYPES_FLOAT),
    KERNEL(randn, cpu_randn, DTYPES_FLOAT),
    KERNEL(randint, cpu_randint, DTYPES_NUMBER),
    KERNEL(randperm, cpu_randperm, DTYPES_NUMBER),
    KERNEL(bernoulli, cpu_bernoulli, DTYPES_WIDE),
    KERNEL(dropout_mask, cpu_dropout_mask, DTYPES_WIDE),
    STRIDED(cast, cpu_cast, DTYPES_ALL),
    STRIDED(clone, cpu_clone, DTYPES_ALL),
    STRIDED(where, cpu_where, DTYPES_ALL),
    KERNEL(masked_select, cpu_masked_select, DTYPES_ALL),
    KERNEL(masked_scatter, cpu_masked_scatter, DTYPES_ALL),
    KERNEL(nonzero, cpu_nonzero, DTYPES_ALL),
    STRIDED(sum, cpu_reduce, DTYPES_COUNTABLE | DTYPES_BOOL),
    STRIDED(prod, cpu_reduce, DTYPES_COUNTABLE | DTYPES_BOOL),
    STRIDED(amax, cpu_reduce, DTYPES_COUNTABLE),
    STRIDED(amin, cpu_reduce, DTYPES_COUNTABLE),
    STRIDED(any, cpu_reduce, DTYPES_COUNTABLE | DTYPES_BOOL),
    STRIDED(all, cpu_reduce, DTYPES_COUNTABLE | DTYPES_BOOL),
    STRIDED(argmax, cpu_arg_reduce, DTYPES_COUNTABLE),
    STRIDED(argmin, cpu_arg_reduce, DTYPES_COUNTABLE),
    STRIDED(logsumexp, cpu_logsumexp, DTYPES_WIDE),
    KERNEL(cumsum, cpu_scan, DTYPES_COUNTABLE | DTYPES_BOOL),
    KERNEL(cumprod, cpu_scan, DTYPES_COUNTABLE | DTYPES_BOOL),
    KERNEL(cummax, cpu_scan, DTYPES_COUNTABLE),
    KERNEL(cummin, cpu_scan, DTYPES_COUNTABLE),
    KERNEL(sort, cpu_sort, DTYPES_COUNTABLE | DTYPES_BOOL),
    KERNEL(topk, cpu_topk, DTYPES_COUNTABLE),
    KERNEL(unique, cpu_unique, DTYPES_COUNTABLE | DTYPES_BOOL),
    STRIDED(matmul, cpu_matmul, DTYPES_COUNTABLE),
    STRIDED(linear, cpu_linear, DTYPES_WIDE),
    KERNEL(strided_backward, cpu_strided_backward, DTYPES_COUNTABLE | DTYPES_BOOL),
    KERNEL(cat, cpu_cat, DTYPES_ALL),
    KERNEL(flip, cpu_flip, DTYPES_ALL),
    KERNEL(roll, cpu_roll, DTYPES_ALL),
    KERNEL(pad, cpu_pad, DTYPES_ALL),
    KERNEL(gather, cpu_gather, DTYPES_ALL),
    KERNEL(scatter, cpu_scatter, DTYPES_ALL),
    KERNEL(scatter_add, cpu_scatter, DTYPES_COUNTABLE),
    KERNEL(index_select, cpu_index_select, DTYPES_ALL),
    KERNEL(index_add, cpu_index_add, DTYPES_COUNTABLE),
    KERNEL(index_copy, cpu_index_add, DTYPES_ALL),
    KERNEL(index_put, cpu_index_put, DTYPES_COUNTABLE | DTYPES_BOOL),
    KERNEL(softmax, cpu_softmax, DTYPES_WIDE),
    KERNEL(log_softmax, cpu_softmax, DTYPES_WIDE),
    KERNEL(softmax_backward, cpu_softmax_backward, DTYPES_WIDE),
    KERNEL(log_softmax_backward, cpu_softmax_backward, DTYPES_WIDE),
    KERNEL(layer_norm_stats, cpu_layer_norm_stats, DTYPES_WIDE),
    KERNEL(layer_norm_backward, cpu_layer_norm_backward, DTYPES_WIDE),
    KERNEL(cross_entropy_rows, cpu_cross_entropy_rows, DTYPES_WIDE),
    KERNEL(cross_entropy_rows_backward, cpu_cross_entropy_rows_backward, DTYPES_WIDE),
    KERNEL(bias_activation_backward, cpu_bias_activation_backward, DTYPES_WIDE),
    STRIDED(sgd_step, cpu_sgd_step, DTYPES_FLOAT),
    STRIDED(adam_step, cpu_adam_step, DTYPES_FLOAT),
};

const backend cpu_backend = {
    .name = "cpu",
    .has_collectives = true,
    .kernels = cpu_kernels,
    .open = cpu_open,
    .copy_in = host_copy,
    .copy_out = host_copy,
    .blas_info = blas_description,
};
