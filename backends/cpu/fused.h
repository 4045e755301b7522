/* fused.h: the fused CPU kernels: softmax, normalisation, cross-entropy, optimizer steps and random filling.
 *
 * A kernel is a plain C function over contiguous arrays. It allocates nothing, checks nothing and works on a range (of rows,
 * or of elements) that the caller picks, so one call is split over the thread pool by splitting its range; results do not
 * depend on the split unless the comment says so. Every family is one const table per instruction set. In a table a slot is
 * indexed by dtype, AG_F64 or AG_F32; arrays have that dtype where the comment does not say otherwise. Input and output
 * arrays are distinct, except that elementwise ranges may be rewritten in place where "x may be y" is said.
 */
#ifndef ARGAND_CPU_FUSED_H
#define ARGAND_CPU_FUSED_H

#include "argand.h"

enum { FUSED_NUM_DTYPES = 2 };
_Static_assert((int)AG_F64 < FUSED_NUM_DTYPES && (int)AG_F32 < FUSED_NUM_DTYPES, "slots are indexed by dtype");

/* Softmax over the last dim; x, y, g, dx: [rows, n]. x may be y, and dx may be g or y. A NaN in a row makes it NaN, and so does
 * a row of -Inf only. */
typedef void (*softmax_fn)(const void *x, void *y, int64_t n, int64_t row_begin, int64_t row_end);
typedef void (*softmax_backward_fn)(const void *g, const void *y, void *dx, int64_t n, int64_t row_begin, int64_t row_end);
struct softmax_kernels {
    softmax_fn softmax[FUSED_NUM_DTYPES];
    softmax_fn log_softmax[FUSED_NUM_DTYPES];
    softmax_backward_fn softmax_backward[FUSED_NUM_DTYPES];
    softmax_backward_fn log_softmax_backward[FUSED_NUM_DTYPES];
};

/* Normalisation over the last dim.
 *   layer norm: y = (x - mean) * rstd * weight + bias, rstd = 1 / sqrt(var + eps), var biased
 *   rms norm:   y = x * rstd * weight + bias,          rstd = 1 / sqrt(mean(x^2) + eps) */
struct norm_forward {
    const void *x;      /* [rows, n] */
    const void *weight; /* [n], NULL = 1 */
    const void *bias;   /* [n], NULL = 0 */
    void *y;            /* [rows, n], may be x */
    void *mean;         /* [rows], written; NULL = not wanted; unused by rms norm */
    void *rstd;         /* [rows], written; NULL = not wanted */
    int64_t n;
    double eps;
};
/* The partial gradients are written, not added to: the sums over just the rows of the call. The caller cuts the rows at
 * places that do not depend on the number of threads, and adds the partials up in order with sum_partials. */
struct norm_backward {
    const void *g;      /* [rows, n] */
    const void *x;      /* [rows, n] */
    const void *weight; /* [n], NULL = 1 */
    const void *mean;   /* [rows]; unused by rms norm */
    const void *rstd;   /* [rows] */
    void *dx;           /* [rows, n], NULL = not wanted; distinct from g and x when a partial is wanted */
    void *dweight;      /* [n] of this call alone, NULL = not wanted */
    void *dbias;        /* [n] of this call alone, NULL = not wanted */
    int64_t n;
};
typedef void (*norm_forward_fn)(const struct norm_forward *args, int64_t row_begin, int64_t row_end);
typedef void (*norm_backward_fn)(const struct norm_backward *args, int64_t row_begin, int64_t row_end);
/* out[j] = sum over p of partials[p, j] for j in [begin, end); partials: [num_partials, n]. */
typedef void (*norm_sum_fn)(const void *partials, int64_t num_partials, int64_t n, void *out, int64_t begin, int64_t end);
struct norm_kernels {
    norm_forward_fn layer_norm[FUSED_NUM_DTYPES];
    norm_backward_fn layer_norm_backward[FUSED_NUM_DTYPES];
    norm_forward_fn rms_norm[FUSED_NUM_DTYPES];
    norm_backward_fn rms_norm_backward[FUSED_NUM_DTYPES];
    norm_sum_fn sum_partials[FUSED_NUM_DTYPES];
};

/* Cross-entropy of logits against class labels, for a row with label y, smoothing s and class weights w (1 without):
 *   loss = (1 - s) * w[y] * (lse - x[y]) + s / C * sum_c w[c] * (lse - x[c]),   lse = log sum_c exp(x[c])
 * An ignored row has loss 0, weight 0 and gradient 0; its lse is 0 and its logits are not read. */
