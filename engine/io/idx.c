/* idx.c: the IDX format of the MNIST files, described on yann.lecun.com/exdb/mnist: two zero bytes, element type, number of
 * dims, each dim's size as a big-endian u32, then the elements in row-major order, big-endian. */
#include "core/error.h"
#include "io/io.h"
#include "io/stream.h"

static const struct {
    uint8_t code;
    ag_dtype dtype;
} idx_types[] = {
    {0x08, AG_U8}, {0x09, AG_I8}, {0x0B, AG_I16}, {0x0C, AG_I32}, {0x0D, AG_F32}, {0x0E, AG_F64},
};

static ag_dtype idx_type_find(uint8_t code) {
    for (size_t i = 0; i < sizeof idx_types / sizeof idx_types[0]; i++) {
        if (idx_types[i].code == code) return idx_types[i].dtype;
    }
    return AG_NO_DTYPE;
}

static ag_status read_header(stream *s, ag_dtype *dtype, shape *claimed) {
    uint8_t magic[4], sizes[4 * AG_MAX_NDIM];
    AG_TRY(stream_read(s, magic, sizeof magic, "the IDX magic number"));
    if (magic[0] != 0 || magic[1] != 0) {
        return stream_refuse(s, "an IDX magic number that starts with bytes 00 00", "is this an IDX file?", "%02x %02x",
                             magic[0], magic[1]);
    }
    *dtype = idx_type_find(magic[2]);
    if (*dtype == AG_NO_DTYPE) {
        return stream_refuse(s, "element type 08 (u8), 09 (i8), 0b (i16), 0c (i32), 0d (f32) or 0e (f64)", NULL, "type %02x",
                             magic[2]);
    }
    if (magic[3] < 1 || magic[3] > AG_MAX_NDIM) return stream_refuse(s, "1 to 8 dims", NULL, "%d dims", magic[3]);
    claimed->ndim = magic[3];
    AG_TRY(stream_read(s, sizes, 4 * (size_t)claimed->ndim, "dim sizes"));
    for (int i = 0; i < claimed->ndim; i++) {
        const uint8_t *size = sizes + 4 * i;
        claimed->dims[i] = (int64_t)size[0] << 24 | (int64_t)size[1] << 16 | (int64_t)size[2] << 8 | size[3];
    }
    return AG_OK;
}

ag_status idx_read(const char *path, ag_device *device, ag_tensor **out) {
    stream *s = NULL;
    ag_dtype dtype = AG_NO_DTYPE;
    shape claimed = {0};
    AG_TRY(stream_open(path, "idx_load", &s));
    ag_status status = read_header(s, &dtype, &claimed);
    if (status == AG_OK) status = stream_read_tensor(s, dtype, &claimed, !host_is_big_endian(), device, out);
    stream_close(s);
    return status;
}
