/* vmath_test.c: holds every function of cpu/simd/vmath.h to its error bound, against libm in f64.
 *
 * Goes through all pairs of edge values, then samples the bit patterns of all floats at a fixed stride (argument 1; default
 * 2003). Prints a line per function; exits 1 when one is over its bound. Compile it with the flags of the instruction set
 * under test: the loops below are the vector code that the kernels contain.
 */
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "cpu/simd/vmath.h"

#define BLOCK 1024

/* vm_sin and its like are held to their range; NaN stands for what lies outside. */
#define DEFINE_IN_RANGE(name)                                        \
    VM_INLINE float vm_##name##_in_range(float x)                    \
    {                                                                \
        float y = vm_##name(x);                                      \
        return fabsf(x) < VM_TRIG_LIMIT ? y : NAN;                   \
    }
DEFINE_IN_RANGE(sin)
DEFINE_IN_RANGE(cos)
DEFINE_IN_RANGE(tan)
static double sin_in_range(double x) { return fabs(x) < VM_TRIG_LIMIT ? vd_sin(x) : NAN; }
static double cos_in_range(double x) { return fabs(x) < VM_TRIG_LIMIT ? vd_cos(x) : NAN; }
static double tan_in_range(double x) { return fabs(x) < VM_TRIG_LIMIT ? vd_tan(x) : NAN; }

/* One row a function: name, reference, bound in ulp of the f32 result. The loops are what the kernels look like. */
#define UNARY_FUNCTIONS(X)             \
    X(exp, vd_exp, 2.0)                \
    X(exp2, vd_exp2, 2.0)              \
    X(expm1, vd_expm1, 4.0)            \
    X(log, vd_log, 2.0)                \
    X(log2, vd_log2, 4.0)              \
    X(log10, vd_log10, 4.0)            \
    X(log1p, vd_log1p, 4.0)            \
    X(sqrt, vd_sqrt, 0.5)              \
    X(rsqrt, vd_rsqrt, 2.0)            \
    X(cbrt, vd_cbrt, 1.0)              \
    X(tanh, vd_tanh, 2.0)              \
    X(sigmoid, vd_sigmoid, 2.0)        \
    X(softplus, vd_softplus, 4.0)      \
    X(erf, vd_erf, 2.0)                \
    X(sin_in_range, sin_in_range, 2.0) \
    X(cos_in_range, cos_in_range, 2.0) \
    X(tan_in_range, tan_in_range, 4.0) \
    X(asin, vd_asin, 4.0)              \
    X(acos, vd_acos, 4.0)              \
    X(atan, vd_atan, 4.0)              \
    X(sinh, vd_sinh, 4.0)              \
    X(cosh, vd_cosh, 4.0)              \
    X(asinh, vd_asinh, 4.0)            \
    X(acosh, vd_acosh, 4.0)            \
    X(atanh, vd_atanh, 4.0)            \
    X(floor, vd_floor, 0.0)            \
    X(ceil, vd_ceil, 0.0)              \
    X(trunc, vd_trunc, 0.0)            \
    X(round, vd_round, 0.0)            \
    X(digamma, vd_digamma, 1.0)

#define BINARY_FUNCTIONS(X)    \
    X(pow, vd_pow, 1.0)        \
    X(hypot, vd_hypot, 1.0)    \
    X(atan2, vd_atan2, 4.0)

#define UNARY_LOOP(name, reference, bound)                              \
    static void apply_##name(const float *x, const float *y, float *out) \
    {                                                                   \
        (void)y;                                                        \
        for (int i = 0; i < BLOCK; i++)                                 \
            out[i] = vm_##name(x[i]);                                   \
    }
#define BINARY_LOOP(name, reference, bound)                             \
    static void apply_##name(const float *x, const float *y, float *out) \
    {                                                                   \
        for (int i = 0; i < BLOCK; i++)                                 \
            out[i] = vm_##name(x[i], y[i]);                             \
    }
UNARY_FUNCTIONS(UNARY_LOOP)
BINARY_FUNCTIONS(BINARY_LOOP)

struct function {
    const char *name;
    void (*apply)(const float *x, const float *y, float *out); /* each: [BLOCK] */
    double (*unary)(double x);
    double (*binary)(double x, double y);
    double bound; /* ulp */
};

#define UNARY_ROW(name, reference, bound) {#name, apply_##name, reference, NULL, bound},
#define BINARY_ROW(name, reference, bound) {#name, apply_##name, NULL, reference, bound},
static const struct function functions[] = {UNARY_FUNCTIONS(UNARY_ROW) BINARY_FUNCTIONS(BINARY_ROW)};

