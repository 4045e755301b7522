/* threads_test.c: four threads call ops, autograd and the pool at once, on tensors of their own and shared read-only inputs.
 * Meant for ThreadSanitizer; checks results as well. One line a check. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "argand.h"

#define THREADS 4
#define ROUNDS 30

typedef struct job {
    ag_tensor *shared, *small; /* f32[256, 256] and f32[256, 1], read only */
    int number;
    const char *problem;
} job;

static ag_arg tensor_arg(ag_tensor *t) { return (ag_arg){.kind = AG_ARG_TENSOR, .as.tensor = t}; }

/* op(a[, b]); NULL after a failure. Takes over `a` when asked, so that calls can be chained. */
static ag_tensor *call(const char *op, ag_tensor *a, ag_tensor *b, bool consume) {
    ag_tensor *result = NULL;
    ag_arg args[2] = {tensor_arg(a), tensor_arg(b)};
    if (a && ag_op_call(ag_op_find(op), args, b ? 2 : 1, NULL, &result) != AG_OK) result = NULL;
    if (consume) ag_tensor_release(a);
    return result;
}

static ag_tensor *filled(double value, int64_t rows, int64_t columns) {
    ag_tensor *result = NULL;
    int64_t dims[2] = {rows, columns};
    ag_arg args[2] = {{.kind = AG_ARG_INTS, .len = 2, .as.ints = dims}, {.kind = AG_ARG_NUMBER, .as.number = value}};
    return ag_op_call(ag_op_find("full"), args, 2, NULL, &result) == AG_OK ? result : NULL;
}

/* d/dw of sum(tanh((shared w) * small)) for w = 1 / 256: shared and small are ones, so each gradient is 256 (1 - tanh(1)^2). */
static const char *train_once(const job *j) {
    ag_tensor *w = filled(1.0 / 256, 256, 256);
    if (!w || ag_tensor_set_requires_grad(w, true) != AG_OK) return "full";
    ag_tensor *y = call("matmul", j->shared, w, false);
    y = call("mul", y, j->small, true);
    y = call("tanh", y, NULL, true);
    y = call("sum", y, NULL, true);
    if (!y) return ag_last_error()->message;
    const char *problem = ag_backward(y, NULL, false, false) == AG_OK ? NULL : "backward";
    double got = 0, expected = 256 * (1 - tanh(1) * tanh(1));
    if (!problem && ag_tensor_get(ag_tensor_grad(w), (int64_t[]){3, 7}, &got) != AG_OK) problem = "get";
    if (!problem && fabs(got - expected) > 1e-3 * expected) problem = "a wrong gradient";
    ag_tensor_release(y);
    ag_tensor_release(w);
    return problem;
}

/* Contexts and errors are the thread's own. */
static const char *fail_once(const job *j) {
    if (ag_autodiff_push(false, AG_CHECKPOINT_NONE) != AG_OK) return "push";
    bool enabled = ag_autodiff_is_enabled();
    ag_autodiff_pop();
    if (enabled || !ag_autodiff_is_enabled()) return "a context of another thread";
    ag_tensor *odd = filled(j->number, 3, 3), *result = call("matmul", j->shared, odd, false);
    ag_tensor_release(odd);
    if (result || ag_last_error()->code != AG_E_SHAPE) return "an error record of another thread";
    return NULL;
}

static void *work(void *context) {
    job *j = context;
    for (int i = 0; i < ROUNDS && !j->problem; i++) {
        j->problem = train_once(j);
        if (!j->problem) j->problem = fail_once(j);
        if (i % 10 == j->number) ag_memory_trim();
    }
    return NULL;
}

static int report(const char *name, const char *problem) {
    printf("%s  %s%s%s\n", problem ? "FAIL" : "ok  ", name, problem ? ": " : "", problem ? problem : "");
    return problem != NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    job jobs[THREADS];
    int failures = 0;
    ag_set_num_threads(3);
    ag_tensor *shared = filled(1, 256, 256), *small = filled(1, 256, 1);
    if (!shared || !small) return 1;
    for (int i = 0; i < THREADS; i++) {
        jobs[i] = (job){.shared = shared, .small = small, .number = i};
        if (pthread_create(&threads[i], NULL, work, &jobs[i]) != 0) return 1;
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        char name[32];
        snprintf(name, sizeof name, "thread %d", i);
        failures += report(name, jobs[i].problem);
    }
    ag_tensor_release(shared);
    ag_tensor_release(small);
    ag_memory_info info;
    ag_memory(&info);
    failures += report("nodes", ag_autodiff_live_nodes() != 0 ? "some are left" : NULL);
    failures += report("live bytes", info.live_bytes != 0 ? "some are left" : NULL);
    return failures != 0;
}
