/* round.h: waiting for other ranks at their gates. */
#ifndef ARGAND_DIST_TRANSPORT_SHM_ROUND_H
#define ARGAND_DIST_TRANSPORT_SHM_ROUND_H

#include "dist/transport/shm/layout.h"

typedef enum wait_outcome {
    WAIT_DONE,
    WAIT_ABORTED,   /* the word in the arena */
    WAIT_CANCELLED, /* the rank's own cancel */
    WAIT_LEFT,      /* who is waited for has left and will not come */
    WAIT_TIMEOUT,
    WAIT_INTERRUPTED
} wait_outcome;

/* waiter is one rank's way to wait. */
typedef struct waiter {
    arena_header *header;
    cancel *cancel;
    bool ignores_interrupt; /* of the call that runs: transport_call.is_background */
    bool is_large;          /* of the call that runs: its steps take longer than a sleep and its wake */
    bool is_crowded;        /* more ranks than processors: who spins may keep the one waited for from running */
} waiter;

/* gate_raise says that `count` steps are done; all that was written before is seen by who has waited for it. */
void gate_raise(gate *g, uint64_t count);
/* gate_wait waits until the gate of rank `peer` has come to `count`. */
wait_outcome gate_wait(waiter *w, gate *g, int peer, uint64_t count, int64_t deadline_ns);
/* gate_ring wakes all who sleep at it; they look at everything again. */
void gate_ring(gate *g);

#endif
