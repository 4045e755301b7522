/* interrupt_traces.c: see interrupt_traces.h. Knows the machine code that LuaJIT emits for x86-64, nothing of its structs.
 * For Linux on x86-64; elsewhere interrupt_traces_none.c is in its place. */
#include "interrupt_traces.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

#include <lauxlib.h>
#include <luajit.h>

#define BREAKPOINT 0xCC
#define EXITS_PER_GROUP 32 /* exit stubs come in groups, 4 bytes apart */
#define EXIT_STUB_BYTES 4
#define MAX_EXIT_GROUPS 16

typedef struct guard {
    uint32_t offset;  /* of the jump that gets the breakpoint, from the start of the trace */
    uint32_t operand; /* of the distance to the exit stub: LuaJIT changes it when a side trace takes over that exit */
    uintptr_t exit;
    uint8_t opcode; /* the byte under the breakpoint */
} guard;

typedef struct trace {
    uintptr_t start;
    uint32_t num_bytes;
    uint32_t checksum; /* of the code without the operands */
    uint32_t first_guard;
    uint32_t num_guards;
    bool has_breakpoints;
} trace;

/* Written with SIGINT blocked, so that the handlers see a whole table. */
static struct {
    trace *traces;
    guard *guards;
    unsigned char *code; /* room for the largest trace */
    size_t num_traces, max_traces, num_guards, max_guards, max_code;
    const volatile uint8_t *hook_mask; /* LuaJIT's own byte, NULL = not found */
} table;

/* The code being looked through, with what is needed to tell exits from other jumps. */
typedef struct scan {
    const unsigned char *code;
    size_t num_bytes;
    uintptr_t start;
    uintptr_t loop; /* where the loop begins, the start if the trace has no such mark */
    uintptr_t groups[MAX_EXIT_GROUPS];
    int num_exits;
} scan;

/* ---- finding the guards ---- */

static uintptr_t jump_target(const scan *s, size_t operand) {
    int32_t distance;
    memcpy(&distance, s->code + operand, sizeof distance);
    return s->start + operand + sizeof distance + (uintptr_t)(intptr_t)distance;
}

static bool is_exit(const scan *s, uintptr_t target) {
    for (int i = 0; i * EXITS_PER_GROUP < s->num_exits; i++) {
        uintptr_t distance = target - s->groups[i];
        int num_stubs = s->num_exits - i * EXITS_PER_GROUP;
        if (num_stubs > EXITS_PER_GROUP) num_stubs = EXITS_PER_GROUP;
        if (s->groups[i] && distance % EXIT_STUB_BYTES == 0 && distance / EXIT_STUB_BYTES < (uintptr_t)num_stubs) return true;
    }
    return false;
}

static void *reserve(void *items, size_t *max, size_t wanted, size_t item_bytes) {
    if (wanted <= *max) return items;
    size_t larger = wanted + wanted / 2 + 64;
    void *moved = realloc(items, larger * item_bytes);
    if (moved) *max = larger;
    return moved;
}

static bool add_guard(const scan *s, size_t offset, size_t operand) {
    guard *guards = reserve(table.guards, &table.max_guards, table.num_guards + 1, sizeof *guards);
    if (!guards) return false;
    table.guards = guards;
    guards[table.num_guards++] = (guard){(uint32_t)offset, (uint32_t)operand, jump_target(s, operand), s->code[offset]};
    return true;
}

/* The length of a conditional jump to the start of the loop that ends before offset, 0 if none does. */
static size_t loop_jump_before(const scan *s, size_t offset) {
    if (offset >= 2 && (s->code[offset - 2] & 0xF0) == 0x70 &&
        s->start + offset + (uintptr_t)(intptr_t)(int8_t)s->code[offset - 1] == s->loop)
        return 2;
    if (offset >= 6 && s->code[offset - 6] == 0x0F && (s->code[offset - 5] & 0xF0) == 0x80 &&
        jump_target(s, offset - 4) == s->loop)
        return 6;
    return 0;
}

/* A guard is `jcc exit` (0F 8x distance) or, at the end of a loop, `jcc loop; jmp exit`, with `jp loop` before that for numbers
 * that may be NaN. */
static bool add_guards(const scan *s) {
    for (size_t i = 0; i + 5 <= s->num_bytes; i++) {
        const unsigned char *code = s->code + i;
        if (i + 6 <= s->num_bytes && code[0] == 0x0F && (code[1] & 0xF0) == 0x80 && is_exit(s, jump_target(s, i + 2))) {
            if (!add_guard(s, i, i + 2)) return false;
            i += 5;
        } else if (code[0] == 0xE9 && is_exit(s, jump_target(s, i + 1))) {
            size_t offset = i, len;
            while ((len = loop_jump_before(s, offset)) != 0) {
                offset -= len;
                if (!add_guard(s, offset, i + 1)) return false;
            }
            i += 4;
        }
    }
    return true;
}

