/* simulator.c: the driver of the simulated ranks. */
#include "dist/simulator/simulator.h"

#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "dist/simulator/network.h"

/* participant is one rank. held: segments that came early, owned. */
typedef struct participant {
    collective current;
    bool has_current; /* initialised and not yet deinitialised */
    bool is_gone;     /* dead or silent */
    bool is_over;     /* done, or failed */
    int call;         /* position of `current` in the rank's calls */
    int64_t num_events;
    event *held;
    simulation_outcome *outcome;
} participant;

typedef struct world {
    const simulation *setup;
    const collective_call *calls;
    int num_calls;
    participant *ranks;
    int *num_underway;      /* [size, size] segments on an edge that were not taken: sender, receiver */
    double *last_arrival_s; /* [size, size] */
    network net;
    double now_s;
    simulation_report *report;
} world;

static double draw_delay(world *w) {
    const simulation *s = w->setup;
    return s->min_delay_s + network_draw(&w->net) * (s->max_delay_s - s->min_delay_s);
}

static void end_rank(world *w, participant *p, ag_status status, int culprit) {
    p->is_over = true;
    p->outcome->status = status;
    p->outcome->culprit = culprit;
    p->outcome->end_s = w->now_s;
}

/* Puts a segment that `sender` hands out on its way. */
static ag_status send_segment(world *w, int sender, const segment *sent) {
    const simulation *s = w->setup;
    int receiver = sent->peer;
    int64_t edge = (int64_t)sender * s->size + receiver, number = ++w->report->num_segments;
    double arrival_s = w->now_s + draw_delay(w) * (network_draw(&w->net) < 0.01 ? 10 : 1);
    if (s->keeps_order && arrival_s < w->last_arrival_s[edge]) arrival_s = w->last_arrival_s[edge];
    w->last_arrival_s[edge] = arrival_s;
    w->num_underway[edge]++;
    event e = {.time_s = arrival_s, .kind = EVENT_ARRIVAL, .rank = receiver, .arrived = *sent, .culprit = -1};
    e.arrived.peer = sender;
    e.says_sent = network_draw(&w->net) < 0.5;
    bool is_blank = s->fault == FAULT_BLANK_SEGMENT && number == s->fault_event;
    bool is_lost = s->fault == FAULT_LOST_SEGMENT && number == s->fault_event;
    if (is_blank || is_lost) w->report->fault_happened = true;
    if (is_blank || !e.says_sent) {
        e.copy = heap_alloc_zero(sent->size_bytes);
        if (!e.copy) return error_memory("simulate", sent->size_bytes);
        if (!is_blank) memcpy(e.copy, sent->data, sent->size_bytes);
    }
    if (!e.says_sent || is_lost) {
        event gone = {.time_s = w->now_s + network_draw(&w->net) * s->max_delay_s, .kind = EVENT_SENT, .rank = sender};
        ag_status status = network_add(&w->net, &gone);
        if (status != AG_OK || is_lost) {
            heap_free(e.copy);
            return status;
        }
    }
    ag_status status = network_add(&w->net, &e);
    if (status != AG_OK) heap_free(e.copy);
    return status;
}

/* Offers the held segments of the present call once; *progress when one was taken. */
static ag_status offer_held(world *w, int rank, bool *progress) {
    participant *p = &w->ranks[rank];
    for (event **link = &p->held; *link;) {
        event *e = *link;
        bool taken = false;
        if (e->arrived.sequence == (uint64_t)p->call) {
            AG_TRY(collective_offer(&p->current, &e->arrived, &taken));
        }
        if (!taken) {
            link = &e->next;
            continue;
        }
        *progress = true;
        event credit = {.time_s = w->now_s + draw_delay(w), .kind = EVENT_CREDIT, .rank = e->arrived.peer};
        credit.arrived.peer = rank;
        *link = e->next;
        event_free(e);
        AG_TRY(network_add(&w->net, &credit));
    }
    return AG_OK;
}

