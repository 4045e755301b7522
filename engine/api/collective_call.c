/* collective_call.c: checks a collective on tensors once, and brings what it reads and writes into shape. */
#include "api/collective_call.h"

#include <stdio.h>
#include <string.h>

#include "backend/backend.h"
#include "core/error.h"
#include "core/memory.h"
#include "exec/exec.h"

/* ---- words ---- */

static ag_status unknown_word(const char *kind, const char *arg, const char *expected, const char *got) {
    return error_set(AG_E_VALUE, kind, arg, expected, NULL, "\"%.40s\"", got);
}

ag_status tensor_call_parse(const ag_collective *c, int rank, int size, tensor_call *out) {
    int kind = 0, op = 0, algorithm = 0;
    out->call = (collective_call){.kind = COLLECTIVE_KIND_COUNT, .rank = rank, .size = size, .root = c->root};
    const char *given = c->kind ? c->kind : "";
    while (kind < COLLECTIVE_KIND_COUNT && strcmp(collective_kind_name((collective_kind)kind), given) != 0) kind++;
    if (kind == COLLECTIVE_KIND_COUNT)
        return unknown_word("collective", "kind",
                            "all_reduce, reduce, broadcast, all_gather, reduce_scatter, gather, scatter, all_to_all, send, "
                            "receive or barrier",
                            given);
    out->call.kind = (collective_kind)kind;
    while (c->op && op < REDUCE_OP_COUNT && strcmp(reduce_op_name((reduce_op)op), c->op) != 0) op++;
    if (op == REDUCE_OP_COUNT) return unknown_word(given, "op", "sum, mean, min, max, prod, and, or", c->op);
    while (c->algorithm && algorithm < ALGORITHM_COUNT &&
           strcmp(algorithm_name((collective_algorithm)algorithm), c->algorithm) != 0)
        algorithm++;
    if (algorithm != ALGORITHM_ANY) {
        bool is_known = false;
        char expected[96] = "";
        for (const collective_algorithm *a = algorithm_list((collective_kind)kind); *a != ALGORITHM_ANY; a++) {
            is_known = is_known || (int)*a == algorithm;
            size_t end = strlen(expected);
            snprintf(expected + end, sizeof expected - end, "%s%s", end ? ", " : "", algorithm_name(*a));
        }
        if (!is_known) return unknown_word(given, "algorithm", expected, c->algorithm);
    }
    out->call.op = (reduce_op)op;
    out->call.algorithm = (collective_algorithm)algorithm;
    return AG_OK;
}

/* ---- what takes part ---- */

ag_status tensor_call_check_device(const char *kind, ag_device *device) {
    if (device->backend->has_collectives) return AG_OK;
    return error_set(AG_E_DEVICE, kind, "tensor", "a device with collectives", "move the tensor: t:to(\"cpu\"), or go on alone",
                     "device %s, which cannot take part in them", device->name);
}

static bool is_root(const tensor_call *p) { return p->call.rank == p->call.root; }

static bool has_input(const tensor_call *p) {
    collective_kind kind = p->call.kind;
    if (kind == COLLECTIVE_BARRIER || kind == COLLECTIVE_RECEIVE) return false;
    return kind != COLLECTIVE_SCATTER || is_root(p);
}

static bool has_output(const tensor_call *p) {
    collective_kind kind = p->call.kind;
    if (kind == COLLECTIVE_BARRIER || kind == COLLECTIVE_SEND) return false;
    return (kind != COLLECTIVE_REDUCE && kind != COLLECTIVE_GATHER) || is_root(p);
}

static ag_status require_tensor(const char *kind, const char *arg, const ag_tensor *tensor) {
    if (tensor) return AG_OK;
    return error_set(AG_E_ARGUMENT, kind, arg, "a tensor", NULL, "none");
}

static ag_status require_root(const tensor_call *p) {
    bool is_pair = collective_is_pair(p->call.kind);
    int root = p->call.root, size = p->call.size;
    const char *name = collective_kind_name(p->call.kind), *arg = is_pair ? "rank" : "root";
    if (root < 0 || root >= size) {
        char expected[48];
        snprintf(expected, sizeof expected, "0 to %d", size - 1);
        return error_set(AG_E_VALUE, name, arg, expected, NULL, "%d", root);
    }
    if (is_pair && is_root(p)) return error_set(AG_E_VALUE, name, arg, "another rank", NULL, "%d, this rank itself", root);
    return AG_OK;
}

static ag_status rows_error(const tensor_call *p, const ag_tensor *t) {
    char text[128];
    return error_set(AG_E_SHAPE, collective_kind_name(p->call.kind), "tensor", "a first dim that the ranks divide evenly",
                     "pad it, or give counts", "%s on %d ranks", tensor_text(t, text, sizeof text), p->call.size);
}

