/* collective_test.c: the collective algorithms on the simulator, against a serial reference, bit by bit. One line a group.
 *
 *   collective_test [seeds [stride [first seed]]]
 *
 * seeds: random schedules, with and without a lost rank (default 20000). stride: only every so many cases of the matrix are
 * run (default 1). A failing line tells the seed.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/dtype.h"
#include "core/error.h"
#include "core/memory.h"
#include "dist/algorithm/cost.h"
#include "dist/algorithm/reduce.h"
#include "dist/simulator/simulator.h"
#include "support/collective_reference.h"

#define MAX_CALLS 4

static int num_failures;
static char problem[512]; /* of the present group, "" = none so far; the first one is kept */
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

#define fail_seed(seed, format, ...) fail("seed %llu: " format, (unsigned long long)(seed), __VA_ARGS__)

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

/* A network of the seed's choosing, without a fault. */
static simulation random_network(uint64_t seed, int size) {
    uint64_t random = seed;
    return (simulation){.seed = seed, .size = size, .keeps_order = random_next(&random) & 1,
                        .window = 1 + (int)(random_next(&random) % 4), .min_delay_s = 1e-6,
                        .max_delay_s = random_next(&random) & 1 ? 1e-5 : 1e-3, .notice_s = 1e-3, .expiry_s = 1,
                        .limit_s = 100};
}

/* ---- every kind, algorithm, op, dtype, size, count and place of the buffers ---- */

static void run_case(const job_options *o) {
    uint64_t random = (uint64_t)++num_cases;
    job j;
    job_make(&j, o, &random);
    simulation setup = random_network(random, o->size);
    simulation_outcome outcomes[MAX_RANKS];
    simulation_report done;
    if (simulate(&setup, j.calls, 1, outcomes, &done) != AG_OK) fail("%s: %s", describe(o), error_record()->message);
    else
        for (int rank = 0; rank < o->size; rank++) {
            if (outcomes[rank].status != AG_OK || outcomes[rank].is_stuck)
                fail("%s: rank %d %s", describe(o), rank, outcomes[rank].is_stuck ? "is stuck" : error_record()->message);
            else if (!job_is_right(&j, rank)) fail("%s: rank %d has a wrong result", describe(o), rank);
            else if (!o->is_in_place && !job_input_is_intact(&j, rank)) fail("%s: rank %d lost its input", describe(o), rank);
        }
    job_free(&j);
}

static const int sizes[] = {1, 2, 3, 4, 5, 7, 8};
#define SEGMENT_BYTES 64

/* All sizes, counts and places for one kind, algorithm, op and dtype. */
static void run_shapes(job_options o, int64_t *number, int64_t stride) {
    int64_t fitting = SEGMENT_BYTES / (int64_t)dtype_size(o.dtype);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        int n = o.size = sizes[s];
        if (o.kind == COLLECTIVE_SEND && n == 1) continue;
        const int64_t counts[] = {0, 1, n - 1, n + 1, 97, fitting - 1, fitting, fitting + 1, n * fitting + 1, 5 * fitting + 3};
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
            for (int place = 0; place < 4; place++) {
                if ((*number)++ % stride != 0) continue;
                o.count = counts[i];
                o.is_in_place = (place & 1) != 0 && o.kind != COLLECTIVE_SEND;
                o.is_unaligned = (place & 2) != 0;
                o.root = (int)(*number % n);
                o.other = (o.root + 1) % n;
                run_case(&o);
            }
    }
}

static void test_kind(collective_kind kind, bool has_counts, int64_t stride) {
    bool reduces = kind == COLLECTIVE_ALL_REDUCE || kind == COLLECTIVE_REDUCE || kind == COLLECTIVE_REDUCE_SCATTER;
    for (const collective_algorithm *a = algorithm_list(kind); *a != ALGORITHM_ANY; a++) {
        int64_t number = 0;
        for (ag_dtype dtype = 0; dtype < AG_DTYPE_COUNT; dtype++)
            for (reduce_op op = 0; op < (reduces ? REDUCE_OP_COUNT : 1); op++) {
                if (collective_supports(kind, op, dtype) != AG_OK) continue;
                job_options o = {.kind = kind, .algorithm = *a, .op = op, .dtype = dtype, .has_counts = has_counts};
                for (int rank = 0; rank < MAX_RANKS; rank++) o.segment_bytes[rank] = SEGMENT_BYTES;
                run_shapes(o, &number, stride);
            }
        char name[64];
        snprintf(name, sizeof name, "%s%s by %s", collective_kind_name(kind), has_counts ? "_v" : "", algorithm_name(*a));
        report(name);
    }
}

