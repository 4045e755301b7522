/* elementwise.c: every op of elementwise.def as two scalar functions, one on double and one on whole numbers, and one loop.
 *
 * Inputs are converted to call->compute as they are read. Floats are then computed in double and rounded once, on writing.
 * Ints and bool are computed in 128 bits, where no sum or product of two 64-bit numbers overflows, and wrapped on
 * writing. */
#include <math.h>

#include "core/error.h"
#include "reference/kernels.h"
#include "reference/walk.h"

__extension__ typedef __int128 wide;

/* Values of one element: v[0] is x or a, v[1] is b; for a backward op v is g, x, y, with 0 for an absent one. */
typedef double (*real_fn)(const double *v, const double *params);
typedef wide (*whole_fn)(const wide *v, const int64_t *params, ag_dtype dtype);
struct scalar_op {
    real_fn real;   /* NULL: not for floats */
    whole_fn whole; /* NULL: not for ints and bool */
};

/* ---- what M(f) means on double ---- */

#define REAL_LIBM(f) static double real_##f(double x) { return f(x); }
#define REAL_LIBM2(f) static double real_##f(double a, double b) { return f(a, b); }
REAL_LIBM(exp) REAL_LIBM(exp2) REAL_LIBM(expm1) REAL_LIBM(log) REAL_LIBM(log2) REAL_LIBM(log10) REAL_LIBM(log1p)
REAL_LIBM(sqrt) REAL_LIBM(sin) REAL_LIBM(cos) REAL_LIBM(tan) REAL_LIBM(asin) REAL_LIBM(acos) REAL_LIBM(atan)
REAL_LIBM(sinh) REAL_LIBM(cosh) REAL_LIBM(tanh) REAL_LIBM(asinh) REAL_LIBM(acosh) REAL_LIBM(atanh) REAL_LIBM(erf)
REAL_LIBM(floor) REAL_LIBM(ceil) REAL_LIBM(trunc)
REAL_LIBM2(atan2) REAL_LIBM2(hypot) REAL_LIBM2(pow) REAL_LIBM2(fmod)
#undef REAL_LIBM
#undef REAL_LIBM2

static double real_rsqrt(double x) { return 1 / sqrt(x); }
static double real_abs(double x) { return fabs(x); }
static double real_round(double x) { return nearbyint(x); } /* halves to even */
static double real_sign(double x) { return isnan(x) ? x : (x > 0) - (x < 0); }
static double real_isnan(double x) { return isnan(x) != 0; }
static double real_isinf(double x) { return isinf(x) != 0; }
static double real_isfinite(double x) { return isfinite(x) != 0; }
/* exp of nothing but negative numbers, so that neither end overflows */
static double real_sigmoid(double x) { return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x)); }
static double real_softplus(double x) { return (x > 0 ? x : 0) + log1p(exp(-fabs(x))); }
static double real_max(double a, double b) { return isnan(a) || a > b ? a : b; }
static double real_min(double a, double b) { return isnan(a) || a < b ? a : b; }
static double real_floordiv(double a, double b) { return floor(a / b); }
/* fmod is exact; a - floor(a / b) * b is not. */
static double real_remainder(double a, double b) {
    double rest = fmod(a, b);
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

/* ---- what M(f) means on whole numbers ---- */

static wide whole_abs(wide x) { return x < 0 ? -x : x; }
static wide whole_sign(wide x) { return (x > 0) - (x < 0); }
static wide whole_floor(wide x) { return x; }
static wide whole_ceil(wide x) { return x; }
static wide whole_trunc(wide x) { return x; }
static wide whole_round(wide x) { return x; }
static wide whole_isnan(wide x) { (void)x; return 0; }
static wide whole_isinf(wide x) { (void)x; return 0; }
static wide whole_isfinite(wide x) { (void)x; return 1; }
static wide whole_max(wide a, wide b) { return a > b ? a : b; }
static wide whole_min(wide a, wide b) { return a < b ? a : b; }
static wide whole_bitand(wide a, wide b) { return a & b; }
static wide whole_bitor(wide a, wide b) { return a | b; }
static wide whole_bitxor(wide a, wide b) { return a ^ b; }
static wide whole_fmod(wide a, wide b) { return a % b; }
static wide whole_floordiv(wide a, wide b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }
static wide whole_remainder(wide a, wide b) { return a - whole_floordiv(a, b) * b; }

/* The product wraps at 64 bits, and narrower results at theirs. 1 / a^n is a fraction but for 1 and -1: 0. */
static wide whole_pow(wide a, wide b) {
    if (b < 0) return a == 1 ? 1 : a == -1 ? (b % 2 ? -1 : 1) : 0;
    uint64_t result = 1, power = (uint64_t)a;
    for (uint64_t n = (uint64_t)b; n; n >>= 1, power *= power)
        if (n & 1) result *= power;
    return (int64_t)result;
}

static int dtype_width(ag_dtype dtype) { return dtype == AG_BOOL ? 1 : 8 * (int)dtype_size(dtype); }
static wide whole_bitnot_of(wide x, ag_dtype dtype) { return dtype == AG_BOOL ? !x : ~x; }
static wide whole_shiftleft_of(wide a, wide b, ag_dtype dtype) {
    return b < 0 || b >= dtype_width(dtype) ? 0 : (wide)(int64_t)((uint64_t)a << (int)b);
}
static wide whole_shiftright_of(wide a, wide b, ag_dtype dtype) {
    bool is_within = b >= 0 && b < dtype_width(dtype);
    return is_within ? a >> (int)b : a < 0 ? -1 : 0;
}
#define whole_bitnot(x) whole_bitnot_of(x, dtype)
#define whole_shiftleft(a, b) whole_shiftleft_of(a, b, dtype)
#define whole_shiftright(a, b) whole_shiftright_of(a, b, dtype)

/* ---- the rows on double: value_<op>, and backward_<op> ---- */

#define REAL_UNARY(name, value)                                          \
    static double value_##name(const double *v, const double *params) { \
        double x = v[0];                                                 \
        (void)params;                                                    \
        return value;                                                    \
    }
