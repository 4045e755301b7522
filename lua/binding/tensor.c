/* tensor.c: the userdata: handles, elements, shape, fields, conversions. construct.c makes tensors out of Lua values. */
#include <math.h>
#include <string.h>

#include "binding.h"

/* ---- handles ---- */

handle *binding_userdata(lua_State *L, const binding *b, int index) {
    handle *h = lua_touserdata(L, index);
    return lua_objlen(L, index) == sizeof *h && h->mark == b ? h : NULL;
}

handle *binding_handle(lua_State *L, const binding *b, int index) {
    return lua_type(L, index) == LUA_TUSERDATA ? binding_userdata(L, b, index) : NULL;
}

ag_tensor *binding_tensor(lua_State *L, binding *b, int index, const char *op, const char *arg) {
    handle *h = binding_handle(L, b, index);
    if (!h) {
        binding_fail(L, b, AG_E_ARGUMENT, op, arg, "expected a tensor, got %s", luaL_typename(L, index));
        return NULL;
    }
    if (!h->tensor) binding_fail(L, b, AG_E_STATE, op, arg, "the tensor was freed by free() or at the end of its scope");
    return h->tensor;
}

handle *binding_anchor(lua_State *L, binding *b) {
    handle *h = lua_newuserdata(L, sizeof *h);
    *h = (handle){.mark = b};
    lua_rawgeti(L, LUA_REGISTRYINDEX, b->tensor_metatable_ref);
    lua_setmetatable(L, -2);
    return h;
}

void binding_charge(lua_State *L, binding *b, handle *h) {
    h->charged = ag_tensor_charge(h->tensor);
    if (b->scope_depth) scope_note(L);
    memory_charge(L, b, h->charged);
}

void binding_push(lua_State *L, binding *b, ag_tensor *tensor) {
    handle *h = binding_anchor(L, b);
    h->tensor = tensor;
    binding_charge(L, b, h);
}

void binding_replace(binding *b, handle *h, ag_tensor *tensor) {
    (void)b;
    ag_tensor_release(h->tensor);
    h->tensor = tensor;
}

static ag_tensor *self(lua_State *L, binding *b, const char *op) { return binding_tensor(L, b, 1, op, "self"); }

static int tensor_gc(lua_State *L) {
    handle *h = lua_touserdata(L, 1);
    if (h->tensor) {
        memory_discharge(BINDING(L), h->charged);
        ag_tensor_release(h->tensor);
        h->tensor = NULL;
    }
    return 0;
}

/* t:free(): gives the tensor back now; the handle is dead afterwards. */
static int tensor_free(lua_State *L) {
    binding *b = BINDING(L);
    if (!binding_handle(L, b, 1)) self(L, b, "free");
    return tensor_gc(L);
}

/* ---- to Lua values ---- */

static void push_element(lua_State *L, ag_dtype dtype, double value) {
    if (dtype == AG_BOOL)
        lua_pushboolean(L, value != 0);
    else
        lua_pushnumber(L, value);
}

static int tensor_item(lua_State *L) {
    binding *b = BINDING(L);
    ag_tensor *t = self(L, b, "item");
    double value;
    if (ag_tensor_item(t, &value) != AG_OK) return binding_raise(L, b);
    push_element(L, ag_tensor_dtype(t), value);
    return 1;
}

#define MAX_LIST ((int64_t)1 << 26) /* what a Lua table holds */

#define POLL_ELEMENTS 65536

static void push_nested(lua_State *L, binding *b, const ag_tensor *t, const double **values, int dim) {
    if (dim == ag_tensor_ndim(t)) {
        push_element(L, ag_tensor_dtype(t), *(*values)++);
        return;
    }
    int64_t size = ag_tensor_dims(t)[dim];
    lua_createtable(L, (int)size, 0);
    for (int64_t i = 1; i <= size; i++) {
        if (i % POLL_ELEMENTS == 1 && ag_interrupt_pending()) {
            ag_raise(AG_E_INTERRUPTED, "tolist", "", "interrupted");
            binding_raise(L, b);
        }
        push_nested(L, b, t, values, dim + 1);
        lua_rawseti(L, -2, (int)i);
    }
}

