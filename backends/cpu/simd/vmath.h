/* vmath.h: branch-free f32 math functions, so that the plain loop `y[i] = vm_exp(x[i])` becomes vector code.
 *
 * Compiled with -O3 -ffp-contract=fast -fno-math-errno -fno-trapping-math and never with -ffast-math: NaN, Inf, subnormals
 * and the sign of zero come out as IEEE 754 and C Annex F ask. Selection is by ?:, bit casts by memcpy, rounding to a whole
 * number by adding a large constant. Polynomials are minimax fits (Lawson) of the form that the comment above each states.
 * Error bounds are in spec/support/vmath_test.c: 2 ulp for exp, log, tanh, sigmoid and erf, 4 ulp for the rest.
 * vm_lgamma and vm_digamma are the two that stay scalar.
 */
#ifndef ARGAND_CPU_SIMD_VMATH_H
#define ARGAND_CPU_SIMD_VMATH_H

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "cpu/simd/vmath_f64.h"

/* A call left in a loop would keep it scalar, so inlining is not left to the compiler's budget. */
#define VM_INLINE static inline __attribute__((always_inline))

/* What vm_sin, vm_cos and vm_tan return at and beyond this magnitude, infinities included, is not defined: kernels ask libm
 * there. Neighbouring floats lie 256 apart. */
#define VM_TRIG_LIMIT 0x1p31f

VM_INLINE uint32_t vm_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

VM_INLINE float vm_from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

VM_INLINE float vm_sqrt(float x) { return sqrtf(x); }
VM_INLINE float vm_rsqrt(float x) { return 1.0f / sqrtf(x); }
VM_INLINE float vm_floor(float x) { return floorf(x); }
VM_INLINE float vm_ceil(float x) { return ceilf(x); }
VM_INLINE float vm_trunc(float x) { return truncf(x); }
VM_INLINE float vm_round(float x) { return rintf(x); } /* half to even */

/* ---- exponentials: x = n ln2 + r, |r| <= ln2 / 2; e^x = 2^n e^r ---- */

/* t = VM_EXP_MAGIC + n has n + 254 in its low mantissa bits, ready to be halved into two biased exponents. */
#define VM_EXP_MAGIC (0x1.8p23f + 254.0f)

/* 2^n in two factors, each normal for -252 <= n <= 254, so that p * a * b rounds once also when subnormal. */
VM_INLINE float vm_scale(float p, float t)
{
    uint32_t whole = vm_bits(t), half = whole >> 1;
    return p * vm_from_bits(half << 23) * vm_from_bits((whole - half) << 23);
}

/* e^r - 1 = r + r^2 q(r) */
VM_INLINE float vm_exp_minus_1(float r)
{
    float q = 0.00139506003f;
    q = q * r + 0.00836895371f;
    q = q * r + 0.0416662042f;
    q = q * r + 0.166665183f;
    q = q * r + 0.50000001f;
    return r + r * r * q;
}

/* 2^r - 1 = r q(r), |r| <= 1/2 */
VM_INLINE float vm_exp2_minus_1(float r)
{
    float q = 0.000154760432f;
    q = q * r + 0.00134004168f;
    q = q * r + 0.00961800491f;
    q = q * r + 0.0555032741f;
    q = q * r + 0.240226513f;
    q = q * r + 0.693147206f;
    return r * q;
}

/* The first part of ln2 has 10 bits: its product with n is exact also without FMA. */
VM_INLINE float vm_exp_remainder(float x, float n)
{
    return (x - n * 0.693359375f) - n * -2.12194440e-4f;
}

VM_INLINE float vm_exp(float x)
{
    float c = x < -104.0f ? -104.0f : x; /* comparisons are false for NaN, which so passes through */
    c = c > 89.0f ? 89.0f : c;
    float t = c * 1.44269504f + VM_EXP_MAGIC;
    float r = vm_exp_remainder(c, t - VM_EXP_MAGIC);
    return vm_scale(1.0f + vm_exp_minus_1(r), t);
}

VM_INLINE float vm_exp2(float x)
{
    float c = x < -151.0f ? -151.0f : x;
    c = c > 129.0f ? 129.0f : c;
    float t = c + VM_EXP_MAGIC;
    return vm_scale(1.0f + vm_exp2_minus_1(c - (t - VM_EXP_MAGIC)), t);
}

