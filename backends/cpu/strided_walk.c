/* strided_walk.c: order, merging and tiling of strided loops, and copies of small strided matrices. */
#include "cpu/strided_walk.h"

#include <string.h>

#include "platform/interrupt.h"
#include "platform/pool.h"

static int64_t magnitude(int64_t x) { return x < 0 ? -x : x; }

static void swap_dims(struct strided_walk *walk, int i, int j) {
    int64_t dim = walk->dims[i];
    walk->dims[i] = walk->dims[j];
    walk->dims[j] = dim;
    for (int k = 0; k < walk->num_operands; k++) {
        int64_t *strides = walk->operands[k].strides, stride = strides[i];
        strides[i] = strides[j];
        strides[j] = stride;
    }
}

static void copy_dim(struct strided_walk *walk, int to, int from) {
    walk->dims[to] = walk->dims[from];
    for (int k = 0; k < walk->num_operands; k++) walk->operands[k].strides[to] = walk->operands[k].strides[from];
}

static void drop_unit_dims(struct strided_walk *walk) {
    int kept = 0;
    for (int i = 0; i < walk->ndim; i++)
        if (walk->dims[i] != 1) copy_dim(walk, kept++, i);
    walk->ndim = kept;
}

/* Dim i belongs inside dim j when the written operand is denser along i; where that does not tell, the
 * operands before it do. */
static bool is_denser(const struct strided_walk *walk, int i, int j) {
    for (int k = walk->num_operands - 1; k >= 0; k--) {
        int64_t a = magnitude(walk->operands[k].strides[i]), b = magnitude(walk->operands[k].strides[j]);
        if (a != b) return a < b;
    }
    return false;
}

static void order_dims(struct strided_walk *walk) {
    for (int i = 1; i < walk->ndim; i++)
        for (int j = i; j > 0 && is_denser(walk, j - 1, j); j--) swap_dims(walk, j - 1, j);
}

static bool dims_are_one(const struct strided_walk *walk, int outer, int inner) {
    for (int k = 0; k < walk->num_operands; k++) {
        const int64_t *strides = walk->operands[k].strides;
        if (strides[outer] != strides[inner] * walk->dims[inner]) return false;
    }
    return true;
}

static void merge_dims(struct strided_walk *walk) {
    int last = 0; /* of the merged dims */
    for (int i = 1; i < walk->ndim; i++) {
        if (dims_are_one(walk, last, i)) {
            int64_t size = walk->dims[last] * walk->dims[i];
            copy_dim(walk, last, i);
            walk->dims[last] = size;
        } else {
            copy_dim(walk, ++last, i);
        }
    }
    if (walk->ndim > 0) walk->ndim = last + 1;
}

static void insert_unit_dim(struct strided_walk *walk) {
    for (int i = walk->ndim++; i > 0; i--) copy_dim(walk, i, i - 1);
    walk->dims[0] = 1;
    for (int k = 0; k < walk->num_operands; k++) walk->operands[k].strides[0] = 0;
}

/* The dim that some operand is dense along while its columns lie apart, or -1. */
static int crossing_dim(const struct strided_walk *walk) {
    int column = walk->ndim - 1;
    for (int k = 0; k < walk->num_operands; k++) {
        const int64_t *strides = walk->operands[k].strides;
        if (magnitude(strides[column]) <= walk->operands[k].element_size) continue;
        int best = -1;
        for (int i = 0; i < column; i++)
            if (strides[i] != 0 && magnitude(strides[i]) < magnitude(strides[column]) &&
                (best < 0 || magnitude(strides[i]) < magnitude(strides[best])))
                best = i;
        if (best >= 0 && walk->dims[best] >= 4 && walk->dims[column] >= 4) return best;
    }
    return -1;
}

static int longest_outer_dim(const struct strided_walk *walk) {
    int best = walk->ndim - 2;
    for (int i = best - 1; i >= 0; i--)
        if (walk->dims[i] > walk->dims[best]) best = i;
    return best;
}

static int64_t min_int(int64_t a, int64_t b) { return a < b ? a : b; }

