/* session_joiners.h: ranks that give up joining, or are lost before all have come; part of session_test.c. */
#ifndef ARGAND_SPEC_SUPPORT_SESSION_JOINERS_H
#define ARGAND_SPEC_SUPPORT_SESSION_JOINERS_H

#include "dist/group/session_internal.h"
#include "dist/group/session_watch.h"
#include "platform/interrupt.h"
#include "support/session_board.h"

static void *interrupt_later(void *context) {
    pause_ms(150);
    interrupt_raise();
    return context;
}

static void join_interrupted(rank_state *r) {
    pthread_t thread;
    int64_t begin = clock_ns();
    pthread_create(&thread, NULL, interrupt_later, NULL);
    if (join(r) || r->view->status != AG_E_INTERRUPTED) object(r, "%s", r->view->text);
    if (seconds_since(begin) > 1.5) object(r, "it took %.2f s", seconds_since(begin));
    interrupt_clear();
    pthread_join(thread, NULL);
}

/* Rank 1 gives up once and comes again at once, while rank 2 is still awaited. */
static void join_twice(rank_state *r) {
    if (r->rank == 1) join_interrupted(r);
    if (r->rank == 2) pause_ms(500);
    if (!join(r))
        object(r, "%s", r->view->text);
    else if (!session_leave(r->session, 10))
        object(r, "leave");
}

static rank_body zero_only(int rank) { return rank == 0 ? join_interrupted : NULL; }

static void test_interrupt(void) {
    job j = start(2, zero_only, NULL);
    finish(&j);
    report("an interrupt ends the wait for the others");
    j = start(3, NULL, join_twice);
    finish(&j);
    report("a rank gives up joining and tries again");
}

/* Says HELLO as this rank, and no more once that is answered; numbers[0]: as one of another host. */
static void say_hello(rank_state *r) {
    void *dealer = NULL;
    message_hello hello = {.timeout_s = 20, .left_s = 20};
    session_member *own = &hello.member.shown;
    own->pid = getpid();
    hello.member.start_time = watch_start_time(getpid());
    snprintf(own->host, sizeof own->host, "somewhere");
    watch_host_token(own->token, sizeof own->token);
    if (r->view->numbers[0]) snprintf(own->token, sizeof own->token, "elsewhere");
    snprintf(hello.job_name, sizeof hello.job_name, "%s", r->board->tag);
    unsigned char bytes[MESSAGE_HEADER_BYTES], payload[MESSAGE_MEMBER_BYTES + 100];
    size_t len = message_pack_hello(&hello, payload);
    message_header header = {.version = MESSAGE_VERSION,
                             .kind = MESSAGE_HELLO,
                             .job = session_job_number(r->board->tag),
                             .epoch = 1,
                             .rank = r->rank,
                             .size = r->size,
                             .nonce = (uint64_t)getpid(),
                             .payload_bytes = (uint32_t)len};
    message_pack(&header, bytes);
    socket_settings settings = {.max_message_bytes = 10000, .send_queue = 8, .receive_queue = 8, .reconnects = true};
    if (socket_context_new(NULL, 1, 8, &r->sockets) != AG_OK ||
        socket_dial(r->sockets, SOCKET_DEALER, &settings, r->address, &dealer) != AG_OK)
        return object(r, "%s", error_record()->message);
    bool sent = false, received = false;
    for (int i = 0; i < 200 && !sent; i++, pause_ms(5))
        socket_send(dealer, NULL, bytes, sizeof bytes, payload, len, NULL, NULL, &sent);
    socket_message message = {0};
    for (int i = 0; i < 400 && !received; i++, pause_ms(5)) socket_receive(dealer, NULL, &message, &received);
    if (!received || message_unpack(message.header, message.header_bytes, message.payload_bytes, &header) != MESSAGE_OK ||
        header.kind != MESSAGE_WAIT)
        object(r, "HELLO is not answered");
    socket_message_free(&message);
    tell(r, 1);
    wait_go(r, 1);
    socket_close(r->sockets, dealer);
}

