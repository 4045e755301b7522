/* argand.h: the public C API of the Argand tensor engine.
 *
 * Model. An `ag_tensor` is a counted handle to strided memory on a device: dtype, shape (0..8 dims, 64-bit sizes), strides
 * and a storage that views share. Handles never change shape. Every operation is a row of the op table and is called
 * through one entry, `ag_op_call`, with arguments in the order of the op's signature.
 *
 * Errors. Functions that can fail return `ag_status`; AG_OK is 0. On failure outputs are untouched and
 * `ag_last_error()` holds a record of what was expected, what came and what to do. The library never aborts, exits or prints.
 *
 * Ownership. Inputs are borrowed for the call. A tensor that a function hands out is owned by the caller, who ends it with
 * `ag_tensor_release`. Strings handed out live as long as the library unless the comment says otherwise.
 *
 * Threads. Handles may be used from any thread, one call at a time per tensor. Errors, gradient mode and the recording
 * context are per thread.
 *
 * Positions (dims, indices, labels) are 0-based here; `ag_call_options.index_base` shifts them for 1-based callers.
 */
#ifndef ARGAND_H
#define ARGAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define AG_API __attribute__((visibility("default")))
#else
#define AG_API
#endif

#define AG_VERSION "0.1.0"
#define AG_MAX_NDIM 8

/* One row a status: constant, the word that Lua sees in `err.code`. */
#define AG_STATUS_MAP(X)            \
    X(AG_OK, "ok")                  \
    X(AG_E_SHAPE, "shape")          \
    X(AG_E_DTYPE, "dtype")          \
    X(AG_E_KIND, "kind")            \
    X(AG_E_DEVICE, "device")        \
    X(AG_E_INDEX, "index")          \
    X(AG_E_VALUE, "value")          \
    X(AG_E_ARGUMENT, "argument")    \
    X(AG_E_OPTION, "option")        \
    X(AG_E_UNSUPPORTED, "unsupported") \
    X(AG_E_AUTODIFF, "autodiff")    \
    X(AG_E_STALE, "stale")          \
    X(AG_E_STATE, "state")          \
    X(AG_E_MEMORY, "memory")        \
    X(AG_E_FILE, "file")            \
    X(AG_E_FORMAT, "format")        \
    X(AG_E_INTERRUPTED, "interrupted") \
    X(AG_E_USER, "user")

typedef enum ag_status {
#define AG_STATUS_ENUM(constant, word) constant,
    AG_STATUS_MAP(AG_STATUS_ENUM)
#undef AG_STATUS_ENUM
    AG_STATUS_COUNT
} ag_status;

typedef enum ag_dtype {
    AG_NO_DTYPE = -1,
    AG_F64, AG_F32, AG_F16, AG_BF16,
    AG_I64, AG_I32, AG_I16, AG_I8, AG_U8,
    AG_BOOL,
    AG_DTYPE_COUNT
} ag_dtype;

typedef struct ag_tensor ag_tensor;
typedef struct ag_device ag_device;
typedef struct ag_generator ag_generator;
typedef struct ag_op ag_op;

/* ag_error is the record of the last failure on this thread. Empty strings mean "does not apply". */
typedef struct ag_error {
    ag_status code;
    char op[40];        /* the op or function that refused */
    char arg[40];       /* the argument by name */
    char expected[160]; /* what would have been right */
    char got[256];      /* what came */
    char hint[256];     /* what to do */
    char message[768];  /* all of it in one line, without the code */
} ag_error;

/* ag_last_error returns this thread's record; it is never NULL and stays valid until the next failing call. */
AG_API const ag_error *ag_last_error(void);
/* ag_status_word returns the word of AG_STATUS_MAP, "unknown" for anything else. */
AG_API const char *ag_status_word(ag_status status);

/* ag_raise fills the record from outside the engine (bindings, backward functions of the user) and returns `code`. A message of
 * the form "expected E, got G; hint" fills those fields; any other one is what came, up to its first "; ". Texts are copied,
 * and cut where the record ends; op and arg may be NULL. */
