/* socket_test.c: ZeroMQ sockets: who is let in, what garbage does, what is told, and that every wait and queue ends.
 *
 *   socket_test
 *
 * Loopback and abstract addresses only.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/error.h"
#include "core/memory.h"
#include "platform/interrupt.h"
#include "support/socket_intruders.h"
#include "support/socket_support.h"

/* ---- addresses ---- */

static void test_addresses(void) {
    const struct {
        const char *address;
        ag_status without, with; /* keys */
        const char *text;        /* of the first failure */
    } rows[] = {
        {"tcp://127.0.0.1:*", AG_OK, AG_OK, NULL},
        {"tcp://127.0.0.1:0", AG_OK, AG_OK, NULL},
        {"tcp://127.9.9.9:*", AG_OK, AG_OK, NULL},
        {"tcp://localhost:*", AG_OK, AG_OK, NULL},
        {"ipc://@argand-socket-test", AG_OK, AG_OK, NULL},
        {"tcp://*:*", AG_E_VALUE, AG_OK, "argand keygen"},
        {"tcp://0.0.0.0:*", AG_E_VALUE, AG_OK, "key_file"},
        {"tcp://127.0.0.1.nip.example:*", AG_E_NETWORK, AG_E_NETWORK, "127.0.0.1.nip.example"},
        {"tcp://no.such.name.invalid:5000", AG_E_NETWORK, AG_E_NETWORK, "no.such.name.invalid"},
        {"tcp://192.0.2.1:*", AG_E_VALUE, AG_E_NETWORK, "argand keygen"},
        {"tcp://[2001:db8::1]:*", AG_E_VALUE, AG_E_NETWORK, "argand keygen"},
        {"tcp://127.0.0.1", AG_E_VALUE, AG_E_VALUE, "tcp://host:port"},
        {"tcp://127.0.0.1:", AG_E_VALUE, AG_E_VALUE, "tcp://host:port"},
        {"tcp://127.0.0.1:65536", AG_E_VALUE, AG_E_VALUE, "tcp://host:port"},
        {"tcp://127.0.0.1:-1", AG_E_VALUE, AG_E_VALUE, "tcp://host:port"},
        {"tcp://127.0.0.1:5;tcp://0.0.0.0:5", AG_E_VALUE, AG_E_VALUE, "tcp://host:port"},
        {"tcp://:5000", AG_E_VALUE, AG_E_VALUE, "tcp://host:port"},
        {"udp://127.0.0.1:5000", AG_E_VALUE, AG_E_VALUE, "tcp://host:port"},
        {"ipc://", AG_E_VALUE, AG_E_VALUE, "tcp://host:port"},
        {"", AG_E_VALUE, AG_E_VALUE, "tcp://host:port"},
        {"ipc:///no/such/folder/socket", AG_E_NETWORK, AG_E_NETWORK, "/no/such/folder"},
        {"ipc://@0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678",
         AG_E_VALUE, AG_E_VALUE, "too long"},
    };
    socket_keys keys;
    if (socket_keys_make(&keys)) return;
    for (int has_keys = 0; has_keys < 2; has_keys++) {
        socket_context *c = context_with(has_keys ? &keys : NULL);
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            void *s = NULL;
            char endpoint[256] = "";
            ag_status status = socket_listen(c, SOCKET_ROUTER, &plain, rows[i].address, &s, endpoint, sizeof endpoint);
            ag_status wanted = has_keys ? rows[i].with : rows[i].without;
            expect_status(status, wanted, has_keys ? NULL : rows[i].text, rows[i].address);
            expect((status == AG_OK) == (s != NULL) && (status != AG_OK || !strchr(endpoint, '*')), "endpoint %s", endpoint);
            socket_close(c, s);
        }
        char endpoint[256];
        void *s = listen_at(c, &plain, "tcp://127.0.0.1:*", endpoint), *again = NULL;
        expect_status(socket_listen(c, SOCKET_ROUTER, &plain, endpoint, &again, NULL, 0), AG_E_NETWORK, "is in use",
                      "a taken address");
        expect(strstr(error_record()->message, endpoint), "it is not named");
        socket_close(c, s);
        socket_context_free(c);
    }
    socket_context *c = context_with(NULL);
    void *s = NULL;
    expect_status(socket_dial(c, SOCKET_DEALER, &plain, "tcp://192.0.2.1:5000", &s), AG_E_VALUE, "argand keygen",
                  "dial without key");
    expect_status(socket_dial(c, SOCKET_DEALER, &plain, "tcp://127.0.0.1:*", &s), AG_E_VALUE, NULL, "dial no port");
    socket_context_free(c);
    report("addresses: what may be bound, and why not");
}