/* 2^t for |t| <= 126: one factor is enough. */
VM_INLINE float vm_exp2_near(float x)
{
    const float magic = 0x1.8p23f + 127.0f;
    float t = x + magic;
    return (1.0f + vm_exp2_minus_1(x - (t - magic))) * vm_from_bits(vm_bits(t) << 23);
}

/* e^x - 1 = 2 (s m + (s - 1/2)), m = e^r - 1, s = 2^(n-1): half size, so that n = 128 does not overflow on the way. */
VM_INLINE float vm_expm1(float x)
{
    const float magic = 0x1.8p23f + 126.0f;
    float c = x < -18.0f ? -18.0f : x;
    c = c > 89.0f ? 89.0f : c;
    float t = c * 1.44269504f + magic;
    float m = vm_exp_minus_1(vm_exp_remainder(c, t - magic));
    float s = vm_from_bits(vm_bits(t) << 23);
    return copysignf(2.0f * (s * m + (s - 0.5f)), x);
}

/* With e = e^-|x|: 1 / (1 + e), and for negative x e / (1 + e) written so that a small e is hardly rounded again. */
VM_INLINE float vm_sigmoid(float x)
{
    float e = vm_exp(-fabsf(x));
    float y = 1.0f / (1.0f + e);
    return x < 0.0f ? e - e * (e * y) : y;
}

/* tanh a = a + a^3 P(a^2) below 0.625, else 1 - 2 / (e^2a + 1) */
VM_INLINE float vm_tanh(float x)
{
    float a = fabsf(x), z = a * a;
    float p = -0.00567930384f;
    p = p * z + 0.0206181218f;
    p = p * z + -0.0537339997f;
    p = p * z + 0.133313836f;
    p = p * z + -0.333332802f;
    float small = a + a * z * p;
    float c = a > 10.0f ? 10.0f : a;
    float large = 1.0f - 2.0f / (vm_exp2_near(c * 2.88539008f) + 1.0f);
    return copysignf(a < 0.625f ? small : large, x);
}

/* erf a = a + a P(a^2) below 0.92, else 1 - 2^(a Q(a)) */
VM_INLINE float vm_erf(float x)
{
    float a = fabsf(x), z = a * a;
    float p = 8.34522492e-05f;
    p = p * z + -0.000813743757f;
    p = p * z + 0.00520063431f;
    p = p * z + -0.0268592708f;
    p = p * z + 0.112836939f;
    p = p * z + -0.376126337f;
    p = p * z + 0.128379167f;
    float small = a + a * p;
    float c = a > 4.0f ? 4.0f : a;
    float q = -7.43114979e-06f;
    q = q * c + 6.95411196e-05f;
    q = q * c + 5.20304463e-05f;
    q = q * c + -0.00417270806f;
    q = q * c + 0.0326222345f;
    q = q * c + -0.15177572f;
    q = q * c + -0.917058514f;
    q = q * c + -1.62814613f;
    float large = 1.0f - vm_exp2_near(c * q);
    return copysignf(a < 0.92f ? small : large, x);
}

/* e^a / 2 for a >= 0, finite up to a = 89.4159 where sinh and cosh still are. */
VM_INLINE float vm_half_exp(float a)
{
    float c = a > 90.0f ? 90.0f : a;
    float t = c * 1.44269504f + VM_EXP_MAGIC;
    float r = vm_exp_remainder(c, t - VM_EXP_MAGIC);
    return vm_scale(1.0f + vm_exp_minus_1(r), t - 1.0f);
}

/* sinh a = a + a^3 P(a^2) below 1 */
VM_INLINE float vm_sinh(float x)
{
    float a = fabsf(x), z = a * a;
    float p = 2.81743965e-06f;
    p = p * z + 0.000198360662f;
    p = p * z + 0.0083333506f;
    p = p * z + 0.166666665f;
    float h = vm_half_exp(a);
    return copysignf(a < 1.0f ? a + a * z * p : h - 0.25f / h, x);
}

VM_INLINE float vm_cosh(float x)
{
    float h = vm_half_exp(fabsf(x));
    return h + 0.25f / h;
}

/* ---- logarithms: x = 2^k (1 + f), sqrt(1/2) <= 1 + f < sqrt(2) ---- */

/* vm_log_split returns f and sets k. x > 0 and finite; the callers put right what else comes. */
VM_INLINE float vm_log_split(float x, float *k)
{
    float normal = x < FLT_MIN ? x * 0x1p23f : x;
    uint32_t bits = vm_bits(normal) - 0x3f3504f3u;
    *k = (float)((int32_t)bits >> 23) - (x < FLT_MIN ? 23.0f : 0.0f);
    return vm_from_bits((bits & 0x7fffffu) + 0x3f3504f3u) - 1.0f;
}

