/* strided_walk.h: visiting the elements of several strided operands of one shape, tile by tile, in parallel.
 *
 * The caller fills dims and operands and calls walk_plan, which drops dims of size 1, orders the dims so that the last operand
 * (the one that is written) is walked in memory order, merges neighbours that are one dim for every operand, and cuts the two
 * innermost dims into tiles. Where an operand runs across the writing order (a transposed matrix), its own dense dim becomes
 * the rows and tiles are nearly square, so that a tile touches few cache lines; else a tile is a piece of one row, or several
 * short rows.
 */
#ifndef ARGAND_CPU_STRIDED_WALK_H
#define ARGAND_CPU_STRIDED_WALK_H

#include "argand.h"

#define WALK_MAX_OPERANDS 4

struct walk_operand {
    char *address;                /* of the first element; NULL = absent, its strides are 0 */
    int64_t strides[AG_MAX_NDIM]; /* in bytes; 0 repeats, negative runs backward */
    int64_t element_size;         /* bytes */
};

struct strided_walk {
    int ndim, num_operands;
    bool must_finish; /* whatever interrupts are pending */
    int64_t dims[AG_MAX_NDIM];
    struct walk_operand operands[WALK_MAX_OPERANDS];
    /* set by walk_plan; then ndim >= 2, rows are dim ndim - 2, columns dim ndim - 1 */
    int64_t tile_rows, tile_columns;
    int64_t row_tiles, column_tiles, num_tiles;
};

/* One tile: rows x columns elements, operand k from address[k] on with the walk's strides of the last two dims. */
struct walk_tile {
    int64_t rows, columns;
    char *address[WALK_MAX_OPERANDS];
};
typedef void (*walk_tile_fn)(void *context, const struct strided_walk *walk, const struct walk_tile *tile);

/* walk_plan: no dim may be 0. A tile holds at most max_elements (at least 256); square_side is the side of square tiles. */
void walk_plan(struct strided_walk *walk, int64_t max_elements, int64_t square_side);
/* walk_run calls tile_fn for every tile, over the pool when there are more than `grain` elements. */
void walk_run(const struct strided_walk *walk, walk_tile_fn tile_fn, void *context, int64_t grain);

static inline int64_t walk_row_stride(const struct strided_walk *walk, int operand) {
    return walk->operands[operand].strides[walk->ndim - 2];
}
static inline int64_t walk_column_stride(const struct strided_walk *walk, int operand) {
    return walk->operands[operand].strides[walk->ndim - 1];
}

/* A matrix of elements somewhere in memory; strides in bytes. */
struct strided_matrix {
    char *address;
    int64_t row_stride, column_stride;
};
/* matrix_copy copies rows x columns elements of element_size 1, 2, 4 or 8 bytes. */
void matrix_copy(int64_t element_size, int64_t rows, int64_t columns, struct strided_matrix source,
                 struct strided_matrix target);

#endif
