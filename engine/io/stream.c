/* stream.c: plain and gzip files as one stream of bytes; tensors filled from it block by block. */
#include "io/stream.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>

#include "core/error.h"
#include "core/memory.h"
#include "platform/file.h"
#include "platform/interrupt.h"

#define INPUT_BYTES ((size_t)1 << 16)
#define GZIP_WINDOW_BITS (MAX_WBITS + 16) /* zlib: expect a gzip header and check its trailer */
#define DEFLATE_MAX_RATIO 1032
#define MAX_EXTRA_BYTES ((int64_t)64 << 20) /* looked at behind the data */

/* [next_in, next_in + avail_in) of the inflater is what was read from the file and not used yet, in plain files too.
 * position counts the content handed out: it is at most size_bytes in a plain file. */
struct stream {
    file *source;
    const char *op;
    char name[FILE_NAME_BYTES]; /* for error records */
    int64_t size_bytes;
    int64_t position;
    bool is_gzip;
    bool is_source_done;     /* the file has no bytes beyond those in input */
    bool is_between_members; /* a gzip member was completed, and verified */
    z_stream inflater;
    unsigned char input[INPUT_BYTES];
};

const char *file_name_text(const char *path, char buffer[FILE_NAME_BYTES]) {
    const size_t len = FILE_NAME_BYTES;
    size_t path_len = strlen(path);
    if (path_len < len) {
        memcpy(buffer, path, path_len + 1);
        return buffer;
    }
    const char *tail = path + (path_len - (len - 4));
    while ((*tail & 0xC0) == 0x80) tail++; /* do not start inside a UTF-8 sequence */
    snprintf(buffer, len, "...%s", tail);
    return buffer;
}

ag_status stream_refuse(const stream *s, const char *expected, const char *hint, const char *got_format, ...) {
    char got[128];
    va_list args;
    va_start(args, got_format);
    vsnprintf(got, sizeof got, got_format, args);
    va_end(args);
    return error_set(AG_E_FORMAT, s->op, "path", expected, hint, "%s in %s", got, s->name);
}

static ag_status poll_interrupt(const stream *s) {
    if (!interrupt_pending()) return AG_OK;
    return error_set(AG_E_INTERRUPTED, s->op, "path", NULL, NULL, "an interrupt while reading %s", s->name);
}

/* The inflater's memory comes through the engine's seam too. */
static void *inflater_alloc(void *unused, unsigned num_items, unsigned item_bytes) {
    (void)unused;
    return heap_alloc((size_t)num_items * item_bytes);
}

static void inflater_free(void *unused, void *block) {
    (void)unused;
    heap_free(block);
}

/* refill moves unused input to the front of the buffer and reads behind it until the buffer is full or the file ends. */
static ag_status refill(stream *s) {
    z_stream *z = &s->inflater;
    AG_TRY(poll_interrupt(s));
    memmove(s->input, z->next_in, z->avail_in);
    z->next_in = s->input;
    size_t room = INPUT_BYTES - z->avail_in;
    int64_t num_read = file_read(s->source, s->input + z->avail_in, room);
    if (num_read < 0) {
        return error_set(AG_E_FILE, s->op, "path", "a readable file", NULL, "a read error of the system in %s", s->name);
    }
    s->is_source_done = (size_t)num_read < room;
    z->avail_in += (unsigned)num_read;
    return AG_OK;
}

static bool has_gzip_magic(const stream *s) {
    const z_stream *z = &s->inflater;
    return z->avail_in >= 2 && z->next_in[0] == 0x1f && z->next_in[1] == 0x8b;
}

/* next_member starts on what follows a completed member: another one, or the end of the file (*is_end). */
static ag_status next_member(stream *s, bool *is_end) {
    z_stream *z = &s->inflater;
    if (z->avail_in < 2 && !s->is_source_done) AG_TRY(refill(s));
    *is_end = z->avail_in == 0;
    if (*is_end) return AG_OK;
    if (!has_gzip_magic(s)) {
        return stream_refuse(s, "the end of the file or another gzip member after the gzip data",
                             "something was appended to the file", "trailing garbage that starts with byte %02x",
                             z->next_in[0]);
    }
    inflateReset(z);
    s->is_between_members = false;
    return AG_OK;
}