static void test_taken_fd(void) {
    socket_context *c = context_with(NULL);
    socket_settings settings = plain;
    int port = 0;
    char endpoint[256], wanted[64];
    settings.use_fd = tcp_socket("127.0.0.1", &port, true);
    void *router = listen_at(c, &settings, NULL, endpoint), *dealer = dial_as(c, plain, "me", endpoint);
    snprintf(wanted, sizeof wanted, "tcp://127.0.0.1:%d", port);
    expect(strcmp(endpoint, wanted) == 0, "endpoint %s, wanted %s", endpoint, wanted);
    expect_service(router, dealer, "over the fd");
    socket_close(c, dealer);
    socket_close(c, router);
    void *none = NULL;
    port = 0;
    settings.use_fd = tcp_socket("0.0.0.0", &port, true);
    expect_status(socket_listen(c, SOCKET_ROUTER, &settings, NULL, &none, endpoint, 256), AG_E_VALUE, "argand keygen",
                  "fd on all");
    expect(fcntl(settings.use_fd, F_GETFD) >= 0, "the fd was closed by a failure");
    close(settings.use_fd);
    settings.use_fd = open("/dev/null", O_RDONLY);
    expect_status(socket_listen(c, SOCKET_ROUTER, &settings, NULL, &none, endpoint, 256), AG_E_NETWORK, "no socket",
                  "fd of a file");
    close(settings.use_fd);
    socket_context_free(c);
    report("a listening fd is taken over");
}

/* ---- sending ---- */

static _Atomic int num_released;
static void count_release(void *payload, void *context) {
    *(char *)payload = 'f'; /* it must still be there */
    (*(_Atomic int *)context)++;
}

/* Sends payloads with a release until there is no room; how many were taken. */
static int fill(void *socket, const socket_route *route, char *payload, size_t payload_bytes, int most) {
    int taken = 0;
    bool sent = true;
    while (taken < most) {
        ag_status status = socket_send(socket, route, "h", 1, payload, payload_bytes, count_release, &num_released, &sent);
        if (status != AG_OK || !sent) break;
        taken++;
    }
    return taken;
}

/* ZeroMQ needs the socket's own thread to give up a broken connection: it polls. */
static void expect_released(void *socket, int taken, const char *when) {
    for (int64_t end = clock_ns() + PATIENCE_MS * INT64_C(1000000); num_released < taken && clock_ns() < end;)
        if (wait_for(socket, false, 5)) usleep(1000);
    expect(num_released == taken, "%s: %d of %d were released", when, num_released, taken);
    num_released = 0;
}

