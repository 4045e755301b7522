/* zmq_pump.c: the part of the hub that has the sockets: dialling, sending letters, sorting what comes into boxes. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/error.h"
#include "core/memory.h"
#include "dist/transport/zmq/zmq_hub.h"
#include "platform/clock.h"
#include "platform/crc.h"

#define MOST_AT_ONCE 64 /* messages of one pump: calls are attended to between two */
#define LINGER_MS    1000

void hub_identity(const zmq_hub *hub, int rank, int stripe, char out[HUB_IDENTITY_LEN + 1]) {
    snprintf(out, HUB_IDENTITY_LEN + 1, "%016" PRIx64 "%08" PRIx32 "%05x%03x", hub->limits.job, hub->limits.epoch,
             (unsigned)rank & 0xFFFFF, (unsigned)stripe & 0xFFF);
}

/* The rank of the world whose connection has this identity; -1: it is none of this job and epoch. */
static int rank_of_route(const zmq_hub *hub, const socket_route *route) {
    if (route->len != HUB_IDENTITY_LEN) return -1;
    char text[HUB_IDENTITY_LEN + 1], number[6], expected[HUB_IDENTITY_LEN + 1];
    memcpy(text, route->bytes, HUB_IDENTITY_LEN);
    text[HUB_IDENTITY_LEN] = '\0';
    memcpy(number, text + 24, 5);
    number[5] = '\0';
    long rank = strtol(number, NULL, 16), stripe = strtol(text + 29, NULL, 16);
    if (rank < 0 || rank >= hub->size || stripe < 0 || stripe >= HUB_MAX_STRIPES) return -1;
    hub_identity(hub, (int)rank, (int)stripe, expected);
    return memcmp(expected, text, HUB_IDENTITY_LEN) == 0 ? (int)rank : -1;
}

/* ---- out ---- */

static void drop_letters(zmq_hub *hub, hub_link *link) {
    pthread_mutex_lock(&hub->mutex);
    hub_letter *letter = link->first;
    link->first = link->last = NULL;
    for (hub_letter *l = letter; l; l = l->next) {
        l->box->num_unsent--;
        hub->num_unsent--;
        if (l->edge) l->edge->is_cut = true;
    }
    pthread_mutex_unlock(&hub->mutex);
    for (hub_letter *next; letter; letter = next) {
        next = letter->next;
        if (letter->block) hub_pool_give(NULL, letter->block);
        heap_free(letter);
    }
}

static void lose(zmq_hub *hub, int index, const char *detail) {
    int peer = index / hub->num_stripes;
    pthread_mutex_lock(&hub->mutex);
    hub->links[index].is_lost = true;
    if (hub->lost_ns[peer] == 0) {
        hub->lost_ns[peer] = clock_ns();
        snprintf(hub->lost_details[peer], sizeof *hub->lost_details, "%s", detail);
    }
    pthread_mutex_unlock(&hub->mutex);
    drop_letters(hub, &hub->links[index]);
}

static void dial(zmq_hub *hub, int index) {
    int peer = index / hub->num_stripes;
    char identity[HUB_IDENTITY_LEN + 1];
    hub_identity(hub, hub->rank, index % hub->num_stripes, identity);
    /* What credit allows for a few groups fits the queue; what does not stays with the link. */
    socket_settings settings = {.identity = identity,
                                .max_message_bytes = (int64_t)HUB_SEGMENT_BYTES + WIRE_HEADER_BYTES,
                                .send_queue = HUB_QUEUE,
                                .receive_queue = 1,
                                .linger_ms = LINGER_MS,
                                .is_monitored = true};
    if (socket_dial(hub->sockets, SOCKET_DEALER, &settings, hub->endpoints[peer], &hub->links[index].socket) == AG_OK) return;
    hub->links[index].socket = NULL;
    lose(hub, index, error_record()->message);
}

