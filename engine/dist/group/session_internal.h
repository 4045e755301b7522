/* session_internal.h: what the files of a session share: its state, its service thread's side, and the coordinator.
 *
 * Who may touch what. The service thread owns the sockets, the watch, the coordinator and `link`. Callers reach it through the
 * fields under `mutex` and the eventfd; it answers there and signals `changed`. Members, rank and size are written once, before
 * `state` becomes LIVE, and only read afterwards.
 *
 * Time. `now_ns` is the clock. `listened_ns` goes on only while the service thread runs: a process that was stopped or starved
 * has listened to nobody meanwhile, so silence is measured by it and nobody is accused of it.
 */
#ifndef ARGAND_DIST_GROUP_SESSION_INTERNAL_H
#define ARGAND_DIST_GROUP_SESSION_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "dist/group/session_message.h"
#include "dist/group/session_watch.h"
#include "platform/lock.h"

#define MILLISECOND_NS   ((int64_t)1000000)
#define SECOND_NS        ((int64_t)1000000000)
#define REPEAT_NS        (100 * MILLISECOND_NS) /* what is not answered is said again */
#define NOTICE_NS        SECOND_NS              /* and for how long, when it is no question */
#define FAREWELL_NS      (300 * MILLISECOND_NS) /* a stopped thread waits no longer for the others to have heard */
#define JOIN_HELLO_NS    (500 * MILLISECOND_NS) /* how often a rank says HELLO that the coordinator knows already */
#define JOIN_SILENCE_NS  (4 * JOIN_HELLO_NS)    /* and how long either may be silent at least */
#define REGROUP_HELLO_NS (100 * MILLISECOND_NS)
#define JOIN_WORDS_NS    (200 * MILLISECOND_NS) /* of who has ended: its goodbye or its successor's HELLO may be underway */
#define LOST_NS          (2 * SECOND_NS)        /* a broken connection that does not come back means a loss */
#define ADDRESS_BYTES    256

typedef enum session_state { SESSION_JOINING, SESSION_LIVE, SESSION_FAILED } session_state;

/* How to join: a fixed world, or those that are left of an earlier one. */
typedef struct session_join {
    bool is_regroup;
    int coordinator;                      /* which rank it is, in the numbering of the setup */
    const bool *is_given_up;              /* [size] regroup: who is not waited for; NULL else */
    const _Atomic unsigned char *is_gone; /* [size] regroup: likewise, and it may change; NULL else */
    int min_size;
    double grace_s;       /* regroup: without another joiner the table is closed */
    double answer_s;      /* how long the coordinator may be silent at first */
    void *listener;       /* a bound ROUTER to use, or NULL; taken over in any case */
    const char *endpoint; /* its address */
} session_join;

/* Bytes that go to many: counted, ZeroMQ's threads let go of them one after the other. */
typedef struct shared_bytes {
    atomic_int refs;
    size_t len;
    unsigned char bytes[];
} shared_bytes;

/* One rank as the coordinator sees it. */
typedef struct coordinator_member {
    message_member who;
    uint64_t nonce;
    socket_route route;
    bool is_joined;
    bool is_gone; /* its process has ended or it left without goodbye */
    int64_t admitted_listened_ns, heard_listened_ns, heard_ns;
    int64_t next_probe_ns;
    bool has_no_route; /* its connection is closed, since it was last heard of */
    message_progress progress;
    int64_t changed_ns; /* of progress, in our time */
    uint64_t exchange;  /* the last one it gave its part to */
    int notice;         /* the kind that it has to acknowledge, 0 = none: ABORT, LEFT, REFUSED */
    int64_t notice_end_ns, notice_next_ns;
} coordinator_member;

typedef struct coordinator {
    struct session *session;
    void *router;
    char endpoint[ADDRESS_BYTES];
    coordinator_member *members; /* [capacity], in the numbering of joining until the table is closed */
    bool *has_left;              /* [capacity] */
    int capacity, size, num_joined;
    int own; /* our own rank in that numbering */
    session_join join;
    bool *is_given_up;   /* [capacity] */
    int64_t deadline_ns; /* of joining: the earliest of all who joined */
    double timeout_s;    /* of the one whose deadline it is */
    int64_t last_join_ns, next_look_ns;
    bool is_formed, has_failed, has_aborted;
    message_report report; /* of the failure or the abort */
    char refusal[160];     /* the last refusal of somebody, for people */
    unsigned char *buffer; /* [buffer_bytes] for what is packed */
    size_t buffer_bytes;
    /* The exchange that is collected, and the answer of the one before, which somebody may have missed. */
    uint64_t answered;
    size_t exchange_bytes;
    int num_given;
    shared_bytes *parts, *answer; /* NULL = none yet */
    shared_bytes *table;          /* the closed one, packed; NULL = not yet */
    int64_t lagging_ns;           /* since when somebody is in a call that a leaver never entered, 0 = nobody */
    int64_t end_ns;               /* farewell, 0 = not yet */
} coordinator;

/* The service thread's own notes on its connection to the coordinator. */
typedef struct session_link {
    int64_t now_ns, listened_ns, wake_ns;
    int64_t deadline_ns, answer_deadline_ns; /* of joining */
    int64_t next_hello_ns, next_beat_ns, next_exchange_ns, next_ask_ns, next_leave_ns, next_abort_ns;
    int64_t heard_listened_ns;
    int64_t lost_listened_ns; /* when the connection broke that has not come back; -1 = there is one */
    int64_t *gone_ns;         /* [size] when a rank's process was seen to have ended; 0 = it lives */
    bool is_acknowledged;     /* the coordinator knows us */
    bool is_aborted;          /* the coordinator's ABORT has come */
    bool is_leaving;
    bool has_report; /* what we tell the coordinator until its ABORT has come */
    message_report report;
    int64_t lagging_ns;
    uint64_t beat, coordinator_entered;
    bool *left;        /* [size] room to unpack */
    char refusal[150]; /* by the socket, while joining, for people */
} session_link;

