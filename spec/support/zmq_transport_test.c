/* zmq_transport_test.c: collectives over ZeroMQ, against the serial reference bit by bit, and every way in which they may fail.
 *
 *   zmq_transport_test [seeds [stride [threads]]]
 *
 * seeds: random scripts (default 60). stride: only every so many cases of the matrix are run (default 1). With a third
 * argument nothing is forked, for sanitizers that cannot follow it. All sockets are on
 * the loopback interface or in the abstract namespace.
 */
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <dirent.h>

#include "core/dtype.h"
#include "core/error.h"
#include "core/memory.h"
#include "platform/clock.h"
#include "platform/crc.h"
#include "platform/interrupt.h"
#include "support/tcp_proxy.h"
#include "support/zmq_world.h"

#define MAX_STEPS     12
#define SEGMENT_BYTES 1024

static int num_failures;
static char problem[1200]; /* of the present group, "" = none so far; the first one is kept */
static int64_t num_cases, num_problems;

static bool fail(const char *format, ...) {
    num_problems++;
    if (problem[0] != '\0') return false;
    va_list args;
    va_start(args, format);
    vsnprintf(problem, sizeof problem, format, args);
    va_end(args);
    return false;
}

static void expect(bool holds, const char *what) {
    num_cases++;
    if (!holds) fail("%s", what);
}

static void report(const char *name) {
    bool failed = num_problems > 0;
    printf("%s  %s: %lld cases", failed ? "FAIL" : "ok  ", name, (long long)num_cases);
    if (failed) printf(", %lld wrong, the first: %s", (long long)num_problems, problem);
    printf("\n");
    fflush(stdout);
    num_failures += failed;
    num_cases = num_problems = 0;
    problem[0] = '\0';
}

static const char *describe(const job_options *o) {
    static char text[256];
    snprintf(text, sizeof text, "%s by %s, %s of %s, %d ranks, root %d, count %lld%s%s%s", collective_kind_name(o->kind),
             algorithm_name(o->algorithm), reduce_op_name(o->op), dtype_name(o->dtype), o->size, o->root, (long long)o->count,
             o->has_counts ? ", counts" : "", o->is_in_place ? ", in place" : "", o->is_unaligned ? ", unaligned" : "");
    return text;
}

/* ---- scripts that succeed ---- */

/* script is some jobs for all ranks of one group. */
typedef struct script {
    int num_jobs;
    job_options options[MAX_STEPS];
    job jobs[MAX_STEPS];
    step steps[MAX_RANKS][MAX_STEPS];
} script;

static void script_add(script *s, world *w, int group, const job_options *o, uint64_t *random) {
    int i = s->num_jobs++;
    s->options[i] = *o;
    job_make(&s->jobs[i], o, random);
    uint64_t sequence = world_number(w, group, o);
    for (int rank = 0; rank < o->size; rank++) {
        s->steps[rank][i] = step_of(&s->jobs[i].calls[rank], sequence, 20);
        s->steps[rank][i].is_skipped = o->kind == COLLECTIVE_SEND && rank != o->root && rank != o->other;
    }
}

static void script_check(script *s, const lane *lanes) {
    for (int i = 0; i < s->num_jobs; i++, num_cases++)
        for (int rank = 0; rank < s->options[i].size; rank++)
            if (lanes[rank].status == AG_OK && !job_is_right(&s->jobs[i], rank))
                fail("%s: rank %d has a wrong result", describe(&s->options[i]), rank);
            else if (lanes[rank].status == AG_OK && !s->options[i].is_in_place && !job_input_is_intact(&s->jobs[i], rank))
                fail("%s: rank %d lost its input", describe(&s->options[i]), rank);
}

static void script_free(script *s) {
    for (int i = 0; i < s->num_jobs; i++) job_free(&s->jobs[i]);
    s->num_jobs = 0;
}

/* Runs a script for each of num_groups groups, all at once. */
static void run_scripts(world *w, script *scripts, int num_groups) {
    lane lanes[MAX_GROUPS * MAX_RANKS] = {0};
    int size = w->options.size;
    for (int group = 0; group < num_groups; group++)
        for (int rank = 0; rank < size; rank++)
            lanes[group * size + rank] = (lane){.w = w,
                                                .rank = rank,
                                                .group = group,
                                                .steps = scripts[group].steps[rank],
                                                .num_steps = scripts[group].num_jobs};
    run_lanes(lanes, num_groups * size);
    for (int group = 0; group < num_groups; group++) {
        for (int rank = 0; rank < size; rank++)
            if (lanes[group * size + rank].status != AG_OK)
                fail("rank %d, %s: %s", rank, describe(&scripts[group].options[lanes[group * size + rank].num_done]),
                     lanes[group * size + rank].own.message);
        script_check(&scripts[group], &lanes[group * size]);
        script_free(&scripts[group]);
    }
}

