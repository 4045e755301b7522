/* session_gathering.h: the coordinator alone, while it gathers ranks, on a clock that the case moves; part of session_test.c.
 *
 * There is no service thread: the case says what has come and what time it is. Ranks are children that wait for their end.
 */
#ifndef ARGAND_SPEC_SUPPORT_SESSION_GATHERING_H
#define ARGAND_SPEC_SUPPORT_SESSION_GATHERING_H

#include "dist/group/session_internal.h"
#include "support/session_board.h"

#define MOST_GATHERED 4

typedef struct gathering {
    rank_state *rank;
    session s; /* the coordinator's */
    int64_t gone_ns[MOST_GATHERED];
    pid_t children[MOST_GATHERED];
    int num_children;
} gathering;

/* Ranks of a regroup have joined an earlier epoch; nobody waits for those that are given up. */
static coordinator *gather(gathering *g, rank_state *r, int own, int size, bool is_regroup, const bool *is_given_up) {
    session *s = &g->s;
    *g = (gathering){.rank = r};
    session_join how = {
        .is_regroup = is_regroup, .coordinator = own, .is_given_up = is_given_up, .min_size = 1, .grace_s = 10, .answer_s = 10};
    session_setup setup = r->setup;
    setup.rank = own;
    setup.size = size;
    if (socket_context_new(NULL, 1, 8, &r->sockets) != AG_OK || !watch_init(&s->watch, size)) {
        object(r, "no sockets: %s", error_record()->message);
        return NULL;
    }
    snprintf(s->job_name, sizeof s->job_name, "%s", setup.job);
    watch_host_token(s->own.shown.token, sizeof s->own.shown.token);
    s->sockets = r->sockets;
    s->cancel = &r->end;
    s->process = getpid();
    s->epoch = setup.epoch;
    s->job = session_job_number(setup.job);
    s->heartbeat_ns = SECOND_NS / 10;
    s->expiry_ns = 5 * SECOND_NS;
    s->join = how;
    s->joining_rank = own;
    s->joining_size = size;
    s->own.shown.pid = getpid();
    s->own.old_rank = own;
    s->link.gone_ns = g->gone_ns;
    s->link.now_ns = clock_ns();
    pthread_mutex_init(&s->mutex, NULL);
    pthread_cond_init(&s->changed, NULL);
    if (coordinator_new(s, &setup, &how, &s->coordinator) != AG_OK) object(r, "no coordinator: %s", error_record()->message);
    return s->coordinator;
}

static void scatter(gathering *g) {
    coordinator_free(g->s.coordinator);
    watch_deinit(&g->s.watch);
    pthread_cond_destroy(&g->s.changed);
    pthread_mutex_destroy(&g->s.mutex);
    for (int i = 0; i < g->num_children; i++)
        if (g->children[i] > 0) kill(g->children[i], SIGKILL), waitpid(g->children[i], NULL, 0);
}

/* Returns which child it is. */
static int bear(gathering *g) {
    pid_t child = fork();
    if (child == 0) alarm(60); /* should the case fail half-way */
    while (child == 0) pause();
    g->children[g->num_children] = child;
    return g->num_children++;
}

/* When it returns, the system has told whoever watches. */
static void bury(gathering *g, int child) {
    kill(g->children[child], SIGKILL);
    waitpid(g->children[child], NULL, 0);
    g->children[child] = 0;
    for (int rank; (rank = watch_next(&g->s.watch)) >= 0;) g->gone_ns[rank] = g->s.link.now_ns;
}

/* HELLO of a rank that is this process; each has its own nonce. */
static void greet(gathering *g, int rank, pid_t pid) {
    double time_s = g->rank->setup.init_timeout_s;
    message_hello hello = {.timeout_s = time_s, .left_s = time_s};
    unsigned char payload[MESSAGE_MEMBER_BYTES + 100];
    hello.member.shown.pid = pid;
    hello.member.start_time = watch_start_time(pid);
    snprintf(hello.member.shown.token, sizeof hello.member.shown.token, "%s", g->s.own.shown.token);
    snprintf(hello.job_name, sizeof hello.job_name, "%s", g->s.job_name);
    message_header header = {.kind = MESSAGE_HELLO,
                             .job = g->s.job,
                             .epoch = g->s.epoch,
                             .flags = g->s.join.is_regroup ? MESSAGE_IS_REGROUP : 0,
                             .rank = rank,
                             .size = g->s.joining_size,
                             .nonce = (uint64_t)pid,
                             .payload_bytes = (uint32_t)message_pack_hello(&hello, payload)};
    coordinator_take_hello(g->s.coordinator, &(socket_route){.len = 5, .bytes = "nobo"}, &header, payload);
}

