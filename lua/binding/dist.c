/* dist.c: groups, collectives and their simulation for lua/argand/dist: the table core.dist, which is internal.
 *
 * A group is a userdata that owns an ag_group; one that is collected without a close leaves without goodbye. Errors carry the
 * world rank of who raises them. A call is a Lua table with the fields of ag_collective.
 */
#include <limits.h>
#include <string.h>

#include "binding.h"

typedef struct group_handle {
    ag_group *group; /* NULL after the close */
    int world_rank;
} group_handle;

typedef struct work_handle {
    ag_work *work;
    int world_rank;
} work_handle;

static const char group_key, work_key;

static void *check_userdata(lua_State *L, binding *b, int index, const char *key, const char *name) {
    lua_pushlightuserdata(L, (void *)key);
    lua_rawget(L, LUA_REGISTRYINDEX);
    if (lua_type(L, index) != LUA_TUSERDATA || !lua_getmetatable(L, index) || !lua_rawequal(L, -1, -2))
        binding_fail(L, b, AG_E_ARGUMENT, "dist", name, "expected a %s, got %s", name, luaL_typename(L, index));
    lua_pop(L, 2);
    return lua_touserdata(L, index);
}

static group_handle *handle_at(lua_State *L, binding *b, int index) {
    group_handle *h = check_userdata(L, b, index, &group_key, "group");
    if (!h->group) binding_fail(L, b, AG_E_STATE, "dist", "group", "the group is closed");
    return h;
}

static group_handle *check_handle(lua_State *L, binding *b) { return handle_at(L, b, 1); }

ag_group *binding_group(lua_State *L, binding *b, int index) { return handle_at(L, b, index)->group; }

static ag_group *check_group(lua_State *L, binding *b) { return check_handle(L, b)->group; }

static void *new_userdata(lua_State *L, size_t size, const char *key) {
    void *p = lua_newuserdata(L, size);
    memset(p, 0, size);
    lua_pushlightuserdata(L, (void *)key);
    lua_rawget(L, LUA_REGISTRYINDEX);
    lua_setmetatable(L, -2);
    return p;
}

int binding_raise_on(lua_State *L, binding *b, int world_rank) {
    if (ag_last_error()->code == AG_E_INTERRUPTED) return binding_raise(L, b);
    binding_push_error(L, b);
    lua_pushinteger(L, world_rank);
    lua_setfield(L, -2, "rank");
    return lua_error(L);
}

/* ---- fields of a table ---- */

const char *binding_string_field(lua_State *L, int table, const char *key) {
    lua_getfield(L, table, key);
    const char *value = lua_tostring(L, -1);
    lua_pop(L, 1); /* the table keeps it */
    return value;
}

double binding_number_field(lua_State *L, int table, const char *key) {
    lua_getfield(L, table, key);
    double value = lua_tonumber(L, -1);
    lua_pop(L, 1);
    return value;
}

static int int_field(lua_State *L, int table, const char *key) {
    double value = binding_number_field(L, table, key);
    return value >= INT_MIN && value <= INT_MAX ? (int)value : -1;
}

static ag_tensor *tensor_field(lua_State *L, binding *b, int table, const char *key, const char *op) {
    lua_getfield(L, table, key);
    ag_tensor *t = lua_isnil(L, -1) ? NULL : binding_tensor(L, b, lua_gettop(L), op, key);
    lua_pop(L, 1);
    return t;
}

/* The list at `key` as [*len] whole numbers, which lie in a userdata that is left on the stack; NULL when there is none. */
static int64_t *numbers_field(lua_State *L, int table, const char *key, int *len) {
    lua_getfield(L, table, key);
    if (lua_type(L, -1) != LUA_TTABLE) return NULL;
    *len = (int)lua_objlen(L, -1);
    int64_t *list = lua_newuserdata(L, ((size_t)*len + 1) * sizeof *list);
    for (int i = 0; i < *len; i++) {
        lua_rawgeti(L, -2, i + 1);
        list[i] = (int64_t)lua_tonumber(L, -1);
        lua_pop(L, 1);
    }
    return list;
}

/* Lists that are too short for the group would be read beyond their end. */
static const int64_t *counts_field(lua_State *L, binding *b, int table, const char *key, int size, const char *op) {
    int len = 0;
    const int64_t *list = numbers_field(L, table, key, &len);
    if (list && len != size)
        binding_fail(L, b, AG_E_VALUE, op, key, "expected a count for each of the %d ranks, got %d", size, len);
    return list;
}

