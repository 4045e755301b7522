/* cost.h: how long an algorithm takes by the alpha-beta-gamma model, and the choice that follows from it.
 *
 * The constants belong to the group: the transport measures them and all ranks must use the same ones, because all ranks must
 * choose the same algorithm. Formulas: Thakur, Rabenseifner, Gropp 2005; chain: (hops + segments - 1) segment times.
 */
#ifndef ARGAND_DIST_ALGORITHM_COST_H
#define ARGAND_DIST_ALGORITHM_COST_H

#include "dist/algorithm/collective.h"

typedef struct collective_cost {
    double alpha_s;          /* latency of a message */
    double beta_s_per_byte;  /* one byte on an edge */
    double gamma_s_per_byte; /* one byte reduced */
    double overhead_s;       /* a sender's time for each further message that it has on the way at once */
    double congestion;       /* >= 1: factor on beta when all ranks send to all at once */
} collective_cost;

/* collective_time_s estimates the call with call->algorithm, which is not ALGORITHM_ANY. */
double collective_time_s(const collective_call *call, const collective_cost *cost);
/* collective_choose returns the fastest algorithm of the kind; of equals the first of algorithm_list. Only kind, op, dtype,
 * size, counts and segment_bytes matter, so all ranks choose alike. */
collective_algorithm collective_choose(const collective_call *call, const collective_cost *cost);

#endif
