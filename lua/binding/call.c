/* call.c: every op as a Lua function: arguments by the op's signature, an options table last. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "binding.h"

ag_arg binding_arg_tensor(ag_tensor *tensor) { return (ag_arg){.kind = AG_ARG_TENSOR, .as.tensor = tensor}; }
ag_arg binding_arg_number(double value) {
    return (ag_arg){.kind = AG_ARG_NUMBER, .is_integer = value == floor(value) && fabs(value) < 0x1p53, .as.number = value};
}
ag_arg binding_arg_int(int64_t value) { return (ag_arg){.kind = AG_ARG_INT, .as.integer = value}; }

ag_tensor *binding_call1(lua_State *L, binding *b, const char *name, const ag_arg *args, int num_args, int index_base) {
    ag_tensor *result = NULL;
    ag_call_options options = {.index_base = index_base};
    if (ag_op_call(ag_op_find(name), args, num_args, &options, &result) != AG_OK) binding_raise(L, b);
    return result;
}

/* Room for what a call's arguments point to. */
typedef struct scratch {
    int64_t ints[BINDING_MAX_INTS];
    int num_ints;
} scratch;

static int fail_arg(lua_State *L, binding *b, const op_binding *ob, int i, const char *expected, int index) {
    return binding_fail(L, b, AG_E_ARGUMENT, ag_op_name(ob->op), ag_op_param_name(ob->op, i), "expected %s, got %s", expected,
                        luaL_typename(L, index));
}

static void put_int(lua_State *L, binding *b, const op_binding *ob, int i, scratch *s, int index) {
    double value = lua_tonumber(L, index);
    if (lua_type(L, index) != LUA_TNUMBER || value != floor(value) || fabs(value) >= 0x1p63) {
        if (lua_type(L, index) == LUA_TNUMBER)
            binding_fail(L, b, AG_E_ARGUMENT, ag_op_name(ob->op), ag_op_param_name(ob->op, i),
                         "expected whole numbers, got %.14g", value);
        fail_arg(L, b, ob, i, "whole numbers", index);
    }
    if (s->num_ints == BINDING_MAX_INTS)
        binding_fail(L, b, AG_E_ARGUMENT, ag_op_name(ob->op), ag_op_param_name(ob->op, i), "expected at most %d numbers",
                     BINDING_MAX_INTS);
    s->ints[s->num_ints++] = (int64_t)value;
}

static ag_arg list_arg(lua_State *L, binding *b, const op_binding *ob, int i, scratch *s, int index) {
    ag_arg arg = {.kind = AG_ARG_INTS, .as.ints = s->ints + s->num_ints};
    int start = s->num_ints;
    if (lua_type(L, index) == LUA_TTABLE) {
        int len = (int)lua_objlen(L, index), fields = 0;
        for (int k = 1; k <= len; k++) {
            lua_rawgeti(L, index, k);
            put_int(L, b, ob, i, s, lua_gettop(L));
            lua_pop(L, 1);
        }
        for (lua_pushnil(L); lua_next(L, index); lua_pop(L, 1)) fields++;
        if (fields != len)
            binding_fail(L, b, AG_E_ARGUMENT, ag_op_name(ob->op), ag_op_param_name(ob->op, i),
                         "expected a list of numbers, got a table with other fields too; options go in a table of their own, "
                         "after the list");
    } else {
        put_int(L, b, ob, i, s, index);
    }
    arg.len = s->num_ints - start;
    return arg;
}

/* The array of tensors lives in a userdata that stays on the Lua stack for the call. */
static ag_arg tensors_arg(lua_State *L, binding *b, const op_binding *ob, int i, int index) {
    if (lua_type(L, index) != LUA_TTABLE) fail_arg(L, b, ob, i, "a list of tensors", index);
    int len = (int)lua_objlen(L, index);
    ag_tensor **tensors = lua_newuserdata(L, (size_t)(len ? len : 1) * sizeof *tensors);
    for (int k = 1; k <= len; k++) {
        lua_rawgeti(L, index, k);
        if (!binding_handle(L, b, lua_gettop(L)))
            binding_fail(L, b, AG_E_ARGUMENT, ag_op_name(ob->op), ag_op_param_name(ob->op, i),
                         "expected tensors, got %s at position %d", luaL_typename(L, -1), k);
        tensors[k - 1] = binding_tensor(L, b, lua_gettop(L), ag_op_name(ob->op), ag_op_param_name(ob->op, i));
        lua_pop(L, 1);
    }
    return (ag_arg){.kind = AG_ARG_TENSORS, .len = len, .as.tensors = tensors};
}

