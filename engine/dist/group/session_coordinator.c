/* session_coordinator.c: the ROUTER side of a session once its table is closed: beats, deaths, abort, exchange, goodbyes.
 *
 * It runs in the service thread of rank 0 and never waits: a message for which a route has no room is dropped, and said again
 * when the rank asks again or its notice is due.
 */
#include <stdio.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "dist/group/session_internal.h"

#define LAST_WORDS_NS (20 * MILLISECOND_NS) /* of a process that has ended: its goodbye may be underway */
#define LOOK_NS       (2 * MILLISECOND_NS)
#define LAG_NS        SECOND_NS
#define MAX_PER_ROUND 4096

/* ---- sending ---- */

static void pack_header(const coordinator *c, message_header header, size_t len, unsigned char bytes[MESSAGE_HEADER_BYTES]) {
    header.version = MESSAGE_VERSION;
    header.job = c->session->job;
    header.epoch = c->session->epoch;
    header.size = c->size;
    header.payload_bytes = (uint32_t)len;
    message_pack(&header, bytes);
}

ag_status coordinator_send(coordinator *c, const socket_route *route, message_header header, const void *payload, size_t len) {
    unsigned char bytes[MESSAGE_HEADER_BYTES];
    pack_header(c, header, len, bytes);
    bool sent;
    return socket_send(c->router, route, bytes, sizeof bytes, len > 0 ? payload : NULL, len, NULL, NULL, &sent);
}

shared_bytes *shared_bytes_new(size_t len) {
    shared_bytes *b = heap_alloc(sizeof *b + len);
    if (!b) return NULL;
    atomic_init(&b->refs, 1);
    b->len = len;
    return b;
}

void shared_bytes_release(shared_bytes *b) {
    /* The last one must see that all others have read. */
    if (b && atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel) == 1) heap_free(b);
}

static void release_bytes(void *payload, void *context) {
    (void)payload;
    shared_bytes_release(context);
}

void coordinator_send_shared(coordinator *c, int rank, message_kind kind, uint64_t sequence, shared_bytes *b) {
    const coordinator_member *m = &c->members[rank];
    message_header header = {.kind = (uint16_t)kind, .rank = rank, .sequence = sequence, .nonce = m->nonce};
    if (b->len == 0) {
        (void)coordinator_send(c, &m->route, header, NULL, 0);
        return;
    }
    unsigned char bytes[MESSAGE_HEADER_BYTES];
    pack_header(c, header, b->len, bytes);
    bool sent = false;
    atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);
    (void)socket_send(c->router, &m->route, bytes, sizeof bytes, b->bytes, b->len, release_bytes, b, &sent);
    if (!sent) shared_bytes_release(b);
}

ag_status coordinator_send_to(coordinator *c, int rank, message_kind kind, uint32_t flags, uint64_t sequence,
                              const void *payload, size_t len) {
    const coordinator_member *m = &c->members[rank];
    message_header header = {.kind = (uint16_t)kind, .flags = flags, .rank = rank, .sequence = sequence, .nonce = m->nonce};
    return coordinator_send(c, &m->route, header, payload, len);
}

static bool has_ended(const coordinator *c, bool *all_left) {
    *all_left = true;
    for (int i = 0; i < c->size; i++) {
        if (!c->has_left[i]) *all_left = false;
        if (!c->has_left[i] && !c->members[i].is_gone) return false;
    }
    return true;
}

static ag_status send_left(coordinator *c, int rank, message_kind kind) {
    bool all_left;
    uint32_t flags = has_ended(c, &all_left) ? MESSAGE_ENDED | (all_left ? MESSAGE_ALL_LEFT : 0) : 0;
    size_t len = message_pack_left(c->has_left, c->size, c->members[c->own].progress.entered, c->buffer);
    return coordinator_send_to(c, rank, kind, flags, 0, c->buffer, len);
}