static int tensor_tolist(lua_State *L) {
    binding *b = BINDING(L);
    ag_tensor *t = self(L, b, "tolist");
    int64_t numel = ag_tensor_numel(t);
    if (numel > MAX_LIST)
        return binding_fail(L, b, AG_E_VALUE, "tolist", "self",
                            "expected at most 2^26 elements, got %lld; t:data() reaches them without copying",
                            (long long)numel);
    double *values = lua_newuserdata(L, (size_t)(numel ? numel : 1) * sizeof *values);
    if (ag_tensor_read(t, AG_F64, values, numel) != AG_OK) return binding_raise(L, b);
    const double *at = values;
    luaL_checkstack(L, AG_MAX_NDIM + 4, "nested tables");
    push_nested(L, b, t, &at, 0);
    return 1;
}

static void unflatten(const ag_tensor *t, int64_t position, int64_t *indices) {
    for (int i = ag_tensor_ndim(t) - 1; i >= 0; i--) {
        int64_t size = ag_tensor_dims(t)[i];
        indices[i] = position % size;
        position /= size;
    }
}

/* core.read_element(t, flat 0-based position) */
static int core_read_element(lua_State *L) {
    binding *b = BINDING(L);
    ag_tensor *t = self(L, b, "read_element");
    int64_t indices[AG_MAX_NDIM];
    double value;
    unflatten(t, binding_whole(L, b, 2, "read_element", "position", 0, (double)ag_tensor_numel(t) - 1), indices);
    if (ag_tensor_get(t, indices, &value) != AG_OK) return binding_raise(L, b);
    push_element(L, ag_tensor_dtype(t), value);
    return 1;
}

/* Reads one position a dim from stack position 2 on; `extra` more arguments follow them. */
static void read_indices(lua_State *L, binding *b, const ag_tensor *t, const char *op, int extra, int64_t *indices) {
    int ndim = ag_tensor_ndim(t), count = lua_gettop(L) - 1 - extra;
    if (count != ndim) binding_fail(L, b, AG_E_INDEX, op, "", "expected %d positions, got %d", ndim, count < 0 ? 0 : count);
    for (int i = 0; i < ndim; i++) {
        if (lua_type(L, 2 + i) != LUA_TNUMBER)
            binding_fail(L, b, AG_E_ARGUMENT, op, "", "expected a position, got %s in dim %d", luaL_typename(L, 2 + i), i + 1);
        double value = lua_tonumber(L, 2 + i), size = (double)ag_tensor_dims(t)[i],
               index = value > 0 ? value - 1 : value + size;
        if (size == 0)
            binding_fail(L, b, AG_E_INDEX, op, "", "expected a dim that is not empty, got %.14g in dim %d", value, i + 1);
        if (value == 0 || value != floor(value) || !(index >= 0 && index < size))
            binding_fail(L, b, AG_E_INDEX, op, "", "expected 1 to %.17g, or -%.17g to -1, got %.14g in dim %d", size, size,
                         value, i + 1);
        indices[i] = (int64_t)index;
    }
}

static int tensor_get(lua_State *L) {
    binding *b = BINDING(L);
    ag_tensor *t = self(L, b, "get");
    int64_t indices[AG_MAX_NDIM];
    double value;
    read_indices(L, b, t, "get", 0, indices);
    if (ag_tensor_get(t, indices, &value) != AG_OK) return binding_raise(L, b);
    push_element(L, ag_tensor_dtype(t), value);
    return 1;
}

static int tensor_set(lua_State *L) {
    binding *b = BINDING(L);
    ag_tensor *t = self(L, b, "set");
    int64_t indices[AG_MAX_NDIM];
    int at = 2 + ag_tensor_ndim(t);
    read_indices(L, b, t, "set", 1, indices);
    if (!lua_isboolean(L, at) && lua_type(L, at) != LUA_TNUMBER)
        return binding_fail(L, b, AG_E_ARGUMENT, "set", "value", "expected a number, got %s", luaL_typename(L, at));
    double value = lua_isboolean(L, at) ? lua_toboolean(L, at) : lua_tonumber(L, at);
    if (ag_tensor_set(t, indices, value) != AG_OK) return binding_raise(L, b);
    lua_settop(L, 1);
    return 1;
}

