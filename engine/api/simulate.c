/* simulate.c: ag_simulate_collective: public calls on the simulator, with the errors that a group would give. */
#include <string.h>

#include "core/dtype.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/tensor.h"
#include "dist/algorithm/cost.h"
#include "dist/simulator/simulator.h"
#include "dist/transport/call_print.h"
#include "exec/exec.h"

#define MAX_SIZE 1024

/* member is one rank's call. */
typedef struct member {
    ag_tensor *input;                /* contiguous, owned; NULL = none */
    ag_tensor *result;               /* owned; NULL = none */
    int64_t *counts, *output_counts; /* [size] elements, owned; NULL = even */
    collective_call call;
    call_print print;
} member;

/* Constants of a network such as the default delays make; only the choice of an algorithm depends on them. */
static const collective_cost network_cost = {
    .alpha_s = 1e-4, .beta_s_per_byte = 1e-9, .gamma_s_per_byte = 2e-10, .congestion = 1};

static int find_name(const char *name, int count, const char *(*name_of)(int)) {
    for (int i = 0; i < count; i++)
        if (strcmp(name, name_of(i)) == 0) return i;
    return -1;
}
static const char *kind_at(int i) { return collective_kind_name((collective_kind)i); }
static const char *op_at(int i) { return reduce_op_name((reduce_op)i); }
static const char *algorithm_at(int i) { return algorithm_name((collective_algorithm)i); }

static ag_status read_names(const ag_collective *c, collective_call *call) {
    int kind = c->kind ? find_name(c->kind, COLLECTIVE_KIND_COUNT, kind_at) : -1;
    if (kind < 0) return error_set(AG_E_ARGUMENT, "simulate", "kind", "a collective", NULL, "%s", c->kind ? c->kind : "none");
    int op = c->op ? find_name(c->op, REDUCE_OP_COUNT, op_at) : REDUCE_SUM;
    if (op < 0) return error_set(AG_E_VALUE, c->kind, "op", "sum, mean, min, max, prod, and, or", NULL, "\"%s\"", c->op);
    int algorithm = c->algorithm ? find_name(c->algorithm, ALGORITHM_COUNT, algorithm_at) : ALGORITHM_ANY;
    if (algorithm < 0) return error_set(AG_E_VALUE, c->kind, "algorithm", "a known algorithm", NULL, "\"%s\"", c->algorithm);
    call->kind = (collective_kind)kind;
    call->op = (reduce_op)op;
    call->algorithm = (collective_algorithm)algorithm;
    return AG_OK;
}

static bool is_rooted(collective_kind kind) {
    return kind == COLLECTIVE_REDUCE || kind == COLLECTIVE_BROADCAST || kind == COLLECTIVE_GATHER ||
           kind == COLLECTIVE_SCATTER || kind == COLLECTIVE_SEND || kind == COLLECTIVE_RECEIVE;
}

/* The tensor that gives dtype and shape on this rank. */
static ag_tensor *model_of(const ag_collective *c, const collective_call *call) {
    bool takes_input = call->kind != COLLECTIVE_RECEIVE && (call->kind != COLLECTIVE_SCATTER || call->rank == call->root);
    return takes_input ? c->input : c->like ? c->like : c->out;
}

static ag_status check_model(const ag_collective *c, const collective_call *call, ag_tensor *model) {
    if (call->size > 1 && is_rooted(call->kind) && (call->root < 0 || call->root >= call->size))
        return error_set(AG_E_VALUE, c->kind, "root", "a rank of the group", NULL, "%d of %d", call->root, call->size);
    if (call->kind == COLLECTIVE_BARRIER) return AG_OK;
    if (!model)
        return error_set(AG_E_ARGUMENT, c->kind, "input", "a tensor, or `like` or `out` where none is given", NULL, "none");
    if (!ag_device_has_collectives(ag_tensor_device(model)))
        return error_set(AG_E_DEVICE, c->kind, "input", "a tensor on a device with collectives", "t:to(\"cpu\")", "one on %s",
                         ag_device_name(ag_tensor_device(model)));
    bool splits =
        call->kind == COLLECTIVE_SCATTER || call->kind == COLLECTIVE_REDUCE_SCATTER || call->kind == COLLECTIVE_ALL_TO_ALL;
    if (splits && model->ndim == 0 && (call->kind != COLLECTIVE_SCATTER || call->rank == call->root))
        return error_set(AG_E_SHAPE, c->kind, "tensor", "a first dim that the ranks divide evenly", "reshape it",
                         "a 0-d tensor");
    return AG_OK;
}

