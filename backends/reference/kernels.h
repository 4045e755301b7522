/* kernels.h: the kernels of the reference backend, which backend.c puts into the table. One function serves several ops where
 * the loop is the same; it looks at call->op->id. */
#ifndef ARGAND_REFERENCE_KERNELS_H
#define ARGAND_REFERENCE_KERNELS_H

#include "ops/op.h"

/* elementwise.c: every op of elementwise.def, and the backward of unary ops; any strides, any dtype of input */
ag_status reference_elementwise(ag_call *call);
/* create.c */
ag_status reference_full(ag_call *call);
ag_status reference_arange(ag_call *call);
ag_status reference_linspace(ag_call *call);
ag_status reference_eye(ag_call *call);
/* random.c */
ag_status reference_rand(ag_call *call);
ag_status reference_randn(ag_call *call);
ag_status reference_randint(ag_call *call);
ag_status reference_randperm(ag_call *call);
ag_status reference_bernoulli(ag_call *call);
ag_status reference_dropout_mask(ag_call *call);
/* rearrange.c; the copy and where take any strides and dtypes */
ag_status reference_copy(ag_call *call); /* clone cast */
ag_status reference_cat(ag_call *call);
ag_status reference_flip(ag_call *call);
ag_status reference_roll(ag_call *call);
ag_status reference_pad(ag_call *call);
/* select.c */
ag_status reference_where(ag_call *call);
ag_status reference_masked_select(ag_call *call);
ag_status reference_masked_scatter(ag_call *call);
ag_status reference_nonzero(ag_call *call);
/* reduce.c */
ag_status reference_reduce(ag_call *call);     /* sum prod amax amin any all */
ag_status reference_arg_reduce(ag_call *call); /* argmax argmin */
ag_status reference_cumulate(ag_call *call);   /* cumsum cumprod */
ag_status reference_cumextreme(ag_call *call); /* cummax cummin */
/* sort.c */
ag_status reference_sort(ag_call *call); /* sort topk */
ag_status reference_unique(ag_call *call);
/* matmul.c */
ag_status reference_matmul(ag_call *call);
/* index.c */
ag_status reference_gather(ag_call *call);
ag_status reference_scatter(ag_call *call);
ag_status reference_index_select(ag_call *call);
ag_status reference_index_copy(ag_call *call);
/* index_add.c: results that add up in double, or in 64 bits, and are rounded once */
ag_status reference_scatter_add(ag_call *call);
ag_status reference_index_add(ag_call *call);
ag_status reference_index_put(ag_call *call);
ag_status reference_strided_backward(ag_call *call);

#endif
