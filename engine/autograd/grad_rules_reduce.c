/* grad_rules_reduce.c: gradients of reductions, running sums and products, and sorting. */
#include <math.h>

#include "autograd/grad_rules.h"
#include "ops/rules.h"

/* What a reduction did: `kept` is its result's shape with keepdim, `count` how many elements went into one. */
typedef struct reduction {
    shape input, kept;
    uint32_t mask;
    int64_t count;
} reduction;

static reduction reduction_of(grad_call *g) {
    reduction r = {.input = grad_input_shape(g, 0), .count = 1};
    expr_fail(g->e, rule_reduced_dims(g->call, CALL_ATTRS(g->call, attrs_reduce)->dims, r.input.ndim, &r.mask));
    rule_reduced_shape(&r.input, r.mask, true, &r.kept);
    for (int i = 0; i < r.input.ndim; i++)
        if (r.mask & (1u << i)) r.count *= r.input.dims[i];
    return r;
}

/* t, of the result's shape, with dims of size 1 where the reduced ones were. */
static ag_tensor *keep_dims(grad_call *g, const reduction *r, ag_tensor *t) { return ex_reshape(g->e, t, &r->kept); }

static void run_sum(grad_call *g) {
    reduction r = reduction_of(g);
    grad_give(g, 0, ex_expand(g->e, keep_dims(g, &r, g->grad_out[0]), &r.input));
}

static void run_mean(grad_call *g) {
    reduction r = reduction_of(g);
    ag_tensor *share = ex_mul_number(g->e, keep_dims(g, &r, g->grad_out[0]), r.count ? 1.0 / (double)r.count : 0);
    grad_give(g, 0, ex_expand(g->e, share, &r.input));
}

/* Elements equal to the extreme share its gradient; a NaN equals nothing, so it passes none on. */
static void run_amax(grad_call *g) {
    expr *e = g->e;
    reduction r = reduction_of(g);
    ag_tensor *x = g->saved_in[0];
    ag_tensor *mask = ex_binary(e, OP_eq, x, keep_dims(g, &r, g->saved_out[0]));
    ag_tensor *count = ex_reduce_list(e, OP_sum, mask, g->call, CALL_ATTRS(g->call, attrs_reduce)->dims, true);
    ag_tensor *share = ex_div(e, keep_dims(g, &r, g->grad_out[0]), count);
    grad_give(g, 0, ex_where(e, mask, share, ex_scalar(e, 0, x)));
}

/* dx = g exp(x - y). A row of -Inf has y = -Inf; 0 in its place makes exp(x - y) 0 instead of NaN. */
static void run_logsumexp(grad_call *g) {
    expr *e = g->e;
    reduction r = reduction_of(g);
    ag_tensor *x = g->saved_in[0], *y = keep_dims(g, &r, g->saved_out[0]);
    ag_tensor *is_empty = ex_binary(e, OP_eq, y, ex_scalar(e, -INFINITY, x));
    ag_tensor *safe = ex_where(e, is_empty, ex_scalar(e, 0, x), y);
    ag_tensor *weight = ex_unary(e, OP_exp, ex_sub(e, x, safe));
    grad_give(g, 0, ex_mul(e, keep_dims(g, &r, g->grad_out[0]), weight));
}

/* ---- products ---- */

/* P[i] = x[0] .. x[i - 1] along dim, P[0] = 1. */
static ag_tensor *products_before(expr *e, ag_tensor *x, int dim) {
    return ex_dim_op(e, OP_cumprod, grad_pad(e, x, dim, 1, -1, 1), dim);
}

/* The product of all others is that of those before times that of those after: no division, so zeros are no special case.
 * x as [outer, n], n running over the reduced dims. */
static void run_prod(grad_call *g) {
    expr *e = g->e;
    reduction r = reduction_of(g);
    int64_t order[AG_MAX_NDIM], inverse[AG_MAX_NDIM];
    shape permuted = {.ndim = r.input.ndim}, rows = {.ndim = 2, .dims = {1, r.count}}, column = {.ndim = 2, .dims = {1, 1}};
    if (shape_numel(&r.input) == 0) {
        g->grad_in[0] = grad_zeros(g, 0);
        return;
    }
    int at = 0;
    for (uint32_t reduced = 0; reduced < 2; reduced++)
        for (int i = 0; i < r.input.ndim; i++)
            if ((r.mask >> i & 1u) == reduced) order[at++] = i;
    for (int i = 0; i < r.input.ndim; i++) {
        permuted.dims[i] = r.input.dims[order[i]];
        inverse[order[i]] = i;
    }
    rows.dims[0] = column.dims[0] = shape_numel(&r.input) / r.count;
    ag_tensor *x = ex_reshape(e, grad_permute(e, g->saved_in[0], order, r.input.ndim), &rows);
    ag_tensor *before = products_before(e, x, 1), *after = ex_flip(e, products_before(e, ex_flip(e, x, 1), 1), 1);
    ag_tensor *dx = ex_mul(e, ex_reshape(e, g->grad_out[0], &column), ex_mul(e, before, after));
    grad_give(g, 0, grad_permute(e, ex_reshape(e, dx, &permuted), inverse, r.input.ndim));
}