/* Elements of one position of the first dim. */
static int64_t row_size(const ag_tensor *t) {
    int64_t size = 1;
    for (int d = 1; d < t->ndim; d++) size *= t->dims[d];
    return size;
}

static ag_status copy_counts(const int64_t *rows, int size, int64_t row, int64_t **out) {
    if (!rows) return AG_OK;
    *out = heap_alloc((size_t)size * sizeof **out);
    if (!*out) return error_memory("simulate", (size_t)size * sizeof **out);
    for (int i = 0; i < size; i++) (*out)[i] = rows[i] * row;
    return AG_OK;
}

static int64_t sum_of(const int64_t *rows, int size) {
    int64_t sum = 0;
    for (int i = 0; i < size; i++) sum += rows[i];
    return sum;
}

/* Fills call.count, and dims[0] of the result; dims come in as those of the model. has_result: on this rank. */
static ag_status plan_rows(const ag_collective *c, member *m, const ag_tensor *model, int64_t *dims, bool *has_result) {
    collective_call *call = &m->call;
    int64_t rows = model->ndim ? model->dims[0] : 1;
    bool is_root = call->rank == call->root, splits = call->kind == COLLECTIVE_REDUCE_SCATTER ||
                                                      (call->kind == COLLECTIVE_SCATTER && is_root) ||
                                                      (call->kind == COLLECTIVE_ALL_TO_ALL && !c->counts);
    call->count = model->numel;
    *has_result =
        call->kind != COLLECTIVE_SEND && (is_root || (call->kind != COLLECTIVE_REDUCE && call->kind != COLLECTIVE_GATHER));
    if (splits && !c->counts && rows % call->size)
        return error_set(AG_E_SHAPE, c->kind, "input", "a first dim that the number of ranks divides", NULL,
                         "%lld rows for %d ranks", (long long)rows, call->size);
    switch (call->kind) {
    case COLLECTIVE_ALL_GATHER:
    case COLLECTIVE_GATHER:
        if (c->counts && c->counts[call->rank] != rows)
            return error_set(AG_E_SHAPE, c->kind, "counts", "the rows of this rank", NULL, "%lld for %lld rows",
                             (long long)c->counts[call->rank], (long long)rows);
        dims[0] = c->counts ? sum_of(c->counts, call->size) : rows * call->size;
        break;
    case COLLECTIVE_SCATTER:
        if (is_root) call->count /= call->size, dims[0] = rows / call->size;
        break;
    case COLLECTIVE_REDUCE_SCATTER: dims[0] = rows / call->size; break;
    case COLLECTIVE_ALL_TO_ALL:
        if (!c->counts) {
            call->count /= call->size;
        } else if (!c->output_counts || sum_of(c->counts, call->size) != rows) {
            return error_set(AG_E_SHAPE, c->kind, "counts", "counts that sum to the rows, and output_counts", NULL,
                             "%lld for %lld rows", (long long)sum_of(c->counts, call->size), (long long)rows);
        } else {
            dims[0] = sum_of(c->output_counts, call->size);
        }
        break;
    default: break;
    }
    AG_TRY(copy_counts(c->counts, call->size, row_size(model), &m->counts));
    return copy_counts(c->output_counts, call->size, row_size(model), &m->output_counts);
}

static ag_status make_result(const ag_collective *c, member *m, const ag_tensor *model, const shape *s) {
    if (!c->out) return tensor_new((ag_dtype)model->dtype, s, model->storage->device, &m->result);
    const ag_tensor *out = c->out;
    if (out->dtype != model->dtype || out->ndim != s->ndim ||
        memcmp(out->dims, s->dims, (size_t)s->ndim * sizeof *s->dims) != 0 || !out->is_contiguous ||
        !ag_device_has_collectives(ag_tensor_device(out)))
        return error_set(AG_E_SHAPE, c->kind, "out", "a contiguous tensor of the result's shape and dtype", NULL,
                         "another one");
    m->result = tensor_retain(c->out);
    return AG_OK;
}

/* The print shows what all ranks share: rows that are each rank's own are left out. */
static void print_call(const ag_collective *c, member *m, const ag_tensor *model) {
    collective_call printed = m->call;
    int64_t dims[AG_MAX_NDIM] = {0};
    memcpy(dims, model->dims, (size_t)model->ndim * sizeof *dims);
    if (c->counts) {
        printed.count = 0;
        dims[0] = -1;
    } else if (printed.kind == COLLECTIVE_SCATTER && model == c->input) {
        dims[0] /= printed.size;
    }
    call_print_make(&m->print, &printed, model->ndim, dims);
}

