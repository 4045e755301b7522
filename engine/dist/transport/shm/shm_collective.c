/* shm_collective.c: the collectives that only move elements. Each round carries one window of every run through the slots.
 *
 * What goes in before a round is read after it: one wait a window. Where results would be written over input that is still
 * needed, or that a failure must leave as it was, they are kept aside until the last round is through; a call of one window
 * needs no such room, for its input lies in the slots by then.
 */
#include <string.h>

#include "core/dtype.h"
#include "core/error.h"
#include "core/memory.h"
#include "dist/transport/shm/shm.h"
#include "dist/transport/shm/shm_copy.h"

/* moves is a call in bytes. */
typedef struct moves {
    shm_call *call;
    int rank, size;
    int64_t element;
    const char *input;
    char *output, *target; /* target: the output, or room aside */
    int64_t input_bytes, output_bytes;
    int64_t window, num_windows; /* bytes of one run in a window */
    bool is_in_place;            /* the own run lies where it has to: it is not copied */
} moves;

static int64_t sum(const int64_t *counts, int64_t count, int num) {
    if (!counts) return count * num;
    int64_t total = 0;
    for (int i = 0; i < num; i++) total += counts[i];
    return total;
}

static int64_t largest(const int64_t *counts, int64_t count, int num) {
    if (!counts) return count;
    int64_t most = 0;
    for (int i = 0; i < num; i++)
        if (counts[i] > most) most = counts[i];
    return most;
}

/* The part of a run of `run_bytes` that goes in window `index`. */
static int64_t window_bytes(const moves *m, int64_t run_bytes, int64_t index) {
    int64_t left = run_bytes - index * m->window;
    return left < 0 ? 0 : left < m->window ? left : m->window;
}

static char *slot(const moves *m, int rank, uint64_t round) { return arena_slot(m->call->s->arena->header, rank, round); }

static void moved(const moves *m, int rank, int64_t num_bytes) {
    if (rank != m->rank) m->call->s->stats.bytes_moved += num_bytes;
}

/* Sets the number of windows for runs of up to longest_run bytes, and room aside where it is needed. */
static ag_status prepare(moves *m, int64_t slot_part, int64_t longest_run) {
    m->window = slot_part / m->element * m->element;
    /* A call without elements meets once, too: prints are compared. */
    m->num_windows = longest_run > 0 ? (longest_run + m->window - 1) / m->window : 1;
    m->target = m->output;
    bool overlaps = ranges_overlap(m->input, m->input_bytes, m->output, m->output_bytes);
    if (!overlaps || m->is_in_place || m->num_windows == 1) return AG_OK;
    m->target = memory_alloc((size_t)m->output_bytes);
    return m->target ? AG_OK : error_memory(collective_kind_name(m->call->request->call.kind), (size_t)m->output_bytes);
}

static ag_status finish(moves *m, ag_status status) {
    if (m->target == m->output || !m->target) return status;
    if (status == AG_OK) shm_copy(m->output, m->target, (size_t)m->output_bytes);
    memory_free(m->target, (size_t)m->output_bytes);
    return status;
}

/* all_gather and gather: run `rank` goes through the slot of that rank. */
static ag_status gather(moves *m, bool has_output) {
    const collective_call *call = &m->call->request->call;
    int64_t own_at = sum(call->counts, call->count, m->rank) * m->element;
    m->input_bytes = sum(call->counts, call->count, m->rank + 1) * m->element - own_at;
    m->output_bytes = has_output ? sum(call->counts, call->count, m->size) * m->element : 0;
    m->is_in_place = has_output && m->input == m->output + own_at;
    AG_TRY(
        prepare(m, (int64_t)m->call->s->arena->header->slot_bytes, largest(call->counts, call->count, m->size) * m->element));
    ag_status status = AG_OK;
    for (int64_t i = 0; i < m->num_windows && status == AG_OK; i++) {
        uint64_t round = m->call->s->round;
        int64_t begin = i * m->window, length = window_bytes(m, m->input_bytes, i);
        if (length > 0) shm_copy(slot(m, m->rank, round), m->input + begin, (size_t)length);
        status = shm_meet(m->call);
        if (status != AG_OK || !has_output) continue;
        int64_t at = 0;
        for (int rank = 0; rank < m->size; rank++) {
            int64_t run = (call->counts ? call->counts[rank] : call->count) * m->element;
            length = window_bytes(m, run, i);
            if (length > 0 && !(rank == m->rank && m->is_in_place)) {
                shm_copy(m->target + at + begin, slot(m, rank, round), (size_t)length);
                moved(m, rank, length);
            }
            at += run;
        }
    }
    return finish(m, status);
}

static ag_status broadcast(moves *m) {
    const collective_call *call = &m->call->request->call;
    bool is_root = m->rank == call->root;
    int64_t num_bytes = call->count * m->element;
    AG_TRY(prepare(m, (int64_t)m->call->s->arena->header->slot_bytes, num_bytes));
    ag_status status = AG_OK;
    for (int64_t i = 0; i < m->num_windows && status == AG_OK; i++) {
        uint64_t round = m->call->s->round;
        int64_t begin = i * m->window, length = window_bytes(m, num_bytes, i);
        if (is_root && length > 0) shm_copy(slot(m, m->rank, round), m->input + begin, (size_t)length);
        status = shm_meet(m->call);
        if (status != AG_OK || is_root || length == 0) continue;
        shm_copy(m->output + begin, slot(m, call->root, round), (size_t)length);
        moved(m, call->root, length);
    }
    if (status == AG_OK && is_root && m->output && m->output != m->input && num_bytes > 0)
        memmove(m->output, m->input, (size_t)num_bytes);
    return status;
}