#define REAL_BINARY(name, value)                                         \
    static double value_##name(const double *v, const double *params) { \
        double a = v[0], b = v[1];                                       \
        (void)params;                                                    \
        return value;                                                    \
    }
#define T double
#define M(f) real_##f
#define K(v) ((T)(v))
#define P(i) params[i]
#define UNARY_FLOAT(name, attributes, value, ...) REAL_UNARY(name, value)
#define UNARY_NUM(name, attributes, value, ...) REAL_UNARY(name, value)
#define UNARY_TEST(name, value, doc) REAL_UNARY(name, value)
#define UNARY_BIT(name, value, doc)
#define BINARY_FLOAT(name, attributes, value, ...) REAL_BINARY(name, value)
#define BINARY_NUM(name, attributes, value, ...) REAL_BINARY(name, value)
#define BINARY_COMPARE(name, value, doc) REAL_BINARY(name, value)
#define BINARY_LOGICAL(name, value, doc) REAL_BINARY(name, value)
#define BINARY_BIT(name, value, doc)
#include "ops/elementwise.def"
#undef M

#define REAL_BACKWARD(name, gradient)                                       \
    static double backward_##name(const double *v, const double *params) { \
        double g = v[0], x = v[1], y = v[2];                                \
        (void)g, (void)x, (void)y, (void)params;                            \
        return gradient;                                                    \
    }
#define G g
#define X x
#define Y y
#define C(v) K(v)
#define ADD(a, b) ((a) + (b))
#define SUB(a, b) ((a) - (b))
/* By the constant 0 it is 0, also where the gradient is infinite: a branch not taken adds nothing. */
#define MUL(a, b) (__builtin_constant_p(b) && (b) == 0 ? C(0) : (a) * (b))
#define DIV(a, b) ((a) / (b))
#define NEG(a) (-(a))
#define LT(a, b) ((a) < (b))
#define LE(a, b) ((a) <= (b))
#define GT(a, b) ((a) > (b))
#define GE(a, b) ((a) >= (b))
#define EQ(a, b) ((a) == (b))
#define SEL(condition, then, otherwise) ((condition) ? (then) : (otherwise))
#define F(op, v) value_##op((double[]){v}, params)
#define F2(op, v, w) value_##op((double[]){v, w}, params)
#define UNARY_FLOAT(name, attributes, value, gradient, saves, doc) REAL_BACKWARD(name, gradient)
#define UNARY_NUM(name, attributes, value, gradient, saves, doc) REAL_BACKWARD(name, gradient)
#define UNARY_TEST(name, value, doc)
#define UNARY_BIT(name, value, doc)
#define BINARY_FLOAT(name, ...)
#define BINARY_NUM(name, ...)
#define BINARY_COMPARE(name, value, doc)
#define BINARY_LOGICAL(name, value, doc)
#define BINARY_BIT(name, value, doc)
#include "ops/elementwise.def"
#undef T
#undef G
#undef X
#undef Y

/* ---- the rows on whole numbers: whole_value_<op> ---- */

#define WHOLE_UNARY(name, value)                                                              \
    static wide whole_value_##name(const wide *v, const int64_t *params, ag_dtype dtype) {    \
        wide x = v[0];                                                                        \
        (void)params, (void)dtype, (void)x;                                                   \
        return value;                                                                         \
    }
#define WHOLE_BINARY(name, value)                                                             \
    static wide whole_value_##name(const wide *v, const int64_t *params, ag_dtype dtype) {    \
        wide a = v[0], b = v[1];                                                              \
        (void)params, (void)dtype;                                                            \
        return value;                                                                         \
    }