/* ---- random scripts on random networks, with a lost rank now and then ---- */

static job_options random_job(uint64_t *random, int size, const size_t *segment_bytes) {
    job_options o = {.size = size};
    do {
        o.kind = (collective_kind)(random_next(random) % COLLECTIVE_KIND_COUNT);
        o.op = (reduce_op)(random_next(random) % REDUCE_OP_COUNT);
        o.dtype = (ag_dtype)(random_next(random) % AG_DTYPE_COUNT);
    } while (collective_supports(o.kind, o.op, o.dtype) != AG_OK || o.kind == COLLECTIVE_RECEIVE
             || (o.kind == COLLECTIVE_SEND && size == 1));
    int num_algorithms = 0;
    while (algorithm_list(o.kind)[num_algorithms] != ALGORITHM_ANY) num_algorithms++;
    o.algorithm = algorithm_list(o.kind)[random_next(random) % (uint64_t)num_algorithms];
    o.root = (int)(random_next(random) % (uint64_t)size);
    o.other = (o.root + 1) % size;
    o.count = (int64_t)(random_next(random) % (random_next(random) & 1 ? 12 : 120));
    bool may_count = o.kind == COLLECTIVE_ALL_GATHER || o.kind == COLLECTIVE_GATHER || o.kind == COLLECTIVE_SCATTER
        || o.kind == COLLECTIVE_ALL_TO_ALL;
    o.has_counts = may_count && (random_next(random) & 1);
    o.is_in_place = o.kind != COLLECTIVE_SEND && (random_next(random) & 1);
    o.is_unaligned = random_next(random) & 1;
    memcpy(o.segment_bytes, segment_bytes, sizeof o.segment_bytes);
    return o;
}

/* run: a script of calls for all ranks and what became of it. */
typedef struct run {
    int size, num_calls;
    job jobs[MAX_CALLS];
    collective_call calls[MAX_RANKS * MAX_CALLS];
    simulation setup;
    simulation_outcome outcomes[MAX_RANKS];
    simulation_report report;
} run;

static bool check_rank(const run *r, uint64_t seed, int rank) {
    const simulation_outcome *o = &r->outcomes[rank];
    for (int i = 0; i < r->num_calls; i++) {
        bool is_done = i < o->num_completed, may_be_written = is_done && r->jobs[i].is_in_place;
        if (is_done && !job_is_right(&r->jobs[i], rank)) return fail_seed(seed, "rank %d, call %d is wrong", rank, i);
        if (!may_be_written && !job_input_is_intact(&r->jobs[i], rank))
            return fail_seed(seed, "rank %d, call %d lost its input", rank, i);
    }
    const simulation *s = &r->setup;
    if (!r->report.fault_happened) {
        if (o->status != AG_OK || o->is_stuck || o->num_completed != r->num_calls)
            return fail_seed(seed, "rank %d %s without a fault", rank, o->is_stuck ? "is stuck" : "failed");
        return true;
    }
    if (rank == s->fault_rank) return true;
    if (o->status != AG_E_STATE || o->culprit != s->fault_rank)
        return fail_seed(seed, "rank %d does not name lost rank %d but %d", rank, s->fault_rank, o->culprit);
    double bound_s = (s->fault == FAULT_DEAD ? s->notice_s + s->max_delay_s : s->expiry_s) + s->max_delay_s;
    if (o->end_s > r->report.fault_s + bound_s * 1.0001)
        return fail_seed(seed, "rank %d took %g s to know", rank, o->end_s - r->report.fault_s);
    return true;
}

