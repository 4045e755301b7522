/* group_test.c: groups through argand.h: works, sub-groups, ends. Ranks are threads or processes. One line a case.
 *
 *   group_test [threads | processes | all] [name]     only the cases whose name holds `name`
 */
#include "support/group_world.h"

#include <math.h>
#include <sys/resource.h>

/* ---- works ---- */

/* Works and calls in turn: each gives what its place in the order says. */
static void works_in_order(rank_test *t) {
    enum { COUNT = 40, LEN = 100 };
    ag_work *works[COUNT];
    int n = t->size;
    for (int i = 0; i < COUNT; i++) {
        ag_tensor *v = vector(t, LEN, 10 * i);
        works[i] = start(t, t->group, v, "start");
        ag_tensor_release(v);
        if (!works[i]) return;
        ag_group_stats stats;
        ag_group_stats_read(t->group, &stats);
        if (stats.num_calls > 2 * COUNT) fail(t, "%d calls", (int)stats.num_calls);
        if (i % 7 == 3) all_reduce(t, t->group, 5, "a call behind works");
        if (i % 7 == 3 && !ag_work_is_done(works[i])) fail(t, "work %d is not done before the call behind it", i);
    }
    for (int i = COUNT; i-- > 0;) {
        ag_tensor *sum = NULL, *again = NULL;
        if (i % 5 != 2 && ok(t, ag_work_wait(works[i], 0, &sum), "wait") && ok(t, ag_work_wait(works[i], 1, &again), "again")) {
            holds(t, sum, LEN, 10.0 * i * n, n, "a work");
            if (sum != again) fail(t, "a second wait gives another tensor");
        }
        ag_tensor_release(sum);
        ag_tensor_release(again);
        ag_work_release(works[i]);
    }
}

static void wait_with_a_limit(rank_test *t) {
    ag_tensor *v = vector(t, 10, 1), *sum = NULL;
    if (t->rank > 0) await_mark(t->board, 0, 1);
    ag_work *w = start(t, t->group, v, "start");
    if (w && t->rank == 0) {
        failed_with(t, ag_work_wait(w, 0.02, &sum), AG_E_TIMEOUT, "it goes on", -1, "a short wait");
        if (ag_work_is_done(w)) fail(t, "it is done without the others");
        add_mark(t->board, 0);
    }
    if (w && ok(t, ag_work_wait(w, INFINITY, &sum), "wait")) holds(t, sum, 10, t->size, t->size, "sum");
    ag_tensor_release(sum);
    ag_work_release(w);
    ag_tensor_release(v);
}

/* `out` is written behind the program's back: its version says so from the start on, and once more at the end. */
static void versions_of_out(rank_test *t) {
    ag_tensor *v = vector(t, 8, 1), *out = vector(t, 8, 0), *sum = NULL;
    ag_work *w = NULL;
    uint32_t before = ag_tensor_version(out);
    if (!ok(t, ag_collective_start(t->group, &(ag_collective){.kind = "all_reduce", .input = v, .out = out}, &w), "start"))
        return;
    uint32_t started = ag_tensor_version(out);
    if (started == before) fail(t, "the version is the same after the start");
    if (ok(t, ag_work_wait(w, 0, &sum), "wait") && ag_tensor_version(out) == started) fail(t, "and after the end");
    if (sum != out) fail(t, "the result is not out");
    holds(t, out, 8, t->size, t->size, "out");
    ag_tensor_release(sum);
    ag_work_release(w);
    ag_tensor_release(v);
    ag_tensor_release(out);
}

static ag_status look(void *context, ag_tensor **grad) {
    (void)context;
    (void)grad;
    return AG_OK;
}

static void note_end(void *context) { *(pthread_t *)context = pthread_self(); }

/* What a graph holds goes with the program's last handle, on its thread: a work does not keep the graph. */
static void graph_of_an_input(rank_test *t) {
    pthread_t end = 0;
    uint64_t id;
    ag_tensor *v = vector(t, 8, 1), *sum = NULL;
    if (t->rank > 0) await_mark(t->board, 0, 1);
    ok(t, ag_tensor_set_requires_grad(v, true), "set_requires_grad");
    ok(t, ag_tensor_add_hook(v, look, &end, note_end, &id), "add_hook");
    ag_work *w = start(t, t->group, v, "start");
    ag_tensor_release(v);
    if (t->rank == 0 && !pthread_equal(end, pthread_self())) fail(t, "the graph is still there, or went on another thread");
    if (t->rank == 0) add_mark(t->board, 0);
    if (w && ok(t, ag_work_wait(w, 0, &sum), "wait")) holds(t, sum, 8, t->size, t->size, "sum");
    ag_tensor_release(sum);
    ag_work_release(w);
}

