/* agree.c: what the ranks of a job find out together: that they registered the same, hold the same, and who has a NaN. */
#include <stdio.h>
#include <string.h>

#include "core/dtype.h"
#include "core/error.h"
#include "core/memory.h"
#include "dist/ddp/ddp.h"
#include "exec/exec.h"

static group_request request_of(const ag_ddp *ddp, collective_kind kind, ag_dtype dtype, int64_t count, const void *input,
                                void *output) {
    return (group_request){.call = {.kind = kind, .dtype = dtype, .count = count, .input = input, .output = output},
                           .timeout_s = ddp->timeout_s};
}

/* out: [size, count] */
static ag_status all_gather(const ag_ddp *ddp, ag_dtype dtype, const void *own, int64_t count, void *out) {
    group_request request = request_of(ddp, COLLECTIVE_ALL_GATHER, dtype, count, own, out);
    return group_run(ddp->group, &request);
}

/* A call whose result nobody needs: the others get it refused, naming this rank and the reason. */
void agree_refuse(ag_group *group, const char *reason) {
    if (ag_group_size(group) == 1) return;
    const ag_error record = *error_record();
    group_request request = {.call = {.kind = COLLECTIVE_ALL_GATHER, .dtype = AG_U8}, .refusal = reason};
    (void)group_run(group, &request); /* this rank has its own error to tell */
    *error_record() = record;
}

ag_status agree_that_all_are_ready(ag_ddp *ddp) {
    if (ddp->size == 1) return AG_OK;
    const int64_t own[2] = {0};
    int64_t *all = heap_alloc((size_t)ddp->size * sizeof own);
    if (!all) return error_memory("register", (size_t)ddp->size * sizeof own);
    ag_status status = all_gather(ddp, AG_I64, own, 2, all);
    heap_free(all);
    return status;
}

/* ---- hashes ---- */

static uint64_t mix(uint64_t hash, uint64_t word) {
    hash ^= word * 0x9e3779b97f4a7c15u;
    hash = (hash << 29 | hash >> 35) * 0xbf58476d1ce4e5b9u;
    return hash;
}

/* 64 bits of a run of bytes; two runs that differ have the same with probability 2^-64, unless somebody made them so. */
static uint64_t hash_bytes(const char *bytes, size_t size_bytes) {
    uint64_t hash = mix(0x94d049bb133111ebu, size_bytes), word;
    size_t at = 0;
    for (; at + sizeof word <= size_bytes; at += sizeof word) {
        memcpy(&word, bytes + at, sizeof word);
        hash = mix(hash, word);
    }
    word = 0;
    memcpy(&word, bytes + at, size_bytes - at);
    hash = mix(hash, word);
    return hash ^ hash >> 32;
}

/* ---- the list of what is registered ---- */

typedef struct text {
    char *bytes; /* NULL = only counted */
    size_t len;
} text;

static void append(text *t, const char *bytes, size_t len) {
    if (t->bytes) memcpy(t->bytes + t->len, bytes, len);
    t->len += len;
}

/* A line of an item: "fc1.weight" f32[3, 4]. Names may hold anything, so they end with a 0 and the line with another. */
static void append_item(text *t, const char *name, const char *kind) {
    append(t, name, strlen(name) + 1);
    append(t, kind, strlen(kind) + 1);
}

static void append_buffer(text *t, const ag_ddp_item *buffer) {
    char kind[128];
    append_item(t, buffer->name, tensor_text(buffer->tensor, kind, sizeof kind));
}

/* What ranks have in common lies in the same way on all of them. */
static void append_parameter(text *t, const ddp_slot *slot) {
    const ag_tensor *tensor = slot->tensor;
    char kind[384];
    tensor_text(tensor, kind, 128);
    if (slot->ddp->shard == SHARD_HOST) {
        size_t len = strlen(kind), at = slot->common_at + (size_t)tensor->offset * dtype_size((ag_dtype)tensor->dtype);
        len += (size_t)snprintf(kind + len, sizeof kind - len, " at byte %zu with strides", at);
        for (int d = 0; d < tensor->ndim; d++)
            len += (size_t)snprintf(kind + len, sizeof kind - len, " %lld", (long long)tensor->strides[d]);
    }
    append_item(t, slot->name, kind);
}

