/* hierarchy_run.h: the state of a hierarchical transport, and how it runs a call. Private to hierarchy*.c. */
#ifndef ARGAND_DIST_TRANSPORT_HIERARCHY_RUN_H
#define ARGAND_DIST_TRANSPORT_HIERARCHY_RUN_H

#include "dist/transport/hierarchy.h"

typedef struct hierarchy {
    transport base; /* first: a transport * is a hierarchy * */
    hierarchy_map *map;
    transport *local, *leaders, *flat;
    int64_t *local_counts; /* [num_local] room for the counts of a step */
    int64_t *host_counts;  /* [num_hosts] */
    int64_t *marks;        /* [1 + num_hosts] one element of any dtype each: what leaders exchange only to compare prints */
    int64_t num_calls;
} hierarchy;

/* hierarchy_has_steps: the kinds that are run in steps; the others go over the flat transport. */
static inline bool hierarchy_has_steps(collective_kind kind) {
    return kind == COLLECTIVE_ALL_REDUCE || kind == COLLECTIVE_REDUCE || kind == COLLECTIVE_BROADCAST ||
           kind == COLLECTIVE_ALL_GATHER || kind == COLLECTIVE_BARRIER;
}

ag_status hierarchy_run(transport *t, const transport_call *request, bool *is_over);

#endif
