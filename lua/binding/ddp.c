/* ddp.c: data-parallel jobs for lua/argand/dist/ddp.lua: the table core.ddp, which is internal. Registered after dist.c.
 *
 * A job is a userdata that owns an ag_ddp and is collected with it; the Lua object around it keeps the group.
 */
#include <string.h>

#include "binding.h"

typedef struct ddp_handle {
    ag_ddp *ddp; /* NULL after the close */
    int world_rank;
} ddp_handle;

static const char ddp_key;

static void push_metatable(lua_State *L) {
    lua_pushlightuserdata(L, (void *)&ddp_key);
    lua_rawget(L, LUA_REGISTRYINDEX);
}

static ddp_handle *check_job(lua_State *L, binding *b) {
    push_metatable(L);
    if (lua_type(L, 1) != LUA_TUSERDATA || !lua_getmetatable(L, 1) || !lua_rawequal(L, -1, -2))
        binding_fail(L, b, AG_E_ARGUMENT, "ddp", "job", "expected a job, got %s", luaL_typename(L, 1));
    lua_settop(L, -3);
    ddp_handle *h = lua_touserdata(L, 1);
    if (!h->ddp) binding_fail(L, b, AG_E_STATE, "ddp", "job", "the job is closed; dist.register makes another one");
    return h;
}

/* ---- opening ---- */

/* The lists of names and tensors at `names` and names + 1, in a userdata that is left on the stack. */
static ag_ddp_item *read_items(lua_State *L, binding *b, int names, int *len) {
    luaL_checktype(L, names, LUA_TTABLE);
    luaL_checktype(L, names + 1, LUA_TTABLE);
    *len = (int)lua_objlen(L, names);
    ag_ddp_item *items = lua_newuserdata(L, ((size_t)*len + 1) * sizeof *items);
    for (int i = 0; i < *len; i++) {
        lua_rawgeti(L, names, i + 1);
        lua_rawgeti(L, names + 1, i + 1);
        items[i] = (ag_ddp_item){luaL_checkstring(L, -2), binding_tensor(L, b, lua_gettop(L), "register", "params")};
        lua_pop(L, 2); /* the lists keep them */
    }
    return items;
}

static ag_ddp_options read_options(lua_State *L, int table) {
    luaL_checktype(L, table, LUA_TTABLE);
    ag_ddp_options o = {
        .bucket_bytes = (int64_t)binding_number_field(L, table, "bucket_bytes"),
        .first_bucket_bytes = (int64_t)binding_number_field(L, table, "first_bucket_bytes"),
        .compress = binding_string_field(L, table, "compress"),
        .start = binding_string_field(L, table, "start"),
        .check_finite = binding_string_field(L, table, "check_finite"),
        .shard = binding_string_field(L, table, "shard"),
        .timeout_s = binding_number_field(L, table, "timeout"),
        .refusal = binding_string_field(L, table, "refusal"),
    };
    lua_getfield(L, table, "shared_result");
    o.shared_result = lua_toboolean(L, -1);
    lua_pop(L, 1);
    return o;
}

/* ddp.open(group, names, tensors, buffer names, buffers, options) -> a job */
static int ddp_open(lua_State *L) {
    binding *b = BINDING(L);
    ag_group *group = binding_group(L, b, 1);
    int num_parameters, num_buffers, world_rank = ag_group_world_rank(group, ag_group_rank(group));
    ag_ddp_item *parameters = read_items(L, b, 2, &num_parameters), *buffers = read_items(L, b, 4, &num_buffers);
    ag_ddp_options options = read_options(L, 6);
    ddp_handle *h = lua_newuserdata(L, sizeof *h);
    *h = (ddp_handle){.world_rank = world_rank};
    push_metatable(L);
    lua_setmetatable(L, -2);
    if (ag_ddp_open(group, parameters, num_parameters, buffers, num_buffers, &options, &h->ddp) != AG_OK)
        return binding_raise_on(L, b, world_rank);
    return 1;
}

/* ddp.free(job): as often as one likes */
static int ddp_free(lua_State *L) {
    push_metatable(L);
    if (lua_type(L, 1) != LUA_TUSERDATA || !lua_getmetatable(L, 1) || !lua_rawequal(L, -1, -2)) return 0;
    ddp_handle *h = lua_touserdata(L, 1);
    ag_ddp *ddp = h->ddp;
    h->ddp = NULL;
    ag_ddp_free(ddp);
    return 0;
}

/* ---- asking ---- */

