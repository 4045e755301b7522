/* pages.h: memory straight from the system. */
#ifndef ARGAND_PLATFORM_PAGES_H
#define ARGAND_PLATFORM_PAGES_H

#include <stddef.h>

/* pages_map returns size_bytes of zeroed memory, aligned to 2 MiB and advised for huge pages when it is that large; NULL when
 * out. pages_unmap takes the same size. */
void *pages_map(size_t size_bytes);
void pages_unmap(void *address, size_t size_bytes);

/* pages_keep_freed has malloc keep freed blocks of up to 32 MiB, 128 MiB of them at most, where glibc would give them back to the
 * system at once and get fresh pages for the next ones. Who has set its thresholds in the environment knows better. */
void pages_keep_freed(void);

#endif
