/* socket_intruders.c: who must not get in: key files, strangers, the check at start, garbage. The tests of socket_test.c. */
#include "support/socket_intruders.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <zmq.h>

#include "support/socket_support.h"

/* ---- faults ---- */

enum { FAULT_NONE, FAULT_NO_HANDLER, FAULT_NO_RIGHT };
static int fault;

int zmq_bind(void *socket, const char *address) {
    int (*real)(void *, const char *) = (int (*)(void *, const char *))dlsym(RTLD_NEXT, "zmq_bind");
    bool is_zap = strcmp(address, "inproc://zeromq.zap.01") == 0;
    return real(socket, is_zap && (fault == FAULT_NO_HANDLER || fault == FAULT_NO_RIGHT) ? "inproc://nobody" : address);
}

int zmq_setsockopt(void *socket, int option, const void *value, size_t len) {
    int (*real)(void *, int, const void *, size_t) =
        (int (*)(void *, int, const void *, size_t))dlsym(RTLD_NEXT, "zmq_setsockopt");
    if (fault == FAULT_NO_HANDLER && option == 93) return 0; /* as a library that does not know the option */
    return real(socket, option, value, len);
}

/* ---- key files ---- */

static void write_file(const char *path, const char *text, size_t len, mode_t mode) {
    unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    expect(fd >= 0 && write(fd, text, len) == (ssize_t)len && fchmod(fd, mode) == 0, "%s cannot be written", path);
    close(fd);
}

void test_key_files(const char *folder) {
    char path[256], text[200], bad[210];
    socket_keys keys, other, got;
    struct stat info;
    snprintf(path, sizeof path, "%s/key", folder);
    expect_status(socket_keys_make(&keys), AG_OK, NULL, "make");
    expect_status(socket_keys_make(&other), AG_OK, NULL, "make");
    expect(strcmp(keys.secret_key, other.secret_key) != 0, "two equal keys");
    mode_t before = umask(0);
    expect_status(socket_keys_write(path, &keys), AG_OK, NULL, "write");
    umask(before);
    expect(stat(path, &info) == 0 && (info.st_mode & 07777) == 0600, "mode %o", info.st_mode & 07777);
    expect_status(socket_keys_write(path, &other), AG_E_FILE, "exists already", "write over");
    expect_status(socket_keys_read(path, &got), AG_OK, NULL, "read");
    expect(memcmp(&got, &keys, sizeof got) == 0, "another key came back");
    chmod(path, 0640);
    expect_status(socket_keys_read(path, &got), AG_E_VALUE, "chmod 600", "group may read");
    chmod(path, 0604);
    expect_status(socket_keys_read(path, &got), AG_E_VALUE, "chmod 600", "others may read");

    int len = snprintf(text, sizeof text, "public %s\nsecret %s\n", keys.public_key, keys.secret_key);
    write_file(path, text, (size_t)len - 1, 0600);
    expect_status(socket_keys_read(path, &got), AG_OK, NULL, "no newline at the end");
    const size_t cuts[] = {0, 1, 47, 48, 94};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        write_file(path, text, cuts[i], 0600);
        expect_status(socket_keys_read(path, &got), AG_E_FORMAT, path, "cut file");
    }
    const struct {
        int at;
        char byte;
    } flips[] = {{0, 'P'},  {6, '\n'}, {7, '\0'},  {10, '\\'}, {10, '\x80'},
                 {47, ' '}, {48, 'S'}, {60, '\n'}, {94, '\0'}, {95, 'x'}};
    for (size_t i = 0; i < sizeof flips / sizeof *flips; i++) {
        memcpy(bad, text, sizeof text);
        bad[flips[i].at] = flips[i].byte;
        write_file(path, bad, (size_t)len, 0600);
        expect_status(socket_keys_read(path, &got), AG_E_FORMAT, NULL, "garbage");
    }
    snprintf(bad, sizeof bad, "public %s\nsecret %s\n", keys.public_key, other.secret_key);
    write_file(path, bad, (size_t)len, 0600);
    expect_status(socket_keys_read(path, &got), AG_E_FORMAT, "belong together", "halves of two keys");
    snprintf(bad, sizeof bad, "%sx", text);
    write_file(path, bad, (size_t)len + 1, 0600);
    expect_status(socket_keys_read(path, &got), AG_E_FORMAT, NULL, "more than a key");
    unlink(path);
    expect_status(socket_keys_read(path, &got), AG_E_FILE, "argand keygen", "no file");
    expect(mkfifo(path, 0600) == 0, "no fifo");
    expect_status(socket_keys_read(path, &got), AG_E_FILE, "regular", "a pipe");
    unlink(path);
    expect_status(socket_keys_read(folder, &got), AG_E_FILE, NULL, "a folder");
    snprintf(bad, sizeof bad, "%.150s/none/key", folder);
    expect_status(socket_keys_write(bad, &keys), AG_E_FILE, "No such file", "no folder");
    report("key files");
}

