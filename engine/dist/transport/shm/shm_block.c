/* shm_block.c: blocks of memory that all ranks see, and all_reduce within them. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/dtype.h"
#include "core/error.h"
#include "core/memory.h"
#include "dist/transport/shm/handover.h"
#include "dist/transport/shm/shm.h"
#include "dist/transport/shm/shm_copy.h"
#include "platform/clock.h"

#define PART_STEP 64 /* elements: ranks write to lines of their own */

/* mapping is what a shared_block's owner points to. */
typedef struct mapping {
    int32_t number;     /* of the transport's blocks, the same on all ranks */
    arena_block *block; /* of a local arena; else memory is mapped */
    void *memory;
    size_t size_bytes;
} mapping;

/* Whoever gives a call up raises the word before its caller may write to its part: if the word is not there now, all that was
 * read before the last arrival, which keeps the two apart, is what ranks had given. */
static ag_status check_parts(const shm_call *c) {
    bool is_given_up = atomic_load_explicit(&c->s->arena->header->abort_state, memory_order_acquire) == ABORT_SET;
    return is_given_up ? shm_wait_error(c, WAIT_ABORTED, -1) : AG_OK;
}

/* Every rank reduces its chunk of all parts into the result, or into that of each rank. Without a copy the call is over then; in
 * place the own part is copied from there, after the last round, so that a failure leaves it as it was. */
ag_status shm_block_reduce(shm_call *c) {
    shm *s = c->s;
    const transport_call *request = c->request;
    const shared_block *b = request->block;
    const collective_call *call = &request->call;
    int size = s->base.size, rank = s->base.rank;
    int64_t element = (int64_t)dtype_size(call->dtype), count = call->count;
    assert(b->is_shared && b->size == size && request->block_offset + (size_t)(count * element) <= b->part_bytes);
    s->arena->header->lines[rank].notes[s->round % 2].block = ((const mapping *)b->owner)->number;
    AG_TRY(shm_meet(c));
    int64_t step = ((count + size - 1) / size + PART_STEP - 1) / PART_STEP * PART_STEP;
    int64_t begin = step * rank < count ? step * rank : count, length = step < count - begin ? step : count - begin;
    int num_sources = 0, num_results = b->form == BLOCK_RESULTS ? size : 1;
    size_t at = request->block_offset + (size_t)(begin * element);
    for (int i = 0; i < size; i++)
        if (!s->is_absent[i]) s->sources[num_sources++] = shared_block_part(b, i) + at;
    /* The own result first: what is not written past the caches is there for whoever goes on with it. */
    for (int i = 0; i < num_results; i++) s->results[i] = shared_block_result(b, (rank + i) % size) + at;
    int divisor = call->op == REDUCE_MEAN ? size : 1;
    bool is_far = count * element >= SHM_FAR_BYTES;
    if (length > 0)
        shm_reduce(call->op, call->dtype, s->results, num_results, is_far ? num_results : 0, s->sources, num_sources, divisor,
                   length);
    AG_TRY(shm_meet(c));
    AG_TRY(check_parts(c));
    s->stats.bytes_moved += (size - 1 + num_results - 1) * length * element;
    char *own = shared_block_part(b, rank) + request->block_offset;
    if (call->output == own && count > 0)
        (is_far ? shm_copy_out : shm_copy)(own, shared_block_result(b, rank) + request->block_offset,
                                           (size_t)(count * element));
    return AG_OK;
}

/* ---- making one ---- */

static ag_status new_local(arena *a, size_t size_bytes, uint64_t *address) {
    arena_block *made = heap_alloc_zero(sizeof *made);
    if (!made) return error_memory("shared memory", sizeof *made);
    made->memory = memory_alloc(size_bytes);
    if (!made->memory) {
        heap_free(made);
        return error_memory("shared memory", size_bytes);
    }
    memset(made->memory, 0, size_bytes);
    made->size_bytes = size_bytes;
    made->num_holders = a->header->size;
    lock_acquire(&a->lock);
    made->next = a->blocks;
    a->blocks = made;
    lock_release(&a->lock);
    *address = (uint64_t)(uintptr_t)made;
    return AG_OK;
}

/* One of the holders goes; the last one frees it. */
static void drop_local(arena *a, arena_block *block) {
    lock_acquire(&a->lock);
    bool is_last = --block->num_holders == 0;
    for (arena_block **link = &a->blocks; is_last && *link; link = &(*link)->next)
        if (*link == block) {
            *link = block->next;
            break;
        }
    lock_release(&a->lock);
    if (!is_last) return;
    memory_free(block->memory, block->size_bytes);
    heap_free(block);
}

static void unmap(arena *a, mapping *m) {
    if (m->block)
        drop_local(a, m->block);
    else if (m->memory)
        munmap(m->memory, m->size_bytes);
    heap_free(m);
}

/* Rank 0 makes the memory. *fds: the memory and where it listens, -1 when there are none. */
static ag_status make_memory(shm *s, const char *address, size_t size_bytes, uint64_t *local, int fds[2]) {
    if (s->arena->is_local) return new_local(s->arena, size_bytes, local);
    AG_TRY(memory_file_new(size_bytes, &fds[0]));
    return handover_listen(address, &fds[1]);
}

