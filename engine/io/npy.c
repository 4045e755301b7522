/* npy.c: NumPy's .npy files (NumPy Enhancement Proposal 1): "\x93NUMPY", version, header length, a header that is the text of
 * a Python dict with 'descr', 'fortran_order' and 'shape', then the elements. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "io/io.h"
#include "io/stream.h"
#include "platform/file.h"
#include "platform/interrupt.h"

#define MAGIC "\x93NUMPY"
#define MAGIC_BYTES 6
#define PREFIX_BYTES 10         /* magic, version, header length as u16: version 1.0 */
#define HEADER_ALIGNMENT 64     /* where the data starts in files that we write */
#define MAX_HEADER_BYTES 65535u /* far more than a header without named fields needs */
#define GATHER_BYTES ((size_t)1 << 16)

static const struct {
    char type[3]; /* NumPy's kind and bytes an element */
    int8_t dtype;
} npy_types[] = {
    {"f8", AG_F64}, {"f4", AG_F32}, {"f2", AG_F16}, {"i8", AG_I64}, {"i4", AG_I32},
    {"i2", AG_I16}, {"i1", AG_I8},  {"u1", AG_U8},  {"b1", AG_BOOL},
};
#define NUM_NPY_TYPES (sizeof npy_types / sizeof npy_types[0])

/* What people meet that has no dtype here, by NumPy's kind character. */
static const struct {
    char kind;
    const char *what;
} foreign_kinds[] = {
    {'c', "complex numbers"}, {'u', "unsigned ints wider than 8 bits"}, {'S', "byte strings"}, {'a', "byte strings"},
    {'U', "strings"},         {'O', "Python objects"},                  {'V', "raw records"},  {'M', "dates"},
    {'m', "time spans"},      {'f', "floats of another width"},         {'i', "ints of another width"},
};

/* A header while it is parsed: pos <= len always, text is not terminated. */
typedef struct header {
    const stream *source;
    const char *text;
    size_t len;
    size_t pos;
    ag_dtype dtype;
    bool is_swapped;
    bool is_fortran;
    shape dims;
} header;

/* A piece of the header's text. */
typedef struct slice {
    const char *text;
    size_t len;
} slice;

/* printable copies file content for an error record; what is not plain ASCII becomes '?'. */
static const char *printable(slice piece, char *buffer, size_t len) {
    size_t num = piece.len < len - 1 ? piece.len : len - 1;
    for (size_t i = 0; i < num; i++) {
        char c = piece.text[i];
        buffer[i] = c >= 0x20 && c < 0x7f ? c : '?';
    }
    buffer[num] = '\0';
    return buffer;
}

static ag_status refuse_here(const header *h, const char *expected) {
    char found[13];
    if (h->pos == h->len) return stream_refuse(h->source, expected, "the header is damaged", "the end of the header");
    printable((slice){h->text + h->pos, h->len - h->pos}, found, sizeof found);
    return stream_refuse(h->source, expected, "the header is damaged", "\"%s\" at byte %zu of the header", found, h->pos);
}

static void skip_spaces(header *h) {
    while (h->pos < h->len && memchr(" \t\r\n", h->text[h->pos], 4)) h->pos++;
}

static bool accept(header *h, char c) {
    skip_spaces(h);
    if (h->pos == h->len || h->text[h->pos] != c) return false;
    h->pos++;
    return true;
}

static bool accept_word(header *h, const char *word) {
    size_t len = strlen(word);
    skip_spaces(h);
    if (h->len - h->pos < len || memcmp(h->text + h->pos, word, len) != 0) return false;
    h->pos += len;
    return true;
}

/* parse_string reads 'text' or "text"; no header that we know of needs escapes, so there are none. */
static ag_status parse_string(header *h, const char *expected, slice *out) {
    skip_spaces(h);
    char quote = h->pos < h->len ? h->text[h->pos] : '\0';
    if (quote != '\'' && quote != '"') return refuse_here(h, expected);
    const char *start = h->text + h->pos + 1;
    const char *end = memchr(start, quote, h->len - h->pos - 1);
    if (!end) return refuse_here(h, "a string that ends");
    *out = (slice){start, (size_t)(end - start)};
    h->pos += out->len + 2;
    return AG_OK;
}

static bool slice_is(slice piece, const char *text) {
    return piece.len == strlen(text) && memcmp(piece.text, text, piece.len) == 0;
}

