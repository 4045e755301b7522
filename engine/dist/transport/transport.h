/* transport.h: what moves the data of a group's collectives: a table of functions, and the call that it runs.
 *
 * A transport belongs to one member of one group. Its functions are called by one thread at a time, not always the same one
 * (group.h sees to that), but for `wake`, which any thread may call at any time.
 *
 * run blocks until the call is through on this rank: results are in place and no buffer of the call is needed any more. It
 * returns
 *   AG_OK
 *   AG_E_MISMATCH  another rank made a different call, or one refused (call_print flag CALL_REFUSED): no output was written. The
 *                  same error on all ranks. `*is_over` stays false when all ranks have come to the same end and the group
 *                  can go on with the next call (shared memory; a refused half of a pair); true when it must end.
 *   AG_E_TIMEOUT   the deadline passed; the record's culprits are the ranks that were waited for. *is_over = true
 *   AG_E_PEER …    the cancel was raised: cancel_error. *is_over = true
 *   AG_E_INTERRUPTED  Ctrl-C: interrupt_pending() was seen while waiting. *is_over = true
 *   AG_E_NETWORK, AG_E_FORMAT, AG_E_MEMORY   *is_over = true
 * The input is intact after every failure, also in place.
 *
 * Ranks here are those of the group; `world_ranks` translates for messages and culprits, which name ranks of the world.
 */
#ifndef ARGAND_DIST_TRANSPORT_TRANSPORT_H
#define ARGAND_DIST_TRANSPORT_TRANSPORT_H

#include "dist/algorithm/cost.h"
#include "dist/transport/call_print.h"
#include "dist/transport/cancel.h"

/* block_form is what a shared block consists of. */
typedef enum block_form {
    BLOCK_RESULT,  /* a part of each rank, and behind them a result for all */
    BLOCK_RESULTS, /* a part of each rank, and behind them a result of each */
    BLOCK_COMMON   /* one part, which all ranks of a host read and write */
} block_form;

/* shared_block: memory in which collectives need not copy, or that ranks have in common. Part i begins at base + i * part_bytes;
 * part_bytes is a multiple of 4096. Where is_shared is false (no shared memory), only the own part and a result exist. rank, size and
 * world_ranks are of the group; of BLOCK_COMMON, they are of those who share it. */
typedef struct shared_block {
    char *base;
    size_t part_bytes;
    int rank, size;
    const int32_t *world_ranks; /* [size], borrowed from the transport */
    block_form form;
    bool is_shared; /* other ranks' parts can be read */
    void *owner;    /* the transport's own */
} shared_block;

/* shared_block_part returns rank's own part, or the common one; NULL for another rank's when not shared. */
static inline char *shared_block_part(const shared_block *b, int rank) {
    if (b->form == BLOCK_COMMON) return b->base;
    if (b->is_shared) return b->base + (size_t)rank * b->part_bytes;
    return rank == b->rank ? b->base : NULL;
}

/* shared_block_result returns where rank finds the result; NULL for another rank's when not shared. */
static inline char *shared_block_result(const shared_block *b, int rank) {
    if (b->is_shared) return b->base + (size_t)(b->size + (b->form == BLOCK_RESULTS ? rank : 0)) * b->part_bytes;
    return rank == b->rank ? b->base + b->part_bytes : NULL;
}

static inline int shared_block_num_parts(const shared_block *b) {
    if (b->form == BLOCK_COMMON) return 1;
    return !b->is_shared ? 2 : b->size + (b->form == BLOCK_RESULTS ? b->size : 1);
}

static inline size_t shared_block_bytes(const shared_block *b) { return (size_t)shared_block_num_parts(b) * b->part_bytes; }

typedef struct transport_call {
    collective_call call; /* algorithm is set; buffers are contiguous and belong to this call until run returns */
    call_print print;
    const char *refusal;       /* with CALL_REFUSED: why, for the other ranks; up to 200 bytes are told */
    const shared_block *block; /* NULL, or input is the own part and output the result of it, both at `block_offset` bytes:
                                  all_reduce only */
    size_t block_offset;
    bool is_background;  /* run by a worker: Ctrl-C is for the thread that waits, not for the call */
    int64_t deadline_ns; /* clock_ns time; INT64_MAX = none */
} transport_call;

typedef struct transport_stats {
    int64_t num_calls, bytes_moved; /* bytes that went to or came from other ranks' memory */
    int64_t num_messages;           /* sent; of shared memory: rounds of waiting for one another */
    int64_t num_rejected;           /* messages that were no part of this job, epoch or call */
} transport_stats;

typedef struct transport transport;
typedef struct transport_ops {
    const char *name; /* "shm", "inproc", "ipc", "tcp" */
    ag_status (*run)(transport *t, const transport_call *call, bool *is_over);
    /* All ranks call the two together. block_new waits for all, until the deadline. */
    ag_status (*block_new)(transport *t, size_t part_bytes, block_form form, int64_t deadline_ns, shared_block *out);
    void (*block_free)(transport *t, shared_block *block); /* no waiting; the memory goes when the last rank has freed it */
    /* priced turns a call into the one that cost is about, and returns the seconds of what is beside it. NULL: that is the call
     * itself, and nothing. */
    double (*priced)(const transport *t, collective_call *call);
    void (*wake)(transport *t); /* waits look at the cancel now, those of other processes, too, where memory is shared */
    void (*stats)(const transport *t, transport_stats *out);
    /* leave has other ranks' waits for this one end; only blocks are used after it. NULL: they learn it from the group's world. */
    void (*leave)(transport *t);
    void (*free)(transport *t); /* never blocks for long (<= 1 s); NULL is not accepted */
} transport_ops;

struct transport {
    const transport_ops *ops;
    int rank, size;             /* in the group */
    const int32_t *world_ranks; /* [size], borrowed from the group */
    cancel *cancel;             /* borrowed */
    collective_cost cost;       /* the same on all ranks: from constants, or measured and agreed */
};

/* transport_choose returns the fastest algorithm for a call over t, the same on all ranks. */
static inline collective_algorithm transport_choose(const transport *t, const collective_call *call) {
    collective_call priced = *call;
    if (t->ops->priced) (void)t->ops->priced(t, &priced);
    return collective_choose(&priced, &t->cost);
}

/* transport_time_s estimates the call with call->algorithm over t. */
static inline double transport_time_s(const transport *t, const collective_call *call) {
    collective_call priced = *call;
    double beside_s = t->ops->priced ? t->ops->priced(t, &priced) : 0;
    return beside_s + collective_time_s(&priced, &t->cost);
}

#endif
