/* plan.h: the transfers of a collective and how the planners write them down; for the algorithm folder only. */
#ifndef ARGAND_DIST_ALGORITHM_PLAN_H
#define ARGAND_DIST_ALGORITHM_PLAN_H

#include "dist/algorithm/collective.h"

typedef enum transfer_action {
    TRANSFER_SEND,   /* buffer -> peer */
    TRANSFER_STORE,  /* buffer = value */
    TRANSFER_REDUCE, /* buffer = value op other, or other op value */
    TRANSFER_FINISH  /* buffer = value / size for mean, rounded to the dtype */
} transfer_action;

/* transfer is one row of a plan. The value is what comes from `peer`, or elements of `source` when peer is NO_PEER.
 * Elements [0, done) are finished; a row works through its run from the front. `after` is a lower row: element i waits for
 * the same element of that row, or for its end when after_whole. Rows for one peer have rising steps. */
typedef struct transfer {
    transfer_action action;
    ag_dtype wire; /* of the value, or of what is sent */
    int buffer, source, other;
    bool value_first; /* value op other */
    bool after_whole;
    int peer;
    int32_t after; /* -1 = none */
    int32_t next;  /* the next row of the same direction and peer, -1 = none */
    uint32_t step;
    int64_t offset, length, done; /* offset: in `buffer` and `other`, in the call's coordinates */
    int64_t source_offset;        /* in `source` */
} transfer;

#define NO_PEER (-1)
#define NO_ROW (-1)

/* plan_add appends a row, unless its length is 0, and returns the row to wait for: its own number, or `after`. The caller has
 * made room. step and peer are given in the row. */
int32_t plan_add(collective *c, transfer row);
/* The usual rows. Each returns the row that later ones wait for. */
int32_t plan_send(collective *c, int peer, uint32_t step, int buffer, int64_t offset, int64_t length, int32_t after);
int32_t plan_store(collective *c, int peer, uint32_t step, int64_t offset, int64_t length, int32_t after);
int32_t plan_finish(collective *c, int64_t offset, int64_t length, int32_t after);
/* plan_own copies this rank's own run from input to work, unless it is there already. */
int32_t plan_own(collective *c, int64_t offset, int64_t source_offset, int64_t length);

ag_dtype accumulator_dtype(ag_dtype dtype);
/* collective_start does the local work of a new plan. */
void collective_start(collective *c);
/* plan_make writes the rows of c->call; buffers are set up. plan_room is an upper bound of their number. */
void plan_make(collective *c);
int64_t plan_room(const collective_call *call);
/* block_offset returns where block `index` of the v form begins; counts NULL: blocks of `count`. */
int64_t block_offset(const int64_t *counts, int64_t count, int index);

/* plan_reduce.c */
void plan_all_reduce(collective *c);
void plan_reduce(collective *c);
void plan_reduce_scatter(collective *c);
/* plan_move.c */
/* All ranks' runs for all ranks; the own one is taken from own_buffer after row `after`. */
void plan_all_gather_ring(collective *c, int own_buffer, uint32_t first_step, int32_t after);
void plan_all_gather_direct(collective *c, int own_buffer, uint32_t step, int32_t after);
void plan_broadcast(collective *c);
void plan_all_gather(collective *c);
void plan_gather(collective *c);
void plan_scatter(collective *c);
void plan_all_to_all(collective *c);
void plan_point_to_point(collective *c);
void plan_barrier(collective *c);
/* plan_halving.c */
void plan_halving(collective *c);

#endif