/* Converts the Lua value at index for parameter i. */
static ag_arg convert(lua_State *L, binding *b, const op_binding *ob, int i, scratch *s, int index) {
    handle *h;
    switch (lua_type(L, index)) {
    case LUA_TNIL: return (ag_arg){.kind = AG_ARG_NONE};
    case LUA_TNUMBER:
        if (ob->wants[i] == WANT_LIST) return list_arg(L, b, ob, i, s, index);
        return binding_arg_number(lua_tonumber(L, index));
    case LUA_TBOOLEAN: return (ag_arg){.kind = AG_ARG_BOOL, .as.boolean = lua_toboolean(L, index)};
    case LUA_TSTRING: return (ag_arg){.kind = AG_ARG_STRING, .as.string = lua_tostring(L, index)};
    case LUA_TTABLE:
        if (ob->wants[i] == WANT_TENSORS) return tensors_arg(L, b, ob, i, index);
        if (ob->wants[i] == WANT_LIST) return list_arg(L, b, ob, i, s, index);
        break;
    case LUA_TUSERDATA:
        h = binding_userdata(L, b, index);
        if (h && h->tensor) return binding_arg_tensor(h->tensor);
        if (h) binding_tensor(L, b, index, ag_op_name(ob->op), ag_op_param_name(ob->op, i)); /* raises */
        if (ob->wants[i] == WANT_GENERATOR) {
            lua_rawgeti(L, LUA_REGISTRYINDEX, b->generator_metatable_ref);
            bool is_generator = lua_getmetatable(L, index) && lua_rawequal(L, -1, -2);
            lua_settop(L, is_generator ? lua_gettop(L) - 2 : lua_gettop(L));
            if (is_generator)
                return (ag_arg){.kind = AG_ARG_GENERATOR, .as.generator = *(ag_generator **)lua_touserdata(L, index)};
        }
        break;
    default: break;
    }
    static const char *const expected[] = {"a tensor or a number", "a list of tensors", "whole numbers", "a number",
                                           "true or false",        "a string",          "a generator"};
    fail_arg(L, b, ob, i, expected[ob->wants[i]], index);
    return (ag_arg){.kind = AG_ARG_NONE};
}

/* A last table with a string key is the options table; one with positions is a list. An empty one is options, but where the
 * parameter in its place takes a list. */
static bool is_options(lua_State *L, const op_binding *ob, int index) {
    if (index < 1 || lua_type(L, index) != LUA_TTABLE || lua_objlen(L, index) > 0) return false;
    lua_pushnil(L);
    if (!lua_next(L, index))
        return index > ob->num_params || (ob->wants[index - 1] != WANT_LIST && ob->wants[index - 1] != WANT_TENSORS);
    bool is_string = lua_type(L, -2) == LUA_TSTRING;
    lua_pop(L, 2);
    return is_string;
}

int binding_edit_distance(const char *a, const char *b) {
    int row[64], n = (int)strlen(b);
    if (n > 63) return 99;
    for (int j = 0; j <= n; j++) row[j] = j;
    for (int i = 1; a[i - 1]; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= n; j++) {
            int change = diagonal + (a[i - 1] != b[j - 1]), least = row[j] < row[j - 1] ? row[j] + 1 : row[j - 1] + 1;
            diagonal = row[j];
            row[j] = change < least ? change : least;
        }
    }
    return row[n];
}

static int unknown_option(lua_State *L, binding *b, const op_binding *ob, const char *key) {
    const char *nearest = NULL;
    int len = (int)strlen(key), best = len < 3 ? len : (len < 4 ? 2 : len / 2) + 1; /* one edit more is too far */
    for (int i = 0; i < ob->num_params + 2; i++) {
        const char *name = i < ob->num_params ? ag_op_param_name(ob->op, i) : i == ob->num_params ? "out" : "requires_grad";
        if (i > ob->num_params && ob->has_tensors) continue; /* requires_grad is for creation only */
        int distance = binding_edit_distance(key, name);
        if (distance < best) best = distance, nearest = name;
    }
    if (nearest)
        return binding_fail(L, b, AG_E_OPTION, ag_op_name(ob->op), key,
                            "unknown option; did you mean \"%s\"? The signature is %s", nearest, ag_op_signature(ob->op));
    return binding_fail(L, b, AG_E_OPTION, ag_op_name(ob->op), key, "unknown option; the signature is %s",
                        ag_op_signature(ob->op));
}

