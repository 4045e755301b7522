/* op_table.c: the op table's data and the parser of its signatures. */
#include "ops/op.h"

#include <assert.h>
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "ops/rules.h"

/* A unary row with a gradient is two ops: itself and the hidden fused backward, whose unused inputs may be absent. */
#define UNARY_ROW(name_, attributes, dtype_rule_)                                                        \
    [OP_##name_] = {.name = #name_, .signature = #name_ "(x: num" attributes ")", .shape_rule = shape_rule_same,             \
                    .dtype_rule = dtype_rule_, .id = OP_##name_, .flags = OP_IS_ELEMENTWISE | OP_IS_MEMORY_BOUND},      \
    [OP_##name_##_backward] = {.name = #name_ "_backward",                                                              \
                               .signature = #name_ "_backward(g: float, x?: float, y?: float" attributes ")",           \
                               .shape_rule = shape_rule_same, .dtype_rule = dtype_rule_keep, .id = OP_##name_##_backward, \
                               .flags = OP_IS_ELEMENTWISE | OP_IS_HIDDEN},
#define ELEMENTWISE_ROW(name_, signature_, shape_rule_, dtype_rule_)                                                    \
    [OP_##name_] = {.name = #name_, .signature = #name_ signature_, .shape_rule = shape_rule_,                          \
                    .dtype_rule = dtype_rule_, .id = OP_##name_, .flags = OP_IS_ELEMENTWISE | OP_IS_MEMORY_BOUND},

struct ag_op op_table[OP_COUNT] = {
#define UNARY_FLOAT(name, attributes, value, gradient, saves, doc_) UNARY_ROW(name, attributes, dtype_rule_float_result)
#define UNARY_NUM(name, attributes, value, gradient, saves, doc_) UNARY_ROW(name, attributes, dtype_rule_keep)
#define UNARY_TEST(name, value, doc_) ELEMENTWISE_ROW(name, "(x: any)", shape_rule_same, dtype_rule_test)
#define UNARY_BIT(name, value, doc_) ELEMENTWISE_ROW(name, "(x: bits)", shape_rule_same, dtype_rule_keep)
#define BINARY_FLOAT(name, attributes, value, grad_a, saves_a, grad_b, saves_b, doc_) \
    ELEMENTWISE_ROW(name, "(a: num, b: num" attributes ")", shape_rule_broadcast, dtype_rule_promote_float)
#define BINARY_NUM(name, attributes, value, grad_a, saves_a, grad_b, saves_b, doc_) \
    ELEMENTWISE_ROW(name, "(a: num, b: num" attributes ")", shape_rule_broadcast, dtype_rule_promote)
#define BINARY_COMPARE(name, value, doc_) ELEMENTWISE_ROW(name, "(a: any, b: any)", shape_rule_broadcast, dtype_rule_compare)
#define BINARY_LOGICAL(name, value, doc_) ELEMENTWISE_ROW(name, "(a: any, b: any)", shape_rule_broadcast, dtype_rule_compare)
#define BINARY_BIT(name, value, doc_) ELEMENTWISE_ROW(name, "(a: bits, b: bits)", shape_rule_broadcast, dtype_rule_promote)
#include "ops/elementwise.def"
#define VIEW(name_, signature_, view_, grad, doc_)                                                                 \
    [OP_##name_] = {.name = #name_, .signature = signature_, .dtype_rule = dtype_rule_keep, .view = view_rule_##view_,       \
                    .id = OP_##name_, .flags = OP_IS_VIEW | OP_IS_MEMORY_BOUND},
#define OP(name_, signature_, shape_, dtype_, grad, decomposition, doc_)                                      \
    [OP_##name_] = {.name = #name_, .signature = signature_, .shape_rule = shape_rule_##shape_,                         \
                    .dtype_rule = dtype_rule_##dtype_, .id = OP_##name_},
#include "ops/ops.def"
};

static const char *const op_docs[OP_COUNT] = {
#define UNARY_FLOAT(name, attributes, value, gradient, saves, doc) [OP_##name] = doc,
#define UNARY_NUM(name, attributes, value, gradient, saves, doc) [OP_##name] = doc,
#define UNARY_TEST(name, value, doc) [OP_##name] = doc,
#define UNARY_BIT(name, value, doc) [OP_##name] = doc,
#define BINARY_FLOAT(name, attributes, value, grad_a, saves_a, grad_b, saves_b, doc) [OP_##name] = doc,
#define BINARY_NUM(name, attributes, value, grad_a, saves_a, grad_b, saves_b, doc) [OP_##name] = doc,
#define BINARY_COMPARE(name, value, doc) [OP_##name] = doc,
#define BINARY_LOGICAL(name, value, doc) [OP_##name] = doc,
#define BINARY_BIT(name, value, doc) [OP_##name] = doc,
#include "ops/elementwise.def"
#define VIEW(name, signature, view_rule, grad, doc) [OP_##name] = doc,
#define OP(name, signature, shape_rule, dtype_rule, grad, decomposition, doc) [OP_##name] = doc,
#include "ops/ops.def"
};

static const struct {
    const char *word;
    param_type type;
} type_words[] = {
    {"any", PARAM_ANY}, {"num", PARAM_NUM}, {"float", PARAM_FLOAT}, {"int", PARAM_INT}, {"bool", PARAM_BOOL_TENSOR},
    {"bits", PARAM_BITS}, {"index", PARAM_INDEX}, {"any[]", PARAM_TENSOR_LIST}, {"dim", PARAM_DIM}, {"dims", PARAM_DIMS},
    {"ints", PARAM_INTS}, {"shape", PARAM_SHAPE}, {"position", PARAM_POSITION}, {"number", PARAM_NUMBER},
    {"flag", PARAM_FLAG}, {"dtype", PARAM_DTYPE}, {"device", PARAM_DEVICE}, {"generator", PARAM_GENERATOR},
};

/* Copies [start, end) without surrounding blanks into buffer. */
static void copy_word(const char *start, const char *end, char *buffer, size_t len) {
    while (start < end && *start == ' ') start++;
    while (end > start && end[-1] == ' ') end--;
    assert((size_t)(end - start) < len);
    (void)len;
    memcpy(buffer, start, (size_t)(end - start));
    buffer[end - start] = '\0';
}

static param_type parse_type(const char *word) {
    for (size_t i = 0; i < sizeof type_words / sizeof *type_words; i++)
        if (strcmp(word, type_words[i].word) == 0) return type_words[i].type;
    assert(strchr(word, '|'));
    return PARAM_WORD;
}

/* Position of `word` in "first|second|third"; -1 when it is not among them. */
int param_word_index(const param *p, const char *word) {
    const char *at = p->type_word;
    size_t len = strlen(word);
    for (int i = 0;; i++) {
        const char *end = strchr(at, '|');
        size_t n = end ? (size_t)(end - at) : strlen(at);
        if (n == len && memcmp(at, word, n) == 0) return i;
        if (!end) return -1;
        at = end + 1;
    }
}

static attr absent_value(param_type type) {
    switch (type) {
    case PARAM_DIMS: case PARAM_INTS: case PARAM_SHAPE: return (attr){.list = {0, -1}};
    case PARAM_DTYPE: return (attr){.i = AG_NO_DTYPE};
    case PARAM_DEVICE: case PARAM_GENERATOR: return (attr){.pointer = NULL};
    default: return (attr){.i = ATTR_NO_INT};
    }
}

static attr parse_default(const param *p, const char *text) {
    switch (p->type) {
    case PARAM_NUMBER: return (attr){.f = strtod(text, NULL)};
    case PARAM_FLAG: return (attr){.i = strcmp(text, "true") == 0};
    case PARAM_DTYPE: return (attr){.i = dtype_find(text)};
    case PARAM_DEVICE: return (attr){.pointer = NULL};
    case PARAM_WORD: return (attr){.i = param_word_index(p, text)};
    default: return (attr){.i = strtoll(text, NULL, 10)};
    }
}

/* Parses "name?: type = default". */
static void parse_param(struct ag_op *op, const char *start, const char *end) {
    assert(op->num_params < AG_MAX_PARAMS);
    param *p = &op->params[op->num_params++];
    const char *colon = memchr(start, ':', (size_t)(end - start));
    const char *equals = memchr(start, '=', (size_t)(end - start));
    assert(colon);
    const char *name_end = colon;
    if (name_end[-1] == '?') {
        p->is_optional = true;
        name_end--;
    }
    copy_word(start, name_end, p->name, sizeof p->name);
    copy_word(colon + 1, equals ? equals : end, p->type_word, sizeof p->type_word);
    p->type = parse_type(p->type_word);
    if (param_is_tensor(p->type)) {
        p->slot = op->num_inputs++;
        return;
    }
    p->slot = op->num_attrs++;
    p->default_value = absent_value(p->type);
    if (equals) {
        char text[32];
        copy_word(equals + 1, end, text, sizeof text);
        p->default_value = parse_default(p, text);
        p->is_optional = true;
    }
}

static void parse_signature(struct ag_op *op) {
    const char *at = strchr(op->signature, '(');
    assert(at);
    at++;
    while (*at && *at != ')') {
        const char *end = at + strcspn(at, ",)");
        parse_param(op, at, end);
        at = *end == ',' ? end + 1 : end;
    }
    op->num_outputs = 1;
    const char *arrow = strstr(at, "->");
    if (arrow)
        for (const char *c = arrow; *c; c++) op->num_outputs += *c == ',';
}

static const struct ag_op *ops_by_name[OP_COUNT];

static int compare_names(const void *a, const void *b) {
    return strcmp((*(const struct ag_op *const *)a)->name, (*(const struct ag_op *const *)b)->name);
}

void op_table_init(void) {
    for (int i = 0; i < OP_COUNT; i++) {
        struct ag_op *op = &op_table[i];
        if (op->num_params) return; /* already parsed */
        op->doc = op_docs[i] ? op_docs[i] : "";
        if (!*op->doc) op->flags |= OP_IS_HIDDEN;
        if (op->shape_rule == shape_rule_dynamic) op->flags |= OP_IS_DYNAMIC;
        parse_signature(op);
        if (op->shape_rule == shape_rule_step) op->num_outputs = 0, op->flags |= OP_IS_MUTATING;
        ops_by_name[i] = op;
    }
    qsort(ops_by_name, OP_COUNT, sizeof *ops_by_name, compare_names);
}

static int compare_with_name(const void *name, const void *op) {
    return strcmp(name, (*(const struct ag_op *const *)op)->name);
}

const struct ag_op *op_find(const char *name) {
    const struct ag_op *const *found = bsearch(name, ops_by_name, OP_COUNT, sizeof *ops_by_name, compare_with_name);
    return found ? *found : NULL;
}

void call_init(ag_call *call, op_id id) {
    const struct ag_op *op = &op_table[id];
    call->op = op;
    call->num_inputs = op->num_inputs;
    call->num_outputs = op->num_outputs;
    call->inputs = call->input_space;
    call->device = NULL;
    call->compute = AG_NO_DTYPE;
    call->index_base = 0;
    call->num_ints = 0;
    memset(call->outputs, 0, sizeof call->outputs);
    for (int i = 0; i < op->num_inputs; i++) call->input_space[i] = NULL;
    if (op->num_attrs)
        for (int i = 0; i < op->num_params; i++)
            if (!param_is_tensor(op->params[i].type)) call->attrs[op->params[i].slot] = op->params[i].default_value;
}

bool call_set_ints(ag_call *call, int slot, const int64_t *values, int len) {
    if (call->num_ints + len > CALL_MAX_INTS) return false;
    if (len) memcpy(call->ints + call->num_ints, values, (size_t)len * sizeof *values);
    call->attrs[slot].list = (int_list){call->num_ints, len};
    call->num_ints += len;
    return true;
}

ag_status call_fail(const ag_call *call, ag_status code, const char *arg, const char *expected, const char *hint,
                    const char *got_format, ...) {
    char got[256] = "";
    if (got_format) {
        va_list list;
        va_start(list, got_format);
        vsnprintf(got, sizeof got, got_format, list);
        va_end(list);
    }
    return error_set(code, call->op->name, arg, expected, hint, "%s", got);
}

int call_dim(const ag_call *call, const char *arg, int64_t dim, int ndim) {
    int resolved = dim_resolve(dim, ndim);
    if (resolved < 0) {
        int low = call->index_base ? 1 : 0, high = (ndim ? ndim : 1) - 1 + low;
        char expected[64];
        snprintf(expected, sizeof expected, "%d to %d, or -%d to -1", low, high, ndim ? ndim : 1);
        call_fail(call, AG_E_INDEX, arg, expected, NULL, "%lld for a tensor of %d dims",
                  (long long)(dim >= 0 ? dim + low : dim), ndim);
    }
    return resolved;
}
