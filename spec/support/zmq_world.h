/* zmq_world.h: a world of ranks in one process for zmq_transport_test: a hub and threads for each, and groups over the hubs.
 *
 * It does what a session and a group do around a transport: tells endpoints, numbers calls, and when one rank's call ends the
 * group, raises the cancels of all with that rank's reason.
 */
#ifndef ARGAND_SPEC_ZMQ_WORLD_H
#define ARGAND_SPEC_ZMQ_WORLD_H

#include <pthread.h>

#include "dist/transport/zmq/zmq_hub.h"
#include "support/collective_reference.h"

#define MAX_GROUPS 2
#define TEST_JOB   0x1122334455667788u
#define TEST_EPOCH 3u

typedef struct world_options {
    const char *transport; /* "tcp", "ipc" */
    int size, num_groups, num_stripes;
    const socket_keys *keys; /* NULL = none */
    size_t segment_bytes;
    char (*detours)[MAX_RANKS][128]; /* [from][to]: dialled instead of the endpoint, unless "" */
} world_options;

typedef struct world {
    world_options options;
    socket_context *contexts[MAX_RANKS];
    zmq_hub *hubs[MAX_RANKS];
    cancel cancels[MAX_RANKS];
    transport *groups[MAX_GROUPS][MAX_RANKS];
    int32_t world_ranks[MAX_RANKS];
    uint64_t sequence[MAX_GROUPS], pair_sequence[MAX_GROUPS][MAX_RANKS][MAX_RANKS];
    pthread_mutex_t lock;
} world;

/* world_open makes hubs and groups; world_connect, between the two steps of it, tells everybody where the others listen. A
 * failure ends the program. */
void world_listen(world *w, const world_options *options);
void world_connect(world *w);
void world_open(world *w, const world_options *options);
void world_close(world *w);
/* world_abort does what a session does when a group has ended. The first reason counts. */
void world_abort(world *w, ag_status code, int culprit, const char *reason);

/* step is one call of one rank in a script. */
typedef struct step {
    transport_call call;
    bool is_skipped;
    int delay_us; /* before it */
} step;

/* lane is a thread: the calls that one rank makes in one group, until the first failure. */
typedef struct lane {
    world *w;
    int rank, group;
    step *steps;
    int num_steps;
    int num_done;
    ag_status status;
    ag_error error; /* as the user would see it: the reason of the group's end */
    ag_error own;   /* as the transport gave it */
    bool is_over;
    double seconds;
} lane;

/* step_of makes the call of `rank` in a job; dims are [count]. Numbers come from world_number, once for all ranks. */
step step_of(const collective_call *call, uint64_t sequence, double timeout_s);
uint64_t world_number(world *w, int group, const job_options *o);
/* run_lanes runs all lanes at once, each on a thread, and waits for them. */
void run_lanes(lane *lanes, int num_lanes);

#endif
