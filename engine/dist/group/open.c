/* open.c: joining a job, splitting groups, leaving, and going on with those that are left. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/error.h"
#include "core/memory.h"
#include "dist/group/address.h"
#include "dist/group/open.h"
#include "dist/group/world.h"
#include "platform/clock.h"

static const ag_group_options defaults = {.timeout_s = 300, .init_timeout_s = 60, .heartbeat_s = 0.25, .expiry_s = 5};

/* ---- options ---- */

static ag_status refuse(const char *arg, const char *expected, const char *hint, const char *got) {
    return error_set(AG_E_VALUE, "group", arg, expected, hint, "%.120s", got);
}

static ag_status check_options(const ag_group_options *o) {
    char got[64];
    snprintf(got, sizeof got, "rank %d of %d", o->rank, o->size);
    if (o->size < 1 || o->rank < 0 || o->rank >= o->size) return refuse("rank", "0 <= rank < size", NULL, got);
    if (o->timeout_s < 0 || o->init_timeout_s < 0 || o->heartbeat_s < 0 || o->expiry_s < 0)
        return refuse("timeout", "seconds >= 0 (0: the default)", NULL, "a negative one");
    if (o->size == 1) return AG_OK;
    if (!o->coordinator || !o->coordinator[0])
        return refuse("coordinator", "an address that all ranks know", "set ARGAND_COORDINATOR, or start with `argand run`",
                      "none");
    if (!o->job || !o->job[0]) return refuse("job", "a name that only this job has", "set ARGAND_JOB", "none");
    if (strlen(o->job) > 63) return refuse("job", "at most 63 bytes", NULL, o->job);
    if (o->address && strlen(o->address) > 63) return refuse("address", "at most 63 bytes", NULL, o->address);
    if (o->key_file && strlen(o->key_file) > 255) return refuse("key_file", "at most 255 bytes", NULL, o->key_file);
    static const char *const choices[] = {"auto", "shm", "ipc", "tcp"};
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++)
        if (!o->transport || strcmp(o->transport, choices[i]) == 0) return AG_OK;
    return refuse("transport", "\"auto\", \"shm\", \"ipc\" or \"tcp\"", NULL, o->transport);
}

static double or_default(double value, double standard) { return value > 0 ? value : standard; }

static void keep_options(world *w, const ag_group_options *o) {
    w->options = *o;
    w->options.timeout_s = or_default(o->timeout_s, defaults.timeout_s);
    w->options.init_timeout_s = or_default(o->init_timeout_s, defaults.init_timeout_s);
    w->options.heartbeat_s = or_default(o->heartbeat_s, defaults.heartbeat_s);
    w->options.expiry_s = or_default(o->expiry_s, defaults.expiry_s);
    w->options.coordinator = w->options.job = w->options.key_file = w->options.address = w->options.transport = NULL;
    w->rank = o->rank;
    w->size = o->size;
    w->epoch = o->epoch;
    snprintf(w->job, sizeof w->job, "%s", o->job ? o->job : "");
    snprintf(w->transport_choice, sizeof w->transport_choice, "%s", o->transport ? o->transport : "auto");
    snprintf(w->address, sizeof w->address, "%s", o->address ? o->address : "");
    snprintf(w->key_file, sizeof w->key_file, "%s", o->key_file ? o->key_file : "");
}

/* ---- names that follow from the job ---- */

/* FNV-1a. */
static uint64_t job_number(const world *w) {
    uint64_t hash = 0xCBF29CE484222325u;
    for (const char *at = w->job; *at; at++) hash = (hash ^ (unsigned char)*at) * 0x100000001B3u;
    return hash;
}

static void make_token(world *w) {
    char text[96];
    snprintf(text, sizeof text, "%016llx-%u-%s", (unsigned long long)job_number(w), w->epoch, w->job);
    size_t len = strlen(text);
    for (size_t i = 0; i < WORLD_TOKEN_BYTES; i++) w->token[i] = text[i % len];
}

static ag_status shared_cancel_new(shared_cancel **out) {
    shared_cancel *s = heap_alloc_zero(sizeof *s);
    if (!s) return error_memory("group", sizeof *s);
    atomic_init(&s->refs, 1);
    cancel_init(&s->cancel);
    *out = s;
    return AG_OK;
}

static ag_status world_new(const ag_group_options *options, world **out) {
    world *w = heap_alloc_zero(sizeof *w);
    if (!w) return error_memory("group", sizeof *w);
    world_init(w);
    keep_options(w, options);
    make_token(w);
    ag_status status = shared_cancel_new(&w->shared);
    if (status != AG_OK) {
        world_release(w);
        return status;
    }
    w->cancel = &w->shared->cancel;
    *out = w;
    return AG_OK;
}