static const float edges[] = {
    0.0f, -0.0f, 1.0f, -1.0f, 0.5f, -0.5f, 2.0f, -2.0f, 3.0f, -3.0f, 1.5f, -2.5f, 0.625f, 0.92f, 9.0f, -9.1f, 88.7228f,
    88.7229f, 89.4159f, 89.416f, -87.3366f, -103.9f, -104.1f, 127.999f, 128.0f, -126.0f, -149.5f, -151.0f, 0x1p-149f,
    -0x1p-149f, FLT_MIN, -FLT_MIN, 0x1.fffffcp-127f, FLT_MAX, -FLT_MAX, 0x1p31f, 0x1.fffffep30f, 0x1p24f, 16777215.0f,
    0x1.fffffep-1f, 0x1.000002p0f, -0x1.fffffep-1f, 1.57079637f, 3.14159274f, 0x1.93d63cp+29f, INFINITY, -INFINITY, NAN,
};
#define NUM_EDGES ((int)(sizeof edges / sizeof edges[0]))

/* The gap between floats around x, x not 0. */
static double ulp_of(double x) { return ldexp(1.0, (int)fmin(fmax(ilogb(x), -126), 127) - 23); }

/* Distance in units of the last place of the nearest float; Inf for a wrong NaN, a wrong Inf or a wrong sign of zero. */
static double error_ulp(float got, double expected)
{
    if (isnan(expected) || isnan(got))
        return isnan(expected) && isnan(got) ? 0.0 : INFINITY;
    if (expected == 0.0)
        return got == 0.0f && !signbit(got) == !signbit(expected) ? 0.0 : INFINITY;
    if (isinf(got) && got == (float)expected)
        return 0.0;
    if (isinf(expected))
        return INFINITY;
    double reached = isinf(got) ? copysign(0x1p128, got) : got;
    return fabs(reached - expected) / ulp_of(expected);
}

struct worst {
    double error;
    float x, y;
};

static void check_block(const struct function *f, const float *x, const float *y, struct worst *worst)
{
    float out[BLOCK];
    f->apply(x, y, out);
    for (int i = 0; i < BLOCK; i++) {
        double expected = f->unary ? f->unary(x[i]) : f->binary(x[i], y[i]);
        double error = error_ulp(out[i], expected);
        if (error > worst->error)
            *worst = (struct worst){error, x[i], y[i]};
    }
}

static struct worst check_function(const struct function *f, uint32_t stride)
{
    struct worst worst = {0.0, 0.0f, 0.0f};
    float x[BLOCK], y[BLOCK];
    int num = 0;
    for (int i = 0; i < NUM_EDGES * NUM_EDGES; i++) {
        x[num] = edges[i % NUM_EDGES];
        y[num] = edges[i / NUM_EDGES];
        if (++num == BLOCK) {
            check_block(f, x, y, &worst);
            num = 0;
        }
    }
    /* The second operand is any float, a whole number or a moderate one, in turn. */
    for (uint64_t bits = 0; bits <= UINT32_MAX; bits += stride) {
        uint32_t mixed = (uint32_t)bits * 2654435761u;
        float moderate = (float)(int32_t)mixed * 0x1p-27f;
        x[num] = vm_from_bits((uint32_t)bits);
        y[num] = mixed % 3 == 0 ? vm_from_bits(mixed) : mixed % 3 == 1 ? rintf(moderate) : moderate;
        if (++num == BLOCK) {
            check_block(f, x, y, &worst);
            num = 0;
        }
    }
    check_block(f, x, y, &worst); /* the rest, and once more what is behind it */
    return worst;
}

/* Abramowitz and Stegun, tables 6.1 and 6.2, and reflections of them. */
static bool digamma_is_right(void)
{
    static const double known[][2] = {
        {1.0, -0.57721566490153286}, {0.5, -1.96351002602142348}, {2.0, 0.42278433509846714}, {-0.5, 0.03648997397857652},
        {10.0, 2.25175258906672111}, {0.25, -4.22745353337626540}, {-1.5, 0.70315664064524319},
    };
    bool right = isnan(vd_digamma(-3.0)) && vd_digamma(0.0) == -INFINITY && vd_digamma(-0.0) == INFINITY;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        right = right && fabs(vd_digamma(known[i][0]) - known[i][1]) <= 1e-14 * fmax(1.0, fabs(known[i][1]));
    return right;
}

int main(int argc, char **argv)
{
    uint32_t stride = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 2003;
    bool failed = stride == 0 || !digamma_is_right();
    printf("%-12s %9s %6s\n", "function", "max ulp", "bound");
    for (size_t i = 0; stride && i < sizeof functions / sizeof functions[0]; i++) {
        const struct function *f = &functions[i];
        struct worst worst = check_function(f, stride);
        bool over = !(worst.error <= f->bound);
        failed = failed || over;
        printf("%-12s %9.3f %6.1f  at %a", f->name, worst.error, f->bound, (double)worst.x);
        if (f->binary)
            printf(", %a", (double)worst.y);
        printf("%s\n", over ? "  OVER" : "");
    }
    return failed ? 1 : 0;
}
