/* ddp.c: the data-parallel part of argand.h: arguments are checked here, the rest is dist/ddp. */
#include "dist/ddp/ddp.h"

#include <stdio.h>

#include "core/error.h"

static ag_status check_items(const ag_ddp_item *items, int num_items, const char *what) {
    if (num_items < 0 || (num_items > 0 && !items))
        return error_set(AG_E_ARGUMENT, "register", what, "a list", NULL, "%d of them", num_items);
    for (int i = 0; i < num_items; i++)
        if (!items[i].name || !items[i].tensor)
            return error_set(AG_E_ARGUMENT, "register", what, "a name and a tensor", NULL, "NULL at position %d", i + 1);
    return AG_OK;
}

ag_status ag_ddp_open(ag_group *group, const ag_ddp_item *parameters, int num_parameters, const ag_ddp_item *buffers,
                      int num_buffers, const ag_ddp_options *options, ag_ddp **out) {
    AG_TRY(check_items(parameters, num_parameters, "parameters"));
    AG_TRY(check_items(buffers, num_buffers, "buffers"));
    return ddp_open(group, parameters, num_parameters, buffers, num_buffers, options, out);
}

void ag_ddp_free(ag_ddp *ddp) { ddp_free(ddp); }
ag_status ag_ddp_check(ag_tensor *tensor) { return ddp_check(tensor); }

ag_ddp *ag_ddp_find(const ag_tensor *tensor, ag_ddp_place *place) {
    const ddp_slot *slot = ddp_slot_of(tensor);
    if (!slot) return NULL;
    if (place)
        *place = (ag_ddp_place){.name = slot->name,
                                .position = slot->position,
                                .bucket = slot->bucket,
                                .owner = slot->owner,
                                .offset = slot->offset};
    return slot->ddp;
}

void ag_ddp_set_accumulating(ag_ddp *ddp, bool is_accumulating) { ddp->is_accumulating = is_accumulating; }
bool ag_ddp_is_accumulating(const ag_ddp *ddp) { return ddp->is_accumulating; }
ag_status ag_ddp_sync(ag_ddp *ddp, bool contributes, ag_ddp_result *out) { return ddp_sync(ddp, contributes, out); }
ag_status ag_ddp_verify(ag_ddp *ddp) { return ddp_verify(ddp); }
ag_status ag_ddp_share(ag_ddp *ddp) { return ddp_share(ddp); }
const char *ag_ddp_report(const ag_ddp *ddp) { return ddp->report; }
void ag_ddp_stats_read(const ag_ddp *ddp, ag_ddp_stats *out) { *out = ddp->stats; }
