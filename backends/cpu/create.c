/* create.c: kernels that make tensors out of nothing: constants, sequences, the unit matrix, and random numbers.
 *
 * A random op takes one range of Philox blocks off its generator before it draws, and element i comes from a fixed place in
 * that range, so results depend neither on the number of threads nor on how the work is cut.
 *   rand, randn             the kernels of cpu/fused.h; f16 and bf16 are rounded from f32
 *   bernoulli, dropout_mask word i % 4 of block i / 4, through uniform_float
 *   randint, randperm       64-bit words, two a block: words 0,1 for even i, words 2,3 for odd i, high half first
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/random.h"
#include "cpu/convert.h"
#include "cpu/cpu.h"
#include "cpu/fused.h"
#include "cpu/sort_kernels.h"
#include "ops/attrs.h"
#include "platform/interrupt.h"
#include "platform/pool.h"

enum {
    GRAIN = 32768,     /* elements of a chunk that is worth another thread */
    GRAIN_DRAW = 8192, /* the same where an element costs several instructions */
    BLOCK = 512,       /* elements that are computed in a buffer on the stack before they are converted; a multiple of 4 */
};

static ag_status run(const ag_call *call, pool_task task, void *context, int64_t num_items, int64_t grain) {
    pool_run(task, context, num_items, grain);
    return interrupt_pending() ? call_fail(call, AG_E_INTERRUPTED, NULL, NULL, NULL, "an interrupt") : AG_OK;
}

static ag_dtype output_dtype(const ag_call *call) { return (ag_dtype)call->outputs[0]->dtype; }

/* ---- constants ---- */

/* out[i] = the element whose bytes are in `element`. */
struct fill {
    char *out;
    size_t size; /* bytes an element */
    unsigned char element[8];
};

#define FILL_RUN(type)                                      \
    do {                                                    \
        type value, *y = (type *)(void *)fill->out;         \
        memcpy(&value, fill->element, sizeof value);        \
        for (int64_t i = begin; i < end; i++) y[i] = value; \
    } while (0)

static void fill_task(void *context, int64_t begin, int64_t end) {
    const struct fill *fill = context;
    if (interrupt_pending()) return;
    switch (fill->size) {
    case 1: memset(fill->out + begin, fill->element[0], (size_t)(end - begin)); return;
    case 2: FILL_RUN(uint16_t); return;
    case 4: FILL_RUN(uint32_t); return;
    default: FILL_RUN(uint64_t);
    }
}

static ag_status fill_output(const ag_call *call, double value) {
    ag_tensor *out = call->outputs[0];
    struct fill fill = {.out = tensor_address(out), .size = dtype_size(output_dtype(call))};
    element_write(output_dtype(call), fill.element, value);
    return run(call, fill_task, &fill, out->numel, GRAIN);
}

ag_status cpu_full(ag_call *call) {
    const struct attrs_full *attrs = CALL_ATTRS(call, attrs_full);
    return fill_output(call, attrs->value);
}

ag_status cpu_eye(ag_call *call) {
    ag_tensor *out = call->outputs[0];
    int64_t rows = out->dims[0], columns = out->dims[1];
    AG_TRY(fill_output(call, 0));
    size_t size = dtype_size(output_dtype(call));
    char *y = tensor_address(out);
    for (int64_t i = 0; i < rows && i < columns; i++)
        element_write(output_dtype(call), y + (size_t)(i * columns + i) * size, 1);
    return AG_OK;
}

/* ---- sequences ---- */

struct sequence {
    char *out;
    ag_dtype dtype;
    double start, stop, step;
    int64_t count;
    bool is_whole; /* start and step are whole numbers: computed in 64-bit ints, without rounding */
};

static void arange_task(void *context, int64_t begin, int64_t end) {
    const struct sequence *s = context;
    const struct convert_kernels *kernels = cpu_convert_kernels();
    size_t size = dtype_size(s->dtype);
    union {
        double f64[BLOCK];
        int64_t i64[BLOCK];
    } block;
    if (interrupt_pending()) return;
    for (int64_t i = begin; i < end; i += BLOCK) {
        int64_t count = end - i < BLOCK ? end - i : BLOCK;
        if (s->is_whole) {
            uint64_t start = (uint64_t)(int64_t)s->start, step = (uint64_t)(int64_t)s->step;
            for (int64_t j = 0; j < count; j++) block.i64[j] = (int64_t)(start + (uint64_t)(i + j) * step);
        } else {
            for (int64_t j = 0; j < count; j++) block.f64[j] = s->start + (double)(i + j) * s->step;
        }
        kernels->convert[s->is_whole ? AG_I64 : AG_F64][s->dtype](count, &block, 1, s->out + (size_t)i * size, 1);
    }
}

