/* session_message.c: packs control messages and checks those that came. */
#include "dist/group/session_message.h"

#include <math.h>
#include <string.h>

static const unsigned char magic[4] = {'A', 'G', 'C', '1'};

/* ---- bytes ---- */

static unsigned char *put(unsigned char *at, uint64_t value, int num_bytes) {
    for (int i = 0; i < num_bytes; i++) at[i] = (unsigned char)(value >> (8 * i));
    return at + num_bytes;
}

static unsigned char *put_text(unsigned char *at, const char *text, size_t room) {
    size_t len = strnlen(text, room - 1);
    at = put(at, len, 2);
    memcpy(at, text, len);
    return at + len;
}

/* Durations travel as whole microseconds. */
static unsigned char *put_seconds(unsigned char *at, double seconds) {
    double micros = seconds * 1e6;
    return put(at, !(micros > 0) ? 0 : micros > 9e18 ? (uint64_t)9e18 : (uint64_t)micros, 8);
}

/* A reader of what came: once anything is wrong it gives zeros and says so in the end. */
typedef struct reader {
    const unsigned char *at;
    size_t left;
    bool is_bad;
} reader;

static uint64_t take(reader *r, size_t num_bytes) {
    if (r->left < num_bytes) r->is_bad = true;
    if (r->is_bad) return 0;
    uint64_t value = 0;
    for (size_t i = 0; i < num_bytes; i++) value |= (uint64_t)r->at[i] << (8 * i);
    r->at += num_bytes;
    r->left -= num_bytes;
    return value;
}

/* Texts end up in messages for people: control characters become '?'. */
static void take_text(reader *r, char *text, size_t room) {
    size_t len = (size_t)take(r, 2);
    text[0] = '\0';
    if (len >= room || len > r->left) r->is_bad = true;
    if (r->is_bad) return;
    for (size_t i = 0; i < len; i++) text[i] = r->at[i] < 32 || r->at[i] == 127 ? '?' : (char)r->at[i];
    text[len] = '\0';
    r->at += len;
    r->left -= len;
}

static double take_seconds(reader *r) { return (double)take(r, 8) * 1e-6; }

static reader read_bytes(const void *bytes, size_t len) { return (reader){.at = bytes, .left = bytes ? len : 0}; }
static bool is_done(const reader *r) { return !r->is_bad && r->left == 0; }

/* ---- the header ---- */

uint64_t message_job_number(const char *job) {
    uint64_t number = 0xcbf29ce484222325u;
    for (; *job; job++) number = (number ^ (unsigned char)*job) * 0x100000001b3u;
    return number;
}

void message_pack(const message_header *header, unsigned char out[MESSAGE_HEADER_BYTES]) {
    memset(out, 0, MESSAGE_HEADER_BYTES);
    memcpy(out, magic, sizeof magic);
    unsigned char *at = put(out + 4, header->version, 2);
    at = put(at, header->kind, 2);
    at = put(at, header->job, 8);
    at = put(at, header->epoch, 4);
    at = put(at, header->flags, 4);
    at = put(at, (uint32_t)header->rank, 4);
    at = put(at, (uint32_t)header->size, 4);
    at = put(at, header->sequence, 8);
    at = put(at, header->nonce, 8);
    put(at, header->payload_bytes, 4);
}

