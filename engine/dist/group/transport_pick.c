/* transport_pick.c: how the members of a group agree on what carries their data. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/error.h"
#include "core/memory.h"
#include "dist/group/world.h"
#include "dist/transport/hierarchy.h"
#include "platform/clock.h"

/* Handing memory out on one host takes milliseconds: a member waits no longer for a maker that is stopped. */
#define SHARE_NS 10000000000

/* What members tell each other in an exchange. */
typedef struct notice {
    uint8_t can; /* 1: the step before went well here */
    char reason[EXCHANGE_BYTES - 1];
} notice;

/* Two exchanges: the makers' arenas, one a host, are there to be taken; all have theirs. */
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
    snprintf(own->reason, sizeof own->reason, "%.62s", error_record()->got);
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
    hierarchy_map *map; /* of g's members */
    int maker;          /* the member that makes the arena of this host */
    char address[96];
    arena *arena; /* held, NULL when alone on this host */
} pick;

/* ---- among threads ---- */

/* The maker lends its arena until it has left the exchanges, however that was: who comes later finds nothing. */
static void lend_arena(const pick *p, arena_offer *offer) {
    shared_cancel *shared = p->g->world->shared;
    *offer = (arena_offer){.address = p->address, .arena = p->arena};
    lock_acquire(&shared->lock);
    offer->next = shared->offers;
    shared->offers = offer;
    lock_release(&shared->lock);
}

static void withdraw_arena(const pick *p, const arena_offer *offer) {
    shared_cancel *shared = p->g->world->shared;
    lock_acquire(&shared->lock);
    for (arena_offer **at = &shared->offers; *at; at = &(*at)->next) {
        if (*at != offer) continue;
        *at = offer->next;
        break;
    }
    lock_release(&shared->lock);
}

static ag_status borrow_arena(pick *p) {
    shared_cancel *shared = p->g->world->shared;
    lock_acquire(&shared->lock);
    for (const arena_offer *at = shared->offers; at && !p->arena; at = at->next)
        if (strcmp(at->address, p->address) == 0) p->arena = arena_retain(at->arena);
    lock_release(&shared->lock);
    return p->arena ? AG_OK : error_set(AG_E_NETWORK, "group", NULL, NULL, NULL, "its maker has withdrawn the memory");
}

/* ---- among processes ---- */

/* The maker hands its arena out on a thread, so that the exchange tells it at once of a member that cannot take it, or of the
 * world's end; then it ends the thread. */
typedef struct server {
    const pick *p;
    int listening, stopper; /* one socket: the thread closes the former, and its number may be another file's then */
    bool is_running;
    pthread_t thread;
} server;

/* How it ends is told by those who have got the arena, or not. */
static void *serve(void *context) {
    const server *s = context;
    (void)arena_serve(s->p->arena, s->listening, s->p->g->world->token, s->p->deadline_ns);
    return NULL;
}

