/* tcp_proxy.h: a TCP connection with a fault in it, for tests: bytes pass through a thread that damages, cuts or stops them. */
#ifndef ARGAND_SPEC_TCP_PROXY_H
#define ARGAND_SPEC_TCP_PROXY_H

#include <stddef.h>
#include <stdint.h>

typedef enum proxy_fault { PROXY_FLIP, PROXY_CUT, PROXY_STALL } proxy_fault;
typedef struct tcp_proxy tcp_proxy;

/* tcp_proxy_new listens on the loopback interface and passes one connection on to `target` ("tcp://127.0.0.1:port"). The fault
 * happens at byte `at` of what the dialling side sends. endpoint ([len]): where it listens. NULL when it cannot. */
tcp_proxy *tcp_proxy_new(const char *target, proxy_fault fault, int64_t at, char *endpoint, size_t len);
void tcp_proxy_free(tcp_proxy *p);

#endif
