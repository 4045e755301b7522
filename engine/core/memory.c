/* memory.c: the caching allocator for tensor data, and the functions of argand.h that steer it and the heap.
 *
 * Block sizes are classes, four a doubling (64, 128, 192, 256, 320, 384, 448, 512, 640 ... bytes), so at most a quarter of a
 * block is unused. A freed block goes on its class's list and serves the next allocation of the class. Blocks come from
 * aligned_alloc, those of 2 MiB and more from page mappings; system calls are made outside the lock.
 *
 * Invariants under the lock: cached_bytes = sum over classes of size x listed blocks; live_bytes + cached_bytes <= limit
 * whenever a fresh block is taken; cached_bytes <= max(CACHE_BYTES, live_bytes) after every free.
 */
#include "core/memory.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "platform/lock.h"
#include "platform/pages.h"
#include "platform/sanitizer.h"

#define BLOCK_ALIGNMENT 64
#define MIN_LOG2        8  /* up to 256 bytes the classes are the multiples of 64 */
#define MAX_LOG2        47 /* larger requests are refused */
#define NUM_CLASSES     (4 + (MAX_LOG2 - MIN_LOG2) * 4)
#define MAPPED_BYTES    ((size_t)2 << 20)
#define CACHE_BYTES     ((int64_t)1 << 30)

/* A cached block holds the link to the next one in its first bytes; under AddressSanitizer the rest is poisoned (the leak
 * checker does not follow links through poisoned memory). */
typedef struct cached_block {
    struct cached_block *next;
} cached_block;

typedef struct size_class {
    cached_block *first;
    int64_t last_use; /* num_allocations when a block was last taken: the class unused longest is given back first */
} size_class;

/* Numbers are written by the lock's holder only, and read by anybody. */
static struct {
    spin_lock lock;
    size_class classes[NUM_CLASSES];
    _Atomic int64_t live_bytes;
    _Atomic int64_t peak_bytes;
    _Atomic int64_t cached_bytes;
    _Atomic int64_t num_allocations;
    _Atomic int64_t limit_bytes; /* INT64_MAX = none */
} cache = {.limit_bytes = INT64_MAX};

static atomic_bool is_failure_armed;
static _Atomic int64_t failure_countdown, failure_base; /* base: allocations made before ag_memory_fail_after */

/* The collector belongs to the thread that named it: another thread's failure must not run it. */
static _Thread_local struct {
    void (*fn)(void *context);
    void *context;
    bool is_running;
} reclaim;

/* ---- size classes ---- */

static int class_of(size_t size_bytes) {
    if (size_bytes <= 256) return size_bytes == 0 ? 0 : (int)((size_bytes - 1) / 64);
    size_t last = size_bytes - 1;
    int log2 = 63 - __builtin_clzll(last);
    if (log2 >= MAX_LOG2) return -1;
    return 4 + (log2 - MIN_LOG2) * 4 + (int)(last >> (log2 - 2)) - 4;
}

static size_t class_size(int class) {
    if (class < 4) return ((size_t) class + 1) * 64;
    int log2 = MIN_LOG2 + (class - 4) / 4;
    return ((size_t)(class % 4) + 5) << (log2 - 2);
}

size_t memory_block_size(size_t size_bytes) {
    int class = class_of(size_bytes);
    return class < 0 ? size_bytes : class_size(class);
}

static void *system_alloc(size_t size_bytes) {
    return size_bytes >= MAPPED_BYTES ? pages_map(size_bytes) : aligned_alloc(BLOCK_ALIGNMENT, size_bytes);
}

static void system_free(void *block, size_t size_bytes) {
    if (size_bytes >= MAPPED_BYTES)
        pages_unmap(block, size_bytes);
    else
        free(block);
}

/* ---- under the lock ---- */

static int64_t get(_Atomic int64_t *number) { return atomic_load_explicit(number, memory_order_relaxed); }

/* add needs no read-modify-write, since writers hold the lock. */
static int64_t add(_Atomic int64_t *number, int64_t amount) {
    int64_t sum = get(number) + amount;
    atomic_store_explicit(number, sum, memory_order_relaxed);
    return sum;
}

