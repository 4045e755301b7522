/* wire.c: headers as bytes, and the check of bytes that came. */
#include "dist/transport/wire.h"

#include <string.h>

#include "core/dtype.h"
#include "platform/crc.h"

static const unsigned char magic[4] = {'A', 'G', 'D', '1'};

/* Where the fields lie. */
enum {
    AT_KIND = 4,
    AT_FLAGS = 5,
    AT_VERSION = 6,
    AT_JOB = 8,
    AT_EPOCH = 16,
    AT_GROUP = 20,
    AT_SENDER = 24,
    AT_PAYLOAD_CRC = 28,
    AT_PRINT = 32,
    AT_STEP = 104,
    AT_OFFSET = 112,
    AT_LENGTH = 120,
    AT_PAYLOAD_BYTES = 128,
    AT_CREDIT = 136,
    AT_CRC = 156
};
/* Within a print. */
enum { AT_SEQUENCE = 0, AT_COUNT = 8, AT_HASH = 16, AT_ROOT = 20, AT_CALL_KIND = 24, AT_DTYPE = 28, AT_DIMS = 32 };

static void put(unsigned char *out, uint64_t value, int num_bytes) {
    for (int i = 0; i < num_bytes; i++) out[i] = (unsigned char)(value >> 8 * i);
}

static uint64_t get(const unsigned char *in, int num_bytes) {
    uint64_t value = 0;
    for (int i = 0; i < num_bytes; i++) value |= (uint64_t)in[i] << 8 * i;
    return value;
}

static void pack_print(const call_print *print, unsigned char *out) {
    put(out + AT_SEQUENCE, print->sequence, 8);
    put(out + AT_COUNT, (uint64_t)print->count, 8);
    put(out + AT_HASH, print->hash, 4);
    put(out + AT_ROOT, (uint32_t)print->root, 4);
    unsigned char *small = out + AT_CALL_KIND;
    small[0] = print->kind;
    small[1] = print->op;
    small[2] = print->algorithm;
    small[3] = print->ndim;
    out[AT_DTYPE] = (unsigned char)print->dtype;
    out[AT_DTYPE + 1] = print->flags;
    for (int d = 0; d < CALL_PRINT_DIMS; d++) put(out + AT_DIMS + 8 * d, (uint64_t)print->dims[d], 8);
}

void wire_pack(const wire_header *header, unsigned char out[WIRE_HEADER_BYTES]) {
    memset(out, 0, WIRE_HEADER_BYTES);
    memcpy(out, magic, sizeof magic);
    out[AT_KIND] = header->kind;
    out[AT_FLAGS] = header->flags;
    put(out + AT_VERSION, WIRE_VERSION, 2);
    put(out + AT_JOB, header->job, 8);
    put(out + AT_EPOCH, header->epoch, 4);
    put(out + AT_GROUP, header->group, 4);
    put(out + AT_SENDER, (uint32_t)header->sender, 4);
    put(out + AT_PAYLOAD_CRC, header->payload_crc, 4);
    pack_print(&header->print, out + AT_PRINT);
    put(out + AT_STEP, header->step, 4);
    put(out + AT_OFFSET, (uint64_t)header->offset, 8);
    put(out + AT_LENGTH, (uint64_t)header->length, 8);
    put(out + AT_PAYLOAD_BYTES, header->payload_bytes, 8);
    put(out + AT_CREDIT, header->credit, 8);
    put(out + AT_CRC, crc32c(0, out, AT_CRC), 4);
}

static bool is_zero(const unsigned char *bytes, int num_bytes) {
    for (int i = 0; i < num_bytes; i++)
        if (bytes[i] != 0) return false;
    return true;
}

static bool unpack_print(const unsigned char *in, const wire_limits *limits, call_print *out) {
    const unsigned char *small = in + AT_CALL_KIND;
    memset(out, 0, sizeof *out);
    out->sequence = get(in + AT_SEQUENCE, 8);
    out->count = (int64_t)get(in + AT_COUNT, 8);
    out->hash = (uint32_t)get(in + AT_HASH, 4);
    out->root = (int32_t)get(in + AT_ROOT, 4);
    out->kind = small[0];
    out->op = small[1];
    out->algorithm = small[2];
    out->ndim = small[3];
    out->dtype = (int8_t)in[AT_DTYPE];
    out->flags = in[AT_DTYPE + 1];
    for (int d = 0; d < CALL_PRINT_DIMS; d++) {
        out->dims[d] = (int64_t)get(in + AT_DIMS + 8 * d, 8);
        if (out->dims[d] < -1 || (d >= out->ndim && out->dims[d] != 0)) return false;
    }
    return out->count >= 0 && out->root >= 0 && out->root < limits->size && out->kind < COLLECTIVE_KIND_COUNT &&
           out->kind != COLLECTIVE_RECEIVE && out->op < REDUCE_OP_COUNT && out->algorithm < ALGORITHM_COUNT &&
           out->ndim <= AG_MAX_NDIM && in[AT_DTYPE] < AG_DTYPE_COUNT && (out->flags & ~CALL_FLAGS) == 0 &&
           is_zero(in + AT_DTYPE + 2, 2);
}

