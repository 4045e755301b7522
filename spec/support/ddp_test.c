/* ddp_test.c: data-parallel training through argand.h, a thread a rank. One line a case; for the sanitizers as well.
 *
 *   ddp_test [name]     only the cases whose name holds `name`
 */
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "argand.h"

#define MAX_RANKS      5
#define IN             6
#define HIDDEN         9
#define OUT            3
#define BATCH          4
#define NUM_PARAMETERS 4

static int num_failures;

/* ---- a rank ---- */

typedef struct rank_test {
    int rank, size, number; /* number: of the variant */
    ag_group *group;
    struct world_test *world;
    char problem[600]; /* "" = none; the first one is kept */
} rank_test;

typedef struct world_test {
    int size, number;
    void (*run)(rank_test *t);
    pthread_barrier_t barrier;
    float results[MAX_RANKS][4096];
    int num_results[MAX_RANKS];
} world_test;

static bool fail(rank_test *t, const char *format, ...) {
    if (t->problem[0] != '\0') return false;
    int end = snprintf(t->problem, sizeof t->problem, "rank %d: ", t->rank);
    va_list args;
    va_start(args, format);
    vsnprintf(t->problem + end, sizeof t->problem - (size_t)end, format, args);
    va_end(args);
    return false;
}

static bool ok(rank_test *t, ag_status status, const char *what) {
    return status == AG_OK || fail(t, "%s: %s", what, ag_last_error()->message);
}

/* The call must have failed with this code, and its message hold the text. */
static bool failed_with(rank_test *t, ag_status status, ag_status code, const char *part, const char *what) {
    if (status == AG_OK) return fail(t, "%s: it succeeded", what);
    const ag_error *e = ag_last_error();
    if (status != code || e->code != code || !strstr(e->message, part))
        return fail(t, "%s: expected %s with \"%s\", got %s: %s", what, ag_status_word(code), part, ag_status_word(status),
                    e->message);
    return true;
}

static void *run_rank(void *context) {
    rank_test *t = context;
    t->world->run(t);
    return NULL;
}

static void run_world(const char *name, int size, int number, void (*run)(rank_test *t)) {
    static rank_test ranks[MAX_RANKS];
    static world_test world;
    ag_group *groups[MAX_RANKS];
    pthread_t threads[MAX_RANKS];
    world.size = size;
    world.number = number;
    world.run = run;
    memset(world.num_results, 0, sizeof world.num_results);
    pthread_barrier_init(&world.barrier, NULL, (unsigned)size);
    if (ag_group_open_threads(size, groups) != AG_OK) {
        printf("FAIL  %s: %s\n", name, ag_last_error()->message);
        num_failures++;
        return;
    }
    for (int r = 0; r < size; r++) {
        ranks[r] = (rank_test){.rank = r, .size = size, .number = number, .group = groups[r], .world = &world};
        pthread_create(&threads[r], NULL, run_rank, &ranks[r]);
    }
    const char *problem = NULL;
    for (int r = 0; r < size; r++) pthread_join(threads[r], NULL);
    for (int r = 0; r < size; r++) {
        ag_group_free(groups[r]);
        if (!problem && ranks[r].problem[0]) problem = ranks[r].problem;
    }
    pthread_barrier_destroy(&world.barrier);
    printf(problem ? "FAIL  %s, %d ranks, variant %d: %s\n" : "ok    %s, %d ranks, variant %d\n", name, size, number, problem);
    fflush(stdout);
    num_failures += problem != NULL;
}

/* ---- a small model ---- */

static ag_arg arg(ag_tensor *t) { return (ag_arg){.kind = AG_ARG_TENSOR, .as.tensor = t}; }

/* op(a[, b]), a result of the caller's; NULL after a failure, and for a NULL a. Releases `a` when told so. */
static ag_tensor *call(rank_test *t, const char *op, ag_tensor *a, ag_tensor *b, bool consume) {
    ag_tensor *result = NULL;
    ag_arg args[2] = {a ? arg(a) : (ag_arg){0}, b ? arg(b) : (ag_arg){0}};
    if (a && !ok(t, ag_op_call(ag_op_find(op), args, b ? 2 : 1, NULL, &result), op)) result = NULL;
    if (consume) ag_tensor_release(a);
    return result;
}

static float noise(uint64_t seed) {
    seed = (seed + 1) * 0x9e3779b97f4a7c15u;
    seed = (seed ^ seed >> 31) * 0xbf58476d1ce4e5b9u;
    return (float)(seed >> 40) / (float)(1 << 24) - 0.5f;
}

