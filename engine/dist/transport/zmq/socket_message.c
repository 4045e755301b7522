/* socket_message.c: messages out and in, without waiting, and the one wait for sockets and file descriptors. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <zmq.h>

#include "core/error.h"
#include "core/memory.h"
#include "dist/transport/zmq/socket_private.h"
#include "platform/clock.h"
#include "platform/interrupt.h"

#define MOST_THROWN_AWAY 64 /* by one call of socket_receive */

typedef struct owned_message {
    pid_t owner;
    zmq_msg_t header, payload;
} owned_message;

/* ---- sending ---- */

static int send_part(void *zmq, zmq_msg_t *part, int flags) {
    int sent;
    while ((sent = zmq_msg_send(part, zmq, flags | ZMQ_DONTWAIT)) < 0 && errno == EINTR) continue;
    return sent;
}

static ag_status send_copy(socket_handle *s, const void *bytes, size_t num_bytes, int flags, bool *sent) {
    zmq_msg_t part;
    *sent = false;
    if (zmq_msg_init_size(&part, num_bytes) != 0) return error_memory(NULL, num_bytes);
    if (num_bytes > 0) memcpy(zmq_msg_data(&part), bytes, num_bytes);
    *sent = send_part(s->zmq, &part, flags) >= 0;
    if (*sent) return AG_OK;
    int error_number = errno;
    zmq_msg_close(&part);
    if (error_number == EAGAIN) return AG_OK;
    if (error_number == EHOSTUNREACH) return error_set(AG_E_PEER, NULL, NULL, NULL, NULL, "the peer is not connected");
    return socket_network_error(s->context, NULL, error_number);
}

/* The parts before are in the pipe: without this one the message must not pass for a whole one, and one of three is thrown away
 * by whoever receives it. */
static ag_status spoil(socket_handle *s, size_t num_bytes) {
    for (int i = 0; i < 2; i++) {
        zmq_msg_t part;
        zmq_msg_init(&part);
        if (send_part(s->zmq, &part, i == 0 ? ZMQ_SNDMORE : 0) < 0) zmq_msg_close(&part);
    }
    return error_memory(NULL, num_bytes);
}

/* The last part. ZeroMQ takes it when it took the first, or the connection broke in between: then the message is lost like any
 * other in a broken connection. */
static ag_status send_payload(socket_handle *s, const void *payload, size_t num_bytes, void (*release)(void *, void *),
                              void *context) {
    zmq_msg_t part;
    if (release ? zmq_msg_init_data(&part, (void *)payload, num_bytes, release, context) != 0
                : zmq_msg_init_size(&part, num_bytes) != 0)
        return spoil(s, num_bytes);
    if (!release) memcpy(zmq_msg_data(&part), payload, num_bytes);
    if (send_part(s->zmq, &part, 0) < 0) zmq_msg_close(&part); /* calls release */
    return AG_OK;
}

ag_status socket_send(void *socket, const socket_route *route, const void *header, size_t header_bytes, const void *payload,
                      size_t payload_bytes, void (*release)(void *payload, void *context), void *context, bool *sent) {
    socket_handle *s = socket;
    *sent = false;
    AG_TRY(socket_check_process(s->context));
    if (s->is_dialling) socket_attend(s);
    bool is_taken = true;
    if (s->kind == SOCKET_ROUTER) AG_TRY(send_copy(s, route->bytes, route->len, ZMQ_SNDMORE, &is_taken));
    if (is_taken) AG_TRY(send_copy(s, header, header_bytes, payload_bytes > 0 ? ZMQ_SNDMORE : 0, &is_taken));
    if (!is_taken) return AG_OK;
    if (payload_bytes > 0)
        AG_TRY(send_payload(s, payload, payload_bytes, release, context));
    else if (release)
        release((void *)payload, context);
    *sent = true;
    return AG_OK;
}

/* ---- receiving ---- */

static int receive_part(void *zmq, zmq_msg_t *part) {
    int got;
    while ((got = zmq_msg_recv(part, zmq, ZMQ_DONTWAIT)) < 0 && errno == EINTR) continue;
    return got;
}

/* Reads what is left of a message that nobody wants: it came whole, so no part is waited for. */
static void throw_away(socket_handle *s, zmq_msg_t *part) {
    while (zmq_msg_more(part) && receive_part(s->zmq, part) >= 0) continue;
    atomic_fetch_add_explicit(&s->num_rejected, 1, memory_order_relaxed);
}

/* One message into *m. AG_OK with *is_whole false when it was thrown away; *is_there false when there was none. */
static ag_status receive_one(socket_handle *s, socket_route *route, owned_message *m, bool *is_there, bool *is_whole) {
    *is_there = *is_whole = false;
    if (receive_part(s->zmq, &m->header) < 0) return errno == EAGAIN ? AG_OK : socket_network_error(s->context, NULL, errno);
    *is_there = true;
    if (s->kind == SOCKET_ROUTER) {
        size_t len = zmq_msg_size(&m->header);
        if (len > sizeof route->bytes || !zmq_msg_more(&m->header)) {
            throw_away(s, &m->header);
            return AG_OK;
        }
        route->len = (uint8_t)len;
        memcpy(route->bytes, zmq_msg_data(&m->header), len);
        if (receive_part(s->zmq, &m->header) < 0) return socket_network_error(s->context, NULL, errno);
    }
    if (zmq_msg_more(&m->header)) {
        if (receive_part(s->zmq, &m->payload) < 0) return socket_network_error(s->context, NULL, errno);
        if (zmq_msg_more(&m->payload)) {
            throw_away(s, &m->payload);
            return AG_OK;
        }
    }
    *is_whole = true;
    return AG_OK;
}