/* log(1 + f) - f + f^2 / 2 = f^3 P(f) */
VM_INLINE float vm_log_tail(float f)
{
    float p = 0.0691559536f;
    p = p * f + -0.117940918f;
    p = p * f + 0.118750757f;
    p = p * f + -0.123837998f;
    p = p * f + 0.142183266f;
    p = p * f + -0.1666927f;
    p = p * f + 0.200022423f;
    p = p * f + -0.249999864f;
    p = p * f + 0.333333102f;
    return f * f * f * p;
}

/* Log of 0 is -Inf, of a negative number NaN; Inf and NaN stay. */
VM_INLINE float vm_log_edges(float x, float y)
{
    float finite = x < INFINITY ? y : x;
    return x > 0.0f ? finite : x == 0.0f ? -INFINITY : NAN;
}

VM_INLINE float vm_log(float x)
{
    float k, f = vm_log_split(x, &k);
    float y = vm_log_tail(f) + k * -2.12194440e-4f;
    y = (y - 0.5f * f * f) + f;
    return vm_log_edges(x, y + k * 0.693359375f);
}

VM_INLINE float vm_log2(float x)
{
    float k, f = vm_log_split(x, &k);
    float y = (vm_log_tail(f) - 0.5f * f * f) + f;
    return vm_log_edges(x, y * 1.44269504f + k);
}

VM_INLINE float vm_log10(float x)
{
    float k, f = vm_log_split(x, &k);
    float y = (vm_log_tail(f) - 0.5f * f * f) + f;
    return vm_log_edges(x, (y * 0.434294482f + k * 4.6050389811e-06f) + k * 0.301025390625f);
}

/* u = 1 + x rounded; (1 + x - u) / u makes up for the rounding. With k = 0, f is x itself and nothing is lost. */
VM_INLINE float vm_log1p(float x)
{
    float u = 1.0f + x;
    float k, f = vm_log_split(u, &k);
    float lost = (x < 1.0f ? x - (u - 1.0f) : 1.0f - (u - x)) / u;
    f = k == 0.0f ? x : f;
    lost = k == 0.0f ? 0.0f : lost;
    float y = vm_log_tail(f) + (k * -2.12194440e-4f + lost);
    y = (y - 0.5f * f * f) + f;
    y = y + k * 0.693359375f;
    y = x < INFINITY ? y : x;
    y = x > -1.0f ? y : x == -1.0f ? -INFINITY : NAN;
    return x == 0.0f ? x : y;
}

/* max(x, 0) + log(1 + e), e = e^-|x| <= 1: above sqrt(2) - 1, log(1 + e) = ln2 + log(1 + (e - 1) / 2). */
VM_INLINE float vm_softplus(float x)
{
    float e = vm_exp(-fabsf(x));
    float f = e > 0.414213562f ? 0.5f * e - 0.5f : e;
    float y = (vm_log_tail(f) - 0.5f * f * f) + f;
    y = e > 0.414213562f ? y + 0.693147181f : y;
    return (x > 0.0f ? x : 0.0f) + y;
}

/* asinh a = log1p(a + a^2 / (1 + sqrt(1 + a^2))); past 1e9 it is log a + ln2 to the last bit. */
VM_INLINE float vm_asinh(float x)
{
    float a = fabsf(x), z = a * a;
    float y = vm_log1p(a > 1e9f ? a : a + z / (1.0f + sqrtf(1.0f + z)));
    return copysignf(y + (a > 1e9f ? 0.693147181f : 0.0f), x);
}

VM_INLINE float vm_acosh(float x)
{
    float d = x - 1.0f;
    float y = vm_log1p(x > 1e9f ? x : d + sqrtf(2.0f * d + d * d));
    return x < 1.0f ? NAN : y + (x > 1e9f ? 0.693147181f : 0.0f);
}

VM_INLINE float vm_atanh(float x)
{
    float a = fabsf(x);
    return copysignf(0.5f * vm_log1p(2.0f * a / (1.0f - a)), x);
}

/* ---- trigonometry: x = n pi/2 + r, |r| <= pi/4, quadrant = n mod 4 ---- */

/* Reduced in f64. pi/2 is in parts of 22, 22 and 53 bits: n times the first two is exact also without FMA while
 * |x| < VM_TRIG_LIMIT (Cody and Waite 1980). */
