/* autodiff.c: backward, gradients, contexts, hooks and functions of the user.
 *
 * Lua functions that backward needs (hooks, custom functions) are called through lua_pcall on the coroutine that called
 * backward (binding.L); their errors wait until the engine has unwound and are then raised unchanged.
 */
#include <stdlib.h>
#include <string.h>

#include "binding.h"

/* A Lua value that the engine holds on to. */
typedef struct lua_ref {
    binding *b;
    int ref;
    int kept;        /* a table of handles that live as long as this does, LUA_NOREF = none */
    lua_State *main; /* any coroutine of the state serves to let go */
} lua_ref;

static lua_ref *ref_new(lua_State *L, binding *b, int index) {
    lua_ref *r = malloc(sizeof *r);
    if (!r) luaL_error(L, "not enough memory");
    lua_pushvalue(L, index);
    *r = (lua_ref){.b = b, .ref = luaL_ref(L, LUA_REGISTRYINDEX), .kept = LUA_NOREF, .main = L};
    lua_pushlightuserdata(L, b);
    lua_rawget(L, LUA_REGISTRYINDEX);
    r->main = lua_tothread(L, -1);
    lua_pop(L, 1);
    return r;
}

/* The kept tensors go at once: with the collector's help alone, each of a chain of functions would take it one more round. */
static void ref_free(void *context) {
    lua_ref *r = context;
    lua_State *L = r->main;
    if (r->kept != LUA_NOREF) {
        lua_rawgeti(L, LUA_REGISTRYINDEX, r->kept);
        for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1)) memory_drop(r->b, binding_handle(L, r->b, lua_gettop(L)));
        lua_pop(L, 1);
        luaL_unref(L, LUA_REGISTRYINDEX, r->kept);
    }
    luaL_unref(L, LUA_REGISTRYINDEX, r->ref);
    free(r);
}

static ag_tensor *optional_tensor(lua_State *L, binding *b, int table, const char *key, const char *op) {
    ag_tensor *t = NULL;
    if (lua_type(L, table) != LUA_TTABLE) return NULL;
    lua_getfield(L, table, key);
    if (!lua_isnil(L, -1)) t = binding_tensor(L, b, lua_gettop(L), op, key);
    lua_pop(L, 1); /* the table keeps it */
    return t;
}

static bool flag(lua_State *L, int table, const char *key) {
    if (lua_type(L, table) != LUA_TTABLE) return false;
    lua_getfield(L, table, key);
    bool value = lua_toboolean(L, -1);
    lua_pop(L, 1);
    return value;
}

static void check_options(lua_State *L, binding *b, int table, const char *op, const char *const *names) {
    if (lua_isnoneornil(L, table)) return;
    if (lua_type(L, table) != LUA_TTABLE)
        binding_fail(L, b, AG_E_ARGUMENT, op, "options", "expected a table of options, got %s", luaL_typename(L, table));
    lua_pushnil(L);
    while (lua_next(L, table)) {
        const char *key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "?";
        bool known = false;
        for (int i = 0; names[i]; i++) known |= strcmp(names[i], key) == 0;
        if (!known)
            binding_fail(L, b, AG_E_OPTION, op, key, "unknown option \"%s\"; there are gradient, retain_graph, create_graph%s",
                         key, strcmp(op, "grad") == 0 ? " and allow_unused" : "");
        lua_pop(L, 1);
    }
}

/* t:backward{gradient=, retain_graph=, create_graph=} */
static int tensor_backward(lua_State *L) {
    static const char *const names[] = {"gradient", "retain_graph", "create_graph", NULL};
    binding *b = BINDING(L);
    ag_tensor *root = binding_tensor(L, b, 1, "backward", "self"), *seed;
    if (binding_handle(L, b, 2)) {
        seed = binding_tensor(L, b, 2, "backward", "gradient");
    } else {
        check_options(L, b, 2, "backward", names);
        seed = optional_tensor(L, b, 2, "gradient", "backward");
    }
    bool retain_graph = flag(L, 2, "retain_graph"), create_graph = flag(L, 2, "create_graph");
    lua_State *previous = b->L;
    b->L = L;
    ag_status status = ag_backward(root, seed, retain_graph, create_graph);
    b->L = previous;
    return status == AG_OK ? 0 : binding_raise(L, b);
}