/* inflate_some writes at least one and up to len bytes of content; none only at the end of a file that is right. */
static ag_status inflate_some(stream *s, unsigned char *buffer, size_t len, size_t *num_written) {
    z_stream *z = &s->inflater;
    z->next_out = buffer;
    z->avail_out = (unsigned)len;
    while (z->avail_out == len) {
        if (s->is_between_members) {
            bool is_end;
            AG_TRY(next_member(s, &is_end));
            if (is_end) break;
        }
        if (z->avail_in == 0 && !s->is_source_done) AG_TRY(refill(s));
        int result = inflate(z, Z_NO_FLUSH);
        long long content = (long long)s->position + (long long)(len - z->avail_out);
        if (result == Z_STREAM_END) {
            s->is_between_members = true;
        } else if (result == Z_BUF_ERROR && z->avail_in == 0 && s->is_source_done) {
            return stream_refuse(s, "complete gzip data", "the file is truncated",
                                 "the end of the file after %lld bytes of content", content);
        } else if (result == Z_MEM_ERROR) {
            return error_memory(s->op, (size_t)1 << MAX_WBITS);
        } else if (result != Z_OK && result != Z_BUF_ERROR) {
            return stream_refuse(s, "intact gzip data", "the file is corrupt", "\"%s\" after %lld bytes of content",
                                 z->msg ? z->msg : "damaged data", content);
        }
    }
    *num_written = len - z->avail_out;
    return AG_OK;
}

static ag_status copy_some(stream *s, unsigned char *buffer, size_t len, size_t *num_written) {
    z_stream *z = &s->inflater;
    if (z->avail_in > 0) {
        size_t num_bytes = len < z->avail_in ? len : z->avail_in;
        memcpy(buffer, z->next_in, num_bytes);
        z->next_in += num_bytes;
        z->avail_in -= (unsigned)num_bytes;
        *num_written = num_bytes;
        return AG_OK;
    }
    int64_t num_read = file_read(s->source, buffer, len);
    if (num_read < 0) {
        return error_set(AG_E_FILE, s->op, "path", "a readable file", NULL, "a read error of the system after %lld bytes of %s",
                         (long long)s->position, s->name);
    }
    *num_written = (size_t)num_read;
    return AG_OK;
}

/* read_up_to fills buffer[len] as far as the content goes. */
static ag_status read_up_to(stream *s, void *buffer, size_t len, size_t *num_read) {
    *num_read = 0;
    while (*num_read < len) {
        size_t num_wanted = len - *num_read < STREAM_BLOCK_BYTES ? len - *num_read : STREAM_BLOCK_BYTES;
        size_t num_written = 0;
        AG_TRY(poll_interrupt(s));
        AG_TRY((s->is_gzip ? inflate_some : copy_some)(s, (unsigned char *)buffer + *num_read, num_wanted, &num_written));
        if (num_written == 0) break;
        *num_read += num_written;
        s->position += (int64_t)num_written;
    }
    return AG_OK;
}

