/* reduce.h: combining two runs of elements. Addresses need not be aligned; dst may be either operand. */
#ifndef ARGAND_DIST_ALGORITHM_REDUCE_H
#define ARGAND_DIST_ALGORITHM_REDUCE_H

#include "dist/algorithm/collective.h"

/* reduce_elements: dst[i] = left[i] op right[i]    dst: [count] of accumulator_dtype(dtype); operands of that or of `dtype`.
 * Whole numbers wrap; NaN wins in min and max, and equal elements give the right one; mean adds. */
void reduce_elements(reduce_op op, ag_dtype dtype, void *dst, const void *left, ag_dtype left_dtype, const void *right,
                     ag_dtype right_dtype, int64_t count);
/* reduce_finish: dst[i] = src[i] / divisor, rounded to dtype; divisor 1 only converts. src: [count] of
 * accumulator_dtype(dtype). */
void reduce_finish(ag_dtype dtype, void *dst, const void *src, int divisor, int64_t count);
/* reduce_widen: dst[i] = src[i]    dst: [count] of accumulator_dtype(src_dtype), not overlapping a run of halves. */
void reduce_widen(void *dst, const void *src, ag_dtype src_dtype, int64_t count);

#endif
