/* socket.c: contexts, and sockets that listen or dial, with this project's settings. */
#include "dist/transport/zmq/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <zmq.h>

#include "core/error.h"
#include "core/memory.h"
#include "dist/transport/zmq/socket_private.h"
#include "platform/clock.h"
#include "platform/pages.h"

#define DIAL_NS        10000000000 /* how long a first connection is tried */
#define FIRST_PAUSE_NS 5000000
#define SOCKETS_EACH   3 /* with the two ends of its monitor */

bool socket_is_available(void) { return true; }
bool socket_has_security(void) { return zmq_has("curve") == 1; }

ag_status socket_check_process(const socket_context *c) {
    if (__builtin_expect(c->owner == getpid(), 1)) return AG_OK;
    return error_set(AG_E_STATE, NULL, NULL, NULL, "start processes before the job is joined, or let the child call exec",
                     "process %ld was forked from process %ld, whose connections it cannot use", (long)getpid(),
                     (long)c->owner);
}

/* ---- errors ---- */

static bool has_free_fds(int count) {
    int fds[64], opened = 0;
    if (count > 64) count = 64;
    while (opened < count && (fds[opened] = eventfd(0, EFD_CLOEXEC)) >= 0) opened++;
    int missing = count - opened, error_number = errno;
    while (opened > 0) close(fds[--opened]);
    errno = error_number;
    return missing == 0;
}

static ag_status fd_error(const char *address) {
    struct rlimit limit = {0};
    getrlimit(RLIMIT_NOFILE, &limit);
    char hint[96];
    snprintf(hint, sizeof hint, "the limit is %llu; raise it with ulimit -n", (unsigned long long)limit.rlim_cur);
    return error_set(AG_E_NETWORK, NULL, NULL, NULL, hint, "%s%stoo many open files", address ? address : "",
                     address ? ": " : "");
}

ag_status socket_network_error(const socket_context *c, const char *address, int error_number) {
    const char *what = address ? address : "a socket";
    switch (error_number) {
    case EMFILE:
        if (has_free_fds(1))
            return error_set(AG_E_NETWORK, NULL, NULL, NULL, NULL, "%s: all %d sockets of this job are in use", what,
                             c->max_sockets);
        return fd_error(address);
    case ENFILE:
        return error_set(AG_E_NETWORK, NULL, NULL, NULL, "see fs.file-max", "%s: too many open files on this host", what);
    case EADDRINUSE:
        return error_set(AG_E_NETWORK, NULL, NULL, NULL,
                         "choose another port, or `*` for any; an earlier run may still be alive", "the address %s is in use",
                         what);
    case EADDRNOTAVAIL:
    case ENODEV: return error_set(AG_E_NETWORK, NULL, NULL, NULL, NULL, "this host has no interface with the address %s", what);
    case EACCES:
    case EPERM:
        return error_set(AG_E_NETWORK, NULL, NULL, NULL, "ports below 1024 and other users' folders are reserved",
                         "no permission to use the address %s", what);
    case ENAMETOOLONG: return error_set(AG_E_VALUE, NULL, NULL, NULL, NULL, "the address %s is too long", what);
    case EINVAL:
    case EPROTONOSUPPORT:
        return error_set(AG_E_VALUE, NULL, NULL, "an address such as tcp://127.0.0.1:5555 or ipc://@name", NULL, "%s", what);
    case ENOMEM: return error_set(AG_E_MEMORY, NULL, NULL, NULL, NULL, "%s: out of memory", what);
    case ETERM: return error_set(AG_E_STATE, NULL, NULL, NULL, NULL, "%s: the connections of this job are closed", what);
    default: return error_set(AG_E_NETWORK, NULL, NULL, NULL, NULL, "%s: %s", what, zmq_strerror(error_number));
    }
}

/* ---- contexts ---- */

ag_status socket_context_new(const socket_keys *keys, int num_io_threads, int max_sockets, socket_context **out) {
    if (num_io_threads < 1) num_io_threads = 1;
    /* ZeroMQ aborts when its threads find no file descriptors: two each, the reaper, the mailbox; more for the check. */
    if (!has_free_fds(2 * num_io_threads + 3 + (keys ? 24 : 8))) return fd_error(NULL);
    socket_context *c = heap_alloc_zero(sizeof *c);
    if (!c) return error_memory(NULL, sizeof *c);
    ag_status status = AG_OK;
    /* ZeroMQ allocates a block for each message that comes: 64 MiB of all_reduce over loopback tcp took 52 to 69 ms with fresh pages
     * for each, 42 to 45 with blocks that are kept. */
    pages_keep_freed();
    c->owner = getpid();
    c->max_sockets = max_sockets > 0 ? max_sockets : 64;
    c->zmq = zmq_ctx_new();
    if (!c->zmq) {
        status = socket_network_error(c, NULL, errno);
        goto done;
    }
    int64_t room = (int64_t)c->max_sockets * SOCKETS_EACH + 32;
    int most = zmq_ctx_get(c->zmq, ZMQ_SOCKET_LIMIT);
    if (zmq_ctx_set(c->zmq, ZMQ_IO_THREADS, num_io_threads) != 0 || zmq_ctx_set(c->zmq, ZMQ_BLOCKY, 0) != 0 ||
        zmq_ctx_set(c->zmq, ZMQ_MAX_SOCKETS, (int)(room < most ? room : most)) != 0) {
        status = socket_network_error(c, "a context", errno);
        goto done;
    }
    if (keys) {
        c->has_keys = true;
        c->keys = *keys;
        status = security_start(c);
        if (status == AG_OK) status = security_check(c);
    }
done:
    if (status != AG_OK)
        socket_context_free(c);
    else
        *out = c;
    return status;
}

