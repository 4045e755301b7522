/* session_test.c: sessions of forked ranks on an abstract address: joining, living, dying, leaving, regrouping. One line a
 * case.
 *
 *   session_test [a group of cases: bytes, join, exchange, death, pause, leave, abort, regroup, strangers, threads]
 */
#include <sys/resource.h>

#include "dist/group/session_message.h"
#include "support/session_board.h"
#include "support/session_gathering.h"
#include "support/session_joiners.h"
#include "support/session_strangers.h"
#include "support/session_threads.h"

/* ---- joining ---- */

static void join_and_leave(rank_state *r) {
    if (r->rank == 0) pause_ms(r->size % 3 * 40); /* some dial before rank 0 listens */
    if (!join(r)) {
        object(r, "%s", r->view->text);
        return;
    }
    for (int rank = 0; rank < r->size; rank++) {
        const session_member *m = session_member_at(r->session, rank);
        char control[64];
        snprintf(control, sizeof control, "ipc://@argand-test-%s-r%d", r->board->tag, rank);
        if (strcmp(m->control_address, control) != 0 || !m->is_same_host || m->pid < 2) object(r, "the table is wrong");
        if ((m->pid == getpid()) != (rank == r->rank)) object(r, "the table has other pids");
    }
    const size_t lengths[] = {4, 0, 4096, 1};
    for (int round = 0; round < 4; round++) exchange_round(r, lengths[round], round);
    if (!session_leave(r->session, 10)) object(r, "leave: not all have left");
    if (cancel_is_raised(&r->end)) object(r, "a cancel: %s", r->end.reason);
}

static void test_join(int size) {
    char name[64];
    int64_t begin = clock_ns();
    job j = start(size, NULL, join_and_leave);
    finish(&j);
    snprintf(name, sizeof name, "join, exchange and leave of %d ranks", size);
    expect(seconds_since(begin) < 12, "it took %.1f s", seconds_since(begin));
    report(name);
}

static void join_in_vain(rank_state *r) {
    r->setup.init_timeout_s = r->rank == 1 ? 1 : 5;
    if (join(r)) object(r, "it has joined");
    tell(r, 1);
}

static rank_body all_but_two(int rank) { return rank == 2 ? NULL : join_in_vain; }
static rank_body one_only(int rank) { return rank == 1 ? join_in_vain : NULL; }

static void test_missing(void) {
    job j = start(4, all_but_two, NULL);
    int64_t begin = clock_ns();
    await(&j, 1, -1);
    expect_error(&j, 2, AG_E_TIMEOUT, 2, "rank 2 of 4 has not joined within 1 s at ipc://@argand-test-");
    expect_within(&j, 2, begin, 2.5); /* all with the first whose time is over */
    finish(&j);
    report("a missing rank is named on all that joined, at the same time");
    j = start(3, one_only, NULL);
    await(&j, 1, -1);
    expect_error(&j, -1, AG_E_TIMEOUT, 0, "no answer from rank 0 at ipc://@argand-test-");
    finish(&j);
    report("a missing coordinator is named");
}

/* Each row is a HELLO that must be refused, with these words. */
static const struct {
    const char *job;
    int rank, size;
    uint32_t epoch;
    const char *part;
} refusals[] = {
    {"another", 2, 3, 1, "not \"another\""},
    {NULL, 2, 4, 1, "has 3 ranks, this rank was told 4"},
    {NULL, 7, 3, 1, "there is no rank 7 in a job of 3 ranks"},
    {NULL, 1, 3, 1, "rank 1 is taken by another process (host "},
    {NULL, 2, 3, 0, "earlier start of the job (epoch 0, now it is epoch 1)"},
};