/* Nobody waits for them; the worker is the last to hold the input, which is part of a graph. */
static void works_that_are_dropped(rank_test *t) {
    ag_tensor *outs[10];
    for (int i = 0; i < 10; i++) {
        ag_tensor *leaf = vector(t, 64, i), *v = NULL;
        ag_work *w = NULL;
        outs[i] = vector(t, 64, -1);
        ag_arg args[2] = {tensor_arg(leaf), tensor_arg(leaf)};
        ok(t, ag_tensor_set_requires_grad(leaf, true), "set_requires_grad");
        if (!ok(t, ag_op_call(ag_op_find("add"), args, 2, NULL, &v), "add")) return;
        ag_collective c = {.kind = "all_reduce", .op = "max", .input = v, .out = outs[i]};
        ok(t, ag_collective_start(t->group, &c, &w), "start");
        ag_tensor_release(leaf);
        ag_tensor_release(v);
        ag_work_release(w);
    }
    ok(t, ag_group_close(t->group, 10), "close with works queued");
    t->group = NULL;
    for (int i = 0; i < 10; i++) {
        holds(t, outs[i], 64, 2.0 * i, 2, "a work that was dropped");
        ag_tensor_release(outs[i]);
    }
}

/* ---- calls that cannot be made ---- */

/* How rank 1 makes a call that it alone refuses. */
static ag_status refuse(rank_test *t, int way, ag_tensor *v, ag_tensor *whole) {
    ag_work *w = NULL;
    int64_t counts[MAX_RANKS] = {1, 1, 1, 1};
    switch (way) {
    case 0: return ag_collective_run(t->group, &(ag_collective){.kind = "all_reduce", .op = "mean", .input = whole}, NULL);
    case 1: return ag_collective_run(t->group, &(ag_collective){.kind = "all_reduce", .op = "plus", .input = v}, NULL);
    case 2: return ag_collective_run(t->group, &(ag_collective){.kind = "broadcast", .root = 77, .input = v}, NULL);
    case 3: return ag_collective_start(t->group, &(ag_collective){.kind = "all_reduce", .op = "mean", .input = whole}, &w);
    case 4: return ag_collective_run(t->group, &(ag_collective){.kind = "all_reduce", .input = v, .counts = counts}, NULL);
    default:
        ag_memory_fail_after(1);
        return ag_collective_start(t->group, &(ag_collective){.kind = "all_reduce", .input = v}, &w);
    }
}

static void refusals(rank_test *t) {
    static const ag_status codes[] = {AG_E_DTYPE, AG_E_VALUE, AG_E_VALUE, AG_E_DTYPE, AG_E_ARGUMENT, AG_E_MEMORY};
    int way = (int)t->number;
    ag_tensor *v = vector(t, 6, 1), *whole = NULL, *sum = NULL;
    int64_t numbers[6] = {0}, dims[1] = {6};
    ok(t, ag_tensor_from_data(AG_I64, 1, dims, NULL, numbers, &whole), "from_data");
    all_reduce(t, t->group, 3, "before");
    add_mark(t->board, 0); /* over sockets a rank may be done with a call that the end of the group cuts off on others */
    await_mark(t->board, 0, t->size);
    if (t->rank == 1) {
        ag_status status = refuse(t, way, v, whole);
        if (status == AG_OK || (codes[way] != AG_E_DTYPE && status != codes[way]))
            fail(t, "it is not refused: %s", ag_status_word(status));
    } else {
        ag_collective c = {.kind = "all_reduce", .input = v, .timeout_s = 10};
        failed_with(t, ag_collective_run(t->group, &c, &sum), AG_E_MISMATCH, "rank 1 refused", 1, "the others");
    }
    if (t->kind == TCP) { /* where calls overlap, that ends the group */
        if (t->rank != 1) failed_with(t, barrier(t->group, 0), AG_E_MISMATCH, "rank 1 refused", 1, "the next call");
        await_end(t);
    } else {
        all_reduce(t, t->group, 3, "after");
    }
    ag_tensor_release(v);
    ag_tensor_release(whole);
}

/* A message to a rank that there is not is nobody's affair: numbers of the pairs stay as they are. */
static void messages_to_nobody(rank_test *t) {
    ag_tensor *v = vector(t, 5, t->rank), *got = NULL;
    for (int i = 0; i < 3; i++) {
        ag_collective lost = {.kind = t->rank == 1 ? "send" : "receive", .root = i == 0 ? 99 : i == 1 ? -1 : t->rank};
        lost.input = lost.like = v;
        failed_with(t, ag_collective_run(t->group, &lost, NULL), AG_E_VALUE, "rank: expected", -1, "a message to nobody");
    }
    if (t->rank == 1)
        ok(t, ag_collective_run(t->group, &(ag_collective){.kind = "send", .root = 0, .input = v}, NULL), "send");
    else if (t->rank == 0 &&
             ok(t, ag_collective_run(t->group, &(ag_collective){.kind = "receive", .root = 1, .like = v}, &got), "receive"))
        holds(t, got, 5, 1, 1, "message");
    ag_tensor_release(got);
    ag_tensor_release(v);
    all_reduce(t, t->group, 3, "after");
}

/* One side of a message cannot take part; the other one learns of it where it waits, and both go on. Rank 1 is the sender, or the
 * receiver. The message is beyond what leaves over sockets before the receiver has come; the second half of the variants makes
 * it a work. */
