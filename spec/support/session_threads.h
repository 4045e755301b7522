/* session_threads.h: several threads, forked children, and memory that is not there; part of session_test.c. */
#ifndef ARGAND_SPEC_SUPPORT_SESSION_THREADS_H
#define ARGAND_SPEC_SUPPORT_SESSION_THREADS_H

#include "dist/group/open.h"
#include "dist/group/world.h"
#include "support/session_board.h"

typedef struct member_thread {
    pthread_t thread;
    board *board;
    int rank;
    socket_context *sockets;
    rank_state state;
} member_thread;

static void *live_as_thread(void *context) {
    member_thread *t = context;
    rank_state *r = &t->state;
    session_progress table[6];
    set_up(r, t->board, t->rank, 6);
    r->setup.heartbeat_s = 0.02;
    r->sockets = t->sockets;
    if (!join(r)) {
        object(r, "%s", r->view->text);
        return NULL;
    }
    for (int round = 0; round < 20; round++) {
        session_note(r->session, (uint64_t)round + 1, (uint64_t)round, NULL);
        session_note_text(r->session, "exchange");
        exchange_round(r, 100, round);
        if (round % 7 == 0 && session_table(r->session, 5, table) != AG_OK) object(r, "%s", error_record()->message);
    }
    if (t->rank % 2) session_abort(r->session, AG_E_USER, t->rank, "enough"); /* several at once */
    if (!wait_cancel(r, 5)) object(r, "no cancel");
    if (!session_leave(r->session, 5)) object(r, "leave");
    session_free(r->session);
    return NULL;
}

static void test_threads(void) {
    job j = start(6, NULL, NULL);
    member_thread threads[6];
    socket_context *sockets = NULL;
    if (!expect(socket_context_new(NULL, 1, 32, &sockets) == AG_OK, "%s", error_record()->message)) return report("threads");
    for (int i = 0; i < 6; i++) {
        threads[i] = (member_thread){.board = j.board, .rank = i, .sockets = sockets};
        pthread_create(&threads[i].thread, NULL, live_as_thread, &threads[i]);
    }
    for (int i = 0; i < 6; i++) pthread_join(threads[i].thread, NULL);
    socket_context_free(sockets);
    finish(&j);
    report("six sessions in one process");
}

static void fork_with_session(rank_state *r) {
    unsigned char bytes[8] = {0};
    session_progress table[1];
    if (!join(r)) return object(r, "%s", r->view->text);
    pid_t child = fork();
    if (child == 0) {
        bool is_refused = session_exchange(r->session, bytes, 8, bytes, clock_ns() + 1000000000) == AG_E_STATE &&
                          session_table(r->session, 1, table) == AG_E_STATE && !session_leave(r->session, 1);
        session_abort(r->session, AG_E_USER, 0, "not the child's");
        session_free(r->session);
        _exit(is_refused && !cancel_is_raised(&r->end) ? 0 : 1);
    }
    int state = -1;
    waitpid(child, &state, 0);
    if (state != 0) object(r, "the child ended with state %#x", (unsigned)state);
    exchange_round(r, 8, 1); /* ours is as before */
    if (!session_leave(r->session, 5)) object(r, "leave");
}

static rank_body fork_of_zero(int rank) { return rank == 0 ? fork_with_session : NULL; }

static void test_fork(void) {
    job j = start(1, fork_of_zero, NULL);
    finish(&j);
    report("a child of fork is refused and harms nobody");
}

/* Each allocation of a session of one rank fails once. */
static void join_without_memory(rank_state *r) {
    for (int64_t number = 1; number < 200; number++) {
        heap_trim();
        int64_t before = heap_live_blocks();
        socket_context *sockets = NULL;
        session *s = NULL;
        cancel_init(&r->end);
        if (socket_context_new(NULL, 1, 8, &sockets) != AG_OK) return object(r, "%s", error_record()->message);
        r->setup.init_timeout_s = 0.3;
        ag_memory_fail_after(number);
        ag_status status = session_open(sockets, &r->setup, &r->end, &s);
        unsigned char byte = 1, answer = 0;
        if (status == AG_OK) status = session_exchange(s, &byte, 1, &answer, clock_ns() + 300000000);
        bool was_used = ag_memory_fail_after(0) >= number;
        session_free(s);
        socket_context_free(sockets);
        heap_trim();
        if (heap_live_blocks() != before)
            return object(r, "allocation %d: %d blocks are left", (int)number, (int)(heap_live_blocks() - before));
        if (status == AG_OK && !was_used) return;
        if (status != AG_OK && status != AG_E_MEMORY && status != AG_E_TIMEOUT && status != AG_E_NETWORK)
            return object(r, "allocation %d: %s", (int)number, error_record()->message);
    }
    object(r, "it never succeeds");
}

static rank_body memory_of_zero(int rank) { return rank == 0 ? join_without_memory : NULL; }

static void test_memory(void) {
    job j = start(1, memory_of_zero, NULL);
    finish(&j);
    report("failing allocations");
}

/* ---- two who ask at once ---- */

typedef struct impatience {
    session *session;
    atomic_bool must_stop;
    bool is_answered;
} impatience;

static void *ask_briefly(void *context) {
    impatience *t = context;
    session_progress table[2];
    while (!atomic_load_explicit(&t->must_stop, memory_order_relaxed))
        t->is_answered |= session_table(t->session, 0.01, table) != AG_E_TIMEOUT;
    return NULL;
}

