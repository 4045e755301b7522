/* error.h: how a failing function says what went wrong.
 *
 * A failing function fills this thread's record once, at the place that knows most, and returns the status; callers pass the
 * status on. The message is built from the fields, leaving out what is empty: "op: arg: expected E, got G; hint". Without an
 * `expected` the got text stands alone ("op: arg: G") and may be a sentence of its own.
 */
#ifndef ARGAND_CORE_ERROR_H
#define ARGAND_CORE_ERROR_H

#include "argand.h"

/* error_set fills the record and returns `code`. Any text may be NULL. `got` is a printf format for what follows. */
ag_status error_set(ag_status code, const char *op, const char *arg, const char *expected, const char *hint,
                    const char *got_format, ...) __attribute__((format(printf, 6, 7)));
/* error_memory is error_set for an allocation of `size_bytes` that failed. */
ag_status error_memory(const char *op, size_t size_bytes);
/* error_name_op puts `op` into a record that lower layers left without one. */
void error_name_op(const char *op);
/* error_rename_op puts `op` in place of the op that failed inside it; the argument stays when `keeps_arg`. */
void error_rename_op(const char *op, bool keeps_arg);
/* error_set_culprits adds to the record which ranks are to blame and the number of the call; the message is as it was. */
void error_set_culprits(const int32_t *culprits, int num_culprits, uint64_t sequence);
ag_error *error_record(void);
/* error_in is error_name_op for a status on its way out. */
static inline ag_status error_in(ag_status status, const char *op) {
    if (status != AG_OK) error_name_op(op);
    return status;
}

/* Leave the function with the status of `expression` when it is not AG_OK. */
#define AG_TRY(expression)                        \
    do {                                          \
        ag_status try_status_ = (expression);     \
        if (__builtin_expect(try_status_ != AG_OK, 0)) return try_status_; \
    } while (0)

#endif
