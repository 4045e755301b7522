/* call_print.h: what all ranks must agree on in a call, small enough to travel with every message.
 *
 * Ranks compare prints before they touch data: a different call on one rank becomes an error that names both, without a
 * message of its own.
 */
#ifndef ARGAND_DIST_TRANSPORT_CALL_PRINT_H
#define ARGAND_DIST_TRANSPORT_CALL_PRINT_H

#include "dist/algorithm/collective.h"

#define CALL_PRINT_DIMS 5 /* more are in the hash only */

typedef enum call_print_flag {
    CALL_REFUSED = 1, /* this rank cannot make the call: the reason is told beside the print */
    CALL_ABSENT = 2,  /* this rank has nothing to contribute (uneven batches): its elements do not count */
    CALL_SPLIT = 4,   /* the call makes a group of dims[0] ranks */
    CALL_REGISTER = 8 /* it begins the registration of parameters */
} call_print_flag;
#define CALL_FLAGS (CALL_REFUSED | CALL_ABSENT | CALL_SPLIT | CALL_REGISTER)

/* 72 bytes without padding; in memory as the machine has it, on the wire little-endian (wire.h). */
typedef struct call_print {
    uint64_t sequence; /* of the group, from 1; of send and receive: of the pair */
    int64_t count;     /* elements of the tensor that the user gave: numel */
    uint32_t hash;     /* over kind, op, dtype, algorithm, root, count, all dims, counts: equal prints have equal hashes */
    int32_t root;
    uint8_t kind, op, algorithm, ndim; /* collective_kind, reduce_op, collective_algorithm; ndim of the user's tensor */
    int8_t dtype;                      /* ag_dtype */
    uint8_t flags, reserved[2];        /* reserved: 0 */
    int64_t dims[CALL_PRINT_DIMS];     /* of the user's tensor; -1: each rank has its own; 0 beyond ndim */
} call_print;

/* call_print_make fills a print. dims: [ndim] of the user's tensor. For the v forms `counts` ([size], or NULL) goes into the
 * hash. Send and receive of a pair have equal prints: both are kind COLLECTIVE_SEND with root 0. */
void call_print_make(call_print *out, const collective_call *call, int ndim, const int64_t *dims);
/* call_print_agree compares all but flags. */
bool call_print_agree(const call_print *a, const call_print *b);
/* call_print_text writes "all_reduce(sum) of f32[3, 4]" or "broadcast of f32[10], root 2", "group of 3 ranks" or "register", and
 * returns buffer. */
const char *call_print_text(const call_print *print, char *buffer, size_t len);
/* call_print_reason copies num_bytes of what another rank says, '?' for what is no character, as far as they fit. */
void call_print_reason(char *out, size_t len, const char *text, size_t num_bytes);
/* call_print_mismatch sets the record (AG_E_MISMATCH) for two ranks of the group whose prints differ: "rank 0 called X, rank 2
 * called Y"; the lower rank is named first, whoever asks, so that the sentence is the same on all ranks. `op` of the record is
 * a's kind. */
ag_status call_print_mismatch(int rank_a, const call_print *a, int rank_b, const call_print *b);

#endif
