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
#define AG_MAX_CULPRITS 8

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
    X(AG_E_PEER, "peer")            \
    X(AG_E_TIMEOUT, "timeout")      \
    X(AG_E_MISMATCH, "mismatch")    \
    X(AG_E_NETWORK, "network")      \
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
    uint64_t sequence;  /* of a collective: the number of the call in its group; 0 = none */
    int32_t num_culprits;
    int32_t culprits[AG_MAX_CULPRITS]; /* ranks of the world that are to blame, the first few of them */
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

/* ---- distributed jobs ---- */
/* A group is this process's (or thread's) membership in a set of ranks that call collectives together, in the same order. Ranks
 * are numbered from 0. Every call has a number; ranks compare what they call before they touch data, so a different op, dtype,
 * shape, root or a skipped call on one rank is AG_E_MISMATCH on all. No wait is unbounded: AG_E_TIMEOUT names who did not come;
 * a rank that died, stopped, left or failed is AG_E_PEER. After such an error the group has ended (ag_group_has_ended): the next
 * calls give the same error until ag_group_regroup. Inputs are intact after every failure.
 *
 * Threads. Calls of a group come from one thread; works may be waited for by it. A service thread of the library answers the
 * others meanwhile. After fork the child must not use a group.
 */
typedef struct ag_group ag_group;
typedef struct ag_work ag_work; /* a call under way */

/* Zero and NULL mean the default. */
typedef struct ag_group_options {
    int rank, size;
    int local_rank, local_size; /* on this host; for information */
    const char *coordinator; /* where rank 0 listens: "ipc://@name" or "tcp://host:port"; not needed when size is 1 */
    int coordinator_fd;      /* > 0: a listening TCP socket that rank 0 takes over */
    const char *job;         /* names this job: the same on all its ranks and on no other job's; up to 63 bytes */
    uint32_t epoch;          /* rises with each restart */
    const char *key_file;    /* made by ag_keygen; NULL = no CURVE, and then loopback and ipc addresses only */
    const char *address;     /* of this rank's own sockets: an IP address; NULL = loopback, or that of the route to rank 0 */
    const char *transport;   /* "auto", "shm", "ipc", "tcp" */
    double timeout_s;        /* of a collective; 300 */
    double init_timeout_s;   /* of joining; 60 */
    double heartbeat_s, expiry_s; /* 0.25; 5: a rank that is not heard of for so long is lost */
} ag_group_options;

AG_API bool ag_dist_is_available(void); /* jobs of several processes: built with ZeroMQ */
/* ag_keygen writes a new key pair for a job to a file of mode 0600 that must not exist; AG_E_FILE, AG_E_UNSUPPORTED. */
AG_API ag_status ag_keygen(const char *path);
/* ag_group_open joins the job and returns the group of all its ranks (the world), after all have come. Size 1 needs nothing.
 * Errors: AG_E_TIMEOUT naming the ranks that are missing, AG_E_NETWORK, AG_E_STATE (refused, with the reason), AG_E_VALUE,
 * AG_E_UNSUPPORTED (built without ZeroMQ), AG_E_FILE (keys). */
AG_API ag_status ag_group_open(const ag_group_options *options, ag_group **out);
/* ag_group_open_threads makes a world of `size` members for as many threads of this process: groups [size]. */
AG_API ag_status ag_group_open_threads(int size, ag_group **groups);
/* ag_group_split makes a group of some ranks of parent: ranks [num_ranks], rising numbers of the parent's. All members of parent
 * call it with the same ranks; *out is NULL for who is not among them. */
AG_API ag_status ag_group_split(ag_group *parent, const int *ranks, int num_ranks, ag_group **out);
/* ag_group_close says goodbye, waits for the others at most wait_s, and frees the group; groups made from it are closed first.
 * NULL is accepted. ag_group_free is for ends without goodbye: the others learn that this rank left. */
AG_API ag_status ag_group_close(ag_group *group, double wait_s);
AG_API void ag_group_free(ag_group *group);
/* ag_group_abort ends the world of `group` on all ranks with AG_E_PEER: "rank 2 failed: reason". */
AG_API void ag_group_abort(ag_group *group, const char *reason);
/* ag_group_regroup makes a new world of the ranks that still live, in their old order; `group` must be a world and is freed when
 * it succeeds. AG_E_PEER when fewer than min_size (0: more than half of the old size) have come within grace_s (0: 5). */