static void read_options(lua_State *L, binding *b, const op_binding *ob, scratch *s, int index, ag_arg *args, int *num_args,
                         ag_call_options *options, bool *requires_grad) {
    lua_pushnil(L);
    while (lua_next(L, index)) {
        int value = lua_gettop(L), found = -1;
        const char *key = lua_type(L, value - 1) == LUA_TSTRING ? lua_tostring(L, value - 1) : "?";
        for (int i = 0; i < ob->num_params; i++)
            if (strcmp(ag_op_param_name(ob->op, i), key) == 0) found = i;
        if (found >= 0) {
            if (found < *num_args && args[found].kind != AG_ARG_NONE)
                binding_fail(L, b, AG_E_OPTION, ag_op_name(ob->op), key, "given twice: in its place and as an option");
            while (*num_args <= found) args[(*num_args)++].kind = AG_ARG_NONE;
            args[found] = convert(L, b, ob, found, s, value);
            if (lua_gettop(L) > value) { /* an array that must stay: move it below key and value */
                lua_insert(L, value - 1);
                value++;
            }
        } else if (strcmp(key, "out") == 0) {
            options->out = binding_tensor(L, b, value, ag_op_name(ob->op), "out");
        } else if (strcmp(key, "requires_grad") == 0 && !ob->has_tensors) {
            *requires_grad = lua_toboolean(L, value);
        } else {
            unknown_option(L, b, ob, key);
        }
        lua_settop(L, value - 1);
    }
}

/* Turns the Lua arguments into args; returns how many. Lua stack values stay, so that what args point to stays. */
static int read_args(lua_State *L, binding *b, const op_binding *ob, scratch *s, ag_arg *args, ag_call_options *options,
                     bool *requires_grad) {
    int top = lua_gettop(L), has_options = is_options(L, ob, top), last = top - has_options, at = 1, count = 0;
    while (at <= last) {
        if (count == ob->num_params)
            return binding_fail(L, b, AG_E_ARGUMENT, ag_op_name(ob->op), "", "too many arguments; the signature is %s",
                                ag_op_signature(ob->op));
        args[count] = convert(L, b, ob, count, s, at++);
        if (ob->takes_numbers[count] && lua_type(L, at - 1) == LUA_TNUMBER)
            for (; at <= last && lua_type(L, at) == LUA_TNUMBER; at++) {
                put_int(L, b, ob, count, s, at);
                args[count].len++;
            }
        count++;
    }
    if (has_options) read_options(L, b, ob, s, top, args, &count, options, requires_grad);
    return count;
}

/* upvalues: binding, op_binding */
static int op_function(lua_State *L) {
    binding *b = BINDING(L);
    const op_binding *ob = lua_touserdata(L, lua_upvalueindex(2));
    scratch s;
    s.num_ints = 0;
    ag_arg args[AG_MAX_PARAMS];
    ag_tensor *outputs[AG_MAX_OUTPUTS];
    ag_call_options options = {.index_base = 1};
    bool requires_grad = false;
    int top = lua_gettop(L), num_args = read_args(L, b, ob, &s, args, &options, &requires_grad);
    lua_State *previous = b->L;
    b->L = L;
    ag_status status = ag_op_call(ob->op, args, num_args, &options, outputs);
    b->L = previous;
    if (status != AG_OK) return binding_raise(L, b);
    int num_outputs = ag_op_output_count(ob->op);
    if (requires_grad && ag_tensor_set_requires_grad(outputs[0], true) != AG_OK) {
        for (int i = 0; i < num_outputs; i++) ag_tensor_release(outputs[i]);
        return binding_raise(L, b);
    }
    if (options.out) { /* the very handle that was given */
        ag_tensor_release(outputs[0]);
        lua_getfield(L, top, "out");
        return 1;
    }
    for (int i = 0; i < num_outputs; i++) binding_push(L, b, outputs[i]);
    return num_outputs;
}

static int op_inplace(lua_State *L) {
    binding *b = BINDING(L);
    const op_binding *ob = lua_touserdata(L, lua_upvalueindex(2));
    scratch s;
    s.num_ints = 0;
    ag_arg args[AG_MAX_PARAMS];
    ag_tensor *result;
    ag_call_options options = {.index_base = 1};
    bool requires_grad = false;
    handle *target = binding_handle(L, b, 1);
    binding_tensor(L, b, 1, ag_op_name(ob->op), ag_op_param_name(ob->op, 0));
    int num_args = read_args(L, b, ob, &s, args, &options, &requires_grad);
    if (options.out)
        return binding_fail(L, b, AG_E_OPTION, ag_op_name(ob->op), "out", "in-place calls write to the tensor itself");
    lua_State *previous = b->L;
    b->L = L;
    ag_status status = ag_op_call_inplace(ob->op, args, num_args, &options, &result);
    b->L = previous;
    if (status != AG_OK) return binding_raise(L, b);
    binding_replace(b, target, result);
    lua_pushvalue(L, 1);
    return 1;
}

