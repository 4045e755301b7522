/* pages.h: memory straight from the system. */
#ifndef ARGAND_PLATFORM_PAGES_H
#define ARGAND_PLATFORM_PAGES_H

#include <stddef.h>

/* pages_map returns size_bytes of zeroed memory, aligned to 2 MiB and advised for huge pages when it is that large; NULL when
 * out. pages_unmap takes the same size. */
void *pages_map(size_t size_bytes);
void pages_unmap(void *address, size_t size_bytes);

#endif
