/* collective_reference.c: the serial reference of the collectives: each element in the order that dist/README.md states. */
#include "support/collective_reference.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/dtype.h"

/* An element: f64 in `wide`, other floats in `single`, whole numbers and bool in `whole`. */
typedef union number {
    double wide;
    float single;
    int64_t whole;
} number;

/* The inputs of a reduction, at one element. */
typedef struct column {
    const job *job;
    int64_t position;
    ag_dtype dtype;
    reduce_op op;
    int size, root;
} column;

uint64_t random_next(uint64_t *state) {
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

static number read_number(const column *c, int rank) {
    const char *address = c->job->original[rank] + c->position * (int64_t)dtype_size(c->dtype);
    number result = {0};
    if (c->dtype == AG_F64) result.wide = element_read(c->dtype, address);
    else if (dtype_is_float(c->dtype)) result.single = (float)element_read(c->dtype, address);
    else result.whole = element_read_int(c->dtype, address);
    return result;
}

#define CHOOSE(FIELD)                                                                                  \
    do {                                                                                               \
        if (c->op == REDUCE_MIN) a.FIELD = a.FIELD < b.FIELD || a.FIELD != a.FIELD ? a.FIELD : b.FIELD; \
        else if (c->op == REDUCE_MAX) a.FIELD = a.FIELD > b.FIELD || a.FIELD != a.FIELD ? a.FIELD : b.FIELD; \
        else if (c->op == REDUCE_PROD) a.FIELD = a.FIELD * b.FIELD;                                    \
        else a.FIELD = a.FIELD + b.FIELD;                                                              \
    } while (0)

static number combine(const column *c, number a, number b) {
    if (c->dtype == AG_F64) {
        CHOOSE(wide);
    } else if (dtype_is_float(c->dtype)) {
        CHOOSE(single);
    } else {
        uint64_t x = (uint64_t)a.whole, y = (uint64_t)b.whole;
        switch (c->op) {
        case REDUCE_MIN: a.whole = a.whole < b.whole ? a.whole : b.whole; break;
        case REDUCE_MAX: a.whole = a.whole > b.whole ? a.whole : b.whole; break;
        case REDUCE_PROD: a.whole = (int64_t)(x * y); break;
        case REDUCE_AND: a.whole = (int64_t)(x & y); break;
        case REDUCE_OR: a.whole = (int64_t)(x | y); break;
        default: a.whole = (int64_t)(x + y); break;
        }
    }
    return a;
}

static number sum_around(const column *c, int first) {
    number total = read_number(c, first % c->size);
    for (int i = 1; i < c->size; i++) total = combine(c, total, read_number(c, (first + i) % c->size));
    return total;
}

/* Places first..first + width - 1 of the halving, two halves at a time; folded pairs first. */
static number sum_halves(const column *c, int num_folded, int first, int width) {
    if (width > 1) {
        number left = sum_halves(c, num_folded, first, width / 2);
        return combine(c, left, sum_halves(c, num_folded, first + width / 2, width / 2));
    }
    if (first >= num_folded) return read_number(c, first + num_folded);
    return combine(c, read_number(c, 2 * first), read_number(c, 2 * first + 1));
}

static number sum_tree(const column *c, int place) {
    number total = read_number(c, (place + c->root) % c->size);
    for (int distance = 1; distance < c->size && (place & distance) == 0; distance *= 2)
        if (place + distance < c->size) total = combine(c, total, sum_tree(c, place + distance));
    return total;
}

/* Writes the reduction of all inputs' elements [0, count) to out. */
static void reduce_all(const job *j, const job_options *o, char *out) {
    column c = {.job = j, .dtype = o->dtype, .op = o->op, .size = o->size, .root = o->root};
    int places = 1, chunk = 0;
    while (2 * places <= o->size) places *= 2;
    for (c.position = 0; c.position < o->count; c.position++) {
        while (c.position >= chunk_offset(o->count, o->size, chunk + 1)) chunk++;
        number total;
        switch (o->algorithm) {
        case ALGORITHM_RING: total = sum_around(&c, chunk + 1); break;
        case ALGORITHM_HALVING: total = sum_halves(&c, o->size - places, 0, places); break;
        case ALGORITHM_TREE: total = sum_tree(&c, 0); break;
        default: total = sum_around(&c, 0); break;
        }
        char *target = out + c.position * (int64_t)dtype_size(o->dtype);
        bool is_mean = o->op == REDUCE_MEAN;
        if (o->dtype == AG_F64) element_write(o->dtype, target, is_mean ? total.wide / o->size : total.wide);
        else if (dtype_is_float(o->dtype))
            element_write(o->dtype, target, is_mean ? total.single / (float)o->size : total.single);
        else element_write_int(o->dtype, target, total.whole);
    }
}

static void fill(const job_options *o, char *data, int64_t count, uint64_t *random) {
    bool is_chosen = o->op == REDUCE_MIN || o->op == REDUCE_MAX;
    for (int64_t i = 0; i < count; i++) {
        uint64_t bits = random_next(random);
        char *target = data + i * (int64_t)dtype_size(o->dtype);
        if (o->dtype == AG_BOOL) {
            *target = (char)(bits >> 40 & 1);
        } else if (!dtype_is_float(o->dtype)) {
            bits |= 1; /* never 0, so that a lost contribution shows */
            memcpy(target, &bits, dtype_size(o->dtype));
        } else {
            double value = ((double)(bits >> 11) * 0x1p-53 - 0.5) * 4;
            /* Often zeros of both signs: which one comes out tells the order. */
            if (is_chosen && bits % 4 == 0) value = bits % 64 == 0 ? (double)__builtin_nanf("") : bits % 8 == 0 ? -0.0 : 0.0;
            element_write(o->dtype, target, value == 0 && !is_chosen ? 1 : value);
        }
    }
}

static int64_t sum_counts(const int64_t *counts, int num) {
    int64_t total = 0;
    for (int i = 0; i < num; i++) total += counts[i];
    return total;
}

static void set_lengths(job *j, const job_options *o, uint64_t *random) {
    for (int i = 0; i < o->size; i++)
        for (int k = 0; k < o->size; k++)
            j->counts[i][k] = o->has_counts ? (int64_t)(random_next(random) % (uint64_t)(o->count + 2)) : o->count;
    for (int i = 0; i < o->size; i++)
        for (int k = 0; k < o->size; k++) j->output_counts[i][k] = j->counts[k][i];
    int64_t total = sum_counts(j->counts[0], o->size);
    for (int rank = 0; rank < o->size; rank++) {
        bool is_root = rank == o->root;
        int64_t block = j->counts[0][rank], in = 0, out = 0;
        switch (o->kind) {
        case COLLECTIVE_ALL_REDUCE: in = out = o->count; break;
        case COLLECTIVE_REDUCE: in = o->count, out = is_root ? o->count : 0; break;
        case COLLECTIVE_BROADCAST: in = is_root ? o->count : 0, out = o->count; break;
        case COLLECTIVE_ALL_GATHER: in = block, out = total; break;
        case COLLECTIVE_REDUCE_SCATTER:
            in = o->count;
            out = chunk_offset(o->count, o->size, rank + 1) - chunk_offset(o->count, o->size, rank);
            break;
        case COLLECTIVE_GATHER: in = block, out = is_root ? total : 0; break;
        case COLLECTIVE_SCATTER: in = is_root ? total : 0, out = block; break;
        case COLLECTIVE_ALL_TO_ALL:
            in = sum_counts(j->counts[rank], o->size), out = sum_counts(j->output_counts[rank], o->size);
            break;
        case COLLECTIVE_SEND: in = is_root ? o->count : 0, out = rank == o->other ? o->count : 0; break;
        default: break;
        }
        j->input_length[rank] = in;
        j->output_length[rank] = out;
    }
}

static void place_buffers(job *j, const job_options *o) {
    size_t element = dtype_size(o->dtype), pad = o->is_unaligned ? 1 : 0, total = 0, bytes[MAX_RANKS];
    for (int rank = 0; rank < o->size; rank++) {
        bytes[rank] = (size_t)(j->input_length[rank] + j->output_length[rank] + 2) * element + 64;
        total += 4 * bytes[rank];
    }
    char *next = j->memory = calloc(total, 1);
    if (!next) exit(2);
    for (int rank = 0; rank < o->size; rank++) {
        collective_call *call = &j->calls[rank];
        int64_t own = sum_counts(j->counts[0], rank) * (int64_t)element;
        char *in = next + pad, *out = in;
        j->original[rank] = next + 2 * bytes[rank];
        j->expected[rank] = next + 3 * bytes[rank];
        bool is_root = rank == o->root;
        if (!o->is_in_place) out = next + bytes[rank] + pad;
        else if (o->kind == COLLECTIVE_ALL_GATHER || (o->kind == COLLECTIVE_GATHER && is_root)) in += own;
        else if (o->kind == COLLECTIVE_SCATTER && is_root) out += own;
        call->input = in;
        call->output = out;
        next += 4 * bytes[rank];
    }
}

/* Copies `length` elements from the input of `source` at begin to what is expected of rank at target. */
static void expect_copy(job *j, const job_options *o, int rank, int64_t target, int source, int64_t begin, int64_t length) {
    size_t element = dtype_size(o->dtype);
    memcpy(j->expected[rank] + (size_t)target * element, j->original[source] + (size_t)begin * element,
           (size_t)length * element);
}

static void expect_moves(job *j, const job_options *o, int rank) {
    int64_t target = 0, own = sum_counts(j->counts[0], rank);
    if (j->output_length[rank] == 0) return;
    switch (o->kind) {
    case COLLECTIVE_BROADCAST:
    case COLLECTIVE_SEND: expect_copy(j, o, rank, 0, o->root, 0, o->count); break;
    case COLLECTIVE_SCATTER: expect_copy(j, o, rank, 0, o->root, own, j->output_length[rank]); break;
    case COLLECTIVE_ALL_GATHER:
    case COLLECTIVE_GATHER:
        for (int peer = 0; peer < o->size; target += j->input_length[peer], peer++)
            expect_copy(j, o, rank, target, peer, 0, j->input_length[peer]);
        break;
    case COLLECTIVE_ALL_TO_ALL:
        for (int peer = 0; peer < o->size; target += j->counts[peer][rank], peer++)
            expect_copy(j, o, rank, target, peer, sum_counts(j->counts[peer], rank), j->counts[peer][rank]);
        break;
    default: break;
    }
}

static void expect_reduction(job *j, const job_options *o) {
    size_t element = dtype_size(o->dtype);
    char *result = malloc((size_t)(o->count + 1) * element);
    if (!result) exit(2);
    if (o->size > 1) reduce_all(j, o, result);
    else memcpy(result, j->original[0], (size_t)o->count * element);
    for (int rank = 0; rank < o->size; rank++) {
        int64_t begin = o->kind == COLLECTIVE_REDUCE_SCATTER ? chunk_offset(o->count, o->size, rank) : 0;
        memcpy(j->expected[rank], result + (size_t)begin * element, (size_t)j->output_length[rank] * element);
    }
    free(result);
}

void job_make(job *j, const job_options *o, uint64_t *random) {
    memset(j, 0, sizeof *j);
    j->size = o->size;
    j->is_in_place = o->is_in_place;
    set_lengths(j, o, random);
    place_buffers(j, o);
    for (int rank = 0; rank < o->size; rank++) {
        collective_call *call = &j->calls[rank];
        bool is_to_all = o->kind == COLLECTIVE_ALL_TO_ALL;
        const void *input = call->input;
        void *output = call->output;
        *call = (collective_call){.kind = o->kind, .algorithm = o->algorithm, .op = o->op, .dtype = o->dtype, .size = o->size,
                                  .rank = rank, .root = o->root, .count = o->count, .input = input, .output = output,
                                  .segment_bytes = o->segment_bytes[rank]};
        if (o->has_counts) call->counts = j->counts[is_to_all ? rank : 0];
        if (o->has_counts && is_to_all) call->output_counts = j->output_counts[rank];
        if (o->kind == COLLECTIVE_SEND) {
            if (rank == o->root) call->root = o->other;
            else if (rank == o->other) call->kind = COLLECTIVE_RECEIVE;
            else *call = (collective_call){.kind = COLLECTIVE_BROADCAST, .dtype = AG_U8};
        }
        fill(o, (char *)input, j->input_length[rank], random);
        memcpy(j->original[rank], input, (size_t)j->input_length[rank] * dtype_size(o->dtype));
    }
    bool reduces = o->kind == COLLECTIVE_ALL_REDUCE || o->kind == COLLECTIVE_REDUCE || o->kind == COLLECTIVE_REDUCE_SCATTER;
    if (reduces) expect_reduction(j, o);
    else
        for (int rank = 0; rank < o->size; rank++) expect_moves(j, o, rank);
}

void job_free(job *j) { free(j->memory); }

bool job_is_right(const job *j, int rank) {
    size_t element = dtype_size(j->calls[rank].dtype);
    return memcmp(j->calls[rank].output ? j->calls[rank].output : "", j->expected[rank],
                  (size_t)j->output_length[rank] * element) == 0;
}

bool job_input_is_intact(const job *j, int rank) {
    size_t length = (size_t)j->input_length[rank] * dtype_size(j->calls[rank].dtype);
    return length == 0 || memcmp(j->calls[rank].input, j->original[rank], length) == 0;
}