/* note_peak is called once a block is really there. */
static void note_peak(void) {
    int64_t live = get(&cache.live_bytes);
    if (live > get(&cache.peak_bytes)) atomic_store_explicit(&cache.peak_bytes, live, memory_order_relaxed);
}

static void push_block(int class, size_t size, void *block) {
    cached_block *entry = block;
    entry->next = cache.classes[class].first;
    cache.classes[class].first = entry;
    sanitizer_poison(entry + 1, size - sizeof *entry);
    add(&cache.cached_bytes, (int64_t)size);
}

static void *pop_block(int class, size_t size) {
    cached_block *entry = cache.classes[class].first;
    if (!entry) return NULL;
    sanitizer_unpoison(entry, size);
    cache.classes[class].first = entry->next;
    add(&cache.cached_bytes, -(int64_t)size);
    return entry;
}

/* ---- giving back ---- */

/* A chain of blocks of one class, cut out under the lock and given back outside. */
typedef struct chain {
    cached_block *first;
    size_t block_bytes;
} chain;

static void chain_free(chain blocks) {
    while (blocks.first) {
        cached_block *next = blocks.first->next;
        system_free(blocks.first, blocks.block_bytes);
        blocks.first = next;
    }
}

static int oldest_class(void) {
    int oldest = -1;
    for (int i = 0; i < NUM_CLASSES; i++)
        if (cache.classes[i].first && (oldest < 0 || cache.classes[i].last_use < cache.classes[oldest].last_use)) oldest = i;
    return oldest;
}

/* cut_excess takes up to excess bytes, rounded up to a block, out of the class unused longest. */
static chain cut_excess(int64_t excess) {
    chain blocks = {NULL, 0};
    int class = oldest_class();
    if (class < 0) return blocks;
    blocks.block_bytes = class_size(class);
    while (excess > 0) {
        cached_block *entry = pop_block(class, blocks.block_bytes);
        if (!entry) break;
        entry->next = blocks.first;
        blocks.first = entry;
        excess -= (int64_t)blocks.block_bytes;
    }
    return blocks;
}

/* shrink_cache gives cached blocks back until at most `target` bytes stay. */
static void shrink_cache(int64_t target) {
    for (;;) {
        lock_acquire(&cache.lock);
        int64_t excess = get(&cache.cached_bytes) - target;
        chain blocks = excess > 0 ? cut_excess(excess) : (chain){NULL, 0};
        lock_release(&cache.lock);
        if (!blocks.first) return;
        chain_free(blocks);
    }
}

/* ---- failing on purpose ---- */

static int64_t total_allocations(void) { return get(&cache.num_allocations) + heap_total_taken(); }

bool memory_is_failing(void) { return atomic_load_explicit(&is_failure_armed, memory_order_relaxed); }

bool memory_must_fail(void) {
    if (__builtin_expect(!memory_is_failing(), 1)) return false;
    if (atomic_fetch_sub_explicit(&failure_countdown, 1, memory_order_relaxed) != 1) return false;
    atomic_store_explicit(&is_failure_armed, false, memory_order_relaxed);
    return true;
}

int64_t ag_memory_fail_after(int64_t n) {
    atomic_store_explicit(&is_failure_armed, false, memory_order_relaxed);
    atomic_store_explicit(&failure_countdown, n, memory_order_relaxed);
    int64_t total = total_allocations();
    int64_t count = total - atomic_exchange_explicit(&failure_base, total, memory_order_relaxed);
    atomic_store_explicit(&is_failure_armed, n >= 1, memory_order_relaxed);
    return count;
}

/* ---- memory_alloc and memory_free ---- */

