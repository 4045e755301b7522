/* dist.c: groups in argand.h: making and ending them, and what they tell of themselves. */
#include <stdio.h>
#include <string.h>

#include "core/error.h"
#include "dist/group/open.h"
#include "dist/group/world.h"

bool ag_dist_is_available(void) { return socket_is_available(); }

ag_status ag_keygen(const char *path) {
    socket_keys keys;
    AG_TRY(error_in(socket_keys_make(&keys), "keygen"));
    ag_status status = error_in(socket_keys_write(path, &keys), "keygen");
    explicit_bzero(&keys, sizeof keys);
    return status;
}

ag_status ag_group_open(const ag_group_options *options, ag_group **out) { return error_in(group_open(options, out), "group"); }
ag_status ag_group_open_threads(int size, ag_group **groups) { return error_in(group_open_threads(size, groups), "group"); }

ag_status ag_group_split(ag_group *parent, const int *ranks, int num_ranks, ag_group **out) {
    return error_in(group_split(parent, ranks, num_ranks, CALL_SPLIT, out), "group");
}

ag_status ag_group_close(ag_group *group, double wait_s) { return group ? group_close(group, wait_s, true) : AG_OK; }

void ag_group_free(ag_group *group) {
    if (group) group_close(group, 0, false);
}

ag_status ag_group_regroup(ag_group *group, int min_size, double grace_s, ag_group **out) {
    return error_in(group_regroup(group, min_size, grace_s, out), "regroup");
}

void ag_group_abort(ag_group *group, const char *reason) {
    if (cancel_is_raised(group->world->cancel)) return;
    const ag_error before = *error_record();
    if (!reason) reason = "";
    int32_t own = group->world->rank;
    int first_line = (int)strcspn(reason, "\n"); /* the rest is a traceback, of use on that rank only */
    error_set(AG_E_PEER, "abort", NULL, NULL, NULL, "rank %d failed: %.*s", (int)own, first_line < 200 ? first_line : 200,
              reason);
    error_set_culprits(&own, 1, 0);
    world_end(group->world);
    *error_record() = before;
}

int ag_group_rank(const ag_group *group) { return group->rank; }
int ag_group_size(const ag_group *group) { return group->size; }

int ag_group_world_rank(const ag_group *group, int rank) {
    return rank >= 0 && rank < group->size ? group->world_ranks[rank] : -1;
}

uint32_t ag_group_epoch(const ag_group *group) { return group->world->epoch; }
const char *ag_group_transport(const ag_group *group) { return group->ops ? group->ops->name : "none"; }
bool ag_group_is_encrypted(const ag_group *group) {
    return group->world->key_file[0] && group->ops && strcmp(group->ops->name, "shm") != 0;
}
bool ag_group_has_ended(const ag_group *group) { return group->is_closed || cancel_is_raised(group->world->cancel); }

void ag_group_note(ag_group *group, const char *text) {
    if (group->world->session) session_note_text(group->world->session, text);
}

void ag_group_stats_read(const ag_group *group, ag_group_stats *out) {
    transport_stats stats = {0};
    group_stats((ag_group *)group, &stats);
    *out = (ag_group_stats){stats.num_calls, stats.bytes_moved, stats.num_messages, stats.num_rejected};
}