/* A coordinator that speaks another version answers so; here the other way round, by bytes. */
static void greet_in_another_version(rank_state *r) {
    void *dealer = NULL;
    unsigned char bytes[MESSAGE_HEADER_BYTES];
    message_header header = {.version = MESSAGE_VERSION + 1, .kind = MESSAGE_HELLO, .rank = 2, .size = 3, .nonce = 5};
    message_pack(&header, bytes);
    socket_settings settings = {.max_message_bytes = 10000, .send_queue = 8, .receive_queue = 8, .reconnects = true};
    if (socket_dial(r->sockets, SOCKET_DEALER, &settings, r->address, &dealer) != AG_OK)
        return object(r, "%s", error_record()->message);
    bool sent = false, received = false;
    for (int i = 0; i < 200 && !sent; i++, pause_ms(5))
        socket_send(dealer, NULL, bytes, sizeof bytes, NULL, 0, NULL, NULL, &sent);
    socket_message message = {0};
    for (int i = 0; i < 400 && !received; i++, pause_ms(5)) socket_receive(dealer, NULL, &message, &received);
    if (!received || message_unpack(message.header, message.header_bytes, message.payload_bytes, &header) != MESSAGE_OK ||
        header.kind != MESSAGE_REFUSED)
        object(r, "another version is not refused");
    socket_message_free(&message);
    socket_close(r->sockets, dealer);
}

static void join_after_refusals(rank_state *r) {
    if (r->rank == 2) {
        pause_ms(1000); /* rank 1 has joined by then */
        session_setup right = r->setup;
        if (socket_context_new(NULL, 1, 8, &r->sockets) != AG_OK) return object(r, "%s", error_record()->message);
        for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
            r->setup.job = refusals[i].job ? refusals[i].job : right.job;
            r->setup.rank = refusals[i].rank;
            r->setup.size = refusals[i].size;
            r->setup.epoch = refusals[i].epoch;
            if (join(r)) return object(r, "row %zu has joined", i);
            if (r->view->status != AG_E_STATE || !strstr(r->view->text, refusals[i].part))
                object(r, "row %zu: %s", i, r->view->text);
        }
        greet_in_another_version(r);
        r->setup = right;
    }
    if (!join(r))
        object(r, "%s", r->view->text);
    else if (!session_leave(r->session, 10))
        object(r, "leave");
    else if (r->rank == 0 && session_num_rejected(r->session) < 3)
        object(r, "what was refused is not counted");
}

static void test_refusals(void) {
    job j = start(3, NULL, join_after_refusals);
    finish(&j);
    report("another job, size, rank, epoch, version and a taken rank are refused, with the reason");
}

static void join_by_fd(rank_state *r) {
    listen_first(r);
    r->setup.control_address = "tcp://127.0.0.1:*";
    if (!join(r)) return object(r, "%s", r->view->text);
    for (int rank = 0; rank < r->size; rank++) {
        const char *control = session_member_at(r->session, rank)->control_address;
        if (strncmp(control, "tcp://127.0.0.1:", 16) != 0 || strchr(control, '*')) object(r, "control address %s", control);
    }
    exchange_round(r, 100, 1);
    if (!session_leave(r->session, 10)) object(r, "leave");
}

static void join_with_another_key(rank_state *r) {
    socket_keys keys;
    r->setup.init_timeout_s = r->rank == 0 ? 2 : 1;
    if (r->rank == 1 && socket_keys_make(&keys) == AG_OK) board_keys = &keys;
    listen_first(r);
    if (join(r)) object(r, "it has joined");
    tell(r, 1);
}

static void test_tcp(void) {
    job j = start(3, NULL, join_by_fd);
    finish(&j);
    report("join over TCP with a listening socket taken over");
    socket_keys keys;
    if (!socket_has_security()) return;
    expect(socket_keys_make(&keys) == AG_OK, "%s", error_record()->message);
    board_keys = &keys;
    j = start(3, NULL, join_by_fd);
    finish(&j);
    report("join over TCP with a key");
    j = start(2, NULL, join_with_another_key);
    await(&j, 1, -1);
    expect_error(&j, 0, AG_E_TIMEOUT, 0, "no answer from rank 0");
    expect_error(&j, 0, AG_E_TIMEOUT, 0, "are the address and the key right?");
    finish(&j);
    board_keys = NULL;
    report("a rank with another key does not join");
}

static void join_beyond_the_limit(rank_state *r) {
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = 256;
    setrlimit(RLIMIT_NOFILE, &limit);
    r->setup.size = 1000;
    if (join(r) || r->view->status != AG_E_NETWORK || !strstr(r->view->text, "the limit is 256"))
        object(r, "%s", r->view->text);
}