static int tensor_address(lua_State *L) {
    binding *b = BINDING(L);
    ag_tensor *t = self(L, b, "data");
    void *address;
    if (!ag_tensor_is_contiguous(t))
        return binding_fail(L, b, AG_E_STATE, "data", "self",
                            "expected a contiguous tensor, got a strided view; t:contiguous() makes one");
    if (ag_tensor_data(t, &address) != AG_OK) return binding_raise(L, b);
    lua_pushlightuserdata(L, address);
    return 1;
}

/* ---- shape ---- */

static int push_dims(lua_State *L, const int64_t *dims, int ndim) {
    lua_createtable(L, ndim, 0);
    for (int i = 0; i < ndim; i++) {
        lua_pushnumber(L, (double)dims[i]);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

static int tensor_shape_(lua_State *L) {
    ag_tensor *t = self(L, BINDING(L), "shape");
    return push_dims(L, ag_tensor_dims(t), ag_tensor_ndim(t));
}

static int tensor_strides_(lua_State *L) {
    ag_tensor *t = self(L, BINDING(L), "strides");
    return push_dims(L, ag_tensor_strides(t), ag_tensor_ndim(t));
}

static int tensor_size(lua_State *L) {
    binding *b = BINDING(L);
    ag_tensor *t = self(L, b, "size");
    if (lua_isnoneornil(L, 2)) return push_dims(L, ag_tensor_dims(t), ag_tensor_ndim(t));
    int ndim = ag_tensor_ndim(t);
    if (lua_type(L, 2) != LUA_TNUMBER)
        return binding_fail(L, b, AG_E_ARGUMENT, "size", "dim", "expected a whole number, got %s", luaL_typename(L, 2));
    double dim = lua_tonumber(L, 2);
    if (dim == 0 || dim != floor(dim) || !(dim >= -ndim && dim <= ndim))
        return binding_fail(L, b, AG_E_INDEX, "size", "dim", "expected 1 to %d, or -%d to -1, got %.14g", ndim, ndim, dim);
    int at = (int)dim > 0 ? (int)dim - 1 : (int)dim + ndim;
    lua_pushnumber(L, (double)ag_tensor_dims(t)[at]);
    return 1;
}

static int tensor_numel(lua_State *L) {
    lua_pushnumber(L, (double)ag_tensor_numel(self(L, BINDING(L), "numel")));
    return 1;
}

static int tensor_len(lua_State *L) {
    binding *b = BINDING(L);
    ag_tensor *t = self(L, b, "#");
    if (ag_tensor_ndim(t) == 0)
        return binding_fail(L, b, AG_E_SHAPE, "#", "self", "expected a tensor of at least 1 dim, got a 0-d one");
    lua_pushnumber(L, (double)ag_tensor_dims(t)[0]);
    return 1;
}

/* ---- fields ---- */

enum field {
    FIELD_DTYPE = 1,
    FIELD_DEVICE,
    FIELD_NDIM,
    FIELD_GRAD,
    FIELD_GRAD_OP,
    FIELD_REQUIRES_GRAD,
    FIELD_IS_LEAF,
    FIELD_IS_CONTIGUOUS,
    FIELD_VERSION
};
static const char *const field_names[] = {NULL,      "dtype",         "device",  "ndim",          "grad",
                                          "grad_op", "requires_grad", "is_leaf", "is_contiguous", "version"};
#define NUM_FIELDS ((int)(sizeof field_names / sizeof *field_names))

static int push_field(lua_State *L, binding *b, ag_tensor *t, int field) {
    ag_tensor *grad;
    switch (field) {
    case FIELD_DTYPE: lua_pushstring(L, ag_dtype_name(ag_tensor_dtype(t))); break;
    case FIELD_DEVICE: lua_pushstring(L, ag_device_name(ag_tensor_device(t))); break;
    case FIELD_NDIM: lua_pushnumber(L, ag_tensor_ndim(t)); break;
    case FIELD_GRAD:
        grad = ag_tensor_grad(t);
        if (grad)
            binding_push(L, b, ag_tensor_retain(grad));
        else
            lua_pushnil(L);
        break;
    case FIELD_GRAD_OP: lua_pushstring(L, ag_tensor_grad_op(t)); break; /* nil for NULL */
    case FIELD_REQUIRES_GRAD: lua_pushboolean(L, ag_tensor_requires_grad(t)); break;
    case FIELD_IS_LEAF: lua_pushboolean(L, ag_tensor_is_leaf(t)); break;
    case FIELD_IS_CONTIGUOUS: lua_pushboolean(L, ag_tensor_is_contiguous(t)); break;
    default: lua_pushnumber(L, ag_tensor_version(t)); break;
    }
    return 1;
}

/* methods: the table of fields and methods */
static int unknown_field(lua_State *L, binding *b, const char *key, int methods) {
    const char *nearest = NULL;
    int best = (int)strlen(key) / 3 + 1;
    for (lua_pushnil(L); lua_next(L, methods); lua_pop(L, 1)) {
        const char *name = lua_tostring(L, -2);
        int distance = binding_edit_distance(key, name);
        if (distance < best || (nearest && distance == best && strcmp(name, nearest) < 0)) best = distance, nearest = name;
    }
    if (nearest)
        return binding_fail(L, b, AG_E_ARGUMENT, "tensor", key, "a tensor has no such field or method; did you mean \"%s\"?",
                            nearest);
    return binding_fail(L, b, AG_E_ARGUMENT, "tensor", key, "a tensor has no such field or method");
}

/* upvalues: binding, methods (field names map to light userdata of enum field) */
static int tensor_index(lua_State *L) {
    binding *b = BINDING(L);
    if (lua_type(L, 2) != LUA_TSTRING) return index_get(L, b);
    lua_pushvalue(L, 2);
    lua_rawget(L, lua_upvalueindex(2));
    if (lua_islightuserdata(L, -1)) return push_field(L, b, self(L, b, "tensor"), (int)(intptr_t)lua_touserdata(L, -1));
    if (lua_isnil(L, -1)) return unknown_field(L, b, lua_tostring(L, 2), lua_upvalueindex(2));
    return 1;
}

static int tensor_newindex(lua_State *L) {
    binding *b = BINDING(L);
    if (lua_type(L, 2) != LUA_TSTRING) return index_set(L, b);
    const char *key = lua_tostring(L, 2);
    ag_tensor *t = self(L, b, "tensor");
    ag_status status;
    if (strcmp(key, "requires_grad") == 0) {
        status = ag_tensor_set_requires_grad(t, lua_toboolean(L, 3));
    } else if (strcmp(key, "grad") == 0) {
        status = ag_tensor_set_grad(t, lua_isnil(L, 3) ? NULL : binding_tensor(L, b, 3, "grad", "value"));
    } else {
        return binding_fail(L, b, AG_E_ARGUMENT, "tensor", key,
                            "a tensor's field of that name cannot be set; requires_grad and grad can");
    }
    return status == AG_OK ? 0 : binding_raise(L, b);
}

static int core_is_tensor(lua_State *L) {
    lua_pushboolean(L, binding_handle(L, BINDING(L), 1) != NULL);
    return 1;
}

static int core_shares_storage(lua_State *L) {
    binding *b = BINDING(L);
    lua_pushboolean(L, ag_tensor_shares_storage(binding_tensor(L, b, 1, "shares_storage", "a"),
                                                binding_tensor(L, b, 2, "shares_storage", "b")));
    return 1;
}

/* t:to(dtype or device) */
static int tensor_to(lua_State *L) {
    binding *b = BINDING(L);
    ag_tensor *t = self(L, b, "to"), *result = NULL;
    const char *what = binding_string(L, b, 2, "to", "target");
    ag_dtype dtype = ag_dtype_find(what);
    ag_device *device = NULL;
    if (dtype == AG_NO_DTYPE && ag_device_find(what, &device) != AG_OK)
        return binding_fail(L, b, AG_E_ARGUMENT, "to", "target",
                            "expected a dtype (f64 f32 f16 bf16 i64 i32 i16 i8 u8 bool) or a device, got \"%s\"", what);
    if (device ? device == ag_tensor_device(t) : dtype == ag_tensor_dtype(t)) {
        lua_settop(L, 1);
        return 1;
    }
    ag_arg args[2] = {binding_arg_tensor(t), {.kind = AG_ARG_DTYPE, .as.dtype = dtype}};
    if (device) args[1] = (ag_arg){.kind = AG_ARG_DEVICE, .as.device = device};
    result = binding_call1(L, b, device ? "to_device" : "cast", args, 2, 1);
    binding_push(L, b, result);
    return 1;
}

static int tensor_contiguous(lua_State *L) {
    binding *b = BINDING(L);
    ag_tensor *t = self(L, b, "contiguous");
    lua_settop(L, 1);
    if (ag_tensor_is_contiguous(t)) return 1;
    ag_arg arg = binding_arg_tensor(t);
    binding_push(L, b, binding_call1(L, b, "clone", &arg, 1, 1));
    return 1;
}

static int tensor_tostring(lua_State *L) {
    binding *b = BINDING(L);
    handle *h = binding_handle(L, b, 1);
    if (h && !h->tensor) {
        lua_pushliteral(L, "freed tensor");
        return 1;
    }
    lua_getglobal(L, "require");
    lua_pushliteral(L, "argand.format");
    lua_call(L, 1, 1);
    lua_getfield(L, -1, "tensor");
    lua_pushvalue(L, 1);
    lua_call(L, 1, 1);
    return 1;
}

static const luaL_Reg method_functions[] = {{"free", tensor_free},
                                            {"item", tensor_item},
                                            {"tolist", tensor_tolist},
                                            {"get", tensor_get},
                                            {"set", tensor_set},
                                            {"shape", tensor_shape_},
                                            {"strides", tensor_strides_},
                                            {"size", tensor_size},
                                            {"numel", tensor_numel},
                                            {"to", tensor_to},
                                            {"contiguous", tensor_contiguous},
                                            {"shares_storage", core_shares_storage},
                                            {NULL, NULL}};
static const luaL_Reg module_functions[] = {
    {"is_tensor", core_is_tensor}, {"read_element", core_read_element}, {"address", tensor_address}, {NULL, NULL}};
static const luaL_Reg metamethods[] = {
    {"__gc", tensor_gc}, {"__len", tensor_len}, {"__newindex", tensor_newindex}, {"__tostring", tensor_tostring}, {NULL, NULL}};

void tensor_register(lua_State *L, binding *b, int module) {
    lua_newtable(L); /* methods */
    int methods = lua_gettop(L);
    lua_newtable(L); /* metatable */
    int metatable = lua_gettop(L);
    for (const luaL_Reg *r = metamethods; r->name; r++) binding_function(L, b, metatable, r->name, r->func);
    for (const luaL_Reg *r = method_functions; r->name; r++) binding_function(L, b, methods, r->name, r->func);
    for (const luaL_Reg *r = module_functions; r->name; r++) binding_function(L, b, module, r->name, r->func);
    for (int i = 1; i < NUM_FIELDS; i++) {
        lua_pushlightuserdata(L, (void *)(intptr_t)i);
        lua_setfield(L, methods, field_names[i]);
    }
    lua_pushlightuserdata(L, b);
    lua_pushvalue(L, methods);
    lua_pushcclosure(L, tensor_index, 2);
    lua_setfield(L, metatable, "__index");
    lua_pushliteral(L, "argand.Tensor");
    lua_setfield(L, metatable, "__name");
    lua_pushboolean(L, 0);
    lua_setfield(L, metatable, "__metatable");
    lua_pushvalue(L, metatable);
    b->tensor_metatable_ref = luaL_ref(L, LUA_REGISTRYINDEX);
    lua_pop(L, 1);
    lua_pushvalue(L, methods);
    lua_setfield(L, module, "methods");
    lua_pop(L, 1);
}
