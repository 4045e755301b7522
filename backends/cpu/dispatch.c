/* dispatch.c: the kernel tables of the instruction set in use, picked once at start. */
#include "cpu/convert.h"
#include "cpu/cpu.h"
#include "cpu/elementwise.h"
#include "cpu/fused.h"
#include "cpu/gemm.h"
#include "cpu/reduce_kernels.h"

struct kernel_tables {
    const struct elementwise_kernels *elementwise;
    const struct convert_kernels *convert;
    const struct reduce_kernels *reduce;
    const struct fused_kernels *fused;
};

#define TABLES(isa) \
    {&elementwise_kernels_##isa, &convert_kernels_##isa, &reduce_kernels_##isa, &fused_kernels_##isa}
static const struct kernel_tables tables[CPU_ISA_COUNT] = {
    [CPU_BASELINE] = TABLES(baseline),
    [CPU_AVX2] = TABLES(avx2),
    [CPU_AVX512] = TABLES(avx512),
};

static struct kernel_tables in_use; /* a copy: one load less in every call */

void cpu_dispatch_init(void) {
    cpu_isa isa = cpu_detect();
    in_use = tables[isa];
    gemm_select(isa);
}

const struct elementwise_kernels *cpu_elementwise_kernels(void) { return in_use.elementwise; }
const struct convert_kernels *cpu_convert_kernels(void) { return in_use.convert; }
const struct reduce_kernels *cpu_reduce_kernels(void) { return in_use.reduce; }
const struct fused_kernels *cpu_fused_kernels(void) { return in_use.fused; }
