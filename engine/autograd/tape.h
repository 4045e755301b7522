/* tape.h: the tape of what has to be differentiated.
 *
 * A `node` stands for one call whose result is tracked. It holds the nodes of its inputs (edges), what the gradient rule has to
 * read (saved tensors, with the versions they had), and the call's attributes. Nodes are numbered in creation order, so a walk
 * by falling number is a reverse topological order. A node lives while its output tensor or a later node holds it; freeing is a
 * loop over a work list, never recursion, so chains of any length are fine. A leaf that wants a gradient has a node of kind
 * NODE_LEAF, which holds the accumulated gradient: tensor -> node, never back, so nothing is circular.
 *
 * The sign of being tracked is tensor->node and nothing else; whether a call is recorded follows from its inputs and the
 * thread's autodiff context.
 */
#ifndef ARGAND_AUTOGRAD_TAPE_H
#define ARGAND_AUTOGRAD_TAPE_H

#include <stdatomic.h>

#include "exec/expr.h"

typedef enum node_kind { NODE_LEAF, NODE_OP, NODE_CUSTOM } node_kind;

typedef struct edge {
    struct node *node; /* NULL = that input is not tracked */
    uint32_t output;   /* which of its outputs */
} edge;

/* One tensor that the gradient rule reads. */
typedef struct saved {
    ag_tensor *tensor;     /* NULL once released, or while it is to be recomputed */
    struct node *producer; /* balanced checkpointing: run this node's call again to get the tensor; else NULL */
    uint32_t version;      /* of the storage when it was saved */
    int16_t position;      /* input number, or -1 - output number */
    uint16_t output;       /* of producer */
    bool is_for_rule;      /* else it serves to run the call again only */
} saved;

/* Size, dtype and device of an input or output, to shape its gradient. */
typedef struct tensor_meta {
    int8_t dtype, ndim;
    ag_device *device;
    const int64_t *dims; /* in the node's own block */
} tensor_meta;

static inline bool grad_fits(const ag_tensor *grad, const tensor_meta *meta) {
    if (grad->ndim != meta->ndim || grad->dtype != meta->dtype || grad->storage->device != meta->device) return false;
    for (int d = 0; d < meta->ndim; d++)
        if (grad->dims[d] != meta->dims[d]) return false;
    return true;
}

typedef struct hook {
    ag_hook_fn fn;
    void *context;
    void (*free_context)(void *context);
    uint64_t id;
    uint32_t output;
    struct hook *next;
} hook;

/* A leaf's sink takes each finished gradient (borrowed, of the leaf's shape, dtype and device) in the place of the accumulation
 * into leaf->grad. It runs on the thread that called backward, as soon as nothing more can come to the leaf: while the rest of
 * backward is still to run, unless a custom function is. An error ends backward. */
typedef struct leaf_sink {
    ag_status (*take)(void *context, struct node *leaf, ag_tensor *grad); /* NULL = none */
    void (*expect)(void *context); /* backward has begun and the leaf is among those it leads to; no leaf is told when it is not
                                      known, for a custom function is in the graph; may be NULL */
    void *context;
} leaf_sink;

