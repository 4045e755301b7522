/* dist.c: groups and collectives on tensors: checks a call, brings buffers into shape, and hands it to the group. */
#include <stdio.h>
#include <string.h>

#include "backend/backend.h"
#include "core/error.h"
#include "core/memory.h"
#include "dist/group/open.h"
#include "dist/group/world.h"
#include "exec/exec.h"

/* ---- groups ---- */

bool ag_dist_is_available(void) { return socket_is_available(); }

ag_status ag_keygen(const char *path) {
    socket_keys keys;
    AG_TRY(error_in(socket_keys_make(&keys), "keygen"));
    ag_status status = error_in(socket_keys_write(path, &keys), "keygen");
    memset(&keys, 0, sizeof keys);
    return status;
}

ag_status ag_group_open(const ag_group_options *options, ag_group **out) { return error_in(group_open(options, out), "group"); }
ag_status ag_group_open_threads(int size, ag_group **groups) { return error_in(group_open_threads(size, groups), "group"); }

ag_status ag_group_split(ag_group *parent, const int *ranks, int num_ranks, ag_group **out) {
    return error_in(group_split(parent, ranks, num_ranks, out), "group");
}

ag_status ag_group_close(ag_group *group, double wait_s) { return group ? group_close(group, wait_s, true) : AG_OK; }

void ag_group_free(ag_group *group) {
    if (group) group_close(group, 0, false);
}

ag_status ag_group_regroup(ag_group *group, int min_size, double grace_s, ag_group **out) {
    return error_in(group_regroup(group, min_size, grace_s, out), "regroup");
}

void ag_group_abort(ag_group *group, const char *reason) {
    if (cancel_is_raised(group->world->cancel)) return;
    const ag_error before = *error_record();
    int32_t own = group->world->rank;
    int first_line = (int)strcspn(reason, "\n"); /* the rest is a traceback, of use on that rank only */
    error_set(AG_E_PEER, "abort", NULL, NULL, NULL, "rank %d failed: %.*s", (int)own, first_line < 200 ? first_line : 200,
              reason);
    error_set_culprits(&own, 1, 0);
    world_end(group->world);
    *error_record() = before;
}

int ag_group_rank(const ag_group *group) { return group->rank; }
int ag_group_size(const ag_group *group) { return group->size; }

int ag_group_world_rank(const ag_group *group, int rank) {
    return rank >= 0 && rank < group->size ? group->world_ranks[rank] : -1;
}

uint32_t ag_group_epoch(const ag_group *group) { return group->world->epoch; }
const char *ag_group_transport(const ag_group *group) { return group->ops ? group->ops->name : "none"; }
bool ag_group_is_encrypted(const ag_group *group) {
    return group->world->key_file[0] && group->ops && strcmp(group->ops->name, "shm") != 0;
}
bool ag_group_has_ended(const ag_group *group) { return group->is_closed || cancel_is_raised(group->world->cancel); }

void ag_group_note(ag_group *group, const char *text) {
    world *w = group->world;
    pthread_mutex_lock(&w->mutex);
    snprintf(w->note, sizeof w->note, "%s", text);
    uint64_t entered = w->entered, finished = w->finished;
    pthread_mutex_unlock(&w->mutex);
    world_note(w, entered, finished, NULL);
}

void ag_group_stats_read(const ag_group *group, ag_group_stats *out) {
    *out = (ag_group_stats){0};
    if (!group->transport) return;
    transport_stats stats = {0};
    group->transport->ops->stats(group->transport, &stats);
    *out = (ag_group_stats){stats.num_calls, stats.bytes_moved, stats.num_messages, stats.num_rejected};
}

/* ---- a collective on tensors ---- */

/* The words of a call as the algorithms' enums. */
typedef struct words {
    collective_kind kind;
    reduce_op op;
    collective_algorithm algorithm;
} words;

static ag_status unknown_word(const char *kind, const char *arg, const char *expected, const char *got) {
    return error_set(AG_E_VALUE, kind, arg, expected, NULL, "\"%.40s\"", got);
}

static ag_status parse_words(const ag_collective *c, words *out) {
    int kind = 0, op = 0, algorithm = 0;
    const char *given = c->kind ? c->kind : "";
    while (kind < COLLECTIVE_KIND_COUNT && strcmp(collective_kind_name((collective_kind)kind), given) != 0) kind++;
    if (kind == COLLECTIVE_KIND_COUNT)
        return unknown_word("collective", "kind",
                            "all_reduce, reduce, broadcast, all_gather, reduce_scatter, gather, scatter, all_to_all, send, "
                            "receive or barrier",
                            given);
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
    *out = (words){(collective_kind)kind, (reduce_op)op, (collective_algorithm)algorithm};
    return AG_OK;
}

