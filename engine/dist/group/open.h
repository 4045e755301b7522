/* open.h: making and ending groups. */
#ifndef ARGAND_DIST_GROUP_OPEN_H
#define ARGAND_DIST_GROUP_OPEN_H

#include "dist/transport/call_print.h"

/* These are ag_group_open, _open_threads, _split, _regroup; see argand.h. making: CALL_SPLIT or CALL_REGISTER, for messages. */
ag_status group_open(const ag_group_options *options, ag_group **out);
ag_status group_open_threads(int size, ag_group **groups);
ag_status group_split(ag_group *parent, const int *ranks, int num_ranks, call_print_flag making, ag_group **out);
ag_status group_regroup(ag_group *g, int min_size, double grace_s, ag_group **out);
/* group_close gives up one holder's reference; works and blocks may hold the group for longer, but it makes no more calls. */
ag_status group_close(ag_group *g, double wait_s, bool says_goodbye);

#endif
