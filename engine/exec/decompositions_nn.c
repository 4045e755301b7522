/* decompositions_nn.c: activations, dropout and normalisation. */
#include "core/error.h"
#include "exec/decompositions.h"

/* ---- softmax ---- */

/* x - max(x) along dim: what exp takes safely. x itself when there is nothing to take the maximum of. */
static ag_tensor *shifted(expr *e, const ag_call *call, int64_t dim) {
    ag_tensor *x = decompose_input(e, call, 0);
    if (call->inputs[0]->numel == 0) return x;
    return ex_sub(e, x, ex_reduce(e, OP_amax, ex_detach(e, x), &dim, 1, true));
}

ag_status decompose_softmax(expr *e, ag_call *call) {
    int64_t dim = CALL_ATTRS(call, attrs_dim)->dim;
    ag_tensor *exponentials = ex_unary(e, OP_exp, shifted(e, call, dim));
    return decompose_result(e, call, 0, ex_div(e, exponentials, ex_reduce(e, OP_sum, exponentials, &dim, 1, true)));
}

ag_status decompose_log_softmax(expr *e, ag_call *call) {
    int64_t dim = CALL_ATTRS(call, attrs_dim)->dim;
    ag_tensor *x = shifted(e, call, dim), *sum = ex_reduce(e, OP_sum, ex_unary(e, OP_exp, x), &dim, 1, true);
    return decompose_result(e, call, 0, ex_sub(e, x, ex_unary(e, OP_log, sum)));
}

/* y * (g - sum(g * y)) */
ag_status decompose_softmax_backward(expr *e, ag_call *call) {
    int64_t dim = CALL_ATTRS(call, attrs_dim)->dim;
    ag_tensor *g = decompose_input(e, call, 0), *y = decompose_input(e, call, 1);
    ag_tensor *sum = ex_reduce(e, OP_sum, ex_mul(e, g, y), &dim, 1, true);
    return decompose_result(e, call, 0, ex_mul(e, y, ex_sub(e, g, sum)));
}

/* g - exp(y) * sum(g) */
ag_status decompose_log_softmax_backward(expr *e, ag_call *call) {
    int64_t dim = CALL_ATTRS(call, attrs_dim)->dim;
    ag_tensor *g = decompose_input(e, call, 0), *y = decompose_input(e, call, 1);
    ag_tensor *sum = ex_reduce(e, OP_sum, g, &dim, 1, true);
    return decompose_result(e, call, 0, ex_sub(e, g, ex_mul(e, ex_unary(e, OP_exp, y), sum)));
}

/* ---- activations and dropout ---- */

ag_status decompose_mish(expr *e, ag_call *call) {
    ag_tensor *x = decompose_input(e, call, 0);
    return decompose_result(e, call, 0, ex_mul(e, x, ex_unary(e, OP_tanh, ex_unary(e, OP_softplus, x))));
}

/* x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) */
ag_status decompose_gelu_tanh(expr *e, ag_call *call) {
    ag_tensor *x = decompose_input(e, call, 0), *x_squared = ex_mul(e, x, x);
    ag_tensor *slope = ex_add_number(e, ex_mul_number(e, x_squared, 0.044715 * 0.7978845608028654), 0.7978845608028654);
    ag_tensor *tanh = ex_unary(e, OP_tanh, ex_mul(e, x, slope));
    return decompose_result(e, call, 0, ex_mul(e, ex_mul_number(e, x, 0.5), ex_add_number(e, tanh, 1)));
}

ag_status decompose_hardtanh(expr *e, ag_call *call) {
    const struct attrs_clamp *attrs = CALL_ATTRS(call, attrs_clamp);
    double limits[2] = {attrs->min, attrs->max};
    return decompose_result(e, call, 0, ex_unary_params(e, OP_clamp, decompose_input(e, call, 0), limits, 2));
}

ag_status decompose_bias_activation_backward(expr *e, ag_call *call) {
    static const int64_t row_dim = 0;
    bool is_relu = CALL_ATTRS(call, attrs_activation)->activation == ACTIVATION_RELU;
    ag_call backward;
    call_init(&backward, is_relu ? OP_relu_backward : OP_gelu_backward);
    backward.inputs[0] = decompose_input(e, call, 0);
    backward.inputs[is_relu ? 2 : 1] = decompose_input(e, call, 1);
    ag_tensor *dz = ex_run(e, &backward);
    decompose_result(e, call, 0, dz);
    return decompose_result(e, call, 1, ex_reduce(e, OP_sum, dz, &row_dim, 1, false));
}

