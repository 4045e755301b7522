/* pages.c: anonymous mappings, aligned for huge pages.
 *
 * The first touch of a fresh 4-KiB page costs microseconds under virtualisation; one fault for 2 MiB is about ten times
 * cheaper a byte. The system hands huge pages out only for aligned ranges that ask for them.
 */
#include "platform/pages.h"

#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define HUGE_PAGE_BYTES ((size_t)2 << 20)

static size_t round_to_page(size_t size_bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (size_bytes + page - 1) / page * page;
}

static void *map_anonymous(size_t size_bytes) {
    void *address = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return address == MAP_FAILED ? NULL : address;
}

void *pages_map(size_t size_bytes) {
    if (size_bytes == 0 || size_bytes > SIZE_MAX / 2) return NULL;
    size_t size = round_to_page(size_bytes);
    if (size < HUGE_PAGE_BYTES) return map_anonymous(size);

    /* Map one huge page more than needed and cut off what lies before the aligned start and after the end. */
    char *start = map_anonymous(size + HUGE_PAGE_BYTES);
    if (!start) return NULL;
    size_t head = (HUGE_PAGE_BYTES - (uintptr_t)start % HUGE_PAGE_BYTES) % HUGE_PAGE_BYTES;
    if (head > 0) munmap(start, head);
    if (head < HUGE_PAGE_BYTES) munmap(start + head + size, HUGE_PAGE_BYTES - head);
#ifdef MADV_HUGEPAGE
    madvise(start + head, size, MADV_HUGEPAGE); /* advice: a kernel without huge pages may refuse it */
#endif
    return start + head;
}

void pages_unmap(void *address, size_t size_bytes) {
    if (address) munmap(address, round_to_page(size_bytes));
}

void pages_keep_freed(void) {
#ifdef __GLIBC__
    if (!getenv("MALLOC_MMAP_THRESHOLD_")) mallopt(M_MMAP_THRESHOLD, 32 << 20); /* the most that it takes */
    if (!getenv("MALLOC_TRIM_THRESHOLD_")) mallopt(M_TRIM_THRESHOLD, 128 << 20);
#endif
}
