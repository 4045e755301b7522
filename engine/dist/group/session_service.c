/* session_service.c: the service thread: joins, beats, listens, watches the processes of this host, and does what callers ask.
 *
 * A round is: say what is due, wait for news, take all of it. So nobody is accused before everything that had come was read.
 */
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <poll.h>
#include <unistd.h>

#include "core/error.h"
#include "core/memory.h"
#include "dist/group/session_internal.h"
#include "platform/clock.h"

#define LAST_WORDS_NS (100 * MILLISECOND_NS) /* of a process that has ended; the coordinator, which waits less, tells first */
#define VERDICT_NS    (500 * MILLISECOND_NS) /* how much later than our own deadline the coordinator's may come */
#define JUMP_NS       (100 * MILLISECOND_NS) /* later than asked for: the thread did not run meanwhile */
#define LAG_NS        SECOND_NS
#define MAX_PER_ROUND 1024
#define MAX_WATCHED   16 /* by a rank that is not the coordinator */

/* ---- sending ---- */

static void send_message(session *s, message_kind kind, uint32_t flags, uint64_t sequence, const void *payload, size_t len) {
    bool is_live = s->state == SESSION_LIVE;
    message_header header = {.version = MESSAGE_VERSION,
                             .kind = (uint16_t)kind,
                             .flags = flags,
                             .job = s->job,
                             .epoch = s->epoch,
                             .rank = is_live ? s->rank : s->joining_rank,
                             .size = is_live ? s->size : s->joining_size,
                             .sequence = sequence,
                             .nonce = s->nonce,
                             .payload_bytes = (uint32_t)len};
    unsigned char bytes[MESSAGE_HEADER_BYTES];
    message_pack(&header, bytes);
    bool sent;
    /* What finds no connection is said again. */
    (void)socket_send(s->dealer, NULL, bytes, sizeof bytes, len > 0 ? payload : NULL, len, NULL, NULL, &sent);
}

/* True once every interval_ns; sees to it that the thread is awake then. */
static bool is_due(session *s, int64_t *next_ns, int64_t interval_ns) {
    bool due = s->link.now_ns >= *next_ns;
    if (due) *next_ns = s->link.now_ns + interval_ns;
    session_wake_by(s, *next_ns);
    return due;
}

static void send_progress(session *s, message_kind kind, uint32_t flags, uint64_t sequence) {
    message_progress progress;
    unsigned char bytes[MESSAGE_PROGRESS_BYTES];
    session_progress_of_note(s, &progress);
    send_message(s, kind, flags, sequence, bytes, message_pack_progress(&progress, bytes));
}

/* ---- joining ---- */

void session_watch(session *s, int rank, const message_member *who) {
    watch_drop(&s->watch, rank);
    s->link.gone_ns[rank] = 0;
    bool is_here = strcmp(who->shown.token, s->own.shown.token) == 0 && who->shown.pid != s->own.shown.pid;
    if (is_here && watch_add(&s->watch, rank, who->shown.pid, who->start_time) == WATCH_GONE)
        s->link.gone_ns[rank] = s->link.now_ns;
}

static void set_state(session *s, session_state state) {
    pthread_mutex_lock(&s->mutex);
    s->state = state;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->mutex);
}

void session_fail(session *s, const message_report *report) {
    if (s->state != SESSION_JOINING) return;
    s->failure = *report;
    set_state(s, SESSION_FAILED);
}

/* The coordinator has answered and is lost before it has gathered all. */
static bool has_lost_gatherer(session *s) {
    session_link *l = &s->link;
    int rank = s->join.coordinator;
    const session_member *m = &s->members[0].shown;
    bool has_ended = l->gone_ns[rank] != 0;
    if (has_ended) session_wake_by(s, l->gone_ns[rank] + JOIN_WORDS_NS);
    if (has_ended ? l->now_ns < l->gone_ns[rank] + JOIN_WORDS_NS
                  : !l->is_acknowledged || l->lost_listened_ns < 0 || l->listened_ns - l->lost_listened_ns <= LOST_NS)
        return false;
    message_report report =
        session_report(AG_E_PEER, rank, NULL, "rank %d (host %s, pid %lld) has %s while the others were joining", rank, m->host,
                       (long long)m->pid, has_ended ? "ended" : "closed its connection");
    session_fail(s, &report);
    return true;
}

