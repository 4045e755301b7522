/* ddp.h: data-parallel training: what a job of registered parameters consists of. Public calls are in argand.h.
 *
 * A `slot` is a registered parameter, a `bucket` a run of slots of one dtype that travels as one all_reduce. Slots lie in reverse
 * order of registration, for that is about the order in which backward finishes gradients; buckets are formed once, alike on all
 * ranks, and their reductions start strictly in order, whatever order gradients come in.
 *
 * A round begins with the first gradient and ends with ddp_sync. In it each leaf's sink writes finished gradients into the slot's
 * `local` view, which is p.grad from then on: what p.grad is when the bucket starts is what this rank contributes, zeros when it
 * is NULL. So clearing p.grad starts anew, and gradients that were never cleared add up as they do without a job.
 *
 * Memory. Bucket k lies at `offset` in every part of one shared block:
 *
 *     [slot 0 | slot 1 | … | presence, one element a slot | contributors]
 *
 * each slot on 16 bytes, gaps are zeros. The reduction is a mean from the own parts into the result: each rank's own, or one for
 * all with shared_result. p.grad is a view of the result then, so nothing is copied, and the own part is intact, for whoever has
 * to find out which rank a NaN came from. With compression the own part holds the gradients' short form, `grads` is a private
 * buffer, and the mean is brought there on the group's worker thread; so it is where not all ranks contributed.
 *
 * presence: 1 where this rank had a gradient, so the mean tells whether any had. contributors: 1 on a rank that had a batch; the
 * mean is c / n, and gradients are scaled by n / c where c < n. An element of f16 or bf16 counts 128 ranks exactly, so there are
 * as many of them as it takes.
 *
 * Threads. Everything here runs on the thread that trains, but for bucket_done, which the group's worker runs while the round
 * waits for it; waiting orders the two.
 */
#ifndef ARGAND_DIST_DDP_DDP_H
#define ARGAND_DIST_DDP_DDP_H

#include "autograd/tape.h"
#include "dist/group/group.h"

/* The memory of all buckets, or of the parameters that a host has in common: held by the job and by every storage in it. */
typedef struct ddp_memory {
    storage_owner owner; /* first: it is the struct */
    atomic_int refs;
    ag_group *group; /* held */
    shared_block block;
    char *buffer; /* of buckets with compression: the gradients; else NULL */
    size_t buffer_bytes;
} ddp_memory;

typedef enum ddp_shard {
    SHARD_NONE,  /* every rank updates all parameters */
    SHARD_RANKS, /* each rank its share of them, and they tell one another the new values */
    SHARD_HOST   /* the same among the ranks of each host, which have the parameters in common: nothing is told */
} ddp_shard;

typedef struct ddp_slot {
    ag_ddp *ddp;
    char *name;        /* owned */
    ag_tensor *tensor; /* held */
    node *leaf;        /* held; has our sink; NULL while the tensor requires no gradient */
    int position;      /* in the order of registration */
    int bucket;
    size_t common_at;  /* in SHARD_HOST: where its storage lies in the common memory */
    double middle;     /* where its middle lies among the bytes of all parameters: 0 to 1 */
    int owner;         /* the rank that updates it (in SHARD_HOST, on this host); this one in a job that is not sharded */
    int64_t offset;    /* elements from the bucket's start */
    ag_tensor *local;  /* view: what this rank contributes; after the round the mean, unless that is `result` */
    ag_tensor *result; /* view of the result part; NULL with compression, or in a group of one */
    bool has_grad;     /* its sink was called in this round, outside of no_sync */
    bool is_expected;  /* backward has told that it will come */
    bool is_present;   /* after the reduction: some rank had a gradient */
} ddp_slot;

typedef struct ddp_bucket {
    ag_ddp *ddp;
    ag_dtype dtype, wire;           /* of the gradients, of what travels */
    int first, num_slots;           /* ddp->slots[first .. first + num_slots) */
    int64_t count;                  /* elements, all told */
    int64_t presence, contributors; /* where these begin */
    int num_contributor_elements;
    size_t offset;                    /* bytes from the part's start */
    char *own, *sum;                  /* in the own part and in the result; the same when the group has one member */
    char *grads;                      /* [count] of dtype: `own`, or a run of the buffer */
    ag_tensor *grads_view, *own_view; /* with compression: both as [count] */
    int num_missing;                  /* slots that still get a gradient in this round */
    bool is_started;
    group_work *work; /* NULL when it is not under way */
    int64_t started_ns;
    /* by bucket_done: */
    int64_t done_ns;
    int num_contributors;
    bool is_finite; /* true unless it was looked for and found not to be */
} ddp_bucket;

typedef enum ddp_finite { FINITE_IGNORED, FINITE_SKIP, FINITE_ERROR } ddp_finite;

