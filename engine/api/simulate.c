/* simulate.c: ag_simulate_collective: public calls on the simulator, with the errors that a group would give. */
#include <string.h>

#include "api/collective_call.h"
#include "core/dtype.h"
#include "core/error.h"
#include "core/memory.h"
#include "dist/algorithm/cost.h"
#include "dist/simulator/simulator.h"
#include "dist/transport/call_print.h"

#define MAX_SIZE 1024

/* member is one rank's call. */
typedef struct member {
    tensor_call call;
    call_print print;
} member;

/* Constants of a network such as the default delays make; only the choice of an algorithm depends on them. */
static const collective_cost network_cost = {
    .alpha_s = 1e-4, .beta_s_per_byte = 1e-9, .gamma_s_per_byte = 2e-10, .congestion = 1};

/* What fails here is this rank's refusal. */
static ag_status prepare(const ag_simulation *setup, const ag_collective *c, int rank, member *m) {
    AG_TRY(tensor_call_parse(c, rank, setup->size, &m->call));
    AG_TRY(tensor_call_prepare(c, &m->call));
    collective_call *call = &m->call.call;
    size_t part = (size_t)call->count * dtype_size(call->dtype) / 7;
    call->sequence = setup->sequence;
    call->segment_bytes = part < 16 ? 16 : part > 65536 ? 65536 : part;
    if (call->algorithm == ALGORITHM_ANY) call->algorithm = collective_choose(call, &network_cost);
    call_print_make(&m->print, call, m->call.ndim, m->call.dims);
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
            o->result = tensor_call_take(&members[rank].call);
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
        for (int rank = 0; rank < size; rank++) list[rank] = members[rank].call.call;
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
    for (int rank = 0; rank < size; rank++) tensor_call_deinit(&members[rank].call);
    heap_free(members);
    return status;
}
