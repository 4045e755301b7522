/* shm_copy.h: copying and reducing between memory that other processors have just written. */
#ifndef ARGAND_DIST_TRANSPORT_SHM_COPY_H
#define ARGAND_DIST_TRANSPORT_SHM_COPY_H

#include "dist/algorithm/collective.h"

/* shm_copy copies bytes that do not overlap. The C library's memcpy turns to `rep movsb` for sizes that are common here, which
 * is several times slower on lines that another processor owns. */
void shm_copy(void *restrict dst, const void *restrict src, size_t num_bytes);

/* shm_copy_out does the same past the caches. Two ranks that reduce 64 MiB each into one result: 8.0 ms with plain stores, 5.9 ms
 * so. A result of SHM_FAR_BYTES and more would not stay in a cache anyway; a shorter one is better there for whoever reads it. */
#define SHM_FAR_BYTES ((int64_t)8 << 20)
void shm_copy_out(void *restrict dst, const void *restrict src, size_t num_bytes);

/* shm_reduce: dst[i] = ((sources[0][i] op sources[1][i]) op …) / divisor for each dst of dsts[0 .. num_dsts), num_dsts >= 1,
 * all of [count] and apart from all sources. No sources give zeros. Halves are combined in f32 and rounded once. The last
 * num_far of the dsts are written past the caches; when there are any, sources are taken for runs that caches do not hold. */
void shm_reduce(reduce_op op, ag_dtype dtype, char *const *dsts, int num_dsts, int num_far, const char *const *sources,
                int num_sources, int divisor, int64_t count);

#endif
