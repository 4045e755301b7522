/* memory.c: makes the Lua collector see the engine's memory.
 *
 * Every handle is charged by the bytes its storage holds, later handles on the same storage by next to nothing. When the bytes
 * charged since the last collection pass `trigger`, a full collection runs: one frees all dead handles. How often is decided by
 * cost: the trigger is what can be allocated in 20 times the time that the last collection took (at 8 GB/s), at least 16 MiB,
 * at most the soft limit; so a small Lua heap collects often and stays within the caches, a large one seldom but bounded. When
 * more than 80 % of what is charged survives, the soft limit grows by 1.4, since then the bytes are in use.
 */
#include <string.h>
#include <time.h>

#include "binding.h"

#define MIB              ((size_t)1 << 20)
#define LEAST_TRIGGER    (16 * MIB)
#define FIRST_SOFT_LIMIT (192 * MIB)
#define BYTES_PER_NS     8
#define COST_FACTOR      20

/* Time of this thread's own: a collection that was interrupted by other processes is no costlier for it. */
static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void collect(lua_State *L, binding *b) {
    size_t before = b->charged_live;
    int64_t start = now_ns();
    lua_gc(L, LUA_GCCOLLECT, 0);
    int64_t spent = now_ns() - start;
    if (b->charged_live > before / 10 * 8 && before >= b->soft_limit) b->soft_limit = b->soft_limit / 10 * 14;
    size_t affordable = (size_t)spent * BYTES_PER_NS * COST_FACTOR;
    b->trigger = affordable < LEAST_TRIGGER ? LEAST_TRIGGER : affordable > b->soft_limit ? b->soft_limit : affordable;
    b->charged_since = 0;
}

void memory_charge(lua_State *L, binding *b, size_t size_bytes) {
    b->charged_live += size_bytes;
    b->charged_since += size_bytes;
    if (__builtin_expect(b->charged_since > b->trigger, 0)) collect(L, b);
}

void memory_discharge(binding *b, size_t size_bytes) {
    b->charged_live -= size_bytes < b->charged_live ? size_bytes : b->charged_live;
}

void memory_drop(binding *b, handle *h) {
    if (!h || !h->tensor) return;
    ag_tensor *tensor = h->tensor;
    memory_discharge(b, h->charged);
    h->tensor = NULL;
    ag_tensor_release(tensor);
}

/* The engine asks this when an allocation fails, while a call from Lua is in it. */
static void reclaim(void *context) {
    binding *b = context;
    if (b->L) collect(b->L, b);
}

void memory_enter_thread(binding *b) { ag_memory_set_reclaim(reclaim, b); }

/* ---- scopes ---- */

static const char scopes_key;

/* Called for every new handle (on top of the stack) while a scope is open. */
void scope_note(lua_State *L) {
    lua_pushlightuserdata(L, (void *)&scopes_key);
    lua_rawget(L, LUA_REGISTRYINDEX);
    lua_pushvalue(L, -2);
    lua_rawseti(L, -2, (int)lua_objlen(L, -2) + 1);
    lua_pop(L, 1);
}

void scope_exchange(lua_State *L) {
    lua_pushlightuserdata(L, (void *)&scopes_key);
    lua_rawget(L, LUA_REGISTRYINDEX);
    lua_insert(L, -2);
    lua_pushlightuserdata(L, (void *)&scopes_key);
    lua_insert(L, -2);
    lua_rawset(L, LUA_REGISTRYINDEX);
}

/* Frees the tensors of `list` (a table at index) that are not marked in `kept` (a set at index); those go to the enclosing
 * scope. */
static void free_scope(lua_State *L, binding *b, int list, int kept) {
    int count = (int)lua_objlen(L, list);
    for (int i = 1; i <= count; i++) {
        lua_rawgeti(L, list, i);
        lua_pushvalue(L, -1);
        lua_rawget(L, kept);
        bool is_kept = lua_toboolean(L, -1);
        lua_pop(L, 1);
        handle *h = binding_handle(L, b, lua_gettop(L));
        if (is_kept) {
            if (b->scope_depth) scope_note(L);
        } else {
            memory_drop(b, h);
        }
        lua_pop(L, 1);
    }
}

/* Marks the tensors in the value at index: itself, or those in a table, to any depth. */
static void keep(lua_State *L, binding *b, int index, int kept) {
    if (binding_handle(L, b, index)) {
        lua_pushvalue(L, index);
        lua_pushboolean(L, 1);
        lua_rawset(L, kept);
    } else if (lua_type(L, index) == LUA_TTABLE) {
        lua_pushvalue(L, index);
        lua_rawget(L, kept);
        bool seen = lua_toboolean(L, -1);
        lua_pop(L, 1);
        if (seen) return;
        lua_pushvalue(L, index);
        lua_pushboolean(L, 1);
        lua_rawset(L, kept);
        luaL_checkstack(L, 8, "scope");
        lua_pushnil(L);
        while (lua_next(L, index)) {
            keep(L, b, lua_gettop(L), kept);
            lua_pop(L, 1);
        }
    }
}

