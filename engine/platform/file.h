/* file.h: whole-file access with errors as text. Sizes and offsets are 64 bits. */
#ifndef ARGAND_PLATFORM_FILE_H
#define ARGAND_PLATFORM_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct file file;

/* file_open opens for "r" or "w"; NULL and the system's words in error[error_len] on failure. Directories are refused. */
file *file_open(const char *path, const char *mode, char *error, size_t error_len);
bool file_is_regular(const file *f);
int64_t file_size(const file *f); /* -1 when unknown (a pipe) */
int64_t file_read(file *f, void *buffer, size_t len);          /* bytes read, fewer only at the end; -1 on error */
bool file_write(file *f, const void *buffer, size_t len);      /* all or false; file_close tells why */
bool file_close(file *f, char *error, size_t error_len);       /* reports a failed last write */
/* file_rename replaces `to` by `from` in one step. file_remove ignores a missing file. */
bool file_rename(const char *from, const char *to, char *error, size_t error_len);
void file_remove(const char *path);

#endif
