/* pool.h: the engine's one thread pool.
 *
 * The caller takes part and can finish every chunk alone: chunks are claimed off an atomic counter, so a worker that the
 * system does not schedule costs time but never blocks. Workers spin for a bounded time, then sleep on a futex, and are kept
 * off the caller's processor. Calls made from inside a task run inline. One caller at a time; a second thread's call runs
 * inline. Signals are blocked in workers. After fork the child starts its own workers; forking inside a task is not
 * supported. */
#ifndef ARGAND_PLATFORM_POOL_H
#define ARGAND_PLATFORM_POOL_H

#include <stdbool.h>
#include <stdint.h>

/* A task handles indices [begin, end). It may not fail; it may stop early when an interrupt is pending. */
typedef void (*pool_task)(void *context, int64_t begin, int64_t end);

/* pool_run splits [0, num_items) into chunks of at least `grain` items whose bounds depend on num_items and grain only, never
 * on the number of threads, and returns when all are done. Every begin is a multiple of grain; the last chunk takes the
 * remainder too, so with fewer than 2 * grain items the task is called once, directly. Inline calls use the same bounds. */
void pool_run(pool_task task, void *context, int64_t num_items, int64_t grain);
bool pool_set_num_threads(int count); /* 1..256; false inside a task or when threads cannot be made (the old number stays) */
int pool_num_threads(void);           /* first use: ARGAND_THREADS, else the processors this process may use */
void pool_shutdown(void);             /* joins the workers; the next pool_run starts them again */

#endif