static rank_body limit_of_zero(int rank) { return rank == 0 ? join_beyond_the_limit : NULL; }

static void test_limit(void) {
    job j = start(2, limit_of_zero, NULL);
    finish(&j);
    report("more ranks than open files: refused at once, with the limit");
}

/* ---- set-up and progress ---- */

static void exchange_unequally(rank_state *r) {
    unsigned char own[16] = {0}, all[64];
    if (!join(r)) return object(r, "%s", r->view->text);
    ag_status status = session_exchange(r->session, own, r->rank == 2 ? 16 : 8, all, clock_ns() + 5000000000);
    tell_error(r, status);
    tell(r, 1);
}

static void exchange_alone(rank_state *r) {
    unsigned char own[8] = {0}, all[64];
    if (!join(r)) return object(r, "%s", r->view->text);
    if (r->rank != 1) {
        tell_error(r, session_exchange(r->session, own, 8, all, clock_ns() + 400000000));
        tell(r, 1);
    }
    wait_go(r, 1);
    session_leave(r->session, 5);
}

static void test_exchange(void) {
    job j = start(3, NULL, exchange_alone);
    for (int rank = 0; rank < 3; rank += 2)
        while (phase_of(&j, rank) < 1 && phase_of(&j, rank) != 99) pause_ms(2);
    expect_error(&j, 1, AG_E_TIMEOUT, 1, "rank 1 has not come to exchange 1");
    say(&j, 1);
    finish(&j);
    report("an exchange names who has not come");
    j = start(4, NULL, exchange_unequally);
    await(&j, 1, -1);
    expect_error(&j, -1, AG_E_MISMATCH, -1, "bytes to exchange 1");
    finish(&j);
    report("an exchange of other lengths is a mismatch on all ranks");
}

static void tell_progress(rank_state *r) {
    session_progress table[3];
    char text[32];
    if (!join(r)) return object(r, "%s", r->view->text);
    snprintf(text, sizeof text, "call of rank %d", r->rank);
    session_note(r->session, 10 + (uint64_t)r->rank, 9, NULL);
    session_note_text(r->session, text);
    tell(r, 1);
    wait_go(r, 1);
    pause_ms(300); /* three beats */
    if (session_table(r->session, 5, table) != AG_OK) object(r, "%s", error_record()->message);
    for (int i = 0; i < 3 && !r->view->problem[0]; i++) {
        snprintf(text, sizeof text, "call of rank %d", i);
        if (table[i].entered != 10 + (uint64_t)i || table[i].finished != 9 || strcmp(table[i].text, text) != 0 ||
            table[i].has_left || table[i].since_s < 0.25 || table[i].since_s > 5 || table[i].beat_age_s < 0 ||
            table[i].beat_age_s > 1)
            object(r, "row %d: entered %d, finished %d, since %g s, beat %g s ago, \"%s\"", i, (int)table[i].entered,
                   (int)table[i].finished, table[i].since_s, table[i].beat_age_s, table[i].text);
    }
    tell(r, 2);
    wait_go(r, 2); /* nobody leaves before all have looked */
    if (!session_leave(r->session, 5)) object(r, "leave");
}

static void test_progress(void) {
    job j = start(3, NULL, tell_progress);
    await(&j, 1, -1);
    say(&j, 1);
    await(&j, 2, -1);
    say(&j, 2);
    finish(&j);
    report("every rank sees the progress of all");
}

/* ---- dying ---- */

static void live_until_cancel(rank_state *r) {
    r->setup.expiry_s = 1;
    if (!join(r)) return object(r, "%s", r->view->text);
    tell(r, 1);
    tell_cancel(r, 10, 2);
}

static void live_until_exit(rank_state *r) {
    if (!join(r)) return object(r, "%s", r->view->text);
    tell(r, 1);
    wait_go(r, 1);
    exit(0); /* without a word */
}

static void live_until_free(rank_state *r) {
    if (!join(r)) return object(r, "%s", r->view->text);
    tell(r, 1);
    wait_go(r, 1);
    session_free(r->session);
    r->session = NULL;
    tell(r, 2);
}

