/* decompositions_loss.c: losses. Cross-entropy works on rows: logits [rows, classes], one label a row. */
#include <math.h>

#include "core/error.h"
#include "exec/decompositions.h"

/* ---- rows ---- */

static int class_dim(const ag_tensor *x) { return x->ndim == 1 ? 0 : 1; }

/* x: [n, classes, ...] or [classes] -> [rows, classes] */
static ag_tensor *logit_rows(expr *e, const ag_call *call) {
    const ag_tensor *source = call->inputs[0];
    int64_t classes = source->dims[class_dim(source)], rows = 1;
    for (int i = 0; i < source->ndim; i++)
        if (i != class_dim(source)) rows *= source->dims[i];
    ag_tensor *x = decompose_input(e, call, 0);
    shape matrix = {.ndim = 2, .dims = {rows, classes}};
    if (source->ndim > 2 && e->status == AG_OK) {
        ag_call move;
        call_init(&move, OP_movedim);
        move.inputs[0] = x;
        move.attrs[0].i = 1;
        move.attrs[1].i = -1;
        x = ex_run(e, &move);
    }
    return ex_reshape(e, x, &matrix);
}

/* The labels of the rows that count. */
struct labels {
    ag_tensor *ignored; /* bool [rows]; NULL = none is */
    ag_tensor *classes; /* i64 [rows], within range; the first class where ignored */
};

/* labels_of marks what is to be ignored: where(target == ignore_index). The mark may be given instead. */
static struct labels labels_of(expr *e, const ag_call *call, ag_tensor *target, int64_t ignore_index, ag_tensor *ignored,
                               int64_t num_classes) {
    shape flat = {.ndim = 1, .dims = {target->numel}};
    struct labels labels = {.classes = ex_reshape(e, ex_cast(e, target, AG_I64), &flat), .ignored = ignored};
    if (!ignored && ignore_index != ATTR_NO_INT)
        labels.ignored = ex_compare_number(e, OP_eq, labels.classes, (double)ignore_index);
    if (labels.ignored)
        labels.classes = ex_where(e, labels.ignored, ex_scalar(e, call->index_base, target), labels.classes);
    decompose_check_classes(e, call, "target", labels.classes, num_classes);
    return labels;
}

/* x[row, class of the row]: [rows] */
static ag_tensor *pick(expr *e, ag_tensor *x, const struct labels *labels) {
    ag_tensor *index = ex_unsqueeze(e, labels->classes, 1);
    if (e->status != AG_OK) return NULL;
    ag_call call;
    call_init(&call, OP_gather);
    call.inputs[0] = x;
    call.inputs[1] = index;
    call.attrs[0].i = 1;
    return ex_squeeze(e, ex_run(e, &call), 1);
}

static ag_tensor *zero_ignored(expr *e, ag_tensor *x, ag_tensor *ignored) {
    return ignored ? ex_where(e, ignored, ex_scalar(e, 0, x), x) : x;
}

/* Weight of the row's class, 0 where ignored: [rows]. weight [classes] may be NULL. */
static ag_tensor *row_weights(expr *e, ag_tensor *weight, const struct labels *labels, ag_tensor *x) {
    if (e->status != AG_OK) return NULL;
    shape rows = {.ndim = 1, .dims = {x->dims[0]}};
    ag_tensor *result;
    if (weight) {
        ag_call call;
        call_init(&call, OP_index_select);
        call.inputs[0] = weight;
        call.inputs[1] = labels->classes;
        call.attrs[0].i = 0;
        result = ex_run(e, &call);
    } else {
        result = ex_full(e, &rows, 1, (ag_dtype)x->dtype, x->storage->device);
    }
    return zero_ignored(e, result, labels->ignored);
}

/* Reduces the losses of rows as the attribute says; the mean is weighted. */
static ag_status reduce_rows(expr *e, ag_call *call, ag_tensor *loss, ag_tensor *row_weight, int64_t reduction) {
    if (reduction == REDUCTION_NONE) return decompose_result(e, call, 0, ex_reshape(e, loss, &call->out[0].shape));
    ag_tensor *sum = ex_reduce(e, OP_sum, loss, NULL, -1, false);
    if (reduction == REDUCTION_MEAN) sum = ex_div(e, sum, ex_reduce(e, OP_sum, row_weight, NULL, -1, false));
    return decompose_result(e, call, 0, sum);
}

/* ---- cross-entropy ---- */

static ag_status check_smoothing(expr *e, const ag_call *call, double smoothing) {
    if (smoothing >= 0 && smoothing <= 1) return e->status;
    return decompose_refuse(e, call, AG_E_VALUE, "label_smoothing", "0 to 1", NULL, "%g", smoothing);
}

