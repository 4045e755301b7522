/* zmq_transport.h: collectives over ZeroMQ connections between each two ranks that talk to one another.
 *
 * One hub a process and epoch owns the listening ROUTER and a DEALER (or several: striping) to each peer, dialled when first
 * needed; each group has a transport over it, told apart by the group number in the header.
 *
 * A send is through when ZeroMQ has all of its segments, and the first HUB_WINDOW of them need no receiver: one that fits may
 * end well before the other rank makes its call. If that rank then refuses, the sender is not told.
 */
#ifndef ARGAND_DIST_TRANSPORT_ZMQ_ZMQ_TRANSPORT_H
#define ARGAND_DIST_TRANSPORT_ZMQ_ZMQ_TRANSPORT_H

#include "dist/transport/transport.h"
#include "dist/transport/zmq/socket.h"

typedef struct zmq_hub zmq_hub;

/* zmq_hub_new listens at `address` ("tcp://10.0.0.1:*", "ipc://@argand-…"); zmq_hub_endpoint is what peers dial. is_encrypted:
 * the payloads need no CRC. job, epoch: what every message carries. num_stripes connections to each peer. */
ag_status zmq_hub_new(socket_context *c, const char *address, uint64_t job, uint32_t epoch, int rank, int size,
                      bool is_encrypted, int num_stripes, cancel *cancel, zmq_hub **out);
const char *zmq_hub_endpoint(const zmq_hub *hub);
/* zmq_hub_peers tells where all ranks of the world listen: [size], copied. Before the first transport. rank and size may be
 * lower than zmq_hub_new was told: ranks were lost, and the others closed up. */
ag_status zmq_hub_peers(zmq_hub *hub, int rank, int size, const char *const *endpoints);
void zmq_hub_free(zmq_hub *hub); /* after its transports; flushes for at most a second */

ag_status zmq_transport_new(zmq_hub *hub, uint32_t group, int rank, int size, const int32_t *world_ranks, const char *name,
                            transport **out);

#endif
