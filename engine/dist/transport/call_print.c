/* call_print.c: making and comparing the prints of calls, and the sentence that says how two of them differ. */
#include "dist/transport/call_print.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/dtype.h"
#include "core/error.h"

static uint64_t mix(uint64_t hash, uint64_t value) {
    hash = (hash ^ value) * 0x9E3779B97F4A7C15u;
    return hash ^ hash >> 29;
}

/* Only reductions read `op`, and only these `root`; what the others hold there is not part of the call. */
static bool has_root(collective_kind kind) {
    return kind == COLLECTIVE_REDUCE || kind == COLLECTIVE_BROADCAST || kind == COLLECTIVE_GATHER || kind == COLLECTIVE_SCATTER;
}

void call_print_make(call_print *out, const collective_call *call, int ndim, const int64_t *dims) {
    memset(out, 0, sizeof *out);
    bool is_pair = collective_is_pair(call->kind);
    bool is_barrier = call->kind == COLLECTIVE_BARRIER;
    out->sequence = call->sequence;
    out->kind = (uint8_t)(is_pair ? COLLECTIVE_SEND : call->kind);
    out->op = (uint8_t)(collective_is_reduction(call->kind) ? call->op : REDUCE_SUM);
    out->algorithm = (uint8_t)call->algorithm;
    out->root = has_root(call->kind) ? call->root : 0;
    out->dtype = (int8_t)(is_barrier ? AG_BOOL : call->dtype);
    out->count = is_barrier || call->counts ? 0 : call->count; /* with counts, each rank has its own */
    uint64_t hash = mix(out->kind, out->op);
    hash = mix(mix(mix(hash, out->algorithm), (uint64_t)out->root), (uint64_t)out->dtype);
    if (!is_barrier) {
        out->ndim = (uint8_t)ndim;
        hash = mix(mix(hash, (uint64_t)ndim), (uint64_t)out->count);
        for (int d = 0; d < ndim; d++) {
            if (d < CALL_PRINT_DIMS) out->dims[d] = dims[d];
            hash = mix(hash, (uint64_t)dims[d]);
        }
        /* What is sent and what is expected differ from rank to rank in an all_to_all. */
        if (call->counts && call->kind != COLLECTIVE_ALL_TO_ALL)
            for (int rank = 0; rank < call->size; rank++) hash = mix(hash, (uint64_t)call->counts[rank]);
    }
    out->hash = (uint32_t)(hash ^ hash >> 32);
}

bool call_print_agree(const call_print *a, const call_print *b) {
    return a->sequence == b->sequence && a->count == b->count && a->hash == b->hash && a->root == b->root &&
           a->kind == b->kind && a->op == b->op && a->algorithm == b->algorithm && a->ndim == b->ndim && a->dtype == b->dtype &&
           memcmp(a->dims, b->dims, sizeof a->dims) == 0;
}

const char *call_print_text(const call_print *print, char *buffer, size_t len) {
    collective_kind kind = print->kind < COLLECTIVE_KIND_COUNT ? (collective_kind)print->kind : COLLECTIVE_BARRIER;
    if (print->flags & (CALL_SPLIT | CALL_REGISTER)) {
        if (print->flags & CALL_REGISTER)
            snprintf(buffer, len, "register");
        else
            snprintf(buffer, len, "group of %" PRId64 " ranks", print->dims[0]);
        return buffer;
    }
    char dims[112] = "";
    size_t end = 0;
    for (int d = 0; d < print->ndim && d < CALL_PRINT_DIMS && end < sizeof dims; d++)
        end += print->dims[d] < 0
                   ? (size_t)snprintf(dims + end, sizeof dims - end, "%s*", d ? ", " : "")
                   : (size_t)snprintf(dims + end, sizeof dims - end, "%s%" PRId64, d ? ", " : "", print->dims[d]);
    if (print->ndim > CALL_PRINT_DIMS && end < sizeof dims) snprintf(dims + end, sizeof dims - end, ", …");
    char op[16] = "", root[32] = "";
    if (collective_is_reduction(kind) && print->op < REDUCE_OP_COUNT)
        snprintf(op, sizeof op, "(%s)", reduce_op_name((reduce_op)print->op));
    if (has_root(kind)) snprintf(root, sizeof root, ", root %d", (int)print->root);
    if (kind == COLLECTIVE_BARRIER) {
        snprintf(buffer, len, "barrier");
        return buffer;
    }
    const char *dtype = print->dtype >= 0 && print->dtype < AG_DTYPE_COUNT ? dtype_name((ag_dtype)print->dtype) : "?";
    snprintf(buffer, len, "%s%s of %s[%s]%s", kind == COLLECTIVE_SEND ? "send/receive" : collective_kind_name(kind), op, dtype,
             dims, root);
    return buffer;
}

void call_print_reason(char *out, size_t len, const char *text, size_t num_bytes) {
    size_t end = 0;
    for (; end + 1 < len && end < num_bytes; end++) {
        unsigned char c = (unsigned char)text[end];
        out[end] = c < 32 || c == 127 ? '?' : (char)c;
    }
    out[end] = '\0';
}

ag_status call_print_mismatch(int rank_a, const call_print *a, int rank_b, const call_print *b) {
    char text_a[112], text_b[112];
    const call_print *low = rank_a < rank_b ? a : b, *high = rank_a < rank_b ? b : a;
    int low_rank = rank_a < rank_b ? rank_a : rank_b, high_rank = rank_a < rank_b ? rank_b : rank_a;
    call_print_text(low, text_a, sizeof text_a);
    call_print_text(high, text_b, sizeof text_b);
    bool reads_equal = strcmp(text_a, text_b) == 0;
    const char *detail = !reads_equal                        ? ""
                         : low->sequence != high->sequence   ? " (calls of different numbers)"
                         : low->flags & CALL_SPLIT           ? " (of other members)"
                         : low->algorithm != high->algorithm ? " (with different algorithms)"
                                                             : " (with different counts)";
    int32_t culprits[2] = {low_rank, high_rank};
    error_set(AG_E_MISMATCH, collective_kind_name((collective_kind)low->kind), NULL, NULL,
              "all ranks of a group must make the same calls in the same order", "rank %d called %s, rank %d called %s%s",
              low_rank, text_a, high_rank, text_b, detail);
    error_set_culprits(culprits, 2, low->sequence);
    return AG_E_MISMATCH;
}