void socket_context_free(socket_context *c) {
    if (!c || c->owner != getpid()) return;
    if (c->zmq) {
        zmq_ctx_shutdown(c->zmq); /* ends the ZAP thread's wait */
        security_stop(c);
        while (zmq_ctx_term(c->zmq) != 0 && errno == EINTR) continue; /* lasts as long as the longest linger */
    }
    explicit_bzero(&c->keys, sizeof c->keys);
    heap_free(c);
}

int64_t socket_context_num_refused(const socket_context *c) {
    return atomic_load_explicit(&((socket_context *)c)->num_refused, memory_order_relaxed);
}

/* ---- settings ---- */

ag_status socket_set(void *zmq, int option, const void *value, size_t len) {
    if (zmq_setsockopt(zmq, option, value, len) == 0) return AG_OK;
    return error_set(AG_E_STATE, NULL, NULL, NULL, NULL, "ZeroMQ refused option %d: %s", option, zmq_strerror(errno));
}

ag_status socket_set_int(void *zmq, int option, int value) { return socket_set(zmq, option, &value, sizeof value); }

static ag_status apply_settings(void *zmq, socket_kind kind, const socket_settings *s, bool is_v6) {
    const struct {
        int option, value;
    } rows[] = {
        {ZMQ_LINGER, s->linger_ms > 0 ? s->linger_ms : 0},
        {ZMQ_SNDTIMEO, 0},
        {ZMQ_RCVTIMEO, 0},
        /* No queue for a peer that is not there. But a socket that reconnects would then drop what came before the connection
         * broke and has not been read: the last words of a peer that ended. */
        {ZMQ_IMMEDIATE, !s->reconnects},
        {ZMQ_SNDHWM, s->send_queue > 0 ? s->send_queue : 1},
        {ZMQ_RCVHWM, s->receive_queue > 0 ? s->receive_queue : 1},
        {ZMQ_HANDSHAKE_IVL, SOCKET_HANDSHAKE_MS},
        {ZMQ_CONNECT_TIMEOUT, SOCKET_CONNECT_MS},
        {ZMQ_RECONNECT_IVL, s->reconnects ? 50 : -1},
        {ZMQ_RECONNECT_IVL_MAX, s->reconnects ? 1000 : 0},
        {ZMQ_BACKLOG, 4096},
        {ZMQ_IPV6, is_v6},
        {ZMQ_TCP_KEEPALIVE, 1},
        {ZMQ_TCP_KEEPALIVE_IDLE, 10},
        {ZMQ_TCP_KEEPALIVE_INTVL, 5},
        {ZMQ_TCP_KEEPALIVE_CNT, 3},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) AG_TRY(socket_set_int(zmq, rows[i].option, rows[i].value));
    /* An encrypted part is 33 bytes longer; and the limit holds for the handshake, too, of which CURVE's is some 400 bytes. */
    int64_t max_bytes = (s->max_message_bytes > 960 ? s->max_message_bytes : 960) + 64;
    AG_TRY(socket_set(zmq, ZMQ_MAXMSGSIZE, &max_bytes, sizeof max_bytes));
    if (kind == SOCKET_ROUTER) AG_TRY(socket_set_int(zmq, ZMQ_ROUTER_MANDATORY, 1));
    if (kind == SOCKET_DEALER && s->identity) {
        size_t len = strlen(s->identity);
        if (len == 0 || len > sizeof((socket_route *)NULL)->bytes)
            return error_set(AG_E_VALUE, NULL, "identity", "1 to 64 bytes", NULL, "%zu", len);
        AG_TRY(socket_set(zmq, ZMQ_ROUTING_ID, s->identity, len));
    }
    return AG_OK;
}

/* ---- sockets ---- */