/* Whether nobody is to be waited for: all others have come to the coming round, with memory or without, or the world ends. */
static bool has_all_come(const void *context) {
    const shm *s = context;
    const arena_header *h = s->arena->header;
    if (cancel_is_raised(s->base.cancel) || atomic_load_explicit(&h->abort_state, memory_order_acquire) == ABORT_SET)
        return true;
    for (int rank = 0; rank < s->base.size; rank++)
        if (rank != s->base.rank && atomic_load_explicit(&h->lines[rank].arrived.count, memory_order_acquire) <= s->round)
            return false;
    return true;
}

/* Every rank comes to its mapping. */
static ag_status attach(shm *s, const char *address, size_t size_bytes, uint64_t local, int fds[2], int64_t deadline_ns,
                        mapping *m) {
    if (s->arena->is_local) {
        m->block = (arena_block *)(uintptr_t)local;
        m->memory = m->block->memory;
        return AG_OK;
    }
    handover_limit limit = {.deadline_ns = deadline_ns, .is_over = has_all_come, .context = s};
    if (s->base.rank == 0) {
        int listen_fd = fds[1];
        fds[1] = -1;
        AG_TRY(handover_serve(listen_fd, fds[0], s->base.size - 1, s->token, &limit));
    } else {
        AG_TRY(handover_connect(address, s->token, &limit, &fds[0]));
    }
    return memory_file_map(fds[0], size_bytes, &m->memory, &m->size_bytes);
}

/* A round in which ranks tell how it went; the first failure is everybody's. */
static ag_status meet_with_status(shm_call *c, ag_status own, uint64_t address, uint64_t *address_of_first) {
    shm *s = c->s;
    arena_line *lines = s->arena->header->lines;
    uint64_t half = s->round % 2;
    lines[s->base.rank].tell[half].status = own;
    lines[s->base.rank].tell[half].address = address;
    ag_error kept = *error_record();
    AG_TRY(shm_meet(c));
    if (address_of_first) *address_of_first = lines[0].tell[half].address;
    for (int rank = 0; rank < s->base.size; rank++) {
        ag_status status = (ag_status)lines[rank].tell[half].status;
        if (status == AG_OK) continue;
        c->is_over = false;
        if (own != AG_OK) {
            *error_record() = kept;
            return own;
        }
        int32_t culprit = s->base.world_ranks ? s->base.world_ranks[rank] : rank;
        error_set(status, "shared memory", NULL, NULL, NULL, "rank %d could not have its part of it", (int)culprit);
        error_set_culprits(&culprit, 1, 0);
        return status;
    }
    return AG_OK;
}

static ag_status build(shm_call *c, size_t size_bytes, block_form form, int64_t deadline_ns, mapping *m) {
    shm *s = c->s;
    char address[96];
    int fds[2] = {-1, -1};
    uint64_t local = 0;
    /* First the sizes are compared: only then may memory be made and fetched. */
    AG_TRY(shm_settle(c));
    call_note *note = &s->arena->header->lines[s->base.rank].notes[s->round % 2];
    shm_note(note, c->request);
    note->form = (int32_t)(FORM_NEW + form);
    AG_TRY(shm_meet(c));
    m->number = s->num_blocks++;
    snprintf(address, sizeof address, "%s-b%" PRId32, s->address_prefix, m->number);
    ag_status status = s->base.rank == 0 ? make_memory(s, address, size_bytes, &local, fds) : AG_OK;
    status = meet_with_status(c, status, local, &local);
    if (status == AG_OK) {
        status = attach(s, address, size_bytes, local, fds, deadline_ns, m);
        status = meet_with_status(c, status, 0, NULL);
    }
    for (int i = 0; i < 2; i++)
        if (fds[i] >= 0) close(fds[i]);
    return status;
}

ag_status shm_block_new(transport *t, size_t part_bytes, block_form form, int64_t deadline_ns, shared_block *out) {
    shm *s = (shm *)t;
    shared_block block = {.part_bytes = part_bytes,
                          .rank = t->rank,
                          .size = t->size,
                          .world_ranks = t->world_ranks,
                          .form = form,
                          .is_shared = true};
    size_t parts = (size_t)shared_block_num_parts(&block);
    if (part_bytes > SIZE_MAX / 4 / parts || part_bytes % 4096 != 0)
        return error_set(AG_E_ARGUMENT, "shared memory", "part_bytes", "a multiple of 4096 that fits memory", NULL, "%zu",
                         part_bytes);
    mapping *m = heap_alloc_zero(sizeof *m);
    if (!m) return error_memory("shared memory", sizeof *m);
    m->size_bytes = part_bytes > 0 ? parts * part_bytes : 4096; /* empty tensors have an address, too */
    /* The print of a barrier that tells the size; the form of its note says that it is none. */
    transport_call request = {.deadline_ns = deadline_ns};
    request.print = (call_print){.count = (int64_t)part_bytes, .kind = COLLECTIVE_BARRIER, .dtype = AG_U8};
    shm_call c = {.s = s, .request = &request, .start_ns = clock_ns(), .is_over = true};
    ag_status status = build(&c, m->size_bytes, form, deadline_ns, m);
    if (status != AG_OK) {
        unmap(s->arena, m);
        return status;
    }
    block.base = m->memory;
    block.owner = m;
    *out = block;
    return AG_OK;
}

void shm_block_free(transport *t, shared_block *block) {
    if (!block->owner) return;
    unmap(((shm *)t)->arena, block->owner);
    *block = (shared_block){0};
}