/* ---- joining ---- */

/* Where the data socket of this rank listens, and where it would listen as coordinator of the next epoch. */
static ag_status listen_addresses(world *w, const char *coordinator, char *data, char *control, size_t len) {
    bool is_ipc = strncmp(coordinator, "ipc://", 6) == 0;
    if (is_ipc && strcmp(w->transport_choice, "tcp") != 0)
        snprintf(data, len, "ipc://@argand-%s-e%u-d%d", w->job, w->epoch, w->rank);
    else if (is_ipc)
        snprintf(data, len, "tcp://%s:*", w->address[0] ? w->address : "127.0.0.1");
    if (is_ipc) {
        snprintf(control, len, "ipc://@argand-%s-e%u-c%d", w->job, w->epoch + 1, w->rank);
        return AG_OK;
    }
    char address[64];
    AG_TRY(address_pick(coordinator, w->address, address, sizeof address));
    snprintf(control, len, "tcp://%s:*", address);
    if (strcmp(w->transport_choice, "ipc") == 0)
        snprintf(data, len, "ipc://@argand-%s-e%u-d%d", w->job, w->epoch, w->rank);
    else
        snprintf(data, len, "tcp://%s:*", address);
    return AG_OK;
}

/* A loopback address is of no use to another host. */
static ag_status check_members(const world *w) {
    const session_member *own = session_member_at(w->session, w->rank);
    for (int rank = 0; rank < w->size; rank++) {
        const session_member *m = session_member_at(w->session, rank);
        if (strcmp(m->host, own->host) == 0 || !address_is_loopback(m->data_endpoint)) continue;
        error_set(AG_E_NETWORK, "group", "address", NULL, "name an address of that host which the others reach: ARGAND_ADDRESS",
                  "rank %d on %s listens at %s, which rank %d on %s cannot reach", rank, m->host, m->data_endpoint, w->rank,
                  own->host);
        error_set_culprits(&(int32_t){rank}, 1, 0);
        return AG_E_NETWORK;
    }
    return AG_OK;
}

static ag_status give_peers(world *w) {
    const char **endpoints = heap_alloc((size_t)w->size * sizeof *endpoints);
    if (!endpoints) return error_memory("group", (size_t)w->size * sizeof *endpoints);
    for (int rank = 0; rank < w->size; rank++) endpoints[rank] = session_member_at(w->session, rank)->data_endpoint;
    ag_status status = zmq_hub_peers(w->hub, w->rank, w->size, endpoints);
    heap_free(endpoints);
    return status;
}

typedef struct session_exchange_context {
    session *session;
    int64_t deadline_ns;
} session_exchange_context;

static ag_status exchange_by_session(void *context, const void *own, void *all) {
    session_exchange_context *c = context;
    return session_exchange(c->session, own, EXCHANGE_BYTES, all, c->deadline_ns);
}

/* Once the session stands: the world's group. */
static ag_status make_world_group(world *w, ag_group **out) {
    int64_t deadline = deadline_after(w->options.init_timeout_s);
    ag_group *g = NULL;
    size_t list_bytes = (size_t)w->size * sizeof(int32_t);
    int32_t *identity = heap_alloc(list_bytes);
    if (!identity) return error_memory("group", list_bytes);
    for (int rank = 0; rank < w->size; rank++) identity[rank] = rank;
    ag_status status = group_make(w, identity, w->size, w->rank, 0, &g);
    if (status == AG_OK && w->session) {
        status = check_members(w);
        if (status == AG_OK) status = give_peers(w);
        session_exchange_context context = {w->session, deadline};
        if (status == AG_OK) status = transport_pick(g, exchange_by_session, &context, w->size, identity, deadline);
    }
    heap_free(identity);
    if (status != AG_OK) {
        if (g) group_release(g);
        return status;
    }
    world_add(w, g);
    *out = g;
    return AG_OK;
}

static bool is_tcp(const char *address) { return strncmp(address, "tcp://", 6) == 0; }

/* Connections to each other rank. Two ranks on two cores, tcp over the loopback interface, p50 of 64 MiB: one connection 39 ms with
 * one I/O thread; with two of these one connection 41, two 38, four 40. Unix sockets gain nothing. Each one costs about five
 * descriptors, and where there are many peers, one to each of them keeps the I/O threads busy. */
static int num_stripes(const world *w, const char *address) { return is_tcp(address) && w->size <= 16 ? 2 : 1; }

