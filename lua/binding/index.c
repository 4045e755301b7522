/* index.c: t[key] and t[key] = value. A key is a position, a list of items ({i, {first, last[, step]}, ":"}), a bool mask or a tensor of
 * positions. Positions are 1-based, negative ones count from the end, ranges include their last position. */
#include <math.h>
#include <string.h>

#include "binding.h"

/* Calls a one-result op on *t, which is replaced by the result (the reference is owned). */
static void step(lua_State *L, binding *b, ag_tensor **t, const char *op, ag_arg *args, int num_args) {
    ag_tensor *result;
    ag_call_options options = {.index_base = 1};
    args[0] = binding_arg_tensor(*t);
    ag_status status = ag_op_call(ag_op_find(op), args, num_args, &options, &result);
    ag_tensor_release(*t);
    *t = NULL;
    if (status != AG_OK) binding_raise(L, b);
    *t = result;
}

static void too_many(lua_State *L, binding *b, ag_tensor *t, int dim) {
    int ndim = ag_tensor_ndim(t);
    ag_tensor_release(t);
    binding_fail(L, b, AG_E_INDEX, "index", "", "expected at most as many items as dims, got item %d for a tensor that has no dim left (%d)", dim, ndim);
}

/* Reads field `position` of the range at index; absent ones give `fallback`. */
static double range_field(lua_State *L, int index, int position, double fallback) {
    lua_rawgeti(L, index, position);
    double value = lua_isnumber(L, -1) ? lua_tonumber(L, -1) : fallback;
    lua_pop(L, 1);
    return value;
}

/* {first, last, step} along dim (1-based). */
static void apply_range(lua_State *L, binding *b, ag_tensor **t, int dim, int index) {
    ag_arg args[5] = {{0}, binding_arg_int(dim), {0}, {0}, {0}};
    int64_t size = ag_tensor_dims(*t)[dim - 1];
    double first = range_field(L, index, 1, 1), last = range_field(L, index, 2, (double)size), stride = range_field(L, index, 3, 1);
    double low = first < 0 ? first + (double)size + 1 : first, high = last < 0 ? last + (double)size + 1 : last;
    if (low < 1 || low > (double)size + 1 || high > (double)size || high < low - 1 || low != floor(low) || high != floor(high)) {
        ag_tensor_release(*t);
        binding_fail(L, b, AG_E_INDEX, "index", "", "expected a range within 1 to %lld, got {%.14g, %.14g} in dim %d", (long long)size, first, last, dim);
    }
    args[2] = binding_arg_int((int64_t)low);
    args[3] = binding_arg_int((int64_t)high);
    args[4] = binding_arg_number(stride);
    if (low == (double)size + 1) { /* empty, past the end: slice cuts it */
        args[2] = binding_arg_int((int64_t)low - 1 > 0 ? (int64_t)low - 1 : 1);
        args[3] = binding_arg_int((int64_t)low - 2 > 0 ? (int64_t)low - 2 : 0);
    }
    step(L, b, t, "slice", args, 5);
}

/* A tensor of positions along dim: the dim is replaced by the index's dims. */
static void apply_positions(lua_State *L, binding *b, ag_tensor **t, int *dim, ag_tensor *index) {
    int ndim = ag_tensor_ndim(*t), index_ndim = ag_tensor_ndim(index);
    int64_t dims[2 * AG_MAX_NDIM], all = -1;
    if (ndim - 1 + index_ndim > AG_MAX_NDIM) too_many(L, b, *t, *dim);
    for (int i = 0; i < *dim - 1; i++) dims[i] = ag_tensor_dims(*t)[i];
    for (int i = 0; i < index_ndim; i++) dims[*dim - 1 + i] = ag_tensor_dims(index)[i];
    for (int i = *dim; i < ndim; i++) dims[i - 1 + index_ndim] = ag_tensor_dims(*t)[i];
    ag_tensor *flat = ag_tensor_retain(index);
    ag_arg reshape[2] = {{0}, {.kind = AG_ARG_INTS, .len = 1, .as.ints = &all}};
    if (ag_tensor_numel(index) == 0) all = 0;
    if (index_ndim != 1) step(L, b, &flat, "reshape", reshape, 2);
    ag_arg select[3] = {{0}, binding_arg_int(*dim), binding_arg_tensor(flat)};
    ag_tensor *result;
    ag_call_options options = {.index_base = 1};
    select[0] = binding_arg_tensor(*t);
    ag_status status = ag_op_call(ag_op_find("index_select"), select, 3, &options, &result);
    ag_tensor_release(flat);
    ag_tensor_release(*t);
    if (status != AG_OK) binding_raise(L, b);
    *t = result;
    if (index_ndim != 1) {
        ag_arg back[2] = {{0}, {.kind = AG_ARG_INTS, .len = ndim - 1 + index_ndim, .as.ints = dims}};
        step(L, b, t, "reshape", back, 2);
    }
    *dim += index_ndim;
}

