/* cpu.h: which processor this is and what it can do. */
#ifndef ARGAND_PLATFORM_CPU_H
#define ARGAND_PLATFORM_CPU_H

#include <stdint.h>

typedef enum cpu_isa { CPU_BASELINE, CPU_AVX2, CPU_AVX512, CPU_ISA_COUNT } cpu_isa;

cpu_isa cpu_detect(void); /* best usable level; ARGAND_ISA=baseline|avx2|avx512 lowers it */
const char *cpu_isa_name(cpu_isa isa);
const char *cpu_model(void); /* "AMD EPYC" */
int cpu_count(void);         /* processors this process may use, at least 1 */
int cpu_quota(void);         /* whole processors' time that its control group grants; 0 = no limit */

#define CPU_SET_WORDS 16
/* cpu_set_allowed sets bit i of the words for each processor i that the calling thread may run on; none where the system does
 * not tell, or where a number is above 1023. */
void cpu_set_allowed(uint64_t words[CPU_SET_WORDS]);

#endif