/* All counts and places for one kind, algorithm, op and dtype. */
static void run_counts(world *w, job_options o, int64_t *number, int64_t stride) {
    static script s;
    uint64_t random = (uint64_t)*number;
    int n = o.size;
    int64_t fitting = SEGMENT_BYTES / (int64_t)dtype_size(o.dtype);
    const int64_t counts[] = {0, 1, n + 1, fitting - 1, fitting, n * fitting + 1, 12 * fitting * (n > 4 ? 4 : n) + 3};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        if ((*number)++ % stride != 0) continue;
        o.count = counts[i];
        o.is_in_place = (*number & 1) != 0 && o.kind != COLLECTIVE_SEND;
        o.is_unaligned = (*number & 2) != 0;
        o.root = (int)(*number % n);
        o.other = (o.root + 1) % n;
        script_add(&s, w, 0, &o, &random);
    }
    run_scripts(w, &s, 1);
}

static void run_kind(world *w, collective_kind kind, bool has_counts, int64_t *number, int64_t stride) {
    static const struct {
        ag_dtype dtype;
        reduce_op op;
    } rows[] = {{AG_F32, REDUCE_SUM}, {AG_BF16, REDUCE_MEAN}, {AG_I64, REDUCE_MAX},
                {AG_F64, REDUCE_MIN}, {AG_BOOL, REDUCE_OR},   {AG_I8, REDUCE_PROD}};
    bool reduces = kind == COLLECTIVE_ALL_REDUCE || kind == COLLECTIVE_REDUCE || kind == COLLECTIVE_REDUCE_SCATTER;
    for (const collective_algorithm *a = algorithm_list(kind); *a != ALGORITHM_ANY; a++) {
        for (size_t i = 0; i < (reduces ? sizeof rows / sizeof *rows : 2); i++) {
            job_options o = {.kind = kind,
                             .algorithm = *a,
                             .op = rows[i].op,
                             .dtype = rows[i].dtype,
                             .size = w->options.size,
                             .has_counts = has_counts};
            run_counts(w, o, number, stride);
        }
    }
}

static void test_matrix(const char *over, const socket_keys *keys, int num_stripes, int64_t stride) {
    static const int sizes[] = {1, 2, 3, 4, 5, 8};
    int64_t number = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        world w;
        world_options options = {
            .transport = over, .size = sizes[i], .keys = keys, .num_stripes = num_stripes, .segment_bytes = SEGMENT_BYTES};
        world_open(&w, &options);
        for (collective_kind kind = 0; kind < COLLECTIVE_KIND_COUNT; kind++) {
            if (kind == COLLECTIVE_RECEIVE || (kind == COLLECTIVE_SEND && sizes[i] == 1)) continue;
            run_kind(&w, kind, false, &number, stride);
            bool may_count = kind == COLLECTIVE_ALL_GATHER || kind == COLLECTIVE_GATHER || kind == COLLECTIVE_SCATTER ||
                             kind == COLLECTIVE_ALL_TO_ALL;
            if (may_count) run_kind(&w, kind, true, &number, stride);
        }
        world_close(&w);
    }
    char name[96];
    snprintf(name, sizeof name, "every kind over %s%s, %d stripe%s", over, keys ? " with keys" : "", num_stripes,
             num_stripes == 1 ? "" : "s");
    report(name);
}

static job_options random_job(uint64_t *random, int size) {
    job_options o = {.size = size};
    do {
        o.kind = (collective_kind)(random_next(random) % COLLECTIVE_KIND_COUNT);
        o.op = (reduce_op)(random_next(random) % REDUCE_OP_COUNT);
        o.dtype = (ag_dtype)(random_next(random) % AG_DTYPE_COUNT);
    } while (collective_supports(o.kind, o.op, o.dtype) != AG_OK || o.kind == COLLECTIVE_RECEIVE ||
             (o.kind == COLLECTIVE_SEND && size == 1));
    int num_algorithms = 0;
    while (algorithm_list(o.kind)[num_algorithms] != ALGORITHM_ANY) num_algorithms++;
    o.algorithm = algorithm_list(o.kind)[random_next(random) % (uint64_t)num_algorithms];
    o.root = (int)(random_next(random) % (uint64_t)size);
    o.other = (o.root + 1) % size;
    o.count = (int64_t)(random_next(random) % (random_next(random) & 1 ? 30 : 4000));
    o.has_counts = (random_next(random) & 1) && (o.kind == COLLECTIVE_ALL_GATHER || o.kind == COLLECTIVE_GATHER ||
                                                 o.kind == COLLECTIVE_SCATTER || o.kind == COLLECTIVE_ALL_TO_ALL);
    o.is_in_place = o.kind != COLLECTIVE_SEND && (random_next(random) & 1);
    o.is_unaligned = random_next(random) & 1;
    return o;
}

