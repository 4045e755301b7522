/* reduce_kernels.c: the reductions of cpu/reduce_kernels.h for one instruction set: which fold each op is, for each dtype. */
#include "cpu/reduce_kernels.h"

#include <math.h>
#include <string.h>

#include "cpu/simd/simd.h"
#include "cpu/simd/vmath.h"

/* Columns [column, column + width) of one outer index: what the first units of a range have in common. */
struct column_group {
    int64_t outer, column, width, units;
};

static struct column_group column_group_at(int64_t begin, int64_t end, int64_t inner, int64_t max_width) {
    int64_t units_each = reduce_column_units(1, inner), unit = begin % units_each, units = end - begin;
    if (units > units_each - unit) units = units_each - unit;
    if (units > max_width / REDUCE_COLUMN_UNIT) units = max_width / REDUCE_COLUMN_UNIT;
    int64_t column = unit * REDUCE_COLUMN_UNIT, width = units * REDUCE_COLUMN_UNIT;
    if (width > inner - column) width = inner - column;
    return (struct column_group){begin / units_each, column, width, units};
}

#include "cpu/simd/reduce_fold.inc"

/* Rows of a thin matrix that are laid side by side to fill FOLD_LANES; enough rows remain to be worth it. */
static int64_t column_repeat(int64_t n, int64_t inner) {
    int64_t repeat = inner < REDUCE_COLUMN_UNIT ? FOLD_LANES / inner : 1;
    if (repeat > n / 8) repeat = n / 8;
    return repeat > 1 ? repeat : 1;
}

static void fill_mean(double *mean, int64_t n, double value) {
    for (int64_t j = 0; j < (n < FOLD_LANES ? n : FOLD_LANES); j++) mean[j] = value;
    mean[0] = value;
}

#define MAP_SELF(x, mean) (x)
#define MAP_SQUARE(x, mean) ((x) * (x))
#define MAP_ABS_F32(x, mean) fabsf(x)
#define MAP_ABS_F64(x, mean) fabs(x)
#define MAP_DEVIATION(x, mean) (((double)(x) - (mean)) * ((double)(x) - (mean)))
#define MAP_NONZERO(x, mean) ((x) != 0)
#define MAP_EXP_F32(x, mean) vm_exp((x) - (float)(mean))
#define MAP_EXP_F64(x, mean) vd_exp((x) - (mean))

#define ADD(a, b) ((a) + (b))
#define MULTIPLY(a, b) ((a) * (b))
#define OR(a, b) ((a) | (b))
#define AND(a, b) ((a) & (b))

/* The extreme of two; for floats a NaN on either side is the result. Floats are selected by bit masks: of nested conditional
 * expressions that test for NaN the compiler makes branches, which end all hope of vector code. */
#define DEFINE_FLOAT_EXTREME(NAME, X, BITS, ABOVE)                                                                            \
    static inline X NAME(X a, X b) {                                                                                          \
        BITS bits_a, bits_b, take_b = -(BITS)((b ABOVE a) | (b != b));                                                        \
        memcpy(&bits_a, &a, sizeof a);                                                                                        \
        memcpy(&bits_b, &b, sizeof b);                                                                                        \
        bits_a ^= (bits_a ^ bits_b) & take_b;                                                                                 \
        memcpy(&a, &bits_a, sizeof a);                                                                                        \
        return a;                                                                                                             \
    }
#define DEFINE_INT_EXTREME(NAME, X, ABOVE)                                                                                    \
    static inline X NAME(X a, X b) { return b ABOVE a ? b : a; }

DEFINE_FLOAT_EXTREME(higher_f64, double, uint64_t, >)
DEFINE_FLOAT_EXTREME(higher_f32, float, uint32_t, >)
DEFINE_INT_EXTREME(higher_i64, int64_t, >)
DEFINE_INT_EXTREME(higher_i32, int32_t, >)
DEFINE_INT_EXTREME(higher_i16, int16_t, >)
DEFINE_INT_EXTREME(higher_i8, int8_t, >)
DEFINE_INT_EXTREME(higher_u8, uint8_t, >)
DEFINE_FLOAT_EXTREME(lower_f64, double, uint64_t, <)
DEFINE_FLOAT_EXTREME(lower_f32, float, uint32_t, <)
DEFINE_INT_EXTREME(lower_i64, int64_t, <)
DEFINE_INT_EXTREME(lower_i32, int32_t, <)
DEFINE_INT_EXTREME(lower_i16, int16_t, <)
DEFINE_INT_EXTREME(lower_i8, int8_t, <)
DEFINE_INT_EXTREME(lower_u8, uint8_t, <)

