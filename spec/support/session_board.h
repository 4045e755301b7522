/* session_board.h: ranks as forked processes that write what they saw to a board in shared memory; part of session_test.c.
 *
 * A rank runs a body, then is checked for heap blocks and descriptors that are left over. The parent kills and stops ranks by
 * pid.
 */
#ifndef ARGAND_SPEC_SUPPORT_SESSION_BOARD_H
#define ARGAND_SPEC_SUPPORT_SESSION_BOARD_H

#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/error.h"
#include "core/memory.h"
#include "dist/group/session.h"
#include "platform/clock.h"

#define MAX_RANKS 32
#define LIMIT_S   25.0 /* for a case: what runs longer hangs */

/* What a rank tells. phase is stored last, released; who has read it may read the rest. */
typedef struct rank_view {
    _Atomic int phase;
    int status, num_culprits, numbers[4];
    int32_t culprits[AG_MAX_CULPRITS];
    int64_t at_ns;
    bool is_true; /* the parent's word to the rank: it is the one */
    char text[768], problem[256];
} rank_view;

typedef struct board {
    _Atomic int go;   /* the parent's word to the ranks */
    _Atomic int port; /* where rank 0 listens, of the cases over TCP */
    char tag[24];
    rank_view ranks[MAX_RANKS];
} board;

typedef struct job {
    board *board;
    int size;
    pid_t pids[MAX_RANKS];
} job;

typedef struct rank_state {
    board *board;
    rank_view *view;
    int rank, size;
    socket_context *sockets;
    session_setup setup;
    char address[64], control[64];
    cancel end;
    session *session;
    _Atomic int64_t cancelled_ns;
} rank_state;

typedef void (*rank_body)(rank_state *r);

static const socket_keys *board_keys; /* of the case's ranks; NULL = none */
static int num_failures, num_tags;
static char problem[900];

static bool fail(const char *format, ...) {
    if (problem[0] != '\0') return false;
    va_list args;
    va_start(args, format);
    vsnprintf(problem, sizeof problem, format, args);
    va_end(args);
    return false;
}

#define expect(condition, ...) ((condition) ? true : fail(__VA_ARGS__))

static void report(const char *name) {
    if (problem[0] != '\0')
        printf("FAIL  %s: %s\n", name, problem);
    else
        printf("ok    %s\n", name);
    fflush(stdout);
    num_failures += problem[0] != '\0';
    problem[0] = '\0';
}

static void pause_ms(int ms) { nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL); }
static double seconds_since(int64_t ns) { return (double)(clock_ns() - ns) * 1e-9; }

static int count_fds(void) {
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (folder && readdir(folder)) count++;
    if (folder) closedir(folder);
    return count;
}

/* ---- in a rank ---- */

/* A wrong thing that only the rank itself can see. */
static void object(rank_state *r, const char *format, ...) {
    if (r->view->problem[0] != '\0') return;
    va_list args;
    va_start(args, format);
    vsnprintf(r->view->problem, sizeof r->view->problem, format, args);
    va_end(args);
}

static void tell(rank_state *r, int phase) { atomic_store_explicit(&r->view->phase, phase, memory_order_release); }

static void tell_error(rank_state *r, ag_status status) {
    const ag_error *error = error_record();
    r->view->status = status;
    r->view->at_ns = clock_ns();
    if (status == AG_OK) return;
    r->view->num_culprits = error->num_culprits;
    memcpy(r->view->culprits, error->culprits, sizeof r->view->culprits);
    snprintf(r->view->text, sizeof r->view->text, "%s", error->message);
}

static void wait_go(rank_state *r, int go) {
    while (atomic_load_explicit(&r->board->go, memory_order_acquire) < go) pause_ms(2);
}

static void note_cancel(void *context) {
    rank_state *r = context;
    atomic_store_explicit(&r->cancelled_ns, clock_ns(), memory_order_relaxed);
}

