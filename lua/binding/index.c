/* index.c: t[key] and t[key] = value. A key is a position, a list of items ({i, {first, last[, step]}, ":"}), a bool mask or a
 * tensor of positions. Positions are 1-based, negative ones count from the end, ranges include their last position. Items are
 * applied one after the other, each to its own dim, so two tensors of positions select the crossings of rows and columns.
 *
 * What is being built hangs in an anchored handle (binding_anchor), so an error may be raised at any point.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "binding.h"

/* Raises the engine's error as one of indexing: the inner op's name would mean nothing to the user. dim: 0 where none is at
 * fault. */
static void raise_index(lua_State *L, binding *b, const char *arg, int dim) {
    const ag_error record = *ag_last_error();
    char message[sizeof record.message], where[24] = "";
    if (record.code == AG_E_MEMORY || record.code == AG_E_INTERRUPTED || record.code == AG_E_USER) binding_raise(L, b);
    if (dim) snprintf(where, sizeof where, " in dim %d", dim);
    snprintf(message, sizeof message, "%s%s%s%s%s%s%s", record.expected[0] ? "expected " : "", record.expected,
             record.expected[0] ? ", got " : "", record.got, where, record.hint[0] ? "; " : "", record.hint);
    ag_raise(record.code, "index", arg, message);
    binding_raise(L, b);
}

/* Puts op(h->tensor, args[1], ...) in the place of h->tensor. */
static void step(lua_State *L, binding *b, handle *h, const char *op, ag_arg *args, int num_args, int dim) {
    ag_tensor *result;
    ag_call_options options = {.index_base = 1};
    args[0] = binding_arg_tensor(h->tensor);
    if (ag_op_call(ag_op_find(op), args, num_args, &options, &result) != AG_OK) raise_index(L, b, "", dim);
    ag_tensor_release(h->tensor);
    h->tensor = result;
}

static ag_arg ints_arg(const int64_t *values, int len) { return (ag_arg){.kind = AG_ARG_INTS, .len = len, .as.ints = values}; }

static void to_vector(lua_State *L, binding *b, handle *h) {
    if (ag_tensor_ndim(h->tensor) == 1) return;
    int64_t numel = ag_tensor_numel(h->tensor);
    ag_arg args[2] = {{0}, ints_arg(&numel, 1)};
    step(L, b, h, "reshape", args, 2, 0);
}

/* Reads field `position` of the range at index; absent ones give `fallback`. */
static double range_field(lua_State *L, binding *b, int index, int position, double fallback) {
    lua_rawgeti(L, index, position);
    if (!lua_isnil(L, -1) && lua_type(L, -1) != LUA_TNUMBER)
        binding_fail(L, b, AG_E_ARGUMENT, "index", "", "expected a range {first, last, step} of numbers, got %s in it",
                     luaL_typename(L, -1));
    double value = lua_isnil(L, -1) ? fallback : lua_tonumber(L, -1);
    lua_pop(L, 1);
    return value;
}

static void check_range_fields(lua_State *L, binding *b, int index) {
    for (lua_pushnil(L); lua_next(L, index); lua_pop(L, 1)) {
        double key = lua_type(L, -2) == LUA_TNUMBER ? lua_tonumber(L, -2) : 0;
        if (key != 1 && key != 2 && key != 3)
            binding_fail(
                L, b, AG_E_ARGUMENT, "index", "",
                "expected a range {first, last, step}, got a table with other fields; several positions go in an int tensor");
    }
}

/* {first, last, step} along dim (1-based). A last that is first - 1 makes an empty range. */
static void apply_range(lua_State *L, binding *b, handle *h, int dim, int item, int index) {
    int64_t size = ag_tensor_dims(h->tensor)[dim - 1];
    check_range_fields(L, b, index);
    double first = range_field(L, b, index, 1, 1), last = range_field(L, b, index, 2, (double)size),
           stride = range_field(L, b, index, 3, 1);
    double low = first < 0 ? first + (double)size + 1 : first, high = last < 0 ? last + (double)size + 1 : last;
    if (low != floor(low) || high != floor(high) || !(low >= 1 && high <= (double)size && high >= low - 1))
        binding_fail(L, b, AG_E_INDEX, "index", "", "expected a range within 1 to %lld, got {%.14g, %.14g} in dim %d",
                     (long long)size, first, last, item);
    ag_arg args[5] = {
        {0}, binding_arg_int(dim), binding_arg_int((int64_t)low), binding_arg_int((int64_t)high), binding_arg_number(stride)};
    step(L, b, h, "slice", args, 5, item);
}

