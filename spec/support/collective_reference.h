/* collective_reference.h: what a collective has to give, computed by one loop over whole inputs; for collective_test. */
#ifndef ARGAND_SPEC_COLLECTIVE_REFERENCE_H
#define ARGAND_SPEC_COLLECTIVE_REFERENCE_H

#include "dist/algorithm/collective.h"

#define MAX_RANKS 8

/* job is one call on all ranks, with its buffers in one block of memory. */
typedef struct job {
    int size;
    collective_call calls[MAX_RANKS];
    int64_t input_length[MAX_RANKS], output_length[MAX_RANKS];
    int64_t counts[MAX_RANKS][MAX_RANKS]; /* of all_to_all: what row's rank sends to column's; else row 0 */
    int64_t output_counts[MAX_RANKS][MAX_RANKS];
    bool is_in_place;
    char *original[MAX_RANKS]; /* copies of the inputs */
    char *expected[MAX_RANKS]; /* of the outputs */
    char *memory;
} job;

typedef struct job_options {
    collective_kind kind;
    collective_algorithm algorithm;
    reduce_op op;
    ag_dtype dtype;
    int size, root, other; /* other: the receiver of a send; the rest of the ranks does nothing */
    int64_t count;
    bool has_counts, is_in_place, is_unaligned;
    size_t segment_bytes[MAX_RANKS];
} job_options;

/* random_next is splitmix64 (Steele, Lea, Flood 2014). */
uint64_t random_next(uint64_t *state);
/* job_make fills inputs at random and computes what has to come out. Free with job_free. */
void job_make(job *j, const job_options *options, uint64_t *random);
void job_free(job *j);
/* Whether the rank's output is what was expected, bit by bit; whether its input is what it was. */
bool job_is_right(const job *j, int rank);
bool job_input_is_intact(const job *j, int rank);

#endif