/* What it points to stays on the Lua stack, or in the table. */
static ag_collective read_call(lua_State *L, binding *b, int table, int size) {
    luaL_checktype(L, table, LUA_TTABLE);
    luaL_checkstack(L, 12, "a collective");
    ag_collective c = {.kind = binding_string_field(L, table, "kind")};
    if (!c.kind) luaL_error(L, "a collective without kind");
    c.op = binding_string_field(L, table, "op");
    c.algorithm = binding_string_field(L, table, "algorithm");
    c.root = int_field(L, table, "root");
    c.input = tensor_field(L, b, table, "input", c.kind);
    c.like = tensor_field(L, b, table, "like", c.kind);
    c.out = tensor_field(L, b, table, "out", c.kind);
    c.timeout_s = binding_number_field(L, table, "timeout");
    lua_getfield(L, table, "absent");
    c.is_absent = lua_toboolean(L, -1);
    lua_pop(L, 1);
    c.counts = counts_field(L, b, table, "counts", size, c.kind);
    c.output_counts = counts_field(L, b, table, "output_counts", size, c.kind);
    return c;
}

/* ---- groups ---- */

static int push_group(group_handle *h, ag_group *group) {
    h->group = group;
    h->world_rank = ag_group_world_rank(group, ag_group_rank(group));
    return 1;
}

/* dist.open{rank =, size =, ...}: the fields of ag_group_options, times in seconds without _s */
static int dist_open(lua_State *L) {
    binding *b = BINDING(L);
    luaL_checktype(L, 1, LUA_TTABLE);
    ag_group_options o = {.rank = int_field(L, 1, "rank"), .size = int_field(L, 1, "size")};
    o.local_rank = int_field(L, 1, "local_rank");
    o.local_size = int_field(L, 1, "local_size");
    o.coordinator = binding_string_field(L, 1, "coordinator");
    o.coordinator_fd = int_field(L, 1, "coordinator_fd");
    o.job = binding_string_field(L, 1, "job");
    o.epoch = (uint32_t)binding_number_field(L, 1, "epoch");
    o.key_file = binding_string_field(L, 1, "key_file");
    o.address = binding_string_field(L, 1, "address");
    o.transport = binding_string_field(L, 1, "transport");
    o.timeout_s = binding_number_field(L, 1, "timeout");
    o.init_timeout_s = binding_number_field(L, 1, "init_timeout");
    o.heartbeat_s = binding_number_field(L, 1, "heartbeat");
    o.expiry_s = binding_number_field(L, 1, "expiry");
    group_handle *h = new_userdata(L, sizeof *h, &group_key);
    ag_group *group;
    if (ag_group_open(&o, &group) != AG_OK) return binding_raise_on(L, b, o.rank);
    return push_group(h, group);
}

/* dist.split(group, ranks) -> a group, or nil for who is not in it */
static int dist_split(lua_State *L) {
    binding *b = BINDING(L);
    group_handle *parent = check_handle(L, b);
    luaL_checktype(L, 2, LUA_TTABLE);
    int len = (int)lua_objlen(L, 2), *ranks = lua_newuserdata(L, ((size_t)len + 1) * sizeof *ranks);
    for (int i = 0; i < len; i++) {
        lua_rawgeti(L, 2, i + 1);
        ranks[i] = (int)lua_tonumber(L, -1);
        lua_pop(L, 1);
    }
    group_handle *h = new_userdata(L, sizeof *h, &group_key);
    ag_group *group = NULL;
    if (ag_group_split(parent->group, ranks, len, &group) != AG_OK) return binding_raise_on(L, b, parent->world_rank);
    if (group) return push_group(h, group);
    lua_pushnil(L);
    return 1;
}

/* dist.regroup(world, min_size, grace) -> the new world; the old one is gone */
static int dist_regroup(lua_State *L) {
    binding *b = BINDING(L);
    group_handle *old = check_handle(L, b), *h = new_userdata(L, sizeof *h, &group_key);
    ag_group *group;
    if (ag_group_regroup(old->group, (int)lua_tonumber(L, 2), lua_tonumber(L, 3), &group) != AG_OK)
        return binding_raise_on(L, b, old->world_rank);
    old->group = NULL;
    return push_group(h, group);
}

/* dist.close(group, wait) -> true, or nil and the error: not all others have closed */
static int dist_close(lua_State *L) {
    binding *b = BINDING(L);
    group_handle *h = check_handle(L, b);
    ag_group *group = h->group;
    h->group = NULL;
    if (ag_group_close(group, lua_tonumber(L, 2)) != AG_OK) return binding_return_error(L, b);
    lua_pushboolean(L, 1);
    return 1;
}

