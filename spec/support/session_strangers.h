/* session_strangers.h: noise, strangers, broken connections and other namespaces; part of session_test.c. */
#ifndef ARGAND_SPEC_SUPPORT_SESSION_STRANGERS_H
#define ARGAND_SPEC_SUPPORT_SESSION_STRANGERS_H

#include <poll.h>
#include <sched.h>

#include "dist/group/session_message.h"
#include "dist/group/session_watch.h"
#include "support/session_joiners.h"

static uint64_t random_next(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Any bytes through every unpack: nothing but the verdict may come of it. The sanitizers look on. */
static void test_bytes(void) {
    uint64_t random = 88172645463325252u;
    int num_taken = 0;
    for (int i = 0; i < 200000; i++) {
        size_t len = random_next(&random) % 200;
        unsigned char *bytes = malloc(len + 1);
        for (size_t k = 0; k < len; k++) bytes[k] = (unsigned char)(random_next(&random) >> 40) & (i & 1 ? 255 : 3);
        message_header header = {.version = MESSAGE_VERSION, .kind = (uint16_t)(random_next(&random) % 20), .size = 4};
        unsigned char packed[MESSAGE_HEADER_BYTES];
        message_pack(&header, packed);
        packed[random_next(&random) % MESSAGE_HEADER_BYTES] ^= (unsigned char)(1 << i % 8);
        num_taken += message_unpack(packed, i & 2 ? sizeof packed : len % (sizeof packed + 1), len % 3, &header) == MESSAGE_OK;
        num_taken += message_unpack(bytes, len, 0, &header) == MESSAGE_OK;
        message_hello hello;
        message_report told;
        message_progress progress[4];
        message_member members[4];
        bool left[4];
        int count = 0;
        uint64_t entered;
        message_unpack_hello(bytes, len, &hello);
        if (message_unpack_report(bytes, len, 4, &told))
            for (int k = 0; k < told.num_culprits; k++)
                expect(told.culprits[k] >= 0 && told.culprits[k] < 4, "a culprit out of range");
        message_unpack_progress(bytes, len, progress);
        message_unpack_progress_table(bytes, len, 4, progress);
        if (message_unpack_table(bytes, len, 4, members, &count)) expect(count >= 1 && count <= 4, "a table of %d", count);
        message_unpack_left(bytes, len, 4, left, &entered);
        free(bytes);
    }
    expect(num_taken > 0 && num_taken < 200000, "%d headers of chance were taken", num_taken);
    report("any bytes are safe");
}

/* Sends the job's own kinds of messages, cut, changed, of another epoch, and plain noise. */
static void pester(rank_state *r) {
    void *dealer = NULL;
    uint64_t random = 7;
    socket_settings settings = {
        .max_message_bytes = 100000, .send_queue = 64, .receive_queue = 64, .linger_ms = 100, .reconnects = true};
    if (socket_context_new(NULL, 1, 8, &r->sockets) != AG_OK ||
        socket_dial(r->sockets, SOCKET_DEALER, &settings, r->address, &dealer) != AG_OK)
        return object(r, "%s", error_record()->message);
    for (int i = 0; i < 3000; i++) {
        unsigned char header[MESSAGE_HEADER_BYTES], payload[600];
        size_t len = random_next(&random) % sizeof payload;
        message_header h = {.version = MESSAGE_VERSION,
                            .kind = (uint16_t)(1 + random_next(&random) % 15),
                            .epoch = (uint32_t)(i % 3),
                            .job = session_job_number(r->board->tag),
                            .rank = (int32_t)(random_next(&random) % 5) - 1,
                            .size = 3,
                            .sequence = random_next(&random) % 4,
                            .nonce = random_next(&random),
                            .payload_bytes = (uint32_t)len};
        message_pack(&h, header);
        for (size_t k = 0; k < len; k++) payload[k] = (unsigned char)(random_next(&random) >> 50) & (i & 4 ? 255 : 1);
        if (i % 5 == 0) header[random_next(&random) % sizeof header] ^= 1;
        bool sent = false;
        for (int k = 0; k < 400 && !sent; k++) {
            size_t header_len = i % 7 == 0 ? random_next(&random) % sizeof header + 1 : sizeof header;
            socket_send(dealer, NULL, header, header_len, payload, len, NULL, NULL, &sent);
            if (!sent) pause_ms(5);
        }
        socket_message message = {0};
        bool received = false;
        socket_receive(dealer, NULL, &message, &received);
        socket_message_free(&message);
    }
    pause_ms(100);
    socket_close(r->sockets, dealer);
    tell(r, 2);
}

static void bear_it(rank_state *r) {
    r->setup.size = 3;
    r->size = 3;
    live_on(r);
    if (r->rank == 0 && session_num_rejected(r->session) < 1000)
        object(r, "%d rejected", (int)session_num_rejected(r->session));
}

static rank_body pester_by_three(int rank) { return rank == 3 ? pester : bear_it; }

static void test_strangers(void) {
    job j = start(4, pester_by_three, NULL);
    for (int rank = 0; rank < 3; rank++)
        while (phase_of(&j, rank) < 1) pause_ms(2);
    while (phase_of(&j, 3) < 2) pause_ms(2);
    say(&j, 1);
    finish(&j);
    report("noise and old epochs at the coordinator's address change nothing");
}

/* Ranks in different pid namespaces must not take each other's pids for their own; the loss shows by the connection. */
static void stand_apart(rank_state *r, rank_body body) {
    if (unshare(CLONE_NEWPID) != 0) {
        r->view->numbers[3] = 1;
        return tell(r, 2);
    }
    pid_t child = fork();
    if (child == 0) {
        listen_first(r);
        body(r);
        session_free(r->session);
        socket_context_free(r->sockets);
        r->session = NULL, r->sockets = NULL;
        _exit(0);
    }
    r->view->numbers[1] = child;
    waitpid(child, NULL, 0);
}

static void live_until_loss(rank_state *r) {
    if (!join(r)) return object(r, "%s", r->view->text);
    tell(r, 1);
    tell_cancel(r, 10, 2);
}

static void live_apart(rank_state *r) { stand_apart(r, live_until_loss); }
static void join_apart(rank_state *r) { stand_apart(r, join_watchfully); }

/* In the second case a fourth rank is waited for. */
static void test_apart(int victim, bool is_joining) {
    char name[128];
    const char *part =
        is_joining ? "has closed its connection while the others were joining" : "has closed its connection without a goodbye";
    job j = start(is_joining ? 4 : 3, NULL, NULL);
    for (int rank = 0; rank < 3; rank++) {
        j.pids[rank] = fork();
        if (j.pids[rank] == 0) run_rank(j.board, rank, j.size, is_joining ? join_apart : live_apart);
    }
    await(&j, 1, -1);
    bool is_possible = j.board->ranks[0].numbers[3] == 0;
    if (is_possible) {
        int64_t begin = clock_ns();
        kill(j.board->ranks[victim].numbers[1], SIGKILL);
        await(&j, 2, victim);
        expect_error(&j, victim, AG_E_PEER, victim, part);
        expect_within(&j, victim, begin, 4);
    }
    finish(&j);
    snprintf(name, sizeof name, "rank %d of another pid namespace is killed%s%s", victim, is_joining ? " while all join" : "",
             is_possible ? "" : ": not run, this user may not make namespaces");
    report(name);
}

/* Two ranks in one new pid namespace, whose /proc is still the outer one: their pids are others' there. */
static void live_with_an_outer_proc(rank_state *r) {
    board *b = r->board;
    int state = -1, failed = 0;
    if (unshare(CLONE_NEWPID) != 0) {
        r->view->numbers[3] = 1;
        return;
    }
    pid_t first = fork(); /* with whom the namespace ends: it is no rank */
    if (first == 0) {
        for (int rank = 0; rank < 2; rank++) {
            if (fork() != 0) continue;
            set_up(r, b, rank, 2);
            if (!join(r)) _exit(1);
            pause_ms(400);
            bool is_well = !cancel_is_raised(&r->end) && session_leave(r->session, 5);
            session_free(r->session);
            _exit(is_well ? 0 : 2);
        }
        for (int rank = 0; rank < 2; rank++)
            if (wait(&state) < 0 || state != 0) failed = 1;
        _exit(failed);
    }
    waitpid(first, &state, 0);
    if (state != 0) object(r, "state %#x: %s", (unsigned)state, r->view->text);
}

static rank_body outer_proc_of_zero(int rank) { return rank == 0 ? live_with_an_outer_proc : NULL; }

/* A network namespace of one's own makes another host of it, for who shares memory through abstract addresses. */
static void move_to_another_network(rank_state *r) {
    char before[80], same[80], after[80];
    watch_host_token(before, sizeof before);
    watch_host_token(same, sizeof same);
    if (strcmp(before, same) != 0 || strlen(before) != 72) object(r, "tokens %s and %s", before, same);
    if (unshare(CLONE_NEWNET) != 0) {
        r->view->numbers[3] = 1;
        return;
    }
    watch_host_token(after, sizeof after);
    if (strcmp(before, after) == 0) object(r, "the token is still %s", after);
}

static rank_body network_of_zero(int rank) { return rank == 0 ? move_to_another_network : NULL; }

static void test_namespace(rank_body (*choose)(int rank), const char *what) {
    char name[120];
    job j = start(1, choose, NULL);
    await(&j, 99, -1);
    bool is_possible = j.board->ranks[0].numbers[3] == 0;
    finish(&j);
    snprintf(name, sizeof name, "%s%s", what, is_possible ? "" : ": not run, this user may not make namespaces");
    report(name);
}

/* Connections to the coordinator that break: a relay in the parent cuts all of them, every so often or while it is shut. */
typedef struct relay {
    int listener, port, target;
    double cut_s;
    atomic_bool is_shut, has_shut, must_stop;
    int pairs[16][2], num_pairs, num_cuts;
} relay;

static void cut_all(relay *p) {
    for (int i = 0; i < p->num_pairs; i++) close(p->pairs[i][0]), close(p->pairs[i][1]);
    p->num_cuts += p->num_pairs;
    p->num_pairs = 0;
}

static void take_caller(relay *p) {
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons((uint16_t)p->target)};
    int near = accept4(p->listener, NULL, NULL, SOCK_CLOEXEC), far = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (near >= 0 && far >= 0 && p->num_pairs < 16 && connect(far, (struct sockaddr *)&address, sizeof address) == 0) {
        p->pairs[p->num_pairs][0] = near;
        p->pairs[p->num_pairs++][1] = far;
        return;
    }
    if (near >= 0) close(near);
    if (far >= 0) close(far);
}

