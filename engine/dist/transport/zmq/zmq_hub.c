/* zmq_hub.c: boxes, letters and credit of all groups of a process: the part of the hub that touches no socket in a call. */
#include "dist/transport/zmq/zmq_hub.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "core/error.h"
#include "core/memory.h"
#include "platform/clock.h"
#include "platform/crc.h"

#define SHORT_BYTES 4096 /* payloads up to here lie behind their letter */

/* ---- the hub ---- */

static ag_status start_waiting(zmq_hub *hub) {
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&hub->has_changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&hub->mutex, NULL);
    hub->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (hub->wake_fd >= 0) return AG_OK;
    return error_set(AG_E_NETWORK, "join", NULL, NULL, NULL, "no event descriptor: %s", strerror(errno));
}

static ag_status make_tables(zmq_hub *hub) {
    size_t size = (size_t)hub->size, num_links = size * (size_t)hub->num_stripes;
    hub->endpoints = heap_alloc_zero(size * sizeof *hub->endpoints);
    hub->links = heap_alloc_zero(num_links * sizeof *hub->links);
    hub->lost_ns = heap_alloc_zero(size * sizeof *hub->lost_ns);
    hub->lost_details = heap_alloc_zero(size * sizeof *hub->lost_details);
    hub->next_stripe = heap_alloc_zero(size * sizeof *hub->next_stripe);
    hub->poll_sockets = heap_alloc_zero((1 + num_links) * sizeof *hub->poll_sockets);
    hub->poll_room = heap_alloc_zero((1 + num_links) * sizeof *hub->poll_room);
    hub->poll_ready = heap_alloc_zero((2 + num_links) * sizeof *hub->poll_ready);
    hub->pool = hub_pool_new();
    bool has_all = hub->endpoints && hub->links && hub->lost_ns && hub->lost_details && hub->next_stripe && hub->poll_sockets &&
                   hub->poll_room && hub->poll_ready && hub->pool;
    return has_all ? AG_OK : error_memory("join", num_links * sizeof *hub->links);
}

ag_status zmq_hub_new(socket_context *c, const char *address, uint64_t job, uint32_t epoch, int rank, int size,
                      bool is_encrypted, int num_stripes, cancel *end, zmq_hub **out) {
    zmq_hub *hub = heap_alloc_zero(sizeof *hub);
    if (!hub) return error_memory("join", sizeof *hub);
    hub->sockets = c;
    hub->cancel = end;
    hub->limits = (wire_limits){.job = job, .epoch = epoch, .size = size, .max_payload_bytes = HUB_SEGMENT_BYTES};
    hub->segment_bytes = HUB_SEGMENT_BYTES;
    hub->rank = rank;
    hub->size = size;
    hub->is_encrypted = is_encrypted;
    hub->num_stripes = num_stripes < 1 ? 1 : num_stripes > HUB_MAX_STRIPES ? HUB_MAX_STRIPES : num_stripes;
    ag_status status = start_waiting(hub);
    if (status == AG_OK) status = make_tables(hub);
    /* What a peer may have under way in many groups; what does not fit stays in its queue. */
    socket_settings settings = {.max_message_bytes = (int64_t)HUB_SEGMENT_BYTES + WIRE_HEADER_BYTES,
                                .send_queue = 16,
                                .receive_queue = HUB_QUEUE,
                                .linger_ms = 0};
    if (status == AG_OK)
        status = socket_listen(c, SOCKET_ROUTER, &settings, address, &hub->router, hub->endpoint, sizeof hub->endpoint);
    if (status != AG_OK)
        zmq_hub_free(hub);
    else
        *out = hub;
    return status;
}

const char *zmq_hub_endpoint(const zmq_hub *hub) { return hub->endpoint; }

ag_status zmq_hub_peers(zmq_hub *hub, int rank, int size, const char *const *endpoints) {
    assert(size <= hub->size && rank < size);
    hub->rank = rank;
    hub->size = hub->limits.size = size;
    for (int peer = 0; peer < size; peer++) {
        size_t len = strlen(endpoints[peer]);
        if (len >= sizeof *hub->endpoints)
            return error_set(AG_E_FORMAT, "join", "endpoint", "up to 127 bytes", NULL, "%zu bytes from rank %d", len, peer);
        memcpy(hub->endpoints[peer], endpoints[peer], len + 1);
    }
    return AG_OK;
}

