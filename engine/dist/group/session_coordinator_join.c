/* session_coordinator_join.c: how ranks come to the coordinator, who is refused and why, and when the table is closed. */
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "core/error.h"
#include "core/memory.h"
#include "dist/group/session_internal.h"
#include "platform/clock.h"

#define SPARE_FDS          64
#define REGROUP_FRESH_NS   (10 * REGROUP_HELLO_NS)
#define REGROUP_SPACING_NS (20 * MILLISECOND_NS)
#define REST_MS            200

/* ---- making it ---- */

/* Each rank is a connection, and each of this host a pidfd. */
static ag_status check_fds(int size) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return AG_OK;
    unsigned long long needed = (unsigned long long)size * 2 + SPARE_FDS;
    if (needed <= (unsigned long long)limit.rlim_cur) return AG_OK;
    return error_set(AG_E_NETWORK, NULL, NULL, NULL, "raise it with ulimit -n",
                     "rank 0 of %d ranks needs up to %llu open files, the limit is %llu", size, needed,
                     (unsigned long long)limit.rlim_cur);
}

static ag_status listen_at(coordinator *c, const session_setup *setup, const session_join *join) {
    if (join->listener) {
        c->router = join->listener;
        snprintf(c->endpoint, sizeof c->endpoint, "%s", join->endpoint);
        return AG_OK;
    }
    socket_settings settings = {.max_message_bytes = 2 * MESSAGE_MAX_EXCHANGE,
                                .send_queue = 64,
                                .receive_queue = 64,
                                .linger_ms = REST_MS,
                                .reconnects = true,
                                .use_fd = setup->coordinator_fd};
    return socket_listen(c->session->sockets, SOCKET_ROUTER, &settings, setup->coordinator, &c->router, c->endpoint,
                         sizeof c->endpoint);
}

ag_status coordinator_new(session *s, const session_setup *setup, const session_join *join, coordinator **out) {
    AG_TRY(check_fds(setup->size));
    coordinator *c = heap_alloc_zero(sizeof *c);
    if (!c) return error_memory(NULL, sizeof *c);
    size_t count = (size_t)setup->size;
    c->session = s;
    c->capacity = c->size = setup->size;
    c->own = setup->rank;
    c->join = *join;
    c->timeout_s = setup->init_timeout_s;
    c->last_join_ns = clock_ns();
    c->deadline_ns = c->last_join_ns + session_seconds_ns(setup->init_timeout_s);
    c->members = heap_alloc_zero(count * sizeof *c->members);
    c->has_left = heap_alloc_zero(count * sizeof *c->has_left);
    c->is_given_up = heap_alloc_zero(count * sizeof *c->is_given_up);
    c->buffer_bytes = 8 + count * MESSAGE_MEMBER_BYTES;
    c->buffer = heap_alloc(c->buffer_bytes);
    ag_status status =
        c->members && c->has_left && c->is_given_up && c->buffer ? AG_OK : error_memory(NULL, count * sizeof *c->members);
    if (status == AG_OK && join->is_given_up) memcpy(c->is_given_up, join->is_given_up, count * sizeof *c->is_given_up);
    if (status == AG_OK) status = listen_at(c, setup, join);
    if (status != AG_OK)
        coordinator_free(c);
    else
        *out = c;
    return status;
}

void coordinator_free(coordinator *c) {
    if (!c) return;
    socket_close(c->session->sockets, c->router);
    heap_free(c->members);
    heap_free(c->has_left);
    heap_free(c->is_given_up);
    heap_free(c->buffer);
    shared_bytes_release(c->parts);
    shared_bytes_release(c->answer);
    shared_bytes_release(c->table);
    heap_free(c);
}

/* ---- who may come ---- */

/* Who waits says HELLO every JOIN_HELLO_NS. */
static bool is_silent(const coordinator *c, const coordinator_member *m) {
    const session *s = c->session;
    int64_t most_ns = s->expiry_ns > JOIN_SILENCE_NS ? s->expiry_ns : JOIN_SILENCE_NS;
    return s->link.listened_ns - m->heard_listened_ns > (c->join.is_regroup ? REGROUP_FRESH_NS : most_ns);
}

static bool is_alive(const coordinator *c, const coordinator_member *m) {
    const session *s = c->session;
    if (strcmp(m->who.shown.token, s->own.shown.token) == 0) return watch_is_alive(m->who.shown.pid, m->who.start_time);
    return !is_silent(c, m);
}