/* take_block serves from the cache, else with a fresh block, making room under the limit by giving cached blocks back. */
static void *take_block(int class, size_t size) {
    int64_t bytes = (int64_t)size;
    for (;;) {
        lock_acquire(&cache.lock);
        int64_t limit = get(&cache.limit_bytes), live = get(&cache.live_bytes);
        if (bytes > limit - live) {
            lock_release(&cache.lock);
            return NULL;
        }
        void *block = pop_block(class, size);
        bool has_room = block || bytes <= limit - live - get(&cache.cached_bytes);
        if (has_room) add(&cache.live_bytes, bytes); /* reserved before the system is asked, so that two threads cannot both pass the limit */
        if (block) note_peak();
        lock_release(&cache.lock);
        if (block) return block;
        if (!has_room) {
            shrink_cache(limit - live - bytes);
            continue;
        }
        block = system_alloc(size);
        lock_acquire(&cache.lock);
        if (block) note_peak();
        else add(&cache.live_bytes, -bytes);
        lock_release(&cache.lock);
        return block;
    }
}

static bool run_reclaim(void) {
    if (!reclaim.fn || reclaim.is_running) return false;
    reclaim.is_running = true;
    reclaim.fn(reclaim.context);
    reclaim.is_running = false;
    return true;
}

static __attribute__((noinline)) void *alloc_slowly(int class, size_t size) {
    void *block = take_block(class, size);
    if (block) return block;
    ag_memory_trim();
    block = take_block(class, size);
    if (block || !run_reclaim()) return block;
    block = take_block(class, size);
    if (block) return block;
    ag_memory_trim(); /* what was reclaimed may be cached in other sizes */
    return take_block(class, size);
}

void *memory_alloc(size_t size_bytes) {
    int class = class_of(size_bytes);
    size_t size = class < 0 ? 0 : class_size(class);
    bool is_failing = class < 0 || memory_must_fail();

    lock_acquire(&cache.lock);
    int64_t number = add(&cache.num_allocations, 1);
    void *block = NULL;
    if (!is_failing) {
        cache.classes[class].last_use = number;
        if ((int64_t)size <= get(&cache.limit_bytes) - get(&cache.live_bytes)) block = pop_block(class, size);
        if (block) {
            add(&cache.live_bytes, (int64_t)size);
            note_peak();
        }
    }
    lock_release(&cache.lock);
    if (block || is_failing) return block;
    return alloc_slowly(class, size);
}

void memory_free(void *block, size_t size_bytes) {
    if (!block) return;
    int class = class_of(size_bytes);
    size_t size = class_size(class);
    lock_acquire(&cache.lock);
    int64_t live = add(&cache.live_bytes, -(int64_t)size);
    push_block(class, size, block);
    int64_t allowed = live > CACHE_BYTES ? live : CACHE_BYTES;
    bool is_over = get(&cache.cached_bytes) > allowed;
    lock_release(&cache.lock);
    if (__builtin_expect(is_over, 0)) shrink_cache(allowed);
}

/* ---- argand.h ---- */

void ag_memory(ag_memory_info *out) {
    int64_t limit = get(&cache.limit_bytes);
    *out = (ag_memory_info){
        .live_bytes = get(&cache.live_bytes),
        .peak_bytes = get(&cache.peak_bytes),
        .cached_bytes = get(&cache.cached_bytes),
        .limit_bytes = limit == INT64_MAX ? 0 : limit,
        .num_allocations = get(&cache.num_allocations),
        .heap_blocks = heap_live_blocks(),
    };
}

void ag_memory_reset_peak(void) {
    lock_acquire(&cache.lock);
    atomic_store_explicit(&cache.peak_bytes, get(&cache.live_bytes), memory_order_relaxed);
    lock_release(&cache.lock);
}

void ag_memory_trim(void) {
    shrink_cache(0);
    heap_trim();
}

void ag_memory_set_limit(int64_t bytes) {
    int64_t limit = bytes > 0 ? bytes : INT64_MAX;
    lock_acquire(&cache.lock);
    atomic_store_explicit(&cache.limit_bytes, limit, memory_order_relaxed);
    int64_t room = limit - get(&cache.live_bytes);
    lock_release(&cache.lock);
    shrink_cache(room > 0 ? room : 0);
}

void ag_memory_set_reclaim(void (*fn)(void *context), void *context) {
    reclaim.fn = fn;
    reclaim.context = context;
}
