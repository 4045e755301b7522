/* interrupt.c: the process-wide interrupt flag. A lock-free atomic, so a signal handler may set it on any thread. */
#include "platform/interrupt.h"

#include <stdatomic.h>

static atomic_bool is_pending;
_Static_assert(ATOMIC_BOOL_LOCK_FREE == 2, "a signal handler needs a lock-free flag");

void interrupt_raise(void) { atomic_store_explicit(&is_pending, true, memory_order_release); }

bool interrupt_pending(void) { return atomic_load_explicit(&is_pending, memory_order_acquire); }

void interrupt_clear(void) { atomic_store_explicit(&is_pending, false, memory_order_release); }
