/* heap.c: small bookkeeping structs. malloc underneath, counted, and failable by ag_memory_fail_after.
 *
 * Structs that come and go with every call (tensors, storages, nodes) use heap_take and heap_give: each thread keeps the blocks
 * it was given in lists by size and hands them out again without a lock. A collector frees them by the thousand at a time,
 * which is what malloc's own lists are too short for. A thread's lists go back to malloc when it ends.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <threads.h>

#include "core/memory.h"
#include "platform/hot_thread_local.h"
#include "platform/lock.h"
#include "platform/sanitizer.h"

#define UNIT_BYTES 32
#define NUM_LISTS  16 /* blocks of up to 512 bytes */
#define LIST_BYTES ((int)4 << 20)

typedef struct listed_block {
    struct listed_block *next;
} listed_block;

/* Counts are written by their thread only, and read by anybody. */
typedef struct thread_heap {
    _Atomic int64_t taken, given_back; /* taken counts attempts: every allocation a test can fail is one number further */
    listed_block *lists[NUM_LISTS];
    int list_bytes[NUM_LISTS];
    struct thread_heap *next;
    bool is_known;
} thread_heap;

static HOT_THREAD_LOCAL thread_heap own_heap;

/* The heaps of all threads, and the counts of those that have ended. */
static struct {
    spin_lock lock;
    thread_heap *first;
    int64_t ended_taken, ended_given_back;
} heaps;
static once_flag is_prepared = ONCE_FLAG_INIT;
static tss_t thread_end;

static int64_t get(_Atomic int64_t *number) { return atomic_load_explicit(number, memory_order_relaxed); }
static void count(_Atomic int64_t *number) { atomic_store_explicit(number, get(number) + 1, memory_order_relaxed); }

static void empty_lists(thread_heap *h) {
    for (int i = 0; i < NUM_LISTS; i++) {
        while (h->lists[i]) {
            listed_block *block = h->lists[i];
            h->lists[i] = block->next;
            free(block);
        }
        h->list_bytes[i] = 0;
    }
}

static void leave(void *context) {
    thread_heap *h = context;
    empty_lists(h);
    lock_acquire(&heaps.lock);
    thread_heap **at = &heaps.first;
    while (*at != h) at = &(*at)->next;
    *at = h->next;
    heaps.ended_taken += get(&h->taken);
    heaps.ended_given_back += get(&h->given_back);
    lock_release(&heaps.lock);
    *h = (thread_heap){0};
}

static void prepare(void) { tss_create(&thread_end, leave); }

static __attribute__((noinline)) void join(thread_heap *h) {
    call_once(&is_prepared, prepare);
    h->is_known = true;
    tss_set(thread_end, h);
    lock_acquire(&heaps.lock);
    h->next = heaps.first;
    heaps.first = h;
    lock_release(&heaps.lock);
}

static inline thread_heap *heap_of_thread(void) {
    thread_heap *h = &own_heap;
    if (__builtin_expect(!h->is_known, 0)) join(h);
    return h;
}

/* ---- structs that come and go ---- */

void *heap_take(size_t size_bytes) {
    size_t which = (size_bytes - 1) / UNIT_BYTES;
    if (sanitizer_watches_heap || which >= NUM_LISTS) return heap_alloc(size_bytes);
    thread_heap *h = heap_of_thread();
    listed_block *block = h->lists[which];
    if (!block || memory_is_failing()) return heap_alloc((which + 1) * UNIT_BYTES);
    count(&h->taken);
    h->lists[which] = block->next;
    h->list_bytes[which] -= (int)(which + 1) * UNIT_BYTES;
    return block;
}

void heap_give(void *block, size_t size_bytes) {
    size_t which = (size_bytes - 1) / UNIT_BYTES;
    if (!block || sanitizer_watches_heap || which >= NUM_LISTS) {
        heap_free(block);
        return;
    }
    thread_heap *h = heap_of_thread();
    if (h->list_bytes[which] > LIST_BYTES) {
        heap_free(block);
        return;
    }
    count(&h->given_back);
    listed_block *entry = block;
    entry->next = h->lists[which];
    h->lists[which] = entry;
    h->list_bytes[which] += (int)(which + 1) * UNIT_BYTES;
}

void heap_trim(void) { empty_lists(heap_of_thread()); }

/* ---- other structs ---- */

/* No collector here: small structs are allocated in the middle of changes that its finalizers must not see. */
static void *try_again(void *old, size_t size_bytes) {
    ag_memory_trim();
    return realloc(old, size_bytes);
}

void *heap_alloc(size_t size_bytes) {
    thread_heap *h = heap_of_thread();
    size_t size = size_bytes ? size_bytes : 1;
    count(&h->taken);
    void *block = NULL;
    if (!memory_must_fail()) {
        block = malloc(size);
        if (!block) block = try_again(NULL, size);
    }
    if (!block) count(&h->given_back);
    return block;
}

void *heap_alloc_zero(size_t size_bytes) {
    void *block = heap_alloc(size_bytes);
    if (block) memset(block, 0, size_bytes);
    return block;
}

void *heap_realloc(void *block, size_t size_bytes) {
    if (!block) return heap_alloc(size_bytes);
    thread_heap *h = heap_of_thread();
    count(&h->taken); /* one taken and one given back, whether it succeeds or not */
    count(&h->given_back);
    if (memory_must_fail()) return NULL;
    void *moved = realloc(block, size_bytes ? size_bytes : 1);
    return moved ? moved : try_again(block, size_bytes ? size_bytes : 1);
}

void heap_free(void *block) {
    if (!block) return;
    count(&heap_of_thread()->given_back);
    free(block);
}

/* ---- counts ---- */

static void sum_counts(int64_t *taken, int64_t *given_back) {
    lock_acquire(&heaps.lock);
    *taken = heaps.ended_taken;
    *given_back = heaps.ended_given_back;
    for (thread_heap *h = heaps.first; h; h = h->next) {
        *taken += get(&h->taken);
        *given_back += get(&h->given_back);
    }
    lock_release(&heaps.lock);
}

int64_t heap_total_taken(void) {
    int64_t taken, given_back;
    sum_counts(&taken, &given_back);
    return taken;
}

int64_t heap_live_blocks(void) {
    int64_t taken, given_back;
    sum_counts(&taken, &given_back);
    return taken - given_back;
}
