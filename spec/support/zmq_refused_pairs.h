/* zmq_refused_pairs.h: messages that one side refuses, and how both go on; part of zmq_transport_test.c, whose fail and report it
 * uses. */
#ifndef ARGAND_SPEC_SUPPORT_ZMQ_REFUSED_PAIRS_H
#define ARGAND_SPEC_SUPPORT_ZMQ_REFUSED_PAIRS_H

enum { PAIR_ROOM = 8 * SEGMENT_BYTES / 4, PAIR_ROUNDS = 3 }; /* f32: twice the window */

typedef struct refused_pair {
    const char *transport;
    bool refuses[2]; /* [0] the sender, rank 0; [1] the receiver, rank 1 */
    int64_t count;   /* of the refused message */
    int late;        /* the rank that comes 20 ms later, -1 = none */
    int num_stripes;
    bool is_after_sum; /* rank 1 makes a sum before it refuses: what was sent waits there by then */
} refused_pair;

typedef struct pair_rank {
    world *w;
    const refused_pair *how;
    int rank;
    uint64_t num_sent[3], num_received[3], num_sums[MAX_GROUPS];
    char wrong[300]; /* "" = nothing */
} pair_rank;

static void object(pair_rank *p, const char *what, int round, ag_status status) {
    if (p->wrong[0]) return;
    snprintf(p->wrong, sizeof p->wrong, "rank %d, round %d, %s: status %d %.180s", p->rank, round, what, (int)status,
             status == AG_OK ? "" : error_record()->message);
}

static ag_status pair_call(pair_rank *p, collective_kind kind, int peer, int64_t count, float *data, const char *refusal,
                           bool *is_over) {
    collective_call call = {.kind = kind,
                            .algorithm = ALGORITHM_DIRECT,
                            .dtype = AG_F32,
                            .rank = p->rank,
                            .size = p->w->options.size,
                            .root = peer,
                            .count = count,
                            .input = data,
                            .output = data};
    uint64_t number = kind == COLLECTIVE_SEND ? ++p->num_sent[peer] : ++p->num_received[peer];
    step s = step_of(&call, number, 0);
    if (refusal) s.call.print.flags |= CALL_REFUSED;
    s.call.refusal = refusal;
    s.call.deadline_ns = clock_ns() + 5000000000;
    transport *t = p->w->groups[0][p->rank];
    return t->ops->run(t, &s.call, is_over);
}

/* A message that neither refuses, of `count` elements that are `value`. */
static void pass_right(pair_rank *p, collective_kind kind, int peer, int64_t count, float value, int round) {
    float data[PAIR_ROOM];
    bool is_over;
    for (int64_t i = 0; i < count; i++) data[i] = kind == COLLECTIVE_SEND ? value : -1;
    ag_status status = pair_call(p, kind, peer, count, data, NULL, &is_over);
    if (status != AG_OK) object(p, kind == COLLECTIVE_SEND ? "a right send" : "a right receive", round, status);
    for (int64_t i = 0; i < count; i++)
        if (data[i] != value) return object(p, "another message came", round, AG_OK);
}

static void pass_refused(pair_rank *p, int round) {
    const refused_pair *how = p->how;
    float data[PAIR_ROOM];
    bool is_over = false, is_sender = p->rank == 0, refuses = how->refuses[p->rank], is_refused = how->refuses[1 - p->rank];
    for (int64_t i = 0; i < how->count; i++) data[i] = 7;
    if (how->late == p->rank) usleep(20000);
    ag_status status = pair_call(p, is_sender ? COLLECTIVE_SEND : COLLECTIVE_RECEIVE, 1 - p->rank, how->count, data,
                                 refuses ? "it lies on no device" : NULL, &is_over);
    /* What the window holds leaves before the other side has said anything, and nothing is not waited for. */
    bool may_be_through = how->count == 0 || (is_sender && how->count * 4 <= HUB_WINDOW * SEGMENT_BYTES);
    char expected[100];
    snprintf(expected, sizeof expected, "rank %d refused send/receive of f32[%d]: it lies on no device", 1 - p->rank,
             (int)how->count);
    if (is_over) object(p, "the group has ended", round, status);
    if (refuses || !is_refused) {
        if (status != AG_OK) object(p, "the refusal", round, status);
    } else if (status == AG_OK) {
        if (!may_be_through) object(p, "it was not told", round, status);
    } else if (status != AG_E_MISMATCH || !strstr(error_record()->message, expected) || error_record()->num_culprits != 1 ||
               error_record()->culprits[0] != 1 - p->rank) {
        object(p, "it was told otherwise", round, status);
    }
    for (int64_t i = 0; i < how->count; i++)
        if (data[i] != 7) return object(p, "something was written", round, AG_OK);
}

static void sum_all(pair_rank *p, int group, int round) {
    int64_t in[200], out[200];
    for (int i = 0; i < 200; i++) in[i] = i;
    collective_call call = {.kind = COLLECTIVE_ALL_REDUCE,
                            .algorithm = ALGORITHM_DIRECT,
                            .dtype = AG_I64,
                            .rank = p->rank,
                            .size = p->w->options.size,
                            .count = 200,
                            .input = in,
                            .output = out};
    step s = step_of(&call, ++p->num_sums[group], 0);
    s.call.deadline_ns = clock_ns() + 5000000000;
    transport *t = p->w->groups[group][p->rank];
    bool is_over;
    ag_status status = t->ops->run(t, &s.call, &is_over);
    if (status != AG_OK) object(p, "a sum", round, status);
    for (int i = 0; i < 200 && status == AG_OK; i++)
        if (out[i] != i * (int64_t)p->w->options.size) return object(p, "a wrong sum", round, AG_OK);
}

