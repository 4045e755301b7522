/* gemm_real.h: the blocked product of one dtype; gemm_micro.c includes it once per dtype.
 *
 * Loop order, outside in: k by DEPTH, columns by the tile's width (pack one panel of B), rows by the tile's height. A is packed
 * beforehand when a workspace is given. No guard: it is meant to be included again with other macros.
 */

#define LOAD(address) (*(const VECTOR_UNALIGNED *)(address))
#define STORE(address, value) (*(VECTOR_UNALIGNED *)(address) = (value))

/* Where a tile's sums go. */
struct NAME(tile_output) {
    REAL *c;
    int64_t ldc;
    int64_t columns; /* valid ones, at most the tile's width */
    bool accumulate;
    bool relu;
    const REAL *bias; /* at the tile's first column, or NULL */
};

/* relu keeps NaN: only what compares below zero is cleared. */
static inline VECTOR NAME(relu)(VECTOR x)
{
    return (VECTOR)((VECTOR_INT)x & ~(VECTOR_INT)(x < (VECTOR){0}));
}

static inline __attribute__((always_inline)) void NAME(write_vector)(const struct NAME(tile_output) *out, REAL *c,
                                                                     int64_t column, VECTOR sum)
{
    int64_t count = out->columns - column;
    if (count >= LANES) {
        if (out->accumulate) sum += LOAD(c + column);
        if (out->bias != NULL) sum += LOAD(out->bias + column);
        if (out->relu) sum = NAME(relu)(sum);
        STORE(c + column, sum);
    } else if (count > 0) {
        if (out->accumulate) sum += NAME(load_part)(c + column, count);
        if (out->bias != NULL) sum += NAME(load_part)(out->bias + column, count);
        if (out->relu) sum = NAME(relu)(sum);
        NAME(store_part)(c + column, sum, count);
    }
}

/* C[rows, vectors * LANES] (+)= A[rows, k] B[k, vectors * LANES]. `rows` and `vectors` are constants at every call, so the
 * accumulators live in registers. Rows of A are reached from one pointer per four rows, so that addresses stay in registers. */
static inline __attribute__((always_inline)) void NAME(tile)(const int rows, const int vectors, int64_t k, const REAL *a,
                                                             int64_t a_rs, int64_t a_cs, const REAL *b, int64_t b_rs,
                                                             const struct NAME(tile_output) *out)
{
    VECTOR sum[TILE_ROWS][2];
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) sum[i][0] = sum[i][1] = (VECTOR){0};
    /* C is far away in a large product; it is fetched while the sums are made. */
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
        __builtin_prefetch(out->c + i * out->ldc, 1);
        if (vectors > 1) __builtin_prefetch(out->c + i * out->ldc + LANES, 1);
    }
    const REAL *a_group[4] = {a, a + 4 * a_rs, a + 8 * a_rs, a + 12 * a_rs};
    for (int64_t p = 0; p < k; p++) {
        VECTOR b0 = LOAD(b), b1 = vectors > 1 ? LOAD(b + LANES) : b0;
#pragma GCC unroll 16
        for (int i = 0; i < rows; i++) {
            VECTOR x = NAME(splat)(a_group[i / 4][(i % 4) * a_rs]);
            sum[i][0] = NAME(fma)(x, b0, sum[i][0]);
            if (vectors > 1) sum[i][1] = NAME(fma)(x, b1, sum[i][1]);
        }
        b += b_rs;
#pragma GCC unroll 4
        for (int group = 0; group < (rows + 3) / 4; group++) a_group[group] += a_cs;
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
        REAL *c = out->c + i * out->ldc;
        NAME(write_vector)(out, c, 0, sum[i][0]);
        if (vectors > 1) NAME(write_vector)(out, c, LANES, sum[i][1]);
    }
}

typedef void (*NAME(tile_function))(int64_t k, const REAL *a, int64_t a_rs, int64_t a_cs, const REAL *b, int64_t b_rs,
                                    const struct NAME(tile_output) *out);

#define TILE(rows, vectors)                                                                                           \
    static void NAME(tile_##rows##_##vectors)(int64_t k, const REAL *a, int64_t a_rs, int64_t a_cs, const REAL *b,    \
                                              int64_t b_rs, const struct NAME(tile_output) *out)                      \
    {                                                                                                                 \
        NAME(tile)(rows, vectors, k, a, a_rs, a_cs, b, b_rs, out);                                                    \
    }
#define TILES(rows) TILE(rows, 1) TILE(rows, 2)
#define TILE_ENTRY(rows) {NAME(tile_##rows##_1), NAME(tile_##rows##_2)}

TILES(1) TILES(2) TILES(3) TILES(4)
#if TILE_ROWS > 4
TILES(5) TILES(6)
#endif
#if TILE_ROWS > 6
TILES(7) TILES(8) TILES(9) TILES(10) TILES(11) TILES(12) TILES(13) TILES(14)
#endif