AG_API ag_status ag_raise(ag_status code, const char *op, const char *arg, const char *message);

/* ---- dtypes ---- */
AG_API const char *ag_dtype_name(ag_dtype dtype);   /* "f32" … "bool" */
AG_API size_t ag_dtype_size(ag_dtype dtype);        /* bytes an element */
AG_API const char *ag_dtype_kind(ag_dtype dtype);   /* "float", "int" or "bool" */
AG_API ag_dtype ag_dtype_find(const char *name);    /* AG_NO_DTYPE when there is none of that name */

/* ---- devices ---- */
/* ag_device_find returns the device of a name such as "cpu" or "reference", or fails with AG_E_DEVICE naming those there
 * are. */
AG_API ag_status ag_device_find(const char *name, ag_device **out);
AG_API int ag_device_count(void);
AG_API ag_device *ag_device_at(int position); /* 0 to ag_device_count() - 1; 0 is the default */
AG_API const char *ag_device_name(const ag_device *device);
AG_API const char *ag_device_description(const ag_device *device); /* for people */
AG_API bool ag_device_has_collectives(const ag_device *device);    /* whether tensors on it may take part in them */

/* ---- tensors ---- */
/* ag_tensor_empty makes an uninitialised contiguous tensor. dims: [ndim], each >= 0; NULL will do when ndim is 0. device NULL
 * = the default. Errors: AG_E_DTYPE, AG_E_SHAPE, AG_E_MEMORY. */
AG_API ag_status ag_tensor_empty(ag_dtype dtype, int ndim, const int64_t *dims, ag_device *device, ag_tensor **out);
/* ag_tensor_from_data is ag_tensor_empty and copies that many contiguous elements of `dtype`, in row-major order, from data. */
AG_API ag_status ag_tensor_from_data(ag_dtype dtype, int ndim, const int64_t *dims, ag_device *device, const void *data,
                                     ag_tensor **out);
AG_API ag_tensor *ag_tensor_retain(ag_tensor *tensor); /* one more owner; returns tensor */
AG_API void ag_tensor_release(ag_tensor *tensor); /* NULL is accepted */
AG_API ag_dtype ag_tensor_dtype(const ag_tensor *tensor);
AG_API ag_device *ag_tensor_device(const ag_tensor *tensor);
AG_API int ag_tensor_ndim(const ag_tensor *tensor);
AG_API const int64_t *ag_tensor_dims(const ag_tensor *tensor);    /* [ndim] */
AG_API const int64_t *ag_tensor_strides(const ag_tensor *tensor); /* [ndim], in elements */
AG_API int64_t ag_tensor_numel(const ag_tensor *tensor);
AG_API bool ag_tensor_is_contiguous(const ag_tensor *tensor);
/* ag_tensor_data returns the address of the first element; host devices only, else AG_E_DEVICE. Valid while the tensor
 * lives. Elements lie ag_tensor_strides apart. What is written through it is not counted as a change and not recorded. */
AG_API ag_status ag_tensor_data(ag_tensor *tensor, void **out);
/* ag_tensor_item reads the only element; AG_E_SHAPE when there is not exactly one. i64 beyond 2^53 is rounded, here and in
 * ag_tensor_get. */
AG_API ag_status ag_tensor_item(ag_tensor *tensor, double *out);
/* ag_tensor_read copies the elements, in row-major order and converted to `dtype`, to `out`, which has room for `capacity`
 * elements; AG_E_VALUE when that is too few. */
AG_API ag_status ag_tensor_read(ag_tensor *tensor, ag_dtype dtype, void *out, int64_t capacity);
/* ag_tensor_get and _set reach one element by its position; indices: [ndim], 0 to size - 1 each, else AG_E_INDEX. Host devices
 * only. _set is not recorded: AG_E_AUTODIFF on a tracked tensor while recording is on. */