/* After the table is closed ranks have new numbers, but a rank that has not got it still says the old one. */
static coordinator_member *find_slot(coordinator *c, int joining_rank) {
    if (!c->is_formed) return &c->members[joining_rank];
    for (int i = 0; i < c->size; i++)
        if (c->members[i].who.old_rank == joining_rank) return &c->members[i];
    return NULL;
}

static bool is_same_process(const message_member *a, const message_member *b) {
    return a->shown.pid == b->shown.pid && a->start_time == b->start_time && strcmp(a->shown.token, b->shown.token) == 0;
}

/* A process that has given up joining and tries again may be heard before its first try's goodbye. It asks again. */
static bool is_too_early(coordinator *c, const message_header *header, const message_hello *hello) {
    if (c->is_formed || header->rank < 0 || header->rank >= c->capacity) return false;
    const coordinator_member *m = &c->members[header->rank];
    return m->is_joined && m->nonce != header->nonce && is_same_process(&m->who, &hello->member) && !is_silent(c, m);
}

/* Fills *report and returns true when the sender may not take part. */
static bool is_refused(coordinator *c, const message_header *header, const message_hello *hello, message_report *report) {
    const session *s = c->session;
    const session_member *who = &hello->member.shown;
    const char *retry = "does another job use this address?";
    int rank = header->rank;
    bool is_regroup = header->flags & MESSAGE_IS_REGROUP;
    if (header->job != s->job || strcmp(hello->job_name, s->job_name) != 0)
        *report = session_report(AG_E_STATE, -1, retry, "the job at %s is \"%s\", not \"%s\"", c->endpoint, s->job_name,
                                 hello->job_name);
    else if (header->epoch < s->epoch)
        *report =
            session_report(AG_E_STATE, -1, NULL, "this rank is of an earlier start of the job (epoch %u, now it is epoch %u)",
                           header->epoch, s->epoch);
    else if (is_regroup != c->join.is_regroup)
        *report = session_report(AG_E_STATE, -1, NULL, "this rank %s the ranks at %s",
                                 is_regroup ? "wants to regroup, not so" : "begins anew, but a regroup is going on among",
                                 c->endpoint);
    else if (header->size != c->capacity)
        *report = session_report(AG_E_STATE, -1, "give all ranks the same size",
                                 "the job at %s has %d ranks, this rank was told %d", c->endpoint, c->capacity, header->size);
    else if (rank < 0 || rank >= c->capacity)
        *report = session_report(AG_E_STATE, -1, NULL, "there is no rank %d in a job of %d ranks", rank, c->capacity);
    else {
        coordinator_member *m = find_slot(c, rank);
        bool is_same = m && m->is_joined && m->nonce == header->nonce;
        if (is_same) return false;
        if (m && m->is_joined && (c->is_formed || (is_alive(c, m) && !is_same_process(&m->who, &hello->member))))
            *report = session_report(AG_E_STATE, -1, "give each process a rank of its own",
                                     "rank %d is taken by another process (host %s, pid %lld)", rank, m->who.shown.host,
                                     (long long)m->who.shown.pid);
        else if (c->is_formed)
            *report = session_report(AG_E_PEER, -1, NULL, "the others have gone on without rank %d (host %s, pid %lld)", rank,
                                     who->host, (long long)who->pid);
        else
            return false;
    }
    return true;
}

static void refuse(coordinator *c, const socket_route *route, const message_header *header, const message_report *report) {
    unsigned char bytes[MESSAGE_REPORT_BYTES];
    message_header answer = {.kind = MESSAGE_REFUSED, .rank = header ? header->rank : -1, .nonce = header ? header->nonce : 0};
    coordinator_send(c, route, answer, bytes, message_pack_report(report, bytes));
    snprintf(c->refusal, sizeof c->refusal, "refused: %.140s", report->reason);
}

/* Without memory nothing is sent: HELLO is repeated, and there may be some then. */
static void send_table(coordinator *c, int rank) {
    if (!c->table) {
        message_member *members = heap_alloc((size_t)c->size * sizeof *members);
        for (int i = 0; i < c->size && members; i++) members[i] = c->members[i].who;
        size_t len = members ? message_pack_table(members, c->size, c->buffer) : 0;
        c->table = members ? shared_bytes_new(len) : NULL;
        heap_free(members);
        if (!c->table) return;
        memcpy(c->table->bytes, c->buffer, len);
    }
    coordinator_send_shared(c, rank, MESSAGE_TABLE, (uint64_t)c->own, c->table);
}