/* Ranks 0 and 1 have a message refused, then go on: with the sender's next one, which leaves before a sum and is received after
 * it, with the other direction, with rank 2's messages, and with a sum of another group. */
static void *pass_messages(void *context) {
    pair_rank *p = context;
    for (int round = 0; round < PAIR_ROUNDS && !p->wrong[0]; round++) {
        float value = (float)round;
        if (p->how->is_after_sum && p->rank != 0) sum_all(p, 0, round);
        if (p->rank < 2) pass_refused(p, round);
        if (p->how->is_after_sum && p->rank == 0) sum_all(p, 0, round);
        if (p->rank == 0) pass_right(p, COLLECTIVE_SEND, 1, 10, value, round);
        if (p->rank == 2) pass_right(p, COLLECTIVE_SEND, 1, 10, value + 0.5f, round);
        sum_all(p, 0, round);
        if (p->rank == 1) pass_right(p, COLLECTIVE_RECEIVE, 2, 10, value + 0.5f, round);
        if (p->rank == 1) pass_right(p, COLLECTIVE_RECEIVE, 0, 10, value, round);
        if (p->rank < 2)
            pass_right(p, p->rank == 0 ? COLLECTIVE_SEND : COLLECTIVE_RECEIVE, 1 - p->rank, PAIR_ROOM, value, round);
        if (p->rank < 2)
            pass_right(p, p->rank == 1 ? COLLECTIVE_SEND : COLLECTIVE_RECEIVE, 1 - p->rank, PAIR_ROOM, value, round);
        sum_all(p, 1, round);
    }
    return NULL;
}

static void run_refused_pair(const refused_pair *how) {
    world w;
    world_options options = {.transport = how->transport,
                             .size = 3,
                             .num_groups = 2,
                             .num_stripes = how->num_stripes,
                             .segment_bytes = SEGMENT_BYTES};
    world_open(&w, &options);
    pair_rank ranks[3] = {0};
    pthread_t threads[3];
    for (int rank = 0; rank < 3; rank++) {
        ranks[rank] = (pair_rank){.w = &w, .how = how, .rank = rank};
        if (pthread_create(&threads[rank], NULL, pass_messages, &ranks[rank]) != 0) exit(2);
    }
    for (int rank = 0; rank < 3; rank++) pthread_join(threads[rank], NULL);
    num_cases++;
    for (int rank = 0; rank < 3; rank++)
        if (ranks[rank].wrong[0])
            fail("%s, %s%srefuse%s, %d elements, late %d: %s", how->transport, how->refuses[0] ? "sender " : "",
                 how->refuses[1] ? "receiver " : "", how->refuses[0] && how->refuses[1] ? "" : "s", (int)how->count, how->late,
                 ranks[rank].wrong);
    world_close(&w);
}

static void test_refused_pairs(void) {
    static const int64_t counts[] = {0, 5, HUB_WINDOW * SEGMENT_BYTES / 4, PAIR_ROOM};
    for (int who = 1; who < 4; who++)
        for (int late = -1; late < 2; late++)
            for (size_t i = 0; i < sizeof counts / sizeof *counts && num_problems == 0; i++) {
                refused_pair how = {.transport = i % 2 ? "tcp" : "ipc",
                                    .refuses = {who & 1, who >> 1},
                                    .count = counts[i],
                                    .late = late,
                                    .num_stripes = 1 + (int)i};
                run_refused_pair(&how);
                how.is_after_sum = true;
                if (who == 2 && counts[i] < PAIR_ROOM) run_refused_pair(&how); /* the sender waits for nothing */
            }
    report("messages that one side refuses");
}

/* Rank 0's first message fills the window, and comes when rank 1 has refused it. The next one, which fits, leaves while rank 1
 * is in another group's call: that must give the credit back. */
static void *pass_before_others(void *context) {
    pair_rank *p = context;
    bool is_over;
    float data[PAIR_ROOM] = {0};
    if (p->rank == 0) {
        ag_status status = pair_call(p, COLLECTIVE_SEND, 1, PAIR_ROOM, data, NULL, &is_over);
        if (status != AG_E_MISMATCH || is_over) object(p, "the refused send", 0, status);
        pass_right(p, COLLECTIVE_SEND, 1, 10, 3, 0);
    }
    sum_all(p, 1, 0);
    if (p->rank == 1) pass_right(p, COLLECTIVE_RECEIVE, 0, 10, 3, 0);
    return NULL;
}

static void test_refused_before_others(void) {
    for (int num_stripes = 1; num_stripes < 3; num_stripes++, num_cases++) {
        world w;
        world_options options = {
            .transport = "tcp", .size = 2, .num_groups = 2, .num_stripes = num_stripes, .segment_bytes = SEGMENT_BYTES};
        world_open(&w, &options);
        pair_rank ranks[2] = {{.w = &w, .rank = 0}, {.w = &w, .rank = 1}};
        pthread_t threads[2];
        bool is_over;
        float data[PAIR_ROOM];
        ag_status status = pair_call(&ranks[1], COLLECTIVE_RECEIVE, 0, PAIR_ROOM, data, "it lies on no device", &is_over);
        if (status != AG_OK) object(&ranks[1], "the refusal", 0, status);
        for (int rank = 0; rank < 2; rank++)
            if (pthread_create(&threads[rank], NULL, pass_before_others, &ranks[rank]) != 0) exit(2);
        for (int rank = 0; rank < 2; rank++) pthread_join(threads[rank], NULL);
        for (int rank = 0; rank < 2; rank++)
            if (ranks[rank].wrong[0]) fail("%d stripes: %s", num_stripes, ranks[rank].wrong);
        world_close(&w);
    }
    report("another group's call after a refused message");
}

#endif
