/* arena.h: memory that all ranks of a group on one host see, and the transport over it.
 *
 * The memory is a memfd that the group's lowest local rank makes and hands to the others through a unix socket; for ranks that
 * are threads of one process it is memory of the process. It has no name in any file system, so nothing is left behind.
 */
#ifndef ARGAND_DIST_TRANSPORT_SHM_ARENA_H
#define ARGAND_DIST_TRANSPORT_SHM_ARENA_H

#include "dist/transport/transport.h"

#define ARENA_TOKEN_BYTES 32

typedef struct arena arena;

/* arena_new makes the memory for `size` ranks, reserved at once: AG_E_MEMORY says how much was asked for when the system has
 * not got it. is_local: threads of this process only. slot_bytes: how much a rank stages at a time, 0 = what is fastest; tests
 * make it small. It is rounded up to what `size` ranks need at least. */
ag_status arena_new(int size, bool is_local, size_t slot_bytes, arena **out);
arena *arena_retain(arena *a);
void arena_release(arena *a); /* unmaps with the last holder in this process; NULL is accepted */

/* Handing out. The maker listens at `address` (a name in the abstract namespace, without the leading zero byte), tells the
 * others on another way that it does, then serves size - 1 connections; a peer of another user, or with another token, is
 * refused and does not count. The others connect and get the arena. AG_E_TIMEOUT at the deadline; AG_E_NETWORK when the
 * address cannot be reached (another network namespace) or the maker refuses: fall back to another transport. */
ag_status arena_listen(const char *address, int *fd);
/* arena_serve closes listen_fd in any case. */
ag_status arena_serve(arena *a, int listen_fd, const char token[ARENA_TOKEN_BYTES], int64_t deadline_ns);
ag_status arena_connect(const char *address, const char token[ARENA_TOKEN_BYTES], int size, int64_t deadline_ns, arena **out);

/* shm_transport_new makes a member's transport. It retains the arena. name: "shm", or "inproc" for a local arena. token and
 * address_prefix (up to 63 bytes, the same on all ranks, another one for each group) serve block_new, which hands out memory in
 * the same way; both are copied. A local arena needs neither. A rank of an arena is taken once. */
ag_status shm_transport_new(arena *a, int rank, const int32_t *world_ranks, cancel *stop, const char *address_prefix,
                            const char token[ARENA_TOKEN_BYTES], transport **out);
/* shm_cancel_all raises the word in the arena itself, so that other processes' waits end before control tells them; they report
 * the cause. The transport's wake does it with what its own cancel says. Any thread. */
void shm_cancel_all(transport *t, const cancel_cause *cause);

#endif