static int group_gc(lua_State *L) {
    group_handle *h = lua_touserdata(L, 1);
    ag_group_free(h->group);
    h->group = NULL;
    return 0;
}

static int dist_abort(lua_State *L) {
    ag_group_abort(check_group(L, BINDING(L)), luaL_checkstring(L, 2));
    return 0;
}

static int dist_note(lua_State *L) {
    ag_group_note(check_group(L, BINDING(L)), luaL_checkstring(L, 2));
    return 0;
}

static int dist_rank(lua_State *L) {
    lua_pushinteger(L, ag_group_rank(check_group(L, BINDING(L))));
    return 1;
}

static int dist_size(lua_State *L) {
    lua_pushinteger(L, ag_group_size(check_group(L, BINDING(L))));
    return 1;
}

static int dist_world_rank(lua_State *L) {
    binding *b = BINDING(L);
    ag_group *g = check_group(L, b);
    int rank = (int)binding_whole(L, b, 2, "world_rank", "rank", 0, ag_group_size(g) - 1);
    lua_pushinteger(L, ag_group_world_rank(g, rank));
    return 1;
}

static int dist_has_ended(lua_State *L) {
    lua_pushboolean(L, ag_group_has_ended(check_group(L, BINDING(L))));
    return 1;
}

/* dist.describe(group) -> what ag_group_transport and its like say, and the counters */
static int dist_describe(lua_State *L) {
    ag_group *g = check_group(L, BINDING(L));
    ag_group_stats stats;
    ag_group_stats_read(g, &stats);
    lua_createtable(L, 0, 4);
    lua_pushstring(L, ag_group_transport(g));
    lua_setfield(L, -2, "transport");
    lua_pushboolean(L, ag_group_is_encrypted(g));
    lua_setfield(L, -2, "encrypted");
    lua_pushnumber(L, ag_group_epoch(g));
    lua_setfield(L, -2, "epoch");
    const struct {
        const char *key;
        int64_t value;
    } fields[] = {{"calls", stats.num_calls},
                  {"bytes_moved", stats.bytes_moved},
                  {"messages", stats.num_messages},
                  {"rejected", stats.num_rejected}};
    lua_createtable(L, 0, 4);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        lua_pushnumber(L, (double)fields[i].value);
        lua_setfield(L, -2, fields[i].key);
    }
    lua_setfield(L, -2, "stats");
    return 1;
}

/* dist.shared_tensor(group, dtype, numel, shared_result) -> this rank's tensor, the result's */
static int dist_shared_tensor(lua_State *L) {
    binding *b = BINDING(L);
    group_handle *h = check_handle(L, b);
    ag_dtype dtype = ag_dtype_find(binding_string(L, b, 2, "shared_tensor", "dtype"));
    if (dtype == AG_NO_DTYPE)
        return binding_fail(L, b, AG_E_DTYPE, "shared_tensor", "dtype", "there is no dtype \"%s\"", lua_tostring(L, 2));
    int64_t numel = (int64_t)binding_whole(L, b, 3, "shared_tensor", "numel", 0, 9007199254740992.0);
    handle *results[2] = {binding_anchor(L, b), binding_anchor(L, b)};
    ag_tensor *own, *result;
    if (ag_group_shared_tensor(h->group, dtype, numel, lua_toboolean(L, 4), &own, &result) != AG_OK)
        return binding_raise_on(L, b, h->world_rank);
    results[0]->tensor = own;
    results[1]->tensor = result;
    return 2;
}

static int dist_is_available(lua_State *L) {
    lua_pushboolean(L, ag_dist_is_available());
    return 1;
}

/* dist.keygen(path) -> true, or nil and the error */
static int dist_keygen(lua_State *L) {
    binding *b = BINDING(L);
    if (ag_keygen(binding_string(L, b, 1, "keygen", "path")) != AG_OK) return binding_return_error(L, b);
    lua_pushboolean(L, 1);
    return 1;
}

/* ---- collectives ---- */

/* dist.run(group, call) -> the result, nil where there is none */
static int dist_run(lua_State *L) {
    binding *b = BINDING(L);
    group_handle *h = check_handle(L, b);
    ag_collective c = read_call(L, b, 2, ag_group_size(h->group));
    handle *result = binding_anchor(L, b);
    ag_tensor *t = NULL;
    lua_State *previous = b->L;
    b->L = L;
    ag_status status = ag_collective_run(h->group, &c, &t);
    b->L = previous;
    if (status != AG_OK) return binding_raise_on(L, b, h->world_rank);
    if (!t) return 0;
    result->tensor = t;
    binding_charge(L, b, result);
    return 1;
}

