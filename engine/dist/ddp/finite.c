/* finite.c: the search for NaN and Inf in a run of gradients. */
#include <string.h>

#include "core/dtype.h"
#include "dist/ddp/ddp.h"

/* An element is Inf or NaN when all bits of its exponent are set. Elements need not be aligned. */
#define FIND(bits_type, exponent)                                                          \
    for (int64_t begin = 0; begin < count; begin += BLOCK) {                               \
        int64_t end = count - begin < BLOCK ? count : begin + BLOCK;                       \
        int found = 0;                                                                     \
        for (int64_t i = begin; i < end; i++) {                                            \
            bits_type bits;                                                                \
            memcpy(&bits, (const char *)elements + i * (int64_t)sizeof bits, sizeof bits); \
            found |= (bits & (exponent)) == (exponent);                                    \
        }                                                                                  \
        if (found) return false;                                                           \
    }

/* Long enough to be looked at as vectors, short enough to stop soon. */
#define BLOCK 4096

bool elements_are_finite(ag_dtype dtype, const void *elements, int64_t count) {
    if (dtype == AG_F64) {
        FIND(uint64_t, 0x7ff0000000000000u)
    } else if (dtype == AG_F32) {
        FIND(uint32_t, 0x7f800000u)
    } else if (dtype == AG_F16) {
        FIND(uint16_t, 0x7c00u)
    } else if (dtype == AG_BF16) {
        FIND(uint16_t, 0x7f80u)
    }
    return true;
}