ag_status socket_receive(void *socket, socket_route *route, socket_message *message, bool *received) {
    socket_handle *s = socket;
    *message = (socket_message){.owner = NULL};
    *received = false;
    AG_TRY(socket_check_process(s->context));
    socket_route from = {.len = 0};
    owned_message *m = heap_take(sizeof *m); /* before the message is read: afterwards it would be lost */
    if (!m) return error_memory(NULL, sizeof *m);
    m->owner = s->context->owner;
    zmq_msg_init(&m->header);
    zmq_msg_init(&m->payload);
    ag_status status = AG_OK;
    bool is_there = true, is_whole = false;
    for (int i = 0; i < MOST_THROWN_AWAY && status == AG_OK && is_there && !is_whole; i++)
        status = receive_one(s, &from, m, &is_there, &is_whole);
    message->owner = m;
    if (!is_whole) {
        socket_message_free(message);
        return status;
    }
    message->header = zmq_msg_data(&m->header);
    message->header_bytes = zmq_msg_size(&m->header);
    message->payload = zmq_msg_data(&m->payload);
    message->payload_bytes = zmq_msg_size(&m->payload);
    if (route) *route = from;
    *received = true;
    return AG_OK;
}

void socket_message_free(socket_message *message) {
    owned_message *m = message->owner;
    if (m && m->owner == getpid()) {
        zmq_msg_close(&m->header);
        zmq_msg_close(&m->payload);
        heap_give(m, sizeof *m);
    }
    *message = (socket_message){.owner = NULL};
}

int64_t socket_num_rejected(const void *socket) {
    return atomic_load_explicit(&((socket_handle *)socket)->num_rejected, memory_order_relaxed);
}

/* ---- waiting ---- */

#define MAX_ON_STACK 32

/* items: the sockets, the fds, then the monitors of the sockets (an item without a socket and fd -1 is never ready). */
static int fill_items(zmq_pollitem_t *items, void *const *sockets, const bool *wants_room, int num_sockets, const int *fds,
                      int num_fds) {
    int count = 0;
    for (int i = 0; i < num_sockets; i++) {
        const socket_handle *s = sockets[i];
        short events = wants_room && wants_room[i] ? ZMQ_POLLIN | ZMQ_POLLOUT : ZMQ_POLLIN;
        items[count++] = (zmq_pollitem_t){.socket = s->zmq, .events = events};
    }
    for (int i = 0; i < num_fds; i++) items[count++] = (zmq_pollitem_t){.fd = fds[i], .events = ZMQ_POLLIN};
    for (int i = 0; i < num_sockets; i++) {
        const socket_handle *s = sockets[i];
        if (s->monitor) items[count++] = (zmq_pollitem_t){.socket = s->monitor, .events = ZMQ_POLLIN};
    }
    return count;
}

/* Reads all monitors. True when a socket has news for its owner; *wait_ns is lowered to the next dial. */
static bool attend_all(void *const *sockets, int num_sockets, bool *is_ready, int64_t *wait_ns) {
    bool has_news = false;
    for (int i = 0; i < num_sockets; i++) {
        socket_handle *s = sockets[i];
        int64_t due_ns = socket_attend(s);
        if (due_ns < *wait_ns) *wait_ns = due_ns;
        if (s->num_news > 0) has_news = is_ready[i] = true;
    }
    return has_news;
}

ag_status socket_poll(void *const *sockets, const bool *wants_room, int num_sockets, const int *fds, int num_fds,
                      int timeout_ms, bool *is_ready) {
    size_t num_items = (size_t)(2 * num_sockets + num_fds);
    memset(is_ready, 0, (size_t)(num_sockets + num_fds) * sizeof *is_ready);
    if (num_sockets > 0) AG_TRY(socket_check_process(((const socket_handle *)sockets[0])->context));
    zmq_pollitem_t on_stack[MAX_ON_STACK], *items = on_stack;
    if (num_items > MAX_ON_STACK && !(items = heap_alloc(num_items * sizeof *items)))
        return error_memory(NULL, num_items * sizeof *items);
    ag_status status = AG_OK;
    int64_t end_ns = clock_ns() + timeout_ms * INT64_C(1000000);
    for (bool is_done = false; !is_done;) {
        int64_t wait_ns = end_ns - clock_ns();
        if (wait_ns < 0) wait_ns = 0;
        bool is_last = wait_ns == 0;
        if (attend_all(sockets, num_sockets, is_ready, &wait_ns)) wait_ns = 0;
        int count = fill_items(items, sockets, wants_room, num_sockets, fds, num_fds);
        int got = zmq_poll(items, count, (long)((wait_ns + 999999) / 1000000));
        if (got < 0 && errno != EINTR) {
            status = error_set(AG_E_NETWORK, NULL, NULL, NULL, NULL, "waiting for messages: %s", zmq_strerror(errno));
            break;
        }
        if (got < 0 && interrupt_pending()) break;
        attend_all(sockets, num_sockets, is_ready, &wait_ns);
        for (int i = 0; i < num_sockets + num_fds; i++) {
            if (got > 0 && items[i].revents != 0) is_ready[i] = true;
            if (is_ready[i]) is_done = true;
        }
        if (is_last) is_done = true;
    }
    if (items != on_stack) heap_free(items);
    return status;
}
