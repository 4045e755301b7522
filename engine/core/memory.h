/* memory.h: the one seam through which the engine gets memory; counted, cached and failable.
 *
 * Two doors. `memory_alloc` serves tensor data: 64-byte aligned blocks in size classes, kept for reuse when freed, large ones
 * from huge pages. `heap_alloc` serves small bookkeeping structs (malloc underneath). Both count, and both can be made to fail
 * by `ag_memory_fail_after`, so that every error path can be walked by a test.
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
int64_t heap_live_blocks(void);                     /* for leak checks */

#endif
