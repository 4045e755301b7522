/* socket_support.h: what the tests of ZeroMQ sockets share: expectations, and sockets that are waited for with patience. */
#ifndef ARGAND_SPEC_SOCKET_SUPPORT_H
#define ARGAND_SPEC_SOCKET_SUPPORT_H

#include "dist/transport/zmq/socket.h"
#include "platform/clock.h"

#define SECOND      INT64_C(1000000000)
#define PATIENCE_MS 10000 /* for what must happen: a loaded machine is slow */
#define QUIET_MS    150   /* for what must not happen */

extern int num_failures;
extern char problem[512]; /* of the present case, "" = none so far; the first one is kept */
extern const socket_settings plain;

bool expect(bool holds, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* expect_status: and the error's message contains text, unless NULL. */
bool expect_status(ag_status status, ag_status wanted, const char *text, const char *what);
void report(const char *name); /* ends a case */

socket_context *context_with(const socket_keys *keys);
void *listen_at(socket_context *c, const socket_settings *s, const char *address, char endpoint[256]); /* a ROUTER */
void *dial_as(socket_context *c, socket_settings s, const char *identity, const char *endpoint);       /* a DEALER */
bool wait_for(void *socket, bool wants_room, int timeout_ms);
bool send_text(void *socket, const socket_route *route, const char *text); /* within the patience */
bool receive(void *socket, socket_route *route, socket_message *m, int timeout_ms);
bool expect_text(void *socket, socket_route *route, const char *text);
bool expect_silence(void *socket, const char *who);
void expect_service(void *router, void *dealer, const char *text); /* a round trip */
/* next_event waits for the next event that is not `skipped`. */
socket_event next_event(socket_context *c, void *socket, socket_event skipped, char detail[160]);
/* tcp_socket listens at *port (0 = any, which it tells), or connects to it. */
int tcp_socket(const char *address, int *port, bool listens);

#endif
