/* lock.h: a spin lock for sections of a few dozen instructions that make no system call.
 *
 * Free, it costs one atomic exchange and one store. A waiter pauses a short while, then yields its processor, so a holder
 * that lost its own is not starved. Zero-initialised memory is an open lock.
 */
#ifndef ARGAND_PLATFORM_LOCK_H
#define ARGAND_PLATFORM_LOCK_H

#include <stdatomic.h>
#include <stdbool.h>

typedef struct spin_lock {
    atomic_bool is_held;
} spin_lock;

/* lock_wait returns when the lock looks open; the caller tries again. */
void lock_wait(spin_lock *lock);

static inline void lock_acquire(spin_lock *lock) {
    while (__builtin_expect(atomic_exchange_explicit(&lock->is_held, true, memory_order_acquire), 0)) lock_wait(lock);
}

static inline void lock_release(spin_lock *lock) { atomic_store_explicit(&lock->is_held, false, memory_order_release); }

/* cpu_pause tells the core that this is a spin loop. */
static inline void cpu_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

#endif
