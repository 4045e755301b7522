/* network.h: the simulator's events in the order of virtual time, and its random numbers. */
#ifndef ARGAND_DIST_SIMULATOR_NETWORK_H
#define ARGAND_DIST_SIMULATOR_NETWORK_H

#include "dist/algorithm/collective.h"

typedef enum event_kind {
    EVENT_START,   /* a rank begins */
    EVENT_ARRIVAL, /* a segment has come */
    EVENT_SENT,    /* the bytes of a segment have left the sender */
    EVENT_CREDIT,  /* the receiver has taken a segment: one more may be underway to it */
    EVENT_BROKEN,  /* the edge to `culprit` is broken, or its heartbeats are overdue */
    EVENT_ABORT    /* another rank says that `culprit` is lost */
} event_kind;

/* event, owned by the network until it is taken out, then by the taker. */
typedef struct event {
    double time_s;
    uint64_t number; /* of equal times, the lower number comes first */
    event_kind kind;
    int rank; /* whom it happens to */
    int culprit;
    segment arrived;    /* peer: the sender; of a credit, the receiver */
    bool says_sent;     /* the arrival also ends the sending: the bytes were read at the last moment */
    void *copy;         /* bytes of the segment, NULL = they still lie at the sender */
    struct event *next; /* for lists of the owner */
} event;

typedef struct network {
    event **heap; /* the earliest first */
    int64_t num_events, capacity;
    uint64_t num_made;
    uint64_t seed, num_draws;
} network;

void network_init(network *n, uint64_t seed);
void network_deinit(network *n);
/* network_add keeps a copy of the event and gives it a number; AG_E_MEMORY. */
ag_status network_add(network *n, const event *e);
/* network_take returns the next event, NULL when there is none; the caller ends it with event_free. */
event *network_take(network *n);
void event_free(event *e);
/* network_draw returns a random number in [0, 1). */
double network_draw(network *n);

#endif