/* Sends the link's letters in order until ZeroMQ has no room; returns how many. Only the pump takes letters off. */
static int send_letters(zmq_hub *hub, hub_link *link, hub_letter *letter) {
    int num_sent = 0;
    while (letter) {
        bool is_sent = false;
        const void *payload = letter->block ? letter->block->bytes : letter->payload;
        ag_status status = socket_send(link->socket, NULL, letter->header, sizeof letter->header, payload,
                                       letter->payload_bytes, letter->block ? hub_pool_give : NULL, letter->block, &is_sent);
        if (status != AG_OK || !is_sent) break; /* AG_E_MEMORY too: it is tried again */
        num_sent++;
        pthread_mutex_lock(&hub->mutex);
        hub_letter *next = link->first = letter->next;
        if (!next) link->last = NULL;
        letter->box->num_unsent--;
        hub->num_unsent--;
        pthread_mutex_unlock(&hub->mutex);
        heap_free(letter); /* its block is ZeroMQ's now */
        letter = next;
    }
    return num_sent;
}

static int flush(zmq_hub *hub) {
    int num_sent = 0;
    for (int i = 0; i < hub->size * hub->num_stripes; i++) {
        hub_link *link = &hub->links[i];
        pthread_mutex_lock(&hub->mutex);
        bool is_wanted = link->is_wanted && !link->socket && !link->is_lost;
        hub_letter *first = link->first;
        pthread_mutex_unlock(&hub->mutex);
        if (is_wanted) dial(hub, i);
        if (first && link->socket && !link->is_lost) num_sent += send_letters(hub, link, first);
    }
    return num_sent;
}

static void look_at_monitors(zmq_hub *hub) {
    char detail[160];
    for (int i = 0; i < hub->size * hub->num_stripes; i++) {
        if (!hub->links[i].socket) continue;
        for (socket_event event;
             (event = socket_next_event(hub->sockets, hub->links[i].socket, detail, sizeof detail)) != SOCKET_NOTHING;)
            if (event == SOCKET_LOST || event == SOCKET_REFUSED) lose(hub, i, detail);
    }
    hub->next_look_ns = clock_ns() + HUB_TICK_MS * INT64_C(1000000);
}

/* ---- in ---- */

/* True when the payload is what the sender sent. */
static bool is_payload_sound(const zmq_hub *hub, const hub_arrival *a) {
    const wire_header *h = &a->header;
    if ((h->flags & WIRE_NO_CRC) != 0) return hub->is_encrypted;
    return crc32c(0, a->message.payload, a->message.payload_bytes) == h->payload_crc;
}

/* Counts what the header says of credit. False when the peer cannot be right. */
static bool count_credit(hub_edge *edge, const wire_header *h) {
    if (h->credit > edge->sent) return false;
    if (h->credit > edge->sent_taken) edge->sent_taken = h->credit; /* with stripes, older ones may come later */
    if (h->kind != WIRE_SEGMENT) return true;
    edge->received++;
    return edge->received - edge->taken <= HUB_WINDOW;
}

/* The peer is broken. With the mutex. */
static void blame(zmq_hub *hub, int rank, const char *what) {
    char text[96];
    snprintf(text, sizeof text, "rank %d %s", rank, what);
    hub_break(hub, AG_E_NETWORK, rank, text);
}

/* What becomes of a sound message: its box has it; it is of a message that this rank has refused; it is not needed. */
typedef enum fate { FATE_KEPT, FATE_REFUSED, FATE_DROPPED } fate;

/* Sorts a sound message; *out is its box. With the mutex. */
static fate sort(zmq_hub *hub, hub_arrival *a, hub_box **out) {
    const wire_header *h = &a->header;
    hub_box *box = *out = hub_box_find(hub, h->group);
    if (!box && hub->num_early >= HUB_MAX_EARLY) {
        blame(hub, a->from, "sent messages of groups that this rank has not made");
        return FATE_DROPPED;
    }
    if (!box) {
        hub_break(hub, AG_E_MEMORY, -1, "no memory for the messages of another group");
        return FATE_DROPPED;
    }
    hub_edge *edge = hub_edge_of(hub, box, hub_channel_of(h), a->from);
    if (!count_credit(edge, h)) {
        blame(hub, a->from, "sent more than it was allowed to, or counts wrongly");
        return FATE_DROPPED;
    }
    if (h->kind == WIRE_CREDIT || h->kind == WIRE_GOODBYE || box->is_closed) return FATE_DROPPED;
    if (h->kind == WIRE_SEGMENT && h->print.sequence <= edge->refused) return FATE_REFUSED;
    if (h->kind != WIRE_SEGMENT && edge->num_notes >= HUB_MAX_NOTES) {
        if (h->kind != WIRE_HELLO) blame(hub, a->from, "refused more calls than can be kept"); /* a HELLO comes again */
        return FATE_DROPPED;
    }
    if (h->kind != WIRE_SEGMENT) edge->num_notes++;
    a->next = NULL;
    if (box->arrived.last)
        box->arrived.last->next = a;
    else
        box->arrived.first = a;
    box->arrived.last = a;
    return FATE_KEPT;
}

