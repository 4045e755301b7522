/* error.c: the engine's error records as Lua error objects. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "binding.h"

/* The first line of Lua code that is not the library's own: what the user has to look at. */
void binding_where(lua_State *L, binding *b, char *buffer, size_t len) {
    lua_Debug info;
    if (len) buffer[0] = '\0';
    for (int level = 0; lua_getstack(L, level, &info); level++) {
        lua_getinfo(L, "Sl", &info);
        if (info.currentline <= 0) continue;
        if (b->library_path[0] && info.source[0] == '@' &&
            strncmp(info.source + 1, b->library_path, strlen(b->library_path)) == 0)
            continue;
        snprintf(buffer, len, "%s:%d", info.short_src, info.currentline);
        return;
    }
}

static void set_text(lua_State *L, const char *key, const char *text) {
    if (!text[0]) return;
    lua_pushstring(L, text);
    lua_setfield(L, -2, key);
}

static void set_culprits(lua_State *L, const ag_error *record) {
    if (record->sequence > 0) {
        lua_pushnumber(L, (double)record->sequence);
        lua_setfield(L, -2, "seq");
    }
    if (record->num_culprits <= 0) return;
    lua_createtable(L, record->num_culprits, 0);
    for (int i = 0; i < record->num_culprits; i++) {
        lua_pushinteger(L, record->culprits[i]);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, "culprits");
}

void binding_push_record(lua_State *L, binding *b, const ag_error *record) {
    char where[160];
    binding_where(L, b, where, sizeof where);
    lua_createtable(L, 0, 12);
    set_text(L, "code", ag_status_word(record->code));
    set_text(L, "op", record->op);
    set_text(L, "arg", record->arg);
    set_text(L, "expected", record->expected);
    set_text(L, "got", record->got);
    set_text(L, "hint", record->hint);
    set_text(L, "message", record->message);
    set_text(L, "where", where);
    set_culprits(L, record);
    luaL_traceback(L, L, NULL, 1);
    lua_setfield(L, -2, "traceback");
    lua_rawgeti(L, LUA_REGISTRYINDEX, b->error_metatable_ref);
    lua_setmetatable(L, -2);
}

void binding_push_error(lua_State *L, binding *b) {
    const ag_error record = *ag_last_error();
    binding_push_record(L, b, &record);
    if (record.code == AG_E_INTERRUPTED) ag_interrupt_clear();
}

/* An error of the user's own that passed through the engine (a hook, a custom function) waits in the registry to be raised as
 * it was. */
static const char pending_key;

int binding_raise(lua_State *L, binding *b) {
    if (ag_last_error()->code == AG_E_USER) {
        lua_pushlightuserdata(L, (void *)&pending_key);
        lua_rawget(L, LUA_REGISTRYINDEX);
        if (!lua_isnil(L, -1)) {
            lua_pushlightuserdata(L, (void *)&pending_key);
            lua_pushnil(L);
            lua_rawset(L, LUA_REGISTRYINDEX);
            return lua_error(L);
        }
        lua_pop(L, 1);
    }
    binding_push_error(L, b);
    return lua_error(L);
}

/* Keeps the value on top of the stack as the error to be raised once the engine has unwound. */
void binding_keep_error(lua_State *L) {
    lua_pushlightuserdata(L, (void *)&pending_key);
    lua_insert(L, -2);
    lua_rawset(L, LUA_REGISTRYINDEX);
    ag_raise(AG_E_USER, "lua", "", "an error in a Lua function");
}

int binding_fail(lua_State *L, binding *b, ag_status code, const char *op, const char *arg, const char *format, ...) {
    char message[640];
    va_list list;
    va_start(list, format);
    vsnprintf(message, sizeof message, format, list);
    va_end(list);
    ag_raise(code, op, arg, message);
    return binding_raise(L, b);
}

int binding_return_error(lua_State *L, binding *b) {
    ag_status code = ag_last_error()->code;
    if (code == AG_E_INTERRUPTED) return binding_raise(L, b);
    lua_pushnil(L);
    binding_push_error(L, b);
    return 2;
}

static int error_tostring(lua_State *L) {
    lua_getfield(L, 1, "where");
    lua_getfield(L, 1, "message");
    if (lua_isstring(L, -2))
        lua_pushfstring(L, "%s: %s", lua_tostring(L, -2), lua_tostring(L, -1));
    else
        lua_pushfstring(L, "%s", lua_tostring(L, -1));
    return 1;
}

/* `"in loop: " .. err` and its reverse work as with a string. */
static int error_concat(lua_State *L) {
    for (int i = 1; i <= 2; i++) {
        lua_getglobal(L, "tostring");
        lua_pushvalue(L, i);
        lua_call(L, 1, 1);
    }
    lua_concat(L, 2);
    return 1;
}

const char *binding_string(lua_State *L, binding *b, int index, const char *op, const char *arg) {
    if (lua_type(L, index) != LUA_TSTRING)
        binding_fail(L, b, AG_E_ARGUMENT, op, arg, "expected a string, got %s", luaL_typename(L, index));
    return lua_tostring(L, index);
}

int64_t binding_whole(lua_State *L, binding *b, int index, const char *op, const char *arg, double low, double high) {
    if (lua_type(L, index) != LUA_TNUMBER)
        binding_fail(L, b, AG_E_ARGUMENT, op, arg, "expected a whole number, got %s", luaL_typename(L, index));
    double value = lua_tonumber(L, index);
    if (!(value >= low && value <= high) || value != floor(value))
        binding_fail(L, b, AG_E_VALUE, op, arg, "expected a whole number from %.17g to %.17g, got %.17g", low, high, value);
    return (int64_t)value;
}

ag_device *binding_device(lua_State *L, binding *b, int index, const char *op, const char *arg) {
    ag_device *device = NULL;
    if (ag_device_find(binding_string(L, b, index, op, arg), &device) != AG_OK) {
        const ag_error record = *ag_last_error();
        binding_fail(L, b, record.code, op, arg, "expected %s, got %s", record.expected, record.got);
    }
    return device;
}

/* core.raise(code, op, message[, hint]): for the Lua library's own checks. "name: ..." in front of a message is the argument's
 * name. */
static int core_raise(lua_State *L) {
    binding *b = BINDING(L);
    const char *word = luaL_checkstring(L, 1), *op = luaL_checkstring(L, 2), *message = luaL_checkstring(L, 3);
    ag_status code = AG_E_ARGUMENT;
    char arg[40] = "";
    for (int i = 1; i < AG_STATUS_COUNT; i++)
        if (strcmp(ag_status_word((ag_status)i), word) == 0) code = (ag_status)i;
    size_t len = strspn(message, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789");
    if (len > 0 && len < sizeof arg && strncmp(message + len, ": ", 2) == 0) {
        memcpy(arg, message, len);
        message += len + 2;
    }
    if (lua_isstring(L, 4)) message = lua_pushfstring(L, "%s; %s", message, lua_tostring(L, 4));
    ag_raise(code, op, arg, message);
    binding_push_error(L, b);
    return lua_error(L);
}

void error_register(lua_State *L, binding *b) {
    lua_newtable(L);
    lua_pushcfunction(L, error_tostring);
    lua_setfield(L, -2, "__tostring");
    lua_pushcfunction(L, error_concat);
    lua_setfield(L, -2, "__concat");
    lua_pushliteral(L, "argand.Error");
    lua_setfield(L, -2, "__name");
    b->error_metatable_ref = luaL_ref(L, LUA_REGISTRYINDEX);
}

void error_register_functions(lua_State *L, binding *b, int module) { binding_function(L, b, module, "raise", core_raise); }
