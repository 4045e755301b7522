/* transport_processes.c: transport_test over processes: handing out memory, calls, blocks, a rank that is killed, limits. */
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/dtype.h"
#include "core/error.h"
#include "dist/transport/shm/handover.h"
#include "support/transport_cases.h"

#define SLOT_BYTES 512

/* Ends a child with the news of its checks: a child has no lines of its own. */
#define CHECK(holds)                                                                                                    \
    do {                                                                                                                \
        if (!(holds)) {                                                                                                 \
            fprintf(stderr, "rank %d, line %d: %s; last error: %s\n", rank, __LINE__, #holds, error_record()->message); \
            _exit(1);                                                                                                   \
        }                                                                                                               \
    } while (0)

typedef void child_body(world *w, int rank, int64_t argument);

/* Forks ranks first to size - 1. */
static void fork_ranks(world *w, int first, child_body *body, int64_t argument, pid_t pids[MAX_RANKS]) {
    fflush(stdout);
    for (int rank = first; rank < w->size; rank++) {
        pids[rank] = fork();
        if (pids[rank] < 0) exit(2);
        if (pids[rank] > 0) continue;
        alarm(120); /* a child never outlives a test that was ended */
        body(w, rank, argument);
        _exit(0);
    }
}

static void expect_ends(const world *w, int first, const pid_t pids[MAX_RANKS], const char *what) {
    for (int rank = first; rank < w->size; rank++) {
        int status = -1;
        expect(waitpid(pids[rank], &status, 0) == pids[rank] && WIFEXITED(status) && WEXITSTATUS(status) == 0, what);
    }
}

/* A world whose ranks other than 0 have to fetch the arena. */
static int open_and_listen(world *w, int size) {
    world_open(w, size, false, SLOT_BYTES);
    int fd = -1;
    expect(arena_listen(w->prefix, &fd) == AG_OK, "listening");
    return fd;
}

static void fetch(world *w, int rank) {
    arena *inherited = w->arena;
    CHECK(arena_connect(w->prefix, w->token, w->size, soon_ns(30), &w->arena) == AG_OK);
    CHECK(w->arena->header != inherited->header);
    arena_release(inherited);
    world_join(w, rank);
}

/* ---- calls ---- */

typedef struct member {
    world *world;
    int rank;
    uint64_t random, sequence;
} member;

/* Every rank makes the same job and runs its own part. */
static void run_case(const job_options *options, int place, void *context) {
    member *m = context;
    int rank = m->rank;
    job j;
    job_options o = *options;
    make_job(&j, &o, place, &m->random);
    if (o.kind != COLLECTIVE_SEND || rank == o.root || rank == o.other) {
        outcome done = call_run(m->world, rank, &j.calls[rank], ++m->sequence, NULL);
        char text[160];
        if (done.status != AG_OK || !job_is_right(&j, rank)) fprintf(stderr, "%s\n", describe(&o, place, text, sizeof text));
        CHECK(done.status == AG_OK);
        CHECK(job_is_right(&j, rank));
        CHECK(j.is_in_place || job_input_is_intact(&j, rank));
    } else {
        m->sequence++;
    }
    job_free(&j);
}

static void run_calls(world *w, int rank, int64_t stride) {
    if (rank > 0) fetch(w, rank);
    member m = {.world = w, .rank = rank, .random = 3};
    int64_t number = 0;
    for (collective_kind kind = 0; kind < COLLECTIVE_KIND_COUNT; kind++)
        for (int has_counts = 0; has_counts < (takes_counts(kind) ? 2 : 1); has_counts++)
            if (kind != COLLECTIVE_RECEIVE)
                for_each_case(kind, has_counts, w->size, SLOT_BYTES, 11 * stride, &number, run_case, &m);
    w->members[rank]->ops->free(w->members[rank]);
    w->members[rank] = NULL;
    world_close(w);
}

static void test_calls(int64_t stride) {
    const int sizes[] = {2, 3, 5};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        world w;
        pid_t pids[MAX_RANKS];
        int fd = open_and_listen(&w, sizes[i]);
        fork_ranks(&w, 1, run_calls, stride, pids);
        expect(arena_serve(w.arena, fd, w.token, soon_ns(30)) == AG_OK, "serving");
        /* Rank 0 is a child, too, so that a failed check of it is one. */
        world_join(&w, 0);
        fflush(stdout);
        pids[0] = fork();
        if (pids[0] == 0) {
            run_calls(&w, 0, stride);
            _exit(0);
        }
        expect_ends(&w, 0, pids, "a rank's calls");
        world_close(&w);
    }
    report("calls of processes");
}

/* ---- blocks ---- */

#define BLOCK_COUNT 3000

