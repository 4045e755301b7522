/* zmq_bounds.h: what a peer may make a rank keep, and what cannot be sent; part of zmq_transport_test.c, whose fail and report
 * it uses. */
#ifndef ARGAND_SPEC_SUPPORT_ZMQ_BOUNDS_H
#define ARGAND_SPEC_SUPPORT_ZMQ_BOUNDS_H

/* A connection to rank 0's hub with an identity of rank 1 that rank 1's hub does not use. */
static void *dial_as_rank_1(world *w) {
    char identity[HUB_IDENTITY_LEN + 1];
    hub_identity(w->hubs[1], 1, 7, identity);
    socket_settings settings = {
        .identity = identity, .max_message_bytes = 1 << 20, .send_queue = 4096, .receive_queue = 1, .linger_ms = 1000};
    void *dealer;
    if (socket_dial(w->contexts[1], SOCKET_DEALER, &settings, zmq_hub_endpoint(w->hubs[0]), &dealer) != AG_OK) exit(2);
    return dealer;
}

static void send_as_rank_1(void *dealer, wire_header h, const char *text) {
    unsigned char bytes[WIRE_HEADER_BYTES];
    bool is_sent = false;
    h.payload_bytes = strlen(text);
    h.payload_crc = crc32c(0, text, strlen(text));
    wire_pack(&h, bytes);
    for (int64_t end = clock_ns() + 2000000000; !is_sent && clock_ns() < end;) {
        bool is_ready[1], wants_room[1] = {true};
        socket_send(dealer, NULL, bytes, sizeof bytes, text, strlen(text), NULL, NULL, &is_sent);
        if (!is_sent) socket_poll(&dealer, wants_room, 1, NULL, 0, 10, is_ready);
    }
    expect(is_sent, "a message leaves");
}

/* Of the call that run_alone makes; group 1. */
static wire_header header_of_rank_1(wire_kind kind, uint64_t sequence) {
    wire_header h = {.kind = (uint8_t)kind, .job = TEST_JOB, .epoch = TEST_EPOCH, .group = 1, .sender = 1};
    collective_call call = {.kind = COLLECTIVE_ALL_REDUCE, .dtype = AG_F32, .size = 2, .count = 10, .sequence = sequence};
    call.algorithm = algorithm_list(call.kind)[0];
    call_print_make(&h.print, &call, 1, &call.count);
    if (kind == WIRE_REFUSAL) h.print.flags = CALL_REFUSED;
    return h;
}

/* Right sums until *what, which they pump, is `wanted`. */
static void sum_until(world *w, const int *what, int wanted, const char *name) {
    static script s;
    uint64_t random = 3;
    job_options o = {.kind = COLLECTIVE_ALL_REDUCE, .algorithm = ALGORITHM_DIRECT, .dtype = AG_I64, .size = 2, .count = 16};
    for (int64_t end = clock_ns() + 5000000000; *what != wanted && num_problems == 0 && clock_ns() < end;) {
        script_add(&s, w, 0, &o, &random);
        run_scripts(w, &s, 1);
    }
    if (*what != wanted) fail("%s: %d, wanted %d", name, *what, wanted);
    num_cases++;
}

static void test_early_groups(void) {
    world_options options = {.transport = "ipc", .size = 2};
    for (int extra = 0; extra < 2; extra++) {
        world w;
        world_open(&w, &options);
        void *dealer = dial_as_rank_1(&w);
        wire_header h = header_of_rank_1(WIRE_HELLO, 1);
        for (int i = 0; i < HUB_MAX_EARLY + extra; i++) {
            h.group = 1000 + (uint32_t)i;
            send_as_rank_1(dealer, h, "");
        }
        if (extra > 0) {
            lane l = run_alone(&w, COLLECTIVE_ALL_REDUCE, 5, NULL);
            if (l.own.code != AG_E_NETWORK || l.own.num_culprits != 1 || l.own.culprits[0] != 1 ||
                !strstr(l.own.message, "rank 1 sent messages of groups that this rank has not made"))
                fail("too many groups: %s", l.own.message);
        } else {
            sum_until(&w, &w.hubs[0]->num_early, HUB_MAX_EARLY, "early groups");
            transport *t;
            expect(zmq_transport_new(w.hubs[0], 1000, 0, 2, w.world_ranks, "ipc", &t) == AG_OK, "an early group is made");
            expect(w.hubs[0]->num_early == HUB_MAX_EARLY - 1, "it is early no more");
            t->ops->free(t);
        }
        socket_close(w.contexts[1], dealer);
        world_close(&w);
    }
    report("messages of groups that are not made");
}