static ag_status refuse_descr(const header *h, slice descr) {
    char text[25];
    const char *what = "no type that is known";
    printable(descr, text, sizeof text);
    for (size_t i = 0; i < sizeof foreign_kinds / sizeof foreign_kinds[0]; i++) {
        if (descr.len > 1 && descr.text[1] == foreign_kinds[i].kind) what = foreign_kinds[i].what;
    }
    return stream_refuse(h->source, "descr f8, f4, f2, i8, i4, i2, i1, u1 or b1 after one of <>=|",
                         "convert it in NumPy before saving: a.astype(\"float32\")", "descr '%s' (%s)", text, what);
}

static ag_status parse_descr(header *h) {
    slice descr;
    skip_spaces(h);
    if (h->pos < h->len && h->text[h->pos] == '[') {
        return stream_refuse(h->source, "one element type in descr", "save each field as an array of its own",
                             "a list of named fields (structured array)");
    }
    AG_TRY(parse_string(h, "descr as a string", &descr));
    if (descr.len == 3 && memchr("<>=|", descr.text[0], 4)) {
        for (size_t i = 0; i < NUM_NPY_TYPES; i++) {
            if (memcmp(descr.text + 1, npy_types[i].type, 2) != 0) continue;
            h->dtype = (ag_dtype)npy_types[i].dtype;
            h->is_swapped = descr.text[0] == (host_is_big_endian() ? '<' : '>');
            return AG_OK;
        }
    }
    return refuse_descr(h, descr);
}

static ag_status parse_size(header *h, int64_t *out) {
    int64_t size = 0;
    skip_spaces(h);
    size_t start = h->pos;
    for (; h->pos < h->len && h->text[h->pos] >= '0' && h->text[h->pos] <= '9'; h->pos++) {
        if (__builtin_mul_overflow(size, 10, &size) || __builtin_add_overflow(size, h->text[h->pos] - '0', &size)) {
            h->pos = start;
            return refuse_here(h, "a size below 2^63 in shape");
        }
    }
    if (h->pos == start) return refuse_here(h, "a size or ')' in shape");
    if (h->pos < h->len && h->text[h->pos] == 'L') h->pos++; /* Python 2 wrote (3L, 4L) */
    *out = size;
    return AG_OK;
}

/* parse_shape reads a tuple of sizes: "()", "(3,)", "(3, 4)"; as in Python, "(3)" is none. */
static ag_status parse_shape(header *h) {
    bool has_comma = true;
    h->dims.ndim = 0;
    if (!accept(h, '(')) return refuse_here(h, "shape as a tuple");
    while (!accept(h, ')')) {
        int64_t size = 0;
        if (!has_comma) return refuse_here(h, "',' or ')' in shape");
        AG_TRY(parse_size(h, &size));
        if (h->dims.ndim == AG_MAX_NDIM) {
            return stream_refuse(h->source, "at most 8 dims in shape", "reshape it before saving", "more than 8 dims");
        }
        h->dims.dims[h->dims.ndim++] = size;
        has_comma = accept(h, ',');
        if (!has_comma && h->dims.ndim == 1) return refuse_here(h, "',' after the first size in shape");
    }
    return AG_OK;
}

static ag_status parse_order(header *h) {
    h->is_fortran = accept_word(h, "True");
    if (!h->is_fortran && !accept_word(h, "False")) return refuse_here(h, "fortran_order True or False");
    return AG_OK;
}

/* parse_header reads the dict: each key once, in any order, nothing else. */
static ag_status parse_header(header *h) {
    static const struct {
        const char *key;
        ag_status (*parse)(header *h);
    } entries[] = {{"descr", parse_descr}, {"fortran_order", parse_order}, {"shape", parse_shape}};
    const int num_entries = (int)(sizeof entries / sizeof entries[0]);
    bool seen[sizeof entries / sizeof entries[0]] = {false};
    bool has_comma = true;
    if (!accept(h, '{')) return refuse_here(h, "'{' at the start of the header");
    while (!accept(h, '}')) {
        slice key;
        int i = 0;
        if (!has_comma) return refuse_here(h, "',' or '}' in the header");
        skip_spaces(h);
        size_t start = h->pos;
        AG_TRY(parse_string(h, "a key or '}' in the header", &key));
        while (i < num_entries && !slice_is(key, entries[i].key)) i++;
        if (i == num_entries || seen[i]) {
            h->pos = start;
            return refuse_here(h, "each of the keys descr, fortran_order and shape once");
        }
        seen[i] = true;
        if (!accept(h, ':')) return refuse_here(h, "':' after a key");
        AG_TRY(entries[i].parse(h));
        has_comma = accept(h, ',');
    }
    skip_spaces(h);
    if (h->pos != h->len) return refuse_here(h, "only spaces after the header's '}'");
    for (int i = 0; i < num_entries; i++) {
        if (!seen[i]) {
            return stream_refuse(h->source, "the keys descr, fortran_order and shape", "the header is damaged", "no %s",
                                 entries[i].key);
        }
    }
    return AG_OK;
}

