/* elementwise.c: runs a call of an elementwise op: straight over contiguous memory where it can, else tile by tile, gathering,
 * converting and scattering through buffers that stay in the first-level cache. */
#include "cpu/elementwise.h"

#include <math.h>
#include <string.h>

#include "core/error.h"
#include "cpu/convert.h"
#include "cpu/cpu.h"
#include "cpu/strided_walk.h"
#include "platform/interrupt.h"
#include "platform/pool.h"

#define TILE_ELEMENTS 512 /* 4 KiB of f64 */
#define TILE_SIDE 32      /* of tiles with a transposed operand: 32 columns, 16 rows */
#define POLL_ELEMENTS 65536

/* What the driver has to know of an op. */
struct op_facts {
    bool is_binary, gives_bool, divides; /* divides: refuses 0 as a divisor of ints */
    int32_t grain;                       /* elements worth a thread of their own */
};
enum { GRAIN_CHEAP = 32768, GRAIN_BACKWARD = 16384, GRAIN_COSTLY = 8192 };
static const struct op_facts op_facts[OP_COUNT] = {
#define UNARY_FLOAT(name, ...) \
    [OP_##name] = {false, false, false, GRAIN_COSTLY}, [OP_##name##_backward] = {false, false, false, GRAIN_BACKWARD},
#define UNARY_NUM(name, ...) \
    [OP_##name] = {false, false, false, GRAIN_CHEAP}, [OP_##name##_backward] = {false, false, false, GRAIN_CHEAP},
#define UNARY_TEST(name, ...) [OP_##name] = {false, true, false, GRAIN_CHEAP},
#define UNARY_BIT(name, ...) [OP_##name] = {false, false, false, GRAIN_CHEAP},
#define BINARY_FLOAT(name, ...) [OP_##name] = {true, false, false, GRAIN_BACKWARD},
#define BINARY_NUM(name, ...)                                                                                    \
    [OP_##name] = {true, false, OP_##name == OP_remainder || OP_##name == OP_fmod || OP_##name == OP_floor_divide, \
                   OP_##name == OP_pow ? GRAIN_COSTLY : GRAIN_CHEAP},
#define BINARY_COMPARE(name, ...) [OP_##name] = {true, true, false, GRAIN_CHEAP},
#define BINARY_LOGICAL(name, ...) [OP_##name] = {true, true, false, GRAIN_CHEAP},
#define BINARY_BIT(name, ...) [OP_##name] = {true, false, false, GRAIN_CHEAP},
#include "ops/elementwise.def"
};

ag_status elementwise_status(const ag_call *call) {
    if (interrupt_pending())
        return error_set(AG_E_INTERRUPTED, call->op->name, NULL, NULL, NULL, "interrupted");
    return AG_OK;
}

static void convert_block(ag_dtype from, ag_dtype to, int64_t n, const void *src, void *dst) {
    cpu_convert_kernels()->convert[from][to](n, src, 1, dst, 1);
}

/* ---- contiguous runs ---- */

struct flat_task {
    elementwise_fn fn;
    unsigned scalar_mask;
    const void *inputs[ELEMENTWISE_MAX_INPUTS];
    size_t input_size, output_size; /* of an element */
    char *output;
    const double *params;
};

static void flat_range(void *context, int64_t begin, int64_t end) {
    const struct flat_task *task = context;
    for (int64_t i = begin; i < end; i += POLL_ELEMENTS) {
        if (interrupt_pending()) return;
        const void *inputs[ELEMENTWISE_MAX_INPUTS];
        for (int k = 0; k < ELEMENTWISE_MAX_INPUTS; k++) {
            bool moves = task->inputs[k] && !(task->scalar_mask >> k & 1);
            inputs[k] = moves ? (const char *)task->inputs[k] + (size_t)i * task->input_size : task->inputs[k];
        }
        int64_t n = end - i < POLL_ELEMENTS ? end - i : POLL_ELEMENTS;
        task->fn(n, inputs, task->output + (size_t)i * task->output_size, task->scalar_mask, task->params);
    }
}

/* run_flat serves the usual case and returns false where it does not apply: contiguous operands of the compute dtype, or single
 * values of any dtype. */
static bool run_flat(const ag_call *call, elementwise_fn fn, ag_dtype compute, ag_dtype result, const double *params) {
    const ag_tensor *output = call->outputs[0];
    const struct op_facts *facts = &op_facts[call->op->id];
    int64_t n = output->numel;
    if (!output->is_contiguous || output->dtype != (int8_t)result) return false;
    struct flat_task task = {.fn = fn, .output = tensor_address(output), .params = params};
    uint64_t singles[ELEMENTWISE_MAX_INPUTS];
    for (int k = 0; k < call->op->num_inputs; k++) {
        const ag_tensor *input = call->inputs[k];
        if (!input) continue;
        const void *address = tensor_address(input);
        if (input->numel == 1) {
            if (n != 1) {
                if (!facts->is_binary) return false;
                task.scalar_mask |= 1u << k;
            }
            if (input->dtype != (int8_t)compute) {
                convert_block((ag_dtype)input->dtype, compute, 1, address, &singles[k]);
                address = &singles[k];
            }
        } else if (input->numel != n || !input->is_contiguous || input->dtype != (int8_t)compute) {
            return false;
        }
        task.inputs[k] = address;
    }
    if (task.scalar_mask == 3) return false;
    if (n <= facts->grain) {
        fn(n, task.inputs, task.output, task.scalar_mask, params);
        return true;
    }
    task.input_size = dtype_size(compute);
    task.output_size = dtype_size(result);
    pool_run(flat_range, &task, n, facts->grain);
    return true;
}

/* ---- strided runs ---- */

union tile_buffer {
    uint64_t alignment[TILE_ELEMENTS];
    char bytes[TILE_ELEMENTS * 8];
};

static struct strided_matrix tile_matrix(const struct strided_walk *walk, const struct walk_tile *tile, int k) {
    return (struct strided_matrix){tile->address[k], walk_row_stride(walk, k), walk_column_stride(walk, k)};
}

static bool is_dense(const struct walk_tile *tile, struct strided_matrix m, int64_t size) {
    return (m.column_stride == size || tile->columns == 1) && (m.row_stride == size * tile->columns || tile->rows == 1);
}

static struct strided_matrix dense_matrix(char *address, int64_t columns, int64_t size) {
    return (struct strided_matrix){address, columns * size, size};
}

static bool is_single(const struct walk_tile *tile, struct strided_matrix m) {
    return (m.column_stride == 0 || tile->columns == 1) && (m.row_stride == 0 || tile->rows == 1);
}

/* Returns input k of the tile as contiguous elements of the wanted dtype: in place, or in `buffer`. */
static const void *load_input(const struct elementwise_run *run, const struct strided_walk *walk, const struct walk_tile *tile,
                              int k, char *buffer) {
    ag_dtype from = (ag_dtype)run->inputs[k]->dtype, to = run->wanted[k];
    int64_t size = (int64_t)dtype_size(from), n = tile->rows * tile->columns;
    struct strided_matrix m = tile_matrix(walk, tile, k);
    if (is_dense(tile, m, size)) {
        if (from == to) return m.address;
        convert_block(from, to, n, m.address, buffer);
        return buffer;
    }
    if (tile->rows == 1) {
        cpu_convert_kernels()->convert[from][to](n, m.address, m.column_stride / size, buffer, 1);
        return buffer;
    }
    union tile_buffer gathered;
    char *target = from == to ? buffer : gathered.bytes;
    matrix_copy(size, tile->rows, tile->columns, m, dense_matrix(target, tile->columns, size));
    if (from != to) convert_block(from, to, n, gathered.bytes, buffer);
    return buffer;
}

/* Brings n contiguous results to where they belong in the output. */
static void store_output(const struct elementwise_run *run, const struct walk_tile *tile, struct strided_matrix m,
                         char *results) {
    ag_dtype from = run->result, to = (ag_dtype)run->output->dtype;
    int64_t size = (int64_t)dtype_size(to), n = tile->rows * tile->columns;
    if (is_dense(tile, m, size)) {
        convert_block(from, to, n, results, m.address);
        return;
    }
    union tile_buffer converted;
    if (from != to) convert_block(from, to, n, results, converted.bytes);
    char *source = from == to ? results : converted.bytes;
    matrix_copy(size, tile->rows, tile->columns, dense_matrix(source, tile->columns, size), m);
}

static void run_tile(void *context, const struct strided_walk *walk, const struct walk_tile *tile) {
    const struct elementwise_run *run = context;
    union tile_buffer buffers[ELEMENTWISE_MAX_INPUTS], results;
    const void *inputs[ELEMENTWISE_MAX_INPUTS] = {NULL};
    int64_t n = tile->rows * tile->columns;
    unsigned scalar_mask = 0;
    if (n > 1) {
        for (int k = 0; k < run->num_inputs; k++)
            if ((run->scalar_inputs >> k & 1) && is_single(tile, tile_matrix(walk, tile, k))) scalar_mask |= 1u << k;
        if (run->not_together && (scalar_mask & run->not_together) == run->not_together) scalar_mask &= scalar_mask - 1;
    }
    for (int k = 0; k < run->num_inputs; k++) {
        if (!run->inputs[k]) continue;
        if (scalar_mask >> k & 1) {
            inputs[k] = tile->address[k];
            if (run->inputs[k]->dtype == (int8_t)run->wanted[k]) continue;
            convert_block((ag_dtype)run->inputs[k]->dtype, run->wanted[k], 1, tile->address[k], buffers[k].bytes);
            inputs[k] = buffers[k].bytes;
        } else {
            inputs[k] = load_input(run, walk, tile, k, buffers[k].bytes);
        }
    }
    struct strided_matrix target = tile_matrix(walk, tile, run->num_inputs);
    bool is_direct = run->result == (ag_dtype)run->output->dtype && is_dense(tile, target, (int64_t)dtype_size(run->result));
    run->fn(n, inputs, is_direct ? target.address : results.bytes, scalar_mask, run->params);
    if (!is_direct) store_output(run, tile, target, results.bytes);
}

/* An operand of the walk that broadcasts to the walk's dims. */
static void set_operand(struct strided_walk *walk, int k, const ag_tensor *tensor) {
    struct walk_operand *operand = &walk->operands[k];
    memset(operand, 0, sizeof *operand);
    if (!tensor) return;
    operand->address = tensor_address(tensor);
    operand->element_size = (int64_t)dtype_size((ag_dtype)tensor->dtype);
    int lead = walk->ndim - tensor->ndim;
    for (int i = 0; i < tensor->ndim; i++)
        if (tensor->dims[i] != 1) operand->strides[lead + i] = tensor->strides[i] * operand->element_size;
}

void elementwise_run_strided(const struct elementwise_run *run) {
    const ag_tensor *output = run->output;
    if (output->numel == 0) return;
    struct strided_walk walk;
    walk.ndim = output->ndim;
    walk.num_operands = run->num_inputs + 1;
    walk.must_finish = false;
    for (int i = 0; i < output->ndim; i++) walk.dims[i] = output->dims[i];
    for (int k = 0; k < run->num_inputs; k++) set_operand(&walk, k, run->inputs[k]);
    set_operand(&walk, run->num_inputs, output);
    walk_plan(&walk, TILE_ELEMENTS, TILE_SIDE);
    walk_run(&walk, run_tile, (void *)run, run->grain);
}

/* ---- the call ---- */

struct zero_search {
    ag_dtype dtype, compute;
    bool is_found;
};

static void find_zero(void *context, const struct strided_walk *walk, const struct walk_tile *tile) {
    struct zero_search *search = context;
    struct strided_matrix m = tile_matrix(walk, tile, 0);
    int64_t size = (int64_t)dtype_size(search->dtype);
    int64_t values[TILE_ELEMENTS];
    union tile_buffer converted;
    for (int64_t i = 0; i < tile->rows && !search->is_found; i++) {
        cpu_convert_kernels()->convert[search->dtype][search->compute](tile->columns, m.address + i * m.row_stride,
                                                                      m.column_stride / size, converted.bytes, 1);
        convert_block(search->compute, AG_I64, tile->columns, converted.bytes, values);
        for (int64_t j = 0; j < tile->columns; j++)
            if (values[j] == 0) search->is_found = true;
    }
}

/* Divisors of ints are looked at as the kernel will see them: a number may become 0 by conversion. */
static ag_status check_divisors(const ag_call *call, ag_dtype compute) {
    const ag_tensor *divisor = call->inputs[1];
    if (divisor->numel == 0 || call->outputs[0]->numel == 0) return AG_OK;
    struct zero_search search = {(ag_dtype)divisor->dtype, compute, false};
    struct strided_walk walk = {.ndim = divisor->ndim, .num_operands = 1};
    for (int i = 0; i < divisor->ndim; i++) walk.dims[i] = divisor->dims[i];
    set_operand(&walk, 0, divisor);
    walk_plan(&walk, TILE_ELEMENTS, TILE_SIDE);
    walk_run(&walk, find_zero, &search, INT64_MAX / 4); /* on this thread alone */
    if (!search.is_found) return AG_OK;
    return call_fail(call, AG_E_VALUE, "b", "divisors other than 0", NULL, "0 among %s divisors", dtype_name(compute));
}

ag_status cpu_elementwise(ag_call *call) {
    const struct op_facts *facts = &op_facts[call->op->id];
    ag_dtype compute = dtype_is_half(call->compute) ? AG_F32 : call->compute;
    ag_dtype result = facts->gives_bool ? AG_BOOL : compute;
    elementwise_fn fn = cpu_elementwise_kernels()->fn[call->op->id][compute];
    double params[2] = {0, 0};
    for (int i = 0; i < call->op->num_attrs; i++) params[i] = call->attrs[i].f;
    if (call->op->id == OP_clamp && dtype_is_int(compute)) {
        params[0] = ceil(params[0]); /* the whole numbers within [min, max] */
        params[1] = floor(params[1]);
    }
    if (facts->divides && dtype_is_int(compute)) AG_TRY(check_divisors(call, compute));
    if (run_flat(call, fn, compute, result, params)) return elementwise_status(call);

    struct elementwise_run run = {.fn = fn,
                                  .num_inputs = call->op->num_inputs,
                                  .scalar_inputs = facts->is_binary ? 3 : 0,
                                  .not_together = 3,
                                  .output = call->outputs[0],
                                  .result = result,
                                  .grain = facts->grain,
                                  .params = {params[0], params[1]}};
    for (int k = 0; k < run.num_inputs; k++) {
        run.inputs[k] = call->inputs[k];
        run.wanted[k] = compute;
    }
    elementwise_run_strided(&run);
    return elementwise_status(call);
}