static ag_status make_sockets(world *w, const char *address) {
    socket_keys keys;
    bool has_keys = w->key_file[0];
    if (has_keys) AG_TRY(socket_keys_read(w->key_file, &keys));
    int num_io_threads = is_tcp(address) ? 2 : 1, num_links = num_stripes(w, address) * w->size;
    /* Each link is a socket with a monitor, which is two more; the rest is the session's. */
    int max_sockets = 3 * num_links + 5 * w->size + 64;
    ag_status status = socket_context_new(has_keys ? &keys : NULL, num_io_threads, max_sockets, &w->sockets);
    explicit_bzero(&keys, sizeof keys);
    return status;
}

static ag_status open_hub(world *w, const char *address) {
    return zmq_hub_new(w->sockets, address, job_number(w), w->epoch, w->rank, w->size, w->key_file[0], num_stripes(w, address),
                       w->cancel, &w->hub);
}

static session_setup setup_of(world *w, const char *coordinator, const char *control) {
    return (session_setup){.rank = w->rank,
                           .size = w->size,
                           .coordinator = coordinator,
                           .coordinator_fd = w->options.coordinator_fd > 0 ? w->options.coordinator_fd : -1,
                           .job = w->job,
                           .epoch = w->epoch,
                           .data_endpoint = zmq_hub_endpoint(w->hub),
                           .control_address = control,
                           .init_timeout_s = w->options.init_timeout_s,
                           .heartbeat_s = w->options.heartbeat_s,
                           .expiry_s = w->options.expiry_s,
                           .on_cancel = world_wake,
                           .context = w};
}

ag_status group_open(const ag_group_options *options, ag_group **out) {
    AG_TRY(check_options(options));
    if (options->size > 1 && !socket_is_available())
        return error_set(AG_E_UNSUPPORTED, "group", NULL, NULL, "install libzmq3-dev and build again",
                         "a job of %d processes needs ZeroMQ, which this build has not", options->size);
    world *w = NULL;
    AG_TRY(world_new(options, &w));
    ag_status status = AG_OK;
    if (w->size > 1) {
        char data[160], control[160];
        status = listen_addresses(w, options->coordinator, data, control, sizeof data);
        if (status == AG_OK) status = make_sockets(w, data);
        if (status == AG_OK) status = open_hub(w, data);
        if (status == AG_OK) {
            session_setup setup = setup_of(w, options->coordinator, control);
            status = session_open(w->sockets, &setup, w->cancel, &w->session);
        }
    }
    if (status == AG_OK) status = make_world_group(w, out);
    world_release(w); /* the group holds it */
    return status;
}

ag_status group_open_threads(int size, ag_group **groups) {
    if (size < 1) return error_set(AG_E_VALUE, "group", "size", "at least 1", NULL, "%d", size);
    shared_cancel *shared = NULL;
    AG_TRY(shared_cancel_new(&shared));
    arena *memory = NULL;
    size_t list_bytes = (size_t)size * sizeof(int32_t);
    int32_t *identity = heap_alloc(list_bytes);
    ag_status status = identity ? AG_OK : error_memory("group", list_bytes);
    if (status == AG_OK && size > 1) status = arena_new(size, true, 0, &memory);
    int num_made = 0;
    for (int rank = 0; status == AG_OK && rank < size; rank++) identity[rank] = rank;
    for (int rank = 0; status == AG_OK && rank < size; rank++) {
        world *w = heap_alloc_zero(sizeof *w);
        if (!w) {
            status = error_memory("group", sizeof *w);
            break;
        }
        world_init(w);
        keep_options(w, &(ag_group_options){.rank = rank, .size = size, .job = "threads"});
        make_token(w);
        atomic_fetch_add_explicit(&shared->refs, 1, memory_order_relaxed);
        w->shared = shared;
        w->cancel = &shared->cancel;
        w->is_threads = true;
        ag_group *g = NULL;
        status = group_make(w, identity, size, rank, 0, &g);
        if (status == AG_OK && size > 1)
            status = shm_transport_new(memory, rank, g->world_ranks, w->cancel, "", w->token, &g->transport);
        if (status == AG_OK) {
            if (g->transport) g->ops = g->transport->ops;
            world_add(w, g);
            groups[num_made++] = g;
        } else if (g) {
            group_release(g);
        }
        world_release(w);
    }
    if (status != AG_OK)
        while (num_made > 0) {
            group_close(groups[--num_made], 0, false);
            groups[num_made] = NULL;
        }
    heap_free(identity);
    arena_release(memory);
    if (atomic_fetch_sub_explicit(&shared->refs, 1, memory_order_acq_rel) == 1) heap_free(shared);
    return status;
}