static rank_body exit_of_one(int rank) { return rank == 1 ? live_until_exit : live_until_cancel; }
static rank_body free_of_one(int rank) { return rank == 1 ? live_until_free : live_until_cancel; }
static rank_body free_of_zero(int rank) { return rank == 0 ? live_until_free : live_until_cancel; }

static void test_death(int victim, int signal_number, const char *part, double most_s) {
    char name[96], expected[64];
    job j = start(4, NULL, live_until_cancel);
    await(&j, 1, -1);
    int64_t begin = clock_ns();
    end_rank(&j, victim, signal_number);
    await(&j, 2, victim);
    snprintf(expected, sizeof expected, "rank %d (host ", victim);
    expect_error(&j, victim, AG_E_PEER, victim, expected);
    expect_error(&j, victim, AG_E_PEER, victim, part);
    double took = expect_within(&j, victim, begin, most_s);
    if (j.pids[victim] > 0) end_rank(&j, victim, SIGKILL);
    finish(&j);
    snprintf(name, sizeof name, "rank %d is %s: the last knows after %.3f s", victim,
             signal_number == SIGKILL ? "killed" : "stopped", took);
    report(name);
}

static void test_silent_end(rank_body (*choose)(int rank), int who, const char *part, const char *name) {
    job j = start(4, choose, NULL);
    await(&j, 1, -1);
    bool is_exit = strstr(part, "ended") != NULL;
    int64_t begin = clock_ns();
    say(&j, 1);
    if (is_exit) { /* a sanitizer's own work at the end of a process does not count */
        waitpid(j.pids[who], NULL, 0);
        j.pids[who] = 0;
        begin = clock_ns();
    }
    for (int rank = 0; rank < 4; rank++)
        while (rank != who && phase_of(&j, rank) < 2 && seconds_since(begin) < 10) pause_ms(2);
    expect_error(&j, who, AG_E_PEER, who, part);
    expect_within(&j, who, begin, 0.5);
    finish(&j);
    report(name);
}

