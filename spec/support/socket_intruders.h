/* socket_intruders.h: the tests of who must not get in, for socket_test.c. */
#ifndef ARGAND_SPEC_SOCKET_INTRUDERS_H
#define ARGAND_SPEC_SOCKET_INTRUDERS_H

#include "dist/transport/zmq/socket.h"

void test_key_files(const char *folder);
void test_admission(const char *address);
void test_server_is_proved(void);
void test_check_at_start(void);
void test_other_user(void);
void test_garbage(const socket_keys *keys);
void test_garbage_at_close(void);
void test_unread_events(void);
void test_odd_messages(void);

#endif
