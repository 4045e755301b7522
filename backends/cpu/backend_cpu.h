/* backend_cpu.h: the CPU backend. */
#ifndef ARGAND_CPU_BACKEND_CPU_H
#define ARGAND_CPU_BACKEND_CPU_H

#include "backend/backend.h"

extern const backend cpu_backend;

#endif