message_verdict message_unpack(const void *bytes, size_t num_bytes, size_t payload_bytes, message_header *out) {
    reader r = read_bytes(bytes, num_bytes);
    if (r.left < 8 || memcmp(r.at, magic, sizeof magic) != 0) return MESSAGE_FOREIGN;
    take(&r, 4);
    message_header h = {0};
    h.version = (uint16_t)take(&r, 2);
    h.kind = (uint16_t)take(&r, 2);
    if (h.version != MESSAGE_VERSION) {
        out->version = h.version;
        return MESSAGE_OTHER_VERSION;
    }
    h.job = take(&r, 8);
    h.epoch = (uint32_t)take(&r, 4);
    h.flags = (uint32_t)take(&r, 4);
    h.rank = (int32_t)(uint32_t)take(&r, 4);
    h.size = (int32_t)(uint32_t)take(&r, 4);
    h.sequence = take(&r, 8);
    h.nonce = take(&r, 8);
    h.payload_bytes = (uint32_t)take(&r, 4);
    bool is_reserved_zero = take(&r, 8) == 0 && take(&r, 4) == 0;
    bool is_sane = h.kind >= MESSAGE_HELLO && h.kind < MESSAGE_KIND_END && h.size >= 1 && h.payload_bytes == payload_bytes;
    if (!is_done(&r) || !is_reserved_zero || !is_sane) return MESSAGE_FOREIGN;
    *out = h;
    return MESSAGE_OK;
}

/* ---- payloads ---- */

static unsigned char *put_member(unsigned char *at, const message_member *m) {
    at = put(at, (uint32_t)m->old_rank, 4);
    at = put(at, (uint64_t)m->shown.pid, 8);
    at = put(at, m->start_time, 8);
    at = put_text(at, m->shown.host, sizeof m->shown.host);
    at = put_text(at, m->shown.token, sizeof m->shown.token);
    at = put_text(at, m->shown.data_endpoint, sizeof m->shown.data_endpoint);
    return put_text(at, m->shown.control_address, sizeof m->shown.control_address);
}

static void take_member(reader *r, message_member *m) {
    m->old_rank = (int32_t)(uint32_t)take(r, 4);
    m->shown.pid = (int64_t)take(r, 8);
    m->start_time = take(r, 8);
    take_text(r, m->shown.host, sizeof m->shown.host);
    take_text(r, m->shown.token, sizeof m->shown.token);
    take_text(r, m->shown.data_endpoint, sizeof m->shown.data_endpoint);
    take_text(r, m->shown.control_address, sizeof m->shown.control_address);
    m->shown.is_same_host = false;
    if (m->shown.pid < 1 || m->shown.pid > INT32_MAX || m->shown.token[0] == '\0') r->is_bad = true;
}

size_t message_pack_hello(const message_hello *hello, unsigned char out[MESSAGE_MEMBER_BYTES + 100]) {
    unsigned char *at = put_member(out, &hello->member);
    at = put_text(at, hello->job_name, sizeof hello->job_name);
    at = put_seconds(at, hello->timeout_s);
    at = put_seconds(at, hello->left_s);
    return (size_t)(at - out);
}

bool message_unpack_hello(const void *bytes, size_t len, message_hello *out) {
    reader r = read_bytes(bytes, len);
    take_member(&r, &out->member);
    take_text(&r, out->job_name, sizeof out->job_name);
    out->timeout_s = take_seconds(&r);
    out->left_s = take_seconds(&r);
    return is_done(&r);
}

size_t message_pack_report(const message_report *report, unsigned char out[MESSAGE_REPORT_BYTES]) {
    unsigned char *at = put(out, (uint32_t)report->code, 4);
    at = put(at, (uint32_t)report->num_culprits, 4);
    for (int i = 0; i < report->num_culprits; i++) at = put(at, (uint32_t)report->culprits[i], 4);
    at = put_text(at, report->reason, sizeof report->reason);
    at = put_text(at, report->hint, sizeof report->hint);
    return (size_t)(at - out);
}

bool message_unpack_report(const void *bytes, size_t len, int size, message_report *out) {
    reader r = read_bytes(bytes, len);
    memset(out, 0, sizeof *out);
    uint32_t code = (uint32_t)take(&r, 4);
    uint32_t num_culprits = (uint32_t)take(&r, 4);
    if (code == AG_OK || code >= AG_STATUS_COUNT || num_culprits > AG_MAX_CULPRITS) return false;
    out->code = (ag_status)code;
    for (uint32_t i = 0; i < num_culprits; i++) {
        out->culprits[i] = (int32_t)(uint32_t)take(&r, 4);
        if (out->culprits[i] < 0 || out->culprits[i] >= size) return false;
    }
    out->num_culprits = (int)num_culprits;
    take_text(&r, out->reason, sizeof out->reason);
    take_text(&r, out->hint, sizeof out->hint);
    return is_done(&r);
}