/* Sums of counts as rows of the first dim. */
static ag_status sum_counts(const tensor_call *p, const int64_t *counts, int64_t *out) {
    const char *name = collective_kind_name(p->call.kind);
    int64_t sum = 0;
    for (int i = 0; i < p->call.size; i++) {
        if (counts[i] < 0)
            return error_set(AG_E_VALUE, name, "counts", "rows >= 0", NULL, "%lld for rank %d", (long long)counts[i], i);
        if (__builtin_add_overflow(sum, counts[i], &sum))
            return error_set(AG_E_VALUE, name, "counts", "a countable sum", NULL, "more");
    }
    *out = sum;
    return AG_OK;
}

static ag_status counts_error(const char *name, const char *arg, int64_t expected, int64_t got) {
    char text[40];
    snprintf(text, sizeof text, "%lld rows", (long long)expected);
    return error_set(AG_E_SHAPE, name, arg, text, NULL, "%lld", (long long)got);
}

/* The shape of the result from that of t, the input or `like`, and the count of the call in elements. */
static ag_status result_shape(const ag_collective *c, const tensor_call *p, const ag_tensor *t, shape *s, int64_t *count) {
    const char *name = collective_kind_name(p->call.kind);
    int rank = p->call.rank, size = p->call.size;
    *s = tensor_shape(t);
    *count = t->numel;
    int64_t rows = s->ndim ? s->dims[0] : 1, total = 0;
    switch (p->call.kind) {
    case COLLECTIVE_ALL_GATHER:
    case COLLECTIVE_GATHER:
        if (s->ndim == 0) *s = (shape){.ndim = 1, .dims = {1}};
        total = (int64_t)size * rows;
        if (c->counts) {
            if (c->counts[rank] != rows) return counts_error(name, "counts", rows, c->counts[rank]);
            AG_TRY(sum_counts(p, c->counts, &total));
        }
        s->dims[0] = total;
        return AG_OK;
    case COLLECTIVE_REDUCE_SCATTER:
        if (s->ndim == 0 || rows % size != 0) return rows_error(p, t);
        s->dims[0] = rows / size;
        return AG_OK;
    case COLLECTIVE_SCATTER:
        if (!p->input) {
            if (c->counts && c->counts[rank] != rows) return counts_error(name, "like", c->counts[rank], rows);
            return AG_OK;
        }
        if (c->counts) {
            AG_TRY(sum_counts(p, c->counts, &total));
            if (s->ndim == 0 || total != rows) return counts_error(name, "tensor", total, rows);
            s->dims[0] = c->counts[rank];
            return AG_OK;
        }
        if (s->ndim == 0 || rows % size != 0) return rows_error(p, t);
        s->dims[0] = rows / size;
        *count = t->numel / size;
        return AG_OK;
    case COLLECTIVE_ALL_TO_ALL:
        if (s->ndim == 0) return rows_error(p, t);
        if (c->counts) {
            if (!c->output_counts) return error_set(AG_E_ARGUMENT, name, "output_counts", "rows from every rank", NULL, "none");
            AG_TRY(sum_counts(p, c->counts, &total));
            if (total != rows) return counts_error(name, "tensor", total, rows);
            AG_TRY(sum_counts(p, c->output_counts, &total));
            s->dims[0] = total;
            return AG_OK;
        }
        if (rows % size != 0) return rows_error(p, t);
        *count = t->numel / size;
        return AG_OK;
    default: return AG_OK;
    }
}

/* What travels in prints: the shape that all ranks share. */
static void print_shape(const ag_collective *c, tensor_call *p, const ag_tensor *t, bool is_input) {
    p->ndim = t->ndim;
    for (int d = 0; d < t->ndim; d++) p->dims[d] = t->dims[d];
    if (t->ndim == 0) return;
    if (c->counts)
        p->dims[0] = -1; /* rows of its own */
    else if (p->call.kind == COLLECTIVE_SCATTER && is_input)
        p->dims[0] /= p->call.size;
}

static ag_status check_counts(const ag_collective *c, const tensor_call *p) {
    collective_kind kind = p->call.kind;
    const char *name = collective_kind_name(kind);
    bool takes_counts = kind == COLLECTIVE_ALL_GATHER || kind == COLLECTIVE_GATHER || kind == COLLECTIVE_SCATTER ||
                        kind == COLLECTIVE_ALL_TO_ALL;
    if (c->counts && !takes_counts)
        return error_set(AG_E_ARGUMENT, name, "counts", "none", "all_gather, gather, scatter and all_to_all take them",
                         "rows of every rank");
    if (c->output_counts && (kind != COLLECTIVE_ALL_TO_ALL || !c->counts))
        return error_set(AG_E_ARGUMENT, name, "output_counts", "none", "all_to_all takes them, beside counts",
                         "rows from every rank");
    return AG_OK;
}

/* The most elements of a call: their bytes have to be countable. */
#define MAX_COUNT (INT64_MAX / 64)

