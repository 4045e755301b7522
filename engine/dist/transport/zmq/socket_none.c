/* socket_none.c: socket.h in a build without ZeroMQ: every function says so. */
#include "dist/transport/zmq/socket.h"

#include <string.h>

#include "core/error.h"

static ag_status missing(void) {
    return error_set(AG_E_UNSUPPORTED, NULL, NULL, NULL, "install libzmq3-dev and rebuild", "built without ZeroMQ");
}

bool socket_is_available(void) { return false; }
bool socket_has_security(void) { return false; }

ag_status socket_keys_make(socket_keys *out) {
    (void)out;
    return missing();
}

ag_status socket_keys_read(const char *path, socket_keys *out) {
    (void)path, (void)out;
    return missing();
}

ag_status socket_keys_write(const char *path, const socket_keys *keys) {
    (void)path, (void)keys;
    return missing();
}

ag_status socket_context_new(const socket_keys *keys, int num_io_threads, int max_sockets, socket_context **out) {
    (void)keys, (void)num_io_threads, (void)max_sockets, (void)out;
    return missing();
}

void socket_context_free(socket_context *c) { (void)c; }

int64_t socket_context_num_refused(const socket_context *c) {
    (void)c;
    return 0;
}

ag_status socket_listen(socket_context *c, socket_kind kind, const socket_settings *settings, const char *address, void **out,
                        char *endpoint, size_t len) {
    (void)c, (void)kind, (void)settings, (void)address, (void)out, (void)endpoint, (void)len;
    return missing();
}

ag_status socket_dial(socket_context *c, socket_kind kind, const socket_settings *settings, const char *endpoint, void **out) {
    (void)c, (void)kind, (void)settings, (void)endpoint, (void)out;
    return missing();
}

void socket_close(socket_context *c, void *socket) { (void)c, (void)socket; }

ag_status socket_send(void *socket, const socket_route *route, const void *header, size_t header_bytes, const void *payload,
                      size_t payload_bytes, void (*release)(void *payload, void *context), void *context, bool *sent) {
    (void)socket, (void)route, (void)header, (void)header_bytes, (void)payload, (void)payload_bytes, (void)release,
        (void)context;
    *sent = false;
    return missing();
}

ag_status socket_receive(void *socket, socket_route *route, socket_message *message, bool *received) {
    (void)socket, (void)route;
    *message = (socket_message){.owner = NULL};
    *received = false;
    return missing();
}

void socket_message_free(socket_message *message) { *message = (socket_message){.owner = NULL}; }

int64_t socket_num_rejected(const void *socket) {
    (void)socket;
    return 0;
}

socket_event socket_next_event(socket_context *c, void *socket, char *detail, size_t len) {
    (void)c, (void)socket;
    if (len > 0) detail[0] = '\0';
    return SOCKET_NOTHING;
}

ag_status socket_poll(void *const *sockets, const bool *wants_room, int num_sockets, const int *fds, int num_fds,
                      int timeout_ms, bool *is_ready) {
    (void)sockets, (void)wants_room, (void)fds, (void)timeout_ms;
    memset(is_ready, 0, (size_t)(num_sockets + num_fds) * sizeof *is_ready);
    return missing();
}
