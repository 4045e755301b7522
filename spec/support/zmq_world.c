/* zmq_world.c: hubs, groups and threads of a world in one process. */
#include "support/zmq_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/error.h"
#include "platform/clock.h"

static void require(ag_status status, const char *what) {
    if (status == AG_OK) return;
    printf("FAIL  %s: %s\n", what, error_record()->message);
    exit(1);
}

void world_listen(world *w, const world_options *options) {
    memset(w, 0, sizeof *w);
    w->options = *options;
    pthread_mutex_init(&w->lock, NULL);
    static int number;
    for (int rank = 0; rank < options->size; rank++) {
        char address[96] = "tcp://127.0.0.1:*";
        if (strcmp(options->transport, "ipc") == 0)
            snprintf(address, sizeof address, "ipc://@argand-test-%d-%d-%d", (int)getpid(), ++number, rank);
        w->world_ranks[rank] = rank;
        cancel_init(&w->cancels[rank]);
        require(socket_context_new(options->keys, 1, 128, &w->contexts[rank]), "context");
        int stripes = options->num_stripes > 0 ? options->num_stripes : 1;
        require(zmq_hub_new(w->contexts[rank], address, TEST_JOB, TEST_EPOCH, rank, options->size, options->keys != NULL,
                            stripes, &w->cancels[rank], &w->hubs[rank]),
                "hub");
        if (options->segment_bytes > 0) w->hubs[rank]->segment_bytes = options->segment_bytes;
    }
}

void world_connect(world *w) {
    for (int rank = 0; rank < w->options.size; rank++) {
        const char *endpoints[MAX_RANKS];
        for (int peer = 0; peer < w->options.size; peer++) {
            const char *detour = w->options.detours ? w->options.detours[rank][peer] : "";
            endpoints[peer] = detour[0] ? detour : zmq_hub_endpoint(w->hubs[peer]);
        }
        require(zmq_hub_peers(w->hubs[rank], rank, w->options.size, endpoints), "peers");
        int num_groups = w->options.num_groups > 0 ? w->options.num_groups : 1;
        for (int group = 0; group < num_groups; group++)
            require(zmq_transport_new(w->hubs[rank], (uint32_t)group + 1, rank, w->options.size, w->world_ranks,
                                      w->options.transport, &w->groups[group][rank]),
                    "transport");
    }
}

void world_open(world *w, const world_options *options) {
    world_listen(w, options);
    world_connect(w);
}

void world_close(world *w) {
    for (int rank = 0; rank < w->options.size; rank++) {
        for (int group = 0; group < MAX_GROUPS; group++)
            if (w->groups[group][rank]) w->groups[group][rank]->ops->free(w->groups[group][rank]);
        zmq_hub_free(w->hubs[rank]);
        socket_context_free(w->contexts[rank]);
    }
    pthread_mutex_destroy(&w->lock);
}

void world_abort(world *w, ag_status code, int culprit, const char *reason) {
    pthread_mutex_lock(&w->lock);
    for (int rank = 0; rank < w->options.size; rank++) cancel_raise(&w->cancels[rank], code, culprit, reason, NULL);
    pthread_mutex_unlock(&w->lock);
    for (int rank = 0; rank < w->options.size; rank++) w->groups[0][rank]->ops->wake(w->groups[0][rank]);
}

step step_of(const collective_call *call, uint64_t sequence, double timeout_s) {
    step s = {.call.call = *call};
    s.call.call.sequence = sequence;
    call_print_make(&s.call.print, &s.call.call, 1, &call->count);
    s.call.deadline_ns = (int64_t)(timeout_s * 1e9); /* from the start of the call */
    return s;
}

uint64_t world_number(world *w, int group, const job_options *o) {
    if (o->kind == COLLECTIVE_SEND) return ++w->pair_sequence[group][o->root][o->other];
    return ++w->sequence[group];
}

static void *run_lane(void *context) {
    lane *l = context;
    transport *t = l->w->groups[l->group][l->rank];
    int64_t begin = clock_ns();
    for (int i = 0; i < l->num_steps && l->status == AG_OK; i++) {
        step *s = &l->steps[i];
        if (s->is_skipped) continue;
        if (s->delay_us > 0) usleep((unsigned)s->delay_us);
        transport_call call = s->call;
        call.deadline_ns += clock_ns();
        l->status = t->ops->run(t, &call, &l->is_over);
        l->num_done += l->status == AG_OK;
    }
    l->seconds = (double)(clock_ns() - begin) * 1e-9;
    if (l->status == AG_OK) return NULL;
    l->own = *error_record();
    world_abort(l->w, l->status, l->own.num_culprits > 0 ? l->own.culprits[0] : -1, l->own.got);
    l->status = cancel_error(&l->w->cancels[l->rank], l->own.op, l->own.sequence);
    l->error = *error_record();
    return NULL;
}

void run_lanes(lane *lanes, int num_lanes) {
    pthread_t threads[MAX_GROUPS * MAX_RANKS];
    for (int i = 0; i < num_lanes; i++)
        if (pthread_create(&threads[i], NULL, run_lane, &lanes[i]) != 0) exit(2);
    for (int i = 0; i < num_lanes; i++) pthread_join(threads[i], NULL);
}
