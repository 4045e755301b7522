/* round.c: gates: spin a few microseconds, then sleep on a futex, never for long. */
#include "dist/transport/shm/round.h"

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "platform/clock.h"
#include "platform/interrupt.h"
#include "platform/lock.h"

/* A pause takes 10 to 50 ns. Where ranks exchange little, longer spinning does not pay: a rank that comes so late is computing, or
 * waits for this very processor. Where a step takes hundreds of microseconds anyway, a sleep and its wake cost more: 4 MiB over
 * two bound ranks took 0.9 ms with short spins, 0.4 with long ones; 64 MiB 8.8 ms and 7.5. A yield could give a neighbour a whole
 * time slice. */
#define NUM_PAUSES         200
#define NUM_PAUSES_LARGE   1000
#define NUM_PAUSES_CROWDED 20
#define NUM_YIELDS_CROWDED 4
/* A lost wake or a signal costs no more than this; so does an interrupt, whose flag nobody rings for. */
#define SLEEP_NS 50000000

/* Not private: the word may be shared between processes. */
static void futex_sleep(_Atomic uint32_t *word, uint32_t expected, int64_t duration_ns) {
    struct timespec duration = {.tv_sec = duration_ns / 1000000000, .tv_nsec = duration_ns % 1000000000};
    syscall(SYS_futex, word, FUTEX_WAIT, expected, &duration, NULL, 0);
}

void gate_ring(gate *g) {
    /* Sequentially consistent, as are the two steps in sleep_at: the sleeper sees the new event, or is counted here. */
    atomic_fetch_add_explicit(&g->event, 1, memory_order_seq_cst);
    if (atomic_load_explicit(&g->num_waiting, memory_order_seq_cst) > 0)
        syscall(SYS_futex, &g->event, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void gate_raise(gate *g, uint64_t count) {
    /* Release: prints, slots and results of this step come before the count. */
    atomic_store_explicit(&g->count, count, memory_order_release);
    gate_ring(g);
}

static bool has_come(gate *g, uint64_t count) {
    /* Acquire: pairs with gate_raise. */
    return atomic_load_explicit(&g->count, memory_order_acquire) >= count;
}

static bool spin(const waiter *w, gate *g, uint64_t count) {
    int num_pauses = w->is_crowded ? NUM_PAUSES_CROWDED : w->is_large ? NUM_PAUSES_LARGE : NUM_PAUSES;
    for (int i = 0; i < num_pauses; i++) {
        if (has_come(g, count)) return true;
        cpu_pause();
    }
    for (int i = 0; w->is_crowded && i < NUM_YIELDS_CROWDED; i++) {
        if (has_come(g, count)) return true;
        sched_yield();
    }
    return has_come(g, count);
}

/* Why waiting has to end although the gate has not come to count, or WAIT_DONE when it may go on. */
static wait_outcome reason_to_end(const waiter *w, int peer, int64_t deadline_ns) {
    if (atomic_load_explicit(&w->header->abort_state, memory_order_acquire) == ABORT_SET) return WAIT_ABORTED;
    if (cancel_is_raised(w->cancel)) return WAIT_CANCELLED;
    /* Acquire: what the rank did before it left is seen below, in the last look at its gate. */
    if (atomic_load_explicit(&w->header->lines[peer].has_left, memory_order_acquire)) return WAIT_LEFT;
    if (clock_ns() >= deadline_ns) return WAIT_TIMEOUT;
    return !w->ignores_interrupt && interrupt_pending() ? WAIT_INTERRUPTED : WAIT_DONE;
}

/* Sleeps until the gate is rung or the slice is over, unless there is a reason not to. */
static wait_outcome sleep_at(waiter *w, gate *g, int peer, uint64_t count, int64_t deadline_ns) {
    atomic_fetch_add_explicit(&g->num_waiting, 1, memory_order_seq_cst);
    uint32_t event = atomic_load_explicit(&g->event, memory_order_seq_cst);
    wait_outcome outcome = WAIT_DONE;
    /* All of this is looked at after `event` was read: whatever changes later rings the gate, and the sleep ends at once. */
    if (!has_come(g, count)) {
        outcome = reason_to_end(w, peer, deadline_ns);
        if (outcome == WAIT_DONE) {
            int64_t left_ns = deadline_ns - clock_ns();
            if (left_ns > 0) futex_sleep(&g->event, event, left_ns < SLEEP_NS ? left_ns : SLEEP_NS);
        } else if (has_come(g, count)) {
            outcome = WAIT_DONE;
        }
    }
    atomic_fetch_sub_explicit(&g->num_waiting, 1, memory_order_relaxed);
    return outcome;
}

wait_outcome gate_wait(waiter *w, gate *g, int peer, uint64_t count, int64_t deadline_ns) {
    if (has_come(g, count) || spin(w, g, count)) return WAIT_DONE;
    wait_outcome outcome = WAIT_DONE;
    while (outcome == WAIT_DONE && !has_come(g, count)) outcome = sleep_at(w, g, peer, count, deadline_ns);
    return outcome;
}
