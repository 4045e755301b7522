/* transport_cases.c: worlds, calls, reports and the matrix of cases of transport_test. */
#include "support/transport_cases.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/dtype.h"
#include "core/error.h"
#include "platform/clock.h"

int num_failures;
static pthread_mutex_t report_lock = PTHREAD_MUTEX_INITIALIZER;
static char problem[768]; /* of the present group, "" = none so far */
static int64_t num_problems;
static atomic_llong num_cases;

bool fail(const char *format, ...) {
    pthread_mutex_lock(&report_lock);
    if (num_problems++ == 0) {
        va_list args;
        va_start(args, format);
        vsnprintf(problem, sizeof problem, format, args);
        va_end(args);
    }
    pthread_mutex_unlock(&report_lock);
    return false;
}

void expect(bool holds, const char *what) {
    atomic_fetch_add(&num_cases, 1);
    if (!holds) fail("%s; last error: %s", what, error_record()->message);
}

void report(const char *name) {
    bool failed = num_problems > 0;
    printf("%s  %s: %lld cases", failed ? "FAIL" : "ok  ", name, (long long)atomic_load(&num_cases));
    if (failed) printf(", %lld wrong, the first: %s", (long long)num_problems, problem);
    printf("\n");
    fflush(stdout);
    num_failures += failed;
    num_problems = 0;
    atomic_store(&num_cases, 0);
    problem[0] = '\0';
}

static void need(ag_status status) {
    if (status == AG_OK) return;
    printf("FAIL  set-up: %s\n", error_record()->message);
    fflush(stdout);
    _exit(2);
}

void world_open(world *w, int size, bool is_local, size_t slot_bytes) {
    static int number;
    memset(w, 0, sizeof *w);
    w->size = size;
    snprintf(w->prefix, sizeof w->prefix, "argand-test-%d-%d", (int)getpid(), number++);
    for (size_t i = 0; i < sizeof w->token; i++) w->token[i] = (char)(i * 7 + (size_t)number);
    for (int rank = 0; rank < size; rank++) {
        w->world_ranks[rank] = FIRST_WORLD_RANK + rank;
        cancel_init(&w->cancels[rank]);
    }
    need(arena_new(size, is_local, slot_bytes, &w->arena));
    if (!is_local) return;
    for (int rank = 0; rank < size; rank++) world_join(w, rank);
}

void world_join(world *w, int rank) {
    need(shm_transport_new(w->arena, rank, w->world_ranks, &w->cancels[rank], w->prefix, w->token, &w->members[rank]));
}

void world_close(world *w) {
    for (int rank = 0; rank < w->size; rank++)
        if (w->members[rank]) w->members[rank]->ops->free(w->members[rank]);
    arena_release(w->arena);
}

int64_t soon_ns(double seconds) { return clock_ns() + (int64_t)(seconds * 1e9); }

outcome call_run(world *w, int rank, const collective_call *call, uint64_t sequence, const turn *how) {
    static const turn plain;
    if (!how) how = &plain;
    transport_call request = {.call = *call, .refusal = how->refusal, .block = how->block, .block_offset = how->block_offset};
    request.call.sequence = sequence;
    request.deadline_ns = soon_ns(how->timeout_s > 0 ? how->timeout_s : 60);
    int64_t dims[1] = {call->count + how->more_in_print};
    collective_call printed = request.call;
    printed.count += how->more_in_print;
    call_print_make(&request.print, &printed, 1, dims);
    request.print.flags = (uint8_t)how->flags;
    outcome result = {.is_over = true};
    result.status = w->members[rank]->ops->run(w->members[rank], &request, &result.is_over);
    if (result.status != AG_OK) result.error = *error_record();
    return result;
}

static void *sit(void *context) {
    struct crew_seat *seat = context;
    seat->body(seat->world, seat->rank, seat->context);
    return NULL;
}

void start_ranks(crew *c, world *w, rank_body *body, void *context) {
    c->size = w->size;
    for (int rank = 0; rank < w->size; rank++) {
        c->seats[rank] = (struct crew_seat){w, rank, body, context};
        if (pthread_create(&c->threads[rank], NULL, sit, &c->seats[rank]) != 0) exit(2);
    }
}

void join_ranks(crew *c) {
    for (int rank = 0; rank < c->size; rank++) pthread_join(c->threads[rank], NULL);
}

void run_ranks(world *w, rank_body *body, void *context) {
    crew c;
    start_ranks(&c, w, body, context);
    join_ranks(&c);
}

bool takes_counts(collective_kind kind) {
    return kind == COLLECTIVE_ALL_GATHER || kind == COLLECTIVE_GATHER || kind == COLLECTIVE_SCATTER ||
           kind == COLLECTIVE_ALL_TO_ALL;
}

void make_job(job *j, job_options *o, int place, uint64_t *random) {
    o->is_in_place = place == 1;
    o->is_unaligned = place == 2;
    job_make(j, o, random);
    size_t element = dtype_size(o->dtype);
    for (int rank = 0; place == 3 && rank < o->size; rank++) {
        j->calls[rank].output = (char *)j->calls[rank].input + element;
        j->is_in_place = true;
    }
    for (int rank = 0; rank < o->size; rank++) j->calls[rank].algorithm = ALGORITHM_DIRECT;
}

const char *describe(const job_options *o, int place, char *buffer, size_t len) {
    snprintf(buffer, len, "%s, %s of %s, %d ranks, root %d, count %lld%s, place %d", collective_kind_name(o->kind),
             reduce_op_name(o->op), dtype_name(o->dtype), o->size, o->root, (long long)o->count,
             o->has_counts ? ", counts" : "", place);
    return buffer;
}

static void counts_and_places(job_options o, size_t slot_bytes, int64_t stride, int64_t *number, case_body *body,
                              void *context) {
    int n = o.size;
    int64_t fitting = (int64_t)(slot_bytes / dtype_size(o.dtype));
    const int64_t counts[] = {0, 1, n - 1, n, n + 1, 97, fitting - 1, fitting, fitting + 1, n * fitting, 5 * fitting + 3};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (int place = 0; place < 4; place++) {
            /* What would be overwritten in a send is another rank's. */
            if ((*number)++ % stride != 0 || (o.kind == COLLECTIVE_SEND && place % 2 == 1)) continue;
            o.count = counts[i];
            o.root = (int)(*number % n);
            o.other = (o.root + 1) % n;
            body(&o, place, context);
        }
}

void for_each_case(collective_kind kind, bool has_counts, int size, size_t slot_bytes, int64_t stride, int64_t *number,
                   case_body *body, void *context) {
    bool reduces = kind == COLLECTIVE_ALL_REDUCE || kind == COLLECTIVE_REDUCE || kind == COLLECTIVE_REDUCE_SCATTER;
    if (kind == COLLECTIVE_SEND && size == 1) return;
    for (ag_dtype dtype = 0; dtype < AG_DTYPE_COUNT; dtype++)
        for (reduce_op op = 0; op < (reduces ? REDUCE_OP_COUNT : 1); op++) {
            if (collective_supports(kind, op, dtype) != AG_OK) continue;
            job_options o = {
                .kind = kind, .algorithm = ALGORITHM_DIRECT, .op = op, .dtype = dtype, .size = size, .has_counts = has_counts};
            counts_and_places(o, slot_bytes, stride, number, body, context);
        }
}