static void test_notes(void) {
    world_options options = {.transport = "ipc", .size = 2};
    for (int way = 0; way < 3; way++) {
        world w;
        world_open(&w, &options);
        void *dealer = dial_as_rank_1(&w);
        if (way == 0) { /* of calls that come later */
            for (int i = 0; i < HUB_MAX_NOTES + 50; i++) send_as_rank_1(dealer, header_of_rank_1(WIRE_HELLO, 1000000), "");
            sum_until(&w, &hub_edge_of(w.hubs[0], w.hubs[0]->boxes, HUB_CALLS, 1)->num_notes, HUB_MAX_NOTES, "greetings");
        } else {
            for (int i = 0; i < HUB_MAX_NOTES + 1 && way == 1; i++)
                send_as_rank_1(dealer, header_of_rank_1(WIRE_REFUSAL, 1000000), "no");
            if (way == 2) send_as_rank_1(dealer, header_of_rank_1(WIRE_REFUSAL, 1), "\33[2Jno\n");
            lane l = run_alone(&w, COLLECTIVE_ALL_REDUCE, 5, NULL);
            ag_status code = way == 1 ? AG_E_NETWORK : AG_E_MISMATCH;
            const char *text = way == 1 ? "rank 1 refused more calls than can be kept" : "f32[10]: ?[2Jno?";
            if (l.own.code != code || l.own.num_culprits != 1 || l.own.culprits[0] != 1 || !strstr(l.own.message, text))
                fail("wanted \"%s\": %s", text, l.own.message);
        }
        socket_close(w.contexts[1], dealer);
        world_close(&w);
    }
    report("greetings and refusals that nobody waits for");
}

/* A job may make and close groups without end. */
static void test_many_groups(void) {
    static script scripts[2];
    world w;
    world_options options = {.transport = "ipc", .size = 2};
    world_open(&w, &options);
    for (int rank = 0; rank < 2; rank++) {
        for (uint32_t id = 10; id < 5010 && num_problems == 0; id++, num_cases++) {
            if (w.groups[1][rank]) w.groups[1][rank]->ops->free(w.groups[1][rank]);
            w.groups[1][rank] = NULL;
            if (zmq_transport_new(w.hubs[rank], id, rank, 2, w.world_ranks, "ipc", &w.groups[1][rank]) != AG_OK)
                fail("group %u: %s", (unsigned)id, error_record()->message);
        }
    }
    uint64_t random = 4;
    job_options o = {.kind = COLLECTIVE_ALL_REDUCE, .algorithm = ALGORITHM_DIRECT, .dtype = AG_I64, .size = 2, .count = 16};
    for (int group = 0; group < 2; group++) script_add(&scripts[group], &w, group, &o, &random);
    if (num_problems == 0) run_scripts(&w, scripts, 2);
    world_close(&w);
    report("thousands of groups, one after another");
}

/* Rank 0 sends to a rank that refuses its connection, and receives nothing: it must not end well. The second call finds the
 * connection lost already. */
static void test_unsent_segments(void) {
    static const collective_kind kinds[] = {COLLECTIVE_BROADCAST, COLLECTIVE_SCATTER, COLLECTIVE_SEND};
    static char detours[MAX_RANKS][MAX_RANKS][128];
    socket_keys keys;
    socket_context *c;
    void *router;
    socket_settings settings = {.max_message_bytes = 1 << 20, .send_queue = 1, .receive_queue = 1};
    if (socket_keys_make(&keys) != AG_OK || socket_context_new(&keys, 1, 8, &c) != AG_OK ||
        socket_listen(c, SOCKET_ROUTER, &settings, "tcp://127.0.0.1:*", &router, detours[0][1], sizeof detours[0][1]) != AG_OK)
        exit(2);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        world w;
        world_options options = {.transport = "tcp", .size = 2, .detours = detours};
        world_open(&w, &options);
        float data[20] = {0};
        collective_call call = {.kind = kinds[i],
                                .algorithm = algorithm_list(kinds[i])[0],
                                .dtype = AG_F32,
                                .size = 2,
                                .root = kinds[i] == COLLECTIVE_SEND,
                                .count = 10,
                                .input = data,
                                .output = data};
        for (uint64_t number = 1; number < 3; number++, num_cases++) {
            step s = step_of(&call, number, 0);
            s.call.deadline_ns = clock_ns() + 20000000000;
            bool is_over;
            ag_status status = w.groups[0][0]->ops->run(w.groups[0][0], &s.call, &is_over);
            if (status != AG_E_PEER || !is_over || error_record()->num_culprits != 1 || error_record()->culprits[0] != 1)
                fail("%s %d: status %d %s", collective_kind_name(kinds[i]), (int)number, (int)status, error_record()->message);
        }
        world_close(&w);
    }
    socket_close(c, router);
    socket_context_free(c);
    report("segments that cannot be sent");
}

#endif
