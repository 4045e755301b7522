/* cancel.c: raising the word that ends all waits, and turning it into an error. */
#include "dist/transport/cancel.h"

#include <stdio.h>
#include <string.h>

#include "core/error.h"

void cancel_init(cancel *c) {
    memset(c, 0, sizeof *c);
    atomic_init(&c->is_raised, 0);
}

static void add_culprit(cancel *c, int culprit) {
    for (int i = 0; i < c->num_culprits; i++)
        if (c->culprits[i] == culprit) return;
    if (culprit >= 0 && c->num_culprits < CANCEL_MAX_CULPRITS) c->culprits[c->num_culprits++] = culprit;
}

bool cancel_raise_all(cancel *c, ag_status code, const int32_t *culprits, int num_culprits, const char *reason,
                      const char *hint) {
    lock_acquire(&c->lock);
    bool is_first = !cancel_is_raised(c);
    if (is_first) {
        c->code = code;
        snprintf(c->reason, sizeof c->reason, "%s", reason ? reason : "");
        snprintf(c->hint, sizeof c->hint, "%s", hint ? hint : "");
        for (int i = 0; i < num_culprits; i++) add_culprit(c, culprits[i]);
        atomic_store_explicit(&c->is_raised, 1, memory_order_release);
    }
    lock_release(&c->lock);
    return is_first;
}

bool cancel_raise(cancel *c, ag_status code, int culprit, const char *reason, const char *hint) {
    return cancel_raise_all(c, code, &(int32_t){culprit}, 1, reason, hint);
}

void cancel_add_culprit(cancel *c, int culprit) {
    lock_acquire(&c->lock);
    add_culprit(c, culprit);
    lock_release(&c->lock);
}

void cancel_read(cancel *c, cancel_cause *out) {
    lock_acquire(&c->lock);
    out->code = c->code;
    out->num_culprits = c->num_culprits;
    memcpy(out->culprits, c->culprits, sizeof out->culprits);
    memcpy(out->reason, c->reason, sizeof out->reason);
    memcpy(out->hint, c->hint, sizeof out->hint);
    lock_release(&c->lock);
}

ag_status cancel_cause_error(const cancel_cause *cause, const char *op, uint64_t sequence) {
    error_set(cause->code, op, NULL, NULL, cause->hint, "%s", cause->reason);
    error_set_culprits(cause->culprits, cause->num_culprits, sequence);
    return cause->code;
}

ag_status cancel_error(cancel *c, const char *op, uint64_t sequence) {
    cancel_cause cause;
    cancel_read(c, &cause);
    return cancel_cause_error(&cause, op, sequence);
}
