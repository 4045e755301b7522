/* socket_support.c: what the tests of ZeroMQ sockets share: expectations, and sockets that are waited for with patience. */
#include "support/socket_support.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/error.h"

int num_failures;
char problem[512]; /* of the present case, "" = none so far; the first one is kept */

bool expect(bool holds, const char *format, ...) {
    if (holds || problem[0] != '\0') return holds;
    va_list args;
    va_start(args, format);
    vsnprintf(problem, sizeof problem, format, args);
    va_end(args);
    return false;
}

bool expect_status(ag_status status, ag_status wanted, const char *text, const char *what) {
    const char *message = status == AG_OK ? "no error" : error_record()->message;
    return expect(status == wanted && (status == AG_OK || !text || strstr(message, text)), "%s: status %d, wanted %d%s%s: %s",
                  what, (int)status, (int)wanted, text ? " with " : "", text ? text : "", message);
}

void report(const char *name) {
    printf(problem[0] ? "FAIL  %s: %s\n" : "ok    %s\n", name, problem);
    fflush(stdout);
    num_failures += problem[0] != '\0';
    problem[0] = '\0';
}

const socket_settings plain = {.max_message_bytes = 1 << 20, .send_queue = 8, .receive_queue = 8, .linger_ms = 200};

void *listen_at(socket_context *c, const socket_settings *s, const char *address, char endpoint[256]) {
    void *out = NULL;
    ag_status status;
    /* ZeroMQ frees the address of a closed socket a moment later. */
    for (int64_t end = clock_ns() + 5 * SECOND;; usleep(1000)) {
        status = socket_listen(c, SOCKET_ROUTER, s, address, &out, endpoint, 256);
        if (status != AG_E_NETWORK || !strstr(error_record()->message, "is in use") || clock_ns() > end) break;
    }
    expect_status(status, AG_OK, NULL, "listen");
    return out;
}

void *dial_as(socket_context *c, socket_settings s, const char *identity, const char *endpoint) {
    void *out = NULL;
    s.identity = identity;
    expect_status(socket_dial(c, SOCKET_DEALER, &s, endpoint, &out), AG_OK, NULL, "dial");
    return out;
}

bool wait_for(void *socket, bool wants_room, int timeout_ms) {
    bool is_ready = false;
    expect_status(socket_poll(&socket, &wants_room, 1, NULL, 0, timeout_ms, &is_ready), AG_OK, NULL, "poll");
    return is_ready;
}

/* Sends within the patience. */
bool send_text(void *socket, const socket_route *route, const char *text) {
    bool sent = false;
    for (int64_t end = clock_ns() + PATIENCE_MS * INT64_C(1000000); !sent && clock_ns() < end;) {
        if (!expect_status(socket_send(socket, route, text, strlen(text), NULL, 0, NULL, NULL, &sent), AG_OK, NULL, "send"))
            break;
        if (!sent) wait_for(socket, true, 50);
    }
    return expect(sent, "%s could not be sent", text);
}

bool receive(void *socket, socket_route *route, socket_message *m, int timeout_ms) {
    bool received = false;
    int64_t end = clock_ns() + timeout_ms * INT64_C(1000000), left;
    while (!received && (left = end - clock_ns()) > 0) {
        wait_for(socket, false, (int)(left / 1000000) + 1);
        if (!expect_status(socket_receive(socket, route, m, &received), AG_OK, NULL, "receive")) break;
    }
    return received;
}

bool expect_text(void *socket, socket_route *route, const char *text) {
    socket_message m;
    if (!expect(receive(socket, route, &m, PATIENCE_MS), "%s did not come", text)) return false;
    expect(m.header_bytes == strlen(text) && memcmp(m.header, text, m.header_bytes) == 0, "got %.*s, wanted %s",
           (int)m.header_bytes, (const char *)m.header, text);
    socket_message_free(&m);
    return true;
}

bool expect_silence(void *socket, const char *who) {
    socket_message m;
    if (!receive(socket, &(socket_route){0}, &m, QUIET_MS)) return true;
    socket_message_free(&m);
    return expect(false, "%s was let in", who);
}

/* The next event that is not `skipped`. */
socket_event next_event(socket_context *c, void *socket, socket_event skipped, char detail[160]) {
    int64_t end = clock_ns() + 2 * PATIENCE_MS * INT64_C(1000000);
    socket_event event = SOCKET_NOTHING;
    while (((event = socket_next_event(c, socket, detail, 160)) == SOCKET_NOTHING || event == skipped) && clock_ns() < end)
        wait_for(socket, false, 50);
    return event;
}

socket_context *context_with(const socket_keys *keys) {
    socket_context *c = NULL;
    if (!expect_status(socket_context_new(keys, 1, 64, &c), AG_OK, NULL, "context")) {
        report("context");
        exit(1);
    }
    return c;
}

/* A round trip shows that the router serves. */
void expect_service(void *router, void *dealer, const char *text) {
    socket_route route = {.len = 0};
    if (send_text(dealer, NULL, text) && expect_text(router, &route, text) && send_text(router, &route, "yes"))
        expect_text(dealer, NULL, "yes");
}

int tcp_socket(const char *address, int *port, bool listens) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)*port)};
    socklen_t len = sizeof at;
    inet_pton(AF_INET, address, &at.sin_addr);
    bool is_fine = listens ? bind(fd, (struct sockaddr *)&at, len) == 0 && listen(fd, 64) == 0 &&
                                 getsockname(fd, (struct sockaddr *)&at, &len) == 0
                           : connect(fd, (struct sockaddr *)&at, len) == 0;
    expect(is_fine, "tcp: %s", strerror(errno));
    *port = ntohs(at.sin_port);
    return fd;
}
