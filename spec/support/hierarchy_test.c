/* hierarchy_test.c: the hierarchical transport with all ranks as threads of one process: an arena for each host, hubs over ipc.
 *
 * Results are compared bit by bit with an order of their own: the hosts' sums in rank order, then those by the algorithm. Calls
 * that differ, refusals, absent ranks and ranks that do not come: what a session does between ranks does zmq_world.c.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/dtype.h"
#include "core/error.h"
#include "dist/algorithm/reduce.h"
#include "dist/transport/hierarchy.h"
#include "dist/transport/shm/arena.h"
#include "platform/interrupt.h"
#include "support/zmq_world.h"

#define SLOT_BYTES    512 /* several windows */
#define SEGMENT_BYTES 256
#define MAX_STEPS     48
#define LEADERS_GROUP 77

static int num_failures, num_problems;
static char problem[512];

static void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void fail(const char *format, ...) {
    if (num_problems++ > 0) return;
    va_list args;
    va_start(args, format);
    vsnprintf(problem, sizeof problem, format, args);
    va_end(args);
}

static void report(const char *name, int num_cases) {
    if (num_problems > 0)
        printf("FAIL  %s: %d of %d, the first: %s\n", name, num_problems, num_cases, problem);
    else
        printf("ok    %s: %d cases\n", name, num_cases);
    fflush(stdout);
    num_failures += num_problems > 0;
    num_problems = 0;
}

/* ---- a world of hosts ---- */

typedef struct layout {
    const char *name; /* the host of each rank */
    int size, num_hosts;
    int host_of[MAX_RANKS]; /* numbered in the order of their lowest ranks */
} layout;

static void need(ag_status status) {
    if (status == AG_OK) return;
    printf("FAIL  set-up: %s\n", error_record()->message);
    exit(1);
}

static int members_of(const layout *l, int host) {
    int num = 0;
    for (int rank = 0; rank < l->size; rank++) num += l->host_of[rank] == host;
    return num;
}

static void open_hosts(world *w, const layout *l) {
    world_open(w, &(world_options){.transport = "ipc", .size = l->size, .segment_bytes = SEGMENT_BYTES});
    arena *arenas[MAX_RANKS] = {0};
    char letters[MAX_RANKS][2];
    const char *tokens[MAX_RANKS];
    for (int rank = 0; rank < l->size; rank++) {
        letters[rank][0] = l->name[rank];
        letters[rank][1] = '\0';
        tokens[rank] = letters[rank];
    }
    for (int host = 0; host < l->num_hosts; host++)
        if (members_of(l, host) > 1) need(arena_new(members_of(l, host), true, SLOT_BYTES, &arenas[host]));
    for (int rank = 0; rank < l->size; rank++) {
        hierarchy_map *m;
        transport *local = NULL, *leaders = NULL;
        need(hierarchy_map_new(tokens, w->world_ranks, l->size, rank, &m));
        cancel *stop = &w->cancels[rank];
        if (arenas[m->own_host])
            need(shm_transport_new(arenas[m->own_host], m->local_rank, m->local_ranks, stop, "", NULL, &local));
        if (hierarchy_is_leader(m))
            need(zmq_transport_new(w->hubs[rank], LEADERS_GROUP, m->own_host, m->num_hosts, m->leader_ranks, "ipc", &leaders));
        need(hierarchy_new(m, w->world_ranks, local, leaders, w->groups[0][rank], &w->groups[0][rank]));
    }
    for (int host = 0; host < l->num_hosts; host++) arena_release(arenas[host]);
}

static layout layout_of(const char *name) {
    layout l = {.name = name, .size = (int)strlen(name)};
    for (int rank = 0; rank < l.size; rank++) {
        int first = (int)(strchr(name, name[rank]) - name);
        l.host_of[rank] = first == rank ? l.num_hosts++ : l.host_of[first];
    }
    return l;
}

/* ---- the order of reduction ---- */

typedef struct reference {
    const layout *l;
    const job_options *o;
    ag_dtype dtype; /* of sums */
    size_t element;
    int num_sums;
    char *sums[MAX_RANKS]; /* [count] of each host with a contribution */
} reference;