static void append_list(text *t, const ag_ddp *ddp, ddp_slot *const *by_position, const ag_ddp_item *buffers, int num_buffers) {
    static const char *const shards[] = {[SHARD_NONE] = "", [SHARD_RANKS] = ", shard ranks", [SHARD_HOST] = ", shard host"};
    char options[160];
    int len = snprintf(options, sizeof options, "buckets %lld/%lld, compress %s, %s result, %s, finite %d%s",
                       (long long)ddp->bucket_bytes, (long long)ddp->first_bucket_bytes,
                       ddp->compress == AG_NO_DTYPE ? "none" : dtype_name(ddp->compress), ddp->shared_result ? "shared" : "own",
                       ddp->is_verifying ? "verify" : "broadcast", (int)ddp->check_finite, shards[ddp->shard]);
    append(t, "options", sizeof "options");
    append(t, options, (size_t)len + 1);
    for (int i = 0; i < ddp->num_slots; i++) append_parameter(t, by_position[i]);
    append(t, "", 1);
    append(t, "buffers", sizeof "buffers");
    for (int i = 0; i < num_buffers; i++) append_buffer(t, &buffers[i]);
}

/* Item number `position` of the list: its name and what it is; false at the list's end. */
static bool read_item(const char **at, const char *end, const char **name, const char **kind) {
    const char *zero = *at < end ? memchr(*at, 0, (size_t)(end - *at)) : NULL;
    if (!zero) return false;
    *name = *at;
    *kind = zero + 1;
    const char *next = *kind < end ? memchr(*kind, 0, (size_t)(end - *kind)) : NULL;
    if (!next) return false;
    *at = next + 1;
    return true;
}

static void describe_item(bool is_there, const char *name, const char *kind, char *buffer, size_t len) {
    if (!is_there || (!name[0] && !strcmp(kind, "buffers")))
        snprintf(buffer, len, "missing");
    else
        snprintf(buffer, len, "'%.60s' %.80s", name, kind);
}

static ag_status list_error(const ag_ddp *ddp, const char *a, size_t a_len, const char *b, size_t b_len, int rank) {
    const char *a_at = a, *b_at = b, *a_name = "", *a_kind = "", *b_name = "", *b_kind = "";
    int32_t culprit = ag_group_world_rank(ddp->group, rank);
    bool is_buffer = false;
    for (int position = 0;; position++) {
        bool a_there = read_item(&a_at, a + a_len, &a_name, &a_kind), b_there = read_item(&b_at, b + b_len, &b_name, &b_kind);
        if (!a_there && !b_there) break;
        if (a_there && b_there && !strcmp(a_name, b_name) && !strcmp(a_kind, b_kind)) {
            if (!a_name[0] && !strcmp(a_kind, "buffers")) is_buffer = true, position = 0;
            continue;
        }
        char on_a[176], on_b[176], what[48];
        describe_item(a_there, a_name, a_kind, on_a, sizeof on_a);
        describe_item(b_there, b_name, b_kind, on_b, sizeof on_b);
        snprintf(what, sizeof what, "%s %d", is_buffer ? "buffer" : "parameter", position);
        error_set(AG_E_MISMATCH, "register", NULL, NULL, "register the same model, with the same options, on all ranks",
                  "%s is %s on rank 0 and %s on rank %d", position == 0 && !is_buffer ? "what the job is made with" : what,
                  on_a, on_b, rank);
        error_set_culprits(&culprit, 1, 0);
        return AG_E_MISMATCH;
    }
    return error_set(AG_E_MISMATCH, "register", NULL, NULL, NULL, "the lists of ranks 0 and %d differ", rank);
}

/* The hashes differ somewhere: all ranks gather all lists and name the first rank whose list is not that of rank 0. */
static ag_status compare_lists(const ag_ddp *ddp, const text *own, const int64_t *sizes_and_hashes) {
    int64_t total = 0, *counts = heap_alloc((size_t)ddp->size * sizeof *counts);
    for (int r = 0; counts && r < ddp->size; r++) total += counts[r] = sizes_and_hashes[2 * r];
    char *lists = counts ? heap_alloc((size_t)total) : NULL;
    ag_status status = lists ? AG_OK : error_memory("register", (size_t)total);
    if (lists) {
        group_request request = request_of(ddp, COLLECTIVE_ALL_GATHER, AG_U8, 0, own->bytes, lists);
        request.call.counts = counts;
        status = group_run(ddp->group, &request);
    }
    int64_t at = status == AG_OK ? counts[0] : 0;
    for (int r = 1; status == AG_OK && r < ddp->size; at += counts[r++])
        if (counts[r] != counts[0] || memcmp(lists, lists + at, (size_t)counts[0]) != 0)
            status = list_error(ddp, lists, (size_t)counts[0], lists + at, (size_t)counts[r], r);
    heap_free(lists);
    heap_free(counts);
    return status;
}