/* ---- splitting ---- */

static ag_status exchange_by_group(void *context, const void *own, void *all) {
    ag_group *parent = context;
    int64_t count = EXCHANGE_BYTES;
    group_request request = {
        .call = {.kind = COLLECTIVE_ALL_GATHER, .dtype = AG_U8, .count = count, .input = own, .output = all},
        .ndim = 1,
        .dims = &count};
    return group_run(parent, &request);
}

static ag_status check_ranks(const ag_group *parent, const int *ranks, int num_ranks) {
    if (num_ranks < 1) return error_set(AG_E_VALUE, "group", "ranks", "at least one rank", NULL, "none");
    for (int i = 0; i < num_ranks; i++)
        if (ranks[i] < 0 || ranks[i] >= parent->size || (i > 0 && ranks[i] <= ranks[i - 1]))
            return error_set(AG_E_VALUE, "group", "ranks", "rising ranks, each once, from 0 on and below the size", NULL,
                             "%d in a group of size %d", ranks[i], parent->size);
    return AG_OK;
}

/* The same on all members, and different for each group of a world. */
static uint32_t child_id(ag_group *parent, const int *ranks, int num_ranks) {
    uint32_t hash = 2166136261u;
    hash = (hash ^ parent->id) * 16777619u;
    hash = (hash ^ (uint32_t)parent->sequence) * 16777619u; /* all members have made as many calls */
    for (int i = 0; i < num_ranks; i++) hash = (hash ^ (uint32_t)parent->world_ranks[ranks[i]]) * 16777619u;
    return hash ? hash : 1;
}

static ag_status split(ag_group *parent, const int *ranks, int num_ranks, call_print_flag making, ag_group **out) {
    world *w = parent->world;
    uint32_t id = child_id(parent, ranks, num_ranks);
    /* A comparison of the lists comes first: a print of the ranks as counts would do, but only a barrier's worth is needed. */
    int64_t dims[2] = {num_ranks, id};
    uint8_t own = 0, *all = heap_alloc((size_t)parent->size);
    if (!all) return error_memory("group", (size_t)parent->size);
    group_request compare = {.call = {.kind = COLLECTIVE_ALL_GATHER, .dtype = AG_U8, .count = 1, .input = &own, .output = all},
                             .ndim = 2,
                             .dims = dims,
                             .making = making};
    ag_status status = group_run(parent, &compare);
    heap_free(all);
    AG_TRY(status);
    int position = -1;
    for (int i = 0; i < num_ranks; i++)
        if (ranks[i] == parent->rank) position = i;
    if (position < 0) {
        AG_TRY(transport_pick_observe(exchange_by_group, parent, parent->size));
        *out = NULL;
        return AG_OK;
    }
    int32_t *world_ranks = heap_alloc((size_t)num_ranks * sizeof *world_ranks);
    if (!world_ranks) return error_memory("group", (size_t)num_ranks * sizeof *world_ranks);
    for (int i = 0; i < num_ranks; i++) world_ranks[i] = parent->world_ranks[ranks[i]];
    ag_group *g = NULL;
    status = group_make(w, world_ranks, num_ranks, position, id, &g);
    heap_free(world_ranks);
    if (status == AG_OK)
        status = transport_pick(g, exchange_by_group, parent, parent->size, ranks, deadline_after(w->options.timeout_s));
    if (status != AG_OK) {
        if (g) group_release(g);
        return status;
    }
    world_add(w, g);
    *out = g;
    return AG_OK;
}

ag_status group_split(ag_group *parent, const int *ranks, int num_ranks, call_print_flag making, ag_group **out) {
    AG_TRY(world_check_process(parent->world));
    ag_status status = check_ranks(parent, ranks, num_ranks);
    if (status != AG_OK) {
        group_refuse(parent);
        return status;
    }
    status = split(parent, ranks, num_ranks, making, out);
    /* In the middle of what all do together: the others wait for this rank. */
    if (status == AG_E_MEMORY) group_give_up(parent);
    return status;
}

/* ---- leaving ---- */

/* Without a goodbye nobody waits for what was not made yet; and when works, tensors or sub-groups keep this rank's connections
 * open, the others would not learn that it is gone. */
static void end_unfinished(ag_group *g) {
    world *w = g->world;
    if (g->id != 0 || g->size == 1 || cancel_is_raised(w->cancel)) return;
    bool is_last =
        atomic_load_explicit(&g->refs, memory_order_acquire) == 1 && atomic_load_explicit(&w->refs, memory_order_acquire) == 1;
    if (is_last) return;
    const ag_error record = *error_record();
    error_set(AG_E_PEER, "group", NULL, NULL, NULL, "rank %d has left without closing", w->rank);
    error_set_culprits(&(int32_t){w->rank}, 1, 0);
    world_end(w);
    *error_record() = record;
}