/* Two groups of all ranks at once, each with a thread on every rank, and ranks that are late now and then. */
static void test_scripts(int num_seeds) {
    static script scripts[MAX_GROUPS];
    for (int seed = 1; seed <= num_seeds; seed++) {
        uint64_t random = (uint64_t)seed;
        world w;
        world_options options = {.transport = seed & 1 ? "ipc" : "tcp",
                                 .size = 2 + (int)(random_next(&random) % 4),
                                 .num_groups = MAX_GROUPS,
                                 .num_stripes = 1 + (int)(random_next(&random) % 3),
                                 .segment_bytes = 64 << random_next(&random) % 6};
        world_open(&w, &options);
        for (int group = 0; group < MAX_GROUPS; group++)
            for (int i = 0; i < MAX_STEPS; i++) {
                job_options o = random_job(&random, options.size);
                script_add(&scripts[group], &w, group, &o, &random);
                for (int rank = 0; rank < options.size; rank++)
                    if (random_next(&random) % 16 == 0) scripts[group].steps[rank][i].delay_us = 2000;
            }
        run_scripts(&w, scripts, MAX_GROUPS);
        world_close(&w);
    }
    report("random scripts of two groups at once");
}

/* A rank may send before it takes part in what the receiver does first. */
static void test_eager_sends(void) {
    world w;
    world_options options = {.transport = "ipc", .size = 2, .segment_bytes = SEGMENT_BYTES};
    world_open(&w, &options);
    uint64_t random = 5;
    static script s;
    job_options send = {.kind = COLLECTIVE_SEND,
                        .algorithm = ALGORITHM_DIRECT,
                        .dtype = AG_I32,
                        .size = 2,
                        .root = 0,
                        .other = 1,
                        .count = SEGMENT_BYTES / 4}; /* all three within the window */
    job_options sum = {.kind = COLLECTIVE_ALL_REDUCE, .algorithm = ALGORITHM_DIRECT, .dtype = AG_I32, .size = 2, .count = 5000};
    for (int i = 0; i < 3; i++) script_add(&s, &w, 0, &send, &random);
    script_add(&s, &w, 0, &sum, &random);
    step late = s.steps[1][3]; /* rank 1 sums first, then receives */
    memmove(&s.steps[1][1], &s.steps[1][0], 3 * sizeof late);
    s.steps[1][0] = late;
    run_scripts(&w, &s, 1);
    world_close(&w);
    report("sends before a sum, receives after it");
}

/* A root has nothing to wait for, and pumps no more after its call: what it posted must have left. */
static void test_only_call(void) {
    static script s;
    for (int i = 0; i < 20; i++) {
        world w;
        world_options options = {.transport = i & 1 ? "tcp" : "ipc", .size = 3, .segment_bytes = SEGMENT_BYTES};
        world_open(&w, &options);
        uint64_t random = (uint64_t)i;
        job_options o = {
            .kind = i & 2 ? COLLECTIVE_SCATTER : COLLECTIVE_BROADCAST, .dtype = AG_I32, .size = 3, .count = 700, .root = i % 3};
        o.algorithm = algorithm_list(o.kind)[0];
        script_add(&s, &w, 0, &o, &random);
        for (int rank = 0; rank < 3; rank++) s.steps[rank][0].call.deadline_ns = 3000000000;
        run_scripts(&w, &s, 1);
        world_close(&w);
    }
    report("a root that makes one call");
}

/* What rank 1 of three does not contribute counts as the neutral element: the sum is that of a job of two ranks. */
static void run_absent(world *w, reduce_op op, ag_dtype dtype, bool is_in_place) {
    enum { COUNT = 700 };
    uint64_t random = 1 + (uint64_t)op;
    job_options o = {.kind = COLLECTIVE_ALL_REDUCE,
                     .algorithm = ALGORITHM_DIRECT,
                     .op = op,
                     .dtype = dtype,
                     .size = 2,
                     .count = COUNT,
                     .is_in_place = is_in_place};
    job two, three;
    job_make(&two, &o, &random);
    o.size = 3;
    job_make(&three, &o, &random);
    size_t element = dtype_size(dtype), bytes = COUNT * element;
    memcpy((void *)three.calls[0].input, two.original[0], bytes);
    memcpy((void *)three.calls[2].input, two.original[1], bytes);
    lane lanes[3] = {0};
    step steps[3];
    uint64_t sequence = world_number(w, 0, &o);
    for (int rank = 0; rank < 3; rank++) {
        steps[rank] = step_of(&three.calls[rank], sequence, 20);
        if (rank == 1) steps[rank].call.print.flags |= CALL_ABSENT;
        lanes[rank] = (lane){.w = w, .rank = rank, .steps = &steps[rank], .num_steps = 1};
    }
    run_lanes(lanes, 3);
    num_cases++;
    for (int rank = 0; rank < 3; rank++) {
        const char *got = three.calls[rank].output;
        if (lanes[rank].status != AG_OK)
            fail("%s: %s", describe(&o), lanes[rank].own.message);
        else if (op != REDUCE_MEAN && memcmp(got, two.expected[0], bytes) != 0)
            fail("%s: rank %d is wrong", describe(&o), rank);
        for (size_t i = 0; i < COUNT && op == REDUCE_MEAN;
             i++) { /* of three, although one is absent: what counts is the caller's */
            double error = element_read(dtype, got + i * element) * 1.5 - element_read(dtype, two.expected[0] + i * element);
            if (!(error * error < 1e-3)) fail("%s: rank %d is wrong at %zu", describe(&o), rank, i);
        }
    }
    if (!is_in_place && !job_input_is_intact(&three, 1)) fail("%s: the absent rank's input was changed", describe(&o));
    job_free(&two);
    job_free(&three);
}

