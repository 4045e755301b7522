/* transport_threads.c: transport_test over threads: the matrix, scripts with disagreements, blocks, rounding, many elements. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/dtype.h"
#include "core/error.h"
#include "core/memory.h"
#include "dist/algorithm/reduce.h"
#include "dist/transport/shm/shm.h"
#include "dist/transport/shm/shm_copy.h"
#include "support/transport_cases.h"

#define SLOT_BYTES 512 /* the least for 8 ranks: most calls take several windows */
#define BATCH      64

/* ---- the matrix ---- */

/* batch: calls that the ranks make one after the other, with nothing in between. */
typedef struct batch {
    world *world;
    int num_jobs;
    job jobs[BATCH];
    job_options options[BATCH];
    int places[BATCH];
    outcome outcomes[BATCH][MAX_RANKS];
    uint64_t sequence, random;
} batch;

/* A rank that has no part in a send makes no call. */
static bool takes_part(const job_options *o, int rank) {
    return o->kind != COLLECTIVE_SEND || rank == o->root || rank == o->other;
}

static void run_batch(world *w, int rank, void *context) {
    batch *b = context;
    for (int i = 0; i < b->num_jobs; i++)
        if (takes_part(&b->options[i], rank))
            b->outcomes[i][rank] = call_run(w, rank, &b->jobs[i].calls[rank], b->sequence + (uint64_t)i, NULL);
}

static void finish_batch(batch *b) {
    run_ranks(b->world, run_batch, b);
    for (int i = 0; i < b->num_jobs; i++) {
        char text[160];
        describe(&b->options[i], b->places[i], text, sizeof text);
        for (int rank = 0; rank < b->world->size; rank++) {
            if (!takes_part(&b->options[i], rank)) continue;
            const outcome *done = &b->outcomes[i][rank];
            expect(true, "");
            if (done->status != AG_OK)
                fail("%s: rank %d: %s", text, rank, done->error.message);
            else if (!job_is_right(&b->jobs[i], rank))
                fail("%s: rank %d has a wrong result", text, rank);
            else if (!b->jobs[i].is_in_place && !job_input_is_intact(&b->jobs[i], rank))
                fail("%s: rank %d lost its input", text, rank);
        }
        job_free(&b->jobs[i]);
    }
    b->sequence += (uint64_t)b->num_jobs;
    b->num_jobs = 0;
}

static void add_case(const job_options *o, int place, void *context) {
    batch *b = context;
    b->options[b->num_jobs] = *o;
    b->places[b->num_jobs] = place;
    make_job(&b->jobs[b->num_jobs], &b->options[b->num_jobs], place, &b->random);
    if (++b->num_jobs == BATCH) finish_batch(b);
}

static const int sizes[] = {1, 2, 3, 4, 5, 7, 8};

static void test_kind(collective_kind kind, bool has_counts, int64_t stride) {
    static batch b;
    int64_t number = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        world w;
        world_open(&w, sizes[i], true, SLOT_BYTES);
        b.world = &w;
        b.random = 1 + (uint64_t)kind * 8 + i;
        for_each_case(kind, has_counts, sizes[i], SLOT_BYTES, stride, &number, add_case, &b);
        finish_batch(&b);
        world_close(&w);
    }
    char name[64];
    snprintf(name, sizeof name, "%s%s", collective_kind_name(kind), has_counts ? "_v" : "");
    report(name);
}

