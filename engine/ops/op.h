/* op.h: what an op is, and the record of one call of it.
 *
 * The op table (ops.def, elementwise.def) declares every op once; this header turns the rows into OP_<name> and struct ag_op.
 * A call goes through all layers as one `ag_call`: op, inputs, attributes, outputs. Nothing here knows a device.
 */
#ifndef ARGAND_OPS_OP_H
#define ARGAND_OPS_OP_H

#include "core/tensor.h"

/* OP_<name> for each row, in table order. Unary rows with a gradient also declare OP_<name>_backward. */
typedef enum op_id {
#define UNARY_FLOAT(name, ...) OP_##name, OP_##name##_backward,
#define UNARY_NUM(name, ...) OP_##name, OP_##name##_backward,
#define UNARY_TEST(name, ...) OP_##name,
#define UNARY_BIT(name, ...) OP_##name,
#define BINARY_FLOAT(name, ...) OP_##name,
#define BINARY_NUM(name, ...) OP_##name,
#define BINARY_COMPARE(name, ...) OP_##name,
#define BINARY_LOGICAL(name, ...) OP_##name,
#define BINARY_BIT(name, ...) OP_##name,
#include "ops/elementwise.def"
#define VIEW(name, ...) OP_##name,
#define OP(name, ...) OP_##name,
#include "ops/ops.def"
    OP_COUNT
} op_id;

/* What a parameter is, from its word in the signature. Tensor words say which kinds are admitted. */
typedef enum param_type {
    PARAM_ANY, PARAM_NUM, PARAM_FLOAT, PARAM_INT_TENSOR, PARAM_BOOL_TENSOR, PARAM_BITS, PARAM_INDEX,
    PARAM_TENSOR_LIST,
    PARAM_DIM, PARAM_DIMS, PARAM_INT, PARAM_INTS, PARAM_SHAPE, PARAM_POSITION, PARAM_NUMBER, PARAM_FLAG, PARAM_DTYPE,
    PARAM_DEVICE, PARAM_GENERATOR, PARAM_WORD
} param_type;
static inline bool param_is_tensor(param_type type) { return type <= PARAM_TENSOR_LIST; }

/* attr is one attribute value, 8 bytes, at the parameter's place among the non-tensor parameters. Lists live in call->ints.
 * Absent optional values: ATTR_NO_INT, a list with len -1, AG_NO_DTYPE, NULL. */
typedef struct int_list { int32_t start, len; } int_list;
typedef union attr {
    int64_t i;
    double f;
    int_list list;
    void *pointer;
} attr;
#define ATTR_NO_INT INT64_MIN

typedef struct param {
    char name[24];
    char type_word[48];
    param_type type;
    bool is_optional;
    int slot;           /* index among the inputs for tensors, else among the attributes */
    attr default_value; /* attributes only */
} param;

struct ag_call;
typedef ag_status (*op_rule)(struct ag_call *call);
/* A view rule writes shape, strides and offset of the result for an input of the given shape, strides and offset. A result that
 * cannot be a view of such an input is reported by *is_possible = false (reshape of a scattered input). */
typedef struct view_geometry {
    shape shape;
    int64_t strides[AG_MAX_NDIM];
    int64_t offset;
} view_geometry;
typedef ag_status (*view_rule)(const struct ag_call *call, const view_geometry *source, view_geometry *result,
                               bool *is_possible);

enum op_flags {
    OP_IS_ELEMENTWISE = 1,  /* the kernel takes any strides and converts dtypes as it loads and stores */
    OP_IS_VIEW = 2,         /* the result shares the input's storage */
    OP_IS_HIDDEN = 4,       /* internal: no method, no help */
    OP_IS_MUTATING = 8,      /* changes its inputs and has no result */
    OP_IS_DYNAMIC = 16,     /* the output's shape depends on data: the kernel allocates it */
    OP_IS_MEMORY_BOUND = 32 /* cheap to run again: balanced checkpointing recomputes it */
};

struct ag_op {
    const char *name;
    const char *signature;
    const char *doc;
    op_rule shape_rule;
    op_rule dtype_rule;
    view_rule view;
    int id;
    int flags; /* enum op_flags */
    int num_params, num_inputs, num_attrs, num_outputs;
    param params[AG_MAX_PARAMS];
};

#define CALL_MAX_INPUTS 10
#define CALL_MAX_INTS 48

typedef struct out_spec {
    shape shape;
    ag_dtype dtype;
} out_spec;

typedef struct ag_call {
    const struct ag_op *op;
    int num_inputs; /* of a list op: the list's length; else op->num_inputs, absent ones NULL */
    int num_outputs;
    ag_tensor **inputs; /* borrowed */
    ag_device *device;
    ag_dtype compute; /* what the rule wants the inputs converted to; AG_NO_DTYPE = as they are */
    int index_base;
    int num_ints;
    ag_tensor *outputs[AG_MAX_OUTPUTS]; /* set before the kernel runs; owned by the caller of exec_run afterwards */
    ag_tensor *input_space[CALL_MAX_INPUTS];
    out_spec out[AG_MAX_OUTPUTS];
    attr attrs[AG_MAX_PARAMS];
    int64_t ints[CALL_MAX_INTS];
} ag_call;

extern struct ag_op op_table[OP_COUNT];

/* op_table_init parses all signatures; once, at start. It asserts on a malformed row. */
void op_table_init(void);
const struct ag_op *op_find(const char *name);
/* call_init prepares a call with every attribute at its default and no inputs. */
void call_init(ag_call *call, op_id id);
/* call_set_ints gives list attribute `slot` the values; false when the call's room is used up. */
bool call_set_ints(ag_call *call, int slot, const int64_t *values, int len);
static inline const int64_t *call_ints(const ag_call *call, int_list list) { return call->ints + list.start; }
/* call_dim resolves a dim attribute against ndim; fills the record and returns -1 when out of range. */
int call_dim(const ag_call *call, const char *arg, int64_t dim, int ndim);
/* call_fail is error_set with the op's name in place. */
ag_status call_fail(const ag_call *call, ag_status code, const char *arg, const char *expected, const char *hint,
                    const char *got_format, ...) __attribute__((format(printf, 6, 7)));

/* Attributes of a call as its family's struct (ops/attrs.h): slots in signature order. */
#define CALL_ATTRS(call, type) ((const struct type *)(const void *)(call)->attrs)

#endif