typedef struct node {
    atomic_int refs;
    uint8_t kind;            /* node_kind */
    bool is_released;        /* backward has run and let the saved tensors go */
    bool is_recomputable;    /* saved holds every input: the call can be run again */
    bool is_forced;          /* custom: always visited, it may reach tensors that are not its inputs */
    uint8_t recompute_depth; /* how many producers a recomputation may have to run, one below the other */
    int8_t index_base;
    bool reaches_sink;    /* a leaf with a sink, or made of one */
    atomic_int num_users; /* saved tensors elsewhere whose producer this is: what it saves is kept for them after release */
    uint32_t size_bytes;  /* of the block with all its parts */
    uint32_t version;     /* of the outputs' storage when the call was through: a later one is not what it would give again */
    uint32_t num_inputs, num_outputs, num_saved, num_attrs, num_ints;
    uint64_t sequence;
    const struct ag_op *op; /* NODE_OP */
    edge *edges;            /* [num_inputs] */
    tensor_meta *inputs;    /* [num_inputs] */
    tensor_meta *outputs;   /* [num_outputs] */
    saved *saved;           /* [num_saved] */
    attr *attrs;            /* [num_attrs] */
    int64_t *ints;          /* [num_ints] */
    ag_tensor **recomputed; /* [num_outputs] once something was recomputed, until backward is through; owned */
    hook *hooks;
    char *where;            /* forward line, in anomaly mode; owned */
    ag_tensor *grad;        /* NODE_LEAF: the accumulated gradient; owned */
    leaf_sink sink;         /* NODE_LEAF; whoever set it takes it away again */
    struct custom *custom;  /* NODE_CUSTOM; owned */
    struct node *next_free; /* work list of freeing */
    struct visit *visit;    /* of the backward run that is at work; backward.c */
} node;

uint64_t tape_next_sequence(void); /* the number that the next node will have */
node *node_retain(node *n);
void node_release(node *n);
int64_t node_live_count(void);
const char *node_name(const node *n);

/* A function of the user: backward.c asks `fn` for the inputs' gradients. */
struct custom {
    char name[48];
    ag_custom_backward_fn fn;
    void *context;
    void (*free_context)(void *context);
};

/* tape_init makes exec record through this tape; once. */
void tape_init(void);
/* tape_leaf_new makes the node of a leaf like `tensor`. */
ag_status tape_leaf_new(const ag_tensor *tensor, node **out);
/* tape_set_sink gives a leaf a sink; {NULL} takes it away. */
void tape_set_sink(node *leaf, leaf_sink sink);
/* tape_node_new makes a node with room for the given parts, edges and metas filled from the tensors. */
ag_status tape_node_new(node_kind kind, ag_tensor *const *inputs, uint32_t num_inputs, ag_tensor *const *outputs,
                        uint32_t num_outputs, uint32_t num_saved, uint32_t num_attrs, uint32_t num_ints, node **out);
/* tape_attach makes outputs of float dtype depend on n. */
void tape_attach(node *n, ag_tensor **outputs, uint32_t num_outputs);
/* tape_saved gives saved tensor `s` of n back: checks its version, recomputes it if it was not kept. With create_graph it is
 * tied to the tape again. *out is owned by the caller. */
ag_status tape_saved(node *n, saved *s, bool create_graph, ag_tensor **out);
/* tape_release_saved lets go of what backward no longer needs: saved tensors, a custom function's context. */
void tape_release_saved(node *n);
void tape_release_recomputed(node *n);
/* tape_released_error says that n was used up by an earlier backward. */
ag_status tape_released_error(const node *n);
/* tape_note_where keeps the line of the forward call in n. */
ag_status tape_note_where(node *n);
/* tape_call_of fills a call with op, attributes and index_base of n, inputs NULL. */
void tape_call_of(const node *n, ag_call *call);
/* tape_run_inplace runs a call whose result replaces inputs[0]; see ag_op_call_inplace. */
ag_status tape_run_inplace(ag_call *call, ag_tensor **out);

/* grad_check refuses a gradient (of the user's making) that has not the shape, dtype and device of what it belongs to. */
ag_status grad_check(const ag_tensor *grad, const tensor_meta *meta, const char *op, const char *what);

/* hooks.c. hooks_run calls n's hooks with the finished gradients of its outputs: [num_outputs]; NULL = zero. */
ag_status hooks_run(const node *n, ag_tensor **grads);
void hooks_free(node *n);

/* context.c: the thread's autodiff context. */
bool context_is_recording(void);
ag_checkpointing context_checkpointing(void);
void context_pause(void);
void context_resume(void);

extern bool anomaly_enabled;
void anomaly_where(char *buffer, size_t len);
bool anomaly_has_nan(ag_tensor *tensor);

#endif