void walk_plan(struct strided_walk *walk, int64_t max_elements, int64_t square_side) {
    drop_unit_dims(walk);
    order_dims(walk);
    merge_dims(walk);
    while (walk->ndim < 2) insert_unit_dim(walk);
    int row = walk->ndim - 2, column = walk->ndim - 1;
    int crossing = crossing_dim(walk);
    if (crossing >= 0) {
        swap_dims(walk, crossing, row);
        walk->tile_columns = min_int(walk->dims[column], square_side);
    } else {
        /* Two short innermost dims would make tiny tiles. */
        if (walk->dims[column] * walk->dims[row] < max_elements / 2) swap_dims(walk, longest_outer_dim(walk), row);
        walk->tile_columns = min_int(walk->dims[column], max_elements);
    }
    int64_t rows = max_elements / walk->tile_columns;
    if (walk->tile_columns < walk->dims[column] && crossing < 0) rows = 1;
    walk->tile_rows = min_int(walk->dims[row], rows);
    walk->row_tiles = (walk->dims[row] + walk->tile_rows - 1) / walk->tile_rows;
    walk->column_tiles = (walk->dims[column] + walk->tile_columns - 1) / walk->tile_columns;
    walk->num_tiles = walk->row_tiles * walk->column_tiles;
    for (int i = 0; i < row; i++) walk->num_tiles *= walk->dims[i];
}

struct walk_task {
    const struct strided_walk *walk;
    walk_tile_fn tile_fn;
    void *context;
};

/* The odometer: where the next tile is. */
struct position {
    int64_t outer[AG_MAX_NDIM], row_tile, column_tile;
    char *address[WALK_MAX_OPERANDS]; /* of the outer position */
};

static void position_init(struct position *at, const struct strided_walk *walk, int64_t tile) {
    at->column_tile = tile % walk->column_tiles;
    tile /= walk->column_tiles;
    at->row_tile = tile % walk->row_tiles;
    tile /= walk->row_tiles;
    for (int k = 0; k < walk->num_operands; k++) at->address[k] = walk->operands[k].address;
    for (int i = walk->ndim - 3; i >= 0; i--) {
        at->outer[i] = tile % walk->dims[i];
        tile /= walk->dims[i];
        for (int k = 0; k < walk->num_operands; k++)
            if (at->address[k]) at->address[k] += at->outer[i] * walk->operands[k].strides[i];
    }
}

static void position_next(struct position *at, const struct strided_walk *walk) {
    if (++at->column_tile < walk->column_tiles) return;
    at->column_tile = 0;
    if (++at->row_tile < walk->row_tiles) return;
    at->row_tile = 0;
    for (int i = walk->ndim - 3; i >= 0; i--) {
        bool carries = ++at->outer[i] == walk->dims[i];
        int64_t steps = carries ? 1 - walk->dims[i] : 1;
        for (int k = 0; k < walk->num_operands; k++)
            if (at->address[k]) at->address[k] += steps * walk->operands[k].strides[i];
        if (!carries) return;
        at->outer[i] = 0;
    }
}

static void walk_tiles(void *context, int64_t begin, int64_t end) {
    const struct walk_task *task = context;
    const struct strided_walk *walk = task->walk;
    int row_dim = walk->ndim - 2, column_dim = walk->ndim - 1;
    struct position at;
    position_init(&at, walk, begin);
    for (int64_t i = begin; i < end; i++, position_next(&at, walk)) {
        if ((i == begin || (i & 127) == 127) && !walk->must_finish && interrupt_pending()) return;
        int64_t row = at.row_tile * walk->tile_rows, column = at.column_tile * walk->tile_columns;
        struct walk_tile tile = {.rows = min_int(walk->tile_rows, walk->dims[row_dim] - row),
                                 .columns = min_int(walk->tile_columns, walk->dims[column_dim] - column)};
        for (int k = 0; k < walk->num_operands; k++) {
            const int64_t *strides = walk->operands[k].strides;
            if (at.address[k]) tile.address[k] = at.address[k] + row * strides[row_dim] + column * strides[column_dim];
        }
        task->tile_fn(task->context, walk, &tile);
    }
}

void walk_run(const struct strided_walk *walk, walk_tile_fn tile_fn, void *context, int64_t grain) {
    struct walk_task task = {walk, tile_fn, context};
    int64_t tile_elements = walk->tile_rows * walk->tile_columns;
    pool_run(walk_tiles, &task, walk->num_tiles, (grain + tile_elements - 1) / tile_elements);
}

/* ---- small matrices ---- */

/* 16-byte vectors, which every 64-bit processor has; loads and stores at any address of an element. */
typedef uint32_t quad __attribute__((vector_size(16), aligned(4)));
typedef uint64_t pair __attribute__((vector_size(16), aligned(8)));