static unsigned char *put_progress(unsigned char *at, const message_progress *p) {
    at = put(at, p->entered, 8);
    at = put(at, p->finished, 8);
    at = put_seconds(at, p->since_s);
    at = put_seconds(at, p->beat_age_s);
    at = put(at, p->has_left, 1);
    return put_text(at, p->text, sizeof p->text);
}

static void take_progress(reader *r, message_progress *p) {
    p->entered = take(r, 8);
    p->finished = take(r, 8);
    p->since_s = take_seconds(r);
    p->beat_age_s = take_seconds(r);
    uint64_t has_left = take(r, 1);
    p->has_left = has_left == 1;
    take_text(r, p->text, sizeof p->text);
    if (has_left > 1 || p->since_s > 1e9 || p->beat_age_s > 1e9) r->is_bad = true; /* 30 years */
}

size_t message_pack_progress(const message_progress *progress, unsigned char out[MESSAGE_PROGRESS_BYTES]) {
    return (size_t)(put_progress(out, progress) - out);
}

bool message_unpack_progress(const void *bytes, size_t len, message_progress *out) {
    reader r = read_bytes(bytes, len);
    take_progress(&r, out);
    return is_done(&r);
}

size_t message_pack_progress_table(const message_progress *table, int count, unsigned char *out) {
    unsigned char *at = out;
    for (int i = 0; i < count; i++) at = put_progress(at, &table[i]);
    return (size_t)(at - out);
}

bool message_unpack_progress_table(const void *bytes, size_t len, int count, message_progress *table) {
    reader r = read_bytes(bytes, len);
    for (int i = 0; i < count && !r.is_bad; i++) take_progress(&r, &table[i]);
    return is_done(&r);
}

size_t message_pack_table(const message_member *members, int count, unsigned char *out) {
    unsigned char *at = put(out, (uint32_t)count, 4);
    for (int i = 0; i < count; i++) at = put_member(at, &members[i]);
    return (size_t)(at - out);
}

bool message_unpack_table(const void *bytes, size_t len, int old_size, message_member *members, int *count) {
    reader r = read_bytes(bytes, len);
    uint32_t number = (uint32_t)take(&r, 4);
    if (number < 1 || number > (uint32_t)old_size) return false;
    int32_t previous = -1;
    for (uint32_t i = 0; i < number && !r.is_bad; i++) {
        take_member(&r, &members[i]);
        if (members[i].old_rank <= previous || members[i].old_rank >= old_size) return false;
        previous = members[i].old_rank;
    }
    *count = (int)number;
    return is_done(&r);
}

size_t message_pack_left(const bool *has_left, int size, uint64_t coordinator_entered, unsigned char *out) {
    unsigned char *at = put(out, coordinator_entered, 8);
    memset(at, 0, (size_t)(size + 7) / 8);
    for (int i = 0; i < size; i++)
        if (has_left[i]) at[i / 8] |= (unsigned char)(1 << i % 8);
    return 8 + (size_t)(size + 7) / 8;
}

bool message_unpack_left(const void *bytes, size_t len, int size, bool *has_left, uint64_t *coordinator_entered) {
    if (!bytes || len != 8 + (size_t)(size + 7) / 8) return false;
    reader r = read_bytes(bytes, len);
    *coordinator_entered = take(&r, 8);
    for (int i = 0; i < size; i++) has_left[i] = r.at[i / 8] >> i % 8 & 1;
    return true;
}