/* [rows - 1][vectors - 1] */
static const NAME(tile_function) NAME(tiles)[TILE_ROWS][2] = {
    TILE_ENTRY(1), TILE_ENTRY(2), TILE_ENTRY(3), TILE_ENTRY(4),
#if TILE_ROWS > 4
    TILE_ENTRY(5), TILE_ENTRY(6),
#endif
#if TILE_ROWS > 6
    TILE_ENTRY(7), TILE_ENTRY(8), TILE_ENTRY(9), TILE_ENTRY(10), TILE_ENTRY(11), TILE_ENTRY(12), TILE_ENTRY(13), TILE_ENTRY(14),
#endif
};

#undef TILE
#undef TILES
#undef TILE_ENTRY

#if SIMD_BYTES > 16
/* Transposes a LANES x LANES square in registers: in step s, rows i and i + s swap their off-diagonal blocks of s lanes. */
static inline __attribute__((always_inline)) void NAME(transpose)(VECTOR *row)
{
#pragma GCC unroll 4
    for (int s = 1; s < LANES; s *= 2) {
        VECTOR_INT low = {0}, high = {0};
#pragma GCC unroll 16
        for (int j = 0; j < LANES; j++) {
            low[j] = (j & s) ? LANES + j - s : j;
            high[j] = (j & s) ? LANES + j : j + s;
        }
#pragma GCC unroll 16
        for (int i = 0; i < LANES; i++) {
            if (i & s) continue;
            VECTOR upper = row[i], lower = row[i + s];
            row[i] = __builtin_shuffle(upper, lower, low);
            row[i + s] = __builtin_shuffle(upper, lower, high);
        }
    }
}
#endif

/* panel[p, j] = b[p * b_rs + j * b_cs] for p < k, j < columns; zeros fill the row of `width` (a multiple of LANES). */
static void NAME(pack_b)(REAL *panel, int64_t width, const REAL *b, int64_t b_rs, int64_t b_cs, int64_t k, int64_t columns)
{
    if (b_cs == 1) {
        for (int64_t p = 0; p < k; p++, b += b_rs, panel += width) {
            for (int64_t j = 0; j < width; j += LANES) {
                int64_t count = columns - j;
                STORE(panel + j, count >= LANES ? (VECTOR)LOAD(b + j) : NAME(load_part)(b + j, count));
            }
        }
        return;
    }
#if SIMD_BYTES > 16
    if (b_rs == 1) {
        for (int64_t j = 0; j < width; j += LANES) {
            int64_t count = columns - j;
            for (int64_t p = 0; p < k; p += LANES) {
                int64_t depth = k - p;
                VECTOR row[LANES];
#pragma GCC unroll 16
                for (int i = 0; i < LANES; i++) {
                    const REAL *src = b + (j + i) * b_cs + p;
                    row[i] = i >= count ? (VECTOR){0} : depth >= LANES ? (VECTOR)LOAD(src) : NAME(load_part)(src, depth);
                }
                NAME(transpose)(row);
                REAL *dst = panel + p * width + j;
#pragma GCC unroll 16
                for (int i = 0; i < LANES; i++) {
                    if (i < depth) STORE(dst + i * width, row[i]);
                }
            }
        }
        return;
    }
#endif
    for (int64_t p = 0; p < k; p++) {
        for (int64_t j = 0; j < columns; j++) panel[p * width + j] = b[p * b_rs + j * b_cs];
        for (int64_t j = columns; j < width; j++) panel[p * width + j] = 0;
    }
}

/* Rows of the panel that starts at `row`: the m rows are shared out evenly, so that no tile is left with only a few. */
static inline int64_t NAME(panel_rows)(int64_t m, int64_t row)
{
    int64_t rest = m - row;
    int64_t panels = (rest + TILE_ROWS - 1) / TILE_ROWS;
    return (rest + panels - 1) / panels;
}

static size_t NAME(block_workspace_bytes)(int64_t m)
{
    return ((size_t)m * PACKED_STRIDE + LANES) * sizeof(REAL);
}

/* Packs A[m, k]. A column-major A is laid out as [k][rows] panel by panel, any other as rows PACKED_STRIDE apart; both start
 * the panel of row i at packed + i * PACKED_STRIDE. */
static void NAME(pack_a)(REAL *packed, const REAL *a, int64_t a_rs, int64_t a_cs, int64_t m, int64_t k)
{
    if (a_rs == 1 && a_cs != 1) {
        /* k outside: a column of A is read once, in memory order. */
        for (int64_t p = 0; p < k; p++) {
            const REAL *src = a + p * a_cs;
            for (int64_t i = 0, rows; i < m; i += rows) {
                rows = NAME(panel_rows)(m, i);
                REAL *dst = packed + i * PACKED_STRIDE + p * rows;
                /* A full store runs into the next row of the panel, which is written after it. */
                int64_t r = 0;
                for (; r + LANES <= rows; r += LANES) STORE(dst + r, LOAD(src + i + r));
                if (r < rows) STORE(dst + r, NAME(load_part)(src + i + r, rows - r));
            }
        }
        return;
    }
    for (int64_t i = 0; i < m; i++) {
        REAL *dst = packed + i * PACKED_STRIDE;
        const REAL *src = a + i * a_rs;
        if (a_cs == 1) {
            memcpy(dst, src, (size_t)k * sizeof(REAL));
        } else {
            for (int64_t p = 0; p < k; p++) dst[p] = src[p * a_cs];
        }
    }
}

