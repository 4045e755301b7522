/* zmq_transport.c: drives the collectives of one group over the hub: segments out and in, prints, refusals, failures. */
#include "dist/transport/zmq/zmq_transport.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/dtype.h"
#include "core/error.h"
#include "core/memory.h"
#include "dist/transport/zmq/zmq_hub.h"
#include "platform/clock.h"
#include "platform/interrupt.h"

#define HISTORY        16        /* prints of past calls that late messages are compared with */
#define GRACE_NS       300000000 /* a lost connection waits so long for the session to say why */
#define GREET_NS       50000000  /* who waits so long tells the others what it has called */
#define GREET_AGAIN_NS 1000000000

/* What is known of another rank. Pairs are numbered for each direction, and their calls come in order: one number says of all
 * earlier ones that they are over. */
typedef struct peer_state {
    int64_t heard_ns;                 /* when something of the running call last came from the rank */
    uint64_t last_send, last_receive; /* to it and from it, that are over here */
} peer_state;

typedef struct zmq_transport {
    transport base;
    zmq_hub *hub;
    hub_box *box;

    hub_queue arrived;                   /* not yet sorted by channel */
    hub_queue waiting[HUB_NUM_CHANNELS]; /* for this call, or a later one */
    call_print history[HISTORY];         /* by sequence % HISTORY; with CALL_REFUSED those that this rank refused */
    transport_stats stats;
    peer_state peers[]; /* [size] */
} zmq_transport;

/* run is one call under way. */
typedef struct run {
    zmq_transport *t;
    const transport_call *request;
    call_print print;
    const char *op;
    uint64_t sequence;
    hub_channel channel;
    collective state;
    char *scratch; /* the neutral elements of a rank without a contribution */
    size_t scratch_bytes;
    void *absent_output; /* where the result goes that was computed in scratch, NULL = it is in place */
    int num_posted;      /* segments of which collective_sent has not heard yet */
    bool is_refused;     /* a pair's call, by the other rank: both have come to its end */
    int64_t start_ns, progress_ns;
    int64_t greeted_ns; /* 0 = not yet */
} run;

static void append(hub_queue *queue, hub_arrival *a) {
    a->next = NULL;
    if (queue->last)
        queue->last->next = a;
    else
        queue->first = a;
    queue->last = a;
}

/* ---- a rank that has nothing to contribute ---- */

static void set_neutral(reduce_op op, ag_dtype dtype, char *element) {
    double infinity = __builtin_inf();
    if (dtype_is_float(dtype)) {
        double value = op == REDUCE_MIN ? infinity : op == REDUCE_MAX ? -infinity : op == REDUCE_PROD ? 1 : 0;
        element_write(dtype, element, value);
        return;
    }
    size_t bits = 8 * dtype_size(dtype);
    int64_t largest = dtype == AG_U8 ? 255 : (int64_t)(UINT64_MAX >> (65 - bits)), smallest = dtype == AG_U8 ? 0 : -largest - 1;
    int64_t value = op == REDUCE_MIN ? largest : op == REDUCE_MAX ? smallest : op == REDUCE_PROD || op == REDUCE_AND ? 1 : 0;
    element_write_int(dtype, element, value);
}

/* Puts neutral elements in place of the input. A result that would lie over it is computed over the scratch in the same way, so
 * that a failure leaves the caller's memory as it was. */
static ag_status replace_input(run *r, collective_call *call) {
    size_t size = dtype_size(call->dtype);
    r->scratch_bytes = (size_t)call->count * size;
    r->scratch = memory_alloc(r->scratch_bytes);
    if (!r->scratch) return error_memory(r->op, r->scratch_bytes);
    for (int64_t i = 0; i < call->count; i++) set_neutral(call->op, call->dtype, r->scratch + (size_t)i * size);
    uintptr_t input = (uintptr_t)call->input, output = (uintptr_t)call->output;
    bool has_output = call->output && (call->kind != COLLECTIVE_REDUCE || call->rank == call->root);
    if (has_output && input < output + r->scratch_bytes && output < input + r->scratch_bytes) {
        r->absent_output = call->output;
        call->output = r->scratch;
    }
    call->input = r->scratch;
    return AG_OK;
}

