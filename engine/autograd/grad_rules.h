/* grad_rules.h: what a gradient rule gets and what it must give.
 *
 * A rule turns the gradients of a call's outputs into those of its inputs, by calling ops through `g->e`; with create_graph
 * those calls are recorded themselves, which gives double backward. It fills g->grad_in[i] for inputs with grad_needs(g, i)
 * (tensors owned by g->e or a gradient of an output handed on, in the input's shape and dtype; NULL = zero) and leaves
 * failures in g->e. A missing gradient of an output (NULL) counts as zero.
 * Fused backward kernels are hidden ops whose own gradient is `composed`, so a rule just calls them.
 */
#ifndef ARGAND_AUTOGRAD_GRAD_RULES_H
#define ARGAND_AUTOGRAD_GRAD_RULES_H

#include "autograd/tape.h"
#include "ops/attrs.h"

typedef struct grad_call {
    const node *node;
    expr *e;
    const ag_call *call;         /* op, attributes, index_base of the forward call; no inputs */
    ag_tensor *const *grad_out;  /* [num_outputs], NULL = zero */
    ag_tensor **grad_in;         /* [num_inputs] */
    ag_tensor *const *saved_in;  /* [num_inputs] the inputs that the rule saves, else NULL */
    ag_tensor *const *saved_out; /* [num_outputs] likewise */
} grad_call;

/* Bit i of saves_in: the rule reads input i; of saves_out: output i. A binary elementwise rule reads different things for its 2
 * gradients: then saves_in and saves_out stand for input 0 alone and the `_b` pair for input 1. */
typedef struct grad_rule {
    void (*run)(grad_call *g);
    uint16_t saves_in, saves_out;
    uint16_t saves_in_b, saves_out_b;
    bool is_binary; /* the _b pair is in use */
} grad_rule;

#define SAVES(i) (1u << (i))

static inline bool grad_needs(const grad_call *g, int input) { return g->node->edges[input].node != NULL; }
static inline shape grad_input_shape(const grad_call *g, int input) {
    const tensor_meta *meta = &g->node->inputs[input];
    shape s = {.ndim = meta->ndim};
    for (int i = 0; i < meta->ndim; i++) s.dims[i] = meta->dims[i];
    return s;
}
static inline ag_dtype grad_input_dtype(const grad_call *g, int input) { return (ag_dtype)g->node->inputs[input].dtype; }

/* The rules that ops.def names; each has `const grad_rule grad_rule_<name>` in grad_rules_<family>.c. */
#define GRAD_RULES(X) \
    X(identity) X(cast) X(to_device) X(where) X(masked_select) X(masked_scatter) X(sum) X(prod) X(mean) X(amax) \
    X(logsumexp) X(cumsum) X(cumprod) X(cumextreme) X(sort) X(matmul) X(linear) X(reshape) X(transpose) X(permute) \
    X(expand) X(strided) X(as_strided) X(strided_backward) X(strided_scatter) X(cat) X(flip) X(roll) X(pad) X(gather) \
    X(scatter) X(scatter_add) X(index_select) X(index_add) X(index_copy) X(index_put) X(embedding) X(softmax) \
    X(log_softmax) X(layer_norm) X(cross_entropy_rows)
#define DECLARE_GRAD_RULE(name) extern const grad_rule grad_rule_##name;
GRAD_RULES(DECLARE_GRAD_RULE)
#undef DECLARE_GRAD_RULE

/* grad_rules has the rule of each op; NULL = never tracked. Two rules are marks without `run`: composed = the calls of the
 * decomposition are recorded instead, refused = a tracked input is an error. */
extern const grad_rule *const grad_rules[OP_COUNT];
extern const grad_rule grad_rule_composed, grad_rule_refused;
/* The rules of the rows of elementwise.def that have a gradient, at their op's place. */
extern const grad_rule elementwise_grad_rules[OP_COUNT];

/* ---- what rules of several families need ---- */

/* grad_give hands t out as the gradient of input i: summed over the dims that were broadcast, in the input's dtype. */
void grad_give(grad_call *g, int input, ag_tensor *t);
/* grad_zeros returns zeros like input i. */
ag_tensor *grad_zeros(grad_call *g, int input);
/* grad_prepare makes call one of `id`, with the attributes of the forward call when `copies_attrs`. */
void grad_prepare(const grad_call *g, ag_call *call, op_id id, bool copies_attrs);
/* grad_scatter_add adds t at index along dim to zeros like input i; positions as in the forward call. */
ag_tensor *grad_scatter_add(grad_call *g, int input, int64_t dim, ag_tensor *index, ag_tensor *t);
/* grad_index_add adds the parts of t at the positions in index (1-d) of dim to x. */
ag_tensor *grad_index_add(grad_call *g, ag_tensor *x, int64_t dim, ag_tensor *index, ag_tensor *t);
ag_tensor *grad_permute(expr *e, ag_tensor *x, const int64_t *dims, int num_dims);
/* grad_pad pads (or with negative numbers cuts) one dim with value. */
ag_tensor *grad_pad(expr *e, ag_tensor *x, int dim, int64_t before, int64_t after, double value);

#endif
