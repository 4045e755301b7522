/* session.h: a rank's membership in a job, for one epoch: who takes part, who is alive, and the word that something is wrong.
 *
 * Star. The coordinator is a ROUTER in the service thread of rank 0 (of the epoch); every rank, rank 0 too, has a DEALER to it,
 * owned by its own service thread. Only small control messages go here; data never does.
 *
 * Joining: each rank says HELLO (job, epoch, rank, size, pid, host, host token, endpoints) until it is answered; when all have,
 * the coordinator sends the member table. A second HELLO for a rank from another process is refused; so is another job, size or
 * version, each with its reason. When time is over the error names the ranks that have not come. When a rank that has come is
 * lost before all have, that is the error, at once: on this host by its pidfd, else by its connection. So it is when the
 * coordinator is lost that has answered.
 *
 * Living: every heartbeat_s a rank sends BEAT with its progress (last call entered and finished, its text); the coordinator
 * answers. Without a beat for expiry_s the coordinator declares the rank unresponsive; without an answer for that time a rank
 * declares the coordinator so. Ranks of this host are watched through pidfd: death is known at once. The thread is native, so a
 * long Lua loop or kernel beats on.
 *
 * Ending: ABORT(code, culprit, reason) goes to the coordinator, which sends it to all, once; every service thread raises its
 * cancel and calls on_cancel. LEAVE says goodbye: a rank that left is no culprit unless others need it.
 */
#ifndef ARGAND_DIST_GROUP_SESSION_H
#define ARGAND_DIST_GROUP_SESSION_H

#include "dist/transport/call_print.h"
#include "dist/transport/cancel.h"
#include "dist/transport/zmq/socket.h"

typedef struct session session;

typedef struct session_setup {
    int rank, size;
    const char *coordinator; /* where rank 0 listens and the others dial */
    int coordinator_fd;      /* > 0: a listening TCP socket that rank 0 takes over; else it binds */
    const char *job;         /* up to 63 bytes, the same on all ranks, different for each job */
    uint32_t epoch;
    const char *data_endpoint; /* where this rank's hub listens; "" = none */
    /* Where this rank would listen as coordinator of a later epoch; "" = none. One that ends in ":*" is bound at once, and the
     * others are told the real one. */
    const char *control_address;
    double init_timeout_s, heartbeat_s, expiry_s;
    /* Called once, after the cancel was raised, by the service thread or by who calls session_abort; must not block. */
    void (*on_cancel)(void *context);
    void *context;
} session_setup;

typedef struct session_member {
    int64_t pid;
    char host[64];                                 /* name, for people */
    char token[80];                                /* the same for ranks that can share memory: boot id and namespaces */
    char data_endpoint[128], control_address[128]; /* longer ones are AG_E_VALUE */
    bool is_same_host;                             /* token equals ours */
} session_member;

typedef struct session_progress {
    uint64_t entered, finished; /* sequence numbers of the world group's calls (0 = none yet) */
    double since_s;             /* how long ago the last change was */
    double beat_age_s;          /* how long ago the rank was last heard of */
    bool has_left;
    char text[96]; /* the last call, "all_reduce(sum) of f32[10]", or what the script set with step */
} session_progress;

/* session_open joins and starts the service thread. Blocks up to init_timeout_s; the first rank whose time is over ends it for
 * all that have joined. Errors: AG_E_TIMEOUT naming the missing ranks
 * (culprits), AG_E_NETWORK, AG_E_STATE (refused: the reason), AG_E_INTERRUPTED. `cancel` is borrowed until session_free. */
ag_status session_open(socket_context *sockets, const session_setup *setup, cancel *cancel, session **out);
const session_member *session_member_at(const session *s, int rank);

/* session_exchange: all ranks call it in the same order, each with `size_bytes` (<= 4096) of its own; all: [size, size_bytes].
 * It is for set-up, through the coordinator. */
ag_status session_exchange(session *s, const void *own, size_t size_bytes, void *all, int64_t deadline_ns);

/* session_num_rejected counts messages that were no message of this job, epoch or process. session_job_number is what stands
 * for the job's name in headers. */
int64_t session_num_rejected(const session *s);
uint64_t session_job_number(const char *job);

/* session_note stores what the next beat tells: the number of the last call that this rank has entered, what it was (NULL = the one
 * before), and of the last one that it has finished. session_note_text: what the user says of it. Cheap, any thread. */
void session_note(session *s, uint64_t entered, uint64_t finished, const call_print *print);
void session_note_text(session *s, const char *text);
/* session_table asks the coordinator for every rank's progress: table [size]. Waits at most wait_s; AG_E_TIMEOUT without an
 * answer (then table holds what this rank knows: itself and who has left; beat_age_s is -1 for the others). */
ag_status session_table(session *s, double wait_s, session_progress *table);
/* session_abort raises the own cancel, calls on_cancel, and tells the coordinator what the cancel says; does not wait. When the
 * cancel was raised before, that is told instead: to name several culprits, raise it, add them, then call this. */
void session_abort(session *s, ag_status code, int culprit, const char *reason);
bool session_has_left(const session *s, int rank);

/* session_leave says goodbye and waits until all have left or wait_s is over; true when all have. After it, deaths are no
 * errors. */
bool session_leave(session *s, double wait_s);
/* session_missing, after a session_leave that was false: which ranks have not closed; of a coordinator that does not answer, that
 * one only. missing: [size]. text ([len]) gets "rank 1", "" when none is known. */
int session_missing(const session *s, bool *missing, char *text, size_t len);
/* session_free stops the thread. Without session_leave before it, the others learn that this rank left without closing. */
void session_free(session *s);

/* session_regroup_open joins the next epoch with those of the old members that still live: `old` has ended (its cancel is
 * raised) and is not freed by this. The lowest rank that is not among the culprits listens at its control_address; others dial
 * the candidates in turn, and pass over one that is dead or silent for grace_s. A culprit that lives may take part, but does
 * not listen (so the coordinator need not be the new rank 0). After grace_s without another joiner the coordinator closes the
 * table: fewer than min_size ranks is AG_E_PEER on all of them. min_size above half of the old size rules out that two groups
 * go on, when a candidate was silent and comes back. *new_rank, *new_size: ranks keep their order. setup: rank, size, job,
 * coordinator are those of `old`. `sockets` may be another context than that of `old`. */
ag_status session_regroup_open(socket_context *sockets, session *old, const session_setup *setup, int min_size, double grace_s,
                               cancel *cancel, session **out, int *new_rank, int *new_size,
                               int32_t *old_ranks /* [old size]: of each new rank */);

#endif