static ag_tensor *random_tensor(rank_test *t, ag_dtype dtype, int64_t rows, int64_t columns, uint64_t seed) {
    float values[256];
    ag_tensor *f32 = NULL, *result = NULL;
    for (int64_t i = 0; i < rows * columns; i++) values[i] = noise(seed * 1000 + (uint64_t)i);
    int64_t dims[2] = {rows, columns};
    ag_arg args[2] = {{0}, {.kind = AG_ARG_DTYPE, .as.dtype = dtype}};
    if (!ok(t, ag_tensor_from_data(AG_F32, 2, dims, NULL, values, &f32), "from_data")) return NULL;
    if (dtype == AG_F32) return f32;
    args[0] = arg(f32);
    ok(t, ag_op_call(ag_op_find("cast"), args, 2, NULL, &result), "cast");
    ag_tensor_release(f32);
    return result;
}

typedef struct model {
    ag_tensor *parameters[NUM_PARAMETERS]; /* w1 [IN, HIDDEN], b1 [1, HIDDEN], w2 [HIDDEN, OUT], unused [2, 2] */
    ag_ddp_item items[NUM_PARAMETERS];
    bool with_bias; /* b1 takes part */
} model;

static const char *const names[NUM_PARAMETERS] = {"w1", "b1", "w2", "unused"};

static void model_init(rank_test *t, model *m, ag_dtype dtype, uint64_t seed) {
    static const int64_t dims[NUM_PARAMETERS][2] = {{IN, HIDDEN}, {1, HIDDEN}, {HIDDEN, OUT}, {2, 2}};
    m->with_bias = true;
    for (int i = 0; i < NUM_PARAMETERS; i++) {
        m->parameters[i] =
            random_tensor(t, i == 1 && dtype == AG_F32 ? AG_F32 : dtype, dims[i][0], dims[i][1], seed * 10 + (uint64_t)i);
        if (m->parameters[i]) ok(t, ag_tensor_set_requires_grad(m->parameters[i], true), "requires_grad");
        m->items[i] = (ag_ddp_item){names[i], m->parameters[i]};
    }
}

static void model_free(model *m) {
    for (int i = 0; i < NUM_PARAMETERS; i++) ag_tensor_release(m->parameters[i]);
}

/* The first `rows` rows of batch `number`: mean of (tanh(x w1 + b1) w2)^2; a hook on the hidden layer when asked for. */
static ag_tensor *model_loss(rank_test *t, const model *m, int number, int rows, ag_hook_fn hook, void *context) {
    ag_tensor *x = random_tensor(t, ag_tensor_dtype(m->parameters[0]), rows, IN, 77 + (uint64_t)number);
    ag_tensor *h = call(t, "matmul", x, m->parameters[0], true);
    if (m->with_bias) h = call(t, "add", h, m->parameters[1], true);
    uint64_t id;
    if (hook && h) ok(t, ag_tensor_add_hook(h, hook, context, NULL, &id), "add_hook");
    h = call(t, "tanh", h, NULL, true);
    h = call(t, "matmul", h, m->parameters[2], true);
    h = call(t, "square", h, NULL, true);
    return call(t, "mean", h, NULL, true);
}

static bool backward_of(rank_test *t, const model *m, int number) {
    ag_tensor *loss = model_loss(t, m, number, BATCH, NULL, NULL);
    bool good = loss && ok(t, ag_backward(loss, NULL, false, false), "backward");
    ag_tensor_release(loss);
    return good;
}

/* p -= rate * p.grad, and no gradients after it. */
static bool model_step(rank_test *t, model *m) {
    bool good = ok(t, ag_autodiff_push(false, AG_CHECKPOINT_INHERIT), "push");
    for (int i = 0; good && i < NUM_PARAMETERS; i++) {
        ag_tensor *grad = ag_tensor_grad(m->parameters[i]), *changed = NULL;
        if (!grad) continue;
        ag_arg args[3] = {arg(m->parameters[i]), arg(grad), {.kind = AG_ARG_NUMBER, .as.number = 0.5}};
        ag_tensor *step = NULL;
        good = ok(t, ag_op_call(ag_op_find("mul"), args + 1, 2, NULL, &step), "mul");
        args[1] = arg(step);
        good = good && ok(t, ag_op_call_inplace(ag_op_find("sub"), args, 2, NULL, &changed), "sub");
        ag_tensor_release(step);
        ag_tensor_release(changed);
        good = good && ok(t, ag_tensor_set_grad(m->parameters[i], NULL), "set_grad");
    }
    ag_autodiff_pop();
    return good;
}

static ag_ddp *job_of(rank_test *t, model *m, const ag_ddp_options *options) {
    ag_ddp *ddp = NULL;
    ok(t, ag_ddp_open(t->group, m->items, NUM_PARAMETERS, NULL, 0, options, &ddp), "open");
    return ddp;
}

