/* simulator.h: all ranks of a group in one thread, on a network in memory with virtual time; seeded and repeatable.
 *
 * The simulator is a driver of collectives as a transport is, and shows the contract of one:
 * - An edge (sender, receiver) carries each segment once, in order or in any order (keeps_order), with at most `window`
 *   segments that the receiver's collective has not taken. Segments for one peer leave in the order they were handed out.
 * - The bytes of a segment may be read until the sender is told collective_sent: half of them are read on arrival only.
 * - Loss of a rank: whoever sees its edge broken, or its heartbeats overdue, fails its own collective and tells every other
 *   rank ABORT(lost rank), once. Who is told does the same without telling on. A rank that has nothing left to do still
 *   listens: the group has ended for it, too. Aborts travel beside the segments and are not held up by windows.
 * - A silent rank neither acts nor closes its edges: only its heartbeats tell, to the lowest other rank.
 */
#ifndef ARGAND_DIST_SIMULATOR_SIMULATOR_H
#define ARGAND_DIST_SIMULATOR_SIMULATOR_H

#include "dist/algorithm/collective.h"

typedef enum simulation_fault {
    FAULT_NONE,
    FAULT_DEAD,          /* `fault_rank` ends at its event number `fault_event`: others see broken edges */
    FAULT_SILENT,        /* it stops there, with its edges open */
    FAULT_BLANK_SEGMENT, /* segment number `fault_event` of the run brings zeros: a bug that a test must find */
    FAULT_LOST_SEGMENT   /* it never comes: another one */
} simulation_fault;

typedef struct simulation {
    uint64_t seed;
    int size;
    bool keeps_order;
    int window;                    /* at least 1 */
    double min_delay_s, max_delay_s; /* of a segment or a message; one segment in a hundred takes ten times as long */
    double notice_s;               /* from a death to the broken edges */
    double expiry_s;               /* from a rank's last event to overdue heartbeats */
    double limit_s;                /* the virtual time at which who is not done counts as stuck */
    simulation_fault fault;
    int fault_rank;
    int64_t fault_event; /* from 1 */
} simulation;

typedef struct simulation_outcome {
    ag_status status;  /* AG_OK: all calls are complete and no rank was lost */
    int culprit;       /* the lost rank that this rank's error names, -1 = none */
    int num_completed; /* calls whose result is in place */
    bool is_stuck;     /* neither done nor failed at the limit */
    double end_s;      /* virtual time of the end, or of the error */
} simulation_outcome;

typedef struct simulation_report {
    bool fault_happened;
    double fault_s;
    int64_t num_segments, num_events;
} simulation_report;

/* simulate runs calls[rank * num_calls + i], i = 0, 1 ..., on every rank. rank, size and sequence of the calls are filled
 * in here. outcomes: [size]. Errors: AG_E_MEMORY, AG_E_ARGUMENT; what happens to ranks is in the outcomes. */
ag_status simulate(const simulation *setup, const collective_call *calls, int num_calls, simulation_outcome *outcomes,
                   simulation_report *report);

#endif