static void messages_refused(rank_test *t) {
    enum { LEN = 2 << 20 };
    bool is_sender = (t->rank == 1) == (t->number % 2 == 0);
    ag_device *reference;
    ag_tensor *v = NULL, *right = vector(t, 5, t->rank), *got = NULL;
    ag_work *w = NULL;
    int64_t dims[1] = {LEN};
    ag_collective c = {.kind = is_sender ? "send" : "receive", .root = 1 - t->rank, .timeout_s = 10};
    if (!ok(t, ag_device_find("reference", &reference), "reference")) return;
    for (int round = 0; round < 2; round++, w = NULL, got = NULL) {
        ok(t, ag_tensor_empty(AG_F32, 1, dims, t->rank == 1 ? reference : NULL, &v), "empty");
        c.input = c.like = v;
        ag_status status = t->number < 2 ? ag_collective_run(t->group, &c, NULL) : ag_collective_start(t->group, &c, &w);
        if (status == AG_OK && w) status = ag_work_wait(w, 0, NULL);
        if (t->rank == 1)
            failed_with(t, status, AG_E_DEVICE, "reference", -1, "what is refused");
        else
            failed_with(t, status, AG_E_MISMATCH, "rank 1 refused", 1, "the other side");
        ag_work_release(w);
        ag_tensor_release(v);
        c.input = c.like = right;
        status = ag_collective_run(t->group, &c, &got);
        if (ok(t, status, "the next message") && !is_sender) holds(t, got, 5, 1 - t->rank, 1, "the next message");
        ag_tensor_release(got);
    }
    ag_tensor_release(right);
    all_reduce(t, t->group, 3, "after");
}

/* The fourth of seven works differs on rank 1. In shared memory all come to the same end and go on; over sockets the first ones
 * may be cut off, and all later ones fail alike. */
static void mismatch_among_works(rank_test *t) {
    enum { COUNT = 7, ODD = 3 };
    ag_work *works[COUNT];
    char first[768] = "";
    for (int i = 0; i < COUNT; i++) {
        ag_tensor *v = vector(t, i == ODD && t->rank == 1 ? 11 : 10, i);
        works[i] = start(t, t->group, v, "start");
        ag_tensor_release(v);
        if (!works[i]) return;
    }
    for (int i = 0; i < COUNT; i++) {
        ag_tensor *sum = NULL;
        ag_status status = ag_work_wait(works[i], 0, &sum);
        bool is_expected = t->kind == TCP ? i >= ODD || first[0] : i == ODD;
        if (status == AG_OK && is_expected) fail(t, "work %d succeeded", i);
        if (status == AG_OK) holds(t, sum, 10, (double)i * t->size, t->size, "a work");
        if (status != AG_OK && (is_expected || t->kind == TCP)) {
            failed_with(t, status, AG_E_MISMATCH, "rank 1 called", -1, "a work");
            if (first[0] && strcmp(first, ag_last_error()->got) != 0) fail(t, "other words: %s", ag_last_error()->got);
            snprintf(first, sizeof first, "%s", ag_last_error()->got);
        } else {
            ok(t, status, "a work");
        }
        ag_tensor_release(sum);
        ag_work_release(works[i]);
    }
    if (t->kind == TCP) await_end(t);
}

/* ---- forms of tensors ---- */

static void memory_of_tensors(rank_test *t) {
    ag_group *g = t->group;
    int n = t->size;
    ag_tensor *base = vector(t, 8, 1), *low = part(t, base, 0, 6), *high = part(t, base, 2, 6), *r = NULL;
    /* out lies partly over the input, and behind the beginning of its storage */
    ok(t, ag_collective_run(g, &(ag_collective){.kind = "all_reduce", .input = low, .out = high}, &r), "partly over itself");
    holds(t, r, 6, n, n, "partly over itself");
    if (r != high) fail(t, "the result is not out");
    ag_tensor_release(r);
    ok(t, ag_collective_run(g, &(ag_collective){.kind = "all_reduce", .input = high, .out = high}, &r), "in place");
    holds(t, r, 6, (double)n * n, (double)n * n, "in place");
    ag_tensor_release(r);
    ag_tensor_release(low);
    ag_tensor_release(high);
    ag_tensor_release(base);
    /* the own run of an all_gather in its place */
    base = vector(t, 3 * n, 0);
    low = part(t, base, 3 * t->rank, 3);
    ok(t, ag_collective_run(g, &(ag_collective){.kind = "all_gather", .input = low, .out = base}, &r), "all_gather in place");
    holds(t, r, 3 * n, 0, 1, "all_gather in place");
    ag_tensor_release(r);
    ag_tensor_release(low);
    ag_tensor_release(base);
    /* 0-d and empty */
    float one = 1;
    ok(t, ag_tensor_from_data(AG_F32, 0, NULL, NULL, &one, &base), "0-d");
    ok(t, ag_collective_run(g, &(ag_collective){.kind = "all_reduce", .input = base}, &r), "0-d");
    if (ag_tensor_ndim(r) != 0) fail(t, "0-d: the result has dims");
    holds(t, r, 1, n, 0, "0-d");
    ag_tensor_release(r);
    ok(t, ag_collective_run(g, &(ag_collective){.kind = "all_gather", .input = base}, &r), "0-d gathered");
    holds(t, r, n, 1, 0, "0-d gathered");
    ag_tensor_release(r);
    ag_tensor_release(base);
    base = vector(t, 0, 0);
    ok(t, ag_collective_run(g, &(ag_collective){.kind = "reduce_scatter", .input = base}, &r), "empty");
    holds(t, r, 0, 0, 0, "empty");
    ag_tensor_release(r);
    /* rank 0 has no rows, rank r has r */
    int64_t counts[MAX_RANKS] = {0, 1, 2, 3}, huge[MAX_RANKS] = {INT64_MAX / 9, INT64_MAX / 9, INT64_MAX / 9, INT64_MAX / 9};
    ag_tensor_release(base);
    base = vector(t, t->rank, t->rank);
    ok(t, ag_collective_run(g, &(ag_collective){.kind = "all_gather", .input = base, .counts = counts}, &r), "no rows");
    if (r && ag_tensor_numel(r) != n * (n - 1) / 2) fail(t, "no rows: %d elements", (int)ag_tensor_numel(r));
    ag_tensor_release(r);
    huge[t->rank] = t->rank;
    ag_status status = ag_collective_run(g, &(ag_collective){.kind = "all_gather", .input = base, .counts = huge}, &r);
    if (n > 1)
        failed_with(t, status, AG_E_VALUE, "counts", -1, "counts beyond memory");
    else
        ag_tensor_release(r);
    ag_tensor_release(base);
}

