/* many_processors.c: preloaded, shows a system of 8192 processors of which three may be used, and tells on standard output which ones
 * a process is bound to. Compiled by bind_spec.lua. */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#define EXPORT      __attribute__((visibility("default")))
#define KERNEL_CPUS 8192

static const int numbers[] = {7, 1500, 8191};

/* As the kernel does, refuses a set that is smaller than its own. */
EXPORT int sched_getaffinity(pid_t pid, size_t num_bytes, cpu_set_t *set) {
    (void)pid;
    if (num_bytes < KERNEL_CPUS / 8) {
        errno = EINVAL;
        return -1;
    }
    memset(set, 0, num_bytes);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) CPU_SET_S((size_t)numbers[i], num_bytes, set);
    return 0;
}

EXPORT int sched_setaffinity(pid_t pid, size_t num_bytes, const cpu_set_t *set) {
    (void)pid;
    for (size_t cpu = 0; cpu < num_bytes * 8; cpu++)
        if (CPU_ISSET_S(cpu, num_bytes, set)) dprintf(1, "bound to %zu\n", cpu);
    return 0;
}
