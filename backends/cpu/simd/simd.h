/* simd.h: names and vector width of the instruction set this file is being compiled for.
 *
 * Every source in this folder is compiled once per instruction set (CMake sets SIMD_ISA_NAME and the -m flags). A source
 * exports one const table, SIMD(<family>_kernels); cpu/<family>.h declares the type of the table and its instances;
 * cpu/dispatch.c picks the tables once at start. Nothing else here has external linkage.
 */
#ifndef ARGAND_CPU_SIMD_H
#define ARGAND_CPU_SIMD_H

#include <stdint.h>

#define SIMD_PASTE_(name, isa) name##_##isa
#define SIMD_PASTE(name, isa) SIMD_PASTE_(name, isa)
#define SIMD(name) SIMD_PASTE(name, SIMD_ISA_NAME)

#if defined(__AVX512F__)
#define SIMD_BYTES 64
#elif defined(__AVX2__)
#define SIMD_BYTES 32
#else
#define SIMD_BYTES 16
#endif
#define SIMD_F32 (SIMD_BYTES / 4)
#define SIMD_F64 (SIMD_BYTES / 8)

typedef float vf32 __attribute__((vector_size(SIMD_BYTES)));
typedef float vf32u __attribute__((vector_size(SIMD_BYTES), aligned(4))); /* loads and stores at any float address */
typedef int32_t vi32 __attribute__((vector_size(SIMD_BYTES)));
typedef double vf64 __attribute__((vector_size(SIMD_BYTES)));
typedef double vf64u __attribute__((vector_size(SIMD_BYTES), aligned(8)));

#endif
