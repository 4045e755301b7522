/* create.c: tensors from attributes alone. */
#include <math.h>

#include "core/error.h"
#include "ops/attrs.h"
#include "reference/kernels.h"
#include "reference/walk.h"

static void write_real(ag_tensor *out, int64_t position, double value) {
    element_write((ag_dtype)out->dtype, element_at(out, position), value);
}

ag_status reference_full(ag_call *call) {
    ag_tensor *out = call->outputs[0];
    const struct attrs_full *attrs = CALL_ATTRS(call, attrs_full);
    double value = attrs->value;
    for (int64_t i = 0; i < out->numel; i++) {
        AG_TRY(poll_interrupt(call, i));
        write_real(out, i, value);
    }
    return AG_OK;
}

static bool is_whole(double value) { return value == trunc(value) && fabs(value) < 0x1p63; }

/* y[i] = start + i * step; the shape rule has put `start` and `stop` in order. Whole numbers of i64 are never rounded. */
ag_status reference_arange(ag_call *call) {
    const struct attrs_arange *attrs = CALL_ATTRS(call, attrs_arange);
    ag_tensor *out = call->outputs[0];
    for (int64_t i = 0; i < out->numel; i++) {
        AG_TRY(poll_interrupt(call, i));
        if (out->dtype == AG_I64 && is_whole(attrs->start) && is_whole(attrs->step)) {
            uint64_t value = (uint64_t)(int64_t)attrs->start + (uint64_t)i * (uint64_t)(int64_t)attrs->step;
            element_write_int(AG_I64, element_at(out, i), (int64_t)value);
        } else {
            write_real(out, i, attrs->start + (double)i * attrs->step);
        }
    }
    return AG_OK;
}

/* y[i] = start + i * (stop - start) / (count - 1), and stop itself at the end. */
ag_status reference_linspace(ag_call *call) {
    const struct attrs_linspace *attrs = CALL_ATTRS(call, attrs_linspace);
    ag_tensor *out = call->outputs[0];
    double step = out->numel > 1 ? (attrs->stop - attrs->start) / (double)(out->numel - 1) : 0;
    for (int64_t i = 0; i < out->numel; i++) {
        AG_TRY(poll_interrupt(call, i));
        bool is_last = i > 0 && i == out->numel - 1;
        write_real(out, i, is_last ? attrs->stop : attrs->start + (double)i * step);
    }
    return AG_OK;
}

ag_status reference_eye(ag_call *call) {
    ag_tensor *out = call->outputs[0];
    shape s = tensor_shape(out);
    struct walk w;
    walk_begin(&w, call, &s, 0);
    int target = walk_add(&w, out);
    for (; walk_more(&w); walk_step(&w))
        element_write((ag_dtype)out->dtype, walk_at(&w, target), w.index[0] == w.index[1]);
    return w.status;
}