/* ---- who is let in ---- */

typedef struct visitor {
    const char *name;
    int mechanism; /* ZMQ_NULL, ZMQ_PLAIN, ZMQ_CURVE */
    const socket_keys *own;
    const char *server_public;
    bool is_admitted, asks_zap;
} visitor;

static void *visit(void *zmq, const visitor *v, const char *endpoint) {
    void *s = zmq_socket(zmq, ZMQ_DEALER);
    int zero = 0;
    zmq_setsockopt(s, ZMQ_LINGER, &zero, sizeof zero);
    if (v->mechanism == ZMQ_PLAIN) {
        zmq_setsockopt(s, ZMQ_PLAIN_USERNAME, "admin", 5);
        zmq_setsockopt(s, ZMQ_PLAIN_PASSWORD, "admin", 5);
    } else if (v->mechanism == ZMQ_CURVE) {
        zmq_setsockopt(s, ZMQ_CURVE_PUBLICKEY, v->own->public_key, 41);
        zmq_setsockopt(s, ZMQ_CURVE_SECRETKEY, v->own->secret_key, 41);
        zmq_setsockopt(s, ZMQ_CURVE_SERVERKEY, v->server_public, 41);
    }
    expect(zmq_socket_monitor(s, "inproc://visit", ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED) == 0 &&
               zmq_connect(s, endpoint) == 0 && zmq_send(s, v->name, strlen(v->name), ZMQ_DONTWAIT) > 0,
           "%s cannot dial", v->name);
    return s;
}

/* True when the handshake succeeded, false when the server hung up. */
static bool handshake_succeeds(void *zmq, void *s, const visitor *v) {
    void *monitor = zmq_socket(zmq, ZMQ_PAIR);
    int zero = 0, patience = PATIENCE_MS, got;
    uint16_t event = 0;
    zmq_setsockopt(monitor, ZMQ_LINGER, &zero, sizeof zero);
    zmq_setsockopt(monitor, ZMQ_RCVTIMEO, &patience, sizeof patience);
    zmq_connect(monitor, "inproc://visit");
    unsigned char head[8];
    got = zmq_recv(monitor, head, sizeof head, 0);
    if (expect(got >= 6, "%s: nothing happened", v->name)) memcpy(&event, head, 2);
    zmq_socket_monitor(s, NULL, 0); /* before its reader goes: ZeroMQ's thread would wait for another one for ever */
    zmq_close(monitor);
    return event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED;
}