static void use_blocks(world *w, int rank, int64_t argument) {
    (void)argument;
    world_join(w, rank);
    transport *t = w->members[rank];
    shared_block b;
    size_t part_bytes = (BLOCK_COUNT * sizeof(float) + 4095) / 4096 * 4096;
    struct rlimit limit, low;
    getrlimit(RLIMIT_FSIZE, &limit);
    low = limit;
    low.rlim_cur = 8192;
    if (rank == 1) {
        collective_call barrier = {.kind = COLLECTIVE_BARRIER, .rank = rank, .size = w->size};
        outcome done = call_run(w, rank, &barrier, 1, NULL);
        CHECK(done.status == AG_E_MISMATCH && !done.is_over);
    } else {
        CHECK(t->ops->block_new(t, part_bytes, false, soon_ns(30), &b) == AG_E_MISMATCH);
    }
    if (rank == 0) setrlimit(RLIMIT_FSIZE, &low);
    CHECK(t->ops->block_new(t, part_bytes, false, soon_ns(30), &b) == AG_E_MEMORY);
    if (rank == 0) CHECK(strstr(error_record()->message, "cannot reserve"));
    if (rank == 0) setrlimit(RLIMIT_FSIZE, &limit);
    /* Rank 1 can have no socket, or nothing that comes by it; the others learn of it long before the deadline. */
    getrlimit(RLIMIT_NOFILE, &limit);
    for (int num_free = 0; num_free < 2; num_free++) {
        low = limit;
        low.rlim_cur = (rlim_t)(dup(0) + num_free);
        close((int)low.rlim_cur - num_free);
        if (rank == 1) setrlimit(RLIMIT_NOFILE, &low);
        CHECK(t->ops->block_new(t, part_bytes, BLOCK_RESULT, soon_ns(60), &b) == AG_E_NETWORK);
        CHECK(strstr(error_record()->message, rank != 1       ? "rank 11 could not have its part of it"
                                              : num_free == 0 ? "Too many open files"
                                                              : "no descriptor is free"));
        if (rank == 1) setrlimit(RLIMIT_NOFILE, &limit);
    }
    for (int i = 0; i < 6; i++) {
        CHECK(t->ops->block_new(t, part_bytes, i >= 3, soon_ns(30), &b) == AG_OK);
        float *own = (float *)shared_block_part(&b, rank), *result = (float *)shared_block_result(&b, rank);
        for (int k = 0; k < BLOCK_COUNT; k++) {
            CHECK(own[k] == 0 && (k < 10 || result[k] == 0));
            own[k] = (float)(k + rank);
        }
        collective_call call = {.kind = COLLECTIVE_ALL_REDUCE,
                                .algorithm = ALGORITHM_DIRECT,
                                .dtype = AG_F32,
                                .rank = rank,
                                .size = w->size,
                                .count = BLOCK_COUNT,
                                .input = own,
                                .output = i % 3 == 1 ? own : result};
        turn how = {.block = &b};
        CHECK(call_run(w, rank, &call, (uint64_t)i + 1, &how).status == AG_OK);
        float ranks = (float)(w->size * (w->size - 1) / 2), *output = call.output;
        for (int k = 0; k < BLOCK_COUNT; k++) CHECK(output[k] == (float)(k * w->size) + ranks);
        t->ops->block_free(t, &b);
    }
    world_close(w);
}

static void test_block_processes(void) {
    world w;
    pid_t pids[MAX_RANKS];
    world_open(&w, 3, false, SLOT_BYTES);
    fork_ranks(&w, 0, use_blocks, 0, pids);
    expect_ends(&w, 0, pids, "a rank's blocks");
    world_close(&w);
    report("blocks of processes");
}

/* ---- a rank that is killed in the middle of a call ---- */

#define LONG_COUNT 4000000

static collective_call long_call(int rank, float *data) {
    for (int i = 0; i < LONG_COUNT; i++) data[i] = (float)(i % 1000 + rank);
    return (collective_call){.kind = COLLECTIVE_ALL_REDUCE,
                             .algorithm = ALGORITHM_DIRECT,
                             .dtype = AG_F32,
                             .size = 3,
                             .rank = rank,
                             .count = LONG_COUNT,
                             .input = data,
                             .output = data};
}

static void be_cut_off(world *w, int rank, int64_t argument) {
    (void)argument;
    float *data = malloc(LONG_COUNT * sizeof *data);
    CHECK(data);
    collective_call call = long_call(rank, data);
    world_join(w, rank);
    outcome done = call_run(w, rank, &call, 5, NULL);
    CHECK(done.status == AG_E_PEER && done.is_over);
    CHECK(done.error.num_culprits == 1 && done.error.culprits[0] == FIRST_WORLD_RANK + 2 && done.error.sequence == 5);
    CHECK(strstr(done.error.message, "rank 12 was killed"));
    for (int i = 0; i < LONG_COUNT; i++) CHECK(data[i] == (float)(i % 1000 + rank));
    free(data);
    world_close(w);
}