static void test_absent(void) {
    world w;
    world_options options = {.transport = "ipc", .size = 3, .segment_bytes = SEGMENT_BYTES};
    world_open(&w, &options);
    for (reduce_op op = 0; op < REDUCE_OP_COUNT; op++)
        for (ag_dtype dtype = 0; dtype < AG_DTYPE_COUNT; dtype++)
            for (int place = 0; place < 2; place++)
                if (collective_supports(COLLECTIVE_ALL_REDUCE, op, dtype) == AG_OK) run_absent(&w, op, dtype, place == 1);
    world_close(&w);
    report("a rank without a contribution");
}

/* ---- calls that differ ---- */

typedef struct mismatch_case {
    const char *name;
    collective_call good, odd;
    bool is_skipped; /* the odd rank begins with the second call */
    const char *good_text, *odd_text;
} mismatch_case;

#define CALL(KIND, OP, DTYPE, COUNT, ROOT) \
    { .kind = COLLECTIVE_##KIND, .algorithm = 0, .op = REDUCE_##OP, .dtype = AG_##DTYPE, .count = COUNT, .root = ROOT }

static const mismatch_case mismatch_cases[] = {
    {"op", CALL(ALL_REDUCE, SUM, F32, 900, 0), CALL(ALL_REDUCE, MAX, F32, 900, 0), false, "all_reduce(sum) of f32[900]",
     "all_reduce(max) of f32[900]"},
    {"dtype", CALL(ALL_REDUCE, SUM, F32, 900, 0), CALL(ALL_REDUCE, SUM, I32, 900, 0), false, "f32[900]", "i32[900]"},
    {"shape", CALL(ALL_REDUCE, SUM, F32, 900, 0), CALL(ALL_REDUCE, SUM, F32, 901, 0), false, "f32[900]", "f32[901]"},
    {"nothing on one rank", CALL(ALL_REDUCE, SUM, F32, 900, 0), CALL(ALL_REDUCE, SUM, F32, 0, 0), false, "f32[900]", "f32[0]"},
    {"root", CALL(BROADCAST, SUM, F32, 900, 0), CALL(BROADCAST, SUM, F32, 900, 2), false, "root 0", "root 2"},
    {"root, and nobody sends", CALL(BROADCAST, SUM, F32, 900, 2), CALL(BROADCAST, SUM, F32, 900, 1), false, "root 2", "root 1"},
    {"root of a reduce", CALL(REDUCE, SUM, F64, 90, 0), CALL(REDUCE, SUM, F64, 90, 2), false, "root 0", "root 2"},
    {"kind", CALL(ALL_REDUCE, SUM, F32, 900, 0), CALL(ALL_GATHER, SUM, F32, 900, 0), false, "all_reduce(sum)", "all_gather"},
    {"a barrier", CALL(ALL_REDUCE, SUM, F32, 900, 0), CALL(BARRIER, SUM, BOOL, 0, 0), false, "all_reduce(sum)", "barrier"},
    {"a skipped call", CALL(ALL_REDUCE, SUM, F32, 900, 0), CALL(BROADCAST, SUM, F32, 10, 0), true, "all_reduce(sum)",
     "broadcast"},
};

/* Two calls, of which the odd rank makes the first one differently, or not at all. Large enough for all kinds. */
static void run_mismatch(const mismatch_case *m, const char *name) {
    enum { SIZE = 3, ODD = 2, ROOM = 4000 };
    static double in[SIZE][ROOM], out[SIZE][ROOM], before[ROOM];
    world w;
    world_options options = {.transport = name, .size = SIZE, .segment_bytes = SEGMENT_BYTES};
    world_open(&w, &options);
    lane lanes[SIZE] = {0};
    step steps[SIZE][2];
    for (int i = 0; i < ROOM; i++) before[i] = i;
    for (int rank = 0; rank < SIZE; rank++) {
        memcpy(in[rank], before, sizeof before);
        collective_call calls[2] = {rank == ODD || m->is_skipped ? m->odd : m->good, CALL(BARRIER, SUM, BOOL, 0, 0)};
        if (m->is_skipped && rank != ODD) {
            calls[0] = m->good;
            calls[1] = m->odd;
        }
        for (int i = 0; i < 2; i++) {
            calls[i].rank = rank;
            calls[i].size = SIZE;
            calls[i].algorithm = algorithm_list(calls[i].kind)[0];
            calls[i].input = in[rank];
            calls[i].output = out[rank];
            steps[rank][i] = step_of(&calls[i], (uint64_t)i + 1, 10);
        }
        lanes[rank] = (lane){.w = &w, .rank = rank, .steps = steps[rank], .num_steps = 2};
    }
    run_lanes(lanes, SIZE);
    world_close(&w);
    num_cases++;
    for (int rank = 0; rank < SIZE; rank++) {
        const lane *l = &lanes[rank];
        if (l->status != AG_E_MISMATCH)
            fail("%s: rank %d: %s", m->name, rank, l->status ? l->error.message : "no error");
        else if (strcmp(l->error.got, lanes[0].error.got) != 0)
            fail("%s: rank %d says %s", m->name, rank, l->error.got);
        else if (!strstr(l->error.got, m->good_text) || !strstr(l->error.got, m->odd_text))
            fail("%s: %s", m->name, l->error.got);
        else if (!l->is_over || l->seconds > 5)
            fail("%s: rank %d went on, or took %g s", m->name, rank, l->seconds);
        if (memcmp(in[rank], before, sizeof before) != 0) fail("%s: rank %d lost its input", m->name, rank);
    }
}

static void test_mismatches(void) {
    for (size_t i = 0; i < sizeof mismatch_cases / sizeof *mismatch_cases; i++) run_mismatch(&mismatch_cases[i], "ipc");
    run_mismatch(&mismatch_cases[0], "tcp");
    report("calls that differ");
}

/* The ranks in `refusing` (bits) refuse the first of two sums. */
static void run_refusal(int size, unsigned refusing) {
    world w;
    world_options options = {.transport = "ipc", .size = size, .segment_bytes = SEGMENT_BYTES};
    world_open(&w, &options);
    static script s;
    uint64_t random = 9;
    job_options o = {.kind = COLLECTIVE_ALL_REDUCE, .algorithm = ALGORITHM_DIRECT, .dtype = AG_I64, .size = size, .count = 3};
    for (int i = 0; i < 2; i++) script_add(&s, &w, 0, &o, &random);
    lane lanes[MAX_RANKS] = {0};
    for (int rank = 0; rank < size; rank++) {
        transport_call *call = &s.steps[rank][0].call;
        if (refusing >> rank & 1) {
            call->print.flags |= CALL_REFUSED;
            call->refusal = "i64 lies on no device";
            s.steps[rank][1].delay_us = refusing == (1u << size) - 1 ? 0 : 50000;
        }
        lanes[rank] = (lane){.w = &w, .rank = rank, .steps = s.steps[rank], .num_steps = 2};
    }
    run_lanes(lanes, size);
    num_cases++;
    for (int rank = 0; rank < size; rank++) {
        const lane *l = &lanes[rank];
        if (refusing == (1u << size) - 1) {
            if (l->status != AG_OK || !job_is_right(&s.jobs[1], rank))
                fail("all refuse: rank %d cannot go on: %s", rank, l->own.message);
            continue;
        }
        if (l->status != AG_E_MISMATCH || !strstr(l->error.got, "refused all_reduce(sum) of i64[3]: i64 lies on no device"))
            fail("refusal: rank %d: %s", rank, l->status ? l->error.message : "no error");
        if (l->num_done != (int)(refusing >> rank & 1)) fail("refusal: rank %d did %d calls", rank, l->num_done);
    }
    script_free(&s);
    world_close(&w);
}

static void test_refusals(void) {
    run_refusal(2, 2);
    run_refusal(3, 4);
    run_refusal(4, 5);
    run_refusal(3, 7);
    run_refusal(1, 1);
    report("refused calls");
}

#include "support/zmq_refused_pairs.h"

/* ---- lost and silent ranks: processes ---- */

enum { KILL_RANKS = 3, KILL_COUNT = 1 << 20, VICTIM = 1 };

typedef struct verdict {
    int rank;
    bool is_ready; /* some calls are through, and more are being made */
    ag_status status;
    int32_t culprit;
    int64_t end_ns;
    char message[256];
} verdict;

/* What a child does: sums until it fails, and tells. It ends with the parent's word (the closed pipe). */
static void run_child(int rank, int number, const char *name, double timeout_s, int out, int in) {
    socket_context *c;
    zmq_hub *hub;
    transport_call call = {0};
    cancel end;
    transport *t;
    static const int32_t ranks[KILL_RANKS] = {0, 1, 2};
    char addresses[KILL_RANKS][96];
    const char *endpoints[KILL_RANKS];
    for (int i = 0; i < KILL_RANKS; i++) {
        snprintf(addresses[i], sizeof addresses[i], "ipc://@argand-kill-%d-%d-%d", (int)getppid(), number, i);
        endpoints[i] = addresses[i];
    }
    cancel_init(&end);
    verdict v = {.rank = rank};
    float *in_data = calloc(KILL_COUNT, sizeof *in_data), *out_data = calloc(KILL_COUNT, sizeof *out_data);
    v.status = socket_context_new(NULL, 1, 64, &c);
    if (!v.status) v.status = zmq_hub_new(c, addresses[rank], TEST_JOB, 1, rank, KILL_RANKS, false, 1, &end, &hub);
    if (!v.status) v.status = zmq_hub_peers(hub, rank, KILL_RANKS, endpoints);
    if (!v.status) v.status = zmq_transport_new(hub, 1, rank, KILL_RANKS, ranks, name, &t);
    call.call = (collective_call){.kind = COLLECTIVE_ALL_REDUCE,
                                  .algorithm = ALGORITHM_DIRECT,
                                  .dtype = AG_F32,
                                  .rank = rank,
                                  .size = KILL_RANKS,
                                  .count = KILL_COUNT,
                                  .input = in_data,
                                  .output = out_data};
    for (uint64_t sequence = 1; !v.status; sequence++) {
        bool is_over;
        call.call.sequence = sequence;
        call_print_make(&call.print, &call.call, 1, &call.call.count);
        call.deadline_ns = clock_ns() + (int64_t)(timeout_s * 1e9);
        v.status = t->ops->run(t, &call, &is_over);
        v.is_ready = true;
        if (sequence == 3 && write(out, &v, sizeof v) < 0) _exit(3);
    }
    v.end_ns = clock_ns();
    v.culprit = error_record()->num_culprits == 1 ? error_record()->culprits[0] : -1;
    snprintf(v.message, sizeof v.message, "%.250s", error_record()->message);
    if (write(out, &v, sizeof v) < 0) _exit(3);
    char byte;
    _exit(read(in, &byte, 1) < 0);
}

/* False when no child has told anything within 20 s. */
static bool read_verdict(int fd, verdict *v) {
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, 20000) == 1 && read(fd, v, sizeof *v) == sizeof *v;
}

