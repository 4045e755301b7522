/* wire_fuzz.c: the parsers of data headers and of control messages on damaged and invented bytes, and CRC-32C against a bitwise
 * one. One line a property.
 *
 *   wire_fuzz [seconds [seed]]
 *
 * seconds: how long damaged messages are tried (default 2). LLVMFuzzerTestOneInput is the same check for libFuzzer, which brings
 * its own main: compile with -Dmain=unused_main.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/dtype.h"
#include "dist/group/session_message.h"
#include "dist/transport/wire.h"
#include "platform/clock.h"
#include "platform/crc.h"

#define MAX_BYTES    (2 * WIRE_HEADER_BYTES)
#define PREFIX_BYTES 3 /* of the fuzzer's input: how long the payload is said to be */

static const wire_limits limits = {.job = 0x0123456789ABCDEFu, .epoch = 7, .size = 16, .max_payload_bytes = 1 << 20};

static uint64_t next(uint64_t *state) {
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Whatever the parser accepts must lie within the limits and come out of wire_pack as the same bytes. */
static bool is_accepted_rightly(const uint8_t *data, size_t size, size_t payload_bytes, const wire_header *h) {
    unsigned char again[WIRE_HEADER_BYTES];
    wire_pack(h, again);
    if (size != WIRE_HEADER_BYTES || memcmp(again, data, size) != 0) return false;
    if (h->job != limits.job || h->epoch != limits.epoch || h->sender < 0 || h->sender >= limits.size) return false;
    if (h->payload_bytes != payload_bytes || payload_bytes > limits.max_payload_bytes) return false;
    if (h->kind < WIRE_HELLO || h->kind > WIRE_GOODBYE || h->print.kind >= COLLECTIVE_KIND_COUNT) return false;
    if (h->print.dtype < 0 || h->print.dtype >= AG_DTYPE_COUNT || h->print.ndim > AG_MAX_NDIM || h->print.count < 0)
        return false;
    for (int d = 0; d < CALL_PRINT_DIMS; d++)
        if (h->print.dims[d] < -1) return false;
    if (h->kind != WIRE_SEGMENT) return h->length == 0 && payload_bytes <= WIRE_MAX_TEXT;
    return h->length > 0 && h->offset >= 0 && h->offset <= INT64_MAX - h->length && payload_bytes % (uint64_t)h->length == 0 &&
           payload_bytes / (uint64_t)h->length <= 8;
}

/* The verdict; a wrong acceptance ends the process, so that libFuzzer sees it too. */
static wire_verdict check(const uint8_t *data, size_t size, size_t payload_bytes) {
    wire_header h;
    memset(&h, 0xA5, sizeof h);
    wire_verdict verdict = wire_unpack(data, size, payload_bytes, &limits, &h);
    if (verdict == WIRE_OK && !is_accepted_rightly(data, size, payload_bytes, &h)) abort();
    return verdict;
}

/* ---- control messages: of a job of RANKS ranks ---- */

enum { RANKS = 13, MOST_CONTROL = 8 + RANKS * MESSAGE_MEMBER_BYTES };

typedef enum control_kind {
    CONTROL_HEADER,
    CONTROL_HELLO,
    CONTROL_REPORT,
    CONTROL_PROGRESS,
    CONTROL_PROGRESS_TABLE,
    CONTROL_TABLE,
    CONTROL_LEFT,
    CONTROL_COUNT
} control_kind;

typedef struct control {
    message_header header;
    message_hello hello;
    message_report report;
    message_progress progress[RANKS]; /* of a PROGRESS the first */
    message_member members[RANKS];
    int num_members;
    bool has_left[RANKS];
    uint64_t entered;
} control;

static bool control_unpack(control_kind kind, const uint8_t *data, size_t size, size_t payload_bytes, control *out) {
    switch (kind) {
    case CONTROL_HEADER: return message_unpack(data, size, payload_bytes, &out->header) == MESSAGE_OK;
    case CONTROL_HELLO: return message_unpack_hello(data, size, &out->hello);
    case CONTROL_REPORT: return message_unpack_report(data, size, RANKS, &out->report);
    case CONTROL_PROGRESS: return message_unpack_progress(data, size, &out->progress[0]);
    case CONTROL_PROGRESS_TABLE: return message_unpack_progress_table(data, size, RANKS, out->progress);
    case CONTROL_TABLE: return message_unpack_table(data, size, RANKS, out->members, &out->num_members);
    default: return message_unpack_left(data, size, RANKS, out->has_left, &out->entered);
    }
}

/* Writes to [MOST_CONTROL]; *most is what the kind's buffers have room for. */
static size_t control_pack(control_kind kind, const control *c, unsigned char *out, size_t *most) {
    switch (kind) {
    case CONTROL_HEADER: *most = MESSAGE_HEADER_BYTES; return message_pack(&c->header, out), MESSAGE_HEADER_BYTES;
    case CONTROL_HELLO: *most = MESSAGE_MEMBER_BYTES + 100; return message_pack_hello(&c->hello, out);
    case CONTROL_REPORT: *most = MESSAGE_REPORT_BYTES; return message_pack_report(&c->report, out);
    case CONTROL_PROGRESS: *most = MESSAGE_PROGRESS_BYTES; return message_pack_progress(&c->progress[0], out);
    case CONTROL_PROGRESS_TABLE:
        *most = RANKS * MESSAGE_PROGRESS_BYTES;
        return message_pack_progress_table(c->progress, RANKS, out);
    case CONTROL_TABLE: *most = MOST_CONTROL; return message_pack_table(c->members, c->num_members, out);
    default: *most = 8 + RANKS / 8 + 1; return message_pack_left(c->has_left, RANKS, c->entered, out);
    }
}

static bool is_text(const char *text, size_t room) {
    size_t len = strnlen(text, room);
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)text[i] < 32 || text[i] == 127) return false;
    return len < room;
}