static int sync_of(rank_test *t, ag_ddp *ddp, bool contributes) {
    ag_ddp_result result = {0};
    return ok(t, ag_ddp_sync(ddp, contributes, &result), "sync") ? result.num_contributors : -1;
}

static void read_all(rank_test *t, ag_tensor *const *tensors, float *out) {
    int at = 0;
    for (int i = 0; i < NUM_PARAMETERS; i++) {
        if (!tensors[i]) continue;
        ok(t, ag_tensor_read(tensors[i], AG_F32, out + at, 256), "read");
        at += (int)ag_tensor_numel(tensors[i]);
    }
}

static void read_grads(rank_test *t, const model *m, float *out) {
    ag_tensor *grads[NUM_PARAMETERS];
    for (int i = 0; i < NUM_PARAMETERS; i++) grads[i] = ag_tensor_grad(m->parameters[i]);
    memset(out, 0, 512 * sizeof *out);
    read_all(t, grads, out);
}

static bool all_near(rank_test *t, const float *got, const float *expected, int count, double tolerance, const char *what) {
    for (int i = 0; i < count; i++)
        if (!(fabs((double)got[i] - (double)expected[i]) <= tolerance))
            return fail(t, "%s: element %d is %.9g, not %.9g", what, i, (double)got[i], (double)expected[i]);
    return true;
}

#define NUM_ELEMENTS (IN * HIDDEN + HIDDEN + HIDDEN * OUT + 4)
#define NUM_GRADS    (NUM_ELEMENTS - 4)

/* All ranks hold the same bits. */
static void check_equal_bits(rank_test *t, const model *m) {
    float *own = t->world->results[t->rank];
    read_all(t, m->parameters, own);
    pthread_barrier_wait(&t->world->barrier);
    if (memcmp(own, t->world->results[0], NUM_ELEMENTS * sizeof *own) != 0) fail(t, "other bits than rank 0");
    pthread_barrier_wait(&t->world->barrier);
}

/* ---- cases ---- */

#include "ddp_shares.h"

typedef struct variant {
    ag_ddp_options options;
    ag_dtype dtype;
    double tolerance;
} variant;

static const variant variants[] = {
    {{0}, AG_F32, 1e-6},
    {{.bucket_bytes = 128, .first_bucket_bytes = 16}, AG_F32, 1e-6},
    {{.bucket_bytes = 128, .first_bucket_bytes = 16, .shared_result = true}, AG_F32, 1e-6},
    {{.bucket_bytes = 64, .first_bucket_bytes = 1, .compress = "bf16"}, AG_F32, 1e-2},
    {{.compress = "f16", .check_finite = "error"}, AG_F32, 2e-3},
    {{.bucket_bytes = 100, .check_finite = "skip"}, AG_F64, 1e-6},
    {{.bucket_bytes = 100, .compress = "bf16"}, AG_F64, 1e-2},
    {{.bucket_bytes = 100}, AG_BF16, 5e-2},
};
#define NUM_VARIANTS ((int)(sizeof variants / sizeof *variants))

/* n ranks with a batch each take the steps of one that has all n batches. */
static void equals_one_rank(rank_test *t) {
    const variant *v = &variants[t->number];
    model m, one;
    float got[512], expected[512];
    model_init(t, &m, v->dtype, t->rank == 0 ? 1 : 2 + (uint64_t)t->rank); /* rank 0's are broadcast */
    model_init(t, &one, v->dtype, 1);
    ag_ddp *ddp = job_of(t, &m, &v->options);
    for (int step = 0; ddp && step < 5 && !t->problem[0]; step++) {
        backward_of(t, &m, step * t->size + t->rank);
        if (sync_of(t, ddp, true) != t->size) fail(t, "step %d: not all ranks contributed", step);
        if (ag_tensor_grad(m.parameters[3])) fail(t, "step %d: the unused parameter has a gradient", step);
        model_step(t, &m);
        check_equal_bits(t, &m);
        ag_tensor *total = NULL;
        for (int r = 0; r < t->size; r++) {
            ag_tensor *loss = model_loss(t, &one, step * t->size + r, BATCH, NULL, NULL);
            ag_tensor *sum = total ? call(t, "add", total, loss, true) : loss;
            if (total) ag_tensor_release(loss);
            total = sum;
        }
        ag_arg args[2] = {arg(total), {.kind = AG_ARG_NUMBER, .as.number = t->size}};
        ag_tensor *mean = NULL;
        if (ok(t, ag_op_call(ag_op_find("div"), args, 2, NULL, &mean), "div"))
            ok(t, ag_backward(mean, NULL, false, false), "backward");
        ag_tensor_release(mean);
        ag_tensor_release(total);
        model_step(t, &one);
        read_all(t, m.parameters, got);
        read_all(t, one.parameters, expected);
        all_near(t, got, expected, NUM_ELEMENTS, v->tolerance, "a parameter");
    }
    if (ddp) ok(t, ag_ddp_verify(ddp), "verify");
    ag_ddp_free(ddp);
    model_free(&m);
    model_free(&one);
}

