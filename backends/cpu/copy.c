/* copy.c: copies of strided memory with conversion of dtype, and the ops clone and cast. */
#include <string.h>

#include "core/error.h"
#include "cpu/convert.h"
#include "cpu/cpu.h"
#include "cpu/elementwise.h"
#include "cpu/strided_walk.h"
#include "platform/interrupt.h"
#include "platform/pool.h"

#define TILE_ELEMENTS 4096 /* 32 KiB of f64 */
#define TILE_SIDE 64       /* of transposed tiles: four cache lines of f32, which the prefetcher follows */
#define COPY_GRAIN 65536   /* elements */
#define POLL_ELEMENTS 1048576

struct copy_task {
    ag_dtype source_dtype, target_dtype;
    int64_t source_size, target_size; /* of an element, in bytes */
    const char *source;
    char *target;
    bool must_finish;
};

static void copy_flat(void *context, int64_t begin, int64_t end) {
    const struct copy_task *task = context;
    convert_run convert = cpu_convert_kernels()->convert[task->source_dtype][task->target_dtype];
    for (int64_t i = begin; i < end; i += POLL_ELEMENTS) {
        if (!task->must_finish && interrupt_pending()) return;
        int64_t n = end - i < POLL_ELEMENTS ? end - i : POLL_ELEMENTS;
        convert(n, task->source + i * task->source_size, 1, task->target + i * task->target_size, 1);
    }
}

/* A transposed tile passes through a buffer: rows of the source and rows of the target are then touched one after the other,
 * which a power of two as row length would otherwise punish (all rows in one set of the cache). */
static void copy_tile(void *context, const struct strided_walk *walk, const struct walk_tile *tile) {
    const struct copy_task *task = context;
    convert_run convert = cpu_convert_kernels()->convert[task->source_dtype][task->target_dtype];
    struct strided_matrix source = {tile->address[0], walk_row_stride(walk, 0), walk_column_stride(walk, 0)};
    struct strided_matrix target = {tile->address[1], walk_row_stride(walk, 1), walk_column_stride(walk, 1)};
    if (tile->rows == 1) {
        convert(tile->columns, source.address, source.column_stride / task->source_size, target.address,
                target.column_stride / task->target_size);
        return;
    }
    union {
        uint64_t alignment[TILE_ELEMENTS];
        char bytes[TILE_ELEMENTS * 8];
    } gathered, converted;
    struct strided_matrix between = {gathered.bytes, tile->columns * task->source_size, task->source_size};
    bool is_across = source.column_stride != task->source_size && target.column_stride == task->target_size;
    if (task->source_dtype == task->target_dtype && !is_across) {
        matrix_copy(task->source_size, tile->rows, tile->columns, source, target);
        return;
    }
    matrix_copy(task->source_size, tile->rows, tile->columns, source, between);
    if (task->source_dtype != task->target_dtype) {
        convert(tile->rows * tile->columns, gathered.bytes, 1, converted.bytes, 1);
        between = (struct strided_matrix){converted.bytes, tile->columns * task->target_size, task->target_size};
    }
    matrix_copy(task->target_size, tile->rows, tile->columns, between, target);
}

static struct copy_task copy_task_of(const struct strided_copy *copy) {
    return (struct copy_task){.source_dtype = copy->source_dtype,
                              .target_dtype = copy->target_dtype,
                              .source_size = (int64_t)dtype_size(copy->source_dtype),
                              .target_size = (int64_t)dtype_size(copy->target_dtype),
                              .source = copy->source,
                              .target = copy->target,
                              .must_finish = copy->must_finish};
}

void cpu_strided_copy(const struct strided_copy *copy) {
    struct copy_task task = copy_task_of(copy);
    struct strided_walk walk = {.ndim = copy->ndim, .num_operands = 2, .must_finish = copy->must_finish};
    walk.operands[0] = (struct walk_operand){.address = (char *)copy->source, .element_size = task.source_size};
    walk.operands[1] = (struct walk_operand){.address = copy->target, .element_size = task.target_size};
    for (int i = 0; i < copy->ndim; i++) {
        walk.dims[i] = copy->dims[i];
        if (copy->dims[i] == 0) return;
        walk.operands[0].strides[i] = copy->source_strides[i] * task.source_size;
        walk.operands[1].strides[i] = copy->target_strides[i] * task.target_size;
    }
    walk_plan(&walk, TILE_ELEMENTS, TILE_SIDE);
    bool is_flat = walk.ndim == 2 && walk.dims[0] == 1 && walk_column_stride(&walk, 0) == task.source_size &&
                   walk_column_stride(&walk, 1) == task.target_size;
    if (is_flat)
        pool_run(copy_flat, &task, walk.dims[1], COPY_GRAIN);
    else
        walk_run(&walk, copy_tile, &task, COPY_GRAIN / 2);
}

/* Copies the input into the output of the same shape. */
static ag_status copy_input(ag_call *call) {
    const ag_tensor *input = call->inputs[0], *output = call->outputs[0];
    struct strided_copy copy = {.ndim = output->ndim,
                                .source = tensor_address(input),
                                .target = tensor_address(output),
                                .source_dtype = (ag_dtype)input->dtype,
                                .target_dtype = (ag_dtype)output->dtype};
    if (input->is_contiguous && output->is_contiguous) {
        struct copy_task task = copy_task_of(&copy);
        pool_run(copy_flat, &task, output->numel, COPY_GRAIN);
        return elementwise_status(call);
    }
    for (int i = 0; i < output->ndim; i++) {
        copy.dims[i] = output->dims[i];
        copy.source_strides[i] = input->strides[i];
        copy.target_strides[i] = output->strides[i];
    }
    cpu_strided_copy(&copy);
    return elementwise_status(call);
}

ag_status cpu_clone(ag_call *call) { return copy_input(call); }
ag_status cpu_cast(ag_call *call) { return copy_input(call); }