static bool is_member(const message_member *m) {
    const session_member *s = &m->shown;
    return s->pid > 0 && s->pid <= INT32_MAX && s->token[0] != '\0' && is_text(s->host, sizeof s->host) &&
           is_text(s->token, sizeof s->token) && is_text(s->data_endpoint, sizeof s->data_endpoint) &&
           is_text(s->control_address, sizeof s->control_address);
}

static bool is_progress(const message_progress *p) {
    return p->since_s >= 0 && p->since_s <= 1e9 && p->beat_age_s >= 0 && p->beat_age_s <= 1e9 &&
           is_text(p->text, sizeof p->text);
}

/* What was accepted is within bounds. */
static bool is_control_sound(control_kind kind, const control *c) {
    const message_report *r = &c->report;
    bool is_sound = true;
    switch (kind) {
    case CONTROL_HEADER:
        return c->header.version == MESSAGE_VERSION && c->header.kind >= MESSAGE_HELLO && c->header.kind < MESSAGE_KIND_END &&
               c->header.size >= 1;
    case CONTROL_HELLO:
        return is_member(&c->hello.member) && is_text(c->hello.job_name, sizeof c->hello.job_name) && c->hello.timeout_s >= 0 &&
               c->hello.left_s >= 0;
    case CONTROL_REPORT:
        if (r->code <= AG_OK || r->code >= AG_STATUS_COUNT || r->num_culprits < 0 || r->num_culprits > AG_MAX_CULPRITS)
            return false;
        for (int i = 0; i < r->num_culprits; i++) is_sound &= r->culprits[i] >= 0 && r->culprits[i] < RANKS;
        return is_sound && is_text(r->reason, sizeof r->reason) && is_text(r->hint, sizeof r->hint);
    case CONTROL_PROGRESS: return is_progress(&c->progress[0]);
    case CONTROL_PROGRESS_TABLE:
        for (int i = 0; i < RANKS; i++) is_sound &= is_progress(&c->progress[i]);
        return is_sound;
    case CONTROL_TABLE:
        if (c->num_members < 1 || c->num_members > RANKS) return false;
        for (int i = 0; i < c->num_members; i++) {
            int previous = i > 0 ? c->members[i - 1].old_rank : -1, rank = c->members[i].old_rank;
            is_sound &= is_member(&c->members[i]) && rank > previous && rank < RANKS;
        }
        return is_sound;
    default: return true;
    }
}

