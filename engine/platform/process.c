/* process.c: the number of this process, kept until it is forked. */
#include "platform/process.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

static _Atomic pid_t known; /* 0 = not yet, or this is a new child */

static void forget(void) { atomic_store_explicit(&known, 0, memory_order_relaxed); }

/* Without memory for the handler nothing may be kept. */
static bool has_handler;
static void watch_forks(void) { has_handler = pthread_atfork(NULL, NULL, forget) == 0; }

pid_t process_id(void) {
    pid_t id = atomic_load_explicit(&known, memory_order_relaxed);
    if (id != 0) return id;
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    id = getpid();
    /* Any thread stores the same number: a fork has no other threads in the child. */
    if (has_handler) atomic_store_explicit(&known, id, memory_order_relaxed);
    return id;
}
