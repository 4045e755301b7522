/* crc.h: CRC-32C (Castagnoli), by the processor's own instruction where it has one. */
#ifndef ARGAND_PLATFORM_CRC_H
#define ARGAND_PLATFORM_CRC_H

#include <stddef.h>
#include <stdint.h>

/* crc32c goes on with `crc` over bytes; start with 0. crc32c_portable gives the same without special instructions. */
uint32_t crc32c(uint32_t crc, const void *bytes, size_t num_bytes);
/* crc32c_copy also copies the bytes, which do not overlap. */
uint32_t crc32c_copy(uint32_t crc, void *restrict target, const void *restrict source, size_t num_bytes);
uint32_t crc32c_portable(uint32_t crc, const void *bytes, size_t num_bytes);

#endif