/* True when it was accepted; a wrong acceptance ends the process. */
static bool check_control(control_kind kind, const uint8_t *data, size_t size, size_t payload_bytes) {
    static control c;
    static unsigned char again[MOST_CONTROL];
    size_t most = 0;
    memset(&c, 0xA5, sizeof c);
    if (!control_unpack(kind, data, size, payload_bytes, &c)) return false;
    if (!is_control_sound(kind, &c) || size > MOST_CONTROL) abort();
    if (control_pack(kind, &c, again, &most) != size || size > most) abort();
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    size_t payload_bytes = 0;
    if (size < PREFIX_BYTES) return 0;
    for (int i = 0; i < PREFIX_BYTES; i++) payload_bytes = payload_bytes << 8 | data[i];
    for (control_kind kind = 0; kind < CONTROL_COUNT; kind++)
        check_control(kind, data + PREFIX_BYTES, size - PREFIX_BYTES, payload_bytes);
    check(data + PREFIX_BYTES, size - PREFIX_BYTES, payload_bytes);
    if (size < PREFIX_BYTES + WIRE_HEADER_BYTES) return 0;
    /* The same with a header CRC that holds, so that the checks behind it are reached. */
    uint8_t copy[WIRE_HEADER_BYTES];
    memcpy(copy, data + PREFIX_BYTES, sizeof copy);
    uint32_t crc = crc32c(0, copy, WIRE_HEADER_BYTES - 4);
    for (int i = 0; i < 4; i++) copy[WIRE_HEADER_BYTES - 4 + i] = (uint8_t)(crc >> 8 * i);
    check(copy, sizeof copy, payload_bytes);
    return 0;
}

static wire_header random_header(uint64_t *random) {
    wire_header h = {.kind = (uint8_t)(WIRE_HELLO + next(random) % 5), .job = limits.job, .epoch = limits.epoch};
    h.group = (uint32_t)next(random);
    h.sender = (int32_t)(next(random) % (uint64_t)limits.size);
    h.credit = next(random);
    h.print.sequence = 1 + (next(random) >> (next(random) & 63)) / 2;
    h.print.hash = (uint32_t)next(random);
    h.print.root = (int32_t)(next(random) % (uint64_t)limits.size);
    do h.print.kind = (uint8_t)(next(random) % COLLECTIVE_KIND_COUNT);
    while (h.print.kind == COLLECTIVE_RECEIVE);
    h.print.op = (uint8_t)(next(random) % REDUCE_OP_COUNT);
    h.print.algorithm = (uint8_t)(next(random) % ALGORITHM_COUNT);
    h.print.dtype = (int8_t)(next(random) % AG_DTYPE_COUNT);
    h.print.count = (int64_t)(next(random) >> 1);
    h.print.ndim = (uint8_t)(next(random) % (AG_MAX_NDIM + 1));
    for (int d = 0; d < h.print.ndim && d < CALL_PRINT_DIMS; d++)
        h.print.dims[d] = next(random) % 8 == 0 ? -1 : (int64_t)(next(random) >> 1);
    if (h.kind == WIRE_REFUSAL) {
        h.print.flags = CALL_REFUSED;
        h.payload_bytes = next(random) % (WIRE_MAX_TEXT + 1);
        if (h.print.kind == COLLECTIVE_SEND) h.step = next(random) & 1 ? WIRE_REFUSES_RECEIVE : 0;
    }
    if (h.kind == WIRE_SEGMENT) {
        h.print.flags = (uint8_t)(next(random) % 16 & ~CALL_REFUSED);
        h.length = 1 + (int64_t)(next(random) % 131072);
        h.offset = (int64_t)(next(random) >> 2);
        h.step = (uint32_t)next(random);
        h.payload_bytes = (uint64_t)h.length * dtype_size((ag_dtype)h.print.dtype);
    }
    if (next(random) & 1)
        h.flags = WIRE_NO_CRC;
    else
        h.payload_crc = (uint32_t)next(random);
    return h;
}