struct cross_entropy_args {
    const void *logits;        /* [rows, C] */
    const int64_t *labels;     /* [rows], index_base .. index_base + C - 1 */
    const void *class_weights; /* [C], NULL = 1 */
    int64_t num_classes;       /* C */
    int64_t num_rows;          /* of the whole call: a large output is written past the caches */
    int64_t ignore_label;      /* compared with a label as it stands, before index_base is taken off */
    int index_base;
    double label_smoothing; /* s, 0 <= s <= 1 */
    void *loss;             /* [rows], written by forward */
    void *weight;           /* [rows], written by forward: w[label]; the mean is sum(loss) / sum(weight) */
    void *lse;              /* [rows], written by forward, read by backward */
    const void *row_scale;  /* [rows], backward: gradient of every row's loss, 1 / sum(weight) for the mean */
    void *dlogits;          /* [rows, C], written by backward; may be logits */
};
/* forward returns -1, or the first row of the range whose label is out of range; later rows are not written then. */
typedef int64_t (*cross_entropy_forward_fn)(const struct cross_entropy_args *args, int64_t row_begin, int64_t row_end);
typedef void (*cross_entropy_backward_fn)(const struct cross_entropy_args *args, int64_t row_begin, int64_t row_end);
struct cross_entropy_kernels {
    cross_entropy_forward_fn forward[FUSED_NUM_DTYPES];
    cross_entropy_backward_fn backward[FUSED_NUM_DTYPES];
};

/* Optimizer steps over flat arrays, in place; the formulas are PyTorch's. */
struct sgd_args {
    void *param;
    const void *grad;
    void *momentum_buffer; /* NULL when momentum is 0 */
    double lr, momentum, dampening, weight_decay;
    bool nesterov, maximize;
    bool is_first_step; /* the momentum buffer holds nothing yet: it becomes the gradient, undamped */
};
struct adam_args {
    void *param;
    const void *grad;
    void *exp_avg, *exp_avg_sq;
    void *max_exp_avg_sq; /* amsgrad's running maximum; NULL = plain */
    double lr, beta1, beta2, eps, weight_decay;
    double bias_correction1, bias_correction2; /* 1 - beta^step */
    bool maximize;
    bool decoupled_decay; /* AdamW: the parameter decays, not the gradient */
};
typedef void (*sgd_fn)(const struct sgd_args *args, int64_t begin, int64_t end);
typedef void (*adam_fn)(const struct adam_args *args, int64_t begin, int64_t end);
struct optimizer_kernels {
    sgd_fn sgd[FUSED_NUM_DTYPES];
    adam_fn adam[FUSED_NUM_DTYPES];
};

/* Random filling from Philox (core/random.h): element i depends on (seed, offset, i) only, so any range may be drawn anywhere.
 * bits, float and dropout of either dtype use word i % 4 of block offset + i / 4; double uses words 0,1 or 2,3 (i odd) of
 * block offset + i / 2. `out` is the start of the array, of which [begin, end) is written.
 *   uniform: low + (high - low) * u, always < high when low < high; u = uniform_float or uniform_double of the words
 *   normal:  mean + std * r * cos(2 pi u2) for even i, sin for odd i, r = sqrt(-2 log u1) (Box and Muller, 1958);
 *            float:  u1 = (word >> 1) * 2^-31 + 2^-32 of the even word, u2 = uniform_float of the odd one
 *            double: u1 = uniform_double(words 0,1) + 2^-54, u2 = uniform_double(words 2,3) */
struct random_stream {
    uint64_t seed, offset;
};
typedef void (*fill_random_fn)(struct random_stream stream, double a, double b, void *out, int64_t begin, int64_t end);
typedef void (*fill_bits_fn)(struct random_stream stream, uint32_t *out, int64_t begin, int64_t end);
/* y = keep ? x / (1 - p) : 0, mask = keep ? 1 : 0, where keep = uniform_float(word) >= p; x may be y, mask may be NULL. */
typedef void (*dropout_fn)(struct random_stream stream, double p, const void *x, void *y, uint8_t *mask, int64_t begin,
                           int64_t end);
/* dx = mask ? g / (1 - p) : 0; dx may be g. */
typedef void (*dropout_backward_fn)(double p, const void *g, const uint8_t *mask, void *dx, int64_t begin, int64_t end);
struct random_kernels {
    fill_bits_fn bits;
    fill_random_fn uniform[FUSED_NUM_DTYPES]; /* a, b: low, high */
    fill_random_fn normal[FUSED_NUM_DTYPES];  /* a, b: mean, std */
    dropout_fn dropout[FUSED_NUM_DTYPES];
    dropout_backward_fn dropout_backward[FUSED_NUM_DTYPES];
};

/* fused_kernels ties the families of one instruction set together. */
struct fused_kernels {
    const struct softmax_kernels *softmax;
    const struct norm_kernels *norm;
    const struct cross_entropy_kernels *cross_entropy;
    const struct optimizer_kernels *optimizer;
    const struct random_kernels *random;
};

#define FUSED_DECLARE_TABLES(isa)                                          \
    extern const struct softmax_kernels softmax_kernels_##isa;             \
    extern const struct norm_kernels norm_kernels_##isa;                   \
    extern const struct cross_entropy_kernels cross_entropy_kernels_##isa; \
    extern const struct optimizer_kernels optimizer_kernels_##isa;         \
    extern const struct random_kernels random_kernels_##isa;               \
    extern const struct fused_kernels fused_kernels_##isa;
FUSED_DECLARE_TABLES(baseline)
FUSED_DECLARE_TABLES(avx2)
FUSED_DECLARE_TABLES(avx512)
#undef FUSED_DECLARE_TABLES

#endif
