/* construct.c: ag.tensor(data[, options]): numbers, booleans and nested tables become a tensor. */
#include <math.h>
#include <string.h>

#include "binding.h"

/* Puts op(tensor, arg) in the place of an anchored tensor. */
static void convert_anchored(lua_State *L, binding *b, handle *h, const char *op, ag_arg arg) {
    ag_tensor *before = h->tensor;
    ag_arg args[2] = {binding_arg_tensor(before), arg};
    h->tensor = binding_call1(L, b, op, args, 2, 1);
    ag_tensor_release(before);
}

typedef struct builder {
    int ndim;
    int64_t dims[AG_MAX_NDIM];
    double *values;
    int64_t count;
    bool is_boolean;
} builder;

static int refuse_data(lua_State *L, binding *b, const char *expected, const char *hint) {
    return binding_fail(L, b, AG_E_ARGUMENT, "tensor", "data", "expected %s, got %s%s", expected, luaL_typename(L, -1), hint);
}

/* The table on top of the stack is a list of `len`: nothing follows the last element. */
static void check_list(lua_State *L, binding *b, int64_t len) {
    if (len) lua_pushnumber(L, (double)len);
    else lua_pushnil(L);
    if (!lua_next(L, -2)) return;
    if (lua_type(L, -2) != LUA_TNUMBER || lua_tonumber(L, -2) > (double)len)
        binding_fail(L, b, AG_E_ARGUMENT, "tensor", "data", "expected a list, got a table with named fields or gaps; options go in a table of their own, after the data");
    lua_pop(L, 2);
}

/* Finds the shape by walking down the first elements. */
static void measure(lua_State *L, binding *b, builder *bd, int index) {
    int64_t bytes = sizeof(double);
    lua_pushvalue(L, index);
    while (lua_type(L, -1) == LUA_TTABLE) {
        if (bd->ndim == AG_MAX_NDIM) binding_fail(L, b, AG_E_SHAPE, "tensor", "data", "expected at most 8 levels of tables");
        int64_t len = (int64_t)lua_objlen(L, -1);
        if (len && __builtin_mul_overflow(bytes, len, &bytes))
            binding_fail(L, b, AG_E_SHAPE, "tensor", "data", "expected fewer than 2^60 elements");
        bd->dims[bd->ndim++] = len;
        check_list(L, b, len);
        if (len == 0) break;
        lua_rawgeti(L, -1, 1);
        lua_remove(L, -2);
    }
    bd->is_boolean = lua_type(L, -1) == LUA_TBOOLEAN;
    lua_pop(L, 1);
}

static void fill(lua_State *L, binding *b, builder *bd, int depth) {
    int type = lua_type(L, -1);
    if (depth == bd->ndim) {
        if (type == LUA_TNUMBER && !bd->is_boolean) bd->values[bd->count++] = lua_tonumber(L, -1);
        else if (type == LUA_TBOOLEAN && bd->is_boolean) bd->values[bd->count++] = lua_toboolean(L, -1);
        else refuse_data(L, b, bd->is_boolean ? "booleans" : "numbers", binding_handle(L, b, lua_gettop(L)) ? "; ag.stack and ag.cat join tensors" : "");
        return;
    }
    if (type != LUA_TTABLE) refuse_data(L, b, "tables nested to the same depth", "");
    if ((int64_t)lua_objlen(L, -1) != bd->dims[depth])
        binding_fail(L, b, AG_E_SHAPE, "tensor", "data", "expected nested tables of equal lengths, got lengths %lld and %lld at depth %d",
                     (long long)bd->dims[depth], (long long)lua_objlen(L, -1), depth + 1);
    luaL_checkstack(L, 4, "nested tables");
    for (int64_t i = 1; i <= bd->dims[depth]; i++) {
        lua_rawgeti(L, -1, (int)i);
        fill(L, b, bd, depth + 1);
        lua_pop(L, 1);
    }
}

typedef struct tensor_options {
    ag_dtype dtype;
    ag_device *device;
    bool requires_grad;
} tensor_options;

