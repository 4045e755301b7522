/* capi_test.c: every function of argand.h once, with what it refuses. Prints a line for each check that fails; exit code 1 then. */
#include <argand.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int num_passed, num_failed;

#define CHECK(condition)                                                     \
    do {                                                                     \
        if (condition) num_passed++;                                         \
        else num_failed++, printf("line %d: %s\n", __LINE__, #condition);    \
    } while (0)
#define OK(call) CHECK((call) == AG_OK)
#define REFUSED(code_, call) CHECK((call) == (code_) && ag_last_error()->code == (code_) && ag_last_error()->message[0])

static ag_arg tensor_arg(ag_tensor *t) { return (ag_arg){.kind = AG_ARG_TENSOR, .as.tensor = t}; }
static ag_arg number_arg(double value) { return (ag_arg){.kind = AG_ARG_NUMBER, .as.number = value}; }
static ag_arg int_arg(int64_t value) { return (ag_arg){.kind = AG_ARG_INT, .as.integer = value}; }

static ag_tensor *make(int64_t rows, int64_t columns) {
    int64_t dims[2] = {rows, columns};
    float values[64];
    ag_tensor *t = NULL;
    for (int i = 0; i < 64; i++) values[i] = (float)i;
    OK(ag_tensor_from_data(AG_F32, 2, dims, NULL, values, &t));
    return t;
}

static double sum_of(ag_tensor *t) {
    ag_tensor *sum = NULL;
    ag_arg arg = tensor_arg(t);
    double value = NAN;
    OK(ag_op_call(ag_op_find("sum"), &arg, 1, NULL, &sum));
    OK(ag_tensor_item(sum, &value));
    ag_tensor_release(sum);
    return value;
}

static void errors_and_dtypes(void) {
    CHECK(strcmp(ag_status_word(AG_E_SHAPE), "shape") == 0 && strcmp(ag_status_word((ag_status)999), "unknown") == 0);
    CHECK(ag_raise(AG_E_VALUE, "op", "arg", "expected 1, got 2; take 1") == AG_E_VALUE);
    const ag_error *e = ag_last_error();
    CHECK(!strcmp(e->op, "op") && !strcmp(e->arg, "arg") && !strcmp(e->expected, "1") && !strcmp(e->got, "2") && !strcmp(e->hint, "take 1"));
    CHECK(strcmp(e->message, "op: arg: expected 1, got 2; take 1") == 0);
    char longest[2000];
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    ag_raise(AG_E_USER, longest, longest, longest);
    CHECK(strlen(ag_last_error()->message) < sizeof ag_last_error()->message);
    for (int d = 0; d < AG_DTYPE_COUNT; d++) CHECK(ag_dtype_find(ag_dtype_name((ag_dtype)d)) == (ag_dtype)d && ag_dtype_size((ag_dtype)d) >= 1);
    CHECK(ag_dtype_find("f31") == AG_NO_DTYPE);
    CHECK(strcmp(ag_dtype_kind(AG_BF16), "float") == 0 && strcmp(ag_dtype_kind(AG_U8), "int") == 0 && strcmp(ag_dtype_kind(AG_BOOL), "bool") == 0);
}

static void devices(void) {
    ag_device *device = NULL;
    CHECK(ag_device_count() >= 2);
    for (int i = 0; i < ag_device_count(); i++) {
        OK(ag_device_find(ag_device_name(ag_device_at(i)), &device));
        CHECK(device == ag_device_at(i) && ag_device_description(device)[0]);
    }
    CHECK(ag_device_at(-1) == NULL && ag_device_at(999) == NULL);
    REFUSED(AG_E_DEVICE, ag_device_find("moon", &device));
    OK(ag_device_find("reference", &device));
    CHECK(!ag_device_has_collectives(device));
}

static void tensors(void) {
    int64_t dims[2] = {2, 3}, negative[1] = {-1}, vast[2] = {INT64_C(1) << 40, INT64_C(1) << 40}, at[2] = {1, 2}, outside[2] = {1, 3};
    double value;
    float values[6];
    void *data;
    ag_tensor *t = make(2, 3), *other = NULL, *kept = other;
    CHECK(ag_tensor_dtype(t) == AG_F32 && ag_tensor_ndim(t) == 2 && ag_tensor_numel(t) == 6 && ag_tensor_is_contiguous(t));
    CHECK(ag_tensor_dims(t)[1] == 3 && ag_tensor_strides(t)[0] == 3 && ag_tensor_device(t) == ag_device_at(0));
    OK(ag_tensor_empty(AG_I64, 2, dims, NULL, &other));
    CHECK(!ag_tensor_shares_storage(t, other));
    ag_tensor_release(other);
    other = NULL;
    REFUSED(AG_E_DTYPE, ag_tensor_empty((ag_dtype)99, 2, dims, NULL, &other));
    REFUSED(AG_E_SHAPE, ag_tensor_empty(AG_F32, 9, dims, NULL, &other));
    REFUSED(AG_E_SHAPE, ag_tensor_empty(AG_F32, 1, negative, NULL, &other));
    REFUSED(AG_E_SHAPE, ag_tensor_empty(AG_F32, 2, vast, NULL, &other));
    CHECK(other == kept);
    OK(ag_tensor_get(t, at, &value));
    CHECK(value == 5);
    REFUSED(AG_E_INDEX, ag_tensor_get(t, outside, &value));
    uint32_t version = ag_tensor_version(t);
    OK(ag_tensor_set(t, at, 50));
    CHECK(ag_tensor_version(t) == version + 1);
    REFUSED(AG_E_INDEX, ag_tensor_set(t, outside, 1));
    REFUSED(AG_E_SHAPE, ag_tensor_item(t, &value));
    OK(ag_tensor_read(t, AG_F32, values, 6));
    CHECK(values[5] == 50);
    REFUSED(AG_E_VALUE, ag_tensor_read(t, AG_F32, values, 5));
    REFUSED(AG_E_DTYPE, ag_tensor_read(t, AG_NO_DTYPE, values, 6));
    OK(ag_tensor_data(t, &data));
    CHECK(((float *)data)[5] == 50);
    CHECK(ag_tensor_retain(t) == t);
    CHECK(ag_tensor_charge(t) >= 6 * sizeof(float));
    ag_tensor_release(t);
    ag_tensor_release(t);
    ag_tensor_release(NULL);
}

static void ops(void) {
    const ag_op *add = ag_op_find("add"), *sum = ag_op_find("sum"), *cat = ag_op_find("cat");
    CHECK(ag_op_find("nothing") == NULL && ag_op_at(-1) == NULL && ag_op_at(ag_op_count()) == NULL);
    for (int i = 0; i < ag_op_count(); i++) CHECK(ag_op_find(ag_op_name(ag_op_at(i))) == ag_op_at(i) && ag_op_output_count(ag_op_at(i)) <= AG_MAX_OUTPUTS);
    CHECK(strstr(ag_op_signature(add), "add(") && ag_op_doc(add)[0] && !ag_op_is_hidden(add) && ag_op_is_differentiable(add));
    CHECK(ag_op_has_inplace(add) && !ag_op_has_inplace(ag_op_find("reshape")) && !ag_op_has_inplace(ag_op_find("sort")));
    CHECK(ag_op_is_hidden(ag_op_find("adam_step")) && !ag_op_is_differentiable(ag_op_find("argmax")));
    CHECK(ag_op_param_count(sum) == 3 && !strcmp(ag_op_param_name(sum, 1), "dims") && !strcmp(ag_op_param_type(sum, 1), "dims"));
    CHECK(ag_op_param_is_optional(sum, 1) && !ag_op_param_is_optional(sum, 0));
    ag_tensor *a = make(2, 3), *b = make(2, 3), *c = NULL, *wrong = make(2, 2);
    ag_arg args[4] = {tensor_arg(a), tensor_arg(b), number_arg(2), number_arg(1)};
    OK(ag_op_call(add, args, 3, NULL, &c));
    CHECK(sum_of(c) == 45);
    REFUSED(AG_E_ARGUMENT, ag_op_call(add, args, 4, NULL, &wrong));
    REFUSED(AG_E_ARGUMENT, ag_op_call(add, args, 1, NULL, &wrong));
    args[1] = tensor_arg(wrong);
    ag_tensor *untouched = c;
    REFUSED(AG_E_SHAPE, ag_op_call(add, args, 2, NULL, &c));
    CHECK(c == untouched && !strcmp(ag_last_error()->op, "add"));
    ag_call_options options = {.index_base = 0, .out = c};
    args[1] = tensor_arg(b);
    OK(ag_op_call(add, args, 2, &options, &c));
    CHECK(c == untouched && sum_of(c) == 30);
    ag_tensor_release(c); /* the second reference */
    options.out = wrong;
    REFUSED(AG_E_SHAPE, ag_op_call(add, args, 2, &options, &c));
    ag_tensor *changed = NULL;
    OK(ag_op_call_inplace(add, args, 2, NULL, &changed));
    CHECK(changed == a && sum_of(a) == 30);
    ag_tensor_release(changed);
    ag_arg list = {.kind = AG_ARG_TENSORS, .len = 0};
    REFUSED(AG_E_UNSUPPORTED, ag_op_call_inplace(cat, &list, 1, NULL, &changed));
    ag_arg dim[2] = {tensor_arg(b), int_arg(2)};
    REFUSED(AG_E_INDEX, ag_op_call(sum, dim, 2, NULL, &changed));
    CHECK(strstr(ag_last_error()->expected, "0 to 1"));
    ag_call_options from_one = {.index_base = 1};
    dim[1] = int_arg(3);
    REFUSED(AG_E_INDEX, ag_op_call(sum, dim, 2, &from_one, &changed));
    CHECK(strstr(ag_last_error()->expected, "1 to 2"));
    char reason[200];
    CHECK(ag_supports(add, ag_device_at(0), AG_F32, NULL, 0) == AG_SUPPORT_NATIVE);
    CHECK(ag_supports(ag_op_find("layer_norm"), ag_device_at(0), AG_I64, reason, sizeof reason) == AG_SUPPORT_NONE && reason[0]);
    CHECK(strcmp(ag_support_word(AG_SUPPORT_COMPOSED), "composed") == 0);
    ag_tensor_release(a);
    ag_tensor_release(b);
    ag_tensor_release(c);
    ag_tensor_release(wrong);
}

static void assignment(void) {
    ag_tensor *base = make(2, 3), *row = NULL, *value = NULL, *after = NULL, *other = make(2, 3);
    ag_arg args[3] = {tensor_arg(base), int_arg(0), int_arg(1)};
    OK(ag_op_call(ag_op_find("select"), args, 3, NULL, &row));
    CHECK(ag_tensor_shares_storage(row, base));
    OK(ag_tensor_broadcast_like(NULL, 7, row, &value));
    OK(ag_tensor_assign(base, row, value, &after));
    CHECK(after == base && sum_of(base) == 24);
    ag_tensor_release(after);
    REFUSED(AG_E_SHAPE, ag_tensor_assign(base, row, other, &after));
    REFUSED(AG_E_ARGUMENT, ag_tensor_assign(base, other, other, &after));
    REFUSED(AG_E_SHAPE, ag_tensor_broadcast_like(other, 0, row, &after));
    ag_tensor_release(base);
    ag_tensor_release(row);
    ag_tensor_release(value);
    ag_tensor_release(other);
}

static int num_hook_calls, num_freed;
static void count_free(void *context) { (void)context, num_freed++; }
static ag_status hook(void *context, ag_tensor **grad) {
    (void)context, (void)grad;
    num_hook_calls++;
    return AG_OK;
}
static ag_status refusing_hook(void *context, ag_tensor **grad) {
    (void)context, (void)grad;
    return ag_raise(AG_E_USER, "hook", "", "no");
}
static ag_status twice(void *context, int num_outputs, ag_tensor *const *grad_outputs, int num_inputs, ag_tensor **grad_inputs) {
    (void)context, (void)num_outputs, (void)num_inputs;
    ag_arg args[2] = {tensor_arg(grad_outputs[0]), number_arg(2)};
    return ag_op_call(ag_op_find("mul"), args, 2, NULL, grad_inputs);
}
static void forward_line(char *buffer, size_t len) { snprintf(buffer, len, "here"); }

static void autodiff(void) {
    ag_tensor *x = make(1, 3), *y = NULL, *sum = NULL, *ints = NULL, *grad = NULL;
    int64_t dims[1] = {2};
    OK(ag_tensor_empty(AG_I64, 1, dims, NULL, &ints));
    REFUSED(AG_E_KIND, ag_tensor_set_requires_grad(ints, true));
    OK(ag_tensor_set_requires_grad(x, true));
    CHECK(ag_tensor_requires_grad(x) && ag_tensor_is_leaf(x) && ag_tensor_grad(x) == NULL);
    CHECK(ag_autodiff_is_enabled() && ag_autodiff_depth() == 0);
    OK(ag_autodiff_push(false, AG_CHECKPOINT_NONE));
    CHECK(!ag_autodiff_is_enabled() && ag_autodiff_depth() == 1);
    ag_autodiff_pop();
    ag_arg args[2] = {tensor_arg(x), tensor_arg(x)};
    OK(ag_op_call(ag_op_find("mul"), args, 2, NULL, &y));
    CHECK(!ag_tensor_is_leaf(y) && ag_autodiff_live_nodes() > 0);
    CHECK(ag_tensor_grad_op(y) != NULL);
    REFUSED(AG_E_AUTODIFF, ag_tensor_set_requires_grad(y, false));
    REFUSED(AG_E_AUTODIFF, ag_tensor_set_grad(y, x));
    REFUSED(AG_E_SHAPE, ag_backward(y, NULL, false, false));
    uint64_t id;
    OK(ag_tensor_add_hook(y, hook, NULL, count_free, &id));
    ag_arg arg = tensor_arg(y);
    OK(ag_op_call(ag_op_find("sum"), &arg, 1, NULL, &sum));
    OK(ag_backward(sum, NULL, true, false));
    CHECK(num_hook_calls == 1 && sum_of(ag_tensor_grad(x)) == 6);
    ag_tensor_remove_hook(y, id);
    CHECK(num_freed == 1);
    OK(ag_tensor_set_grad(x, NULL));
    OK(ag_tensor_add_hook(y, refusing_hook, NULL, NULL, &id));
    REFUSED(AG_E_USER, ag_backward(sum, NULL, true, false));
    ag_tensor_remove_hook(y, id);
    OK(ag_grad(sum, NULL, &x, 1, true, false, false, &grad));
    CHECK(sum_of(grad) == 6 && ag_tensor_grad(x) == NULL);
    REFUSED(AG_E_SHAPE, ag_tensor_set_grad(x, sum));
    OK(ag_tensor_set_grad(x, grad));
    ag_tensor_release(grad);
    REFUSED(AG_E_AUTODIFF, ag_grad(sum, NULL, &ints, 1, true, false, false, &grad));
    OK(ag_grad(sum, NULL, &ints, 1, true, false, true, &grad));
    CHECK(grad == NULL);
    ag_tensor *detached = NULL, *result = NULL;
    OK(ag_tensor_detach(y, &detached));
    CHECK(!ag_tensor_requires_grad(detached) && ag_tensor_shares_storage(detached, y));
    result = make(1, 3);
    OK(ag_custom_record("twice", &x, 1, &result, 1, twice, NULL, count_free, false));
    CHECK(ag_tensor_requires_grad(result));
    OK(ag_tensor_set_grad(x, NULL));
    OK(ag_backward(result, detached, false, false));
    CHECK(sum_of(ag_tensor_grad(x)) == 10);
    REFUSED(AG_E_STATE, ag_backward_inner(&result, &detached, 1));
    REFUSED(AG_E_STATE, ag_custom_tie(result, 0, &grad));
    ag_set_anomaly_mode(true, forward_line);
    CHECK(ag_anomaly_mode());
    ag_set_anomaly_mode(false, NULL);
    ag_tensor *all[] = {x, y, sum, ints, detached, result};
    for (int i = 0; i < 6; i++) ag_tensor_release(all[i]);
    CHECK(ag_autodiff_live_nodes() == 0 && num_freed == 2);
}

static void random_state(void) {
    uint64_t seed, offset;
    ag_manual_seed(5);
    ag_generator_state(NULL, &seed, &offset);
    CHECK(seed == 5 && offset == 0);
    ag_generator *g = ag_generator_new(1);
    ag_generator_seed(g, 9);
    ag_generator_set_state(g, 9, 100);
    ag_generator_state(g, &seed, &offset);
    CHECK(seed == 9 && offset == 100);
    ag_generator_free(g);
    ag_generator_free(NULL);
}

static int num_reclaims;
static void reclaim(void *context) { (void)context, num_reclaims++; }

static void memory_and_threads(void) {
    ag_memory_info before, after;
    int64_t dims[1] = {1 << 20};
    ag_tensor *t = NULL;
    ag_memory(&before);
    OK(ag_tensor_empty(AG_F32, 1, dims, NULL, &t));
    ag_memory(&after);
    CHECK(after.live_bytes == before.live_bytes + (4 << 20) && after.peak_bytes >= after.live_bytes && after.heap_blocks > before.heap_blocks);
    ag_tensor_release(t);
    ag_memory_reset_peak();
    ag_memory_trim();
    ag_memory(&after);
    CHECK(after.live_bytes == before.live_bytes && after.cached_bytes == 0 && after.peak_bytes == after.live_bytes);
    ag_memory_set_limit(1 << 20);
    ag_memory_set_reclaim(reclaim, NULL);
    t = NULL;
    REFUSED(AG_E_MEMORY, ag_tensor_empty(AG_F32, 1, dims, NULL, &t));
    CHECK(num_reclaims == 1 && t == NULL);
    ag_memory_set_reclaim(NULL, NULL);
    ag_memory_set_limit(0);
    for (int64_t n = 1;; n++) {
        ag_memory_fail_after(n);
        ag_status status = ag_tensor_empty(AG_F32, 1, dims, NULL, &t);
        CHECK(status == AG_OK || status == AG_E_MEMORY);
        if (status == AG_OK) break;
    }
    CHECK(ag_memory_fail_after(0) > 0);
    ag_tensor_release(t);
    int count = ag_get_num_threads();
    REFUSED(AG_E_VALUE, ag_set_num_threads(0));
    OK(ag_set_num_threads(2));
    CHECK(ag_get_num_threads() == 2);
    OK(ag_set_num_threads(count));
    ag_interrupt();
    CHECK(ag_interrupt_pending());
    ag_interrupt_clear();
    CHECK(!ag_interrupt_pending());
}

static void files(const char *path) {
    ag_tensor *t = make(2, 3), *back = NULL;
    OK(ag_npy_save(path, t));
    OK(ag_npy_load(path, &back));
    CHECK(sum_of(back) == 15);
    ag_tensor_release(back);
    back = NULL;
    REFUSED(AG_E_FORMAT, ag_idx_load(path, &back));
    REFUSED(AG_E_FILE, ag_npy_load("/nonexistent/x.npy", &back));
    REFUSED(AG_E_FILE, ag_npy_save("/nonexistent/x.npy", t));
    CHECK(back == NULL);
    ag_tensor_release(t);
    remove(path);
}

static void group_questions(ag_group *g) {
    ag_group_stats stats;
    CHECK(ag_group_rank(g) == 0 && ag_group_size(g) == 1 && ag_group_world_rank(g, 0) == 0 && ag_group_world_rank(g, 1) == -1);
    CHECK(ag_group_epoch(g) == 3 && strcmp(ag_group_transport(g), "none") == 0 && !ag_group_is_encrypted(g));
    CHECK(!ag_group_has_ended(g));
    ag_group_note(g, "epoch 1");
    ag_group_stats_read(g, &stats);
    CHECK(stats.bytes_moved == 0);
}

static void collectives(ag_group *g) {
    ag_tensor *t = make(2, 3), *sum = NULL, *own = NULL, *result = NULL;
    char text[256] = "";
    ag_collective c = {.kind = "all_reduce", .input = t};
    OK(ag_collective_run(g, &c, &sum));
    CHECK(sum_of(sum) == 15);
    ag_tensor_release(sum);
    ag_work *work = NULL;
    OK(ag_collective_start(g, &c, &work));
    OK(ag_work_wait(work, 10, &sum));
    CHECK(ag_work_is_done(work) && sum_of(sum) == 15);
    ag_work_release(work);
    ag_work_release(NULL);
    ag_tensor_release(sum);
    CHECK(ag_collective_plan(g, &c, text, sizeof text) == text && text[0]);
    REFUSED(AG_E_VALUE, ag_collective_run(g, &(ag_collective){.kind = "all_reduce", .op = "sun", .input = t}, NULL));
    CHECK(ag_collective_supports("all_reduce", "mean", AG_F32, ag_tensor_device(t), text, sizeof text) && !text[0]);
    CHECK(!ag_collective_supports("all_reduce", "mean", AG_I32, ag_tensor_device(t), text, sizeof text) && strstr(text, "i32"));
    OK(ag_group_shared_tensor(g, AG_F32, 4, true, &own, &result));
    CHECK(ag_tensor_numel(own) == 4 && sum_of(result) == 0);
    ag_tensor_release(own);
    ag_tensor_release(result);
    ag_tensor_release(t);
}

static void groups(const char *path) {
    ag_group *g = NULL, *part = NULL, *pair[2] = {NULL, NULL};
    OK(ag_group_open(&(ag_group_options){.size = 1, .epoch = 3}, &g));
    group_questions(g);
    collectives(g);
    OK(ag_group_split(g, &(int){0}, 1, &part));
    CHECK(ag_group_size(part) == 1);
    OK(ag_group_close(part, 1));
    REFUSED(AG_E_UNSUPPORTED, ag_group_regroup(g, 1, 1, &part));
    ag_group_abort(g, "the test says so");
    CHECK(ag_group_has_ended(g));
    REFUSED(AG_E_PEER, ag_collective_run(g, &(ag_collective){.kind = "barrier"}, NULL));
    ag_group_free(g);
    REFUSED(AG_E_VALUE, ag_group_open(&(ag_group_options){.size = 2}, &g));
    OK(ag_group_open_threads(2, pair));
    CHECK(ag_group_rank(pair[1]) == 1 && strcmp(ag_group_transport(pair[1]), "inproc") == 0);
    ag_group_free(pair[0]);
    ag_group_free(pair[1]);
    if (!ag_dist_is_available()) return;
    OK(ag_keygen(path));
    REFUSED(AG_E_FILE, ag_keygen(path)); /* never over a file that is there */
    remove(path);
}

static void simulated(void) {
    ag_tensor *t = make(2, 3);
    ag_collective calls[2] = {{.kind = "all_reduce", .input = t}, {.kind = "all_reduce", .input = t}};
    ag_simulation_outcome outcomes[2];
    int64_t num_segments = 0;
    OK(ag_simulate_collective(&(ag_simulation){.size = 2, .seed = 7}, calls, outcomes, &num_segments));
    for (int rank = 0; rank < 2; rank++) {
        CHECK(outcomes[rank].status == AG_OK && sum_of(outcomes[rank].result) == 30 && outcomes[rank].end_s > 0);
        ag_tensor_release(outcomes[rank].result);
    }
    CHECK(num_segments > 0);
    ag_tensor_release(t);
}

static void data_parallel(void) {
    ag_group *g = NULL;
    ag_ddp *ddp = NULL;
    ag_ddp_place place;
    ag_ddp_result result;
    ag_ddp_stats stats;
    ag_tensor *w = make(2, 3), *loss = NULL;
    OK(ag_group_open(&(ag_group_options){.size = 1}, &g));
    REFUSED(AG_E_AUTODIFF, ag_ddp_check(w));
    OK(ag_tensor_set_requires_grad(w, true));
    OK(ag_ddp_check(w));
    OK(ag_ddp_open(g, &(ag_ddp_item){"w", w}, 1, NULL, 0, &(ag_ddp_options){.shard = "ranks", .check_finite = "skip"}, &ddp));
    REFUSED(AG_E_STATE, ag_ddp_check(w));
    CHECK(ag_ddp_find(w, &place) == ddp && strcmp(place.name, "w") == 0 && place.owner == 0);
    ag_ddp_set_accumulating(ddp, true);
    CHECK(ag_ddp_is_accumulating(ddp));
    ag_ddp_set_accumulating(ddp, false);
    ag_arg arg = tensor_arg(w);
    OK(ag_op_call(ag_op_find("sum"), &arg, 1, NULL, &loss));
    OK(ag_backward(loss, NULL, false, false));
    OK(ag_ddp_sync(ddp, true, &result));
    CHECK(result.num_contributors == 1 && result.is_finite && sum_of(ag_tensor_grad(w)) == 6);
    OK(ag_ddp_share(ddp));
    OK(ag_ddp_verify(ddp));
    ag_ddp_stats_read(ddp, &stats);
    CHECK(stats.num_steps == 1 && ag_ddp_report(ddp)[0] == '\0');
    ag_ddp_free(ddp);
    ag_ddp_free(NULL);
    CHECK(ag_ddp_find(w, NULL) == NULL);
    ag_tensor_release(loss);
    ag_tensor_release(w);
    OK(ag_group_close(g, 1));
}

int main(int argc, char **argv) {
    ag_memory_info before, after;
    ag_memory(&before);
    errors_and_dtypes();
    devices();
    tensors();
    ops();
    assignment();
    autodiff();
    random_state();
    memory_and_threads();
    files(argc > 1 ? argv[1] : "capi_test.npy");
    groups(argc > 1 ? argv[1] : "capi_test.key");
    simulated();
    data_parallel();
    CHECK(strcmp(ag_version(), AG_VERSION) == 0 && ag_build_info()[0] && ag_cpu_info()[0] && ag_blas_info()[0]);
    CHECK(ag_num_processors() >= 1);
    ag_memory(&after);
    CHECK(after.live_bytes == before.live_bytes);
    printf("%d passed, %d failed\n", num_passed, num_failed);
    return num_failed != 0;
}