static ag_status send_ready(world *w, int rank) {
    participant *p = &w->ranks[rank];
    int size = w->setup->size, first = (int)(network_draw(&w->net) * size);
    for (int i = 0; i < size; i++) {
        int peer = (first + i) % size;
        segment sent;
        const int *num_underway = &w->num_underway[(int64_t)rank * size + peer];
        while (*num_underway < w->setup->window && collective_next_send(&p->current, peer, &sent))
            AG_TRY(send_segment(w, rank, &sent));
    }
    return AG_OK;
}

/* Does all that the rank can do now, into its next calls. A status other than AG_OK is a failure of the simulator. */
static ag_status run_rank(world *w, int rank) {
    participant *p = &w->ranks[rank];
    while (!p->is_over) {
        if (!p->has_current) {
            if (p->call == w->num_calls) {
                end_rank(w, p, AG_OK, -1);
                break;
            }
            collective_call call = w->calls[(int64_t)rank * w->num_calls + p->call];
            call.rank = rank;
            call.size = w->setup->size;
            call.sequence = (uint64_t)p->call;
            AG_TRY(collective_init(&p->current, &call));
            p->has_current = true;
        }
        bool progress = false;
        ag_status status = offer_held(w, rank, &progress);
        if (status == AG_E_MEMORY) return status;
        if (status != AG_OK) { /* a segment that no plan knows: a bug, which the outcome shows */
            end_rank(w, p, status, -1);
            break;
        }
        AG_TRY(send_ready(w, rank));
        if (p->current.state == COLLECTIVE_DONE) {
            collective_deinit(&p->current);
            p->has_current = false;
            p->call++;
            p->outcome->num_completed++;
        } else if (!progress) {
            break;
        }
    }
    return AG_OK;
}

static ag_status tell(world *w, event_kind kind, int rank, int culprit, double time_s) {
    event e = {.time_s = time_s, .kind = kind, .rank = rank, .culprit = culprit};
    return network_add(&w->net, &e);
}

/* The rank stops. Some others, at least one, see a broken edge; whoever does not hears it from them. */
static ag_status lose_rank(world *w, int lost) {
    const simulation *s = w->setup;
    w->ranks[lost].is_gone = true;
    w->report->fault_happened = true;
    w->report->fault_s = w->now_s;
    int witness = lost == 0 ? 1 : 0;
    if (s->size == 1) return AG_OK;
    AG_TRY(tell(w, EVENT_BROKEN, witness, lost, w->now_s + s->expiry_s));
    if (s->fault == FAULT_SILENT) return AG_OK;
    witness = (lost + 1 + (int)(network_draw(&w->net) * (s->size - 1))) % s->size;
    for (int rank = 0; rank < s->size; rank++)
        if (rank == witness || (rank != lost && network_draw(&w->net) < 0.3))
            AG_TRY(tell(w, EVENT_BROKEN, rank, lost, w->now_s + s->notice_s + draw_delay(w)));
    return AG_OK;
}

/* The group has ended for this rank, whether it was done or not. */
static ag_status hear_of_loss(world *w, int rank, const event *e) {
    participant *p = &w->ranks[rank];
    if (p->outcome->culprit >= 0) return AG_OK;
    ag_status status = AG_E_STATE;
    if (p->has_current) {
        const char *reason = w->setup->fault == FAULT_SILENT ? "does not answer" : "was lost";
        status = collective_fail(&p->current, e->culprit, reason);
        if (status == AG_OK) status = AG_E_STATE;
    }
    end_rank(w, p, status, e->culprit);
    if (e->kind == EVENT_ABORT) return AG_OK;
    for (int other = 0; other < w->setup->size; other++)
        if (other != rank && other != e->culprit)
            AG_TRY(tell(w, EVENT_ABORT, other, e->culprit, w->now_s + draw_delay(w)));
    return AG_OK;
}