/* Who waits watches us from then on. */
static ag_status send_wait(coordinator *c, int rank) {
    size_t len = message_pack_table(&c->session->own, 1, c->buffer);
    return coordinator_send_to(c, rank, MESSAGE_WAIT, 0, 0, c->buffer, len);
}

static void admit(coordinator *c, coordinator_member *m, const message_header *header, const message_hello *hello) {
    int64_t now_ns = c->session->link.now_ns;
    if (!m->is_joined) c->num_joined++;
    *m = (coordinator_member){.who = hello->member, .nonce = header->nonce, .is_joined = true};
    m->who.old_rank = header->rank;
    m->admitted_listened_ns = c->session->link.listened_ns;
    if (!c->join.is_regroup) session_watch(c->session, header->rank, &m->who); /* in a regroup the dead are passed over */
    c->last_join_ns = now_ns;
    int64_t deadline_ns = now_ns + session_seconds_ns(hello->left_s);
    if (!c->join.is_regroup && deadline_ns < c->deadline_ns) {
        c->deadline_ns = deadline_ns;
        c->timeout_s = hello->timeout_s;
    }
}

void coordinator_take_hello(coordinator *c, const socket_route *route, const message_header *header, const void *payload) {
    session *s = c->session;
    message_hello hello;
    message_report report;
    if (!header) {
        report = session_report(AG_E_STATE, -1, NULL, "this rank's version of the protocol is another one");
        refuse(c, route, NULL, &report);
        return;
    }
    if (!message_unpack_hello(payload, header->payload_bytes, &hello)) return;
    if (header->job == s->job && header->epoch > s->epoch) return; /* its coordinator is not there yet: it asks again */
    if (is_too_early(c, header, &hello)) return;
    if (is_refused(c, header, &hello, &report)) {
        refuse(c, route, header, &report);
        return;
    }
    coordinator_member *m = find_slot(c, header->rank);
    if (!m->is_joined || m->nonce != header->nonce) admit(c, m, header, &hello);
    m->route = *route;
    m->has_no_route = false;
    m->heard_listened_ns = s->link.listened_ns;
    m->heard_ns = s->link.now_ns;
    int rank = (int)(m - c->members);
    if (c->has_failed)
        coordinator_notify(c, rank, MESSAGE_REFUSED);
    else if (!c->is_formed)
        send_wait(c, rank);
    else
        send_table(c, rank);
}

/* ---- closing the table ---- */

void coordinator_fail(coordinator *c, const message_report *report) {
    if (c->is_formed || c->has_failed) return;
    c->has_failed = true;
    c->report = *report;
    for (int i = 0; i < c->capacity; i++)
        if (c->members[i].is_joined) coordinator_notify(c, i, MESSAGE_REFUSED);
    session_fail(c->session, report);
}

/* What a rank said to a candidate before it went to another one is read all at once, later. A rank that waits says HELLO
 * again. */
static bool goes_on_waiting(const coordinator *c, const coordinator_member *m) {
    if (!m->is_joined) return false;
    return !c->join.is_regroup || m->heard_listened_ns - m->admitted_listened_ns >= REGROUP_SPACING_NS;
}

static void drop_the_dead(coordinator *c) {
    const session *s = c->session;
    for (int i = 0; i < c->capacity; i++) {
        coordinator_member *m = &c->members[i];
        if (!m->is_joined || i == s->joining_rank || (is_alive(c, m) && !is_silent(c, m) && goes_on_waiting(c, m))) continue;
        m->is_joined = false;
        c->num_joined--;
    }
}

static void close_table(coordinator *c) {
    int size = 0;
    for (int i = 0; i < c->capacity; i++) {
        if (!c->members[i].is_joined) continue;
        if (i == c->session->joining_rank) c->own = size;
        c->members[size++] = c->members[i];
    }
    for (int i = size; i < c->capacity; i++) c->members[i].is_joined = false;
    c->size = size;
    c->is_formed = true;
    for (int i = 0; i < size; i++) send_table(c, i);
}

static message_report missing_report(coordinator *c, ag_status code, const char *format_is, double seconds) {
    bool *missing = (bool *)c->buffer;
    char list[160], told[200] = "";
    int num_missing = 0;
    for (int i = 0; i < c->capacity; i++) {
        missing[i] = !c->members[i].is_joined && !c->is_given_up[i];
        num_missing += missing[i];
    }
    if (c->refusal[0]) snprintf(told, sizeof told, "somebody was %s", c->refusal);
    session_list_ranks(missing, c->capacity, list, sizeof list);
    message_report report = session_report(code, -1, told, "%s of %d %s not %s within %g s at %.100s", list, c->capacity,
                                           num_missing == 1 ? "has" : "have", format_is, seconds, c->endpoint);
    for (int i = 0; i < c->capacity && report.num_culprits < AG_MAX_CULPRITS; i++)
        if (missing[i]) report.culprits[report.num_culprits++] = i;
    return report;
}

