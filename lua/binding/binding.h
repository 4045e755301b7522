/* binding.h: the C module argand.core: tensors as Lua userdata, ops as Lua functions.
 *
 * A tensor in Lua is a userdata that holds one `ag_tensor` reference. Methods come from the op table: one closure a row, and no
 * code a row. Errors of the engine become error objects raised at the line of the user's that made the call.
 *
 * The collector cannot see the engine's memory, so every handle is charged by the bytes it holds, and the binding runs the
 * collector when enough was charged since the last time (memory.c).
 */
#ifndef ARGAND_BINDING_H
#define ARGAND_BINDING_H

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>

#include "argand.h"

#define BINDING_MAX_INTS 64

typedef struct handle {
    ag_tensor *tensor; /* NULL after free() */
    size_t charged;    /* bytes */
    const void *mark;  /* the binding's address: no other userdata has it there */
} handle;

/* What a parameter wants from Lua. */
typedef enum want { WANT_TENSOR, WANT_TENSORS, WANT_LIST, WANT_NUMBER, WANT_FLAG, WANT_STRING, WANT_GENERATOR } want;

typedef struct op_binding {
    const ag_op *op;
    int num_params;
    uint8_t wants[AG_MAX_PARAMS];      /* want */
    bool takes_numbers[AG_MAX_PARAMS]; /* a list that may come as consecutive numbers */
    bool has_tensors;
} op_binding;

/* One of these a Lua state; its address is the first upvalue of every function of the module. */
typedef struct binding {
    lua_State *L; /* the coroutine that is in the engine now: where hooks and custom functions run */
    int tensor_metatable_ref, error_metatable_ref, generator_metatable_ref;
    struct fiber *fiber; /* the one that runs, NULL = none (fiber.c) */
    int scope_depth;
    /* pacing of the collector, in bytes */
    size_t charged_live, charged_since, trigger, soft_limit;
    op_binding *ops;        /* [ag_op_count()] */
    char library_path[512]; /* sources below it are ours: errors blame the caller above them */
} binding;

#define BINDING(L) ((binding *)lua_touserdata(L, lua_upvalueindex(1)))

/* error.c */
int binding_raise(lua_State *L, binding *b); /* raises the engine's last error */
int binding_fail(lua_State *L, binding *b, ag_status code, const char *op, const char *arg, const char *format, ...)
    __attribute__((format(printf, 6, 7)));
int binding_return_error(lua_State *L, binding *b); /* returns nil, error object */
void binding_push_error(lua_State *L, binding *b);  /* pushes the last error as an object */
void binding_push_record(lua_State *L, binding *b, const ag_error *record);
void binding_where(lua_State *L, binding *b, char *buffer, size_t len);
void error_register(lua_State *L, binding *b);
void error_register_functions(lua_State *L, binding *b, int module);
/* Plain arguments of `op`; they raise. binding_whole admits whole numbers from low to high. */
const char *binding_string(lua_State *L, binding *b, int index, const char *op, const char *arg);
int64_t binding_whole(lua_State *L, binding *b, int index, const char *op, const char *arg, double low, double high);
ag_device *binding_device(lua_State *L, binding *b, int index, const char *op, const char *arg);
void binding_keep_error(
    lua_State *L); /* pops the error that a Lua function raised inside the engine; binding_raise raises it */

/* tensor.c */
handle *binding_userdata(lua_State *L, const binding *b, int index); /* of a full userdata; NULL when it is no tensor */
handle *binding_handle(lua_State *L, const binding *b, int index);   /* NULL when it is no tensor */
ag_tensor *binding_tensor(lua_State *L, binding *b, int index, const char *op, const char *arg); /* raises */
void binding_push(lua_State *L, binding *b, ag_tensor *tensor);                                  /* takes the reference over */
/* binding_anchor pushes a handle that owns nothing yet. A tensor put into it is released with it whatever error is raised;
 * binding_charge makes it a result like those of binding_push (it has to be on top of the stack). */
handle *binding_anchor(lua_State *L, binding *b);
void binding_charge(lua_State *L, binding *b, handle *h);
void binding_replace(binding *b, handle *h, ag_tensor *tensor); /* takes the reference over */
void tensor_register(lua_State *L, binding *b, int module);

/* construct.c */
void construct_register(lua_State *L, binding *b, int module);

/* call.c */
void call_register(lua_State *L, binding *b, int module, int methods);
ag_tensor *binding_call1(lua_State *L, binding *b, const char *op, const ag_arg *args, int num_args,
                         int index_base); /* raises */
ag_arg binding_arg_tensor(ag_tensor *tensor);
ag_arg binding_arg_number(double value);
ag_arg binding_arg_int(int64_t value);
int binding_edit_distance(const char *a, const char *b);

/* index.c */
int index_get(lua_State *L, binding *b); /* t[key]; stack: tensor, key */
int index_set(lua_State *L, binding *b); /* t[key] = value; stack: tensor, key, value */

/* memory.c */
void memory_charge(lua_State *L, binding *b, size_t size_bytes);
void memory_discharge(binding *b, size_t size_bytes);
void memory_drop(binding *b, handle *h); /* gives h's tensor back now; NULL and freed handles are accepted */
void scope_note(lua_State *L);           /* the handle on top of the stack was made inside an ag.scope */
void scope_exchange(lua_State *L);       /* the innermost scope's list and what is on top of the stack change places */
void memory_enter_thread(binding *b);    /* an OS thread begins to run Lua: out of memory, the engine asks it to collect */
void memory_register(lua_State *L, binding *b, int module);

/* autodiff.c, about.c, process.c */
void autodiff_register(lua_State *L, binding *b, int module, int methods);
void about_register(lua_State *L, binding *b, int module);
void process_register(lua_State *L, binding *b, int module);

/* dist.c, ddp.c, fiber.c */
ag_group *binding_group(lua_State *L, binding *b, int index); /* raises for what is no open group */
int binding_raise_on(lua_State *L, binding *b, int world_rank); /* binding_raise, with the rank that the error came to */
/* Fields of the table at `table`: NULL and 0 when there is none. The string is the table's. */
const char *binding_string_field(lua_State *L, int table, const char *key);
double binding_number_field(lua_State *L, int table, const char *key);
void dist_register(lua_State *L, binding *b, int module);
void ddp_register(lua_State *L, binding *b, int module);
void fiber_register(lua_State *L, binding *b, int table);

/* module.c: puts C function `fn` under `name` into the table at `table`, with the binding as upvalue. */
void binding_function(lua_State *L, binding *b, int table, const char *name, lua_CFunction fn);

#endif
