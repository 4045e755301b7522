/* scan_kernels.c: cumulative sums, products and extremes. A unit keeps its running values in a line of accumulators. */
#include "cpu/scan_kernels.h"

/* Where a unit starts, and how many columns it has. */
struct scan_unit {
    int64_t offset, width;
};

static struct scan_unit scan_unit_at(const struct scan_task *task, int64_t unit) {
    int64_t units_each = scan_units(1, task->inner);
    int64_t column = unit % units_each * SCAN_COLUMN_UNIT, left = task->inner - column;
    return (struct scan_unit){unit / units_each * task->n * task->inner + column,
                              left < SCAN_COLUMN_UNIT ? left : SCAN_COLUMN_UNIT};
}

/* y[i, j] = y[i-1, j] OP x[i, j], in A    x, y: [n, width] with row stride inner */
#define DEFINE_CUMULATE(NAME, X, A, Y, OP, EMPTY)                                                                    \
    static void NAME##_unit(const X *restrict x, Y *restrict y, int64_t n, int64_t width, int64_t inner) {           \
        A acc[SCAN_COLUMN_UNIT];                                                                                     \
        for (int64_t j = 0; j < width; j++) acc[j] = EMPTY;                                                          \
        for (int64_t i = 0; i < n; i++, x += inner, y += inner)                                                      \
            for (int64_t j = 0; j < width; j++) {                                                                    \
                acc[j] = acc[j] OP (A)x[j];                                                                          \
                y[j] = (Y)acc[j];                                                                                    \
            }                                                                                                        \
    }                                                                                                                \
    static void NAME##_line(const X *restrict x, Y *restrict y, int64_t n) {                                         \
        A acc = EMPTY;                                                                                               \
        for (int64_t i = 0; i < n; i++) {                                                                            \
            acc = acc OP (A)x[i];                                                                                    \
            y[i] = (Y)acc;                                                                                           \
        }                                                                                                            \
    }                                                                                                                \
    static void NAME(void *context, int64_t begin, int64_t end) {                                                    \
        const struct scan_task *task = context;                                                                      \
        for (int64_t u = begin; u < end; u++) {                                                                      \
            struct scan_unit unit = scan_unit_at(task, u);                                                           \
            const X *x = (const X *)task->x + unit.offset;                                                           \
            Y *y = (Y *)task->y + unit.offset;                                                                       \
            if (task->inner == 1)                                                                                    \
                NAME##_line(x, y, task->n);                                                                          \
            else                                                                                                     \
                NAME##_unit(x, y, task->n, unit.width, task->inner);                                                 \
        }                                                                                                            \
    }

/* TAKES(value, best): value replaces best. */
#define FLOAT_CUMMAX(value, best) ((value) >= (best) || (value) != (value))
#define FLOAT_CUMMIN(value, best) ((value) <= (best) || (value) != (value))
#define INT_CUMMAX(value, best) ((value) >= (best))
#define INT_CUMMIN(value, best) ((value) <= (best))

#define DEFINE_CUMULATIVE_EXTREME(NAME, X, TAKES)                                                                    \
    static void NAME(void *context, int64_t begin, int64_t end) {                                                    \
        const struct scan_task *task = context;                                                                      \
        int64_t n = task->n, inner = task->inner;                                                                    \
        for (int64_t u = begin; u < end && n > 0; u++) {                                                             \
            struct scan_unit unit = scan_unit_at(task, u);                                                           \
            X best[SCAN_COLUMN_UNIT];                                                                                \
            int64_t position[SCAN_COLUMN_UNIT];                                                                      \
            for (int64_t j = 0; j < unit.width; j++) {                                                               \
                best[j] = ((const X *)task->x)[unit.offset + j];                                                     \
                position[j] = 0;                                                                                     \
            }                                                                                                        \
            for (int64_t i = 0; i < n; i++) {                                                                        \
                const X *x = (const X *)task->x + unit.offset + i * inner;                                           \
                X *y = (X *)task->y + unit.offset + i * inner;                                                       \
                int64_t *positions = task->positions + unit.offset + i * inner;                                      \
                for (int64_t j = 0; j < unit.width; j++) {                                                           \
                    if (TAKES(x[j], best[j])) best[j] = x[j], position[j] = i;                                       \
                    y[j] = best[j];                                                                                  \
                    positions[j] = position[j];                                                                      \
                }                                                                                                    \
            }                                                                                                        \
        }                                                                                                            \
    }

DEFINE_CUMULATE(cumsum_f64, double, double, double, +, 0)
DEFINE_CUMULATE(cumsum_f32, float, double, float, +, 0)
DEFINE_CUMULATE(cumprod_f64, double, double, double, *, 1)
DEFINE_CUMULATE(cumprod_f32, float, double, float, *, 1)
DEFINE_CUMULATIVE_EXTREME(cummax_f64, double, FLOAT_CUMMAX)
DEFINE_CUMULATIVE_EXTREME(cummax_f32, float, FLOAT_CUMMAX)
DEFINE_CUMULATIVE_EXTREME(cummin_f64, double, FLOAT_CUMMIN)
DEFINE_CUMULATIVE_EXTREME(cummin_f32, float, FLOAT_CUMMIN)

/* Unsigned accumulators, because they may wrap. */
#define DEFINE_INT_SCANS(DTYPE, X)                                      \
    DEFINE_CUMULATE(cumsum_##DTYPE, X, uint64_t, int64_t, +, 0)         \
    DEFINE_CUMULATE(cumprod_##DTYPE, X, uint64_t, int64_t, *, 1)        \
    DEFINE_CUMULATIVE_EXTREME(cummax_##DTYPE, X, INT_CUMMAX)            \
    DEFINE_CUMULATIVE_EXTREME(cummin_##DTYPE, X, INT_CUMMIN)
DEFINE_INT_SCANS(i64, int64_t)
DEFINE_INT_SCANS(i32, int32_t)
DEFINE_INT_SCANS(i16, int16_t)
DEFINE_INT_SCANS(i8, int8_t)
DEFINE_INT_SCANS(u8, uint8_t)

#define SCANS(NAME)                                                                                                  \
    {                                                                                                                \
        [AG_F64] = NAME##_f64, [AG_F32] = NAME##_f32, [AG_I64] = NAME##_i64, [AG_I32] = NAME##_i32,                  \
        [AG_I16] = NAME##_i16, [AG_I8] = NAME##_i8, [AG_U8] = NAME##_u8, [AG_BOOL] = NAME##_u8,                      \
    }

const scan_fn scan_kernels[SCAN_OP_COUNT][AG_DTYPE_COUNT] = {
    [SCAN_CUMSUM] = SCANS(cumsum),
    [SCAN_CUMPROD] = SCANS(cumprod),
    [SCAN_CUMMAX] = SCANS(cummax),
    [SCAN_CUMMIN] = SCANS(cummin),
};