static void letter_free(hub_letter *letter) {
    if (letter->block) hub_pool_give(NULL, letter->block);
    heap_free(letter);
}

void zmq_hub_free(zmq_hub *hub) {
    if (!hub) return;
    int num_links = hub->links ? hub->size * hub->num_stripes : 0;
    for (int i = 0; i < num_links; i++) {
        socket_close(hub->sockets, hub->links[i].socket);
        for (hub_letter *letter = hub->links[i].first, *next; letter; letter = next) {
            next = letter->next;
            letter_free(letter);
        }
    }
    socket_close(hub->sockets, hub->router);
    for (hub_box *box = hub->boxes, *next; box; box = next) {
        next = box->next;
        for (hub_arrival *a = box->arrived.first, *after; a; a = after) {
            after = a->next;
            hub_arrival_free(a);
        }
        heap_free(box);
    }
    if (hub->wake_fd >= 0) close(hub->wake_fd);
    pthread_cond_destroy(&hub->has_changed);
    pthread_mutex_destroy(&hub->mutex);
    hub_pool_free(hub->pool);
    heap_free(hub->spare);
    heap_free(hub->poll_ready);
    heap_free(hub->poll_room);
    heap_free(hub->poll_sockets);
    heap_free(hub->next_stripe);
    heap_free(hub->lost_details);
    heap_free(hub->lost_ns);
    heap_free(hub->links);
    heap_free(hub->endpoints);
    heap_free(hub);
}

/* ---- boxes ---- */

void hub_arrival_free(hub_arrival *arrival) {
    socket_message_free(&arrival->message);
    heap_free(arrival);
}

static void put_first(zmq_hub *hub, hub_box *box) {
    box->next = hub->boxes;
    hub->boxes = box;
}

/* The boxes of closed groups stay: a found one goes to the front, so that the search does not run over all of them. */
static hub_box *find_box(zmq_hub *hub, uint32_t group) {
    for (hub_box **at = &hub->boxes; *at; at = &(*at)->next) {
        hub_box *box = *at;
        if (box->group != group) continue;
        *at = box->next;
        put_first(hub, box);
        return box;
    }
    return NULL;
}

static hub_box *make_box(zmq_hub *hub, uint32_t group) {
    hub_box *box = heap_alloc_zero(sizeof *box + HUB_NUM_CHANNELS * (size_t)hub->size * sizeof *box->edges);
    if (!box) return NULL;
    box->group = group;
    put_first(hub, box);
    return box;
}

hub_box *hub_box_find(zmq_hub *hub, uint32_t group) {
    hub_box *box = find_box(hub, group);
    if (box || hub->num_early >= HUB_MAX_EARLY) return box;
    box = make_box(hub, group);
    if (box) hub->num_early++;
    return box;
}

ag_status hub_box_open(zmq_hub *hub, uint32_t group, int rank, hub_box **out) {
    pthread_mutex_lock(&hub->mutex);
    hub_box *box = find_box(hub, group);
    bool is_early = box && !box->is_open && !box->is_closed, is_new = !box || is_early;
    if (is_early) hub->num_early--;
    if (!box) box = make_box(hub, group);
    if (box && is_new) {
        box->is_open = true;
        box->rank = rank;
    }
    pthread_mutex_unlock(&hub->mutex);
    if (!box) return error_memory("join", sizeof *box);
    if (!is_new)
        return error_set(AG_E_STATE, "join", "group", "a number that was not used before", NULL, "%u", (unsigned)group);
    *out = box;
    return AG_OK;
}

void hub_box_close(zmq_hub *hub, hub_box *box) {
    pthread_mutex_lock(&hub->mutex);
    box->is_open = false;
    box->is_closed = true;
    hub_queue left = box->arrived;
    box->arrived = (hub_queue){0};
    pthread_mutex_unlock(&hub->mutex);
    for (hub_arrival *a = left.first, *next; a; a = next) {
        next = a->next;
        hub_arrival_free(a);
    }
}

void hub_take(zmq_hub *hub, hub_box *box, hub_queue *queue) {
    pthread_mutex_lock(&hub->mutex);
    if (box->arrived.first) {
        if (queue->last)
            queue->last->next = box->arrived.first;
        else
            queue->first = box->arrived.first;
        queue->last = box->arrived.last;
        box->arrived = (hub_queue){0};
    }
    pthread_mutex_unlock(&hub->mutex);
}

