/* collective.c: driving a plan: what may leave, what may be taken, local work, the end and failure. */
#include "dist/algorithm/collective.h"

#include <assert.h>
#include <string.h>

#include "core/dtype.h"
#include "core/error.h"
#include "core/memory.h"
#include "dist/algorithm/plan.h"
#include "dist/algorithm/reduce.h"

static char *element(const collective *c, int buffer, int64_t offset) {
    const collective_buffer *b = &c->buffers[buffer];
    return b->data + (offset - b->origin) * (int64_t)dtype_size(b->dtype);
}

/* The number of elements of the row, from its front, for which what it waits for has come. */
static int64_t ready_length(const collective *c, const transfer *t) {
    if (t->after == NO_ROW) return t->length;
    const transfer *before = &c->transfers[t->after];
    if (before->done == before->length) return t->length;
    if (t->after_whole) return 0;
    int64_t ready = before->offset + before->done - t->offset;
    return ready < 0 ? 0 : ready < t->length ? ready : t->length;
}

/* Does the row's work for `length` elements from its `done`; value: those elements in the wire dtype. */
static void apply(collective *c, transfer *t, const void *value, int64_t length) {
    const collective_call *call = &c->call;
    int64_t offset = t->offset + t->done;
    char *target = element(c, t->buffer, offset);
    ag_dtype target_dtype = c->buffers[t->buffer].dtype;
    switch (t->action) {
    case TRANSFER_STORE:
        if (target_dtype == t->wire) memmove(target, value, (size_t)length * dtype_size(t->wire));
        else reduce_widen(target, value, t->wire, length);
        break;
    case TRANSFER_REDUCE: {
        const char *other = element(c, t->other, offset);
        ag_dtype other_dtype = c->buffers[t->other].dtype;
        if (t->value_first) reduce_elements(call->op, call->dtype, target, value, t->wire, other, other_dtype, length);
        else reduce_elements(call->op, call->dtype, target, other, other_dtype, value, t->wire, length);
        break;
    }
    case TRANSFER_FINISH:
        reduce_finish(call->dtype, target, value, call->op == REDUCE_MEAN ? call->size : 1, length);
        break;
    case TRANSFER_SEND: break;
    }
}

/* Counts `length` elements of the row as done, and moves the list of its peer on when it is complete. */
static void advance(collective *c, transfer *t, int64_t length) {
    t->done += length;
    if (t->done < t->length) return;
    c->num_open--;
    if (t->peer == NO_PEER) return;
    if (t->action == TRANSFER_SEND) c->send_head[t->peer] = t->next;
    else c->receive_head[t->peer] = t->next;
}

static void complete_if_done(collective *c) {
    if (c->state != COLLECTIVE_RUNNING || c->num_open > 0 || c->num_out > 0) return;
    /* Only now: sends read the input, which the output may overlap. */
    if (c->work && c->output_length > 0)
        memcpy(c->call.output, c->work, (size_t)c->output_length * dtype_size(c->call.dtype));
    c->state = COLLECTIVE_DONE;
}

/* Rows wait for lower ones only, so one pass does all local work that is possible. */
static void work_locally(collective *c) {
    for (int32_t row = c->next_local; row < c->num_transfers; row++) {
        transfer *t = &c->transfers[row];
        if (t->peer != NO_PEER || t->done == t->length) continue;
        int64_t length = ready_length(c, t) - t->done;
        if (length <= 0) continue;
        apply(c, t, element(c, t->source, t->source_offset + t->done), length);
        advance(c, t, length);
    }
    while (c->next_local < c->num_transfers) {
        const transfer *t = &c->transfers[c->next_local];
        if (t->peer == NO_PEER && t->done < t->length) break;
        c->next_local++;
    }
    complete_if_done(c);
}

void collective_start(collective *c) {
    c->state = COLLECTIVE_RUNNING;
    c->culprit = -1;
    work_locally(c);
}