struct ag_ddp {
    ag_group *group; /* the job's own, of the ranks of the one it was opened with */
    int rank, size;
    ag_dtype compress; /* AG_NO_DTYPE = none */
    int64_t bucket_bytes, first_bucket_bytes;
    ddp_finite check_finite;
    bool shared_result, is_verifying;
    ddp_shard shard;
    double timeout_s;
    int num_slots, num_buckets;
    ddp_slot *slots;
    ddp_bucket *buckets;
    ddp_memory *memory;
    size_t common_bytes;
    ddp_memory *common; /* where the parameters lie with those of the host's other ranks; NULL when each has its own */
    int next_bucket;    /* to be started */
    bool is_accumulating;
    bool is_told;    /* backward has told of gradients to come */
    bool must_count; /* what buckets wait for has changed */
    bool has_batch;  /* a gradient came in this round */
    ag_ddp_stats stats;
    char report[256]; /* which ranks and parameters were not finite in the last round */
};

/* layout.c. layout_plan forms the buckets of the slots, whose names and tensors are set in order of registration; layout_make gets
 * the memory (all ranks together) and makes the views. */
ag_status layout_plan(ag_ddp *ddp);
ag_status layout_make(ag_ddp *ddp);
void layout_free(ag_ddp *ddp);
/* memory_new is asked for by all ranks together. */
ag_status memory_new(ag_ddp *ddp, size_t part_bytes, block_form form, size_t buffer_bytes, ddp_memory **out);
void memory_drop(ddp_memory *m); /* NULL is accepted */
/* slot_owns tells whether grad is the slot's own view. */
bool slot_owns(const ddp_slot *slot, const ag_tensor *grad);

/* bucket.c. bucket_start fills in what this rank contributes, zeros when it has no batch, and starts the reduction. */
ag_status bucket_start(ddp_bucket *b, bool contributes);
ag_status bucket_wait(ddp_bucket *b);
/* bucket_deliver brings the mean to where p.grad is to be, scaled to the ranks that contributed. */
void bucket_deliver(ddp_bucket *b);
/* bucket_delivers_result: p.grad is the result part as it is. */
bool bucket_delivers_result(const ddp_bucket *b);

/* agree.c: what all ranks find out together. Each ends with the same status on all ranks, but for what fails on one of them alone,
 * such as memory: that the caller tells the others. */
/* agree_refuse tells the others that this rank cannot register; the error record stays as it is. */
void agree_refuse(ag_group *group, const char *reason);
/* agree_that_all_are_ready ends when all ranks are here; a rank that is not calls agree_refuse instead. */
ag_status agree_that_all_are_ready(ag_ddp *ddp);
/* agree_on_list compares names, dtypes, shapes, order and options of parameters and buffers. */
ag_status agree_on_list(ag_ddp *ddp, const ag_ddp_item *buffers, int num_buffers);
/* agree_broadcast gives a tensor rank 0's values. */
ag_status agree_broadcast(ag_ddp *ddp, ag_tensor *tensor);
/* agree_on_values compares the bytes of the parameters (NULL = the job's) and fails naming the first that differs. */
ag_status agree_on_values(ag_ddp *ddp, const ag_ddp_item *items, int num_items);
/* agree_who_is_not_finite fills ddp->report, and the ranks at fault: culprits [AG_MAX_CULPRITS]. */
ag_status agree_who_is_not_finite(ag_ddp *ddp, int32_t *culprits, int *num_culprits);

/* finite.c */
bool elements_are_finite(ag_dtype dtype, const void *elements, int64_t count);

/* share.c. share_plan refuses what cannot be had in common, and gives each slot its owner; slots are in order of registration.
 * share_make, on all ranks together, makes the memory of a job with SHARD_HOST; share_move puts the parameters there once all ranks
 * have it, share_return takes them back. share_values gives all ranks the values that the owners have. */
ag_status share_plan(ag_ddp *ddp);
ag_status share_make(ag_ddp *ddp);
void share_move(ag_ddp *ddp);
void share_return(ag_ddp *ddp);
ag_status share_values(ag_ddp *ddp);

/* ddp.c */
ag_status ddp_open(ag_group *group, const ag_ddp_item *parameters, int num_parameters, const ag_ddp_item *buffers,
                   int num_buffers, const ag_ddp_options *options, ag_ddp **out);
void ddp_free(ag_ddp *ddp);
ag_status ddp_check(ag_tensor *tensor);
ddp_slot *ddp_slot_of(const ag_tensor *tensor); /* NULL when it is not registered */
ag_status ddp_sync(ag_ddp *ddp, bool contributes, ag_ddp_result *out);
ag_status ddp_verify(ag_ddp *ddp);
ag_status ddp_share(ag_ddp *ddp);

#endif
