/* file.c: whole-file access on POSIX descriptors, unbuffered: callers move large pieces. */
#define _POSIX_C_SOURCE 200809L
#define _FILE_OFFSET_BITS 64
#include "platform/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "platform/interrupt.h"

/* Linux moves at most 2 GiB - 4 KiB a call; smaller pieces also let an interrupt through. */
#define MAX_TRANSFER_BYTES ((size_t)256 << 20)

struct file {
    int descriptor;
    int write_errno; /* of the first write that failed, told by file_close */
    bool is_regular;
};

static void set_error(char *error, size_t error_len, int number) {
    if (!error || error_len == 0) return;
    if (number == EISDIR)
        snprintf(error, error_len, "it is a directory, not a file");
    else if (strerror_r(number, error, error_len) != 0)
        snprintf(error, error_len, "system error %d", number);
}

/* A call cut short by a signal is made again, unless the signal was the user's wish to stop (a pipe may never answer). */
static bool should_retry(int number) { return number == EINTR && !interrupt_pending(); }

file *file_open(const char *path, const char *mode, char *error, size_t error_len) {
    bool is_write = mode[0] == 'w';
    int flags = O_CLOEXEC | O_NOCTTY | (is_write ? O_WRONLY | O_CREAT | O_TRUNC : O_RDONLY);
    int descriptor;
    do descriptor = open(path, flags, 0666);
    while (descriptor < 0 && should_retry(errno));
    if (descriptor < 0) {
        set_error(error, error_len, errno);
        return NULL;
    }
    struct stat status;
    int failure = fstat(descriptor, &status) != 0 ? errno : 0;
    if (!failure && S_ISDIR(status.st_mode)) failure = EISDIR;
    file *f = failure ? NULL : malloc(sizeof *f);
    if (!f) {
        set_error(error, error_len, failure ? failure : ENOMEM);
        close(descriptor);
        return NULL;
    }
    *f = (file){.descriptor = descriptor, .is_regular = S_ISREG(status.st_mode)};
    return f;
}

bool file_is_regular(const file *f) { return f->is_regular; }

int64_t file_size(const file *f) {
    struct stat status;
    if (!f->is_regular || fstat(f->descriptor, &status) != 0) return -1;
    return (int64_t)status.st_size;
}

int64_t file_read(file *f, void *buffer, size_t len) {
    size_t done = 0;
    while (done < len) {
        size_t want = len - done < MAX_TRANSFER_BYTES ? len - done : MAX_TRANSFER_BYTES;
        ssize_t got = read(f->descriptor, (char *)buffer + done, want);
        if (got < 0) {
            if (should_retry(errno)) continue;
            return -1;
        }
        if (got == 0) break;
        done += (size_t)got;
    }
    return (int64_t)done;
}

bool file_write(file *f, const void *buffer, size_t len) {
    size_t done = 0;
    while (done < len) {
        size_t want = len - done < MAX_TRANSFER_BYTES ? len - done : MAX_TRANSFER_BYTES;
        ssize_t put = write(f->descriptor, (const char *)buffer + done, want);
        if (put < 0 && should_retry(errno)) continue;
        if (put <= 0) {
            if (!f->write_errno) f->write_errno = put < 0 ? errno : ENOSPC;
            return false;
        }
        done += (size_t)put;
    }
    return true;
}

bool file_close(file *f, char *error, size_t error_len) {
    if (!f) return true;
    int failure = f->write_errno;
    /* After EINTR the descriptor is closed all the same; closing it again could hit somebody else's. */
    if (close(f->descriptor) != 0 && errno != EINTR && !failure) failure = errno;
    free(f);
    if (failure) set_error(error, error_len, failure);
    return !failure;
}

bool file_rename(const char *from, const char *to, char *error, size_t error_len) {
    if (rename(from, to) == 0) return true;
    set_error(error, error_len, errno);
    return false;
}

void file_remove(const char *path) { unlink(path); }
