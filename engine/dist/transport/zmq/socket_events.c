/* socket_events.c: what a socket's monitor tells: connections made, lost and refused; and dialling again.
 *
 * ZeroMQ's thread waits, without end and for all sockets, when an event finds no reader or no room. So the monitor has no high
 * water mark, its reader is there before the first event and goes after the last one, and every poll reads it empty. What
 * nobody has asked for is kept in a small ring, where refusals give way to the rest.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <zmq.h>

#include "core/error.h"
#include "dist/transport/zmq/socket_private.h"
#include "platform/clock.h"

#define LONGEST_PAUSE_NS 200000000
#define EVENTS                                                                                                    \
    (ZMQ_EVENT_CONNECTED | ZMQ_EVENT_CONNECT_DELAYED | ZMQ_EVENT_CLOSED | ZMQ_EVENT_DISCONNECTED |                \
     ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | \
     ZMQ_EVENT_HANDSHAKE_FAILED_AUTH)

ag_status socket_watch(socket_handle *s) {
    char name[64];
    uint32_t number = atomic_fetch_add_explicit(&s->context->num_monitors, 1, memory_order_relaxed);
    snprintf(name, sizeof name, "inproc://argand-monitor-%" PRIu32, number);
    if (zmq_socket_monitor(s->zmq, name, EVENTS) != 0) return socket_network_error(s->context, NULL, errno);
    s->monitor = zmq_socket(s->context->zmq, ZMQ_PAIR);
    ag_status status = s->monitor ? AG_OK : socket_network_error(s->context, NULL, errno);
    if (status == AG_OK) status = socket_set_int(s->monitor, ZMQ_LINGER, 0);
    if (status == AG_OK) status = socket_set_int(s->monitor, ZMQ_RCVHWM, 0);
    if (status == AG_OK && zmq_connect(s->monitor, name) != 0) status = socket_network_error(s->context, NULL, errno);
    if (status != AG_OK) socket_unwatch(s);
    return status;
}

void socket_unwatch(socket_handle *s) {
    if (s->zmq) zmq_socket_monitor(s->zmq, NULL, 0);
    if (s->monitor) zmq_close(s->monitor);
    s->monitor = NULL;
}

static void tell(socket_handle *s, socket_event event, const char *address, const char *why) {
    if (!s->is_monitored) return;
    socket_news *at = &s->news[(s->first_news + s->num_news) % SOCKET_MAX_EVENTS];
    if (s->num_news == SOCKET_MAX_EVENTS) {
        if (event == SOCKET_REFUSED) return;
        at = &s->news[(s->first_news + s->num_news - 1) % SOCKET_MAX_EVENTS];
    } else
        s->num_news++;
    at->event = event;
    snprintf(at->detail, sizeof at->detail, "%.100s%s%.48s", address, why[0] ? ": " : "", why);
}

static const char *refusal_text(int event, int value) {
    if (event == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH) return "the key is not the job's";
    if (event == ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL) return value == 0 ? "no ZeroMQ peer" : zmq_strerror(value);
    if (value == ZMQ_PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH) return "one side uses a key, the other none";
    if (value == ZMQ_PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC) return "the keys do not fit";
    return "the peer does not keep to the protocol";
}

static void try_again(socket_handle *s) {
    s->next_try_ns = clock_ns() + s->pause_ns;
    s->pause_ns = s->pause_ns * 2 < LONGEST_PAUSE_NS ? s->pause_ns * 2 : LONGEST_PAUSE_NS;
}

/* A socket that is dialling: other failures than a refusal lead to the next try. */
static void hear_dialling(socket_handle *s, int event, int value, const char *address) {
    switch (event) {
    case ZMQ_EVENT_CONNECT_DELAYED: s->next_try_ns = clock_ns() + (SOCKET_CONNECT_MS + 1000) * INT64_C(1000000); break;
    case ZMQ_EVENT_CONNECTED: s->next_try_ns = clock_ns() + (SOCKET_HANDSHAKE_MS + 1000) * INT64_C(1000000); break;
    case ZMQ_EVENT_HANDSHAKE_SUCCEEDED:
        s->is_dialling = false;
        s->is_connected = true;
        tell(s, SOCKET_CONNECTED, address, "");
        break;
    case ZMQ_EVENT_HANDSHAKE_FAILED_AUTH:
    case ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL:
        s->is_dialling = false;
        s->num_handshakes_failed++;
        tell(s, SOCKET_REFUSED, address, refusal_text(event, value));
        break;
    default: try_again(s); break; /* CLOSED, DISCONNECTED, HANDSHAKE_FAILED_NO_DETAIL */
    }
}