/* dist.start(group, call) -> a work */
static int dist_start(lua_State *L) {
    binding *b = BINDING(L);
    group_handle *h = check_handle(L, b);
    ag_collective c = read_call(L, b, 2, ag_group_size(h->group));
    work_handle *w = new_userdata(L, sizeof *w, &work_key);
    w->world_rank = h->world_rank;
    if (ag_collective_start(h->group, &c, &w->work) != AG_OK) return binding_raise_on(L, b, h->world_rank);
    return 1;
}

static int work_gc(lua_State *L) {
    work_handle *w = lua_touserdata(L, 1);
    ag_work_release(w->work);
    w->work = NULL;
    return 0;
}

/* dist.wait(work, timeout) -> the result, nil where there is none; timeout 0 or nil: as long as the call may take */
static int dist_wait(lua_State *L) {
    binding *b = BINDING(L);
    work_handle *w = check_userdata(L, b, 1, &work_key, "work");
    ag_tensor *t = NULL;
    if (ag_work_wait(w->work, lua_tonumber(L, 2), &t) != AG_OK) return binding_raise_on(L, b, w->world_rank);
    if (!t) return 0;
    binding_push(L, b, t);
    return 1;
}

static int dist_is_done(lua_State *L) {
    work_handle *w = check_userdata(L, BINDING(L), 1, &work_key, "work");
    lua_pushboolean(L, ag_work_is_done(w->work));
    return 1;
}

/* dist.plan(group, call) -> text */
static int dist_plan(lua_State *L) {
    binding *b = BINDING(L);
    ag_group *g = check_group(L, b);
    ag_collective c = read_call(L, b, 2, ag_group_size(g));
    char text[512];
    lua_pushstring(L, ag_collective_plan(g, &c, text, sizeof text));
    return 1;
}

/* dist.supports(kind, op or nil, dtype, device) -> true, or false and the reason */
static int dist_supports(lua_State *L) {
    binding *b = BINDING(L);
    const char *kind = binding_string(L, b, 1, "supports", "op"),
               *op = lua_isnoneornil(L, 2) ? NULL : binding_string(L, b, 2, "supports", "reduce_op");
    ag_dtype dtype = ag_dtype_find(binding_string(L, b, 3, "supports", "dtype"));
    if (dtype == AG_NO_DTYPE)
        return binding_fail(L, b, AG_E_DTYPE, "supports", "dtype", "there is no dtype \"%s\"", lua_tostring(L, 3));
    ag_device *device = binding_device(L, b, 4, "supports", "device");
    char reason[300] = "";
    bool is_supported = ag_collective_supports(kind, op, dtype, device, reason, sizeof reason);
    lua_pushboolean(L, is_supported);
    if (is_supported) return 1;
    lua_pushstring(L, reason);
    return 2;
}

/* ---- simulation ---- */

static ag_simulation read_simulation(lua_State *L, int table, int size) {
    ag_simulation s = {.size = size, .seed = (uint64_t)binding_number_field(L, table, "seed")};
    s.sequence = (uint64_t)binding_number_field(L, table, "sequence");
    s.fault = binding_string_field(L, table, "fault");
    s.fault_rank = int_field(L, table, "fault_rank");
    s.min_delay_s = binding_number_field(L, table, "min_delay");
    s.max_delay_s = binding_number_field(L, table, "max_delay");
    s.expiry_s = binding_number_field(L, table, "expiry");
    int len = 0;
    int64_t *names = numbers_field(L, table, "world_ranks", &len);
    if (!names || len != size) return s;
    int *ranks = lua_newuserdata(L, (size_t)size * sizeof *ranks);
    for (int i = 0; i < size; i++) ranks[i] = (int)names[i];
    s.world_ranks = ranks;
    return s;
}

static void push_outcome(lua_State *L, binding *b, const ag_simulation_outcome *o) {
    lua_createtable(L, 0, 4);
    lua_pushnumber(L, o->end_s);
    lua_setfield(L, -2, "seconds");
    lua_pushboolean(L, o->is_lost);
    lua_setfield(L, -2, "is_lost");
    if (o->result) {
        binding_push(L, b, o->result);
        lua_setfield(L, -2, "result");
    }
    if (o->status == AG_OK) return;
    binding_push_record(L, b, &o->error);
    lua_setfield(L, -2, "error");
}