static void add(const reference *r, char *left, const char *right, int64_t count) {
    reduce_elements(r->o->op, r->dtype, left, left, r->dtype, right, r->dtype, count);
}

/* Hosts first, first + 1, … around, for elements [begin, end). */
static void sum_around(const reference *r, int first, int64_t begin, int64_t end, char *out) {
    size_t offset = (size_t)begin * r->element, num_bytes = (size_t)(end - begin) * r->element;
    for (int i = 0; i < r->num_sums; i++) {
        const char *from = r->sums[(first + i) % r->num_sums] + offset;
        if (i == 0)
            memcpy(out + offset, from, num_bytes);
        else
            add(r, out + offset, from, end - begin);
    }
}

/* Places first to first + width - 1 into the sum of the first; folded hosts lie in the sums of their pairs. */
static const char *sum_halves(const reference *r, char *const *places, int first, int width) {
    if (width == 1) return places[first];
    sum_halves(r, places, first, width / 2);
    add(r, places[first], sum_halves(r, places, first + width / 2, width / 2), r->o->count);
    return places[first];
}

static void sum_by_halving(const reference *r, char *out) {
    int num_places = 1;
    while (2 * num_places <= r->num_sums) num_places *= 2;
    char *places[MAX_RANKS];
    for (int i = 0, num_folded = r->num_sums - num_places; i < num_places; i++) {
        places[i] = r->sums[i < num_folded ? 2 * i : i + num_folded];
        if (i < num_folded) add(r, places[i], r->sums[2 * i + 1], r->o->count);
    }
    memcpy(out, sum_halves(r, places, 0, num_places), (size_t)r->o->count * r->element);
}

static const char *sum_tree(const reference *r, int root, int place) {
    char *total = r->sums[(place + root) % r->num_sums];
    for (int distance = 1; distance < r->num_sums && (place & distance) == 0; distance *= 2)
        if (place + distance < r->num_sums) add(r, total, sum_tree(r, root, place + distance), r->o->count);
    return total;
}

/* Puts what all ranks have to get in place of what job_make expected of a flat order. absent: bits of ranks. */
static void expect_hierarchy(job *j, const layout *l, const job_options *o, unsigned absent) {
    reference r = {.l = l, .o = o, .dtype = dtype_is_half(o->dtype) ? AG_F32 : o->dtype};
    r.element = dtype_size(r.dtype);
    size_t num_bytes = (size_t)(o->count + 1) * r.element;
    char *block = calloc((size_t)l->num_hosts + 1, num_bytes), *out = block + (size_t)l->num_hosts * num_bytes;
    if (!block) exit(2);
    for (int host = 0; host < l->num_hosts; host++) {
        char *sum = r.sums[r.num_sums] = block + (size_t)host * num_bytes;
        bool has_any = false;
        for (int rank = 0; rank < l->size; rank++) {
            if (l->host_of[rank] != host || (absent >> rank & 1)) continue;
            if (has_any)
                reduce_elements(o->op, o->dtype, sum, sum, r.dtype, j->original[rank], o->dtype, o->count);
            else
                reduce_widen(sum, j->original[rank], o->dtype, o->count);
            has_any = true;
        }
        r.num_sums += has_any;
    }
    if (o->kind == COLLECTIVE_REDUCE)
        memcpy(out, sum_tree(&r, l->host_of[o->root], 0), num_bytes);
    else if (o->algorithm == ALGORITHM_HALVING)
        sum_by_halving(&r, out);
    else
        for (int chunk = 0; chunk < r.num_sums; chunk++)
            sum_around(&r, o->algorithm == ALGORITHM_RING ? chunk + 1 : 0, chunk_offset(o->count, r.num_sums, chunk),
                       chunk_offset(o->count, r.num_sums, chunk + 1), out);
    reduce_finish(o->dtype, out, out, o->op == REDUCE_MEAN ? l->size : 1, o->count);
    for (int rank = 0; rank < l->size; rank++)
        memcpy(j->expected[rank], out, (size_t)j->output_length[rank] * dtype_size(o->dtype));
    free(block);
}

/* ---- many right calls, one after the other ---- */