/* ag.grad(root, inputs, options) -> list of gradients, nil where unused */
static int core_grad(lua_State *L) {
    static const char *const names[] = {"gradient", "retain_graph", "create_graph", "allow_unused", NULL};
    binding *b = BINDING(L);
    ag_tensor *root = binding_tensor(L, b, 1, "grad", "root");
    bool single = binding_handle(L, b, 2) != NULL;
    if (!single && lua_type(L, 2) != LUA_TTABLE)
        return binding_fail(L, b, AG_E_ARGUMENT, "grad", "inputs", "expected a tensor or a list of tensors, got %s",
                            luaL_typename(L, 2));
    check_options(L, b, 3, "grad", names);
    int count = single ? 1 : (int)lua_objlen(L, 2);
    ag_tensor **inputs = lua_newuserdata(L, (size_t)(2 * count + 1) * sizeof *inputs), **grads = inputs + count;
    for (int i = 0; i < count; i++) {
        if (single)
            lua_pushvalue(L, 2);
        else
            lua_rawgeti(L, 2, i + 1);
        inputs[i] = binding_tensor(L, b, lua_gettop(L), "grad", "inputs");
        lua_pop(L, 1);
    }
    ag_tensor *seed = optional_tensor(L, b, 3, "gradient", "grad");
    lua_State *previous = b->L;
    b->L = L;
    ag_status status = ag_grad(root, seed, inputs, count, flag(L, 3, "retain_graph"), flag(L, 3, "create_graph"),
                               flag(L, 3, "allow_unused"), grads);
    b->L = previous;
    if (status != AG_OK) return binding_raise(L, b);
    lua_createtable(L, count, 0);
    for (int i = 0; i < count; i++) {
        if (!grads[i]) continue;
        binding_push(L, b, grads[i]);
        if (single) return 1;
        lua_rawseti(L, -2, i + 1);
    }
    if (single) lua_pushnil(L);
    return 1;
}

/* core.collect_grads(params, list, first): puts the gradients of params into list[first], list[first + 1], ...; returns how
 * many there were before the first parameter without one. */
static int core_collect_grads(lua_State *L) {
    binding *b = BINDING(L);
    luaL_checktype(L, 1, LUA_TTABLE);
    luaL_checktype(L, 2, LUA_TTABLE);
    int count = (int)lua_objlen(L, 1), first = (int)luaL_checkinteger(L, 3), found = 0;
    for (; found < count; found++) {
        lua_rawgeti(L, 1, found + 1);
        ag_tensor *grad = ag_tensor_grad(binding_tensor(L, b, lua_gettop(L), "collect_grads", "params"));
        lua_pop(L, 1);
        if (!grad) break;
        binding_push(L, b, ag_tensor_retain(grad));
        lua_rawseti(L, 2, first + found);
    }
    lua_pushnumber(L, found);
    return 1;
}

/* core.clear_grads(params) */
static int core_clear_grads(lua_State *L) {
    binding *b = BINDING(L);
    luaL_checktype(L, 1, LUA_TTABLE);
    int count = (int)lua_objlen(L, 1);
    for (int i = 1; i <= count; i++) {
        lua_rawgeti(L, 1, i);
        if (ag_tensor_set_grad(binding_tensor(L, b, lua_gettop(L), "clear_grads", "params"), NULL) != AG_OK)
            return binding_raise(L, b);
        lua_pop(L, 1);
    }
    return 0;
}

static int tensor_detach(lua_State *L) {
    binding *b = BINDING(L);
    ag_tensor *result;
    if (ag_tensor_detach(binding_tensor(L, b, 1, "detach", "self"), &result) != AG_OK) return binding_raise(L, b);
    binding_push(L, b, result);
    return 1;
}

