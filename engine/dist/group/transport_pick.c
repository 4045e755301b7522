/* transport_pick.c: how the members of a group agree on what carries their data. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/error.h"
#include "core/memory.h"
#include "dist/group/world.h"
#include "platform/clock.h"

/* Handing memory out on one host takes milliseconds; a member that cannot take it should not cost the whole time of joining. */
#define SHARE_NS 10000000000

/* What members tell each other in an exchange. */
typedef struct notice {
    uint8_t can; /* 1: the step before went well here */
    uint8_t reserved[7];
    uint64_t pointer; /* the arena, for threads of one process */
    char reason[EXCHANGE_BYTES - 16];
} notice;

/* Two exchanges: the maker's arena is there to be taken; all have it. */
enum { NUM_EXCHANGES = 2 };

ag_status transport_pick_observe(exchange_fn exchange, void *context, int exchange_size) {
    notice own = {.can = 1}, *all = heap_alloc((size_t)exchange_size * sizeof *all);
    if (!all) return error_memory("group", (size_t)exchange_size * sizeof *all);
    ag_status status = AG_OK;
    for (int i = 0; i < NUM_EXCHANGES && status == AG_OK; i++) status = exchange(context, &own, all);
    heap_free(all);
    return status;
}

static void note_failure(notice *own) {
    own->can = 0;
    snprintf(own->reason, sizeof own->reason, "%.47s", error_record()->got);
}

/* The first member that cannot, -1 when all can. */
static int first_refusal(const ag_group *g, const notice *all, const int *positions) {
    for (int i = 0; i < g->size; i++)
        if (!all[positions[i]].can) return i;
    return -1;
}

typedef struct pick {
    ag_group *g;
    exchange_fn exchange;
    void *context;
    notice *all;
    const int *positions;
    int64_t deadline_ns;
    char address[96];
    arena *arena; /* held */
} pick;

static void offer_arena(pick *p, notice *own, int *listening) {
    world *w = p->g->world;
    if (arena_new(p->g->size, w->is_threads, 0, &p->arena) != AG_OK) {
        note_failure(own);
    } else if (w->is_threads) {
        own->pointer = (uint64_t)(uintptr_t)p->arena;
    } else if (arena_listen(p->address, listening) != AG_OK) {
        note_failure(own);
    }
}

static void take_arena(pick *p, notice *own) {
    world *w = p->g->world;
    const notice *maker = &p->all[p->positions[0]];
    if (w->is_threads)
        p->arena = arena_retain((arena *)(uintptr_t)maker->pointer);
    else if (arena_connect(p->address, w->token, p->g->size, p->deadline_ns, &p->arena) != AG_OK)
        note_failure(own);
}

/* Tries shared memory; *refuser is the member because of which it cannot be, -1 = it is there. */
static ag_status share_memory(pick *p, int *refuser, char *reason, size_t len) {
    ag_group *g = p->g;
    bool is_maker = g->rank == 0;
    int listening = -1;
    notice own = {.can = 1};
    if (is_maker) offer_arena(p, &own, &listening);
    ag_status status = p->exchange(p->context, &own, p->all);
    bool is_offered = status == AG_OK && p->all[p->positions[0]].can;
    notice taken = {.can = is_offered};
    if (is_offered && !is_maker) take_arena(p, &taken);
    if (is_offered && is_maker && !g->world->is_threads) {
        if (arena_serve(p->arena, listening, g->world->token, p->deadline_ns) != AG_OK) note_failure(&taken);
        listening = -1;
    }
    if (listening >= 0) close(listening);
    int blamed = status == AG_OK ? first_refusal(g, p->all, p->positions) : -1;
    if (blamed >= 0) snprintf(reason, len, "%s", p->all[p->positions[blamed]].reason);
    if (status == AG_OK) status = p->exchange(p->context, &taken, p->all);
    if (status == AG_OK && blamed < 0) {
        blamed = first_refusal(g, p->all, p->positions);
        if (blamed >= 0) snprintf(reason, len, "%s", p->all[p->positions[blamed]].reason);
    }
    *refuser = blamed;
    return status;
}

ag_status transport_pick(ag_group *g, exchange_fn exchange, void *context, int exchange_size, const int *positions,
                         int64_t deadline_ns) {
    world *w = g->world;
    if (g->size == 1) return transport_pick_observe(exchange, context, exchange_size);
    pick p = {.g = g,
              .exchange = exchange,
              .context = context,
              .positions = positions,
              .deadline_ns = deadline_ns < clock_ns() + SHARE_NS ? deadline_ns : clock_ns() + SHARE_NS};
    size_t all_bytes = (size_t)exchange_size * sizeof *p.all;
    p.all = heap_alloc(all_bytes);
    if (!p.all) return error_memory("group", all_bytes);
    snprintf(p.address, sizeof p.address, "argand-%.40s-e%u-g%u", w->job, w->epoch, g->id);
    bool wants_shared = w->is_threads || strcmp(w->transport_choice, "shm") == 0 || strcmp(w->transport_choice, "auto") == 0;
    bool is_one_host = w->is_threads;
    if (!w->is_threads) {
        const char *token = session_member_at(w->session, g->world_ranks[0])->token;
        is_one_host = true;
        for (int i = 1; i < g->size; i++)
            is_one_host = is_one_host && strcmp(session_member_at(w->session, g->world_ranks[i])->token, token) == 0;
    }
    int refuser = 0;
    char reason[EXCHANGE_BYTES] = "it is on another host, or in another namespace";
    ag_status status;
    if (wants_shared && is_one_host)
        status = share_memory(&p, &refuser, reason, sizeof reason);
    else
        status = transport_pick_observe(exchange, context, exchange_size);
    if (status == AG_OK && refuser < 0)
        status = shm_transport_new(p.arena, g->rank, g->world_ranks, w->cancel, p.address, w->token, &g->transport);
    else if (status == AG_OK && (w->is_threads || strcmp(w->transport_choice, "shm") == 0))
        status = error_set(AG_E_NETWORK, "group", "transport", NULL, "let the transport be \"auto\"",
                           "shared memory is refused by rank %d: %s", (int)g->world_ranks[refuser], reason);
    else if (status == AG_OK)
        status = zmq_transport_new(w->hub, g->id, g->rank, g->size, g->world_ranks,
                                   strncmp(zmq_hub_endpoint(w->hub), "ipc:", 4) == 0 ? "ipc" : "tcp", &g->transport);
    if (g->transport) g->ops = g->transport->ops;
    arena_release(p.arena);
    heap_free(p.all);
    return status;
}