static void run_kill(int signal_number, double timeout_s, ag_status expected, double limit_s) {
    static int number;
    int to_parent[2], to_children[2];
    pid_t pids[KILL_RANKS];
    if (pipe(to_parent) != 0 || pipe(to_children) != 0) exit(2);
    number++;
    for (int rank = 0; rank < KILL_RANKS; rank++) {
        pids[rank] = fork();
        if (pids[rank] < 0) exit(2);
        if (pids[rank] > 0) continue;
        close(to_parent[0]);
        close(to_children[1]);
        run_child(rank, number, "ipc", timeout_s, to_parent[1], to_children[0]);
    }
    close(to_parent[1]);
    close(to_children[0]);
    verdict v = {0};
    for (int i = 0; i < KILL_RANKS; i++)
        if (!read_verdict(to_parent[0], &v) || v.status != AG_OK) fail("rank %d did not begin: %s", v.rank, v.message);
    int64_t killed_ns = clock_ns();
    kill(pids[VICTIM], signal_number);
    for (int i = 0; i < KILL_RANKS - 1; i++) {
        num_cases++;
        if (!read_verdict(to_parent[0], &v)) {
            fail("a survivor ended without a word");
            break;
        }
        double seconds = (double)(v.end_ns - killed_ns) * 1e-9;
        if (v.status != expected || v.culprit != VICTIM)
            fail("rank %d: %s (rank %d)", v.rank, v.message, (int)v.culprit);
        else if (seconds > limit_s)
            fail("rank %d took %g s to know", v.rank, seconds);
    }
    kill(pids[VICTIM], SIGKILL);
    close(to_children[1]);
    close(to_parent[0]);
    for (int rank = 0; rank < KILL_RANKS; rank++) waitpid(pids[rank], NULL, 0);
}