/* After a session_leave that was false. */
static ag_status close_error(const world *w, double seconds) {
    bool *missing = heap_alloc((size_t)w->size * sizeof *missing);
    char text[120];
    int num = missing ? session_missing(w->session, missing, text, sizeof text) : 0, num_culprits = 0;
    int32_t culprits[AG_MAX_CULPRITS];
    for (int rank = 0; num > 0 && rank < w->size && num_culprits < AG_MAX_CULPRITS; rank++)
        if (missing[rank]) culprits[num_culprits++] = rank;
    heap_free(missing);
    error_set(AG_E_TIMEOUT, "close", NULL, NULL, "the others go on; this rank has left", "%s %s not closed after %.3g s",
              num > 0 ? text : "the others", num == 1 ? "has" : "have", seconds);
    error_set_culprits(culprits, num_culprits, 0);
    return AG_E_TIMEOUT;
}

ag_status group_close(ag_group *g, double wait_s, bool says_goodbye) {
    world *w = g->world;
    if (w->process != getpid()) return AG_OK; /* a forked child leaves its parent's group alone */
    if (!says_goodbye) end_unfinished(g);
    group_stop(g);
    bool is_alone = true;
    int64_t start_ns = clock_ns();
    if (g->id == 0 && w->session && says_goodbye && !cancel_is_raised(w->cancel)) is_alone = session_leave(w->session, wait_s);
    ag_status status = is_alone ? AG_OK : close_error(w, (double)(clock_ns() - start_ns) * 1e-9);
    if (g->id == 0 && says_goodbye && cancel_is_raised(w->cancel) && !atomic_load_explicit(&w->is_told, memory_order_relaxed))
        status = cancel_error(w->cancel, "close", 0);
    if (g->transport && g->ops->leave) g->ops->leave(g->transport); /* blocks may keep the rest */
    world_remove(w, g);
    group_release(g);
    return status;
}

/* ---- going on ---- */

ag_status group_regroup(ag_group *g, int min_size, double grace_s, ag_group **out) {
    world *old = g->world;
    AG_TRY(world_check_process(old));
    if (g->id != 0) return error_set(AG_E_STATE, "regroup", "group", "the world", NULL, "a group made from it");
    if (!old->session)
        return error_set(AG_E_UNSUPPORTED, "regroup", NULL, NULL, "make new groups",
                         old->is_threads ? "threads of one process cannot be lost one by one" : "a job of one rank");
    if (min_size < 1) min_size = old->size / 2 + 1; /* two halves must not both go on */
    if (grace_s <= 0) grace_s = 5;                  /* hosts learn of a loss at different times */
    /* Who calls this has given the old world up, and the others must not wait for it. */
    if (!cancel_is_raised(old->cancel)) {
        char reason[64];
        snprintf(reason, sizeof reason, "rank %d regroups", old->rank);
        session_abort(old->session, AG_E_PEER, -1, reason);
    }
    ag_group_options options = old->options;
    options.job = old->job;
    options.transport = old->transport_choice;
    options.address = old->address;
    options.key_file = old->key_file[0] ? old->key_file : NULL;
    options.epoch = old->epoch + 1;
    options.coordinator_fd = 0;
    world *w = NULL;
    AG_TRY(world_new(&options, &w));
    const char *old_control = session_member_at(old->session, old->rank)->control_address;
    char data[160], control[160];
    int32_t *old_ranks = heap_alloc((size_t)old->size * sizeof *old_ranks);
    ag_status status = old_ranks ? AG_OK : error_memory("regroup", (size_t)old->size * sizeof *old_ranks);
    if (status == AG_OK) status = listen_addresses(w, old_control, data, control, sizeof data);
    if (status == AG_OK) status = make_sockets(w, data);
    if (status == AG_OK) status = open_hub(w, data);
    if (status == AG_OK) {
        session_setup setup = setup_of(w, "", control);
        setup.coordinator_fd = -1;
        status = session_regroup_open(w->sockets, old->session, &setup, min_size, grace_s, w->cancel, &w->session, &w->rank,
                                      &w->size, old_ranks);
    }
    if (status == AG_OK) status = make_world_group(w, out);
    heap_free(old_ranks);
    world_release(w);
    if (status == AG_OK) group_close(g, 0, false);
    return status;
}