typedef struct script {
    world *w;
    const layout *l;
    int num_steps, num_cases;
    job jobs[MAX_STEPS];
    job_options options[MAX_STEPS];
    step steps[MAX_RANKS][MAX_STEPS];
    uint64_t random;
} script;

static void run_script(script *s) {
    lane lanes[MAX_RANKS] = {0};
    for (int rank = 0; rank < s->l->size; rank++)
        lanes[rank] = (lane){.w = s->w, .rank = rank, .steps = s->steps[rank], .num_steps = s->num_steps};
    run_lanes(lanes, s->l->size);
    for (int i = 0; i < s->num_steps; i++) {
        const job_options *o = &s->options[i];
        for (int rank = 0; rank < s->l->size; rank++) {
            const char *what = i >= lanes[rank].num_done                 ? lanes[rank].own.message
                               : !job_is_right(&s->jobs[i], rank)        ? "a wrong result"
                               : o->is_in_place                          ? ""
                               : !job_input_is_intact(&s->jobs[i], rank) ? "another input"
                                                                         : "";
            if (what[0])
                fail("%s, rank %d: %s %s %s(%s) of %lld, root %d%s: %s", s->l->name, rank, collective_kind_name(o->kind),
                     algorithm_name(o->algorithm), reduce_op_name(o->op), dtype_name(o->dtype), (long long)o->count, o->root,
                     o->is_in_place ? ", in place" : "", what);
        }
        job_free(&s->jobs[i]);
    }
    s->num_cases += s->num_steps;
    s->num_steps = 0;
}

static bool reduces(collective_kind kind) { return kind == COLLECTIVE_ALL_REDUCE || kind == COLLECTIVE_REDUCE; }

/* is_shifted: outputs begin an element behind the inputs. */
static void add_shifted(script *s, const job_options *options, unsigned absent, bool is_shifted) {
    int i = s->num_steps;
    job_options *o = &s->options[i];
    *o = *options;
    o->size = s->l->size;
    job_make(&s->jobs[i], o, &s->random);
    for (int rank = 0; is_shifted && rank < s->l->size; rank++) {
        s->jobs[i].calls[rank].output = (char *)s->jobs[i].calls[rank].input + dtype_size(o->dtype);
        o->is_in_place = true;
    }
    if (reduces(o->kind)) expect_hierarchy(&s->jobs[i], s->l, o, absent);
    uint64_t sequence = world_number(s->w, 0, o);
    for (int rank = 0; rank < s->l->size; rank++) {
        s->steps[rank][i] = step_of(&s->jobs[i].calls[rank], sequence, 60);
        s->steps[rank][i].is_skipped = o->kind == COLLECTIVE_SEND && rank != o->root && rank != o->other;
        if (absent >> rank & 1) s->steps[rank][i].call.print.flags |= CALL_ABSENT;
    }
    if (++s->num_steps == MAX_STEPS) run_script(s);
}

static void add_step(script *s, const job_options *options, unsigned absent) { add_shifted(s, options, absent, false); }

static bool is_defined(reduce_op op, ag_dtype dtype) { return collective_supports(COLLECTIVE_ALL_REDUCE, op, dtype) == AG_OK; }

/* 3000 elements are windows in memory and segments in the network. */
static const int64_t counts[] = {0, 1, 7, 64, 3000};
#define NUM_COUNTS ((int)(sizeof counts / sizeof *counts))

static void add_reductions(script *s) {
    static const collective_algorithm algorithms[] = {ALGORITHM_DIRECT, ALGORITHM_RING, ALGORITHM_HALVING};
    int turn = 0;
    for (ag_dtype dtype = 0; dtype < AG_DTYPE_COUNT; dtype++)
        for (reduce_op op = 0; op < REDUCE_OP_COUNT; op++)
            for (int i = 0; is_defined(op, dtype) && i < NUM_COUNTS; i++, turn++) {
                job_options o = {
                    .dtype = dtype, .op = op, .count = counts[i], .is_in_place = turn % 2, .is_unaligned = turn % 3 == 0};
                o.kind = COLLECTIVE_ALL_REDUCE;
                o.algorithm = algorithms[turn % 3];
                add_shifted(s, &o, 0, turn % 5 == 0);
                o.kind = COLLECTIVE_REDUCE;
                o.algorithm = ALGORITHM_TREE;
                o.root = turn % s->l->size;
                add_step(s, &o, 0);
            }
}