/* FNV-1a over the code. The guards' operands are left out: they are the bytes that may change. */
static uint32_t checksum(const unsigned char *code, const trace *t) {
    uint32_t hash = 2166136261u;
    const guard *g = table.guards + t->first_guard, *end = g + t->num_guards;
    for (uint32_t i = 0; i < t->num_bytes; i++) {
        while (g < end && i >= g->operand + 4) g++;
        if (g < end && i >= g->operand) continue;
        hash = (hash ^ code[i]) * 16777619u;
    }
    return hash;
}

/* ---- what LuaJIT tells of its traces ---- */

enum { UPVALUE_TRACEINFO = 1, UPVALUE_TRACEMC, UPVALUE_TRACEEXITSTUB, UPVALUE_FUNCTION };

static void block_interrupt(sigset_t *old) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    pthread_sigmask(SIG_BLOCK, &set, old);
}

/* True if the part that a trace repeats has a guard; also when there was no memory to look. */
static bool note_trace(const scan *s) {
    trace *traces = reserve(table.traces, &table.max_traces, table.num_traces + 1, sizeof *traces);
    if (!traces) return true;
    table.traces = traces;
    unsigned char *code = reserve(table.code, &table.max_code, s->num_bytes, 1);
    if (!code) return true;
    table.code = code;
    size_t first = table.num_guards;
    if (!add_guards(s)) {
        table.num_guards = first;
        return true;
    }
    trace *t = &traces[table.num_traces++];
    *t = (trace){s->start, (uint32_t)s->num_bytes, 0, (uint32_t)first, (uint32_t)(table.num_guards - first), false};
    t->checksum = checksum(s->code, t);
    for (size_t i = first; i < table.num_guards; i++)
        if (s->start + table.guards[i].offset >= s->loop) return true;
    return false;
}

static lua_Integer integer_field(lua_State *L, int index, const char *name) {
    lua_getfield(L, index, name);
    lua_Integer value = lua_tointeger(L, -1);
    lua_pop(L, 1);
    return value;
}

static uintptr_t exit_stub(lua_State *L, int number) {
    lua_pushvalue(L, lua_upvalueindex(UPVALUE_TRACEEXITSTUB));
    lua_pushinteger(L, number);
    lua_call(L, 1, 1);
    uintptr_t address = (uintptr_t)lua_tonumber(L, -1);
    lua_pop(L, 1);
    return address;
}

static void trace_made(lua_State *L, int number) {
    lua_pushvalue(L, lua_upvalueindex(UPVALUE_TRACEINFO));
    lua_pushinteger(L, number);
    lua_call(L, 1, 1);
    lua_pushvalue(L, lua_upvalueindex(UPVALUE_TRACEMC));
    lua_pushinteger(L, number);
    lua_call(L, 1, 3);
    int info = lua_gettop(L) - 3;
    if (!lua_istable(L, info) || !lua_isstring(L, info + 1)) return;

    scan s = {.start = (uintptr_t)lua_tonumber(L, info + 2), .num_exits = (int)integer_field(L, info, "nexit") + 1};
    s.code = (const unsigned char *)lua_tolstring(L, info + 1, &s.num_bytes);
    s.loop = s.start + (uintptr_t)lua_tointeger(L, info + 3);
    if (s.num_exits > MAX_EXIT_GROUPS * EXITS_PER_GROUP) s.num_exits = MAX_EXIT_GROUPS * EXITS_PER_GROUP;
    for (int i = 0; i * EXITS_PER_GROUP < s.num_exits; i++) s.groups[i] = exit_stub(L, i * EXITS_PER_GROUP);
    bool repeats_itself = integer_field(L, info, "link") == number;

    sigset_t old;
    block_interrupt(&old);
    bool can_leave = note_trace(&s);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (!repeats_itself || can_leave || !lua_isfunction(L, lua_upvalueindex(UPVALUE_FUNCTION))) return;
    lua_pushvalue(L, lua_upvalueindex(UPVALUE_FUNCTION));
    luaJIT_setmode(L, lua_gettop(L), LUAJIT_MODE_FUNC | LUAJIT_MODE_OFF);
}

/* Called as (event, trace number, function, ...). */
static int on_trace_event(lua_State *L) {
    const char *event = lua_tostring(L, 1);
    if (!event) return 0;
    if (strcmp(event, "start") == 0) {
        lua_pushvalue(L, 3);
        lua_replace(L, lua_upvalueindex(UPVALUE_FUNCTION));
    } else if (strcmp(event, "stop") == 0) {
        trace_made(L, (int)lua_tointeger(L, 2));
    } else if (strcmp(event, "flush") == 0) {
        sigset_t old;
        block_interrupt(&old);
        table.num_traces = table.num_guards = 0;
        pthread_sigmask(SIG_SETMASK, &old, NULL);
    }
    return 0;
}

