/* collective.h: a collective operation as the state machine of one rank, without threads, clock or transport.
 *
 * Model. `collective_init` turns a call into a plan: a list of transfers (send, store, reduce, finish), each over a run of
 * elements and each with at most one transfer that it comes after. A driver (a transport, or the simulator) then moves
 * segments: it asks `collective_next_send` what may leave, reports with `collective_sent` that the bytes are out of this
 * rank's hands, and offers what has arrived with `collective_offer`. Nothing is allocated after collective_init.
 *
 * Segments. (sequence, step, offset, length) names one: sequence is the group's number of the call, step the transfer among
 * those of the two ranks, offset and length count elements of the transfer. Sender and receiver may cut differently.
 *
 * Order. Arrival in any order is allowed: an early segment is not taken, and the driver keeps it and offers it again after
 * the next one taken. On an edge that keeps its order, one kept segment per edge is enough, however short of room the edge
 * is: segments for one peer leave in the order of the plan, and waiting always goes to a lower step.
 *
 * Result. An element is reduced in an order that depends on algorithm, size, root and, in a ring, on the chunk it lies in;
 * never on arrival or segments. One rank computes it and the others copy it, so all ranks hold the same bits. f16 and bf16
 * are summed in f32 (partial results travel as f32) and rounded once. README.md states the order of every algorithm.
 *
 * Failure. The driver calls `collective_fail` when it learns that a rank is lost. The input is never written before the
 * collective is complete; when input and output overlap, results are kept aside and copied at the end. After a failure the
 * input is what it was, also in place; an output that is not an input has no defined contents.
 *
 * Ownership. Buffers and counts of the call are borrowed until collective_deinit, which the driver may call only when every
 * segment handed out was reported as sent.
 */
#ifndef ARGAND_DIST_ALGORITHM_COLLECTIVE_H
#define ARGAND_DIST_ALGORITHM_COLLECTIVE_H

#include "argand.h"

/* Constant, name. */
#define COLLECTIVE_KIND_MAP(X)                     \
    X(COLLECTIVE_ALL_REDUCE, "all_reduce")         \
    X(COLLECTIVE_REDUCE, "reduce")                 \
    X(COLLECTIVE_BROADCAST, "broadcast")           \
    X(COLLECTIVE_ALL_GATHER, "all_gather")         \
    X(COLLECTIVE_REDUCE_SCATTER, "reduce_scatter") \
    X(COLLECTIVE_GATHER, "gather")                 \
    X(COLLECTIVE_SCATTER, "scatter")               \
    X(COLLECTIVE_ALL_TO_ALL, "all_to_all")         \
    X(COLLECTIVE_SEND, "send")                     \
    X(COLLECTIVE_RECEIVE, "receive")               \
    X(COLLECTIVE_BARRIER, "barrier")

#define REDUCE_OP_MAP(X)    \
    X(REDUCE_SUM, "sum")    \
    X(REDUCE_MEAN, "mean")  \
    X(REDUCE_MIN, "min")    \
    X(REDUCE_MAX, "max")    \
    X(REDUCE_PROD, "prod")  \
    X(REDUCE_AND, "and")    \
    X(REDUCE_OR, "or")

#define ALGORITHM_MAP(X)              \
    X(ALGORITHM_ANY, "any")           \
    X(ALGORITHM_DIRECT, "direct")     \
    X(ALGORITHM_RING, "ring")         \
    X(ALGORITHM_HALVING, "halving")   \
    X(ALGORITHM_TREE, "tree")         \
    X(ALGORITHM_CHAIN, "chain")       \
    X(ALGORITHM_DISSEMINATION, "dissemination")

#define COLLECTIVE_ENUM(constant, name) constant,
typedef enum collective_kind { COLLECTIVE_KIND_MAP(COLLECTIVE_ENUM) COLLECTIVE_KIND_COUNT } collective_kind;
typedef enum reduce_op { REDUCE_OP_MAP(COLLECTIVE_ENUM) REDUCE_OP_COUNT } reduce_op;
typedef enum collective_algorithm { ALGORITHM_MAP(COLLECTIVE_ENUM) ALGORITHM_COUNT } collective_algorithm;
#undef COLLECTIVE_ENUM

#define ANY_PEER (-1)

/* collective_call says what to do; the same on all ranks but for rank, input, output and the counts of all_to_all.
 *
 * kind            input                             output
 * all_reduce      [count]                           [count]
 * reduce          [count]                           [count] on root
 * broadcast       [count] on root                   [count]; on root it may be NULL or the input
 * all_gather      [count], or [counts[rank]]        [sum over ranks], in rank order
 * reduce_scatter  [count]                           chunk `rank` of count; the first count % size chunks hold one more
 * gather          [count], or [counts[rank]]        [sum over ranks] on root
 * scatter         [sum over ranks] on root          [count], or [counts[rank]]
 * all_to_all      [size * count], or [sum counts]   [size * count], or [sum output_counts]; blocks in rank order
 * send, receive   [count] on the sender             [count] on the receiver; root is the other rank
 * barrier         none                              none
 */