/* A 1-d mask among the items selects positions of its dim. */
static void apply_mask(lua_State *L, binding *b, ag_tensor **t, int *dim, ag_tensor *mask) {
    if (ag_tensor_ndim(mask) != 1 || ag_tensor_dims(mask)[0] != ag_tensor_dims(*t)[*dim - 1]) {
        long long size = (long long)ag_tensor_dims(*t)[*dim - 1];
        ag_tensor_release(*t);
        binding_fail(L, b, AG_E_SHAPE, "index", "", "expected a 1-d mask of length %lld for dim %d", size, *dim);
    }
    ag_tensor *positions = ag_tensor_retain(mask);
    ag_arg args[2];
    int64_t all = -1;
    step(L, b, &positions, "nonzero", args, 1);
    if (ag_tensor_numel(positions) == 0) all = 0;
    args[1] = (ag_arg){.kind = AG_ARG_INTS, .len = 1, .as.ints = &all};
    step(L, b, &positions, "reshape", args, 2);
    apply_positions(L, b, t, dim, positions);
    ag_tensor_release(positions);
}

static bool is_everything(lua_State *L, int index) {
    const char *text = lua_type(L, index) == LUA_TSTRING ? lua_tostring(L, index) : NULL;
    return text && (strcmp(text, ":") == 0 || strcmp(text, "") == 0);
}

/* Applies one item at *dim (1-based) of *t. */
static void apply_item(lua_State *L, binding *b, ag_tensor **t, int *dim, int index) {
    handle *h;
    if (*dim > ag_tensor_ndim(*t)) too_many(L, b, *t, *dim);
    if (lua_type(L, index) == LUA_TNUMBER) {
        ag_arg args[3] = {{0}, binding_arg_int(*dim), binding_arg_number(lua_tonumber(L, index))};
        step(L, b, t, "select", args, 3);
    } else if (is_everything(L, index)) {
        ++*dim;
    } else if ((h = binding_handle(L, b, index)) && h->tensor) {
        if (ag_tensor_dtype(h->tensor) == AG_BOOL) apply_mask(L, b, t, dim, h->tensor);
        else apply_positions(L, b, t, dim, h->tensor);
    } else if (lua_type(L, index) == LUA_TTABLE) {
        apply_range(L, b, t, *dim, index);
        ++*dim;
    } else {
        ag_tensor_release(*t);
        binding_fail(L, b, AG_E_ARGUMENT, "index", "", "expected a position, a range {first, last}, \":\" or a tensor, got %s", luaL_typename(L, index));
    }
}

/* Applies the key at stack position 2 to *t, but for one that is a whole mask. */
static void apply_key(lua_State *L, binding *b, ag_tensor **t) {
    int dim = 1;
    if (lua_type(L, 2) != LUA_TTABLE) {
        apply_item(L, b, t, &dim, 2);
        return;
    }
    int count = (int)lua_objlen(L, 2);
    for (int i = 1; i <= count; i++) {
        lua_rawgeti(L, 2, i);
        apply_item(L, b, t, &dim, lua_gettop(L));
        lua_pop(L, 1);
    }
}

/* The tensor key, when it is one. */
static ag_tensor *key_tensor(lua_State *L, binding *b) {
    handle *h = binding_handle(L, b, 2);
    return h ? h->tensor : NULL;
}

int index_get(lua_State *L, binding *b) {
    ag_tensor *t = ag_tensor_retain(binding_tensor(L, b, 1, "index", "self")), *key = key_tensor(L, b);
    if (key && ag_tensor_dtype(key) == AG_BOOL) {
        ag_arg args[2] = {{0}, binding_arg_tensor(key)};
        step(L, b, &t, "masked_select", args, 2);
    } else {
        apply_key(L, b, &t);
    }
    binding_push(L, b, t);
    return 1;
}

/* ---- assignment ---- */