static tensor_options read_options(lua_State *L, binding *b, int index, ag_dtype dtype) {
    tensor_options options = {.dtype = dtype};
    if (!lua_isnoneornil(L, index + 1)) binding_fail(L, b, AG_E_ARGUMENT, "tensor", "", "too many arguments; several numbers go in a table: ag.tensor{1, 2}");
    if (lua_isnoneornil(L, index)) return options;
    if (lua_type(L, index) != LUA_TTABLE)
        binding_fail(L, b, AG_E_ARGUMENT, "tensor", "options", "expected a table, got %s; for instance {dtype = \"f64\"}", luaL_typename(L, index));
    for (lua_pushnil(L); lua_next(L, index); lua_pop(L, 1)) {
        const char *key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "?";
        if (strcmp(key, "requires_grad") == 0) {
            options.requires_grad = lua_toboolean(L, -1);
        } else if (strcmp(key, "device") == 0) {
            options.device = binding_device(L, b, lua_gettop(L), "tensor", key);
        } else if (strcmp(key, "dtype") == 0) {
            options.dtype = ag_dtype_find(binding_string(L, b, lua_gettop(L), "tensor", key));
            if (options.dtype == AG_NO_DTYPE)
                binding_fail(L, b, AG_E_DTYPE, "tensor", key, "expected f64 f32 f16 bf16 i64 i32 i16 i8 u8 or bool, got \"%s\"", lua_tostring(L, -1));
        } else {
            binding_fail(L, b, AG_E_OPTION, "tensor", key, "unknown option; there are dtype, device and requires_grad");
        }
    }
    return options;
}

/* Whole numbers have no NaN, and a value out of range is a mistake in a literal. Fractions are cut. */
static void check_range(lua_State *L, binding *b, const builder *bd, ag_dtype dtype) {
    if (strcmp(ag_dtype_kind(dtype), "int") != 0) return;
    int bits = 8 * (int)ag_dtype_size(dtype);
    double low = dtype == AG_U8 ? 0 : -ldexp(1, bits - 1), above = dtype == AG_U8 ? 256 : ldexp(1, bits - 1);
    for (int64_t i = 0; i < bd->count; i++)
        if (!((bd->values[i] > low - 1 || bd->values[i] == low) && bd->values[i] < above))
            binding_fail(L, b, AG_E_VALUE, "tensor", "data", "expected numbers that %s can hold, got %.17g at element %lld", ag_dtype_name(dtype),
                         bd->values[i], (long long)i + 1);
}

/* ag.tensor(data[, options]) */
static int core_tensor(lua_State *L) {
    binding *b = BINDING(L);
    builder bd = {.ndim = 0};
    if (binding_handle(L, b, 1)) return binding_fail(L, b, AG_E_ARGUMENT, "tensor", "data", "expected numbers, got a tensor; t:clone() copies one, t:to() converts");
    if (lua_isnone(L, 1)) return binding_fail(L, b, AG_E_ARGUMENT, "tensor", "data", "expected a number, a boolean or nested tables, got nothing");
    measure(L, b, &bd, 1);
    tensor_options options = read_options(L, b, 2, bd.is_boolean ? AG_BOOL : AG_F32);
    handle *h = binding_anchor(L, b); /* keeps the values, and what they are converted to */
    if (ag_tensor_empty(AG_F64, bd.ndim, bd.dims, NULL, &h->tensor) != AG_OK) return binding_raise(L, b);
    ag_tensor_data(h->tensor, (void **)&bd.values);
    lua_pushvalue(L, 1);
    fill(L, b, &bd, 0);
    lua_pop(L, 1);
    check_range(L, b, &bd, options.dtype);
    if (options.dtype != AG_F64) convert_anchored(L, b, h, "cast", (ag_arg){.kind = AG_ARG_DTYPE, .as.dtype = options.dtype});
    if (options.device && options.device != ag_tensor_device(h->tensor))
        convert_anchored(L, b, h, "to_device", (ag_arg){.kind = AG_ARG_DEVICE, .as.device = options.device});
    if (options.requires_grad && ag_tensor_set_requires_grad(h->tensor, true) != AG_OK) return binding_raise(L, b);
    binding_charge(L, b, h);
    return 1;
}

void construct_register(lua_State *L, binding *b, int module) { binding_function(L, b, module, "tensor", core_tensor); }