static void random_text(uint64_t *random, char *text, size_t room) {
    size_t len = next(random) % room;
    for (size_t i = 0; i < len; i++) {
        unsigned char byte = (unsigned char)(32 + next(random) % 224);
        text[i] = byte == 127 ? '~' : (char)byte;
    }
    text[len] = '\0';
}

static void random_member(uint64_t *random, message_member *m) {
    session_member *s = &m->shown;
    s->pid = 1 + (int64_t)(next(random) % INT32_MAX);
    m->start_time = next(random);
    m->old_rank = (int32_t)next(random);
    random_text(random, s->host, sizeof s->host);
    random_text(random, s->token, sizeof s->token - 1);
    if (s->token[0] == '\0') memcpy(s->token, "t", 2);
    random_text(random, s->data_endpoint, sizeof s->data_endpoint);
    random_text(random, s->control_address, sizeof s->control_address);
}

/* Durations of whole seconds, which travel unchanged. */
static void random_control(uint64_t *random, control *c) {
    memset(c, 0, sizeof *c);
    c->header = (message_header){.version = MESSAGE_VERSION,
                                 .kind = (uint16_t)(MESSAGE_HELLO + next(random) % (MESSAGE_KIND_END - MESSAGE_HELLO)),
                                 .job = next(random),
                                 .epoch = (uint32_t)next(random),
                                 .flags = (uint32_t)next(random),
                                 .rank = (int32_t)next(random),
                                 .size = 1 + (int32_t)(next(random) % INT32_MAX),
                                 .sequence = next(random),
                                 .nonce = next(random),
                                 .payload_bytes = (uint32_t)(next(random) & 0xFFFFFF)};
    random_member(random, &c->hello.member);
    random_text(random, c->hello.job_name, sizeof c->hello.job_name);
    c->hello.timeout_s = (double)(next(random) % 1000000);
    c->hello.left_s = (double)(next(random) % 1000000);
    c->report.code = (ag_status)(1 + next(random) % (AG_STATUS_COUNT - 1));
    c->report.num_culprits = (int)(next(random) % (AG_MAX_CULPRITS + 1));
    for (int i = 0; i < c->report.num_culprits; i++) c->report.culprits[i] = (int32_t)(next(random) % RANKS);
    random_text(random, c->report.reason, sizeof c->report.reason);
    random_text(random, c->report.hint, sizeof c->report.hint);
    c->num_members = 1 + (int)(next(random) % RANKS);
    int old_rank = RANKS - c->num_members > 0 ? (int)(next(random) % (uint64_t)(RANKS - c->num_members + 1)) : 0;
    for (int i = 0; i < RANKS; i++) {
        message_progress *p = &c->progress[i];
        p->entered = next(random);
        p->finished = next(random);
        p->since_s = (double)(next(random) % 1000000);
        p->beat_age_s = (double)(next(random) % 1000000);
        c->has_left[i] = p->has_left = next(random) & 1;
        random_text(random, p->text, sizeof p->text);
        if (i >= c->num_members) continue;
        random_member(random, &c->members[i]);
        c->members[i].old_rank = old_rank++;
    }
    c->entered = next(random);
}

static bool is_same(const wire_header *a, const wire_header *b) {
    return a->kind == b->kind && a->flags == b->flags && a->job == b->job && a->epoch == b->epoch && a->group == b->group &&
           a->sender == b->sender && a->payload_crc == b->payload_crc && a->step == b->step && a->offset == b->offset &&
           a->length == b->length && a->payload_bytes == b->payload_bytes && a->credit == b->credit &&
           call_print_agree(&a->print, &b->print) && a->print.flags == b->print.flags;
}

static int report(const char *name, long long num_cases, const char *problem) {
    printf("%s  %s: %lld cases", problem ? "FAIL" : "ok  ", name, num_cases);
    if (problem) printf(", %s", problem);
    printf("\n");
    fflush(stdout);
    return problem ? 1 : 0;
}