static void test_killed(void) {
    for (int i = 0; i < 3; i++) {
        world w;
        pid_t pids[MAX_RANKS];
        world_open(&w, 3, false, SLOT_BYTES);
        fork_ranks(&w, 0, be_cut_off, 0, pids);
        world_join(&w, 0); /* only to raise the word: it makes no call, and leaves when all have ended */
        _Atomic uint64_t *progress = &w.arena->header->lines[2].arrived.count;
        int64_t limit_ns = soon_ns(30);
        while (atomic_load(progress) < 50 && soon_ns(0) < limit_ns) sched_yield();
        expect(atomic_load(progress) >= 50, "the call is under way");
        int status = 0;
        expect(kill(pids[2], SIGKILL) == 0 && waitpid(pids[2], &status, 0) == pids[2] && WIFSIGNALED(status), "killed");
        shm_cancel_all(w.members[0], &(cancel_cause){.code = AG_E_PEER,
                                                     .num_culprits = 1,
                                                     .culprits = {FIRST_WORLD_RANK + 2},
                                                     .reason = "rank 12 was killed"});
        w.size = 2; /* those that live */
        expect_ends(&w, 0, pids, "a rank that is left");
        world_close(&w);
    }
    report("a killed rank");
}

/* ---- handing out ---- */

static void be_refused(world *w, int rank, int64_t argument) {
    (void)argument;
    arena *a = NULL;
    if (rank == 1) {
        char token[ARENA_TOKEN_BYTES] = "another one";
        CHECK(arena_connect(w->prefix, token, w->size, soon_ns(30), &a) == AG_E_NETWORK);
        CHECK(strstr(error_record()->message, "refused"));
    }
    if (rank == 2 && geteuid() == 0) {
        CHECK(setresuid(65534, 65534, 65534) == 0);
        CHECK(arena_connect(w->prefix, w->token, w->size, soon_ns(30), &a) == AG_E_NETWORK);
    }
    if (rank == 3) {
        CHECK(arena_connect("argand-test-nobody-listens", w->token, w->size, soon_ns(30), &a) == AG_E_NETWORK);
        CHECK(arena_connect(w->prefix, w->token, w->size + 1, soon_ns(30), &a) == AG_E_FORMAT);
    }
    if (rank == 4) {
        struct rlimit limit = {.rlim_cur = 1 << 16, .rlim_max = RLIM_INFINITY};
        CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
        CHECK(arena_new(2, false, 0, &a) == AG_E_MEMORY);
        CHECK(strstr(error_record()->message, "cannot reserve"));
    }
    CHECK(a == NULL);
}

static void test_refused(void) {
    world w;
    pid_t pids[MAX_RANKS], server;
    int fd = open_and_listen(&w, 5);
    fflush(stdout);
    server = fork();
    if (server == 0) {
        /* One is served (rank 3, which then finds that it is another layout); others never come. */
        int rank = 0;
        CHECK(arena_serve(w.arena, fd, w.token, soon_ns(2)) == AG_E_TIMEOUT);
        _exit(0);
    }
    close(fd);
    fork_ranks(&w, 1, be_refused, 0, pids);
    expect_ends(&w, 1, pids, "a rank that has to be refused");
    int status = -1;
    expect(waitpid(server, &status, 0) == server && WIFEXITED(status) && WEXITSTATUS(status) == 0, "the server");
    char long_name[200];
    memset(long_name, 'x', sizeof long_name);
    long_name[199] = '\0';
    expect(arena_listen(long_name, &fd) == AG_E_ARGUMENT, "a name that is too long");
    world_close(&w);
    report(geteuid() == 0 ? "strangers are refused" : "strangers are refused (but for other users: that needs root)");
}

/* ---- signals while memory is reserved ---- */

#define MUCH_BYTES ((size_t)256 << 20) /* takes longer than it is from one signal to the next */

static void do_nothing(int signal) { (void)signal; }

static void be_profiled(world *w, int rank, int64_t argument) {
    (void)w, (void)argument;
    int fd = -1;
    struct sigaction nothing = {.sa_handler = do_nothing};
    struct itimerval often = {.it_interval = {.tv_usec = 10000}, .it_value = {.tv_usec = 10000}};
    CHECK(sigaction(SIGPROF, &nothing, NULL) == 0 && setitimer(ITIMER_PROF, &often, NULL) == 0);
    CHECK(memory_file_new(MUCH_BYTES, &fd) == AG_OK);
    close(fd);
}

static void test_profiled(void) {
    world w = {.size = 1};
    pid_t pids[MAX_RANKS];
    fork_ranks(&w, 0, be_profiled, 0, pids);
    expect_ends(&w, 0, pids, "memory under a profiler");
    report("memory under a profiler");
}

void test_processes(int64_t stride) {
    test_calls(stride);
    test_block_processes();
    test_killed();
    test_refused();
    test_profiled();
}