/* The coordinator is stopped and answers nobody: that one gives up is no answer for the other. */
static void ask_at_once(rank_state *r) {
    impatience other = {.is_answered = false};
    pthread_t thread;
    session_progress table[2];
    if (!join(r)) return object(r, "%s", r->view->text);
    tell(r, 1);
    wait_go(r, 1);
    other.session = r->session;
    pthread_create(&thread, NULL, ask_briefly, &other);
    ag_status status = session_table(r->session, 0.5, table);
    atomic_store_explicit(&other.must_stop, true, memory_order_relaxed);
    pthread_join(thread, NULL);
    if (status != AG_E_TIMEOUT || other.is_answered)
        object(r, "%s is told something that nobody has said", status != AG_E_TIMEOUT ? "the first" : "the second");
    tell(r, 2);
    wait_go(r, 2);
    if (session_table(r->session, 10, table) != AG_OK) object(r, "no answer at last: %s", error_record()->message);
    if (!session_leave(r->session, 10)) object(r, "leave");
}

static void live_to_the_second_word(rank_state *r) {
    if (!join(r)) return object(r, "%s", r->view->text);
    tell(r, 1);
    wait_go(r, 2);
    if (!session_leave(r->session, 10)) object(r, "leave");
}

static rank_body asker_is_one(int rank) { return rank == 1 ? ask_at_once : live_to_the_second_word; }

static void test_two_askers(void) {
    job j = start(2, asker_is_one, NULL);
    await(&j, 1, -1);
    end_rank(&j, 0, SIGSTOP);
    waitpid(j.pids[0], NULL, WUNTRACED);
    say(&j, 1);
    while (phase_of(&j, 1) < 2 && phase_of(&j, 1) != 99) pause_ms(2);
    end_rank(&j, 0, SIGCONT);
    say(&j, 2);
    finish(&j);
    report("two threads ask for the progress at once");
}

/* ---- jobs with long names ---- */

/* Ranks 0 and 1 are one job, 2 and 3 another, at the same time; their names have 63 bytes and differ in the last one. */
static void open_with_long_name(rank_state *r) {
    char name[64], address[100];
    ag_group *g = NULL;
    memset(name, 'x', sizeof name);
    memcpy(name, r->board->tag, strlen(r->board->tag));
    name[62] = (char)('a' + r->rank / 2);
    name[63] = '\0';
    snprintf(address, sizeof address, "ipc://@argand-%s", name);
    ag_group_options options = {.rank = r->rank % 2, .size = 2, .coordinator = address, .job = name, .init_timeout_s = 10};
    if (group_open(&options, &g) != AG_OK) return object(r, "%s", error_record()->message);
    tell(r, 1);
    wait_go(r, 1);
    if (group_close(g, 10, true) != AG_OK) object(r, "%s", error_record()->message);
}

static void test_long_names(void) {
    job j = start(4, NULL, open_with_long_name);
    for (int rank = 0; rank < 4; rank++)
        while (phase_of(&j, rank) < 1) pause_ms(2);
    say(&j, 1);
    finish(&j);
    report("two jobs whose long names differ at the end");
}

/* ---- memory of threads ---- */

/* What two members tell each other in transport_pick; the member's own exchange `fails_at` fails, 1 or 2, 0 = none. */
typedef struct exchange_of_two {
    unsigned char (*rows)[EXCHANGE_BYTES];
    int rank, number, fails_at;
} exchange_of_two;

static ag_status tell_other(void *context, const void *own, void *all) {
    exchange_of_two *e = context;
    memcpy(e->rows[e->rank], own, EXCHANGE_BYTES);
    if (++e->number == e->fails_at) return error_set(AG_E_PEER, NULL, NULL, NULL, NULL, "the world has ended");
    memcpy(all, e->rows, 2 * EXCHANGE_BYTES);
    return AG_OK;
}

/* The member that has made the memory fails in the middle, and is through before the other one has taken it. */
static void take_what_is_gone(rank_state *r) {
    unsigned char rows[2][EXCHANGE_BYTES] = {{1}, {1}};
    const int32_t identity[2] = {0, 1};
    const int positions[2] = {0, 1};
    ag_group *worlds[2], *made[2] = {NULL};
    ag_status status[2] = {AG_OK, AG_OK};
    if (group_open_threads(2, worlds) != AG_OK) return object(r, "%s", error_record()->message);
    for (int rank = 0; rank < 2; rank++) {
        exchange_of_two e = {.rows = rows, .rank = rank, .fails_at = rank == 0 ? r->view->numbers[0] : 0};
        status[rank] = group_make(worlds[rank]->world, identity, 2, rank, 5, &made[rank]);
        if (status[rank] == AG_OK)
            status[rank] = transport_pick(made[rank], tell_other, &e, 2, positions, clock_ns() + 10 * (int64_t)1000000000);
    }
    if (status[0] != AG_E_PEER) object(r, "rank 0: status %d", status[0]);
    if (status[1] != AG_E_NETWORK || !strstr(error_record()->message, "its maker has withdrawn the memory"))
        object(r, "rank 1: status %d, %s", status[1], status[1] == AG_OK ? "it has the memory" : error_record()->message);
    for (int rank = 0; rank < 2; rank++) {
        group_release(made[rank]);
        group_close(worlds[rank], 0, false);
    }
}

static void test_withdrawn_memory(int fails_at) {
    char name[96];
    job j = start(1, NULL, NULL);
    j.board->ranks[0].numbers[0] = fails_at;
    j.pids[0] = fork();
    if (j.pids[0] == 0) run_rank(j.board, 0, 1, take_what_is_gone);
    finish(&j);
    snprintf(name, sizeof name, "memory of threads whose maker fails in exchange %d", fails_at);
    report(name);
}

#endif
