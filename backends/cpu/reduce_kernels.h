/* reduce_kernels.h: raw reductions of contiguous memory along one dim.
 *
 * The input is seen as x: [outer, n, inner], contiguous, and is reduced over n; the result is y: [outer, inner]. There are two
 * loops: `rows` for inner == 1 and `columns` for inner > 1. Both have the form of a pool task (context = struct reduce_task)
 * and take a range of units, so a caller can split the work over threads; one unit is finished by one call, so results do not
 * depend on the split. One long row is split with `partials` (fixed blocks, any split) followed by one `join` in block order,
 * which gives the same bits as `rows`.
 *
 * f16 and bf16 are converted to f32 by the caller; bool shares the u8 kernels. Integer sums and products wrap in 64
 * bits. */
#ifndef ARGAND_CPU_REDUCE_KERNELS_H
#define ARGAND_CPU_REDUCE_KERNELS_H

#include "core/dtype.h"

typedef enum reduce_op {
    REDUCE_SUM,         /* float: same dtype, int and bool: i64 */
    REDUCE_SUM_WIDE,    /* f32 f64 -> double: what a mean is made of */
    REDUCE_PROD,        /* as REDUCE_SUM */
    REDUCE_MAX,         /* same dtype; NaN wins; -Inf or the smallest integer for n = 0 */
    REDUCE_MIN,         /* same dtype; NaN wins; +Inf or the largest integer for n = 0 */
    REDUCE_ARGMAX,      /* i64, 0-based, first position; NaN counts as the extreme; n >= 1 */
    REDUCE_ARGMIN,      /* i64, likewise */
    REDUCE_SUM_SQUARES, /* float, same dtype */
    REDUCE_SUM_ABS,     /* float, same dtype */
    REDUCE_SUM_SQUARED_DEVIATIONS, /* float, same dtype: sum of (x - mean)^2 with task.mean */
    REDUCE_ANY,         /* u8 0 or 1: some x != 0 */
    REDUCE_ALL,         /* u8 0 or 1: every x != 0 */
    REDUCE_COUNT_NONZERO, /* i64 */
    REDUCE_LOGSUMEXP,   /* float, same dtype; -Inf for n = 0 */
    REDUCE_OP_COUNT
} reduce_op;

/* Everything a range of units needs. The caller owns all memory; y must not overlap x. */
struct reduce_task {
    const void *x;      /* [outer, n, inner] */
    void *y;            /* [outer, inner]; for `partials`: struct reduce_partial[reduce_block_count(n)] */
    const double *mean; /* [outer, inner]; read by REDUCE_SUM_SQUARED_DEVIATIONS only */
    int64_t n;
    int64_t inner;
};

/* What one block of a long row comes to; which members count depends on op and dtype. */
struct reduce_partial {
    double real;      /* float total, or exp sum of REDUCE_LOGSUMEXP */
    double max;       /* the block's maximum, REDUCE_LOGSUMEXP */
    int64_t integer;  /* int total */
    int64_t position; /* in the row, REDUCE_ARGMAX and REDUCE_ARGMIN */
};

#define REDUCE_COLUMN_UNIT 64     /* columns in a unit of `columns` */
#define REDUCE_BLOCK_LEN 65536    /* elements in a block of `partials` */

/* A unit of `columns` is (outer index, group of REDUCE_COLUMN_UNIT columns), flattened. */
static inline int64_t reduce_column_units(int64_t outer, int64_t inner) {
    return outer * ((inner + REDUCE_COLUMN_UNIT - 1) / REDUCE_COLUMN_UNIT);
}

static inline int64_t reduce_block_count(int64_t n) { return (n + REDUCE_BLOCK_LEN - 1) / REDUCE_BLOCK_LEN; }

/* context is a struct reduce_task; begin and end count units. */
typedef void (*reduce_range_fn)(void *context, int64_t begin, int64_t end);

struct reduce_kernel {
    reduce_range_fn rows;     /* units: rows, [0, outer) */
    reduce_range_fn columns;  /* units: [0, reduce_column_units(outer, inner)) */
    reduce_range_fn partials; /* one row (outer = inner = 1); units: [0, reduce_block_count(n)) */
    /* join combines the partials of a row in order and writes the result to y[0]. */
    void (*join)(const struct reduce_partial *partials, int64_t count, void *y);
};

/* All members of an entry are NULL where the op is not defined for the dtype. */
struct reduce_kernels {
    struct reduce_kernel at[REDUCE_OP_COUNT][AG_DTYPE_COUNT];
};

extern const struct reduce_kernels reduce_kernels_baseline;
extern const struct reduce_kernels reduce_kernels_avx2;
extern const struct reduce_kernels reduce_kernels_avx512;

#endif
