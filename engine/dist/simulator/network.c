/* network.c: a binary heap of events. */
#include "dist/simulator/network.h"

#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/random.h"

void network_init(network *n, uint64_t seed) {
    memset(n, 0, sizeof *n);
    n->seed = seed;
}

void event_free(event *e) {
    if (e) heap_free(e->copy);
    heap_free(e);
}

void network_deinit(network *n) {
    for (int64_t i = 0; i < n->num_events; i++) event_free(n->heap[i]);
    heap_free(n->heap);
    memset(n, 0, sizeof *n);
}

double network_draw(network *n) {
    uint32_t bits[4];
    philox(n->seed, n->num_draws++, bits);
    return uniform_double(bits[0], bits[1]);
}

static bool is_before(const event *a, const event *b) {
    return a->time_s != b->time_s ? a->time_s < b->time_s : a->number < b->number;
}

ag_status network_add(network *n, const event *e) {
    if (n->num_events == n->capacity) {
        int64_t capacity = n->capacity > 0 ? 2 * n->capacity : 64;
        event **heap = heap_realloc(n->heap, (size_t)capacity * sizeof *heap);
        if (!heap) return error_memory("simulate", (size_t)capacity * sizeof *heap);
        n->heap = heap;
        n->capacity = capacity;
    }
    event *added = heap_alloc(sizeof *added);
    if (!added) return error_memory("simulate", sizeof *added);
    *added = *e;
    added->number = n->num_made++;
    added->next = NULL;
    int64_t place = n->num_events++;
    while (place > 0 && is_before(added, n->heap[(place - 1) / 2])) {
        n->heap[place] = n->heap[(place - 1) / 2];
        place = (place - 1) / 2;
    }
    n->heap[place] = added;
    return AG_OK;
}

event *network_take(network *n) {
    if (n->num_events == 0) return NULL;
    event *first = n->heap[0], *last = n->heap[--n->num_events];
    int64_t place = 0;
    for (;;) {
        int64_t child = 2 * place + 1;
        if (child >= n->num_events) break;
        if (child + 1 < n->num_events && is_before(n->heap[child + 1], n->heap[child])) child++;
        if (!is_before(n->heap[child], last)) break;
        n->heap[place] = n->heap[child];
        place = child;
    }
    n->heap[place] = last;
    return first;
}