/* dist.simulate(setup, calls) -> a list of outcomes, the number of segments */
static int dist_simulate(lua_State *L) {
    binding *b = BINDING(L);
    luaL_checktype(L, 1, LUA_TTABLE);
    luaL_checktype(L, 2, LUA_TTABLE);
    int size = (int)lua_objlen(L, 2);
    ag_simulation setup = read_simulation(L, 1, size);
    ag_collective *calls = lua_newuserdata(L, ((size_t)size + 1) * sizeof *calls);
    ag_simulation_outcome *outcomes = lua_newuserdata(L, ((size_t)size + 1) * sizeof *outcomes);
    for (int i = 0; i < size; i++) {
        lua_rawgeti(L, 2, i + 1);
        calls[i] = read_call(L, b, lua_gettop(L), size);
    }
    int64_t num_segments = 0;
    if (ag_simulate_collective(&setup, calls, outcomes, &num_segments) != AG_OK) return binding_raise(L, b);
    luaL_checkstack(L, 12, "outcomes");
    lua_createtable(L, size, 0);
    for (int i = 0; i < size; i++) {
        push_outcome(L, b, &outcomes[i]);
        lua_rawseti(L, -2, i + 1);
    }
    lua_pushnumber(L, (double)num_segments);
    return 2;
}

static void copy_text(lua_State *L, int table, const char *key, char *out, size_t len) {
    const char *text = binding_string_field(L, table, key);
    if (!text) return;
    size_t size = strlen(text) < len ? strlen(text) : len - 1;
    memcpy(out, text, size);
    out[size] = '\0';
}

/* dist.raise(fields): raises an error object of these fields here, at the line of the user's that is at work here. rank, if
 * any, is who raises it. */
static int dist_raise(lua_State *L) {
    binding *b = BINDING(L);
    luaL_checktype(L, 1, LUA_TTABLE);
    ag_error record = {.code = AG_E_STATE, .sequence = (uint64_t)binding_number_field(L, 1, "seq")};
    const char *word = binding_string_field(L, 1, "code");
    for (int i = 1; word && i < AG_STATUS_COUNT; i++)
        if (strcmp(ag_status_word((ag_status)i), word) == 0) record.code = (ag_status)i;
    copy_text(L, 1, "op", record.op, sizeof record.op);
    copy_text(L, 1, "arg", record.arg, sizeof record.arg);
    copy_text(L, 1, "expected", record.expected, sizeof record.expected);
    copy_text(L, 1, "got", record.got, sizeof record.got);
    copy_text(L, 1, "hint", record.hint, sizeof record.hint);
    copy_text(L, 1, "message", record.message, sizeof record.message);
    int len = 0;
    const int64_t *culprits = numbers_field(L, 1, "culprits", &len);
    for (int i = 0; culprits && i < len && i < AG_MAX_CULPRITS; i++)
        record.culprits[record.num_culprits++] = (int32_t)culprits[i];
    binding_push_record(L, b, &record);
    lua_getfield(L, 1, "rank");
    lua_setfield(L, -2, "rank");
    return lua_error(L);
}

static void register_metatable(lua_State *L, binding *b, const char *key, const char *name, lua_CFunction gc) {
    lua_pushlightuserdata(L, (void *)key);
    lua_newtable(L);
    binding_function(L, b, lua_gettop(L), "__gc", gc);
    lua_pushstring(L, name);
    lua_setfield(L, -2, "__metatable");
    lua_rawset(L, LUA_REGISTRYINDEX);
}

static const luaL_Reg functions[] = {{"open", dist_open},
                                     {"split", dist_split},
                                     {"regroup", dist_regroup},
                                     {"close", dist_close},
                                     {"abort", dist_abort},
                                     {"note", dist_note},
                                     {"rank", dist_rank},
                                     {"size", dist_size},
                                     {"world_rank", dist_world_rank},
                                     {"has_ended", dist_has_ended},
                                     {"describe", dist_describe},
                                     {"is_available", dist_is_available},
                                     {"shared_tensor", dist_shared_tensor},
                                     {"keygen", dist_keygen},
                                     {"run", dist_run},
                                     {"start", dist_start},
                                     {"wait", dist_wait},
                                     {"is_done", dist_is_done},
                                     {"plan", dist_plan},
                                     {"supports", dist_supports},
                                     {"simulate", dist_simulate},
                                     {"raise", dist_raise},
                                     {NULL, NULL}};

void dist_register(lua_State *L, binding *b, int module) {
    register_metatable(L, b, &group_key, "group", group_gc);
    register_metatable(L, b, &work_key, "work", work_gc);
    lua_newtable(L);
    int table = lua_gettop(L);
    for (const luaL_Reg *r = functions; r->name; r++) binding_function(L, b, table, r->name, r->func);
    fiber_register(L, b, table);
    lua_setfield(L, module, "dist");
}