ag_status stream_open(const char *path, const char *op, stream **out) {
    char error[128] = "", name[FILE_NAME_BYTES];
    file_name_text(path, name);
    file *source = file_open(path, "r", error, sizeof error);
    if (!source) return error_set(AG_E_FILE, op, "path", "a readable file", NULL, "%s: %s", name, error);
    ag_status status = AG_OK;
    stream *s = NULL;
    int64_t size_bytes = file_size(source);
    if (!file_is_regular(source) || size_bytes < 0) {
        status = error_set(AG_E_FILE, op, "path", "a regular file", "write the data to a file first",
                           "%s: a pipe or a device, whose size is not known", name);
        goto done;
    }
    s = heap_alloc_zero(sizeof *s);
    if (!s) {
        status = error_memory(op, sizeof *s);
        goto done;
    }
    s->source = source;
    source = NULL;
    s->op = op;
    memcpy(s->name, name, sizeof name);
    s->size_bytes = size_bytes;
    s->inflater.next_in = s->input;
    s->inflater.zalloc = inflater_alloc;
    s->inflater.zfree = inflater_free;
    status = refill(s);
    if (status == AG_OK && has_gzip_magic(s)) {
        s->is_gzip = inflateInit2(&s->inflater, GZIP_WINDOW_BITS) == Z_OK;
        if (!s->is_gzip) status = error_memory(op, (size_t)1 << MAX_WBITS);
    }
    if (status != AG_OK) goto done;
    *out = s;
    s = NULL;
done:
    stream_close(s);
    if (source) file_close(source, error, sizeof error);
    return status;
}

void stream_close(stream *s) {
    char error[128];
    if (!s) return;
    if (s->is_gzip) inflateEnd(&s->inflater);
    file_close(s->source, error, sizeof error); /* only read: nothing can be lost */
    heap_free(s);
}

ag_status stream_read(stream *s, void *buffer, size_t len, const char *field) {
    size_t num_read;
    AG_TRY(read_up_to(s, buffer, len, &num_read));
    if (num_read == len) return AG_OK;
    char expected[96];
    snprintf(expected, sizeof expected, "%zu bytes of %s", len, field);
    return stream_refuse(s, expected, "the file is truncated", "%zu", num_read);
}

/* claim_text writes "1797*8*8 = 115008 bytes of data after the header"; element types of more than a byte are named. */
static void claim_text(ag_dtype dtype, const shape *claimed, int64_t num_bytes, char *buffer, size_t len) {
    char product[96] = "1";
    size_t used = 0;
    for (int i = 0; i < claimed->ndim && used < sizeof product; i++) {
        int written = snprintf(product + used, sizeof product - used, "%s%lld", i > 0 ? "*" : "", (long long)claimed->dims[i]);
        used += (size_t)written;
    }
    bool is_wide = dtype_size(dtype) > 1;
    snprintf(buffer, len, "%s%s%s = %lld bytes of data after the header", product, is_wide ? " " : "",
             is_wide ? dtype_name(dtype) : "", (long long)num_bytes);
}

/* claim_bytes computes what the shape takes. Sizes beside a 0 must not overflow either: strides are made from them. */
static ag_status claim_bytes(const stream *s, ag_dtype dtype, const shape *claimed, int64_t *num_bytes) {
    int64_t product = (int64_t)dtype_size(dtype);
    bool is_empty = false;
    for (int i = 0; i < claimed->ndim; i++) {
        if (claimed->dims[i] == 0) {
            is_empty = true;
        } else if (__builtin_mul_overflow(product, claimed->dims[i], &product)) {
            return stream_refuse(s, "a shape of fewer than 2^63 bytes", "the header is damaged",
                                 "a product of %d dims that overflows", claimed->ndim);
        }
    }
    *num_bytes = is_empty ? 0 : product;
    return AG_OK;
}

/* prove_claim refuses data that cannot be in the file, before anything is allocated for it. */
static ag_status prove_claim(const stream *s, int64_t num_bytes, const char *claim) {
    if (s->is_gzip) {
        int64_t bound;
        if (__builtin_mul_overflow(s->size_bytes, DEFLATE_MAX_RATIO, &bound)) bound = INT64_MAX;
        if (num_bytes <= bound) return AG_OK;
        return stream_refuse(s, claim, "the header is damaged or the file is truncated",
                             "%lld bytes of gzip data, which hold at most %lld", (long long)s->size_bytes, (long long)bound);
    }
    int64_t remaining = s->size_bytes - s->position;
    if (remaining == num_bytes) return AG_OK;
    return stream_refuse(s, claim, remaining < num_bytes ? "the file is truncated" : "the file has extra bytes after the data",
                         "%lld", (long long)remaining);
}

