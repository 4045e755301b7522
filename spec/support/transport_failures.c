/* transport_failures.c: how waits end in transport_test: deadlines, cancels, aborts, interrupts, ranks that leave, memory. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/error.h"
#include "core/memory.h"
#include "dist/transport/shm/handover.h"
#include "dist/transport/shm/round.h"
#include "platform/interrupt.h"
#include "support/transport_cases.h"

#define SLOT_BYTES 512

typedef struct waiting {
    outcome outcomes[MAX_RANKS];
    collective_kind kind;
    int missing; /* the rank that makes no call */
    double timeout_s;
    float data[MAX_RANKS][8];
} waiting;

static void wait_in_vain(world *w, int rank, void *context) {
    waiting *c = context;
    if (rank == c->missing) return;
    collective_call call = {.kind = c->kind,
                            .algorithm = ALGORITHM_DIRECT,
                            .dtype = AG_F32,
                            .size = w->size,
                            .rank = rank,
                            .count = 8,
                            .root = c->missing,
                            .input = c->data[rank],
                            .output = c->data[rank]};
    turn how = {.timeout_s = c->timeout_s};
    c->outcomes[rank] = call_run(w, rank, &call, 17, &how);
}

/* Until somebody sleeps at one of the gates of `rank`: of its line, or as receiver of messages from `sender`. */
static bool is_waited_for(const world *w, int rank, int peer) {
    const arena_header *h = w->arena->header;
    gate *line = (gate *)&h->lines[rank].arrived, *pair = &arena_pair(h, peer, rank)->gates[PAIR_RECEIVER];
    int64_t limit_ns = soon_ns(30);
    while (atomic_load(&line->num_waiting) == 0 && atomic_load(&pair->num_waiting) == 0) {
        if (soon_ns(0) > limit_ns) return false;
        sched_yield();
    }
    return true;
}

static void expect_outcomes(const waiting *c, int size, ag_status status, int culprit, const char *word) {
    for (int rank = 0; rank < size; rank++) {
        if (rank == c->missing || (c->kind == COLLECTIVE_SEND && rank != 0)) continue;
        const outcome *o = &c->outcomes[rank];
        expect(o->status == status && o->is_over, word);
        bool names = culprit < 0 ? o->error.num_culprits == 0 : o->error.num_culprits == 1 && o->error.culprits[0] == culprit;
        if (!names || !strstr(o->error.message, word))
            fail("rank %d: %s (%d culprits)", rank, o->error.message, o->error.num_culprits);
        if (o->error.sequence != 17) fail("the call is not numbered");
    }
}

typedef void end_waits(world *w);

static void end_by_cancel(world *w) {
    for (int rank = 0; rank < w->size; rank++) {
        cancel_raise(&w->cancels[rank], AG_E_PEER, FIRST_WORLD_RANK + 1, "rank 11 has stopped", NULL);
        w->members[rank]->ops->wake(w->members[rank]);
    }
}

static void end_by_abort(world *w) {
    shm_cancel_all(w->members[0], &(cancel_cause){.code = AG_E_PEER,
                                                  .num_culprits = 1,
                                                  .culprits = {FIRST_WORLD_RANK + 1},
                                                  .reason = "rank 11 has stopped"});
    shm_cancel_all(w->members[0], &(cancel_cause){.code = AG_E_STATE, .reason = "too late"});
}

static void end_by_interrupt(world *w) {
    (void)w;
    interrupt_raise();
}

static void end_by_leaving(world *w) {
    w->members[1]->ops->free(w->members[1]);
    w->members[1] = NULL;
}

static void test_end(const char *name, end_waits *end, double timeout_s, ag_status status, int culprit, const char *word) {
    /* Without an event to end it, time has to pass: more of it than a late start of a thread takes. */
    for (int i = 0; i < (end ? 8 : 2); i++) {
        world w;
        waiting c = {.kind = i % 2 ? COLLECTIVE_SEND : COLLECTIVE_ALL_REDUCE, .missing = 1, .timeout_s = timeout_s};
        /* A send is waited for by its sender alone. */
        world_open(&w, c.kind == COLLECTIVE_SEND ? 2 : 2 + i % 3, true, SLOT_BYTES);
        crew ranks;
        int64_t start_ns = soon_ns(0);
        start_ranks(&ranks, &w, wait_in_vain, &c);
        if (end) {
            expect(is_waited_for(&w, 1, 0), "somebody sleeps");
            end(&w);
        }
        join_ranks(&ranks);
        expect(soon_ns(0) - start_ns < (int64_t)30e9, "it ends soon");
        interrupt_clear();
        expect_outcomes(&c, w.size, status, culprit, word);
        world_close(&w);
    }
    report(name);
}