static void test_release(void) {
    enum { payload_bytes = 256 << 10 };
    socket_keys keys;
    if (socket_keys_make(&keys)) return;
    char endpoint[256], *payload = malloc(payload_bytes);
    memset(payload, 'p', payload_bytes);
    for (int has_keys = 0; has_keys < 2; has_keys++) {
        socket_context *c = context_with(has_keys ? &keys : NULL), *other = context_with(has_keys ? &keys : NULL);
        void *router = listen_at(other, &plain, "tcp://127.0.0.1:*", endpoint), *dealer = dial_as(c, plain, "me", endpoint);
        payload[0] = 'p';
        expect(fill(dealer, NULL, payload, payload_bytes, 1) == 0, "a message without a connection was taken");
        expect(num_released == 0, "what was not sent is released");
        wait_for(dealer, true, PATIENCE_MS);
        expect(fill(dealer, NULL, payload, payload_bytes, 1) == 1, "a payload is sent");
        socket_message m;
        if (expect(receive(router, &(socket_route){0}, &m, PATIENCE_MS), "it did not come")) {
            const char *bytes = m.payload;
            expect(m.payload_bytes == payload_bytes && bytes[0] == 'p' && bytes[payload_bytes - 1] == 'p' &&
                       m.header_bytes == 1,
                   "%zu bytes came", m.payload_bytes);
            socket_message_free(&m);
        }
        expect_released(dealer, 1, "received");
        payload[0] = 'p';
        bool sent = false;
        socket_send(dealer, NULL, "h", 1, payload, 0, count_release, &num_released, &sent);
        expect(sent && num_released == 1, "an empty payload is released at once");
        num_released = 0;
        int taken = fill(dealer, NULL, payload, payload_bytes, 100000);
        expect(taken > 0 && taken < 100000, "the queue has no end: %d", taken);
        socket_close(other, router);
        expect_released(dealer, taken, "the peer is gone");
        socket_close(c, dealer);

        socket_route route = {.len = 0};
        router = listen_at(other, &plain, "tcp://127.0.0.1:*", endpoint);
        dealer = dial_as(c, plain, "me", endpoint);
        expect_service(router, dealer, "a route");
        send_text(dealer, NULL, "route");
        expect_text(router, &route, "route");
        taken = fill(router, &route, payload, payload_bytes, 100000);
        expect(taken > 0 && taken < 100000, "the router's queue has no end: %d", taken);
        socket_close(c, dealer);
        expect_released(router, taken, "the router's peer is gone");
        bool is_gone = false;
        for (int64_t end = clock_ns() + 5 * SECOND; !is_gone && clock_ns() < end; usleep(1000))
            is_gone = socket_send(router, &route, "h", 1, payload, 9, count_release, &num_released, &sent) == AG_E_PEER;
        expect(is_gone && !sent, "a gone route is AG_E_PEER");
        num_released = 0;
        socket_route nobody = {.len = 6, .bytes = "nobody"};
        expect_status(socket_send(router, &nobody, "h", 1, payload, 9, count_release, &num_released, &sent), AG_E_PEER,
                      "not connected", "a route that never was");
        expect(!sent && num_released == 0, "it is the caller's still");

        dealer = dial_as(c, plain, "me again", endpoint);
        wait_for(dealer, true, PATIENCE_MS);
        taken = fill(dealer, NULL, payload, payload_bytes, 100000);
        int64_t start = clock_ns();
        socket_close(c, dealer);
        socket_context_free(c);
        int64_t lasted = clock_ns() - start;
        expect(lasted < 3 * SECOND, "close lasted %d ms with a linger of 200", (int)(lasted / 1000000));
        expect(num_released == taken, "%d of %d were released after the end", num_released, taken);
        num_released = 0;
        socket_close(other, router);
        socket_context_free(other);
    }
    free(payload);
    report("payloads are released once, whatever happens; linger bounds the end");
}

static void *flood(void *argument) {
    void **job = argument;
    char payload[64] = "p";
    _Atomic int *stop = job[1];
    while (!*stop) {
        bool sent;
        if (socket_send(job[0], NULL, "header", 6, payload, sizeof payload, NULL, NULL, &sent) != AG_OK) break;
    }
    return NULL;
}

/* Connections that break at any moment: what comes is whole. */
static void test_no_halves(void) {
    socket_context *c = context_with(NULL);
    int num_whole = 0;
    for (int round = 0; round < 50; round++) {
        char endpoint[256];
        _Atomic int stop = 0;
        void *router = listen_at(c, &plain, "tcp://127.0.0.1:*", endpoint), *dealer = dial_as(c, plain, "me", endpoint);
        wait_for(dealer, true, PATIENCE_MS);
        void *job[] = {dealer, &stop};
        pthread_t thread;
        pthread_create(&thread, NULL, flood, job);
        socket_message m;
        for (int i = 0; i < round * 3 && receive(router, &(socket_route){0}, &m, 1000); i++) {
            expect(m.header_bytes == 6 && m.payload_bytes == 64, "a message of %zu and %zu bytes", m.header_bytes,
                   m.payload_bytes);
            num_whole++;
            socket_message_free(&m);
        }
        socket_close(c, router);
        stop = 1;
        pthread_join(thread, NULL);
        socket_close(c, dealer);
    }
    expect(num_whole > 1000, "only %d messages came", num_whole);
    socket_context_free(c);
    report("connections that break leave no half messages");
}