/* With the slots that are used in earnest, and counts beyond them. */
static void test_real_slots(void) {
    static batch b;
    const ag_dtype dtypes[] = {AG_F32, AG_BF16, AG_F16, AG_F64, AG_I8};
    for (int i = 0; i < 10; i++) {
        world w;
        int size = 2 + i % 3;
        world_open(&w, size, true, i == 0 ? 0 : 65536);
        b.world = &w;
        b.random = 77 + (uint64_t)i;
        for (collective_kind kind = 0; kind < COLLECTIVE_KIND_COUNT; kind++) {
            bool moves = kind == COLLECTIVE_GATHER || kind == COLLECTIVE_SCATTER || kind == COLLECTIVE_ALL_GATHER;
            if (kind == COLLECTIVE_RECEIVE || (moves && i % 5 != 0)) continue;
            job_options o = {.kind = kind,
                             .algorithm = ALGORITHM_DIRECT,
                             .op = REDUCE_SUM,
                             .dtype = dtypes[i / 2],
                             .size = size,
                             .root = i % size,
                             .other = (i + 1) % size,
                             .count = i == 0 ? 2100001 : 40001}; /* the first: written past the caches */
            if (kind == COLLECTIVE_SEND || kind == COLLECTIVE_BARRIER || kind == COLLECTIVE_BROADCAST) o.dtype = AG_U8;
            for (int place = 0; place < (kind == COLLECTIVE_SEND ? 1 : 4); place += i == 0 ? 3 : 1) add_case(&o, place, &b);
        }
        finish_batch(&b);
        world_close(&w);
    }
    report("more than a slot holds");
}

/* ---- random scripts: calls that agree, differ, are refused, or that some have nothing to give for ---- */

typedef enum step_kind { STEP_PLAIN, STEP_DIFFERS, STEP_REFUSED, STEP_ABSENT, STEP_KIND_COUNT } step_kind;
#define MAX_STEPS 24

typedef struct script {
    uint64_t seed;
    int num_steps;
    step_kind kinds[MAX_STEPS];
    uint32_t masks[MAX_STEPS]; /* which ranks differ, refuse, or are absent */
    job jobs[MAX_STEPS];
    job_options options[MAX_STEPS];
    outcome outcomes[MAX_STEPS][MAX_RANKS];
    uint64_t sequences[MAX_STEPS];
} script;

static void run_script(world *w, int rank, void *context) {
    script *s = context;
    for (int i = 0; i < s->num_steps; i++) {
        if (!takes_part(&s->options[i], rank)) continue;
        turn how = {0};
        bool is_marked = s->masks[i] >> rank & 1;
        if (is_marked && s->kinds[i] == STEP_DIFFERS) how.more_in_print = 1;
        if (is_marked && s->kinds[i] == STEP_REFUSED) how.flags = CALL_REFUSED, how.refusal = "it cannot";
        if (is_marked && s->kinds[i] == STEP_ABSENT) how.flags = CALL_ABSENT;
        collective_call call = s->jobs[i].calls[rank];
        if (how.flags == CALL_ABSENT) call.input = NULL;
        s->outcomes[i][rank] = call_run(w, rank, &call, s->sequences[i], &how);
    }
}

/* What f32 sum, mean and max of the ranks that are there give. */
static void expect_present(script *s, int step) {
    job *j = &s->jobs[step];
    const job_options *o = &s->options[step];
    for (int64_t i = 0; i < o->count; i++) {
        float total = 0;
        bool is_first = true;
        for (int rank = 0; rank < o->size; rank++) {
            if (s->masks[step] >> rank & 1) continue;
            float x = ((const float *)j->original[rank])[i];
            if (is_first)
                total = x;
            else if (o->op == REDUCE_MAX)
                total = total > x || total != total ? total : x;
            else
                total += x;
            is_first = false;
        }
        if (o->op == REDUCE_MEAN) total /= (float)o->size;
        for (int rank = 0; rank < o->size; rank++)
            if (j->output_length[rank] > i) ((float *)j->expected[rank])[i] = total;
    }
}