/* What the event means for its rank. Takes over the event when it holds it. */
static ag_status handle(world *w, event *e, bool *is_held) {
    participant *p = &w->ranks[e->rank];
    *is_held = false;
    if (e->kind == EVENT_ARRIVAL) {
        participant *sender = &w->ranks[e->arrived.peer];
        /* Of what a dead rank had on the way, some is lost. */
        if (sender->is_gone && w->setup->fault == FAULT_DEAD && network_draw(&w->net) < 0.5) return AG_OK;
        if (e->says_sent && !e->copy) {
            e->copy = heap_alloc(e->arrived.size_bytes);
            if (!e->copy) return error_memory("simulate", e->arrived.size_bytes);
            memcpy(e->copy, e->arrived.data, e->arrived.size_bytes);
        }
        e->arrived.data = e->copy;
        if (e->says_sent && !sender->is_gone)
            AG_TRY(tell(w, EVENT_SENT, e->arrived.peer, -1, w->now_s));
    }
    if (p->is_gone) return AG_OK;
    bool counts = !p->is_over && w->setup->fault != FAULT_NONE && e->rank == w->setup->fault_rank;
    if (counts && (w->setup->fault == FAULT_DEAD || w->setup->fault == FAULT_SILENT)
        && ++p->num_events == w->setup->fault_event)
        return lose_rank(w, e->rank);
    switch (e->kind) {
    case EVENT_BROKEN:
    case EVENT_ABORT: return hear_of_loss(w, e->rank, e);
    case EVENT_CREDIT: w->num_underway[(int64_t)e->rank * w->setup->size + e->arrived.peer]--; break;
    case EVENT_SENT: collective_sent(&p->current); break;
    case EVENT_ARRIVAL:
        e->next = p->held;
        p->held = e;
        *is_held = true;
        break;
    case EVENT_START: break;
    }
    return run_rank(w, e->rank);
}

static ag_status run(world *w) {
    for (int rank = 0; rank < w->setup->size; rank++) AG_TRY(tell(w, EVENT_START, rank, -1, draw_delay(w)));
    for (;;) {
        event *e = network_take(&w->net);
        if (!e) break;
        bool is_held = false;
        w->now_s = e->time_s;
        w->report->num_events++;
        ag_status status = w->now_s > w->setup->limit_s ? AG_OK : handle(w, e, &is_held);
        bool is_late = w->now_s > w->setup->limit_s;
        if (!is_held) event_free(e);
        if (status != AG_OK) return status;
        if (is_late) break;
    }
    for (int rank = 0; rank < w->setup->size; rank++) {
        participant *p = &w->ranks[rank];
        if (!p->is_over && !p->is_gone) p->outcome->is_stuck = true;
    }
    return AG_OK;
}

ag_status simulate(const simulation *setup, const collective_call *calls, int num_calls, simulation_outcome *outcomes,
                   simulation_report *report) {
    int size = setup->size;
    if (size < 1 || setup->window < 1)
        return error_set(AG_E_ARGUMENT, "simulate", size < 1 ? "size" : "window", "at least 1", NULL, "%d",
                         size < 1 ? size : setup->window);
    memset(outcomes, 0, (size_t)size * sizeof *outcomes);
    memset(report, 0, sizeof *report);
    world w = {.setup = setup, .calls = calls, .num_calls = num_calls, .report = report};
    size_t num_edges = (size_t)size * (size_t)size;
    w.ranks = heap_alloc_zero((size_t)size * sizeof *w.ranks);
    w.num_underway = heap_alloc_zero(num_edges * sizeof *w.num_underway);
    w.last_arrival_s = heap_alloc_zero(num_edges * sizeof *w.last_arrival_s);
    network_init(&w.net, setup->seed);
    ag_status status = AG_OK;
    if (!w.ranks || !w.num_underway || !w.last_arrival_s) {
        status = error_memory("simulate", num_edges * sizeof *w.last_arrival_s);
        goto done;
    }
    for (int rank = 0; rank < size; rank++) {
        w.ranks[rank].outcome = &outcomes[rank];
        outcomes[rank].culprit = -1;
    }
    status = run(&w);
done:
    network_deinit(&w.net);
    for (int rank = 0; w.ranks && rank < size; rank++) {
        if (w.ranks[rank].has_current) collective_deinit(&w.ranks[rank].current);
        for (event *e = w.ranks[rank].held, *next; e; e = next) {
            next = e->next;
            event_free(e);
        }
    }
    heap_free(w.last_arrival_s);
    heap_free(w.num_underway);
    heap_free(w.ranks);
    return status;
}
