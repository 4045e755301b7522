/* builtin.c: the backends of this build, the default first. */
#include "cpu/backend_cpu.h"
#include "reference/reference.h"

extern const backend *const builtin_backends[];
extern const int builtin_backend_count;

const backend *const builtin_backends[] = {&cpu_backend, &reference_backend};
const int builtin_backend_count = (int)(sizeof builtin_backends / sizeof *builtin_backends);