#define T wide
#define M(f) whole_##f
#define UNARY_FLOAT(name, ...)
#define UNARY_NUM(name, attributes, value, ...) WHOLE_UNARY(name, value)
#define UNARY_TEST(name, value, doc) WHOLE_UNARY(name, value)
#define UNARY_BIT(name, value, doc) WHOLE_UNARY(name, value)
#define BINARY_FLOAT(name, ...)
#define BINARY_NUM(name, attributes, value, ...) WHOLE_BINARY(name, value)
#define BINARY_COMPARE(name, value, doc) WHOLE_BINARY(name, value)
#define BINARY_LOGICAL(name, value, doc) WHOLE_BINARY(name, value)
#define BINARY_BIT(name, value, doc) WHOLE_BINARY(name, value)
#include "ops/elementwise.def"

static const struct scalar_op scalar_ops[OP_COUNT] = {
#define UNARY_FLOAT(name, ...) [OP_##name] = {value_##name, NULL}, [OP_##name##_backward] = {backward_##name, NULL},
#define UNARY_NUM(name, ...) \
    [OP_##name] = {value_##name, whole_value_##name}, [OP_##name##_backward] = {backward_##name, NULL},
#define UNARY_TEST(name, ...) [OP_##name] = {value_##name, whole_value_##name},
#define UNARY_BIT(name, ...) [OP_##name] = {NULL, whole_value_##name},
#define BINARY_FLOAT(name, ...) [OP_##name] = {value_##name, NULL},
#define BINARY_NUM(name, ...) [OP_##name] = {value_##name, whole_value_##name},
#define BINARY_COMPARE(name, ...) [OP_##name] = {value_##name, whole_value_##name},
#define BINARY_LOGICAL(name, ...) [OP_##name] = {value_##name, whole_value_##name},
#define BINARY_BIT(name, ...) [OP_##name] = {NULL, whole_value_##name},
#include "ops/elementwise.def"
};

/* ---- the loop ---- */

/* An attribute has the precision of the computation, so that comparing with it means the same on every backend. */
static double real_param(ag_dtype dtype, double value) { return dtype == AG_F64 ? value : (double)(float)value; }

/* An attribute on whole numbers: bounds of clamp are rounded inward, a factor loses its fraction; both saturate. */
static int64_t whole_param(int op, int i, ag_dtype dtype, double value) {
    uint64_t cell;
    if (op == OP_clamp) value = i == 0 ? ceil(value) : floor(value);
    element_write(dtype, &cell, value);
    return element_read_int(dtype, &cell);
}

static ag_status check_divisor(const ag_call *call, wide divisor, int64_t position) {
    int op = call->op->id;
    if (divisor != 0 || (op != OP_remainder && op != OP_fmod && op != OP_floor_divide)) return AG_OK;
    return call_fail(call, AG_E_VALUE, "b", "divisors other than 0", NULL, "0 at element %lld",
                     (long long)(position + call->index_base));
}

/* Reads input `operand` as compute: the value that the conversion leaves, kept in the wider type. */
static void read_inputs(const struct walk *w, const int *operands, int num_inputs, ag_dtype compute, double *real,
                        wide *whole) {
    for (int i = 0; i < num_inputs; i++) {
        uint64_t cell;
        if (operands[i] < 0) continue;
        element_convert((ag_dtype)w->operands[operands[i]]->dtype, walk_at(w, operands[i]), compute, &cell);
        if (dtype_is_float(compute)) real[i] = element_read(compute, &cell);
        else whole[i] = element_read_int(compute, &cell);
    }
}

ag_status reference_elementwise(ag_call *call) {
    const struct scalar_op *op = &scalar_ops[call->op->id];
    ag_tensor *out = call->outputs[0];
    /* As everywhere, f16 and bf16 compute with numbers of f32: a plain number in the call is not rounded to half precision. */
    ag_dtype compute = dtype_is_half(call->compute) ? AG_F32 : call->compute, out_dtype = (ag_dtype)out->dtype;
    double params[AG_MAX_PARAMS] = {0}, real[3] = {0};
    int64_t whole_params[AG_MAX_PARAMS] = {0};
    wide whole[3] = {0};
    int operands[3];
    struct walk w;
    shape s = tensor_shape(out);
    walk_begin(&w, call, &s, 0);
    int target = walk_add(&w, out);
    for (int i = 0; i < call->num_inputs; i++) operands[i] = call->inputs[i] ? walk_add(&w, call->inputs[i]) : -1;
    for (int i = 0; i < call->op->num_attrs; i++) {
        params[i] = real_param(compute, call->attrs[i].f);
        whole_params[i] = whole_param(call->op->id, i, compute, call->attrs[i].f);
    }
    for (; walk_more(&w); walk_step(&w)) {
        read_inputs(&w, operands, call->num_inputs, compute, real, whole);
        if (dtype_is_float(compute)) {
            element_write(out_dtype, walk_at(&w, target), op->real(real, params));
        } else {
            if (call->num_inputs == 2) AG_TRY(check_divisor(call, whole[1], w.position));
            element_write_int(out_dtype, walk_at(&w, target), (int64_t)op->whole(whole, whole_params, compute));
        }
    }
    return w.status;
}