VM_INLINE float vm_trig_reduce(float x, uint32_t *quadrant)
{
    double wide = x, t = wide * 0.6366197723675814 + 0x1.8p52, n = t - 0x1.8p52;
    double r = ((wide - n * 0x1.921fbp+0) - n * 0x1.5110bp-22) - n * 0x1.18469898cc517p-44;
    uint64_t bits;
    memcpy(&bits, &t, sizeof bits);
    *quadrant = (uint32_t)bits;
    return (float)r;
}

/* sin r = r + r^3 S(r^2) */
VM_INLINE float vm_sin_near(float r)
{
    float z = r * r;
    float s = -0.000195160109f;
    s = s * z + 0.00833216892f;
    s = s * z + -0.166666548f;
    return r + r * z * s;
}

/* cos r = 1 - r^2 / 2 + r^4 C(r^2) */
VM_INLINE float vm_cos_near(float r)
{
    float z = r * r;
    float c = 2.44370059e-05f;
    c = c * z + -0.00138873553f;
    c = c * z + 0.0416666466f;
    return 1.0f - (0.5f * z - z * z * c);
}

VM_INLINE float vm_sin(float x)
{
    uint32_t quadrant;
    float r = vm_trig_reduce(x, &quadrant);
    float y = quadrant & 1u ? vm_cos_near(r) : vm_sin_near(r);
    y = vm_from_bits(vm_bits(y) ^ (quadrant & 2u) << 30);
    return x == 0.0f ? x : y;
}

VM_INLINE float vm_cos(float x)
{
    uint32_t quadrant;
    float r = vm_trig_reduce(x, &quadrant);
    float y = quadrant & 1u ? vm_sin_near(r) : vm_cos_near(r);
    return vm_from_bits(vm_bits(y) ^ ((quadrant + 1u) & 2u) << 30);
}

VM_INLINE float vm_tan(float x)
{
    uint32_t quadrant;
    float r = vm_trig_reduce(x, &quadrant);
    float s = vm_sin_near(r), c = vm_cos_near(r);
    float y = (quadrant & 1u ? -c : s) / (quadrant & 1u ? s : c);
    return x == 0.0f ? x : y;
}

#define VM_HALF_PI 1.57079637f
#define VM_HALF_PI_LOW -4.37113883e-08f /* pi/2 - VM_HALF_PI */

/* asin s = s + s^3 P(z), z = s^2 <= 1/4 */
VM_INLINE float vm_asin_near(float s, float z)
{
    float p = 0.0375781567f;
    p = p * z + 0.0143938057f;
    p = p * z + 0.0318198193f;
    p = p * z + 0.044515471f;
    p = p * z + 0.0750051213f;
    p = p * z + 0.166666599f;
    return s + s * z * p;
}

/* asin a = pi/2 - 2 asin(sqrt((1 - a) / 2)) above 1/2 */
VM_INLINE float vm_asin(float x)
{
    float a = fabsf(x);
    float z = a > 0.5f ? 0.5f - 0.5f * a : a * a;
    float p = vm_asin_near(a > 0.5f ? sqrtf(z) : a, z);
    return copysignf(a > 0.5f ? VM_HALF_PI - (2.0f * p - VM_HALF_PI_LOW) : p, x);
}

VM_INLINE float vm_acos(float x)
{
    float a = fabsf(x);
    float z = a > 0.5f ? 0.5f - 0.5f * a : x * x;
    float p = vm_asin_near(a > 0.5f ? sqrtf(z) : x, z);
    float outer = x > 0.0f ? 2.0f * p : 2.0f * VM_HALF_PI - (2.0f * p - 2.0f * VM_HALF_PI_LOW);
    return a > 0.5f ? outer : VM_HALF_PI - (p - VM_HALF_PI_LOW);
}

/* atan t = t + t^3 P(t^2), |t| <= 1 */
VM_INLINE float vm_atan_near(float t)
{
    float z = t * t;
    float p = -0.00182718464f;
    p = p * z + 0.011064315f;
    p = p * z + -0.0314554691f;
    p = p * z + 0.05823432f;
    p = p * z + -0.0841944596f;
    p = p * z + 0.109575719f;
    p = p * z + -0.142652446f;
    p = p * z + 0.199986386f;
    p = p * z + -0.333333019f;
    return t + t * z * p;
}

