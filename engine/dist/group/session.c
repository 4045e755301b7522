/* session.c: what callers see of a session: opening and closing it, and the questions that its service thread answers. */
#include "dist/group/session.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "core/error.h"
#include "core/memory.h"
#include "dist/group/session_internal.h"
#include "platform/clock.h"
#include "platform/interrupt.h"

#define SLICE_NS   (100 * MILLISECOND_NS) /* how often a waiting caller looks for an interrupt */
#define GOODBYE_NS (200 * MILLISECOND_NS) /* how long a goodbye may stay unanswered */
#define LINGER_MS  200

/* ---- reports ---- */

message_report session_report(ag_status code, int culprit, const char *hint, const char *format, ...) {
    message_report report = {.code = code};
    if (culprit >= 0) report.culprits[report.num_culprits++] = culprit;
    snprintf(report.hint, sizeof report.hint, "%s", hint ? hint : "");
    va_list args;
    va_start(args, format);
    vsnprintf(report.reason, sizeof report.reason, format, args);
    va_end(args);
    return report;
}

const char *session_list_ranks(const bool *chosen, int size, char *text, size_t len) {
    const int most = 12;
    int count = 0, written = 0;
    for (int i = 0; i < size; i++) count += chosen[i];
    int shown = count <= most ? count : most;
    size_t end = (size_t)snprintf(text, len, count == 1 ? "rank" : "ranks");
    for (int i = 0; i < size && written < shown && end < len; i++) {
        if (!chosen[i]) continue;
        bool is_last = ++written == count;
        const char *before = written == 1 ? " " : is_last ? " and " : ", ";
        end += (size_t)snprintf(text + end, len - end, "%s%d", before, i);
    }
    if (count > shown && end < len) snprintf(text + end, len - end, " and %d more", count - shown);
    return text;
}

static ag_status report_error(const message_report *report) {
    error_set(report->code, NULL, NULL, NULL, report->hint, "%s", report->reason);
    error_set_culprits(report->culprits, report->num_culprits, 0);
    return report->code;
}

void session_raise(session *s, const message_report *report) {
    cancel_raise_all(s->cancel, report->code, report->culprits, report->num_culprits, report->reason, report->hint);
    /* The order of the flag and on_cancel matters to nobody: the flag only picks the one who calls. */
    if (!atomic_exchange_explicit(&s->is_told, true, memory_order_relaxed) && s->on_cancel) s->on_cancel(s->context);
}

/* ---- waiting ---- */

static void wake(session *s) { (void)eventfd_write(s->wake_fd, 1); }

/* Under the mutex: waits for a change, until the deadline, at most SLICE_NS. False when the deadline is over. */
static bool wait_change(session *s, int64_t deadline_ns) {
    int64_t now_ns = clock_ns();
    if (now_ns >= deadline_ns) return false;
    int64_t until_ns = deadline_ns - now_ns < SLICE_NS ? deadline_ns : now_ns + SLICE_NS;
    struct timespec until = {.tv_sec = until_ns / SECOND_NS, .tv_nsec = until_ns % SECOND_NS};
    pthread_cond_timedwait(&s->changed, &s->mutex, &until);
    return true;
}

static ag_status interrupted(const char *what) {
    return error_set(AG_E_INTERRUPTED, NULL, NULL, NULL, NULL, "interrupted while %s", what);
}

static ag_status check_process(const session *s) {
    if (s->process == getpid()) return AG_OK;
    return error_set(AG_E_STATE, NULL, NULL, NULL, "join the job in the child, after the fork",
                     "a process made by fork cannot use its parent's group");
}

/* ---- opening ---- */

static ag_status copy_text(char *out, size_t len, const char *text, const char *arg) {
    if (!text) text = "";
    if (strlen(text) >= len)
        return error_set(AG_E_VALUE, NULL, arg, NULL, NULL, "longer than %zu bytes: \"%.64s...\"", len - 1, text);
    strcpy(out, text);
    return AG_OK;
}