/* Checks the message in `spare`, which came, and sorts it. */
static ag_status admit(zmq_hub *hub, const socket_route *route) {
    hub_arrival *a = hub->spare;
    const socket_message *m = &a->message;
    a->from = rank_of_route(hub, route);
    wire_verdict verdict = wire_unpack(m->header, m->header_bytes, m->payload_bytes, &hub->limits, &a->header);
    bool is_ours = a->from >= 0;
    bool is_sound = is_ours && verdict == WIRE_OK && is_payload_sound(hub, a);
    hub_box *box;
    fate found = FATE_DROPPED;
    pthread_mutex_lock(&hub->mutex);
    if (is_sound) {
        found = sort(hub, a, &box);
    } else {
        hub->num_rejected++;
        /* Something of its stream is lost: whoever waits for it would do so for ever. */
        if (is_ours) blame(hub, a->from, "sent a damaged message");
    }
    pthread_mutex_unlock(&hub->mutex);
    if (found == FATE_DROPPED)
        socket_message_free(&a->message);
    else
        hub->spare = NULL;
    return found == FATE_REFUSED ? hub_settle(hub, box, a) : AG_OK;
}

static ag_status receive(zmq_hub *hub, int *num_received) {
    for (*num_received = 0; *num_received < MOST_AT_ONCE; ++*num_received) {
        if (!hub->spare) hub->spare = heap_alloc_zero(sizeof *hub->spare);
        if (!hub->spare) return error_memory("receive", sizeof *hub->spare);
        socket_route route = {.len = 0};
        bool is_there = false;
        AG_TRY(socket_receive(hub->router, &route, &hub->spare->message, &is_there));
        if (!is_there) break;
        AG_TRY(admit(hub, &route));
    }
    return AG_OK;
}

static ag_status wait_for_events(zmq_hub *hub, int timeout_ms) {
    int num_sockets = 0;
    hub->poll_sockets[num_sockets++] = hub->router;
    pthread_mutex_lock(&hub->mutex);
    for (int i = 0; i < hub->size * hub->num_stripes; i++) {
        const hub_link *link = &hub->links[i];
        if (!link->socket || link->is_lost) continue;
        hub->poll_room[num_sockets] = link->first != NULL;
        hub->poll_sockets[num_sockets++] = link->socket;
    }
    pthread_mutex_unlock(&hub->mutex);
    hub->poll_room[0] = false;
    AG_TRY(socket_poll(hub->poll_sockets, hub->poll_room, num_sockets, &hub->wake_fd, 1, timeout_ms, hub->poll_ready));
    if (hub->poll_ready[num_sockets]) {
        uint64_t count;
        if (read(hub->wake_fd, &count, sizeof count) < 0) return AG_OK; /* somebody else's word is enough */
    }
    for (int i = 1; i < num_sockets; i++)
        if (hub->poll_ready[i]) hub->next_look_ns = 0;
    return AG_OK;
}

ag_status hub_pump(zmq_hub *hub, int timeout_ms) {
    int num_sent = flush(hub), num_received = 0;
    if (clock_ns() >= hub->next_look_ns) look_at_monitors(hub);
    AG_TRY(receive(hub, &num_received));
    if (num_sent + num_received > 0 || timeout_ms <= 0) return AG_OK;
    AG_TRY(wait_for_events(hub, timeout_ms));
    num_sent = flush(hub);
    if (clock_ns() >= hub->next_look_ns) look_at_monitors(hub);
    return receive(hub, &num_received);
}