/* What the kind of message asks of the fields. */
static bool has_sense(const wire_header *h) {
    bool is_segment = h->kind == WIRE_SEGMENT, is_refusal = h->kind == WIRE_REFUSAL;
    if ((h->flags & WIRE_NO_CRC) != 0 && h->payload_crc != 0) return false;
    if (!is_segment) {
        bool may_have_text = is_refusal && h->payload_bytes <= WIRE_MAX_TEXT;
        bool may_be_receive = is_refusal && h->print.kind == COLLECTIVE_SEND;
        uint32_t most = h->kind == WIRE_HELLO || may_be_receive ? 1 : 0;
        if (h->step > most || h->offset != 0 || h->length != 0 || (h->payload_bytes != 0 && !may_have_text)) return false;
        return !is_refusal || (h->print.sequence > 0 && (h->print.flags & CALL_REFUSED) != 0);
    }
    if (h->print.sequence == 0 || h->offset < 0 || h->length <= 0 || h->length > INT64_MAX - h->offset) return false;
    /* Elements are of the call's dtype; partial sums of halves travel as f32, a barrier as single bytes. */
    uint64_t element = h->payload_bytes / (uint64_t)h->length, size = dtype_size((ag_dtype)h->print.dtype);
    bool is_partial = dtype_is_half((ag_dtype)h->print.dtype) && element == 4;
    return h->payload_bytes % (uint64_t)h->length == 0 && (element == size || is_partial);
}

wire_verdict wire_unpack(const void *bytes, size_t num_bytes, size_t payload_bytes, const wire_limits *limits,
                         wire_header *out) {
    const unsigned char *in = bytes;
    if (num_bytes != WIRE_HEADER_BYTES || memcmp(in, magic, sizeof magic) != 0 || get(in + AT_VERSION, 2) != WIRE_VERSION)
        return WIRE_FOREIGN;
    wire_header h = {.kind = in[AT_KIND],
                     .flags = in[AT_FLAGS],
                     .job = get(in + AT_JOB, 8),
                     .epoch = (uint32_t)get(in + AT_EPOCH, 4),
                     .group = (uint32_t)get(in + AT_GROUP, 4),
                     .sender = (int32_t)get(in + AT_SENDER, 4),
                     .payload_crc = (uint32_t)get(in + AT_PAYLOAD_CRC, 4),
                     .step = (uint32_t)get(in + AT_STEP, 4),
                     .offset = (int64_t)get(in + AT_OFFSET, 8),
                     .length = (int64_t)get(in + AT_LENGTH, 8),
                     .payload_bytes = get(in + AT_PAYLOAD_BYTES, 8),
                     .credit = get(in + AT_CREDIT, 8)};
    bool is_ours = h.job == limits->job;
    if (get(in + AT_CRC, 4) != crc32c(0, in, AT_CRC)) return is_ours && h.epoch == limits->epoch ? WIRE_BROKEN : WIRE_FOREIGN;
    if (!is_ours) return WIRE_FOREIGN;
    if (h.epoch != limits->epoch) return WIRE_OLD;
    bool is_sound = h.kind >= WIRE_HELLO && h.kind <= WIRE_GOODBYE && (h.flags & ~WIRE_NO_CRC) == 0 && h.sender >= 0 &&
                    h.sender < limits->size && h.payload_bytes == payload_bytes && payload_bytes <= limits->max_payload_bytes &&
                    is_zero(in + AT_STEP + 4, 4) && is_zero(in + AT_CREDIT + 8, 12) &&
                    unpack_print(in + AT_PRINT, limits, &h.print);
    if (!is_sound || !has_sense(&h)) return WIRE_BROKEN;
    *out = h;
    return WIRE_OK;
}
