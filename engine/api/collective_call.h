/* collective_call.h: a public collective as a call of the algorithms: its words, its tensors' memory, what its print shows.
 *
 * Groups and the simulator make their calls with it, so both refuse the same with the same words.
 */
#ifndef ARGAND_API_COLLECTIVE_CALL_H
#define ARGAND_API_COLLECTIVE_CALL_H

#include "core/tensor.h"
#include "dist/algorithm/collective.h"

/* tensor_call is one rank's call with what it holds; all zeros holds nothing. */
typedef struct tensor_call {
    collective_call call; /* kind is COLLECTIVE_KIND_COUNT when the word for it is unknown */
    ag_tensor *input;     /* contiguous; NULL = none */
    ag_tensor *output;    /* contiguous; NULL = none */
    bool is_given;        /* output is the caller's `out`, whose version rises when it is written */
    int64_t *counts;      /* in elements: [size], and as many of the output in all_to_all */
    int ndim;             /* of the shape that all ranks share, for prints */
    int64_t dims[AG_MAX_NDIM];
} tensor_call;

/* tensor_call_parse fills in the words, rank, size and root. AG_E_VALUE for a word that is unknown. */
ag_status tensor_call_parse(const ag_collective *c, int rank, int size, tensor_call *out);
/* tensor_call_prepare checks a parsed call and takes what it needs. After a failure, too, `p` is to be deinitialized. */
ag_status tensor_call_prepare(const ag_collective *c, tensor_call *p);
/* tensor_call_take hands the result to the caller, as one that has been written; NULL where there is none. */
ag_tensor *tensor_call_take(tensor_call *p);
void tensor_call_deinit(tensor_call *p);

/* tensor_call_check_device: AG_E_DEVICE when it cannot take part in collectives. */
ag_status tensor_call_check_device(const char *kind, ag_device *device);

#endif
