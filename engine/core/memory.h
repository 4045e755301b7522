/* memory.h: the one seam through which the engine gets memory; counted, cached and failable.
 *
 * Two doors. `memory_alloc` serves tensor data: 64-byte aligned blocks in size classes, kept for reuse when freed, large ones
 * from huge pages. `heap_alloc` serves small bookkeeping structs (malloc underneath; heap.c). Both count, and both can be made
 * to fail by `ag_memory_fail_after`, so that every error path can be walked by a test.
 *
 * memory_alloc's way when the system refuses or the limit is reached: give cached blocks back, ask the reclaim function
 * (the Lua collector) that this thread has set, try once more, then NULL. A failure made by ag_memory_fail_after is NULL at
 * once. The heap's way gives cached blocks back only: its callers are in the middle of changes.
 */
#ifndef ARGAND_CORE_MEMORY_H
#define ARGAND_CORE_MEMORY_H

#include "argand.h"

/* memory_alloc returns an uninitialised, 64-byte aligned block; NULL when out. Size 0 gives a valid block. */
void *memory_alloc(size_t size_bytes);
void memory_free(void *block, size_t size_bytes); /* the size that was asked for; NULL is accepted */
size_t memory_block_size(size_t size_bytes);      /* what an allocation of that size really takes */

void *heap_alloc(size_t size_bytes); /* uninitialised; NULL when out */
void *heap_alloc_zero(size_t size_bytes);
void *heap_realloc(void *block, size_t size_bytes); /* old block intact on failure */
void heap_free(void *block);                        /* NULL is accepted */
/* heap_take and heap_give are for small structs that come and go with every call: the thread keeps given blocks for its next
 * takes. Uninitialised; NULL when out. size_bytes is at least 1, and the same for both. */
void *heap_take(size_t size_bytes);
void heap_give(void *block, size_t size_bytes); /* NULL is accepted */
void heap_trim(void);                           /* gives this thread's kept blocks back */
int64_t heap_live_blocks(void);                 /* for leak checks */
int64_t heap_total_taken(void);                 /* attempts so far */

/* memory_must_fail counts one allocation and is true for the one that a test wants to fail; memory_is_failing while one
 * waits. */
bool memory_must_fail(void);
bool memory_is_failing(void);

#endif
