/* op_call.c: ag_op_call: checks the arguments against the op's signature, once, and runs the call. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "autograd/tape.h"
#include "backend/caps.h"
#include "core/error.h"
#include "core/memory.h"
#include "ops/rules.h"

/* A call under construction: numbers given for tensors became weak tensors, which end with it. */
typedef struct build {
    ag_call call;
    ag_tensor *weak[CALL_MAX_INPUTS];
    int num_weak;
} build;

static const char *arg_kind_words[] = {"nothing",  "a tensor",  "a list of tensors", "a number",
                                       "a number", "a boolean", "a list of numbers", "a string",
                                       "a dtype",  "a device",  "a generator"};

static ag_status refuse_arg(const ag_call *call, const param *p, const ag_arg *arg, const char *expected) {
    ag_status code = AG_E_ARGUMENT;
    if (arg->kind == AG_ARG_STRING) return call_fail(call, code, p->name, expected, NULL, "\"%.80s\"", arg->as.string);
    if (arg->kind == AG_ARG_NUMBER) return call_fail(call, code, p->name, expected, NULL, "%.17g", arg->as.number);
    return call_fail(call, code, p->name, expected, NULL, "%s", arg_kind_words[arg->kind]);
}

static ag_status refuse_kind(const ag_call *call, const param *p, ag_dtype dtype) {
    const char *expected = p->type == PARAM_FLOAT         ? "a float tensor"
                           : p->type == PARAM_BOOL_TENSOR ? "a bool tensor"
                           : p->type == PARAM_BITS        ? "an int or bool tensor"
                                                          : "an int tensor of positions";
    const char *hint = p->type == PARAM_FLOAT         ? "convert: t:to(\"f32\")"
                       : p->type == PARAM_BOOL_TENSOR ? "compare to get one: t:ne(0)"
                                                      : "convert: t:to(\"i64\")";
    return call_fail(call, AG_E_KIND, p->name, expected, hint, "%s", dtype_name(dtype));
}

/* The device that a plain number is made on: that of the first tensor argument. */
static ag_device *device_of_args(const ag_arg *args, int num_args) {
    for (int i = 0; i < num_args; i++) {
        if (args[i].kind == AG_ARG_TENSOR) return args[i].as.tensor->storage->device;
        if (args[i].kind == AG_ARG_TENSORS && args[i].len) return args[i].as.tensors[0]->storage->device;
    }
    return registry_default();
}

static ag_status set_tensor(build *b, const param *p, const ag_arg *arg, ag_device *device) {
    ag_call *call = &b->call;
    if (p->type == PARAM_TENSOR_LIST) {
        if (arg->kind != AG_ARG_TENSORS) return refuse_arg(call, p, arg, "a list of tensors");
        call->inputs = (ag_tensor **)arg->as.tensors;
        call->num_inputs = arg->len;
        return AG_OK;
    }
    if (arg->kind == AG_ARG_TENSOR) {
        ag_tensor *t = arg->as.tensor;
        if (__builtin_expect(p->type > PARAM_NUM, 0) && !param_admits(p->type, (ag_dtype)t->dtype))
            return refuse_kind(call, p, (ag_dtype)t->dtype);
        call->inputs[p->slot] = t;
        return AG_OK;
    }
    if (arg->kind != AG_ARG_NUMBER && arg->kind != AG_ARG_INT) return refuse_arg(call, p, arg, "a tensor or a number");
    if (p->type == PARAM_BOOL_TENSOR) return refuse_arg(call, p, arg, "a bool tensor");
    bool is_integer = (arg->kind == AG_ARG_INT || arg->is_integer) && p->type != PARAM_FLOAT;
    if (!is_integer && !param_admits(p->type, AG_F64)) return refuse_arg(call, p, arg, "a whole number or an int tensor");
    double value = arg->kind == AG_ARG_INT ? (double)arg->as.integer : arg->as.number;
    AG_TRY(tensor_scalar(value, is_integer, device, &call->inputs[p->slot]));
    b->weak[b->num_weak++] = call->inputs[p->slot];
    return AG_OK;
}

static bool whole_number(const ag_arg *arg, int64_t *out) {
    if (arg->kind == AG_ARG_INT) {
        *out = arg->as.integer;
        return true;
    }
    if (arg->kind != AG_ARG_NUMBER || arg->as.number != floor(arg->as.number) || fabs(arg->as.number) >= 0x1p63) return false;
    *out = (int64_t)arg->as.number;
    return true;
}