/* ---- LuaJIT's hook mask ---- */

#define HOOK_ACTIVE 0x10        /* set while a hook, a finalizer or a trace event runs: no other hook is called then */
#define STATE_SEARCH_BYTES 4096 /* a main thread begins an allocation of more than that */

static bool was_active_in_hook;

static void probe_hook(lua_State *L, lua_Debug *info) {
    (void)L, (void)info;
    was_active_in_hook = (*table.hook_mask & HOOK_ACTIVE) != 0;
}

/* The byte that follows what lua_sethook is given, and whose HOOK_ACTIVE is set inside a hook and only there. */
static void find_hook_mask(lua_State *L) {
    static const uint8_t masks[] = {LUA_MASKCOUNT, LUA_MASKCALL, LUA_MASKRET, LUA_MASKLINE, LUA_MASKCALL | LUA_MASKCOUNT};
    const volatile uint8_t *bytes = (const volatile uint8_t *)L;
    bool is_candidate[STATE_SEARCH_BYTES];
    memset(is_candidate, 1, sizeof is_candidate);
    for (size_t k = 0; k < sizeof masks; k++) {
        lua_sethook(L, probe_hook, masks[k], 1 << 30);
        for (size_t i = 0; i < STATE_SEARCH_BYTES; i++)
            if (bytes[i] != masks[k]) is_candidate[i] = false;
    }
    lua_sethook(L, NULL, 0, 0);
    for (size_t i = 0; i < STATE_SEARCH_BYTES; i++) {
        if (!is_candidate[i] || bytes[i] != 0) continue;
        table.hook_mask = bytes + i;
        was_active_in_hook = false;
        if (luaL_loadstring(L, "local x = 1") == 0) {
            lua_sethook(L, probe_hook, LUA_MASKCOUNT, 1);
            lua_call(L, 0, 0);
            lua_sethook(L, NULL, 0, 0);
        } else {
            lua_pop(L, 1);
        }
        if (was_active_in_hook && *table.hook_mask == 0) return;
    }
    table.hook_mask = NULL;
}

void traces_attach(lua_State *L) {
    int top = lua_gettop(L);
    find_hook_mask(L);
    lua_getglobal(L, "jit");
    lua_getfield(L, -1, "attach");
    lua_getglobal(L, "require");
    lua_pushliteral(L, "jit.util");
    lua_call(L, 1, 1);
    int util = lua_gettop(L);
    lua_getfield(L, util, "traceinfo");
    lua_getfield(L, util, "tracemc");
    lua_getfield(L, util, "traceexitstub");
    lua_pushnil(L);
    lua_pushcclosure(L, on_trace_event, UPVALUE_FUNCTION);
    lua_replace(L, util);
    lua_pushliteral(L, "trace");
    if (table.hook_mask) lua_call(L, 2, 0);
    lua_settop(L, top);
}

/* ---- breakpoints ---- */

/* Puts breakpoints on the guards of all traces, or the opcodes back. What fails is left as it is. */
static void write_guards(bool set_breakpoints) {
    int file = -1;
    for (size_t k = 0; k < table.num_traces; k++) {
        trace *t = &table.traces[k];
        if (t->has_breakpoints == set_breakpoints) continue;
        if (file < 0 && (file = open("/proc/self/mem", O_RDWR | O_CLOEXEC)) < 0) return;
        if (pread(file, table.code, t->num_bytes, (off_t)t->start) != (ssize_t)t->num_bytes) continue;
        if (set_breakpoints && checksum(table.code, t) != t->checksum) continue;
        for (uint32_t i = 0; i < t->num_guards; i++) {
            const guard *g = &table.guards[t->first_guard + i];
            if (set_breakpoints) table.code[g->offset] = BREAKPOINT;
            else if (table.code[g->offset] == BREAKPOINT) table.code[g->offset] = g->opcode;
        }
        if (pwrite(file, table.code, t->num_bytes, (off_t)t->start) == (ssize_t)t->num_bytes)
            t->has_breakpoints = set_breakpoints;
    }
    if (file >= 0) close(file);
}

void traces_break(void) { write_guards(true); }
void traces_resume(void) { write_guards(false); }

uintptr_t *traces_program_counter(void *context) {
    return (uintptr_t *)&((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
}

uintptr_t traces_exit_of(uintptr_t program_counter) {
    uintptr_t address = program_counter - 1;
    for (size_t k = 0; k < table.num_traces; k++) {
        const trace *t = &table.traces[k];
        if (!t->has_breakpoints || address < t->start || address - t->start >= t->num_bytes) continue;
        for (uint32_t i = 0; i < t->num_guards; i++)
            if (t->start + table.guards[t->first_guard + i].offset == address) return table.guards[t->first_guard + i].exit;
    }
    return 0;
}

int traces_can_leave(void) { return table.hook_mask && !(*table.hook_mask & HOOK_ACTIVE); }