static int test_round_trip(uint64_t seed) {
    const char *problem = NULL;
    for (int i = 0; i < 20000; i++) {
        wire_header h = random_header(&seed), back;
        unsigned char bytes[WIRE_HEADER_BYTES];
        wire_pack(&h, bytes);
        if (wire_unpack(bytes, sizeof bytes, h.payload_bytes, &limits, &back) != WIRE_OK)
            problem = "a sound header is refused";
        else if (!is_same(&h, &back))
            problem = "a header comes back as another one";
        if (wire_unpack(bytes, sizeof bytes, h.payload_bytes + 1, &limits, &back) != WIRE_BROKEN)
            problem = "a payload of another length is accepted";
        wire_limits other = limits;
        other.job ^= 1;
        if (wire_unpack(bytes, sizeof bytes, h.payload_bytes, &other, &back) != WIRE_FOREIGN)
            problem = "another job is accepted";
        other = limits;
        other.epoch++;
        if (wire_unpack(bytes, sizeof bytes, h.payload_bytes, &other, &back) != WIRE_OLD) problem = "another epoch is accepted";
    }
    return report("headers there and back", 20000, problem);
}

/* Every single bit that is turned is seen: as garbage, or as damage when job and epoch can still be read. */
static int test_single_bits(uint64_t seed) {
    const char *problem = NULL;
    long long num_cases = 0;
    for (int i = 0; i < 20; i++) {
        wire_header h = random_header(&seed), back;
        unsigned char bytes[WIRE_HEADER_BYTES];
        wire_pack(&h, bytes);
        for (int bit = 0; bit < 8 * WIRE_HEADER_BYTES; bit++, num_cases++) {
            bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
            wire_verdict verdict = wire_unpack(bytes, sizeof bytes, h.payload_bytes, &limits, &back);
            bool is_named = (bit / 8 >= 4 && bit / 8 < 6) || bit / 8 >= 20; /* beyond magic, version, job and epoch */
            if (verdict == WIRE_OK || (is_named && verdict != WIRE_BROKEN)) problem = "a turned bit is not seen";
            bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
        }
    }
    return report("single turned bits", num_cases, problem);
}

/* The field behind a mask is changed under a CRC that holds: the check of the field itself has to see it. */
static int test_fields(void) {
    static const struct {
        int at, num_bytes;
        uint64_t value;
        const char *name;
    } bad[] = {{4, 1, 0, "kind"},
               {4, 1, 6, "kind"},
               {5, 1, 2, "flags"},
               {5, 1, 1, "payload CRC beside no CRC"},
               {24, 4, 16, "sender"},
               {24, 4, 0xFFFFFFFFu, "sender"},
               {32, 8, 0, "sequence"},
               {40, 8, 1ull << 63, "count"},
               {52, 4, 16, "root"},
               {52, 4, 1u << 31, "root"},
               {56, 1, COLLECTIVE_KIND_COUNT, "call"},
               {56, 1, COLLECTIVE_RECEIVE, "call"},
               {57, 1, REDUCE_OP_COUNT, "op"},
               {58, 1, ALGORITHM_COUNT, "algorithm"},
               {59, 1, AG_MAX_NDIM + 1, "ndim"},
               {60, 1, AG_DTYPE_COUNT, "dtype"},
               {60, 1, 255, "dtype"},
               {61, 1, 16, "call flags"},
               {62, 2, 1, "reserved"},
               {64, 8, 1ull << 63, "a negative dim"},
               {96, 8, 1, "a dim beyond ndim"},
               {108, 4, 1, "reserved"},
               {112, 8, 1ull << 63, "offset"},
               {112, 8, INT64_MAX, "offset and length"},
               {120, 8, 0, "length"},
               {120, 8, 1ull << 63, "length"},
               {120, 8, 3, "length and bytes"},
               {128, 8, 1ull << 40, "payload bytes"},
               {144, 8, 1, "reserved"},
               {152, 4, 1u << 31, "reserved"}};
    const char *problem = NULL;
    wire_header h = {.kind = WIRE_SEGMENT,
                     .job = limits.job,
                     .epoch = limits.epoch,
                     .payload_crc = 5,
                     .length = 10,
                     .payload_bytes = 40,
                     .print = {.sequence = 1, .count = 12, .ndim = 2, .dims = {3, 4}, .dtype = AG_F32}};
    unsigned char bytes[WIRE_HEADER_BYTES];
    wire_header back;
    wire_pack(&h, bytes);
    if (check(bytes, sizeof bytes, 40) != WIRE_OK) problem = "the sound one is refused";
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        wire_pack(&h, bytes);
        for (int k = 0; k < bad[i].num_bytes; k++) bytes[bad[i].at + k] = (unsigned char)(bad[i].value >> 8 * k);
        uint32_t crc = crc32c(0, bytes, WIRE_HEADER_BYTES - 4);
        for (int k = 0; k < 4; k++) bytes[WIRE_HEADER_BYTES - 4 + k] = (unsigned char)(crc >> 8 * k);
        if (wire_unpack(bytes, sizeof bytes, 40, &limits, &back) != WIRE_BROKEN) problem = bad[i].name;
    }
    return report("senseless fields", sizeof bad / sizeof *bad, problem);
}