/* ---- events, dialling, waiting ---- */

static void test_events(void) {
    socket_settings settings = plain;
    settings.is_monitored = true;
    socket_context *c = context_with(NULL), *other = context_with(NULL);
    for (int is_tcp = 0; is_tcp < 2; is_tcp++) {
        char endpoint[256], detail[160];
        void *router = listen_at(other, &settings, is_tcp ? "tcp://127.0.0.1:*" : "ipc://@argand-socket-test-events", endpoint);
        void *dealer = dial_as(c, settings, "me", endpoint);
        expect(next_event(c, dealer, SOCKET_NOTHING, detail) == SOCKET_CONNECTED, "the dialler is not told of a connection");
        expect(next_event(other, router, SOCKET_NOTHING, detail) == SOCKET_CONNECTED,
               "the listener is not told of a connection");
        socket_close(other, router);
        expect(wait_for(dealer, false, PATIENCE_MS), "poll does not wake for an event");
        expect(next_event(c, dealer, SOCKET_NOTHING, detail) == SOCKET_LOST && strstr(detail, endpoint), "not lost: %s",
               detail);
        /* A new peer at the old address is not this one. */
        router = listen_at(other, &settings, endpoint, endpoint);
        expect(!wait_for(router, false, QUIET_MS) && !wait_for(dealer, true, QUIET_MS), "a lost connection came back");
        socket_close(c, dealer);
        dealer = dial_as(c, settings, "me", endpoint);
        expect(next_event(other, router, SOCKET_NOTHING, detail) == SOCKET_CONNECTED, "the listener is not told of another");
        socket_close(c, dealer);
        expect(next_event(other, router, SOCKET_NOTHING, detail) == SOCKET_LOST, "the listener is not told of the end");
        socket_close(other, router);
    }
    socket_context_free(c);
    socket_context_free(other);
    report("connections made and lost are told, by polls too");
}

static void test_dialling(void) {
    socket_context *c = context_with(NULL);
    for (int i = 0; i < 4; i++) { /* both protocols, with and without reconnecting: the peer comes late */
        socket_settings settings = plain;
        settings.reconnects = i & 1;
        settings.is_monitored = true;
        int port = 0, fd = tcp_socket("127.0.0.1", &port, true);
        close(fd);
        char endpoint[256], detail[160];
        if (i < 2)
            snprintf(endpoint, sizeof endpoint, "tcp://127.0.0.1:%d", port);
        else
            snprintf(endpoint, sizeof endpoint, "ipc://@argand-socket-test-late-%d", i);
        void *dealer = dial_as(c, settings, "me", endpoint);
        expect(settings.reconnects || !wait_for(dealer, true, QUIET_MS), "a connection to nobody");
        void *router = listen_at(c, &plain, endpoint, endpoint);
        expect_service(router, dealer, "late");
        expect(next_event(c, dealer, SOCKET_NOTHING, detail) == SOCKET_CONNECTED, "not told");
        /* What came before the end is there after it. */
        expect(send_text(dealer, NULL, "more"), "no room");
        socket_route route;
        expect_text(router, &route, "more");
        if (settings.reconnects) expect(send_text(router, &route, "last words"), "no room for an answer");
        socket_close(c, router);
        expect(next_event(c, dealer, SOCKET_NOTHING, detail) == SOCKET_LOST, "not told of the loss");
        if (settings.reconnects) expect_text(dealer, NULL, "last words");
        if (settings.reconnects) {
            router = listen_at(c, &plain, endpoint, endpoint);
            socket_message m = {.owner = NULL}; /* what is sent while ZeroMQ notices is lost: it is sent again */
            for (int k = 0; k < 100 && !m.owner; k++)
                if (send_text(dealer, NULL, "again")) receive(router, &(socket_route){0}, &m, 100);
            expect(m.owner != NULL, "a dialler that reconnects is not heard again");
            socket_message_free(&m);
            socket_close(c, router);
        }
        socket_close(c, dealer);
    }
    /* More diallers at once than an accept queue of one takes, most of them stopped from being accepted for a while. */
    enum { num_dealers = 40 };
    int port = 0, fd = tcp_socket("127.0.0.1", &port, true);
    listen(fd, 1);
    char endpoint[256];
    snprintf(endpoint, sizeof endpoint, "tcp://127.0.0.1:%d", port);
    void *dealers[num_dealers], *router;
    for (int i = 0; i < num_dealers; i++) {
        char name[16];
        snprintf(name, sizeof name, "d%d", i);
        dealers[i] = dial_as(c, plain, name, endpoint);
    }
    usleep(QUIET_MS * 1000);
    socket_settings settings = plain;
    settings.use_fd = fd;
    router = listen_at(c, &settings, NULL, endpoint);
    for (int i = 0; i < num_dealers; i++) send_text(dealers[i], NULL, "hello");
    for (int i = 0; i < num_dealers; i++) expect_text(router, &(socket_route){0}, "hello");
    for (int i = 0; i < num_dealers; i++) socket_close(c, dealers[i]);
    socket_close(c, router);
    /* Nobody ever comes. */
    settings = plain;
    settings.is_monitored = true;
    void *dealer = dial_as(c, settings, "me", "ipc://@argand-socket-test-nobody");
    char detail[160];
    int64_t start = clock_ns();
    expect(next_event(c, dealer, SOCKET_NOTHING, detail) == SOCKET_LOST && strstr(detail, "nobody"), "nobody: %s", detail);
    expect(clock_ns() - start > 8 * SECOND && clock_ns() - start < 20 * SECOND, "it is not told after 10 s");
    socket_close(c, dealer);
    socket_context_free(c);
    report("dialling waits for late peers and full queues, and ends");
}