void test_admission(const char *address) {
    socket_keys job, old, fresh;
    if (socket_keys_make(&job) || socket_keys_make(&old) || socket_keys_make(&fresh)) return;
    const visitor visitors[] = {
        {"a stranger's key", ZMQ_CURVE, &fresh, job.public_key, false, true},
        {"no key", ZMQ_NULL, NULL, NULL, false, false},
        {"a password", ZMQ_PLAIN, NULL, NULL, false, false},
        {"an old job's key", ZMQ_CURVE, &old, old.public_key, false, false},
        {"an old job's key, this server's", ZMQ_CURVE, &old, job.public_key, false, true},
        {"the job's key", ZMQ_CURVE, &job, job.public_key, true, false},
    };
    socket_context *c = context_with(&job);
    expect(socket_context_num_refused(c) == 0, "the check at start is counted");
    char endpoint[256];
    void *router = listen_at(c, &plain, address, endpoint), *good = dial_as(c, plain, "good", endpoint);
    for (size_t i = 0; i < sizeof visitors / sizeof *visitors && router && good; i++) {
        const visitor *v = &visitors[i];
        void *zmq = zmq_ctx_new(), *s = visit(zmq, v, endpoint);
        int64_t refused = socket_context_num_refused(c);
        bool succeeds = handshake_succeeds(zmq, s, v);
        expect(succeeds == v->is_admitted, "%s is %s", v->name, succeeds ? "admitted" : "refused");
        if (v->is_admitted)
            expect_text(router, &(socket_route){0}, v->name);
        else
            expect_silence(router, v->name);
        expect((socket_context_num_refused(c) > refused) == v->asks_zap, "%s: counted %d", v->name,
               (int)(socket_context_num_refused(c) - refused));
        expect_service(router, good, "still there");
        zmq_close(s);
        zmq_ctx_term(zmq);
    }
    socket_close(c, good);
    socket_close(c, router);
    socket_context_free(c);
    char name[100];
    snprintf(name, sizeof name, "a keyed router admits the job's key only, %.3s", address);
    report(name);
}

void test_server_is_proved(void) {
    socket_keys job, other;
    if (socket_keys_make(&job) || socket_keys_make(&other)) return;
    socket_settings settings = plain;
    settings.is_monitored = true;
    char endpoint[256], detail[160];
    socket_context *c = context_with(&job), *others[] = {context_with(NULL), context_with(&other)};
    for (int i = 0; i < 2; i++) {
        void *router = listen_at(others[i], &plain, "tcp://127.0.0.1:*", endpoint),
             *dealer = dial_as(c, settings, "me", endpoint);
        socket_event event = next_event(c, dealer, SOCKET_NOTHING, detail);
        /* A server that cannot decrypt the greeting hangs up without a word: refused or, in the end, lost. */
        expect(event == SOCKET_REFUSED || (i == 1 && event == SOCKET_LOST), "event %d from a false server %d: %s", (int)event,
               i, detail);
        expect_silence(router, "a keyed client at a false server");
        bool sent = true;
        socket_send(dealer, NULL, "secret", 6, NULL, 0, NULL, NULL, &sent);
        expect(!sent, "a message went to a false server");
        socket_close(c, dealer);
        socket_close(others[i], router);
        socket_context_free(others[i]);
    }
    socket_context_free(c);
    report("a keyed client refuses a server without the key");
}

