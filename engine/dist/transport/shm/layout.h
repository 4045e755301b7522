/* layout.h: what lies where in an arena, and who may touch it when.
 *
 *   header | line of each rank | cell of each ordered pair | slots of each rank | results of each rank
 *
 * Rounds. All ranks go through the same rounds, numbered from 0. A rank arrives at round t by raising its gate to t + 1, then
 * waits until all gates are there. Because a wait for round t + 1 ends only after all ranks have arrived there, and nobody
 * arrives at t + 1 before it is done with what it does between the wait for t and that arrival, two copies of everything do:
 *
 *                           written between               read between                    written again after
 *   note, slot  [t % 2]     wait(t - 1) and arrive(t)     wait(t) and arrive(t + 1)       wait(t + 1)
 *   result      [t % 2]     wait(t) and arrive(t + 1)     wait(t + 1) and arrive(t + 2)   wait(t + 2)
 *
 * The last column lies behind the one before it in both rows: wait(t + 1) needs every arrive(t + 1), wait(t + 2) every
 * arrive(t + 2). So no run of bytes is overwritten while it is read, across calls too, and a round costs one wait. A rank that
 * refuses a call arrives without waiting; it owes that wait and makes up for it before it writes anything else.
 *
 * Pairs. send and receive count events of their ordered pair on two gates, in the same way: a print is one event of both sides,
 * then each chunk is one, in two places in turn. Place e % 2 is written again when the other side is done with what event e - 2
 * left there: a chunk is read before its event is counted, a note before the next event is.
 */
#ifndef ARGAND_DIST_TRANSPORT_SHM_LAYOUT_H
#define ARGAND_DIST_TRANSPORT_SHM_LAYOUT_H

#include <stdatomic.h>

#include "dist/transport/shm/arena.h"
#include "platform/cpu.h"

#define ARENA_MAGIC      0x3141447241676E61u
#define ARENA_LINE_BYTES 128 /* two cache lines: processors fetch them in pairs */
#define REFUSAL_BYTES    204

/* gate: a count that only rises, and a place to sleep until it does. Whoever raises `count` counts `event` up after it and
 * wakes sleepers when there are any. */
typedef struct gate {
    _Alignas(ARENA_LINE_BYTES) _Atomic uint64_t count;
    _Atomic uint32_t event, num_waiting;
} gate;

/* What prints do not tell, but rounds depend on. */
typedef enum call_form {
    FORM_PLAIN,
    FORM_COUNTS,
    FORM_BLOCK,
    FORM_NEW /* + block_form: no call, a block is made; the print's count is its part_bytes */
} call_form;

typedef struct call_note {
    call_print print;
    int32_t form, block; /* block: the number of the one that the call is in */
    int64_t block_offset;
    char refusal[REFUSAL_BYTES];
} call_note;

typedef struct arena_line {
    gate arrived;
    _Atomic uint32_t has_left;
    _Alignas(ARENA_LINE_BYTES) call_note notes[2];
    /* What a rank tells beside its print, while blocks are made: an ag_status, and an address in this process. */
    struct {
        int64_t status;
        uint64_t address;
    } tell[2];
    uint64_t processors[CPU_SET_WORDS]; /* that the rank may run on, as bits; written once, before it first arrives */
} arena_line;

enum { PAIR_SENDER, PAIR_RECEIVER };
typedef struct pair_cell {
    gate gates[2];
    _Alignas(ARENA_LINE_BYTES) call_note notes[2][2]; /* [side][event % 2] */
} pair_cell;

enum { ABORT_NONE, ABORT_BEING_WRITTEN, ABORT_SET };

typedef struct arena_header {
    uint64_t magic;
    int32_t size;
    uint64_t total_bytes, slot_bytes, result_bytes, pair_bytes; /* of one slot, one result, one of a pair's two chunks */
    uint64_t pairs_at, chunks_at, slots_at, results_at;         /* offsets from the header */
    _Atomic uint32_t abort_state;
    cancel_cause abort; /* once abort_state is ABORT_SET */
    _Alignas(ARENA_LINE_BYTES) arena_line lines[];
} arena_header;

/* arena_block: a shared block of a local arena; it lives until all ranks have freed it, or the arena goes. */
typedef struct arena_block {
    struct arena_block *next;
    void *memory;
    size_t size_bytes;
    int num_holders;
} arena_block;

struct arena {
    atomic_int num_holders;
    arena_header *header;
    void *memory; /* of a local arena: the header lies in it, aligned */
    size_t total_bytes;
    int fd; /* -1 once handed out, or local */
    bool is_local;
    spin_lock lock; /* of blocks */
    arena_block *blocks;
};

static inline char *arena_slot(const arena_header *h, int rank, uint64_t round) {
    return (char *)h + h->slots_at + (2 * (uint64_t)rank + round % 2) * h->slot_bytes;
}

static inline char *arena_result(const arena_header *h, int rank, uint64_t round) {
    return (char *)h + h->results_at + (2 * (uint64_t)rank + round % 2) * h->result_bytes;
}

static inline pair_cell *arena_pair(const arena_header *h, int sender, int receiver) {
    return (pair_cell *)((char *)h + h->pairs_at) + (int64_t)sender * h->size + receiver;
}

static inline char *arena_pair_chunk(const arena_header *h, int sender, int receiver, uint64_t event) {
    uint64_t pair = (uint64_t)sender * (uint64_t)h->size + (uint64_t)receiver;
    return (char *)h + h->chunks_at + (2 * pair + event % 2) * h->pair_bytes;
}

#endif