/* target[j, i] = source[i, j] for a block of 4 x 4; strides in bytes. */
static void transpose_block_32(const char *source, int64_t source_stride, char *target, int64_t target_stride) {
    quad a = *(const quad *)(const void *)source, b = *(const quad *)(const void *)(source + source_stride);
    quad c = *(const quad *)(const void *)(source + 2 * source_stride);
    quad d = *(const quad *)(const void *)(source + 3 * source_stride);
    quad ab_low = __builtin_shuffle(a, b, (quad){0, 4, 1, 5}), ab_high = __builtin_shuffle(a, b, (quad){2, 6, 3, 7});
    quad cd_low = __builtin_shuffle(c, d, (quad){0, 4, 1, 5}), cd_high = __builtin_shuffle(c, d, (quad){2, 6, 3, 7});
    *(quad *)(void *)target = __builtin_shuffle(ab_low, cd_low, (quad){0, 1, 4, 5});
    *(quad *)(void *)(target + target_stride) = __builtin_shuffle(ab_low, cd_low, (quad){2, 3, 6, 7});
    *(quad *)(void *)(target + 2 * target_stride) = __builtin_shuffle(ab_high, cd_high, (quad){0, 1, 4, 5});
    *(quad *)(void *)(target + 3 * target_stride) = __builtin_shuffle(ab_high, cd_high, (quad){2, 3, 6, 7});
}

/* Likewise 2 x 2. */
static void transpose_block_64(const char *source, int64_t source_stride, char *target, int64_t target_stride) {
    pair a = *(const pair *)(const void *)source, b = *(const pair *)(const void *)(source + source_stride);
    *(pair *)(void *)target = __builtin_shuffle(a, b, (pair){0, 2});
    *(pair *)(void *)(target + target_stride) = __builtin_shuffle(a, b, (pair){1, 3});
}

/* The inner loop runs along the columns of the call; the caller puts the side that is dense in the source there. */
#define DEFINE_MATRIX_COPY(bits)                                                                                     \
    static void matrix_copy_##bits(int64_t rows, int64_t columns, struct strided_matrix source,                      \
                                   struct strided_matrix target) {                                                   \
        typedef uint##bits##_t element;                                                                              \
        int64_t from_step = source.column_stride / (int64_t)sizeof(element);                                         \
        int64_t to_step = target.column_stride / (int64_t)sizeof(element);                                           \
        for (int64_t i = 0; i < rows; i++) {                                                                         \
            const element *from = (const void *)(source.address + i * source.row_stride);                            \
            element *to = (void *)(target.address + i * target.row_stride);                                          \
            if (from_step == 1 && to_step == 1 && columns >= 16) {                                                   \
                memcpy(to, from, (size_t)columns * sizeof(element));                                                 \
            } else if (from_step == 1) {                                                                             \
                for (int64_t j = 0; j < columns; j++) to[j * to_step] = from[j];                                     \
            } else {                                                                                                 \
                for (int64_t j = 0; j < columns; j++) to[j * to_step] = from[j * from_step];                         \
            }                                                                                                        \
        }                                                                                                            \
    }
DEFINE_MATRIX_COPY(8)
DEFINE_MATRIX_COPY(16)
DEFINE_MATRIX_COPY(32)
DEFINE_MATRIX_COPY(64)

/* Copies whole blocks of a matrix that is dense along its columns to one that is dense along its rows; returns false when sizes
 * or strides do not fit. */
static bool matrix_transpose(int64_t element_size, int64_t rows, int64_t columns, struct strided_matrix source,
                             struct strided_matrix target) {
    int64_t side = 16 / element_size;
    if (element_size < 4 || source.column_stride != element_size || target.row_stride != element_size || rows % side != 0 ||
        columns % side != 0)
        return false;
    for (int64_t i = 0; i < rows; i += side)
        for (int64_t j = 0; j < columns; j += side) {
            const char *from = source.address + i * source.row_stride + j * element_size;
            char *to = target.address + j * target.column_stride + i * element_size;
            if (element_size == 4)
                transpose_block_32(from, source.row_stride, to, target.column_stride);
            else
                transpose_block_64(from, source.row_stride, to, target.column_stride);
        }
    return true;
}

void matrix_copy(int64_t element_size, int64_t rows, int64_t columns, struct strided_matrix source,
                 struct strided_matrix target) {
    if (rows > 1 && magnitude(source.row_stride) < magnitude(source.column_stride) && rows >= columns / 4) {
        int64_t count = rows;
        rows = columns;
        columns = count;
        source = (struct strided_matrix){source.address, source.column_stride, source.row_stride};
        target = (struct strided_matrix){target.address, target.column_stride, target.row_stride};
    }
    if (matrix_transpose(element_size, rows, columns, source, target)) return;
    switch (element_size) {
    case 1: matrix_copy_8(rows, columns, source, target); break;
    case 2: matrix_copy_16(rows, columns, source, target); break;
    case 4: matrix_copy_32(rows, columns, source, target); break;
    default: matrix_copy_64(rows, columns, source, target); break;
    }
}
