/* cpu.c: instruction sets, name and number of the processors. */
#include "platform/cpu.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef __linux__
#include <sched.h>
#endif

static const char *const isa_names[CPU_ISA_COUNT] = {
    [CPU_BASELINE] = "baseline",
    [CPU_AVX2] = "avx2",
    [CPU_AVX512] = "avx512",
};

static char model_name[96] = "unknown processor";
static pthread_once_t model_once = PTHREAD_ONCE_INIT;

static cpu_isa detect_hardware(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_cpu_init();
    bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c") &&
                    __builtin_cpu_supports("bmi2");
    bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if (has_avx2 && has_avx512) return CPU_AVX512;
    if (has_avx2) return CPU_AVX2;
#endif
    return CPU_BASELINE;
}

cpu_isa cpu_detect(void) {
    cpu_isa best = detect_hardware();
    const char *wanted = getenv("ARGAND_ISA");
    if (!wanted) return best;
    for (int isa = 0; isa < (int)best; isa++)
        if (strcmp(wanted, isa_names[isa]) == 0) return (cpu_isa)isa;
    return best;
}

const char *cpu_isa_name(cpu_isa isa) { return isa_names[isa]; }

/* The kernel writes "model name\t: AMD EPYC 9xx5" once a processor; the first is enough. */
static void read_model(void) {
    FILE *info = fopen("/proc/cpuinfo", "re");
    if (!info) return;
    char line[256];
    while (fgets(line, sizeof line, info)) {
        if (strncmp(line, "model name", 10) != 0) continue;
        const char *value = strchr(line, ':');
        if (!value) break;
        value += 1 + strspn(value + 1, " \t");
        int len = (int)strcspn(value, "\n");
        if (len > 0) snprintf(model_name, sizeof model_name, "%.*s", len, value);
        break;
    }
    fclose(info);
}

const char *cpu_model(void) {
    pthread_once(&model_once, read_model);
    return model_name;
}

static long long number_in(const char *path) {
    long long number = 0;
    FILE *file = fopen(path, "re");
    if (file && fscanf(file, "%lld", &number) != 1) number = 0;
    if (file) fclose(file);
    return number;
}

/* A container's share of the machine ("max 100000" or "150000 100000": quota and period in us), rounded up; 0 = no bound. */
int cpu_quota(void) {
    FILE *file = fopen("/sys/fs/cgroup/cpu.max", "re");
    long long quota = 0, period = 0;
    if (file) {
        if (fscanf(file, "%lld %lld", &quota, &period) != 2) quota = 0;
        fclose(file);
    } else { /* the first version of control groups; -1 = no bound */
        quota = number_in("/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
        period = number_in("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
    }
    return quota > 0 && period > 0 ? (int)((quota + period - 1) / period) : 0;
}

#ifdef __linux__
/* The processors that this thread may run on, to be freed by CPU_FREE; NULL where the system does not tell. */
static cpu_set_t *read_affinity(size_t *size_bytes) {
    /* The kernel refuses a mask smaller than its own: grow until it fits. */
    for (int num_cpus = 1024; num_cpus <= 1 << 18; num_cpus *= 4) {
        cpu_set_t *mask = CPU_ALLOC((size_t)num_cpus);
        if (!mask) return NULL;
        *size_bytes = CPU_ALLOC_SIZE((size_t)num_cpus);
        if (sched_getaffinity(0, *size_bytes, mask) == 0) return mask;
        CPU_FREE(mask);
    }
    return NULL;
}

static int count_by_affinity(void) {
    size_t size_bytes;
    cpu_set_t *mask = read_affinity(&size_bytes);
    int count = mask ? CPU_COUNT_S(size_bytes, mask) : 0;
    if (mask) CPU_FREE(mask);
    return count;
}

void cpu_set_allowed(uint64_t words[CPU_SET_WORDS]) {
    size_t size_bytes;
    cpu_set_t *mask = read_affinity(&size_bytes);
    memset(words, 0, CPU_SET_WORDS * sizeof *words);
    for (size_t i = 0; mask && i < size_bytes * 8; i++) {
        if (!CPU_ISSET_S(i, size_bytes, mask)) continue;
        if (i >= CPU_SET_WORDS * 64) {
            memset(words, 0, CPU_SET_WORDS * sizeof *words);
            break;
        }
        words[i / 64] |= (uint64_t)1 << i % 64;
    }
    if (mask) CPU_FREE(mask);
}
#else
static int count_by_affinity(void) { return 0; }
void cpu_set_allowed(uint64_t words[CPU_SET_WORDS]) { memset(words, 0, CPU_SET_WORDS * sizeof *words); }
#endif

int cpu_count(void) {
    int count = count_by_affinity();
    if (count <= 0) count = (int)sysconf(_SC_NPROCESSORS_ONLN);
    int quota = cpu_quota();
    if (quota > 0 && quota < count) count = quota;
    return count > 0 ? count : 1;
}