static void tick_joining(session *s) {
    session_link *l = &s->link;
    int coordinator_rank = s->join.coordinator;
    message_report report;
    if (!s->coordinator) {
        if (has_lost_gatherer(s)) return;
        int64_t most_ns = s->expiry_ns > JOIN_SILENCE_NS ? s->expiry_ns : JOIN_SILENCE_NS;
        bool is_silent = l->is_acknowledged && l->listened_ns - l->heard_listened_ns > most_ns;
        if (is_silent) l->is_acknowledged = false;
        if (is_silent && s->join.is_regroup) l->answer_deadline_ns = l->now_ns;
        if (!l->is_acknowledged && l->now_ns >= l->answer_deadline_ns) {
            report =
                session_report(AG_E_TIMEOUT, coordinator_rank,
                               l->refusal[0] ? l->refusal : "is it running, are the address and the key right?",
                               "no answer from rank %d at %.120s within %g s", coordinator_rank, s->address, s->join.answer_s);
            session_fail(s, &report);
            return;
        }
        if (l->now_ns >= l->deadline_ns + VERDICT_NS) {
            report = session_report(AG_E_TIMEOUT, coordinator_rank, NULL,
                                    "rank %d at %.120s has not gathered the others within %g s", coordinator_rank, s->address,
                                    s->init_timeout_s);
            session_fail(s, &report);
            return;
        }
        session_wake_by(s, l->is_acknowledged ? l->deadline_ns + VERDICT_NS : l->answer_deadline_ns);
    }
    if (!is_due(s, &l->next_hello_ns,
                !l->is_acknowledged  ? REPEAT_NS / 2
                : s->join.is_regroup ? REGROUP_HELLO_NS
                                     : JOIN_HELLO_NS))
        return;
    message_hello hello = {
        .member = s->own, .timeout_s = s->init_timeout_s, .left_s = (double)(l->deadline_ns - l->now_ns) * 1e-9};
    memcpy(hello.job_name, s->job_name, sizeof hello.job_name);
    unsigned char bytes[MESSAGE_MEMBER_BYTES + 100];
    send_message(s, MESSAGE_HELLO, s->join.is_regroup ? MESSAGE_IS_REGROUP : 0, 0, bytes, message_pack_hello(&hello, bytes));
}

/* The coordinator's rank first, then those behind ours: on a host with very many ranks each one is watched by some. */
static void watch_others(session *s) {
    session_link *l = &s->link;
    int num_watched = 0, most = s->coordinator ? s->size : MAX_WATCHED;
    for (int i = 0; i <= s->size && num_watched < most; i++) {
        int rank = i == 0 ? s->coordinator_rank : (s->rank + i) % s->size;
        const message_member *m = &s->members[rank];
        if (rank == s->rank || (rank == s->coordinator_rank && i > 0) || !m->shown.is_same_host ||
            m->shown.pid == s->own.shown.pid)
            continue;
        /* The coordinator watches since they said HELLO. */
        bool is_watched = s->watch.pidfds[rank] >= 0;
        watch_outcome outcome = is_watched ? WATCH_ON : watch_add(&s->watch, rank, m->shown.pid, m->start_time);
        if (outcome == WATCH_IMPOSSIBLE) return; /* no descriptors, or an old system: beats must do */
        if (outcome == WATCH_GONE) l->gone_ns[rank] = l->now_ns;
        num_watched++;
    }
}

static void take_wait(session *s, const message_header *header, const void *payload) {
    int count;
    if (s->state != SESSION_JOINING) return;
    s->link.is_acknowledged = true;
    if (s->coordinator || !message_unpack_table(payload, header->payload_bytes, s->joining_size, s->members, &count)) return;
    session_watch(s, s->join.coordinator, &s->members[0]);
}