/* ---- contexts ---- */

/* Calls the function at stack position `fn` with what follows it, inside a context. */
static int call_inside(lua_State *L, const char *name, bool enabled, ag_checkpointing checkpointing, int fn) {
    binding *b = BINDING(L);
    if (lua_type(L, fn) != LUA_TFUNCTION)
        return binding_fail(L, b, AG_E_ARGUMENT, name, "fn", "expected a function, got %s", luaL_typename(L, fn));
    if (ag_autodiff_push(enabled, checkpointing) != AG_OK) return binding_raise(L, b);
    int depth = ag_autodiff_depth(), status = lua_pcall(L, lua_gettop(L) - fn, LUA_MULTRET, 0);
    while (ag_autodiff_depth() >= depth) ag_autodiff_pop();
    return status == 0 ? lua_gettop(L) - fn + 1 : lua_error(L);
}

static int core_no_grad(lua_State *L) { return call_inside(L, "no_grad", false, AG_CHECKPOINT_INHERIT, 1); }
static int core_enable_grad(lua_State *L) { return call_inside(L, "enable_grad", true, AG_CHECKPOINT_INHERIT, 1); }

/* ag.autodiff({checkpointing = "none" | "balanced"}, fn, ...) */
static int core_autodiff(lua_State *L) {
    binding *b = BINDING(L);
    ag_checkpointing checkpointing = AG_CHECKPOINT_NONE;
    if (lua_type(L, 1) != LUA_TTABLE)
        return binding_fail(L, b, AG_E_ARGUMENT, "autodiff", "options",
                            "expected a table such as {checkpointing = \"balanced\"}, got %s", luaL_typename(L, 1));
    lua_pushnil(L);
    while (lua_next(L, 1)) {
        const char *key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "?",
                   *value = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : NULL;
        if (strcmp(key, "checkpointing") != 0)
            return binding_fail(L, b, AG_E_OPTION, "autodiff", key, "unknown option \"%s\"; there is checkpointing", key);
        if (value && strcmp(value, "balanced") == 0)
            checkpointing = AG_CHECKPOINT_BALANCED;
        else if (!value || strcmp(value, "none") != 0)
            return binding_fail(L, b, AG_E_VALUE, "autodiff", key, "expected \"none\" or \"balanced\", got %s",
                                value ? value : luaL_typename(L, -1));
        lua_pop(L, 1);
    }
    return call_inside(L, "autodiff", true, checkpointing, 2);
}

static int core_is_grad_enabled(lua_State *L) {
    lua_pushboolean(L, ag_autodiff_is_enabled());
    return 1;
}

/* ---- hooks ---- */

/* A new reference to the tensor at index; NULL when there is none, or only a freed handle. */
static ag_tensor *live_tensor(lua_State *L, binding *b, int index) {
    handle *h = binding_handle(L, b, index);
    return h && h->tensor ? ag_tensor_retain(h->tensor) : NULL;
}

static ag_status run_hook(void *context, ag_tensor **grad) {
    lua_ref *r = context;
    binding *b = r->b;
    lua_State *L = b->L;
    lua_rawgeti(L, LUA_REGISTRYINDEX, r->ref);
    binding_push(L, b, ag_tensor_retain(*grad));
    if (lua_pcall(L, 1, 1, 0) != 0) {
        binding_keep_error(L);
        return AG_E_USER;
    }
    bool is_nil = lua_isnil(L, -1);
    ag_tensor *replacement = live_tensor(L, b, lua_gettop(L));
    if (replacement) {
        ag_tensor_release(*grad);
        *grad = replacement;
    }
    lua_pop(L, 1);
    return replacement || is_nil
               ? AG_OK
               : ag_raise(AG_E_ARGUMENT, "register_hook", "fn", "expected the hook to return a tensor or nothing");
}