/* ---- sub-groups ---- */

static ag_group *split(rank_test *t, ag_group *g, int first, int count) {
    int ranks[MAX_RANKS];
    ag_group *out = NULL;
    for (int i = 0; i < count; i++) ranks[i] = first + i;
    ok(t, ag_group_split(g, ranks, count, &out), "split");
    int own = ag_group_rank(g);
    bool is_member = own >= first && own < first + count;
    if (is_member != (out != NULL)) fail(t, "split: rank %d is%s in ranks %d to %d", own, out ? "" : " not", first, count);
    return out;
}

static void sub_groups(rank_test *t) {
    int n = t->size;
    ag_group *low = split(t, t->group, 0, n - 1), *high = split(t, t->group, n > 2 ? 1 : 0, n - (n > 2)),
             *one = split(t, t->group, t->size - 1, 1), *nested = low && n > 2 ? split(t, low, 1, n - 2) : NULL;
    ag_group *const groups[] = {low, high, one, nested};
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < 4; i++)
            if (groups[i]) all_reduce(t, groups[i], 1000, "in a sub-group");
    ag_work *works[4] = {NULL};
    for (int i = 4; i-- > 0;) { /* at once, in another order than they were made */
        ag_tensor *v = vector(t, 50, i);
        if (groups[i]) works[i] = start(t, groups[i], v, "start");
        ag_tensor_release(v);
    }
    all_reduce(t, t->group, 10, "the world meanwhile");
    for (int i = 0; i < 4; i++) {
        ag_tensor *sum = NULL;
        int size = groups[i] ? ag_group_size(groups[i]) : 0;
        if (works[i] && ok(t, ag_work_wait(works[i], 0, &sum), "wait")) holds(t, sum, 50, (double)i * size, size, "sub-group");
        ag_tensor_release(sum);
        ag_work_release(works[i]);
        ok(t, ag_group_close(groups[i], 1), "close");
    }
    all_reduce(t, t->group, 10, "the world afterwards");
}

/* Rank 0 names ranks that there are not, then other ones than the rest. */
static void splits_that_differ(rank_test *t) {
    int ranks[2] = {0, t->rank == 0 ? 9 : 1}, others[2] = {0, 1};
    ag_group *out = NULL;
    ag_status status = ag_group_split(t->group, ranks, 2, &out);
    if (t->rank == 0)
        failed_with(t, status, AG_E_VALUE, "ranks", -1, "a rank that there is not");
    else
        failed_with(t, status, AG_E_MISMATCH, "rank 0 refused", 0, "the others");
    if (t->kind == TCP) {
        await_end(t);
        return;
    }
    status = ag_group_split(t->group, others, t->rank == 0 ? 1 : 2, &out);
    failed_with(t, status, AG_E_MISMATCH, "rank 0 called group of 1 ranks, rank 1 called group of 2 ranks", -1, "other ranks");
    all_reduce(t, t->group, 3, "after");
}

/* Rank 1 cannot take the new group's memory: all hear of it at once, and the group that is split goes on. */
static void split_without_descriptors(rank_test *t) {
    int ranks[MAX_RANKS] = {0, 1, 2, 3};
    ag_group *out = NULL;
    struct rlimit limit, before;
    getrlimit(RLIMIT_NOFILE, &before);
    limit = before;
    int first_free = dup(1);
    close(first_free);
    limit.rlim_cur = (rlim_t)first_free;
    all_reduce(t, t->group, 3, "before");
    double begin = seconds_now();
    if (t->rank == 1) setrlimit(RLIMIT_NOFILE, &limit);
    failed_with(t, ag_group_split(t->group, ranks, t->size, &out), AG_E_NETWORK, "shared memory is refused by rank 1", -1,
                "split");
    setrlimit(RLIMIT_NOFILE, &before);
    if (seconds_now() - begin > 3) fail(t, "that took %.1f s", seconds_now() - begin);
    out = split(t, t->group, 0, t->size);
    if (out) all_reduce(t, out, 3, "in the group of a second try");
    ag_group_free(out);
    all_reduce(t, t->group, 3, "after");
}