static ag_status fill_own(session *s, const session_setup *setup) {
    session_member *own = &s->own.shown;
    own->pid = s->process;
    s->own.start_time = watch_start_time(s->process);
    s->own.old_rank = setup->rank;
    if (gethostname(own->host, sizeof own->host - 1) != 0) strcpy(own->host, "?");
    watch_host_token(own->token, sizeof own->token);
    AG_TRY(copy_text(own->data_endpoint, sizeof own->data_endpoint, setup->data_endpoint, "data_endpoint"));
    AG_TRY(copy_text(own->control_address, sizeof own->control_address, setup->control_address, "control_address"));
    size_t len = strlen(own->control_address);
    if (len < 2 || strcmp(own->control_address + len - 2, ":*") != 0) return AG_OK;
    socket_settings settings = {.max_message_bytes = 2 * MESSAGE_MAX_EXCHANGE,
                                .send_queue = 64,
                                .receive_queue = 64,
                                .linger_ms = LINGER_MS,
                                .reconnects = true};
    return socket_listen(s->sockets, SOCKET_ROUTER, &settings, setup->control_address, &s->standby, own->control_address,
                         sizeof own->control_address);
}

/* Every address of this host leads to a listener on all of them, but that one is no address to dial. */
static void write_dialled(char *out, size_t len, const char *endpoint) {
    const char *any[2] = {"tcp://0.0.0.0:", "tcp://[::]:"}, *loopback[2] = {"tcp://127.0.0.1:", "tcp://[::1]:"};
    for (int i = 0; i < 2; i++) {
        if (strncmp(endpoint, any[i], strlen(any[i])) != 0) continue;
        snprintf(out, len, "%s%s", loopback[i], endpoint + strlen(any[i]));
        return;
    }
    snprintf(out, len, "%s", endpoint);
}

static ag_status connect_to(session *s, const session_setup *setup, const session_join *join) {
    if (setup->rank == join->coordinator) {
        AG_TRY(coordinator_new(s, setup, join, &s->coordinator));
        write_dialled(s->address, sizeof s->address, s->coordinator->endpoint);
    } else {
        AG_TRY(copy_text(s->address, sizeof s->address, setup->coordinator, "coordinator"));
    }
    int64_t most = (int64_t)setup->size * (MESSAGE_MAX_EXCHANGE + MESSAGE_MEMBER_BYTES) + 8192;
    socket_settings settings = {.max_message_bytes = most,
                                .send_queue = 64,
                                .receive_queue = 64,
                                .linger_ms = LINGER_MS,
                                .reconnects = true,
                                .is_monitored = true};
    return socket_dial(s->sockets, SOCKET_DEALER, &settings, s->address, &s->dealer);
}

static ag_status make_room(session *s, int size) {
    size_t count = (size_t)size;
    s->members = heap_alloc_zero(count * sizeof *s->members);
    s->has_left = heap_alloc_zero(count * sizeof *s->has_left);
    s->is_gone = heap_alloc_zero(count * sizeof *s->is_gone);
    s->link.gone_ns = heap_alloc_zero(count * sizeof *s->link.gone_ns);
    s->link.left = heap_alloc_zero(count * sizeof *s->link.left);
    if (s->members && s->has_left && s->is_gone && s->link.gone_ns && s->link.left) return AG_OK;
    return error_memory(NULL, count * sizeof *s->members);
}

static ag_status make_threading(session *s) {
    pthread_condattr_t attr;
    s->has_mutex = pthread_mutex_init(&s->mutex, NULL) == 0;
    if (pthread_condattr_init(&attr) == 0) {
        s->has_condition = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC) == 0 && pthread_cond_init(&s->changed, &attr) == 0;
        pthread_condattr_destroy(&attr);
    }
    s->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (s->has_mutex && s->has_condition && s->wake_fd >= 0 && watch_init(&s->watch, s->joining_size)) return AG_OK;
    return error_set(AG_E_NETWORK, NULL, NULL, NULL, "is the limit of open files reached? See ulimit -n",
                     "a session's descriptors cannot be made: %s", strerror(errno));
}

/* Signals are for the program's own threads. */
static ag_status start_thread(session *s) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&s->thread, NULL, session_serve, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    s->has_thread = error == 0;
    if (s->has_thread) return AG_OK;
    return error_set(AG_E_STATE, NULL, NULL, NULL, NULL, "the service thread cannot be started: %s", strerror(error));
}

static void free_parts(session *s) {
    coordinator_free(s->coordinator);
    socket_close(s->sockets, s->dealer);
    socket_close(s->sockets, s->standby);
    watch_deinit(&s->watch);
    if (s->wake_fd >= 0) close(s->wake_fd);
    /* The mutex of a forked child may be held by a thread that it has not got. */
    if (s->has_condition && s->process == getpid()) pthread_cond_destroy(&s->changed);
    if (s->has_mutex && s->process == getpid()) pthread_mutex_destroy(&s->mutex);
    heap_free(s->members);
    heap_free((void *)s->has_left);
    heap_free((void *)s->is_gone);
    heap_free(s->link.gone_ns);
    heap_free(s->link.left);
    heap_free(s);
}

