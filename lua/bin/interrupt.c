/* interrupt.c: see interrupt.h. */
#include "interrupt.h"

#include <signal.h>
#include <stddef.h>

#include <lauxlib.h>

#include "argand.h"

static lua_State *state;
static struct sigaction previous;

/* Runs between two Lua instructions of interpreted code. */
static void raise_interrupted(lua_State *L, lua_Debug *info) {
    (void)info;
    lua_sethook(L, NULL, 0, 0);
    if (!ag_interrupt_pending()) return; /* an engine call has raised it already */
    ag_interrupt_clear();
    luaL_error(L, "interrupted");
}

static void on_sigint(int signal_number) {
    (void)signal_number;
    ag_interrupt();
    lua_sethook(state, raise_interrupted, LUA_MASKCALL | LUA_MASKRET | LUA_MASKCOUNT, 1);
}

void interrupt_install(lua_State *L) {
    state = L;
    struct sigaction action = {.sa_handler = on_sigint};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, &previous);
}

void interrupt_remove(void) {
    sigaction(SIGINT, &previous, NULL);
    state = NULL;
}
