/* transport_cases.h: what the parts of transport_test share: a world of ranks, running calls in it, and reporting. */
#ifndef ARGAND_SPEC_TRANSPORT_CASES_H
#define ARGAND_SPEC_TRANSPORT_CASES_H

#include <pthread.h>

#include "dist/transport/shm/arena.h"
#include "dist/transport/shm/layout.h"
#include "support/collective_reference.h"

extern int num_failures;
bool fail(const char *format, ...) __attribute__((format(printf, 1, 2))); /* any thread; the first one of a group is kept */
void expect(bool holds, const char *what);                                /* any thread */
void report(const char *name);                                            /* ends a group of cases */

/* world is an arena with its members. Their ranks of the world begin at FIRST_WORLD_RANK, to differ from those of the group. */
typedef struct world {
    int size;
    arena *arena;
    cancel cancels[MAX_RANKS];
    int32_t world_ranks[MAX_RANKS];
    transport *members[MAX_RANKS];
    char prefix[48], token[ARENA_TOKEN_BYTES];
} world;
#define FIRST_WORLD_RANK 10

void world_open(world *w, int size, bool is_local, size_t slot_bytes); /* ends the test when it cannot */
void world_join(world *w, int rank);                                   /* makes one member */
void world_close(world *w);

/* outcome of a call on one rank. */
typedef struct outcome {
    ag_status status;
    bool is_over;
    ag_error error;
} outcome;

/* turn is how a rank makes a call: a job's, with what is asked for on top. */
typedef struct turn {
    uint32_t flags;
    const char *refusal;
    int64_t more_in_print; /* added to the shape in the print: a call of another shape */
    const shared_block *block;
    size_t block_offset;
    double timeout_s; /* 0 = long enough for everything */
} turn;

outcome call_run(world *w, int rank, const collective_call *call, uint64_t sequence, const turn *how);
int64_t soon_ns(double seconds);

/* run_ranks runs body on one thread for each rank and waits for them. */
typedef void rank_body(world *w, int rank, void *context);
void run_ranks(world *w, rank_body *body, void *context);
/* start_ranks and join_ranks: the same, with the caller going on meanwhile. */
typedef struct crew {
    pthread_t threads[MAX_RANKS];
    struct crew_seat {
        world *world;
        int rank;
        rank_body *body;
        void *context;
    } seats[MAX_RANKS];
    int size;
} crew;
void start_ranks(crew *c, world *w, rank_body *body, void *context);
void join_ranks(crew *c);

/* A case of the matrix; place: 0 apart, 1 in place, 2 unaligned, 3 output an element behind the input. */
void make_job(job *j, job_options *o, int place, uint64_t *random);
const char *describe(const job_options *o, int place, char *buffer, size_t len);
/* for_each_case calls back for a thinned matrix of counts and places of one kind, op and dtype on `size` ranks. */
typedef void case_body(const job_options *o, int place, void *context);
void for_each_case(collective_kind kind, bool has_counts, int size, size_t slot_bytes, int64_t stride, int64_t *number,
                   case_body *body, void *context);
bool takes_counts(collective_kind kind);

void test_threads(int64_t stride);   /* transport_threads.c */
void test_failures(void);            /* transport_failures.c */
void test_processes(int64_t stride); /* transport_processes.c */
void test_large(void);

#endif