AG_API ag_status ag_group_regroup(ag_group *group, int min_size, double grace_s, ag_group **out);
AG_API int ag_group_rank(const ag_group *group);
AG_API int ag_group_size(const ag_group *group);
AG_API int ag_group_world_rank(const ag_group *group, int rank);
AG_API uint32_t ag_group_epoch(const ag_group *group);
AG_API const char *ag_group_transport(const ag_group *group); /* "none" (size 1), "inproc", "shm", "ipc", "tcp", "shm+ipc", "shm+tcp" */
AG_API bool ag_group_is_encrypted(const ag_group *group);
AG_API bool ag_group_has_ended(const ag_group *group); /* true: *ag_last_error* of the next call says why */
/* ag_group_note puts a text such as "epoch 3, step 120" where others' timeout errors and the launcher show it. */
AG_API void ag_group_note(ag_group *group, const char *text);
typedef struct ag_group_stats {
    int64_t num_calls, bytes_moved, num_messages, num_rejected;
} ag_group_stats;
AG_API void ag_group_stats_read(const ag_group *group, ag_group_stats *out);

/* ag_collective says what to do. A tensor of any layout on a device with collectives; a result is contiguous.
 *
 * kind            input                       result
 * all_reduce      [...]                       [...]
 * reduce          [...]                       [...] on root, NULL elsewhere
 * broadcast       [...] on every rank: shape  [...] with root's elements
 * all_gather      [d, ...]                    [sum of d, ...], in rank order; counts: d of every rank, when they differ
 * reduce_scatter  [size * d, ...]             [d, ...]
 * gather          [d, ...]                    [sum of d, ...] on root, NULL elsewhere
 * scatter         [size * d, ...] on root     [d, ...]; `like` gives dtype and shape of the result on other ranks
 * all_to_all      [size * d, ...]             [size * d, ...]; counts: rows sent to each rank, output_counts: rows that come
 * send            [...] to root               NULL
 * receive         `like`: dtype and shape     [...] from root
 * barrier         NULL                        NULL
 */
typedef struct ag_collective {
    const char *kind;
    const char *op;        /* "sum" (NULL), "mean", "min", "max", "prod"; of bool "and", "or" */
    const char *algorithm; /* NULL = by the cost model */
    int root;              /* of send and receive: the other rank */
    ag_tensor *input, *like;
    ag_tensor *out;        /* NULL = fresh; else contiguous, of the result's shape and dtype; may be the input */
    const int64_t *counts, *output_counts; /* [size] or NULL */
    double timeout_s;      /* 0 = the group's */
    bool is_absent;        /* all_reduce, reduce, reduce_scatter: this rank takes part, but its elements do not count: those of a
                              rank that has run out of work. A mean is still over all ranks. Without any, contents are undefined */
} ag_collective;
/* ag_collective_supports answers whether a tensor of this dtype on this device can take part, beforehand; else the reason
 * ([len]) keeps apart what the device, the kind and this build cannot. */
AG_API bool ag_collective_supports(const char *kind, const char *op, ag_dtype dtype, ag_device *device, char *reason, size_t len);
/* ag_collective_run does it and waits. *out: the result, the caller's, NULL where there is none. Never recorded for gradients. A
 * call that this rank refuses (AG_E_DTYPE, AG_E_DEVICE, AG_E_SHAPE …) is told to the others, who fail with AG_E_MISMATCH naming
 * this rank and the reason, as soon as they make their call. But a send that has returned is not told: over ZeroMQ one of up to
 * 2 MiB may return before its receiver makes its call. */
AG_API ag_status ag_collective_run(ag_group *group, const ag_collective *c, ag_tensor **out);
/* ag_collective_start begins it; calls run in the order in which they were started. The input must not be written to before the
 * work is done. */
AG_API ag_status ag_collective_start(ag_group *group, const ag_collective *c, ag_work **out);
AG_API bool ag_work_is_done(const ag_work *work);
/* ag_work_wait waits at most timeout_s (AG_E_TIMEOUT, the work goes on); *out is the result, the caller's. */
AG_API ag_status ag_work_wait(ag_work *work, double timeout_s, ag_tensor **out);
AG_API void ag_work_release(ag_work *work); /* it is finished in the background; NULL is accepted */
/* ag_collective_plan writes which algorithm would be chosen and the time that each is expected to take; returns buffer. */
AG_API const char *ag_collective_plan(ag_group *group, const ag_collective *c, char *buffer, size_t len);

/* One collective on a simulated network: all its ranks in this thread, on virtual time. Segments are cut, delayed and reordered as
 * the seed says, the same way each time. For tests of programs: the library's Lua face runs whole scripts on it. */
