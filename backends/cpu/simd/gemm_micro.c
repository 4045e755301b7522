/* gemm_micro.c: the matrix product's kernels for one instruction set, f32 and f64 from one source. */
#include "cpu/gemm.h"
#include "cpu/simd/gemm_vector.h"
#include "platform/interrupt.h"

/* TILE_ROWS: rows of the register tile; its columns are two vectors. Sums, two vectors of B and a broadcast fill the registers.
 * DOT_ROWS x DOT_COLUMNS: sums of the dot kernel. DOT_LIMIT: gemm.h's dot_limit. */
#if SIMD_BYTES == 64
#define TILE_ROWS 14
#define DOT_ROWS 4
#define DOT_LIMIT 64
#elif SIMD_BYTES == 32
#define TILE_ROWS 6
#define DOT_ROWS 2
#define DOT_LIMIT 16
#else
#define TILE_ROWS 4
#define DOT_ROWS 2
#define DOT_LIMIT 16
#endif
#define DOT_COLUMNS 4
/* Columns of B that the dot kernel keeps in the L2 cache. */
#define DOT_BLOCK_BYTES (256 * 1024)

/* A panel of B [DEPTH, tile columns] takes 32 KiB at most and stays in the L1 cache while all rows of A pass over it. */
#define DEPTH 256
/* Row distance of packed A: not a power of two, so that the rows of a tile fall into different cache sets. */
#define PACKED_STRIDE (DEPTH + 16)

/* Above this many rows a row-major panel of B is copied. */
#define PACK_B_ROWS (8 * TILE_ROWS)

static inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

#define NAME(name) name##_f32
#define REAL float
#define VECTOR vf32
#define VECTOR_UNALIGNED vf32u
#define VECTOR_INT vi32
#define LANES SIMD_F32
#include "cpu/simd/gemm_real.h"
#include "cpu/simd/gemm_skinny.h"
#undef NAME
#undef REAL
#undef VECTOR
#undef VECTOR_UNALIGNED
#undef VECTOR_INT
#undef LANES

#define NAME(name) name##_f64
#define REAL double
#define VECTOR vf64
#define VECTOR_UNALIGNED vf64u
#define VECTOR_INT vi64
#define LANES SIMD_F64
#include "cpu/simd/gemm_real.h"
#include "cpu/simd/gemm_skinny.h"

const struct gemm_kernels SIMD(gemm_kernels) = {
    .f32 = {
        .tile_rows = TILE_ROWS,
        .tile_columns = 2 * SIMD_F32,
        .dot_limit = DOT_LIMIT,
        .block = block_f32,
        .stream = stream_f32,
        .dot = dot_f32,
        .block_workspace_bytes = block_workspace_bytes_f32,
        .finish = finish_f32,
    },
    .f64 = {
        .tile_rows = TILE_ROWS,
        .tile_columns = 2 * SIMD_F64,
        .dot_limit = DOT_LIMIT,
        .block = block_f64,
        .stream = stream_f64,
        .dot = dot_f64,
        .block_workspace_bytes = block_workspace_bytes_f64,
        .finish = finish_f64,
    },
};
