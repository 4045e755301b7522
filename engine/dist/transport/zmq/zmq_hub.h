/* zmq_hub.h: the hub behind the transports of a process: connections, boxes of messages for each group, credit.
 *
 * One mutex guards all that is written here but the sockets. The sockets belong to whoever pumps: a thread that waits in
 * hub_attend takes that role when nobody has it, sends what all groups have posted, and sorts what comes into their boxes; the
 * other threads wait for their box. Nobody pumps while no call runs: then messages stay within ZeroMQ.
 *
 * Credit. For each group, channel and peer a sender has at most HUB_WINDOW segments under way that the receiver's call has not
 * taken; headers and WIRE_CREDIT tell how many were taken in all. So boxes and queues are bounded, and a group whose call has
 * not begun holds up no other. Of the other messages, which are small, a peer may have HUB_MAX_NOTES waiting in each of them.
 * Messages may come for HUB_MAX_EARLY groups that this rank has not made: whoever sends more is broken. A group's number is
 * used once in an epoch.
 *
 * A segment that cannot be sent, as its connection was lost, cuts its edge: no call that sent over it can succeed.
 */
#ifndef ARGAND_DIST_TRANSPORT_ZMQ_ZMQ_HUB_H
#define ARGAND_DIST_TRANSPORT_ZMQ_ZMQ_HUB_H

#include <pthread.h>

#include "dist/transport/wire.h"
#include "dist/transport/zmq/zmq_transport.h"

#define HUB_SEGMENT_BYTES ((size_t)512 << 10)
/* Segments under way on an edge. 64 MiB of all_reduce over loopback tcp, two ranks on two processors, p50: 4 of 512 KiB 38 ms, 8
 * or 16 of them 43 to 60, as they leave the caches; 4 of 256 KiB 46, of 1 MiB 41. */
#define HUB_WINDOW       4
#define HUB_QUEUE        256 /* high water mark: the windows of several groups */
#define HUB_MAX_STRIPES  8
#define HUB_MAX_NOTES    1024
#define HUB_MAX_EARLY    64
#define HUB_IDENTITY_LEN 32
#define HUB_TICK_MS      10 /* how long a wait is at most: monitors, the cancel and deadlines are looked at between two */

/* The calls of the group, and those of two of its ranks, have numbers and windows of their own. */
typedef enum hub_channel { HUB_CALLS, HUB_PAIRS, HUB_NUM_CHANNELS } hub_channel;

/* A message that came, accepted by wire_unpack, its payload checked. */
typedef struct hub_arrival {
    struct hub_arrival *next;
    int from; /* rank of the world, by the connection's identity */
    wire_header header;
    socket_message message;
} hub_arrival;

typedef struct hub_queue {
    hub_arrival *first, *last;
} hub_queue;

/* Counts of segments: of those to the peer, sent and told to be taken; of those from it, received, taken, and told to it. */
typedef struct hub_edge {
    uint64_t sent, sent_taken, received, taken, told;
    uint64_t refused; /* HUB_PAIRS: segments of the peer's messages up to this number are dropped when they come */
    int num_notes;    /* from the peer and kept: messages that no credit bounds */
    bool is_cut;
} hub_edge;

typedef struct hub_box {
    struct hub_box *next;
    uint32_t group;
    int rank;                /* of this process in the group, once it is open */
    bool is_open, is_closed; /* a transport has it; has had it: what comes now is dropped; neither: it is early */
    hub_queue arrived;
    int64_t num_unsent; /* letters that ZeroMQ has not taken yet */
    hub_edge edges[];   /* [HUB_NUM_CHANNELS, size of the world] */
} hub_box;

/* hub_letter is a message on its way out. Long payloads lie in a block of the pool, short ones behind the letter. */
typedef struct hub_letter {
    struct hub_letter *next;
    hub_box *box;
    hub_edge *edge; /* of a segment; NULL of the rest */
    struct hub_block *block;
    size_t payload_bytes;
    unsigned char header[WIRE_HEADER_BYTES];
    unsigned char payload[];
} hub_letter;

typedef struct hub_link {
    void *socket;
    bool is_wanted, is_lost;
    hub_letter *first, *last;
} hub_link;

struct hub_pool; /* zmq_pool.c */