static void run_seed(uint64_t seed, int64_t *num_lost) {
    static run r;
    uint64_t random = seed * 0x9E3779B97F4A7C15u + 1;
    memset(&r, 0, sizeof r);
    r.size = 1 + (int)(random_next(&random) % MAX_RANKS);
    r.num_calls = 1 + (int)(random_next(&random) % MAX_CALLS);
    size_t segment_bytes[MAX_RANKS];
    bool is_same = random_next(&random) & 1;
    for (int rank = 0; rank < MAX_RANKS; rank++)
        segment_bytes[rank] = rank > 0 && is_same ? segment_bytes[0] : 1 + random_next(&random) % 200;
    for (int i = 0; i < r.num_calls; i++) {
        job_options o = random_job(&random, r.size, segment_bytes);
        job_make(&r.jobs[i], &o, &random);
        for (int rank = 0; rank < r.size; rank++) r.calls[rank * r.num_calls + i] = r.jobs[i].calls[rank];
    }
    r.setup = random_network(random_next(&random), r.size);
    uint64_t fate = random_next(&random) % 10;
    r.setup.fault = r.size == 1 || fate < 3 ? FAULT_NONE : fate < 7 ? FAULT_DEAD : FAULT_SILENT;
    r.setup.fault_rank = (int)(random_next(&random) % (uint64_t)r.size);
    r.setup.fault_event = 1 + (int64_t)(random_next(&random) % (random_next(&random) & 1 ? 5 : 60));
    num_cases++;
    if (simulate(&r.setup, r.calls, r.num_calls, r.outcomes, &r.report) != AG_OK)
        fail_seed(seed, "%s", error_record()->message);
    else
        for (int rank = 0; rank < r.size && check_rank(&r, seed, rank); rank++) continue;
    *num_lost += r.report.fault_happened;
    for (int i = 0; i < r.num_calls; i++) job_free(&r.jobs[i]);
}

static void test_schedules(uint64_t first, uint64_t num_seeds) {
    int64_t num_lost = 0;
    for (uint64_t seed = first; seed < first + num_seeds; seed++) run_seed(seed, &num_lost);
    if (num_seeds >= 1000 && num_lost < (int64_t)num_seeds / 4) fail("only %lld runs lost a rank", (long long)num_lost);
    char name[64];
    snprintf(name, sizeof name, "random schedules, %lld with a lost rank", (long long)num_lost);
    report(name);
}

/* Whether the checks above see a bug: one segment whose bytes are not used, or that is skipped altogether. */
static void test_planted_bug(simulation_fault fault, const char *name) {
    for (uint64_t seed = 1; seed <= 300; seed++) {
        uint64_t random = seed;
        job_options o = {.kind = COLLECTIVE_ALL_REDUCE, .algorithm = algorithm_list(COLLECTIVE_ALL_REDUCE)[seed % 3],
                         .op = REDUCE_SUM, .dtype = AG_I32, .size = 2 + (int)(seed % 7), .count = 100};
        for (int rank = 0; rank < MAX_RANKS; rank++) o.segment_bytes[rank] = SEGMENT_BYTES;
        job j;
        job_make(&j, &o, &random);
        simulation setup = random_network(seed, o.size);
        setup.fault = fault;
        setup.fault_event = 1 + (int64_t)(random_next(&random) % 20);
        simulation_outcome outcomes[MAX_RANKS];
        simulation_report done;
        bool is_found = false;
        if (simulate(&setup, j.calls, 1, outcomes, &done) != AG_OK) fail("%s", error_record()->message);
        for (int rank = 0; rank < o.size; rank++) is_found |= outcomes[rank].is_stuck || !job_is_right(&j, rank);
        num_cases += done.fault_happened;
        if (done.fault_happened && !is_found) fail_seed(seed, "segment %lld was not missed", (long long)setup.fault_event);
        job_free(&j);
    }
    if (num_cases < 200) fail("planted only %lld times", (long long)num_cases);
    report(name);
}

/* ---- single properties ---- */

static void expect(bool holds, const char *what) {
    num_cases++;
    if (!holds) fail("%s; last error: %s", what, error_record()->message);
}

static void expect_refused(collective_call call, ag_status code, const char *word) {
    collective c;
    ag_status status = collective_init(&c, &call);
    expect(status == code && strstr(error_record()->message, word), word);
    if (status == AG_OK) collective_deinit(&c);
}