static size_t output_bytes(const collective_call *call) {
    int64_t count = call->count;
    if (call->kind == COLLECTIVE_REDUCE_SCATTER)
        count = chunk_offset(count, call->size, call->rank + 1) - chunk_offset(count, call->size, call->rank);
    return (size_t)count * dtype_size(call->dtype);
}

/* ---- what comes ---- */

static int32_t world_rank(const zmq_transport *t, int rank) { return t->base.world_ranks[rank]; }

static ag_status format_error(const run *r, int peer, const char *what) {
    int32_t culprit = world_rank(r->t, peer);
    error_set(AG_E_FORMAT, r->op, NULL, NULL, NULL, "rank %d sent %s", (int)culprit, what);
    error_set_culprits(&culprit, 1, r->sequence);
    return AG_E_FORMAT;
}

static ag_status refusal_error(const run *r, const hub_arrival *a) {
    char call[112], reason[WIRE_MAX_TEXT + 1];
    int32_t culprit = a->from;
    call_print_reason(reason, sizeof reason, a->message.payload, a->message.payload_bytes);
    error_set(AG_E_MISMATCH, r->op, NULL, NULL, NULL, "rank %d refused %s: %s", (int)culprit,
              call_print_text(&a->header.print, call, sizeof call), reason);
    error_set_culprits(&culprit, 1, a->header.print.sequence);
    return AG_E_MISMATCH;
}

/* A refusal of the peer's receive is about a send of this rank; all else that a peer says of a pair, about what it sends. */
static bool is_about_send(const wire_header *h) { return h->kind == WIRE_REFUSAL && h->step == WIRE_REFUSES_RECEIVE; }

/* Of a pair's call that is over here: the other rank's refusal of one that this rank has refused, too, or that had nothing to
 * wait for; and segments that were under way when this rank refused. */
static bool is_left_over(const zmq_transport *t, const hub_arrival *a) {
    const wire_header *h = &a->header;
    const peer_state *peer = &t->peers[h->sender];
    if (hub_channel_of(h) != HUB_PAIRS) return false;
    /* `refused` is written by this thread only. */
    uint64_t last = h->kind == WIRE_REFUSAL ? peer->last_receive : hub_edge_of(t->hub, t->box, HUB_PAIRS, a->from)->refused;
    return h->print.sequence <= (is_about_send(h) ? peer->last_send : last);
}

static wire_header header_of(const run *r, wire_kind kind) {
    return (wire_header){.kind = (uint8_t)kind, .group = r->t->box->group, .sender = r->t->base.rank, .print = r->print};
}

static ag_status greet(run *r, int peer, bool is_answer) {
    wire_header header = header_of(r, WIRE_HELLO);
    header.step = is_answer;
    return hub_post(r->t->hub, r->t->box, r->channel, world_rank(r->t, peer), &header, NULL, 0);
}

/* A message of a call that is over here. *is_done: it can be dropped. */
static ag_status examine_old(run *r, const hub_arrival *a, bool *is_done) {
    const wire_header *h = &a->header;
    const call_print *past = &r->t->history[h->print.sequence % HISTORY];
    bool is_known = past->sequence == h->print.sequence;
    *is_done = true;
    if (is_known && (past->flags & CALL_REFUSED) != 0) return AG_OK; /* those who made it hear of the refusal */
    if (h->kind == WIRE_REFUSAL) return refusal_error(r, a);
    if (is_known && !call_print_agree(past, &h->print))
        return call_print_mismatch(world_rank(r->t, r->t->base.rank), past, a->from, &h->print);
    return h->kind == WIRE_HELLO ? AG_OK : format_error(r, h->sender, "a segment of a call that is over");
}