static bool is_whole(double value) { return value == trunc(value) && fabs(value) < 0x1p63; }

ag_status cpu_arange(ag_call *call) {
    const struct attrs_arange *attrs = CALL_ATTRS(call, attrs_arange);
    ag_tensor *out = call->outputs[0];
    struct sequence s = {.out = tensor_address(out), .dtype = output_dtype(call), .start = attrs->start, .step = attrs->step};
    /* The small int types saturate when they come from f64, as casts do; only i64 has numbers that f64 has not. */
    s.is_whole = s.dtype == AG_I64 && is_whole(s.start) && is_whole(s.step);
    return run(call, arange_task, &s, out->numel, GRAIN_DRAW);
}

/* Values of the upper half are counted from the stop, so that both ends are exact. */
static void linspace_task(void *context, int64_t begin, int64_t end) {
    const struct sequence *s = context;
    const struct convert_kernels *kernels = cpu_convert_kernels();
    size_t size = dtype_size(s->dtype);
    double block[BLOCK];
    if (interrupt_pending()) return;
    for (int64_t i = begin; i < end; i += BLOCK) {
        int64_t count = end - i < BLOCK ? end - i : BLOCK;
        for (int64_t j = 0; j < count; j++) {
            int64_t position = i + j, from_end = s->count - 1 - position;
            block[j] = position < from_end || s->count == 1 ? s->start + (double)position * s->step
                                                            : s->stop - (double)from_end * s->step;
        }
        kernels->convert[AG_F64][s->dtype](count, block, 1, s->out + (size_t)i * size, 1);
    }
}

ag_status cpu_linspace(ag_call *call) {
    const struct attrs_linspace *attrs = CALL_ATTRS(call, attrs_linspace);
    ag_tensor *out = call->outputs[0];
    struct sequence s = {.out = tensor_address(out), .dtype = output_dtype(call), .start = attrs->start, .stop = attrs->stop,
                         .count = attrs->count};
    if (s.count > 1) {
        double gaps = (double)(s.count - 1), range = s.stop - s.start;
        s.step = isinf(range) ? s.stop / gaps - s.start / gaps : range / gaps;
    }
    return run(call, linspace_task, &s, out->numel, GRAIN_DRAW);
}

/* ---- random numbers ---- */

/* reserve takes the blocks for numel elements off the stream of the call's generator. */
static struct random_stream reserve(ag_generator *generator, int64_t numel, int per_block) {
    struct random_stream stream;
    uint64_t blocks = (uint64_t)(numel / per_block) + (numel % per_block != 0);
    random_reserve(generator, blocks, &stream.seed, &stream.offset);
    return stream;
}

struct draw {
    struct random_stream stream;
    char *out;
    ag_dtype dtype;
    fill_random_fn fill; /* of dtype, or of f32 for the half dtypes */
    double a, b;         /* low and high, or mean and standard deviation */
    float limit;         /* half dtypes: no value above this one, which keeps rounding from reaching 1 */
};

static void draw_task(void *context, int64_t begin, int64_t end) {
    const struct draw *draw = context;
    if (interrupt_pending()) return;
    if (!dtype_is_half(draw->dtype)) {
        draw->fill(draw->stream, draw->a, draw->b, draw->out, begin, end);
        return;
    }
    convert_run convert = cpu_convert_kernels()->convert[AG_F32][draw->dtype];
    float block[BLOCK];
    for (int64_t i = begin; i < end; i += BLOCK) { /* begin is a multiple of GRAIN_DRAW: blocks start with a Philox block */
        int64_t count = end - i < BLOCK ? end - i : BLOCK;
        struct random_stream stream = {draw->stream.seed, draw->stream.offset + (uint64_t)i / 4};
        draw->fill(stream, draw->a, draw->b, block, 0, count);
        for (int64_t j = 0; j < count; j++) block[j] = block[j] > draw->limit ? draw->limit : block[j];
        convert(count, block, 1, draw->out + i * 2, 1);
    }
}

