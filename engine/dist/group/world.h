/* world.h: what all groups of one rank share, and what a group holds. Private to dist/group. */
#ifndef ARGAND_DIST_GROUP_WORLD_H
#define ARGAND_DIST_GROUP_WORLD_H

#include <pthread.h>
#include <sys/types.h>

#include "dist/group/group.h"
#include "dist/group/session.h"
#include "dist/transport/shm/arena.h"
#include "dist/transport/zmq/zmq_transport.h"

#define WORLD_TOKEN_BYTES 32

/* Memory that the members of a group, threads of one world, may take now. */
typedef struct arena_offer {
    const char *address; /* the group's name for it */
    arena *arena;        /* the maker's */
    struct arena_offer *next;
} arena_offer;

/* What the threads of a world of threads share: one cancel for all of them, and the memory of groups in the making. */
typedef struct shared_cancel {
    atomic_int refs;
    cancel cancel;
    spin_lock lock; /* guards what follows */
    arena_offer *offers;
} shared_cancel;

typedef struct world {
    atomic_int refs; /* one for each group */
    shared_cancel *shared;
    cancel *cancel;      /* of `shared` */
    atomic_bool is_told; /* this rank ended the world, or a call has returned why it ended: its close need not */
    int rank, size;
    uint32_t epoch;
    bool is_threads;
    bool is_one_host; /* all ranks can share memory, as far as is known */
    char job[64];
    char token[WORLD_TOKEN_BYTES];
    char transport_choice[8]; /* what was asked for: "auto" … */
    char address[64], key_file[256];
    ag_group_options options; /* numbers only; its strings are those above */
    pid_t process;            /* that made it: a forked child has neither its threads nor a share in its memory */
    socket_context *sockets;
    session *session;
    zmq_hub *hub;
    pthread_mutex_t mutex; /* guards groups and their blocks */
    struct ag_group *groups;
} world;

/* A block that tensors of the user lie in. */
typedef struct known_block {
    const shared_block *block;
    struct known_block *next;
} known_block;

struct ag_group {
    atomic_int refs;
    world *world;
    transport *transport;     /* NULL when the group has one member */
    const transport_ops *ops; /* of the transport, NULL without one */
    int rank, size;
    int32_t *world_ranks; /* [size] */
    uint32_t id;
    bool is_closed;
    uint64_t sequence;                 /* calls begun */
    uint64_t *num_sent, *num_received; /* [size] of send and receive with each rank */
    struct ag_group *next;             /* of the world's groups */
    known_block *blocks;               /* guarded by the world's mutex */

    pthread_mutex_t mutex; /* guards what follows, the numbers above, and that one thread at a time runs */
    pthread_cond_t changed;
    struct group_work *first, *last; /* the queue */
    bool is_running, is_stopping, has_worker;
    transport_stats stats; /* as of the last call */
    pthread_t worker;
};

void world_init(world *w);
/* deadline_after: any number of seconds > 0, INFINITY too. */
int64_t deadline_after(double seconds);
/* world_check_process: AG_E_STATE in a forked child. */
ag_status world_check_process(const world *w);
void world_release(world *w);
/* world_end raises the cancel with this thread's error record and tells all ranks; the record stays as it was. */
void world_end(world *w);
/* world_add and world_remove keep the list of groups whose waits world_wake ends. */
void world_add(world *w, ag_group *g);
void world_remove(world *w, ag_group *g);
void world_wake(void *w);

/* group_make makes a group without a transport; world_ranks are copied. */
ag_status group_make(world *w, const int32_t *world_ranks, int size, int rank, uint32_t id, ag_group **out);
/* group_give_up is world_end for a call that the other members wait for; nothing when the world has ended, or there are none. */
void group_give_up(ag_group *g);
/* group_stop ends the worker after what is queued; the group makes no more calls. */
void group_stop(ag_group *g);

/* transport_pick gives g its transport: shared memory when all members can, else ZeroMQ, or both (hierarchy.h). exchange is how
 * the members (and perhaps others, who call it as often) tell each other 64 bytes: own [64], all [num ranks of the exchange, 64].
 * positions: [g->size] of the members in `all`. */
typedef ag_status (*exchange_fn)(void *context, const void *own, void *all);
#define EXCHANGE_BYTES 64
ag_status transport_pick(ag_group *g, exchange_fn exchange, void *context, int exchange_size, const int *positions,
                         int64_t deadline_ns);
/* transport_pick_observe is for a rank that is no member and takes part in the exchanges only. */
ag_status transport_pick_observe(exchange_fn exchange, void *context, int exchange_size);

#endif