/* The input and the result as memory, and the print. What fails here is this rank's refusal. */
static ag_status prepare(const ag_simulation *setup, const ag_collective *c, int rank, member *m) {
    collective_call *call = &m->call;
    *call = (collective_call){.rank = rank, .size = setup->size, .root = c->root, .sequence = setup->sequence};
    AG_TRY(read_names(c, call));
    ag_tensor *model = model_of(c, call);
    AG_TRY(check_model(c, call, model));
    if (call->kind == COLLECTIVE_BARRIER) {
        call_print_make(&m->print, call, 0, NULL);
        return AG_OK;
    }
    shape s = {.ndim = model->ndim};
    memcpy(s.dims, model->dims, (size_t)s.ndim * sizeof *s.dims);
    if (s.ndim == 0 && (call->kind == COLLECTIVE_ALL_GATHER || call->kind == COLLECTIVE_GATHER)) s = (shape){.ndim = 1};
    bool has_result;
    call->dtype = (ag_dtype)model->dtype;
    AG_TRY(collective_supports(call->kind, call->op, call->dtype));
    AG_TRY(plan_rows(c, m, model, s.dims, &has_result));
    call->counts = m->counts;
    call->output_counts = m->output_counts;
    if (model == c->input) AG_TRY(exec_contiguous(model, &m->input));
    if (has_result) AG_TRY(make_result(c, m, model, &s));
    void *data = NULL;
    if (m->input) AG_TRY(ag_tensor_data(m->input, &data));
    call->input = data;
    data = NULL;
    if (m->result) AG_TRY(ag_tensor_data(m->result, &data));
    call->output = data;
    size_t size_bytes = (size_t)model->numel * dtype_size(call->dtype), part = size_bytes / 7;
    call->segment_bytes = part < 16 ? 16 : part > 65536 ? 65536 : part;
    if (call->algorithm == ALGORITHM_ANY) call->algorithm = collective_choose(call, &network_cost);
    print_call(c, m, model);
    return AG_OK;
}

static int world_rank(const ag_simulation *setup, int rank) { return setup->world_ranks ? setup->world_ranks[rank] : rank; }

static void set_outcome(ag_simulation_outcome *o, ag_status status) {
    o->status = status;
    o->error = *ag_last_error();
}

/* Rank `refusing` cannot make its call: it keeps its reason, the others learn it. */
static void refuse_all(const ag_simulation *setup, const ag_collective *calls, int refusing, ag_simulation_outcome *outcomes) {
    const ag_error reason = outcomes[refusing].error;
    int32_t culprit = world_rank(setup, refusing);
    outcomes[refusing].error.sequence = setup->sequence;
    for (int rank = 0; rank < setup->size; rank++) {
        if (outcomes[rank].status != AG_OK) continue;
        error_set(AG_E_MISMATCH, calls[rank].kind, NULL, NULL, NULL, "rank %d could not make its call: %s", (int)culprit,
                  reason.message);
        error_set_culprits(&culprit, 1, setup->sequence);
        set_outcome(&outcomes[rank], AG_E_MISMATCH);
    }
}

static bool find_difference(const ag_simulation *setup, const member *members, ag_simulation_outcome *outcomes) {
    for (int rank = 1; rank < setup->size; rank++) {
        if (call_print_agree(&members[0].print, &members[rank].print)) continue;
        call_print_mismatch(world_rank(setup, 0), &members[0].print, world_rank(setup, rank), &members[rank].print);
        for (int i = 0; i < setup->size; i++) set_outcome(&outcomes[i], AG_E_MISMATCH);
        return true;
    }
    return false;
}

static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 31) * 0x9E3779B97F4A7C15u;
    return (x ^ x >> 29) * 0xBF58476D1CE4E5B9u ^ x >> 32;
}

static simulation network_of(const ag_simulation *setup) {
    uint64_t random = mix(setup->seed * 31 + setup->sequence + 1);
    simulation s = {.seed = random, .size = setup->size, .keeps_order = random & 1, .window = 1 + (int)(random >> 1 & 3)};
    s.min_delay_s = setup->min_delay_s > 0 ? setup->min_delay_s : 1e-5;
    s.max_delay_s = setup->max_delay_s > s.min_delay_s ? setup->max_delay_s : setup->min_delay_s > 0 ? s.min_delay_s : 2e-4;
    s.expiry_s = setup->expiry_s > 0 ? setup->expiry_s : 5;
    s.notice_s = 2 * s.max_delay_s;
    s.limit_s = 1e9;
    if (!setup->fault) return s;
    s.fault = strcmp(setup->fault, "silent") == 0 ? FAULT_SILENT : FAULT_DEAD;
    s.fault_rank = setup->fault_rank;
    s.fault_event = 1 + (int64_t)(mix(random) % (uint64_t)(4 * setup->size));
    return s;
}