/* ---- in the middle of a long call ---- */

static void wait_for_arrival(world *w, int rank, uint64_t count) {
    int64_t limit_ns = soon_ns(30);
    while (atomic_load(&w->arena->header->lines[rank].arrived.count) < count && soon_ns(0) < limit_ns) sched_yield();
}

#define LONG_COUNT 100000
#define NUM_ROUNDS 100 /* of the hundreds that it takes */

typedef struct interrupted {
    job j;
    outcome outcomes[MAX_RANKS];
} interrupted;

/* The last rank seems to have come to the first rounds, and not to the next one: there the others are cut off. */
static void run_until_cut(world *w, int rank, void *context) {
    interrupted *c = context;
    arena_line *lines = w->arena->header->lines;
    int last = w->size - 1;
    if (rank < last) {
        c->outcomes[rank] = call_run(w, rank, &c->j.calls[rank], 1, NULL);
        return;
    }
    wait_for_arrival(w, 0, 1);
    lines[last].notes[0] = lines[0].notes[0];
    gate_raise(&lines[last].arrived, NUM_ROUNDS);
    for (int i = 0; i < last; i++) wait_for_arrival(w, i, NUM_ROUNDS + 1);
    shm_cancel_all(w->members[last], &(cancel_cause){.code = AG_E_STATE, .reason = "enough"});
}

/* The input is whole although results had been written, in place and not. */
static void test_input_after_failure(void) {
    const collective_kind kinds[] = {COLLECTIVE_ALL_REDUCE, COLLECTIVE_REDUCE_SCATTER, COLLECTIVE_ALL_TO_ALL,
                                     COLLECTIVE_ALL_GATHER, COLLECTIVE_REDUCE,         COLLECTIVE_SCATTER};
    for (int i = 0; i < 24; i++) {
        world w;
        interrupted c;
        int size = 2 + i % 2;
        uint64_t random = (uint64_t)i;
        collective_kind kind = kinds[i / 4];
        bool is_divided = kind == COLLECTIVE_ALL_TO_ALL || kind == COLLECTIVE_SCATTER;
        job_options o = {.kind = kind,
                         .algorithm = ALGORITHM_DIRECT,
                         .dtype = AG_F32,
                         .size = size,
                         .count = is_divided ? LONG_COUNT / size : LONG_COUNT};
        make_job(&c.j, &o, i % 4, &random);
        world_open(&w, size, true, SLOT_BYTES);
        run_ranks(&w, run_until_cut, &c);
        for (int rank = 0; rank < size - 1; rank++) {
            expect(c.outcomes[rank].status == AG_E_STATE && c.outcomes[rank].is_over, "cut in the middle");
            expect(job_input_is_intact(&c.j, rank), "the input");
        }
        world_close(&w);
        job_free(&c.j);
    }
    report("inputs after a failure in the middle");
}

/* ---- counts that do not fit each other ---- */

static void exchange(world *w, int rank, void *context) {
    outcome *outcomes = context;
    int64_t counts[3] = {1, 2, 3}, output_counts[3] = {rank + 1, rank + 1, rank + 1};
    float input[6] = {0}, output[12] = {0};
    collective_call call = {.kind = COLLECTIVE_ALL_TO_ALL,
                            .algorithm = ALGORITHM_DIRECT,
                            .dtype = AG_F32,
                            .size = 3,
                            .rank = rank,
                            .count = 0,
                            .input = input,
                            .output = output,
                            .counts = counts,
                            .output_counts = output_counts};
    expect(call_run(w, rank, &call, 1, NULL).status == AG_OK, "counts that fit");
    if (rank == 1) output_counts[2]++;
    outcomes[rank] = call_run(w, rank, &call, 2, NULL);
    expect(outcomes[rank].status == AG_E_MISMATCH && !outcomes[rank].is_over, "counts that do not");
    expect(strstr(outcomes[rank].error.message, "rank 12 sends 2 elements to rank 11, which expects 3") != NULL, "who");
    if (rank == 2) call.counts = call.output_counts = NULL;
    expect(call_run(w, rank, &call, 3, NULL).status == AG_E_MISMATCH, "counts on two ranks only");
    expect(call_run(w, rank, &(collective_call){.kind = COLLECTIVE_BARRIER, .size = 3, .rank = rank}, 4, NULL).status == AG_OK,
           "the group goes on");
}

