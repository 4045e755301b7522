/* session_watch.h: which processes of this host live, and which ranks share it. */
#ifndef ARGAND_DIST_GROUP_SESSION_WATCH_H
#define ARGAND_DIST_GROUP_SESSION_WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* watch_host_token writes what is equal for two processes that can signal and share memory with one another: the boot id and
 * the namespaces (network, pid, ipc, user, time). Where the system does not tell, it is equal to nobody's. */
void watch_host_token(char *token, size_t len);
/* watch_start_time returns when a process of our pid namespace began, in ticks since boot; 0 = unknown or gone. */
uint64_t watch_start_time(int64_t pid);
/* watch_is_alive: the process of that pid that began then exists and is not a zombie. */
bool watch_is_alive(int64_t pid, uint64_t start_time);

/* A watch tells at once when one of many processes ends: pidfds in an epoll. */
typedef struct watch {
    int epoll_fd; /* readable when watch_next has something */
    int *pidfds;  /* [size], -1 = none */
    int size;
} watch;

typedef enum watch_outcome { WATCH_ON, WATCH_GONE, WATCH_IMPOSSIBLE } watch_outcome;

bool watch_init(watch *w, int size); /* false: no memory or no descriptor */
void watch_deinit(watch *w);         /* also of a zeroed one, or one that failed */
watch_outcome watch_add(watch *w, int rank, int64_t pid, uint64_t start_time);
void watch_drop(watch *w, int rank); /* its end is not told any more; a rank that is not watched is accepted */
int watch_next(watch *w);            /* a rank whose process has ended, each once; -1 = none at present */

#endif