static size_t damage(unsigned char *bytes, uint64_t *random) {
    size_t size = WIRE_HEADER_BYTES;
    wire_header h = random_header(random);
    wire_pack(&h, bytes);
    uint64_t way = next(random) % 6;
    if (way == 0) return next(random) % size; /* cut off */
    if (way == 1) {                           /* all of it invented, behind the magic or not */
        for (size_t i = next(random) % 9; i < size; i++) bytes[i] = (unsigned char)next(random);
        return size;
    }
    if (way == 2) { /* spliced from two */
        unsigned char other[WIRE_HEADER_BYTES];
        h = random_header(random);
        wire_pack(&h, other);
        size_t at = next(random) % size, to = next(random) % size, num = next(random) % (size - (at > to ? at : to));
        memcpy(bytes + at, other + to, num);
        return size;
    }
    if (way == 3) { /* too long */
        for (size_t i = size; i < MAX_BYTES; i++) bytes[i] = (unsigned char)next(random);
        return size + 1 + next(random) % (MAX_BYTES - size);
    }
    for (uint64_t i = 1 + next(random) % 8; i > 0; i--) { /* bits, or bytes of extreme values */
        unsigned char *at = &bytes[next(random) % size];
        static const unsigned char extremes[] = {0, 1, 0x7F, 0x80, 0xFF};
        *at = way == 4 ? (unsigned char)(*at ^ 1u << next(random) % 8) : extremes[next(random) % sizeof extremes];
    }
    return size;
}

static int test_damage(double seconds, uint64_t seed) {
    int64_t end = clock_ns() + (int64_t)(seconds * 1e9);
    long long num_cases = 0, num_ok = 0;
    do {
        for (int i = 0; i < 1000; i++, num_cases++) {
            unsigned char bytes[MAX_BYTES];
            size_t size = damage(bytes, &seed);
            uint64_t length =
                size < 131 || next(&seed) % 4 == 0 ? next(&seed) : (uint64_t)(bytes[128] | bytes[129] << 8 | bytes[130] << 16);
            /* A copy of the exact size, so that a sanitizer sees a read beyond it. */
            uint8_t *exact = malloc(PREFIX_BYTES + size);
            if (!exact) exit(2);
            for (int k = 0; k < PREFIX_BYTES; k++) exact[k] = (uint8_t)(length >> 8 * (PREFIX_BYTES - 1 - k));
            memcpy(exact + PREFIX_BYTES, bytes, size);
            LLVMFuzzerTestOneInput(exact, PREFIX_BYTES + size);
            wire_header h;
            num_ok += wire_unpack(exact + PREFIX_BYTES, size, (size_t)(length & 0xFFFFFF), &limits, &h) == WIRE_OK;
            free(exact);
        }
    } while (clock_ns() < end);
    return report("damaged headers", num_cases, num_ok == num_cases ? "nothing was refused" : NULL);
}

