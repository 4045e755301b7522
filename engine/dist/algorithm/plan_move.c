/* plan_move.c: the collectives that only move elements: broadcast, gathers, scatter, all_to_all, send, receive, barrier. */
#include "dist/algorithm/plan.h"

/* Where the run of rank `index` begins in the coordinates of the call. */
static int64_t part_offset(const collective_call *call, int index) {
    if (call->kind == COLLECTIVE_ALL_REDUCE) return chunk_offset(call->count, call->size, index);
    return block_offset(call->counts, call->count, index);
}

void plan_all_gather_ring(collective *c, int own_buffer, uint32_t first_step, int32_t after) {
    const collective_call *call = &c->call;
    int size = call->size, right = (call->rank + 1) % size, left = (call->rank + size - 1) % size;
    int32_t last = after;
    for (int step = 0; step < size - 1; step++) {
        int sent = (call->rank + size - step) % size, received = (call->rank + 2 * size - 1 - step) % size;
        int64_t begin = part_offset(call, sent), end = part_offset(call, sent + 1);
        plan_send(c, right, first_step + (uint32_t)step, step == 0 ? own_buffer : BUFFER_WORK, begin, end - begin, last);
        begin = part_offset(call, received), end = part_offset(call, received + 1);
        last = plan_store(c, left, first_step + (uint32_t)step, begin, end - begin, NO_ROW);
    }
}

void plan_all_gather_direct(collective *c, int own_buffer, uint32_t step, int32_t after) {
    const collective_call *call = &c->call;
    int size = call->size;
    int64_t own = part_offset(call, call->rank), own_length = part_offset(call, call->rank + 1) - own;
    for (int distance = 1; distance < size; distance++)
        plan_send(c, (call->rank + distance) % size, step, own_buffer, own, own_length, after);
    for (int distance = 1; distance < size; distance++) {
        int peer = (call->rank + size - distance) % size;
        int64_t begin = part_offset(call, peer);
        plan_store(c, peer, step, begin, part_offset(call, peer + 1) - begin, NO_ROW);
    }
}

void plan_all_gather(collective *c) {
    const collective_call *call = &c->call;
    int64_t own = part_offset(call, call->rank);
    plan_own(c, own, own, part_offset(call, call->rank + 1) - own);
    if (call->algorithm == ALGORITHM_DIRECT) plan_all_gather_direct(c, BUFFER_INPUT, 0, NO_ROW);
    else plan_all_gather_ring(c, BUFFER_INPUT, 0, NO_ROW);
}

void plan_broadcast(collective *c) {
    const collective_call *call = &c->call;
    int size = call->size, place = (call->rank - call->root + size) % size;
    bool is_chain = call->algorithm == ALGORITHM_CHAIN;
    int buffer = BUFFER_WORK;
    int32_t last = NO_ROW;
    if (place == 0) {
        buffer = BUFFER_INPUT;
        if (call->output) plan_own(c, 0, 0, call->count);
    } else {
        int parent = is_chain ? place - 1 : place & (place - 1);
        last = plan_store(c, (parent + call->root) % size, 0, 0, call->count, NO_ROW);
    }
    if (is_chain) {
        if (place + 1 < size) plan_send(c, (call->rank + 1) % size, 0, buffer, 0, call->count, last);
        return;
    }
    /* The children of place p are p + d for the powers d below p's lowest bit. The one with most below it comes first. */
    int distance = 1;
    while (distance < size && (place & distance) == 0) distance *= 2;
    for (distance /= 2; distance > 0; distance /= 2)
        if (distance < size - place) plan_send(c, (call->rank + distance) % size, 0, buffer, 0, call->count, last);
}

void plan_gather(collective *c) {
    const collective_call *call = &c->call;
    int64_t own = part_offset(call, call->rank), length = part_offset(call, call->rank + 1) - own;
    if (call->rank != call->root) {
        plan_send(c, call->root, 0, BUFFER_INPUT, own, length, NO_ROW);
        return;
    }
    plan_own(c, own, own, length);
    for (int peer = 0; peer < call->size; peer++) {
        int64_t begin = part_offset(call, peer);
        if (peer != call->rank) plan_store(c, peer, 0, begin, part_offset(call, peer + 1) - begin, NO_ROW);
    }
}

void plan_scatter(collective *c) {
    const collective_call *call = &c->call;
    int64_t own = part_offset(call, call->rank), length = part_offset(call, call->rank + 1) - own;
    if (call->rank != call->root) {
        plan_store(c, call->root, 0, own, length, NO_ROW);
        return;
    }
    plan_own(c, own, own, length);
    for (int peer = 0; peer < call->size; peer++) {
        int64_t begin = part_offset(call, peer);
        if (peer != call->rank) plan_send(c, peer, 0, BUFFER_INPUT, begin, part_offset(call, peer + 1) - begin, NO_ROW);
    }
}

void plan_all_to_all(collective *c) {
    const collective_call *call = &c->call;
    const int64_t *sent = call->counts, *received = call->counts ? call->output_counts : NULL;
    int size = call->size;
    for (int distance = 0; distance < size; distance++) {
        int to = (call->rank + distance) % size, from = (call->rank + size - distance) % size;
        int64_t begin = block_offset(sent, call->count, to), length = block_offset(sent, call->count, to + 1) - begin;
        int64_t target = block_offset(received, call->count, from);
        if (distance == 0) {
            plan_own(c, target, begin, length);
            continue;
        }
        plan_send(c, to, 0, BUFFER_INPUT, begin, length, NO_ROW);
        plan_store(c, from, 0, target, block_offset(received, call->count, from + 1) - target, NO_ROW);
    }
}

void plan_point_to_point(collective *c) {
    if (c->call.kind == COLLECTIVE_SEND) plan_send(c, c->call.root, 0, BUFFER_INPUT, 0, c->call.count, NO_ROW);
    else plan_store(c, c->call.root, 0, 0, c->call.count, NO_ROW);
}

/* Hensgen, Finkel, Manber 1988: in round k a token goes 2^k ranks on; whoever has all of them has heard of every rank. */
void plan_barrier(collective *c) {
    int rank = c->call.rank, size = c->call.size;
    int32_t last = NO_ROW;
    uint32_t round = 0;
    for (int64_t distance = 1; distance < size; distance *= 2, round++) {
        int to = (int)((rank + distance) % size), from = (int)((rank + size - distance) % size);
        plan_add(c, (transfer){.action = TRANSFER_SEND, .wire = AG_U8, .buffer = BUFFER_WORK, .peer = to, .step = round,
                               .offset = 0, .length = 1, .after = last, .after_whole = true});
        last = plan_store(c, from, round, 1, 1, last);
    }
}