/* The run for rank i goes through the slot of rank i; only the root writes. */
static ag_status scatter(moves *m) {
    const collective_call *call = &m->call->request->call;
    bool is_root = m->rank == call->root;
    int64_t own_at = sum(call->counts, call->count, m->rank) * m->element;
    m->output_bytes = sum(call->counts, call->count, m->rank + 1) * m->element - own_at;
    m->input_bytes = is_root ? sum(call->counts, call->count, m->size) * m->element : 0;
    m->is_in_place = is_root && m->output == m->input + own_at;
    AG_TRY(
        prepare(m, (int64_t)m->call->s->arena->header->slot_bytes, largest(call->counts, call->count, m->size) * m->element));
    ag_status status = AG_OK;
    for (int64_t i = 0; i < m->num_windows && status == AG_OK; i++) {
        uint64_t round = m->call->s->round;
        int64_t begin = i * m->window, at = 0, length;
        for (int rank = 0; is_root && rank < m->size; rank++) {
            int64_t run = (call->counts ? call->counts[rank] : call->count) * m->element;
            length = window_bytes(m, run, i);
            if (length > 0) shm_copy(slot(m, rank, round), m->input + at + begin, (size_t)length);
            at += run;
        }
        status = shm_meet(m->call);
        length = window_bytes(m, m->output_bytes, i);
        if (status != AG_OK || length == 0 || m->is_in_place) continue;
        shm_copy(m->target + begin, slot(m, m->rank, round), (size_t)length);
        moved(m, call->root, length);
    }
    return finish(m, status);
}

/* A round of its own, in which each rank tells what it sends and expects: [size] and [size] counts. *longest: of all runs. */
static ag_status exchange_counts(moves *m, int64_t *longest) {
    const collective_call *call = &m->call->request->call;
    uint64_t round = m->call->s->round;
    int64_t *own = (int64_t *)slot(m, m->rank, round);
    size_t half = (size_t)m->size * sizeof *own;
    /* A slot has 64 bytes for each rank: 16 of them are taken here. */
    memcpy(own, call->counts, half);
    memcpy(own + m->size, call->output_counts, half);
    AG_TRY(shm_meet(m->call));
    *longest = 0;
    for (int from = 0; from < m->size; from++)
        for (int to = 0; to < m->size; to++) {
            int64_t sent = ((const int64_t *)slot(m, from, round))[to];
            int64_t expected = ((const int64_t *)slot(m, to, round))[m->size + from];
            if (sent > *longest) *longest = sent;
            if (sent == expected) continue;
            const int32_t *world = m->call->s->base.world_ranks;
            int32_t culprits[2] = {world ? world[from] : from, world ? world[to] : to};
            m->call->is_over = false; /* all ranks see it in the same round */
            error_set(AG_E_MISMATCH, "all_to_all", "counts", NULL,
                      "counts of the sender and output_counts of the receiver must agree",
                      "rank %d sends %lld elements to rank %d, which expects %lld", (int)culprits[0], (long long)sent,
                      (int)culprits[1], (long long)expected);
            error_set_culprits(culprits, 2, call->sequence);
            return AG_E_MISMATCH;
        }
    return AG_OK;
}

/* The slot of each rank has a part for every receiver. */
static ag_status all_to_all(moves *m) {
    const collective_call *call = &m->call->request->call;
    const int64_t *outgoing = call->counts, *incoming = call->counts ? call->output_counts : NULL;
    m->input_bytes = sum(outgoing, call->count, m->size) * m->element;
    m->output_bytes = sum(incoming, call->count, m->size) * m->element;
    int64_t longest = call->count;
    if (outgoing) AG_TRY(exchange_counts(m, &longest));
    int64_t part = (int64_t)m->call->s->arena->header->slot_bytes / m->size / 8 * 8;
    AG_TRY(prepare(m, part, longest * m->element));
    ag_status status = AG_OK;
    for (int64_t i = 0; i < m->num_windows && status == AG_OK; i++) {
        uint64_t round = m->call->s->round;
        int64_t begin = i * m->window, at = 0;
        for (int to = 0; to < m->size; to++) {
            int64_t run = (outgoing ? outgoing[to] : call->count) * m->element, length = window_bytes(m, run, i);
            if (length > 0) shm_copy(slot(m, m->rank, round) + to * part, m->input + at + begin, (size_t)length);
            at += run;
        }
        status = shm_meet(m->call);
        at = 0;
        for (int from = 0; from < m->size && status == AG_OK; from++) {
            int64_t run = (incoming ? incoming[from] : call->count) * m->element, length = window_bytes(m, run, i);
            if (length > 0) {
                shm_copy(m->target + at + begin, slot(m, from, round) + m->rank * part, (size_t)length);
                moved(m, from, length);
            }
            at += run;
        }
    }
    return finish(m, status);
}

ag_status shm_collective(shm_call *c) {
    const collective_call *call = &c->request->call;
    moves m = {.call = c,
               .rank = c->s->base.rank,
               .size = c->s->base.size,
               .element = (int64_t)dtype_size(call->dtype),
               .input = call->input,
               .output = call->output};
    switch (call->kind) {
    case COLLECTIVE_ALL_GATHER: return gather(&m, true);
    case COLLECTIVE_GATHER: return gather(&m, m.rank == call->root);
    case COLLECTIVE_BROADCAST: return broadcast(&m);
    case COLLECTIVE_SCATTER: return scatter(&m);
    case COLLECTIVE_ALL_TO_ALL: return all_to_all(&m);
    case COLLECTIVE_BARRIER: return shm_meet(c);
    default: return shm_reduction(c);
    }
}
