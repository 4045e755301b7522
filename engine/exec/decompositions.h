/* decompositions.h: compound ops as formulas of other ops.
 *
 * decompose_<name>(e, call) fills call->outputs, each in the shape and dtype that the rules put into call->out, by calling ops
 * through e. The inputs are as the caller gave them. Where the op's gradient is `composed` those calls are recorded, so the
 * formula has to be sound in its derivative as well: what is masked out must not bring 0 * infinity.
 * Half precision is computed in f32 and rounded once, at the end.
 */
#ifndef ARGAND_EXEC_DECOMPOSITIONS_H
#define ARGAND_EXEC_DECOMPOSITIONS_H

#include "exec/expr.h"
#include "ops/attrs.h"

#define DECOMPOSITIONS_CREATE(X) \
    X(empty) X(zeros) X(ones) X(empty_like) X(full_like) X(zeros_like) X(ones_like) X(rand_like) X(randn_like) X(to_device)
#define DECOMPOSITIONS_REDUCE(X) \
    X(mean) X(var) X(std) X(count_nonzero) X(logsumexp) X(norm) X(max_dim) X(min_dim) X(argsort)
#define DECOMPOSITIONS_SHAPE(X) \
    X(dot) X(outer) X(bmm) X(addmm) X(linear) X(stack) X(tile) X(tril) X(triu) X(diag) X(strided_scatter)
#define DECOMPOSITIONS_INDEX(X) X(masked_fill) X(take) X(one_hot) X(embedding)
#define DECOMPOSITIONS_NN(X)                                                                                              \
    X(softmax) X(log_softmax) X(softmax_backward) X(log_softmax_backward) X(mish) X(gelu_tanh) X(bias_activation_backward) X(hardtanh) X(dropout)         \
    X(layer_norm) X(layer_norm_stats) X(layer_norm_backward) X(rms_norm) X(batch_norm) X(group_norm)
#define DECOMPOSITIONS_LOSS(X)                                                                                            \
    X(cross_entropy) X(cross_entropy_rows) X(cross_entropy_rows_backward) X(nll_loss) X(binary_cross_entropy)                 \
    X(bce_with_logits) X(mse_loss) X(l1_loss) X(smooth_l1_loss) X(huber_loss) X(kl_div)
#define DECOMPOSITIONS_OPTIM(X) X(sgd_step) X(adam_step)
#define DECOMPOSITIONS(X)                                                                                            \
    DECOMPOSITIONS_CREATE(X) DECOMPOSITIONS_REDUCE(X) DECOMPOSITIONS_SHAPE(X) DECOMPOSITIONS_INDEX(X) DECOMPOSITIONS_NN(X) \
    DECOMPOSITIONS_LOSS(X) DECOMPOSITIONS_OPTIM(X)

#define DECLARE_DECOMPOSITION(name) ag_status decompose_##name(expr *e, ag_call *call);
DECOMPOSITIONS(DECLARE_DECOMPOSITION)
#undef DECLARE_DECOMPOSITION

/* decompose_<name>_backward for the unary rows of the elementwise table. */
#define UNARY_FLOAT(name, ...) ag_status decompose_##name##_backward(expr *e, ag_call *call);
#define UNARY_NUM(name, ...) ag_status decompose_##name##_backward(expr *e, ag_call *call);
#define UNARY_TEST(name, ...)
#define UNARY_BIT(name, ...)
#define BINARY_FLOAT(name, ...)
#define BINARY_NUM(name, ...)
#define BINARY_COMPARE(name, ...)
#define BINARY_LOGICAL(name, ...)
#define BINARY_BIT(name, ...)
#include "ops/elementwise.def"

/* NULL where an op has no decomposition: a backend must bring the kernel. */
extern const decomposition_fn decompositions[OP_COUNT];

/* ---- shared by the families ---- */

/* The dtype to compute in: call->compute, f32 for half precision. */
static inline ag_dtype decompose_dtype(const ag_call *call) { return dtype_is_half(call->compute) ? AG_F32 : call->compute; }
/* decompose_input is input i in that dtype; NULL when it is absent. */
static inline ag_tensor *decompose_input(expr *e, const ag_call *call, int i) {
    return call->inputs[i] ? ex_cast(e, call->inputs[i], decompose_dtype(call)) : NULL;
}
/* decompose_result makes t output k: converted to its dtype, contiguous, with storage of its own. Returns e->status. */
ag_status decompose_result(expr *e, ag_call *call, int k, ag_tensor *t);
/* decompose_refuse is call_fail for use in a decomposition: e keeps the status. */
#define decompose_refuse(e, call, ...) (expr_fail(e, call_fail(call, __VA_ARGS__)), (e)->status)
/* decompose_check_classes refuses labels outside index_base .. index_base + classes - 1; it reads from the device. */
ag_status decompose_check_classes(expr *e, const ag_call *call, const char *arg, ag_tensor *labels, int64_t classes);

#endif
