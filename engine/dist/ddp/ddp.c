/* ddp.c: a job from registration to its end: what may be registered, sinks, rounds. */
#include "dist/ddp/ddp.h"

#include <stdio.h>
#include <string.h>

#include "core/dtype.h"
#include "core/error.h"
#include "core/memory.h"
#include "dist/group/open.h"
#include "exec/exec.h"
#include "platform/clock.h"

#define DEFAULT_BUCKET_BYTES       (8 << 20)
#define DEFAULT_FIRST_BUCKET_BYTES (1 << 20)
#define FREE_WAIT_NS               5000000000

/* ---- sinks ---- */

/* The first bucket that is not started goes before all others, whichever are complete: all ranks start them alike. */
static ag_status start_complete(ag_ddp *ddp) {
    /* Where ranks have parameters in common the last bucket waits for ddp_sync: when it is through nobody is in backward any
     * more, and the owners may write. */
    int end = ddp->num_buckets - (ddp->common ? 1 : 0);
    while (ddp->next_bucket < end && ddp->buckets[ddp->next_bucket].num_missing == 0) {
        AG_TRY(bucket_start(&ddp->buckets[ddp->next_bucket], true));
        ddp->next_bucket++;
        ddp->stats.num_early++;
    }
    return AG_OK;
}

/* local = p.grad + grad, where no p.grad counts as zeros. */
static ag_status add_grad(ddp_slot *slot, node *leaf, ag_tensor *grad) {
    if (!leaf->grad) {
        AG_TRY(exec_copy(grad, slot->local));
        tensor_bump_version(slot->local);
    } else {
        ag_call call;
        call_init(&call, OP_add);
        call.inputs[0] = leaf->grad;
        call.inputs[1] = grad;
        AG_TRY(exec_run_into(&call, slot->local, "grad"));
    }
    if (leaf->grad != slot->local) {
        tensor_release(leaf->grad);
        leaf->grad = tensor_retain(slot->local);
    }
    return AG_OK;
}

static void count_missing(ag_ddp *ddp);

static ag_status take_grad(void *context, node *leaf, ag_tensor *grad) {
    ddp_slot *slot = context;
    ag_ddp *ddp = slot->ddp;
    ddp_bucket *b = &ddp->buckets[slot->bucket];
    if (b->is_started)
        return error_set(AG_E_STATE, "backward", NULL, NULL,
                         "end each step with job:step or job:sync, and wrap backward calls that only add up in job:no_sync",
                         "the gradient of '%s' is being reduced with those of the call before", slot->name);
    context_pause();
    ag_status status = add_grad(slot, leaf, grad);
    context_resume();
    AG_TRY(status);
    ddp->has_batch = true;
    if (ddp->is_accumulating) return AG_OK; /* more is to come: nothing is complete */
    if (ddp->must_count) count_missing(ddp);
    if (!slot->has_grad) {
        slot->has_grad = true;
        b->num_missing--;
    }
    return start_complete(ddp);
}

static void expect_grad(void *context) {
    ddp_slot *slot = context;
    if (slot->ddp->is_accumulating) return;
    slot->is_expected = true;
    slot->ddp->is_told = slot->ddp->must_count = true;
}

ddp_slot *ddp_slot_of(const ag_tensor *tensor) {
    const node *n = tensor->node;
    return n && n->kind == NODE_LEAF && n->sink.take == take_grad ? n->sink.context : NULL;
}

static void leave_leaf(ddp_slot *slot) {
    if (!slot->leaf) return;
    if (slot->leaf->sink.context == slot) tape_set_sink(slot->leaf, (leaf_sink){NULL});
    node_release(slot->leaf);
    slot->leaf = NULL;
}

/* The user may have frozen the tensor, or made it a new leaf: the sink follows. True when it did. */
static bool follow_leaf(ddp_slot *slot) {
    node *n = slot->tensor->node;
    if (n == slot->leaf) return false;
    leave_leaf(slot);
    if (!n || n->kind != NODE_LEAF || n->sink.take) return true;
    slot->leaf = node_retain(n);
    tape_set_sink(n, (leaf_sink){.take = take_grad, .expect = expect_grad, .context = slot});
    return true;
}

/* How many gradients each bucket waits for: those that backward has told of, all when it could not tell. A leaf that is new in
 * this round could not be told of. */
