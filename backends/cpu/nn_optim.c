/* nn_optim.c: optimizer steps: update many parameters in place in one pass over all of them.
 *
 * The tensors of a call are lists of equal length, one after another: parameters, gradients, then the state (SGD: momentum
 * buffers, only with momentum; Adam: first and second moments). A `group` is what belongs to one parameter: the tensors at one
 * place of every list. A group of contiguous tensors of one dtype, f32 or f64, is updated where it lies; any other goes through
 * contiguous copies. An interrupt stops nothing here: a step is done wholly or not at all.
 */
#include <assert.h>
#include <math.h>

#include "core/error.h"
#include "core/memory.h"
#include "cpu/cpu.h"
#include "cpu/fused.h"
#include "ops/attrs.h"
#include "platform/pool.h"

enum {
    CHUNK_ELEMENTS = 32 * 1024, /* what one thread takes at a time */
    LISTS_MAX = 4,
    LIST_GRADS = 1, /* the only list that is not changed */
};

struct step {
    const ag_call *call;
    int num_groups, num_lists;
    sgd_fn const *sgd; /* by dtype; NULL = Adam */
    adam_fn const *adam;
    struct sgd_args sgd_args; /* without the arrays */
    struct adam_args adam_args;
};

static ag_tensor *group_tensor(const struct step *step, int group, int list) {
    return step->call->inputs[list * step->num_groups + group];
}

/* group_is_direct tells whether the kernels can work on the group's tensors as they lie. */
static bool group_is_direct(const struct step *step, int group) {
    int8_t dtype = group_tensor(step, group, 0)->dtype;
    bool is_direct = dtype == AG_F32 || dtype == AG_F64;
    for (int list = 0; list < step->num_lists && is_direct; list++) {
        const ag_tensor *tensor = group_tensor(step, group, list);
        is_direct = tensor->is_contiguous && tensor->dtype == dtype;
    }
    return is_direct;
}

/* update_range updates elements [begin, end) of one parameter. arrays: [num_lists], of dtype f32 or f64. */
static void update_range(const struct step *step, ag_dtype dtype, void *const *arrays, int64_t begin, int64_t end) {
    if (step->sgd) {
        struct sgd_args args = step->sgd_args;
        args.param = arrays[0];
        args.grad = arrays[LIST_GRADS];
        args.momentum_buffer = step->num_lists > 2 ? arrays[2] : NULL;
        step->sgd[dtype](&args, begin, end);
    } else {
        struct adam_args args = step->adam_args;
        args.param = arrays[0];
        args.grad = arrays[LIST_GRADS];
        args.exp_avg = arrays[2];
        args.exp_avg_sq = arrays[3];
        step->adam[dtype](&args, begin, end);
    }
}

/* Elements [begin, end) of the concatenation of all direct groups. */
static void update_direct(void *context, int64_t begin, int64_t end) {
    const struct step *step = context;
    int64_t start = 0; /* of the group in the concatenation */
    for (int group = 0; group < step->num_groups && start < end; group++) {
        const ag_tensor *first = group_tensor(step, group, 0);
        int64_t numel = first->numel;
        if (!group_is_direct(step, group)) continue;
        if (start + numel > begin && numel > 0) {
            void *arrays[LISTS_MAX];
            for (int list = 0; list < step->num_lists; list++) arrays[list] = tensor_address(group_tensor(step, group, list));
            update_range(step, (ag_dtype)first->dtype, arrays, begin > start ? begin - start : 0,
                         end - start < numel ? end - start : numel);
        }
        start += numel;
    }
}

/* ---- groups that go through copies ---- */

/* One group as contiguous arrays. */
struct group_copy {
    const struct step *step;
    ag_dtype dtype;
    void *arrays[LISTS_MAX];
};

/* The copies of a group are f64 when one of its tensors is, else f32. */
static ag_dtype group_dtype(const struct step *step, int group) {
    for (int list = 0; list < step->num_lists; list++)
        if (group_tensor(step, group, list)->dtype == AG_F64) return AG_F64;
    return AG_F32;
}

static size_t group_copy_bytes(const struct step *step, int group) {
    return (size_t)group_tensor(step, group, 0)->numel * dtype_size(group_dtype(step, group)) * (size_t)step->num_lists;
}

/* copy_tensor copies between a tensor and a contiguous array of its shape, from the tensor or back to it. */
static void copy_tensor(const ag_tensor *tensor, void *array, ag_dtype array_dtype, bool is_back) {
    struct strided_copy copy = {.ndim = tensor->ndim, .must_finish = true};
    shape s = tensor_shape(tensor);
    int64_t contiguous[AG_MAX_NDIM];
    shape_contiguous_strides(&s, contiguous);
    for (int i = 0; i < tensor->ndim; i++) {
        copy.dims[i] = tensor->dims[i];
        copy.source_strides[i] = is_back ? contiguous[i] : tensor->strides[i];
        copy.target_strides[i] = is_back ? tensor->strides[i] : contiguous[i];
    }
    copy.source = is_back ? array : tensor_address(tensor);
    copy.target = is_back ? tensor_address(tensor) : array;
    copy.source_dtype = is_back ? array_dtype : (ag_dtype)tensor->dtype;
    copy.target_dtype = is_back ? (ag_dtype)tensor->dtype : array_dtype;
    cpu_strided_copy(&copy);
}

