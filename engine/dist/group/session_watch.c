/* session_watch.c: pidfds of the other ranks of this host, and the token that tells who they are. */
#include "dist/group/session_watch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/memory.h"
#include "platform/clock.h"

/* Reads the start of a file of /proc as text; false when there is nothing to be read. */
static bool read_text(const char *path, char *text, size_t len) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    ssize_t got;
    do got = read(fd, text, len - 1);
    while (got < 0 && errno == EINTR);
    close(fd);
    text[got > 0 ? got : 0] = '\0';
    return got > 0;
}

/* "net:[4026531840]" is the name of a namespace: the number is its inode. */
static bool find_namespace(const char *name, bool is_optional, uint32_t *out) {
    char path[40], target[64];
    snprintf(path, sizeof path, "/proc/self/ns/%s", name);
    ssize_t len = readlink(path, target, sizeof target - 1);
    *out = 0;
    if (len <= 0) return is_optional && errno == ENOENT;
    target[len] = '\0';
    const char *bracket = strchr(target, '[');
    if (!bracket) return false;
    *out = (uint32_t)strtoul(bracket + 1, NULL, 10);
    return *out != 0;
}

void watch_host_token(char *token, size_t len) {
    char boot[64];
    uint32_t net = 0, pid = 0, ipc = 0, user = 0, time = 0;
    /* Start times are told in the reader's time namespace: ranks in different ones could not compare them. */
    bool is_known = read_text("/proc/sys/kernel/random/boot_id", boot, sizeof boot) && find_namespace("net", false, &net) &&
                    find_namespace("pid", false, &pid) && find_namespace("ipc", false, &ipc) &&
                    find_namespace("user", true, &user) && find_namespace("time", true, &time);
    if (is_known) {
        size_t end = 0;
        for (size_t i = 0; boot[i] && end < 32; i++)
            if (boot[i] != '-' && boot[i] != '\n') boot[end++] = boot[i];
        boot[end] = '\0';
        snprintf(token, len, "%s%08x%08x%08x%08x%08x", boot, net, pid, ipc, user, time);
        return;
    }
    uint64_t random[2] = {(uint64_t)clock_ns(), (uint64_t)getpid()};
    if (getrandom(random, sizeof random, GRND_NONBLOCK) < 0) random[0] ^= (uint64_t)(uintptr_t)token;
    snprintf(token, len, "unknown%016llx%016llx", (unsigned long long)random[0], (unsigned long long)random[1]);
}

/* /proc may be that of another pid namespace, where our pids are others' (unshare --pid without a /proc of its own). */
static bool proc_is_ours(void) {
    char target[32];
    ssize_t len = readlink("/proc/self", target, sizeof target - 1);
    if (len <= 0) return false;
    target[len] = '\0';
    return strtoll(target, NULL, 10) == getpid();
}

/* /proc/pid/stat: "pid (name) state ppid ..."; the name may hold anything, so counting begins after the last bracket. The
 * state is field 3, the start time field 22. */
static uint64_t read_stat(int64_t pid, char *state) {
    char path[40], text[1024];
    snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
    *state = '\0';
    if (!proc_is_ours() || !read_text(path, text, sizeof text)) return 0;
    const char *at = strrchr(text, ')');
    if (!at || at[1] != ' ') return 0;
    *state = at[2];
    for (int field = 2; field < 22; field++) {
        at = strchr(at + 1, ' ');
        if (!at) return 0;
    }
    return strtoull(at + 1, NULL, 10);
}

uint64_t watch_start_time(int64_t pid) {
    char state;
    return read_stat(pid, &state);
}

bool watch_is_alive(int64_t pid, uint64_t start_time) {
    char state;
    uint64_t found = read_stat(pid, &state);
    if (found == 0) return kill((pid_t)pid, 0) == 0 || errno == EPERM; /* no /proc, or one that hides others */
    return (start_time == 0 || found == start_time) && state != 'Z' && state != 'X';
}

bool watch_init(watch *w, int size) {
    *w = (watch){.epoll_fd = -1};
    int *pidfds = heap_alloc((size_t)size * sizeof *pidfds);
    int epoll_fd = pidfds ? epoll_create1(EPOLL_CLOEXEC) : -1;
    if (epoll_fd < 0) {
        heap_free(pidfds);
        return false;
    }
    for (int i = 0; i < size; i++) pidfds[i] = -1;
    *w = (watch){.epoll_fd = epoll_fd, .pidfds = pidfds, .size = size};
    return true;
}

void watch_deinit(watch *w) {
    if (w->pidfds) {
        for (int i = 0; i < w->size; i++)
            if (w->pidfds[i] >= 0) close(w->pidfds[i]);
        close(w->epoll_fd);
        heap_free(w->pidfds);
    }
    *w = (watch){.epoll_fd = -1};
}

watch_outcome watch_add(watch *w, int rank, int64_t pid, uint64_t start_time) {
    int fd = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);
    if (fd < 0) return errno == ESRCH ? WATCH_GONE : WATCH_IMPOSSIBLE;
    /* The pid may be another process's by now. Whose the descriptor is does not change any more, so look after opening it. */
    uint64_t found = watch_start_time(pid);
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)rank};
    if (found != 0 && start_time != 0 && found != start_time) {
        close(fd);
        return WATCH_GONE;
    }
    if (epoll_ctl(w->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
        close(fd);
        return WATCH_IMPOSSIBLE;
    }
    w->pidfds[rank] = fd;
    return WATCH_ON;
}

void watch_drop(watch *w, int rank) {
    if (w->pidfds[rank] < 0) return;
    epoll_ctl(w->epoll_fd, EPOLL_CTL_DEL, w->pidfds[rank], NULL); /* closing alone would not, with a copy in a forked child */
    close(w->pidfds[rank]);
    w->pidfds[rank] = -1;
}

int watch_next(watch *w) {
    struct epoll_event event;
    int count;
    do count = epoll_wait(w->epoll_fd, &event, 1, 0);
    while (count < 0 && errno == EINTR);
    if (count < 1) return -1;
    int rank = (int)event.data.u32;
    watch_drop(w, rank);
    return rank;
}
