/* handover.h: memory without a name, and passing it to other processes of the same user through a unix socket. */
#ifndef ARGAND_DIST_TRANSPORT_SHM_HANDOVER_H
#define ARGAND_DIST_TRANSPORT_SHM_HANDOVER_H

#include "dist/transport/shm/arena.h"

/* memory_file_new makes a memfd of size_bytes zeros, all of it reserved and its size sealed: touching it never fails. */
ag_status memory_file_new(size_t size_bytes, int *fd);
/* memory_file_map maps all of it and tells its size; AG_E_FORMAT when it is not sealed or smaller than least_bytes. */
ag_status memory_file_map(int fd, size_t least_bytes, void **out, size_t *size_bytes);

/* handover_limit is how long to wait: until the deadline, or until nobody comes any more, which is asked ten times a second. */
typedef struct handover_limit {
    int64_t deadline_ns;
    bool (*is_over)(const void *context); /* may be NULL */
    const void *context;
} handover_limit;

/* handover_listen binds a name in the abstract namespace. handover_serve gives `fd` to num_peers processes, or to less when
 * limit->is_over says so, which is no error; it closes listen_fd in any case. handover_connect gets it. Errors as of
 * arena_listen, arena_serve and arena_connect; AG_E_PEER when limit->is_over. */
ag_status handover_listen(const char *address, int *listen_fd);
ag_status handover_serve(int listen_fd, int fd, int num_peers, const char token[ARENA_TOKEN_BYTES],
                         const handover_limit *limit);
ag_status handover_connect(const char *address, const char token[ARENA_TOKEN_BYTES], const handover_limit *limit, int *fd);

#endif