static void run_cumsum(grad_call *g) {
    int64_t dim = CALL_ATTRS(g->call, attrs_dim)->dim;
    grad_give(g, 0, ex_flip(g->e, ex_dim_op(g->e, OP_cumsum, ex_flip(g->e, g->grad_out[0], dim), dim), dim));
}

/* *t becomes *t + factor * (*t moved forward by `window`), or without `add` just the product. Frees the former *t at once: the
 * steps of a long scan would otherwise all be kept by the expr. */
static void double_window(expr *e, ag_tensor **t, ag_tensor *factor, int dim, int64_t window, bool add) {
    expr step;
    expr_begin(&step);
    ag_tensor *result = ex_mul(&step, factor, grad_pad(&step, *t, dim, -window, window, 0));
    if (add) result = ex_add(&step, *t, result);
    if (step.status == AG_OK) {
        ag_tensor *former = *t;
        *t = expr_keep(&step, result);
        tensor_release(former);
    }
    expr_fail(e, expr_end(&step));
}

/* dx[i] = P[i] T[i] with T[i] = sum over k >= i of g[k] x[i + 1] .. x[k], that is T[i] = g[i] + x[i + 1] T[i + 1]. The
 * recurrence is solved by doubling: T and A[i] = x[i + 1] .. x[i + window] over windows of 1, 2, 4, ... Without division,
 * zeros are no special case, in any order of derivative. */
static void run_cumprod(grad_call *g) {
    expr *e = g->e;
    ag_tensor *x = g->saved_in[0], *sum = tensor_retain(g->grad_out[0]);
    shape s = grad_input_shape(g, 0);
    if (s.ndim > 0 && x->numel > 0) {
        int dim = dim_resolve(CALL_ATTRS(g->call, attrs_dim)->dim, s.ndim);
        ag_tensor *product = grad_pad(e, x, dim, -1, 1, 0);
        if (product) tensor_retain(product);
        for (int64_t window = 1; e->status == AG_OK && window < s.dims[dim]; window *= 2) {
            double_window(e, &sum, product, dim, window, true);
            if (e->status == AG_OK) double_window(e, &product, product, dim, window, false);
        }
        tensor_release(product);
        expr_own(e, sum);
        sum = ex_mul(e, products_before(e, x, dim), sum);
    } else {
        expr_own(e, sum);
    }
    grad_give(g, 0, sum);
}

/* ---- choosing by position ---- */

static void scatter_back(grad_call *g, int64_t dim) {
    if (g->grad_out[0]) grad_give(g, 0, grad_scatter_add(g, 0, dim, g->saved_out[1], g->grad_out[0]));
}

static void run_cumextreme(grad_call *g) { scatter_back(g, CALL_ATTRS(g->call, attrs_dim)->dim); }

static void run_sort(grad_call *g) {
    bool is_topk = g->call->op->id == OP_topk;
    scatter_back(g, is_topk ? CALL_ATTRS(g->call, attrs_topk)->dim : CALL_ATTRS(g->call, attrs_sort)->dim);
}

const grad_rule grad_rule_sum = {.run = run_sum};
const grad_rule grad_rule_mean = {.run = run_mean};
const grad_rule grad_rule_prod = {.run = run_prod, .saves_in = SAVES(0)};
const grad_rule grad_rule_amax = {.run = run_amax, .saves_in = SAVES(0), .saves_out = SAVES(0)};
const grad_rule grad_rule_logsumexp = {.run = run_logsumexp, .saves_in = SAVES(0), .saves_out = SAVES(0)};
const grad_rule grad_rule_cumsum = {.run = run_cumsum};
const grad_rule grad_rule_cumprod = {.run = run_cumprod, .saves_in = SAVES(0)};
const grad_rule grad_rule_cumextreme = {.run = run_cumextreme, .saves_out = SAVES(1)};
const grad_rule grad_rule_sort = {.run = run_sort, .saves_out = SAVES(1)};