/* core.call(name, ...): any op, the hidden ones too. */
static int core_call(lua_State *L) {
    binding *b = BINDING(L);
    const char *name = binding_string(L, b, 1, "call", "name");
    const ag_op *op = ag_op_find(name);
    if (!op) return binding_fail(L, b, AG_E_ARGUMENT, "call", "name", "there is no op \"%s\"", name);
    lua_pushvalue(L, lua_upvalueindex(1));
    for (int i = 0; i < ag_op_count(); i++)
        if (b->ops[i].op == op) lua_pushlightuserdata(L, &b->ops[i]);
    lua_pushcclosure(L, op_function, 2);
    lua_replace(L, 1);
    lua_call(L, lua_gettop(L) - 1, LUA_MULTRET);
    return lua_gettop(L);
}

static want want_of(const char *word) {
    static const struct {
        const char *word;
        want want;
    } table[] = {{"any", WANT_TENSOR},      {"num", WANT_TENSOR},    {"float", WANT_TENSOR},  {"bool", WANT_TENSOR},
                 {"bits", WANT_TENSOR},     {"index", WANT_TENSOR},  {"any[]", WANT_TENSORS}, {"dims", WANT_LIST},
                 {"ints", WANT_LIST},       {"shape", WANT_LIST},    {"dim", WANT_NUMBER},    {"int", WANT_NUMBER},
                 {"position", WANT_NUMBER}, {"number", WANT_NUMBER}, {"flag", WANT_FLAG},     {"generator", WANT_GENERATOR}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strcmp(word, table[i].word) == 0) return table[i].want;
    return WANT_STRING; /* dtype, device, words */
}

static void bind_op(op_binding *ob, const ag_op *op) {
    ob->op = op;
    ob->num_params = ag_op_param_count(op);
    for (int i = 0; i < ob->num_params; i++) {
        ob->wants[i] = (uint8_t)want_of(ag_op_param_type(op, i));
        ob->has_tensors |= ob->wants[i] <= WANT_TENSORS;
    }
    for (int i = 0; i < ob->num_params; i++)
        ob->takes_numbers[i] = ob->wants[i] == WANT_LIST &&
                               (i + 1 == ob->num_params || (ob->wants[i + 1] != WANT_NUMBER && ob->wants[i + 1] != WANT_LIST));
}

static void push_closure(lua_State *L, binding *b, op_binding *ob, lua_CFunction fn) {
    lua_pushlightuserdata(L, b);
    lua_pushlightuserdata(L, ob);
    lua_pushcclosure(L, fn, 2);
}

static int binary_operator(lua_State *L) {
    lua_settop(L, 2);
    return op_function(L);
}

static int negate(lua_State *L) {
    lua_settop(L, 1); /* Lua passes the operand twice */
    return op_function(L);
}

static void register_operators(lua_State *L, binding *b) {
    static const struct {
        const char *metamethod, *op;
    } table[] = {{"__add", "add"},       {"__sub", "sub"}, {"__mul", "mul"}, {"__div", "div"},
                 {"__mod", "remainder"}, {"__pow", "pow"}, {"__unm", "neg"}};
    lua_rawgeti(L, LUA_REGISTRYINDEX, b->tensor_metatable_ref);
    for (size_t k = 0; k < sizeof table / sizeof *table; k++)
        for (int i = 0; i < ag_op_count(); i++) {
            if (strcmp(ag_op_name(b->ops[i].op), table[k].op) != 0) continue;
            push_closure(L, b, &b->ops[i], strcmp(table[k].metamethod, "__unm") == 0 ? negate : binary_operator);
            lua_setfield(L, -2, table[k].metamethod);
        }
    lua_pop(L, 1);
}

void call_register(lua_State *L, binding *b, int module, int methods) {
    int count = ag_op_count();
    b->ops = lua_newuserdata(L, (size_t)count * sizeof *b->ops); /* anchored in the registry for the state's life */
    luaL_ref(L, LUA_REGISTRYINDEX);
    memset(b->ops, 0, (size_t)count * sizeof *b->ops);
    for (int i = 0; i < count; i++) {
        op_binding *ob = &b->ops[i];
        const ag_op *op = ag_op_at(i);
        bind_op(ob, op);
        if (ag_op_is_hidden(op)) continue;
        push_closure(L, b, ob, op_function);
        lua_pushvalue(L, -1);
        lua_setfield(L, module, ag_op_name(op));
        if (!ob->has_tensors) {
            lua_pop(L, 1);
            continue;
        }
        lua_setfield(L, methods, ag_op_name(op));
        if (!ag_op_has_inplace(op)) continue;
        lua_pushfstring(L, "%s_", ag_op_name(op));
        push_closure(L, b, ob, op_inplace);
        lua_rawset(L, methods);
    }
    register_operators(L, b);
    binding_function(L, b, module, "call", core_call);
}