/* Time goes on, and the coordinator's thread with it. */
static void pass(gathering *g, int64_t ns) {
    g->s.link.now_ns += ns;
    g->s.link.listened_ns += ns;
    coordinator_tick(g->s.coordinator);
}

/* A rank ends while others are awaited, and its successor comes in time, or too late. */
static void succeed(rank_state *r) {
    static gathering g;
    bool is_late = r->view->numbers[0];
    coordinator *c = gather(&g, r, 0, 3, false, NULL);
    int first = bear(&g), second = bear(&g), third = bear(&g);
    if (c) {
        greet(&g, 0, getpid());
        greet(&g, 1, g.children[first]);
        pass(&g, MILLISECOND_NS);
        greet(&g, 1, g.children[second]);
        if (c->members[1].who.shown.pid != g.children[first] || !strstr(c->refusal, "is taken by another process"))
            object(r, "the place of a rank that lives is given away: %s", c->refusal);
        bury(&g, first);
        pass(&g, 0);
        pass(&g, JOIN_WORDS_NS - 1);
        if (is_late) pass(&g, 1);
        greet(&g, 1, g.children[second]);
        greet(&g, 2, g.children[third]);
        pass(&g, JOIN_WORDS_NS);
        if (is_late && (!c->has_failed || g.s.state != SESSION_FAILED || g.s.failure.culprits[0] != 1 ||
                        !strstr(g.s.failure.reason, "has ended while the others were joining")))
            object(r, "what is told of the late one: %s", g.s.failure.reason);
        if (!is_late && (!c->is_formed || c->members[1].who.shown.pid != g.children[second]))
            object(r, "the successor is not let in: %s", g.s.failure.reason);
    }
    scatter(&g);
}

static void wait_for_ever(rank_state *r) {
    static gathering g;
    bool is_regroup = r->view->numbers[0], is_given_up[3] = {is_regroup, false, false};
    r->setup.init_timeout_s = 1e300;
    coordinator *c = gather(&g, r, is_regroup ? 1 : 0, 3, is_regroup, is_given_up);
    if (c) {
        c->join.grace_s = 1e300;
        greet(&g, g.s.joining_rank, getpid());
        pass(&g, 0);
        pass(&g, 3600 * SECOND_NS);
        if (c->has_failed || c->is_formed) object(r, "it has ended: %s", g.s.failure.reason);
    }
    scatter(&g);
}

/* A rank goes when the table is closed already; it does not know its new number. */
static void leave_by_old_number(rank_state *r) {
    static gathering g;
    bool is_given_up[3] = {true, false, false};
    void *dealer = NULL;
    coordinator *c = gather(&g, r, 1, 3, true, is_given_up);
    socket_settings settings = {.max_message_bytes = 10000, .send_queue = 8, .receive_queue = 8, .reconnects = true};
    int other = bear(&g);
    if (c && socket_dial(r->sockets, SOCKET_DEALER, &settings, c->endpoint, &dealer) == AG_OK) {
        for (int i = 0; i < 2; i++) {
            greet(&g, 1, getpid());
            greet(&g, 2, g.children[other]);
            pass(&g, SECOND_NS / 10);
        }
        if (!c->is_formed || c->size != 2) object(r, "%d ranks have regrouped", c->size);
        unsigned char bytes[MESSAGE_HEADER_BYTES], payload[MESSAGE_PROGRESS_BYTES];
        size_t len = message_pack_progress(&(message_progress){.entered = 0}, payload);
        message_header header = {.version = MESSAGE_VERSION,
                                 .kind = MESSAGE_LEAVE,
                                 .job = g.s.job,
                                 .epoch = g.s.epoch,
                                 .rank = 2,
                                 .size = 3,
                                 .nonce = (uint64_t)g.children[other],
                                 .payload_bytes = (uint32_t)len};
        message_pack(&header, bytes);
        bool sent = false;
        int64_t begin = clock_ns();
        while (!sent && seconds_since(begin) < LIMIT_S) {
            socket_send(dealer, NULL, bytes, sizeof bytes, payload, len, NULL, NULL, &sent);
            if (!sent) pause_ms(1);
        }
        while (!c->has_aborted && session_num_rejected(&g.s) == 0 && seconds_since(begin) < LIMIT_S) {
            coordinator_receive(c);
            pause_ms(1);
        }
        if (!c->has_aborted || c->report.culprits[0] != 1 || !strstr(c->report.reason, "rank 1 (host"))
            object(r, "that a rank has gone is not known: %s", c->report.reason);
    }
    socket_close(r->sockets, dealer);
    scatter(&g);
}

static void test_gathering(rank_body body, int number, const char *name) {
    job j = start(1, NULL, NULL);
    j.board->ranks[0].numbers[0] = number;
    j.pids[0] = fork();
    if (j.pids[0] == 0) run_rank(j.board, 0, 1, body);
    finish(&j);
    report(name);
}

#endif