static void test_lost_ranks(void) {
    for (int i = 0; i < 3; i++) run_kill(SIGKILL, 20, AG_E_PEER, 1);
    report("a killed rank is named within a second");
    run_kill(SIGSTOP, 1, AG_E_TIMEOUT, 2.5);
    report("a stopped rank is named at the deadline");
}

/* ---- what ends a wait ---- */

typedef struct waker {
    world *w;
    bool is_interrupt;
} waker;

static void *wake_later(void *context) {
    waker *k = context;
    usleep(30000);
    if (k->is_interrupt)
        interrupt_raise();
    else
        world_abort(k->w, AG_E_PEER, 1, "rank 1 (host a, pid 5) has ended without closing");
    return NULL;
}

/* Rank 0 makes a call that rank 1 never makes; returns rank 0's lane. */
static lane run_alone(world *w, collective_kind kind, double timeout_s, waker *k) {
    static char data[64];
    memset(data, 7, sizeof data);
    collective_call call = {.kind = kind,
                            .algorithm = algorithm_list(kind)[0],
                            .dtype = AG_F32,
                            .size = 2,
                            .count = 10,
                            .root = 1,
                            .input = data,
                            .output = data};
    step s = step_of(&call, 1, timeout_s);
    lane l = {.w = w, .rank = 0, .steps = &s, .num_steps = 1};
    pthread_t thread;
    if (k && pthread_create(&thread, NULL, wake_later, k) != 0) exit(2);
    run_lanes(&l, 1);
    if (k) pthread_join(thread, NULL);
    expect(l.status != AG_OK && l.is_over, "a call that one rank makes fails");
    for (size_t i = 0; i < 40; i++)
        if (data[i] != 7) fail("%s: the input was changed", collective_kind_name(kind));
    return l;
}