/* Targets are probabilities t: -sum_c w[c] * t'[c] * log_softmax(x)[c], t' = (1 - s) * t + s / C. The mean is over rows. */
static ag_status soft_cross_entropy(expr *e, ag_call *call) {
    const struct attrs_cross_entropy *attrs = CALL_ATTRS(call, attrs_cross_entropy);
    const ag_tensor *source = call->inputs[0];
    int64_t dim = class_dim(source), classes = source->dims[dim];
    if (attrs->ignore_index != ATTR_NO_INT)
        return decompose_refuse(e, call, AG_E_ARGUMENT, "ignore_index", "class labels as target", NULL, "probabilities");
    ag_tensor *target = decompose_input(e, call, 1);
    double smoothing = attrs->label_smoothing;
    if (smoothing != 0) target = ex_add_number(e, ex_mul_number(e, target, 1 - smoothing), smoothing / (double)classes);
    ag_tensor *terms = ex_mul(e, ex_dim_op(e, OP_log_softmax, decompose_input(e, call, 0), dim), target);
    if (call->inputs[2]) {
        shape by_class = {.ndim = source->ndim - (int)dim, .dims = {classes}};
        for (int i = 1; i < by_class.ndim; i++) by_class.dims[i] = 1;
        terms = ex_mul(e, terms, ex_reshape(e, decompose_input(e, call, 2), &by_class));
    }
    ag_tensor *loss = ex_neg(e, ex_reduce(e, OP_sum, terms, &dim, 1, false));
    return decompose_result(e, call, 0, ex_reduction(e, loss, attrs->reduction));
}

ag_status decompose_cross_entropy(expr *e, ag_call *call) {
    const struct attrs_cross_entropy *attrs = CALL_ATTRS(call, attrs_cross_entropy);
    AG_TRY(check_smoothing(e, call, attrs->label_smoothing));
    ag_tensor *target = call->inputs[1];
    if (dtype_is_float((ag_dtype)target->dtype)) return soft_cross_entropy(e, call);
    shape flat = {.ndim = 1, .dims = {target->numel}};
    ag_call rows;
    call_init(&rows, OP_cross_entropy_rows);
    rows.inputs[0] = logit_rows(e, call);
    rows.inputs[1] = ex_reshape(e, target, &flat);
    rows.inputs[2] = decompose_input(e, call, 2);
    struct attrs_cross_entropy_rows *row_attrs = (void *)rows.attrs;
    row_attrs->ignore_index = attrs->ignore_index;
    row_attrs->label_smoothing = attrs->label_smoothing;
    ag_tensor *loss = ex_run(e, &rows);
    return loss ? reduce_rows(e, call, loss, rows.outputs[2], attrs->reduction) : e->status;
}

/* loss = (1 - s) * w[y] * (lse - x[y]) + s / C * sum_c w[c] * (lse - x[c]); ignored rows have loss, lse and row_weight 0. */
ag_status decompose_cross_entropy_rows(expr *e, ag_call *call) {
    static const int64_t dim = 1;
    const struct attrs_cross_entropy_rows *attrs = CALL_ATTRS(call, attrs_cross_entropy_rows);
    double smoothing = attrs->label_smoothing;
    int64_t classes = call->inputs[0]->dims[1];
    AG_TRY(check_smoothing(e, call, smoothing));
    ag_tensor *x = decompose_input(e, call, 0), *weight = decompose_input(e, call, 2);
    struct labels labels = labels_of(e, call, call->inputs[1], attrs->ignore_index, NULL, classes);
    ag_tensor *lse = ex_reduce(e, OP_logsumexp, x, &dim, 1, false);
    lse = ex_where(e, ex_unary(e, OP_isinf, lse), ex_scalar(e, NAN, lse), lse); /* no distribution, as log_softmax has it */
    ag_tensor *row_weight = row_weights(e, weight, &labels, x);
    ag_tensor *loss = ex_mul(e, row_weight, ex_sub(e, lse, pick(e, x, &labels)));
    if (smoothing != 0) {
        ag_tensor *all = ex_sub(e, ex_unsqueeze(e, lse, 1), x);
        if (weight) all = ex_mul(e, all, weight);
        all = ex_mul_number(e, ex_reduce(e, OP_sum, all, &dim, 1, false), smoothing / (double)classes);
        loss = ex_add(e, ex_mul_number(e, loss, 1 - smoothing), all);
    }
    decompose_result(e, call, 0, zero_ignored(e, loss, labels.ignored));
    decompose_result(e, call, 1, zero_ignored(e, lse, labels.ignored));
    return decompose_result(e, call, 2, row_weight);
}