/* swap_bytes turns the byte order of elements; memcpy because any dtype may lie there. len: a multiple of element_size. */
static void swap_bytes(unsigned char *data, size_t len, size_t element_size) {
    assert(len % element_size == 0);
    switch (element_size) {
    case 2:
        for (size_t i = 0; i < len; i += 2) {
            uint16_t bits;
            memcpy(&bits, data + i, 2);
            bits = __builtin_bswap16(bits);
            memcpy(data + i, &bits, 2);
        }
        break;
    case 4:
        for (size_t i = 0; i < len; i += 4) {
            uint32_t bits;
            memcpy(&bits, data + i, 4);
            bits = __builtin_bswap32(bits);
            memcpy(data + i, &bits, 4);
        }
        break;
    case 8:
        for (size_t i = 0; i < len; i += 8) {
            uint64_t bits;
            memcpy(&bits, data + i, 8);
            bits = __builtin_bswap64(bits);
            memcpy(data + i, &bits, 8);
        }
        break;
    default: assert(element_size == 1);
    }
}

/* fill reads num_bytes of data, in the host's byte order, to where the tensor lies. */
static ag_status fill(stream *s, unsigned char *data, int64_t num_bytes, size_t swap_size, const char *claim) {
    for (int64_t done = 0; done < num_bytes;) {
        int64_t remaining = num_bytes - done;
        size_t block = remaining < (int64_t)STREAM_BLOCK_BYTES ? (size_t)remaining : STREAM_BLOCK_BYTES;
        size_t num_read;
        AG_TRY(read_up_to(s, data + done, block, &num_read));
        if (num_read < block) {
            return stream_refuse(s, claim, "the file is truncated", "%lld", (long long)(done + (int64_t)num_read));
        }
        swap_bytes(data + done, block, swap_size);
        done += (int64_t)block;
    }
    return AG_OK;
}

/* expect_end reads on when there is more: a gzip file with a wrong CRC is corrupt, not too long. A bound keeps a file made to
 * expand without end from taking all day. At the right end, this makes a gzip stream check its last trailer. */
static ag_status expect_end(stream *s, int64_t num_bytes, const char *claim) {
    unsigned char extra[4096];
    int64_t total = num_bytes;
    size_t num_read;
    do {
        AG_TRY(read_up_to(s, extra, sizeof extra, &num_read));
        total += (int64_t)num_read;
    } while (num_read == sizeof extra && total - num_bytes < MAX_EXTRA_BYTES);
    if (total == num_bytes) return AG_OK;
    return stream_refuse(s, claim, "the file has extra bytes after the data", "%s%lld",
                         num_read == sizeof extra ? "at least " : "", (long long)total);
}

ag_status stream_read_tensor(stream *s, ag_dtype dtype, const shape *claimed, bool is_swapped, ag_device *device,
                             ag_tensor **out) {
    int64_t num_bytes = 0;
    char claim[160];
    if (!device) AG_TRY(ag_device_find("cpu", &device));
    assert(device->is_host);
    AG_TRY(claim_bytes(s, dtype, claimed, &num_bytes));
    claim_text(dtype, claimed, num_bytes, claim, sizeof claim);
    AG_TRY(prove_claim(s, num_bytes, claim));
    ag_tensor *tensor = NULL;
    ag_status status = tensor_new(dtype, claimed, device, &tensor);
    if (status != AG_OK) {
        error_name_op(s->op);
        return status;
    }
    status = fill(s, tensor_address(tensor), num_bytes, is_swapped ? dtype_size(dtype) : 1, claim);
    if (status == AG_OK) status = expect_end(s, num_bytes, claim);
    if (status != AG_OK) {
        tensor_release(tensor);
        return status;
    }
    *out = tensor;
    return AG_OK;
}
