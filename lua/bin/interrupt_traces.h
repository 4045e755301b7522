/* interrupt_traces.h: gets a running loop out of the machine code that LuaJIT made of it.
 *
 * Machine code (a trace) never looks at debug hooks, so a hook alone cannot interrupt it. But a trace is full of guards:
 * conditional jumps to an exit stub, which rebuilds the interpreter's state and goes on there. So when an interrupt comes,
 * every guard gets a breakpoint (int3, one byte); at the first one that is reached, SIGTRAP sends the trace through that
 * guard's own exit, the breakpoints are taken back, and the interpreter calls the hook before its next instruction. Nothing is
 * paid while no interrupt comes: guards are found once, when a trace is made.
 *
 * Invariants:
 * - The hook must raise an error after such an exit. The exit of a comparison resumes at the branch that was *not* taken;
 *   the values are right, only the place is not. So no exit is forced while hooks are off (inside a hook, a finalizer).
 * - Code is read and written through /proc/self/mem: that neither changes page rights under LuaJIT's feet nor faults on code
 *   that was freed. A trace whose bytes are not those that were noted (freed, replaced) is left alone.
 * - A loop without any guard can never end, whatever it computes; its function is taken back from the compiler (jit.off).
 *
 * Where it does not work (other processors and systems, no /proc/self/mem, a LuaJIT whose state is not recognised) nothing is
 * done, and such loops end with the process only. The same holds for traces made while jit.v or jit.dump listens: LuaJIT has
 * one listener for new traces. */
#ifndef ARGAND_BIN_INTERRUPT_TRACES_H
#define ARGAND_BIN_INTERRUPT_TRACES_H

#include <stdint.h>

#include <lua.h>

/* traces_attach starts to note new traces of L, the main thread of its state, whose libraries are open. */
void traces_attach(lua_State *L);

/* The rest is async-signal-safe, and for the thread that runs L. traces_break puts breakpoints on all guards, traces_resume
 * takes them back. */
void traces_break(void);
void traces_resume(void);

/* traces_program_counter is that of a signal's context (its third argument), or NULL on an unknown processor. */
uintptr_t *traces_program_counter(void *context);

/* traces_exit_of is the exit of the guard whose breakpoint was hit, given the program counter after it; 0 if there is none. */
uintptr_t traces_exit_of(uintptr_t program_counter);

/* traces_can_leave: hooks are on, so that one will follow the exit at once. */
int traces_can_leave(void);

#endif
