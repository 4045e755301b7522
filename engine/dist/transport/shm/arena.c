/* arena.c: making, mapping and releasing an arena. */
#include "dist/transport/shm/arena.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/error.h"
#include "core/memory.h"
#include "dist/transport/shm/handover.h"
#include "dist/transport/shm/layout.h"

#define PAGE     4096u
#define MAX_SIZE 4096
/* Two ranks that each have a processor, all_reduce of 64 MiB: slots of 1, 2 or 4 MiB take the same, 512 KiB a tenth more: a wait
 * costs more than the caches give. Four ranks on two processors with 32 MiB of cache: 4 MiB 30 ms, 2 MiB 23, 1 MiB 22: both slots
 * of all ranks together should stay in it. */
#define MOST_SLOT_BYTES  ((size_t)4 << 20)
#define LEAST_SLOT_BYTES ((size_t)512 << 10) /* for many ranks: they have larger caches */
#define SLOTS_BUDGET     ((size_t)16 << 20)  /* of all ranks' slots together */
#define SLOTS_LIMIT      ((size_t)128 << 20) /* of all ranks' slots together, in any case */
#define MIN_PART_BYTES   64                  /* a slot holds one of these for each rank */
#define PAIR_BYTES       ((size_t)64 << 10)
#define PAIRS_BUDGET     ((size_t)8 << 20)
#define MIN_PAIR_BYTES   1024

static size_t round_up(size_t bytes, size_t step) { return (bytes + step - 1) / step * step; }

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* Fills in where everything lies; nothing else is set. */
static void plan(arena_header *h, int size, size_t slot_bytes) {
    size_t n = (size_t)size;
    if (slot_bytes == 0) {
        slot_bytes = least(MOST_SLOT_BYTES, SLOTS_BUDGET / (2 * n));
        if (slot_bytes < LEAST_SLOT_BYTES) slot_bytes = least(LEAST_SLOT_BYTES, SLOTS_LIMIT / (2 * n));
    }
    if (slot_bytes < n * MIN_PART_BYTES) slot_bytes = n * MIN_PART_BYTES;
    h->size = size;
    h->slot_bytes = round_up(slot_bytes, MIN_PART_BYTES);
    /* A part of a slot's elements, rounded up to 64 elements of up to 8 bytes. */
    h->result_bytes = round_up(h->slot_bytes / n + 1024, MIN_PART_BYTES);
    h->pair_bytes = least(PAIR_BYTES, PAIRS_BUDGET / (2 * n * n));
    if (h->pair_bytes < MIN_PAIR_BYTES) h->pair_bytes = MIN_PAIR_BYTES;
    h->pair_bytes = least(round_up(h->pair_bytes, 64), h->slot_bytes);
    h->pairs_at = round_up(sizeof *h + n * sizeof(arena_line), ARENA_LINE_BYTES);
    h->chunks_at = h->pairs_at + n * n * sizeof(pair_cell);
    h->slots_at = round_up(h->chunks_at + 2 * n * n * h->pair_bytes, PAGE);
    h->results_at = h->slots_at + 2 * n * h->slot_bytes;
    h->total_bytes = round_up(h->results_at + 2 * n * h->result_bytes, PAGE);
}

static arena *make_holder(void) {
    arena *a = heap_alloc_zero(sizeof *a);
    if (!a) return NULL;
    atomic_init(&a->num_holders, 1);
    a->fd = -1;
    return a;
}

ag_status arena_new(int size, bool is_local, size_t slot_bytes, arena **out) {
    if (size < 1 || size > MAX_SIZE) return error_set(AG_E_VALUE, "shared memory", "size", "1 to 4096 ranks", NULL, "%d", size);
    arena_header planned;
    memset(&planned, 0, sizeof planned);
    plan(&planned, size, slot_bytes);
    arena *a = make_holder();
    if (!a) return error_memory("shared memory", sizeof *a);
    a->is_local = is_local;
    a->total_bytes = planned.total_bytes;
    ag_status status = AG_OK;
    if (is_local) {
        a->total_bytes += ARENA_LINE_BYTES;
        a->memory = memory_alloc(a->total_bytes);
        if (a->memory) {
            a->header = (arena_header *)round_up((uintptr_t)a->memory, ARENA_LINE_BYTES);
            memset(a->header, 0, planned.slots_at); /* slots are written before they are read */
        } else {
            status = error_memory("shared memory", a->total_bytes);
        }
    } else {
        status = memory_file_new(a->total_bytes, &a->fd);
        if (status == AG_OK) status = memory_file_map(a->fd, a->total_bytes, (void **)&a->header, &a->total_bytes);
    }
    if (status != AG_OK) {
        arena_release(a);
        return status;
    }
    memcpy(a->header, &planned, sizeof planned);
    a->header->magic = ARENA_MAGIC;
    *out = a;
    return AG_OK;
}

arena *arena_retain(arena *a) {
    atomic_fetch_add_explicit(&a->num_holders, 1, memory_order_relaxed);
    return a;
}

void arena_release(arena *a) {
    /* Release: what this holder did in the arena comes before its end; acquire: the last one sees all of it. */
    if (!a || atomic_fetch_sub_explicit(&a->num_holders, 1, memory_order_acq_rel) > 1) return;
    for (arena_block *b = a->blocks, *next; b; b = next) {
        next = b->next;
        memory_free(b->memory, b->size_bytes);
        heap_free(b);
    }
    if (a->fd >= 0) close(a->fd);
    if (a->is_local)
        memory_free(a->memory, a->total_bytes);
    else if (a->header)
        munmap(a->header, a->total_bytes);
    heap_free(a);
}

ag_status arena_listen(const char *address, int *fd) { return handover_listen(address, fd); }

ag_status arena_serve(arena *a, int listen_fd, const char token[ARENA_TOKEN_BYTES], int64_t deadline_ns) {
    ag_status status =
        handover_serve(listen_fd, a->fd, a->header->size - 1, token, &(handover_limit){.deadline_ns = deadline_ns});
    if (a->fd >= 0) close(a->fd);
    a->fd = -1;
    return status;
}

/* Whether the header is one that this build would have made. */
static bool is_sound(const arena_header *h, int size, size_t total_bytes) {
    if (h->magic != ARENA_MAGIC || h->size != size) return false;
    arena_header wanted;
    memset(&wanted, 0, sizeof wanted);
    plan(&wanted, size, h->slot_bytes);
    return h->total_bytes == total_bytes && wanted.total_bytes == total_bytes && h->slot_bytes == wanted.slot_bytes &&
           h->result_bytes == wanted.result_bytes && h->pair_bytes == wanted.pair_bytes && h->pairs_at == wanted.pairs_at &&
           h->chunks_at == wanted.chunks_at && h->slots_at == wanted.slots_at && h->results_at == wanted.results_at;
}

ag_status arena_connect(const char *address, const char token[ARENA_TOKEN_BYTES], int size, int64_t deadline_ns, arena **out) {
    int fd;
    AG_TRY(handover_connect(address, token, &(handover_limit){.deadline_ns = deadline_ns}, &fd));
    arena *a = make_holder();
    ag_status status = AG_OK;
    if (!a)
        status = error_memory("shared memory", sizeof *a);
    else
        status = memory_file_map(fd, sizeof *a->header, (void **)&a->header, &a->total_bytes);
    close(fd);
    if (status == AG_OK && !is_sound(a->header, size, a->total_bytes))
        status = error_set(AG_E_FORMAT, "shared memory", NULL, "memory of this job and version", NULL, "another layout");
    if (status != AG_OK) {
        arena_release(a);
        return status;
    }
    *out = a;
    return AG_OK;
}