static void test_refusals(void) {
    float data[4] = {0};
    collective_call good = {.kind = COLLECTIVE_ALL_REDUCE, .dtype = AG_F32, .size = 2, .count = 2, .input = data,
                            .output = data};
    int64_t counts[2] = {1, -1};
#define WITH(...) ({ collective_call changed_ = good; __VA_ARGS__; changed_; })
#define C changed_
    expect_refused(WITH(C.op = REDUCE_MEAN, C.dtype = AG_I32), AG_E_DTYPE, "all_reduce: mean: expected a float dtype, got i32");
    expect_refused(WITH(C.op = REDUCE_SUM, C.dtype = AG_BOOL), AG_E_DTYPE, "cast to an int");
    expect_refused(WITH(C.op = REDUCE_AND, C.dtype = AG_F32), AG_E_DTYPE, "expected bool");
    expect_refused(WITH(C.rank = 2), AG_E_ARGUMENT, "rank");
    expect_refused(WITH(C.size = 0), AG_E_ARGUMENT, "size");
    expect_refused(WITH(C.kind = COLLECTIVE_BROADCAST, C.root = -1), AG_E_ARGUMENT, "root");
    expect_refused(WITH(C.kind = COLLECTIVE_SEND), AG_E_ARGUMENT, "another rank");
    expect_refused(WITH(C.count = -1), AG_E_ARGUMENT, "counts");
    expect_refused(WITH(C.count = INT64_MAX / 4), AG_E_ARGUMENT, "fits memory");
    expect_refused(WITH(C.algorithm = ALGORITHM_TREE), AG_E_ARGUMENT, "algorithm");
    expect_refused(WITH(C.input = NULL), AG_E_ARGUMENT, "input");
    expect_refused(WITH(C.counts = counts), AG_E_ARGUMENT, "counts");
    expect_refused(WITH(C.kind = COLLECTIVE_GATHER, C.counts = counts), AG_E_ARGUMENT, "rank 1");
    expect_refused(WITH(C.kind = COLLECTIVE_ALL_TO_ALL, C.counts = counts), AG_E_ARGUMENT, "output_counts");
#undef C
#undef WITH
    report("refused calls");
}

/* Rank 0 of two sums four floats; garbage changes nothing, and a lost peer leaves the input as it was. */
static void test_offers(void) {
    float data[4] = {1, 2, 3, 4}, theirs[4] = {10, 20, 30, 40};
    collective_call call = {.kind = COLLECTIVE_ALL_REDUCE, .algorithm = ALGORITHM_RING, .dtype = AG_F32, .size = 2, .count = 4,
                            .input = data, .output = data, .sequence = 7, .segment_bytes = 4};
    collective c;
    expect(collective_init(&c, &call) == AG_OK, "init");
    segment wanted, good = {.sequence = 7, .step = 0, .peer = 1, .offset = 0, .length = 1, .data = theirs, .size_bytes = 4};
    expect(collective_next_receive(&c, 1, &wanted) && wanted.step == 0 && wanted.length == 2, "what is wanted");
    const segment bad[] = {{.sequence = 6, .peer = 1, .length = 1, .size_bytes = 4},
                           {.sequence = 7, .peer = 0, .length = 1, .size_bytes = 4},
                           {.sequence = 7, .peer = 9, .length = 1, .size_bytes = 4},
                           {.sequence = 7, .peer = 1, .step = 1, .length = 1, .size_bytes = 4},
                           {.sequence = 7, .peer = 1, .length = 3, .size_bytes = 12},
                           {.sequence = 7, .peer = 1, .length = 1, .size_bytes = 5},
                           {.sequence = 7, .peer = 1, .length = 0},
                           {.sequence = 7, .peer = 1, .length = -1, .size_bytes = 4},
                           {.sequence = 7, .peer = 1, .offset = -1, .length = 1, .size_bytes = 4},
                           {.sequence = 7, .peer = 1, .offset = INT64_MAX, .length = 1, .size_bytes = 4}};
    bool taken;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        expect(collective_offer(&c, &bad[i], &taken) == AG_E_FORMAT && !taken, "garbage is refused");
    segment early = good;
    early.offset = 1;
    expect(collective_offer(&c, &early, &taken) == AG_OK && !taken, "an early segment is not taken");
    expect(collective_offer(&c, &good, &taken) == AG_OK && taken, "the next one is");
    expect(collective_offer(&c, &good, &taken) == AG_E_FORMAT && !taken, "but not twice");
    expect(collective_offer(&c, &early, &taken) == AG_OK && taken, "the early one is taken later");
    expect(collective_fail(&c, 1, "was lost") == AG_E_STATE && c.culprit == 1, "a failure");
    expect(strstr(error_record()->message, "all_reduce: rank 1 was lost") != NULL, "the error names the rank");
    expect(data[0] == 1 && data[1] == 2 && data[2] == 3 && data[3] == 4, "the input is intact");
    expect(!collective_next_send(&c, ANY_PEER, &wanted), "nothing leaves after a failure");
    collective_deinit(&c);
    report("offers and failure");
}