/* Asks for share `part` of `parts` of the lines of B[k, columns]. */
static inline void NAME(prefetch_b)(const REAL *b, int64_t b_rs, int64_t b_cs, int64_t k, int64_t columns, int64_t part,
                                    int64_t parts)
{
    if (b_cs == 1) {
        for (int64_t p = k * part / parts; p < k * (part + 1) / parts; p++) {
            for (int64_t j = 0; j < columns; j += LANES) __builtin_prefetch(b + p * b_rs + j);
        }
    } else if (b_rs == 1) {
        for (int64_t j = columns * part / parts; j < columns * (part + 1) / parts; j++) {
            for (int64_t p = 0; p < k; p += LANES) __builtin_prefetch(b + j * b_cs + p);
        }
    }
}

/* One column panel against all rows of A. `packed` is NULL or what pack_a made of the same k range. `next` is where the panel
 * after this one lies in B, or NULL: it is fetched meanwhile. */
static void NAME(block_panel)(const struct gemm_product *product, int64_t k, const REAL *a, const REAL *packed, const REAL *b,
                              int64_t b_rs, const REAL *next, struct NAME(tile_output) *out)
{
    int vectors = out->columns > LANES ? 2 : 1;
    REAL *c = out->c;
    for (int64_t i = 0, rows; i < product->m; i += rows) {
        rows = NAME(panel_rows)(product->m, i);
        if (next != NULL) {
            NAME(prefetch_b)(next, product->b_rs, product->b_cs, k, 2 * LANES, i / TILE_ROWS, product->m / TILE_ROWS + 1);
        }
        const REAL *src = a + i * product->a_rs;
        int64_t a_rs = product->a_rs, a_cs = product->a_cs;
        if (packed != NULL) {
            src = packed + i * PACKED_STRIDE;
            bool interleaved = a_rs == 1 && a_cs != 1;
            a_rs = interleaved ? 1 : PACKED_STRIDE;
            a_cs = interleaved ? rows : 1;
        }
        out->c = c + i * out->ldc;
        NAME(tiles)[rows - 1][vectors - 1](k, src, a_rs, a_cs, b, b_rs, out);
    }
}

static void NAME(block)(const struct gemm_product *product, void *workspace)
{
    _Alignas(64) REAL panel[DEPTH * 2 * LANES];
    const REAL *a = product->a, *b = product->b, *bias = product->bias;
    REAL *c = product->c;
    int64_t chunks = (product->k + DEPTH - 1) / DEPTH, done = 0;
    for (int64_t chunk = 0; chunk < chunks; chunk++) {
        /* Even chunks: the length depends on k only, and so does the order of the sum. */
        int64_t k = (product->k - done + chunks - chunk - 1) / (chunks - chunk);
        bool last = chunk == chunks - 1;
        const REAL *a_chunk = a + done * product->a_cs, *b_chunk = b + done * product->b_rs;
        if (workspace != NULL) NAME(pack_a)(workspace, a_chunk, product->a_rs, product->a_cs, product->m, k);
        for (int64_t j = 0; j < product->n; j += 2 * LANES) {
            if (interrupt_pending()) return;
            int64_t columns = smaller(product->n - j, 2 * LANES);
            int64_t width = columns > LANES ? 2 * LANES : LANES;
            struct NAME(tile_output) out = {
                .c = c + j,
                .ldc = product->ldc,
                .columns = columns,
                .accumulate = product->accumulate || chunk > 0,
                .relu = last && product->activation == GEMM_RELU,
                .bias = last && bias != NULL ? bias + j : NULL,
            };
            const REAL *source = b_chunk + j * product->b_cs;
            int64_t source_rs = product->b_rs;
            /* A row-major panel is worth copying once enough rows of A reuse it. */
            if (product->b_cs != 1 || columns < width || product->m > PACK_B_ROWS) {
                NAME(pack_b)(panel, width, source, source_rs, product->b_cs, k, columns);
                source = panel;
                source_rs = width;
            }
            /* Only a product that packs A is large enough for B to be far away; a last panel that is not full is let be. */
            const REAL *next = b_chunk + (j + 2 * LANES) * product->b_cs;
            bool fetch = workspace != NULL && j + 4 * LANES <= product->n;
            NAME(block_panel)(product, k, a_chunk, workspace, source, source_rs, fetch ? next : NULL, &out);
        }
        done += k;
    }
}
