/* interrupt.c: see interrupt.h. */
#include "interrupt.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <lauxlib.h>

#include "argand.h"
#include "interrupt_traces.h"

#define PATIENCE_NS 2000000000 /* presses further apart than this are not counted together */
#define REPEAT_NS 250000000    /* presses closer than this are one: a key held down must not end the process */
#define EXIT_CODE (128 + SIGINT)

static struct {
    lua_State *L;
    _Atomic(pthread_t) thread; /* the one that runs L now; it changes with simulated ranks, while signals are blocked */
    struct sigaction previous_int, previous_trap;
    lua_Hook user_hook; /* what debug.sethook had set when the interrupt came */
    int user_mask, user_count;
    bool is_waiting;     /* an interrupt came and Lua has not seen it yet */
    bool is_exit_forced; /* a trace was left at a guard, so the hook must raise */
    int num_presses;     /* while Lua was waited for */
    int64_t last_press_ns;
} interrupt;

/* Raises the engine's own error, so that err.code is the same wherever Ctrl-C struck. */
static int raise_interrupted(lua_State *L) {
    lua_getfield(L, LUA_REGISTRYINDEX, "_LOADED");
    lua_getfield(L, -1, "argand.core");
    if (lua_istable(L, -1)) {
        lua_getfield(L, -1, "check_interrupt");
        ag_interrupt();
        lua_call(L, 0, 0);
    }
    return luaL_error(L, "interrupted");
}

/* Runs between two Lua instructions of interpreted code. An engine call may have raised the error already. */
static void on_hook(lua_State *L, lua_Debug *info) {
    (void)info;
    sigset_t set, old;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    pthread_sigmask(SIG_BLOCK, &set, &old);
    bool must_raise = interrupt.is_exit_forced || ag_interrupt_pending();
    traces_resume();
    interrupt.is_waiting = interrupt.is_exit_forced = false;
    interrupt.num_presses = 0;
    ag_interrupt_clear();
    lua_sethook(L, interrupt.user_hook, interrupt.user_mask, interrupt.user_count);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (must_raise) raise_interrupted(L);
}

static void set_hook(void) {
    lua_Hook hook = lua_gethook(interrupt.L);
    if (hook != on_hook) {
        interrupt.user_hook = hook;
        interrupt.user_mask = lua_gethookmask(interrupt.L);
        interrupt.user_count = lua_gethookcount(interrupt.L);
    }
    lua_sethook(interrupt.L, on_hook, LUA_MASKCALL | LUA_MASKRET | LUA_MASKCOUNT, 1);
}

static void say(const char *text) {
    ssize_t written = write(STDERR_FILENO, text, strlen(text));
    (void)written;
}

static void count_press(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    int64_t now_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    bool is_answered = !interrupt.is_waiting || !ag_interrupt_pending();
    if (is_answered || now_ns - interrupt.last_press_ns > PATIENCE_NS) interrupt.num_presses = 0;
    if (interrupt.num_presses > 0 && now_ns - interrupt.last_press_ns < REPEAT_NS) return;
    interrupt.last_press_ns = now_ns;
    interrupt.num_presses++;
    if (interrupt.num_presses == 2) say("argand: this does not answer; a third Ctrl-C within 2 s ends the process\n");
    if (interrupt.num_presses < 3) return;
    say("argand: ended by the third Ctrl-C\n");
    _exit(EXIT_CODE);
}

static void on_sigint(int signal_number, siginfo_t *info, void *context) {
    (void)info, (void)context;
    if (!pthread_equal(pthread_self(), interrupt.thread)) {
        pthread_kill(interrupt.thread, signal_number);
        return;
    }
    int saved = errno;
    count_press();
    ag_interrupt();
    interrupt.is_waiting = true;
    set_hook();
    traces_break();
    errno = saved;
}

/* A breakpoint in compiled code. */
static void on_sigtrap(int signal_number, siginfo_t *info, void *context) {
    (void)info;
    int saved = errno;
    uintptr_t *program_counter = traces_program_counter(context);
    uintptr_t leave = program_counter ? traces_exit_of(*program_counter) : 0;
    if (!leave) { /* somebody else's */
        sigaction(SIGTRAP, &interrupt.previous_trap, NULL);
        raise(signal_number);
        return;
    }
    if (ag_interrupt_pending() && traces_can_leave()) {
        interrupt.is_exit_forced = true;
        *program_counter = leave;
    } else {
        *program_counter -= 1;
    }
    traces_resume();
    errno = saved;
}

void interrupt_install(lua_State *L) {
    interrupt.L = L;
    interrupt.thread = pthread_self();
    lua_pushlightuserdata(L, &interrupt.thread);
    lua_setfield(L, LUA_REGISTRYINDEX, "argand.lua_thread");
    traces_attach(L);
    struct sigaction action = {.sa_sigaction = on_sigtrap, .sa_flags = SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    sigaddset(&action.sa_mask, SIGINT);
    sigaction(SIGTRAP, &action, &interrupt.previous_trap);
    action.sa_sigaction = on_sigint;
    sigaction(SIGINT, &action, &interrupt.previous_int);
}

void interrupt_remove(void) {
    if (!interrupt.L) return;
    sigaction(SIGINT, &interrupt.previous_int, NULL);
    traces_resume();
    sigaction(SIGTRAP, &interrupt.previous_trap, NULL);
    interrupt.L = NULL;
}
