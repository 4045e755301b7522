/* error.c: this thread's error record. It is made at the thread's first failure and stays, so that running out of memory can be
 * told; a thread that gets none even then writes to one that all such threads share.
 */
#include "core/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <threads.h>

#include "platform/hot_thread_local.h"

static HOT_THREAD_LOCAL ag_error *own_record;
static ag_error shared_record;
static once_flag is_prepared = ONCE_FLAG_INIT;
static tss_t thread_end;

static void leave(void *context) {
    own_record = NULL;
    free(context);
}

static void prepare(void) { tss_create(&thread_end, leave); }

/* Not through memory.h: the record is no block of the engine's that a test could count or make fail. */
static ag_error *make_record(void) {
    call_once(&is_prepared, prepare);
    ag_error *made = calloc(1, sizeof *made);
    if (!made) return &shared_record;
    own_record = made;
    tss_set(thread_end, made);
    return made;
}

ag_error *error_record(void) { return own_record ? own_record : make_record(); }

static void copy_text(char *dst, size_t len, const char *text) { snprintf(dst, len, "%s", text ? text : ""); }

/* append adds text at *end, which never passes the last byte of the message. */
static void append(ag_error *error, size_t *end, const char *text) {
    size_t room = sizeof error->message - 1 - *end, len = strlen(text);
    if (len > room) len = room;
    memcpy(error->message + *end, text, len);
    *end += len;
    error->message[*end] = '\0';
}

/* compose_message builds "op: arg: expected E, got G; hint". Without E, `got` stands alone and may be a sentence. */
static void compose_message(ag_error *error) {
    size_t end = 0;
    error->message[0] = '\0';
    if (error->op[0]) append(error, &end, error->op);
    if (error->arg[0]) {
        if (end > 0) append(error, &end, ": ");
        append(error, &end, error->arg);
    }
    if (error->expected[0] || error->got[0]) {
        if (end > 0) append(error, &end, ": ");
        if (error->expected[0]) {
            append(error, &end, "expected ");
            append(error, &end, error->expected);
            if (error->got[0]) append(error, &end, ", got ");
        }
        append(error, &end, error->got);
    }
    if (error->hint[0]) {
        if (end > 0) append(error, &end, "; ");
        append(error, &end, error->hint);
    }
}

/* printf writes "-nan" for what 0/0 gives on x86. */
static void drop_nan_sign(char *text) {
    char *at = strstr(text, "-nan");
    if (at) memmove(at, at + 1, strlen(at));
}

ag_status error_set(ag_status code, const char *op, const char *arg, const char *expected, const char *hint,
                    const char *got_format, ...) {
    ag_error error; /* built aside: the texts may come from the record itself */
    error.code = code;
    error.sequence = 0;
    error.num_culprits = 0;
    copy_text(error.op, sizeof error.op, op);
    copy_text(error.arg, sizeof error.arg, arg);
    copy_text(error.expected, sizeof error.expected, expected);
    copy_text(error.hint, sizeof error.hint, hint);
    error.got[0] = '\0';
    if (got_format) {
        va_list arguments;
        va_start(arguments, got_format);
        vsnprintf(error.got, sizeof error.got, got_format, arguments);
        va_end(arguments);
        drop_nan_sign(error.got);
    }
    compose_message(&error);
    *error_record() = error;
    return code;
}

/* size_text writes "640 bytes", "1.5 MiB". */
static const char *size_text(double size_bytes, char *buffer, size_t len) {
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    int unit = 0;
    for (; size_bytes >= 1024 && unit < 4; unit++) size_bytes /= 1024;
    snprintf(buffer, len, unit == 0 ? "%.0f %s" : "%.1f %s", size_bytes, units[unit]);
    return buffer;
}

ag_status error_memory(const char *op, size_t size_bytes) {
    ag_memory_info info;
    ag_memory(&info);
    char asked[24], live[24], peak[24], cached[24], limit[24] = "none";
    size_text((double)size_bytes, asked, sizeof asked);
    size_text((double)info.live_bytes, live, sizeof live);
    const char *hint = "release tensors that are no longer needed, or work on smaller batches";
    size_text((double)info.peak_bytes, peak, sizeof peak);
    size_text((double)info.cached_bytes, cached, sizeof cached);
    if (info.limit_bytes > 0) size_text((double)info.limit_bytes, limit, sizeof limit);
    return error_set(AG_E_MEMORY, op, NULL, NULL, hint, "out of memory: %s asked for, %s in use (peak %s), %s cached, limit %s",
                     asked, live, peak, cached, limit);
}

void error_set_culprits(const int32_t *culprits, int num_culprits, uint64_t sequence) {
    ag_error *record = error_record();
    if (num_culprits > AG_MAX_CULPRITS) num_culprits = AG_MAX_CULPRITS;
    record->sequence = sequence;
    record->num_culprits = num_culprits;
    memcpy(record->culprits, culprits, (size_t)num_culprits * sizeof *culprits);
}

void error_name_op(const char *op) {
    ag_error *record = error_record();
    if (record->op[0] || !op) return;
    copy_text(record->op, sizeof record->op, op);
    compose_message(record);
}

void error_rename_op(const char *op, bool keeps_arg) {
    ag_error *record = error_record();
    copy_text(record->op, sizeof record->op, op);
    if (!keeps_arg) record->arg[0] = '\0';
    compose_message(record);
}