static void test_ends_of_waits(void) {
    static const collective_kind kinds[] = {COLLECTIVE_ALL_REDUCE, COLLECTIVE_RECEIVE, COLLECTIVE_BROADCAST,
                                            COLLECTIVE_BARRIER};
    for (int way = 0; way < 3; way++)
        for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
            world w;
            world_options options = {.transport = i & 1 ? "tcp" : "ipc", .size = 2};
            world_open(&w, &options);
            waker k = {.w = &w, .is_interrupt = way == 1};
            lane l = run_alone(&w, kinds[i], way == 2 ? 0.2 : 10, way == 2 ? NULL : &k);
            interrupt_clear();
            world_close(&w);
            const char *word = way == 0 ? "pid 5" : way == 1 ? "interrupted" : "nothing more came from rank 1 within 0.2 s";
            ag_status code = way == 0 ? AG_E_PEER : way == 1 ? AG_E_INTERRUPTED : AG_E_TIMEOUT;
            if (l.own.code != code || !strstr(l.own.message, word))
                fail("%s: %s", collective_kind_name(kinds[i]), l.own.message);
            if (way != 1 && (l.own.num_culprits != 1 || l.own.culprits[0] != 1)) fail("%s names another rank", l.own.message);
            if (l.seconds > 2) fail("%s took %g s", l.own.message, l.seconds);
        }
    report("cancel, interrupt and deadline");
}

/* ---- foreign and damaged messages ---- */

/* Sends to rank 0's hub what its limits do not admit. */
static void send_foreign(world *w, const char *identity, const void *header, size_t header_bytes, const void *payload,
                         size_t payload_bytes) {
    socket_settings settings = {
        .identity = identity, .max_message_bytes = 1 << 20, .send_queue = 64, .receive_queue = 1, .linger_ms = 500};
    void *dealer;
    bool is_sent = false;
    if (socket_dial(w->contexts[1], SOCKET_DEALER, &settings, zmq_hub_endpoint(w->hubs[0]), &dealer) != AG_OK) exit(2);
    for (int64_t end = clock_ns() + 2000000000; !is_sent && clock_ns() < end;) {
        bool is_ready[1], wants_room[1] = {true};
        socket_poll(&dealer, wants_room, 1, NULL, 0, 10, is_ready);
        socket_send(dealer, NULL, header, header_bytes, payload, payload_bytes, NULL, NULL, &is_sent);
    }
    expect(is_sent, "a foreign message leaves");
    socket_close(w->contexts[1], dealer);
}

static void test_foreign_messages(void) {
    world w;
    world_options options = {.transport = "tcp", .size = 2, .segment_bytes = SEGMENT_BYTES};
    world_open(&w, &options);
    unsigned char bytes[WIRE_HEADER_BYTES];
    char identity[HUB_IDENTITY_LEN + 1];
    int64_t value[8] = {1000000};
    wire_header h = {.kind = WIRE_SEGMENT,
                     .job = TEST_JOB,
                     .epoch = TEST_EPOCH,
                     .group = 1,
                     .sender = 1,
                     .length = 8,
                     .payload_bytes = sizeof value,
                     .payload_crc = crc32c(0, value, sizeof value)};
    collective_call call = {
        .kind = COLLECTIVE_ALL_REDUCE, .algorithm = ALGORITHM_DIRECT, .dtype = AG_I64, .size = 2, .count = 16, .sequence = 1};
    call_print_make(&h.print, &call, 1, &call.count);
    wire_header old = h, other = h;
    old.epoch--;
    other.job++;
    hub_identity(w.hubs[1], 1, 7, identity);
    wire_pack(&h, bytes);
    send_foreign(&w, "somebody", bytes, sizeof bytes, value, sizeof value);
    send_foreign(&w, "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", bytes, sizeof bytes, value, sizeof value);
    send_foreign(&w, NULL, "garbage", 7, NULL, 0);
    wire_pack(&old, bytes);
    send_foreign(&w, NULL, bytes, sizeof bytes, value, sizeof value);
    wire_pack(&other, bytes);
    send_foreign(&w, NULL, bytes, sizeof bytes, value, sizeof value);
    /* From rank 1's own identity, but as another sender. */
    h.sender = 0;
    wire_pack(&h, bytes);
    send_foreign(&w, identity, bytes, sizeof bytes, value, sizeof value);
    static script s;
    uint64_t random = 3;
    transport_stats stats = {0};
    job_options o = {.kind = COLLECTIVE_ALL_REDUCE, .algorithm = ALGORITHM_DIRECT, .dtype = AG_I64, .size = 2, .count = 16};
    for (int64_t end = clock_ns() + 3000000000; stats.num_rejected < 6 && clock_ns() < end;) {
        script_add(&s, &w, 0, &o, &random);
        run_scripts(&w, &s, 1);
        w.groups[0][0]->ops->stats(w.groups[0][0], &stats);
    }
    if (stats.num_rejected != 6) fail("%lld messages were rejected instead of 6", (long long)stats.num_rejected);
    world_close(&w);
    report("messages of another job, epoch or sender, and garbage");
}