/* Signals are for the caller's threads. */
static ag_status start_serving(const pick *p, server *s) {
    AG_TRY(arena_listen(p->address, &s->listening));
    s->p = p;
    s->stopper = fcntl(s->listening, F_DUPFD_CLOEXEC, 0);
    /* For stop_serving: of a shutdown, an accept that may not wait says that nobody has called yet. */
    int fault = s->stopper < 0 || fcntl(s->listening, F_SETFL, 0) != 0 ? errno : 0;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    if (fault == 0) fault = pthread_create(&s->thread, NULL, serve, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    s->is_running = fault == 0;
    if (s->is_running) return AG_OK;
    if (s->stopper >= 0) close(s->stopper);
    close(s->listening);
    return error_set(AG_E_STATE, "group", NULL, NULL, NULL, "memory cannot be handed out: %s", strerror(fault));
}

/* A socket that is shut down wakes who polls it or waits in accept, and accept fails with EINVAL. Those who have called already are
 * served first. */
static void stop_serving(server *s) {
    if (!s->is_running) return;
    shutdown(s->stopper, SHUT_RDWR);
    pthread_join(s->thread, NULL);
    close(s->stopper);
}

/* ---- both ---- */

static ag_status offer_arena(pick *p, server *s, arena_offer *offer) {
    bool is_local = p->g->world->is_threads;
    AG_TRY(arena_new(p->map->num_local, is_local, 0, &p->arena));
    if (!is_local) return start_serving(p, s);
    lend_arena(p, offer);
    return AG_OK;
}

static ag_status take_arena(pick *p) {
    world *w = p->g->world;
    int64_t most_ns = clock_ns() + SHARE_NS, deadline_ns = p->deadline_ns < most_ns ? p->deadline_ns : most_ns;
    return w->is_threads ? borrow_arena(p) : arena_connect(p->address, w->token, p->map->num_local, deadline_ns, &p->arena);
}

/* The text is the peer's: it may not be terminated. */
static void copy_reason(const pick *p, int member, char *reason, size_t len) {
    const notice *n = &p->all[p->positions[member]];
    call_print_reason(reason, len, n->reason, strnlen(n->reason, sizeof n->reason));
}

/* Tries shared memory on each host; *refuser is the member because of which it cannot be, -1 = it is there. */
static ag_status share_memory(pick *p, int *refuser, char *reason, size_t len) {
    ag_group *g = p->g;
    bool has_arena = p->map->num_local > 1, is_maker = has_arena && g->rank == p->maker;
    server s = {.is_running = false};
    arena_offer offer = {.arena = NULL};
    notice own = {.can = 1};
    if (is_maker && offer_arena(p, &s, &offer) != AG_OK) note_failure(&own);
    ag_status status = p->exchange(p->context, &own, p->all);
    bool is_offered = status == AG_OK && first_refusal(g, p->all, p->positions) < 0;
    notice taken = {.can = is_offered};
    if (is_offered && has_arena && !is_maker && take_arena(p) != AG_OK) note_failure(&taken);
    int blamed = status == AG_OK ? first_refusal(g, p->all, p->positions) : -1;
    if (blamed >= 0) copy_reason(p, blamed, reason, len);
    if (status == AG_OK) status = p->exchange(p->context, &taken, p->all);
    stop_serving(&s);
    if (offer.arena) withdraw_arena(p, &offer);
    if (status == AG_OK && blamed < 0) {
        blamed = first_refusal(g, p->all, p->positions);
        if (blamed >= 0) copy_reason(p, blamed, reason, len);
    }
    *refuser = blamed;
    return status;
}

static ag_status map_hosts(pick *p) {
    ag_group *g = p->g;
    world *w = g->world;
    const char **tokens = heap_alloc((size_t)g->size * sizeof *tokens);
    if (!tokens) return error_memory("group", (size_t)g->size * sizeof *tokens);
    for (int i = 0; i < g->size; i++) tokens[i] = w->is_threads ? "" : session_member_at(w->session, g->world_ranks[i])->token;
    ag_status status = hierarchy_map_new(tokens, g->world_ranks, g->size, g->rank, &p->map);
    heap_free(tokens);
    if (status != AG_OK) return status;
    while (p->map->host_of[p->maker] != p->map->own_host) p->maker++;
    /* The number stands for the whole name: names may have a long beginning in common. And hosts that are namespaces of one
     * machine may have the names of sockets in common. */
    snprintf(p->address, sizeof p->address, "argand-%016llx-e%u-g%u-m%d", (unsigned long long)session_job_number(w->job),
             w->epoch, g->id, (int)g->world_ranks[p->maker]);
    return AG_OK;
}

static ag_status make_flat(const pick *p, uint32_t id, int rank, int size, const int32_t *world_ranks, transport **out) {
    zmq_hub *hub = p->g->world->hub;
    const char *name = strncmp(zmq_hub_endpoint(hub), "ipc:", 4) == 0 ? "ipc" : "tcp";
    return zmq_transport_new(hub, id, rank, size, world_ranks, name, out);
}

/* Another number for each group, and none of theirs, but by an accident like those of the groups' own numbers. */
static uint32_t leaders_id(uint32_t id) { return (id ^ 0x9E3779B9u) * 16777619u; }

static ag_status make_hierarchy(pick *p) {
    const ag_group *g = p->g;
    hierarchy_map *m = p->map;
    transport *local = NULL, *leaders = NULL, *flat = NULL;
    ag_status status = make_flat(p, g->id, g->rank, g->size, g->world_ranks, &flat);
    if (status == AG_OK && p->arena)
        status =
            shm_transport_new(p->arena, m->local_rank, m->local_ranks, g->world->cancel, p->address, g->world->token, &local);
    if (status == AG_OK && hierarchy_is_leader(m))
        status = make_flat(p, leaders_id(g->id), m->own_host, m->num_hosts, m->leader_ranks, &leaders);
    if (status == AG_OK) status = hierarchy_new(m, g->world_ranks, local, leaders, flat, &p->g->transport);
    if (status == AG_OK) {
        p->map = NULL;
        return AG_OK;
    }
    transport *parts[] = {local, leaders, flat};
    for (int i = 0; i < 3; i++)
        if (parts[i]) parts[i]->ops->free(parts[i]);
    return status;
}

ag_status transport_pick(ag_group *g, exchange_fn exchange, void *context, int exchange_size, const int *positions,
                         int64_t deadline_ns) {
    world *w = g->world;
    if (g->size == 1) return transport_pick_observe(exchange, context, exchange_size);
    pick p = {.g = g, .exchange = exchange, .context = context, .positions = positions, .deadline_ns = deadline_ns};
    size_t all_bytes = (size_t)exchange_size * sizeof *p.all;
    p.all = heap_alloc(all_bytes);
    if (!p.all) return error_memory("group", all_bytes);
    bool is_auto = strcmp(w->transport_choice, "auto") == 0;
    bool must_share = w->is_threads || strcmp(w->transport_choice, "shm") == 0;
    int refuser = 0;
    char reason[EXCHANGE_BYTES] = "it is on another host, or in another namespace";
    ag_status status = map_hosts(&p);
    bool is_one_host = status == AG_OK && p.map->num_hosts == 1;
    bool shares = status == AG_OK && (is_one_host ? is_auto || must_share : is_auto && hierarchy_is_of_use(p.map));
    if (shares)
        status = share_memory(&p, &refuser, reason, sizeof reason);
    else if (status == AG_OK)
        status = transport_pick_observe(exchange, context, exchange_size);
    if (status == AG_OK && refuser < 0 && shares && is_one_host)
        status = shm_transport_new(p.arena, g->rank, g->world_ranks, w->cancel, p.address, w->token, &g->transport);
    else if (status == AG_OK && refuser < 0)
        status = make_hierarchy(&p);
    else if (status == AG_OK && must_share)
        status = error_set(AG_E_NETWORK, "group", "transport", NULL, "let the transport be \"auto\"",
                           "shared memory is refused by rank %d: %s", (int)g->world_ranks[refuser], reason);
    else if (status == AG_OK)
        status = make_flat(&p, g->id, g->rank, g->size, g->world_ranks, &g->transport);
    if (g->transport) g->ops = g->transport->ops;
    arena_release(p.arena);
    hierarchy_map_free(p.map);
    heap_free(p.all);
    return status;
}
