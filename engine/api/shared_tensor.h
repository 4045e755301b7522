/* shared_tensor.h: finding the shared block that a call's tensors lie in. */
#ifndef ARGAND_API_SHARED_TENSOR_H
#define ARGAND_API_SHARED_TENSOR_H

#include "api/collective_call.h"
#include "dist/group/group.h"

/* shared_tensor_find sets the request's block when an all_reduce reads and writes shared tensors of g, which are known by their
 * addresses: then nothing has to be copied. */
void shared_tensor_find(ag_group *g, const tensor_call *p, group_request *request);

#endif
