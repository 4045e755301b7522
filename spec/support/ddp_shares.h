/* ddp_shares.h: sharded jobs: each rank updates its share of the parameters; part of ddp_test.c. */
#ifndef ARGAND_SPEC_SUPPORT_DDP_SHARES_H
#define ARGAND_SPEC_SUPPORT_DDP_SHARES_H

/* Each rank updates what it owns, then they tell one another: as if each had updated all. */
static void shares(rank_test *t) {
    model m, all;
    model_init(t, &m, AG_F32, 1);
    model_init(t, &all, AG_F32, 1);
    ag_ddp *ddp = job_of(t, &m, &(ag_ddp_options){.shard = "ranks", .bucket_bytes = 64}), *whole = job_of(t, &all, NULL);
    for (int step = 0; ddp && whole && step < 3; step++) {
        backward_of(t, &m, step * t->size + t->rank);
        backward_of(t, &all, step * t->size + t->rank);
        sync_of(t, ddp, true);
        sync_of(t, whole, true);
        for (int i = 0; i < NUM_PARAMETERS; i++) {
            ag_ddp_place place = {.owner = -1};
            if (ag_ddp_find(m.parameters[i], &place) != ddp || place.owner < 0 || place.owner >= t->size) fail(t, "no owner");
            if (place.owner != t->rank) ok(t, ag_tensor_set_grad(m.parameters[i], NULL), "set_grad");
        }
        model_step(t, &m);
        model_step(t, &all);
        ok(t, ag_ddp_share(ddp), "share");
        float got[512], expected[512];
        read_all(t, m.parameters, got);
        read_all(t, all.parameters, expected);
        all_near(t, got, expected, NUM_ELEMENTS, 0, "a parameter");
        check_equal_bits(t, &m);
    }
    if (whole) failed_with(t, ag_ddp_share(whole), AG_E_STATE, "every rank updates all parameters", "share without shard");
    ag_ddp_free(ddp);
    ag_ddp_free(whole);
    model_free(&m);
    model_free(&all);
}

static void *address_of(rank_test *t, ag_tensor *tensor) {
    void *address = NULL;
    ok(t, ag_tensor_data(tensor, &address), "data");
    return address;
}

/* Ranks have the parameters in common: owners write when nobody reads any more, views follow, and afterwards each rank has its own
 * again. */
static void in_common(rank_test *t) {
    static void *addresses[MAX_RANKS];
    model m, alone;
    model_init(t, &m, AG_F32, t->rank + 1); /* others than rank 0's, which all get */
    model_init(t, &alone, AG_F32, 1);
    ag_tensor *alias = NULL;
    ok(t, ag_tensor_detach(m.parameters[0], &alias), "detach");
    float got[512], expected[512];
    ag_ddp *ddp = job_of(t, &m, &(ag_ddp_options){.shard = "host", .bucket_bytes = t->number ? 0 : 64});
    for (int step = 0; ddp && step < 3; step++) {
        backward_of(t, &m, step * t->size + t->rank);
        read_all(t, m.parameters, got); /* the other ranks may have all gradients by now */
        all_near(t, got, expected, step > 0 ? NUM_ELEMENTS : 0, 0, "a parameter after backward");
        sync_of(t, ddp, true);
        for (int i = 0; i < NUM_PARAMETERS; i++) {
            ag_ddp_place place = {.owner = -1};
            if (ag_ddp_find(m.parameters[i], &place) != ddp || place.owner < 0 || place.owner >= t->size) fail(t, "no owner");
            if (place.owner != t->rank) ok(t, ag_tensor_set_grad(m.parameters[i], NULL), "set_grad");
        }
        model_step(t, &m);
        ok(t, ag_ddp_share(ddp), "share");
        read_all(t, m.parameters, expected);
        check_equal_bits(t, &m);
    }
    addresses[t->rank] = address_of(t, m.parameters[0]);
    pthread_barrier_wait(&t->world->barrier);
    if (addresses[t->rank] != addresses[0]) fail(t, "the parameters lie in another place than rank 0's");
    if (alias && address_of(t, alias) != addresses[0]) fail(t, "the alias did not follow");
    pthread_barrier_wait(&t->world->barrier);
    ag_ddp_free(ddp);
    addresses[t->rank] = address_of(t, m.parameters[0]);
    read_all(t, m.parameters, got);
    all_near(t, got, expected, NUM_ELEMENTS, 0, "a parameter after the job");
    pthread_barrier_wait(&t->world->barrier);
    for (int other = 0; other < t->size; other++)
        if (other != t->rank && addresses[other] == addresses[t->rank]) fail(t, "still in common with rank %d", other);
    if (alias && address_of(t, alias) != addresses[t->rank]) fail(t, "the alias did not come back");
    ag_tensor_release(alias);

    /* The same steps of a job in which every rank updates all. */
    ddp = job_of(t, &alone, NULL);
    for (int step = 0; ddp && step < 3; step++) {
        backward_of(t, &alone, step * t->size + t->rank);
        sync_of(t, ddp, true);
        model_step(t, &alone);
    }
    ag_ddp_free(ddp);
    read_all(t, alone.parameters, expected);
    all_near(t, got, expected, NUM_ELEMENTS, 0, "a parameter");
    model_free(&m);
    model_free(&alone);
}

/* Memory that holds more than the parameters cannot be had in common; several parameters in one memory can, alike on all ranks. */
static void not_in_common(rank_test *t) {
    bool is_odd = t->rank == t->size - 1;
    ag_tensor *flat = random_tensor(t, AG_F32, 4, 3, 5), *parts[2] = {NULL, NULL};
    const char *problem = "'first' shares its memory with what is not registered";
    ag_ddp_item items[2];
    for (int i = 0; i < 2; i++) {
        ag_arg args[4] = {arg(flat),
                          {.kind = AG_ARG_INT, .as.integer = 0},
                          {.kind = AG_ARG_INT, .as.integer = is_odd ? 2 - 2 * i : 2 * i},
                          {.kind = AG_ARG_INT, .as.integer = 2}};
        if (!ok(t, ag_op_call(ag_op_find("narrow"), args, 4, NULL, &parts[i]), "narrow")) return;
        ok(t, ag_tensor_set_requires_grad(parts[i], true), "requires_grad");
        items[i] = (ag_ddp_item){i == 0 ? "first" : "second", parts[i]};
    }
    ag_ddp *ddp = NULL;
    const ag_ddp_options options = {.shard = "host"};
    failed_with(t, ag_ddp_open(t->group, items, 1, NULL, 0, &options, &ddp), AG_E_ARGUMENT, problem, "a part of memory");
    ag_status status = ag_ddp_open(t->group, items, 2, NULL, 0, &options, &ddp);
    if (t->size > 1)
        failed_with(t, status, AG_E_MISMATCH, "parameter 1 is 'first' f32[2, 3] at byte 0", "parts in another order");
    ag_ddp_free(ddp);
    ddp = NULL;
    if (is_odd) {
        ag_tensor *second = items[0].tensor;
        items[0].tensor = items[1].tensor;
        items[1].tensor = second;
    }
    if (ok(t, ag_ddp_open(t->group, items, 2, NULL, 0, &options, &ddp), "both parts")) ag_ddp_free(ddp);
    failed_with(t, ag_ddp_open(t->group, items, 2, NULL, 0, &(ag_ddp_options){.shard = "rank"}, &ddp), AG_E_VALUE,
                "\"ranks\" or \"host\"", "another word");
    for (int i = 0; i < 2; i++) ag_tensor_release(parts[i]);
    ag_tensor_release(flat);
}

#endif
