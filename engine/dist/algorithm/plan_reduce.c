/* plan_reduce.c: all_reduce and reduce_scatter by ring or directly, and reduce by a binomial tree. */
#include "dist/algorithm/plan.h"

/* accumulator = value op other, or other op value, with the value from a peer. */
static int32_t plan_combine(collective *c, int peer, uint32_t step, ag_dtype wire, int other, bool value_first, int64_t offset,
                            int64_t length, int32_t after) {
    return plan_add(c, (transfer){.action = TRANSFER_REDUCE, .wire = wire, .buffer = BUFFER_ACCUMULATOR, .peer = peer,
                                  .other = other, .value_first = value_first, .step = step, .offset = offset,
                                  .length = length, .after = after});
}

/* Chunk k starts at rank k + 1 and goes around to rank k, each rank adding its own on the right; returns the row after which
 * the own chunk is in the work buffer. */
static int32_t plan_reduce_ring(collective *c) {
    const collective_call *call = &c->call;
    int size = call->size, right = (call->rank + 1) % size, left = (call->rank + size - 1) % size;
    int32_t last = NO_ROW;
    for (int step = 0; step < size - 1; step++) {
        int sent = (call->rank + 2 * size - 1 - step) % size, received = (call->rank + 2 * size - 2 - step) % size;
        int source = step == 0 ? BUFFER_INPUT : BUFFER_ACCUMULATOR;
        int64_t begin = chunk_offset(call->count, size, sent), end = chunk_offset(call->count, size, sent + 1);
        plan_send(c, right, (uint32_t)step, source, begin, end - begin, last);
        begin = chunk_offset(call->count, size, received), end = chunk_offset(call->count, size, received + 1);
        last = plan_combine(c, left, (uint32_t)step, c->buffers[source].dtype, BUFFER_INPUT, true, begin, end - begin, NO_ROW);
    }
    int64_t begin = chunk_offset(call->count, size, call->rank), end = chunk_offset(call->count, size, call->rank + 1);
    return plan_finish(c, begin, end - begin, last);
}

/* Each rank gets all runs of its chunk and adds them in rank order, in the accumulator. */
static int32_t plan_reduce_direct(collective *c) {
    const collective_call *call = &c->call;
    int size = call->size, rank = call->rank;
    for (int distance = 1; distance < size; distance++) {
        int peer = (rank + distance) % size;
        int64_t begin = chunk_offset(call->count, size, peer);
        plan_send(c, peer, 0, BUFFER_INPUT, begin, chunk_offset(call->count, size, peer + 1) - begin, NO_ROW);
    }
    int64_t own = chunk_offset(call->count, size, rank), length = chunk_offset(call->count, size, rank + 1) - own;
    int32_t last = NO_ROW;
    for (int peer = 0; peer < size; peer++)
        last = plan_add(c, (transfer){.action = peer == 0 ? TRANSFER_STORE : TRANSFER_REDUCE, .wire = call->dtype,
                                      .buffer = BUFFER_ACCUMULATOR, .source = BUFFER_INPUT, .other = BUFFER_ACCUMULATOR,
                                      .peer = peer == rank ? NO_PEER : peer, .step = 0, .offset = own,
                                      .source_offset = own, .length = length, .after = last});
    return plan_finish(c, own, length, last);
}

void plan_all_reduce(collective *c) {
    if (c->call.size == 1) {
        plan_own(c, 0, 0, c->call.count);
    } else if (c->call.algorithm == ALGORITHM_DIRECT) {
        plan_all_gather_direct(c, BUFFER_WORK, 1, plan_reduce_direct(c));
    } else {
        plan_all_gather_ring(c, BUFFER_WORK, (uint32_t)c->call.size, plan_reduce_ring(c));
    }
}

void plan_reduce_scatter(collective *c) {
    if (c->call.size == 1) plan_own(c, 0, 0, c->call.count);
    else if (c->call.algorithm == ALGORITHM_DIRECT) plan_reduce_direct(c);
    else plan_reduce_ring(c);
}

/* The place p in the tree counts from the root; its children p + 1, p + 2, p + 4 ... bring runs of places that follow one
 * another, and are added in that order. */
void plan_reduce(collective *c) {
    const collective_call *call = &c->call;
    int size = call->size, place = (call->rank - call->root + size) % size;
    if (size == 1) {
        plan_own(c, 0, 0, call->count);
        return;
    }
    int32_t last = NO_ROW;
    int buffer = BUFFER_INPUT;
    int distance = 1;
    for (; distance < size && (place & distance) == 0; distance *= 2) {
        if (distance >= size - place) continue;
        /* A child sends its input when it has no children itself: an odd place, or the last one. */
        int child = place + distance;
        bool is_leaf = (child & 1) != 0 || child == size - 1;
        ag_dtype wire = is_leaf ? call->dtype : accumulator_dtype(call->dtype);
        last = plan_combine(c, (call->rank + distance) % size, 0, wire, buffer, false, 0, call->count, last);
        buffer = BUFFER_ACCUMULATOR;
    }
    if (place == 0) plan_finish(c, 0, call->count, last);
    else plan_send(c, (call->root + (place & (place - 1))) % size, 0, buffer, 0, call->count, last);
}