typedef struct ag_simulation {
    int size;
    uint64_t seed, sequence;            /* sequence: what error records give as the number of the call */
    const int *world_ranks;             /* [size]: the names of the ranks in errors; NULL = 0, 1 … */
    const char *fault;                  /* NULL = none; "dead": fault_rank ends somewhere in the call; "silent": it stops */
    int fault_rank;
    double min_delay_s, max_delay_s;    /* of a segment; 0 = 10 and 200 microseconds */
    double expiry_s;                    /* after which a silent rank is lost; 0 = 5 */
} ag_simulation;
typedef struct ag_simulation_outcome {
    ag_status status;
    ag_error error;    /* what the rank would see, when status is not AG_OK */
    ag_tensor *result; /* the caller's; NULL where there is none */
    double end_s;      /* virtual time since the beginning of the call */
    bool is_lost;      /* it is the rank of the fault: it sees nothing */
} ag_simulation_outcome;
/* ag_simulate_collective runs calls [size], whose algorithm, root, counts … mean what they mean in a group of that size; send and
 * receive are a call of two ranks. outcomes: [size]. What happens to ranks is in the outcomes, also calls that differ; errors of the
 * simulation itself are AG_E_ARGUMENT and AG_E_MEMORY, and leave no outcomes. num_segments may be NULL. */
AG_API ag_status ag_simulate_collective(const ag_simulation *setup, const ag_collective *calls, ag_simulation_outcome *outcomes,
                                        int64_t *num_segments);

/* ag_group_shared_tensor makes, on all ranks together, memory in which all_reduce need not copy: *own is this rank's tensor (the
 * input), *result where the sum goes. [numel] of dtype, zeros. shared_result: on one host all ranks read the same result, and
 * nobody may write to it; this takes half the time. Else each rank has one of its own, which the others' sums are written to. In
 * place (out = own) is slower than both: sums wait in the result until no rank can fail any more. */
AG_API ag_status ag_group_shared_tensor(ag_group *group, ag_dtype dtype, int64_t numel, bool shared_result, ag_tensor **own,
                                        ag_tensor **result);

/* ---- data-parallel training ---- */
/* A job keeps replicas of a model equal: every rank computes gradients of its own batch, and each step is made with their mean.
 * Gradients are gathered in buckets, in reverse order of registration, and a bucket is reduced while backward goes on; so ranks
 * take about as long as the slowest of them alone. All ranks make the same calls: one ag_ddp_sync a step.
 *
 * p.grad is the mean after ag_ddp_sync, and not defined between backward and there. It lies in the job's memory: a view, which
 * ag_tensor_set_grad(p, NULL) takes away as usual. Gradients that were not cleared add up as they do without a job. A parameter
 * without a gradient counts as zeros where other ranks have one; where none has, p.grad is NULL.
 *
 * A job belongs to the thread that trains. It makes a group of its own of the ranks of the one it is opened with, so that other
 * collectives can be called at any time. A group of size 1 is no special case. */
typedef struct ag_ddp ag_ddp;
typedef struct ag_ddp_item {
    const char *name;
    ag_tensor *tensor;
} ag_ddp_item;

/* Zero and NULL mean the default. The same on all ranks. */
typedef struct ag_ddp_options {
    int64_t bucket_bytes, first_bucket_bytes; /* 8 MiB; 1 MiB: the first one starts early */
    const char *compress;     /* gradients travel as "bf16" or "f16", are summed in f32 and come back in their own dtype */
    const char *start;        /* "broadcast": rank 0's values for all; "verify": they must be equal */
    const char *check_finite; /* "skip": tell by ag_ddp_result; "error": AG_E_VALUE on all ranks; NULL: do not look */
    bool shared_result;       /* p.grad is memory that all ranks of a host read: less time and memory; nobody may write to it */
    const char *shard;        /* each rank updates the parameters it owns (ag_ddp_place.owner), and all call ag_ddp_share then.
                                 "ranks": all ranks divide them; "host": those of each host do, and have them in common */
    double timeout_s;         /* of a reduction; the group's */
    const char *refusal;      /* this rank cannot register; the others are told why, and the call fails on all */
} ag_ddp_options;

/* ag_ddp_check tells whether a tensor can be a parameter of a job: AG_OK, or the record says why not and what to do. AG_E_KIND
 * (not a float dtype), AG_E_UNSUPPORTED (device without collectives), AG_E_AUTODIFF (not a leaf, or without requires_grad),
 * AG_E_STATE (registered already). */