static void count_missing(ag_ddp *ddp) {
    ddp->must_count = false;
    for (int k = ddp->next_bucket; k < ddp->num_buckets; k++) {
        ddp_bucket *b = &ddp->buckets[k];
        b->num_missing = 0;
        for (int i = 0; i < b->num_slots; i++) {
            ddp_slot *slot = &ddp->slots[b->first + i];
            if (follow_leaf(slot)) slot->is_expected = true;
            b->num_missing += slot->leaf && !slot->has_grad && (slot->is_expected || !ddp->is_told);
        }
    }
}

/* ---- what may be registered ---- */

ag_status ddp_check(ag_tensor *tensor) {
    ag_dtype dtype = (ag_dtype)tensor->dtype;
    ag_device *device = tensor->storage->device;
    if (!dtype_is_float(dtype))
        return error_set(AG_E_KIND, "register", NULL, NULL,
                         "leave it out: what is not trained needs no gradients; a module's buffers go with it",
                         "has dtype %s, not a float dtype", dtype_name(dtype));
    if (!device->backend->has_collectives)
        return error_set(AG_E_UNSUPPORTED, "register", NULL, NULL,
                         "move it to the cpu before registering, or train without a job",
                         "is on device %s, which has no collectives", device->name);
    if (tensor->node && tensor->node->kind != NODE_LEAF)
        return error_set(AG_E_AUTODIFF, "register", NULL, NULL, "register what it was made of, or detach() it",
                         "is the result of %s, not a leaf", node_name(tensor->node));
    if (!tensor->node)
        return error_set(AG_E_AUTODIFF, "register", NULL, NULL, "set requires_grad, or leave it out",
                         "does not require gradients");
    if (tensor->node->sink.take)
        return error_set(AG_E_STATE, "register", NULL, NULL, "close the job that has it first", "is registered already");
    return AG_OK;
}

static ag_status parse_options(ag_ddp *ddp, const ag_ddp_options *options) {
    static const ag_ddp_options defaults;
    const ag_ddp_options *o = options ? options : &defaults;
    ddp->bucket_bytes = o->bucket_bytes ? o->bucket_bytes : DEFAULT_BUCKET_BYTES;
    ddp->first_bucket_bytes = o->first_bucket_bytes ? o->first_bucket_bytes : DEFAULT_FIRST_BUCKET_BYTES;
    if (ddp->first_bucket_bytes > ddp->bucket_bytes) ddp->first_bucket_bytes = ddp->bucket_bytes;
    ddp->shared_result = o->shared_result;
    ddp->timeout_s = o->timeout_s;
    ddp->compress = o->compress ? dtype_find(o->compress) : AG_NO_DTYPE;
    if (o->compress && (ddp->compress == AG_NO_DTYPE || !dtype_is_half(ddp->compress)))
        return error_set(AG_E_VALUE, "register", "compress", "\"bf16\" or \"f16\"", NULL, "\"%s\"", o->compress);
    if (o->compress && o->shared_result)
        return error_set(AG_E_VALUE, "register", "shared_result", "no compress with it",
                         "what is shared has the dtype that travels; leave one of the two out", "both");
    if (o->start && strcmp(o->start, "broadcast") != 0 && strcmp(o->start, "verify") != 0)
        return error_set(AG_E_VALUE, "register", "start", "\"broadcast\" or \"verify\"", NULL, "\"%s\"", o->start);
    if (o->shard && strcmp(o->shard, "ranks") != 0 && strcmp(o->shard, "host") != 0)
        return error_set(AG_E_VALUE, "register", "shard", "\"ranks\" or \"host\"", NULL, "\"%s\"", o->shard);
    ddp->shard = !o->shard ? SHARD_NONE : o->shard[0] == 'r' ? SHARD_RANKS : SHARD_HOST;
    ddp->is_verifying = o->start && strcmp(o->start, "verify") == 0;
    if (o->check_finite && strcmp(o->check_finite, "skip") != 0 && strcmp(o->check_finite, "error") != 0)
        return error_set(AG_E_VALUE, "register", "check_finite", "\"skip\" or \"error\"", NULL, "\"%s\"", o->check_finite);
    ddp->check_finite = !o->check_finite ? FINITE_IGNORED : o->check_finite[0] == 's' ? FINITE_SKIP : FINITE_ERROR;
    if (ddp->bucket_bytes < 0 || ddp->first_bucket_bytes < 0)
        return error_set(AG_E_VALUE, "register", "bucket_bytes", "at least 1", NULL, "%lld",
                         (long long)(ddp->bucket_bytes < 0 ? ddp->bucket_bytes : ddp->first_bucket_bytes));
    return AG_OK;
}

