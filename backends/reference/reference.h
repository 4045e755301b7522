/* reference.h: the reference backend: naive loops in host memory, the oracle that other backends are held against. */
#ifndef ARGAND_REFERENCE_REFERENCE_H
#define ARGAND_REFERENCE_REFERENCE_H

#include "backend/backend.h"

extern const struct backend reference_backend;

#endif
