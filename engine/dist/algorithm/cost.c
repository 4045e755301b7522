/* cost.c: the formulas of the cost model. n ranks, S bytes, p the largest power of two up to n. */
#include "dist/algorithm/cost.h"

#include <assert.h>

#include "core/dtype.h"
#include "dist/algorithm/plan.h"

/* Rounds of doubling until `size` ranks are reached. */
static int rounds_to(int size) {
    int rounds = 0;
    for (int64_t reached = 1; reached < size; reached *= 2) rounds++;
    return rounds;
}

/* partial: bytes of partial results, which for halves are twice those of the values. */
static double all_reduce_time(const collective_call *call, const collective_cost *k, double bytes, double partial) {
    int n = call->size;
    double share = (n - 1.0) / n, moved = share * (bytes + partial);
    switch (call->algorithm) {
    case ALGORITHM_RING: return 2 * (n - 1) * k->alpha_s + moved * k->beta_s_per_byte + share * partial * k->gamma_s_per_byte;
    case ALGORITHM_DIRECT:
        return 2 * (k->alpha_s + (n - 2) * k->overhead_s) + 2 * share * bytes * k->beta_s_per_byte * k->congestion
            + share * bytes * k->gamma_s_per_byte;
    default: {
        int p = 1, rounds = 0;
        for (; p <= n / 2; p *= 2) rounds++;
        share = (p - 1.0) / p;
        double time = 2 * rounds * k->alpha_s + share * (bytes + partial) * k->beta_s_per_byte
            + share * partial * k->gamma_s_per_byte;
        if (p < n) time += 2 * (k->alpha_s + bytes * k->beta_s_per_byte) + bytes * k->gamma_s_per_byte;
        return time;
    }
    }
}

static double broadcast_time(const collective_call *call, const collective_cost *k, double bytes) {
    int rounds = rounds_to(call->size);
    if (call->algorithm == ALGORITHM_TREE) return rounds * (k->alpha_s + bytes * k->beta_s_per_byte);
    double segment_bytes = call->segment_bytes > 0 && (double)call->segment_bytes < bytes ? (double)call->segment_bytes : bytes;
    double segments = segment_bytes > 0 ? bytes / segment_bytes : 0;
    return (call->size - 1) * k->alpha_s + (call->size - 2 + segments) * segment_bytes * k->beta_s_per_byte
        + segments * k->overhead_s;
}

double collective_time_s(const collective_call *call, const collective_cost *k) {
    assert(call->algorithm != ALGORITHM_ANY);
    int n = call->size;
    if (n == 1) return 0;
    double element = (double)dtype_size(call->dtype), partial_element = (double)dtype_size(accumulator_dtype(call->dtype));
    double bytes = element * (double)call->count, partial = partial_element * (double)call->count;
    double share = (n - 1.0) / n, all = element * (double)block_offset(call->counts, call->count, n);
    bool is_direct = call->algorithm == ALGORITHM_DIRECT;
    double fan = k->alpha_s + (n - 2) * k->overhead_s; /* one message to each other rank */
    switch (call->kind) {
    case COLLECTIVE_ALL_REDUCE: return all_reduce_time(call, k, bytes, partial);
    case COLLECTIVE_REDUCE:
        return rounds_to(n) * (k->alpha_s + partial * k->beta_s_per_byte + partial * k->gamma_s_per_byte);
    case COLLECTIVE_BROADCAST: return broadcast_time(call, k, bytes);
    case COLLECTIVE_REDUCE_SCATTER:
        if (is_direct) return fan + share * bytes * (k->beta_s_per_byte * k->congestion + k->gamma_s_per_byte);
        return (n - 1) * k->alpha_s + share * partial * (k->beta_s_per_byte + k->gamma_s_per_byte);
    case COLLECTIVE_ALL_GATHER:
        if (is_direct) return fan + share * all * k->beta_s_per_byte * k->congestion;
        return (n - 1) * k->alpha_s + share * all * k->beta_s_per_byte;
    case COLLECTIVE_GATHER:
    case COLLECTIVE_SCATTER: return fan + share * all * k->beta_s_per_byte;
    case COLLECTIVE_ALL_TO_ALL: return fan + share * all * k->beta_s_per_byte * k->congestion;
    case COLLECTIVE_BARRIER: return rounds_to(n) * k->alpha_s;
    default: return k->alpha_s + bytes * k->beta_s_per_byte;
    }
}

collective_algorithm collective_choose(const collective_call *call, const collective_cost *cost) {
    collective_call candidate = *call;
    collective_algorithm best = ALGORITHM_ANY;
    double best_time = 0;
    for (const collective_algorithm *a = algorithm_list(call->kind); *a != ALGORITHM_ANY; a++) {
        candidate.algorithm = *a;
        double time = collective_time_s(&candidate, cost);
        if (best != ALGORITHM_ANY && time >= best_time) continue;
        best = *a;
        best_time = time;
    }
    return best;
}