static void make_step(script *s, int step, int size, uint64_t *random, uint64_t pair_sequences[MAX_RANKS][MAX_RANKS]) {
    job_options *o = &s->options[step];
    *o = (job_options){.size = size, .algorithm = ALGORITHM_DIRECT};
    step_kind kind = s->kinds[step] = (step_kind)(random_next(random) % STEP_KIND_COUNT);
    do {
        o->kind = (collective_kind)(random_next(random) % COLLECTIVE_KIND_COUNT);
        o->op = (reduce_op)(random_next(random) % REDUCE_OP_COUNT);
        o->dtype = (ag_dtype)(random_next(random) % AG_DTYPE_COUNT);
    } while (collective_supports(o->kind, o->op, o->dtype) != AG_OK || o->kind == COLLECTIVE_RECEIVE ||
             (kind == STEP_DIFFERS && (o->kind == COLLECTIVE_SEND || o->kind == COLLECTIVE_BARRIER)));
    if (kind == STEP_ABSENT) {
        const reduce_op ops[] = {REDUCE_SUM, REDUCE_MEAN, REDUCE_MAX};
        o->kind = random_next(random) & 1 ? COLLECTIVE_ALL_REDUCE : COLLECTIVE_REDUCE;
        o->op = ops[random_next(random) % 3];
        o->dtype = AG_F32;
    }
    o->root = (int)(random_next(random) % (uint64_t)size);
    o->other = (o->root + 1) % size;
    o->count = (int64_t)(random_next(random) % (random_next(random) & 1 ? 12 : 700));
    o->has_counts = takes_counts(o->kind) && (random_next(random) & 1);
    int place = o->kind == COLLECTIVE_SEND ? 0 : (int)(random_next(random) % 4);
    s->masks[step] = (uint32_t)random_next(random) & ((1u << size) - 1);
    if (kind == STEP_DIFFERS && (s->masks[step] == 0 || s->masks[step] == (1u << size) - 1)) s->masks[step] = 1;
    make_job(&s->jobs[step], o, place, random);
    if (kind == STEP_ABSENT) expect_present(s, step);
    s->sequences[step] = o->kind == COLLECTIVE_SEND ? ++pair_sequences[o->root][o->other] : (uint64_t)step + 1;
}

static void check_step(const script *s, int i, int rank) {
    const outcome *done = &s->outcomes[i][rank];
    char text[160];
    describe(&s->options[i], (int)s->kinds[i], text, sizeof text);
    const char *seed_format = "seed %llu, step %d, %s: rank %d %s (%s)";
    bool is_refuser = s->kinds[i] == STEP_REFUSED && (s->masks[i] >> rank & 1);
    uint32_t concerned = s->options[i].kind == COLLECTIVE_SEND ? 1u << s->options[i].root | 1u << s->options[i].other : ~0u;
    bool must_fail = s->kinds[i] == STEP_DIFFERS || (s->kinds[i] == STEP_REFUSED && (s->masks[i] & concerned) != 0);
    const char *wrong = NULL;
    if (is_refuser || !must_fail) {
        if (done->status != AG_OK)
            wrong = "failed";
        else if (!is_refuser && !job_is_right(&s->jobs[i], rank))
            wrong = "has a wrong result";
    } else {
        if (done->status != AG_E_MISMATCH)
            wrong = "was not told of the mismatch";
        else if (done->is_over)
            wrong = "ends the group";
        else if (!job_input_is_intact(&s->jobs[i], rank))
            wrong = "lost its input";
        else if (s->kinds[i] == STEP_REFUSED && !strstr(done->error.message, "refused"))
            wrong = "is told something else";
        for (int other = 0; other < rank && !wrong; other++)
            if (s->outcomes[i][other].status == AG_E_MISMATCH && takes_part(&s->options[i], other) &&
                strcmp(s->outcomes[i][other].error.message, done->error.message) != 0)
                wrong = "is told otherwise than another rank";
    }
    expect(true, "");
    if (wrong) fail(seed_format, (unsigned long long)s->seed, i, text, rank, wrong, done->error.message);
}

static void test_scripts(uint64_t num_seeds) {
    static script s;
    for (uint64_t seed = 1; seed <= num_seeds; seed++) {
        uint64_t random = seed * 0x9E3779B97F4A7C15u + 1, pair_sequences[MAX_RANKS][MAX_RANKS] = {{0}};
        memset(&s, 0, sizeof s);
        s.seed = seed;
        int size = 2 + (int)(random_next(&random) % (MAX_RANKS - 1));
        s.num_steps = 1 + (int)(random_next(&random) % MAX_STEPS);
        for (int i = 0; i < s.num_steps; i++) make_step(&s, i, size, &random, pair_sequences);
        world w;
        world_open(&w, size, true, SLOT_BYTES);
        run_ranks(&w, run_script, &s);
        world_close(&w);
        for (int i = 0; i < s.num_steps; i++) {
            for (int rank = 0; rank < size; rank++)
                if (takes_part(&s.options[i], rank)) check_step(&s, i, rank);
            job_free(&s.jobs[i]);
        }
    }
    report("random scripts with disagreements");
}