/* A tensor of positions along dim: the dim is replaced by the index's dims. */
static void apply_positions(lua_State *L, binding *b, handle *h, int *dim, int item, ag_tensor *index) {
    int ndim = ag_tensor_ndim(h->tensor), index_ndim = ag_tensor_ndim(index);
    int64_t dims[2 * AG_MAX_NDIM];
    if (strcmp(ag_dtype_kind(ag_tensor_dtype(index)), "int") != 0)
        binding_fail(L, b, AG_E_KIND, "index", "",
                     "expected an int tensor of positions or a bool mask, got %s; convert: t:to(\"i64\")",
                     ag_dtype_name(ag_tensor_dtype(index)));
    if (ndim - 1 + index_ndim > AG_MAX_NDIM)
        binding_fail(L, b, AG_E_SHAPE, "index", "", "expected a result of at most 8 dims, got %d", ndim - 1 + index_ndim);
    for (int i = 0; i < *dim - 1; i++) dims[i] = ag_tensor_dims(h->tensor)[i];
    for (int i = 0; i < index_ndim; i++) dims[*dim - 1 + i] = ag_tensor_dims(index)[i];
    for (int i = *dim; i < ndim; i++) dims[i - 1 + index_ndim] = ag_tensor_dims(h->tensor)[i];
    handle *flat = binding_anchor(L, b);
    flat->tensor = ag_tensor_retain(index);
    to_vector(L, b, flat);
    ag_arg select[3] = {{0}, binding_arg_int(*dim), binding_arg_tensor(flat->tensor)};
    step(L, b, h, "index_select", select, 3, item);
    lua_pop(L, 1);
    if (index_ndim != 1) {
        ag_arg back[2] = {{0}, ints_arg(dims, ndim - 1 + index_ndim)};
        step(L, b, h, "reshape", back, 2, item);
    }
    *dim += index_ndim;
}

/* Pushes an anchor with the positions where a 1-d mask is true. */
static handle *push_positions(lua_State *L, binding *b, ag_tensor *mask) {
    handle *positions = binding_anchor(L, b);
    ag_arg arg;
    positions->tensor = ag_tensor_retain(mask);
    step(L, b, positions, "nonzero", &arg, 1, 0);
    to_vector(L, b, positions);
    return positions;
}

/* A 1-d mask selects positions of its dim. */
static void apply_mask(lua_State *L, binding *b, handle *h, int *dim, int item, ag_tensor *mask) {
    int64_t size = ag_tensor_dims(h->tensor)[*dim - 1];
    if (ag_tensor_ndim(mask) != 1 || ag_tensor_dims(mask)[0] != size)
        binding_fail(L, b, AG_E_SHAPE, "index", "",
                     "expected a 1-d mask of length %lld in dim %d, got one of %lld elements and %d dims", (long long)size,
                     item, (long long)ag_tensor_numel(mask), ag_tensor_ndim(mask));
    handle *positions = push_positions(L, b, mask);
    apply_positions(L, b, h, dim, item, positions->tensor);
    lua_pop(L, 1);
}

static bool is_everything(lua_State *L, int index) {
    const char *text = lua_type(L, index) == LUA_TSTRING ? lua_tostring(L, index) : NULL;
    return text && strcmp(text, ":") == 0;
}

/* Applies item number `item`, which is for that dim of the user's tensor, at *dim (1-based) of what h holds. */
static void apply_item(lua_State *L, binding *b, handle *h, int *dim, int item, int index) {
    if (*dim > ag_tensor_ndim(h->tensor))
        binding_fail(L, b, AG_E_INDEX, "index", "", "expected at most one item a dim, got item %d for a tensor of %d dims",
                     item, item - 1);
    if (lua_type(L, index) == LUA_TNUMBER) {
        ag_arg args[3] = {{0}, binding_arg_int(*dim), binding_arg_number(lua_tonumber(L, index))};
        step(L, b, h, "select", args, 3, item);
    } else if (is_everything(L, index)) {
        ++*dim;
    } else if (binding_handle(L, b, index)) {
        ag_tensor *key = binding_tensor(L, b, index, "index", "key");
        if (ag_tensor_dtype(key) == AG_BOOL)
            apply_mask(L, b, h, dim, item, key);
        else
            apply_positions(L, b, h, dim, item, key);
    } else if (lua_type(L, index) == LUA_TTABLE) {
        apply_range(L, b, h, *dim, item, index);
        ++*dim;
    } else {
        binding_fail(L, b, AG_E_ARGUMENT, "index", "", "expected a position, a range {first, last}, \":\" or a tensor, got %s",
                     luaL_typename(L, index));
    }
}

