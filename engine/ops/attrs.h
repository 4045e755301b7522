/* attrs.h: the attributes of each op family by name. A struct overlays ag_call.attrs: 8-byte slots in signature order. */
#ifndef ARGAND_OPS_ATTRS_H
#define ARGAND_OPS_ATTRS_H

#include "ops/op.h"


#define ATTRS(name, ...)                                   \
    struct __attribute__((may_alias)) name { __VA_ARGS__ }; \
    _Static_assert(sizeof(struct name) % sizeof(attr) == 0, "8-byte slots")

ATTRS(attrs_shape, int_list shape; );
ATTRS(attrs_full, int_list shape; double value; );
ATTRS(attrs_arange, double start, stop, step; );
ATTRS(attrs_linspace, double start, stop; int64_t count; );
ATTRS(attrs_eye, int64_t rows, columns; );
ATTRS(attrs_random, int_list shape; int64_t dtype; ag_device *device; ag_generator *generator; );
ATTRS(attrs_randint, int64_t low, high; int_list shape; int64_t dtype; ag_device *device; ag_generator *generator; );
ATTRS(attrs_randperm, int64_t n; int64_t dtype; ag_device *device; ag_generator *generator; );
ATTRS(attrs_generator, ag_generator *generator; );
ATTRS(attrs_value, double value; );
ATTRS(attrs_dtype, int64_t dtype; );
ATTRS(attrs_device, ag_device *device; );
ATTRS(attrs_reduce, int_list dims; int64_t keepdim; );
ATTRS(attrs_var, int_list dims; double correction; int64_t keepdim; );
ATTRS(attrs_norm, double p; int_list dims; int64_t keepdim; );
ATTRS(attrs_reduce_one, int64_t dim, keepdim; );
ATTRS(attrs_dim, int64_t dim; );
ATTRS(attrs_dims, int_list dims; );
ATTRS(attrs_sort, int64_t dim, descending; );
ATTRS(attrs_topk, int64_t k, dim, largest; );
ATTRS(attrs_addmm, double beta, alpha; );
ATTRS(attrs_activation, int64_t activation; );
ATTRS(attrs_flatten, int64_t start_dim, end_dim; );
ATTRS(attrs_transpose, int64_t dim0, dim1; );
ATTRS(attrs_movedim, int64_t source, destination; );
ATTRS(attrs_narrow, int64_t dim, start, length; );
ATTRS(attrs_slice, int64_t dim, start, stop, step; );
ATTRS(attrs_select, int64_t dim, index; );
ATTRS(attrs_diagonal, int64_t offset, dim1, dim2; );
ATTRS(attrs_unfold, int64_t dim, size, step; );
ATTRS(attrs_strided, int_list shape, strides; int64_t offset; );
ATTRS(attrs_roll, int_list shifts, dims; );
ATTRS(attrs_ints, int_list ints; );
ATTRS(attrs_pad, int_list padding; double value; int64_t mode; );
ATTRS(attrs_int, int64_t value; );
ATTRS(attrs_index_add, int64_t dim; double alpha; );
ATTRS(attrs_flag, int64_t flag; );
ATTRS(attrs_clamp, double min, max; );
ATTRS(attrs_dropout, double p; int64_t training; ag_generator *generator; );
ATTRS(attrs_dropout_mask, double p; ag_generator *generator; );
ATTRS(attrs_layer_norm, int_list shape; double eps; );
ATTRS(attrs_norm_stats, double eps; int64_t width; );
ATTRS(attrs_batch_norm, int64_t training; double momentum, eps; );
ATTRS(attrs_group_norm, int64_t num_groups; double eps; );
ATTRS(attrs_cross_entropy, int64_t ignore_index, reduction; double label_smoothing; );
ATTRS(attrs_cross_entropy_rows, int64_t ignore_index; double label_smoothing; );
ATTRS(attrs_nll, int64_t ignore_index, reduction; );
ATTRS(attrs_loss, int64_t reduction; );
ATTRS(attrs_smooth_loss, double threshold; int64_t reduction; );
ATTRS(attrs_kl_div, int64_t reduction, log_target; );
ATTRS(attrs_sgd, double lr, momentum, dampening, weight_decay; int64_t nesterov, first; );
ATTRS(attrs_adam, double lr, beta1, beta2, eps, weight_decay; int64_t decoupled, step; );

#undef ATTRS

/* Words of the word attributes, in signature order. */
enum { REDUCTION_MEAN, REDUCTION_SUM, REDUCTION_NONE, REDUCTION_BATCHMEAN };
enum { ACTIVATION_NONE, ACTIVATION_RELU, ACTIVATION_GELU };
enum { PAD_CONSTANT, PAD_REFLECT, PAD_REPLICATE };

#endif
