/* handover.c: memfds, and SCM_RIGHTS over a unix socket with a token and the user's id as proof. */
#include "dist/transport/shm/handover.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "core/error.h"
#include "platform/clock.h"
#include "platform/interrupt.h"

#define SEALS              (F_SEAL_SHRINK | F_SEAL_GROW)
#define POLL_MS            100        /* how often a wait looks at the interrupt flag */
#define TOKEN_WAIT_NS      1000000000 /* how long one peer may keep the others waiting */
#define OP                 "shared memory"
#define RESERVE_STEP_BYTES ((size_t)1 << 20)

static ag_status reserve_error(size_t size_bytes, const char *why) {
    return error_set(AG_E_MEMORY, OP, NULL, NULL,
                     "free memory, raise the limits (ulimit -f, the container's memory), or choose another transport",
                     "cannot reserve %zu bytes: %s", size_bytes, why);
}

ag_status memory_file_new(size_t size_bytes, int *out) {
    /* Passing the limit of file sizes would raise SIGXFSZ, which ends the process. */
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && size_bytes > limit.rlim_cur)
        return reserve_error(size_bytes, "more than the limit of file sizes");
    int fd = memfd_create("argand", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) return reserve_error(size_bytes, strerror(errno));
    int code = 0;
    /* In steps: a signal takes back what a call has got so far, and a profiler's come a hundred times a second. */
    for (size_t at = 0; at < size_bytes && code == 0;) {
        size_t left = size_bytes - at, step = left < RESERVE_STEP_BYTES ? left : RESERVE_STEP_BYTES;
        code = posix_fallocate(fd, (off_t)at, (off_t)step);
        if (code == 0)
            at += step;
        else if (code == EINTR && !interrupt_pending())
            code = 0;
    }
    if (code == 0 && fcntl(fd, F_ADD_SEALS, SEALS | F_SEAL_SEAL) != 0) code = errno;
    if (code != 0) {
        close(fd);
        return reserve_error(size_bytes, strerror(code));
    }
    *out = fd;
    return AG_OK;
}

ag_status memory_file_map(int fd, size_t least_bytes, void **out, size_t *size_bytes) {
    struct stat info;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & SEALS) != SEALS || fstat(fd, &info) != 0 || (size_t)info.st_size < least_bytes)
        return error_set(AG_E_FORMAT, OP, NULL, "sealed memory of this job", NULL, "a file that is not, or too small");
    size_t size = (size_t)info.st_size;
    /* Populated: a page fault for each 4 KiB would otherwise be part of the first calls. */
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (memory == MAP_FAILED) return reserve_error(size, strerror(errno));
    *out = memory;
    *size_bytes = size;
    return AG_OK;
}

static ag_status socket_error(const char *what, const char *address) {
    int code = errno;
    return error_set(AG_E_NETWORK, OP, NULL, NULL, "all ranks that share memory need one network namespace", "%s @%s: %s", what,
                     address, strerror(code));
}

static ag_status set_address(struct sockaddr_un *name, socklen_t *len, const char *address) {
    size_t length = strlen(address);
    memset(name, 0, sizeof *name);
    name->sun_family = AF_UNIX;
    if (length == 0 || length > sizeof name->sun_path - 1)
        return error_set(AG_E_ARGUMENT, OP, "address", "1 to 107 bytes", NULL, "%zu bytes", length);
    memcpy(name->sun_path + 1, address, length);
    *len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
    return AG_OK;
}

/* wait_ready polls one socket in slices; AG_E_TIMEOUT at the deadline, AG_E_PEER when nobody comes any more. */
static ag_status wait_ready(int fd, short events, const handover_limit *limit, const char *what) {
    for (;;) {
        if (interrupt_pending()) return error_set(AG_E_INTERRUPTED, OP, NULL, NULL, NULL, "interrupted");
        /* Asked before a last look: what came before the others went on is not missed. */
        bool is_over = limit->is_over && limit->is_over(limit->context);
        int64_t left_ns = limit->deadline_ns - clock_ns();
        if (left_ns <= 0) return error_set(AG_E_TIMEOUT, OP, NULL, NULL, "is another rank gone, or slow?", "%s in time", what);
        int wait_ms = is_over ? 0 : left_ns / 1000000 < POLL_MS ? (int)(left_ns / 1000000) + 1 : POLL_MS;
        struct pollfd waited = {.fd = fd, .events = events};
        if (poll(&waited, 1, wait_ms) > 0) return AG_OK;
        if (is_over) return error_set(AG_E_PEER, OP, NULL, NULL, NULL, "%s", what);
    }
}

static bool is_same_user(int fd) {
    struct ucred peer;
    socklen_t len = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 && peer.uid == geteuid();
}

ag_status handover_listen(const char *address, int *listen_fd) {
    struct sockaddr_un name;
    socklen_t len = 0;
    AG_TRY(set_address(&name, &len, address));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return socket_error("cannot make a socket for", address);
    if (bind(fd, (struct sockaddr *)&name, len) != 0 || listen(fd, SOMAXCONN) != 0) {
        ag_status status = socket_error("cannot listen at", address);
        close(fd);
        return status;
    }
    *listen_fd = fd;
    return AG_OK;
}

