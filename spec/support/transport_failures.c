/* transport_failures.c: how waits end in transport_test: deadlines, cancels, aborts, interrupts, ranks that leave, memory. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
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

#define LONG_COUNT 100000

typedef struct interrupted {
    job j;
    outcome outcomes[MAX_RANKS];
} interrupted;

static void run_long(world *w, int rank, void *context) {
    interrupted *c = context;
    c->outcomes[rank] = call_run(w, rank, &c->j.calls[rank], 1, NULL);
}

/* The input is whole although results had been written, in place and not. */
static void test_input_after_failure(void) {
    const collective_kind kinds[] = {COLLECTIVE_ALL_REDUCE, COLLECTIVE_REDUCE_SCATTER, COLLECTIVE_ALL_TO_ALL,
                                     COLLECTIVE_ALL_GATHER, COLLECTIVE_REDUCE,         COLLECTIVE_SCATTER};
    int num_cut = 0;
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
        crew ranks;
        start_ranks(&ranks, &w, run_long, &c);
        _Atomic uint64_t *progress = &w.arena->header->lines[0].arrived.count;
        int64_t limit_ns = soon_ns(30);
        while (atomic_load(progress) < 100 && soon_ns(0) < limit_ns) sched_yield();
        shm_cancel_all(w.members[0], &(cancel_cause){.code = AG_E_STATE, .reason = "enough"});
        join_ranks(&ranks);
        for (int rank = 0; rank < size; rank++) {
            bool is_cut = c.outcomes[rank].status == AG_E_STATE;
            num_cut += is_cut;
            expect(is_cut || c.outcomes[rank].status == AG_OK, "cut or done");
            expect(is_cut ? job_input_is_intact(&c.j, rank) : job_is_right(&c.j, rank), "the input or the result");
        }
        world_close(&w);
        job_free(&c.j);
    }
    expect(num_cut >= 24, "most calls were cut");
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
    test_memory();
}