static void on_alarm(int number) { (void)number; }

static void test_poll(void) {
    socket_context *c = context_with(NULL);
    char endpoint[256];
    enum { num_many = 20 };
    void *many[num_many];
    bool is_ready[num_many + 2];
    int pipes[2][2];
    if (!expect(pipe(pipes[0]) == 0 && pipe(pipes[1]) == 0, "no pipe")) return;
    for (int i = 0; i < num_many; i++) many[i] = listen_at(c, &plain, "tcp://127.0.0.1:*", endpoint);
    const int fds[] = {pipes[0][0], pipes[1][0]};
    /* Signals arrive all the time. */
    struct sigaction action = {.sa_handler = on_alarm}, before;
    sigaction(SIGALRM, &action, &before);
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 5000}, {0, 5000}}, NULL);
    int64_t start = clock_ns();
    expect_status(socket_poll(many, NULL, num_many, fds, 2, 200, is_ready), AG_OK, NULL, "poll");
    int64_t lasted = clock_ns() - start;
    expect(lasted >= SECOND / 5 && lasted < 3 * SECOND, "a wait of 200 ms lasted %d us", (int)(lasted / 1000));
    for (int i = 0; i < num_many + 2; i++) expect(!is_ready[i], "%d is ready", i);
    interrupt_raise();
    start = clock_ns();
    expect_status(socket_poll(many, NULL, num_many, fds, 2, PATIENCE_MS, is_ready), AG_OK, NULL, "poll");
    expect(clock_ns() - start < 5 * SECOND, "Ctrl-C does not end a wait");
    interrupt_clear();
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 0}}, NULL);
    sigaction(SIGALRM, &before, NULL);
    if (write(pipes[1][1], "x", 1) != 1) expect(false, "pipe");
    expect_status(socket_poll(many, NULL, num_many, fds, 2, PATIENCE_MS, is_ready), AG_OK, NULL, "poll");
    expect(is_ready[num_many + 1] && !is_ready[num_many], "the wrong fd is ready");
    void *dealer = dial_as(c, plain, "me", endpoint);
    send_text(dealer, NULL, "x");
    expect_status(socket_poll(many, NULL, num_many, fds, 1, PATIENCE_MS, is_ready), AG_OK, NULL, "poll");
    for (int i = 0; i < num_many; i++) expect(is_ready[i] == (i == num_many - 1), "socket %d is %d", i, is_ready[i]);
    expect_status(socket_poll(NULL, NULL, 0, NULL, 0, 10, is_ready), AG_OK, NULL, "poll nothing");
    for (int i = 0; i < 4; i++) close(pipes[i / 2][i % 2]);
    socket_close(c, dealer);
    for (int i = 0; i < num_many; i++) socket_close(c, many[i]);
    socket_context_free(c);
    report("polls: sockets, fds, time and signals");
}