AG_API ag_status ag_ddp_check(ag_tensor *tensor);
/* ag_ddp_open registers parameters, on all ranks of group together, and makes the values of parameters and buffers (tensors of
 * any dtype that are not trained) equal. Names, dtypes, shapes, order and options are compared first: AG_E_MISMATCH names the
 * first difference, on all ranks. The job holds the tensors. Errors: those of ag_ddp_check, AG_E_VALUE (options), and of groups. */
AG_API ag_status ag_ddp_open(ag_group *group, const ag_ddp_item *parameters, int num_parameters, const ag_ddp_item *buffers,
                             int num_buffers, const ag_ddp_options *options, ag_ddp **out);
/* ag_ddp_free ends the job; parameters and gradients are ordinary again. It waits for nobody, except that a job which is dropped
 * between backward and ag_ddp_sync ends its group first. NULL is accepted. */
AG_API void ag_ddp_free(ag_ddp *ddp);

typedef struct ag_ddp_place {
    const char *name; /* valid while the job lives */
    int position;     /* in the order of registration */
    int bucket;
    int owner;        /* the rank that updates it, in a job with `shard`; with "host" the one on this host */
    int64_t offset;   /* elements from the start of the bucket */
} ag_ddp_place;
/* ag_ddp_find returns the job that a tensor is registered with, NULL when it is with none; place may be NULL. */
AG_API ag_ddp *ag_ddp_find(const ag_tensor *tensor, ag_ddp_place *place);

/* While accumulating, backward adds gradients up on this rank; the next backward outside, or ag_ddp_sync, reduces the sums. */
AG_API void ag_ddp_set_accumulating(ag_ddp *ddp, bool is_accumulating);
AG_API bool ag_ddp_is_accumulating(const ag_ddp *ddp);

typedef struct ag_ddp_result {
    int num_contributors; /* ranks that had a batch; the mean is over these */
    bool is_finite;       /* false: the step is to be left out, the same on all ranks; see ag_ddp_report */
} ag_ddp_result;
/* ag_ddp_sync ends a step's gradients: reduces what backward did not, waits, and puts the means into the parameters' grad. A rank
 * without a batch calls it with contributes false, as often as the others have batches: when num_contributors is 0 nobody had
 * one, and no gradient is set. Errors: AG_E_STATE (accumulating), AG_E_VALUE (check_finite), those of groups; after
 * AG_E_INTERRUPTED it can be called again. */
AG_API ag_status ag_ddp_sync(ag_ddp *ddp, bool contributes, ag_ddp_result *out);
/* ag_ddp_verify compares all ranks' parameters, bit by bit (by hashes): AG_E_MISMATCH names the first that differs, and the ranks
 * where it does. */
AG_API ag_status ag_ddp_verify(ag_ddp *ddp);
/* ag_ddp_share gives all ranks the values of the parameters as their owners have them, after the owners have updated them: for
 * jobs with `shard` (else AG_E_STATE), in which a rank's optimizer has state for an n-th of the parameters.
 *
 * With "host" the parameters of all ranks of a host lie in one memory until the job is freed: nothing is sent, there is one copy
 * of them and of the optimizer's state a host, and what one rank writes to a parameter is written for all. A parameter must not
 * share its memory with a tensor that is none (AG_E_ARGUMENT), and addresses taken before ag_ddp_open are void after it. Between
 * ag_ddp_sync and ag_ddp_share only owners may touch parameters. Ranks without shared memory each update all, in their own copy. */
AG_API ag_status ag_ddp_share(ag_ddp *ddp);
/* ag_ddp_report names the parameters and ranks that had NaN or Inf in the last step; "" = none, or not looked for. */
AG_API const char *ag_ddp_report(const ag_ddp *ddp);
typedef struct ag_ddp_stats {
    int64_t num_steps, num_skipped, num_buckets;
    int64_t bytes;     /* of gradients that were reduced */
    int64_t num_early; /* reductions that backward started, out of num_steps * num_buckets */
    double hidden_s, exposed_s; /* time that reductions took while backward ran; that ag_ddp_sync waited for them */
} ag_ddp_stats;
AG_API void ag_ddp_stats_read(const ag_ddp *ddp, ag_ddp_stats *out);

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
AG_API int ag_num_processors(void);     /* that this process may use; fewer when its control group grants less time */
AG_API const char *ag_blas_info(void);  /* which BLAS the default device calls, or "none" */

#ifdef __cplusplus
}
#endif
#endif