/* True when it cannot be: negative, or too much in all. */
static bool to_elements(int64_t rows, int64_t row, int64_t *total, int64_t *out) {
    if (rows < 0 || __builtin_mul_overflow(rows, row, out) || *out > MAX_COUNT - *total) return true;
    *total += *out;
    return false;
}

/* Rows of t as elements. */
static ag_status element_counts(const ag_collective *c, tensor_call *p, const ag_tensor *t) {
    if (!c->counts) return AG_OK;
    const char *name = collective_kind_name(p->call.kind);
    int size = p->call.size;
    int64_t row = 1, total = 0, output_total = 0;
    for (int d = 1; d < t->ndim; d++) row *= t->dims[d];
    size_t bytes = 2 * (size_t)size * sizeof *p->counts;
    p->counts = heap_alloc_zero(bytes);
    if (!p->counts) return error_memory(name, bytes);
    for (int i = 0; i < size; i++) {
        bool is_over = to_elements(c->counts[i], row, &total, &p->counts[i]);
        if (c->output_counts) is_over |= to_elements(c->output_counts[i], row, &output_total, &p->counts[size + i]);
        if (is_over)
            return error_set(AG_E_VALUE, name, "counts", "rows >= 0 that fit memory", NULL,
                             "%lld rows of %lld elements for rank %d", (long long)c->counts[i], (long long)row, i);
    }
    p->call.counts = p->counts;
    if (c->output_counts) p->call.output_counts = p->counts + size;
    return AG_OK;
}

static ag_status check_out(const char *name, const ag_tensor *out, const shape *s, const ag_tensor *like) {
    char expected[96], got[96];
    bool fits = out->ndim == s->ndim && out->dtype == like->dtype;
    for (int d = 0; fits && d < s->ndim; d++) fits = out->dims[d] == s->dims[d];
    if (!fits) {
        char dims[80];
        shape_text(s, dims, sizeof dims);
        snprintf(expected, sizeof expected, "%s%.70s", dtype_name((ag_dtype)like->dtype), dims);
        return error_set(AG_E_SHAPE, name, "out", expected, NULL, "%s", tensor_text(out, got, sizeof got));
    }
    if (!out->is_contiguous)
        return error_set(AG_E_ARGUMENT, name, "out", "a contiguous tensor", "leave `out` away, and copy the result",
                         "a strided view");
    if (out->node)
        return error_set(AG_E_AUTODIFF, name, "out", "an untracked tensor", "detach it, or use the result", "a tracked one");
    if (out->storage->device != like->storage->device)
        return error_set(AG_E_DEVICE, name, "out", like->storage->device->name, "the result lies where the input does", "%s",
                         out->storage->device->name);
    return AG_OK;
}

/* ---- the whole ---- */

static ag_status make_output(const ag_collective *c, tensor_call *p, const shape *s, const ag_tensor *like) {
    const char *name = collective_kind_name(p->call.kind);
    if (!c->out) {
        AG_TRY(error_in(tensor_new(p->call.dtype, s, like->storage->device, &p->output), name));
    } else {
        AG_TRY(check_out(name, c->out, s, like));
        p->output = tensor_retain(c->out);
        p->is_given = true;
    }
    p->call.output = tensor_address(p->output);
    return AG_OK;
}

ag_status tensor_call_prepare(const ag_collective *c, tensor_call *p) {
    collective_call *call = &p->call;
    const char *name = collective_kind_name(call->kind);
    if (call->kind == COLLECTIVE_BARRIER) return AG_OK;
    AG_TRY(require_root(p));
    bool takes_input = has_input(p);
    ag_tensor *given = takes_input ? c->input : c->like ? c->like : c->out;
    AG_TRY(require_tensor(name, takes_input ? "tensor" : "like", given));
    call->dtype = (ag_dtype)given->dtype;
    call->count = given->numel;
    print_shape(c, p, given, takes_input);
    AG_TRY(tensor_call_check_device(name, given->storage->device));
    AG_TRY(collective_supports(call->kind, call->op, call->dtype));
    AG_TRY(check_counts(c, p));
    if (takes_input) AG_TRY(error_in(exec_contiguous(given, &p->input), name));
    shape s;
    AG_TRY(result_shape(c, p, given, &s, &call->count));
    AG_TRY(element_counts(c, p, given));
    if (has_output(p)) AG_TRY(make_output(c, p, &s, given));
    if (p->input) call->input = tensor_address(p->input);
    return AG_OK;
}

ag_tensor *tensor_call_take(tensor_call *p) {
    ag_tensor *result = p->output;
    p->output = NULL;
    if (result && p->is_given) tensor_bump_version(result);
    return result;
}

void tensor_call_deinit(tensor_call *p) {
    tensor_release(p->input);
    tensor_release(p->output);
    heap_free(p->counts);
}