ag_status agree_on_list(ag_ddp *ddp, const ag_ddp_item *buffers, int num_buffers) {
    if (ddp->size == 1) return AG_OK;
    text list = {0};
    ddp_slot **by_position = heap_alloc((size_t)ddp->num_slots * sizeof *by_position);
    int64_t *all = heap_alloc((size_t)ddp->size * 2 * sizeof *all);
    ag_status status = by_position && all ? AG_OK : error_memory("register", (size_t)ddp->num_slots * sizeof *by_position);
    if (status == AG_OK) {
        for (int i = 0; i < ddp->num_slots; i++) by_position[ddp->slots[i].position] = &ddp->slots[i];
        append_list(&list, ddp, by_position, buffers, num_buffers);
        list.bytes = heap_alloc(list.len);
        if (!list.bytes) status = error_memory("register", list.len);
    }
    if (status == AG_OK) {
        list.len = 0;
        append_list(&list, ddp, by_position, buffers, num_buffers);
        const int64_t own[2] = {(int64_t)list.len, (int64_t)hash_bytes(list.bytes, list.len)};
        status = all_gather(ddp, AG_I64, own, 2, all);
        for (int r = 1; status == AG_OK && r < ddp->size; r++)
            if (all[2 * r] != all[0] || all[2 * r + 1] != all[1]) status = compare_lists(ddp, &list, all);
    }
    heap_free(list.bytes);
    heap_free(all);
    heap_free(by_position);
    return status;
}

/* ---- values ---- */

ag_status agree_broadcast(ag_ddp *ddp, ag_tensor *tensor) {
    if (ddp->size == 1) return AG_OK;
    ag_tensor *flat = NULL;
    AG_TRY(exec_contiguous(tensor, &flat));
    char *data = tensor_address(flat);
    group_request request = request_of(ddp, COLLECTIVE_BROADCAST, (ag_dtype)tensor->dtype, tensor->numel, data, data);
    request.ndim = tensor->ndim;
    request.dims = tensor->dims;
    ag_status status = group_run(ddp->group, &request);
    if (status == AG_OK && flat->storage != tensor->storage) status = exec_copy(flat, tensor);
    if (status == AG_OK && ddp->rank != 0) tensor_bump_version(tensor);
    tensor_release(flat);
    return status;
}

static ag_status hash_tensor(ag_tensor *tensor, int64_t *out) {
    ag_tensor *flat = NULL;
    AG_TRY(exec_contiguous(tensor, &flat));
    *out = (int64_t)hash_bytes(tensor_address(flat), (size_t)flat->numel * dtype_size((ag_dtype)flat->dtype));
    tensor_release(flat);
    return AG_OK;
}

/* The first ranks whose hash of item i is not rank 0's, as a list for people. */
static int differing_ranks(const ag_ddp *ddp, const int64_t *hashes, int num_items, int i, char *buffer, size_t len,
                           int32_t *culprits) {
    int count = 0;
    size_t end = 0;
    for (int r = 1; r < ddp->size; r++) {
        if (hashes[(int64_t)r * num_items + i] == hashes[i]) continue;
        if (count < AG_MAX_CULPRITS) {
            culprits[count] = ag_group_world_rank(ddp->group, r);
            end += (size_t)snprintf(buffer + end, len - end, "%s%d", count ? ", " : "", r);
        }
        count++;
    }
    return count;
}

