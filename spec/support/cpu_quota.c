/* cpu_quota.c: preloaded, shows a control group that grants one processor's time. Compiled by run_streams_spec.lua. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

__attribute__((visibility("default"))) FILE *fopen(const char *path, const char *mode) {
    static char text[] = "100000 100000\n";
    FILE *(*next)(const char *, const char *) = (FILE * (*)(const char *, const char *)) dlsym(RTLD_NEXT, "fopen");
    return strcmp(path, "/sys/fs/cgroup/cpu.max") == 0 ? fmemopen(text, strlen(text), "r") : next(path, mode);
}
