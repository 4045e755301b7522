/* address.h: where a rank's own sockets listen. */
#ifndef ARGAND_DIST_GROUP_ADDRESS_H
#define ARGAND_DIST_GROUP_ADDRESS_H

#include <stddef.h>

#include "argand.h"

/* address_pick finds the IP address on which this host is reached from the coordinator ("tcp://host:port"): that of the interface
 * whose route leads there; loopback when the coordinator is. wanted, unless NULL, is taken instead. Errors: AG_E_NETWORK (no such
 * host, no route), AG_E_VALUE (a coordinator that is no address). */
ag_status address_pick(const char *coordinator, const char *wanted, char *address, size_t len);
/* address_is_loopback tells it of an endpoint "tcp://…"; false for other kinds. */
bool address_is_loopback(const char *endpoint);

#endif