static void take_table(session *s, const message_header *header, const void *payload) {
    int count = 0;
    if (s->state != SESSION_JOINING) return;
    if (!message_unpack_table(payload, header->payload_bytes, s->joining_size, s->members, &count)) return;
    if (header->rank < 0 || header->rank >= count || s->members[header->rank].old_rank != s->joining_rank) return;
    if (header->sequence >= (uint64_t)count) return;
    s->coordinator_rank = (int)header->sequence;
    s->rank = header->rank;
    s->size = count;
    for (int i = 0; i < count; i++)
        s->members[i].shown.is_same_host = strcmp(s->members[i].shown.token, s->own.shown.token) == 0;
    if (!s->coordinator) { /* it may have another number now */
        watch_drop(&s->watch, s->join.coordinator);
        s->link.gone_ns[s->join.coordinator] = 0;
    }
    watch_others(s);
    s->link.next_beat_ns = 0;
    set_state(s, SESSION_LIVE);
}

/* ---- living ---- */

static void accuse(session *s, const message_report *report) {
    session_raise(s, report);
    s->link.report = *report;
    s->link.has_report = true;
}

static bool has_left(const session *s, int rank) { return atomic_load_explicit(&s->has_left[rank], memory_order_relaxed) != 0; }

static void check_deaths(session *s) {
    session_link *l = &s->link;
    for (int i = 0; i < s->size; i++) {
        if (l->gone_ns[i] == 0) continue;
        atomic_store_explicit(&s->is_gone[i], 1, memory_order_relaxed);
        if (s->coordinator || l->is_leaving || l->is_aborted || l->has_report || has_left(s, i)) continue;
        /* Who lost a silent coordinator ends, too, and is not to blame: it answers again, or check_coordinator names it. */
        if (i != s->coordinator_rank && l->listened_ns - l->heard_listened_ns > 2 * s->heartbeat_ns) continue;
        /* A connection tells of its end after all that came through it, and that has been read. */
        bool is_read = i == s->coordinator_rank && l->lost_listened_ns >= 0;
        if (!is_read && l->now_ns < l->gone_ns[i] + LAST_WORDS_NS) {
            session_wake_by(s, l->gone_ns[i] + LAST_WORDS_NS);
            continue;
        }
        message_report report = session_report(AG_E_PEER, i, NULL, "rank %d (host %s, pid %lld) has ended without closing", i,
                                               s->members[i].shown.host, (long long)s->members[i].shown.pid);
        accuse(s, &report);
    }
}

static void check_coordinator(session *s) {
    session_link *l = &s->link;
    int who = s->coordinator_rank;
    const session_member *m = &s->members[who].shown;
    message_report report;
    if (s->coordinator || l->is_leaving || l->is_aborted || l->has_report) return;
    int64_t silence_ns = l->listened_ns - l->heard_listened_ns;
    if (has_left(s, who)) {
        message_progress own;
        session_progress_of_note(s, &own);
        if (own.entered <= l->coordinator_entered)
            l->lagging_ns = 0;
        else if (l->lagging_ns == 0)
            l->lagging_ns = l->now_ns;
        if (l->lagging_ns == 0 || l->now_ns < l->lagging_ns + LAG_NS) return;
        report =
            session_report(AG_E_PEER, who, NULL, "rank %d has closed its group at call %llu, rank %d is in call %llu%s%s%s",
                           who, (unsigned long long)l->coordinator_entered, s->rank, (unsigned long long)own.entered,
                           own.text[0] ? " (" : "", own.text, own.text[0] ? ")" : "");
    } else if (l->lost_listened_ns >= 0 && l->listened_ns - l->lost_listened_ns > LOST_NS) {
        report = session_report(AG_E_PEER, who, NULL, "rank %d (host %s, pid %lld) has closed its connection without a goodbye",
                                who, m->host, (long long)m->pid);
    } else if (silence_ns > s->expiry_ns) {
        report =
            session_report(AG_E_PEER, who, NULL,
                           "rank %d (host %s, pid %lld) has not been heard of for %.1f s: it is stopped, overloaded or cut off",
                           who, m->host, (long long)m->pid, (double)silence_ns * 1e-9);
    } else {
        return;
    }
    accuse(s, &report);
}