static void init_link(session *s, const session_join *join) {
    session_link *l = &s->link;
    l->now_ns = clock_ns();
    l->deadline_ns =
        l->now_ns + session_seconds_ns(s->init_timeout_s) + (join->is_regroup ? session_seconds_ns(join->grace_s) : 0);
    l->answer_deadline_ns = l->now_ns + session_seconds_ns(join->answer_s);
    if (getrandom(&s->nonce, sizeof s->nonce, GRND_NONBLOCK) != sizeof s->nonce)
        s->nonce = (uint64_t)l->now_ns * 0x9E3779B97F4A7C15u ^ (uint64_t)s->process << 32 ^ (uint64_t)(uintptr_t)s;
}

ag_status session_start(socket_context *sockets, const session_setup *setup, const session_join *join, cancel *end,
                        session **out) {
    void *listener = join->listener;
    session *s = heap_alloc_zero(sizeof *s);
    if (!s) {
        socket_close(sockets, listener);
        return error_memory(NULL, sizeof *s);
    }
    s->sockets = sockets;
    s->cancel = end;
    s->on_cancel = setup->on_cancel;
    s->context = setup->context;
    s->process = getpid();
    s->epoch = setup->epoch;
    s->init_timeout_s = setup->init_timeout_s;
    s->heartbeat_ns = session_seconds_ns(setup->heartbeat_s);
    if (s->heartbeat_ns < setup->size * MILLISECOND_NS)
        s->heartbeat_ns = setup->size * MILLISECOND_NS; /* 1000 beats/s for rank 0 */
    s->expiry_ns = session_seconds_ns(setup->expiry_s);
    if (s->expiry_ns < 3 * s->heartbeat_ns) s->expiry_ns = 3 * s->heartbeat_ns; /* one lost beat is none */
    s->join = *join;
    s->rank = s->joining_rank = setup->rank;
    s->size = s->joining_size = setup->size;
    s->wake_fd = s->watch.epoll_fd = -1;
    init_link(s, join);
    ag_status status = copy_text(s->job_name, sizeof s->job_name, setup->job, "job");
    s->job = message_job_number(s->job_name);
    if (status == AG_OK) status = make_room(s, setup->size);
    if (status == AG_OK) status = make_threading(s);
    if (status == AG_OK) status = fill_own(s, setup);
    if (status == AG_OK) status = connect_to(s, setup, join);
    if (s->coordinator && s->coordinator->router == listener) listener = NULL;
    s->join.is_given_up = NULL; /* the caller's */
    s->coordinator_rank = join->coordinator;
    if (status == AG_OK) status = start_thread(s);
    if (status != AG_OK) {
        free_parts(s);
        socket_close(sockets, listener);
        return status;
    }
    *out = s;
    return AG_OK;
}

ag_status session_await(session *s, bool (*give_up)(void *context), void *context, bool *has_given_up) {
    ag_status status = AG_OK;
    *has_given_up = false;
    pthread_mutex_lock(&s->mutex);
    /* The service thread's deadlines end this wait. */
    while (s->state == SESSION_JOINING && status == AG_OK && !*has_given_up) {
        wait_change(s, INT64_MAX);
        if (s->state != SESSION_JOINING) break;
        if (interrupt_pending())
            status = interrupted("joining the job");
        else if (give_up)
            *has_given_up = give_up(context);
    }
    if (s->state == SESSION_FAILED) status = report_error(&s->failure);
    pthread_mutex_unlock(&s->mutex);
    return status;
}

ag_status session_open(socket_context *sockets, const session_setup *setup, cancel *end, session **out) {
    session_join join = {.coordinator = 0, .answer_s = setup->init_timeout_s};
    session *s = NULL;
    bool has_given_up;
    AG_TRY(session_start(sockets, setup, &join, end, &s));
    ag_status status = session_await(s, NULL, NULL, &has_given_up);
    if (status != AG_OK)
        session_free(s);
    else
        *out = s;
    return status;
}

