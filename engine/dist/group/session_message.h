/* session_message.h: the control messages of a session: their bytes and the check of what came.
 *
 * A message is a header part of 64 bytes and, mostly, a payload part; little-endian, whatever machine. Any bytes are safe:
 * nothing is read beyond what came, texts are bounded and terminated, ranks are checked against the size that the receiver
 * knows.
 *
 * offset size
 *      0    4  magic "AGC1"
 *      4    2  version               6    2  kind (message_kind)
 *      8    8  job                  16    4  epoch   20  4  flags
 *     24    4  rank: of a rank's message the sender, of the coordinator's the receiver
 *     28    4  size of the job
 *     32    8  sequence
 *     40    8  nonce of the rank's session, both ways: a message for an earlier process does not count
 *     48    4  payload bytes        52  12  reserved, 0
 *
 * Connections break and what was underway is lost, silently. So what matters is repeated until it is answered, and each message
 * may come twice.
 */
#ifndef ARGAND_DIST_GROUP_SESSION_MESSAGE_H
#define ARGAND_DIST_GROUP_SESSION_MESSAGE_H

#include "dist/group/session.h"

#define MESSAGE_VERSION        1
#define MESSAGE_HEADER_BYTES   64
#define MESSAGE_MEMBER_BYTES   600 /* the most that a member takes in a table */
#define MESSAGE_PROGRESS_BYTES 140
#define MESSAGE_REPORT_BYTES   512
#define MESSAGE_MAX_EXCHANGE   4096

/* kind        from  to     payload               answered by
 * HELLO       rank  coord  hello                 WAIT, TABLE, REFUSED
 * WAIT        coord rank   a table of the coordinator alone
 * TABLE       coord rank   all members; sequence: the coordinator's rank
 * REFUSED     coord rank   report                ACK
 * BEAT        rank  coord  progress              ECHO
 * ECHO        coord rank   who has left
 * ABORT       both         report                ABORT from coord, ACK from rank
 * EXCHANGE    rank  coord  bytes                 EXCHANGED, PENDING
 * EXCHANGED   coord rank   bytes of all
 * PENDING     coord rank   report: who is missing
 * ASK         rank  coord                        PROGRESS
 * PROGRESS    coord rank   progress of all
 * LEAVE       rank  coord  progress              LEFT
 * LEFT        coord rank   who has left          ACK when it has MESSAGE_ENDED
 * ACK         rank  coord  sequence: the kind
 */
typedef enum message_kind {
    MESSAGE_HELLO = 1,
    MESSAGE_WAIT,
    MESSAGE_TABLE,
    MESSAGE_REFUSED,
    MESSAGE_BEAT,
    MESSAGE_ECHO,
    MESSAGE_ABORT,
    MESSAGE_EXCHANGE,
    MESSAGE_EXCHANGED,
    MESSAGE_PENDING,
    MESSAGE_ASK,
    MESSAGE_PROGRESS,
    MESSAGE_LEAVE,
    MESSAGE_LEFT,
    MESSAGE_ACK,
    MESSAGE_KIND_END
} message_kind;

enum {
    MESSAGE_IS_REGROUP = 1, /* HELLO: rank and size are those of the epoch before */
    MESSAGE_IS_CLOSING = 2, /* LEAVE: with a goodbye, not a session_free in the middle of things */
    MESSAGE_ENDED = 4,      /* LEFT: nobody is left to wait for */
    MESSAGE_ALL_LEFT = 8    /* LEFT: and all have said goodbye */
};

typedef struct message_header {
    uint16_t version, kind;
    uint64_t job;
    uint32_t epoch, flags;
    int32_t rank, size;
    uint64_t sequence, nonce;
    uint32_t payload_bytes;
} message_header;

typedef enum message_verdict { MESSAGE_OK, MESSAGE_FOREIGN, MESSAGE_OTHER_VERSION } message_verdict;

/* What a member tells of itself. */
typedef struct message_member {
    session_member shown;
    uint64_t start_time; /* of the process, in ticks; 0 = unknown. With the pid it names a process */
    int32_t old_rank;    /* in the epoch before; the rank itself when there was none */
} message_member;

typedef struct message_hello {
    message_member member;
    char job_name[64];
    double timeout_s, left_s; /* how long the rank wants to wait in all, and from now on */
} message_hello;

typedef struct message_report {
    ag_status code;
    int num_culprits;
    int32_t culprits[AG_MAX_CULPRITS];
    char reason[256], hint[160];
} message_report;

/* In a BEAT beat_age_s and has_left mean nothing. */
typedef session_progress message_progress;

uint64_t message_job_number(const char *job); /* FNV-1a of the name */

void message_pack(const message_header *header, unsigned char out[MESSAGE_HEADER_BYTES]);
/* message_unpack fills *out on MESSAGE_OK; on MESSAGE_OTHER_VERSION out->version only. */
message_verdict message_unpack(const void *bytes, size_t num_bytes, size_t payload_bytes, message_header *out);

/* Each pack returns the number of bytes written to out, which has room for the most; each unpack is false for senseless bytes.
 * */
size_t message_pack_hello(const message_hello *hello, unsigned char out[MESSAGE_MEMBER_BYTES + 100]);
bool message_unpack_hello(const void *bytes, size_t len, message_hello *out);
size_t message_pack_report(const message_report *report, unsigned char out[MESSAGE_REPORT_BYTES]);
bool message_unpack_report(const void *bytes, size_t len, int size, message_report *out);
size_t message_pack_progress(const message_progress *progress, unsigned char out[MESSAGE_PROGRESS_BYTES]);
bool message_unpack_progress(const void *bytes, size_t len, message_progress *out);
/* out: [count * MESSAGE_PROGRESS_BYTES]; unpack wants exactly count. */
size_t message_pack_progress_table(const message_progress *table, int count, unsigned char *out);
bool message_unpack_progress_table(const void *bytes, size_t len, int count, message_progress *table);
/* A table of members in rising old ranks, below old_size. out: [8 + count * MESSAGE_MEMBER_BYTES]. members: [old_size]. */
size_t message_pack_table(const message_member *members, int count, unsigned char *out);
bool message_unpack_table(const void *bytes, size_t len, int old_size, message_member *members, int *count);
/* Who has left, [size], and the calls that the coordinator had entered then. out: [8 + size / 8 + 1]. */
size_t message_pack_left(const bool *has_left, int size, uint64_t coordinator_entered, unsigned char *out);
bool message_unpack_left(const void *bytes, size_t len, int size, bool *has_left, uint64_t *coordinator_entered);

#endif
