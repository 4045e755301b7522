/* about.c: what the engine is and can: ops, devices, threads, random state, files, interrupts. */
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "binding.h"

static const ag_op *check_op(lua_State *L, binding *b, const char *name) {
    const ag_op *op = ag_op_find(name);
    if (!op) binding_fail(L, b, AG_E_ARGUMENT, "supports", "op", "there is no op \"%s\"", name);
    return op;
}

/* core.op_names() -> list of visible ops */
static int core_op_names(lua_State *L) {
    bool all = lua_toboolean(L, 1);
    lua_newtable(L);
    for (int i = 0, count = 0; i < ag_op_count(); i++) {
        const ag_op *op = ag_op_at(i);
        if (!all && ag_op_is_hidden(op)) continue;
        lua_pushstring(L, ag_op_name(op));
        lua_rawseti(L, -2, ++count);
    }
    return 1;
}

static void push_params(lua_State *L, const ag_op *op) {
    lua_newtable(L);
    for (int i = 0; i < ag_op_param_count(op); i++) {
        lua_createtable(L, 0, 3);
        lua_pushstring(L, ag_op_param_name(op, i));
        lua_setfield(L, -2, "name");
        lua_pushstring(L, ag_op_param_type(op, i));
        lua_setfield(L, -2, "type");
        lua_pushboolean(L, ag_op_param_is_optional(op, i));
        lua_setfield(L, -2, "optional");
        lua_rawseti(L, -2, i + 1);
    }
}

/* core.op_info(name) -> {name, signature, doc, params, outputs, differentiable, hidden}, or nil */
static int core_op_info(lua_State *L) {
    const ag_op *op = ag_op_find(binding_string(L, BINDING(L), 1, "op_info", "name"));
    if (!op) return 0;
    lua_createtable(L, 0, 7);
    lua_pushstring(L, ag_op_name(op));
    lua_setfield(L, -2, "name");
    lua_pushstring(L, ag_op_signature(op));
    lua_setfield(L, -2, "signature");
    lua_pushstring(L, ag_op_doc(op));
    lua_setfield(L, -2, "doc");
    push_params(L, op);
    lua_setfield(L, -2, "params");
    lua_pushnumber(L, ag_op_output_count(op));
    lua_setfield(L, -2, "outputs");
    lua_pushboolean(L, ag_op_is_differentiable(op));
    lua_setfield(L, -2, "differentiable");
    lua_pushboolean(L, ag_op_is_hidden(op));
    lua_setfield(L, -2, "hidden");
    return 1;
}

/* core.supports(op, dtype, device) -> word, or false and the reason */
static int core_supports(lua_State *L) {
    binding *b = BINDING(L);
    const ag_op *op = check_op(L, b, binding_string(L, b, 1, "supports", "op"));
    ag_dtype dtype = ag_dtype_find(binding_string(L, b, 2, "supports", "dtype"));
    ag_device *device;
    char reason[300];
    if (dtype == AG_NO_DTYPE)
        return binding_fail(L, b, AG_E_DTYPE, "supports", "dtype", "there is no dtype \"%s\"", lua_tostring(L, 2));
    device = binding_device(L, b, 3, "supports", "device");
    ag_support support = ag_supports(op, device, dtype, reason, sizeof reason);
    if (support != AG_SUPPORT_NONE) {
        lua_pushstring(L, ag_support_word(support));
        return 1;
    }
    lua_pushboolean(L, 0);
    lua_pushstring(L, reason);
    return 2;
}

