/* gemm_skinny.h: products of one dtype with few rows or columns; gemm_micro.c includes it once per dtype, after gemm_real.h. */

/* C = activation(C + bias), C as it stands. */
static void NAME(finish)(const struct gemm_product *product)
{
    const REAL *bias = product->bias;
    bool relu = product->activation == GEMM_RELU;
    if (bias == NULL && !relu) return;
    for (int64_t i = 0; i < product->m; i++) {
        REAL *c = (REAL *)product->c + i * product->ldc;
        for (int64_t j = 0; j < product->n; j += LANES) {
            int64_t count = product->n - j;
            bool whole = count >= LANES;
            VECTOR x = whole ? (VECTOR)LOAD(c + j) : NAME(load_part)(c + j, count);
            if (bias != NULL) x += whole ? (VECTOR)LOAD(bias + j) : NAME(load_part)(bias + j, count);
            if (relu) x = NAME(relu)(x);
            if (whole) STORE(c + j, x);
            else NAME(store_part)(c + j, x, count);
        }
    }
}

/* Rows of B that one pass adds to a row of C, and columns that such a pass covers: STRIP x STREAM_COLUMNS of B stay in L1. */
#define STRIP 8
#define STREAM_COLUMNS (4096 / (int64_t)sizeof(REAL) / 2)

/* c[j] = (start ? c[j] : 0) + sum over p < depth of a[p * a_cs] * b[p * b_rs + j], j < columns; depth is a constant. */
static inline __attribute__((always_inline)) void NAME(stream_row)(const int depth, const REAL *a, int64_t a_cs, const REAL *b,
                                                                   int64_t b_rs, REAL *c, int64_t columns, bool start)
{
    VECTOR x[STRIP];
#pragma GCC unroll 8
    for (int p = 0; p < depth; p++) x[p] = NAME(splat)(a[p * a_cs]);
    int64_t j = 0;
    for (; j + LANES <= columns; j += LANES) {
        VECTOR sum = start ? (VECTOR)LOAD(c + j) : (VECTOR){0};
#pragma GCC unroll 8
        for (int p = 0; p < depth; p++) sum = NAME(fma)(x[p], LOAD(b + p * b_rs + j), sum);
        STORE(c + j, sum);
    }
    if (j < columns) {
        int64_t count = columns - j;
        VECTOR sum = start ? NAME(load_part)(c + j, count) : (VECTOR){0};
#pragma GCC unroll 8
        for (int p = 0; p < depth; p++) sum = NAME(fma)(x[p], NAME(load_part)(b + p * b_rs + j, count), sum);
        NAME(store_part)(c + j, sum, count);
    }
}

/* B is read in memory order, STRIP rows at a time; every row of A uses the strip while it is in L1. */
static void NAME(stream)(const struct gemm_product *product)
{
    const REAL *a = product->a, *b = product->b;
    int64_t a_cs = product->a_cs, b_rs = product->b_rs;
    for (int64_t column = 0; column < product->n; column += STREAM_COLUMNS) {
        int64_t columns = smaller(product->n - column, STREAM_COLUMNS), depth;
        for (int64_t p = 0; p < product->k; p += depth) {
            if (interrupt_pending()) return;
            depth = p + STRIP <= product->k ? STRIP : 1;
            bool start = product->accumulate || p > 0;
            const REAL *strip = b + p * b_rs + column;
            for (int64_t i = 0; i < product->m; i++) {
                const REAL *x = a + i * product->a_rs + p * a_cs;
                REAL *c = (REAL *)product->c + i * product->ldc + column;
                if (depth == STRIP) NAME(stream_row)(STRIP, x, a_cs, strip, b_rs, c, columns, start);
                else NAME(stream_row)(1, x, a_cs, strip, b_rs, c, columns, start);
            }
        }
    }
    NAME(finish)(product);
}