/* Without shared_result each rank may write to its gradients, and nobody else sees it; they are what the next round adds to. */
static void gradients_are_own(rank_test *t) {
    model m;
    float means[512], got[512], expected[512];
    model_init(t, &m, AG_F32, 1);
    ag_ddp *ddp = job_of(t, &m, &(ag_ddp_options){.bucket_bytes = t->number ? 64 : 0});
    if (ddp && backward_of(t, &m, t->rank)) sync_of(t, ddp, true);
    read_grads(t, &m, means);
    for (int i = 0; i < NUM_PARAMETERS; i++) {
        ag_tensor *grad = ag_tensor_grad(m.parameters[i]);
        void *data;
        if (!grad || !ok(t, ag_tensor_data(grad, &data), "data")) continue;
        for (int64_t k = 0; k < ag_tensor_numel(grad); k++) ((float *)data)[k] *= (float)(t->rank + 1);
    }
    pthread_barrier_wait(&t->world->barrier);
    read_grads(t, &m, got);
    for (int i = 0; i < NUM_GRADS; i++) expected[i] = means[i] * (float)(t->rank + 1);
    all_near(t, got, expected, NUM_GRADS, 0, "a gradient of this rank");
    /* The same batches once more: the mean of what ranks made of the first, and the first. */
    if (ddp && backward_of(t, &m, t->rank)) sync_of(t, ddp, true);
    read_grads(t, &m, got);
    for (int i = 0; i < NUM_GRADS; i++) expected[i] = means[i] * (1 + (float)(t->size + 1) / 2);
    all_near(t, got, expected, NUM_GRADS, 1e-5, "a gradient that was added to");
    ag_ddp_free(ddp);
    model_free(&m);
}

static ag_status note_early(void *context, ag_tensor **grad) {
    (void)grad;
    ag_ddp *ddp = ((void **)context)[0];
    ag_ddp_stats stats;
    ag_ddp_stats_read(ddp, &stats);
    *(int64_t *)((void **)context)[1] = stats.num_early;
    return AG_OK;
}

/* The last layer's bucket is started while the first layer's gradient is still to be computed; the unused parameter, first in the
 * order of buckets, keeps nobody waiting. */
static void starts_early(rank_test *t) {
    model m;
    int64_t early = -1;
    model_init(t, &m, AG_F32, 1);
    ag_ddp *ddp = NULL;
    ok(t, ag_ddp_open(t->group, m.items, NUM_PARAMETERS, NULL, 0, &(ag_ddp_options){.bucket_bytes = 64}, &ddp), "open");
    void *context[2] = {ddp, &early};
    ag_tensor *loss = model_loss(t, &m, t->rank, BATCH, note_early, context);
    if (ddp && loss) ok(t, ag_backward(loss, NULL, false, false), "backward");
    ag_ddp_stats stats = {0};
    if (ddp) ag_ddp_stats_read(ddp, &stats);
    if (early != 2)
        fail(t, "%lld reductions were started before the hidden layer's gradient was complete, not 2", (long long)early);
    if (stats.num_early != 4 || stats.num_buckets != 4)
        fail(t, "%lld of 4 buckets were started by backward", (long long)stats.num_early);
    if (ddp) sync_of(t, ddp, true);
    ag_tensor_release(loss);
    ag_ddp_free(ddp);
    model_free(&m);
}

/* b1 takes part on rank 0 only: the others count as zeros. */
static void partly_unused(rank_test *t) {
    model m, alone;
    float got[512], expected[512];
    model_init(t, &m, AG_F32, 1);
    model_init(t, &alone, AG_F32, 1);
    m.with_bias = t->rank == 0;
    ag_ddp *ddp = job_of(t, &m, &(ag_ddp_options){.bucket_bytes = 64});
    if (ddp && backward_of(t, &m, t->rank)) sync_of(t, ddp, true);
    ag_tensor *grad = ag_tensor_grad(m.parameters[1]);
    if (!grad) fail(t, "no gradient although rank 0 has one");
    backward_of(t, &alone, 0);
    if (grad) {
        ok(t, ag_tensor_read(grad, AG_F32, got, 512), "read");
        ok(t, ag_tensor_read(ag_tensor_grad(alone.parameters[1]), AG_F32, expected, 512), "read");
        for (int i = 0; i < HIDDEN; i++) expected[i] /= (float)t->size;
        all_near(t, got, expected, HIDDEN, 1e-7, "the gradient");
    }
    ag_ddp_free(ddp);
    model_free(&m);
    model_free(&alone);
}

