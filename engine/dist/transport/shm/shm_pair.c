/* shm_pair.c: send and receive: two ranks meet in the cell of their ordered pair, then chunks go through two places in turn. */
#include "core/dtype.h"
#include "core/error.h"
#include "dist/transport/shm/shm.h"
#include "dist/transport/shm/shm_copy.h"

/* pair is one side's view of a message. */
typedef struct pair {
    shm_call *call;
    pair_cell *cell;
    int sender, receiver, peer, side;
    uint64_t *event; /* done by this side */
} pair;

static ag_status wait_for_peer(const pair *p, uint64_t count) {
    shm_call *c = p->call;
    gate *other = &p->cell->gates[1 - p->side];
    wait_outcome outcome = gate_wait(&c->s->waiter, other, p->peer, count, c->request->deadline_ns);
    return outcome == WAIT_DONE ? AG_OK : shm_wait_error(c, outcome, p->peer);
}

static void finish_event(const pair *p) {
    ++*p->event;
    gate_raise(&p->cell->gates[p->side], *p->event);
}

/* A chunk is read before its event is done: the place of event - 2 is free when the other side has done that one. */
static ag_status wait_for_room(const pair *p) { return *p->event < 2 ? AG_OK : wait_for_peer(p, *p->event - 1); }

/* Both prints, compared on both sides. A note is read after its event, but before the next one: so the place of event - 2 is
 * free when the other side has done event - 1. */
static ag_status meet(const pair *p, bool *is_refused) {
    shm_call *c = p->call;
    const transport_call *request = c->request;
    shm *s = c->s;
    uint64_t half = *p->event % 2;
    AG_TRY(wait_for_peer(p, *p->event));
    call_note *own = &p->cell->notes[p->side][half], *other = &p->cell->notes[1 - p->side][half];
    shm_note(own, request);
    finish_event(p);
    *is_refused = (request->print.flags & CALL_REFUSED) != 0;
    if (*is_refused) return AG_OK;
    AG_TRY(wait_for_peer(p, *p->event));
    if (other->print.flags & CALL_REFUSED) {
        c->is_over = false; /* each side has done one event: the next message can begin */
        return shm_refusal_error(s, p->peer, other);
    }
    if (call_print_agree(&own->print, &other->print)) return AG_OK;
    const int32_t *world = s->base.world_ranks;
    return call_print_mismatch(world ? world[s->base.rank] : s->base.rank, &own->print, world ? world[p->peer] : p->peer,
                               &other->print);
}

ag_status shm_point_to_point(shm_call *c) {
    shm *s = c->s;
    const collective_call *call = &c->request->call;
    bool is_sender = call->kind == COLLECTIVE_SEND;
    pair p = {.call = c, .peer = call->root, .side = is_sender ? PAIR_SENDER : PAIR_RECEIVER};
    p.sender = is_sender ? s->base.rank : call->root;
    p.receiver = is_sender ? call->root : s->base.rank;
    p.event = is_sender ? &s->events_out[call->root] : &s->events_in[call->root];
    const arena_header *h = s->arena->header;
    p.cell = arena_pair(h, p.sender, p.receiver);
    bool is_refused;
    AG_TRY(meet(&p, &is_refused));
    if (is_refused) return AG_OK;
    uint64_t num_bytes = (uint64_t)call->count * dtype_size(call->dtype);
    for (uint64_t offset = 0; offset < num_bytes; offset += h->pair_bytes) {
        uint64_t length = num_bytes - offset < h->pair_bytes ? num_bytes - offset : h->pair_bytes;
        char *chunk = arena_pair_chunk(h, p.sender, p.receiver, *p.event);
        if (is_sender) {
            AG_TRY(wait_for_room(&p));
            shm_copy(chunk, (const char *)call->input + offset, length);
        } else {
            AG_TRY(wait_for_peer(&p, *p.event + 1));
            shm_copy((char *)call->output + offset, chunk, length);
        }
        finish_event(&p);
        s->stats.num_messages++;
    }
    s->stats.bytes_moved += (int64_t)num_bytes;
    return AG_OK;
}
