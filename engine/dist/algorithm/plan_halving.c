/* plan_halving.c: all_reduce by recursive halving and doubling (Rabenseifner 2004), also for sizes that are no power of two.
 *
 * p is the largest power of two up to size. Of the first 2 (size - p) ranks each odd one gives its input to the even one
 * before it, and takes the result from it at the end; the p others have places 0..p-1 in rank order. In round k = 0, 1 ...
 * places that differ in bit k split the run that they share. So every element is the sum over one tree of places:
 * ((0 1) (2 3)) ((4 5) (6 7)), lower places left, whatever chunk it lies in. The way back joins the runs again.
 */
#include "dist/algorithm/plan.h"

typedef struct halving {
    int num_folded; /* pairs of ranks */
    int num_places; /* p */
    int num_rounds; /* log2 p */
    int place;
} halving;

static int rank_of(const halving *h, int place) { return place < h->num_folded ? 2 * place : place + h->num_folded; }

/* The run of chunks that a place holds after num_rounds rounds. */
static void run_of(const collective *c, const halving *h, int place, int num_rounds, int64_t *begin, int64_t *length) {
    int first = 0, width = h->num_places;
    for (int round = 0; round < num_rounds; round++) {
        width /= 2;
        if (place >> round & 1) first += width;
    }
    *begin = chunk_offset(c->call.count, h->num_places, first);
    *length = chunk_offset(c->call.count, h->num_places, first + width) - *begin;
}

static int32_t plan_down(collective *c, const halving *h, int32_t last) {
    bool is_folded = h->place < h->num_folded;
    for (int round = 0; round < h->num_rounds; round++) {
        int partner = h->place ^ 1 << round;
        bool partner_has_input = round == 0 && partner >= h->num_folded;
        int source = round == 0 && !is_folded ? BUFFER_INPUT : BUFFER_ACCUMULATOR;
        uint32_t step = (uint32_t)round + 1;
        int64_t begin, length;
        run_of(c, h, partner, round + 1, &begin, &length);
        plan_send(c, rank_of(h, partner), step, source, begin, length, last);
        run_of(c, h, h->place, round + 1, &begin, &length);
        last = plan_add(c, (transfer){.action = TRANSFER_REDUCE, .buffer = BUFFER_ACCUMULATOR, .other = source,
                                      .wire = partner_has_input ? c->call.dtype : accumulator_dtype(c->call.dtype),
                                      .value_first = partner < h->place, .peer = rank_of(h, partner), .step = step,
                                      .offset = begin, .length = length, .after = last});
    }
    int64_t begin, length;
    run_of(c, h, h->place, h->num_rounds, &begin, &length);
    return plan_finish(c, begin, length, last);
}

static int32_t plan_up(collective *c, const halving *h, int32_t last) {
    for (int round = h->num_rounds - 1; round >= 0; round--) {
        int peer = rank_of(h, h->place ^ 1 << round);
        uint32_t step = (uint32_t)(2 * h->num_rounds - round);
        int64_t begin, length;
        run_of(c, h, h->place, round + 1, &begin, &length);
        int32_t sent = plan_send(c, peer, step, BUFFER_WORK, begin, length, last);
        /* The run was put together by several rows, of which `last` is the last to end. */
        if (sent != last) c->transfers[sent].after_whole = true;
        run_of(c, h, h->place ^ 1 << round, round + 1, &begin, &length);
        last = plan_store(c, peer, step, begin, length, last);
    }
    return last;
}

void plan_halving(collective *c) {
    const collective_call *call = &c->call;
    halving h = {.num_places = 1};
    for (; h.num_places <= call->size / 2; h.num_places *= 2) h.num_rounds++;
    h.num_folded = call->size - h.num_places;
    bool is_in_pair = call->rank < 2 * h.num_folded;
    h.place = is_in_pair ? call->rank / 2 : call->rank - h.num_folded;
    uint32_t last_step = (uint32_t)(2 * h.num_rounds + 1);
    if (is_in_pair && call->rank % 2 == 1) {
        plan_send(c, call->rank - 1, 0, BUFFER_INPUT, 0, call->count, NO_ROW);
        plan_store(c, call->rank - 1, last_step, 0, call->count, NO_ROW);
        return;
    }
    int32_t last = NO_ROW;
    if (is_in_pair)
        last = plan_add(c, (transfer){.action = TRANSFER_REDUCE, .wire = call->dtype, .buffer = BUFFER_ACCUMULATOR,
                                      .other = BUFFER_INPUT, .peer = call->rank + 1, .step = 0, .length = call->count,
                                      .after = NO_ROW});
    last = plan_down(c, &h, last);
    last = plan_up(c, &h, last);
    if (!is_in_pair) return;
    int32_t sent = plan_send(c, call->rank + 1, last_step, BUFFER_WORK, 0, call->count, last);
    if (sent != last) c->transfers[sent].after_whole = true;
}