static ag_status open_socket(socket_context *c, socket_kind kind, const socket_settings *settings, const socket_place *place,
                             socket_handle **out) {
    /* Its mailbox, two of the monitor, what it listens or dials with, and one to look at the interfaces, without which libzmq
     * aborts. */
    if (!has_free_fds(6)) return fd_error(place->text);
    socket_handle *s = heap_alloc_zero(sizeof *s);
    if (!s) return error_memory(NULL, sizeof *s);
    s->context = c;
    s->kind = kind;
    s->is_monitored = settings->is_monitored;
    s->reconnects = settings->reconnects;
    s->zmq = zmq_socket(c->zmq, kind == SOCKET_ROUTER ? ZMQ_ROUTER : ZMQ_DEALER);
    ag_status status =
        s->zmq ? apply_settings(s->zmq, kind, settings, place->is_v6) : socket_network_error(c, place->text, errno);
    if (status != AG_OK)
        socket_close(c, s);
    else
        *out = s;
    return status;
}

/* Anybody who reaches the address could take part, and read: without keys it must be this host's own. */
static ag_status refuse_without_keys(const char *address, const char *verb) {
    return error_set(AG_E_VALUE, NULL, "address", "a loopback or ipc address when the job has no key",
                     "make a key with `argand keygen FILE` and give it to all ranks with the option key_file", "%s %s", verb,
                     address);
}

ag_status socket_listen(socket_context *c, socket_kind kind, const socket_settings *settings, const char *address, void **out,
                        char *endpoint, size_t len) {
    AG_TRY(socket_check_process(c));
    socket_place place;
    int fd = settings->use_fd > 0 ? settings->use_fd : -1;
    AG_TRY(fd > 0 ? socket_place_of_fd(fd, &place) : socket_place_find(address, true, &place));
    if (!c->has_keys && !place.is_local) return refuse_without_keys(place.text, "listening at");
    socket_handle *s = NULL;
    int own_fd = -1;
    char real[SOCKET_MAX_ENDPOINT];
    size_t real_len = sizeof real;
    ag_status status = open_socket(c, kind, settings, &place, &s);
    if (status == AG_OK) status = security_apply_server(s->zmq, c->has_keys ? &c->keys : NULL);
    uid_t user = geteuid();
    if (status == AG_OK && !c->has_keys && place.is_ipc) status = socket_set(s->zmq, ZMQ_IPC_FILTER_UID, &user, sizeof user);
    if (status == AG_OK && s->is_monitored) status = socket_watch(s);
    if (status != AG_OK) goto done;
    if (fd > 0) { /* a copy, so that the caller keeps his when something fails */
        own_fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
        status = own_fd < 0 ? socket_network_error(c, place.text, errno) : socket_set_int(s->zmq, ZMQ_USE_FD, own_fd);
        if (status != AG_OK) goto done;
        fcntl(own_fd, F_SETFL, fcntl(own_fd, F_GETFL) | O_NONBLOCK);
    }
    if (zmq_bind(s->zmq, place.text) != 0 || zmq_getsockopt(s->zmq, ZMQ_LAST_ENDPOINT, real, &real_len) != 0) {
        status = socket_network_error(c, place.text, errno);
        goto done;
    }
    own_fd = -1; /* ZeroMQ's */
    if (endpoint && snprintf(endpoint, len, "%s", real) >= (int)len)
        status = error_set(AG_E_ARGUMENT, NULL, NULL, NULL, NULL, "no room for the endpoint %s", real);
done:
    if (status != AG_OK) {
        socket_close(c, s);
        if (own_fd >= 0) close(own_fd);
        return status;
    }
    if (fd > 0) close(fd);
    *out = s;
    return AG_OK;
}

ag_status socket_dial(socket_context *c, socket_kind kind, const socket_settings *settings, const char *endpoint, void **out) {
    AG_TRY(socket_check_process(c));
    socket_place place;
    AG_TRY(socket_place_find(endpoint, false, &place));
    if (!c->has_keys && !place.is_local) return refuse_without_keys(place.text, "dialling");
    socket_handle *s;
    AG_TRY(open_socket(c, kind, settings, &place, &s));
    s->is_dialler = true;
    s->is_dialling = !s->reconnects && strncmp(place.text, "inproc:", 7) != 0; /* inproc has no events, and no failures */
    memcpy(s->endpoint, place.text, sizeof s->endpoint);
    ag_status status = c->has_keys ? security_apply_client(s->zmq, &c->keys, c->keys.public_key) : AG_OK;
    if (status == AG_OK && (s->is_monitored || s->is_dialling)) status = socket_watch(s);
    s->pause_ns = FIRST_PAUSE_NS;
    s->dial_end_ns = clock_ns() + DIAL_NS;
    s->next_try_ns = clock_ns() + 1000000000; /* unless the monitor tells something: no event comes when ZeroMQ gets no fd */
    if (status == AG_OK && zmq_connect(s->zmq, place.text) != 0) status = socket_network_error(c, place.text, errno);
    if (status != AG_OK)
        socket_close(c, s);
    else
        *out = s;
    return status;
}

void socket_close(socket_context *c, void *socket) {
    if (!socket || c->owner != getpid()) return;
    socket_handle *s = socket;
    socket_unwatch(s);
    if (s->zmq) zmq_close(s->zmq);
    heap_free(s);
}
