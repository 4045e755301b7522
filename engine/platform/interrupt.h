/* interrupt.h: the flag that a signal handler raises and that long calls poll. */
#ifndef ARGAND_PLATFORM_INTERRUPT_H
#define ARGAND_PLATFORM_INTERRUPT_H

#include <stdbool.h>

void interrupt_raise(void); /* async-signal-safe */
bool interrupt_pending(void);
void interrupt_clear(void);

#endif