/* The processor time of this process so far. */
static double seconds_used(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           1e-6 * (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

static void wait_idly(rank_state *r) {
    if (!join(r)) return object(r, "%s", r->view->text);
    tell(r, 1);
    wait_go(r, 1);
    double begin = seconds_used();
    pause_ms(1200);
    if (seconds_used() - begin > 0.3) object(r, "%.2f s of processor time went by", seconds_used() - begin);
    tell(r, 2);
    tell_cancel(r, 10, 3);
}

/* Rank 2 ends while the coordinator is stopped: whoever sees it waits without haste for what the coordinator will say. */
static void test_death_in_silence(void) {
    job j = start(3, NULL, wait_idly);
    await(&j, 1, -1);
    end_rank(&j, 0, SIGSTOP);
    waitpid(j.pids[0], NULL, WUNTRACED);
    pause_ms(300); /* three heartbeats */
    end_rank(&j, 2, SIGKILL);
    say(&j, 1);
    while (phase_of(&j, 1) < 2 && phase_of(&j, 1) != 99) pause_ms(2);
    end_rank(&j, 0, SIGCONT);
    await(&j, 3, 2);
    expect_error(&j, 2, AG_E_PEER, 2, "has ended without closing");
    finish(&j);
    report("a rank ends while the coordinator is stopped");
}

static void test_pause(void) {
    job j[2] = {start(3, NULL, live_on), start(3, NULL, live_on)};
    for (int i = 0; i < 2; i++) await(&j[i], 1, -1);
    for (int i = 0; i < 2; i++) end_rank(&j[i], i, SIGSTOP);
    pause_ms(3000);
    for (int i = 0; i < 2; i++) end_rank(&j[i], i, SIGCONT);
    pause_ms(600);
    for (int i = 0; i < 2; i++) say(&j[i], 1);
    for (int i = 0; i < 2; i++) finish(&j[i]);
    report("a rank, or the coordinator, that is stopped for 3 s and goes on is no error");
}

/* ---- leaving and failing ---- */

static void leave_early(rank_state *r) {
    if (!join(r)) return object(r, "%s", r->view->text);
    session_note(r->session, 12, 12, NULL);
    session_note_text(r->session, "barrier");
    tell(r, 1);
    wait_go(r, 1);
    session_leave(r->session, 0.1);
    session_free(r->session);
    r->session = NULL;
    tell(r, 2);
}

/* Sees the leaver leave, and that nothing is wrong with that. */
static void stay(rank_state *r) {
    if (!join(r)) return object(r, "%s", r->view->text);
    session_note(r->session, 12, 12, NULL);
    session_note_text(r->session, "barrier");
    tell(r, 1);
    wait_go(r, 1);
    int leaver = r->view->numbers[0];
    int64_t begin = clock_ns();
    while (!session_has_left(r->session, leaver) && seconds_since(begin) < 3) pause_ms(1);
    if (!session_has_left(r->session, leaver)) object(r, "that rank %d has left is not known", leaver);
    wait_go(r, 2);
    if (cancel_is_raised(&r->end)) object(r, "a cancel: %s", r->end.reason);
    begin = clock_ns();
    bool all_left = session_leave(r->session, 5);
    /* Without the coordinator nobody knows of a third one. */
    if (all_left != (leaver != 0 || r->size == 2)) object(r, "leave: %s", all_left ? "all have left" : "not all have left");
    if (seconds_since(begin) > 3) object(r, "leave took %.1f s", seconds_since(begin));
    tell(r, 2);
}

/* Enters the call that the leaver never will. */
static void go_further(rank_state *r) {
    if (!join(r)) return object(r, "%s", r->view->text);
    session_note(r->session, 12, 12, NULL);
    session_note_text(r->session, "barrier");
    tell(r, 1);
    wait_go(r, 1);
    session_note(r->session, 13, 12, NULL);
    session_note_text(r->session, "all_reduce(sum) of f32[10]");
    tell_cancel(r, 5, 2);
}

static rank_body two_leaves_others_stay(int rank) { return rank == 2 ? leave_early : stay; }
static rank_body zero_leaves_others_stay(int rank) { return rank == 0 ? leave_early : stay; }
static rank_body two_leaves_others_go(int rank) { return rank == 2 ? leave_early : go_further; }
static rank_body zero_leaves_others_go(int rank) { return rank == 0 ? leave_early : go_further; }

static void test_early_leave(rank_body (*choose)(int rank), int leaver, int size) {
    char name[96];
    job j = start(size, choose, NULL);
    await(&j, 1, -1);
    for (int rank = 0; rank < size; rank++) j.board->ranks[rank].numbers[0] = leaver;
    say(&j, 1);
    while (phase_of(&j, leaver) < 2) pause_ms(2);
    waitpid(j.pids[leaver], NULL, 0);
    expect(phase_of(&j, leaver) == 99, "rank %d has not ended well", leaver);
    j.pids[leaver] = 0;
    pause_ms(1000);
    say(&j, 2);
    finish(&j);
    snprintf(name, sizeof name, "rank %d of %d leaves and ends, the others go on", leaver, size);
    report(name);
}

static void test_late_call(rank_body (*choose)(int rank), int leaver) {
    char name[96], part[64];
    job j = start(4, choose, NULL);
    await(&j, 1, -1);
    int64_t begin = clock_ns();
    say(&j, 1);
    await(&j, 2, leaver);
    snprintf(part, sizeof part, "rank %d has closed its group at call 12, rank ", leaver);
    expect_error(&j, leaver, AG_E_PEER, leaver, part);
    expect_error(&j, leaver, AG_E_PEER, leaver, "is in call 13 (all_reduce(sum) of f32[10])");
    expect_within(&j, leaver, begin, 3);
    finish(&j);
    snprintf(name, sizeof name, "rank %d leaves, others wait for it in a call", leaver);
    report(name);
}

static void abort_one(rank_state *r) {
    if (!join(r)) return object(r, "%s", r->view->text);
    tell(r, 1);
    wait_go(r, 1);
    if (r->rank == r->view->numbers[0]) {
        /* Two are to blame: the one that is named and one more. */
        cancel_add_culprit(&r->end, r->rank);
        cancel_add_culprit(&r->end, 1);
        session_abort(r->session, AG_E_USER, r->rank, "the loss is not a number");
    }
    tell_cancel(r, 5, 2);
    wait_go(r, 2);
    if (!session_leave(r->session, 5)) object(r, "leave after an abort");
}

static void test_abort(int who) {
    char name[64];
    job j = start(3, NULL, abort_one);
    await(&j, 1, -1);
    for (int rank = 0; rank < 3; rank++) j.board->ranks[rank].numbers[0] = who;
    int64_t begin = clock_ns();
    say(&j, 1);
    await(&j, 2, -1);
    expect_error(&j, -1, AG_E_USER, who, "the loss is not a number");
    for (int rank = 0; rank < 3; rank++)
        expect(j.board->ranks[rank].num_culprits == (who == 1 ? 1 : 2), "rank %d: %d culprits", rank,
               j.board->ranks[rank].num_culprits);
    expect_within(&j, -1, begin, 0.5);
    say(&j, 2);
    finish(&j);
    snprintf(name, sizeof name, "rank %d aborts: the same error on all ranks", who);
    report(name);
}

/* ---- regrouping ---- */

static const char *regroup_control; /* NULL = the abstract address of each rank */
static int regroup_min_size;
static double regroup_grace_s;
static bool regroup_takes_new_context;
static int disagreement_victim = -1; /* >= 0: each rank blames others (see below), and this one waits for its end */
static ag_status disagreement;       /* AG_E_MISMATCH: itself and the next rank; AG_E_TIMEOUT: the next one */

static void regroup(rank_state *r) {
    session *next = NULL;
    cancel end;
    int rank = -1, size = -1;
    int32_t old_ranks[MAX_RANKS];
    if (regroup_control) r->setup.control_address = regroup_control;
    if (!join(r)) return object(r, "%s", r->view->text);
    tell(r, 1);
    if (r->view->is_true) session_abort(r->session, AG_E_USER, r->rank, "this rank has failed");
    while (r->rank == disagreement_victim) pause();
    if (disagreement_victim >= 0)
        cancel_raise_all(&r->end, disagreement, (int32_t[]){(r->rank + 1) % r->size, r->rank},
                         disagreement == AG_E_MISMATCH ? 2 : 1, "what each rank sees is another thing", NULL);
    if (!wait_cancel(r, 10)) return object(r, "no cancel");
    cancel_init(&end);
    session_setup setup = r->setup;
    setup.epoch = 2;
    char control[64];
    snprintf(control, sizeof control, "ipc://@argand-test-%s-e2-r%d", r->board->tag, r->rank);
    if (!regroup_control) setup.control_address = control;
    socket_context *sockets = r->sockets;
    if (regroup_takes_new_context && socket_context_new(NULL, 1, 8, &sockets) != AG_OK)
        return object(r, "%s", error_record()->message);
    ag_status status = session_regroup_open(sockets, r->session, &setup, regroup_min_size, regroup_grace_s, &end, &next, &rank,
                                            &size, old_ranks);
    tell_error(r, status);
    if (status == AG_OK) {
        session_free(r->session);
        if (sockets != r->sockets) socket_context_free(r->sockets);
        r->sockets = sockets;
        r->session = next;
        r->view->numbers[0] = rank;
        r->view->numbers[1] = size;
        if (old_ranks[rank] != r->rank) object(r, "old_ranks says %d", old_ranks[rank]);
        for (int i = 1; i < size; i++)
            if (old_ranks[i] <= old_ranks[i - 1]) object(r, "old_ranks does not rise");
        r->rank = rank;
        r->size = size;
        exchange_round(r, 64, 3);
        if (!session_leave(next, 5)) object(r, "leave of the new epoch");
    }
    if (status != AG_OK && sockets != r->sockets) socket_context_free(sockets);
    tell(r, 2);
}

static void test_regroup(int size, uint32_t victims, int min_size, const char *control, bool takes_new_context) {
    char name[120];
    regroup_takes_new_context = takes_new_context;
    regroup_min_size = min_size;
    regroup_grace_s = 1;
    regroup_control = control;
    int left = size - __builtin_popcount(victims), new_rank = 0;
    job j = start(size, NULL, regroup);
    await(&j, 1, -1);
    int64_t begin = clock_ns();
    for (int rank = 0; rank < size; rank++)
        if (victims >> rank & 1) kill(j.pids[rank], SIGKILL);
    for (int rank = 0; rank < size; rank++)
        if (victims >> rank & 1) end_rank(&j, rank, SIGKILL);
    await(&j, 2, -1);
    for (int rank = 0; rank < size; rank++) {
        const rank_view *v = &j.board->ranks[rank];
        if (victims >> rank & 1) continue;
        if (left >= min_size) {
            expect(v->status == AG_OK, "rank %d: %s", rank, v->text);
            expect(v->numbers[0] == new_rank && v->numbers[1] == left, "rank %d is %d of %d", rank, v->numbers[0],
                   v->numbers[1]);
            new_rank++;
        } else {
            expect(v->status == AG_E_PEER && strstr(v->text, "at least"), "rank %d: %d %s", rank, v->status, v->text);
        }
    }
    expect(seconds_since(begin) < 6, "it took %.1f s", seconds_since(begin));
    finish(&j);
    snprintf(name, sizeof name, "regroup of %d ranks after the death of %d of them%s%s%s", size, size - left,
             victims & 1 ? ", rank 0 too" : "", left < min_size ? ", fewer than wanted" : "",
             !control            ? ""
             : takes_new_context ? ", over TCP, with a new context"
                                 : ", over TCP");
    report(name);
}

static void regroup_with_culprit(rank_state *r) {
    r->view->is_true = r->rank == r->board->ranks[0].numbers[2];
    regroup(r);
}

static void test_living_culprit(int culprit) {
    char name[96];
    regroup_min_size = 2;
    regroup_grace_s = 2;
    regroup_control = NULL;
    regroup_takes_new_context = false;
    job j = start(3, NULL, NULL);
    j.board->ranks[0].numbers[2] = culprit;
    for (int rank = 0; rank < 3; rank++) {
        j.pids[rank] = fork();
        if (j.pids[rank] == 0) run_rank(j.board, rank, 3, regroup_with_culprit);
    }
    await(&j, 2, -1);
    for (int rank = 0; rank < 3; rank++) {
        const rank_view *v = &j.board->ranks[rank];
        expect(v->status == AG_OK && v->numbers[0] == rank && v->numbers[1] == 3, "rank %d: %s", rank, v->text);
    }
    finish(&j);
    snprintf(name, sizeof name, "regroup with rank %d, which is to blame but lives", culprit);
    report(name);
}

/* Three ranks blame one another, and one of them dies before the others have regrouped. */
static void test_regroup_after_disagreement(ag_status code, int victim, const char *control) {
    char name[96];
    regroup_min_size = 2;
    regroup_grace_s = 1;
    regroup_control = control;
    regroup_takes_new_context = false;
    disagreement_victim = victim;
    disagreement = code;
    job j = start(3, NULL, regroup);
    await(&j, 1, -1);
    end_rank(&j, victim, SIGKILL);
    await(&j, 2, -1);
    for (int rank = 0, new_rank = 0; rank < 3; rank++) {
        const rank_view *v = &j.board->ranks[rank];
        if (rank == victim) continue;
        expect(v->status == AG_OK && v->numbers[0] == new_rank && v->numbers[1] == 2, "rank %d: %s", rank, v->text);
        new_rank++;
    }
    finish(&j);
    disagreement_victim = -1;
    snprintf(name, sizeof name, "regroup after a %s in which rank %d dies%s", code == AG_E_TIMEOUT ? "timeout" : "mismatch",
             victim, control ? ", over TCP" : "");
    report(name);
}

/* Rank 3 is killed and rank 0, the first candidate, is stopped at once: the others wait for it, then go on without it. */
static void test_silent_candidate(const char *control) {
    regroup_min_size = 2;
    regroup_grace_s = 0.7;
    regroup_control = control;
    regroup_takes_new_context = false;
    job j = start(4, NULL, regroup);
    await(&j, 1, -1);
    end_rank(&j, 0, SIGSTOP);
    end_rank(&j, 3, SIGKILL);
    await(&j, 2, 0);
    end_rank(&j, 0, SIGCONT);
    await(&j, 2, -1);
    const rank_view *v = &j.board->ranks[1], *late = &j.board->ranks[0];
    expect(v->status == AG_OK && v->numbers[1] == 2, "rank 1 is one of %d: %s", v->numbers[1], v->text);
    expect(late->status == AG_E_PEER, "rank 0 comes late: %d %s", late->status, late->text);
    finish(&j);
    report(control ? "regroup without a candidate that is stopped, over TCP" : "regroup without a candidate that is stopped");
}

int main(int argc, char **argv) {
    const char *only = argc > 1 ? argv[1] : "";
    if (!socket_is_available()) {
        printf("ok    built without ZeroMQ: there are no sessions\n");
        return 0;
    }
#define RUN(group, call) \
    if (strstr(group, only)) call
    RUN("bytes", test_bytes());
    RUN("join", (test_join(2), test_join(8), test_join(32), test_missing(), test_refusals(), test_tcp(), test_interrupt(),
                 test_limit()));
    RUN("join", (test_lost_while_joining(false), test_lost_while_joining(true), test_coordinator_lost_while_joining()));
    RUN("join", (test_gathering(succeed, 0, "the successor of a rank that was killed while joining"),
                 test_gathering(succeed, 1, "a successor that comes too late"), test_giving_up()));
    RUN("join", (test_gathering(wait_for_ever, 0, "a time without end to join in"),
                 test_gathering(wait_for_ever, 1, "a time without end to regroup in"), test_long_names()));
    RUN("exchange", (test_exchange(), test_progress(), test_two_askers()));
    RUN("death",
        (test_death(1, SIGKILL, "has ended without closing", 0.5), test_death(0, SIGKILL, "has ended without closing", 0.5)));
    RUN("death",
        (test_death(1, SIGSTOP, "has not been heard of for 1.", 2), test_death(0, SIGSTOP, "has not been heard of for 1.", 2)));
    RUN("death", test_silent_end(exit_of_one, 1, "has ended without closing", "rank 1 calls exit without closing"));
    RUN("death", test_silent_end(free_of_one, 1, "has left without closing", "rank 1 frees its session without leaving"));
    RUN("death", test_silent_end(free_of_zero, 0, "has left without closing", "rank 0 frees its session without leaving"));
    RUN("death", test_death_in_silence());
    RUN("pause", test_pause());
    RUN("leave", (test_early_leave(two_leaves_others_stay, 2, 4), test_early_leave(zero_leaves_others_stay, 0, 4),
                  test_early_leave(zero_leaves_others_stay, 0, 2)));
    RUN("leave", (test_late_call(two_leaves_others_go, 2), test_late_call(zero_leaves_others_go, 0)));
    RUN("abort", (test_abort(0), test_abort(1), test_abort(2)));
    RUN("regroup", (test_regroup(3, 1, 2, NULL, false), test_regroup(3, 2, 2, NULL, false), test_regroup(5, 5, 2, NULL, false),
                    test_regroup(5, 3, 2, NULL, false)));
    RUN("regroup", (test_regroup(3, 3, 2, NULL, false), test_regroup(4, 9, 2, "tcp://127.0.0.1:*", false),
                    test_regroup(4, 9, 2, "tcp://127.0.0.1:*", true)));
    RUN("regroup", (test_living_culprit(2), test_living_culprit(0)));
    for (int victim = 0; victim < 3; victim++)
        RUN("regroup", (test_regroup_after_disagreement(AG_E_MISMATCH, victim, NULL),
                        test_regroup_after_disagreement(AG_E_MISMATCH, victim, "tcp://127.0.0.1:*"),
                        test_regroup_after_disagreement(AG_E_TIMEOUT, victim, NULL)));
    RUN("regroup", (test_silent_candidate(NULL), test_silent_candidate("tcp://127.0.0.1:*")));
    RUN("regroup", test_gathering(leave_by_old_number, 0, "a rank goes from a regroup before it knows its new number"));
    RUN("strangers", (test_cuts(), test_abort_over_a_cut(), test_strangers(), test_apart(1, false), test_apart(0, false),
                      test_apart(0, true)));
    RUN("strangers", test_namespace(outer_proc_of_zero, "two ranks of a pid namespace without a /proc of its own"));
    RUN("strangers", test_namespace(network_of_zero, "another network namespace is another host"));
    RUN("threads", (test_threads(), test_fork(), test_memory(), test_withdrawn_memory(1), test_withdrawn_memory(2)));
    return num_failures != 0;
}