struct zmq_hub {
    socket_context *sockets;
    cancel *cancel;
    wire_limits limits;
    int rank, size, num_stripes;
    bool is_encrypted;
    size_t segment_bytes; /* of what is sent: HUB_SEGMENT_BYTES, or less in tests */
    char endpoint[160];
    void *router;
    int wake_fd;
    pthread_mutex_t mutex;
    pthread_cond_t has_changed; /* boxes, or nobody pumps any more */
    bool is_pumping;
    int num_waiting; /* threads */
    hub_box *boxes;
    int num_early;          /* boxes of groups that this rank has not made */
    char (*endpoints)[128]; /* [size] */
    hub_link *links;        /* [size, num_stripes] */
    int64_t *lost_ns;       /* [size] when a connection to the rank was lost, 0 = it was not */
    char (*lost_details)[96];
    int *next_stripe;   /* [size] */
    int64_t num_unsent; /* letters, of all boxes */
    int64_t num_rejected;
    struct hub_pool *pool;
    /* The first failure that is nobody's call's own: a damaged message, memory that ran out. */
    ag_status failure;
    int failure_rank;
    char failure_text[160];
    /* Whoever pumps. */
    hub_arrival *spare;
    int64_t next_look_ns;         /* at the monitors */
    void **poll_sockets;          /* [1 + size * num_stripes] */
    bool *poll_room, *poll_ready; /* the latter one longer */
};

/* zmq_pool.c: blocks of HUB_SEGMENT_BYTES that ZeroMQ's thread gives back. */
typedef struct hub_block {
    struct hub_block *next;
    struct hub_pool *pool;
    unsigned char bytes[];
} hub_block;

struct hub_pool *hub_pool_new(void);
hub_block *hub_pool_take(struct hub_pool *p);   /* NULL when memory is out */
void hub_pool_give(void *payload, void *block); /* any thread; a release function of socket_send */
/* hub_pool_free: blocks that are out keep the pool alive until they come back. NULL is accepted. */
void hub_pool_free(struct hub_pool *p);

/* zmq_pump.c: with the sockets. hub_pump waits at most timeout_ms when nothing was to be done. */
ag_status hub_pump(zmq_hub *hub, int timeout_ms);
void hub_identity(const zmq_hub *hub, int rank, int stripe, char out[HUB_IDENTITY_LEN + 1]);

/* zmq_hub.c */
ag_status hub_box_open(zmq_hub *hub, uint32_t group, int rank, hub_box **out);
void hub_box_close(zmq_hub *hub, hub_box *box);
/* hub_box_find returns the group's box and makes an early one when there is none; NULL when memory is out, or num_early is at
 * its limit. With the mutex. */
hub_box *hub_box_find(zmq_hub *hub, uint32_t group);
static inline hub_edge *hub_edge_of(const zmq_hub *hub, hub_box *box, hub_channel channel, int peer) {
    return &box->edges[(size_t)channel * (size_t)hub->size + (size_t)peer];
}
/* Peers are ranks of the world. hub_want has the peer dialled; hub_room says how many segments may be posted now. */
void hub_want(zmq_hub *hub, int peer);
int hub_room(zmq_hub *hub, hub_box *box, hub_channel channel, int peer);
/* hub_post puts a copy of the message among those to be sent; job, epoch, CRC, payload_bytes and credit are filled in here. */
ag_status hub_post(zmq_hub *hub, hub_box *box, hub_channel channel, int peer, wire_header *header, const void *payload,
                   size_t payload_bytes);
/* hub_take moves what has come to the end of the queue. hub_settle frees an arrival and, of a segment, tells its sender in
 * time. */
void hub_take(zmq_hub *hub, hub_box *box, hub_queue *queue);
ag_status hub_settle(zmq_hub *hub, hub_box *box, hub_arrival *arrival);
/* hub_refuse has the segments of the peer's messages up to this number settled as they come, whichever group's call pumps. */
void hub_refuse(zmq_hub *hub, hub_box *box, int peer, uint64_t sequence);
void hub_arrival_free(hub_arrival *arrival);
/* hub_attend pumps, or waits for another thread that does, at most timeout_ms. */
ag_status hub_attend(zmq_hub *hub, hub_box *box, int timeout_ms);
void hub_wake(zmq_hub *hub);
/* hub_lost_ns returns when the connection to the peer was lost, 0 = it was not; detail ([len]) says how. */
int64_t hub_lost_ns(zmq_hub *hub, int peer, char *detail, size_t len);
bool hub_has_unsent(zmq_hub *hub, hub_box *box, int peer); /* peer -1: to anybody */
bool hub_is_cut(zmq_hub *hub, hub_box *box, hub_channel channel, int peer);
/* hub_failure sets the record when the hub has failed, and returns its status. */
ag_status hub_failure(zmq_hub *hub, const char *op, uint64_t sequence);
void hub_break(zmq_hub *hub, ag_status code, int rank, const char *text); /* with the mutex */
/* hub_reject frees an arrival that is none of the group's and counts it. */
void hub_reject(zmq_hub *hub, hub_box *box, hub_arrival *arrival);
static inline hub_channel hub_channel_of(const wire_header *h) {
    return h->print.kind == COLLECTIVE_SEND ? HUB_PAIRS : HUB_CALLS;
}

#endif
