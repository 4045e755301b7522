/* rules.h: the shape, dtype and view rules that the op table names. A rule reads inputs and attributes of a call and fills
 * call->out (shape rules), call->out[].dtype and call->compute (dtype rules), or a geometry (view rules). They refuse what does
 * not fit. */
#ifndef ARGAND_OPS_RULES_H
#define ARGAND_OPS_RULES_H

#include "ops/op.h"

#define SHAPE_RULES(X) \
    X(attr_shape) X(arange) X(linspace) X(eye) X(randperm) X(same) X(broadcast) X(dynamic) X(reduce) X(reduce_nonempty) \
    X(reduce_one) X(same_dim) X(topk) X(matmul) X(dot) X(outer) X(bmm) X(addmm) X(linear) X(bias_activation_backward) X(cat) X(stack) X(tile) X(pad) \
    X(matrix_same) X(diag) X(gather) X(scatter) X(index_select) X(index_add) X(take) X(index_put) X(one_hot) X(embedding) \
    X(norm_shape) X(norm_stats) X(norm_backward) X(cross_entropy) X(cross_entropy_rows) X(second_shape) X(loss) X(step)
#define DTYPE_RULES(X) \
    X(attr_dtype) X(attr_dtype_float) X(attr_dtype_int) X(float_only) X(like) X(cast) X(keep) X(where) X(masked_fill) X(first) \
    X(second) X(index_result) X(sum) X(float_result) X(bool_result) X(count) X(values_indices) X(unique) X(promote) \
    X(promote_float) X(norm_stats) X(norm_backward) X(first_float) X(float_three) X(step) X(test) X(compare)
#define VIEW_RULES(X) \
    X(reshape) X(flatten) X(squeeze) X(unsqueeze) X(transpose) X(permute) X(movedim) X(expand) X(narrow) X(slice) X(select) \
    X(diagonal) X(unfold) X(as_strided)

#define DECLARE_SHAPE_RULE(name) ag_status shape_rule_##name(ag_call *call);
#define DECLARE_DTYPE_RULE(name) ag_status dtype_rule_##name(ag_call *call);
#define DECLARE_VIEW_RULE(name) \
    ag_status view_rule_##name(const ag_call *call, const view_geometry *source, view_geometry *result, bool *is_possible);
SHAPE_RULES(DECLARE_SHAPE_RULE)
DTYPE_RULES(DECLARE_DTYPE_RULE)
VIEW_RULES(DECLARE_VIEW_RULE)
#undef DECLARE_SHAPE_RULE
#undef DECLARE_DTYPE_RULE
#undef DECLARE_VIEW_RULE

/* rule_reduced_dims turns a dims attribute into a mask of dims; all when absent. Refuses repeats. */
ag_status rule_reduced_dims(const ag_call *call, int_list dims, int ndim, uint32_t *mask);
/* rule_reduced_shape is the shape left after reducing the dims of mask. */
void rule_reduced_shape(const shape *s, uint32_t mask, bool keepdim, shape *out);
/* rule_mismatch is the error of two shapes that do not fit. */
ag_status rule_mismatch(const ag_call *call, const char *arg, const char *expected, const char *hint);

int param_word_index(const param *p, const char *word);

#endif
