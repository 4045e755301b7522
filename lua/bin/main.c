/* main.c: the command `argand`: a LuaJIT state with the library on its path, Ctrl-C that keeps the state, and argand.cli in
 * charge. */
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>

#include "interrupt.h"

/* Puts "dir/?.lua" and the like in front of package.path or package.cpath. */
static void prepend_path(lua_State *L, const char *field, const char *patterns) {
    lua_getglobal(L, "package");
    lua_getfield(L, -1, field);
    lua_pushfstring(L, "%s;%s", patterns, lua_tostring(L, -1));
    lua_setfield(L, -3, field);
    lua_pop(L, 2);
}

/* Where the library lies: beside the sources when this is the build tree's own executable, else where it was installed,
 * as seen from the folder of this executable, so that an installed tree can be moved. */
static void set_paths(lua_State *L) {
    char self[PATH_MAX], build[PATH_MAX], folder[2 * PATH_MAX], patterns[5 * PATH_MAX];
    ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
    self[len > 0 ? len : 0] = '\0';
    char *slash = strrchr(self, '/');
    if (slash) *slash = '\0';
    bool in_build_tree = realpath(ARGAND_BUILD_DIR, build) && strcmp(build, self) == 0;
    snprintf(folder, sizeof folder, in_build_tree ? "%s" : "%s/%s", in_build_tree ? ARGAND_BUILD_LUA_DIR : self,
             ARGAND_LUA_DIR);
    snprintf(patterns, sizeof patterns, "%s/?.lua;%s/?/init.lua", folder, folder);
    prepend_path(L, "path", patterns);
    snprintf(folder, sizeof folder, in_build_tree ? "%s" : "%s/%s", in_build_tree ? ARGAND_BUILD_DIR "/lib" : self,
             ARGAND_CLIB_DIR);
    snprintf(patterns, sizeof patterns, "%s/?.so", folder);
    prepend_path(L, "cpath", patterns);
}

static void set_arguments(lua_State *L, int argc, char **argv) {
    lua_createtable(L, argc, 1);
    for (int i = 0; i < argc; i++) {
        lua_pushstring(L, argv[i]);
        lua_rawseti(L, -2, i);
    }
    lua_setglobal(L, "arg");
}

/* Runs inside lua_cpcall, so that even a failing require is reported. The exit code comes back through the light userdata. */
static int protected_main(lua_State *L) {
    int *exit_code = lua_touserdata(L, 1);
    luaL_openlibs(L);
    interrupt_install(L);
    set_paths(L);
    lua_getglobal(L, "require");
    lua_pushliteral(L, "argand.cli");
    lua_call(L, 1, 1);
    lua_getfield(L, -1, "main");
    lua_getglobal(L, "arg");
    lua_call(L, 1, 1);
    *exit_code = (int)lua_tointeger(L, -1);
    return 0;
}

int main(int argc, char **argv) {
    int exit_code = 1;
    lua_State *L = luaL_newstate();
    if (!L) {
        fprintf(stderr, "argand: not enough memory for a Lua state\n");
        return 1;
    }
    set_arguments(L, argc, argv);
    if (lua_cpcall(L, protected_main, &exit_code) != 0) {
        const char *message = lua_tostring(L, -1);
        if (!message && luaL_callmeta(L, -1, "__tostring")) message = lua_tostring(L, -1);
        fprintf(stderr, "argand: %s\n", message ? message : "an error that is not a string");
        exit_code = 1;
    }
    interrupt_remove();
    lua_close(L);
    errno = 0;
    if ((fflush(stdout) != 0 || ferror(stdout)) && exit_code == 0) {
        fprintf(stderr, "argand: standard output: %s\n", errno ? strerror(errno) : "not all could be written");
        exit_code = 1;
    }
    return exit_code;
}