AG_API ag_status ag_tensor_get(ag_tensor *tensor, const int64_t *indices, double *out);
AG_API ag_status ag_tensor_set(ag_tensor *tensor, const int64_t *indices, double value);
AG_API uint32_t ag_tensor_version(const ag_tensor *tensor); /* counts in-place changes of the storage */
AG_API bool ag_tensor_shares_storage(const ag_tensor *a, const ag_tensor *b);
/* ag_tensor_charge is for bindings that tell a collector how much a handle holds: the bytes of the handle, and for the first
 * call on a storage those of the storage as well. */
AG_API size_t ag_tensor_charge(ag_tensor *tensor);

/* ---- calling ops ---- */
typedef enum ag_arg_kind {
    AG_ARG_NONE, AG_ARG_TENSOR, AG_ARG_TENSORS, AG_ARG_NUMBER, AG_ARG_INT, AG_ARG_BOOL, AG_ARG_INTS, AG_ARG_STRING,
    AG_ARG_DTYPE, AG_ARG_DEVICE, AG_ARG_GENERATOR
} ag_arg_kind;

/* ag_arg is one argument of a call; everything it points to is borrowed for the call. AG_ARG_NONE: the default. A number where
 * the signature has a tensor stands for a 0-d tensor that does not decide the dtype; `is_integer` tells a whole one from a
 * float, which does count in promotion. AG_ARG_STRING serves for words of the signature, dtypes and devices. */
typedef struct ag_arg {
    uint8_t kind; /* ag_arg_kind */
    bool is_integer;
    int32_t len; /* of tensors, ints */
    union {
        ag_tensor *tensor;
        ag_tensor *const *tensors;
        double number;
        int64_t integer;
        bool boolean;
        const int64_t *ints;
        const char *string;
        ag_dtype dtype;
        ag_device *device;
        ag_generator *generator;
    } as;
} ag_arg;

/* NULL instead of a pointer to it: index_base 0, no out. */
typedef struct ag_call_options {
    int index_base;   /* 0 or 1: where positions inside tensors and attributes start */
    ag_tensor *out;   /* the result goes here: shape and dtype must fit, nothing tracked may be in play; NULL = fresh */
} ag_call_options;

#define AG_MAX_OUTPUTS 4
#define AG_MAX_PARAMS 14

AG_API const ag_op *ag_op_find(const char *name); /* NULL when there is none */
AG_API int ag_op_count(void);
AG_API const ag_op *ag_op_at(int position); /* NULL unless 0 <= position < ag_op_count() */
AG_API const char *ag_op_name(const ag_op *op);
AG_API const char *ag_op_signature(const ag_op *op); /* "softmax(x: num, dim: dim = -1)"; ops/ops.def has the grammar */
AG_API const char *ag_op_doc(const ag_op *op);       /* one sentence; "" for hidden ops */
AG_API bool ag_op_is_hidden(const ag_op *op); /* internal ops: backward kernels and the like */
AG_API bool ag_op_is_differentiable(const ag_op *op);
AG_API int ag_op_param_count(const ag_op *op); /* at most AG_MAX_PARAMS; param below is 0 to this - 1 */
AG_API const char *ag_op_param_name(const ag_op *op, int param);
AG_API const char *ag_op_param_type(const ag_op *op, int param); /* word of the signature, "dim" for instance */
AG_API bool ag_op_param_is_optional(const ag_op *op, int param);
AG_API int ag_op_output_count(const ag_op *op); /* 0 to AG_MAX_OUTPUTS */
AG_API bool ag_op_has_inplace(const ag_op *op); /* ag_op_call_inplace takes it: one computed result */

/* ag_op_call runs an op. args: [num_args] in signature order, missing ones take their defaults. outputs: [ag_op_output_count],
 * owned by the caller. Errors: every code; the record names op and argument. */