VM_INLINE float vm_atan(float x)
{
    float a = fabsf(x);
    float p = vm_atan_near(a > 1.0f ? 1.0f / a : a);
    return copysignf(a > 1.0f ? VM_HALF_PI - (p - VM_HALF_PI_LOW) : p, x);
}

VM_INLINE float vm_atan2(float y, float x)
{
    float ay = fabsf(y), ax = fabsf(x);
    float above = ay > ax ? ay : ax, below = ay > ax ? ax : ay;
    float t = below / above;
    t = above == 0.0f ? 0.0f : t;        /* 0 / 0 */
    t = below == INFINITY ? 1.0f : t;    /* Inf / Inf */
    float p = vm_atan_near(t);
    p = ay > ax ? VM_HALF_PI - (p - VM_HALF_PI_LOW) : p;
    p = copysignf(1.0f, x) < 0.0f ? 2.0f * VM_HALF_PI - (p - 2.0f * VM_HALF_PI_LOW) : p;
    p = x != x || y != y ? NAN : p;
    return copysignf(p, y);
}

/* ---- powers: in f64 within, rounded once ---- */

/* log2 a = k + 2 / ln2 * atanh s, s = f / (f + 2); eight terms of the series give 42 bits. */
VM_INLINE double vm_log2_wide(float a)
{
    float k, f = vm_log_split(a, &k);
    double s = (double)f / ((double)f + 2.0), z = s * s;
    double p = 1.0 / 15.0;
    p = p * z + 1.0 / 13.0;
    p = p * z + 1.0 / 11.0;
    p = p * z + 1.0 / 9.0;
    p = p * z + 1.0 / 7.0;
    p = p * z + 1.0 / 5.0;
    p = p * z + 1.0 / 3.0;
    p = p * z + 1.0;
    double y = s * p * 2.8853900817779268 + (double)k;
    y = a < INFINITY ? y : (double)a;
    return a == 0.0f ? (double)-INFINITY : y;
}

/* 2^x = 2^n e^(r ln2), |r| <= 1/2; nine terms give 32 bits. */
VM_INLINE float vm_exp2_wide(double x)
{
    const double magic = 0x1.8p52 + 1023.0;
    double c = x < -200.0 ? -200.0 : x;
    c = c > 200.0 ? 200.0 : c;
    double t = c + magic, r = (c - (t - magic)) * 0.6931471805599453;
    double p = 1.0 / 40320.0;
    p = p * r + 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    uint64_t bits;
    memcpy(&bits, &t, sizeof bits);
    bits <<= 52;
    double scale;
    memcpy(&scale, &bits, sizeof scale);
    return (float)(p * scale);
}

/* The special cases are steps of one comparison each: gcc 12 keeps a loop scalar over conditions joined by && or ||. */
VM_INLINE float vm_pow(float x, float y)
{
    float a = fabsf(x), half = y * 0.5f;
    float p = vm_exp2_wide((double)y * vm_log2_wide(a));
    p = a == 1.0f ? 1.0f : p; /* 0 * Inf */
    float odd = rintf(half) != half ? copysignf(p, x) : p;
    float fraction = x > -INFINITY ? NAN : p; /* of a negative base */
    p = rintf(y) == y ? odd : x < 0.0f ? fraction : p;
    p = y == y ? p : y;
    p = x == 1.0f ? 1.0f : p;
    return y == 0.0f ? 1.0f : p;
}

VM_INLINE float vm_hypot(float x, float y)
{
    float h = (float)sqrt((double)x * (double)x + (double)y * (double)y);
    return fabsf(x) == INFINITY || fabsf(y) == INFINITY ? INFINITY : h;
}

/* A third of the exponent bits is a first guess good to 5 bits; two Halley steps in f64 make it exact enough. */
VM_INLINE float vm_cbrt(float x)
{
    float a = fabsf(x), normal = a < FLT_MIN ? a * 0x1p24f : a;
    double t = vm_from_bits(vm_bits(normal) / 3u + 0x2a5119f2u), v = normal;
    double cube = t * t * t;
    t = t * (v + v + cube) / (v + cube + cube);
    cube = t * t * t;
    t = t * (v + v + cube) / (v + cube + cube);
    float y = (float)t * (a < FLT_MIN ? 0x1p-8f : 1.0f);
    return a > 0.0f && a < INFINITY ? copysignf(y, x) : x;
}

static inline float vm_lgamma(float x) { return lgammaf(x); }
static inline float vm_digamma(float x) { return (float)vd_digamma((double)x); }

#endif
