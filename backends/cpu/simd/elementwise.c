/* elementwise.c: the table of elementwise kernels of this instruction set, and the select kernels of `where`. */
#include "cpu/simd/elementwise_names.h"

/* ---- select: y[i] = condition[i] ? a[i] : b[i] ---- */

/* step_a, step_b: 1, or 0 for a single value; constants in each call, so that every case is vector code. */
#define DEFINE_SELECT(bits)                                                                                              \
    static inline __attribute__((always_inline)) void select_loop_##bits(int64_t n, const uint8_t *conditions,           \
            const uint##bits##_t *as, int64_t step_a, const uint##bits##_t *bs, int64_t step_b, uint##bits##_t *ys) {    \
        const uint##bits##_t first_a = as[0], first_b = bs[0];                                                           \
        ELEMENTWISE_LOOP {                                                                                               \
            const uint##bits##_t a = step_a ? as[i] : first_a, b = step_b ? bs[i] : first_b;                             \
            ys[i] = conditions[i] != 0 ? a : b;                                                                          \
        }                                                                                                                \
    }                                                                                                                    \
    static void select_##bits(ELEMENTWISE_PARAMETERS) {                                                                  \
        (void)params;                                                                                                    \
        if (n <= 0) return;                                                                                              \
        switch (scalar_mask) {                                                                                           \
        case 0: select_loop_##bits(n, inputs[0], inputs[1], 1, inputs[2], 1, output); break;                             \
        case 2: select_loop_##bits(n, inputs[0], inputs[1], 0, inputs[2], 1, output); break;                             \
        case 4: select_loop_##bits(n, inputs[0], inputs[1], 1, inputs[2], 0, output); break;                             \
        default: select_loop_##bits(n, inputs[0], inputs[1], 0, inputs[2], 0, output); break;                            \
        }                                                                                                                \
    }
DEFINE_SELECT(8)
DEFINE_SELECT(16)
DEFINE_SELECT(32)
DEFINE_SELECT(64)

/* ---- declarations of the kernels, by which types they exist for ---- */

#define DECLARE(name, type) void ELEMENTWISE_FN(name, type)(ELEMENTWISE_PARAMETERS);
#define DECLARE_FLOAT(name) DECLARE(name, f64) DECLARE(name, f32)
#define DECLARE_INT(name) DECLARE(name, i64) DECLARE(name, i32) DECLARE(name, i16) DECLARE(name, i8) DECLARE(name, u8)
#define UNARY_FLOAT(name, ...) DECLARE_FLOAT(name) DECLARE_FLOAT(name##_backward)
#define UNARY_NUM(name, ...) DECLARE_FLOAT(name) DECLARE_INT(name) DECLARE_FLOAT(name##_backward)
#define UNARY_TEST(name, ...) DECLARE_FLOAT(name) DECLARE_INT(name) DECLARE(name, boolean)
#define UNARY_BIT(name, ...) DECLARE_INT(name) DECLARE(name, boolean)
#define BINARY_FLOAT(name, ...) DECLARE_FLOAT(name)
#define BINARY_NUM(name, ...) DECLARE_FLOAT(name) DECLARE_INT(name)
#define BINARY_COMPARE(name, ...) DECLARE_FLOAT(name) DECLARE_INT(name) DECLARE(name, boolean)
#define BINARY_LOGICAL(name, ...) DECLARE_FLOAT(name) DECLARE_INT(name) DECLARE(name, boolean)
#define BINARY_BIT(name, ...) DECLARE_INT(name) DECLARE(name, boolean)
#include "ops/elementwise.def"

#define FLOATS(name) [AG_F64] = ELEMENTWISE_FN(name, f64), [AG_F32] = ELEMENTWISE_FN(name, f32)
#define INTS(name)                                                                              \
    [AG_I64] = ELEMENTWISE_FN(name, i64), [AG_I32] = ELEMENTWISE_FN(name, i32),                 \
    [AG_I16] = ELEMENTWISE_FN(name, i16), [AG_I8] = ELEMENTWISE_FN(name, i8), [AG_U8] = ELEMENTWISE_FN(name, u8)
#define BOOL(name) [AG_BOOL] = ELEMENTWISE_FN(name, boolean)

const struct elementwise_kernels SIMD(elementwise_kernels) = {
    .fn = {
#define UNARY_FLOAT(name, ...) [OP_##name] = {FLOATS(name)}, [OP_##name##_backward] = {FLOATS(name##_backward)},
#define UNARY_NUM(name, ...) [OP_##name] = {FLOATS(name), INTS(name)}, [OP_##name##_backward] = {FLOATS(name##_backward)},
#define UNARY_TEST(name, ...) [OP_##name] = {FLOATS(name), INTS(name), BOOL(name)},
#define UNARY_BIT(name, ...) [OP_##name] = {INTS(name), BOOL(name)},
#define BINARY_FLOAT(name, ...) [OP_##name] = {FLOATS(name)},
#define BINARY_NUM(name, ...) [OP_##name] = {FLOATS(name), INTS(name)},
#define BINARY_COMPARE(name, ...) [OP_##name] = {FLOATS(name), INTS(name), BOOL(name)},
#define BINARY_LOGICAL(name, ...) [OP_##name] = {FLOATS(name), INTS(name), BOOL(name)},
#define BINARY_BIT(name, ...) [OP_##name] = {INTS(name), BOOL(name)},
#include "ops/elementwise.def"
    },
    .select = {select_8, select_16, select_32, select_64},
};