AG_API ag_status ag_op_call(const ag_op *op, const ag_arg *args, int num_args, const ag_call_options *options,
                            ag_tensor **outputs);
/* ag_op_call_inplace runs an op and puts its result into the storage of args[0]. *out is the handle that stands for the
 * changed tensor from now on (the same handle, retained, unless the change is recorded for gradients); owned by the caller.
 * AG_E_UNSUPPORTED for ops without a tensor in first place, with several results, or whose result is a view. */
AG_API ag_status ag_op_call_inplace(const ag_op *op, const ag_arg *args, int num_args, const ag_call_options *options,
                                    ag_tensor **out);

/* ag_tensor_assign writes value, of view's shape, into view, which is base or a view of it. *out is the handle that stands for
 * the changed base from now on: base itself, retained, unless the change is recorded for gradients; owned by the caller. */
AG_API ag_status ag_tensor_assign(ag_tensor *base, ag_tensor *view, ag_tensor *value, ag_tensor **out);
/* ag_tensor_broadcast_like gives value (or, when NULL, number) in the shape and dtype of like; *out is the caller's. AG_E_SHAPE
 * when value does not broadcast to it, AG_E_DEVICE when it lies on another device. */
AG_API ag_status ag_tensor_broadcast_like(ag_tensor *value, double number, ag_tensor *like, ag_tensor **out);

/* ---- capabilities ---- */
typedef enum ag_support { AG_SUPPORT_NONE, AG_SUPPORT_STAGED, AG_SUPPORT_COMPOSED, AG_SUPPORT_NATIVE } ag_support;
/* ag_supports tells how `op` would run for inputs of `dtype` on `device`; `reason` ([len], or NULL) gets why not. */
AG_API ag_support ag_supports(const ag_op *op, ag_device *device, ag_dtype dtype, char *reason, size_t len);
AG_API const char *ag_support_word(ag_support support);

/* ---- autodiff ---- */
/* What recorded ops keep for backward: NONE everything they need; BALANCED not the results of cheap ops, which are computed
 * again; INHERIT as in the context around. */
typedef enum ag_checkpointing { AG_CHECKPOINT_NONE, AG_CHECKPOINT_BALANCED, AG_CHECKPOINT_INHERIT } ag_checkpointing;
/* ag_autodiff_push enters a context on this thread, in which ops on tracked tensors are recorded or not; ag_autodiff_pop
 * leaves it. They nest, 4096 deep (AG_E_STATE); depth counts those entered. Outside of all recording is on. */
AG_API ag_status ag_autodiff_push(bool enabled, ag_checkpointing checkpointing);
AG_API void ag_autodiff_pop(void);
AG_API bool ag_autodiff_is_enabled(void);
AG_API int ag_autodiff_depth(void);
AG_API ag_status ag_tensor_set_requires_grad(ag_tensor *tensor, bool requires_grad); /* leaves of float dtype only */
AG_API bool ag_tensor_requires_grad(const ag_tensor *tensor); /* a leaf marked so, or a result that depends on one */
AG_API bool ag_tensor_is_leaf(const ag_tensor *tensor);
/* ag_tensor_grad_op names the op or custom function whose recorded result this is, NULL for leaves and untracked tensors.
 * Valid while the tensor lives. */
AG_API const char *ag_tensor_grad_op(const ag_tensor *tensor);
AG_API ag_tensor *ag_tensor_grad(const ag_tensor *tensor);    /* borrowed; NULL when there is none */
/* ag_tensor_set_grad puts grad, of the leaf's shape, dtype and device, in place of the leaf's gradient; storage is shared. NULL
 * clears it. */