/* Shifts a position or dim from the caller's base to 0; the caller's 0 does not exist when the base is 1. */
static ag_status shift(const ag_call *call, const param *p, int64_t *value) {
    if (*value < 0 || call->index_base == 0) return AG_OK;
    if (*value == 0)
        return call_fail(call, AG_E_INDEX, p->name, "a position from 1 on, or a negative one from the end", NULL, "0");
    *value -= 1;
    return AG_OK;
}

static ag_status set_list(build *b, const param *p, const ag_arg *arg) {
    ag_call *call = &b->call;
    int64_t single;
    const int64_t *values = arg->as.ints;
    int len = arg->len;
    if (arg->kind != AG_ARG_INTS) {
        if (!whole_number(arg, &single)) return refuse_arg(call, p, arg, "a whole number or a list of them");
        values = &single;
        len = 1;
    }
    if (!call_set_ints(call, p->slot, values, len))
        return call_fail(call, AG_E_ARGUMENT, p->name, "a shorter list", NULL, "%d numbers", len);
    if (p->type == PARAM_DIMS)
        for (int i = 0; i < len; i++) AG_TRY(shift(call, p, &call->ints[call->attrs[p->slot].list.start + i]));
    return AG_OK;
}

static ag_status set_attr(build *b, const param *p, const ag_arg *arg) {
    ag_call *call = &b->call;
    attr *slot = &call->attrs[p->slot];
    switch (p->type) {
    case PARAM_DIM:
    case PARAM_POSITION:
        if (!whole_number(arg, &slot->i)) return refuse_arg(call, p, arg, "a whole number");
        return shift(call, p, &slot->i);
    case PARAM_INT: return whole_number(arg, &slot->i) ? AG_OK : refuse_arg(call, p, arg, "a whole number");
    case PARAM_DIMS:
    case PARAM_INTS:
    case PARAM_SHAPE: return set_list(b, p, arg);
    case PARAM_NUMBER:
        if (arg->kind != AG_ARG_NUMBER && arg->kind != AG_ARG_INT) return refuse_arg(call, p, arg, "a number");
        slot->f = arg->kind == AG_ARG_INT ? (double)arg->as.integer : arg->as.number;
        return AG_OK;
    case PARAM_FLAG:
        if (arg->kind != AG_ARG_BOOL) return refuse_arg(call, p, arg, "true or false");
        slot->i = arg->as.boolean;
        return AG_OK;
    case PARAM_DTYPE:
        if (arg->kind == AG_ARG_DTYPE)
            slot->i = arg->as.dtype;
        else if (arg->kind == AG_ARG_STRING)
            slot->i = dtype_find(arg->as.string);
        else
            return refuse_arg(call, p, arg, "a dtype");
        if (slot->i < 0 || slot->i >= AG_DTYPE_COUNT)
            return refuse_arg(call, p, arg, "f64 f32 f16 bf16 i64 i32 i16 i8 u8 or bool");
        return AG_OK;
    case PARAM_DEVICE:
        if (arg->kind == AG_ARG_DEVICE)
            slot->pointer = arg->as.device;
        else if (arg->kind == AG_ARG_STRING)
            return ag_device_find(arg->as.string, (ag_device **)&slot->pointer);
        else
            return refuse_arg(call, p, arg, "a device");
        return AG_OK;
    case PARAM_GENERATOR:
        if (arg->kind != AG_ARG_GENERATOR) return refuse_arg(call, p, arg, "a generator");
        slot->pointer = arg->as.generator;
        return AG_OK;
    default: /* PARAM_WORD */
        slot->i = arg->kind == AG_ARG_STRING ? param_word_index(p, arg->as.string) : -1;
        return slot->i >= 0 ? AG_OK : refuse_arg(call, p, arg, p->type_word);
    }
}

static ag_status refuse_count(const ag_call *call, const char *arg, const char *what) {
    char hint[sizeof ag_last_error()->hint];
    snprintf(hint, sizeof hint, "the signature is %s", call->op->signature);
    return call_fail(call, AG_E_ARGUMENT, arg, NULL, hint, "%s", what);
}