static ag_status offer(run *r, const hub_arrival *a, bool *is_taken) {
    const wire_header *h = &a->header;
    segment arrived = {.sequence = h->print.sequence,
                       .step = h->step,
                       .peer = h->sender,
                       .offset = h->offset,
                       .length = h->length,
                       .data = a->message.payload,
                       .size_bytes = a->message.payload_bytes};
    ag_status status = collective_offer(&r->state, &arrived, is_taken);
    if (status == AG_OK) return AG_OK;
    return format_error(r, h->sender, "a segment that is no part of this call");
}

/* One message of the running call's channel. *is_done: it is not needed any more. */
static ag_status examine(run *r, const hub_arrival *a, bool *is_done) {
    const wire_header *h = &a->header;
    *is_done = is_left_over(r->t, a);
    if (*is_done) return AG_OK;
    if (r->channel == HUB_PAIRS) {
        /* The numbers of the other pairs, and of the other direction, say nothing here. */
        bool is_of_pair = is_about_send(h) == (r->request->call.kind == COLLECTIVE_SEND);
        if (h->sender != r->request->call.root || !is_of_pair || h->print.sequence > r->sequence) return AG_OK;
        if (h->print.sequence < r->sequence) return format_error(r, h->sender, "a segment of a call that is over");
        r->is_refused = h->kind == WIRE_REFUSAL;
    } else if (h->print.sequence != r->sequence) {
        return h->print.sequence > r->sequence ? AG_OK : examine_old(r, a, is_done);
    }
    if (h->kind == WIRE_REFUSAL) return refusal_error(r, a);
    if (!call_print_agree(&r->print, &h->print))
        return call_print_mismatch(world_rank(r->t, r->t->base.rank), &r->print, a->from, &h->print);
    if (h->kind == WIRE_HELLO) {
        *is_done = true;
        return h->step == 0 ? greet(r, h->sender, true) : AG_OK;
    }
    return offer(r, a, is_done);
}

/* Takes in what has come. Early segments stay; they are looked at again after each that was taken. */
static ag_status take_arrivals(run *r, bool *progress) {
    zmq_transport *t = r->t;
    hub_take(t->hub, t->box, &t->arrived);
    int64_t now = t->arrived.first ? clock_ns() : 0;
    for (hub_arrival *a; (a = t->arrived.first) != NULL;) {
        t->arrived.first = a->next;
        if (!t->arrived.first) t->arrived.last = NULL;
        bool is_of_sender = a->header.sender < t->base.size && world_rank(t, a->header.sender) == a->from;
        if (!is_of_sender) {
            hub_reject(t->hub, t->box, a);
        } else if (is_left_over(t, a)) {
            /* At once, whatever call this is: the sender's next one needs the credit. */
            AG_TRY(hub_settle(t->hub, t->box, a));
        } else {
            if (a->header.print.sequence == r->sequence) t->peers[a->header.sender].heard_ns = now;
            append(&t->waiting[hub_channel_of(&a->header)], a);
        }
    }
    hub_queue *queue = &t->waiting[r->channel];
    for (bool has_taken = true; has_taken;) {
        has_taken = false;
        hub_arrival *previous = NULL;
        for (hub_arrival *a = queue->first, *next; a; a = next) {
            bool is_done;
            next = a->next;
            AG_TRY(examine(r, a, &is_done));
            if (!is_done) {
                previous = a;
                continue;
            }
            if (previous)
                previous->next = next;
            else
                queue->first = next;
            if (!next) queue->last = previous;
            has_taken |= a->header.kind == WIRE_SEGMENT;
            t->stats.bytes_moved += (int64_t)a->message.payload_bytes;
            AG_TRY(hub_settle(t->hub, t->box, a));
        }
        *progress |= has_taken;
        has_taken &= queue->first != NULL;
    }
    return AG_OK;
}