/* Reads the token; false when the peer is slow, gone, or has another one. All bytes are compared, whatever the first say. */
static bool has_token(int fd, const char token[ARENA_TOKEN_BYTES], const handover_limit *limit) {
    int64_t soon_ns = clock_ns() + TOKEN_WAIT_NS;
    handover_limit own = {.deadline_ns = soon_ns < limit->deadline_ns ? soon_ns : limit->deadline_ns};
    char got[ARENA_TOKEN_BYTES];
    for (size_t have = 0; have < sizeof got;) {
        if (wait_ready(fd, POLLIN, &own, "no token came") != AG_OK) return false;
        ssize_t num_read = recv(fd, got + have, sizeof got - have, MSG_DONTWAIT);
        if (num_read == 0 || (num_read < 0 && errno != EAGAIN && errno != EINTR)) return false;
        if (num_read > 0) have += (size_t)num_read;
    }
    unsigned char difference = 0;
    for (size_t i = 0; i < sizeof got; i++) difference |= (unsigned char)(got[i] ^ token[i]);
    return difference == 0;
}

/* Room for one descriptor, aligned as the kernel wants it. */
typedef union rights {
    struct cmsghdr header;
    char room[CMSG_SPACE(sizeof(int))];
} rights;

static bool send_descriptor(int socket_fd, int fd) {
    rights control;
    char byte = 1;
    memset(&control, 0, sizeof control);
    struct iovec data = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = control.room, .msg_controllen = sizeof control.room};
    struct cmsghdr *entry = CMSG_FIRSTHDR(&message);
    entry->cmsg_level = SOL_SOCKET;
    entry->cmsg_type = SCM_RIGHTS;
    entry->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(entry), &fd, sizeof fd);
    ssize_t num_sent;
    do num_sent = sendmsg(socket_fd, &message, MSG_NOSIGNAL);
    while (num_sent < 0 && errno == EINTR);
    return num_sent == 1;
}

ag_status handover_serve(int listen_fd, int fd, int num_peers, const char token[ARENA_TOKEN_BYTES],
                         const handover_limit *limit) {
    ag_status status = AG_OK;
    for (int num_served = 0; num_served < num_peers && status == AG_OK;) {
        status = wait_ready(listen_fd, POLLIN, limit, "not all ranks have fetched their memory");
        if (status != AG_OK) break;
        int peer = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
        if (peer < 0) {
            /* A peer that gave up before it was accepted is no error of ours. */
            if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) continue;
            status = error_set(AG_E_NETWORK, OP, NULL, NULL, NULL, "cannot accept: %s", strerror(errno));
            break;
        }
        if (is_same_user(peer) && has_token(peer, token, limit) && send_descriptor(peer, fd)) num_served++;
        close(peer);
        if (interrupt_pending()) status = error_set(AG_E_INTERRUPTED, OP, NULL, NULL, NULL, "interrupted");
    }
    close(listen_fd);
    return status == AG_E_PEER ? AG_OK : status;
}

/* Dials until the listener's queue has room. */
static ag_status dial(int fd, const char *address, const handover_limit *limit) {
    struct sockaddr_un name;
    socklen_t len = 0;
    AG_TRY(set_address(&name, &len, address));
    while (connect(fd, (struct sockaddr *)&name, len) != 0) {
        if (errno != EAGAIN && errno != EINTR) return socket_error("cannot reach", address);
        if (interrupt_pending()) return error_set(AG_E_INTERRUPTED, OP, NULL, NULL, NULL, "interrupted");
        if (clock_ns() >= limit->deadline_ns) return error_set(AG_E_TIMEOUT, OP, NULL, NULL, NULL, "@%s is too busy", address);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return AG_OK;
}

static ag_status receive_descriptor(int socket_fd, const char *address, const handover_limit *limit, int *fd) {
    rights control;
    char byte = 0;
    struct iovec data = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message;
    ssize_t num_read;
    do {
        AG_TRY(wait_ready(socket_fd, POLLIN, limit, "no memory was handed over"));
        message = (struct msghdr){
            .msg_iov = &data, .msg_iovlen = 1, .msg_control = control.room, .msg_controllen = sizeof control.room};
        num_read = recvmsg(socket_fd, &message, MSG_CMSG_CLOEXEC);
    } while (num_read < 0 && (errno == EINTR || errno == EAGAIN));
    struct cmsghdr *entry = num_read == 1 ? CMSG_FIRSTHDR(&message) : NULL;
    if (!entry && message.msg_flags & MSG_CTRUNC)
        return error_set(AG_E_NETWORK, OP, NULL, NULL, "raise the limit on open files: ulimit -n", "no descriptor is free");
    if (!entry || entry->cmsg_level != SOL_SOCKET || entry->cmsg_type != SCM_RIGHTS || entry->cmsg_len != CMSG_LEN(sizeof *fd))
        return error_set(AG_E_NETWORK, OP, NULL, NULL, "do all ranks belong to the same job?", "refused at @%s", address);
    memcpy(fd, CMSG_DATA(entry), sizeof *fd);
    return AG_OK;
}

ag_status handover_connect(const char *address, const char token[ARENA_TOKEN_BYTES], const handover_limit *limit, int *out) {
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return socket_error("cannot make a socket for", address);
    ag_status status = dial(fd, address, limit);
    if (status == AG_OK && !is_same_user(fd))
        status = error_set(AG_E_NETWORK, OP, NULL, NULL, NULL, "@%s belongs to another user", address);
    if (status == AG_OK && send(fd, token, ARENA_TOKEN_BYTES, MSG_NOSIGNAL) != ARENA_TOKEN_BYTES)
        status = socket_error("cannot prove itself at", address);
    if (status == AG_OK) status = receive_descriptor(fd, address, limit, out);
    close(fd);
    return status;
}