static void send_notice(coordinator *c, int rank) {
    coordinator_member *m = &c->members[rank];
    m->notice_next_ns = c->session->link.now_ns + REPEAT_NS;
    if (m->notice == MESSAGE_LEFT) {
        send_left(c, rank, MESSAGE_LEFT);
        return;
    }
    unsigned char bytes[MESSAGE_REPORT_BYTES];
    coordinator_send_to(c, rank, (message_kind)m->notice, 0, 0, bytes, message_pack_report(&c->report, bytes));
}

void coordinator_notify(coordinator *c, int rank, message_kind kind) {
    coordinator_member *m = &c->members[rank];
    m->notice = kind;
    m->notice_end_ns = c->session->link.now_ns + NOTICE_NS;
    send_notice(c, rank);
}

/* ---- ends ---- */

void coordinator_abort(coordinator *c, const message_report *report) {
    if (c->has_aborted || !c->is_formed) return;
    c->has_aborted = true;
    c->report = *report;
    session *s = c->session;
    for (int i = 0; i < c->size; i++)
        if (i != c->own && !c->has_left[i]) coordinator_notify(c, i, MESSAGE_ABORT);
    s->link.is_aborted = true;
    if (!s->link.is_leaving) session_raise(s, report);
}

static void tell_ends(coordinator *c) {
    bool all_left;
    if (!has_ended(c, &all_left)) return;
    for (int i = 0; i < c->size; i++)
        if (c->has_left[i]) coordinator_notify(c, i, MESSAGE_LEFT);
}

static void lose(coordinator *c, int rank, const message_report *report) {
    c->members[rank].is_gone = true;
    coordinator_abort(c, report);
    tell_ends(c);
}

/* A process of another host that has ended leaves a closed connection; one that lives dials again. */
static bool has_hung_up(coordinator *c, int rank, int64_t silence_ns) {
    session *s = c->session;
    coordinator_member *m = &c->members[rank];
    if (silence_ns < 2 * s->heartbeat_ns) return false;
    if (s->link.now_ns >= m->next_probe_ns) {
        m->next_probe_ns = s->link.now_ns + REPEAT_NS;
        m->has_no_route = send_left(c, rank, MESSAGE_ECHO) == AG_E_PEER;
    }
    session_wake_by(s, m->next_probe_ns);
    return m->has_no_route && silence_ns > LOST_NS + 2 * s->heartbeat_ns;
}

static void check_losses(coordinator *c) {
    session *s = c->session;
    session_link *l = &s->link;
    for (int i = 0; i < c->size; i++) {
        coordinator_member *m = &c->members[i];
        const session_member *who = &m->who.shown;
        if (i == c->own || m->is_gone || c->has_left[i]) continue;
        int64_t silence_ns = l->listened_ns - m->heard_listened_ns;
        message_report report;
        if (l->gone_ns[i] != 0) {
            session_wake_by(s, l->now_ns + LOOK_NS);
            /* A route goes after all that came through it was read. */
            bool is_read = send_left(c, i, MESSAGE_ECHO) == AG_E_PEER;
            if (!is_read && l->now_ns < l->gone_ns[i] + LAST_WORDS_NS) continue;
            report = session_report(AG_E_PEER, i, NULL, "rank %d (host %s, pid %lld) has ended without closing", i, who->host,
                                    (long long)who->pid);
        } else if (has_hung_up(c, i, silence_ns)) {
            report =
                session_report(AG_E_PEER, i, NULL, "rank %d (host %s, pid %lld) has closed its connection without a goodbye", i,
                               who->host, (long long)who->pid);
        } else if (silence_ns > s->expiry_ns) {
            report = session_report(
                AG_E_PEER, i, NULL,
                "rank %d (host %s, pid %lld) has not been heard of for %.1f s: it is stopped, overloaded or cut off", i,
                who->host, (long long)who->pid, (double)silence_ns * 1e-9);
        } else {
            continue;
        }
        lose(c, i, &report);
    }
}