/* ---- blocks ---- */

#define BLOCK_COUNT 5000

typedef struct block_use {
    ag_dtype dtype;
    int64_t first_count, last_count;
} block_use;

static void use_block(world *w, int rank, void *context) {
    const block_use *use = context;
    ag_dtype dtype = use->dtype;
    transport *t = w->members[rank];
    size_t element = dtype_size(dtype), part_bytes = ((size_t)(use->last_count + 8) * element + 4096) / 4096 * 4096;
    shared_block b;
    uint64_t sequence = 0;
    expect(t->ops->block_new(t, part_bytes + 4096 * (size_t)(rank == 1), false, soon_ns(60), &b) == AG_E_MISMATCH,
           "sizes differ");
    expect(t->ops->block_new(t, part_bytes, rank == 1, soon_ns(60), &b) == AG_E_MISMATCH, "results differ");
    expect(strstr(error_record()->message, "with a result for each rank") != NULL, "how they differ");
    for (int round = 0; round < 5; round++) {
        bool is_replicated = round >= 3;
        if (use->first_count > BLOCK_COUNT && round != 1 && round != 4) continue; /* a mean and a sum do */
        if (t->ops->block_new(t, part_bytes, is_replicated, soon_ns(60), &b) != AG_OK) {
            fail("block_new: %s", error_record()->message);
            return;
        }
        for (int64_t count = use->first_count; count <= use->last_count; count += 1 + count * 5)
            for (int is_in_place = 0; is_in_place < 2; is_in_place++) {
                /* Every rank makes the same job and takes its own part of it. */
                uint64_t random = (uint64_t)count * 8 + (uint64_t)round;
                job_options o = {.kind = COLLECTIVE_ALL_REDUCE,
                                 .algorithm = ALGORITHM_DIRECT,
                                 .dtype = dtype,
                                 .size = w->size,
                                 .op = round % 2 == 1 ? REDUCE_MEAN : REDUCE_SUM,
                                 .count = count};
                job j;
                make_job(&j, &o, 0, &random);
                size_t offset = (size_t)round * 3 * element;
                char *own = shared_block_part(&b, rank) + offset, *result = shared_block_result(&b, rank) + offset;
                memcpy(own, j.original[rank], (size_t)count * element);
                collective_call call = j.calls[rank];
                call.input = own;
                call.output = is_in_place ? own : result;
                turn how = {.block = &b, .block_offset = offset};
                outcome done = call_run(w, rank, &call, ++sequence, &how);
                expect(done.status == AG_OK, "a call in a block");
                expect(memcmp(call.output, j.expected[rank], (size_t)count * element) == 0, "its result");
                expect(is_in_place || memcmp(own, j.original[rank], (size_t)count * element) == 0, "its input");
                /* A result of one's own may be written to, whatever others read. */
                if (is_replicated) memset(result, 0x7f, (size_t)count * element);
                /* Nobody goes on while others still compare. */
                expect(call_run(w, rank, &(collective_call){.kind = COLLECTIVE_BARRIER, .size = w->size, .rank = rank},
                                ++sequence, NULL)
                               .status == AG_OK,
                       "a barrier");
                job_free(&j);
            }
        t->ops->block_free(t, &b);
    }
    /* Two of one form, and calls in different ones. */
    shared_block others[2];
    for (int i = 0; i < 2; i++)
        expect(t->ops->block_new(t, part_bytes, BLOCK_RESULT, soon_ns(60), &others[i]) == AG_OK, "one of two blocks");
    const shared_block *own = &others[rank == 1];
    collective_call call = {.kind = COLLECTIVE_ALL_REDUCE,
                            .algorithm = ALGORITHM_DIRECT,
                            .op = REDUCE_SUM,
                            .dtype = dtype,
                            .size = w->size,
                            .rank = rank,
                            .count = 5,
                            .input = shared_block_part(own, rank),
                            .output = shared_block_result(own, rank)};
    outcome differ = call_run(w, rank, &call, ++sequence, &(turn){.block = own});
    expect(differ.status == AG_E_MISMATCH && !differ.is_over, "calls in different blocks");
    expect(strstr(differ.error.message, "in a shared block, another one") != NULL, "that they differ in it");
    for (int i = 0; i < 2; i++) t->ops->block_free(t, &others[i]);
    /* One more that only the arena frees. */
    expect(t->ops->block_new(t, part_bytes, false, soon_ns(60), &b) == AG_OK, "a block that is kept");
    if (rank > 0)
        t->ops->block_free(t, &b);
    else
        heap_free(b.owner);
}