/* ---- ends ---- */

/* Rank 1 leaves for good with a work under way that nobody joins; others wait for it. */
static void free_without_goodbye(rank_test *t) {
    ag_tensor *own = NULL, *result = NULL, *v = vector(t, 4, 0);
    bool has_tensors = t->number == 1;
    ag_group *child = t->number == 2 ? split(t, t->group, 0, t->size) : NULL;
    if (has_tensors) ok(t, ag_group_shared_tensor(t->group, AG_F32, 100, true, &own, &result), "shared_tensor");
    add_mark(t->board, 1); /* over sockets nobody waits for another one here */
    await_mark(t->board, 1, t->size);
    double begin = seconds_now();
    if (t->rank == 1) {
        ag_work *w = t->number == 0 ? start(t, t->group, v, "start") : NULL;
        if (w) pause_ms(20);
        ag_group_free(t->group);
        t->group = NULL;
        if (seconds_now() - begin > 8) fail(t, "the end took %.1f s", seconds_now() - begin);
        if (w && ag_work_wait(w, 5, NULL) == AG_OK) fail(t, "the work succeeded");
        ag_work_release(w);
        await_mark(t->board, 0, t->size - 1);
    } else {
        ag_status status = t->number == 0 ? AG_OK : barrier(t->group, 20);
        if (t->number == 0) { /* rank 1 has started an all_reduce, which this rank never makes */
            while (!ag_group_has_ended(t->group) && seconds_now() - begin < 20) pause_ms(1);
            status = barrier(t->group, 20);
        }
        failed_with(t, status, AG_E_PEER, "rank 1 ", 1, "a rank has left");
        if (seconds_now() - begin > 15) fail(t, "that took %.1f s", seconds_now() - begin);
        add_mark(t->board, 0);
    }
    ag_group_free(child);
    ag_tensor_release(own);
    ag_tensor_release(result);
    ag_tensor_release(v);
}

static void *abort_later(void *context) {
    pause_ms(30);
    ag_group_abort(context, "a reason\nand a traceback");
    return NULL;
}

static void abort_from_a_thread(rank_test *t) {
    pthread_t thread;
    ag_tensor *v = vector(t, 4, 0);
    ag_work *w = t->rank == 0 ? start(t, t->group, v, "start") : NULL;
    if (t->rank == 0) {
        pthread_create(&thread, NULL, abort_later, t->group);
        failed_with(t, ag_work_wait(w, 0, NULL), AG_E_PEER, "rank 0 failed: a reason", 0, "the work");
        pthread_join(thread, NULL);
    }
    await_end(t);
    failed_with(t, barrier(t->group, 0), AG_E_PEER, "rank 0 failed: a reason", 0, "a call");
    if (strstr(ag_last_error()->message, "traceback")) fail(t, "the traceback is told");
    ag_work_release(w);
    ag_tensor_release(v);
}

static void alone(rank_test *t) {
    all_reduce(t, t->group, 3, "alone");
    ag_group_abort(t->group, NULL);
    if (!ag_group_has_ended(t->group)) fail(t, "it has not ended");
    failed_with(t, barrier(t->group, 0), AG_E_PEER, "rank 0 failed", 0, "a call after the abort");
}

#include "group_shared.h"

/* The last rank stays away; over processes the error tells what it is at. */
static void absent_rank(rank_test *t) {
    int last = t->size - 1;
    all_reduce(t, t->group, 3, "before");
    if (t->rank == last) {
        ag_group_note(t->group, "epoch 3, step 120");
        add_mark(t->board, 0);
        await_end(t);
        return;
    }
    await_mark(t->board, 0, 1);
    if (t->kind != THREADS) pause_ms(600); /* two heartbeats */
    double begin = seconds_now();
    failed_with(t, barrier(t->group, 0.2), AG_E_TIMEOUT, "", last, "a barrier");
    if (seconds_now() - begin > 5) fail(t, "that took %.1f s", seconds_now() - begin);
    const char *hint = ag_last_error()->hint;
    if (t->rank == 0 && t->kind != THREADS && !strstr(hint, "epoch 3, step 120")) fail(t, "the hint is: %s", hint);
}

/* Times that are no number of nanoseconds. */
static void long_times(rank_test *t) {
    static const double times[] = {INFINITY, 1e300, 1e10, 0};
    ag_tensor *v = vector(t, 4, 0);
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        ag_tensor *sum = NULL;
        ag_work *w = NULL;
        ag_collective c = {.kind = "all_reduce", .input = v, .timeout_s = times[i]};
        ok(t, ag_collective_run(t->group, &c, NULL), "run");
        if (ok(t, ag_collective_start(t->group, &c, &w), "start")) ok(t, ag_work_wait(w, times[i], &sum), "wait");
        ag_tensor_release(sum);
        ag_work_release(w);
    }
    ag_group *child = split(t, t->group, 0, t->size); /* with the group's own time, which is infinite, too */
    if (child) all_reduce(t, child, 5, "in a sub-group");
    ag_group_close(child, 1);
    ag_tensor_release(v);
}