/* ddp.check(t) -> nothing when it can be registered, else code, reason, hint */
static int ddp_check(lua_State *L) {
    binding *b = BINDING(L);
    if (ag_ddp_check(binding_tensor(L, b, 1, "check", "params")) == AG_OK) return 0;
    const ag_error *e = ag_last_error();
    lua_pushstring(L, ag_status_word(e->code));
    lua_pushstring(L, e->got);
    lua_pushstring(L, e->hint);
    return 3;
}

/* ddp.find(t) -> nothing when it is not registered, else the job's id, name, position from 1, bucket from 1, offset, owner */
static int ddp_find(lua_State *L) {
    binding *b = BINDING(L);
    ag_ddp_place place;
    ag_ddp *ddp = ag_ddp_find(binding_tensor(L, b, 1, "registered", "t"), &place);
    if (!ddp) return 0;
    lua_pushlightuserdata(L, ddp);
    lua_pushstring(L, place.name);
    lua_pushinteger(L, place.position + 1);
    lua_pushinteger(L, place.bucket + 1);
    lua_pushnumber(L, (double)place.offset);
    lua_pushinteger(L, place.owner);
    return 6;
}

/* ddp.id(job) -> what ddp.find names it by */
static int ddp_id(lua_State *L) {
    lua_pushlightuserdata(L, check_job(L, BINDING(L))->ddp);
    return 1;
}

/* ddp.stats(job) -> {steps =, skipped =, buckets =, bytes =, early =, hidden_s =, exposed_s =} */
static int ddp_stats(lua_State *L) {
    ag_ddp_stats stats;
    ag_ddp_stats_read(check_job(L, BINDING(L))->ddp, &stats);
    const struct {
        const char *key;
        double value;
    } fields[] = {{"steps", (double)stats.num_steps},     {"skipped", (double)stats.num_skipped},
                  {"buckets", (double)stats.num_buckets}, {"bytes", (double)stats.bytes},
                  {"early", (double)stats.num_early},     {"hidden_s", stats.hidden_s},
                  {"exposed_s", stats.exposed_s}};
    lua_createtable(L, 0, 7);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        lua_pushnumber(L, fields[i].value);
        lua_setfield(L, -2, fields[i].key);
    }
    return 1;
}

/* ---- training ---- */

/* ddp.sync(job, contributes) -> how many ranks contributed, whether all is finite, else which parameters and ranks are not */
static int ddp_sync(lua_State *L) {
    binding *b = BINDING(L);
    ddp_handle *h = check_job(L, b);
    ag_ddp_result result;
    if (ag_ddp_sync(h->ddp, lua_toboolean(L, 2), &result) != AG_OK) return binding_raise_on(L, b, h->world_rank);
    lua_pushinteger(L, result.num_contributors);
    lua_pushboolean(L, result.is_finite);
    lua_pushstring(L, ag_ddp_report(h->ddp));
    return 3;
}

/* ddp.verify(job) */
static int ddp_verify(lua_State *L) {
    binding *b = BINDING(L);
    ddp_handle *h = check_job(L, b);
    return ag_ddp_verify(h->ddp) == AG_OK ? 0 : binding_raise_on(L, b, h->world_rank);
}

/* ddp.share(job) */
static int ddp_share(lua_State *L) {
    binding *b = BINDING(L);
    ddp_handle *h = check_job(L, b);
    return ag_ddp_share(h->ddp) == AG_OK ? 0 : binding_raise_on(L, b, h->world_rank);
}

/* ddp.set_accumulating(job, flag) -> what it was */
static int ddp_set_accumulating(lua_State *L) {
    ag_ddp *ddp = check_job(L, BINDING(L))->ddp;
    bool before = ag_ddp_is_accumulating(ddp);
    ag_ddp_set_accumulating(ddp, lua_toboolean(L, 2));
    lua_pushboolean(L, before);
    return 1;
}

void ddp_register(lua_State *L, binding *b, int module) {
    static const luaL_Reg functions[] = {{"open", ddp_open},   {"free", ddp_free},
                                         {"check", ddp_check}, {"find", ddp_find},
                                         {"id", ddp_id},       {"stats", ddp_stats},
                                         {"sync", ddp_sync},   {"verify", ddp_verify},
                                         {"share", ddp_share}, {"set_accumulating", ddp_set_accumulating}};
    lua_pushlightuserdata(L, (void *)&ddp_key);
    lua_createtable(L, 0, 1);
    lua_pushcfunction(L, ddp_free);
    lua_setfield(L, -2, "__gc");
    lua_rawset(L, LUA_REGISTRYINDEX);
    lua_newtable(L);
    int table = lua_gettop(L);
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        binding_function(L, b, table, functions[i].name, functions[i].func);
    lua_setfield(L, module, "ddp");
}