static ag_status build_call(build *b, const ag_op *op, const ag_arg *args, int num_args, const ag_call_options *options) {
    ag_call *call = &b->call;
    call_init(call, (op_id)op->id);
    b->num_weak = 0;
    call->index_base = options ? options->index_base : 0;
    ag_device *device = NULL;
    if (num_args > op->num_params) return refuse_count(call, NULL, "too many arguments");
    for (int i = 0; i < op->num_params; i++) {
        const param *p = &op->params[i];
        const ag_arg *arg = i < num_args ? &args[i] : NULL;
        if (!arg || arg->kind == AG_ARG_NONE) {
            if (!p->is_optional) return refuse_count(call, p->name, "missing");
            continue;
        }
        if (param_is_tensor(p->type)) {
            if (arg->kind != AG_ARG_TENSOR && !device) device = device_of_args(args, num_args);
            AG_TRY(set_tensor(b, p, arg, device));
        } else {
            AG_TRY(set_attr(b, p, arg));
        }
    }
    return AG_OK;
}

static void end_build(build *b) {
    for (int i = 0; i < b->num_weak; i++) tensor_release(b->weak[i]);
}

/* out= writes past the tape, so nothing tracked may be in play. */
static ag_status run_out(build *b, ag_tensor *target, ag_tensor **outputs) {
    ag_call *call = &b->call;
    bool is_tracked = target->node != NULL;
    for (int i = 0; i < call->num_inputs; i++) is_tracked |= call->inputs[i] && call->inputs[i]->node;
    if (is_tracked && context_is_recording())
        return call_fail(call, AG_E_AUTODIFF, "out", "untracked tensors, since out= is not recorded",
                         "use ag.no_grad, or leave out= away", "a tracked one");
    if (call->num_outputs != 1)
        return call_fail(call, AG_E_OPTION, "out", "an op with one result", NULL, "one with %d", call->num_outputs);
    context_pause();
    ag_status status = exec_run_into(call, target, "out");
    context_resume();
    if (status == AG_OK) outputs[0] = tensor_retain(target);
    return status;
}

ag_status ag_op_call(const ag_op *op, const ag_arg *args, int num_args, const ag_call_options *options, ag_tensor **outputs) {
    build b;
    ag_status status = build_call(&b, op, args, num_args, options);
    if (status == AG_OK) {
        if (options && options->out) {
            status = run_out(&b, options->out, outputs);
        } else {
            status = exec_run(&b.call);
            for (int i = 0; status == AG_OK && i < b.call.num_outputs; i++) outputs[i] = b.call.outputs[i];
        }
    }
    end_build(&b);
    if (status != AG_OK) error_name_op(op->name);
    return status;
}

bool ag_op_has_inplace(const ag_op *op) {
    return op->num_inputs > 0 && op->params[0].type != PARAM_TENSOR_LIST && op->num_outputs == 1 && !(op->flags & OP_IS_VIEW);
}

ag_status ag_op_call_inplace(const ag_op *op, const ag_arg *args, int num_args, const ag_call_options *options,
                             ag_tensor **out) {
    build b;
    ag_status status = build_call(&b, op, args, num_args, options);
    if (status == AG_OK) {
        if (ag_op_has_inplace(op))
            status = tape_run_inplace(&b.call, out);
        else
            status =
                call_fail(&b.call, AG_E_UNSUPPORTED, NULL, "an op with one computed result", NULL, "%s in place", op->name);
    }
    end_build(&b);
    if (status != AG_OK) error_name_op(op->name);
    return status;
}

ag_support ag_supports(const ag_op *op, ag_device *device, ag_dtype dtype, char *reason, size_t len) {
    char unused[8];
    return caps_query(op, device, dtype, reason ? reason : unused, reason ? len : sizeof unused);
}

const char *ag_support_word(ag_support support) {
    static const char *const words[] = {"none", "staged", "composed", "native"};
    return words[support];
}

/* ---- what an op is ---- */

const ag_op *ag_op_find(const char *name) { return op_find(name); }
int ag_op_count(void) { return OP_COUNT; }
const ag_op *ag_op_at(int position) { return position >= 0 && position < OP_COUNT ? &op_table[position] : NULL; }
const char *ag_op_name(const ag_op *op) { return op->name; }
const char *ag_op_signature(const ag_op *op) { return op->signature; }
const char *ag_op_doc(const ag_op *op) { return op->doc; }
bool ag_op_is_hidden(const ag_op *op) { return (op->flags & OP_IS_HIDDEN) != 0; }
int ag_op_param_count(const ag_op *op) { return op->num_params; }
const char *ag_op_param_name(const ag_op *op, int i) { return op->params[i].name; }
const char *ag_op_param_type(const ag_op *op, int i) { return op->params[i].type_word; }
bool ag_op_param_is_optional(const ag_op *op, int i) { return op->params[i].is_optional; }
int ag_op_output_count(const ag_op *op) { return op->num_outputs; }