static void test_counts(void) {
    world w;
    outcome outcomes[3];
    world_open(&w, 3, true, SLOT_BYTES);
    run_ranks(&w, exchange, outcomes);
    world_close(&w);
    report("all_to_all counts that differ");
}

/* ---- sending what is not received ---- */

static void send_wrongly(world *w, int rank, void *context) {
    outcome *outcomes = context;
    float data[5] = {1, 2, 3, 4, 5};
    collective_call call = {.kind = rank == 0 ? COLLECTIVE_SEND : COLLECTIVE_RECEIVE,
                            .algorithm = ALGORITHM_DIRECT,
                            .size = 2,
                            .dtype = AG_F32,
                            .rank = rank,
                            .count = 4 + rank,
                            .root = 1 - rank,
                            .input = data,
                            .output = data};
    outcomes[rank] = call_run(w, rank, &call, 1, NULL);
    expect(outcomes[rank].status == AG_E_MISMATCH && outcomes[rank].is_over, "another count");
    expect(data[0] == 1 && data[4] == 5, "nothing was written");
    expect(strstr(outcomes[rank].error.message, "f32[4]") && strstr(outcomes[rank].error.message, "f32[5]"), "both are named");
}

static void test_messages(void) {
    world w;
    outcome outcomes[2];
    world_open(&w, 2, true, SLOT_BYTES);
    run_ranks(&w, send_wrongly, outcomes);
    expect(strcmp(outcomes[0].error.message, outcomes[1].error.message) == 0, "the same sentence");
    world_close(&w);
    report("a message that is not expected");
}

/* ---- a descriptor that comes just before all others go on ---- */

static atomic_bool is_served;

static bool is_over_once_served(const void *context) {
    (void)context;
    int64_t limit_ns = soon_ns(30);
    while (!atomic_load(&is_served) && soon_ns(0) < limit_ns) sched_yield();
    return true;
}

static void hand_over(world *w, int rank, void *context) {
    handover_limit limit = {.deadline_ns = soon_ns(60)};
    int *listening = context, fd = -1;
    if (rank == 0) {
        expect(memory_file_new(4096, &fd) == AG_OK && handover_serve(*listening, fd, 1, w->token, &limit) == AG_OK, "serving");
        atomic_store(&is_served, true);
    } else {
        limit.is_over = is_over_once_served;
        expect(handover_connect(w->prefix, w->token, &limit, &fd) == AG_OK, "a descriptor that is there");
    }
    if (fd >= 0) close(fd);
}

static void test_handover(void) {
    world w;
    int listening = -1;
    world_open(&w, 2, true, SLOT_BYTES);
    expect(handover_listen(w.prefix, &listening) == AG_OK, "listening");
    run_ranks(&w, hand_over, &listening);
    world_close(&w);
    report("handing over");
}

/* ---- a rank that does not fetch a block ---- */

/* Rank 1 does what it must until memory is handed out, and then no more. */
static void make_or_die(world *w, int rank, void *context) {
    (void)context;
    if (rank == 0) {
        shared_block b;
        int64_t start_ns = soon_ns(0);
        expect(w->members[0]->ops->block_new(w->members[0], 4096, BLOCK_RESULT, soon_ns(60), &b) == AG_E_PEER, "a block");
        expect(strstr(error_record()->message, "rank 11 was killed") != NULL, "why there is none");
        expect(soon_ns(0) - start_ns < (int64_t)30e9, "it ends soon");
        return;
    }
    arena_line *lines = w->arena->header->lines;
    wait_for_arrival(w, 0, 1);
    lines[1].notes[0] = lines[0].notes[0];
    gate_raise(&lines[1].arrived, 1);
    wait_for_arrival(w, 0, 2);
    gate_raise(&lines[1].arrived, 2);
    cancel_raise(&w->cancels[0], AG_E_PEER, FIRST_WORLD_RANK + 1, "rank 11 was killed", NULL);
    w->members[0]->ops->wake(w->members[0]);
}

