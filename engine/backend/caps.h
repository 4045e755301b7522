/* caps.h: capability queries; see caps.c. */
#ifndef ARGAND_BACKEND_CAPS_H
#define ARGAND_BACKEND_CAPS_H

#include "backend/backend.h"

/* param_admits tells whether a tensor parameter takes a tensor of dtype. */
bool param_admits(param_type type, ag_dtype dtype);
/* caps_query: how op runs on device for inputs of dtype; reason[len] gets why not. Takes no lock and allocates nothing. */
ag_support caps_query(const struct ag_op *op, const ag_device *device, ag_dtype dtype, char *reason, size_t len);

#endif
