/* cancel.h: the word that ends all waits of a rank, and why.
 *
 * One for each rank and epoch, shared by its groups. Any thread raises it, the first one wins; whoever waits looks at it and
 * returns cancel_error. It is never lowered: what comes after it is a new epoch with a new one.
 */
#ifndef ARGAND_DIST_TRANSPORT_CANCEL_H
#define ARGAND_DIST_TRANSPORT_CANCEL_H

#include <stdatomic.h>

#include "argand.h"
#include "platform/lock.h"

#define CANCEL_MAX_CULPRITS AG_MAX_CULPRITS

typedef struct cancel {
    _Atomic uint32_t is_raised;
    spin_lock lock; /* guards what follows; culprits may be added at any time */
    ag_status code; /* AG_E_PEER, AG_E_TIMEOUT, AG_E_MISMATCH, AG_E_STATE, AG_E_INTERRUPTED … */
    int num_culprits;
    int32_t culprits[CANCEL_MAX_CULPRITS]; /* ranks of the world */
    char reason[256];                      /* a sentence: "rank 2 (host a, pid 812) has ended without closing" */
    char hint[160];
} cancel;

/* cancel_cause is what a cancel says, at one time. */
typedef struct cancel_cause {
    ag_status code;
    int num_culprits;
    int32_t culprits[CANCEL_MAX_CULPRITS];
    char reason[256], hint[160];
} cancel_cause;

void cancel_init(cancel *c);
static inline bool cancel_is_raised(const cancel *c) {
    return atomic_load_explicit(&((cancel *)c)->is_raised, memory_order_acquire) != 0;
}
/* cancel_raise sets code and reason unless they are set already; true when this call was the first. culprit -1 = none. */
bool cancel_raise(cancel *c, ag_status code, int culprit, const char *reason, const char *hint);
/* cancel_raise_all is cancel_raise with several culprits, which are named only when this call is the first. */
bool cancel_raise_all(cancel *c, ag_status code, const int32_t *culprits, int num_culprits, const char *reason,
                      const char *hint);
/* cancel_add_culprit names one more rank, before or after the raising. */
void cancel_add_culprit(cancel *c, int culprit);
void cancel_read(cancel *c, cancel_cause *out);
/* cancel_cause_error sets this thread's error record from a cause, with the sequence of the call that was cut off (0 = none), and
 * returns the code. */
ag_status cancel_cause_error(const cancel_cause *cause, const char *op, uint64_t sequence);
/* cancel_error does it from a raised cancel. */
ag_status cancel_error(cancel *c, const char *op, uint64_t sequence);

#endif