static void set_up(rank_state *r, board *b, int rank, int size) {
    memset(r, 0, sizeof *r);
    r->board = b;
    r->view = &b->ranks[rank];
    r->rank = rank;
    r->size = size;
    snprintf(r->address, sizeof r->address, "ipc://@argand-test-%s", b->tag);
    snprintf(r->control, sizeof r->control, "ipc://@argand-test-%s-r%d", b->tag, rank);
    cancel_init(&r->end);
    r->setup = (session_setup){.rank = rank,
                               .size = size,
                               .coordinator = r->address,
                               .job = b->tag,
                               .epoch = 1,
                               .data_endpoint = "",
                               .control_address = r->control,
                               .init_timeout_s = 10,
                               .heartbeat_s = 0.1,
                               .expiry_s = 5,
                               .on_cancel = note_cancel,
                               .context = r};
}

static bool join(rank_state *r) {
    ag_status status = r->sockets ? AG_OK : socket_context_new(board_keys, 1, 8, &r->sockets);
    if (status == AG_OK) status = session_open(r->sockets, &r->setup, &r->end, &r->session);
    tell_error(r, status);
    return status == AG_OK;
}

/* Rank 0 opens a listening socket before it joins and tells the port, so that nobody has to guess one that is free. */
static void listen_first(rank_state *r) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    if (r->rank == 0) {
        r->setup.coordinator_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (bind(r->setup.coordinator_fd, (struct sockaddr *)&address, len) != 0 || listen(r->setup.coordinator_fd, 64) != 0 ||
            getsockname(r->setup.coordinator_fd, (struct sockaddr *)&address, &len) != 0)
            return object(r, "no socket: %s", strerror(errno));
        atomic_store_explicit(&r->board->port, ntohs(address.sin_port), memory_order_release);
    }
    while (atomic_load_explicit(&r->board->port, memory_order_acquire) == 0) pause_ms(1);
    snprintf(r->address, sizeof r->address, "tcp://127.0.0.1:%d", atomic_load_explicit(&r->board->port, memory_order_acquire));
}

static bool wait_cancel(rank_state *r, double wait_s) {
    int64_t start = clock_ns();
    while (!cancel_is_raised(&r->end) && seconds_since(start) < wait_s) pause_ms(1);
    return cancel_is_raised(&r->end);
}

/* Waits for the end of the job and tells when and why. */
static void tell_cancel(rank_state *r, double wait_s, int phase) {
    if (!wait_cancel(r, wait_s)) {
        object(r, "no cancel within %g s", wait_s);
    } else {
        pause_ms(20); /* for on_cancel, and for culprits that are added */
        tell_error(r, cancel_error(&r->end, NULL, 0));
        r->view->at_ns = atomic_load_explicit(&r->cancelled_ns, memory_order_relaxed);
        if (r->view->at_ns == 0) object(r, "on_cancel was not called");
    }
    tell(r, phase);
}

static void exchange_round(rank_state *r, size_t len, int round) {
    unsigned char own[4096], *all = malloc((size_t)r->size * len + 1);
    for (size_t i = 0; i < len; i++) own[i] = (unsigned char)(r->rank * 31 + (int)i * 7 + round);
    ag_status status = session_exchange(r->session, own, len, all, clock_ns() + 10000000000);
    if (status != AG_OK) object(r, "exchange %d: %s", round, error_record()->message);
    for (int rank = 0; rank < r->size && status == AG_OK; rank++)
        for (size_t i = 0; i < len; i++)
            if (all[(size_t)rank * len + i] != (unsigned char)(rank * 31 + (int)i * 7 + round)) status = AG_E_VALUE;
    if (status == AG_E_VALUE) object(r, "exchange %d gives other bytes", round);
    free(all);
}

static void live_on(rank_state *r) {
    if (!join(r)) return object(r, "%s", r->view->text);
    tell(r, 1);
    wait_go(r, 1);
    if (cancel_is_raised(&r->end)) object(r, "a cancel: %s", r->end.reason);
    if (!session_leave(r->session, 10)) object(r, "leave");
}