/* ---- sums and products; unsigned totals wrap ---- */
DEFINE_FOLD(sum_f64, double, double, double, double, real, MAP_SELF, ADD, ADD, 0)
DEFINE_FOLD(sum_f32, float, float, double, float, real, MAP_SELF, ADD, ADD, 0)
DEFINE_FOLD(sum_i64, int64_t, uint64_t, uint64_t, int64_t, integer, MAP_SELF, ADD, ADD, 0)
DEFINE_FOLD(sum_i32, int32_t, int64_t, uint64_t, int64_t, integer, MAP_SELF, ADD, ADD, 0)
DEFINE_FOLD(sum_i16, int16_t, int32_t, uint64_t, int64_t, integer, MAP_SELF, ADD, ADD, 0)
DEFINE_FOLD(sum_i8, int8_t, int32_t, uint64_t, int64_t, integer, MAP_SELF, ADD, ADD, 0)
DEFINE_FOLD(sum_u8, uint8_t, int32_t, uint64_t, int64_t, integer, MAP_SELF, ADD, ADD, 0)
DEFINE_FOLD(sum_wide_f32, float, float, double, double, real, MAP_SELF, ADD, ADD, 0)
DEFINE_FOLD(prod_f64, double, double, double, double, real, MAP_SELF, MULTIPLY, MULTIPLY, 1)
DEFINE_FOLD(prod_f32, float, double, double, float, real, MAP_SELF, MULTIPLY, MULTIPLY, 1)
DEFINE_FOLD(prod_i64, int64_t, uint64_t, uint64_t, int64_t, integer, MAP_SELF, MULTIPLY, MULTIPLY, 1)
DEFINE_FOLD(prod_i32, int32_t, uint64_t, uint64_t, int64_t, integer, MAP_SELF, MULTIPLY, MULTIPLY, 1)
DEFINE_FOLD(prod_i16, int16_t, uint64_t, uint64_t, int64_t, integer, MAP_SELF, MULTIPLY, MULTIPLY, 1)
DEFINE_FOLD(prod_i8, int8_t, uint64_t, uint64_t, int64_t, integer, MAP_SELF, MULTIPLY, MULTIPLY, 1)
DEFINE_FOLD(prod_u8, uint8_t, uint64_t, uint64_t, int64_t, integer, MAP_SELF, MULTIPLY, MULTIPLY, 1)
DEFINE_FOLD(squares_f64, double, double, double, double, real, MAP_SQUARE, ADD, ADD, 0)
DEFINE_FOLD(squares_f32, float, float, double, float, real, MAP_SQUARE, ADD, ADD, 0)
DEFINE_FOLD(abs_f64, double, double, double, double, real, MAP_ABS_F64, ADD, ADD, 0)
DEFINE_FOLD(abs_f32, float, float, double, float, real, MAP_ABS_F32, ADD, ADD, 0)
DEFINE_FOLD(deviations_f64, double, double, double, double, real, MAP_DEVIATION, ADD, ADD, 0)
DEFINE_FOLD(deviations_f32, float, double, double, float, real, MAP_DEVIATION, ADD, ADD, 0)

/* ---- extremes ---- */
#define DEFINE_EXTREME(NAME, X, FIELD, JOIN, EMPTY) DEFINE_FOLD(NAME, X, X, X, X, FIELD, MAP_SELF, JOIN, JOIN, EMPTY)
DEFINE_EXTREME(max_f64, double, real, higher_f64, -INFINITY)
DEFINE_EXTREME(max_f32, float, real, higher_f32, -INFINITY)
DEFINE_EXTREME(max_i64, int64_t, integer, higher_i64, INT64_MIN)
DEFINE_EXTREME(max_i32, int32_t, integer, higher_i32, INT32_MIN)
DEFINE_EXTREME(max_i16, int16_t, integer, higher_i16, INT16_MIN)
DEFINE_EXTREME(max_i8, int8_t, integer, higher_i8, INT8_MIN)
DEFINE_EXTREME(max_u8, uint8_t, integer, higher_u8, 0)
DEFINE_EXTREME(min_f64, double, real, lower_f64, INFINITY)
DEFINE_EXTREME(min_f32, float, real, lower_f32, INFINITY)
DEFINE_EXTREME(min_i64, int64_t, integer, lower_i64, INT64_MAX)
DEFINE_EXTREME(min_i32, int32_t, integer, lower_i32, INT32_MAX)
DEFINE_EXTREME(min_i16, int16_t, integer, lower_i16, INT16_MAX)
DEFINE_EXTREME(min_i8, int8_t, integer, lower_i8, INT8_MAX)
DEFINE_EXTREME(min_u8, uint8_t, integer, lower_u8, UINT8_MAX)

#include "cpu/simd/reduce_arg.inc"