static void hear(socket_handle *s, int event, int value, const char *address) {
    if (s->is_dialling) {
        hear_dialling(s, event, value, address);
        return;
    }
    switch (event) {
    case ZMQ_EVENT_HANDSHAKE_SUCCEEDED:
        s->is_connected = true;
        tell(s, SOCKET_CONNECTED, address, "");
        break;
    case ZMQ_EVENT_HANDSHAKE_FAILED_AUTH:
    case ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL:
        s->num_handshakes_failed++;
        tell(s, SOCKET_REFUSED, address, refusal_text(event, value));
        break;
    case ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL:
        s->num_handshakes_failed++;
        if (!s->is_dialler) tell(s, SOCKET_REFUSED, address, refusal_text(event, value)); /* a dialler goes on trying */
        break;
    case ZMQ_EVENT_DISCONNECTED:
        if (s->num_handshakes_failed > 0)
            s->num_handshakes_failed--;
        else if (s->is_connected || !s->is_dialler)
            tell(s, SOCKET_LOST, address, "the connection broke");
        if (s->is_dialler) s->is_connected = false;
        break;
    default: break;
    }
}

/* One event of the monitor: a part with the number and a value, a part with the address. False when there is none. */
static bool read_event(socket_handle *s, int *event, int *value, char *address, size_t len) {
    unsigned char head[8];
    int got;
    while ((got = zmq_recv(s->monitor, head, sizeof head, ZMQ_DONTWAIT)) < 0 && errno == EINTR) continue;
    if (got < 0) return false;
    uint16_t number = 0;
    uint32_t detail = 0;
    if (got >= 6) {
        memcpy(&number, head, 2);
        memcpy(&detail, head + 2, 4);
    }
    *event = number;
    *value = (int)detail;
    while ((got = zmq_recv(s->monitor, address, len - 1, ZMQ_DONTWAIT)) < 0 && errno == EINTR) continue;
    if (got < 0) got = 0;
    address[(size_t)got < len ? (size_t)got : len - 1] = '\0';
    return true;
}

static void dial_again(socket_handle *s) {
    int64_t now = clock_ns();
    if (now >= s->dial_end_ns) {
        s->is_dialling = false;
        tell(s, SOCKET_LOST, s->endpoint, "it cannot be reached");
        return;
    }
    zmq_disconnect(s->zmq, s->endpoint); /* fails when ZeroMQ has given the endpoint up already */
    if (zmq_connect(s->zmq, s->endpoint) != 0)
        try_again(s);
    else
        s->next_try_ns = now + 1000000000;
}

int64_t socket_attend(socket_handle *s) {
    if (!s->monitor) return INT64_MAX;
    int event, value;
    char address[SOCKET_MAX_ENDPOINT];
    while (read_event(s, &event, &value, address, sizeof address)) hear(s, event, value, address);
    if (!s->is_dialling) {
        if (!s->is_monitored) socket_unwatch(s);
        return INT64_MAX;
    }
    int64_t now = clock_ns();
    if (now >= s->next_try_ns) dial_again(s);
    return s->is_dialling && s->next_try_ns > now ? s->next_try_ns - now : 0;
}

socket_event socket_next_event(socket_context *c, void *socket, char *detail, size_t len) {
    socket_handle *s = socket;
    if (len > 0) detail[0] = '\0';
    if (socket_check_process(c) != AG_OK) return SOCKET_NOTHING;
    socket_attend(s);
    if (s->num_news == 0) return SOCKET_NOTHING;
    const socket_news *at = &s->news[s->first_news];
    s->first_news = (s->first_news + 1) % SOCKET_MAX_EVENTS;
    s->num_news--;
    if (len > 0) snprintf(detail, len, "%s", at->detail);
    return at->event;
}
