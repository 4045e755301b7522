/* random.h: Philox 4x32-10, a counter-based generator (Salmon et al., SC'11): number i of a stream depends on (seed, i) only,
 * so kernels may draw in any order and on any number of threads, and a recomputation draws the same numbers. */
#ifndef ARGAND_CORE_RANDOM_H
#define ARGAND_CORE_RANDOM_H

#include "argand.h"

struct ag_generator {
    uint64_t seed;
    uint64_t offset; /* in blocks of four 32-bit numbers, the next unused one */
};

ag_generator *random_default(void);
/* random_reserve takes num_blocks blocks off the generator's stream; generator NULL = the default one. */
void random_reserve(ag_generator *generator, uint64_t num_blocks, uint64_t *seed, uint64_t *offset);

/* philox writes block `counter` of stream `seed`: four independent uniform 32-bit numbers. */
static inline void philox(uint64_t seed, uint64_t counter, uint32_t out[4]) {
    uint32_t c0 = (uint32_t)counter, c1 = (uint32_t)(counter >> 32), c2 = 0, c3 = 0;
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

/* uniform_float maps 32 random bits to [0, 1) in steps of 2^-24; uniform_double takes 64 bits, steps of 2^-53. */
static inline float uniform_float(uint32_t bits) { return (float)(bits >> 8) * 0x1p-24f; }
static inline double uniform_double(uint32_t high, uint32_t low) {
    return (double)((((uint64_t)high << 32) | low) >> 11) * 0x1p-53;
}

#endif