static void join_with_the_lost(rank_state *r) {
    if (r->rank == 1) {
        pause_ms(1000); /* rank 2 has joined by then */
        say_hello(r);
        return;
    }
    r->setup.init_timeout_s = 20;
    if (join(r)) object(r, "it has joined");
    tell(r, 2);
}

static rank_body all_but_three(int rank) { return rank == 3 ? NULL : join_with_the_lost; }

/* Rank 3 is still awaited when rank 1, which has said HELLO, is killed. */
static void test_lost_while_joining(bool is_elsewhere) {
    job j = start(4, NULL, NULL);
    j.board->ranks[1].numbers[0] = is_elsewhere;
    for (int rank = 0; rank < 4; rank++) {
        rank_body body = all_but_three(rank);
        j.pids[rank] = body ? fork() : 0;
        if (body && j.pids[rank] == 0) run_rank(j.board, rank, 4, body);
    }
    while (phase_of(&j, 1) < 1) pause_ms(1);
    int64_t begin = clock_ns();
    end_rank(&j, 1, SIGKILL);
    await(&j, 2, 1);
    const char *part = is_elsewhere ? ") has closed its connection while the others were joining"
                                    : ") has ended while the others were joining";
    expect_error(&j, 1, AG_E_PEER, 1, "rank 1 (host somewhere, pid ");
    expect_error(&j, 1, AG_E_PEER, 1, part);
    expect_within(&j, 1, begin, is_elsewhere ? 4 : 0.5);
    finish(&j);
    report(is_elsewhere ? "a rank of another host is lost after its HELLO"
                        : "a rank is killed after its HELLO: all know at once");
}

/* Waits in vain for a rank that never comes, and tells when the coordinator has answered. */
static bool tell_answered(void *context) {
    rank_state *r = context;
    if (__atomic_load_n(&r->session->link.is_acknowledged, __ATOMIC_RELAXED)) tell(r, 1);
    return false;
}

static void join_watchfully(rank_state *r) {
    session_join how = {.coordinator = 0, .answer_s = 20};
    bool has_given_up;
    r->setup.init_timeout_s = 20;
    if (socket_context_new(NULL, 1, 8, &r->sockets) != AG_OK ||
        session_start(r->sockets, &r->setup, &how, &r->end, &r->session) != AG_OK)
        return object(r, "%s", error_record()->message);
    tell_error(r, session_await(r->session, tell_answered, r, &has_given_up));
    tell(r, 2);
}

static rank_body watchful_but_three(int rank) { return rank == 3 ? NULL : join_watchfully; }

static void test_coordinator_lost_while_joining(void) {
    job j = start(4, watchful_but_three, NULL);
    await(&j, 1, -1);
    int64_t begin = clock_ns();
    end_rank(&j, 0, SIGKILL);
    await(&j, 2, 0);
    expect_error(&j, 0, AG_E_PEER, 0, "rank 0 (host ");
    expect_error(&j, 0, AG_E_PEER, 0, ") has ended while the others were joining");
    expect_within(&j, 0, begin, 4);
    finish(&j);
    report("the coordinator is killed while it gathers the ranks");
}

/* Rank 1 gives up joining and ends; a new process takes its place long afterwards. */
static void give_up_and_end(rank_state *r) {
    join_interrupted(r);
    tell(r, 1);
}

static rank_body giving_up_of_one(int rank) { return rank == 0 ? live_on : rank == 1 ? give_up_and_end : NULL; }

static void test_giving_up(void) {
    job j = start(3, giving_up_of_one, NULL);
    waitpid(j.pids[1], NULL, 0);
    pause_ms(400);
    say(&j, 1);
    for (int rank = 1; rank < 3; rank++) {
        j.pids[rank] = fork();
        if (j.pids[rank] == 0) run_rank(j.board, rank, 3, live_on);
    }
    finish(&j);
    report("a rank gives up joining and ends, and is started again");
}

#endif