static void add_moves(script *s) {
    static const collective_kind kinds[] = {COLLECTIVE_BROADCAST, COLLECTIVE_ALL_GATHER, COLLECTIVE_REDUCE_SCATTER,
                                            COLLECTIVE_GATHER,    COLLECTIVE_SCATTER,    COLLECTIVE_ALL_TO_ALL,
                                            COLLECTIVE_SEND};
    static const ag_dtype dtypes[] = {AG_F32, AG_BF16, AG_I64, AG_BOOL};
    for (int k = 0; k < 7; k++)
        for (int d = 0; d < 4; d++)
            for (int i = 0; i < NUM_COUNTS; i++)
                for (int root = 0; root < s->l->size; root += kinds[k] == COLLECTIVE_BROADCAST ? 1 : 2) {
                    job_options o = {.kind = kinds[k], .dtype = dtypes[d], .count = counts[i], .root = root};
                    if (dtypes[d] == AG_BOOL) o.op = REDUCE_OR;
                    o.other = (root + 1) % s->l->size;
                    o.algorithm = algorithm_list(o.kind)[0];
                    if (kinds[k] == COLLECTIVE_BROADCAST && i % 2) o.algorithm = ALGORITHM_CHAIN;
                    bool is_gather = kinds[k] == COLLECTIVE_ALL_GATHER, takes_counts = k == 1 || (k >= 3 && k <= 5);
                    if (is_gather && i % 2) o.algorithm = ALGORITHM_RING;
                    o.is_in_place = is_gather && d % 2;
                    o.has_counts = takes_counts && root > 0;
                    add_shifted(s, &o, 0, is_gather && d == 2);
                }
    job_options barrier = {.kind = COLLECTIVE_BARRIER, .algorithm = ALGORITHM_DISSEMINATION, .dtype = AG_BOOL};
    add_step(s, &barrier, 0);
}

/* All on a host, one on each, any; direct: hosts without a contribution are none in its order. */
static void add_absences(script *s) {
    for (unsigned absent = 1; absent + 1 < 1u << s->l->size; absent += s->l->size > 5 ? 13 : 1)
        for (int d = 0; d < 3; d++) {
            job_options o = {.count = 600, .dtype = d == 0 ? AG_F32 : d == 1 ? AG_F16 : AG_U8, .algorithm = ALGORITHM_DIRECT};
            for (o.op = REDUCE_SUM; o.op <= REDUCE_PROD; o.op++) {
                if (!is_defined(o.op, o.dtype)) continue;
                o.is_in_place = absent % 2;
                add_step(s, &o, absent);
            }
        }
}

static void test_results(const layout *l, void (*add_steps)(script *), const char *what) {
    static world w;
    static script s;
    char name[64];
    open_hosts(&w, l);
    s = (script){.w = &w, .l = l, .random = (uint64_t)l->size};
    add_steps(&s);
    run_script(&s);
    world_close(&w);
    snprintf(name, sizeof name, "%s, %s", what, l->name);
    report(name, s.num_cases);
}

/* ---- calls that fail ---- */