static void run_rank(board *b, int rank, int size, rank_body body) {
    static rank_state state;
    int fds = count_fds();
    int64_t blocks = heap_live_blocks();
    set_up(&state, b, rank, size);
    body(&state);
    session_free(state.session);
    socket_context_free(state.sockets);
    heap_trim();
    if (heap_live_blocks() != blocks) object(&state, "%lld heap blocks are left", (long long)(heap_live_blocks() - blocks));
    if (count_fds() != fds) object(&state, "%d descriptors before, %d after", fds, count_fds());
    tell(&state, 99);
    _exit(0);
}

/* ---- in the parent ---- */

static job start(int size, rank_body (*choose)(int rank), rank_body body) {
    job j = {.size = size};
    j.board = mmap(NULL, sizeof *j.board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (j.board == MAP_FAILED) abort();
    snprintf(j.board->tag, sizeof j.board->tag, "%d-%d", (int)getpid(), ++num_tags);
    for (int rank = 0; rank < size; rank++) {
        rank_body chosen = choose ? choose(rank) : body;
        if (!chosen) continue;
        j.pids[rank] = fork();
        if (j.pids[rank] == 0) run_rank(j.board, rank, size, chosen);
    }
    return j;
}

static void say(job *j, int go) { atomic_store_explicit(&j->board->go, go, memory_order_release); }
static int phase_of(const job *j, int rank) { return atomic_load_explicit(&j->board->ranks[rank].phase, memory_order_acquire); }

/* Waits until all ranks of this job that live have come to the phase; except: a rank that does not count, -1 = none. */
static bool await(job *j, int phase, int except) {
    int64_t begin = clock_ns();
    for (int rank = 0; rank < j->size; rank++)
        while (j->pids[rank] > 0 && rank != except && phase_of(j, rank) < phase) {
            if (seconds_since(begin) > LIMIT_S) return fail("rank %d has not come to phase %d", rank, phase);
            pause_ms(2);
        }
    return true;
}

static void end_rank(job *j, int rank, int signal_number) {
    kill(j->pids[rank], signal_number);
    if (signal_number != SIGKILL) return;
    waitpid(j->pids[rank], NULL, 0);
    j->pids[rank] = 0;
}

static void finish(job *j) {
    if (problem[0] == '\0') await(j, 99, -1);
    for (int rank = 0; rank < j->size; rank++) {
        if (j->pids[rank] > 0) {
            int state;
            int64_t begin = clock_ns();
            pid_t ended;
            while ((ended = waitpid(j->pids[rank], &state, WNOHANG)) == 0 && seconds_since(begin) < 2 && problem[0] == '\0')
                pause_ms(2);
            if (ended == 0)
                end_rank(j, rank, SIGKILL);
            else
                expect(state == 0, "rank %d ended with state %#x", rank, (unsigned)state);
        }
        if (j->board->ranks[rank].problem[0]) fail("rank %d: %s", rank, j->board->ranks[rank].problem);
    }
    munmap(j->board, sizeof *j->board);
}

/* What all ranks but `except` must have seen: the code, who is blamed, and a part of the text. */
static void expect_error(const job *j, int except, ag_status code, int culprit, const char *part) {
    for (int rank = 0; rank < j->size; rank++) {
        const rank_view *v = &j->board->ranks[rank];
        if (rank == except || phase_of(j, rank) == 0) continue;
        expect(v->status == (int)code, "rank %d: status %d (%s)", rank, v->status, v->text);
        expect(culprit < 0 || (v->num_culprits > 0 && v->culprits[0] == culprit), "rank %d: another culprit (%s)", rank,
               v->text);
        expect(strstr(v->text, part), "rank %d: \"%s\" does not say \"%s\"", rank, v->text, part);
    }
}

/* Returns how long the last of them took, in seconds. */
static double expect_within(const job *j, int except, int64_t since_ns, double most_s) {
    double longest = 0;
    for (int rank = 0; rank < j->size; rank++) {
        const rank_view *v = &j->board->ranks[rank];
        if (rank == except || phase_of(j, rank) == 0) continue;
        double took = (double)(v->at_ns - since_ns) * 1e-9;
        expect(took < most_s, "rank %d knew after %.3f s (%s)", rank, took, v->text);
        if (took > longest) longest = took;
    }
    return longest;
}

#endif