/* c[i, j] = sum over p of a[i, p] * b[p, j] for rows x columns of C, both operands contiguous along p, lanes along p. */
static inline __attribute__((always_inline)) void NAME(dot_tile)(const int rows, const int columns,
                                                                 const struct gemm_product *product, int64_t row,
                                                                 int64_t column)
{
    const REAL *a = (const REAL *)product->a + row * product->a_rs, *b = (const REAL *)product->b + column * product->b_cs;
    REAL *c = (REAL *)product->c + row * product->ldc + column;
    const REAL *bias = product->bias;
    VECTOR sum[DOT_ROWS][DOT_COLUMNS];
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++) {
#pragma GCC unroll 4
        for (int j = 0; j < columns; j++) sum[i][j] = (VECTOR){0};
    }
    int64_t p = 0;
    for (; p + LANES <= product->k; p += LANES) {
        VECTOR y[DOT_COLUMNS];
#pragma GCC unroll 4
        for (int j = 0; j < columns; j++) y[j] = LOAD(b + j * product->b_cs + p);
#pragma GCC unroll 4
        for (int i = 0; i < rows; i++) {
            VECTOR x = LOAD(a + i * product->a_rs + p);
#pragma GCC unroll 4
            for (int j = 0; j < columns; j++) sum[i][j] = NAME(fma)(x, y[j], sum[i][j]);
        }
    }
    if (p < product->k) {
        int64_t count = product->k - p;
#pragma GCC unroll 4
        for (int i = 0; i < rows; i++) {
            VECTOR x = NAME(load_part)(a + i * product->a_rs + p, count);
#pragma GCC unroll 4
            for (int j = 0; j < columns; j++) {
                sum[i][j] = NAME(fma)(x, NAME(load_part)(b + j * product->b_cs + p, count), sum[i][j]);
            }
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++) {
#pragma GCC unroll 4
        for (int j = 0; j < columns; j++) {
            REAL value = NAME(sum_lanes)(sum[i][j]);
            if (product->accumulate) value += c[i * product->ldc + j];
            if (bias != NULL) value += bias[column + j];
            if (product->activation == GEMM_RELU && value < 0) value = 0;
            c[i * product->ldc + j] = value;
        }
    }
}

/* Columns [begin, end) of `rows` rows; columns that do not fill a tile go one by one. */
#define DOT_BAND(rows)                                                                                                   \
    static void NAME(dot_band_##rows)(const struct gemm_product *product, int64_t row, int64_t begin, int64_t end)       \
    {                                                                                                                    \
        int64_t j = begin;                                                                                               \
        for (; j + DOT_COLUMNS <= end; j += DOT_COLUMNS) NAME(dot_tile)(rows, DOT_COLUMNS, product, row, j);             \
        for (; j < end; j++) NAME(dot_tile)(rows, 1, product, row, j);                                                   \
    }
DOT_BAND(1)
#if DOT_ROWS == 4
DOT_BAND(4)
#define DOT_BAND_FULL(product, row, begin, end) NAME(dot_band_4)(product, row, begin, end)
#else
DOT_BAND(2)
#define DOT_BAND_FULL(product, row, begin, end) NAME(dot_band_2)(product, row, begin, end)
#endif

/* A block of B that fits the L2 cache is used by all rows before the next. A lane's sum runs over every LANES-th p whatever
 * tile it falls into, so an element does not depend on the split of C. */
static void NAME(dot)(const struct gemm_product *product)
{
    int64_t block = DOT_BLOCK_BYTES / (int64_t)sizeof(REAL) / product->k / DOT_COLUMNS * DOT_COLUMNS;
    if (block < DOT_COLUMNS) block = DOT_COLUMNS;
    for (int64_t begin = 0; begin < product->n; begin += block) {
        int64_t end = smaller(begin + block, product->n), i = 0;
        for (; i + DOT_ROWS <= product->m; i += DOT_ROWS) {
            if (interrupt_pending()) return;
            DOT_BAND_FULL(product, i, begin, end);
        }
        for (; i < product->m; i++) NAME(dot_band_1)(product, i, begin, end);
    }
}

#undef DOT_BAND
#undef DOT_BAND_FULL
#undef STRIP
#undef STREAM_COLUMNS
#undef LOAD
#undef STORE
