/* shm_reduction.c: all_reduce, reduce and reduce_scatter: always ((x0 + x1) + x2) + … in rank order.
 *
 * Small: every rank stages all its elements and, after one round, reduces those of all ranks itself.
 * Large: windows of a slot, each cut into a part for each rank. In round t a rank stages the other ranks' parts of window t;
 * after it, it reduces its own part into its result of round t, and copies the other ranks' results of round t - 1, which are
 * complete since they came. So windows overlap, and there is one wait a window and one more.
 * reduce_scatter: only the first half of that.
 */
#include "core/dtype.h"
#include "core/error.h"
#include "core/memory.h"
#include "dist/transport/shm/shm.h"
#include "dist/transport/shm/shm_copy.h"

/* Of all ranks together. Two ranks, 64 KiB: staged whole 15.6 us, in parts 13.3; 128 KiB: 27 and 21; 32 KiB: both 10. */
#define SMALL_BYTES ((int64_t)64 << 10)
#define PART_STEP   64 /* elements: parts begin on lines of their own */

typedef struct reduction {
    shm_call *call;
    int rank, size, divisor;
    reduce_op op;
    ag_dtype dtype;
    int64_t element, count;
    const char *input;
    char *output, *target; /* target: the output, room aside, or NULL = nothing until the end */
    int64_t output_bytes;
    int64_t window, num_windows; /* elements */
    bool overlaps;
    bool is_far; /* the output is too large for caches */
} reduction;

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

static char *slot(const reduction *r, int rank, uint64_t round) { return arena_slot(r->call->s->arena->header, rank, round); }

static char *result(const reduction *r, int rank, uint64_t round) {
    return arena_result(r->call->s->arena->header, rank, round);
}

static void copy_out(const reduction *r, char *dst, const char *src, size_t num_bytes) {
    (r->is_far ? shm_copy_out : shm_copy)(dst, src, num_bytes);
}

static bool is_present(const reduction *r) { return !(r->call->request->print.flags & CALL_ABSENT); }

/* Reduces the listed runs into first, and into second unless it is NULL; is_far: the last of these past the caches. */
static void reduce_into(const reduction *r, char *first, char *second, bool is_far, int num_sources, int64_t count) {
    shm_reduce(r->op, r->dtype, (char *[]){first, second}, second ? 2 : 1, is_far, r->call->s->sources, num_sources, r->divisor,
               count);
    r->call->s->stats.bytes_moved += (r->size - 1) * count * r->element;
}

/* Lists the runs of all ranks that contribute, each at `offset` bytes of its slot. own: where the own one is, NULL = too. */
static int list_sources(const reduction *r, uint64_t round, int64_t offset, const char *own) {
    shm *s = r->call->s;
    int num_sources = 0;
    for (int rank = 0; rank < r->size; rank++)
        if (!s->is_absent[rank]) s->sources[num_sources++] = rank == r->rank && own ? own : slot(r, rank, round) + offset;
    return num_sources;
}

static ag_status reduce_small(reduction *r) {
    uint64_t round = r->call->s->round;
    if (is_present(r)) shm_copy(slot(r, r->rank, round), r->input, (size_t)(r->count * r->element));
    AG_TRY(shm_meet(r->call));
    if (!r->output || r->count == 0) return AG_OK;
    int num_sources = list_sources(r, round, 0, NULL);
    reduce_into(r, r->output, NULL, false, num_sources, r->count);
    return AG_OK;
}

/* Elements of window `index`; its part for `rank` is [*begin, *begin + *length). */
static int64_t window_length(const reduction *r, int64_t index) {
    return index < r->num_windows ? smaller(r->window, r->count - index * r->window) : 0;
}

static void part_of(const reduction *r, int64_t index, int rank, int64_t *begin, int64_t *length) {
    int64_t total = window_length(r, index);
    int64_t step = (total + r->size - 1) / r->size;
    step = (step + PART_STEP - 1) / PART_STEP * PART_STEP;
    *begin = smaller(step * rank, total);
    *length = smaller(step, total - *begin);
}

static void stage_window(const reduction *r, int64_t index, uint64_t round) {
    const char *from = r->input + index * r->window * r->element;
    char *to = slot(r, r->rank, round);
    int64_t begin, length;
    part_of(r, index, r->rank, &begin, &length);
    int64_t end = begin + length, total = window_length(r, index);
    shm_copy(to, from, (size_t)(begin * r->element));
    shm_copy(to + end * r->element, from + end * r->element, (size_t)((total - end) * r->element));
}

static void reduce_part(const reduction *r, int64_t index, uint64_t round) {
    int64_t begin, length, at = index * r->window;
    part_of(r, index, r->rank, &begin, &length);
    if (length == 0) return;
    const char *own = is_present(r) ? r->input + (at + begin) * r->element : NULL;
    int num_sources = list_sources(r, round, begin * r->element, own);
    char *second = r->target ? r->target + (at + begin) * r->element : NULL;
    /* Others read the first soon. */
    reduce_into(r, result(r, r->rank, round), second, second && r->is_far, num_sources, length);
}