/* Applies the key at stack position 2 to what h holds. */
static void apply_key(lua_State *L, binding *b, handle *h) {
    int dim = 1;
    if (lua_type(L, 2) != LUA_TTABLE) {
        apply_item(L, b, h, &dim, 1, 2);
        return;
    }
    int count = (int)lua_objlen(L, 2), fields = 0;
    for (lua_pushnil(L); lua_next(L, 2); lua_pop(L, 1)) fields++;
    if (fields != count)
        binding_fail(L, b, AG_E_ARGUMENT, "index", "", "expected a list of items, got a table with other fields or with gaps");
    for (int i = 1; i <= count; i++) {
        lua_rawgeti(L, 2, i);
        apply_item(L, b, h, &dim, i, lua_gettop(L));
        lua_pop(L, 1);
    }
}

/* The mask when the key is one for all of t, dim for dim. */
static ag_tensor *whole_mask(lua_State *L, binding *b, ag_tensor *t) {
    if (!binding_handle(L, b, 2)) return NULL;
    ag_tensor *key = binding_tensor(L, b, 2, "index", "key");
    if (ag_tensor_dtype(key) != AG_BOOL || (ag_tensor_ndim(key) == 1 && ag_tensor_ndim(t) > 1)) return NULL;
    bool fits = ag_tensor_ndim(key) == ag_tensor_ndim(t);
    for (int i = 0; fits && i < ag_tensor_ndim(t); i++) fits = ag_tensor_dims(key)[i] == ag_tensor_dims(t)[i];
    if (!fits)
        binding_fail(L, b, AG_E_SHAPE, "index", "", "expected a mask of the tensor's shape, or a 1-d one for its first dim");
    return key;
}

int index_get(lua_State *L, binding *b) {
    ag_tensor *t = binding_tensor(L, b, 1, "index", "self"), *mask = whole_mask(L, b, t);
    handle *h = binding_anchor(L, b);
    h->tensor = ag_tensor_retain(t);
    if (mask) {
        ag_arg args[2] = {{0}, binding_arg_tensor(mask)};
        step(L, b, h, "masked_select", args, 2, 0);
    } else {
        apply_key(L, b, h);
    }
    binding_charge(L, b, h);
    return 1;
}

/* ---- assignment ---- */

/* The value at stack position 3 as an argument. */
static ag_arg value_arg(lua_State *L, binding *b, const ag_tensor *t) {
    if (binding_handle(L, b, 3)) {
        ag_tensor *value = binding_tensor(L, b, 3, "index", "value");
        if (ag_tensor_device(value) != ag_tensor_device(t))
            binding_fail(L, b, AG_E_DEVICE, "index", "value", "expected a tensor on %s, got one on %s; t:to(device) moves it",
                         ag_device_name(ag_tensor_device(t)), ag_device_name(ag_tensor_device(value)));
        return binding_arg_tensor(value);
    }
    if (lua_type(L, 3) == LUA_TBOOLEAN) return binding_arg_number(lua_toboolean(L, 3));
    if (lua_type(L, 3) != LUA_TNUMBER)
        binding_fail(L, b, AG_E_ARGUMENT, "index", "value", "expected a number or a tensor, got %s", luaL_typename(L, 3));
    return binding_arg_number(lua_tonumber(L, 3));
}

/* Pushes an anchor with the value in the shape and dtype of `like`. */
static ag_tensor *push_filled(lua_State *L, binding *b, ag_tensor *like) {
    ag_arg value = value_arg(L, b, like);
    handle *filled = binding_anchor(L, b);
    if (ag_tensor_broadcast_like(value.kind == AG_ARG_TENSOR ? value.as.tensor : NULL, value.as.number, like,
                                 &filled->tensor) != AG_OK)
        raise_index(L, b, "value", 0);
    return filled->tensor;
}

static int assign(lua_State *L, binding *b, ag_tensor *view, ag_tensor *value) {
    handle *h = binding_handle(L, b, 1);
    ag_tensor *after;
    if (ag_tensor_assign(h->tensor, view, value, &after) != AG_OK) raise_index(L, b, "", 0);
    binding_replace(b, h, after);
    return 0;
}