/* More than 2^31 elements: the plan alone, its data is never touched. */
static void test_large_counts(void) {
    int64_t count = ((int64_t)1 << 33) + 5, sent = 0;
    collective_call call = {.kind = COLLECTIVE_ALL_GATHER, .algorithm = ALGORITHM_DIRECT, .dtype = AG_BOOL, .size = 2,
                            .count = count, .input = (void *)((uintptr_t)1 << 40), .segment_bytes = (size_t)1 << 32,
                            .output = (void *)((uintptr_t)1 << 40)};
    collective c;
    expect(collective_init(&c, &call) == AG_OK, "init");
    for (segment s; collective_next_send(&c, 1, &s); collective_sent(&c)) {
        expect(s.offset == sent && (const char *)s.data == (const char *)call.input + sent, "a far segment");
        sent += s.length;
    }
    segment wanted;
    expect(sent == count, "all is sent");
    expect(collective_next_receive(&c, 1, &wanted) && wanted.length == count, "all is wanted");
    collective_deinit(&c);
    expect(chunk_offset(count, 3, 1) == count / 3 + 1 && chunk_offset(count, 3, 3) == count, "chunks");
    report("more than 2^32 elements");
}

/* Every half of both kinds, against the conversions of single values. */
static void test_halves(void) {
    enum { ALL = 1 << 16 };
    static uint16_t halves[ALL], back[ALL];
    static float floats[ALL];
    for (int i = 0; i < ALL; i++) halves[i] = (uint16_t)i;
    for (ag_dtype dtype = AG_F16; dtype <= AG_BF16; dtype++) {
        reduce_widen(floats, halves, dtype, ALL);
        reduce_finish(dtype, back, floats, 1, ALL);
        for (int i = 0; i < ALL; i++) {
            float value = dtype == AG_F16 ? half_to_float(halves[i]) : bfloat_to_float(halves[i]);
            expect(memcmp(&value, &floats[i], sizeof value) == 0, "a half as f32");
            expect(back[i] == halves[i] || value != value, "and back");
        }
    }
    report("conversion of halves");
}

/* Nobody passes a barrier, or has a sum, that one rank has not entered. */
static void test_absent_rank(void) {
    for (uint64_t seed = 1; seed <= 200; seed++) {
        uint64_t random = seed;
        int size = 2 + (int)(seed % 7);
        job_options o = {.dtype = AG_F32, .size = size, .count = 20};
        o.kind = seed & 1 ? COLLECTIVE_BARRIER : COLLECTIVE_ALL_REDUCE;
        o.algorithm = algorithm_list(o.kind)[seed & 1 ? 0 : seed / 2 % 3];
        for (int rank = 0; rank < MAX_RANKS; rank++) o.segment_bytes[rank] = SEGMENT_BYTES;
        job j;
        job_make(&j, &o, &random);
        simulation setup = random_network(seed, size);
        setup.fault = seed & 2 ? FAULT_DEAD : FAULT_SILENT;
        setup.fault_rank = (int)(random_next(&random) % (uint64_t)size);
        setup.fault_event = 1;
        simulation_outcome outcomes[MAX_RANKS];
        simulation_report done;
        expect(simulate(&setup, j.calls, 1, outcomes, &done) == AG_OK && done.fault_happened, "a run without one rank");
        for (int rank = 0; rank < size; rank++)
            expect(outcomes[rank].num_completed == 0 && job_input_is_intact(&j, rank), "a rank went on alone");
        job_free(&j);
    }
    report("a rank that never enters");
}