static ag_status draw_reals(const ag_call *call, const fill_random_fn *fills, double a, double b, bool is_below_one) {
    const struct attrs_random *attrs = CALL_ATTRS(call, attrs_random);
    ag_tensor *out = call->outputs[0];
    ag_dtype dtype = output_dtype(call);
    struct draw draw = {.out = tensor_address(out), .dtype = dtype, .a = a, .b = b, .limit = INFINITY};
    draw.fill = fills[dtype == AG_F64 ? AG_F64 : AG_F32];
    /* 11 bits of significand in f16, 8 in bf16 */
    if (is_below_one) draw.limit = dtype == AG_F16 ? 1 - 0x1p-11f : 1 - 0x1p-8f;
    draw.stream = reserve(attrs->generator, out->numel, dtype == AG_F64 ? 2 : 4);
    return run(call, draw_task, &draw, out->numel, GRAIN_DRAW);
}

ag_status cpu_rand(ag_call *call) { return draw_reals(call, cpu_fused_kernels()->random->uniform, 0, 1, true); }

ag_status cpu_randn(ag_call *call) { return draw_reals(call, cpu_fused_kernels()->random->normal, 0, 1, false); }

__extension__ typedef unsigned __int128 uint128;

struct draw_ints {
    struct random_stream stream;
    char *out;
    ag_dtype dtype;
    int64_t low;
    uint64_t range; /* high - low */
};

/* out[i] = low + floor(word64 * range / 2^64): the bias is below range / 2^64. */
static void randint_task(void *context, int64_t begin, int64_t end) {
    const struct draw_ints *draw = context;
    const struct random_kernels *random = cpu_fused_kernels()->random;
    convert_run convert = cpu_convert_kernels()->convert[AG_I64][draw->dtype];
    size_t size = dtype_size(draw->dtype);
    uint32_t words[2 * BLOCK];
    int64_t block[BLOCK];
    if (interrupt_pending()) return;
    for (int64_t i = begin; i < end; i += BLOCK) {
        int64_t count = end - i < BLOCK ? end - i : BLOCK;
        random->bits((struct random_stream){draw->stream.seed, draw->stream.offset + (uint64_t)i / 2}, words, 0, 2 * count);
        for (int64_t j = 0; j < count; j++) {
            uint64_t word = (uint64_t)words[2 * j] << 32 | words[2 * j + 1];
            uint64_t step = (uint64_t)(((uint128)word * draw->range) >> 64);
            block[j] = (int64_t)((uint64_t)draw->low + step);
        }
        convert(count, block, 1, draw->out + (size_t)i * size, 1);
    }
}

/* int_limits are the smallest and the largest number of an int dtype; of a float dtype: those of i64. */
static void int_limits(ag_dtype dtype, int64_t *low, int64_t *high) {
    int bits = dtype_is_int(dtype) ? (int)dtype_size(dtype) * 8 : 64;
    *high = dtype == AG_U8 ? UINT8_MAX : (int64_t)(UINT64_MAX >> (65 - bits));
    *low = dtype == AG_U8 ? 0 : -*high - 1;
}

ag_status cpu_randint(ag_call *call) {
    const struct attrs_randint *attrs = CALL_ATTRS(call, attrs_randint);
    ag_tensor *out = call->outputs[0];
    ag_dtype dtype = output_dtype(call);
    int64_t lowest, highest;
    int_limits(dtype, &lowest, &highest);
    if (attrs->low >= attrs->high)
        return call_fail(call, AG_E_VALUE, "high", "more than low", NULL, "low %lld and high %lld", (long long)attrs->low,
                         (long long)attrs->high);
    if (attrs->low < lowest || attrs->high - 1 > highest) {
        char expected[96];
        snprintf(expected, sizeof expected, "numbers of %s: %lld to %lld", dtype_name(dtype), (long long)lowest,
                 (long long)highest);
        return call_fail(call, AG_E_VALUE, attrs->low < lowest ? "low" : "high", expected, "choose a wider dtype",
                         "%lld to %lld", (long long)attrs->low, (long long)attrs->high - 1);
    }
    struct draw_ints draw = {.out = tensor_address(out), .dtype = dtype, .low = attrs->low};
    draw.range = (uint64_t)attrs->high - (uint64_t)attrs->low;
    draw.stream = reserve(attrs->generator, out->numel, 2);
    return run(call, randint_task, &draw, out->numel, GRAIN_DRAW);
}