/* ---- registration ---- */

static ag_status add_slot(ag_ddp *ddp, const ag_ddp_item *item) {
    ddp_slot *slot = &ddp->slots[ddp->num_slots];
    const ddp_slot *before = ddp_slot_of(item->tensor);
    ag_status status = AG_OK;
    if (before && before->ddp == ddp)
        status = error_set(AG_E_ARGUMENT, "register", NULL, NULL, NULL, "is in the list twice");
    else
        status = ddp_check(item->tensor);
    if (status != AG_OK) {
        const ag_error fault = *error_record();
        return error_set(status, "register", NULL, NULL, fault.hint, "'%s' %s", item->name, fault.got);
    }
    size_t len = strlen(item->name) + 1;
    *slot = (ddp_slot){.ddp = ddp, .position = ddp->num_slots, .name = heap_alloc(len)};
    if (!slot->name) return error_memory("register", len);
    memcpy(slot->name, item->name, len);
    slot->tensor = tensor_retain(item->tensor);
    ddp->num_slots++;
    follow_leaf(slot);
    return AG_OK;
}

/* Slots were moved by the sort: sinks point to where they are now. */
static void point_sinks(ag_ddp *ddp) {
    for (int i = 0; i < ddp->num_slots; i++)
        if (ddp->slots[i].leaf) ddp->slots[i].leaf->sink.context = &ddp->slots[i];
}

static void begin_round(ag_ddp *ddp) {
    ddp->next_bucket = 0;
    ddp->has_batch = false;
    ddp->is_told = false;
    ddp->must_count = true;
    for (int k = 0; k < ddp->num_buckets; k++) ddp->buckets[k].is_started = false;
    for (int i = 0; i < ddp->num_slots; i++) {
        follow_leaf(&ddp->slots[i]);
        ddp->slots[i].has_grad = ddp->slots[i].is_expected = false;
    }
}

/* What this rank finds by itself; a fault is told to the others by the caller. */
static ag_status prepare(ag_ddp *ddp, const ag_ddp_item *parameters, int num_parameters, const ag_ddp_options *options) {
    AG_TRY(parse_options(ddp, options));
    if (options && options->refusal) return error_set(AG_E_ARGUMENT, "register", NULL, NULL, NULL, "%s", options->refusal);
    if (num_parameters == 0)
        return error_set(AG_E_ARGUMENT, "register", "params", "at least one parameter", NULL, "an empty list");
    ddp->slots = heap_alloc_zero((size_t)num_parameters * sizeof *ddp->slots);
    if (!ddp->slots) return error_memory("register", (size_t)num_parameters * sizeof *ddp->slots);
    for (int i = 0; i < num_parameters; i++) AG_TRY(add_slot(ddp, &parameters[i]));
    AG_TRY(share_plan(ddp)); /* slots are in order of registration here */
    ag_status status = layout_plan(ddp);
    point_sinks(ddp);
    return status;
}

static ag_status make_equal(ag_ddp *ddp, const ag_ddp_item *buffers, int num_buffers) {
    if (ddp->is_verifying) {
        AG_TRY(agree_on_values(ddp, NULL, 0));
        return agree_on_values(ddp, buffers, num_buffers);
    }
    for (int position = ddp->num_slots; position-- > 0;) AG_TRY(agree_broadcast(ddp, ddp->slots[position].tensor));
    for (int i = 0; i < num_buffers; i++) AG_TRY(agree_broadcast(ddp, buffers[i].tensor));
    return AG_OK;
}

/* Failures that all ranks see need not be told. */
static bool is_seen_by_all(ag_status status) {
    return status == AG_E_MISMATCH || status == AG_E_PEER || status == AG_E_TIMEOUT || status == AG_E_NETWORK;
}

/* A group of its own, of the same ranks: what the script calls between backward and the end of the round does not mix with the
 * reductions, which start when gradients happen to be there. */
static ag_status own_group(ag_ddp *ddp, ag_group *group) {
    int *ranks = heap_alloc((size_t)ddp->size * sizeof *ranks);
    if (!ranks) {
        error_memory("register", (size_t)ddp->size * sizeof *ranks);
        group_refuse(group);
        return AG_E_MEMORY;
    }
    for (int rank = 0; rank < ddp->size; rank++) ranks[rank] = rank;
    ag_status status = group_split(group, ranks, ddp->size, CALL_REGISTER, &ddp->group);
    heap_free(ranks);
    return status;
}