/* read_header reads up to the first byte of the data; the text is freed before it returns. */
static ag_status read_header(stream *s, header *h) {
    uint8_t prefix[8], field[4] = {0};
    AG_TRY(stream_read(s, prefix, sizeof prefix, "the .npy magic string and version"));
    if (memcmp(prefix, MAGIC, MAGIC_BYTES) != 0) {
        return stream_refuse(s, "the magic string \\x93NUMPY", "is this a .npy file?", "bytes %02x %02x %02x %02x", prefix[0],
                             prefix[1], prefix[2], prefix[3]);
    }
    int major = prefix[6], minor = prefix[7];
    if (major < 1 || major > 3 || minor != 0) {
        return stream_refuse(s, ".npy version 1.0, 2.0 or 3.0", NULL, "version %d.%d", major, minor);
    }
    AG_TRY(stream_read(s, field, major == 1 ? 2 : 4, "the header's length"));
    uint32_t len = (uint32_t)field[0] | (uint32_t)field[1] << 8 | (uint32_t)field[2] << 16 | (uint32_t)field[3] << 24;
    if (len > MAX_HEADER_BYTES) {
        return stream_refuse(s, "a header of at most 65535 bytes", "the header is damaged", "a length of %u", (unsigned)len);
    }
    char *text = heap_alloc(len > 0 ? len : 1);
    if (!text) return error_memory("npy_load", len);
    ag_status status = stream_read(s, text, len, "header");
    if (status == AG_OK) {
        *h = (header){.source = s, .text = text, .len = len};
        status = parse_header(h);
    }
    heap_free(text);
    h->text = NULL;
    return status;
}

/* check_bools refuses bytes other than 0 and 1, on which kernels rely. */
static ag_status check_bools(const stream *s, const ag_tensor *tensor) {
    const uint8_t *data = tensor_address(tensor);
    for (int64_t start = 0; start < tensor->numel; start += (int64_t)STREAM_BLOCK_BYTES) {
        int64_t end = tensor->numel - start < (int64_t)STREAM_BLOCK_BYTES ? tensor->numel : start + (int64_t)STREAM_BLOCK_BYTES;
        uint8_t bits = 0;
        if (interrupt_pending()) return error_set(AG_E_INTERRUPTED, "npy_load", "path", NULL, NULL, "an interrupt");
        for (int64_t i = start; i < end; i++) bits |= data[i];
        if (bits <= 1) continue;
        while (data[start] <= 1) start++;
        return stream_refuse(s, "bool bytes 0 or 1", "the file is corrupt", "%d at byte %lld of the data", data[start],
                             (long long)start);
    }
    return AG_OK;
}

/* read_values reads the data; a Fortran-order file is a row-major one of the reversed shape, seen with reversed dims. */
static ag_status read_values(stream *s, const header *h, ag_device *device, ag_tensor **out) {
    shape stored = h->dims;
    int64_t stored_strides[AG_MAX_NDIM], strides[AG_MAX_NDIM];
    ag_tensor *tensor = NULL;
    if (h->is_fortran) {
        for (int i = 0; i < stored.ndim; i++) stored.dims[i] = h->dims.dims[stored.ndim - 1 - i];
    }
    AG_TRY(stream_read_tensor(s, (ag_dtype)h->dtype, &stored, h->is_swapped, device, &tensor));
    ag_status status = h->dtype == AG_BOOL ? check_bools(s, tensor) : AG_OK;
    if (status == AG_OK && h->is_fortran && stored.ndim > 1) {
        ag_tensor *view = NULL;
        shape_contiguous_strides(&stored, stored_strides);
        for (int i = 0; i < stored.ndim; i++) strides[i] = stored_strides[stored.ndim - 1 - i];
        status = tensor_view(tensor, &h->dims, strides, 0, &view);
        if (status != AG_OK) error_name_op("npy_load");
        tensor_release(tensor);
        tensor = view;
    }
    if (status != AG_OK) {
        tensor_release(tensor);
        return status;
    }
    *out = tensor;
    return AG_OK;
}