/* Three batches added up on each rank, the last of them outside of accumulating (or followed by sync only), equal their sum; in
 * variant 2 gradients are cleared half way, in variant 3 they are left from the step before. */
static void accumulates(rank_test *t) {
    model m, alone;
    float got[512], expected[512], one[512];
    memset(expected, 0, sizeof expected);
    model_init(t, &m, AG_F32, 1);
    model_init(t, &alone, AG_F32, 1);
    ag_ddp *ddp = job_of(t, &m, &(ag_ddp_options){.bucket_bytes = 64, .shared_result = t->rank >= 0 && t->number == 3});
    if (!ddp) return;
    for (int k = 0; k < 3; k++) {
        if (t->number != 3) ag_ddp_set_accumulating(ddp, k < 2 || t->number == 1);
        backward_of(t, &m, 10 * t->rank + k);
        if (t->number == 3) sync_of(t, ddp, true);
        if (t->number == 2 && k == 1)
            for (int i = 0; i < NUM_PARAMETERS; i++) ok(t, ag_tensor_set_grad(m.parameters[i], NULL), "set_grad");
    }
    ag_ddp_result result;
    if (t->number == 1) failed_with(t, ag_ddp_sync(ddp, true, &result), AG_E_STATE, "no_sync", "sync while accumulating");
    ag_ddp_set_accumulating(ddp, false);
    if (t->number != 3) sync_of(t, ddp, true);
    read_grads(t, &m, got);
    for (int r = 0; r < t->size; r++)
        for (int k = t->number == 2 ? 2 : 0; k < 3; k++) {
            backward_of(t, &alone, 10 * r + k);
            read_grads(t, &alone, one);
            for (int i = 0; i < NUM_GRADS; i++) expected[i] += one[i] / (float)t->size;
            for (int i = 0; i < NUM_PARAMETERS; i++) ok(t, ag_tensor_set_grad(alone.parameters[i], NULL), "set_grad");
        }
    all_near(t, got, expected, NUM_GRADS, 2e-6, "a gradient");
    ag_ddp_free(ddp);
    model_free(&m);
    model_free(&alone);
}

/* Rank r has r + 1 batches: the mean is over those that have one, and all come to the end in the same step. */
static void uneven(rank_test *t) {
    const variant *v = &variants[t->number];
    model m, alone;
    float got[512], expected[512], one[512];
    model_init(t, &m, AG_F32, 1);
    model_init(t, &alone, AG_F32, 1);
    ag_ddp *ddp = job_of(t, &m, &v->options);
    if (!ddp) return;
    for (int step = 0; !t->problem[0]; step++) {
        bool has_batch = step <= t->rank;
        if (has_batch) backward_of(t, &m, 10 * t->rank + step);
        int expected_ranks = t->size - step, num = sync_of(t, ddp, has_batch);
        if (num != expected_ranks) fail(t, "step %d: %d ranks contributed, not %d", step, num, expected_ranks);
        if (num <= 0) break;
        read_grads(t, &m, got);
        memset(expected, 0, sizeof expected);
        for (int r = step; r < t->size; r++) {
            backward_of(t, &alone, 10 * r + step);
            read_grads(t, &alone, one);
            for (int i = 0; i < NUM_GRADS; i++) expected[i] += one[i] / (float)num;
            for (int i = 0; i < NUM_PARAMETERS; i++) ok(t, ag_tensor_set_grad(alone.parameters[i], NULL), "set_grad");
        }
        all_near(t, got, expected, NUM_GRADS, v->tolerance, "a gradient");
        model_step(t, &m);
        check_equal_bits(t, &m);
        for (int i = 0; i < NUM_PARAMETERS; i++) {
            ag_tensor *changed = NULL;
            ag_arg args[2] = {arg(alone.parameters[i]), arg(m.parameters[i])};
            ag_autodiff_push(false, AG_CHECKPOINT_INHERIT);
            ok(t, ag_tensor_assign(args[0].as.tensor, args[0].as.tensor, args[1].as.tensor, &changed), "assign");
            ag_autodiff_pop();
            ag_tensor_release(changed);
        }
    }
    ag_ddp_free(ddp);
    model_free(&m);
    model_free(&alone);
}

