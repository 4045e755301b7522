/* vmath_f64.h: f64 math functions under the names of vmath.h. They forward to libm: f64 is for checks, not for speed. */
#ifndef ARGAND_CPU_SIMD_VMATH_F64_H
#define ARGAND_CPU_SIMD_VMATH_F64_H

#include <math.h>

static inline double vd_exp(double x) { return exp(x); }
static inline double vd_exp2(double x) { return exp2(x); }
static inline double vd_expm1(double x) { return expm1(x); }
static inline double vd_log(double x) { return log(x); }
static inline double vd_log2(double x) { return log2(x); }
static inline double vd_log10(double x) { return log10(x); }
static inline double vd_log1p(double x) { return log1p(x); }
static inline double vd_sqrt(double x) { return sqrt(x); }
static inline double vd_rsqrt(double x) { return 1.0 / sqrt(x); }
static inline double vd_tanh(double x) { return tanh(x); }
static inline double vd_erf(double x) { return erf(x); }
static inline double vd_sin(double x) { return sin(x); }
static inline double vd_cos(double x) { return cos(x); }
static inline double vd_tan(double x) { return tan(x); }
static inline double vd_asin(double x) { return asin(x); }
static inline double vd_acos(double x) { return acos(x); }
static inline double vd_atan(double x) { return atan(x); }
static inline double vd_atan2(double y, double x) { return atan2(y, x); }
static inline double vd_sinh(double x) { return sinh(x); }
static inline double vd_cosh(double x) { return cosh(x); }
static inline double vd_asinh(double x) { return asinh(x); }
static inline double vd_acosh(double x) { return acosh(x); }
static inline double vd_atanh(double x) { return atanh(x); }
static inline double vd_pow(double x, double y) { return pow(x, y); }
static inline double vd_hypot(double x, double y) { return hypot(x, y); }
static inline double vd_cbrt(double x) { return cbrt(x); }
static inline double vd_floor(double x) { return floor(x); }
static inline double vd_ceil(double x) { return ceil(x); }
static inline double vd_trunc(double x) { return trunc(x); }
static inline double vd_round(double x) { return rint(x); } /* half to even */
static inline double vd_lgamma(double x) { return lgamma(x); }

/* The exponential is of a number that is not positive, so neither form overflows. */
static inline double vd_sigmoid(double x)
{
    double e = exp(-fabs(x));
    return (x < 0.0 ? e : 1.0) / (1.0 + e);
}

static inline double vd_softplus(double x) { return (x > 0.0 ? x : 0.0) + log1p(exp(-fabs(x))); }

/* vd_digamma is the derivative of log gamma (Abramowitz and Stegun 6.3): reflection below 0, recurrence up to 10, then the
 * asymptotic series with the Bernoulli numbers up to B14. -Inf at +0, Inf at -0, NaN at the negative whole numbers. */
static inline double vd_digamma(double x)
{
    const double pi = 3.14159265358979323846;
    double sum = 0.0;
    if (x == 0.0)
        return copysign(INFINITY, -x);
    if (x < 0.0) {
        double fraction = x - rint(x); /* tan has period pi: exact near the poles */
        if (fraction == 0.0 || isinf(x))
            return NAN;
        sum = -pi / tan(pi * fraction);
        x = 1.0 - x;
    }
    while (x < 10.0) {
        sum -= 1.0 / x;
        x += 1.0;
    }
    double z = 1.0 / (x * x);
    double p = 1.0 / 12.0;
    p = p * z - 691.0 / 32760.0;
    p = p * z + 1.0 / 132.0;
    p = p * z - 1.0 / 240.0;
    p = p * z + 1.0 / 252.0;
    p = p * z - 1.0 / 120.0;
    p = p * z + 1.0 / 12.0;
    return sum + log(x) - 0.5 / x - z * p;
}

#endif