static void *run_relay(void *context) {
    relay *p = context;
    int64_t last_cut = clock_ns();
    while (!atomic_load_explicit(&p->must_stop, memory_order_relaxed)) {
        struct pollfd fds[33] = {{.fd = p->listener, .events = POLLIN}};
        for (int i = 0; i < p->num_pairs * 2; i++) fds[i + 1] = (struct pollfd){.fd = p->pairs[i / 2][i % 2], .events = POLLIN};
        int count = p->num_pairs * 2;
        if (poll(fds, (nfds_t)count + 1, 10) < 0) break;
        for (int i = 0; i < count; i++) {
            char bytes[4096];
            if (!(fds[i + 1].revents & (POLLIN | POLLHUP))) continue;
            ssize_t got = recv(fds[i + 1].fd, bytes, sizeof bytes, MSG_DONTWAIT);
            if (got > 0 && send(p->pairs[i / 2][1 - i % 2], bytes, (size_t)got, MSG_NOSIGNAL) != got) last_cut = 0;
            if (got == 0) shutdown(p->pairs[i / 2][1 - i % 2], SHUT_WR);
        }
        bool is_shut = atomic_load_explicit(&p->is_shut, memory_order_relaxed);
        if (fds[0].revents & POLLIN && !is_shut) take_caller(p);
        if (is_shut || seconds_since(last_cut) > p->cut_s) cut_all(p), last_cut = clock_ns();
        atomic_store_explicit(&p->has_shut, is_shut, memory_order_relaxed);
    }
    cut_all(p);
    return NULL;
}