struct draw_keys {
    struct random_stream stream;
    int64_t *keys;
};

/* keys[i]: a random 64-bit number; its sign bit is turned, so that signed order is that of the word. */
static void keys_task(void *context, int64_t begin, int64_t end) {
    const struct draw_keys *draw = context;
    const struct random_kernels *random = cpu_fused_kernels()->random;
    uint32_t words[2 * BLOCK];
    for (int64_t i = begin; i < end; i += BLOCK) {
        int64_t count = end - i < BLOCK ? end - i : BLOCK;
        random->bits((struct random_stream){draw->stream.seed, draw->stream.offset + (uint64_t)i / 2}, words, 0, 2 * count);
        for (int64_t j = 0; j < count; j++)
            draw->keys[i + j] = (int64_t)(((uint64_t)words[2 * j] << 32 | words[2 * j + 1]) ^ (uint64_t)1 << 63);
    }
}

/* The positions in the order of random keys; equal keys keep their order. */
ag_status cpu_randperm(ag_call *call) {
    const struct attrs_randperm *attrs = CALL_ATTRS(call, attrs_randperm);
    ag_tensor *out = call->outputs[0];
    ag_dtype dtype = output_dtype(call);
    int64_t n = out->numel, lowest, highest;
    int_limits(dtype, &lowest, &highest);
    int64_t most = highest < SORT_MAX_LEN ? highest - call->index_base + 1 : SORT_MAX_LEN - 1;
    if (n > most) {
        char expected[64];
        snprintf(expected, sizeof expected, "at most %lld positions in %s", (long long)most, dtype_name(dtype));
        return call_fail(call, AG_E_VALUE, "n", expected, NULL, "%lld", (long long)n);
    }
    struct draw_keys draw = {.stream = reserve(attrs->generator, n, 2)};
    if (n == 0) return AG_OK;
    size_t keys_bytes = (size_t)n * sizeof(int64_t), scratch_bytes = sort_scratch_bytes(AG_I64, n);
    ag_status status = AG_OK;
    int64_t *positions = memory_alloc(keys_bytes);
    void *scratch = memory_alloc(scratch_bytes);
    draw.keys = memory_alloc(keys_bytes);
    if (!positions || !scratch || !draw.keys) {
        status = error_memory(call->op->name, 2 * keys_bytes + scratch_bytes);
        goto done;
    }
    pool_run(keys_task, &draw, n, GRAIN_DRAW);
    if (interrupt_pending()) {
        status = call_fail(call, AG_E_INTERRUPTED, NULL, NULL, NULL, "an interrupt");
        goto done;
    }
    sort_row(AG_I64, draw.keys, n, false, NULL, positions, scratch);
    if (interrupt_pending()) {
        status = call_fail(call, AG_E_INTERRUPTED, NULL, NULL, NULL, "an interrupt");
        goto done;
    }
    for (int64_t i = 0; i < n; i++) positions[i] += call->index_base;
    cpu_convert_kernels()->convert[AG_I64][dtype](n, positions, 1, tensor_address(out), 1);
done:
    memory_free(draw.keys, keys_bytes);
    memory_free(scratch, scratch_bytes);
    memory_free(positions, keys_bytes);
    return status;
}

/* ---- draws against a probability ---- */

/* is_probability is false for NaN. */
static bool is_probability(double p) { return p >= 0 && p <= 1; }

struct trials {
    struct random_stream stream;
    const void *p; /* bernoulli: a probability an element */
    double drop;   /* dropout_mask: the probability of a zero */
    void *out;
};