ag_status ddp_open(ag_group *group, const ag_ddp_item *parameters, int num_parameters, const ag_ddp_item *buffers,
                   int num_buffers, const ag_ddp_options *options, ag_ddp **out) {
    ag_ddp *ddp = heap_alloc_zero(sizeof *ddp);
    if (!ddp) {
        error_memory("register", sizeof *ddp);
        group_refuse(group);
        return AG_E_MEMORY;
    }
    ddp->rank = ag_group_rank(group);
    ddp->size = ag_group_size(group);
    ag_status status = prepare(ddp, parameters, num_parameters, options);
    if (status != AG_OK) {
        agree_refuse(group, error_record()->message);
        ddp_free(ddp);
        return error_in(status, "register");
    }
    status = own_group(ddp, group);
    if (status == AG_OK) status = agree_on_list(ddp, buffers, num_buffers);
    if (status == AG_OK) status = make_equal(ddp, buffers, num_buffers);
    if (status == AG_OK) status = layout_make(ddp);
    if (status == AG_OK) status = share_make(ddp);
    if (status != AG_OK && !is_seen_by_all(status) && ddp->group)
        agree_refuse(ddp->group, error_record()->message);
    else if (status == AG_OK)
        status = agree_that_all_are_ready(ddp);
    if (status != AG_OK) {
        ddp_free(ddp);
        return error_in(status, "register");
    }
    share_move(ddp);
    begin_round(ddp);
    ddp->stats.num_buckets = ddp->num_buckets;
    *out = ddp;
    return AG_OK;
}

/* ---- the end ---- */

/* Dropped in the middle of a round, this replica will not be equal to the others any more, and they wait for it: the group ends.
 * False when the worker cannot be stopped: then it keeps the memory. */
static bool end_reductions(ag_ddp *ddp) {
    bool is_over = true;
    int64_t deadline = clock_ns() + FREE_WAIT_NS;
    if (ddp->size > 1 && ddp->next_bucket > 0)
        ag_group_abort(ddp->group, "it dropped its job while gradients were being reduced");
    for (int k = 0; ddp->buckets && k < ddp->num_buckets; k++) {
        ddp_bucket *b = &ddp->buckets[k];
        if (!b->work) continue;
        while (!group_work_is_done(b->work) && clock_ns() < deadline) (void)group_wait(b->work, 0.05);
        is_over &= group_work_is_done(b->work);
        group_work_release(b->work);
    }
    return is_over;
}

/* p.grad outlives the job as an ordinary tensor. */
static void detach_grad(ddp_slot *slot) {
    node *leaf = slot->leaf;
    if (!leaf || !leaf->grad || !slot->local) return;
    const storage *s = leaf->grad->storage;
    if (s != slot->local->storage && (!slot->result || s != slot->result->storage)) return;
    ag_call call;
    call_init(&call, OP_clone);
    call.inputs[0] = leaf->grad;
    context_pause();
    ag_status status = exec_run(&call);
    context_resume();
    tensor_release(leaf->grad);
    leaf->grad = status == AG_OK ? call.outputs[0] : NULL;
}

void ddp_free(ag_ddp *ddp) {
    if (!ddp) return;
    const ag_error record = *error_record();
    bool is_over = end_reductions(ddp);
    for (int i = 0; i < ddp->num_slots; i++) {
        detach_grad(&ddp->slots[i]);
        leave_leaf(&ddp->slots[i]);
    }
    share_return(ddp);
    if (is_over) {
        layout_free(ddp);
        if (ddp->group) group_close(ddp->group, 0, false);
        heap_free(ddp);
    }
    *error_record() = record;
}

/* ---- the end of a round ---- */