const session_member *session_member_at(const session *s, int rank) { return &s->members[rank].shown; }
int64_t session_num_rejected(const session *s) {
    return atomic_load_explicit(&((session *)s)->num_rejected, memory_order_relaxed);
}
uint64_t session_job_number(const char *job) { return message_job_number(job); }
bool session_has_left(const session *s, int rank) {
    return atomic_load_explicit(&((session *)s)->has_left[rank], memory_order_relaxed) != 0;
}

/* ---- questions ---- */

static ag_status exchange_timeout(session *s) {
    const message_report *missing = &s->exchange.missing;
    if (missing->code == AG_OK)
        return error_set(AG_E_TIMEOUT, NULL, NULL, NULL, NULL, "rank %d has not answered exchange %llu", s->coordinator_rank,
                         (unsigned long long)s->exchange.sequence);
    error_set(AG_E_TIMEOUT, NULL, NULL, NULL, NULL, "%s %s not come to exchange %llu", missing->reason,
              missing->num_culprits == 1 ? "has" : "have", (unsigned long long)s->exchange.sequence);
    error_set_culprits(missing->culprits, missing->num_culprits, 0);
    return AG_E_TIMEOUT;
}

ag_status session_exchange(session *s, const void *own, size_t size_bytes, void *all, int64_t deadline_ns) {
    AG_TRY(check_process(s));
    if (size_bytes > MESSAGE_MAX_EXCHANGE)
        return error_set(AG_E_VALUE, NULL, "size_bytes", "at most 4096", NULL, "%zu", size_bytes);
    if (cancel_is_raised(s->cancel)) return cancel_error(s->cancel, NULL, 0);
    pthread_mutex_lock(&s->mutex);
    s->exchange.sequence++;
    s->exchange.size_bytes = size_bytes;
    s->exchange.all = all;
    s->exchange.missing.code = AG_OK;
    if (size_bytes > 0) memcpy(s->exchange.own, own, size_bytes);
    s->exchange.is_pending = true;
    wake(s);
    ag_status status = AG_OK;
    while (s->exchange.is_pending && status == AG_OK) {
        if (cancel_is_raised(s->cancel))
            status = cancel_error(s->cancel, NULL, 0);
        else if (interrupt_pending())
            status = interrupted("waiting for an exchange");
        else if (!wait_change(s, deadline_ns))
            status = exchange_timeout(s);
    }
    s->exchange.is_pending = false; /* from here on nobody writes to `all` */
    pthread_mutex_unlock(&s->mutex);
    return status;
}

void session_note(session *s, uint64_t entered, uint64_t finished, const call_print *print) {
    int64_t now_ns = clock_ns();
    lock_acquire(&s->note_lock);
    s->note.entered = entered;
    s->note.finished = finished;
    s->note.has_print |= print != NULL;
    if (print) s->note.print = *print;
    s->note.time_ns = now_ns;
    lock_release(&s->note_lock);
}

void session_note_text(session *s, const char *text) {
    int64_t now_ns = clock_ns();
    lock_acquire(&s->note_lock);
    size_t len = text ? strnlen(text, sizeof s->note.text - 1) : 0;
    if (len > 0) memcpy(s->note.text, text, len);
    s->note.text[len] = '\0';
    s->note.time_ns = now_ns;
    lock_release(&s->note_lock);
}

void session_progress_of_note(session *s, message_progress *out) {
    int64_t now_ns = clock_ns();
    char call[112] = "";
    lock_acquire(&s->note_lock);
    progress_note note = s->note;
    lock_release(&s->note_lock);
    *out = (message_progress){.entered = note.entered, .finished = note.finished};
    out->since_s = note.time_ns == 0 ? 0 : (double)(now_ns - note.time_ns) * 1e-9;
    if (note.has_print) call_print_text(&note.print, call, sizeof call);
    snprintf(out->text, sizeof out->text, "%.53s%s%s", call, call[0] && note.text[0] ? ", " : "", note.text);
}

static void fill_own_row(session *s, session_progress *table) {
    for (int i = 0; i < s->size; i++) table[i] = (session_progress){.beat_age_s = -1, .has_left = session_has_left(s, i)};
    session_progress_of_note(s, &table[s->rank]);
}