/* dlogits = g * (p * ((1 - s) * w[y] + s / C * sum(w)) - (1 - s) * w[y] * onehot(y) - s / C * w), p = softmax(x).
 * An ignored row is known by lse and row_weight 0. lse is a constant here; when x is tracked p is computed anew, so that the
 * second derivative is whole. */
ag_status decompose_cross_entropy_rows_backward(expr *e, ag_call *call) {
    double smoothing = call->attrs[0].f;
    int64_t classes = call->inputs[1]->dims[1];
    double share = smoothing / (double)classes;
    ag_tensor *g = ex_unsqueeze(e, decompose_input(e, call, 0), 1), *x = decompose_input(e, call, 1);
    ag_tensor *lse = decompose_input(e, call, 3), *row_weight = decompose_input(e, call, 4);
    ag_tensor *weight = decompose_input(e, call, 5), *no_weight = ex_compare_number(e, OP_eq, row_weight, 0);
    ag_tensor *ignored = ex_binary(e, OP_logical_and, no_weight, ex_compare_number(e, OP_eq, lse, 0));
    struct labels labels = labels_of(e, call, call->inputs[2], ATTR_NO_INT, ignored, classes);
    ag_tensor *ignored_rows = ex_unsqueeze(e, ignored, 1);
    x = zero_ignored(e, x, ignored_rows);
    ag_tensor *p = call->inputs[1]->node ? ex_dim_op(e, OP_softmax, x, 1)
                                         : ex_unary(e, OP_exp, ex_sub(e, x, ex_unsqueeze(e, lse, 1)));
    ag_tensor *names = ex_arange(e, call->index_base, classes, AG_I64, call->device);
    ag_tensor *is_label = ex_binary(e, OP_eq, ex_unsqueeze(e, labels.classes, 1), names);
    ag_tensor *own = ex_unsqueeze(e, smoothing != 0 ? ex_mul_number(e, row_weight, 1 - smoothing) : row_weight, 1);
    ag_tensor *pull = ex_where(e, is_label, own, ex_scalar(e, 0, own)), *push = own;
    if (smoothing != 0 && weight) {
        push = ex_add(e, own, ex_mul_number(e, ex_reduce(e, OP_sum, weight, NULL, -1, false), share));
        pull = ex_add(e, pull, ex_mul_number(e, weight, share));
    } else if (smoothing != 0) {
        push = ex_add_number(e, own, smoothing);
        pull = ex_add_number(e, pull, share);
    }
    ag_tensor *dlogits = ex_mul(e, g, ex_sub(e, ex_mul(e, p, push), pull));
    return decompose_result(e, call, 0, zero_ignored(e, dlogits, ignored_rows));
}

ag_status decompose_nll_loss(expr *e, ag_call *call) {
    const struct attrs_nll *attrs = CALL_ATTRS(call, attrs_nll);
    const ag_tensor *source = call->inputs[0];
    ag_tensor *x = logit_rows(e, call), *target = call->inputs[1];
    if (dtype_is_float((ag_dtype)target->dtype))
        return decompose_refuse(e, call, AG_E_KIND, "target", "class labels of an int dtype", NULL, "%s",
                                dtype_name((ag_dtype)target->dtype));
    struct labels labels = labels_of(e, call, target, attrs->ignore_index, NULL, source->dims[class_dim(source)]);
    ag_tensor *row_weight = row_weights(e, decompose_input(e, call, 2), &labels, x);
    ag_tensor *loss = ex_neg(e, ex_mul(e, zero_ignored(e, pick(e, x, &labels), labels.ignored), row_weight));
    return reduce_rows(e, call, loss, row_weight, attrs->reduction);
}

/* ---- elementwise losses ---- */

/* log(x) but not below -100, with a gradient of 0 at x = 0. */
static ag_tensor *bounded_log(expr *e, ag_tensor *x) {
    static const double limits[2] = {-100, INFINITY};
    ag_tensor *is_zero = ex_compare_number(e, OP_eq, x, 0);
    ag_tensor *log = ex_unary(e, OP_log, ex_where(e, is_zero, ex_scalar(e, 1, x), x));
    return ex_unary_params(e, OP_clamp, ex_where(e, is_zero, ex_scalar(e, -100, x), log), limits, 2);
}

static ag_tensor *one_minus(expr *e, ag_tensor *x) { return ex_sub(e, ex_scalar(e, 1, x), x); }

static ag_status weighted_loss(expr *e, ag_call *call, ag_tensor *loss) {
    if (call->inputs[2]) loss = ex_mul(e, loss, decompose_input(e, call, 2));
    return decompose_result(e, call, 0, ex_reduction(e, loss, CALL_ATTRS(call, attrs_loss)->reduction));
}