/* ---- processes ---- */

static void test_fork(void) {
    socket_context *c = context_with(NULL);
    char endpoint[256];
    void *router = listen_at(c, &plain, "tcp://127.0.0.1:*", endpoint), *dealer = dial_as(c, plain, "me", endpoint);
    socket_message m = {.owner = NULL};
    send_text(dealer, NULL, "kept");
    expect(receive(router, &(socket_route){0}, &m, PATIENCE_MS), "nothing came");
    int64_t blocks = heap_live_blocks();
    pid_t child = fork();
    if (child == 0) {
        void *s = NULL;
        bool flag, is_ready;
        socket_message none;
        char detail[160];
        expect_status(socket_listen(c, SOCKET_ROUTER, &plain, "tcp://127.0.0.1:*", &s, detail, 160), AG_E_STATE, "forked",
                      "listen");
        expect_status(socket_dial(c, SOCKET_DEALER, &plain, endpoint, &s), AG_E_STATE, "forked", "dial");
        expect_status(socket_send(dealer, NULL, "x", 1, NULL, 0, NULL, NULL, &flag), AG_E_STATE, "forked", "send");
        expect_status(socket_receive(router, NULL, &none, &flag), AG_E_STATE, "forked", "receive");
        expect_status(socket_poll(&router, NULL, 1, NULL, 0, 10, &is_ready), AG_E_STATE, "forked", "poll");
        expect(socket_next_event(c, router, detail, 160) == SOCKET_NOTHING, "an event");
        socket_message_free(&m);
        socket_close(c, dealer);
        socket_close(c, router);
        socket_context_free(c);
        expect(heap_live_blocks() == blocks, "the child freed what is not its own");
        if (problem[0]) report("in the child");
        _exit(problem[0] != '\0');
    }
    int status = -1;
    waitpid(child, &status, 0);
    expect(status == 0, "the child ended with %d", status);
    expect(m.header_bytes == 4 && memcmp(m.header, "kept", 4) == 0, "the parent's message is gone");
    socket_message_free(&m);
    expect_service(router, dealer, "after fork");
    socket_close(c, dealer);
    socket_close(c, router);
    socket_context_free(c);
    report("a child of fork is refused, and breaks nothing");
}

/* Every limit from too low to enough: an error that tells the limit, or success; never the end of the process. */
static void run_with_fds(const socket_keys *keys, int spare) {
    int lowest = dup(0);
    close(lowest);
    struct rlimit limit = {(rlim_t)(lowest + spare), (rlim_t)(lowest + spare)};
    char wanted[100];
    snprintf(wanted, sizeof wanted, "the limit is %d; raise it with ulimit -n", lowest + spare);
    setrlimit(RLIMIT_NOFILE, &limit);
    socket_context *c = NULL;
    void *sockets[200];
    int count = 0;
    ag_status status = socket_context_new(keys, 1, 400, &c);
    char endpoint[256];
    while (status == AG_OK && count < 200)
        if ((status = socket_listen(c, SOCKET_ROUTER, &plain, "tcp://127.0.0.1:*", &sockets[count], endpoint, 256)) == AG_OK)
            count++;
    expect_status(status, AG_E_NETWORK, wanted, "too many files");
    expect(spare < 60 || count > 1, "%d sockets with %d fds", count, spare);
    while (count > 0) socket_close(c, sockets[--count]);
    socket_context_free(c);
    if (problem[0]) report("in the child");
    _exit(problem[0] != '\0');
}

static void test_fd_limit(void) {
    socket_keys keys;
    if (socket_keys_make(&keys)) return;
    for (int spare = 0; spare < 80 && problem[0] == '\0'; spare += spare < 40 ? 1 : 7)
        for (int has_keys = 0; has_keys < 2; has_keys++) {
            pid_t child = fork();
            if (child == 0) run_with_fds(has_keys ? &keys : NULL, spare);
            int status = -1;
            waitpid(child, &status, 0);
            expect(status == 0, "with %d fds and keys %d the child ended with %d", spare, has_keys, status);
        }
    report("too few file descriptors are an error that tells the limit");
}