/* ag.scope(fn, ...): calls fn; every tensor made meanwhile is freed, but those it returns (in tables too). On an error all are
 * freed. */
static int core_scope(lua_State *L) {
    binding *b = BINDING(L);
    if (lua_type(L, 1) != LUA_TFUNCTION)
        return binding_fail(L, b, AG_E_ARGUMENT, "scope", "fn", "expected a function, got %s", luaL_typename(L, 1));
    int num_args = lua_gettop(L) - 1;
    lua_pushlightuserdata(L, (void *)&scopes_key);
    lua_rawget(L, LUA_REGISTRYINDEX); /* the enclosing scope's list, or nil */
    lua_insert(L, 1);
    lua_newtable(L);
    lua_insert(L, 2);
    lua_pushlightuserdata(L, (void *)&scopes_key);
    lua_pushvalue(L, 2);
    lua_rawset(L, LUA_REGISTRYINDEX);
    b->scope_depth++;
    int status = lua_pcall(L, num_args, LUA_MULTRET, 0);
    b->scope_depth--;
    lua_pushlightuserdata(L, (void *)&scopes_key);
    lua_pushvalue(L, 1);
    lua_rawset(L, LUA_REGISTRYINDEX);
    int top = lua_gettop(L);
    lua_newtable(L);
    int kept = top + 1;
    if (status == 0)
        for (int i = 3; i <= top; i++) keep(L, b, i, kept);
    free_scope(L, b, 2, kept);
    lua_settop(L, top);
    return status == 0 ? top - 2 : lua_error(L);
}

/* ag.memory() */
static int core_memory(lua_State *L) {
    binding *b = BINDING(L);
    ag_memory_info info;
    ag_memory(&info);
    lua_createtable(L, 0, 8);
    const struct {
        const char *name;
        double value;
    } fields[] = {{"live", (double)info.live_bytes},
                  {"peak", (double)info.peak_bytes},
                  {"cached", (double)info.cached_bytes},
                  {"limit", (double)info.limit_bytes},
                  {"allocations", (double)info.num_allocations},
                  {"handles", (double)b->charged_live},
                  {"nodes", (double)ag_autodiff_live_nodes()},
                  {"heap_blocks", (double)info.heap_blocks}};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        lua_pushnumber(L, fields[i].value);
        lua_setfield(L, -2, fields[i].name);
    }
    return 1;
}

static int core_memory_trim(lua_State *L) {
    lua_gc(L, LUA_GCCOLLECT, 0);
    ag_memory_trim();
    return 0;
}

static int core_memory_reset_peak(lua_State *L) {
    (void)L;
    ag_memory_reset_peak();
    return 0;
}

static int core_set_memory_limit(lua_State *L) {
    binding *b = BINDING(L);
    double bytes = lua_tonumber(L, 1);
    if (lua_type(L, 1) != LUA_TNUMBER)
        return binding_fail(L, b, AG_E_ARGUMENT, "set_memory_limit", "bytes", "expected a number, got %s", luaL_typename(L, 1));
    if (!(bytes >= 0)) return binding_fail(L, b, AG_E_VALUE, "set_memory_limit", "bytes", "expected 0 or more, got %.14g", bytes);
    ag_memory_set_limit(bytes < 0x1p62 ? (int64_t)bytes : 0);
    return 0;
}

static int core_memory_fail_after(lua_State *L) {
    double n = binding_whole(L, BINDING(L), 1, "memory_fail_after", "n", 0, 0x1p53);
    lua_pushnumber(L, (double)ag_memory_fail_after((int64_t)n));
    return 1;
}

void memory_register(lua_State *L, binding *b, int module) {
    b->trigger = LEAST_TRIGGER;
    b->soft_limit = FIRST_SOFT_LIMIT;
    ag_memory_set_reclaim(reclaim, b);
    binding_function(L, b, module, "scope", core_scope);
    binding_function(L, b, module, "memory", core_memory);
    binding_function(L, b, module, "memory_trim", core_memory_trim);
    binding_function(L, b, module, "memory_reset_peak", core_memory_reset_peak);
    binding_function(L, b, module, "set_memory_limit", core_set_memory_limit);
    binding_function(L, b, module, "memory_fail_after", core_memory_fail_after);
}