/* Identity hands x itself on: nothing is copied. */
ag_status decompose_dropout(expr *e, ag_call *call) {
    const struct attrs_dropout *attrs = CALL_ATTRS(call, attrs_dropout);
    if (!(attrs->p >= 0 && attrs->p <= 1))
        return decompose_refuse(e, call, AG_E_VALUE, "p", "a probability, 0 to 1", NULL, "%g", attrs->p);
    ag_tensor *x = ex_cast(e, call->inputs[0], call->out[0].dtype);
    if (!attrs->training || attrs->p == 0) {
        call->outputs[0] = expr_keep(e, x);
        return e->status;
    }
    if (attrs->p == 1) { /* a product, so that the result is tracked where x is */
        ag_tensor *zeros = ex_full(e, &call->out[0].shape, 0, call->out[0].dtype, call->device);
        return decompose_result(e, call, 0, ex_mul(e, x, zeros));
    }
    if (e->status != AG_OK) return e->status;
    ag_call mask;
    call_init(&mask, OP_dropout_mask);
    mask.inputs[0] = ex_detach(e, x);
    struct attrs_dropout_mask *mask_attrs = (void *)mask.attrs;
    mask_attrs->p = attrs->p;
    mask_attrs->generator = attrs->generator;
    return decompose_result(e, call, 0, ex_mul(e, x, ex_run(e, &mask)));
}

/* ---- normalisation over the last dims ---- */

/* mean(x) over dims, kept. */
static ag_tensor *mean_over(expr *e, ag_tensor *x, const int64_t *dims, int num_dims) {
    return ex_reduce(e, OP_mean, x, dims, num_dims, true);
}

static ag_tensor *inverse_root(expr *e, ag_tensor *variance, double eps) {
    return ex_unary(e, OP_rsqrt, ex_add_number(e, variance, eps));
}

ag_status decompose_layer_norm(expr *e, ag_call *call) {
    const struct attrs_layer_norm *attrs = CALL_ATTRS(call, attrs_layer_norm);
    const ag_tensor *x = call->inputs[0];
    int64_t width = 1, rows = 1;
    for (int i = 0; i < x->ndim; i++) *(i < x->ndim - attrs->shape.len ? &rows : &width) *= x->dims[i];
    shape flat = {.ndim = 1, .dims = {width}}, matrix = {.ndim = 2, .dims = {rows, width}};
    ag_call stats;
    call_init(&stats, OP_layer_norm_stats);
    stats.inputs[0] = ex_reshape(e, ex_cast(e, call->inputs[0], call->compute), &matrix);
    for (int i = 1; i < 3; i++)
        if (call->inputs[i]) stats.inputs[i] = ex_reshape(e, ex_cast(e, call->inputs[i], call->compute), &flat);
    stats.attrs[0].f = attrs->eps;
    stats.attrs[1].i = width;
    return decompose_result(e, call, 0, ex_reshape(e, ex_run(e, &stats), &call->out[0].shape));
}

/* x: [rows, width] -> (x - mean) * rstd * weight + bias, mean and rstd: [rows] */
ag_status decompose_layer_norm_stats(expr *e, ag_call *call) {
    static const int64_t width_dim = 1;
    ag_tensor *x = decompose_input(e, call, 0);
    ag_tensor *mean = mean_over(e, x, &width_dim, 1), *centred = ex_sub(e, x, mean);
    ag_tensor *variance = mean_over(e, ex_mul(e, centred, centred), &width_dim, 1);
    ag_tensor *rstd = inverse_root(e, variance, CALL_ATTRS(call, attrs_norm_stats)->eps);
    ag_tensor *y = ex_mul(e, centred, rstd);
    if (call->inputs[1]) y = ex_mul(e, y, decompose_input(e, call, 1));
    if (call->inputs[2]) y = ex_add(e, y, decompose_input(e, call, 2));
    decompose_result(e, call, 0, y);
    decompose_result(e, call, 1, ex_reshape(e, mean, &call->out[1].shape));
    return decompose_result(e, call, 2, ex_reshape(e, rstd, &call->out[2].shape));
}

