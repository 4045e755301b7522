/* crc.c: CRC-32C: three streams at a time through the SSE 4.2 instruction, or eight bytes at a time through tables. */
#include "platform/crc.h"

#include <string.h>

/* Kounavis, Berry 2005: eight bytes a step, a table for each distance from the end of the step. */
static const uint32_t tables[8][256] = {
#include "platform/crc_table.inc"
};

uint32_t crc32c_portable(uint32_t crc, const void *bytes, size_t num_bytes) {
    const unsigned char *at = bytes;
    crc = ~crc;
    for (; num_bytes >= 8; at += 8, num_bytes -= 8) {
        uint32_t low = crc ^ ((uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24);
        crc = tables[7][low & 255] ^ tables[6][low >> 8 & 255] ^ tables[5][low >> 16 & 255] ^ tables[4][low >> 24] ^
              tables[3][at[4]] ^ tables[2][at[5]] ^ tables[1][at[6]] ^ tables[0][at[7]];
    }
    for (; num_bytes > 0; at++, num_bytes--) crc = tables[0][(crc ^ *at) & 255] ^ crc >> 8;
    return ~crc;
}

#if defined(__x86_64__)

#define POLYNOMIAL   0x82F63B78u
#define STREAM_BYTES 8192
#define STREAM_SHIFT 0x28461564u /* x^(8 * STREAM_BYTES) mod P */

/* What a state becomes when STREAM_BYTES zeros follow: its product with STREAM_SHIFT mod P; the highest bit is x^0. */
static uint32_t skip_stream(uint32_t crc) {
    uint32_t product = 0;
    for (uint32_t bit = 1u << 31, factor = STREAM_SHIFT; bit != 0; bit >>= 1) {
        product ^= crc & bit ? factor : 0;
        factor = factor >> 1 ^ (factor & 1 ? POLYNOMIAL : 0);
    }
    return product;
}

static inline uint64_t load(const unsigned char *at) {
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

/* The instruction takes three cycles and one can begin in each, so three parts of the data run side by side. */
__attribute__((target("sse4.2"))) static uint32_t crc_instruction(uint32_t start, const unsigned char *at, size_t num_bytes) {
    uint64_t crc = ~start;
    for (; num_bytes >= 3 * STREAM_BYTES; at += 3 * STREAM_BYTES, num_bytes -= 3 * STREAM_BYTES) {
        uint64_t second = 0, third = 0;
        for (size_t i = 0; i < STREAM_BYTES; i += 8) {
            crc = __builtin_ia32_crc32di(crc, load(at + i));
            second = __builtin_ia32_crc32di(second, load(at + STREAM_BYTES + i));
            third = __builtin_ia32_crc32di(third, load(at + 2 * STREAM_BYTES + i));
        }
        crc = skip_stream(skip_stream((uint32_t)crc) ^ (uint32_t)second) ^ (uint32_t)third;
    }
    for (; num_bytes >= 8; at += 8, num_bytes -= 8) crc = __builtin_ia32_crc32di(crc, load(at));
    for (; num_bytes > 0; at++, num_bytes--) crc = __builtin_ia32_crc32qi((uint32_t)crc, *at);
    return ~(uint32_t)crc;
}

uint32_t crc32c(uint32_t crc, const void *bytes, size_t num_bytes) {
    if (__builtin_cpu_supports("sse4.2")) return crc_instruction(crc, bytes, num_bytes);
    return crc32c_portable(crc, bytes, num_bytes);
}

#else

uint32_t crc32c(uint32_t crc, const void *bytes, size_t num_bytes) { return crc32c_portable(crc, bytes, num_bytes); }

#endif