/* ---- what leaves ---- */

static ag_status send_segments(run *r, bool *progress) {
    zmq_transport *t = r->t;
    for (int peer = 0; peer < t->base.size; peer++) {
        if (peer == t->base.rank || r->state.send_head[peer] < 0) continue;
        int room = hub_room(t->hub, t->box, r->channel, world_rank(t, peer));
        for (segment s; room > 0 && collective_next_send(&r->state, peer, &s); room--) {
            wire_header header = header_of(r, WIRE_SEGMENT);
            header.step = s.step;
            header.offset = s.offset;
            header.length = s.length;
            r->num_posted++;
            AG_TRY(hub_post(t->hub, t->box, r->channel, world_rank(t, peer), &header, s.data, s.size_bytes));
            t->stats.num_messages++;
            t->stats.bytes_moved += (int64_t)s.size_bytes;
            *progress = true;
        }
    }
    return AG_OK;
}

/* A segment to the peer was lost with the connection. Those of other pairs say nothing here. */
static bool is_cut(const run *r, int peer) {
    bool is_of_call = r->channel == HUB_CALLS || peer == r->request->call.root;
    return is_of_call && hub_is_cut(r->t->hub, r->t->box, r->channel, world_rank(r->t, peer));
}

/* The hub has copies, so nobody reads the bytes any more; but until ZeroMQ has them the call can fail, and the output, which
 * may lie over the input, is written at its end. After a cut it will fail. */
static void settle_posted(run *r) {
    if (r->num_posted == 0 || hub_has_unsent(r->t->hub, r->t->box, -1)) return;
    for (int peer = 0; peer < r->t->base.size; peer++)
        if (is_cut(r, peer)) return;
    for (; r->num_posted > 0; r->num_posted--) collective_sent(&r->state);
}

/* A rank that refuses the call has no plan of it. */
static bool is_running(const run *r) { return r->state.receive_head && r->state.state == COLLECTIVE_RUNNING; }

static bool is_expected(const run *r, int peer) { return r->state.receive_head[peer] >= 0; }

/* Tells those from whom something is expected which call this is: a rank that makes another one, which sends this rank nothing,
 * would not learn of the difference before the deadline. Who has made the same call answers, and is not to blame. */
static ag_status greet_expected(run *r) {
    for (int peer = 0; peer < r->t->base.size; peer++)
        if (peer != r->t->base.rank && is_expected(r, peer)) AG_TRY(greet(r, peer, false));
    r->greeted_ns = clock_ns();
    return AG_OK;
}

/* ---- ends ---- */

/* The ranks that this one waits for and that have not answered the last greeting; all, when every one has. */
static int find_expected(const run *r, bool are_silent, int32_t *culprits) {
    int num = 0;
    for (int peer = 0; peer < r->t->base.size && num < AG_MAX_CULPRITS; peer++) {
        bool has_answered = r->greeted_ns != 0 && r->t->peers[peer].heard_ns > r->greeted_ns;
        if (is_expected(r, peer) && !(are_silent && has_answered)) culprits[num++] = world_rank(r->t, peer);
    }
    return num;
}

/* The ranks that this one cannot send to. */
static int find_blocked(const run *r, int32_t *culprits, bool *is_reachable) {
    int num = 0;
    for (int peer = 0; peer < r->t->base.size && num < AG_MAX_CULPRITS; peer++) {
        bool is_open = is_running(r) && r->state.send_head[peer] >= 0;
        bool is_unsent = is_cut(r, peer) || hub_has_unsent(r->t->hub, r->t->box, world_rank(r->t, peer));
        if (is_unsent) *is_reachable = false;
        if (is_open || is_unsent) culprits[num++] = world_rank(r->t, peer);
    }
    return num;
}