/* The last rank's input has a NaN: all ranks skip, or fail, and know who it was. */
static void not_finite(rank_test *t) {
    bool skips = t->number % 2 == 0;
    model m;
    model_init(t, &m, AG_F32, 1);
    ag_ddp *ddp =
        job_of(t, &m,
               &(ag_ddp_options){
                   .check_finite = skips ? "skip" : "error", .bucket_bytes = 64, .compress = t->number >= 2 ? "bf16" : NULL});
    char part[64];
    snprintf(part, sizeof part, "'w2' on rank %d", t->size - 1);
    for (int step = 0; ddp && step < 3 && !t->problem[0]; step++) {
        ag_tensor *loss = model_loss(t, &m, t->rank, BATCH, NULL, NULL);
        bool is_bad = step == 1 && t->rank == t->size - 1;
        ag_arg args[2] = {arg(loss), {.kind = AG_ARG_NUMBER, .as.number = is_bad ? NAN : 1}};
        ag_tensor *scaled = NULL;
        if (ok(t, ag_op_call(ag_op_find("mul"), args, 2, NULL, &scaled), "mul"))
            ok(t, ag_backward(scaled, NULL, false, false), "backward");
        ag_tensor_release(scaled);
        ag_tensor_release(loss);
        ag_ddp_result result = {0};
        ag_status status = ag_ddp_sync(ddp, true, &result);
        if (step == 1 && !skips) {
            failed_with(t, status, AG_E_VALUE, part, "sync");
            if (ag_last_error()->num_culprits != 1 || ag_last_error()->culprits[0] != t->size - 1) fail(t, "other culprits");
        } else if (ok(t, status, "sync") && result.is_finite != (step != 1)) {
            fail(t, "step %d: is_finite is %d", step, result.is_finite);
        }
        if (step == 1 && !strstr(ag_ddp_report(ddp), part)) fail(t, "the report is \"%s\"", ag_ddp_report(ddp));
        if (step != 1 && ag_ddp_report(ddp)[0]) fail(t, "step %d: the report is \"%s\"", step, ag_ddp_report(ddp));
        if (step != 1) model_step(t, &m);
        for (int i = 0; i < NUM_PARAMETERS; i++) ok(t, ag_tensor_set_grad(m.parameters[i], NULL), "set_grad");
        check_equal_bits(t, &m);
    }
    ag_ddp_free(ddp);
    model_free(&m);
}

static void tampered(rank_test *t) {
    model m;
    model_init(t, &m, AG_F32, 1);
    ag_ddp *ddp = job_of(t, &m, NULL);
    if (!ddp) return;
    ok(t, ag_ddp_verify(ddp), "verify");
    void *data = NULL;
    if (t->rank == t->size - 1 && ok(t, ag_tensor_data(m.parameters[1], &data), "data")) ((uint32_t *)data)[HIDDEN - 1] ^= 1;
    ag_status status = ag_ddp_verify(ddp);
    char part[64];
    snprintf(part, sizeof part, "'b1' has other values on rank %d", t->size - 1);
    if (t->size > 1) failed_with(t, status, AG_E_MISMATCH, part, "verify");
    ag_ddp_free(ddp);
    ddp = NULL;
    status = ag_ddp_open(t->group, m.items, NUM_PARAMETERS, NULL, 0, &(ag_ddp_options){.start = "verify"}, &ddp);
    if (t->size > 1) failed_with(t, status, AG_E_MISMATCH, part, "open with verify");
    ag_ddp_free(ddp);
    model_free(&m);
}

