/* exec.h: runs a call.
 *
 * exec_run: shape and dtype rule -> outputs -> kernel, else decomposition, else AG_E_UNSUPPORTED -> recorded on the tape when
 * an input is tracked. Half precision without a kernel of its own runs in f32. Storage is read through tensor_address only, so
 * that a later version may defer elementwise calls behind it.
 */
#ifndef ARGAND_EXEC_EXEC_H
#define ARGAND_EXEC_EXEC_H

#include "backend/backend.h"

/* What autograd decides about a call before it runs. */
typedef enum record_plan {
    RECORD_NOTHING,  /* no input is tracked, or recording is off */
    RECORD_NODE,     /* run, then record one node */
    RECORD_COMPOSED, /* the gradient is that of the decomposition: its calls are recorded instead */
    RECORD_REFUSED   /* tracked, but the op has no gradient; the error record is filled */
} record_plan;

typedef struct recorder {
    record_plan (*plan)(const ag_call *call);
    ag_status (*record)(ag_call *call); /* after the call ran; ties outputs to a new node */
    void (*pause)(void);                /* nested calls are not recorded until resume */
    void (*resume)(void);
} recorder;
void exec_set_recorder(const recorder *r);

/* exec_run runs a call whose inputs and attributes are set. On success the caller owns call->outputs; on failure they are
 * NULL. */
ag_status exec_run(ag_call *call);
/* exec_run_into is exec_run whose first output is written into `target`: same shape, same device; dtype of the result or one it
 * converts to. target may share storage with the inputs. Its version is bumped. arg: what the caller calls target. */
ag_status exec_run_into(ag_call *call, ag_tensor *target, const char *arg);
/* exec_refuse_overlap fails when target is a view that repeats elements (expand, unfold). */
ag_status exec_refuse_overlap(const ag_tensor *target, const char *op, const char *arg);
/* exec_infer fills call->out, compute and device from the rules, and nothing else. */
ag_status exec_infer(ag_call *call);
/* exec_view_geometry applies a view op's rule to a source geometry. */
ag_status exec_view_geometry(const ag_call *call, const view_geometry *source, view_geometry *result);

/* exec_copy writes source into target (same shape, same device), converting dtype. Neither is tracked; the version is not
 * bumped. */
ag_status exec_copy(ag_tensor *source, ag_tensor *target);
/* exec_contiguous returns tensor itself, retained, or a contiguous copy, untracked. */
ag_status exec_contiguous(ag_tensor *tensor, ag_tensor **out);
/* exec_convert returns a tensor of dtype with the same values, untracked; tensor itself, retained, when it has it already. */
ag_status exec_convert(ag_tensor *tensor, ag_dtype dtype, ag_tensor **out);

/* decompositions: exec/decompositions_*.c. A decomposition fills call->outputs by running other ops. */
struct expr;
typedef ag_status (*decomposition_fn)(struct expr *e, ag_call *call);

#endif