/* Copies what other ranks have reduced; the own part, too, when it was held back. */
static void collect_window(const reduction *r, int64_t index, uint64_t round) {
    char *to = r->target ? r->target : r->output;
    if (!to) return;
    int64_t begin, length;
    for (int i = r->target ? 1 : 0; i < r->size; i++) {
        int rank = (r->rank + i) % r->size; /* not all read from the same one at once */
        part_of(r, index, rank, &begin, &length);
        copy_out(r, to + (index * r->window + begin) * r->element, result(r, rank, round), (size_t)(length * r->element));
        if (i > 0) r->call->s->stats.bytes_moved += length * r->element;
    }
}

/* Room aside when results would go over input that is still to be read, or that a failure must leave as it was. With one window
 * nothing is written before the last round is through. */
static ag_status set_target(reduction *r) {
    r->target = r->output;
    r->is_far = r->output_bytes >= SHM_FAR_BYTES;
    if (!r->overlaps) return AG_OK;
    r->target = NULL;
    if (r->num_windows <= 1) return AG_OK;
    r->target = memory_alloc((size_t)r->output_bytes);
    return r->target ? AG_OK : error_memory(collective_kind_name(r->call->request->call.kind), (size_t)r->output_bytes);
}

static ag_status finish(reduction *r, ag_status status) {
    if (!r->target || r->target == r->output) return status;
    if (status == AG_OK) copy_out(r, r->output, r->target, (size_t)r->output_bytes);
    memory_free(r->target, (size_t)r->output_bytes);
    return status;
}

static ag_status reduce_windows(reduction *r) {
    int64_t room = (int64_t)r->call->s->arena->header->slot_bytes / r->element;
    r->num_windows = (r->count + room - 1) / room;
    r->window = (r->count + r->num_windows - 1) / r->num_windows;
    r->window = smaller((r->window + PART_STEP - 1) / PART_STEP * PART_STEP, room);
    r->num_windows = (r->count + r->window - 1) / r->window;
    AG_TRY(set_target(r));
    ag_status status = AG_OK;
    for (int64_t i = 0; i <= r->num_windows && status == AG_OK; i++) {
        uint64_t round = r->call->s->round;
        if (i < r->num_windows && is_present(r)) stage_window(r, i, round);
        status = shm_meet(r->call);
        if (status != AG_OK) break;
        if (i < r->num_windows) reduce_part(r, i, round);
        if (i > 0) collect_window(r, i - 1, round - 1);
    }
    return finish(r, status);
}

/* The slot of each rank has a part for every receiver. */
static ag_status reduce_scatter(reduction *r) {
    int64_t part = (int64_t)r->call->s->arena->header->slot_bytes / r->size / 8 * 8,
            longest = chunk_offset(r->count, r->size, 1);
    int64_t own_at = chunk_offset(r->count, r->size, r->rank),
            own_length = chunk_offset(r->count, r->size, r->rank + 1) - own_at;
    r->window = part / r->element;
    r->num_windows = longest > 0 ? (longest + r->window - 1) / r->window : 1;
    r->output_bytes = own_length * r->element;
    r->overlaps = ranges_overlap(r->input, r->count * r->element, r->output, r->output_bytes);
    AG_TRY(set_target(r));
    char *target = r->target ? r->target : r->output;
    ag_status status = AG_OK;
    for (int64_t i = 0; i < r->num_windows && status == AG_OK; i++) {
        uint64_t round = r->call->s->round;
        int64_t begin = i * r->window;
        for (int rank = 0; rank < r->size && is_present(r); rank++) {
            int64_t at = chunk_offset(r->count, r->size, rank) + begin;
            int64_t length = smaller(r->window, chunk_offset(r->count, r->size, rank + 1) - at);
            /* Where the output lies over the input, the own part is read from the slot, too. */
            if (length > 0 && (rank != r->rank || !r->target))
                shm_copy(slot(r, r->rank, round) + rank * part, r->input + at * r->element, (size_t)(length * r->element));
        }
        status = shm_meet(r->call);
        int64_t length = smaller(r->window, own_length - begin);
        if (status != AG_OK || length <= 0) continue;
        const char *own = r->target && is_present(r) ? r->input + (own_at + begin) * r->element : NULL;
        int num_sources = list_sources(r, round, r->rank * part, own);
        reduce_into(r, target + begin * r->element, NULL, r->is_far, num_sources, length);
    }
    return finish(r, status);
}

ag_status shm_reduction(shm_call *c) {
    const collective_call *call = &c->request->call;
    reduction r = {.call = c,
                   .rank = c->s->base.rank,
                   .size = c->s->base.size,
                   .op = call->op,
                   .dtype = call->dtype,
                   .element = (int64_t)dtype_size(call->dtype),
                   .count = call->count,
                   .input = call->input,
                   .output = call->output};
    r.divisor = call->op == REDUCE_MEAN ? r.size : 1;
    if (call->kind == COLLECTIVE_REDUCE_SCATTER) return reduce_scatter(&r);
    if (call->kind == COLLECTIVE_REDUCE && r.rank != call->root) r.output = NULL;
    r.output_bytes = r.output ? r.count * r.element : 0;
    r.overlaps = ranges_overlap(r.input, r.count * r.element, r.output, r.output_bytes);
    int64_t num_bytes = r.count * r.element;
    bool is_small = num_bytes <= (int64_t)c->s->arena->header->slot_bytes && num_bytes <= SMALL_BYTES / r.size;
    return is_small ? reduce_small(&r) : reduce_windows(&r);
}
