/* stream.h: reads a plain or gzip file from front to back, and proves a header's claim before memory is spent on it.
 *
 * A file is gzip when it starts with 1f 8b; it may have several members (RFC 1952), each of which is checked against its CRC
 * and length. A damaged file, one that ends too early and one with something behind its end are different errors.
 *
 * Proof: a plain file must have exactly the bytes that the header claims. Of a gzip file only a bound is known, since
 * deflate cannot expand by more than 1032:1; a claim beyond it is refused. Either way a few bytes of header cannot make the
 * engine allocate more than the file can fill.
 */
#ifndef ARGAND_IO_STREAM_H
#define ARGAND_IO_STREAM_H

#include "core/tensor.h"

#define STREAM_BLOCK_BYTES ((size_t)1 << 20) /* an interrupt is seen once a block */
#define FILE_NAME_BYTES 112                  /* for a path in an error record */

typedef struct stream stream;

/* stream_open opens a regular file. op is the name in error records and lives as long as the stream. */
ag_status stream_open(const char *path, const char *op, stream **out);
void stream_close(stream *s); /* NULL is accepted */
/* stream_read fills buffer[len]; a file that ends before is an error that says `field`, the words for what these bytes are. */
ag_status stream_read(stream *s, void *buffer, size_t len, const char *field);
/* stream_read_tensor reads the rest of the file as a row-major tensor on a host device (NULL = "cpu"). is_swapped: the file's
 * byte order is not the host's. The data must end where the file ends. */
ag_status stream_read_tensor(stream *s, ag_dtype dtype, const shape *claimed, bool is_swapped, ag_device *device,
                             ag_tensor **out);
/* stream_refuse sets an AG_E_FORMAT record; the file's name is put behind `got`. Any text but got_format may be NULL. */
ag_status stream_refuse(const stream *s, const char *expected, const char *hint, const char *got_format, ...)
    __attribute__((format(printf, 4, 5)));
/* file_name_text copies the path, or the end of a long one, so that it fits an error record; returns buffer. */
const char *file_name_text(const char *path, char buffer[FILE_NAME_BYTES]);

static inline bool host_is_big_endian(void) { return __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__; }

#endif