#define TRIALS(real, suffix)                                                                              \
    static void bernoulli_##suffix(void *context, int64_t begin, int64_t end) {                           \
        const struct trials *trials = context;                                                            \
        const real *p = trials->p;                                                                        \
        real *y = trials->out;                                                                            \
        uint32_t words[BLOCK];                                                                            \
        if (interrupt_pending()) return;                                                                  \
        for (int64_t i = begin; i < end; i += BLOCK) {                                                    \
            int64_t count = end - i < BLOCK ? end - i : BLOCK;                                            \
            struct random_stream stream = {trials->stream.seed, trials->stream.offset + (uint64_t)i / 4}; \
            cpu_fused_kernels()->random->bits(stream, words, 0, count);                                   \
            for (int64_t j = 0; j < count; j++) y[i + j] = (real)uniform_float(words[j]) < p[i + j];      \
        }                                                                                                 \
    }                                                                                                     \
    /* The first element that is not a probability, or -1; whole blocks are tested at once. */            \
    static int64_t first_improbable_##suffix(const real *p, int64_t n) {                                  \
        for (int64_t i = 0; i < n; i += BLOCK) {                                                          \
            int64_t count = n - i < BLOCK ? n - i : BLOCK;                                                \
            int is_bad = 0;                                                                               \
            for (int64_t j = i; j < i + count; j++) is_bad |= !is_probability(p[j]);                      \
            for (int64_t j = i; is_bad && j < i + count; j++)                                             \
                if (!is_probability(p[j])) return j;                                                      \
        }                                                                                                 \
        return -1;                                                                                        \
    }                                                                                                     \
    static void dropout_mask_##suffix(void *context, int64_t begin, int64_t end) {                        \
        const struct trials *trials = context;                                                            \
        real *y = trials->out, scale = trials->drop < 1 ? (real)(1 / (1 - trials->drop)) : 0;             \
        uint32_t threshold = (uint32_t)ceil(trials->drop * 0x1p24); /* uniform_float(word) >= p */        \
        uint32_t words[BLOCK];                                                                            \
        if (interrupt_pending()) return;                                                                  \
        for (int64_t i = begin; i < end; i += BLOCK) {                                                    \
            int64_t count = end - i < BLOCK ? end - i : BLOCK;                                            \
            struct random_stream stream = {trials->stream.seed, trials->stream.offset + (uint64_t)i / 4}; \
            cpu_fused_kernels()->random->bits(stream, words, 0, count);                                   \
            for (int64_t j = 0; j < count; j++) y[i + j] = words[j] >> 8 >= threshold ? scale : 0;        \
        }                                                                                                 \
    }
TRIALS(float, f32)
TRIALS(double, f64)

ag_status cpu_bernoulli(ag_call *call) {
    const struct attrs_generator *attrs = CALL_ATTRS(call, attrs_generator);
    ag_tensor *p = call->inputs[0], *out = call->outputs[0];
    ag_dtype dtype = output_dtype(call);
    const void *values = tensor_address(p);
    int64_t bad = dtype == AG_F64 ? first_improbable_f64(values, p->numel) : first_improbable_f32(values, p->numel);
    if (bad >= 0)
        return call_fail(call, AG_E_VALUE, "p", "probabilities from 0 to 1", NULL, "%g at element %lld",
                         element_read(dtype, (const char *)values + (size_t)bad * dtype_size(dtype)),
                         (long long)bad + call->index_base);
    struct trials trials = {.p = values, .out = tensor_address(out)};
    trials.stream = reserve(attrs->generator, out->numel, 4);
    return run(call, dtype == AG_F64 ? bernoulli_f64 : bernoulli_f32, &trials, out->numel, GRAIN_DRAW);
}

ag_status cpu_dropout_mask(ag_call *call) {
    const struct attrs_dropout_mask *attrs = CALL_ATTRS(call, attrs_dropout_mask);
    ag_tensor *out = call->outputs[0];
    if (!is_probability(attrs->p)) return call_fail(call, AG_E_VALUE, "p", "a probability from 0 to 1", NULL, "%g", attrs->p);
    struct trials trials = {.drop = attrs->p, .out = tensor_address(out)};
    trials.stream = reserve(attrs->generator, out->numel, 4);
    return run(call, output_dtype(call) == AG_F64 ? dropout_mask_f64 : dropout_mask_f32, &trials, out->numel, GRAIN_DRAW);
}