/* One call on all ranks, which spoil() changes for rank `odd` and which rank `late` (-1: none) makes 0.4 s after the others. */
static void run_spoilt(const layout *l, int odd, int late, void (*spoil)(step *), ag_status code, bool odd_fails,
                       const char *wanted) {
    static world w;
    open_hosts(&w, l);
    uint64_t random = 1;
    job_options o = {.kind = COLLECTIVE_ALL_REDUCE, .dtype = AG_BF16, .count = 900, .size = l->size, .is_in_place = true};
    o.algorithm = ALGORITHM_DIRECT;
    job j;
    step steps[MAX_RANKS];
    lane lanes[MAX_RANKS] = {0};
    job_make(&j, &o, &random);
    uint64_t sequence = world_number(&w, 0, &o);
    for (int rank = 0; rank < l->size; rank++) {
        steps[rank] = step_of(&j.calls[rank], sequence, code == AG_E_MISMATCH ? 10 : late >= 0 ? 2 : 0.5);
        if (rank == odd) spoil(&steps[rank]);
        if (rank == late) steps[rank].delay_us = 400000;
        lanes[rank] = (lane){.w = &w, .rank = rank, .steps = &steps[rank], .num_steps = 1};
    }
    run_lanes(lanes, l->size);
    const char *text = NULL;
    for (int rank = 0; rank < l->size; rank++) {
        if (!job_input_is_intact(&j, rank)) fail("%s, rank %d: another input", l->name, rank);
        if (rank == odd && !odd_fails) {
            if (lanes[rank].status != AG_OK) fail("%s, the odd rank %d: %s", l->name, rank, lanes[rank].own.message);
            continue;
        }
        const ag_error *e = &lanes[rank].error;
        if (!text) text = e->got;
        char odd_name[24];
        snprintf(odd_name, sizeof odd_name, "rank %d", odd);
        if (lanes[rank].status != code || !lanes[rank].is_over || !strstr(e->got, wanted) || strcmp(e->got, text) != 0 ||
            !strstr(e->got, odd_name))
            fail("%s, rank %d, odd %d: status %d, '%s', '%s' elsewhere", l->name, rank, odd, (int)lanes[rank].status, e->got,
                 text);
    }
    world_close(&w);
    job_free(&j);
}

static void spoil_print(step *s) {
    int64_t dims[2] = {30, 30};
    call_print_make(&s->call.print, &s->call.call, 2, dims);
}

/* Another way through the hosts. */
static void spoil_kind(step *s) {
    s->call.call.kind = COLLECTIVE_REDUCE_SCATTER;
    call_print_make(&s->call.print, &s->call.call, 1, &s->call.call.count);
}

static void spoil_refuse(step *s) {
    s->call.print.flags |= CALL_REFUSED;
    s->call.refusal = "the moon is full";
}

static void spoil_skip(step *s) { s->is_skipped = true; }

static void test_failures(const layout *l) {
    for (int odd = 0; odd < l->size; odd++) {
        run_spoilt(l, odd, -1, spoil_print, AG_E_MISMATCH, true, "bf16[30, 30]");
        run_spoilt(l, odd, -1, spoil_kind, AG_E_MISMATCH, true, "called reduce_scatter(sum) of bf16[900]");
        run_spoilt(l, odd, -1, spoil_refuse, AG_E_MISMATCH, false, "refused all_reduce(sum) of bf16[900]: the moon is full");
        run_spoilt(l, odd, -1, spoil_skip, AG_E_TIMEOUT, false, "within");
    }
    /* The leader who waits for the other one speaks first: it does not know for whom that one waits. */
    bool is_paired = strcmp(l->name, "aabb") == 0;
    if (is_paired) run_spoilt(l, 3, 2, spoil_skip, AG_E_TIMEOUT, false, "s, or from its host's rank 3");
    char name[64];
    snprintf(name, sizeof name, "calls that fail, %s", l->name);
    report(name, 4 * l->size + is_paired);
}

/* ---- calls of a worker ---- */

/* They go on after a Ctrl-C, which is for the thread that waits for them. */
static void test_background(const layout *l) {
    static world w;
    open_hosts(&w, l);
    uint64_t random = 1;
    job_options o = {
        .kind = COLLECTIVE_ALL_REDUCE, .algorithm = ALGORITHM_DIRECT, .dtype = AG_F32, .count = 900, .size = l->size};
    job j;
    step steps[MAX_RANKS];
    lane lanes[MAX_RANKS] = {0};
    job_make(&j, &o, &random);
    expect_hierarchy(&j, l, &o, 0);
    uint64_t sequence = world_number(&w, 0, &o);
    for (int rank = 0; rank < l->size; rank++) {
        steps[rank] = step_of(&j.calls[rank], sequence, 60);
        steps[rank].call.is_background = true;
        steps[rank].delay_us = rank == l->size - 1 ? 50000 : 0; /* the others are to wait */
        lanes[rank] = (lane){.w = &w, .rank = rank, .steps = &steps[rank], .num_steps = 1};
    }
    interrupt_raise();
    run_lanes(lanes, l->size);
    interrupt_clear();
    for (int rank = 0; rank < l->size; rank++)
        if (lanes[rank].status != AG_OK || !job_is_right(&j, rank))
            fail("%s, rank %d: %s", l->name, rank, lanes[rank].status == AG_OK ? "a wrong result" : lanes[rank].own.message);
    world_close(&w);
    job_free(&j);
    char name[64];
    snprintf(name, sizeof name, "an interrupt beside a worker's call, %s", l->name);
    report(name, l->size);
}