static ag_status timeout_error(const run *r) {
    int32_t culprits[AG_MAX_CULPRITS];
    const char *what = "nothing more came from";
    int num = 0;
    if (is_running(r)) {
        num = find_expected(r, true, culprits);
        if (num == 0) num = find_expected(r, false, culprits);
    }
    if (num == 0) {
        bool is_reachable = true;
        num = find_blocked(r, culprits, &is_reachable);
        what = is_reachable ? "nothing more was taken by" : "there is no connection to";
    }
    char call[112], ranks[96] = "";
    size_t end = 0;
    for (int i = 0; i < num && end < sizeof ranks; i++)
        end += (size_t)snprintf(ranks + end, sizeof ranks - end, "%s%d", i == 0 ? "" : ", ", (int)culprits[i]);
    int64_t waited_ms = (r->request->deadline_ns - r->start_ns + 500000) / 1000000;
    error_set(AG_E_TIMEOUT, r->op, NULL, NULL, NULL, "%s, call %" PRIu64 ": %s rank%s %s within %g s",
              call_print_text(&r->print, call, sizeof call), r->sequence, what, num == 1 ? "" : "s", ranks,
              waited_ms < 0 ? 0 : (double)waited_ms * 1e-3);
    error_set_culprits(culprits, num, r->sequence);
    return AG_E_TIMEOUT;
}

/* A connection that was lost is an error only when its rank is still needed, and when nothing moves any more: what a rank sent
 * before it ended arrives. */
static ag_status check_connections(const run *r, int64_t now) {
    char detail[96];
    if (now - r->progress_ns < GRACE_NS || !is_running(r)) return AG_OK;
    for (int peer = 0; peer < r->t->base.size; peer++) {
        if (r->state.send_head[peer] < 0 && r->state.receive_head[peer] < 0 && !is_cut(r, peer)) continue;
        int32_t culprit = world_rank(r->t, peer);
        int64_t lost_ns = hub_lost_ns(r->t->hub, culprit, detail, sizeof detail);
        if (lost_ns == 0 || now - lost_ns < GRACE_NS) continue;
        error_set(AG_E_PEER, r->op, NULL, NULL, NULL, "the connection to rank %d was lost (%s)", (int)culprit, detail);
        error_set_culprits(&culprit, 1, r->sequence);
        return AG_E_PEER;
    }
    return AG_OK;
}

static ag_status check_ends(run *r) {
    int64_t now = clock_ns();
    if (cancel_is_raised(r->t->base.cancel)) return cancel_error(r->t->base.cancel, r->op, r->sequence);
    if (!r->request->is_background && interrupt_pending())
        return error_set(AG_E_INTERRUPTED, r->op, NULL, NULL, NULL, "interrupted");
    AG_TRY(hub_failure(r->t->hub, r->op, r->sequence));
    AG_TRY(check_connections(r, now));
    if (now >= r->request->deadline_ns) return timeout_error(r);
    /* A greeting must have time to be answered. */
    bool is_due = now - r->progress_ns >= GREET_NS && now - r->greeted_ns >= GREET_AGAIN_NS &&
                  (r->greeted_ns == 0 || r->request->deadline_ns - now > GREET_AGAIN_NS);
    return is_due && r->channel == HUB_CALLS && is_running(r) ? greet_expected(r) : AG_OK;
}

/* Until this rank is through and ZeroMQ has all that it has to send: nobody pumps afterwards. */
static ag_status drive(run *r) {
    zmq_transport *t = r->t;
    for (;;) {
        bool progress = false;
        AG_TRY(take_arrivals(r, &progress));
        AG_TRY(send_segments(r, &progress));
        settle_posted(r);
        if (r->state.state == COLLECTIVE_DONE && !hub_has_unsent(t->hub, t->box, -1)) return AG_OK;
        if (progress) r->progress_ns = clock_ns();
        AG_TRY(check_ends(r));
        AG_TRY(hub_attend(t->hub, t->box, progress ? 0 : HUB_TICK_MS));
    }
}

