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

bool cancel_raise(cancel *c, ag_status code, int culprit, const char *reason, const char *hint) {
    lock_acquire(&c->lock);
    bool is_first = !cancel_is_raised(c);
    if (is_first) {
        c->code = code;
        snprintf(c->reason, sizeof c->reason, "%s", reason ? reason : "");
        snprintf(c->hint, sizeof c->hint, "%s", hint ? hint : "");
        add_culprit(c, culprit);
        atomic_store_explicit(&c->is_raised, 1, memory_order_release);
    }
    lock_release(&c->lock);
    return is_first;
}

void cancel_add_culprit(cancel *c, int culprit) {
    lock_acquire(&c->lock);
    add_culprit(c, culprit);
    lock_release(&c->lock);
}

ag_status cancel_error(cancel *c, const char *op, uint64_t sequence) {
    cancel copy;
    lock_acquire(&c->lock);
    memcpy(copy.culprits, c->culprits, sizeof copy.culprits);
    memcpy(copy.reason, c->reason, sizeof copy.reason);
    memcpy(copy.hint, c->hint, sizeof copy.hint);
    copy.num_culprits = c->num_culprits;
    copy.code = c->code;
    lock_release(&c->lock);
    error_set(copy.code, op, NULL, NULL, copy.hint, "%s", copy.reason);
    error_set_culprits(copy.culprits, copy.num_culprits, sequence);
    return copy.code;
}
