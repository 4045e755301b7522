/* group_world.h: ranks that run a body through argand.h, as threads or as forked processes; part of group_test.c.
 *
 * A body tells the first thing that is wrong by `fail`, and what it computes with is made and held to what it should be here.
 * After its body a rank closes its group, unless the body did; then nothing may be left: no heap block, no storage, no descriptor.
 */
#ifndef ARGAND_SPEC_SUPPORT_GROUP_WORLD_H
#define ARGAND_SPEC_SUPPORT_GROUP_WORLD_H

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "argand.h"

#define MAX_RANKS 4
#define LIMIT_S   30 /* for a case: what takes longer hangs */

/* How the ranks of a world meet. */
typedef enum world_kind { THREADS, SHM, TCP, NUM_KINDS } world_kind;
static const char *const kind_names[NUM_KINDS] = {"threads", "shm", "tcp"};

/* What all ranks see, in memory that processes share. */
typedef struct board {
    _Atomic int marks[8]; /* words of the ranks to each other */
    int numbers[MAX_RANKS];
    char problems[MAX_RANKS][900]; /* "" = none; the first one is kept */
} board;

typedef struct rank_test {
    int rank, size;
    int64_t number; /* of the variant */
    world_kind kind;
    ag_group *group; /* NULL: the body has closed it */
    board *board;
    bool is_quiet; /* what fails is expected, and looked at by the body */
} rank_test;

typedef void (*rank_body)(rank_test *t);

/* How to make a world; zeros mean the default. */
typedef struct world_setup {
    int64_t number;
    double timeout_s;
    const char *job; /* the beginning of its name */
    uint32_t epoch;
    void (*during)(board *b); /* run by the main thread meanwhile, beside threads */
} world_setup;

static int num_failures, num_jobs;
static const char *case_name = "";

/* ---- problems ---- */

static bool fail(rank_test *t, const char *format, ...) {
    char *problem = t->board->problems[t->rank];
    if (problem[0] != '\0') return false;
    va_list args;
    va_start(args, format);
    vsnprintf(problem, sizeof t->board->problems[0], format, args);
    va_end(args);
    return false;
}

static bool ok(rank_test *t, ag_status status, const char *what) {
    return status == AG_OK || t->is_quiet || fail(t, "%s: %s", what, ag_last_error()->message);
}

/* The call must have failed with this code, its message hold the text, and, unless it is -1, the culprits be this rank. */
static bool failed_with(rank_test *t, ag_status status, ag_status code, const char *part, int culprit, const char *what) {
    if (status == AG_OK) return fail(t, "%s: it succeeded", what);
    const ag_error *e = ag_last_error();
    if (status != code || e->code != code || !strstr(e->message, part))
        return fail(t, "%s: expected %s with \"%s\", got %s: %s", what, ag_status_word(code), part, ag_status_word(status),
                    e->message);
    if (culprit >= 0 && (e->num_culprits != 1 || e->culprits[0] != culprit))
        return fail(t, "%s: %d culprits, the first is %d, not %d alone: %s", what, (int)e->num_culprits, (int)e->culprits[0],
                    culprit, e->message);
    return true;
}

static void end_of_time(int number) {
    (void)number;
    char text[200];
    int len = snprintf(text, sizeof text, "FAIL  %s: it has not ended within %d s\n", case_name, LIMIT_S);
    (void)!write(1, text, (size_t)len);
    _exit(1);
}

static void report(const char *problem) { /* "" = none */
    if (problem[0])
        printf("FAIL  %s: %s\n", case_name, problem);
    else
        printf("ok    %s\n", case_name);
    fflush(stdout);
    num_failures += problem[0] != '\0';
}

/* ---- time and marks ---- */

static double seconds_now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + 1e-9 * (double)at.tv_nsec;
}

static void pause_ms(int ms) { nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL); }

static void add_mark(board *b, int index) { atomic_fetch_add_explicit(&b->marks[index], 1, memory_order_acq_rel); }

/* Waits until `count` ranks have set the mark; the case's limit ends what never comes. */
static void await_mark(board *b, int index, int count) {
    while (atomic_load_explicit(&b->marks[index], memory_order_acquire) < count) pause_ms(1);
}

/* ---- tensors ---- */