/* Runs `op`, whose result is the whole new content of the tensor at stack position 1. */
static int assign_result(lua_State *L, binding *b, const char *op, ag_arg *args, int num_args) {
    handle *result = binding_anchor(L, b);
    ag_call_options options = {.index_base = 1};
    if (ag_op_call(ag_op_find(op), args, num_args, &options, &result->tensor) != AG_OK) raise_index(L, b, "", 0);
    return assign(L, b, binding_handle(L, b, 1)->tensor, result->tensor);
}

/* t[mask] = value: a number or one element goes everywhere, else as many values as the mask has true places. */
static int assign_mask(lua_State *L, binding *b, ag_tensor *t, ag_tensor *mask) {
    ag_arg value = value_arg(L, b, t), args[3] = {binding_arg_tensor(mask), value, binding_arg_tensor(t)};
    bool is_list = value.kind == AG_ARG_TENSOR && ag_tensor_ndim(value.as.tensor) == 1 && ag_tensor_numel(value.as.tensor) != 1;
    if (is_list) {
        handle *scattered = binding_anchor(L, b);
        scattered->tensor = ag_tensor_retain(value.as.tensor);
        ag_arg cast[2] = {{0}, {.kind = AG_ARG_DTYPE, .as.dtype = ag_tensor_dtype(t)}};
        if (ag_tensor_dtype(value.as.tensor) != ag_tensor_dtype(t)) step(L, b, scattered, "cast", cast, 2, 0);
        args[1] = binding_arg_tensor(scattered->tensor);
        ag_tensor *list = scattered->tensor;
        if (ag_op_call(ag_op_find("masked_scatter"), args, 2, NULL, &scattered->tensor) != AG_OK) raise_index(L, b, "value", 0);
        ag_tensor_release(list);
        args[1] = binding_arg_tensor(scattered->tensor);
    } else {
        args[1] = binding_arg_tensor(push_filled(L, b, t));
    }
    return assign_result(L, b, "where", args, 3);
}

/* Any key with tensors in it: the same key on the numbers 1 .. numel tells where in the flattened t each value goes. */
static int assign_scattered(lua_State *L, binding *b, ag_tensor *t, ag_tensor *selected) {
    ag_tensor *filled = push_filled(L, b, selected);
    handle *places = binding_anchor(L, b);
    ag_arg range[5] = {binding_arg_number(1),
                       binding_arg_number((double)ag_tensor_numel(t) + 1),
                       binding_arg_number(1),
                       {.kind = AG_ARG_DTYPE, .as.dtype = AG_I64},
                       {.kind = AG_ARG_DEVICE, .as.device = ag_tensor_device(t)}};
    if (ag_op_call(ag_op_find("arange"), range, 5, NULL, &places->tensor) != AG_OK) raise_index(L, b, "", 0);
    ag_arg shape[2] = {{0}, ints_arg(ag_tensor_dims(t), ag_tensor_ndim(t))};
    step(L, b, places, "reshape", shape, 2, 0);
    apply_key(L, b, places);
    ag_arg args[3] = {binding_arg_tensor(t), binding_arg_tensor(places->tensor), binding_arg_tensor(filled)};
    return assign_result(L, b, "index_put", args, 3);
}

/* t[positions] = value along the first dim, without a map of all of t. */
static int assign_positions(lua_State *L, binding *b, ag_tensor *t, ag_tensor *positions, ag_tensor *selected) {
    ag_arg args[4] = {binding_arg_tensor(t), binding_arg_int(1), binding_arg_tensor(positions),
                      binding_arg_tensor(push_filled(L, b, selected))};
    return assign_result(L, b, "index_copy", args, 4);
}

int index_set(lua_State *L, binding *b) {
    ag_tensor *t = binding_tensor(L, b, 1, "index", "self"), *mask = whole_mask(L, b, t);
    if (mask) return assign_mask(L, b, t, mask);
    handle *selected = binding_anchor(L, b), *key = binding_handle(L, b, 2);
    /* Untracked, since the part only says where to write: a view that the tape knows would stand in the way of the next
     * assignment. */
    if (ag_tensor_detach(t, &selected->tensor) != AG_OK) return binding_raise(L, b);
    apply_key(L, b, selected);
    if (ag_tensor_shares_storage(selected->tensor, t))
        return assign(L, b, selected->tensor, push_filled(L, b, selected->tensor));
    if (!key || ag_tensor_ndim(key->tensor) != 1) return assign_scattered(L, b, t, selected->tensor);
    ag_tensor *positions = ag_tensor_dtype(key->tensor) == AG_BOOL ? push_positions(L, b, key->tensor)->tensor : key->tensor;
    return assign_positions(L, b, t, positions, selected->tensor);
}