static ag_status check_device(const char *kind, ag_device *device) {
    if (device->backend->has_collectives) return AG_OK;
    return error_set(AG_E_DEVICE, kind, "tensor", "a device with collectives", "move the tensor: t:to(\"cpu\"), or go on alone",
                     "device %s, which cannot take part in them", device->name);
}

bool ag_collective_supports(const char *kind, const char *op, ag_dtype dtype, ag_device *device, char *reason, size_t len) {
    const ag_error before = *error_record();
    ag_collective c = {.kind = kind, .op = op};
    words w;
    ag_status status = parse_words(&c, &w);
    if (status == AG_OK) status = check_device(collective_kind_name(w.kind), device);
    if (status == AG_OK) status = collective_supports(w.kind, w.op, dtype);
    if (reason) snprintf(reason, len, "%s", status == AG_OK ? "" : error_record()->message);
    *error_record() = before;
    return status == AG_OK;
}

/* prepared is a call with its buffers: what it holds ends with it. */
typedef struct prepared {
    group_request request;
    words words;
    ag_tensor *input;  /* contiguous; NULL = none */
    ag_tensor *output; /* contiguous; NULL = none */
    bool is_given;     /* output is the caller's `out`, and its version rises */
    int64_t *counts;   /* in elements: [size], and as many of the output in all_to_all */
    int64_t dims[AG_MAX_NDIM];
} prepared;

static void prepared_deinit(prepared *p) {
    tensor_release(p->input);
    tensor_release(p->output);
    heap_free(p->counts);
}

static bool is_root(const ag_group *g, const ag_collective *c) { return g->rank == c->root; }

static bool has_input(const ag_group *g, const ag_collective *c, collective_kind kind) {
    if (kind == COLLECTIVE_BARRIER || kind == COLLECTIVE_RECEIVE) return false;
    return kind != COLLECTIVE_SCATTER || is_root(g, c);
}

static bool has_output(const ag_group *g, const ag_collective *c, collective_kind kind) {
    if (kind == COLLECTIVE_BARRIER || kind == COLLECTIVE_SEND) return false;
    return (kind != COLLECTIVE_REDUCE && kind != COLLECTIVE_GATHER) || is_root(g, c);
}

static ag_status require_tensor(const char *kind, const char *arg, const ag_tensor *tensor) {
    if (tensor) return AG_OK;
    return error_set(AG_E_ARGUMENT, kind, arg, "a tensor", NULL, "none");
}

static ag_status require_rank(const ag_group *g, const ag_collective *c, collective_kind kind) {
    bool is_pair = kind == COLLECTIVE_SEND || kind == COLLECTIVE_RECEIVE;
    const char *name = collective_kind_name(kind), *arg = is_pair ? "rank" : "root";
    if (c->root < 0 || c->root >= g->size) {
        char expected[48];
        snprintf(expected, sizeof expected, "0 to %d", g->size - 1);
        return error_set(AG_E_VALUE, name, arg, expected, NULL, "%d", c->root);
    }
    if (is_pair && is_root(g, c))
        return error_set(AG_E_VALUE, name, arg, "another rank", NULL, "%d, this rank itself", c->root);
    return AG_OK;
}

static ag_status rows_error(const ag_group *g, const char *name, const ag_tensor *t) {
    char text[128];
    return error_set(AG_E_SHAPE, name, "tensor", "a first dim that the ranks divide evenly", "pad it, or give counts",
                     "%s on %d ranks", tensor_text(t, text, sizeof text), g->size);
}