/* f32 [count]: base, base + 1, … */
static ag_tensor *vector(rank_test *t, int64_t count, double base) {
    ag_tensor *v = NULL;
    void *data;
    if (!ok(t, ag_tensor_empty(AG_F32, 1, &count, NULL, &v), "empty") || !ok(t, ag_tensor_data(v, &data), "data")) return NULL;
    for (int64_t i = 0; i < count; i++) ((float *)data)[i] = (float)(base + (double)i);
    return v;
}

static bool holds(rank_test *t, ag_tensor *v, int64_t count, double base, double step, const char *what) {
    void *data = NULL;
    if (!v) return t->is_quiet || fail(t, "%s: no tensor", what);
    if (ag_tensor_numel(v) != count) return fail(t, "%s: %d elements, not %d", what, (int)ag_tensor_numel(v), (int)count);
    if (!ok(t, ag_tensor_data(v, &data), "data")) return false;
    for (int64_t i = 0; i < count; i++)
        if (((float *)data)[i] != (float)(base + step * (double)i))
            return fail(t, "%s: element %d is %g, not %g", what, (int)i, (double)((float *)data)[i], base + step * (double)i);
    return true;
}

static ag_arg tensor_arg(ag_tensor *v) { return (ag_arg){.kind = AG_ARG_TENSOR, .as.tensor = v}; }
static ag_arg int_arg(int64_t i) { return (ag_arg){.kind = AG_ARG_INT, .is_integer = true, .as.integer = i}; }

/* v[start : start + count] of the first dim, over the same storage */
static ag_tensor *part(rank_test *t, ag_tensor *v, int64_t start, int64_t count) {
    ag_tensor *view = NULL;
    ag_arg args[4] = {tensor_arg(v), int_arg(0), int_arg(start), int_arg(count)};
    ok(t, ag_op_call(ag_op_find("narrow"), args, 4, NULL, &view), "narrow");
    return view;
}

/* The sum over n ranks of rank + 1. */
static double sum_of(int n) { return n * (n + 1) / 2.0; }

/* ---- calls ---- */

/* all_reduce of `count` elements that are rank + 1, and holds the result to the sum. */
static bool all_reduce(rank_test *t, ag_group *g, int64_t count, const char *what) {
    int64_t dims[1] = {count};
    ag_tensor *v = NULL, *sum = NULL;
    void *data;
    ag_status status = ag_tensor_empty(AG_F32, 1, dims, NULL, &v);
    if (status == AG_OK) status = ag_tensor_data(v, &data);
    for (int64_t i = 0; status == AG_OK && i < count; i++) ((float *)data)[i] = (float)(ag_group_rank(g) + 1);
    if (status == AG_OK) status = ag_collective_run(g, &(ag_collective){.kind = "all_reduce", .input = v}, &sum);
    bool is_right = ok(t, status, what) && (status != AG_OK || holds(t, sum, count, sum_of(ag_group_size(g)), 0, what));
    ag_tensor_release(v);
    if (status == AG_OK) ag_tensor_release(sum);
    return is_right && status == AG_OK;
}

static ag_status barrier(ag_group *g, double timeout_s) {
    return ag_collective_run(g, &(ag_collective){.kind = "barrier", .timeout_s = timeout_s}, NULL);
}

static ag_work *start(rank_test *t, ag_group *g, ag_tensor *v, const char *what) {
    ag_work *w = NULL;
    ok(t, ag_collective_start(g, &(ag_collective){.kind = "all_reduce", .input = v}, &w), what);
    return w;
}

static void await_end(rank_test *t) {
    while (!ag_group_has_ended(t->group)) pause_ms(1);
}

/* ---- what is left ---- */

typedef struct holdings {
    int64_t heap_blocks, live_bytes;
    int num_fds;
} holdings;

static holdings hold_now(void) {
    holdings h = {0};
    ag_memory_info info;
    ag_memory_trim();
    ag_memory(&info);
    h.heap_blocks = info.heap_blocks;
    h.live_bytes = info.live_bytes;
    DIR *dir = opendir("/proc/self/fd");
    while (dir && readdir(dir)) h.num_fds++;
    if (dir) closedir(dir);
    return h;
}