/* A rank in a call that another one never entered before it left would wait for ever. */
static void check_lag(coordinator *c) {
    int leaver = -1, waiter = -1;
    for (int i = 0; i < c->size; i++) {
        const message_progress *p = &c->members[i].progress;
        int *best = c->has_left[i] ? &leaver : &waiter;
        uint64_t now = *best < 0 ? 0 : c->members[*best].progress.entered;
        if (*best < 0 || (c->has_left[i] ? p->entered < now : p->entered > now)) *best = i;
    }
    if (leaver < 0 || waiter < 0 || c->has_aborted) return;
    message_report report;
    if (c->num_given > 0) {
        report = session_report(AG_E_PEER, leaver, NULL, "rank %d has closed its group and takes no part in what others set up",
                                leaver);
        coordinator_abort(c, &report);
        return;
    }
    session_link *l = &c->session->link;
    const message_progress *left = &c->members[leaver].progress, *waits = &c->members[waiter].progress;
    if (waits->entered <= left->entered) {
        c->lagging_ns = 0;
        return;
    }
    if (c->lagging_ns == 0) c->lagging_ns = l->now_ns;
    session_wake_by(c->session, c->lagging_ns + LAG_NS);
    if (l->now_ns < c->lagging_ns + LAG_NS) return;
    report = session_report(AG_E_PEER, leaver, NULL, "rank %d has closed its group at call %llu, rank %d is in call %llu%s%s%s",
                            leaver, (unsigned long long)left->entered, waiter, (unsigned long long)waits->entered,
                            waits->text[0] ? " (" : "", waits->text, waits->text[0] ? ")" : "");
    coordinator_abort(c, &report);
}

void coordinator_tick(coordinator *c) {
    session_link *l = &c->session->link;
    if (!c->is_formed) coordinator_tick_joining(c);
    if (c->is_formed) {
        check_losses(c);
        check_lag(c);
    }
    for (int i = 0; i < c->size; i++) {
        coordinator_member *m = &c->members[i];
        if (!m->is_joined || m->notice == 0 || m->is_gone || l->now_ns > m->notice_end_ns) continue;
        if (l->now_ns >= m->notice_next_ns) send_notice(c, i);
        session_wake_by(c->session, m->notice_next_ns);
    }
}

bool coordinator_may_end(coordinator *c) {
    session_link *l = &c->session->link;
    if (c->end_ns == 0) {
        c->end_ns = l->now_ns + FAREWELL_NS;
        message_report report = session_report(AG_E_PEER, c->session->joining_rank, NULL,
                                               "rank %d gave up while the others were joining", c->session->joining_rank);
        coordinator_fail(c, &report);
    }
    session_wake_by(c->session, c->end_ns);
    if (l->now_ns >= c->end_ns) return true;
    for (int i = 0; i < c->size; i++) {
        const coordinator_member *m = &c->members[i];
        if (i != c->own && m->is_joined && m->notice != 0 && !m->is_gone && l->now_ns <= m->notice_end_ns) return false;
    }
    return true;
}

/* ---- exchange ---- */

static void send_missing(coordinator *c, int rank) {
    message_report report = {.code = AG_E_TIMEOUT};
    bool *missing = (bool *)c->buffer;
    for (int i = 0; i < c->size; i++) {
        missing[i] = c->members[i].exchange <= c->answered;
        if (missing[i] && report.num_culprits < AG_MAX_CULPRITS) report.culprits[report.num_culprits++] = i;
    }
    session_list_ranks(missing, c->size, report.reason, sizeof report.reason);
    unsigned char bytes[MESSAGE_REPORT_BYTES];
    coordinator_send_to(c, rank, MESSAGE_PENDING, 0, c->answered + 1, bytes, message_pack_report(&report, bytes));
}

static bool begin_exchange(coordinator *c, size_t len) {
    c->exchange_bytes = len;
    c->parts = shared_bytes_new((size_t)c->size * len);
    if (c->parts) return true;
    message_report report = session_report(AG_E_MEMORY, c->own, NULL, "rank %d has no memory for an exchange of %zu bytes",
                                           c->own, (size_t)c->size * len);
    coordinator_abort(c, &report);
    return false;
}

