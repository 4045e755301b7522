/* main.c: Argand from C. Fits y = 2 x - 1 by gradient descent: ops by name, the tape, and one way out of every error. */
#include <stdio.h>

#include <argand.h>

#define NUM_POINTS 64
#define NUM_STEPS 200

static ag_arg tensor_arg(ag_tensor *tensor) { return (ag_arg){.kind = AG_ARG_TENSOR, .as.tensor = tensor}; }

static ag_arg number_arg(double number) { return (ag_arg){.kind = AG_ARG_NUMBER, .as.number = number}; }

/* Calls the two-operand op `name`; the result is the caller's. */
static ag_status call(const char *name, ag_arg a, ag_arg b, ag_tensor **out) {
    return ag_op_call(ag_op_find(name), (ag_arg[]){a, b}, 2, NULL, out);
}

/* loss = mean((x * weight + bias - y)^2)    x, y: [NUM_POINTS], weight, bias: [] */
static ag_status mean_squared_error(ag_tensor *x, ag_tensor *y, ag_tensor *weight, ag_tensor *bias, ag_tensor **loss) {
    ag_tensor *scaled = NULL, *line = NULL, *difference = NULL, *square = NULL;
    ag_status status = call("mul", tensor_arg(x), tensor_arg(weight), &scaled);
    if (!status) status = call("add", tensor_arg(scaled), tensor_arg(bias), &line);
    if (!status) status = call("sub", tensor_arg(line), tensor_arg(y), &difference);
    if (!status) status = call("mul", tensor_arg(difference), tensor_arg(difference), &square);
    if (!status) status = ag_op_call(ag_op_find("mean"), (ag_arg[]){tensor_arg(square)}, 1, NULL, loss);
    /* The tape keeps what the backward pass needs; our own handles can go. Releasing NULL is fine. */
    ag_tensor_release(scaled);
    ag_tensor_release(line);
    ag_tensor_release(difference);
    ag_tensor_release(square);
    return status;
}

/* parameter <- parameter - rate * gradient, unseen by the tape. */
static ag_status descend(ag_tensor **parameter, double rate) {
    ag_tensor *step = NULL, *changed = NULL;
    ag_status status = ag_autodiff_push(false, AG_CHECKPOINT_NONE);
    if (status) return status;
    status = call("mul", tensor_arg(ag_tensor_grad(*parameter)), number_arg(rate), &step);
    if (!status)
        status = ag_op_call_inplace(ag_op_find("sub"), (ag_arg[]){tensor_arg(*parameter), tensor_arg(step)}, 2, NULL, &changed);
    if (!status) {
        ag_tensor_release(*parameter);
        *parameter = changed;
        status = ag_tensor_set_grad(*parameter, NULL);
    }
    ag_tensor_release(step);
    ag_autodiff_pop();
    return status;
}

static ag_status train(ag_tensor *x, ag_tensor *y, ag_tensor **weight, ag_tensor **bias) {
    for (int i = 1; i <= NUM_STEPS; i++) {
        ag_tensor *loss = NULL;
        double value;
        ag_status status = mean_squared_error(x, y, *weight, *bias, &loss);
        if (!status) status = ag_backward(loss, NULL, false, false);
        if (!status) status = ag_tensor_item(loss, &value);
        ag_tensor_release(loss);
        if (!status) status = descend(weight, 0.5);
        if (!status) status = descend(bias, 0.5);
        if (status) return status;
        if (i % 50 == 0) printf("step %3d  loss %.6f\n", i, value);
    }
    return AG_OK;
}

int main(void) {
    float points[NUM_POINTS], targets[NUM_POINTS], zero = 0.0f;
    for (int i = 0; i < NUM_POINTS; i++) {
        points[i] = (float)i / NUM_POINTS;
        targets[i] = 2.0f * points[i] - 1.0f;
    }
    const int64_t dims[] = {NUM_POINTS};
    ag_tensor *x = NULL, *y = NULL, *weight = NULL, *bias = NULL;
    double slope, offset;
    ag_status status = ag_tensor_from_data(AG_F32, 1, dims, NULL, points, &x);
    if (!status) status = ag_tensor_from_data(AG_F32, 1, dims, NULL, targets, &y);
    if (!status) status = ag_tensor_from_data(AG_F32, 0, NULL, NULL, &zero, &weight);
    if (!status) status = ag_tensor_from_data(AG_F32, 0, NULL, NULL, &zero, &bias);
    if (!status) status = ag_tensor_set_requires_grad(weight, true);
    if (!status) status = ag_tensor_set_requires_grad(bias, true);
    if (!status) status = train(x, y, &weight, &bias);
    if (!status) status = ag_tensor_item(weight, &slope);
    if (!status) status = ag_tensor_item(bias, &offset);
    if (status)
        fprintf(stderr, "argand: %s: %s\n", ag_status_word(status), ag_last_error()->message);
    else
        printf("argand %s: y = %.2f x %+.2f\n", ag_version(), slope, offset);
    ag_tensor_release(x);
    ag_tensor_release(y);
    ag_tensor_release(weight);
    ag_tensor_release(bias);
    return status != AG_OK;
}