/* Who shares processors with more ranks than these are. */
static void test_crowding(void) {
    static const struct {
        const char *processors[3]; /* of each rank */
        int quota;
        bool is_crowded[3];
    } cases[] = {
        {{"012", "012", "012"}, 0, {false, false, false}}, {{"01", "01", "01"}, 0, {true, true, true}},
        {{"0", "1", "2"}, 0, {false, false, false}},       {{"0", "0", "12"}, 0, {true, true, false}},
        {{"0", "01", "1"}, 0, {false, true, false}},       {{"0", "1", "2"}, 2, {true, true, true}},
        {{"0", "1", "2"}, 3, {false, false, false}},       {{"0", "0", "0"}, 0, {true, true, true}},
    };
    arena *a;
    if (arena_new(3, true, 0, &a) != AG_OK) {
        fail("arena_new: %s", error_record()->message);
        return;
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int rank = 0; rank < 3; rank++) {
            uint64_t *words = a->header->lines[rank].processors;
            memset(words, 0, CPU_SET_WORDS * sizeof *words);
            for (const char *c = cases[i].processors[rank]; *c; c++) {
                int processor = (*c - '0') * 500; /* in several words */
                words[processor / 64] |= (uint64_t)1 << processor % 64;
            }
        }
        for (int rank = 0; rank < 3; rank++) {
            char name[32];
            snprintf(name, sizeof name, "case %d, rank %d", (int)i, rank);
            expect(shm_is_crowded(a->header, rank, cases[i].quota) == cases[i].is_crowded[rank], name);
        }
    }
    arena_release(a);
    report("crowded ranks");
}

static void test_blocks(void) {
    int64_t blocks_before = heap_live_blocks();
    ag_memory_info before, after;
    ag_memory(&before);
    for (int size = 1; size <= 4; size++)
        for (int i = 0; i < 3 && (size > 1 || i == 0); i++) {
            if (size == 1) continue;
            ag_dtype dtype = i == 0 ? AG_F32 : i == 1 ? AG_BF16 : AG_F64;
            world w;
            world_open(&w, size, true, SLOT_BYTES);
            block_use use = {dtype, 0, BLOCK_COUNT};
            run_ranks(&w, use_block, &use);
            /* Written past the caches. */
            use.first_count = use.last_count = SHM_FAR_BYTES / (int64_t)dtype_size(dtype) + 21;
            if (size == 2 || (size == 3 && i == 0)) run_ranks(&w, use_block, &use);
            world_close(&w);
        }
    ag_memory(&after);
    expect(heap_live_blocks() == blocks_before && after.live_bytes == before.live_bytes, "nothing is left");
    report("blocks");
}

/* ---- many messages, one after the other, in both directions ---- */

#define NUM_MESSAGES 4000

static void exchange_messages(world *w, int rank, void *context) {
    (void)context;
    static const int64_t lengths[] = {0, 600, 300, 1, 0, 0, 513, 1600, 512};
    uint64_t sequences[2] = {0, 0};
    for (int i = 0; i < NUM_MESSAGES; i++) {
        unsigned char data[1600] = {0};
        int sender = i / 7 % 2;
        int64_t length = lengths[i % 9];
        collective_call call = {.kind = rank == sender ? COLLECTIVE_SEND : COLLECTIVE_RECEIVE,
                                .algorithm = ALGORITHM_DIRECT,
                                .dtype = AG_U8,
                                .size = 2,
                                .rank = rank,
                                .root = 1 - rank,
                                .count = length,
                                .input = data,
                                .output = data};
        for (int64_t k = 0; k < length && rank == sender; k++) data[k] = (unsigned char)(i * 31 + k / 3 + k);
        outcome done = call_run(w, rank, &call, ++sequences[sender], &(turn){.timeout_s = 20});
        expect(done.status == AG_OK, "a message");
        if (done.status != AG_OK) return;
        bool is_right = true;
        for (int64_t k = 0; k < length; k++) is_right &= data[k] == (unsigned char)(i * 31 + k / 3 + k);
        expect(is_right, "its bytes");
    }
}