AG_API ag_status ag_tensor_set_grad(ag_tensor *tensor, ag_tensor *grad);
AG_API ag_status ag_tensor_detach(ag_tensor *tensor, ag_tensor **out);  /* untracked, on the same storage; the caller's */
/* ag_backward accumulates d(root)/d(leaf) into every leaf's grad. seed NULL = 1 for a one-element root. What the graph saved is
 * freed on the way unless retain_graph. With create_graph grads are tied to the tape themselves; leaf and graph then hold
 * each other until the grad is cleared, so ag_grad is the better way. Errors: AG_E_AUTODIFF (no graph, or one that was freed),
 * AG_E_SHAPE (seed), AG_E_STALE (a saved tensor was changed in place), and those of the ops. */
AG_API ag_status ag_backward(ag_tensor *root, ag_tensor *seed, bool retain_graph, bool create_graph);
/* ag_grad returns gradients of root with respect to inputs: [num_inputs] to grads, owned; NULL where root does not depend on
 * the input and `allow_unused`, else AG_E_AUTODIFF naming it. Leaves' grads are not touched. */
AG_API ag_status ag_grad(ag_tensor *root, ag_tensor *seed, ag_tensor *const *inputs, int num_inputs, bool retain_graph,
                         bool create_graph, bool allow_unused, ag_tensor **grads);
/* A hook sees the finished gradient of a tensor and may replace it: *grad is owned by the caller of the hook; to replace it,
 * release it and put an owned tensor in its place. An error status ends backward with that error. */
typedef ag_status (*ag_hook_fn)(void *context, ag_tensor **grad);
/* ag_tensor_add_hook adds fn to a tracked tensor (else AG_E_AUTODIFF); *id is for ag_tensor_remove_hook. free_context(context),
 * unless NULL, is called when the hook goes, with its tensor or by ag_tensor_remove_hook; not when adding fails. */
AG_API ag_status ag_tensor_add_hook(ag_tensor *tensor, ag_hook_fn fn, void *context, void (*free_context)(void *),
                                    uint64_t *id);
AG_API void ag_tensor_remove_hook(ag_tensor *tensor, uint64_t id);
/* A custom function: ag_custom_record ties outputs to inputs; backward calls fn with the outputs' gradients (NULL = zero) and
 * takes the inputs' gradients (NULL = none). Gradients that fn hands out become the engine's. `force` records even when no
 * input is tracked. The outputs must be fresh, untracked tensors. context belongs to the engine from the call on, also when
 * nothing is recorded or the call fails; free_context, unless NULL, ends it. */
typedef ag_status (*ag_custom_backward_fn)(void *context, int num_outputs, ag_tensor *const *grad_outputs, int num_inputs,
                                           ag_tensor **grad_inputs);
AG_API ag_status ag_custom_record(const char *name, ag_tensor *const *inputs, int num_inputs, ag_tensor **outputs,
                                  int num_outputs, ag_custom_backward_fn fn, void *context, void (*free_context)(void *),
                                  bool force);
/* Two calls for within such a backward function. ag_backward_inner differentiates roots, computed anew from the function's
 * inputs and other tracked tensors, with gradients seeds: [num_roots]; what is older than the run at work gets its gradient
 * from that run, so inputs served this way get NULL. ag_custom_tie makes a handle that stands for result `output` from an
 * untracked alias of it that the function has kept (keeping the result itself would be a cycle): double backward goes through
 * it. */
AG_API ag_status ag_backward_inner(ag_tensor *const *roots, ag_tensor *const *seeds, int num_roots);
AG_API ag_status ag_custom_tie(ag_tensor *result, int output, ag_tensor **out);
/* Anomaly mode, for the whole process: backward stops at the first NaN and names the forward line, which `where` writes into
 * its buffer ([len], always ended by 0) when an op is recorded; NULL = none. */
typedef void (*ag_where_fn)(char *buffer, size_t len);
AG_API void ag_set_anomaly_mode(bool enabled, ag_where_fn where);
AG_API bool ag_anomaly_mode(void);
AG_API int64_t ag_autodiff_live_nodes(void); /* of the tape, in all threads */

/* ---- random ---- */
/* A generator is a seed and the count of numbers drawn, its offset: number i depends on the seed and i only. Ops without a
 * generator argument draw from the default one, of the whole process. A generator is for one thread at a time. */
