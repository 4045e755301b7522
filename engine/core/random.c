/* random.c: generators hand out ranges of their counter stream. */
#include "core/random.h"

#include "platform/lock.h"

/* The default generator is shared by all threads; a reservation is one step under the lock. */
static ag_generator default_generator;
static spin_lock stream_lock;

ag_generator *random_default(void) { return &default_generator; }

void random_reserve(ag_generator *generator, uint64_t num_blocks, uint64_t *seed, uint64_t *offset) {
    if (!generator) generator = &default_generator;
    lock_acquire(&stream_lock);
    *seed = generator->seed;
    *offset = generator->offset;
    generator->offset += num_blocks;
    lock_release(&stream_lock);
}