/* What the next beat tells; it is put into words then. */
typedef struct progress_note {
    uint64_t entered, finished;
    call_print print;
    bool has_print;
    char text[41];   /* the user's */
    int64_t time_ns; /* when it was last changed; 0 = never */
} progress_note;

struct session {
    socket_context *sockets;
    cancel *cancel;
    void (*on_cancel)(void *context);
    void *context;
    atomic_bool is_told; /* on_cancel was called */
    pid_t process;       /* that made it: a forked child has no service thread */
    uint64_t job, nonce;
    uint32_t epoch;
    char job_name[64];
    char address[ADDRESS_BYTES]; /* the coordinator's, as dialled */
    double init_timeout_s;
    int64_t heartbeat_ns, expiry_ns;
    session_join join;
    int joining_rank, joining_size; /* as in the setup */
    message_member own;
    void *standby; /* a bound ROUTER at our control address, for a later epoch; nobody's until then */

    int rank, size;                  /* of this epoch; written before LIVE */
    int coordinator_rank;            /* 0, or after a regroup the lowest of those whom nobody blamed */
    message_member *members;         /* [size] */
    _Atomic unsigned char *has_left; /* [joining_size], relaxed: a flag on its own */
    _Atomic unsigned char *is_gone;  /* likewise: the process has ended */
    _Atomic int64_t num_rejected;

    spin_lock note_lock;
    progress_note note;

    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool has_mutex, has_condition, has_thread;
    session_state state;
    message_report failure;
    bool wants_abort, must_stop, is_done_leaving;
    message_report abort; /* of wants_abort */
    struct {
        uint64_t sequence;
        bool is_pending;
        size_t size_bytes;
        void *all;
        unsigned char own[MESSAGE_MAX_EXCHANGE];
        message_report missing; /* what the coordinator said last; code AG_OK = nothing */
    } exchange;
    struct {
        uint64_t sequence;
        bool is_pending;
        session_progress *table; /* of who asks, NULL = nobody */
    } ask;
    struct {
        bool is_wanted, is_closing, is_acknowledged, has_ended, all_left;
        bool is_unanswered; /* the coordinator is gone: who else has left is not known */
    } leave;

    pthread_t thread;
    int wake_fd;
    void *dealer;
    watch watch;
    coordinator *coordinator; /* in one rank */
    session_link link;
};

/* session.c */
ag_status session_start(socket_context *sockets, const session_setup *setup, const session_join *join, cancel *cancel,
                        session **out);
/* session_await waits until the session has joined; `give_up` (may be NULL) is asked every 100 ms. The error record is set. */
ag_status session_await(session *s, bool (*give_up)(void *context), void *context, bool *has_given_up);
/* session_raise raises the cancel and calls on_cancel, once. Any thread. */
void session_raise(session *s, const message_report *report);
message_report session_report(ag_status code, int culprit, const char *hint, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* session_list_ranks writes "rank 2" or "ranks 2, 5 and 7", a few of them at most. chosen: [size]. */
const char *session_list_ranks(const bool *chosen, int size, char *text, size_t len);
/* Any number of seconds >= 0, INFINITY too; sums of a few do not overflow. */
static inline int64_t session_seconds_ns(double seconds) {
    return seconds < 1e9 ? (int64_t)(seconds * 1e9) : SECOND_NS * 1000000000;
}
static inline void session_wake_by(session *s, int64_t time_ns) {
    if (time_ns < s->link.wake_ns) s->link.wake_ns = time_ns;
}

/* session_service.c */
void *session_serve(void *session);
void session_progress_of_note(session *s, message_progress *out);
void session_fail(session *s, const message_report *report); /* joining has failed */
/* session_watch watches the process of a rank, when it is one of this host, and nobody else of that number. */
void session_watch(session *s, int rank, const message_member *who);

/* session_coordinator.c */
ag_status coordinator_new(session *s, const session_setup *setup, const session_join *join, coordinator **out);
void coordinator_free(coordinator *c);
void coordinator_receive(coordinator *c);
void coordinator_tick(coordinator *c);
void coordinator_abort(coordinator *c, const message_report *report); /* the first one counts */
bool coordinator_may_end(coordinator *c);

/* session_coordinator_join.c */
void coordinator_take_hello(coordinator *c, const socket_route *route, const message_header *header, const void *payload);
void coordinator_tick_joining(coordinator *c);
void coordinator_fail(coordinator *c, const message_report *report);

/* session_coordinator.c, for the joining part. AG_E_PEER when the connection is closed; what is lost is repeated anyway. */
ag_status coordinator_send(coordinator *c, const socket_route *route, message_header header, const void *payload, size_t len);
ag_status coordinator_send_to(coordinator *c, int rank, message_kind kind, uint32_t flags, uint64_t sequence,
                              const void *payload, size_t len);
shared_bytes *shared_bytes_new(size_t len); /* NULL when memory is out */
void shared_bytes_release(shared_bytes *b); /* NULL is accepted; any thread */
void coordinator_send_shared(coordinator *c, int rank, message_kind kind, uint64_t sequence, shared_bytes *b);
/* coordinator_notify sends a message that has to be acknowledged, and again until it is. */
void coordinator_notify(coordinator *c, int rank, message_kind kind);
/* coordinator_progress writes what is known of all ranks: table [size]. */
void coordinator_progress(coordinator *c, session_progress *table);

#endif