ag_status session_table(session *s, double wait_s, session_progress *table) {
    AG_TRY(check_process(s));
    session_progress *answer = heap_alloc((size_t)s->size * sizeof *answer);
    if (!answer) return error_memory(NULL, (size_t)s->size * sizeof *answer);
    int64_t deadline_ns = clock_ns() + session_seconds_ns(wait_s);
    bool is_in_time = true;
    pthread_mutex_lock(&s->mutex);
    /* One after the other: calls of two groups may be late at once. */
    while (s->ask.table && is_in_time && !interrupt_pending()) is_in_time = wait_change(s, deadline_ns);
    bool is_asked = !s->ask.table;
    if (is_asked) {
        s->ask.sequence++;
        s->ask.table = answer;
        s->ask.is_pending = true;
        wake(s);
    }
    while (is_asked && s->ask.is_pending && is_in_time && !interrupt_pending()) is_in_time = wait_change(s, deadline_ns);
    bool is_answered = is_asked && !s->ask.is_pending;
    if (is_asked) {
        s->ask.is_pending = false;
        s->ask.table = NULL;
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->mutex);
    if (is_answered) {
        memcpy(table, answer, (size_t)s->size * sizeof *table);
        session_progress_of_note(s, &table[s->rank]); /* our own is fresher here */
        table[s->rank].has_left = session_has_left(s, s->rank);
    } else {
        fill_own_row(s, table);
    }
    heap_free(answer);
    if (is_answered) return AG_OK;
    if (is_in_time) return interrupted("asking for the progress of the ranks");
    return error_set(AG_E_TIMEOUT, NULL, NULL, NULL, NULL, "rank %d has not told the progress of the ranks within %g s",
                     s->coordinator_rank, wait_s);
}

void session_abort(session *s, ag_status code, int culprit, const char *reason) {
    if (s->process != getpid()) return;
    message_report report = session_report(code, culprit, NULL, "%s", reason ? reason : "");
    session_raise(s, &report);
    cancel *c = s->cancel;
    lock_acquire(&c->lock);
    report.code = c->code;
    report.num_culprits = c->num_culprits < AG_MAX_CULPRITS ? c->num_culprits : AG_MAX_CULPRITS;
    memcpy(report.culprits, c->culprits, sizeof report.culprits);
    memcpy(report.reason, c->reason, sizeof report.reason);
    memcpy(report.hint, c->hint, sizeof report.hint);
    lock_release(&c->lock);
    pthread_mutex_lock(&s->mutex);
    s->abort = report;
    s->wants_abort = true;
    pthread_mutex_unlock(&s->mutex);
    wake(s);
}

/* ---- the end ---- */

bool session_leave(session *s, double wait_s) {
    if (s->process != getpid()) return false;
    int64_t now_ns = clock_ns(), deadline_ns = now_ns + session_seconds_ns(wait_s), answer_ns = now_ns + GOODBYE_NS;
    pthread_mutex_lock(&s->mutex);
    s->leave.is_wanted = s->leave.is_closing = true;
    wake(s);
    /* That the goodbye is known comes first, whatever wait_s: else the others would take the end for a failure. */
    while (!s->leave.is_acknowledged && wait_change(s, answer_ns)) continue;
    while (!s->leave.has_ended && !interrupt_pending() && wait_change(s, deadline_ns)) continue;
    s->is_done_leaving = true;
    bool all_left = s->leave.all_left;
    pthread_mutex_unlock(&s->mutex);
    return all_left;
}

int session_missing(const session *s, bool *missing, char *text, size_t len) {
    int num = 0;
    pthread_mutex_t *mutex = &((session *)s)->mutex;
    pthread_mutex_lock(mutex);
    bool is_unanswered = s->leave.is_unanswered;
    pthread_mutex_unlock(mutex);
    for (int i = 0; i < s->size; i++) {
        bool is_known = !is_unanswered || i == s->coordinator_rank;
        missing[i] = i != s->rank && is_known && !session_has_left(s, i);
        num += missing[i];
    }
    if (len > 0) text[0] = '\0';
    if (num > 0) session_list_ranks(missing, s->size, text, len);
    return num;
}

void session_free(session *s) {
    if (!s) return;
    if (s->process == getpid() && s->has_thread) {
        pthread_mutex_lock(&s->mutex);
        if (s->state == SESSION_LIVE && !s->is_done_leaving) {
            int64_t deadline_ns = clock_ns() + GOODBYE_NS;
            s->leave.is_wanted = true;
            wake(s);
            while (!s->leave.is_acknowledged && wait_change(s, deadline_ns)) continue;
        }
        s->must_stop = true;
        pthread_mutex_unlock(&s->mutex);
        wake(s);
        pthread_join(s->thread, NULL);
    }
    free_parts(s);
}