/* What does not fit is refused on all ranks, and the group is as good as before. */
static void refused(rank_test *t) {
    model m;
    model_init(t, &m, AG_F32, 1);
    bool is_odd = t->rank == t->size - 1;
    ag_ddp *ddp = NULL;
    ag_ddp_item items[NUM_PARAMETERS];
    memcpy(items, m.items, sizeof items);
    ag_tensor *other = random_tensor(t, AG_F32, HIDDEN, IN, 3);
    ok(t, ag_tensor_set_requires_grad(other, true), "requires_grad");
    if (is_odd) items[0].tensor = other;
    ag_status status = ag_ddp_open(t->group, items, NUM_PARAMETERS, NULL, 0, NULL, &ddp);
    char part[128];
    snprintf(part, sizeof part, "parameter 1 is 'w1' f32[6, 9] on rank 0 and 'w1' f32[9, 6] on rank %d", t->size - 1);
    failed_with(t, status, AG_E_MISMATCH, part, "another shape");
    items[0].tensor = m.parameters[0];
    status = ag_ddp_open(t->group, items, NUM_PARAMETERS - is_odd, NULL, 0, NULL, &ddp);
    failed_with(t, status, AG_E_MISMATCH, "parameter 4 is 'unused' f32[2, 2] on rank 0 and missing", "a shorter list");
    status = ag_ddp_open(t->group, items, NUM_PARAMETERS, NULL, 0, is_odd ? &(ag_ddp_options){.compress = "bf16"} : NULL, &ddp);
    failed_with(t, status, AG_E_MISMATCH, "what the job is made with", "other options");
    status = ag_ddp_open(t->group, items, 3, items + 3, 1 - is_odd, NULL, &ddp);
    failed_with(t, status, AG_E_MISMATCH, "buffer 1 is 'unused' f32[2, 2] on rank 0 and missing", "no buffer");
    if (is_odd) ok(t, ag_tensor_set_requires_grad(items[2].tensor, false), "requires_grad");
    status = ag_ddp_open(t->group, items, NUM_PARAMETERS, NULL, 0, NULL, &ddp);
    failed_with(t, status, is_odd ? AG_E_AUTODIFF : AG_E_MISMATCH, "'w2' does not require gradients", "an untracked one");
    if (is_odd) ok(t, ag_tensor_set_requires_grad(items[2].tensor, true), "requires_grad");
    items[2] = items[0];
    failed_with(t, ag_ddp_open(t->group, items, NUM_PARAMETERS, NULL, 0, NULL, &ddp), AG_E_ARGUMENT, "twice", "one twice");
    items[2] = m.items[2];
    for (int i = 0; i < NUM_PARAMETERS; i++)
        if (ag_ddp_find(m.parameters[i], NULL)) fail(t, "a refused job has kept '%s'", names[i]);
    ddp = job_of(t, &m, NULL);
    for (int i = 0; i < NUM_PARAMETERS; i++) {
        ag_ddp_place place = {0};
        if (ag_ddp_find(m.parameters[i], &place) != ddp || place.position != i) fail(t, "'%s' is not found", names[i]);
    }
    failed_with(t, ag_ddp_check(m.parameters[0]), AG_E_STATE, "registered already", "check");
    ag_ddp_free(ddp);
    ddp = NULL;
    ok(t, ag_ddp_open(t->group, m.items, 3, NULL, 0, NULL, &ddp), "open");
    if (ddp && backward_of(t, &m, t->rank)) {
        ag_tensor *loss = model_loss(t, &m, 3, BATCH, NULL, NULL);
        failed_with(t, ag_backward(loss, NULL, false, false), AG_E_STATE, "is being reduced", "backward twice");
        ag_tensor_release(loss);
        sync_of(t, ddp, true);
    }
    ag_ddp_free(ddp);
    ag_tensor_release(other);
    model_free(&m);
}

/* After the job parameters and their gradients are ordinary ones. */
static void ends(rank_test *t) {
    model m;
    float before[512], after[512];
    model_init(t, &m, AG_F32, 1);
    ag_ddp *ddp = job_of(t, &m, &(ag_ddp_options){.shared_result = t->number == 1});
    if (ddp && backward_of(t, &m, t->rank)) sync_of(t, ddp, true);
    read_grads(t, &m, before);
    ag_tensor *kept = ag_tensor_retain(ag_tensor_grad(m.parameters[0])); /* the view outlives the job */
    ag_ddp_free(ddp);
    read_grads(t, &m, after);
    all_near(t, after, before, NUM_GRADS, 0, "a gradient after the job");
    ok(t, ag_tensor_read(kept, AG_F32, after, 512), "read");
    all_near(t, after, before, IN * HIDDEN, 0, "a kept view");
    ag_tensor_release(kept);
    if (ag_ddp_find(m.parameters[0], NULL)) fail(t, "still registered");
    for (int i = 0; i < NUM_PARAMETERS; i++) ok(t, ag_tensor_set_grad(m.parameters[i], NULL), "set_grad");
    backward_of(t, &m, 5);
    read_grads(t, &m, after);
    if (memcmp(after, before, sizeof after) == 0) fail(t, "backward does nothing any more");
    ddp = job_of(t, &m, NULL);
    if (ddp && backward_of(t, &m, t->rank)) sync_of(t, ddp, true);
    ag_ddp_free(ddp);
    model_free(&m);
}

/* Frozen after registration, thawed later: a frozen one counts as zeros, a thawed one as before. */
static void freezes(rank_test *t) {
    model m;
    model_init(t, &m, AG_F32, 1);
    ag_ddp *ddp = job_of(t, &m, &(ag_ddp_options){.bucket_bytes = 64});
    for (int step = 0; ddp && step < 4; step++) {
        ok(t, ag_tensor_set_requires_grad(m.parameters[0], step % 2 == 0), "requires_grad");
        backward_of(t, &m, step * t->size + t->rank);
        sync_of(t, ddp, true);
        bool has_grad = ag_tensor_grad(m.parameters[0]) != NULL;
        if (has_grad != (step % 2 == 0)) fail(t, "step %d: has a gradient: %d", step, has_grad);
        model_step(t, &m);
        check_equal_bits(t, &m);
    }
    ag_ddp_free(ddp);
    model_free(&m);
}