static void answer_exchange(coordinator *c) {
    shared_bytes_release(c->answer);
    c->answer = c->parts;
    c->parts = NULL;
    c->answered++;
    c->num_given = 0;
    for (int i = 0; i < c->size; i++) coordinator_send_shared(c, i, MESSAGE_EXCHANGED, c->answered, c->answer);
}

static void take_exchange(coordinator *c, int rank, const message_header *header, const void *payload) {
    coordinator_member *m = &c->members[rank];
    size_t len = header->payload_bytes;
    if (c->has_aborted || len > MESSAGE_MAX_EXCHANGE) return;
    if (header->sequence == c->answered && c->answered > 0) {
        coordinator_send_shared(c, rank, MESSAGE_EXCHANGED, c->answered, c->answer);
        return;
    }
    if (header->sequence != c->answered + 1) return;
    if (m->exchange < header->sequence) {
        if (c->num_given == 0 && !begin_exchange(c, len)) return;
        if (len != c->exchange_bytes) {
            message_report report = session_report(AG_E_MISMATCH, rank, "do all ranks run the same script?",
                                                   "rank %d gives %zu bytes to exchange %llu, others %zu", rank, len,
                                                   (unsigned long long)header->sequence, c->exchange_bytes);
            coordinator_abort(c, &report);
            return;
        }
        m->exchange = header->sequence;
        if (len > 0) memcpy(c->parts->bytes + (size_t)rank * len, payload, len);
        c->num_given++;
    }
    if (c->num_given == c->size)
        answer_exchange(c);
    else
        send_missing(c, rank);
}

/* ---- receiving ---- */

static void take_progress(coordinator *c, int rank, const message_header *header, const void *payload) {
    message_progress progress;
    if (!message_unpack_progress(payload, header->payload_bytes, &progress)) return;
    c->members[rank].progress = progress;
    c->members[rank].changed_ns = c->session->link.now_ns - (int64_t)(progress.since_s * 1e9);
}

static void take_leave(coordinator *c, int rank, const message_header *header, const void *payload) {
    coordinator_member *m = &c->members[rank];
    if (!c->has_left[rank] && !m->is_gone) {
        take_progress(c, rank, header, payload);
        if (header->flags & MESSAGE_IS_CLOSING) {
            c->has_left[rank] = true;
            if (m->notice == MESSAGE_ABORT) m->notice = 0;
            for (int i = 0; i < c->size; i++)
                if (i != rank) send_left(c, i, MESSAGE_ECHO);
        } else {
            m->is_gone = true;
            message_report report =
                session_report(AG_E_PEER, rank, NULL, "rank %d (host %s, pid %lld) has left without closing", rank,
                               m->who.shown.host, (long long)m->who.shown.pid);
            coordinator_abort(c, &report);
        }
        tell_ends(c);
    }
    send_left(c, rank, MESSAGE_LEFT);
}

static void take_ask(coordinator *c, int rank, const message_header *header) {
    session_progress *table = heap_alloc((size_t)c->size * sizeof *table);
    if (!table) return;
    coordinator_progress(c, table);
    size_t len = message_pack_progress_table(table, c->size, c->buffer);
    coordinator_send_to(c, rank, MESSAGE_PROGRESS, 0, header->sequence, c->buffer, len);
    heap_free(table);
}

void coordinator_progress(coordinator *c, session_progress *table) {
    int64_t now_ns = c->session->link.now_ns;
    for (int i = 0; i < c->size; i++) {
        const coordinator_member *m = &c->members[i];
        table[i] = m->progress;
        table[i].since_s = m->changed_ns == 0 ? 0 : (double)(now_ns - m->changed_ns) * 1e-9;
        table[i].beat_age_s = (double)(now_ns - m->heard_ns) * 1e-9;
        table[i].has_left = c->has_left[i];
    }
}