static void test_unfetched(void) {
    world w;
    world_open(&w, 2, false, SLOT_BYTES);
    for (int rank = 0; rank < 2; rank++) world_join(&w, rank);
    run_ranks(&w, make_or_die, NULL);
    world_close(&w);
    report("a block that a rank does not fetch");
}

/* ---- a rank that gives up a call in a block, and then writes to its part, while others still read it ---- */

#define BLOCK_COUNT 1000000

static void reduce_or_give_up(world *w, int rank, void *context) {
    (void)context;
    transport *t = w->members[rank];
    shared_block b;
    expect(t->ops->block_new(t, BLOCK_COUNT * sizeof(float) / 4096 * 4096 + 4096, BLOCK_RESULT, soon_ns(60), &b) == AG_OK,
           "a block");
    if (rank == 0) {
        collective_call call = {.kind = COLLECTIVE_ALL_REDUCE,
                                .algorithm = ALGORITHM_DIRECT,
                                .dtype = AG_F32,
                                .size = 2,
                                .rank = rank,
                                .count = BLOCK_COUNT,
                                .input = shared_block_part(&b, 0),
                                .output = shared_block_result(&b, 0)};
        outcome done = call_run(w, rank, &call, 1, &(turn){.block = &b});
        expect(done.status == AG_E_TIMEOUT && done.is_over, "no result of what rank 1 has written since");
    } else {
        arena_line *lines = w->arena->header->lines;
        uint64_t round = atomic_load(&lines[1].arrived.count);
        wait_for_arrival(w, 0, round + 1);
        lines[1].notes[round % 2] = lines[0].notes[round % 2];
        gate_raise(&lines[1].arrived, round + 1);
        shm_cancel_all(t, &(cancel_cause){.code = AG_E_TIMEOUT, .reason = "rank 10 is slow"});
        gate_raise(&lines[1].arrived, round + 2);
    }
    t->ops->block_free(t, &b);
}

static void test_given_up(void) {
    world w;
    world_open(&w, 2, true, SLOT_BYTES);
    run_ranks(&w, reduce_or_give_up, NULL);
    world_close(&w);
    report("a call in a block that a rank gives up");
}

/* ---- allocations that fail ---- */

static void test_memory(void) {
    int64_t before = heap_live_blocks();
    for (int is_local = 0; is_local < 2; is_local++)
        for (int64_t n = 1; n <= 12; n++) {
            arena *a = NULL;
            transport *t = NULL;
            cancel word;
            int32_t world_rank = 0;
            shared_block b = {0};
            cancel_init(&word);
            ag_memory_fail_after(n);
            ag_status status = arena_new(1, is_local, SLOT_BYTES, &a);
            if (status == AG_OK) status = shm_transport_new(a, 0, &world_rank, &word, "argand-test-memory", NULL, &t);
            if (status == AG_OK) status = t->ops->block_new(t, 4096, false, soon_ns(10), &b);
            expect(status == AG_OK || status == AG_E_MEMORY, "only memory is missing");
            expect(n > 1 || status == AG_E_MEMORY, "an allocation fails");
            ag_memory_fail_after(0);
            if (status == AG_OK) t->ops->block_free(t, &b);
            if (t) t->ops->free(t);
            arena_release(a);
        }
    expect(heap_live_blocks() == before, "nothing is left");
    report("allocations that fail");
}

void test_failures(void) {
    test_end("a rank that does not come", NULL, 1, AG_E_TIMEOUT, FIRST_WORLD_RANK + 1, "rank 11 has not come to call 17");
    test_end("a cancel", end_by_cancel, 60, AG_E_PEER, FIRST_WORLD_RANK + 1, "rank 11 has stopped");
    test_end("a word in the arena", end_by_abort, 60, AG_E_PEER, FIRST_WORLD_RANK + 1, "rank 11 has stopped");
    test_end("an interrupt", end_by_interrupt, 60, AG_E_INTERRUPTED, -1, "interrupted");
    test_end("a rank that leaves", end_by_leaving, 60, AG_E_PEER, FIRST_WORLD_RANK + 1, "rank 11 has left the group");
    test_input_after_failure();
    test_counts();
    test_messages();
    test_handover();
    test_unfetched();
    test_given_up();
    test_memory();
}
