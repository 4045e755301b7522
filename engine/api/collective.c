/* collective.c: collectives on the tensors of a group's ranks: now, as works, or only asked about. */
#include <stdio.h>
#include <string.h>

#include "api/collective_call.h"
#include "api/shared_tensor.h"
#include "core/error.h"
#include "core/memory.h"
#include "dist/group/world.h"

bool ag_collective_supports(const char *kind, const char *op, ag_dtype dtype, ag_device *device, char *reason, size_t len) {
    const ag_error before = *error_record();
    ag_collective c = {.kind = kind, .op = op};
    tensor_call p;
    ag_status status = tensor_call_parse(&c, 0, 1, &p);
    if (status == AG_OK) status = tensor_call_check_device(kind, device);
    if (status == AG_OK) status = collective_supports(p.call.kind, p.call.op, dtype);
    if (reason) snprintf(reason, len, "%s", status == AG_OK ? "" : error_record()->message);
    *error_record() = before;
    return status == AG_OK;
}

/* ---- now ---- */

/* Checks what the user asks for and makes the request of it. */
static ag_status make_request(ag_group *g, const ag_collective *c, tensor_call *p, group_request *out) {
    *out = (group_request){.timeout_s = c->timeout_s};
    AG_TRY(tensor_call_parse(c, g->rank, g->size, p));
    AG_TRY(tensor_call_prepare(c, p));
    out->call = p->call;
    out->ndim = p->ndim;
    out->dims = p->dims;
    out->is_absent = c->is_absent;
    shared_tensor_find(g, p, out);
    return AG_OK;
}

/* Tells the others that this rank cannot make the call they may be making; the error record stays. A message to nobody, or one
 * of a kind that does not exist, is nobody else's affair. */
static void tell_refusal(ag_group *g, const tensor_call *p) {
    bool is_of_pair = collective_is_pair(p->call.kind);
    int root = p->call.root;
    if (p->call.kind == COLLECTIVE_KIND_COUNT || (is_of_pair && (root < 0 || root >= g->size || root == g->rank))) return;
    group_request request = {.call = p->call, .ndim = p->ndim, .dims = p->dims};
    if (root < 0 || root >= g->size) request.call.root = 0;
    request.call.counts = request.call.output_counts = NULL;
    group_tell_refusal(g, &request);
}

ag_status ag_collective_run(ag_group *group, const ag_collective *c, ag_tensor **out) {
    tensor_call p = {0};
    group_request request;
    ag_status status = make_request(group, c, &p, &request);
    if (status != AG_OK)
        tell_refusal(group, &p);
    else
        status = group_run(group, &request);
    if (status == AG_OK) {
        ag_tensor *result = tensor_call_take(&p);
        if (out)
            *out = result;
        else
            tensor_release(result);
    }
    tensor_call_deinit(&p);
    return status;
}

/* ---- works ---- */

struct ag_work {
    atomic_int refs; /* the user's, and one until the call has run */
    tensor_call call;
    group_work *work;
};

static void work_drop(ag_work *w) {
    if (atomic_fetch_sub_explicit(&w->refs, 1, memory_order_acq_rel) != 1) return;
    group_work_release(w->work);
    tensor_call_deinit(&w->call);
    heap_free(w);
}

static void work_done(void *context, ag_status status) {
    (void)status;
    work_drop(context);
}

/* The worker may be the last to let go of the input, and what a graph holds may belong to the thread that made it. */
static ag_status leave_graph(tensor_call *p) {
    if (!p->input || !p->input->node) return AG_OK;
    ag_tensor *alias;
    AG_TRY(tensor_alias(p->input, &alias));
    tensor_release(p->input);
    p->input = alias;
    return AG_OK;
}

ag_status ag_collective_start(ag_group *group, const ag_collective *c, ag_work **out) {
    tensor_call p = {0};
    group_request request;
    ag_work *w = NULL;
    ag_status status = make_request(group, c, &p, &request);
    if (status == AG_OK) status = error_in(leave_graph(&p), c->kind);
    if (status == AG_OK) {
        w = heap_alloc_zero(sizeof *w);
        if (!w) status = error_memory(c->kind, sizeof *w);
    }
    if (status == AG_OK) {
        atomic_init(&w->refs, 2);
        w->call = p;
        request.done = work_done;
        request.context = w;
        status = group_start(group, &request, &w->work);
    }
    if (status != AG_OK) {
        tell_refusal(group, &p);
        tensor_call_deinit(&p);
        heap_free(w);
        return status;
    }
    /* From now on until the work is waited for, what `out` holds is not defined. */
    if (p.is_given) tensor_bump_version(p.output);
    *out = w;
    return AG_OK;
}

bool ag_work_is_done(const ag_work *work) { return group_work_is_done(work->work); }

ag_status ag_work_wait(ag_work *work, double timeout_s, ag_tensor **out) {
    AG_TRY(group_wait(work->work, timeout_s));
    tensor_call *p = &work->call;
    if (p->output && p->is_given) tensor_bump_version(p->output);
    p->is_given = false;
    /* A second wait gives the same result again. */
    if (out) *out = p->output ? tensor_retain(p->output) : NULL;
    return AG_OK;
}

void ag_work_release(ag_work *work) {
    if (work) work_drop(work);
}

/* ---- asked about ---- */

const char *ag_collective_plan(ag_group *group, const ag_collective *c, char *buffer, size_t len) {
    tensor_call p = {0};
    const ag_error before = *error_record();
    ag_status status = tensor_call_parse(c, group->rank, group->size, &p);
    if (status == AG_OK) status = tensor_call_prepare(c, &p);
    if (status != AG_OK) {
        snprintf(buffer, len, "%s", error_record()->message);
    } else if (!group->transport) {
        snprintf(buffer, len, "one rank: nothing to do");
    } else {
        collective_call call = p.call;
        if (call.algorithm == ALGORITHM_ANY) call.algorithm = transport_choose(group->transport, &call);
        size_t end = (size_t)snprintf(buffer, len, "%s over %s:", algorithm_name(call.algorithm), group->ops->name);
        for (const collective_algorithm *a = algorithm_list(call.kind); *a != ALGORITHM_ANY && end < len; a++) {
            call.algorithm = *a;
            end += (size_t)snprintf(buffer + end, len - end, "%s %s %.3g ms", a == algorithm_list(call.kind) ? "" : ",",
                                    algorithm_name(*a), 1e3 * transport_time_s(group->transport, &call));
        }
    }
    tensor_call_deinit(&p);
    *error_record() = before;
    return buffer;
}