#define HIGHER_FLOAT(a, b) (((a) > (b)) | (((a) != (a)) & ((b) == (b))))
#define LOWER_FLOAT(a, b) (((a) < (b)) | (((a) != (a)) & ((b) == (b))))
#define SAME_FLOAT(a, b) (((a) == (b)) | (((a) != (a)) & ((b) != (b))))
#define HIGHER(a, b) ((a) > (b))
#define LOWER(a, b) ((a) < (b))
#define SAME(a, b) ((a) == (b))
DEFINE_ARG(argmax_f64, max_f64, double, HIGHER_FLOAT, SAME_FLOAT, real)
DEFINE_ARG(argmax_f32, max_f32, float, HIGHER_FLOAT, SAME_FLOAT, real)
DEFINE_ARG(argmax_i64, max_i64, int64_t, HIGHER, SAME, integer)
DEFINE_ARG(argmax_i32, max_i32, int32_t, HIGHER, SAME, integer)
DEFINE_ARG(argmax_i16, max_i16, int16_t, HIGHER, SAME, integer)
DEFINE_ARG(argmax_i8, max_i8, int8_t, HIGHER, SAME, integer)
DEFINE_ARG(argmax_u8, max_u8, uint8_t, HIGHER, SAME, integer)
DEFINE_ARG(argmin_f64, min_f64, double, LOWER_FLOAT, SAME_FLOAT, real)
DEFINE_ARG(argmin_f32, min_f32, float, LOWER_FLOAT, SAME_FLOAT, real)
DEFINE_ARG(argmin_i64, min_i64, int64_t, LOWER, SAME, integer)
DEFINE_ARG(argmin_i32, min_i32, int32_t, LOWER, SAME, integer)
DEFINE_ARG(argmin_i16, min_i16, int16_t, LOWER, SAME, integer)
DEFINE_ARG(argmin_i8, min_i8, int8_t, LOWER, SAME, integer)
DEFINE_ARG(argmin_u8, min_u8, uint8_t, LOWER, SAME, integer)

/* ---- truth ---- */
#define DEFINE_TRUTH(DTYPE, X)                                                                                                \
    DEFINE_FOLD(any_##DTYPE, X, uint8_t, uint8_t, uint8_t, integer, MAP_NONZERO, OR, OR, 0)                                   \
    DEFINE_FOLD(all_##DTYPE, X, uint8_t, uint8_t, uint8_t, integer, MAP_NONZERO, AND, AND, 1)                                 \
    DEFINE_FOLD(nonzero_##DTYPE, X, int32_t, int64_t, int64_t, integer, MAP_NONZERO, ADD, ADD, 0)
DEFINE_TRUTH(f64, double)
DEFINE_TRUTH(f32, float)
DEFINE_TRUTH(i64, int64_t)
DEFINE_TRUTH(i32, int32_t)
DEFINE_TRUTH(i16, int16_t)
DEFINE_TRUTH(u8, uint8_t)

#include "cpu/simd/reduce_logsumexp.inc"

DEFINE_LOGSUMEXP(logsumexp_f64, max_f64, double, double, MAP_EXP_F64)
DEFINE_LOGSUMEXP(logsumexp_f32, max_f32, float, float, MAP_EXP_F32)

#define KERNEL(NAME) {NAME##_rows, NAME##_columns, NAME##_partials, NAME##_join}
#define FLOAT_KERNELS(NAME) [AG_F64] = KERNEL(NAME##_f64), [AG_F32] = KERNEL(NAME##_f32)
#define ALL_KERNELS(NAME)                                                                                                     \
    FLOAT_KERNELS(NAME), [AG_I64] = KERNEL(NAME##_i64), [AG_I32] = KERNEL(NAME##_i32), [AG_I16] = KERNEL(NAME##_i16),         \
                         [AG_I8] = KERNEL(NAME##_i8), [AG_U8] = KERNEL(NAME##_u8), [AG_BOOL] = KERNEL(NAME##_u8)
/* Zero or not does not depend on the sign: i8 shares the u8 kernel. */
#define TRUTH_KERNELS(NAME)                                                                                                   \
    FLOAT_KERNELS(NAME), [AG_I64] = KERNEL(NAME##_i64), [AG_I32] = KERNEL(NAME##_i32), [AG_I16] = KERNEL(NAME##_i16),         \
                         [AG_I8] = KERNEL(NAME##_u8), [AG_U8] = KERNEL(NAME##_u8), [AG_BOOL] = KERNEL(NAME##_u8)

const struct reduce_kernels SIMD(reduce_kernels) = {
    .at = {
        [REDUCE_SUM] = {ALL_KERNELS(sum)},
        [REDUCE_SUM_WIDE] = {[AG_F64] = KERNEL(sum_f64), [AG_F32] = KERNEL(sum_wide_f32)},
        [REDUCE_PROD] = {ALL_KERNELS(prod)},
        [REDUCE_MAX] = {ALL_KERNELS(max)},
        [REDUCE_MIN] = {ALL_KERNELS(min)},
        [REDUCE_ARGMAX] = {ALL_KERNELS(argmax)},
        [REDUCE_ARGMIN] = {ALL_KERNELS(argmin)},
        [REDUCE_SUM_SQUARES] = {FLOAT_KERNELS(squares)},
        [REDUCE_SUM_ABS] = {FLOAT_KERNELS(abs)},
        [REDUCE_SUM_SQUARED_DEVIATIONS] = {FLOAT_KERNELS(deviations)},
        [REDUCE_ANY] = {TRUTH_KERNELS(any)},
        [REDUCE_ALL] = {TRUTH_KERNELS(all)},
        [REDUCE_COUNT_NONZERO] = {TRUTH_KERNELS(nonzero)},
        [REDUCE_LOGSUMEXP] = {FLOAT_KERNELS(logsumexp)},
    },
};