static int hook_remove(lua_State *L) {
    binding *b = BINDING(L);
    lua_getfield(L, 1, "tensor");
    lua_getfield(L, 1, "id");
    handle *h = binding_handle(L, b, lua_gettop(L) - 1);
    if (h && h->tensor) ag_tensor_remove_hook(h->tensor, (uint64_t)lua_tonumber(L, -1));
    return 0;
}

/* t:register_hook(fn) -> {remove = function} */
static int tensor_register_hook(lua_State *L) {
    binding *b = BINDING(L);
    ag_tensor *t = binding_tensor(L, b, 1, "register_hook", "self");
    if (lua_type(L, 2) != LUA_TFUNCTION)
        return binding_fail(L, b, AG_E_ARGUMENT, "register_hook", "fn", "expected a function, got %s", luaL_typename(L, 2));
    lua_ref *r = ref_new(L, b, 2);
    uint64_t id;
    if (ag_tensor_add_hook(t, run_hook, r, ref_free, &id) != AG_OK) {
        ref_free(r);
        return binding_raise(L, b);
    }
    lua_createtable(L, 0, 3);
    lua_pushvalue(L, 1);
    lua_setfield(L, -2, "tensor");
    lua_pushnumber(L, (double)id);
    lua_setfield(L, -2, "id");
    binding_function(L, b, lua_gettop(L), "remove", hook_remove);
    return 1;
}

/* ---- custom functions ---- */

/* Calls the Lua function with the outputs' gradients (nil = zero); it returns one gradient an input (nil = none). */
static ag_status run_custom(void *context, int num_outputs, ag_tensor *const *grad_outputs, int num_inputs,
                            ag_tensor **grad_inputs) {
    lua_ref *r = context;
    binding *b = r->b;
    lua_State *L = b->L;
    int top = lua_gettop(L);
    if (!lua_checkstack(L, num_outputs + num_inputs + 8)) return ag_raise(AG_E_MEMORY, "backward", "", "the Lua stack is full");
    lua_rawgeti(L, LUA_REGISTRYINDEX, r->ref);
    for (int i = 0; i < num_outputs; i++) {
        if (grad_outputs[i])
            binding_push(L, b, ag_tensor_retain(grad_outputs[i]));
        else
            lua_pushnil(L);
    }
    if (lua_pcall(L, num_outputs, LUA_MULTRET, 0) != 0) {
        binding_keep_error(L);
        return AG_E_USER;
    }
    ag_status status = AG_OK;
    int num_results = lua_gettop(L) - top;
    for (int i = 0; i < num_results; i++) {
        ag_tensor *t = i < num_inputs ? live_tensor(L, b, top + 1 + i) : NULL;
        if (i < num_inputs) grad_inputs[i] = t;
        if (!t && !lua_isnil(L, top + 1 + i))
            status = ag_raise(AG_E_ARGUMENT, "Function", "backward",
                              "expected backward to return a tensor or nil for each tensor that forward got");
    }
    for (int i = 0; status != AG_OK && i < num_inputs; i++) {
        ag_tensor_release(grad_inputs[i]);
        grad_inputs[i] = NULL;
    }
    lua_settop(L, top);
    return status;
}

/* The tensors of the table at index, nil and false as NULL; the array lies on the Lua stack. */
static ag_tensor **tensor_list(lua_State *L, binding *b, int index, int *count) {
    luaL_checktype(L, index, LUA_TTABLE);
    *count = (int)lua_objlen(L, index);
    ag_tensor **list = lua_newuserdata(L, (size_t)(*count ? *count : 1) * sizeof *list);
    for (int i = 0; i < *count; i++) {
        lua_rawgeti(L, index, i + 1);
        list[i] = lua_toboolean(L, -1) ? binding_tensor(L, b, lua_gettop(L), "custom", "list") : NULL;
        lua_pop(L, 1);
    }
    return list;
}

/* core.custom(name, inputs, outputs, backward, force, kept) ties outputs to inputs; the handles in table `kept` are freed as
 * soon as backward cannot need them any more */