ag_status npy_read(const char *path, ag_device *device, ag_tensor **out) {
    stream *s = NULL;
    header h = {0};
    AG_TRY(stream_open(path, "npy_load", &s));
    ag_status status = read_header(s, &h);
    if (status == AG_OK) status = read_values(s, &h, device, out);
    stream_close(s);
    return status;
}

/* ---- writing ---- */

typedef struct writer {
    file *target;
    const char *name; /* for error records */
} writer;

static ag_status write_block(const writer *w, const void *data, size_t len) {
    if (interrupt_pending()) {
        return error_set(AG_E_INTERRUPTED, "npy_save", "path", NULL, NULL, "an interrupt while writing %s", w->name);
    }
    if (file_write(w->target, data, len)) return AG_OK;
    return error_set(AG_E_FILE, "npy_save", "path", "a file that can be written", NULL, "%s: a write error", w->name);
}

/* write_header writes version 1.0, padded with spaces so that the data is aligned. The text of 8 dims fits. */
static ag_status write_header(const writer *w, const ag_tensor *tensor) {
    char text[384];
    const char *type = NULL;
    for (size_t i = 0; i < NUM_NPY_TYPES; i++) {
        if (npy_types[i].dtype == tensor->dtype) type = npy_types[i].type;
    }
    assert(type);
    char order = dtype_size((ag_dtype)tensor->dtype) == 1 ? '|' : host_is_big_endian() ? '>' : '<';
    memcpy(text, MAGIC "\x01\x00", 8);
    size_t len = PREFIX_BYTES;
    len += (size_t)snprintf(text + len, sizeof text - len, "{'descr': '%c%s', 'fortran_order': False, 'shape': (", order,
                            type);
    for (int i = 0; i < tensor->ndim; i++) {
        len += (size_t)snprintf(text + len, sizeof text - len, i == 0 ? "%lld," : i == 1 ? " %lld" : ", %lld",
                                (long long)tensor->dims[i]);
    }
    len += (size_t)snprintf(text + len, sizeof text - len, "), }");
    size_t padded = (len + 1 + HEADER_ALIGNMENT - 1) / HEADER_ALIGNMENT * HEADER_ALIGNMENT;
    assert(padded <= sizeof text);
    memset(text + len, ' ', padded - len - 1);
    text[padded - 1] = '\n';
    text[8] = (char)((padded - PREFIX_BYTES) & 0xff);
    text[9] = (char)((padded - PREFIX_BYTES) >> 8);
    return write_block(w, text, padded);
}

static ag_status write_contiguous(const writer *w, const ag_tensor *tensor) {
    const char *data = tensor_address(tensor);
    size_t num_bytes = (size_t)tensor->numel * dtype_size((ag_dtype)tensor->dtype);
    for (size_t done = 0; done < num_bytes;) {
        size_t block = num_bytes - done < STREAM_BLOCK_BYTES ? num_bytes - done : STREAM_BLOCK_BYTES;
        AG_TRY(write_block(w, data + done, block));
        done += block;
    }
    return AG_OK;
}

/* gather copies num elements, stride bytes apart, to dst. */
static void gather(char *dst, const char *src, int64_t num, int64_t stride, size_t element_size) {
    switch (element_size) {
    case 1: for (int64_t i = 0; i < num; i++) dst[i] = src[i * stride]; break;
    case 2: for (int64_t i = 0; i < num; i++) memcpy(dst + i * 2, src + i * stride, 2); break;
    case 4: for (int64_t i = 0; i < num; i++) memcpy(dst + i * 4, src + i * stride, 4); break;
    case 8: for (int64_t i = 0; i < num; i++) memcpy(dst + i * 8, src + i * stride, 8); break;
    default: assert(!"an element of 1, 2, 4 or 8 bytes");
    }
}

