/* zmq_pool.c: blocks for payloads on their way out, given back by ZeroMQ's thread when it has sent them. */
#include "core/memory.h"
#include "dist/transport/zmq/zmq_hub.h"

#define MAX_KEPT 64

struct hub_pool {
    spin_lock lock;
    bool is_closed;
    int num_out, num_kept;
    hub_block *kept;
};

struct hub_pool *hub_pool_new(void) {
    return heap_alloc_zero(sizeof(struct hub_pool));
}

hub_block *hub_pool_take(struct hub_pool *p) {
    lock_acquire(&p->lock);
    hub_block *block = p->kept;
    if (block) {
        p->kept = block->next;
        p->num_kept--;
    }
    p->num_out++;
    lock_release(&p->lock);
    if (block) return block;
    block = heap_alloc(sizeof *block + HUB_SEGMENT_BYTES);
    if (block) {
        block->pool = p;
        return block;
    }
    lock_acquire(&p->lock);
    p->num_out--;
    lock_release(&p->lock);
    return NULL;
}

void hub_pool_give(void *payload, void *context) {
    (void)payload;
    hub_block *block = context;
    struct hub_pool *p = block->pool;
    lock_acquire(&p->lock);
    p->num_out--;
    bool is_kept = !p->is_closed && p->num_kept < MAX_KEPT, is_last = p->is_closed && p->num_out == 0;
    if (is_kept) {
        block->next = p->kept;
        p->kept = block;
        p->num_kept++;
    }
    lock_release(&p->lock);
    if (!is_kept) heap_free(block);
    if (is_last) heap_free(p);
}

void hub_pool_free(struct hub_pool *p) {
    if (!p) return;
    lock_acquire(&p->lock);
    p->is_closed = true;
    bool is_last = p->num_out == 0;
    hub_block *kept = p->kept;
    p->kept = NULL;
    lock_release(&p->lock);
    while (kept) {
        hub_block *next = kept->next;
        heap_free(kept);
        kept = next;
    }
    if (is_last) heap_free(p);
}