static void test_choice(void) {
    collective_cost tcp = {.alpha_s = 50e-6, .beta_s_per_byte = 1 / 1.2e9, .gamma_s_per_byte = 1e-10, .overhead_s = 20e-6,
                           .congestion = 1.5};
    collective_cost memory = {.alpha_s = 1e-6, .beta_s_per_byte = 1e-10, .gamma_s_per_byte = 1e-10, .congestion = 1};
    collective_call call = {.kind = COLLECTIVE_ALL_REDUCE, .dtype = AG_F32, .size = 8, .count = 16 << 20,
                            .segment_bytes = 1 << 19};
    expect(collective_choose(&call, &memory) == ALGORITHM_DIRECT, "direct in memory");
    expect(collective_choose(&call, &tcp) == ALGORITHM_HALVING, "halving for powers of two");
    call.size = 7;
    expect(collective_choose(&call, &tcp) == ALGORITHM_RING, "a ring for large counts on other sizes");
    call.count = 16;
    expect(collective_choose(&call, &tcp) == ALGORITHM_DIRECT, "direct for small counts");
    call.kind = COLLECTIVE_BROADCAST;
    expect(collective_choose(&call, &tcp) == ALGORITHM_TREE, "a tree for small counts");
    call.count = 16 << 20;
    expect(collective_choose(&call, &tcp) == ALGORITHM_CHAIN, "a chain for large counts");
    for (call.kind = 0; call.kind < COLLECTIVE_KIND_COUNT; call.kind++)
        for (const collective_algorithm *a = algorithm_list(call.kind); *a != ALGORITHM_ANY; a++) {
            call.algorithm = *a;
            double time = collective_time_s(&call, &tcp);
            expect(time > 0 && isfinite(time), collective_kind_name(call.kind));
        }
    report("the choice of algorithms");
}

/* Each allocation of a run fails once; nothing may be left over. */
static void test_memory(void) {
    uint64_t random = 5;
    for (int algorithm = 0; algorithm < 3; algorithm++) {
        job_options o = {.kind = COLLECTIVE_ALL_REDUCE, .algorithm = algorithm_list(COLLECTIVE_ALL_REDUCE)[algorithm],
                         .dtype = AG_BF16, .size = 3, .count = 20, .is_in_place = true};
        for (int rank = 0; rank < MAX_RANKS; rank++) o.segment_bytes[rank] = 8;
        int64_t before = heap_live_blocks();
        for (int64_t number = 1;; number++) {
            job j;
            job_make(&j, &o, &random);
            simulation setup = random_network(1, o.size);
            simulation_outcome outcomes[MAX_RANKS];
            simulation_report done;
            ag_memory_fail_after(number);
            ag_status status = simulate(&setup, j.calls, 1, outcomes, &done);
            ag_memory_fail_after(0);
            expect(status == AG_OK || status == AG_E_MEMORY, "the status of a run without memory");
            expect(heap_live_blocks() == before, "no block is left");
            job_free(&j);
            if (status == AG_OK || num_problems > 0) break;
        }
    }
    ag_memory_info info;
    ag_memory(&info);
    expect(info.live_bytes == 0, "no bytes are left");
    report("failing allocations");
}

int main(int argc, char **argv) {
    uint64_t num_seeds = argc > 1 ? strtoull(argv[1], NULL, 10) : 20000;
    int64_t stride = argc > 2 ? strtoll(argv[2], NULL, 10) : 1;
    uint64_t first_seed = argc > 3 ? strtoull(argv[3], NULL, 10) : 1;
    if (stride < 1) stride = 1;
    test_refusals();
    test_offers();
    test_large_counts();
    test_choice();
    test_memory();
    test_halves();
    test_absent_rank();
    for (collective_kind kind = 0; kind < COLLECTIVE_KIND_COUNT; kind++) {
        bool has_v = kind == COLLECTIVE_ALL_GATHER || kind == COLLECTIVE_GATHER || kind == COLLECTIVE_SCATTER
            || kind == COLLECTIVE_ALL_TO_ALL;
        if (kind != COLLECTIVE_RECEIVE) test_kind(kind, false, stride); /* a send has its receive */
        if (has_v) test_kind(kind, true, stride);
    }
    test_planted_bug(FAULT_BLANK_SEGMENT, "planted bug: a segment's bytes are not used");
    test_planted_bug(FAULT_LOST_SEGMENT, "planted bug: a segment is skipped");
    test_schedules(first_seed, num_seeds);
    return num_failures != 0;
}