static bool next_send_to(collective *c, int peer, segment *out) {
    int32_t row = c->send_head[peer];
    if (row == NO_ROW) return false;
    transfer *t = &c->transfers[row];
    size_t size = dtype_size(t->wire);
    int64_t length = ready_length(c, t) - t->done, longest = (int64_t)(c->call.segment_bytes / size);
    if (length <= 0) return false;
    if (longest < 1) longest = 1;
    if (length > longest) length = longest;
    *out = (segment){.sequence = c->call.sequence, .step = t->step, .peer = peer, .offset = t->done, .length = length,
                     .data = element(c, t->buffer, t->offset + t->done), .size_bytes = (size_t)length * size};
    c->num_out++;
    advance(c, t, length);
    return true;
}

bool collective_next_send(collective *c, int peer, segment *out) {
    if (c->state != COLLECTIVE_RUNNING) return false;
    if (peer != ANY_PEER) return next_send_to(c, peer, out);
    for (int i = 0; i < c->call.size; i++) {
        int candidate = c->next_peer;
        c->next_peer = (c->next_peer + 1) % c->call.size;
        if (next_send_to(c, candidate, out)) return true;
    }
    return false;
}

void collective_sent(collective *c) {
    assert(c->num_out > 0);
    c->num_out--;
    complete_if_done(c);
}

bool collective_next_receive(const collective *c, int peer, segment *out) {
    if (c->state != COLLECTIVE_RUNNING || c->receive_head[peer] == NO_ROW) return false;
    const transfer *t = &c->transfers[c->receive_head[peer]];
    int64_t length = ready_length(c, t) - t->done;
    if (length < 0) length = 0;
    *out = (segment){.sequence = c->call.sequence, .step = t->step, .peer = peer, .offset = t->done, .length = length,
                     .size_bytes = (size_t)length * dtype_size(t->wire)};
    return true;
}

/* The open row that the segment belongs to; NULL when the plan has none, or none at that place. */
static transfer *find_receive(const collective *c, const segment *arrived) {
    if (arrived->sequence != c->call.sequence || arrived->peer < 0 || arrived->peer >= c->call.size) return NULL;
    int32_t row = c->receive_head[arrived->peer];
    while (row != NO_ROW && c->transfers[row].step != arrived->step) row = c->transfers[row].next;
    if (row == NO_ROW) return NULL;
    transfer *t = &c->transfers[row];
    bool fits = arrived->length > 0 && arrived->offset >= t->done && arrived->offset <= t->length
        && arrived->length <= t->length - arrived->offset
        && arrived->size_bytes / dtype_size(t->wire) == (size_t)arrived->length
        && arrived->size_bytes % dtype_size(t->wire) == 0;
    return fits ? t : NULL;
}

ag_status collective_offer(collective *c, const segment *arrived, bool *taken) {
    *taken = false;
    if (c->state == COLLECTIVE_FAILED)
        return error_set(AG_E_STATE, collective_kind_name(c->call.kind), NULL, NULL, NULL, "rank %d is lost", c->culprit);
    transfer *t = c->state == COLLECTIVE_RUNNING ? find_receive(c, arrived) : NULL;
    if (!t)
        return error_set(AG_E_FORMAT, collective_kind_name(c->call.kind), "segment", "a segment of this call", NULL,
                         "%lld elements at %lld of step %u from rank %d", (long long)arrived->length,
                         (long long)arrived->offset, arrived->step, arrived->peer);
    bool is_first = t == &c->transfers[c->receive_head[arrived->peer]];
    if (!is_first || arrived->offset != t->done || ready_length(c, t) < arrived->offset + arrived->length) return AG_OK;
    apply(c, t, arrived->data, arrived->length);
    advance(c, t, arrived->length);
    *taken = true;
    work_locally(c);
    return AG_OK;
}

ag_status collective_fail(collective *c, int culprit, const char *reason) {
    if (c->state == COLLECTIVE_DONE) return AG_OK;
    c->state = COLLECTIVE_FAILED;
    c->culprit = culprit;
    return error_set(AG_E_STATE, collective_kind_name(c->call.kind), NULL, NULL, "the input is unchanged", "rank %d %s",
                     culprit, reason);
}

void collective_deinit(collective *c) {
    memory_free(c->work, c->work_bytes);
    memory_free(c->accumulator, c->accumulator_bytes);
    heap_free(c->transfers);
    heap_free(c->send_head);
    memset(c, 0, sizeof *c);
}