static void test_max_sockets(void) {
    socket_context *c = NULL;
    void *sockets[200];
    int count = 0;
    char endpoint[256];
    ag_status status = socket_context_new(NULL, 1, 4, &c);
    while (status == AG_OK && count < 200)
        if ((status = socket_listen(c, SOCKET_ROUTER, &plain, "tcp://127.0.0.1:*", &sockets[count], endpoint, 256)) == AG_OK)
            count++;
    expect_status(status, AG_E_NETWORK, "all 4 sockets", "too many sockets");
    expect(count >= 4, "only %d", count);
    while (count > 0) socket_close(c, sockets[--count]);
    socket_context_free(c);
    report("more sockets than the context was made for");
}

static void test_memory(void) {
    int64_t before = heap_live_blocks();
    socket_keys keys;
    if (socket_keys_make(&keys)) return;
    bool is_through = false;
    for (int64_t number = 1; !is_through && number < 100; number++) {
        socket_context *c = NULL;
        void *router = NULL, *dealer = NULL;
        char endpoint[256];
        bool received = false, sent = false, is_ready;
        socket_message m = {.owner = NULL};
        heap_trim();
        ag_memory_fail_after(number);
        ag_status status = socket_context_new(number % 2 ? &keys : NULL, 1, 8, &c);
        if (status == AG_OK) status = socket_listen(c, SOCKET_ROUTER, &plain, "tcp://127.0.0.1:*", &router, endpoint, 256);
        if (status == AG_OK) status = socket_dial(c, SOCKET_DEALER, &plain, endpoint, &dealer);
        while (status == AG_OK && !sent) {
            status = socket_send(dealer, NULL, "h", 1, "p", 1, NULL, NULL, &sent);
            if (status == AG_OK && !sent) status = socket_poll(&dealer, &(bool){true}, 1, NULL, 0, 1000, &is_ready);
        }
        while (status == AG_OK && !received) {
            status = socket_poll(&router, NULL, 1, NULL, 0, 1000, &is_ready);
            if (status == AG_OK) status = socket_receive(router, NULL, &m, &received);
        }
        ag_memory_fail_after(0);
        expect(status == AG_OK || status == AG_E_MEMORY, "allocation %d: %s", (int)number, error_record()->message);
        is_through = status == AG_OK;
        socket_message_free(&m);
        if (c) {
            socket_close(c, dealer);
            socket_close(c, router);
            socket_context_free(c);
        }
    }
    heap_trim();
    expect(is_through, "it never succeeded");
    expect(heap_live_blocks() == before, "%d blocks are left", (int)(heap_live_blocks() - before));
    report("failing allocations");
}

static int count_fds(void) {
    int count = 0;
    for (int fd = 0; fd < 1024; fd++) count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

int main(void) {
    char folder[] = "/tmp/argand-socket-test-XXXXXX";
    socket_keys keys;
    expect(mkdtemp(folder) && socket_is_available() && socket_has_security(), "no folder, or no CURVE");
    expect_status(socket_keys_make(&keys), AG_OK, NULL, "keys");
    report("the library has CURVE");
    int fds = count_fds();
    test_key_files(folder);
    rmdir(folder);
    test_admission("tcp://127.0.0.1:*");
    test_admission("ipc://@argand-socket-test-admission");
    test_server_is_proved();
    test_check_at_start();
    test_addresses();
    test_taken_fd();
    test_other_user();
    test_garbage(NULL);
    test_garbage(&keys);
    test_garbage_at_close();
    test_unread_events();
    test_odd_messages();
    test_release();
    test_no_halves();
    test_events();
    test_dialling();
    test_poll();
    test_fork();
    test_fd_limit();
    test_max_sockets();
    test_memory();
    expect(count_fds() == fds, "%d fds were open at the start, %d at the end", fds, count_fds());
    report("no file descriptor is left open");
    return num_failures != 0;
}