/* rstd as a function of x. The eps that went into it is not known here; what it added to the variance follows from rstd. */
static ag_tensor *tracked_rstd(expr *e, ag_tensor *centred, ag_tensor *rstd) {
    static const int64_t width_dim = 1;
    ag_tensor *variance = mean_over(e, ex_mul(e, centred, centred), &width_dim, 1);
    rstd = ex_detach(e, rstd);
    ag_tensor *eps = ex_sub(e, ex_unary(e, OP_reciprocal, ex_mul(e, rstd, rstd)), ex_detach(e, variance));
    return ex_unary(e, OP_rsqrt, ex_add(e, variance, eps));
}

/* With u = (x - mean) * rstd and h = g * weight:
 *   dx = rstd * (h - mean(h) - u * mean(h * u)), dweight = sum over rows of g * u, dbias = sum over rows of g
 * mean and rstd come as constants; when x is tracked they are computed anew, so that the second derivative is whole. */
ag_status decompose_layer_norm_backward(expr *e, ag_call *call) {
    static const int64_t row_dim = 0, width_dim = 1;
    ag_tensor *g = decompose_input(e, call, 0), *x = decompose_input(e, call, 1);
    ag_tensor *mean = ex_unsqueeze(e, decompose_input(e, call, 2), 1);
    ag_tensor *rstd = ex_unsqueeze(e, decompose_input(e, call, 3), 1);
    bool is_tracked = call->inputs[1]->node != NULL;
    ag_tensor *centred = ex_sub(e, x, is_tracked ? mean_over(e, x, &width_dim, 1) : mean);
    if (is_tracked) rstd = tracked_rstd(e, centred, rstd);
    ag_tensor *u = ex_mul(e, centred, rstd), *h = call->inputs[4] ? ex_mul(e, g, decompose_input(e, call, 4)) : g;
    ag_tensor *along = ex_mul(e, u, mean_over(e, ex_mul(e, h, u), &width_dim, 1));
    ag_tensor *dx = ex_mul(e, rstd, ex_sub(e, ex_sub(e, h, mean_over(e, h, &width_dim, 1)), along));
    decompose_result(e, call, 0, dx);
    decompose_result(e, call, 1, ex_reduce(e, OP_sum, ex_mul(e, g, u), &row_dim, 1, false));
    return decompose_result(e, call, 2, ex_reduce(e, OP_sum, g, &row_dim, 1, false));
}

ag_status decompose_rms_norm(expr *e, ag_call *call) {
    const struct attrs_layer_norm *attrs = CALL_ATTRS(call, attrs_layer_norm);
    int64_t dims[AG_MAX_NDIM];
    for (int i = 0; i < attrs->shape.len; i++) dims[i] = -1 - i;
    ag_tensor *x = decompose_input(e, call, 0);
    ag_tensor *rstd = inverse_root(e, mean_over(e, ex_mul(e, x, x), dims, attrs->shape.len), attrs->eps);
    ag_tensor *y = ex_mul(e, x, rstd);
    if (call->inputs[1]) y = ex_mul(e, y, decompose_input(e, call, 1));
    return decompose_result(e, call, 0, y);
}

/* ---- normalisation by channel ---- */

/* A per-channel parameter [c] as [c, 1, ..], so that it lines up with dim 1 of x. */
static ag_tensor *by_channel(expr *e, ag_tensor *parameter, const ag_tensor *x) {
    shape s = {.ndim = x->ndim - 1, .dims = {x->dims[1]}};
    for (int i = 1; i < s.ndim; i++) s.dims[i] = 1;
    return ex_reshape(e, parameter, &s);
}

static ag_status check_channels(expr *e, const ag_call *call, int first_parameter, const char *const *names) {
    const ag_tensor *x = call->inputs[0];
    if (x->ndim < 2)
        return decompose_refuse(e, call, AG_E_SHAPE, "x", "[n, channels, ...]", NULL, "a tensor of %d dims", x->ndim);
    for (int i = first_parameter; i < call->num_inputs; i++) {
        const ag_tensor *parameter = call->inputs[i];
        if (!parameter || (parameter->ndim == 1 && parameter->dims[0] == x->dims[1])) continue;
        char text[96];
        shape s = tensor_shape(parameter);
        return decompose_refuse(e, call, AG_E_SHAPE, names[i - first_parameter], "one number a channel: [channels]", NULL,
                                "%s for %lld channels", shape_text(&s, text, sizeof text), (long long)x->dims[1]);
    }
    return e->status;
}