static void live_with_cuts(rank_state *r) {
    session_progress table[4];
    listen_first(r);
    if (r->rank != 0) snprintf(r->address, sizeof r->address, "tcp://127.0.0.1:%d", r->view->numbers[0]);
    if (!join(r)) return object(r, "%s", r->view->text);
    for (int round = 0; round < 12; round++) {
        exchange_round(r, 500, round);
        pause_ms(60);
        if (session_table(r->session, 5, table) != AG_OK) object(r, "%s", error_record()->message);
    }
    tell(r, 1);
    wait_go(r, 1);
    if (r->rank == 2) session_abort(r->session, AG_E_USER, 2, "enough");
    tell_cancel(r, 5, 2);
    if (!session_leave(r->session, 8)) object(r, "leave");
}

static bool open_relay(relay *p, double cut_s) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    *p = (relay){.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), .cut_s = cut_s};
    bool is_listening = bind(p->listener, (struct sockaddr *)&address, len) == 0 && listen(p->listener, 64) == 0 &&
                        getsockname(p->listener, (struct sockaddr *)&address, &len) == 0;
    p->port = ntohs(address.sin_port);
    return is_listening;
}

/* Starts ranks that are to dial the relay, and the relay's thread. */
static job start_behind(relay *p, int size, rank_body body, pthread_t *thread) {
    job j = start(size, NULL, NULL);
    for (int rank = 0; rank < size; rank++) {
        j.board->ranks[rank].numbers[0] = p->port;
        j.pids[rank] = fork();
        if (j.pids[rank] == 0) run_rank(j.board, rank, size, body);
    }
    while ((p->target = atomic_load_explicit(&j.board->port, memory_order_acquire)) == 0) pause_ms(1);
    pthread_create(thread, NULL, run_relay, p);
    return j;
}

