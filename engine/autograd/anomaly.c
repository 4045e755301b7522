/* anomaly.c: the mode that looks for the first NaN. */
#include "autograd/tape.h"

bool anomaly_enabled;
static ag_where_fn where_fn;

void ag_set_anomaly_mode(bool enabled, ag_where_fn where) {
    anomaly_enabled = enabled;
    where_fn = where;
}

bool ag_anomaly_mode(void) { return anomaly_enabled; }

void anomaly_where(char *buffer, size_t len) {
    if (len) buffer[0] = '\0';
    if (where_fn) where_fn(buffer, len);
}

bool anomaly_has_nan(ag_tensor *tensor) {
    if (!dtype_is_float((ag_dtype)tensor->dtype) || tensor->numel == 0) return false;
    double found = 0;
    expr e;
    context_pause();
    expr_begin(&e);
    ag_tensor *any = ex_reduce(&e, OP_any, ex_unary(&e, OP_isnan, tensor), NULL, -1, false);
    if (e.status == AG_OK) expr_fail(&e, ag_tensor_item(any, &found));
    expr_end(&e);
    context_resume();
    return found != 0;
}