static int core_devices(lua_State *L) {
    lua_newtable(L);
    for (int i = 0; i < ag_device_count(); i++) {
        lua_createtable(L, 0, 3);
        lua_pushstring(L, ag_device_name(ag_device_at(i)));
        lua_setfield(L, -2, "name");
        lua_pushstring(L, ag_device_description(ag_device_at(i)));
        lua_setfield(L, -2, "description");
        lua_pushboolean(L, ag_device_has_collectives(ag_device_at(i)));
        lua_setfield(L, -2, "has_collectives");
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

static int core_info(lua_State *L) {
    const struct {
        const char *key, *value;
    } fields[] = {{"version", ag_version()}, {"build", ag_build_info()}, {"cpu", ag_cpu_info()}, {"blas", ag_blas_info()}};
    lua_createtable(L, 0, 4);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        lua_pushstring(L, fields[i].value);
        lua_setfield(L, -2, fields[i].key);
    }
    return 1;
}

/* ---- threads, time, terminal, interrupts ---- */

static int core_get_num_threads(lua_State *L) {
    lua_pushnumber(L, ag_get_num_threads());
    return 1;
}

static int core_set_num_threads(lua_State *L) {
    binding *b = BINDING(L);
    int count = (int)binding_whole(L, b, 1, "set_num_threads", "count", 1, 256);
    return ag_set_num_threads(count) == AG_OK ? 0 : binding_raise(L, b);
}

static int core_now(lua_State *L) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    lua_pushnumber(L, (double)t.tv_sec + 1e-9 * (double)t.tv_nsec);
    return 1;
}

static int core_isatty(lua_State *L) {
    lua_pushboolean(L, isatty((int)binding_whole(L, BINDING(L), 1, "isatty", "fd", 0, INT_MAX)));
    return 1;
}

static int core_term_width(lua_State *L) {
    struct winsize size;
    bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    lua_pushnumber(L, known ? size.ws_col : 80);
    return 1;
}

static int core_interrupt_pending(lua_State *L) {
    lua_pushboolean(L, ag_interrupt_pending());
    return 1;
}

static int core_check_interrupt(lua_State *L) {
    if (!ag_interrupt_pending()) return 0;
    ag_raise(AG_E_INTERRUPTED, "lua", "", "interrupted");
    return binding_raise(L, BINDING(L));
}

/* core.sleep(seconds): a wait that Ctrl-C ends. */
static int core_sleep(lua_State *L) {
    double left = lua_tonumber(L, 1);
    if (lua_type(L, 1) != LUA_TNUMBER)
        return binding_fail(L, BINDING(L), AG_E_ARGUMENT, "sleep", "seconds", "expected a number, got %s", luaL_typename(L, 1));
    while (left > 0 && !ag_interrupt_pending()) {
        double part = left < 0.02 ? left : 0.02;
        struct timespec t = {.tv_nsec = (long)(part * 1e9)};
        nanosleep(&t, NULL);
        left -= part;
    }
    return core_check_interrupt(L);
}

/* ---- random ---- */

/* Seeds and offsets are exact below 2^53, as all Lua numbers. */
static uint64_t check_seed(lua_State *L, int index, const char *op, const char *arg) {
    return (uint64_t)binding_whole(L, BINDING(L), index, op, arg, 0, 0x1p53);
}

static int core_manual_seed(lua_State *L) {
    ag_manual_seed(check_seed(L, 1, "manual_seed", "seed"));
    return 0;
}

static ag_generator *check_generator(lua_State *L, binding *b) {
    lua_rawgeti(L, LUA_REGISTRYINDEX, b->generator_metatable_ref);
    if (lua_type(L, 1) != LUA_TUSERDATA || !lua_getmetatable(L, 1) || !lua_rawequal(L, -1, -2)) {
        binding_fail(L, b, AG_E_ARGUMENT, "generator", "self", "expected a generator, got %s", luaL_typename(L, 1));
        return NULL;
    }
    lua_pop(L, 2);
    return *(ag_generator **)lua_touserdata(L, 1);
}

static int core_generator(lua_State *L) {
    binding *b = BINDING(L);
    uint64_t seed = lua_isnoneornil(L, 1) ? 0 : check_seed(L, 1, "generator", "seed");
    ag_generator **slot = lua_newuserdata(L, sizeof *slot);
    *slot = ag_generator_new(seed);
    if (!*slot) return binding_raise(L, b);
    lua_rawgeti(L, LUA_REGISTRYINDEX, b->generator_metatable_ref);
    lua_setmetatable(L, -2);
    return 1;
}

static int generator_gc(lua_State *L) {
    ag_generator **slot = lua_touserdata(L, 1);
    ag_generator_free(*slot);
    *slot = NULL;
    return 0;
}

static int generator_seed(lua_State *L) {
    ag_generator_seed(check_generator(L, BINDING(L)), check_seed(L, 2, "generator", "seed"));
    return 0;
}