void hub_refuse(zmq_hub *hub, hub_box *box, int peer, uint64_t sequence) {
    pthread_mutex_lock(&hub->mutex);
    hub_edge_of(hub, box, HUB_PAIRS, peer)->refused = sequence;
    pthread_mutex_unlock(&hub->mutex);
}

ag_status hub_settle(zmq_hub *hub, hub_box *box, hub_arrival *arrival) {
    int peer = arrival->from;
    bool is_segment = arrival->header.kind == WIRE_SEGMENT;
    hub_channel channel = hub_channel_of(&arrival->header);
    hub_arrival_free(arrival);
    pthread_mutex_lock(&hub->mutex);
    hub_edge *edge = hub_edge_of(hub, box, channel, peer);
    if (is_segment)
        edge->taken++;
    else
        edge->num_notes--;
    bool is_due = is_segment && edge->taken - edge->told >= HUB_WINDOW / 2;
    pthread_mutex_unlock(&hub->mutex);
    if (!is_due) return AG_OK;
    wire_header credit = {.kind = WIRE_CREDIT, .group = box->group, .sender = box->rank};
    credit.print.kind = channel == HUB_PAIRS ? COLLECTIVE_SEND : COLLECTIVE_BARRIER;
    return hub_post(hub, box, channel, peer, &credit, NULL, 0);
}

/* ---- letters ---- */

void hub_want(zmq_hub *hub, int peer) {
    pthread_mutex_lock(&hub->mutex);
    for (int i = 0; i < hub->num_stripes; i++) hub->links[peer * hub->num_stripes + i].is_wanted = true;
    pthread_mutex_unlock(&hub->mutex);
}

int hub_room(zmq_hub *hub, hub_box *box, hub_channel channel, int peer) {
    pthread_mutex_lock(&hub->mutex);
    const hub_edge *edge = hub_edge_of(hub, box, channel, peer);
    int room = HUB_WINDOW - (int)(edge->sent - edge->sent_taken);
    pthread_mutex_unlock(&hub->mutex);
    return room;
}

static hub_letter *letter_new(zmq_hub *hub, size_t payload_bytes) {
    bool is_short = payload_bytes <= SHORT_BYTES;
    hub_letter *letter = heap_alloc(sizeof *letter + (is_short ? payload_bytes : 0));
    if (!letter) return NULL;
    letter->next = NULL;
    letter->edge = NULL;
    letter->payload_bytes = payload_bytes;
    letter->block = is_short ? NULL : hub_pool_take(hub->pool);
    if (is_short || letter->block) return letter;
    heap_free(letter);
    return NULL;
}

/* Copies a payload to where it stays until it is sent, and returns the CRC of the copy. */
static uint32_t copy_payload(unsigned char *target, const unsigned char *source, size_t num_bytes, bool has_crc) {
    if (has_crc) return crc32c_copy(0, target, source, num_bytes);
    if (num_bytes > 0) memcpy(target, source, num_bytes);
    return 0;
}

ag_status hub_post(zmq_hub *hub, hub_box *box, hub_channel channel, int peer, wire_header *header, const void *payload,
                   size_t payload_bytes) {
    assert(payload_bytes <= HUB_SEGMENT_BYTES);
    hub_letter *letter = letter_new(hub, payload_bytes);
    if (!letter) return error_memory("send", sizeof *letter + payload_bytes);
    letter->box = box;
    header->job = hub->limits.job;
    header->epoch = hub->limits.epoch;
    header->payload_bytes = payload_bytes;
    header->flags = hub->is_encrypted ? WIRE_NO_CRC : 0;
    header->payload_crc =
        copy_payload(letter->block ? letter->block->bytes : letter->payload, payload, payload_bytes, !hub->is_encrypted);
    pthread_mutex_lock(&hub->mutex);
    hub_edge *edge = hub_edge_of(hub, box, channel, peer);
    bool is_segment = header->kind == WIRE_SEGMENT;
    int stripe = is_segment ? hub->next_stripe[peer] : 0;
    if (is_segment) {
        letter->edge = edge;
        edge->sent++;
        hub->next_stripe[peer] = (stripe + 1) % hub->num_stripes;
    }
    header->credit = edge->told = edge->taken;
    wire_pack(header, letter->header);
    hub_link *link = &hub->links[peer * hub->num_stripes + stripe];
    bool is_lost = link->is_lost;
    if (!is_lost) {
        link->is_wanted = true;
        if (link->last)
            link->last->next = letter;
        else
            link->first = letter;
        link->last = letter;
        box->num_unsent++;
        hub->num_unsent++;
    } else if (is_segment) {
        edge->is_cut = true;
    }
    pthread_mutex_unlock(&hub->mutex);
    if (is_lost) letter_free(letter);
    return AG_OK;
}