void test_check_at_start(void) {
    socket_keys keys;
    if (socket_keys_make(&keys)) return;
    const struct {
        int fault;
        const char *text;
    } rows[] = {{FAULT_NO_HANDLER, "an unknown key was admitted"}, {FAULT_NO_RIGHT, "was not"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        socket_context *c = NULL;
        fault = rows[i].fault;
        int64_t start = clock_ns();
        expect_status(socket_context_new(&keys, 1, 8, &c), AG_E_STATE, rows[i].text, "a context without protection");
        expect(c == NULL && clock_ns() - start < 15 * SECOND, "fault %d: not in time", fault);
        fault = FAULT_NONE;
    }
    report("the check at start finds a library that admits everybody");
}

/* Abstract addresses have no file mode: the user is checked. */
void test_other_user(void) {
    if (geteuid() != 0) {
        printf("ok    another user is refused at an ipc address: not run, only root can become another user\n");
        return;
    }
    socket_context *c = context_with(NULL);
    char endpoint[256];
    void *router = listen_at(c, &plain, "ipc://@argand-socket-test-user", endpoint),
         *dealer = dial_as(c, plain, "me", endpoint);
    expect_service(router, dealer, "the same user");
    pid_t child = fork();
    if (child == 0) {
        if (setuid(65534) != 0) _exit(1);
        socket_context *own = context_with(NULL);
        void *s = dial_as(own, plain, "stranger", endpoint);
        bool sent = false;
        for (int i = 0; i < 10 && !sent; i++) {
            wait_for(s, true, 20);
            socket_send(s, NULL, "x", 1, NULL, 0, NULL, NULL, &sent);
        }
        _exit(sent ? 2 : 0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    expect(status == 0, "the other user's process ended with %d", status);
    expect_silence(router, "another user");
    expect_service(router, dealer, "the same user again");
    socket_close(c, dealer);
    socket_close(c, router);
    socket_context_free(c);
    report("another user is refused at an ipc address");
}

/* ---- garbage ---- */

static uint64_t random_state = 7;
static unsigned char random_byte(void) {
    random_state = random_state * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (unsigned char)(random_state >> 56);
}

static const unsigned char greeting[64] = "\xff\0\0\0\0\0\0\0\x01\x7f\x03\0NULL"; /* ZMTP 3.0; the rest is zeros */
#define READY                                    \
    "\x04\x29\x05READY\x0bSocket-Type\0\0\0\x06" \
    "DEALER\x08Identity\0\0\0\0"

void test_garbage(const socket_keys *keys) {
    unsigned char noise[4096], huge[200], endless[200];
    for (size_t i = 0; i < sizeof noise; i++) noise[i] = random_byte();
    size_t huge_len = 64 + sizeof READY - 1;
    memcpy(huge, greeting, 64);
    memcpy(huge + 64, READY, sizeof READY - 1);
    memcpy(endless, huge, huge_len);
    memcpy(huge + huge_len, "\x02\x7f\xff\xff\xff\xff\xff\xff\xff", 9);    /* a frame of 2^63 - 1 bytes */
    memcpy(endless + huge_len, "\x02\xff\xff\xff\xff\xff\xff\xff\xff", 9); /* 2^64 - 1 */
    const char *http = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    const struct {
        const void *bytes;
        size_t len;
        bool stays; /* the connection is left open */
    } rows[] = {{noise, sizeof noise, false},
                {http, strlen(http), true},
                {greeting, 9, true},
                {greeting, 32, false},
                {greeting, 64, true},
                {huge, huge_len, true},
                {huge, huge_len + 9, true},
                {endless, huge_len + 9, true},
                {"\x01\0", 2, true},
                {"\xff", 1, true},
                {"\0\0\0\0\0\0\0\0\0\0\0", 11, true},
                {"", 0, true},
                /* ZMTP 1.0 and 2.0: messages without a handshake */
                {"\x01\0\x05\0hell", 8, true},
                {"\xff\0\0\0\0\0\0\0\x01\x7f\x01\x05\0\0\0\x04hell", 20, true}};
    enum { num_rows = sizeof rows / sizeof *rows, num_at_once = 100 };
    socket_settings settings = plain;
    settings.is_monitored = true;
    socket_context *c = context_with(keys);
    char endpoint[256], detail[160];
    int fds[num_rows * 8 + num_at_once], num_fds = 0;
    void *router = listen_at(c, &settings, "tcp://127.0.0.1:*", endpoint), *dealer = dial_as(c, plain, "good", endpoint);
    int port = atoi(strrchr(endpoint, ':') + 1);
    expect_service(router, dealer, "before");
    for (int i = 0; i < num_rows * 8 + num_at_once; i++) {
        int row = i < num_rows * 8 ? i % num_rows : 0, fd = tcp_socket("127.0.0.1", &port, false);
        for (size_t k = 0; i >= num_rows && k < 64; k++) noise[k] = random_byte();
        if (rows[row].len > 0 && send(fd, rows[row].bytes, rows[row].len, MSG_NOSIGNAL) < 0 && errno != ECONNRESET &&
            errno != EPIPE)
            expect(false, "send: %s", strerror(errno));
        if (rows[row].stays || i >= num_rows * 8)
            fds[num_fds++] = fd;
        else
            close(fd);
        if (i % num_rows == 0) expect_service(router, dealer, "amid garbage");
    }
    expect_service(router, dealer, "after garbage");
    int num_refused = 0;
    while (num_refused < 3 && next_event(c, router, SOCKET_NOTHING, detail) != SOCKET_NOTHING) num_refused++;
    expect(num_refused == 3, "the events tell of garbage");
    expect_silence(router, "garbage");
    while (num_fds > 0) close(fds[--num_fds]);
    expect_service(router, dealer, "when it is gone");
    socket_close(c, dealer);
    socket_close(c, router);
    socket_context_free(c);
    report(keys ? "garbage does not stall a router with keys" : "garbage does not stall a router without keys");
}

/* Peers that are in the middle of it when the socket closes. */
void test_garbage_at_close(void) {
    socket_context *c = context_with(NULL);
    for (int round = 0; round < 40; round++) {
        char endpoint[256];
        int fds[20];
        void *router = listen_at(c, &plain, "tcp://127.0.0.1:*", endpoint);
        int port = atoi(strrchr(endpoint, ':') + 1);
        for (int i = 0; i < 20; i++) {
            fds[i] = tcp_socket("127.0.0.1", &port, false);
            send(fds[i], "\x01\0\x05\0hell", 8, MSG_NOSIGNAL);
        }
        socket_close(c, router);
        for (int i = 0; i < 20; i++) close(fds[i]);
    }
    socket_context_free(c);
    report("garbage while a router closes");
}

/* The monitor's events of many bad peers, which nobody reads: ZeroMQ's thread must not wait for us. */
void test_unread_events(void) {
    socket_settings settings = plain;
    settings.is_monitored = true;
    socket_context *c = context_with(NULL);
    char endpoint[256];
    void *router = listen_at(c, &settings, "tcp://127.0.0.1:*", endpoint);
    int port = atoi(strrchr(endpoint, ':') + 1);
    for (int i = 0; i < 3000; i++) close(tcp_socket("127.0.0.1", &port, false));
    void *dealer = dial_as(c, plain, "good", endpoint);
    send_text(dealer, NULL, "through");
    expect_text(router, &(socket_route){0}, "through");
    socket_close(c, dealer);
    socket_close(c, router);
    socket_context_free(c);
    report("events that nobody reads stall nothing");
}

void test_odd_messages(void) {
    socket_settings settings = plain;
    settings.max_message_bytes = 4096;
    socket_context *c = context_with(NULL);
    char endpoint[256], identity[201], *big = calloc(1, 1 << 20);
    void *router = listen_at(c, &settings, "tcp://127.0.0.1:*", endpoint), *dealer = dial_as(c, plain, "good", endpoint);
    void *zmq = zmq_ctx_new(), *odd[2];
    int zero = 0;
    memset(identity, 'i', sizeof identity);
    for (int i = 0; i < 2; i++) {
        odd[i] = zmq_socket(zmq, ZMQ_DEALER);
        zmq_setsockopt(odd[i], ZMQ_LINGER, &zero, sizeof zero);
        zmq_setsockopt(odd[i], ZMQ_ROUTING_ID, identity, i == 0 ? 64 : 65);
        zmq_connect(odd[i], endpoint);
    }
    for (int part = 0; part < 300; part++) zmq_send(odd[0], "x", 1, part < 299 ? ZMQ_SNDMORE : 0);
    for (int part = 0; part < 3; part++) zmq_send(odd[0], NULL, 0, part < 2 ? ZMQ_SNDMORE : 0);
    zmq_send(odd[0], "one", 3, 0);
    expect_text(router, &(socket_route){0}, "one"); /* messages of one connection come in order */
    expect(socket_num_rejected(router) == 2, "%d were thrown away, wanted 2", (int)socket_num_rejected(router));
    zmq_send(odd[1], "from a long name", 16, 0);
    expect_silence(router, "a peer with a name of 65 bytes");
    expect(socket_num_rejected(router) == 3, "%d were thrown away, wanted 3", (int)socket_num_rejected(router));
    expect_service(router, dealer, "before the long one");
    zmq_send(odd[0], big, 4096, 0);
    socket_message m;
    if (expect(receive(router, &(socket_route){0}, &m, PATIENCE_MS), "the longest message did not come")) {
        expect(m.header_bytes == 4096 && m.payload_bytes == 0, "%zu bytes came", m.header_bytes);
        socket_message_free(&m);
    }
    zmq_send(odd[0], big, 1 << 20, 0);
    expect_silence(router, "a message above the limit");
    expect_service(router, dealer, "after the long one");
    for (int i = 0; i < 2; i++) zmq_close(odd[i]);
    zmq_ctx_term(zmq);
    socket_close(c, dealer);
    socket_close(c, router);
    socket_context_free(c);
    free(big);
    report("odd and oversized messages are thrown away");
}
