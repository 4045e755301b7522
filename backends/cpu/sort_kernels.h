/* sort_kernels.h: raw sorting, top-k and unique of one contiguous row, with positions.
 *
 * Order: ascending puts NaN last, descending puts NaN first, as in PyTorch; -0 and +0 are equal, and so are all NaNs. Equal
 * elements keep the order of their positions in both directions. Elements come out with the bits they went in with.
 * f16 and bf16 are converted to f32 by the caller; bool is sorted as u8. Positions are 0-based.
 *
 * Nothing allocates: `scratch` is the caller's, 16-byte aligned, of the size that the function beside tells. Rows are
 * independent, so a caller runs them in parallel with one scratch a thread. A row is shorter than SORT_MAX_LEN.
 * A pending interrupt ends the functions early; the results are then of no use, and the caller reports it.
 */
#ifndef ARGAND_CPU_SORT_KERNELS_H
#define ARGAND_CPU_SORT_KERNELS_H

#include "core/dtype.h"

#define SORT_MAX_LEN ((int64_t)UINT32_MAX)

size_t sort_scratch_bytes(ag_dtype dtype, int64_t n);

/* sort_row sorts x: [n] into y: [n] and positions: [n], so that y[i] = x[positions[i]]. Either result may be NULL;
 * y must not overlap x. */
void sort_row(ag_dtype dtype, const void *x, int64_t n, bool descending, void *y, int64_t *positions, void *scratch);

size_t topk_scratch_bytes(ag_dtype dtype, int64_t n, int64_t k);

/* topk_row finds the k largest (or smallest) of x: [n], best first, into y: [k] and positions: [k]; of equal elements the one
 * with the lowest position comes first. 0 <= k <= n. Either result may be NULL. */
void topk_row(ag_dtype dtype, const void *x, int64_t n, int64_t k, bool largest, void *y, int64_t *positions, void *scratch);

/* unique_flat writes the distinct elements of x: [n], ascending, to values (room for n) and returns how many there are.
 * inverse: [n], place of x[i] in values; counts (room for n): how often each occurs; both may be NULL. A NaN equals nothing,
 * so every NaN is a value of its own, as in PyTorch. scratch: sort_scratch_bytes(dtype, n). */
int64_t unique_flat(ag_dtype dtype, const void *x, int64_t n, void *values, int64_t *inverse, int64_t *counts, void *scratch);

#endif
