/* shape.h: sizes of a tensor, 0..8 dims of 64 bits, and the arithmetic on them. A 0-d shape has one element. */
#ifndef ARGAND_CORE_SHAPE_H
#define ARGAND_CORE_SHAPE_H

#include "argand.h"

typedef struct shape {
    int ndim;
    int64_t dims[AG_MAX_NDIM];
} shape;

int64_t shape_numel(const shape *s);
bool shape_equal(const shape *a, const shape *b);
void shape_contiguous_strides(const shape *s, int64_t *strides); /* in elements; row-major */
/* shape_check refuses negative sizes and products whose bytes overflow 63 bits. */
ag_status shape_check(const shape *s, size_t element_size, const char *op);
/* shape_broadcast computes the common shape of a and b: dims aligned at the end are equal or 1. False when they clash. */
bool shape_broadcast(const shape *a, const shape *b, shape *out);
/* shape_text writes "[2, 3]" and returns buffer. */
const char *shape_text(const shape *s, char *buffer, size_t len);
/* dim_resolve maps dim in -ndim..ndim-1 to 0..ndim-1; 0-d counts as 1-d. -1 on failure. */
int dim_resolve(int64_t dim, int ndim);

#endif
