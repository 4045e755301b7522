/* where.c: selection between two tensors by a condition. */
#include "cpu/cpu.h"
#include "cpu/elementwise.h"

static int size_log2(size_t size) { return size == 8 ? 3 : size == 4 ? 2 : size == 2 ? 1 : 0; }

/* output = condition ? a : b, all broadcast; a and b are converted to the compute dtype, whose bits are moved untouched. */
ag_status cpu_where(ag_call *call) {
    ag_dtype compute = call->compute == AG_NO_DTYPE ? call->out[0].dtype : call->compute;
    struct elementwise_run run = {.fn = cpu_elementwise_kernels()->select[size_log2(dtype_size(compute))],
                                  .num_inputs = 3,
                                  .scalar_inputs = 6,
                                  .inputs = {call->inputs[0], call->inputs[1], call->inputs[2]},
                                  .wanted = {AG_BOOL, compute, compute},
                                  .output = call->outputs[0],
                                  .result = compute,
                                  .grain = 32768};
    elementwise_run_strided(&run);
    return elementwise_status(call);
}