ag_status decompose_binary_cross_entropy(expr *e, ag_call *call) {
    ag_tensor *x = decompose_input(e, call, 0), *target = decompose_input(e, call, 1);
    ag_tensor *yes = ex_mul(e, target, bounded_log(e, x));
    ag_tensor *no = ex_mul(e, one_minus(e, target), bounded_log(e, one_minus(e, x)));
    return weighted_loss(e, call, ex_neg(e, ex_add(e, yes, no)));
}

/* (1 - target) * x - log_sigmoid(x) */
ag_status decompose_bce_with_logits(expr *e, ag_call *call) {
    ag_tensor *x = decompose_input(e, call, 0), *target = decompose_input(e, call, 1);
    ag_tensor *loss = ex_sub(e, ex_mul(e, one_minus(e, target), x), ex_unary(e, OP_log_sigmoid, x));
    return weighted_loss(e, call, loss);
}

static ag_tensor *difference(expr *e, const ag_call *call) {
    ag_tensor *x = decompose_input(e, call, 0), *target = decompose_input(e, call, 1);
    return ex_sub(e, x, target);
}

ag_status decompose_mse_loss(expr *e, ag_call *call) {
    ag_tensor *d = difference(e, call);
    return decompose_result(e, call, 0, ex_reduction(e, ex_mul(e, d, d), CALL_ATTRS(call, attrs_loss)->reduction));
}

ag_status decompose_l1_loss(expr *e, ag_call *call) {
    ag_tensor *loss = ex_unary(e, OP_abs, difference(e, call));
    return decompose_result(e, call, 0, ex_reduction(e, loss, CALL_ATTRS(call, attrs_loss)->reduction));
}

/* d^2 / 2 where |d| < threshold, else threshold * (|d| - threshold / 2); both are q * (d - q / 2) with q = d limited to
 * the threshold. */
static ag_tensor *huber(expr *e, ag_tensor *d, double threshold) {
    double limits[2] = {-threshold, threshold};
    ag_tensor *q = ex_unary_params(e, OP_clamp, d, limits, 2);
    return ex_mul(e, q, ex_sub(e, d, ex_mul_number(e, q, 0.5)));
}

ag_status decompose_huber_loss(expr *e, ag_call *call) {
    const struct attrs_smooth_loss *attrs = CALL_ATTRS(call, attrs_smooth_loss);
    if (!(attrs->threshold > 0))
        return decompose_refuse(e, call, AG_E_VALUE, "delta", "a number > 0", NULL, "%g", attrs->threshold);
    ag_tensor *loss = huber(e, difference(e, call), attrs->threshold);
    return decompose_result(e, call, 0, ex_reduction(e, loss, attrs->reduction));
}

ag_status decompose_smooth_l1_loss(expr *e, ag_call *call) {
    const struct attrs_smooth_loss *attrs = CALL_ATTRS(call, attrs_smooth_loss);
    if (!(attrs->threshold >= 0))
        return decompose_refuse(e, call, AG_E_VALUE, "beta", "a number >= 0", NULL, "%g", attrs->threshold);
    ag_tensor *d = difference(e, call), *loss;
    if (attrs->threshold == 0) loss = ex_unary(e, OP_abs, d);
    else loss = ex_mul_number(e, huber(e, d, attrs->threshold), 1 / attrs->threshold);
    return decompose_result(e, call, 0, ex_reduction(e, loss, attrs->reduction));
}

/* target * (log(target) - x), 0 where the target is 0; with log targets exp(target) * (target - x). */
ag_status decompose_kl_div(expr *e, ag_call *call) {
    const struct attrs_kl_div *attrs = CALL_ATTRS(call, attrs_kl_div);
    ag_tensor *x = decompose_input(e, call, 0), *target = decompose_input(e, call, 1), *loss;
    if (attrs->log_target) {
        loss = ex_mul(e, ex_unary(e, OP_exp, target), ex_sub(e, target, x));
    } else {
        ag_tensor *is_zero = ex_compare_number(e, OP_le, target, 0);
        ag_tensor *log = ex_unary(e, OP_log, ex_where(e, is_zero, ex_scalar(e, 1, target), target));
        loss = ex_mul(e, target, ex_sub(e, log, x));
        loss = ex_where(e, is_zero, ex_scalar(e, 0, target), loss);
    }
    if (attrs->reduction != REDUCTION_BATCHMEAN) return decompose_result(e, call, 0, ex_reduction(e, loss, attrs->reduction));
    double rows = call->inputs[0]->ndim ? (double)call->inputs[0]->dims[0] : 1;
    ag_tensor *sum = ex_reduce(e, OP_sum, loss, NULL, -1, false);
    return decompose_result(e, call, 0, ex_div(e, sum, ex_scalar(e, rows, call->inputs[0])));
}
