/* plan.c: the parts that all planners share, and which planner serves which call. */
#include "dist/algorithm/plan.h"

#include <assert.h>

#include "core/dtype.h"

int64_t chunk_offset(int64_t count, int num_chunks, int index) {
    int64_t length = count / num_chunks, num_longer = count % num_chunks;
    return length * index + (index < num_longer ? index : num_longer);
}

int64_t block_offset(const int64_t *counts, int64_t count, int index) {
    if (!counts) return count * index;
    int64_t offset = 0;
    for (int i = 0; i < index; i++) offset += counts[i];
    return offset;
}

ag_dtype accumulator_dtype(ag_dtype dtype) { return dtype_is_half(dtype) ? AG_F32 : dtype; }

int64_t plan_room(const collective_call *call) {
    int num_rounds = 1;
    for (int64_t distance = 1; distance < call->size; distance *= 2) num_rounds++;
    return 4 * (int64_t)call->size + 4 * num_rounds + 8;
}

int32_t plan_add(collective *c, transfer row) {
    if (row.length == 0) return row.after;
    assert(row.length > 0 && c->num_transfers < c->max_transfers && row.after < c->num_transfers);
    int32_t number = c->num_transfers++;
    row.done = 0;
    row.next = NO_ROW;
    c->transfers[number] = row;
    c->num_open++;
    return number;
}

int32_t plan_send(collective *c, int peer, uint32_t step, int buffer, int64_t offset, int64_t length, int32_t after) {
    return plan_add(c, (transfer){.action = TRANSFER_SEND, .wire = c->buffers[buffer].dtype, .buffer = buffer, .peer = peer,
                                  .step = step, .offset = offset, .length = length, .after = after});
}

int32_t plan_store(collective *c, int peer, uint32_t step, int64_t offset, int64_t length, int32_t after) {
    return plan_add(c, (transfer){.action = TRANSFER_STORE, .wire = c->call.dtype, .buffer = BUFFER_WORK, .peer = peer,
                                  .step = step, .offset = offset, .length = length, .after = after, .after_whole = true});
}

static const char *address(const collective *c, int buffer, int64_t offset) {
    const collective_buffer *b = &c->buffers[buffer];
    return b->data ? b->data + (offset - b->origin) * (int64_t)dtype_size(b->dtype) : NULL;
}

int32_t plan_own(collective *c, int64_t offset, int64_t source_offset, int64_t length) {
    if (address(c, BUFFER_WORK, offset) == address(c, BUFFER_INPUT, source_offset)) return NO_ROW;
    return plan_add(c, (transfer){.action = TRANSFER_STORE, .wire = c->call.dtype, .buffer = BUFFER_WORK, .peer = NO_PEER,
                                  .source = BUFFER_INPUT, .offset = offset, .source_offset = source_offset, .length = length,
                                  .after = NO_ROW});
}

int32_t plan_finish(collective *c, int64_t offset, int64_t length, int32_t after) {
    bool is_in_place = address(c, BUFFER_WORK, offset) == address(c, BUFFER_ACCUMULATOR, offset);
    if (is_in_place && c->call.op != REDUCE_MEAN) return after;
    return plan_add(c, (transfer){.action = TRANSFER_FINISH, .wire = c->buffers[BUFFER_ACCUMULATOR].dtype,
                                  .buffer = BUFFER_WORK, .source = BUFFER_ACCUMULATOR, .peer = NO_PEER, .offset = offset,
                                  .source_offset = offset, .length = length, .after = after});
}

static void make_rows(collective *c) {
    const collective_call *call = &c->call;
    switch (call->kind) {
    case COLLECTIVE_ALL_REDUCE:
        if (call->algorithm == ALGORITHM_HALVING && call->size > 1) plan_halving(c);
        else plan_all_reduce(c);
        return;
    case COLLECTIVE_REDUCE: plan_reduce(c); return;
    case COLLECTIVE_BROADCAST: plan_broadcast(c); return;
    case COLLECTIVE_ALL_GATHER: plan_all_gather(c); return;
    case COLLECTIVE_REDUCE_SCATTER: plan_reduce_scatter(c); return;
    case COLLECTIVE_GATHER: plan_gather(c); return;
    case COLLECTIVE_SCATTER: plan_scatter(c); return;
    case COLLECTIVE_ALL_TO_ALL: plan_all_to_all(c); return;
    case COLLECTIVE_SEND:
    case COLLECTIVE_RECEIVE: plan_point_to_point(c); return;
    case COLLECTIVE_BARRIER: plan_barrier(c); return;
    case COLLECTIVE_KIND_COUNT: break;
    }
    assert(!"a kind without a planner");
}

void plan_make(collective *c) {
    make_rows(c);
    for (int peer = 0; peer < c->call.size; peer++) c->send_head[peer] = c->receive_head[peer] = NO_ROW;
    for (int32_t row = c->num_transfers - 1; row >= 0; row--) {
        transfer *t = &c->transfers[row];
        if (t->peer == NO_PEER) continue;
        int32_t *head = t->action == TRANSFER_SEND ? &c->send_head[t->peer] : &c->receive_head[t->peer];
        assert(*head == NO_ROW || t->step < c->transfers[*head].step);
        t->next = *head;
        *head = row;
    }
}