AG_API void ag_manual_seed(uint64_t seed); /* of the default generator, whose offset becomes 0 */
AG_API ag_generator *ag_generator_new(uint64_t seed); /* NULL when memory is out */
AG_API void ag_generator_free(ag_generator *generator); /* NULL is accepted */
AG_API void ag_generator_seed(ag_generator *generator, uint64_t seed); /* the offset becomes 0 */
/* generator NULL = the default one, in both. */
AG_API void ag_generator_state(const ag_generator *generator, uint64_t *seed, uint64_t *offset);
AG_API void ag_generator_set_state(ag_generator *generator, uint64_t seed, uint64_t offset);

/* ---- memory, threads, interrupts ---- */
typedef struct ag_memory_info {
    int64_t live_bytes;   /* in storages now; those of 64 bytes and less count as heap blocks only */
    int64_t peak_bytes;   /* the most there ever was, or since ag_memory_reset_peak */
    int64_t cached_bytes; /* kept for reuse, not in tensors */
    int64_t limit_bytes;  /* 0 = none */
    int64_t num_allocations; /* of storages, since the start */
    int64_t heap_blocks; /* small structs alive: handles, storages, tape slabs */
} ag_memory_info;
AG_API void ag_memory(ag_memory_info *out);
AG_API void ag_memory_reset_peak(void);
AG_API void ag_memory_trim(void); /* gives cached blocks back to the system */
/* ag_memory_set_limit bounds live and cached bytes together, 0 = no bound. What is live stays; an allocation that would pass
 * the bound fails with AG_E_MEMORY. */
AG_API void ag_memory_set_limit(int64_t bytes);
/* ag_memory_set_reclaim names a function, one for each thread, that frees what it can when an allocation fails although the
 * cache was given back; the engine then tries again. NULL = none. */
AG_API void ag_memory_set_reclaim(void (*fn)(void *context), void *context);
/* ag_memory_fail_after makes the n-th allocation from now fail, once (n >= 1); 0 = off. For tests. Returns how many
 * allocations, of storages and small structs, happened since it was last set. */
AG_API int64_t ag_memory_fail_after(int64_t n);
/* ag_set_num_threads sets how many threads, the caller's among them, a call may use: 1..256, else AG_E_VALUE; AG_E_STATE when
 * the system starts no more. At the start it is ARGAND_THREADS, else the number of processors. */
AG_API ag_status ag_set_num_threads(int count);
AG_API int ag_get_num_threads(void);
/* ag_interrupt sets a flag of the process; it is async-signal-safe. Long calls, running or to come, return AG_E_INTERRUPTED
 * until ag_interrupt_clear takes it back. */
AG_API void ag_interrupt(void);
AG_API bool ag_interrupt_pending(void);
AG_API void ag_interrupt_clear(void);

/* ---- files ---- */
/* What is loaded lies on the default device. AG_E_FILE: the system refused; AG_E_FORMAT: the content is not what it claims. */
AG_API ag_status ag_npy_load(const char *path, ag_tensor **out); /* NumPy's .npy, versions 1.0 to 3.0; plain or gzip */
/* ag_npy_save writes a file beside path and renames it: a failure leaves what was there. AG_E_DTYPE for bf16, which the format
 * has not. */
AG_API ag_status ag_npy_save(const char *path, ag_tensor *tensor);
AG_API ag_status ag_idx_load(const char *path, ag_tensor **out); /* MNIST's format; plain or gzip */

/* ---- about ---- */
AG_API const char *ag_version(void);
AG_API const char *ag_build_info(void); /* compiler, build type, sanitizers */
AG_API const char *ag_cpu_info(void);   /* processor and the instruction set that was chosen */
AG_API const char *ag_blas_info(void);  /* which BLAS the default device calls, or "none" */

#ifdef __cplusplus
}
#endif
#endif