static bool compare_holdings(rank_test *t, const holdings *before) {
    holdings after = hold_now();
    if (after.heap_blocks == before->heap_blocks && after.live_bytes == before->live_bytes && after.num_fds == before->num_fds)
        return true;
    return fail(t, "left over: %d heap blocks, %d bytes, %d descriptors", (int)(after.heap_blocks - before->heap_blocks),
                (int)(after.live_bytes - before->live_bytes), after.num_fds - before->num_fds);
}

/* ---- running ---- */

static board *new_board(void) {
    void *memory = mmap(NULL, sizeof(board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    return memory;
}

/* The first problem of a rank, "" = none. */
static const char *find_problem(const board *b, int size, char *text, size_t len) {
    text[0] = '\0';
    for (int r = 0; r < size && text[0] == '\0'; r++)
        if (b->problems[r][0]) snprintf(text, len, "rank %d: %.880s", r, b->problems[r]);
    return text;
}

typedef struct rank_thread {
    rank_test test;
    rank_body body;
    pthread_t thread;
} rank_thread;

static void *run_thread(void *context) {
    rank_thread *r = context;
    r->body(&r->test);
    return NULL;
}

static void run_threads(int size, rank_body body, const world_setup *setup, board *b) {
    rank_thread ranks[MAX_RANKS];
    ag_group *groups[MAX_RANKS];
    rank_test first = {.board = b};
    holdings before = hold_now();
    if (ag_group_open_threads(size, groups) != AG_OK) {
        ok(&first, AG_E_STATE, "open_threads");
        return;
    }
    for (int r = 0; r < size; r++) {
        ranks[r] = (rank_thread){.body = body};
        ranks[r].test = (rank_test){.rank = r, .size = size, .number = setup->number, .group = groups[r], .board = b};
        pthread_create(&ranks[r].thread, NULL, run_thread, &ranks[r]);
    }
    if (setup->during) setup->during(b);
    for (int r = 0; r < size; r++) pthread_join(ranks[r].thread, NULL);
    for (int r = 0; r < size; r++) ag_group_free(ranks[r].test.group);
    compare_holdings(&first, &before);
}

static void run_process(rank_test *t, rank_body body, const world_setup *setup, const char *coordinator, const char *job) {
    holdings before = hold_now();
    ag_group_options options = {.rank = t->rank,
                                .size = t->size,
                                .coordinator = coordinator,
                                .job = job,
                                .epoch = setup->epoch,
                                .transport = kind_names[t->kind],
                                .timeout_s = setup->timeout_s,
                                .init_timeout_s = 20};
    if (!ok(t, ag_group_open(&options, &t->group), "open")) return;
    body(t);
    if (t->group && ag_group_has_ended(t->group))
        ag_group_free(t->group);
    else if (t->group)
        ok(t, ag_group_close(t->group, 10), "close");
    compare_holdings(t, &before);
}

/* A world of processes that runs. */
typedef struct process_world {
    board *board;
    int size;
    pid_t pids[MAX_RANKS];
} process_world;

static process_world start_processes(world_kind kind, int size, rank_body body, const world_setup *setup) {
    char job[64], coordinator[100];
    process_world w = {.board = new_board(), .size = size};
    snprintf(job, sizeof job, "%sgroup-test-%d-%d", setup->job ? setup->job : "", (int)getpid(), num_jobs++);
    snprintf(coordinator, sizeof coordinator, "ipc://@argand-%s", job);
    fflush(stdout);
    for (int r = 0; r < size; r++) {
        w.pids[r] = fork();
        if (w.pids[r] != 0) continue;
        alarm(LIMIT_S);
        rank_test t = {.rank = r, .size = size, .number = setup->number, .kind = kind, .board = w.board};
        run_process(&t, body, setup, coordinator, job);
        exit(0); /* not _exit: leak checkers work there */
    }
    return w;
}

/* Waits for its end; the board stays. */
static void finish_processes(const process_world *w) {
    for (int r = 0; r < w->size; r++) {
        int word = 0;
        rank_test t = {.rank = r, .board = w->board};
        waitpid(w->pids[r], &word, 0);
        if (!WIFEXITED(word) || WEXITSTATUS(word) != 0) fail(&t, "it ended with status 0x%x", word);
    }
}

#endif
