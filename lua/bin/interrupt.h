/* interrupt.h: Ctrl-C for a Lua state: as often as it takes, never the end of the process, state kept. */
#ifndef ARGAND_BIN_INTERRUPT_H
#define ARGAND_BIN_INTERRUPT_H

#include <lua.h>

/* interrupt_install makes SIGINT raise an "interrupted" error in L at the next chance: in engine calls, between Lua instructions, and in
 * loops that LuaJIT has compiled. */
void interrupt_install(lua_State *L);
void interrupt_remove(void);

#endif
