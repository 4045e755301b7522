/* init.c: brings the engine up when the library is loaded: op table, devices, tape. */
#include "autograd/tape.h"
#include "backend/backend.h"
#include "ops/op.h"

/* backends/builtin.c: the backends that this build contains, the default first. */
extern const backend *const builtin_backends[];
extern const int builtin_backend_count;

__attribute__((constructor)) static void engine_init(void) {
    op_table_init();
    registry_init(builtin_backends, builtin_backend_count);
    tape_init();
}
