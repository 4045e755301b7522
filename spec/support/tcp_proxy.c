/* tcp_proxy.c: one connection passed on by a thread, with a fault at one byte. */
#include "support/tcp_proxy.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct tcp_proxy {
    pthread_t thread;
    int listener, near, far; /* near: of the dialling side */
    int stop[2];             /* a pipe: closed = end */
    struct sockaddr_in target;
    proxy_fault fault;
    int64_t at, num_passed;
    bool is_stalled;
};

static bool write_all(int fd, const char *data, ssize_t num) {
    while (num > 0) {
        ssize_t done = send(fd, data, (size_t)num, MSG_NOSIGNAL);
        if (done <= 0) return false;
        data += done;
        num -= done;
    }
    return true;
}

/* Passes on what one side sent; false at the end. */
static bool pass(tcp_proxy *p, bool is_out) {
    static _Thread_local char data[65536];
    ssize_t num = recv(is_out ? p->near : p->far, data, sizeof data, 0);
    if (num <= 0) return false;
    if (!is_out) return write_all(p->near, data, num);
    int64_t offset = p->at - p->num_passed;
    bool is_here = offset >= 0 && offset < num;
    p->num_passed += num;
    if (is_here && p->fault == PROXY_FLIP) data[offset] ^= 0x10;
    if (is_here && p->fault != PROXY_FLIP) num = offset;
    if (!write_all(p->far, data, num)) return false;
    p->is_stalled = is_here && p->fault == PROXY_STALL;
    return !(is_here && p->fault == PROXY_CUT);
}

static void *serve(void *context) {
    tcp_proxy *p = context;
    struct pollfd start[2] = {{.fd = p->listener, .events = POLLIN}, {.fd = p->stop[0], .events = POLLIN}};
    if (poll(start, 2, -1) < 0 || start[1].revents != 0) return NULL;
    p->near = accept(p->listener, NULL, NULL);
    p->far = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (p->near < 0 || connect(p->far, (struct sockaddr *)&p->target, sizeof p->target) != 0) return NULL;
    for (bool is_open = true; is_open;) {
        struct pollfd both[3] = {{.fd = p->is_stalled ? -1 : p->near, .events = POLLIN},
                                 {.fd = p->far, .events = POLLIN},
                                 {.fd = p->stop[0], .events = POLLIN}};
        if (poll(both, 3, -1) < 0 || both[2].revents != 0) break;
        if (both[0].revents != 0) is_open = pass(p, true);
        if (is_open && both[1].revents != 0) is_open = pass(p, false);
    }
    struct linger reset = {.l_onoff = 1};
    setsockopt(p->near, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    close(p->near);
    close(p->far);
    p->near = p->far = -1;
    return NULL;
}

tcp_proxy *tcp_proxy_new(const char *target, proxy_fault fault, int64_t at, char *endpoint, size_t len) {
    tcp_proxy *p = calloc(1, sizeof *p);
    if (!p) return NULL;
    const char *port = strrchr(target, ':');
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t own_len = sizeof own;
    p->target = own;
    p->target.sin_port = htons((uint16_t)atoi(port ? port + 1 : "0"));
    p->fault = fault;
    p->at = at;
    p->near = p->far = -1;
    p->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(p->listener, (struct sockaddr *)&own, sizeof own) != 0 || listen(p->listener, 4) != 0 ||
        getsockname(p->listener, (struct sockaddr *)&own, &own_len) != 0 || pipe(p->stop) != 0 ||
        pthread_create(&p->thread, NULL, serve, p) != 0) {
        free(p);
        return NULL;
    }
    snprintf(endpoint, len, "tcp://127.0.0.1:%d", ntohs(own.sin_port));
    return p;
}

void tcp_proxy_free(tcp_proxy *p) {
    close(p->stop[1]);
    pthread_join(p->thread, NULL);
    close(p->stop[0]);
    close(p->listener);
    if (p->near >= 0) close(p->near);
    if (p->far >= 0) close(p->far);
    free(p);
}