ag_status agree_on_values(ag_ddp *ddp, const ag_ddp_item *items, int num_items) {
    bool is_own = !items;
    if (is_own) num_items = ddp->num_slots;
    if (ddp->size == 1 || num_items == 0) return AG_OK;
    size_t row = (size_t)num_items * sizeof(int64_t);
    int64_t *own = heap_alloc_zero(row), *all = heap_alloc((size_t)ddp->size * row);
    ag_status status = own && all ? AG_OK : error_memory("verify", (size_t)(ddp->size + 1) * row);
    for (int i = 0; status == AG_OK && i < num_items; i++) {
        int at = is_own ? ddp->slots[i].position : i; /* in order of registration, so that the first is named */
        status = hash_tensor(is_own ? ddp->slots[i].tensor : items[i].tensor, &own[at]);
    }
    if (status == AG_OK) status = all_gather(ddp, AG_I64, own, num_items, all);
    for (int i = 0; status == AG_OK && i < num_items; i++) {
        char ranks[96];
        int32_t culprits[AG_MAX_CULPRITS];
        int count = differing_ranks(ddp, all, num_items, i, ranks, sizeof ranks, culprits);
        if (count == 0) continue;
        const char *name = is_own ? NULL : items[i].name;
        for (int k = 0; !name; k++)
            if (ddp->slots[k].position == i) name = ddp->slots[k].name;
        error_set(AG_E_MISMATCH, "verify", NULL, NULL,
                  "something changed it on one rank only: an update outside the job, a random state, a missed step",
                  "'%s' has other values on rank %s%s than on rank 0", name, ranks, count > AG_MAX_CULPRITS ? ", …" : "");
        error_set_culprits(culprits, count < AG_MAX_CULPRITS ? count : AG_MAX_CULPRITS, 0);
        status = AG_E_MISMATCH;
    }
    heap_free(own);
    heap_free(all);
    return status;
}

/* ---- NaN and Inf ---- */

static bool slot_is_finite(const ddp_slot *slot, const char *part) {
    const ddp_bucket *b = &slot->ddp->buckets[slot->bucket];
    return elements_are_finite(b->wire, part + (size_t)slot->offset * dtype_size(b->wire), slot->tensor->numel);
}

/* flags: [size, num_slots], 1 = not finite. Writes up to three "'name' on rank r". */
static int describe_faults(const ag_ddp *ddp, const uint8_t *flags, char *buffer, size_t len, int32_t *culprits,
                           int *num_culprits) {
    int count = 0;
    size_t end = 0;
    *num_culprits = 0;
    for (int r = 0; r < ddp->size; r++) {
        bool is_culprit = false;
        for (int i = ddp->num_slots - 1; i >= 0; i--) {
            if (!flags[(int64_t)r * ddp->num_slots + i]) continue;
            is_culprit = true;
            if (count++ < 3 && end < len)
                end +=
                    (size_t)snprintf(buffer + end, len - end, "%s'%.48s' on rank %d", end ? ", " : "", ddp->slots[i].name, r);
        }
        if (is_culprit && *num_culprits < AG_MAX_CULPRITS) culprits[(*num_culprits)++] = ag_group_world_rank(ddp->group, r);
    }
    if (count > 3 && end < len) snprintf(buffer + end, len - end, " and %d more", count - 3);
    return count;
}

ag_status agree_who_is_not_finite(ag_ddp *ddp, int32_t *culprits, int *num_culprits) {
    size_t row = (size_t)ddp->num_slots;
    uint8_t *own = heap_alloc_zero(row), *all = heap_alloc((size_t)ddp->size * row);
    ag_status status = own && all ? AG_OK : error_memory("sync", (size_t)(ddp->size + 1) * row);
    for (int i = 0; status == AG_OK && i < ddp->num_slots; i++) {
        const ddp_bucket *b = &ddp->buckets[ddp->slots[i].bucket];
        if (!b->is_finite) own[i] = !slot_is_finite(&ddp->slots[i], b->own);
    }
    if (status == AG_OK) status = all_gather(ddp, AG_U8, own, ddp->num_slots, all);
    if (status == AG_OK && describe_faults(ddp, all, ddp->report, sizeof ddp->report, culprits, num_culprits) == 0) {
        for (int i = ddp->num_slots - 1; i >= 0; i--) {
            const ddp_bucket *b = &ddp->buckets[ddp->slots[i].bucket];
            if (b->is_finite || slot_is_finite(&ddp->slots[i], b->sum)) continue;
            snprintf(ddp->report, sizeof ddp->report, "'%.48s': finite on every rank, but not the sum of all (%s overflowed)",
                     ddp->slots[i].name, dtype_name(b->wire));
            break;
        }
    }
    heap_free(own);
    heap_free(all);
    return status;
}