static void tick_questions(session *s) {
    session_link *l = &s->link;
    pthread_mutex_lock(&s->mutex);
    if (s->exchange.is_pending && is_due(s, &l->next_exchange_ns, REPEAT_NS))
        send_message(s, MESSAGE_EXCHANGE, 0, s->exchange.sequence, s->exchange.own, s->exchange.size_bytes);
    if (s->ask.is_pending && s->coordinator) {
        coordinator_progress(s->coordinator, s->ask.table);
        s->ask.is_pending = false;
        pthread_cond_broadcast(&s->changed);
    } else if (s->ask.is_pending && is_due(s, &l->next_ask_ns, REPEAT_NS)) {
        send_message(s, MESSAGE_ASK, 0, s->ask.sequence, NULL, 0);
    }
    pthread_mutex_unlock(&s->mutex);
}

static void end_leave(session *s, bool is_acknowledged, bool has_ended, bool all_left, bool is_unanswered) {
    pthread_mutex_lock(&s->mutex);
    s->leave.is_acknowledged |= is_acknowledged;
    if (has_ended && !s->leave.has_ended) {
        s->leave.has_ended = true;
        s->leave.all_left = all_left;
        s->leave.is_unanswered = is_unanswered;
    }
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->mutex);
}

static bool all_others_have_left(const session *s) {
    for (int i = 0; i < s->size; i++)
        if (i != s->rank && !has_left(s, i)) return false;
    return true;
}

static void tick_leave(session *s, bool is_closing, bool has_ended) {
    session_link *l = &s->link;
    if (has_ended) return;
    /* A coordinator that is at its end itself may be gone without another word. */
    int64_t gone_ns = l->gone_ns[s->coordinator_rank];
    bool is_ending = l->is_aborted || has_left(s, s->coordinator_rank);
    bool is_lost = !s->coordinator && (l->listened_ns - l->heard_listened_ns >
                                           (is_ending && s->expiry_ns > SECOND_NS ? SECOND_NS : s->expiry_ns) ||
                                       (gone_ns != 0 && l->now_ns >= gone_ns + LAST_WORDS_NS));
    if (!s->coordinator && gone_ns != 0) session_wake_by(s, gone_ns + LAST_WORDS_NS);
    /* Nobody is there who could tell more. One that is there and silent has not heard our goodbye, either. */
    bool is_away = gone_ns != 0 || l->lost_listened_ns >= 0;
    if (is_lost)
        end_leave(s, true, true, is_away && all_others_have_left(s), true);
    else if (is_due(s, &l->next_leave_ns, REPEAT_NS))
        send_progress(s, MESSAGE_LEAVE, is_closing ? MESSAGE_IS_CLOSING : 0, 0);
}

static void tick_abort(session *s) {
    session_link *l = &s->link;
    if (!l->has_report || l->is_aborted || !is_due(s, &l->next_abort_ns, REPEAT_NS)) return;
    if (s->coordinator) {
        coordinator_abort(s->coordinator, &l->report);
        return;
    }
    unsigned char bytes[MESSAGE_REPORT_BYTES];
    send_message(s, MESSAGE_ABORT, 0, 0, bytes, message_pack_report(&l->report, bytes));
}