static int core_custom(lua_State *L) {
    binding *b = BINDING(L);
    const char *name = luaL_checkstring(L, 1);
    luaL_checktype(L, 4, LUA_TFUNCTION);
    int num_inputs, num_outputs;
    ag_tensor **inputs = tensor_list(L, b, 2, &num_inputs), **outputs = tensor_list(L, b, 3, &num_outputs);
    luaL_checktype(L, 6, LUA_TTABLE);
    lua_ref *r = ref_new(L, b, 4);
    lua_pushvalue(L, 6);
    r->kept = luaL_ref(L, LUA_REGISTRYINDEX);
    ag_status status =
        ag_custom_record(name, inputs, num_inputs, outputs, num_outputs, run_custom, r, ref_free, lua_toboolean(L, 5));
    return status == AG_OK ? 0 : binding_raise(L, b);
}

/* core.backward_inner(roots, gradients), false for none: within a backward function; see ag_backward_inner */
static int core_backward_inner(lua_State *L) {
    binding *b = BINDING(L);
    int num_roots, num_seeds;
    ag_tensor **roots = tensor_list(L, b, 1, &num_roots), **seeds = tensor_list(L, b, 2, &num_seeds);
    lua_State *previous = b->L;
    b->L = L;
    ag_status status = ag_backward_inner(roots, seeds, num_roots < num_seeds ? num_roots : num_seeds);
    b->L = previous;
    return status == AG_OK ? 0 : binding_raise(L, b);
}

/* core.custom_tie(alias, position) -> the result at that position of the function at work, for double backward */
static int core_custom_tie(lua_State *L) {
    binding *b = BINDING(L);
    ag_tensor *result;
    if (ag_custom_tie(binding_tensor(L, b, 1, "custom_tie", "alias"), (int)luaL_checkinteger(L, 2) - 1, &result) != AG_OK)
        return binding_raise(L, b);
    binding_push(L, b, result);
    return 1;
}

/* core.keep(t) -> another handle on the very same tensor, which no scope frees and free() of t leaves alone */
static int core_keep(lua_State *L) {
    binding *b = BINDING(L);
    ag_tensor *t = binding_tensor(L, b, 1, "keep", "t");
    int depth = b->scope_depth;
    b->scope_depth = 0;
    binding_push(L, b, ag_tensor_retain(t));
    b->scope_depth = depth;
    return 1;
}

/* ---- anomaly mode ---- */

static binding *anomaly_binding;

static void forward_line(char *buffer, size_t len) {
    if (anomaly_binding && anomaly_binding->L) binding_where(anomaly_binding->L, anomaly_binding, buffer, len);
}

static int core_set_anomaly_mode(lua_State *L) {
    anomaly_binding = BINDING(L);
    ag_set_anomaly_mode(lua_toboolean(L, 1), forward_line);
    return 0;
}

void autodiff_register(lua_State *L, binding *b, int module, int methods) {
    binding_function(L, b, methods, "backward", tensor_backward);
    binding_function(L, b, methods, "detach", tensor_detach);
    binding_function(L, b, methods, "register_hook", tensor_register_hook);
    binding_function(L, b, module, "grad", core_grad);
    binding_function(L, b, module, "collect_grads", core_collect_grads);
    binding_function(L, b, module, "clear_grads", core_clear_grads);
    binding_function(L, b, module, "no_grad", core_no_grad);
    binding_function(L, b, module, "enable_grad", core_enable_grad);
    binding_function(L, b, module, "autodiff", core_autodiff);
    binding_function(L, b, module, "is_grad_enabled", core_is_grad_enabled);
    binding_function(L, b, module, "custom", core_custom);
    binding_function(L, b, module, "backward_inner", core_backward_inner);
    binding_function(L, b, module, "custom_tie", core_custom_tie);
    binding_function(L, b, module, "keep", core_keep);
    binding_function(L, b, module, "set_anomaly_mode", core_set_anomaly_mode);
}