/* The value at stack position 3 as an argument. */
static ag_arg value_arg(lua_State *L, binding *b) {
    handle *h = binding_handle(L, b, 3);
    if (h && h->tensor) return binding_arg_tensor(h->tensor);
    if (lua_type(L, 3) == LUA_TBOOLEAN) return binding_arg_number(lua_toboolean(L, 3));
    if (lua_type(L, 3) != LUA_TNUMBER) binding_fail(L, b, AG_E_ARGUMENT, "index", "value", "expected a number or a tensor, got %s", luaL_typename(L, 3));
    return binding_arg_number(lua_tonumber(L, 3));
}

/* Writes args' result of `op` over the whole of the tensor at stack position 1. */
static int assign_result(lua_State *L, binding *b, handle *h, const char *op, ag_arg *args, int num_args) {
    ag_tensor *result, *after;
    ag_call_options options = {.index_base = 1};
    if (ag_op_call(ag_op_find(op), args, num_args, &options, &result) != AG_OK) return binding_raise(L, b);
    ag_status status = ag_tensor_assign(h->tensor, h->tensor, result, &after);
    ag_tensor_release(result);
    if (status != AG_OK) return binding_raise(L, b);
    binding_replace(b, h, after);
    return 0;
}

/* t[mask] = value: a number or one element goes everywhere, else as many values as the mask has true places. */
static int assign_mask(lua_State *L, binding *b, handle *h, ag_tensor *mask) {
    ag_arg value = value_arg(L, b), args[3] = {binding_arg_tensor(mask), value, binding_arg_tensor(h->tensor)};
    bool is_list = value.kind == AG_ARG_TENSOR && ag_tensor_ndim(value.as.tensor) == 1 && ag_tensor_numel(value.as.tensor) != 1;
    if (!is_list) return assign_result(L, b, h, "where", args, 3);
    ag_tensor *scattered;
    if (ag_op_call(ag_op_find("masked_scatter"), args, 2, NULL, &scattered) != AG_OK) return binding_raise(L, b);
    binding_push(L, b, scattered); /* the stack keeps it */
    args[1] = binding_arg_tensor(scattered);
    return assign_result(L, b, h, "where", args, 3);
}

/* t[positions] = value along the first dim. */
static int assign_positions(lua_State *L, binding *b, handle *h, ag_tensor *positions) {
    ag_tensor *t = h->tensor, *source = ag_tensor_retain(t);
    int ndim = ag_tensor_ndim(t);
    if (ndim == 0 || ag_tensor_ndim(positions) != 1) {
        ag_tensor_release(source);
        return binding_fail(L, b, AG_E_SHAPE, "index", "", "expected a 1-d tensor of positions for a tensor of at least 1 dim");
    }
    ag_arg value = value_arg(L, b), args[4] = {{0}, binding_arg_int(1), binding_arg_tensor(positions)};
    step(L, b, &source, "index_select", args, 3); /* gives the shape that value has to fill */
    binding_push(L, b, source);
    ag_tensor *filled;
    if (ag_tensor_broadcast_like(value.kind == AG_ARG_TENSOR ? value.as.tensor : NULL, value.as.number, source, &filled) != AG_OK) return binding_raise(L, b);
    binding_push(L, b, filled);
    args[0] = binding_arg_tensor(t);
    args[3] = binding_arg_tensor(filled);
    return assign_result(L, b, h, "index_copy", args, 4);
}

int index_set(lua_State *L, binding *b) {
    handle *h = binding_handle(L, b, 1);
    ag_tensor *base = binding_tensor(L, b, 1, "index", "self"), *key = key_tensor(L, b), *view = ag_tensor_retain(base), *filled, *after;
    if (key) {
        ag_tensor_release(view);
        return ag_tensor_dtype(key) == AG_BOOL ? assign_mask(L, b, h, key) : assign_positions(L, b, h, key);
    }
    apply_key(L, b, &view);
    ag_arg value = value_arg(L, b);
    binding_push(L, b, view);
    if (!ag_tensor_shares_storage(view, base))
        return binding_fail(L, b, AG_E_INDEX, "index", "", "expected positions and ranges on the left side; assign with one tensor of positions at a time");
    if (ag_tensor_broadcast_like(value.kind == AG_ARG_TENSOR ? value.as.tensor : NULL, value.as.number, view, &filled) != AG_OK) return binding_raise(L, b);
    ag_status status = ag_tensor_assign(base, view, filled, &after);
    ag_tensor_release(filled);
    if (status != AG_OK) return binding_raise(L, b);
    binding_replace(b, h, after);
    return 0;
}
