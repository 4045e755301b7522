/* wire.h: the header of every message on a data connection, and its check.
 *
 * 160 bytes, little-endian, whatever machine. A receiver looks at nothing but the header before wire_unpack has accepted it,
 * and allocates nothing that a header asks for beyond the limits given. CRC-32C over the header guards it against stray bytes;
 * the payload has one of its own where the connection is not authenticated.
 *
 * offset size
 *      0    4  magic "AGD1"
 *      4    1  kind (wire_kind)      5  1  flags     6  2  version
 *      8    8  job                  16  4  epoch    20  4  group
 *     24    4  sender (rank of the group)           28  4  payload CRC-32C, 0 with flag WIRE_NO_CRC
 *     32   72  the call's print (call_print, field by field)
 *    104    4  step; of a greeting: 1 = it answers one; of a refusal: WIRE_REFUSES_RECEIVE or 0
 *    108    4  reserved, 0
 *    112    8  offset, 120  8  length, in elements of the transfer
 *    128    8  payload bytes
 *    136    8  credit: segments taken from the receiver so far
 *    144   12  reserved, 0
 *    156    4  CRC-32C of bytes 0 to 155
 */
#ifndef ARGAND_DIST_TRANSPORT_WIRE_H
#define ARGAND_DIST_TRANSPORT_WIRE_H

#include "dist/transport/call_print.h"

#define WIRE_HEADER_BYTES 160
#define WIRE_VERSION      1
#define WIRE_MAX_TEXT     200 /* bytes of a refusal */

/* HELLO: the sender waits in this call. CREDIT: nothing but the credit. REFUSAL: the payload says why. */
typedef enum wire_kind { WIRE_HELLO = 1, WIRE_SEGMENT, WIRE_CREDIT, WIRE_REFUSAL, WIRE_GOODBYE } wire_kind;
enum { WIRE_NO_CRC = 1 };
/* Send and receive of a pair have equal prints, but are numbered for each direction: which of the two is refused. */
enum { WIRE_REFUSES_RECEIVE = 1 };

typedef struct wire_header {
    uint8_t kind, flags;
    uint64_t job;
    uint32_t epoch, group;
    int32_t sender;
    uint32_t payload_crc;
    call_print print;
    uint32_t step;
    int64_t offset, length;
    uint64_t payload_bytes, credit;
} wire_header;

/* What a receiver admits. */
typedef struct wire_limits {
    uint64_t job;
    uint32_t epoch;
    int size; /* of the world: senders are 0 to size - 1 */
    uint64_t max_payload_bytes;
} wire_limits;

typedef enum wire_verdict {
    WIRE_OK,
    WIRE_FOREIGN, /* no message of this job, or garbage: ignore it and count it */
    WIRE_OLD,     /* of another epoch of this job: ignore it and count it */
    WIRE_BROKEN   /* of this job and epoch, but damaged or senseless: the peer or the way to it is broken */
} wire_verdict;

void wire_pack(const wire_header *header, unsigned char out[WIRE_HEADER_BYTES]);
/* wire_unpack checks bytes that came and fills *out on WIRE_OK. payload_bytes is the payload that really came with it.
 * Any input is safe. */
wire_verdict wire_unpack(const void *bytes, size_t num_bytes, size_t payload_bytes, const wire_limits *limits,
                         wire_header *out);

#endif