static void take_abort(coordinator *c, int rank, const message_header *header, const void *payload) {
    message_report report;
    if (c->has_left[rank] || !message_unpack_report(payload, header->payload_bytes, c->size, &report)) return;
    coordinator_abort(c, &report);
    if (c->members[rank].notice != MESSAGE_ABORT) coordinator_notify(c, rank, MESSAGE_ABORT);
}

static void take_member_message(coordinator *c, int rank, const message_header *header, const void *payload) {
    coordinator_member *m = &c->members[rank];
    switch (header->kind) {
    case MESSAGE_BEAT:
        if (!c->has_left[rank]) take_progress(c, rank, header, payload);
        send_left(c, rank, MESSAGE_ECHO);
        if (m->notice == MESSAGE_ABORT) coordinator_notify(c, rank, MESSAGE_ABORT);
        break;
    case MESSAGE_ABORT: take_abort(c, rank, header, payload); break;
    case MESSAGE_EXCHANGE: take_exchange(c, rank, header, payload); break;
    case MESSAGE_ASK: take_ask(c, rank, header); break;
    case MESSAGE_LEAVE: take_leave(c, rank, header, payload); break;
    default: break;
    }
}

static void withdraw(coordinator *c, int rank) {
    if (!c->members[rank].is_joined) return;
    watch_drop(&c->session->watch, rank); /* it may end now */
    c->session->link.gone_ns[rank] = 0;
    c->members[rank].is_joined = false;
    c->num_joined--;
}

static bool is_from(const coordinator *c, int rank, const message_header *header) {
    return c->members[rank].is_joined && c->members[rank].nonce == header->nonce;
}

/* In a regroup a rank that goes before it has got the table says its old number. -1: a stranger. */
static int find_sender(const coordinator *c, const message_header *header) {
    if (header->rank >= 0 && header->rank < c->size && is_from(c, header->rank, header)) return header->rank;
    for (int i = 0; i < c->size; i++)
        if (is_from(c, i, header)) return i;
    return -1;
}

static void take_message(coordinator *c, const socket_route *route, const socket_message *message) {
    session *s = c->session;
    message_header header;
    message_verdict verdict = message_unpack(message->header, message->header_bytes, message->payload_bytes, &header);
    bool is_other = verdict != MESSAGE_OK || header.job != s->job || header.epoch != s->epoch;
    if (verdict == MESSAGE_OTHER_VERSION || (verdict == MESSAGE_OK && header.kind == MESSAGE_HELLO)) {
        if (is_other) atomic_fetch_add_explicit(&s->num_rejected, 1, memory_order_relaxed);
        coordinator_take_hello(c, route, verdict == MESSAGE_OK ? &header : NULL, message->payload);
        return;
    }
    int rank = is_other ? -1 : find_sender(c, &header);
    if (rank < 0) {
        atomic_fetch_add_explicit(&s->num_rejected, 1, memory_order_relaxed);
        return;
    }
    coordinator_member *m = &c->members[rank];
    m->route = *route;
    m->has_no_route = false;
    m->heard_listened_ns = s->link.listened_ns;
    m->heard_ns = s->link.now_ns;
    if (header.kind == MESSAGE_ACK) {
        if (m->notice != 0 && header.sequence == (uint64_t)m->notice) m->notice = 0;
    } else if (c->is_formed) {
        take_member_message(c, rank, &header, message->payload);
    } else if (header.kind == MESSAGE_LEAVE) {
        withdraw(c, rank);
    }
}

void coordinator_receive(coordinator *c) {
    for (int i = 0; i < MAX_PER_ROUND; i++) {
        socket_route route;
        socket_message message = {0};
        bool received = false;
        if (socket_receive(c->router, &route, &message, &received) != AG_OK || !received) return;
        take_message(c, &route, &message);
        socket_message_free(&message);
    }
    session_wake_by(c->session, 0);
}
