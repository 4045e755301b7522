/* socket.h: ZeroMQ sockets with this project's settings: finite waits, bounded messages, no unbounded queues, security.
 *
 * Only the files of this folder and dist/group/session*.c's calls of this header know ZeroMQ; no type of it shows here but
 * `void *` sockets. A socket belongs to one thread at a time. The context is made after any fork, and a child of fork must not
 * use it (socket_context_new remembers the process; every function fails with AG_E_STATE in a child).
 *
 * Security. With keys, every listening socket is a CURVE server and every dialling one a CURVE client with the job's one key
 * pair; a ZAP handler thread, running before the first bind, admits the job's public key only, and ZMQ_ZAP_ENFORCE_DOMAIN is
 * set. socket_context_new proves at start that an unknown key is refused, and fails (AG_E_STATE) when it is not, or when the
 * library has no CURVE. Without keys only loopback and ipc addresses may be bound or dialled: AG_E_VALUE for others, naming
 * `argand keygen` and the key option.
 *
 * Who is let in is trusted with memory: libzmq gathers a message whole, however many parts its sender gives it, and only each
 * part is bounded. Those are the holders of the key; without keys, at an ipc address this user's processes, at a loopback
 * address all of this host's.
 */
#ifndef ARGAND_DIST_TRANSPORT_ZMQ_SOCKET_H
#define ARGAND_DIST_TRANSPORT_ZMQ_SOCKET_H

#include "argand.h"

typedef struct socket_context socket_context;
typedef struct socket_keys {
    char public_key[41], secret_key[41]; /* Z85 */
} socket_keys;

typedef enum socket_kind { SOCKET_ROUTER, SOCKET_DEALER } socket_kind;
typedef struct socket_settings {
    const char *identity;          /* of a DEALER, up to 64 bytes; NULL = none */
    int64_t max_message_bytes;     /* of a part, about: a peer that sends a longer one is cut off. At least 1 KiB */
    int send_queue, receive_queue; /* messages: the high water marks */
    int linger_ms;
    bool reconnects;   /* control sockets only: a lost connection is tried again; what is sent meanwhile waits, or is lost */
    bool is_monitored; /* socket_next_event tells of lost connections */
    int use_fd;        /* socket_listen takes over this listening socket, when > 0; the caller's again if that fails */
} socket_settings;

/* socket_is_available: the library was built with ZeroMQ. socket_has_security: and with CURVE. */
bool socket_is_available(void);
bool socket_has_security(void);

ag_status socket_keys_make(socket_keys *out);
/* socket_keys_read reads a key file ("public <z85>\nsecret <z85>\n"); AG_E_FILE, AG_E_FORMAT; AG_E_VALUE when others than the
 * owner may read it. socket_keys_write makes it with mode 0600, never over an existing file. */
ag_status socket_keys_read(const char *path, socket_keys *out);
ag_status socket_keys_write(const char *path, const socket_keys *keys);

ag_status socket_context_new(const socket_keys *keys, int num_io_threads, int max_sockets, socket_context **out);
void socket_context_free(socket_context *c);                 /* all sockets closed before; NULL is accepted */
int64_t socket_context_num_refused(const socket_context *c); /* handshakes that ZAP refused */

/* socket_listen binds; "tcp://127.0.0.1:*" and "ipc://@name" (abstract) are typical. endpoint ([len]) gets the real address;
 * with use_fd the address is that of the fd and `address` may be NULL. Without keys an ipc socket admits processes of this user
 * only. AG_E_NETWORK names address and reason: in use, no such interface, too many open files (with the limit).
 *
 * socket_dial returns at once. With `reconnects` the peer need not be there yet and is tried for ever. Without, the first
 * connection is tried again for up to 10 s by socket_poll, socket_send and socket_next_event, then SOCKET_LOST is told; a
 * connection that was there and broke is not. A name that cannot be resolved is AG_E_NETWORK. */
ag_status socket_listen(socket_context *c, socket_kind kind, const socket_settings *settings, const char *address, void **out,
                        char *endpoint, size_t len);
ag_status socket_dial(socket_context *c, socket_kind kind, const socket_settings *settings, const char *endpoint, void **out);
/* socket_close returns at once; what was sent lingers, and the address is free a moment later. NULL is accepted. */
void socket_close(socket_context *c, void *socket);

/* A message of one or two parts after the routing part. Of a ROUTER, `route` ([64]) is whom it goes to or came from; of a
 * DEALER it is NULL. The second part is left out when payload is empty. socket_send returns AG_OK with *sent false when there
 * is no room or no connection at present; AG_E_PEER when the route is gone. A message goes whole or not at all. socket_receive
 * never blocks; *received false and *message empty when nothing is there. Messages of more parts, or from routes of more than
 * 64 bytes, are thrown away and counted. */
typedef struct socket_route {
    uint8_t len;
    unsigned char bytes[64];
} socket_route;
typedef struct socket_message {
    const void *header, *payload; /* valid until socket_message_free */
    size_t header_bytes, payload_bytes;
    void *owner;
} socket_message;
/* `release`, unless NULL, is called once, from any thread, when payload is not needed any more, also when the message is
 * dropped; not when *sent is false. Of a broken connection it may take a call of socket_poll, or the closing of the socket; at
 * the latest it is in socket_context_free. payload is copied when release is NULL. */
ag_status socket_send(void *socket, const socket_route *route, const void *header, size_t header_bytes, const void *payload,
                      size_t payload_bytes, void (*release)(void *payload, void *context), void *context, bool *sent);
ag_status socket_receive(void *socket, socket_route *route, socket_message *message, bool *received);
void socket_message_free(socket_message *message); /* one of zeros is accepted; any thread */
int64_t socket_num_rejected(const void *socket);   /* messages that were thrown away */

typedef enum socket_event { SOCKET_NOTHING, SOCKET_CONNECTED, SOCKET_LOST, SOCKET_REFUSED } socket_event;
/* socket_next_event reads the monitor of a monitored socket, without blocking; detail ([len]) is for people. CONNECTED: after
 * the handshake. LOST: it was connected, or never will be; what is sent just before and after is lost. REFUSED: the handshake
 * failed. A listening socket's events name no peer. */
socket_event socket_next_event(socket_context *c, void *socket, char *detail, size_t len);

/* socket_poll waits until one of the sockets can be read (or written to, where wants_room), a monitored one has an event (read
 * it, else the next poll returns at once), one of the fds is readable, or the time is over; timeout_ms >= 0. It returns early,
 * with nothing ready, when a signal came and interrupt_pending. wants_room may be NULL. is_ready: [num_sockets + num_fds]. */
ag_status socket_poll(void *const *sockets, const bool *wants_room, int num_sockets, const int *fds, int num_fds,
                      int timeout_ms, bool *is_ready);

#endif
