/* cpu.h: what the sources of the CPU backend share: the kernels that backend.c puts into the table, and the kernel tables of
 * the instruction set in use. Kernel functions are named cpu_<op>, or cpu_<family> where one serves several ops. */
#ifndef ARGAND_CPU_CPU_H
#define ARGAND_CPU_CPU_H

#include "backend/backend.h"
#include "platform/cpu.h"

/* elementwise.c: every op of elementwise.def, and the backward of unary ops */
ag_status cpu_elementwise(ag_call *call);
/* where.c, copy.c: takes_strided */
ag_status cpu_where(ag_call *call);
ag_status cpu_clone(ag_call *call);
ag_status cpu_cast(ag_call *call);
/* cpu_strided_copy copies source to target, same shape, any strides, converting dtype; used by clone, cast, cat, pad, flip,
 * roll. A pending interrupt ends it early, unless must_finish. */
struct strided_copy {
    int ndim;
    int64_t dims[AG_MAX_NDIM], source_strides[AG_MAX_NDIM], target_strides[AG_MAX_NDIM]; /* elements; may be negative or 0 */
    const void *source;
    void *target;
    ag_dtype source_dtype, target_dtype;
    bool must_finish;
};
void cpu_strided_copy(const struct strided_copy *copy);

/* dispatch.c: picks the tables of kernels for the instruction set, once */
void cpu_dispatch_init(void);
const struct elementwise_kernels *cpu_elementwise_kernels(void);
const struct convert_kernels *cpu_convert_kernels(void);
const struct reduce_kernels *cpu_reduce_kernels(void);
const struct fused_kernels *cpu_fused_kernels(void);

/* create.c */
ag_status cpu_full(ag_call *call);
ag_status cpu_arange(ag_call *call);
ag_status cpu_linspace(ag_call *call);
ag_status cpu_eye(ag_call *call);
ag_status cpu_rand(ag_call *call);
ag_status cpu_randn(ag_call *call);
ag_status cpu_randint(ag_call *call);
ag_status cpu_randperm(ag_call *call);
ag_status cpu_bernoulli(ag_call *call);
ag_status cpu_dropout_mask(ag_call *call);
/* select.c */
ag_status cpu_masked_select(ag_call *call);
ag_status cpu_masked_scatter(ag_call *call);
ag_status cpu_nonzero(ag_call *call);
/* reduce.c */
ag_status cpu_reduce(ag_call *call);     /* sum prod amax amin any all */
ag_status cpu_arg_reduce(ag_call *call); /* argmax argmin */
ag_status cpu_logsumexp(ag_call *call);
/* scan.c */
ag_status cpu_scan(ag_call *call); /* cumsum cumprod cummax cummin */
/* sort.c */
ag_status cpu_sort(ag_call *call);
ag_status cpu_topk(ag_call *call);
ag_status cpu_unique(ag_call *call);
/* matmul.c */
ag_status cpu_matmul(ag_call *call); /* takes_strided */
ag_status cpu_linear(ag_call *call); /* takes_strided */
/* rearrange.c */
ag_status cpu_cat(ag_call *call);
ag_status cpu_flip(ag_call *call);
ag_status cpu_roll(ag_call *call);
ag_status cpu_pad(ag_call *call);
ag_status cpu_strided_backward(ag_call *call);
/* index.c */
ag_status cpu_gather(ag_call *call);
ag_status cpu_scatter(ag_call *call); /* scatter, scatter_add */
ag_status cpu_index_select(ag_call *call);
ag_status cpu_index_add(ag_call *call); /* index_add, index_copy */
ag_status cpu_index_put(ag_call *call);
/* nn.c: wrappers of the fused row kernels */
ag_status cpu_softmax(ag_call *call);          /* softmax log_softmax */
ag_status cpu_softmax_backward(ag_call *call); /* softmax_backward log_softmax_backward */
ag_status cpu_layer_norm_stats(ag_call *call);
ag_status cpu_layer_norm_backward(ag_call *call);
ag_status cpu_cross_entropy_rows(ag_call *call);
ag_status cpu_cross_entropy_rows_backward(ag_call *call);
/* nn_linear.c */
ag_status cpu_bias_activation_backward(ag_call *call);
/* nn_optim.c */
ag_status cpu_sgd_step(ag_call *call);
ag_status cpu_adam_step(ag_call *call);

#endif