static void close_relay(relay *p, pthread_t thread) {
    atomic_store_explicit(&p->must_stop, true, memory_order_relaxed);
    pthread_join(thread, NULL);
    close(p->listener);
}

static void test_cuts(void) {
    relay p;
    pthread_t thread;
    if (!expect(open_relay(&p, 0.25), "no relay")) return report("a relay");
    job j = start_behind(&p, 4, live_with_cuts, &thread);
    await(&j, 1, -1);
    say(&j, 1);
    await(&j, 2, -1);
    expect_error(&j, -1, AG_E_USER, 2, "enough");
    finish(&j);
    close_relay(&p, thread);
    expect(p.num_cuts >= 6, "%d connections were cut", p.num_cuts);
    report("connections that break again and again lose nothing");
}

static void abort_unheard(rank_state *r) {
    listen_first(r);
    if (r->rank != 0) snprintf(r->address, sizeof r->address, "tcp://127.0.0.1:%d", r->view->numbers[0]);
    if (!join(r)) return object(r, "%s", r->view->text);
    tell(r, 1);
    wait_go(r, 1);
    if (r->rank == 1) session_abort(r->session, AG_E_USER, 1, "enough");
    tell(r, 2);
    wait_go(r, 2);
    tell_cancel(r, 5, 3);
    wait_go(r, 3); /* a rank that goes would be heard, too */
}

/* A rank aborts while nobody can hear it, and lives on: the others learn of it when the connection is there again. (Should that
 * take too long, they hold the rank for lost.) */
static void test_abort_over_a_cut(void) {
    relay p;
    pthread_t thread;
    if (!expect(open_relay(&p, 1e9), "no relay")) return report("a relay");
    job j = start_behind(&p, 3, abort_unheard, &thread);
    await(&j, 1, -1);
    atomic_store_explicit(&p.is_shut, true, memory_order_relaxed);
    while (!atomic_load_explicit(&p.has_shut, memory_order_relaxed)) pause_ms(1);
    say(&j, 1);
    await(&j, 2, -1);
    pause_ms(1300);
    atomic_store_explicit(&p.is_shut, false, memory_order_relaxed);
    say(&j, 2);
    await(&j, 3, -1);
    say(&j, 3);
    finish(&j);
    close_relay(&p, thread);
    report("a rank aborts while its connection is broken");
}

#endif
