/* stream.h: stores that go past the caches, for runs that are larger than these and are not read soon. */
#ifndef ARGAND_PLATFORM_STREAM_H
#define ARGAND_PLATFORM_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* stream_copy copies bytes that do not overlap; stream_store does the same with a source that is in the cache. Nobody may be told
 * of them before stream_fence: a release does not order such stores. */
void stream_copy(void *restrict dst, const void *restrict src, size_t num_bytes);
void stream_store(void *restrict dst, const void *restrict src, size_t num_bytes);
/* stream_sum_f32: first[i] = (sources[0][i] + sources[1][i] + …) / divisor, and the same past the caches to `second` unless it
 * is NULL; to `first`, too, when streams_first. Returns how many of the first elements that was: whole lines only, and none where
 * first or second do not begin on a line. */
int64_t stream_sum_f32(void *restrict first, bool streams_first, void *restrict second, const char *const *sources,
                       int num_sources, int divisor, int64_t count);
void stream_fence(void);

#endif