static bool is_waited_for(const coordinator *c, int rank) {
    bool is_gone = c->join.is_gone && atomic_load_explicit(&c->join.is_gone[rank], memory_order_relaxed) != 0;
    return !goes_on_waiting(c, &c->members[rank]) && !c->is_given_up[rank] && !is_gone;
}

static bool all_are_there(const coordinator *c) {
    for (int i = 0; i < c->capacity; i++)
        if (is_waited_for(c, i)) return false;
    return true;
}

static void tick_regroup(coordinator *c) {
    int64_t now_ns = c->session->link.now_ns, grace_ns = session_seconds_ns(c->join.grace_s);
    bool is_over = now_ns >= c->last_join_ns + grace_ns || now_ns >= c->deadline_ns;
    session_wake_by(c->session, now_ns + REPEAT_NS); /* somebody who is waited for may have ended */
    if (!is_over && !all_are_there(c)) return;
    drop_the_dead(c);
    if (!is_over && !all_are_there(c)) return;
    bool has_itself = c->members[c->own].is_joined;
    if (has_itself && c->num_joined >= c->join.min_size) {
        close_table(c);
        return;
    }
    message_report report = missing_report(c, AG_E_PEER, "come", c->join.grace_s);
    snprintf(report.hint, sizeof report.hint, "%d ranks are there, at least %d are wanted", c->num_joined, c->join.min_size);
    coordinator_fail(c, &report);
}

/* A process of another host that has ended leaves a closed connection; one that lives dials again. */
static bool has_hung_up(coordinator *c, int rank) {
    session *s = c->session;
    coordinator_member *m = &c->members[rank];
    int64_t silence_ns = s->link.listened_ns - m->heard_listened_ns;
    if (!m->is_joined || rank == c->own || s->watch.pidfds[rank] >= 0 || silence_ns < 2 * JOIN_HELLO_NS) return false;
    if (s->link.now_ns >= m->next_probe_ns) {
        m->next_probe_ns = s->link.now_ns + REPEAT_NS;
        m->has_no_route = send_wait(c, rank) == AG_E_PEER;
    }
    session_wake_by(s, m->next_probe_ns);
    return m->has_no_route && silence_ns > LOST_NS;
}

/* The first rank that has said HELLO and is lost before the table is closed, -1 = none. */
static int find_loss(coordinator *c, bool *has_ended) {
    session_link *l = &c->session->link;
    for (int i = 0; i < c->capacity; i++) {
        *has_ended = l->gone_ns[i] != 0;
        if (*has_ended) session_wake_by(c->session, l->gone_ns[i] + JOIN_WORDS_NS);
        if (*has_ended ? l->now_ns >= l->gone_ns[i] + JOIN_WORDS_NS : has_hung_up(c, i)) return i;
    }
    return -1;
}

/* Nobody waits for its time to be over when one is known not to come. */
static void fail_without(coordinator *c, int rank, bool has_ended) {
    coordinator_member *m = &c->members[rank];
    message_report report =
        session_report(AG_E_PEER, rank, NULL, "rank %d (host %s, pid %lld) has %s while the others were joining", rank,
                       m->who.shown.host, (long long)m->who.shown.pid, has_ended ? "ended" : "closed its connection");
    if (m->is_joined) c->num_joined--;
    m->is_joined = false; /* it is told nothing */
    coordinator_fail(c, &report);
}

void coordinator_tick_joining(coordinator *c) {
    if (c->has_failed) return;
    if (c->join.is_regroup) {
        tick_regroup(c);
        return;
    }
    bool has_ended;
    int lost = find_loss(c, &has_ended);
    if (lost >= 0) {
        fail_without(c, lost, has_ended);
        return;
    }
    session_wake_by(c->session, c->deadline_ns);
    if (c->num_joined == c->capacity) {
        drop_the_dead(c);
        if (c->num_joined == c->capacity) {
            close_table(c);
            return;
        }
    }
    if (c->session->link.now_ns < c->deadline_ns) return;
    drop_the_dead(c);
    message_report report = missing_report(c, AG_E_TIMEOUT, "joined", c->timeout_s);
    coordinator_fail(c, &report);
}