/* What each rank sees at the end of the run. */
static void read_outcomes(const ag_simulation *setup, const simulation *network, const simulation_outcome *ends,
                          const simulation_report *report, member *members, const ag_collective *calls,
                          ag_simulation_outcome *outcomes) {
    for (int rank = 0; rank < setup->size; rank++) {
        ag_simulation_outcome *o = &outcomes[rank];
        o->end_s = ends[rank].end_s;
        o->is_lost = report->fault_happened && rank == network->fault_rank;
        if (o->is_lost) {
            o->end_s = report->fault_s;
        } else if (ends[rank].num_completed == 1) { /* its result holds, whatever came after */
            o->result = members[rank].result;
            members[rank].result = NULL;
            if (o->result && calls[rank].out) tensor_bump_version(o->result);
        } else if (ends[rank].is_stuck || ends[rank].culprit < 0) {
            error_set(ends[rank].is_stuck ? AG_E_TIMEOUT : ends[rank].status, calls[rank].kind, NULL, NULL, NULL,
                      "the simulated call does not end");
            set_outcome(o, ends[rank].is_stuck ? AG_E_TIMEOUT : ends[rank].status);
        } else {
            int32_t culprit = world_rank(setup, ends[rank].culprit);
            error_set(AG_E_PEER, calls[rank].kind, NULL, NULL, NULL,
                      network->fault == FAULT_SILENT ? "rank %d does not answer" : "rank %d has ended without closing",
                      (int)culprit);
            error_set_culprits(&culprit, 1, setup->sequence);
            set_outcome(o, AG_E_PEER);
        }
    }
}

static ag_status run(const ag_simulation *setup, const ag_collective *calls, member *members, ag_simulation_outcome *outcomes,
                     int64_t *num_segments) {
    int size = setup->size;
    simulation network = network_of(setup);
    simulation_report report;
    collective_call *list = heap_alloc((size_t)size * sizeof *list);
    simulation_outcome *ends = heap_alloc_zero((size_t)size * sizeof *ends);
    ag_status status = list && ends ? AG_OK : error_memory("simulate", (size_t)size * sizeof *list);
    if (status == AG_OK) {
        for (int rank = 0; rank < size; rank++) list[rank] = members[rank].call;
        status = simulate(&network, list, 1, ends, &report);
    }
    if (status == AG_OK) {
        if (num_segments) *num_segments = report.num_segments;
        read_outcomes(setup, &network, ends, &report, members, calls, outcomes);
    }
    heap_free(ends);
    heap_free(list);
    return status;
}

ag_status ag_simulate_collective(const ag_simulation *setup, const ag_collective *calls, ag_simulation_outcome *outcomes,
                                 int64_t *num_segments) {
    int size = setup->size, refusing = -1;
    if (size < 1 || size > MAX_SIZE) return error_set(AG_E_ARGUMENT, "simulate", "size", "1 to 1024", NULL, "%d", size);
    if (setup->fault && (setup->fault_rank < 0 || setup->fault_rank >= size))
        return error_set(AG_E_ARGUMENT, "simulate", "fault_rank", "a rank", NULL, "%d", setup->fault_rank);
    member *members = heap_alloc_zero((size_t)size * sizeof *members);
    if (!members) return error_memory("simulate", (size_t)size * sizeof *members);
    if (num_segments) *num_segments = 0;
    memset(outcomes, 0, (size_t)size * sizeof *outcomes);
    ag_status status = AG_OK;
    for (int rank = 0; rank < size; rank++) {
        ag_status refusal = prepare(setup, &calls[rank], rank, &members[rank]);
        if (refusal == AG_OK) continue;
        set_outcome(&outcomes[rank], refusal);
        if (refusing < 0) refusing = rank;
    }
    if (refusing >= 0)
        refuse_all(setup, calls, refusing, outcomes);
    else if (!find_difference(setup, members, outcomes))
        status = run(setup, calls, members, outcomes, num_segments);
    for (int rank = 0; rank < size; rank++) {
        tensor_release(members[rank].input);
        tensor_release(members[rank].result);
        heap_free(members[rank].counts);
        heap_free(members[rank].output_counts);
    }
    heap_free(members);
    return status;
}