/* Starts what is left and waits for all. *is_open: interrupted, the round goes on. */
static ag_status reduce_rest(ag_ddp *ddp, bool contributes, bool *is_open) {
    ag_status status = AG_OK;
    *is_open = false;
    while (status == AG_OK && ddp->next_bucket < ddp->num_buckets) {
        status = bucket_start(&ddp->buckets[ddp->next_bucket], contributes);
        if (status == AG_OK) ddp->next_bucket++;
    }
    int64_t before = clock_ns();
    for (int k = 0; k < ddp->next_bucket; k++) {
        ag_status waited = bucket_wait(&ddp->buckets[k]);
        if (ddp->buckets[k].work) {
            *is_open = true;
            return waited;
        }
        if (status == AG_OK) status = waited;
    }
    if (status != AG_OK || ddp->size == 1) return status;
    int64_t exposed_ns = clock_ns() - before, busy_ns = 0, free_since = 0;
    for (int k = 0; k < ddp->num_buckets; k++) {
        const ddp_bucket *b = &ddp->buckets[k];
        busy_ns += b->done_ns - (b->started_ns > free_since ? b->started_ns : free_since);
        free_since = b->done_ns;
        ddp->stats.bytes += b->count * (int64_t)dtype_size(b->wire);
    }
    ddp->stats.exposed_s += (double)exposed_ns * 1e-9;
    if (busy_ns > exposed_ns) ddp->stats.hidden_s += (double)(busy_ns - exposed_ns) * 1e-9;
    return AG_OK;
}

/* p.grad becomes the mean; NULL where no rank had a gradient. */
static void put_grads(ag_ddp *ddp) {
    for (int k = 0; k < ddp->num_buckets; k++) {
        ddp_bucket *b = &ddp->buckets[k];
        for (int i = 0; i < b->num_slots; i++) {
            ddp_slot *slot = &ddp->slots[b->first + i];
            if (!slot->leaf) continue;
            ag_tensor *view = bucket_delivers_result(b) ? slot->result : slot->local;
            tensor_bump_version(view);
            tensor_release(slot->leaf->grad);
            slot->leaf->grad = slot->is_present && b->num_contributors > 0 ? tensor_retain(view) : NULL;
        }
    }
}

static ag_status judge_finite(ag_ddp *ddp, bool *is_finite) {
    int32_t culprits[AG_MAX_CULPRITS];
    int num_culprits = 0;
    *is_finite = true;
    ddp->report[0] = '\0';
    for (int k = 0; k < ddp->num_buckets; k++) *is_finite &= ddp->buckets[k].is_finite;
    if (*is_finite) return AG_OK;
    AG_TRY(agree_who_is_not_finite(ddp, culprits, &num_culprits));
    for (int k = 0; k < ddp->num_buckets; k++)
        if (!ddp->buckets[k].is_finite) bucket_deliver(&ddp->buckets[k]);
    if (ddp->check_finite == FINITE_SKIP) {
        ddp->stats.num_skipped++;
        return AG_OK;
    }
    error_set(AG_E_VALUE, "sync", NULL, "gradients without NaN and Inf",
              "check_finite = \"skip\" leaves such steps out on all ranks", "%s", ddp->report);
    error_set_culprits(culprits, num_culprits, 0);
    return AG_E_VALUE;
}

/* What failed on this rank alone, in the middle of what all do together, ends the group: the others would wait, and replicas are
 * out of step. */
static ag_status tell_failure(ag_ddp *ddp, ag_status status) {
    bool is_own = status == AG_E_MEMORY || status == AG_E_INTERRUPTED;
    if (is_own && ddp->size > 1) ag_group_abort(ddp->group, error_record()->message);
    return status;
}

ag_status ddp_sync(ag_ddp *ddp, bool contributes, ag_ddp_result *out) {
    bool is_open = false, is_finite = true;
    if (ddp->is_accumulating)
        return error_set(AG_E_STATE, "sync", NULL, NULL, "leave job:no_sync first", "gradients are only added up here");
    contributes = contributes || ddp->has_batch;
    for (int k = ddp->next_bucket; k < ddp->num_buckets; k++)
        for (int i = 0; i < ddp->buckets[k].num_slots; i++) follow_leaf(&ddp->slots[ddp->buckets[k].first + i]);
    ag_status status = reduce_rest(ddp, contributes, &is_open);
    if (is_open) return status;
    if (status == AG_OK) {
        status = judge_finite(ddp, &is_finite);
        put_grads(ddp);
        ddp->stats.num_steps += ddp->buckets[0].num_contributors > 0;
        *out = (ag_ddp_result){.num_contributors = ddp->buckets[0].num_contributors, .is_finite = is_finite};
    }
    begin_round(ddp);
    return error_in(tell_failure(ddp, status), "sync");
}

ag_status ddp_verify(ag_ddp *ddp) { return error_in(tell_failure(ddp, agree_on_values(ddp, NULL, 0)), "verify"); }
ag_status ddp_share(ag_ddp *ddp) { return error_in(tell_failure(ddp, share_values(ddp)), "share"); }