/* Takes what callers want; true when the thread is to end. */
static bool tick(session *s) {
    session_link *l = &s->link;
    pthread_mutex_lock(&s->mutex);
    bool must_stop = s->must_stop, wants_leave = s->leave.is_wanted, is_closing = s->leave.is_closing,
         has_ended = s->leave.has_ended;
    if (s->wants_abort && !l->has_report) {
        l->report = s->abort;
        l->has_report = true;
    }
    s->wants_abort = false;
    pthread_mutex_unlock(&s->mutex);
    l->is_leaving |= wants_leave && is_closing;
    if (s->state == SESSION_JOINING && !must_stop) tick_joining(s);
    if (s->state == SESSION_LIVE) {
        check_deaths(s);
        check_coordinator(s);
        tick_abort(s);
        tick_questions(s);
        if (is_due(s, &l->next_beat_ns, s->heartbeat_ns)) send_progress(s, MESSAGE_BEAT, 0, ++l->beat);
        if (wants_leave) tick_leave(s, is_closing, has_ended);
    }
    if (s->coordinator) coordinator_tick(s->coordinator);
    if (!must_stop) return false;
    if (s->state == SESSION_JOINING && !s->coordinator) send_progress(s, MESSAGE_LEAVE, 0, 0);
    return !s->coordinator || coordinator_may_end(s->coordinator);
}

/* ---- listening ---- */

static void take_left(session *s, const message_header *header, const void *payload) {
    session_link *l = &s->link;
    uint64_t entered;
    if (!message_unpack_left(payload, header->payload_bytes, s->size, l->left, &entered)) return;
    l->coordinator_entered = entered;
    for (int i = 0; i < s->size; i++)
        if (l->left[i]) atomic_store_explicit(&s->has_left[i], 1, memory_order_relaxed);
    if (header->kind != MESSAGE_LEFT) return;
    bool has_ended = header->flags & MESSAGE_ENDED;
    if (has_ended) send_message(s, MESSAGE_ACK, 0, MESSAGE_LEFT, NULL, 0);
    end_leave(s, true, has_ended, header->flags & MESSAGE_ALL_LEFT, false);
}

static void take_answer(session *s, const message_header *header, const void *payload) {
    size_t len = header->payload_bytes;
    message_report missing;
    pthread_mutex_lock(&s->mutex);
    if (s->exchange.is_pending && header->sequence == s->exchange.sequence) {
        if (header->kind == MESSAGE_EXCHANGED && len == (size_t)s->size * s->exchange.size_bytes) {
            if (len > 0) memcpy(s->exchange.all, payload, len);
            s->exchange.is_pending = false;
        }
        if (header->kind == MESSAGE_PENDING && message_unpack_report(payload, len, s->size, &missing))
            s->exchange.missing = missing;
    }
    if (header->kind == MESSAGE_PROGRESS && s->ask.is_pending && header->sequence == s->ask.sequence &&
        message_unpack_progress_table(payload, len, s->size, s->ask.table))
        s->ask.is_pending = false;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->mutex);
}

static void take_live(session *s, const message_header *header, const void *payload) {
    message_report report;
    switch (header->kind) {
    case MESSAGE_ECHO:
    case MESSAGE_LEFT: take_left(s, header, payload); break;
    case MESSAGE_ABORT:
        if (!message_unpack_report(payload, header->payload_bytes, s->size, &report)) break;
        send_message(s, MESSAGE_ACK, 0, MESSAGE_ABORT, NULL, 0);
        s->link.is_aborted = true;
        if (!s->link.is_leaving) session_raise(s, &report);
        break;
    case MESSAGE_EXCHANGED:
    case MESSAGE_PENDING:
    case MESSAGE_PROGRESS: take_answer(s, header, payload); break;
    default: break;
    }
}