static void update_copied_range(void *context, int64_t begin, int64_t end) {
    const struct group_copy *copy = context;
    update_range(copy->step, copy->dtype, copy->arrays, begin, end);
}

/* scratch: group_copy_bytes */
static void update_copied(const struct step *step, int group, void *scratch) {
    struct group_copy copy = {.step = step, .dtype = group_dtype(step, group)};
    int64_t numel = group_tensor(step, group, 0)->numel;
    for (int list = 0; list < step->num_lists; list++) {
        copy.arrays[list] = (char *)scratch + list * numel * (int64_t)dtype_size(copy.dtype);
        copy_tensor(group_tensor(step, group, list), copy.arrays[list], copy.dtype, false);
    }
    pool_run(update_copied_range, &copy, numel, CHUNK_ELEMENTS);
    for (int list = 0; list < step->num_lists; list++)
        if (list != LIST_GRADS) copy_tensor(group_tensor(step, group, list), copy.arrays[list], copy.dtype, true);
}

/* ---- the whole step ---- */

static ag_status check_group(const struct step *step, int group) {
    const ag_call *call = step->call;
    const ag_tensor *first = group_tensor(step, group, 0);
    for (int list = 0; list < step->num_lists; list++) {
        const ag_tensor *tensor = group_tensor(step, group, list);
        int position = list * step->num_groups + group + call->index_base;
        if (!dtype_is_float((ag_dtype)tensor->dtype))
            return call_fail(call, AG_E_KIND, "tensors", "float tensors", NULL, "%s at position %d",
                             dtype_name((ag_dtype)tensor->dtype), position);
        bool fits = tensor->ndim == first->ndim;
        for (int i = 0; i < first->ndim && fits; i++) fits = tensor->dims[i] == first->dims[i];
        if (fits) continue;
        shape wanted = tensor_shape(first), got = tensor_shape(tensor);
        char expected[160], text[160];
        return call_fail(call, AG_E_SHAPE, "tensors", shape_text(&wanted, expected, sizeof expected),
                         "a gradient and its state have the shape of their parameter", "%s at position %d",
                         shape_text(&got, text, sizeof text), position);
    }
    return AG_OK;
}

static ag_status step_run(struct step *step) {
    const ag_call *call = step->call;
    if (call->num_inputs % step->num_lists != 0)
        return call_fail(call, AG_E_ARGUMENT, "tensors", "lists of equal length: parameters, gradients and state", NULL,
                         "%d tensors for %d lists", call->num_inputs, step->num_lists);
    step->num_groups = call->num_inputs / step->num_lists;
    int64_t direct_elements = 0;
    size_t scratch_bytes = 0; /* of the largest group that goes through copies */
    for (int group = 0; group < step->num_groups; group++) {
        AG_TRY(check_group(step, group));
        size_t copy_bytes = 0;
        if (group_is_direct(step, group)) direct_elements += group_tensor(step, group, 0)->numel;
        else copy_bytes = group_copy_bytes(step, group);
        if (copy_bytes > scratch_bytes) scratch_bytes = copy_bytes;
    }
    void *scratch = NULL; /* before the first change, as nothing may fail after it */
    if (scratch_bytes > 0 && !(scratch = memory_alloc(scratch_bytes))) return error_memory(call->op->name, scratch_bytes);

    pool_run(update_direct, step, direct_elements, CHUNK_ELEMENTS);
    for (int group = 0; group < step->num_groups; group++) {
        if (scratch && group_copy_bytes(step, group) > 0 && !group_is_direct(step, group)) update_copied(step, group, scratch);
        for (int list = 0; list < step->num_lists; list++)
            if (list != LIST_GRADS) tensor_bump_version(group_tensor(step, group, list));
    }
    memory_free(scratch, scratch_bytes);
    return AG_OK;
}

ag_status cpu_sgd_step(ag_call *call) {
    const struct attrs_sgd *attrs = CALL_ATTRS(call, attrs_sgd);
    struct step step = {
        .call = call, .num_lists = attrs->momentum != 0 ? 3 : 2, .sgd = cpu_fused_kernels()->optimizer->sgd,
        .sgd_args = {.lr = attrs->lr, .momentum = attrs->momentum, .dampening = attrs->dampening,
                     .weight_decay = attrs->weight_decay, .nesterov = attrs->nesterov != 0,
                     .is_first_step = attrs->first != 0}};
    return step_run(&step);
}

ag_status cpu_adam_step(ag_call *call) {
    const struct attrs_adam *attrs = CALL_ATTRS(call, attrs_adam);
    if (attrs->step < 1)
        return call_fail(call, AG_E_VALUE, "step", "a count from 1", NULL, "%lld", (long long)attrs->step);
    struct step step = {
        .call = call, .num_lists = 4, .adam = cpu_fused_kernels()->optimizer->adam,
        .adam_args = {.lr = attrs->lr, .beta1 = attrs->beta1, .beta2 = attrs->beta2, .eps = attrs->eps,
                      .weight_decay = attrs->weight_decay, .bias_correction1 = 1 - pow(attrs->beta1, (double)attrs->step),
                      .bias_correction2 = 1 - pow(attrs->beta2, (double)attrs->step),
                      .decoupled_decay = attrs->decoupled != 0}};
    return step_run(&step);
}
