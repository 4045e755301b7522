/* hierarchy.h: a transport for several ranks on each of several hosts: shared memory within a host, ZeroMQ between hosts.
 *
 * Three transports make one. `local` joins the members on this host, `leaders` the lowest member of each host, `flat` all. What
 * a host has to say crosses the network once, however many ranks it has:
 *   all_reduce  local reduce to the leader; all_reduce among leaders; local broadcast
 *   reduce      local reduce to the leader; reduce among leaders to that of the root's host; handed on to the root there
 *   broadcast   local on the root's host; among leaders; local on the others
 *   all_gather  local gather to the leader; all_gather among leaders; local broadcast
 *   barrier     local, among leaders, local
 * Send and receive go over `flat` as they are. So do all other kinds, once all have compared prints: local ones in memory, then
 * leaders among themselves; otherwise a rank in `flat` and one in `local` would wait for one another until the deadline.
 *
 * Order of reduction. Within a host in rank order, x0 + x1 + …; then over the hosts' sums in the order that README.md states
 * for the call's algorithm, with the leaders' numbers for ranks. mean divides once, by the size of the group. f16 and bf16 are
 * widened to f32 before the first step and rounded after the last one. A rank that is absent adds nothing; when all are, the
 * result is the neutral element. The leaders of hosts compute, the others copy: all ranks hold the same bits.
 *
 * Failures. Whatever fails on one part ends the group: *is_over is true, also for calls that differ, but not for a refused half of
 * a pair. Who is in a part that the failure did not reach learns of it by the cancel. So that the rank nearest to the cause speaks
 * first, later steps wait a little longer: leaders 0.25 s more than the call says. What comes after a local step counts its time
 * from there, since all on the host have come by then. A call can take twice its timeout until it fails.
 *
 * Numbers. All parts use the numbers of the group's calls; each of them sees a rising sequence with gaps.
 */
#ifndef ARGAND_DIST_TRANSPORT_HIERARCHY_H
#define ARGAND_DIST_TRANSPORT_HIERARCHY_H

#include "dist/transport/transport.h"

/* hierarchy_map says which members of a group share a host. Hosts are numbered in the order of their lowest members, who lead
 * them; members of a host in rank order. */
typedef struct hierarchy_map {
    int size, rank; /* of the group */
    int num_hosts, own_host;
    bool is_in_order;          /* host_of never falls: the order of hosts is that of ranks */
    int num_local, local_rank; /* members on this host, the own number among them */
    int *host_of, *local_of;   /* [size] */
    int32_t *local_ranks;      /* [num_local] ranks of the world */
    int32_t *leader_ranks;     /* [num_hosts] */
} hierarchy_map;

/* hierarchy_map_new: members with equal tokens share a host. tokens, world_ranks: [size], not kept. */
ag_status hierarchy_map_new(const char *const *tokens, const int32_t *world_ranks, int size, int rank, hierarchy_map **out);
void hierarchy_map_free(hierarchy_map *m); /* NULL is accepted */
/* hierarchy_is_of_use: there are several hosts, and one of them has several members. */
static inline bool hierarchy_is_of_use(const hierarchy_map *m) { return m->num_hosts > 1 && m->num_hosts < m->size; }
static inline bool hierarchy_is_leader(const hierarchy_map *m) { return m->local_rank == 0; }

/* hierarchy_new makes the transport and takes over map and parts; on failure they stay the caller's. local: over an arena of
 * map->num_local ranks with map->local_ranks, NULL when this member is alone on its host. leaders: of map->num_hosts ranks with
 * map->leader_ranks, NULL when this member does not lead. Named "shm+ipc" or "shm+tcp", after `flat`. world_ranks as in
 * transport.h. */
ag_status hierarchy_new(hierarchy_map *map, const int32_t *world_ranks, transport *local, transport *leaders, transport *flat,
                        transport **out);

#endif
