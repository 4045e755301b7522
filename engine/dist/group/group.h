/* group.h: a member of a group: numbers the calls, runs them on a transport one after the other, and ends with its world.
 *
 * world. What the groups of one rank share: the session (membership, heartbeats), the cancel, the ZeroMQ hub. A world of size 1
 * has none of these; a world of threads has a cancel only.
 *
 * Calls. A synchronous call runs on the caller's thread when nothing is queued; asynchronous ones run on the group's worker
 * thread, in order. A mutex hands the transport from the one to the other.
 */
#ifndef ARGAND_DIST_GROUP_GROUP_H
#define ARGAND_DIST_GROUP_GROUP_H

#include "dist/transport/transport.h"

/* group_work is a call under way; counted: the caller and the queue hold it. */
typedef struct group_work group_work;

/* group_request is what a member asks for; buffers are contiguous and stay the caller's until the work is done. */
typedef struct group_request {
    collective_call call; /* kind, algorithm (ANY: chosen here), op, dtype, root, count, counts, input, output */
    int ndim;             /* of the user's tensor, for prints */
    const int64_t *dims;
    const char *refusal;       /* not NULL: this rank cannot make the call and tells the others; run returns AG_OK then */
    bool is_absent;            /* nothing to contribute */
    call_print_flag making;    /* CALL_SPLIT or CALL_REGISTER: what it is a part of, for people */
    const shared_block *block; /* all_reduce within a shared block, at block_offset bytes; input and output are set from it */
    size_t block_offset;
    double timeout_s;                              /* 0 = the group's */
    void (*done)(void *context, ag_status status); /* called once by whoever ran it, before waits end; may be NULL */
    void *context;
} group_request;

/* group_run waits for what is queued, then makes the call on this thread. An interrupt in either wait ends the world: the others
 * cannot go on without this call. */
ag_status group_run(ag_group *g, const group_request *request);
/* group_start queues the request; dims and counts are copied, a refusal is not. *out is the caller's, for group_wait and
 * group_work_release; it is stored before `done` is called. A failure is this rank's own, and the others are not told. */
ag_status group_start(ag_group *g, const group_request *request, group_work **out);
bool group_work_is_done(const group_work *w);
/* group_wait sets this thread's error record when the work has failed. timeout_s 0: as long as the call may take. */
ag_status group_wait(group_work *w, double timeout_s);
void group_work_release(group_work *w);

/* group_tell_refusal makes the request as one that this rank cannot make, the reason being the message of this thread's error
 * record, which stays as it is. When that cannot be told, the world ends. group_refuse does it for a call that has no request. */
void group_tell_refusal(ag_group *g, const group_request *request);
void group_refuse(ag_group *g);

/* group_block_new makes a block of zeros, on all ranks of the group together; part_bytes is rounded up. */
ag_status group_block_new(ag_group *g, size_t part_bytes, block_form form, shared_block *out);
void group_block_free(ag_group *g, shared_block *block);

/* group_stats reads the transport's counters; those of a call that is under way are not in it. */
void group_stats(ag_group *g, transport_stats *out);

/* Groups are counted: ddp and shared tensors hold theirs. A closed group fails with AG_E_STATE. */
ag_group *group_retain(ag_group *g);
void group_release(ag_group *g);

#endif
