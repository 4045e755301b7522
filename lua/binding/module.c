/* module.c: luaopen_argand_core. */
#include <string.h>

#include "binding.h"

void binding_function(lua_State *L, binding *b, int table, const char *name, lua_CFunction fn) {
    lua_pushlightuserdata(L, b);
    lua_pushcclosure(L, fn, 1);
    lua_setfield(L, table, name);
}

/* core.set_library_path(prefix): errors blame the first caller whose source is not below prefix. */
static int core_set_library_path(lua_State *L) {
    binding *b = BINDING(L);
    const char *path = luaL_checkstring(L, 1);
    if (strlen(path) >= sizeof b->library_path) return luaL_error(L, "the library's path is too long");
    strcpy(b->library_path, path);
    return 0;
}

/* The engine outlives the state: it must not ask a closed one for memory or for a line. */
static int binding_gc(lua_State *L) {
    (void)L;
    ag_memory_set_reclaim(NULL, NULL);
    ag_set_anomaly_mode(false, NULL);
    return 0;
}

__attribute__((visibility("default"))) int luaopen_argand_core(lua_State *L);

int luaopen_argand_core(lua_State *L) {
    binding *b = lua_newuserdata(L, sizeof *b);
    memset(b, 0, sizeof *b);
    lua_createtable(L, 0, 1);
    lua_pushcfunction(L, binding_gc);
    lua_setfield(L, -2, "__gc");
    lua_setmetatable(L, -2);
    luaL_ref(L, LUA_REGISTRYINDEX); /* lives as long as the state */
    lua_pushlightuserdata(L, b);
    lua_pushthread(L); /* a coroutine that lives as long: the engine lets go of Lua values through it */
    lua_rawset(L, LUA_REGISTRYINDEX);
    b->L = L;
    lua_newtable(L);
    int module = lua_gettop(L);
    error_register(L, b);
    error_register_functions(L, b, module);
    tensor_register(L, b, module);
    construct_register(L, b, module);
    lua_getfield(L, module, "methods");
    int methods = lua_gettop(L);
    call_register(L, b, module, methods);
    autodiff_register(L, b, module, methods);
    memory_register(L, b, module);
    about_register(L, b, module);
    process_register(L, b, module);
    dist_register(L, b, module);
    ddp_register(L, b, module);
    binding_function(L, b, module, "set_library_path", core_set_library_path);
    lua_pushvalue(L, module);
    return 1;
}