static int push_state(lua_State *L, const ag_generator *generator) {
    uint64_t seed, offset;
    ag_generator_state(generator, &seed, &offset);
    lua_createtable(L, 0, 2);
    lua_pushnumber(L, (double)seed);
    lua_setfield(L, -2, "seed");
    lua_pushnumber(L, (double)offset);
    lua_setfield(L, -2, "offset");
    return 1;
}

static int set_state(lua_State *L, ag_generator *generator, int table) {
    if (lua_type(L, table) != LUA_TTABLE)
        return binding_fail(L, BINDING(L), AG_E_ARGUMENT, "set_state", "state", "expected what state() gave, got %s",
                            luaL_typename(L, table));
    lua_getfield(L, table, "seed");
    lua_getfield(L, table, "offset");
    ag_generator_set_state(generator, check_seed(L, -2, "set_state", "seed"), check_seed(L, -1, "set_state", "offset"));
    return 0;
}

static int generator_state(lua_State *L) { return push_state(L, check_generator(L, BINDING(L))); }
static int generator_set_state(lua_State *L) { return set_state(L, check_generator(L, BINDING(L)), 2); }
static int core_random_state(lua_State *L) { return push_state(L, NULL); }
static int core_set_random_state(lua_State *L) { return set_state(L, NULL, 1); }

/* ---- files ---- */

/* What the world refused comes back as nil and the error; a misuse is raised. */
static int file_error(lua_State *L, binding *b) {
    ag_status code = ag_last_error()->code;
    bool is_environment = code == AG_E_FILE || code == AG_E_FORMAT || code == AG_E_MEMORY;
    return is_environment ? binding_return_error(L, b) : binding_raise(L, b);
}

static int load(lua_State *L, const char *op, ag_status (*read)(const char *, ag_tensor **)) {
    binding *b = BINDING(L);
    ag_tensor *t;
    if (read(binding_string(L, b, 1, op, "path"), &t) != AG_OK) return file_error(L, b);
    binding_push(L, b, t);
    return 1;
}

static int core_load_npy(lua_State *L) { return load(L, "load_npy", ag_npy_load); }
static int core_load_idx(lua_State *L) { return load(L, "load_idx", ag_idx_load); }
static int core_save_npy(lua_State *L) {
    binding *b = BINDING(L);
    const char *path = binding_string(L, b, 1, "save_npy", "path");
    if (ag_npy_save(path, binding_tensor(L, b, 2, "save_npy", "tensor")) != AG_OK) return file_error(L, b);
    lua_pushboolean(L, 1);
    return 1;
}

static const luaL_Reg functions[] = {{"op_names", core_op_names},
                                     {"op_info", core_op_info},
                                     {"supports", core_supports},
                                     {"device_list", core_devices},
                                     {"info", core_info},
                                     {"get_num_threads", core_get_num_threads},
                                     {"set_num_threads", core_set_num_threads},
                                     {"now", core_now},
                                     {"isatty", core_isatty},
                                     {"term_width", core_term_width},
                                     {"interrupt_pending", core_interrupt_pending},
                                     {"check_interrupt", core_check_interrupt},
                                     {"sleep", core_sleep},
                                     {"manual_seed", core_manual_seed},
                                     {"generator", core_generator},
                                     {"random_state", core_random_state},
                                     {"set_random_state", core_set_random_state},
                                     {"load_npy", core_load_npy},
                                     {"load_idx", core_load_idx},
                                     {"save_npy", core_save_npy},
                                     {NULL, NULL}};

void about_register(lua_State *L, binding *b, int module) {
    for (const luaL_Reg *r = functions; r->name; r++) binding_function(L, b, module, r->name, r->func);
    lua_newtable(L);
    int metatable = lua_gettop(L);
    lua_newtable(L);
    int methods = lua_gettop(L);
    binding_function(L, b, methods, "seed", generator_seed);
    binding_function(L, b, methods, "state", generator_state);
    binding_function(L, b, methods, "set_state", generator_set_state);
    lua_setfield(L, metatable, "__index");
    binding_function(L, b, metatable, "__gc", generator_gc);
    lua_pushstring(L, "generator");
    lua_setfield(L, metatable, "__metatable");
    b->generator_metatable_ref = luaL_ref(L, LUA_REGISTRYINDEX);
}