static void test_stream(void) {
    world w;
    world_open(&w, 2, true, SLOT_BYTES);
    run_ranks(&w, exchange_messages, NULL);
    world_close(&w);
    report("many messages");
}

/* ---- numbers ---- */

static uint16_t narrowed(ag_dtype dtype, float value) {
    return dtype == AG_F16 ? float_to_half(value) : float_to_bfloat(value);
}

/* Every half of both kinds against some others, against loops that do one pair at a time; and a step through all floats. */
static void test_halves(void) {
    enum { ALL = 1 << 16 };
    static uint16_t left[ALL], right[ALL], third[ALL], got[ALL], wanted[ALL], second[ALL];
    static float sums[ALL], more[ALL];
    uint64_t random = 5;
    for (ag_dtype dtype = AG_F16; dtype <= AG_BF16; dtype++)
        for (int pass = 0; pass < 12; pass++) {
            reduce_op op = (reduce_op)(pass % 5);
            for (int i = 0; i < ALL; i++) {
                left[i] = (uint16_t)i;
                right[i] = (uint16_t)random_next(&random);
                third[i] = (uint16_t)random_next(&random);
            }
            int divisor = op == REDUCE_MEAN ? 3 : 1;
            const char *sources[] = {(const char *)left, (const char *)right, (const char *)third};
            reduce_elements(op, dtype, sums, left, dtype, right, dtype, ALL);
            reduce_elements(op, dtype, more, sums, AG_F32, third, dtype, ALL);
            for (int i = 0; i < ALL; i++) wanted[i] = narrowed(dtype, more[i] / (float)divisor);
            shm_reduce(op, dtype, (char *[]){(char *)got, (char *)second}, 2, 0, sources, 3, divisor, ALL);
            expect(memcmp(got, wanted, sizeof got) == 0 && memcmp(second, wanted, sizeof got) == 0, "halves of three ranks");
            reduce_widen(sums, left, dtype, ALL);
            for (int i = 0; i < ALL; i++) wanted[i] = narrowed(dtype, sums[i] / (float)divisor);
            shm_reduce(op, dtype, (char *[]){(char *)got}, 1, 0, sources, 1, divisor, ALL);
            expect(memcmp(got, wanted, sizeof got) == 0, "halves of one rank");
        }
    enum { STEP = 4099 };
    for (ag_dtype dtype = AG_F16; dtype <= AG_BF16; dtype++)
        for (uint32_t pattern = 0; pattern < UINT32_MAX - (uint32_t)ALL * STEP;) {
            for (int i = 0; i < ALL; i++, pattern += STEP) memcpy(&sums[i], &pattern, sizeof pattern);
            reduce_finish(dtype, got, sums, 1, ALL);
            for (int i = 0; i < ALL; i++) wanted[i] = narrowed(dtype, sums[i]);
            expect(memcmp(got, wanted, sizeof got) == 0, "floats that are rounded");
        }
    report("rounding of halves");
}

/* ---- stores past the caches ---- */

#define FAR_ROOM 24000 /* bytes */

static void fill_bytes(char *bytes, size_t num_bytes, uint64_t *random) {
    for (size_t i = 0; i < num_bytes; i++) bytes[i] = (char)random_next(random);
}

