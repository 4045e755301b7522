/* group_shared.h: shared tensors whose group is closed; part of group_test.c. */
#ifndef ARGAND_SPEC_SUPPORT_GROUP_SHARED_H
#define ARGAND_SPEC_SUPPORT_GROUP_SHARED_H

static void shared_tensors_outlive(rank_test *t) {
    enum { LEN = 3000 };
    ag_tensor *own = NULL, *result = NULL, *sum = NULL, *tail = NULL;
    void *data;
    int n = t->size;
    if (!ok(t, ag_group_shared_tensor(t->group, AG_F32, LEN, true, &own, &result), "shared_tensor")) return;
    ag_tensor_data(own, &data);
    for (int i = 0; i < LEN; i++) ((float *)data)[i] = (float)i;
    ok(t, ag_collective_run(t->group, &(ag_collective){.kind = "all_reduce", .input = own, .out = result}, &sum), "in it");
    if (sum != result) fail(t, "the result lies elsewhere");
    tail = part(t, own, 1000, 500);
    ok(t, ag_collective_run(t->group, &(ag_collective){.kind = "all_reduce", .input = tail, .out = tail}, NULL),
       "a part of it");
    ag_tensor_release(sum);
    ok(t, ag_group_close(t->group, 10), "close");
    t->group = NULL;
    holds(t, result, LEN, 0, n, "after the close");
    holds(t, tail, 500, 1000.0 * n, n, "after the close, own");
    ag_tensor_release(own);
    ag_tensor_release(result);
    holds(t, tail, 500, 1000.0 * n, n, "by the last view");
    ag_tensor_release(tail);
}

/* Who closes a group is gone for the others, though its tensors keep the memory. */
static void closed_with_tensors(rank_test *t) {
    ag_group *child = split(t, t->group, 0, t->size);
    ag_tensor *own = NULL, *result = NULL;
    if (!child || !ok(t, ag_group_shared_tensor(child, AG_F32, 100, true, &own, &result), "shared_tensor")) return;
    if (t->rank == t->size - 1)
        ok(t, ag_group_close(child, 0), "close");
    else
        failed_with(t, barrier(child, 20), AG_E_PEER, "has left", t->size - 1, "a call after it");
    add_mark(t->board, 0);
    await_mark(t->board, 0, t->size);
    if (t->rank < t->size - 1) ag_group_close(child, 0);
    ag_tensor_release(own);
    ag_tensor_release(result);
    ag_group_free(t->group); /* the world has ended with that call */
    t->group = NULL;
}

#endif