bool hub_has_unsent(zmq_hub *hub, hub_box *box, int peer) {
    bool has_any = false;
    pthread_mutex_lock(&hub->mutex);
    if (peer < 0)
        has_any = box->num_unsent > 0;
    else
        for (int i = 0; i < hub->num_stripes && !has_any; i++)
            for (hub_letter *l = hub->links[peer * hub->num_stripes + i].first; l && !has_any; l = l->next)
                has_any = l->box == box;
    pthread_mutex_unlock(&hub->mutex);
    return has_any;
}

bool hub_is_cut(zmq_hub *hub, hub_box *box, hub_channel channel, int peer) {
    pthread_mutex_lock(&hub->mutex);
    bool is_cut = hub_edge_of(hub, box, channel, peer)->is_cut;
    pthread_mutex_unlock(&hub->mutex);
    return is_cut;
}

/* ---- waiting and failing ---- */

void hub_wake(zmq_hub *hub) {
    uint64_t one = 1;
    if (write(hub->wake_fd, &one, sizeof one) < 0) return; /* full: it is readable, which is all that counts */
}

ag_status hub_attend(zmq_hub *hub, hub_box *box, int timeout_ms) {
    ag_status status = AG_OK;
    pthread_mutex_lock(&hub->mutex);
    if (box->arrived.first) timeout_ms = 0;
    if (!hub->is_pumping) {
        hub->is_pumping = true;
        pthread_mutex_unlock(&hub->mutex);
        status = hub_pump(hub, timeout_ms);
        pthread_mutex_lock(&hub->mutex);
        hub->is_pumping = false;
        if (hub->num_waiting > 0) pthread_cond_broadcast(&hub->has_changed);
    } else {
        if (hub->num_unsent > 0) hub_wake(hub);
        if (timeout_ms > 0) {
            int64_t end = clock_ns() + (int64_t)timeout_ms * 1000000;
            struct timespec until = {.tv_sec = end / 1000000000, .tv_nsec = end % 1000000000};
            hub->num_waiting++;
            pthread_cond_timedwait(&hub->has_changed, &hub->mutex, &until);
            hub->num_waiting--;
        }
    }
    pthread_mutex_unlock(&hub->mutex);
    return status;
}

int64_t hub_lost_ns(zmq_hub *hub, int peer, char *detail, size_t len) {
    pthread_mutex_lock(&hub->mutex);
    int64_t lost_ns = hub->lost_ns[peer];
    if (lost_ns != 0 && detail) snprintf(detail, len, "%s", hub->lost_details[peer]);
    pthread_mutex_unlock(&hub->mutex);
    return lost_ns;
}

void hub_break(zmq_hub *hub, ag_status code, int rank, const char *text) {
    if (hub->failure != AG_OK) return;
    hub->failure = code;
    hub->failure_rank = rank;
    snprintf(hub->failure_text, sizeof hub->failure_text, "%s", text);
}

ag_status hub_failure(zmq_hub *hub, const char *op, uint64_t sequence) {
    pthread_mutex_lock(&hub->mutex);
    ag_status failure = hub->failure;
    int32_t rank = hub->failure_rank;
    char text[sizeof hub->failure_text];
    memcpy(text, hub->failure_text, sizeof text);
    pthread_mutex_unlock(&hub->mutex);
    if (failure == AG_OK) return AG_OK;
    error_set(failure, op, NULL, NULL, NULL, "%s", text);
    if (rank >= 0) error_set_culprits(&rank, 1, sequence);
    return failure;
}

void hub_reject(zmq_hub *hub, hub_box *box, hub_arrival *arrival) {
    pthread_mutex_lock(&hub->mutex);
    hub_edge *edge = hub_edge_of(hub, box, hub_channel_of(&arrival->header), arrival->from);
    hub->num_rejected++;
    if (arrival->header.kind == WIRE_SEGMENT)
        edge->received--;
    else
        edge->num_notes--;
    pthread_mutex_unlock(&hub->mutex);
    hub_arrival_free(arrival);
}