/* Every kind there and back; then the same bytes cut off, lengthened or changed, in copies of the exact size. */
static int test_control(double seconds, uint64_t seed) {
    static control c, back;
    static unsigned char bytes[MOST_CONTROL + 16], again[MOST_CONTROL];
    int64_t end = clock_ns() + (int64_t)(seconds * 1e9);
    const char *problem = NULL;
    long long num_cases = 0, num_refused = 0;
    do {
        for (int i = 0; i < 200; i++, num_cases++) {
            control_kind kind = (control_kind)(next(&seed) % CONTROL_COUNT);
            size_t most, size;
            random_control(&seed, &c);
            size = control_pack(kind, &c, bytes, &most);
            memset(&back, 0, sizeof back);
            if (size > most) problem = "a sound one needs more room than there is";
            if (!control_unpack(kind, bytes, size, c.header.payload_bytes, &back))
                problem = "a sound one is refused";
            else if (control_pack(kind, &back, again, &most) != size || memcmp(again, bytes, size) != 0)
                problem = "it comes back as another one";
            uint64_t way = next(&seed) % 4;
            if (way == 0) size = next(&seed) % size;
            for (uint64_t more = way == 1 ? 1 + next(&seed) % 16 : 0; more > 0; more--)
                bytes[size++] = (unsigned char)next(&seed);
            for (uint64_t changes = way > 1 ? 1 + next(&seed) % 4 : 0; changes > 0; changes--) {
                static const unsigned char extremes[] = {0, 1, 0x7F, 0x80, 0xFF};
                bytes[next(&seed) % size] = next(&seed) & 1 ? (unsigned char)next(&seed) : extremes[next(&seed) % 5];
            }
            uint8_t *exact = malloc(PREFIX_BYTES + size);
            if (!exact) exit(2);
            for (int k = 0; k < PREFIX_BYTES; k++) exact[k] = (uint8_t)(c.header.payload_bytes >> 8 * (PREFIX_BYTES - 1 - k));
            memcpy(exact + PREFIX_BYTES, bytes, size);
            LLVMFuzzerTestOneInput(exact, PREFIX_BYTES + size);
            num_refused += !check_control(kind, exact + PREFIX_BYTES, size, c.header.payload_bytes);
            free(exact);
        }
    } while (clock_ns() < end);
    return report("control messages", num_cases, num_refused == 0 ? "nothing was refused" : problem);
}

static uint32_t crc_bitwise(uint32_t crc, const unsigned char *at, size_t num_bytes) {
    crc = ~crc;
    for (; num_bytes > 0; at++, num_bytes--) {
        crc ^= *at;
        for (int bit = 0; bit < 8; bit++) crc = crc & 1 ? crc >> 1 ^ 0x82F63B78u : crc >> 1;
    }
    return ~crc;
}

static int test_crc(uint64_t seed) {
    enum { MOST = 80000 }; /* and 64 bytes for each offset */
    static unsigned char data[MOST], copy[MOST];
    const char *problem = NULL;
    for (size_t i = 0; i < MOST; i++) data[i] = (unsigned char)next(&seed);
    if (crc32c(0, "123456789", 9) != 0xE3069283u) problem = "the check value of the standard";
    int num_cases = 400;
    for (int i = 0; i < num_cases; i++) {
        size_t begin = next(&seed) % 64, most = i % 8 == 0 ? MOST - 64 : i % 8 == 1 ? 300 : 1500, num = next(&seed) % most;
        uint32_t start = (uint32_t)next(&seed), expected = crc_bitwise(start, data + begin, num);
        size_t half = num / 3;
        if (crc32c(start, data + begin, num) != expected) problem = "the fast way differs";
        if (crc32c_portable(start, data + begin, num) != expected) problem = "the portable way differs";
        size_t target = next(&seed) % 64;
        memset(copy, 0, sizeof copy);
        if (crc32c_copy(start, copy + target, data + begin, num) != expected) problem = "the CRC of a copy differs";
        bool is_beside = (target > 0 && copy[target - 1] != 0) || copy[target + num] != 0;
        if (memcmp(copy + target, data + begin, num) != 0 || is_beside) problem = "the copy differs";
        if (crc32c(crc32c(start, data + begin, half), data + begin + half, num - half) != expected)
            problem = "two pieces differ from one";
    }
    return report("CRC-32C", num_cases, problem);
}

int main(int argc, char **argv) {
    double seconds = argc > 1 ? atof(argv[1]) : 2;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : 1;
    int num_failures = test_crc(seed) + test_round_trip(seed) + test_single_bits(seed) + test_fields();
    num_failures += test_damage(seconds / 2, seed) + test_control(seconds / 2, seed);
    return num_failures > 0;
}
