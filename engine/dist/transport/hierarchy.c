/* hierarchy.c: which members share a host, and a transport made of three. */
#include "dist/transport/hierarchy.h"

#include <string.h>

#include "core/dtype.h"
#include "core/error.h"
#include "core/memory.h"
#include "dist/algorithm/plan.h"
#include "dist/transport/hierarchy_run.h"

/* ---- the map ---- */

void hierarchy_map_free(hierarchy_map *m) {
    if (!m) return;
    heap_free(m->host_of);
    heap_free(m->local_of);
    heap_free(m->local_ranks);
    heap_free(m->leader_ranks);
    heap_free(m);
}

static int lowest_of_host(const char *const *tokens, int rank) {
    int lowest = 0;
    while (strcmp(tokens[lowest], tokens[rank]) != 0) lowest++;
    return lowest;
}

ag_status hierarchy_map_new(const char *const *tokens, const int32_t *world_ranks, int size, int rank, hierarchy_map **out) {
    size_t numbers = (size_t)size * sizeof(int), ranks = (size_t)size * sizeof(int32_t);
    hierarchy_map *m = heap_alloc_zero(sizeof *m);
    if (!m) return error_memory("group", sizeof *m);
    m->is_in_order = true;
    m->size = size;
    m->rank = rank;
    m->host_of = heap_alloc_zero(numbers);
    m->local_of = heap_alloc_zero(numbers);
    m->local_ranks = heap_alloc_zero(ranks);
    m->leader_ranks = heap_alloc_zero(ranks);
    if (!m->host_of || !m->local_of || !m->local_ranks || !m->leader_ranks) {
        hierarchy_map_free(m);
        return error_memory("group", 2 * (numbers + ranks));
    }
    int own_leader = lowest_of_host(tokens, rank);
    for (int member = 0; member < size; member++) {
        int leader = lowest_of_host(tokens, member);
        if (leader == member) m->leader_ranks[m->num_hosts++] = world_ranks[member];
        m->host_of[member] = leader == member ? m->num_hosts - 1 : m->host_of[leader];
        if (member > 0 && m->host_of[member] < m->host_of[member - 1]) m->is_in_order = false;
        for (int other = leader; other < member; other++) m->local_of[member] += m->host_of[other] == m->host_of[member];
        if (leader == own_leader) m->local_ranks[m->num_local++] = world_ranks[member];
    }
    m->own_host = m->host_of[rank];
    m->local_rank = m->local_of[rank];
    *out = m;
    return AG_OK;
}

/* ---- the table ---- */

/* What all ranks of the group reduce in is private; what ranks of a host have in common is the local transport's. */
static transport *block_part(transport *t, block_form form) {
    hierarchy *h = (hierarchy *)t;
    return form == BLOCK_COMMON && h->local ? h->local : h->flat;
}

static ag_status block_new(transport *t, size_t part_bytes, block_form form, int64_t deadline_ns, shared_block *out) {
    transport *part = block_part(t, form);
    return part->ops->block_new(part, part_bytes, form, deadline_ns, out);
}

static void block_free(transport *t, shared_block *block) {
    transport *part = block_part(t, block->form);
    part->ops->block_free(part, block);
}

/* Of a byte on its way into memory and out of it, and of a step: as in shm_transport.c. Only orders of magnitude matter. */
#define LOCAL_S_PER_BYTE 2.4e-10
#define LOCAL_STEP_S     2e-6

/* What leaders do among themselves; before it and after it there is a step on each host. */
static double priced(const transport *t, collective_call *call) {
    const hierarchy_map *m = ((const hierarchy *)t)->map;
    bool is_gather = call->kind == COLLECTIVE_ALL_GATHER;
    if (!hierarchy_has_steps(call->kind)) return 0;
    int64_t count = is_gather ? block_offset(call->counts, call->count, call->size) : call->count;
    call->size = m->num_hosts;
    if (is_gather) {
        call->count = count / m->num_hosts;
        call->counts = NULL;
    }
    return 2 * (LOCAL_STEP_S + (double)count * (double)dtype_size(call->dtype) * LOCAL_S_PER_BYTE);
}

static void wake(transport *t) {
    hierarchy *h = (hierarchy *)t;
    transport *parts[] = {h->local, h->leaders, h->flat};
    for (int i = 0; i < 3; i++)
        if (parts[i]) parts[i]->ops->wake(parts[i]);
}

static void stats(const transport *t, transport_stats *out) {
    const hierarchy *h = (const hierarchy *)t;
    const transport *parts[] = {h->local, h->leaders};
    h->flat->ops->stats(h->flat, out);
    for (int i = 0; i < 2; i++) {
        transport_stats part;
        if (!parts[i]) continue;
        parts[i]->ops->stats(parts[i], &part);
        out->bytes_moved += part.bytes_moved;
        out->num_messages += part.num_messages;
    }
    out->num_calls = h->num_calls; /* num_rejected is of the hub, which leaders and flat share */
}

static void leave(transport *t) {
    transport *local = ((hierarchy *)t)->local;
    if (local) local->ops->leave(local);
}

static void free_state(hierarchy *h) {
    heap_free(h->local_counts);
    heap_free(h->host_counts);
    heap_free(h->marks);
    heap_free(h);
}

static void free_parts(transport *t) {
    hierarchy *h = (hierarchy *)t;
    transport *parts[] = {h->local, h->leaders, h->flat};
    for (int i = 0; i < 3; i++)
        if (parts[i]) parts[i]->ops->free(parts[i]);
    hierarchy_map_free(h->map);
    free_state(h);
}

#define HIERARCHY_OPS(NAME)                                                                                                   \
    {                                                                                                                         \
        .name = NAME, .run = hierarchy_run, .block_new = block_new, .block_free = block_free, .priced = priced, .wake = wake, \
        .stats = stats, .leave = leave, .free = free_parts                                                                    \
    }

static const transport_ops tcp_ops = HIERARCHY_OPS("shm+tcp"), ipc_ops = HIERARCHY_OPS("shm+ipc");

ag_status hierarchy_new(hierarchy_map *map, const int32_t *world_ranks, transport *local, transport *leaders, transport *flat,
                        transport **out) {
    hierarchy *h = heap_alloc_zero(sizeof *h);
    if (!h) return error_memory("group", sizeof *h);
    size_t host_bytes = (size_t)(1 + map->num_hosts) * sizeof(int64_t);
    h->local_counts = heap_alloc_zero((size_t)map->num_local * sizeof *h->local_counts);
    h->host_counts = heap_alloc_zero(host_bytes);
    h->marks = heap_alloc_zero(host_bytes);
    if (!h->local_counts || !h->host_counts || !h->marks) {
        free_state(h);
        return error_memory("group", host_bytes);
    }
    h->base = (transport){.ops = strcmp(flat->ops->name, "ipc") == 0 ? &ipc_ops : &tcp_ops,
                          .rank = map->rank,
                          .size = map->size,
                          .world_ranks = world_ranks,
                          .cancel = flat->cancel,
                          .cost = flat->cost}; /* which all ranks have alike, also those that are alone on their host */
    h->map = map;
    h->local = local;
    h->leaders = leaders;
    h->flat = flat;
    *out = &h->base;
    return AG_OK;
}