static void want_peers(const run *r) {
    for (int peer = 0; peer < r->t->base.size; peer++)
        if (r->state.send_head[peer] >= 0 || r->state.receive_head[peer] >= 0) hub_want(r->t->hub, world_rank(r->t, peer));
}

/* From here on nothing of this call of a pair is waited for. */
static void note_pair(const run *r) {
    peer_state *peer = &r->t->peers[r->request->call.root];
    if (r->request->call.kind == COLLECTIVE_SEND) {
        peer->last_send = r->sequence;
    } else {
        peer->last_receive = r->sequence;
        bool is_refusal = (r->print.flags & CALL_REFUSED) != 0;
        if (is_refusal) hub_refuse(r->t->hub, r->t->box, world_rank(r->t, r->request->call.root), r->sequence);
    }
}

/* Tells every other rank, or the one of the pair, why this one does not make the call, and waits for no answer. What they had
 * sent already is dropped when it comes. */
static ag_status refuse(run *r) {
    zmq_transport *t = r->t;
    bool is_pair = r->channel == HUB_PAIRS, progress = false;
    const char *reason = r->request->refusal ? r->request->refusal : "";
    size_t len = strlen(reason);
    if (len > WIRE_MAX_TEXT)
        for (len = WIRE_MAX_TEXT; len > 0 && ((unsigned char)reason[len] & 0xC0) == 0x80; len--)
            continue; /* whole characters */
    for (int peer = 0; peer < t->base.size; peer++) {
        if (peer == t->base.rank || (is_pair && peer != r->request->call.root)) continue;
        wire_header header = header_of(r, WIRE_REFUSAL);
        header.print.flags |= CALL_REFUSED;
        header.step = r->request->call.kind == COLLECTIVE_RECEIVE ? WIRE_REFUSES_RECEIVE : 0;
        AG_TRY(hub_post(t->hub, t->box, r->channel, world_rank(t, peer), &header, reason, len));
    }
    if (is_pair) {
        note_pair(r);
        AG_TRY(take_arrivals(r, &progress)); /* drops the call's segments that wait here */
    }
    /* When the others have ended meanwhile, this rank's own reason is still the one to be told to its caller. */
    while (hub_has_unsent(t->hub, t->box, -1) && !cancel_is_raised(t->base.cancel)) {
        AG_TRY(check_ends(r));
        AG_TRY(hub_attend(t->hub, t->box, HUB_TICK_MS));
    }
    return AG_OK;
}

static ag_status zmq_run(transport *base, const transport_call *request, bool *is_over) {
    zmq_transport *t = (zmq_transport *)base;
    collective_call call = request->call;
    run r = {.t = t, .request = request, .print = request->print, .op = collective_kind_name(call.kind)};
    bool is_pair = collective_is_pair(call.kind), is_started = false;
    ag_status status = AG_OK;
    *is_over = false;
    r.channel = is_pair ? HUB_PAIRS : HUB_CALLS;
    r.sequence = call.sequence = request->print.sequence;
    r.start_ns = r.progress_ns = clock_ns();
    call.segment_bytes = t->hub->segment_bytes;
    t->stats.num_calls++;
    if (!is_pair) t->history[r.sequence % HISTORY] = r.print;
    if ((r.print.flags & CALL_REFUSED) != 0) {
        status = refuse(&r);
        goto done;
    }
    if ((r.print.flags & CALL_ABSENT) != 0 && collective_is_reduction(call.kind)) status = replace_input(&r, &call);
    if (status == AG_OK) status = collective_init(&r.state, &call);
    if (status != AG_OK) goto done;
    is_started = true;
    want_peers(&r);
    status = drive(&r);
    if (status == AG_OK && r.absent_output) memcpy(r.absent_output, call.output, output_bytes(&call));
done:
    if (is_started) collective_deinit(&r.state);
    if (is_pair) note_pair(&r);
    memory_free(r.scratch, r.scratch_bytes);
    /* Segments of the call may be under way, and the others wait for this rank. A pair has only one other, which has said that it
     * does not, and drops them. */
    *is_over = status != AG_OK && !r.is_refused;
    return status;
}