/* ---- ends at any moment ---- */

typedef struct end {
    world *w;
    unsigned delay_us;
} end;

static void *bring_end(void *context) {
    const end *e = context;
    usleep(e->delay_us);
    world_abort(e->w, AG_E_PEER, 0, "rank 0 has ended");
    return NULL;
}

/* Calls of many windows in place, cut off: a rank has its result, or its input. Returns how long the call took. */
static double run_cut(const layout *l, collective_kind kind, unsigned delay_us, uint64_t *random, int *num_cut) {
    static world w;
    open_hosts(&w, l);
    job_options o = {.kind = kind, .algorithm = algorithm_list(kind)[0], .dtype = AG_F32, .count = 20000, .is_in_place = true};
    o.size = l->size;
    o.root = l->size - 1;
    job j;
    step steps[MAX_RANKS];
    lane lanes[MAX_RANKS] = {0};
    end e = {.w = &w, .delay_us = delay_us};
    pthread_t ender;
    job_make(&j, &o, random);
    if (reduces(kind)) expect_hierarchy(&j, l, &o, 0);
    uint64_t sequence = world_number(&w, 0, &o);
    for (int rank = 0; rank < l->size; rank++) {
        steps[rank] = step_of(&j.calls[rank], sequence, 60);
        lanes[rank] = (lane){.w = &w, .rank = rank, .steps = &steps[rank], .num_steps = 1};
    }
    if (delay_us > 0 && pthread_create(&ender, NULL, bring_end, &e) != 0) exit(2);
    run_lanes(lanes, l->size);
    if (delay_us > 0) pthread_join(ender, NULL);
    double seconds = 0;
    for (int rank = 0; rank < l->size; rank++) {
        bool has_result = kind != COLLECTIVE_REDUCE || rank == o.root;
        if (lanes[rank].status == AG_OK ? has_result && !job_is_right(&j, rank) : !job_input_is_intact(&j, rank))
            fail("%s, rank %d, %s cut off after %u us: %s", l->name, rank, collective_kind_name(kind), delay_us,
                 lanes[rank].status == AG_OK ? "a wrong result" : "another input");
        *num_cut += lanes[rank].status != AG_OK;
        if (lanes[rank].seconds > seconds) seconds = lanes[rank].seconds;
    }
    world_close(&w);
    job_free(&j);
    return seconds;
}

#define NUM_CUTS 40

static void test_cuts(const layout *l) {
    static const collective_kind kinds[] = {COLLECTIVE_ALL_REDUCE, COLLECTIVE_REDUCE, COLLECTIVE_ALL_GATHER};
    uint64_t random = 5;
    int num_cut = 0;
    for (int k = 0; k < 3; k++) {
        double whole_us = 1e6 * run_cut(l, kinds[k], 0, &random, &num_cut);
        for (int i = 0; i < NUM_CUTS; i++) run_cut(l, kinds[k], 1 + (unsigned)(i * whole_us / NUM_CUTS), &random, &num_cut);
    }
    if (num_cut == 0) fail("%s: no call was cut off", l->name);
    char name[64];
    snprintf(name, sizeof name, "calls cut off, %s, %d times", l->name, num_cut);
    report(name, 3 * NUM_CUTS);
}

int main(void) {
    static const char *const names[] = {"aabb", "abb", "aaab", "abab", "abcab", "aabbccca"};
    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++) {
        layout l = layout_of(names[i]);
        test_results(&l, add_reductions, "reductions");
        test_results(&l, add_moves, "other kinds");
        test_results(&l, add_absences, "absent ranks");
        if (l.num_hosts == 2) test_failures(&l);
        if (l.num_hosts == 2) test_background(&l);
        if (l.size == 4) test_cuts(&l);
    }
    return num_failures > 0;
}