/* write_strided walks a tensor of any strides in row-major order through one small buffer. position: [ndim]. */
static ag_status write_strided(const writer *w, const ag_tensor *tensor, char *buffer) {
    const size_t element_size = dtype_size((ag_dtype)tensor->dtype);
    const int last = tensor->ndim - 1;
    const int64_t capacity = (int64_t)(GATHER_BYTES / element_size);
    const int64_t last_stride = tensor->strides[last] * (int64_t)element_size;
    const char *data = tensor_address(tensor);
    int64_t position[AG_MAX_NDIM] = {0}, row = 0, num_gathered = 0; /* row: bytes from data */
    assert(tensor->ndim >= 1 && tensor->numel > 0);
    for (;;) {
        for (int64_t start = 0; start < tensor->dims[last];) {
            int64_t num = tensor->dims[last] - start;
            if (num > capacity - num_gathered) num = capacity - num_gathered;
            gather(buffer + num_gathered * (int64_t)element_size, data + row + start * last_stride, num, last_stride,
                   element_size);
            start += num;
            num_gathered += num;
            if (num_gathered < capacity) continue;
            AG_TRY(write_block(w, buffer, GATHER_BYTES));
            num_gathered = 0;
        }
        int dim = last - 1;
        for (; dim >= 0; dim--) {
            int64_t stride = tensor->strides[dim] * (int64_t)element_size;
            row += stride;
            if (++position[dim] < tensor->dims[dim]) break;
            row -= stride * tensor->dims[dim];
            position[dim] = 0;
        }
        if (dim < 0) break;
    }
    return write_block(w, buffer, (size_t)num_gathered * element_size);
}

static ag_status write_values(const writer *w, const ag_tensor *tensor) {
    if (tensor->is_contiguous || tensor->numel == 0) return write_contiguous(w, tensor);
    char *buffer = heap_alloc(GATHER_BYTES);
    if (!buffer) return error_memory("npy_save", GATHER_BYTES);
    ag_status status = write_strided(w, tensor, buffer);
    heap_free(buffer);
    return status;
}

/* check_target refuses to put a file in the place of a device or a pipe. What cannot be opened is left to the rename. */
static ag_status check_target(const char *path, const char *name) {
    char error[128];
    file *existing = file_open(path, "r", error, sizeof error);
    if (!existing) return AG_OK;
    bool is_regular = file_is_regular(existing);
    file_close(existing, error, sizeof error);
    if (is_regular) return AG_OK;
    return error_set(AG_E_FILE, "npy_save", "path", "a regular file, or a name that is free", NULL,
                     "%s: a pipe or a device", name);
}

ag_status npy_write(const char *path, const ag_tensor *tensor) {
    static const char suffix[] = ".tmp";
    char name[FILE_NAME_BYTES], error[128] = "";
    assert(tensor->storage->device->is_host);
    if (tensor->dtype == AG_BF16) {
        return error_set(AG_E_DTYPE, "npy_save", "tensor", "a dtype that .npy files have", "convert it: t:to(\"f32\")", "bf16");
    }
    writer w = {.target = NULL, .name = file_name_text(path, name)};
    AG_TRY(check_target(path, name));
    size_t path_len = strlen(path);
    char *temporary = heap_alloc(path_len + sizeof suffix);
    if (!temporary) return error_memory("npy_save", path_len + sizeof suffix);
    memcpy(temporary, path, path_len);
    memcpy(temporary + path_len, suffix, sizeof suffix);

    ag_status status = AG_OK;
    w.target = file_open(temporary, "w", error, sizeof error);
    if (!w.target) {
        status = error_set(AG_E_FILE, "npy_save", "path", "a file that can be written", NULL, "%s.tmp: %s", name, error);
        goto done;
    }
    status = write_header(&w, tensor);
    if (status == AG_OK) status = write_values(&w, tensor);
    /* The close has the system's words for a write that failed before, too. */
    bool is_written = file_close(w.target, error, sizeof error) && status == AG_OK;
    if (is_written && !file_rename(temporary, path, error, sizeof error)) is_written = false;
    if (!is_written && (status == AG_OK || status == AG_E_FILE)) {
        status = error_set(AG_E_FILE, "npy_save", "path", "a file that can be written", NULL, "%s: %s", name, error);
    }
    if (status != AG_OK) file_remove(temporary);
done:
    heap_free(temporary);
    return status;
}