/* ---- interrupts ---- */

static void interrupt_ranks(board *b) {
    await_mark(b, 0, 1);
    pause_ms(30);
    ag_interrupt();
    await_mark(b, 1, 1);
    ag_interrupt_clear();
    add_mark(b, 2);
}

/* Rank 0 waits for what nobody makes: a call, or a call behind a work. Its buffers are its own again at once. */
static void interrupted_call(rank_test *t) {
    if (t->rank == 0) {
        ag_tensor *v = vector(t, 2000, 0);
        ag_work *w = t->number == 1 ? start(t, t->group, v, "start") : NULL;
        ag_collective c = {.kind = "all_reduce", .input = v};
        add_mark(t->board, 0);
        failed_with(t, ag_collective_run(t->group, &c, NULL), AG_E_INTERRUPTED, "interrupted", -1, "the call");
        ag_tensor_release(v);
        add_mark(t->board, 1);
        await_mark(t->board, 2, 1);
        if (!ag_group_has_ended(t->group)) fail(t, "the others may wait for ever");
        if (w && ag_work_wait(w, 5, NULL) == AG_OK) fail(t, "the work succeeded");
        ag_work_release(w);
    } else {
        await_mark(t->board, 2, 1);
    }
    if (barrier(t->group, 10) != AG_E_PEER) fail(t, "the next call: %s", ag_last_error()->message);
}

/* Only the wait ends, or the call with it: either way the second wait has an end, and all ranks the same luck. */
static void interrupted_wait(rank_test *t) {
    ag_tensor *v = vector(t, 2000, 0);
    ag_work *w = t->rank == 0 ? start(t, t->group, v, "start") : NULL;
    if (t->rank == 0) {
        add_mark(t->board, 0);
        failed_with(t, ag_work_wait(w, 0, NULL), AG_E_INTERRUPTED, "interrupted", -1, "the wait");
        add_mark(t->board, 1);
    }
    await_mark(t->board, 2, 1);
    if (t->rank > 0) w = start(t, t->group, v, "start");
    ag_status status = w ? ag_work_wait(w, 10, NULL) : AG_E_STATE;
    if (status != AG_OK && !ag_group_has_ended(t->group)) fail(t, "the second wait: %s", ag_last_error()->message);
    if (status == AG_OK) add_mark(t->board, 3);
    add_mark(t->board, 4);
    await_mark(t->board, 4, t->size);
    int num_right = atomic_load(&t->board->marks[3]);
    if (num_right != 0 && num_right != t->size) fail(t, "%d of %d ranks have a result", num_right, t->size);
    ag_work_release(w);
    ag_tensor_release(v);
}

/* ---- regroup, fork, memory ---- */

static void regroup_twice(rank_test *t) {
    for (uint32_t i = 0; i < 2; i++) {
        ag_group *next = NULL, *old_child = split(t, t->group, 0, t->size);
        uint32_t epoch = ag_group_epoch(t->group);
        ag_tensor *v = vector(t, 9, 0);
        ag_work *w = start(t, t->group, v, "start");
        if (w) ok(t, ag_work_wait(w, 0, NULL), "wait");
        add_mark(t->board, (int)i); /* or a rank that is done would cut this call off on others */
        await_mark(t->board, (int)i, t->size);
        if (!ok(t, ag_group_regroup(t->group, t->size, 5, &next), "regroup")) return;
        t->group = next;
        if (ag_group_epoch(next) != epoch + 1) fail(t, "epoch %d after %d", (int)ag_group_epoch(next), (int)epoch);
        all_reduce(t, next, 100, "in the new world");
        if (old_child && barrier(old_child, 5) != AG_E_PEER) fail(t, "a group of the old world goes on");
        ag_group_free(old_child);
        ag_work_release(w);
        ag_tensor_release(v);
    }
    ag_group *child = split(t, t->group, 0, t->size);
    all_reduce(t, child, 100, "in a sub-group of the new world");
    ag_group_close(child, 1);
}

/* A forked child cannot use the group, and its end is no end of the group. */
static void fork_in_a_rank(rank_test *t) {
    ag_tensor *own = NULL, *result = NULL, *v = vector(t, 4, 0);
    ok(t, ag_group_shared_tensor(t->group, AG_F32, 10, true, &own, &result), "shared_tensor");
    ag_work *w = start(t, t->group, v, "start"), *none = NULL, *pending;
    ok(t, ag_work_wait(w, 0, NULL), "wait");
    if (t->rank > 0) await_mark(t->board, 0, 1);
    pending = start(t, t->group, v, "start");
    pid_t child = fork();
    if (child == 0) {
        ag_collective c = {.kind = "all_reduce", .input = v};
        bool is_refused =
            ag_collective_run(t->group, &c, NULL) == AG_E_STATE && ag_collective_start(t->group, &c, &none) == AG_E_STATE &&
            strstr(ag_last_error()->message, "fork") != NULL && (t->rank > 0 || ag_work_wait(pending, 0, NULL) == AG_E_STATE);
        ag_work_release(w);
        ag_work_release(pending);
        ag_group_abort(t->group, "the child");
        ag_tensor_release(own);
        ag_tensor_release(result);
        ag_group_free(t->group);
        _exit(is_refused ? 0 : 3);
    }
    int word = -1;
    waitpid(child, &word, 0);
    if (word != 0) fail(t, "the child ended with 0x%x", word);
    if (t->rank == 0) add_mark(t->board, 0);
    ok(t, ag_work_wait(pending, 0, NULL), "wait for the work of before the fork");
    ag_work_release(pending);
    all_reduce(t, t->group, 100, "after the child's end");
    ag_work_release(w);
    ag_tensor_release(own);
    ag_tensor_release(result);
    ag_tensor_release(v);
}