static ag_status break_off(void *context, ag_tensor **grad) {
    (void)context;
    (void)grad;
    return ag_raise(AG_E_USER, "hook", NULL, "broken");
}

/* Rank 0 fails within backward, with some reductions under way, and drops its job: the others do not wait for ever. */
static void dropped(rank_test *t) {
    model m;
    uint64_t id;
    model_init(t, &m, AG_F32, 1);
    ag_ddp *ddp = job_of(t, &m, &(ag_ddp_options){.bucket_bytes = 64});
    if (t->rank == 0) ok(t, ag_tensor_add_hook(m.parameters[0], break_off, NULL, NULL, &id), "add_hook");
    ag_tensor *loss = model_loss(t, &m, t->rank, BATCH, NULL, NULL);
    ag_status status = loss ? ag_backward(loss, NULL, false, false) : AG_E_STATE;
    ag_tensor_release(loss);
    ag_ddp_result result;
    if (t->rank == 0)
        failed_with(t, status, AG_E_USER, "broken", "backward");
    else if (ddp && status == AG_OK)
        failed_with(t, ag_ddp_sync(ddp, true, &result), AG_E_PEER, "rank 0 failed: it dropped its job", "sync");
    else
        fail(t, "backward: %s", ag_last_error()->message);
    ag_ddp_free(ddp);
    model_free(&m);
}

/* Every allocation of a job's life fails once; nothing may be lost or broken by it. One rank. */
static void allocations_fail(rank_test *t) {
    int64_t allocation = 1;
    for (bool is_through = false; !is_through && !t->problem[0] && allocation < 5000; allocation++) {
        model m;
        ag_ddp *ddp = NULL;
        ag_ddp_result result;
        model_init(t, &m, AG_F32, 1);
        ag_tensor *loss = model_loss(t, &m, 0, BATCH, NULL, NULL);
        ag_memory_fail_after(allocation);
        ag_status status = ag_ddp_open(t->group, m.items, NUM_PARAMETERS, NULL, 0, &(ag_ddp_options){.bucket_bytes = 64}, &ddp);
        if (status == AG_OK) status = ag_backward(loss, NULL, false, false);
        if (status == AG_OK) status = ag_ddp_sync(ddp, true, &result);
        if (status == AG_OK) status = ag_ddp_verify(ddp);
        ag_ddp_free(ddp);
        is_through = ag_memory_fail_after(0) < allocation;
        if (status != AG_OK) failed_with(t, status, AG_E_MEMORY, "", "the failing call");
        ag_tensor_release(loss);
        model_free(&m);
    }
    if (allocation < 20) fail(t, "only %lld allocations", (long long)allocation);
}

/* ---- all of them ---- */

static const struct {
    const char *name;
    void (*run)(rank_test *t);
    int min_size, max_size, num_variants;
} cases[] = {
    {"steps equal those of one rank", equals_one_rank, 1, 4, NUM_VARIANTS},
    {"gradients are a rank's own", gradients_are_own, 1, 4, 2},
    {"reductions start within backward", starts_early, 2, 3, 1},
    {"unused parameters count as zeros", partly_unused, 1, 4, 1},
    {"gradients accumulate", accumulates, 1, 3, 4},
    {"uneven batches", uneven, 1, 5, 5},
    {"updates are shared out", shares, 1, 4, 1},
    {"parameters in common", in_common, 1, 4, 2},
    {"not in common", not_in_common, 1, 3, 1},
    {"NaN is attributed", not_finite, 1, 3, 4},
    {"a changed replica is found", tampered, 1, 3, 1},
    {"what differs is refused", refused, 2, 4, 1},
    {"a job ends", ends, 1, 3, 2},
    {"parameters are frozen and thawed", freezes, 1, 3, 1},
    {"a job is dropped", dropped, 2, 3, 1},
    {"allocations fail", allocations_fail, 1, 1, 1},
};

int main(int argc, char **argv) {
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (argc > 1 && !strstr(cases[i].name, argv[1])) continue;
        for (int size = cases[i].min_size; size <= cases[i].max_size; size++)
            for (int v = 0; v < cases[i].num_variants; v++) run_world(cases[i].name, size, v, cases[i].run);
    }
    return num_failures > 0;
}
