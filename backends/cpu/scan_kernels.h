/* scan_kernels.h: raw cumulative sums, products and extremes of contiguous memory along one dim.
 *
 * x: [outer, n, inner], contiguous; y has the same shape, and y[o, i, j] = op of x[o, 0..i, j]. Kernels have the form of a pool
 * task (context = struct scan_task) over units; a unit is one outer index and SCAN_COLUMN_UNIT neighbouring columns, finished
 * by one call, so results do not depend on the split. f16 and bf16 are converted to f32 by the caller; bool shares
 * u8. */
#ifndef ARGAND_CPU_SCAN_KERNELS_H
#define ARGAND_CPU_SCAN_KERNELS_H

#include "core/dtype.h"

typedef enum scan_op {
    SCAN_CUMSUM,  /* float: same dtype, added in double; int and bool: i64, wrapping */
    SCAN_CUMPROD, /* as SCAN_CUMSUM */
    SCAN_CUMMAX,  /* same dtype, and positions; a NaN stays to the end; of equal elements the last is taken, as in PyTorch */
    SCAN_CUMMIN,  /* likewise */
    SCAN_OP_COUNT
} scan_op;

struct scan_task {
    const void *x;      /* [outer, n, inner] */
    void *y;            /* [outer, n, inner], must not overlap x */
    int64_t *positions; /* [outer, n, inner], 0-based along n; written by SCAN_CUMMAX and SCAN_CUMMIN only */
    int64_t n;
    int64_t inner;
};

#define SCAN_COLUMN_UNIT 128

static inline int64_t scan_units(int64_t outer, int64_t inner) {
    return outer * ((inner + SCAN_COLUMN_UNIT - 1) / SCAN_COLUMN_UNIT);
}

/* context is a struct scan_task; begin and end lie in [0, scan_units(outer, inner)]. */
typedef void (*scan_fn)(void *context, int64_t begin, int64_t end);

/* NULL for AG_F16 and AG_BF16. */
extern const scan_fn scan_kernels[SCAN_OP_COUNT][AG_DTYPE_COUNT];

#endif