/* Everything once, on all ranks alike; the first failure ends it. */
static void everything(rank_test *t) {
    ag_group *child = NULL;
    ag_tensor *own = NULL, *result = NULL, *v = NULL, *sum = NULL;
    ag_work *w = NULL;
    int ranks[MAX_RANKS] = {0, 1, 2, 3};
    int64_t dims[1] = {16};
    ag_status status = ag_group_split(t->group, ranks, t->size, &child);
    if (status == AG_OK) status = ag_tensor_empty(AG_F32, 1, dims, NULL, &v);
    if (status == AG_OK) status = ag_collective_start(child, &(ag_collective){.kind = "all_reduce", .input = v}, &w);
    if (status == AG_OK) status = ag_collective_run(child, &(ag_collective){.kind = "all_gather", .input = v}, NULL);
    if (status == AG_OK) status = ag_work_wait(w, 0, &sum);
    if (status == AG_OK) status = ag_group_shared_tensor(t->group, AG_F32, 100, true, &own, &result);
    if (status == AG_OK)
        status = ag_collective_run(t->group, &(ag_collective){.kind = "all_reduce", .input = own, .out = result}, NULL);
    if (status == AG_OK) status = barrier(t->group, 0);
    t->board->numbers[t->rank] = status;
    if (status == AG_E_MEMORY) ag_group_abort(t->group, ag_last_error()->message); /* as a program's end would */
    ag_work_release(w);
    ag_tensor_release(v);
    ag_tensor_release(sum);
    ag_group_free(child);
    ag_tensor_release(own);
    ag_tensor_release(result);
    ag_group_free(t->group);
    t->group = NULL;
}

/* The failing allocation is this rank's; the others see an end in bounded time, whatever it is. */
static void everything_without_memory(rank_test *t) {
    bool is_it = t->rank == t->size - 1;
    if (is_it) ag_memory_fail_after(t->number);
    everything(t);
    if (!is_it) return;
    bool was_used = ag_memory_fail_after(0) >= t->number;
    if (!was_used) add_mark(t->board, 7);
    if (!was_used && t->board->numbers[t->rank] != AG_OK) fail(t, "it never succeeds: %s", ag_last_error()->message);
}

/* One walk over all allocations of a world of threads, whichever rank they are of. */
static void walk_memory_of_threads(int size) {
    char problem[1000] = "";
    bool is_over = false;
    for (int number = 1; number < 400 && !problem[0] && !is_over; number++) {
        char found[900];
        board *b = new_board();
        rank_test t = {.board = b};
        alarm(LIMIT_S);
        holdings before = hold_now();
        ag_memory_fail_after(number);
        run_threads(size, everything, &(world_setup){0}, b);
        is_over = ag_memory_fail_after(0) < number;
        if (!is_over && strstr(b->problems[0], "open_threads")) b->problems[0][0] = '\0';
        compare_holdings(&t, &before);
        alarm(0);
        if (find_problem(b, size, found, sizeof found)[0])
            snprintf(problem, sizeof problem, "allocation %d: %s", number, found);
        munmap(b, sizeof *b);
    }
    report(problem[0] || is_over ? problem : "it never succeeds");
}

/* The last rank's allocations, once it has joined. Worlds wait more than they compute: several at once. */
static void walk_memory_of_processes(world_kind kind, int size) {
    enum { BATCH = 10 };
    char problem[1000] = "";
    bool is_over = false;
    for (int first = 1; first < 400 && !problem[0] && !is_over; first += BATCH) {
        process_world worlds[BATCH];
        for (int i = 0; i < BATCH; i++)
            worlds[i] =
                start_processes(kind, size, everything_without_memory, &(world_setup){.number = first + i, .timeout_s = 8});
        for (int i = 0; i < BATCH; i++) {
            char found[900];
            board *b = worlds[i].board;
            finish_processes(&worlds[i]);
            is_over |= atomic_load(&b->marks[7]) > 0;
            if (find_problem(b, size, found, sizeof found)[0])
                snprintf(problem, sizeof problem, "allocation %d: %s", first + i, found);
            munmap(b, sizeof *b);
        }
    }
    report(problem[0] || is_over ? problem : "it never succeeds");
}

/* ---- the list ---- */

#define ON_THREADS   1
#define ON_SHM       2
#define ON_TCP       4
#define ON_PROCESSES (ON_SHM | ON_TCP)
#define ON_ALL       (ON_THREADS | ON_PROCESSES)