/* ---- the table ---- */

static ag_status zmq_block_new(transport *t, size_t part_bytes, block_form form, int64_t deadline_ns, shared_block *out) {
    (void)deadline_ns;
    shared_block block = {.part_bytes = (part_bytes + 4095) / 4096 * 4096,
                          .rank = t->rank,
                          .size = t->size,
                          .world_ranks = t->world_ranks,
                          .form = form,
                          .owner = t};
    if (form == BLOCK_COMMON) { /* shared with nobody */
        block.rank = 0;
        block.size = 1;
        if (block.world_ranks) block.world_ranks += t->rank;
    }
    block.base = memory_alloc(shared_block_bytes(&block));
    if (!block.base) return error_memory("shared_tensor", shared_block_bytes(&block));
    memset(block.base, 0, shared_block_bytes(&block));
    *out = block;
    return AG_OK;
}

static void zmq_block_free(transport *t, shared_block *block) {
    (void)t;
    if (block->base) memory_free(block->base, shared_block_bytes(block));
    *block = (shared_block){0};
}

static void zmq_wake(transport *t) { hub_wake(((zmq_transport *)t)->hub); }

static void zmq_stats(const transport *base, transport_stats *out) {
    const zmq_transport *t = (const zmq_transport *)base;
    *out = t->stats;
    pthread_mutex_lock(&t->hub->mutex);
    out->num_rejected = t->hub->num_rejected + socket_num_rejected(t->hub->router);
    pthread_mutex_unlock(&t->hub->mutex);
}

static void free_queue(hub_queue *queue) {
    for (hub_arrival *a = queue->first, *next; a; a = next) {
        next = a->next;
        hub_arrival_free(a);
    }
    *queue = (hub_queue){0};
}

static void zmq_free(transport *base) {
    zmq_transport *t = (zmq_transport *)base;
    free_queue(&t->arrived);
    for (int i = 0; i < HUB_NUM_CHANNELS; i++) free_queue(&t->waiting[i]);
    hub_box_close(t->hub, t->box);
    heap_free(t);
}

#define ZMQ_OPS(NAME)                                                                                             \
    {                                                                                                             \
        .name = NAME, .run = zmq_run, .block_new = zmq_block_new, .block_free = zmq_block_free, .wake = zmq_wake, \
        .stats = zmq_stats, .free = zmq_free                                                                      \
    }

static const transport_ops tcp_ops = ZMQ_OPS("tcp"), ipc_ops = ZMQ_OPS("ipc");

/* Measured over the loopback interface on two cores; all ranks must have the same. */
static const collective_cost loopback_cost = {
    .alpha_s = 60e-6, .beta_s_per_byte = 1 / 1.2e9, .gamma_s_per_byte = 1e-10, .overhead_s = 15e-6, .congestion = 1.2};

ag_status zmq_transport_new(zmq_hub *hub, uint32_t group, int rank, int size, const int32_t *world_ranks, const char *name,
                            transport **out) {
    zmq_transport *t = heap_alloc_zero(sizeof *t + (size_t)size * sizeof *t->peers);
    if (!t) return error_memory("join", sizeof *t);
    const transport_ops *ops = strcmp(name, "ipc") == 0 ? &ipc_ops : &tcp_ops;
    t->base = (transport){
        .ops = ops, .rank = rank, .size = size, .world_ranks = world_ranks, .cancel = hub->cancel, .cost = loopback_cost};
    t->hub = hub;
    ag_status status = hub_box_open(hub, group, rank, &t->box);
    if (status != AG_OK)
        heap_free(t);
    else
        *out = &t->base;
    return status;
}