static void take_message(session *s, const socket_message *message) {
    session_link *l = &s->link;
    message_header header;
    message_report report;
    message_verdict verdict = message_unpack(message->header, message->header_bytes, message->payload_bytes, &header);
    if (verdict == MESSAGE_OTHER_VERSION && s->state == SESSION_JOINING) {
        report = session_report(AG_E_STATE, -1, "use the same build on all ranks",
                                "rank %d at %.120s speaks version %u of the protocol, "
                                "this rank version %d",
                                s->join.coordinator, s->address, header.version, MESSAGE_VERSION);
        session_fail(s, &report);
        return;
    }
    bool is_refusal = verdict == MESSAGE_OK && header.kind == MESSAGE_REFUSED;
    if (verdict != MESSAGE_OK || header.nonce != s->nonce ||
        (!is_refusal && (header.job != s->job || header.epoch != s->epoch))) {
        atomic_fetch_add_explicit(&s->num_rejected, 1, memory_order_relaxed);
        return;
    }
    l->heard_listened_ns = l->listened_ns;
    if (is_refusal) {
        send_message(s, MESSAGE_ACK, 0, MESSAGE_REFUSED, NULL, 0);
        if (message_unpack_report(message->payload, header.payload_bytes, s->joining_size, &report)) session_fail(s, &report);
    } else if (header.kind == MESSAGE_WAIT) {
        take_wait(s, &header, message->payload);
    } else if (header.kind == MESSAGE_TABLE) {
        take_table(s, &header, message->payload);
    } else if (s->state == SESSION_LIVE) {
        take_live(s, &header, message->payload);
    }
}

static void receive(session *s) {
    for (int i = 0; i < MAX_PER_ROUND; i++) {
        socket_message message = {0};
        bool received = false;
        if (socket_receive(s->dealer, NULL, &message, &received) != AG_OK || !received) return;
        take_message(s, &message);
        socket_message_free(&message);
    }
    session_wake_by(s, 0);
}

/* What is lost comes back at once when the process at the other end lives. */
static void take_events(session *s) {
    session_link *l = &s->link;
    char detail[120];
    for (socket_event event; (event = socket_next_event(s->sockets, s->dealer, detail, sizeof detail)) != SOCKET_NOTHING;) {
        if (event == SOCKET_CONNECTED)
            l->lost_listened_ns = -1;
        else if (event == SOCKET_REFUSED)
            snprintf(l->refusal, sizeof l->refusal, "the connection is refused: %s", detail);
        else if (event == SOCKET_LOST && l->lost_listened_ns < 0)
            l->lost_listened_ns = l->listened_ns;
    }
}

/* Waits until wake_ns or news, and takes the time. */
static void wait_for_news(session *s) {
    session_link *l = &s->link;
    void *sockets[2] = {s->dealer, s->coordinator ? s->coordinator->router : NULL};
    int fds[2] = {s->wake_fd, s->watch.epoll_fd};
    bool is_ready[4] = {false};
    int num_sockets = s->coordinator ? 2 : 1;
    int64_t start_ns = clock_ns(), wait_ns = l->wake_ns - start_ns;
    int timeout_ms = wait_ns <= 0 ? 0 : (int)((wait_ns + MILLISECOND_NS - 1) / MILLISECOND_NS);
    if (socket_poll(sockets, NULL, num_sockets, fds, 2, timeout_ms, is_ready) != AG_OK) poll(NULL, 0, 10);
    int64_t now_ns = clock_ns(), passed_ns = now_ns - l->now_ns, most_ns = (int64_t)timeout_ms * MILLISECOND_NS + JUMP_NS;
    l->listened_ns += passed_ns < most_ns ? passed_ns : most_ns;
    l->now_ns = now_ns;
    if (is_ready[num_sockets]) {
        eventfd_t count;
        (void)eventfd_read(s->wake_fd, &count);
        l->next_exchange_ns = l->next_ask_ns = 0; /* a caller has come: what he asks is due at once */
        if (!l->is_leaving) l->next_leave_ns = 0;
    }
}

void *session_serve(void *context) {
    session *s = context;
    session_link *l = &s->link;
    l->lost_listened_ns = -1;
    for (;;) {
        l->wake_ns = l->now_ns + (s->heartbeat_ns < SECOND_NS ? s->heartbeat_ns : SECOND_NS);
        if (tick(s)) return NULL;
        wait_for_news(s);
        for (int rank; (rank = watch_next(&s->watch)) >= 0;) l->gone_ns[rank] = l->now_ns;
        if (s->coordinator) coordinator_receive(s->coordinator);
        take_events(s);
        receive(s);
    }
}
