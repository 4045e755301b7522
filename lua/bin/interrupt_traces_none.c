/* interrupt_traces_none.c: interrupt_traces.h where machine code is not known: loops in it are left alone. */
#include "interrupt_traces.h"

#include <stddef.h>

void traces_attach(lua_State *L) { (void)L; }
void traces_break(void) {}
void traces_resume(void) {}
uintptr_t *traces_program_counter(void *context) { return (void)context, NULL; }
uintptr_t traces_exit_of(uintptr_t program_counter) { return (void)program_counter, 0; }
int traces_can_leave(void) { return 0; }