/* Sums of counts as rows of the first dim. */
static ag_status sum_counts(const ag_group *g, const char *name, const int64_t *counts, int64_t *out) {
    int64_t sum = 0;
    for (int i = 0; i < g->size; i++) {
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

/* The shape of the result from the shape s of the input (or of `like`), and the count of the call in elements. */
static ag_status result_shape(const ag_group *g, const ag_collective *c, prepared *p, shape *s, int64_t *count) {
    const ag_tensor *t = p->input ? p->input : c->like;
    const char *name = collective_kind_name(p->words.kind);
    *s = tensor_shape(t);
    *count = t->numel;
    int64_t rows = s->ndim ? s->dims[0] : 1, total = 0;
    switch (p->words.kind) {
    case COLLECTIVE_ALL_GATHER:
    case COLLECTIVE_GATHER:
        if (s->ndim == 0) *s = (shape){.ndim = 1, .dims = {1}};
        total = (int64_t)g->size * rows;
        if (c->counts) {
            if (c->counts[g->rank] != rows) return counts_error(name, "counts", rows, c->counts[g->rank]);
            AG_TRY(sum_counts(g, name, c->counts, &total));
        }
        s->dims[0] = total;
        return AG_OK;
    case COLLECTIVE_REDUCE_SCATTER:
        if (s->ndim == 0 || rows % g->size != 0) return rows_error(g, name, t);
        s->dims[0] = rows / g->size;
        return AG_OK;
    case COLLECTIVE_SCATTER:
        if (!p->input) {
            if (c->counts && c->counts[g->rank] != rows) return counts_error(name, "like", c->counts[g->rank], rows);
            return AG_OK;
        }
        if (c->counts) {
            AG_TRY(sum_counts(g, name, c->counts, &total));
            if (s->ndim == 0 || total != rows) return counts_error(name, "tensor", total, rows);
            s->dims[0] = c->counts[g->rank];
            return AG_OK;
        }
        if (s->ndim == 0 || rows % g->size != 0) return rows_error(g, name, t);
        s->dims[0] = rows / g->size;
        *count = t->numel / g->size;
        return AG_OK;
    case COLLECTIVE_ALL_TO_ALL:
        if (s->ndim == 0) return rows_error(g, name, t);
        if (c->counts) {
            if (!c->output_counts) return error_set(AG_E_ARGUMENT, name, "output_counts", "rows from every rank", NULL, "none");
            AG_TRY(sum_counts(g, name, c->counts, &total));
            if (total != rows) return counts_error(name, "tensor", total, rows);
            AG_TRY(sum_counts(g, name, c->output_counts, &total));
            s->dims[0] = total;
            return AG_OK;
        }
        if (rows % g->size != 0) return rows_error(g, name, t);
        *count = t->numel / g->size;
        return AG_OK;
    default: return AG_OK;
    }
}

/* What travels in prints: the shape that all ranks share. */
static void print_shape(const ag_group *g, const ag_collective *c, prepared *p, const ag_tensor *t, bool is_input) {
    group_request *r = &p->request;
    r->ndim = t->ndim;
    r->dims = p->dims;
    for (int d = 0; d < t->ndim; d++) p->dims[d] = t->dims[d];
    if (t->ndim == 0) return;
    bool has_rows_of_its_own = c->counts || c->output_counts;
    if (has_rows_of_its_own)
        p->dims[0] = -1;
    else if (p->words.kind == COLLECTIVE_SCATTER && is_input)
        p->dims[0] /= g->size;
}

static ag_status element_counts(const ag_group *g, const ag_collective *c, prepared *p) {
    if (!c->counts) return AG_OK;
    const ag_tensor *t = p->input ? p->input : c->like;
    int64_t row = 1;
    for (int d = 1; d < t->ndim; d++) row *= t->dims[d];
    size_t bytes = 2 * (size_t)g->size * sizeof *p->counts;
    p->counts = heap_alloc(bytes);
    if (!p->counts) return error_memory(c->kind, bytes);
    for (int i = 0; i < g->size; i++) {
        p->counts[i] = c->counts[i] * row;
        p->counts[g->size + i] = c->output_counts ? c->output_counts[i] * row : 0;
    }
    p->request.call.counts = p->counts;
    if (c->output_counts) p->request.call.output_counts = p->counts + g->size;
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
    return check_device(name, out->storage->device);
}

/* Checks the call and takes what it needs; on failure the caller tells the others. */
static ag_status prepare(const ag_group *g, const ag_collective *c, prepared *p) {
    collective_kind kind = p->words.kind;
    const char *name = collective_kind_name(kind);
    collective_call *call = &p->request.call;
    *call = (collective_call){.kind = kind, .algorithm = p->words.algorithm, .op = p->words.op, .root = c->root};
    p->request.timeout_s = c->timeout_s;
    if (kind == COLLECTIVE_BARRIER) return AG_OK;
    AG_TRY(require_rank(g, c, kind));
    bool takes_input = has_input(g, c, kind);
    const ag_tensor *given = takes_input ? c->input : c->like ? c->like : c->out;
    AG_TRY(require_tensor(name, takes_input ? "tensor" : "like", given));
    call->dtype = (ag_dtype)given->dtype;
    call->count = given->numel;
    print_shape(g, c, p, given, takes_input);
    AG_TRY(check_device(name, given->storage->device));
    AG_TRY(collective_supports(kind, p->words.op, call->dtype));
    if (takes_input) AG_TRY(exec_contiguous((ag_tensor *)c->input, &p->input));
    ag_collective complete = *c;
    if (!complete.like) complete.like = (ag_tensor *)given;
    shape s;
    AG_TRY(result_shape(g, &complete, p, &s, &call->count));
    AG_TRY(element_counts(g, &complete, p));
    if (has_output(g, c, kind)) {
        if (c->out) {
            AG_TRY(check_out(name, c->out, &s, given));
            p->output = tensor_retain(c->out);
            p->is_given = true;
        } else {
            AG_TRY(error_in(tensor_new(call->dtype, &s, given->storage->device, &p->output), name));
        }
        call->output = tensor_address(p->output);
    }
    if (p->input) call->input = tensor_address(p->input);
    return AG_OK;
}

/* Tells the others that this rank cannot make the call they may be making; the error record stays. */
static void tell_refusal(ag_group *g, prepared *p) {
    const ag_error record = *error_record();
    char reason[200];
    snprintf(reason, sizeof reason, "%.199s", record.message);
    p->request.refusal = reason;
    if (p->request.call.root < 0 || p->request.call.root >= g->size) p->request.call.root = 0;
    bool is_pair = p->words.kind == COLLECTIVE_SEND || p->words.kind == COLLECTIVE_RECEIVE;
    if (g->size > 1 && !(is_pair && p->request.call.root == g->rank)) group_run(g, &p->request);
    *error_record() = record;
}

static ag_tensor *take_result(prepared *p) {
    ag_tensor *result = p->output;
    p->output = NULL;
    if (result && p->is_given) tensor_bump_version(result);
    return result;
}

/* A tensor of a shared block is known by its address: then nothing has to be copied. */
static void find_block(ag_group *g, prepared *p);

ag_status ag_collective_run(ag_group *group, const ag_collective *c, ag_tensor **out) {
    prepared p;
    memset(&p, 0, sizeof p);
    AG_TRY(parse_words(c, &p.words));
    ag_status status = prepare(group, c, &p);
    if (status != AG_OK) {
        tell_refusal(group, &p);
    } else {
        find_block(group, &p);
        status = group_run(group, &p.request);
    }
    if (status == AG_OK && out)
        *out = take_result(&p);
    else if (status == AG_OK)
        tensor_release(take_result(&p));
    prepared_deinit(&p);
    return status;
}

/* ---- works ---- */

struct ag_work {
    atomic_int refs; /* the user's, and one until the call has run */
    prepared prepared;
    group_work *work;
};

static void work_drop(ag_work *w) {
    if (atomic_fetch_sub_explicit(&w->refs, 1, memory_order_acq_rel) != 1) return;
    group_work_release(w->work);
    prepared_deinit(&w->prepared);
    heap_free(w);
}

static void work_done(void *context, ag_status status) {
    (void)status;
    work_drop(context);
}

ag_status ag_collective_start(ag_group *group, const ag_collective *c, ag_work **out) {
    ag_work *w = heap_alloc_zero(sizeof *w);
    if (!w) return error_memory(c->kind, sizeof *w);
    atomic_init(&w->refs, 1);
    ag_status status = parse_words(c, &w->prepared.words);
    if (status == AG_OK) {
        status = prepare(group, c, &w->prepared);
        if (status != AG_OK) tell_refusal(group, &w->prepared);
    }
    if (status == AG_OK) {
        find_block(group, &w->prepared);
        w->prepared.request.done = work_done;
        w->prepared.request.context = w;
        atomic_fetch_add_explicit(&w->refs, 1, memory_order_relaxed);
        status = group_start(group, &w->prepared.request, &w->work);
        if (status != AG_OK) work_drop(w);
    }
    if (status != AG_OK) {
        work_drop(w);
        return status;
    }
    *out = w;
    return AG_OK;
}

bool ag_work_is_done(const ag_work *work) { return group_work_is_done(work->work); }

ag_status ag_work_wait(ag_work *work, double timeout_s, ag_tensor **out) {
    AG_TRY(group_wait(work->work, timeout_s));
    prepared *p = &work->prepared;
    /* A second wait gives the same result again. */
    *out = p->output ? tensor_retain(p->output) : NULL;
    if (p->output && p->is_given) tensor_bump_version(p->output);
    p->is_given = false;
    return AG_OK;
}

void ag_work_release(ag_work *work) {
    if (work) work_drop(work);
}

const char *ag_collective_plan(ag_group *group, const ag_collective *c, char *buffer, size_t len) {
    prepared p;
    memset(&p, 0, sizeof p);
    const ag_error before = *error_record();
    ag_status status = parse_words(c, &p.words);
    if (status == AG_OK) status = prepare(group, c, &p);
    if (status != AG_OK) {
        snprintf(buffer, len, "%s", error_record()->message);
    } else if (!group->transport) {
        snprintf(buffer, len, "one rank: nothing to do");
    } else {
        collective_call call = p.request.call;
        call.rank = group->rank;
        call.size = group->size;
        collective_algorithm best = collective_choose(&call, &group->transport->cost);
        size_t end = (size_t)snprintf(buffer, len, "%s over %s:", algorithm_name(best), group->ops->name);
        for (const collective_algorithm *a = algorithm_list(call.kind); *a != ALGORITHM_ANY && end < len; a++) {
            call.algorithm = *a;
            end += (size_t)snprintf(buffer + end, len - end, "%s %s %.3g ms", a == algorithm_list(call.kind) ? "" : ",",
                                    algorithm_name(*a), 1e3 * collective_time_s(&call, &group->transport->cost));
        }
    }
    prepared_deinit(&p);
    *error_record() = before;
    return buffer;
}

/* ---- shared tensors ---- */

/* shared_memory is what both tensors of a shared block hold. */
typedef struct shared_memory {
    atomic_int refs;
    ag_group *group; /* held */
    shared_block block;
} shared_memory;

static void shared_memory_drop(void *context) {
    shared_memory *m = context;
    if (atomic_fetch_sub_explicit(&m->refs, 1, memory_order_acq_rel) != 1) return;
    world *w = m->group->world;
    pthread_mutex_lock(&w->mutex);
    for (known_block **at = &m->group->blocks; *at; at = &(*at)->next) {
        if ((*at)->block != &m->block) continue;
        known_block *known = *at;
        *at = known->next;
        heap_free(known);
        break;
    }
    pthread_mutex_unlock(&w->mutex);
    group_block_free(m->group, &m->block);
    group_release(m->group);
    heap_free(m);
}

ag_status ag_group_shared_tensor(ag_group *group, ag_dtype dtype, int64_t numel, ag_tensor **own, ag_tensor **result) {
    if (numel < 0 || dtype < 0 || dtype >= AG_DTYPE_COUNT || numel > INT64_MAX / 64)
        return error_set(AG_E_VALUE, "shared_tensor", "numel", "a count of elements", NULL, "%lld", (long long)numel);
    shared_memory *m = heap_alloc_zero(sizeof *m);
    known_block *known = heap_alloc_zero(sizeof *known);
    size_t bytes = (size_t)numel * dtype_size(dtype);
    ag_status status =
        m && known ? group_block_new(group, bytes ? bytes : 1, &m->block) : error_memory("shared_tensor", sizeof *m);
    if (status != AG_OK) {
        heap_free(m);
        heap_free(known);
        return status;
    }
    atomic_init(&m->refs, 3); /* the two tensors, and this function */
    m->group = group_retain(group);
    known->block = &m->block;
    pthread_mutex_lock(&group->world->mutex);
    known->next = group->blocks;
    group->blocks = known;
    pthread_mutex_unlock(&group->world->mutex);
    ag_tensor *tensors[2] = {NULL, NULL};
    shape s = {.ndim = 1, .dims = {numel}};
    for (int i = 0; i < 2; i++) {
        char *part = shared_block_part(&m->block, i == 0 ? group->rank : group->size);
        if (status == AG_OK)
            status = tensor_from_memory(dtype, &s, registry_default(), part, bytes, shared_memory_drop, m, &tensors[i]);
        if (!tensors[i]) shared_memory_drop(m);
    }
    shared_memory_drop(m);
    if (status != AG_OK) {
        tensor_release(tensors[0]);
        tensor_release(tensors[1]);
        return status;
    }
    *own = tensors[0];
    *result = tensors[1];
    return AG_OK;
}

static void find_block(ag_group *g, prepared *p) {
    collective_call *call = &p->request.call;
    if (call->kind != COLLECTIVE_ALL_REDUCE || !p->is_given) return;
    pthread_mutex_lock(&g->world->mutex);
    for (const known_block *known = g->blocks; known; known = known->next) {
        const shared_block *b = known->block;
        size_t bytes = (size_t)call->count * dtype_size(call->dtype);
        const char *own = shared_block_part(b, g->rank), *result = shared_block_part(b, g->size);
        size_t offset = (size_t)((uintptr_t)call->input - (uintptr_t)own);
        if ((uintptr_t)call->input < (uintptr_t)own || offset > b->part_bytes || bytes > b->part_bytes - offset) continue;
        if (call->output != own + offset && call->output != result + offset) continue;
        p->request.block = b;
        p->request.block_offset = offset;
        break;
    }
    pthread_mutex_unlock(&g->world->mutex);
}