/* A connection that turns a byte, ends early or stands still: right sums until an error, and never a wrong one. */
static void run_detour(proxy_fault fault, int64_t at, int64_t *num_hit) {
    static script s;
    world w;
    static char detours[MAX_RANKS][MAX_RANKS][128];
    world_options options = {.transport = "tcp", .size = 2, .segment_bytes = 4 * SEGMENT_BYTES, .detours = detours};
    world_listen(&w, &options);
    tcp_proxy *p = tcp_proxy_new(zmq_hub_endpoint(w.hubs[1]), fault, at, detours[0][1], sizeof detours[0][1]);
    if (!p) exit(2);
    world_connect(&w);
    uint64_t random = (uint64_t)at;
    for (int i = 0; i < 4; i++) {
        job_options o = {.kind = COLLECTIVE_ALL_REDUCE,
                         .algorithm = algorithm_list(COLLECTIVE_ALL_REDUCE)[i % 3],
                         .dtype = AG_I32,
                         .size = 2,
                         .count = 6000};
        script_add(&s, &w, 0, &o, &random);
        for (int rank = 0; rank < 2; rank++) s.steps[rank][i].call.deadline_ns = 450000000;
    }
    lane lanes[2] = {0};
    for (int rank = 0; rank < 2; rank++) lanes[rank] = (lane){.w = &w, .rank = rank, .steps = s.steps[rank], .num_steps = 4};
    run_lanes(lanes, 2);
    num_cases++;
    for (int rank = 0; rank < 2; rank++) {
        for (int i = 0; i < lanes[rank].num_done; i++)
            if (!job_is_right(&s.jobs[i], rank)) fail("fault %d at %lld: rank %d has a wrong sum", fault, (long long)at, rank);
        for (int i = 0; i < 4; i++)
            if (!job_input_is_intact(&s.jobs[i], rank)) fail("fault %d at %lld: an input was changed", fault, (long long)at);
        ag_status own = lanes[rank].own.code;
        if (lanes[rank].status != AG_OK && own != AG_E_PEER && own != AG_E_NETWORK && own != AG_E_TIMEOUT && own != AG_E_FORMAT)
            fail("fault %d at %lld: %s", fault, (long long)at, lanes[rank].own.message);
    }
    *num_hit += lanes[0].status != AG_OK;
    world_close(&w);
    tcp_proxy_free(p);
    script_free(&s);
}

static void test_damaged_connections(void) {
    int64_t num_hit = 0, num_runs = 0;
    uint64_t random = 11;
    for (int i = 0; i < 24; i++, num_runs++) {
        proxy_fault fault = (proxy_fault)(i % 3); /* flip, cut, stall */
        int64_t at = (int64_t)(random_next(&random) % 60000);
        if (i < 6) at = 70 + 37 * i; /* in the handshake and the first headers */
        run_detour(fault, at, &num_hit);
    }
    if (num_hit < num_runs * 2 / 3) fail("only %lld of %lld faults showed", (long long)num_hit, (long long)num_runs);
    report("a damaged, cut or stalled connection");
}

#include "support/zmq_bounds.h"

static int count_fds(void) {
    DIR *d = opendir("/proc/self/fd");
    int count = 0;
    while (d && readdir(d)) count++;
    if (d) closedir(d);
    return count;
}

int main(int argc, char **argv) {
    int num_seeds = argc > 1 ? atoi(argv[1]) : 60;
    int64_t stride = argc > 2 ? atoll(argv[2]) : 1;
    signal(SIGPIPE, SIG_IGN);
    if (argc <= 3) test_lost_ranks(); /* first: they fork */
    int num_fds = count_fds();
    int64_t num_blocks = heap_live_blocks();
    test_matrix("ipc", NULL, 1, stride);
    test_matrix("tcp", NULL, 1, 2 * stride);
    test_matrix("tcp", NULL, 4, 6 * stride);
    socket_keys keys;
    expect(socket_has_security() && socket_keys_make(&keys) == AG_OK, "keys are made");
    if (num_problems == 0) test_matrix("tcp", &keys, 1, 6 * stride);
    test_scripts(num_seeds);
    test_eager_sends();
    test_only_call();
    test_absent();
    test_mismatches();
    test_refusals();
    test_refused_pairs();
    test_refused_before_others();
    test_ends_of_waits();
    test_foreign_messages();
    test_damaged_connections();
    test_early_groups();
    test_notes();
    test_many_groups();
    if (socket_has_security()) test_unsent_segments();
    expect(count_fds() == num_fds, "all descriptors are closed");
    if (heap_live_blocks() != num_blocks) fail("%lld blocks are left", (long long)(heap_live_blocks() - num_blocks));
    report("nothing is left behind");
    return num_failures > 0;
}
