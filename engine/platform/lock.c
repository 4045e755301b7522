/* lock.c: the slow side of the spin lock. */
#define _POSIX_C_SOURCE 200809L
#include "platform/lock.h"

#include <sched.h>

#define PAUSES_BEFORE_YIELD 64

void lock_wait(spin_lock *lock) {
    for (int i = 1; atomic_load_explicit(&lock->is_held, memory_order_relaxed); i++) {
        if (i % PAUSES_BEFORE_YIELD == 0)
            sched_yield();
        else
            cpu_pause();
    }
}