/* Scale and shift by channel; weight and bias are inputs first and first + 1. */
static ag_tensor *affine(expr *e, const ag_call *call, int first, ag_tensor *y) {
    const ag_tensor *x = call->inputs[0];
    if (call->inputs[first]) y = ex_mul(e, y, by_channel(e, decompose_input(e, call, first), x));
    if (call->inputs[first + 1]) y = ex_add(e, y, by_channel(e, decompose_input(e, call, first + 1), x));
    return y;
}

/* running = (1 - momentum) * running + momentum * value, in place. */
static void update_running(expr *e, ag_tensor *running, ag_tensor *value, double momentum) {
    if (!running || e->status != AG_OK) return;
    shape s = tensor_shape(running);
    ag_tensor *share = ex_mul_number(e, ex_reshape(e, ex_detach(e, value), &s), momentum);
    ag_tensor *result = ex_add(e, ex_mul_number(e, ex_detach(e, running), 1 - momentum), share);
    if (e->status != AG_OK) return;
    expr_fail(e, exec_copy(result, running));
    if (e->status == AG_OK) tensor_bump_version(running);
}

ag_status decompose_batch_norm(expr *e, ag_call *call) {
    static const char *const names[] = {"running_mean", "running_var", "weight", "bias"};
    const struct attrs_batch_norm *attrs = CALL_ATTRS(call, attrs_batch_norm);
    AG_TRY(check_channels(e, call, 1, names));
    const ag_tensor *source = call->inputs[0];
    ag_tensor *x = decompose_input(e, call, 0), *centred, *variance;
    if (attrs->training) {
        int64_t dims[AG_MAX_NDIM], count = 1;
        int num_dims = 0;
        for (int i = 0; i < source->ndim; i++) {
            if (i == 1) continue;
            dims[num_dims++] = i;
            count *= source->dims[i];
        }
        if (count == 1)
            return decompose_refuse(e, call, AG_E_SHAPE, "x", "more than 1 value a channel when training", NULL, "1");
        ag_tensor *mean = mean_over(e, x, dims, num_dims);
        centred = ex_sub(e, x, mean);
        variance = mean_over(e, ex_mul(e, centred, centred), dims, num_dims);
        if (count > 0) {
            update_running(e, call->inputs[1], mean, attrs->momentum);
            ag_tensor *unbiased = ex_mul_number(e, ex_detach(e, variance), (double)count / (double)(count - 1));
            update_running(e, call->inputs[2], unbiased, attrs->momentum);
        }
    } else {
        if (!call->inputs[1] || !call->inputs[2])
            return decompose_refuse(e, call, AG_E_ARGUMENT, names[call->inputs[1] ? 1 : 0],
                                    "running statistics when not training", "pass training = true", "none");
        centred = ex_sub(e, x, by_channel(e, decompose_input(e, call, 1), source));
        variance = by_channel(e, decompose_input(e, call, 2), source);
    }
    ag_tensor *y = ex_mul(e, centred, inverse_root(e, variance, attrs->eps));
    return decompose_result(e, call, 0, affine(e, call, 3, y));
}

/* Layer norm of [n * groups, channels of a group and all that follows]. */
ag_status decompose_group_norm(expr *e, ag_call *call) {
    static const char *const names[] = {"weight", "bias"};
    const struct attrs_group_norm *attrs = CALL_ATTRS(call, attrs_group_norm);
    AG_TRY(check_channels(e, call, 1, names));
    const ag_tensor *source = call->inputs[0];
    int64_t groups = attrs->num_groups;
    if (groups < 1 || source->dims[1] % groups != 0)
        return decompose_refuse(e, call, AG_E_VALUE, "num_groups", "a divisor of the number of channels", NULL,
                                "%lld for %lld channels", (long long)groups, (long long)source->dims[1]);
    shape matrix = {.ndim = 2, .dims = {source->dims[0] * groups, source->dims[1] / groups}};
    for (int i = 2; i < source->ndim; i++) matrix.dims[1] *= source->dims[i];
    ag_tensor *rows = ex_reshape(e, decompose_input(e, call, 0), &matrix);
    ag_call norm;
    call_init(&norm, OP_layer_norm);
    norm.inputs[0] = rows;
    call_set_ints(&norm, 0, &matrix.dims[1], 1);
    norm.attrs[1].f = attrs->eps;
    ag_tensor *x_shaped = ex_reshape(e, ex_run(e, &norm), &call->out[0].shape);
    return decompose_result(e, call, 0, affine(e, call, 1, x_shaped));
}
