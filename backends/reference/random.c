/* random.c: random numbers, drawn one by one.
 *
 * Element i depends on (seed, offset, i) only and is the same on every backend. An op reserves its blocks once:
 *   four a block, word i % 4 of block i / 4:  rand and randn of f32, f16 and bf16; bernoulli and dropout_mask of any dtype
 *   two a block, words 0,1 or 2,3 of block i / 2, high half first:  rand and randn of f64, randint, randperm
 */
#include <math.h>
#include <stdio.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/random.h"
#include "ops/attrs.h"
#include "reference/kernels.h"
#include "reference/walk.h"

struct stream {
    uint64_t seed, offset;
};

static struct stream reserve(ag_generator *generator, int64_t count, int per_block) {
    struct stream stream;
    random_reserve(generator, (uint64_t)(count / per_block + (count % per_block != 0)), &stream.seed, &stream.offset);
    return stream;
}

static uint32_t word32(struct stream stream, int64_t i) {
    uint32_t words[4];
    philox(stream.seed, stream.offset + (uint64_t)(i / 4), words);
    return words[i % 4];
}

static uint64_t word64(struct stream stream, int64_t i) {
    uint32_t words[4];
    philox(stream.seed, stream.offset + (uint64_t)(i / 2), words);
    return (uint64_t)words[2 * (i % 2)] << 32 | words[2 * (i % 2) + 1];
}

static double uniform64(struct stream stream, int64_t i) {
    uint64_t word = word64(stream, i);
    return uniform_double((uint32_t)(word >> 32), (uint32_t)word);
}

/* The largest value below 1: rounding to half precision must not reach 1. */
static double below_one(ag_dtype dtype) {
    if (dtype == AG_F16) return 1 - 0x1p-11;
    return dtype == AG_BF16 ? 1 - 0x1p-8 : 1;
}

ag_status reference_rand(ag_call *call) {
    ag_tensor *out = call->outputs[0];
    ag_dtype dtype = (ag_dtype)out->dtype;
    const struct attrs_random *attrs = CALL_ATTRS(call, attrs_random);
    struct stream stream = reserve(attrs->generator, out->numel, dtype == AG_F64 ? 2 : 4);
    for (int64_t i = 0; i < out->numel; i++) {
        AG_TRY(poll_interrupt(call, i));
        double value = dtype == AG_F64 ? uniform64(stream, i) : (double)uniform_float(word32(stream, i));
        element_write(dtype, element_at(out, i), fmin(value, below_one(dtype)));
    }
    return AG_OK;
}

/* Box and Muller (1958): two uniforms give r cos(2 pi u2) and r sin(2 pi u2), r = sqrt(-2 log u1). u1 is never 0; for f32 it is
 * made in f32, because near 1 its rounding shows in r. */
static double normal(struct stream stream, int64_t i, bool is_double) {
    double u1, u2;
    if (is_double) {
        int64_t first = i - i % 2;
        u1 = uniform64(stream, first) + 0x1p-54;
        u2 = uniform64(stream, first + 1);
    } else {
        int64_t even = i - i % 2;
        float high_bits = (float)(word32(stream, even) >> 1) * 0x1p-31f;
        u1 = (double)(float)(high_bits + 0x1p-32f);
        u2 = (double)uniform_float(word32(stream, even + 1));
    }
    double radius = sqrt(-2 * log(u1)), angle = 6.283185307179586477 * u2;
    return radius * (i % 2 ? sin(angle) : cos(angle));
}

ag_status reference_randn(ag_call *call) {
    ag_tensor *out = call->outputs[0];
    ag_dtype dtype = (ag_dtype)out->dtype;
    const struct attrs_random *attrs = CALL_ATTRS(call, attrs_random);
    struct stream stream = reserve(attrs->generator, out->numel, dtype == AG_F64 ? 2 : 4);
    for (int64_t i = 0; i < out->numel; i++) {
        AG_TRY(poll_interrupt(call, i));
        element_write(dtype, element_at(out, i), normal(stream, i, dtype == AG_F64));
    }
    return AG_OK;
}

/* The smallest and the largest whole number that dtype is asked to hold; floats take those of i64. */
static int64_t lowest_of(ag_dtype dtype) {
    switch (dtype) {
    case AG_U8: return 0;
    case AG_I8: return INT8_MIN;
    case AG_I16: return INT16_MIN;
    case AG_I32: return INT32_MIN;
    default: return INT64_MIN;
    }
}

static int64_t highest_of(ag_dtype dtype) {
    switch (dtype) {
    case AG_U8: return UINT8_MAX;
    case AG_I8: return INT8_MAX;
    case AG_I16: return INT16_MAX;
    case AG_I32: return INT32_MAX;
    default: return INT64_MAX;
    }
}

