/* interrupt.h: Ctrl-C for a Lua state: as often as it takes, never the end of the process, state kept.
 *
 * SIGINT raises an error with code "interrupted" in the running Lua code, which pcall catches like any other:
 * - engine calls and waits poll a flag and fail with AG_E_INTERRUPTED;
 * - interpreted code meets a debug hook at its next instruction;
 * - loops that LuaJIT has compiled are led out of their machine code (interrupt_traces.h), on x86-64 Linux.
 * What does not answer (a C function that never returns; a compiled loop on another system) ends with the third press within
 * two seconds, exit code 130. Only the command `argand` does this: under plain `luajit`, require "argand" leaves SIGINT as it
 * is. */
#ifndef ARGAND_BIN_INTERRUPT_H
#define ARGAND_BIN_INTERRUPT_H

#include <lua.h>

/* interrupt_install is for the main thread of a state, called on the thread that will run it, after its libraries were opened.
 * One state at a time. It may raise Lua's memory error. */
void interrupt_install(lua_State *L);
void interrupt_remove(void);

#endif
