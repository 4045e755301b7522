/* socket_private.h: what the files behind socket.h share: the context, a socket with its monitor, addresses, security.
 *
 * The `void *` of socket.h is a socket_handle: ZeroMQ's socket, the context it belongs to, and what its monitor has told.
 */
#ifndef ARGAND_DIST_TRANSPORT_ZMQ_SOCKET_PRIVATE_H
#define ARGAND_DIST_TRANSPORT_ZMQ_SOCKET_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "dist/transport/zmq/socket.h"

#define SOCKET_HANDSHAKE_MS       5000
#define SOCKET_CONNECT_MS         5000
#define SOCKET_MAX_ENDPOINT       256
#define SOCKET_MAX_EVENTS         16
#define SOCKET_ZAP_ENFORCE_DOMAIN 93 /* ZMQ_ZAP_ENFORCE_DOMAIN: libraries honour it, headers hide it among the drafts */

struct socket_context {
    void *zmq;
    pid_t owner; /* the process that made it: no other one may touch it */
    bool has_keys;
    socket_keys keys;
    uint8_t public_key[32];        /* keys.public_key, decoded */
    _Atomic int64_t num_refused;   /* by the ZAP thread */
    _Atomic uint32_t num_monitors; /* for their names */
    int max_sockets;
    void *zap; /* the ZAP thread's socket, made before it so that failures can be told */
    pthread_t zap_thread;
    bool has_zap_thread;
};

typedef struct socket_news {
    socket_event event;
    char detail[160];
} socket_news;

/* A dialled socket that does not reconnect is `is_dialling` until its first handshake is through: ZeroMQ with RECONNECT_IVL -1
 * does not try a first connection twice, and an accept queue may be full. */
typedef struct socket_handle {
    void *zmq, *monitor; /* monitor: NULL when nobody listens to it */
    socket_context *context;
    socket_kind kind;
    bool is_monitored, is_dialler, reconnects, is_dialling, is_connected;
    char endpoint[SOCKET_MAX_ENDPOINT]; /* that a dialler connects to */
    int64_t dial_end_ns, next_try_ns, pause_ns;
    _Atomic int64_t num_rejected; /* read by any thread */
    int num_handshakes_failed;    /* whose DISCONNECTED has not come yet */
    int first_news, num_news;     /* a ring */
    socket_news news[SOCKET_MAX_EVENTS];
} socket_handle;

/* socket.c */
ag_status socket_check_process(const socket_context *c); /* AG_E_STATE in a child of fork */
ag_status socket_network_error(const socket_context *c, const char *address, int error_number);
ag_status socket_set(void *zmq, int option, const void *value, size_t len);
ag_status socket_set_int(void *zmq, int option, int value);

/* socket_address.c */
typedef struct socket_place {
    char text[SOCKET_MAX_ENDPOINT]; /* what ZeroMQ is given: names resolved */
    bool is_ipc, is_v6, is_local;   /* is_local: ipc, inproc or loopback */
} socket_place;
ag_status socket_place_find(const char *address, bool is_listening, socket_place *out);
ag_status socket_place_of_fd(int fd, socket_place *out);

/* socket_events.c */
ag_status socket_watch(socket_handle *s); /* opens the monitor */
void socket_unwatch(socket_handle *s);
/* socket_attend reads what the monitor has and dials again where it is time; returns ns until it wants to be called again. */
int64_t socket_attend(socket_handle *s);

/* socket_security.c */
ag_status security_start(socket_context *c); /* with keys: starts the ZAP thread, before the first bind */
ag_status security_check(socket_context *c); /* proves that it works */
void security_stop(socket_context *c);       /* after zmq_ctx_shutdown */
/* security_apply makes a socket a CURVE server (own NULL: one without keys), or a client, with `own` keys, of the server whose
 * key is `server_public`. */
ag_status security_apply_server(void *zmq, const socket_keys *own);
ag_status security_apply_client(void *zmq, const socket_keys *own, const char *server_public);

#endif