/* value = low + floor(word * (high - low) / 2^64) */
ag_status reference_randint(ag_call *call) {
    const struct attrs_randint *attrs = CALL_ATTRS(call, attrs_randint);
    ag_tensor *out = call->outputs[0];
    ag_dtype dtype = (ag_dtype)out->dtype;
    if (attrs->low >= attrs->high)
        return call_fail(call, AG_E_VALUE, "high", "more than low", NULL, "low %lld and high %lld", (long long)attrs->low,
                         (long long)attrs->high);
    if (attrs->low < lowest_of(dtype) || attrs->high - 1 > highest_of(dtype)) {
        char expected[96];
        snprintf(expected, sizeof expected, "numbers of %s: %lld to %lld", dtype_name(dtype), (long long)lowest_of(dtype),
                 (long long)highest_of(dtype));
        return call_fail(call, AG_E_VALUE, attrs->low < lowest_of(dtype) ? "low" : "high", expected, "choose a wider dtype",
                         "%lld to %lld", (long long)attrs->low, (long long)attrs->high - 1);
    }
    __extension__ typedef unsigned __int128 wide;
    uint64_t range = (uint64_t)attrs->high - (uint64_t)attrs->low;
    struct stream stream = reserve(attrs->generator, out->numel, 2);
    for (int64_t i = 0; i < out->numel; i++) {
        AG_TRY(poll_interrupt(call, i));
        uint64_t step = (uint64_t)((wide)word64(stream, i) * range >> 64);
        element_write_int(dtype, element_at(out, i), (int64_t)((uint64_t)attrs->low + step));
    }
    return AG_OK;
}

/* The positions in the order of random keys; equal keys keep their order. */
ag_status reference_randperm(ag_call *call) {
    ag_tensor *out = call->outputs[0];
    ag_dtype dtype = (ag_dtype)out->dtype;
    int64_t n = out->numel, *positions = NULL, *keys = NULL;
    if (n > 0 && n - 1 + call->index_base > highest_of(dtype))
        return call_fail(call, AG_E_VALUE, "n", "positions that are all numbers of the dtype", NULL, "%lld for %s",
                         (long long)n, dtype_name(dtype));
    const struct attrs_randperm *attrs = CALL_ATTRS(call, attrs_randperm);
    struct stream stream = reserve(attrs->generator, n, 2);
    ag_status status = scratch_new(call, n, sizeof *keys, &keys);
    if (status == AG_OK) status = scratch_new(call, n, sizeof *positions, &positions);
    if (status != AG_OK) goto done;
    /* Turning the top bit makes the order of i64 that of the unsigned words. */
    for (int64_t i = 0; i < n; i++) keys[i] = (int64_t)(word64(stream, i) ^ (uint64_t)1 << 63);
    status = sort_positions(call, (struct line){.dtype = AG_I64, .start = keys, .length = n, .stride = 1}, false, positions);
    for (int64_t i = 0; status == AG_OK && i < n; i++)
        element_write_int(dtype, element_at(out, i), positions[i] + call->index_base);
done:
    memory_free(positions, (size_t)n * sizeof *positions);
    memory_free(keys, (size_t)n * sizeof *keys);
    return status;
}

static bool is_probability(double p) { return p >= 0 && p <= 1; }

/* y = uniform < p ? 1 : 0. Nothing is drawn when a p is no probability. */
ag_status reference_bernoulli(ag_call *call) {
    const ag_tensor *p = call->inputs[0];
    ag_tensor *out = call->outputs[0];
    for (int64_t i = 0; i < p->numel; i++) {
        double value = element_read((ag_dtype)p->dtype, element_at(p, i));
        if (!is_probability(value))
            return call_fail(call, AG_E_VALUE, "p", "probabilities from 0 to 1", NULL, "%g at element %lld", value,
                             (long long)(i + call->index_base));
    }
    const struct attrs_generator *attrs = CALL_ATTRS(call, attrs_generator);
    struct stream stream = reserve(attrs->generator, out->numel, 4);
    for (int64_t i = 0; i < out->numel; i++) {
        AG_TRY(poll_interrupt(call, i));
        double value = element_read((ag_dtype)p->dtype, element_at(p, i));
        element_write((ag_dtype)out->dtype, element_at(out, i), (double)uniform_float(word32(stream, i)) < value);
    }
    return AG_OK;
}

/* y = uniform >= p ? 1 / (1 - p) : 0 */
ag_status reference_dropout_mask(ag_call *call) {
    const struct attrs_dropout_mask *attrs = CALL_ATTRS(call, attrs_dropout_mask);
    ag_tensor *out = call->outputs[0];
    if (!is_probability(attrs->p)) return call_fail(call, AG_E_VALUE, "p", "a probability from 0 to 1", NULL, "%g", attrs->p);
    struct stream stream = reserve(attrs->generator, out->numel, 4);
    for (int64_t i = 0; i < out->numel; i++) {
        AG_TRY(poll_interrupt(call, i));
        bool is_kept = (double)uniform_float(word32(stream, i)) >= attrs->p; /* never with p = 1 */
        element_write((ag_dtype)out->dtype, element_at(out, i), is_kept ? 1 / (1 - attrs->p) : 0);
    }
    return AG_OK;
}