static const struct {
    const char *name;
    rank_body body;
    int kinds, min_size, max_size, num_variants;
    world_setup setup;
} cases[] = {
    {"works and calls in order", works_in_order, ON_ALL, 1, 4, 1, {0}},
    {"wait with a limit", wait_with_a_limit, ON_ALL, 2, 3, 1, {0}},
    {"versions of out", versions_of_out, ON_ALL, 1, 2, 1, {0}},
    {"the graph of an input", graph_of_an_input, ON_ALL, 2, 2, 1, {0}},
    {"works that are dropped", works_that_are_dropped, ON_ALL, 1, 3, 1, {0}},
    {"refusals", refusals, ON_PROCESSES, 2, 3, 6, {0}},
    {"refusals of threads", refusals, ON_THREADS, 2, 4, 5, {0}},
    {"messages to nobody", messages_to_nobody, ON_ALL, 2, 3, 1, {0}},
    {"messages refused", messages_refused, ON_ALL, 2, 2, 4, {0}},
    {"a mismatch among works", mismatch_among_works, ON_ALL, 2, 4, 1, {0}},
    {"memory of tensors", memory_of_tensors, ON_THREADS | ON_SHM, 1, 4, 1, {0}},
    {"memory of tensors over sockets", memory_of_tensors, ON_TCP, 1, 3, 1, {0}},
    {"sub-groups", sub_groups, ON_ALL, 2, 4, 1, {0}},
    {"splits that differ", splits_that_differ, ON_ALL, 2, 3, 1, {0}},
    {"a split without descriptors", split_without_descriptors, ON_SHM, 2, 4, 1, {0}},
    {"free without goodbye", free_without_goodbye, ON_ALL, 2, 3, 3, {0}},
    {"abort from a thread", abort_from_a_thread, ON_ALL, 2, 3, 1, {0}},
    {"alone", alone, ON_ALL, 1, 1, 1, {0}},
    {"shared tensors after the close", shared_tensors_outlive, ON_ALL, 1, 3, 1, {0}},
    {"a close with shared tensors", closed_with_tensors, ON_THREADS | ON_SHM, 2, 3, 1, {0}},
    {"an absent rank", absent_rank, ON_ALL, 2, 3, 1, {0}},
    {"long times", long_times, ON_ALL, 2, 2, 1, {.timeout_s = INFINITY}},
    {"an interrupted call", interrupted_call, ON_THREADS, 2, 3, 2, {.during = interrupt_ranks}},
    {"an interrupted wait", interrupted_wait, ON_THREADS, 2, 3, 1, {.during = interrupt_ranks}},
    {"regroup twice", regroup_twice, ON_PROCESSES, 2, 3, 1, {0}},
    {"fork in a rank", fork_in_a_rank, ON_SHM, 2, 2, 1, {0}},
    {"a long name", sub_groups, ON_SHM, 2, 2, 1, {.job = "a-name-of-a-job-that-is-nearly-too-", .epoch = 123456}},
};

#define MAX_WORLDS 20

/* All sizes and variants of a case; processes at once, since they wait more than they compute. */
static void run_case(size_t i, world_kind kind) {
    char name[160], problem[1000];
    process_world worlds[MAX_WORLDS];
    for (int step = 0; step < 2; step++) {
        int number = 0;
        for (int size = cases[i].min_size; size <= cases[i].max_size; size++)
            for (int v = 0; v < cases[i].num_variants && number < MAX_WORLDS; v++, number++) {
                world_setup setup = cases[i].setup;
                setup.number = v;
                snprintf(name, sizeof name, "%s, %d %s, variant %d", cases[i].name, size, kind_names[kind], v);
                case_name = name;
                if (kind != THREADS && step == 0) {
                    worlds[number] = start_processes(kind, size, cases[i].body, &setup);
                    continue;
                }
                if (step == 0) continue;
                board *b = kind == THREADS ? new_board() : worlds[number].board;
                alarm(LIMIT_S);
                if (kind == THREADS)
                    run_threads(size, cases[i].body, &setup, b);
                else
                    finish_processes(&worlds[number]);
                alarm(0);
                report(find_problem(b, size, problem, sizeof problem));
                munmap(b, sizeof *b);
            }
    }
}

int main(int argc, char **argv) {
    const char *group = argc > 1 ? argv[1] : "all", *name = argc > 2 ? argv[2] : "";
    bool is_all = strcmp(group, "all") == 0;
    signal(SIGALRM, end_of_time);
    /* Processes first: they are forked off one that has not computed yet. */
    for (int k = NUM_KINDS; k-- > 0;) {
        world_kind kind = (world_kind)k;
        if (!is_all && strcmp(group, kind == THREADS ? "threads" : "processes") != 0) continue;
        if (kind != THREADS && !ag_dist_is_available()) continue;
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
            if (cases[i].kinds & 1 << k && strstr(cases[i].name, name)) run_case(i, kind);
        char walk[100];
        snprintf(walk, sizeof walk, "allocations fail, 2 %s", kind_names[kind]);
        case_name = walk;
        if (strstr(walk, name)) kind == THREADS ? walk_memory_of_threads(2) : walk_memory_of_processes(kind, 2);
    }
    return num_failures > 0;
}