typedef struct collective_call {
    collective_kind kind;
    collective_algorithm algorithm; /* ALGORITHM_ANY: the first of algorithm_list; see cost.h for a choice by time */
    reduce_op op;                   /* of all_reduce, reduce, reduce_scatter */
    ag_dtype dtype;
    int rank, size, root;
    int64_t count;                /* elements */
    const int64_t *counts;        /* [size] or NULL: the v forms of all_gather, gather, scatter, all_to_all (what is sent) */
    const int64_t *output_counts; /* [size], all_to_all with counts only: what comes from each rank */
    const void *input;            /* need not be aligned; may overlap the output in any way */
    void *output;
    uint64_t sequence;
    size_t segment_bytes; /* no sent segment is longer, unless one element is */
} collective_call;

typedef struct segment {
    uint64_t sequence;
    uint32_t step;
    int peer;               /* the rank it goes to or came from */
    int64_t offset, length; /* in elements of the transfer */
    const void *data;       /* size_bytes bytes, not aligned; of a send: valid and unchanged until collective_sent */
    size_t size_bytes;
} segment;

typedef enum collective_state { COLLECTIVE_RUNNING, COLLECTIVE_DONE, COLLECTIVE_FAILED } collective_state;

struct transfer; /* plan.h */

enum { BUFFER_INPUT, BUFFER_WORK, BUFFER_ACCUMULATOR, BUFFER_COUNT };

/* collective_buffer: element i of the call's coordinates lies at data + (i - origin) * size of dtype. */
typedef struct collective_buffer {
    char *data;
    int64_t origin;
    ag_dtype dtype;
} collective_buffer;

typedef struct collective {
    collective_call call;
    collective_state state;
    int culprit; /* the rank that was lost, -1 = none */
    struct transfer *transfers;
    int32_t num_transfers, max_transfers;
    int32_t num_open;   /* transfers that are not complete */
    int32_t next_local; /* below it all local rows are complete */
    int64_t num_out;    /* segments handed out and not yet reported as sent */
    int32_t *send_head, *receive_head; /* [size] the first open transfer to and from each rank, -1 = none */
    int next_peer;                     /* where the next search over all peers begins */
    collective_buffer buffers[BUFFER_COUNT];
    char *work, *accumulator;          /* scratch of our own, NULL = none */
    size_t work_bytes, accumulator_bytes;
    int64_t output_length;             /* elements to copy from work at the end */
} collective;

static inline bool collective_is_reduction(collective_kind kind) {
    return kind == COLLECTIVE_ALL_REDUCE || kind == COLLECTIVE_REDUCE || kind == COLLECTIVE_REDUCE_SCATTER;
}
/* collective_is_pair is true of send and receive, which concern two ranks only. */
static inline bool collective_is_pair(collective_kind kind) { return kind == COLLECTIVE_SEND || kind == COLLECTIVE_RECEIVE; }
const char *collective_kind_name(collective_kind kind);
const char *reduce_op_name(reduce_op op);
const char *algorithm_name(collective_algorithm algorithm);
/* algorithm_list returns the algorithms that a kind has, best all-round first, ended by ALGORITHM_ANY. */
const collective_algorithm *algorithm_list(collective_kind kind);
/* chunk_offset returns where chunk `index` of count elements cut into num_chunks begins: sizes differ by at most one, the
 * first ones are longer. index num_chunks gives count. */
int64_t chunk_offset(int64_t count, int num_chunks, int index);

/* collective_supports says whether a reduction is defined for the dtype; if not, AG_E_DTYPE with expected, got and remedy. */
ag_status collective_supports(collective_kind kind, reduce_op op, ag_dtype dtype);
/* collective_init checks the call and makes the plan. On failure nothing is held. Errors: AG_E_ARGUMENT, AG_E_DTYPE,
 * AG_E_MEMORY. A call that needs no peer may be complete at once. */
ag_status collective_init(collective *c, const collective_call *call);
void collective_deinit(collective *c);

/* collective_next_send fills in the next segment that may leave for `peer`, or for any peer in turn; false when there is
 * none at present. The driver owes a collective_sent for it. */
bool collective_next_send(collective *c, int peer, segment *out);
void collective_sent(collective *c);
/* collective_next_receive fills in (step, offset, length) of what is wanted next from the peer; length 0 when it may not be
 * taken yet. False when nothing more is to come from that rank. data is NULL. */
bool collective_next_receive(const collective *c, int peer, segment *out);
/* collective_offer hands over an arrived segment. *taken is false when it is early: keep it and offer it again. A segment
 * that the plan does not know is AG_E_FORMAT, and the collective is as it was; after a failure all are AG_E_STATE. data is not
 * needed after the call. */
ag_status collective_offer(collective *c, const segment *arrived, bool *taken);
/* collective_fail ends a running collective because `culprit` is lost; `reason` ends the sentence "rank 3 …". Returns
 * AG_E_STATE with the record set; a collective that is done stays done. */
ag_status collective_fail(collective *c, int culprit, const char *reason);

#endif
