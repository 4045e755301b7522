/* shm.h: the state of a member of a group over an arena, shared by the files that implement it. */
#ifndef ARGAND_DIST_TRANSPORT_SHM_SHM_H
#define ARGAND_DIST_TRANSPORT_SHM_SHM_H

#include "dist/transport/shm/round.h"

typedef struct shm {
    transport base; /* first: a transport * is a shm * */
    arena *arena;
    waiter waiter;
    uint64_t round;                   /* the next one */
    bool owes_wait;                   /* a refused call was left without waiting for round - 1 */
    uint8_t *is_absent;               /* [size] in the present call */
    const char **sources;             /* [size] room for a list of runs to reduce */
    char **results;                   /* [size] room for where they go */
    uint64_t *events_out, *events_in; /* [size] done with each rank as sender, as receiver */
    transport_stats stats;
    char address_prefix[64], token[ARENA_TOKEN_BYTES];
    int32_t num_blocks; /* made so far, on all ranks alike */
} shm;

/* shm_call is a call under way. */
typedef struct shm_call {
    shm *s;
    const transport_call *request;
    int64_t start_ns;
    bool is_agreed; /* prints were compared */
    bool is_over;   /* whether a failure ends the group */
} shm_call;

/* shm_settle makes up for the wait that a refused call left out; before anything is written for the next one. */
ag_status shm_settle(shm_call *c);
/* shm_note fills a note with the call's print, form and refusal. */
void shm_note(call_note *note, const transport_call *request);
/* shm_meet arrives at round s->round and waits for all. The first of a call compares prints. */
ag_status shm_meet(shm_call *c);
/* shm_is_crowded tells, once all have arrived, whether the rank shares processors with more ranks than these are, or all ranks
 * have less processors' time (quota, 0 = no limit). Bound to one processor each, as launchers do, ranks crowd nobody; who takes
 * them for crowded yields, and gives a neighbour whole time slices. */
bool shm_is_crowded(const arena_header *h, int rank, int quota);
/* shm_wait_error sets the record for a wait for rank `peer` of the group that ended early; peer -1: for all at round - 1. */
ag_status shm_wait_error(const shm_call *c, wait_outcome outcome, int peer);
/* shm_refusal_error says that a rank of the group refused the call that its note tells of. */
ag_status shm_refusal_error(const shm *s, int rank, const call_note *note);

ag_status shm_collective(shm_call *c); /* shm_collective.c, shm_reduction.c: all kinds but the next */
ag_status shm_reduction(shm_call *c);
ag_status shm_point_to_point(shm_call *c); /* shm_pair.c */
ag_status shm_block_reduce(shm_call *c);   /* shm_block.c */
ag_status shm_block_new(transport *t, size_t part_bytes, block_form form, int64_t deadline_ns, shared_block *out);
void shm_block_free(transport *t, shared_block *block);

/* ranges_overlap says whether two runs share a byte. */
static inline bool ranges_overlap(const void *a, int64_t a_bytes, const void *b, int64_t b_bytes) {
    uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
    return a_bytes > 0 && b_bytes > 0 && x < y + (uintptr_t)b_bytes && y < x + (uintptr_t)a_bytes;
}

#endif