/* Bit by bit what the other loops give, NaN aside, and nothing beside it. */
static void test_far(void) {
    static _Alignas(64) char inputs[3][FAR_ROOM], got[3][FAR_ROOM], wanted[3][FAR_ROOM];
    static const int64_t counts[] = {0, 1, 15, 16, 64, 129, 1000, 2501};
    uint64_t random = 9;
    for (int pass = 0; pass < 2000; pass++) {
        ag_dtype dtype = (ag_dtype)(pass % AG_BOOL);
        reduce_op op = pass % 3 == 0 ? REDUCE_SUM : pass % 3 == 1 && dtype_is_float(dtype) ? REDUCE_MEAN : REDUCE_MAX;
        int64_t element = (int64_t)dtype_size(dtype), count = counts[random_next(&random) % 8];
        int num_sources = (int)(random_next(&random) % 4), divisor = op == REDUCE_MEAN ? 3 : 1;
        int num_dsts = 1 + (int)(random_next(&random) % 3), num_far = 1 + (int)(random_next(&random) % (uint64_t)num_dsts);
        int64_t shift = random_next(&random) % 2 == 0 ? 0 : element * (int64_t)(random_next(&random) % 64);
        for (int i = 0; i < 3; i++)
            for (int64_t k = 0; k < FAR_ROOM / element; k++)
                element_write(dtype, inputs[i] + k * element, (double)(random_next(&random) % 100) / 7);
        fill_bytes(got[0], sizeof got, &random);
        memcpy(wanted, got, sizeof got);
        const char *sources[] = {inputs[0] + shift, inputs[1], inputs[2] + 3 * element};
        char *near[] = {wanted[0] + shift, wanted[1], wanted[2]}, *far[] = {got[0] + shift, got[1], got[2]};
        shm_reduce(op, dtype, near, num_dsts, 0, sources, num_sources, divisor, count);
        shm_reduce(op, dtype, far, num_dsts, num_far, sources, num_sources, divisor, count);
        expect(memcmp(got, wanted, sizeof got) == 0, "a reduction");
        size_t from = random_next(&random) % 200, to = random_next(&random) % 200, length = random_next(&random) % 9000;
        shm_copy_out(got[0] + to, inputs[0] + from, length);
        memcpy(wanted[0] + to, inputs[0] + from, length);
        expect(memcmp(got, wanted, sizeof got) == 0, "a copy");
    }
    report("stores past the caches");
}

void test_threads(int64_t stride) {
    for (collective_kind kind = 0; kind < COLLECTIVE_KIND_COUNT; kind++) {
        if (kind == COLLECTIVE_RECEIVE) continue;
        test_kind(kind, false, stride);
        if (takes_counts(kind)) test_kind(kind, true, stride);
    }
    test_real_slots();
    test_scripts(stride == 1 ? 1500 : 150);
    test_stream();
    test_crowding();
    test_blocks();
    test_halves();
    test_far();
    test_failures();
}

/* ---- more elements than an int counts ---- */

#define MANY (((int64_t)1 << 31) + 5)

typedef struct many {
    int8_t *data[2];
    outcome outcomes[2];
} many;

/* Different enough that a window in a wrong place shows. */
static int64_t many_at(int64_t i) { return i ^ i >> 9 ^ i >> 22; }

static void reduce_many(world *w, int rank, void *context) {
    many *m = context;
    collective_call call = {.kind = COLLECTIVE_ALL_REDUCE,
                            .algorithm = ALGORITHM_DIRECT,
                            .op = REDUCE_SUM,
                            .dtype = AG_I8,
                            .size = 2,
                            .rank = rank,
                            .count = MANY,
                            .input = m->data[rank],
                            .output = m->data[rank]};
    m->outcomes[rank] = call_run(w, rank, &call, 1, &(turn){.timeout_s = 600});
}

void test_large(void) {
    world w;
    many m = {0};
    world_open(&w, 2, true, 0);
    for (int rank = 0; rank < 2; rank++) {
        m.data[rank] = memory_alloc(MANY);
        if (!m.data[rank]) exit(2);
        for (int64_t i = 0; i < MANY; i++) m.data[rank][i] = (int8_t)(many_at(i) + rank);
    }
    run_ranks(&w, reduce_many, &m);
    int64_t num_wrong = 0;
    for (int rank = 0; rank < 2; rank++) {
        expect(m.outcomes[rank].status == AG_OK, "all_reduce of more than 2^31 elements");
        for (int64_t i = 0; i < MANY; i++) num_wrong += m.data[rank][i] != (int8_t)(2 * many_at(i) + 1);
        memory_free(m.data[rank], MANY);
    }
    expect(num_wrong == 0, "its elements");
    world_close(&w);
    report("more than 2^31 elements in place");
}
