/* fiber.c: a Lua function with a C stack of its own, which may wait anywhere, inside backward, no_grad, scope and hooks too.
 *
 * A coroutine cannot yield across a C call. A fiber can: it is a Lua thread that an OS thread of its own runs. Only one of all
 * threads runs at any time: fiber_resume hands the state over and sleeps until the fiber waits or ends. So Lua sees nothing but
 * coroutines, while what the engine holds for each thread (gradient mode, error record) is each fiber's own. What the binding
 * and the process hold (the coroutine inside the engine, the default generator) is exchanged at each hand-over.
 *
 * Signals go to the thread whose turn it is: a handler of Ctrl-C works on the Lua state and has to be in the thread that runs it. A
 * host with such a handler has a variable for that thread, whose address it puts into the registry as "argand.lua_thread".
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "binding.h"

/* belongings is what is exchanged. */
typedef struct belongings {
    lua_State *inside;
    struct fiber *current;
    int scope_depth;
    uint64_t seed, offset;
} belongings;

typedef struct fiber {
    lua_State *L; /* holds function and arguments, later the results or the error */
    binding *b;
    pthread_t thread;
    pthread_mutex_t mutex; /* guards has_turn, and with it all of Lua */
    pthread_cond_t turn_changed;
    bool has_turn, is_started, has_ended, must_end;
    int status;                  /* of its lua_pcall */
    int ref;                     /* keeps L alive */
    sigset_t signals;            /* blocked while it runs */
    _Atomic(pthread_t) *running; /* the host's variable, NULL = none */
    belongings own;
} fiber;

static const char metatable_key, end_key;

static belongings take_belongings(const binding *b) {
    belongings now = {.inside = b->L, .current = b->fiber, .scope_depth = b->scope_depth};
    ag_generator_state(NULL, &now.seed, &now.offset);
    return now;
}

static void put_belongings(binding *b, const belongings *of) {
    b->L = of->inside;
    b->fiber = of->current;
    b->scope_depth = of->scope_depth;
    ag_generator_set_state(NULL, of->seed, of->offset);
}

static sigset_t block_signals(void) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    return before;
}

/* Signals are blocked. */
static void hand_over(fiber *f, bool to_fiber) {
    pthread_mutex_lock(&f->mutex);
    f->has_turn = to_fiber;
    pthread_cond_broadcast(&f->turn_changed);
    pthread_mutex_unlock(&f->mutex);
}

static void await_turn(fiber *f, bool of_fiber, const sigset_t *signals) {
    pthread_mutex_lock(&f->mutex);
    while (f->has_turn != of_fiber) pthread_cond_wait(&f->turn_changed, &f->mutex);
    pthread_mutex_unlock(&f->mutex);
    if (f->running) atomic_store_explicit(f->running, pthread_self(), memory_order_relaxed); /* the mutex orders it */
    pthread_sigmask(SIG_SETMASK, signals, NULL);
}

static int do_nothing(lua_State *L) {
    (void)L;
    return 0;
}

/* LuaJIT notes which Lua thread runs when it is entered or a C function returns, but not when one raises: compiled code would
 * take the other thread for this one. A call notes it. */
static void note_thread(lua_State *L) {
    lua_pushcfunction(L, do_nothing);
    lua_call(L, 0, 0);
}

static void *fiber_main(void *context) {
    fiber *f = context;
    memory_enter_thread(f->b);
    await_turn(f, true, &f->signals);
    f->status = lua_pcall(f->L, lua_gettop(f->L) - 1, LUA_MULTRET, 0);
    f->has_ended = true;
    block_signals();
    hand_over(f, false);
    return NULL;
}

static fiber *check_fiber(lua_State *L, binding *b) {
    lua_pushlightuserdata(L, (void *)&metatable_key);
    lua_rawget(L, LUA_REGISTRYINDEX);
    if (lua_type(L, 1) != LUA_TUSERDATA || !lua_getmetatable(L, 1) || !lua_rawequal(L, -1, -2)) {
        binding_fail(L, b, AG_E_ARGUMENT, "fiber", "fiber", "expected a fiber, got %s", luaL_typename(L, 1));
        return NULL;
    }
    lua_pop(L, 2);
    return *(fiber **)lua_touserdata(L, 1);
}

/* dist.fiber(fn, ...) -> a fiber that has not begun */
static int core_fiber(lua_State *L) {
    binding *b = BINDING(L);
    if (lua_type(L, 1) != LUA_TFUNCTION)
        return binding_fail(L, b, AG_E_ARGUMENT, "fiber", "fn", "expected a function, got %s", luaL_typename(L, 1));
    int top = lua_gettop(L);
    fiber **slot = lua_newuserdata(L, sizeof *slot);
    *slot = NULL;
    lua_pushlightuserdata(L, (void *)&metatable_key);
    lua_rawget(L, LUA_REGISTRYINDEX);
    lua_setmetatable(L, -2);
    lua_insert(L, 1);
    lua_State *thread = lua_newthread(L);
    luaL_checkstack(thread, top + 1, "arguments of a fiber");
    int ref = luaL_ref(L, LUA_REGISTRYINDEX);
    fiber *f = calloc(1, sizeof *f);
    if (!f) {
        luaL_unref(L, LUA_REGISTRYINDEX, ref);
        return luaL_error(L, "not enough memory");
    }
    *f = (fiber){.L = thread, .b = b, .ref = ref, .own = {.inside = thread, .current = f}};
    ag_generator_state(NULL, &f->own.seed, &f->own.offset);
    pthread_mutex_init(&f->mutex, NULL);
    pthread_cond_init(&f->turn_changed, NULL);
    lua_getfield(L, LUA_REGISTRYINDEX, "argand.lua_thread");
    f->running = lua_touserdata(L, -1);
    lua_pop(L, 1);
    *slot = f;
    lua_xmove(L, thread, top);
    return 1;
}

/* The results, or false and the error, move to the resumer; the thread is gone afterwards. */
static int collect_end(lua_State *L, fiber *f) {
    pthread_join(f->thread, NULL);
    f->is_started = false;
    int count = lua_gettop(f->L);
    luaL_checkstack(L, count + 2, "results of a fiber");
    lua_pushliteral(L, "ended");
    lua_pushboolean(L, f->status == 0);
    lua_xmove(f->L, L, count);
    return count + 2;
}

/* dist.fiber_resume(fiber, must_end) -> "waiting", or "ended", true, results..., or "ended", false, error. must_end: the waiting
 * call raises dist.fiber_end instead of returning. */
static int core_fiber_resume(lua_State *L) {
    binding *b = BINDING(L);
    fiber *f = check_fiber(L, b);
    if (f->has_ended || f->has_turn) return binding_fail(L, b, AG_E_STATE, "fiber", "fiber", "it has ended, or runs already");
    f->must_end |= lua_toboolean(L, 2);
    if (f->must_end && !f->is_started) { /* nothing to unwind */
        f->has_ended = true;
        lua_settop(f->L, 0);
        lua_pushliteral(L, "ended");
        lua_pushboolean(L, 0);
        lua_pushlightuserdata(L, (void *)&end_key);
        return 3;
    }
    sigset_t before = block_signals();
    if (!f->is_started) f->signals = before; /* the new thread begins with all blocked */
    if (!f->is_started && pthread_create(&f->thread, NULL, fiber_main, f) != 0) {
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        return binding_fail(L, b, AG_E_STATE, "fiber", "fiber", "the system starts no more threads");
    }
    f->is_started = true;
    belongings outer = take_belongings(b);
    put_belongings(b, &f->own);
    lua_pushlightuserdata(L, f); /* its scopes lie in the registry under its address */
    lua_rawget(L, LUA_REGISTRYINDEX);
    scope_exchange(L); /* the resumer's stay on this stack */
    hand_over(f, true);
    await_turn(f, false, &before);
    note_thread(L);
    f->own = take_belongings(b);
    put_belongings(b, &outer);
    scope_exchange(L);
    lua_pushlightuserdata(L, f);
    lua_insert(L, -2);
    lua_rawset(L, LUA_REGISTRYINDEX);
    if (f->has_ended) return collect_end(L, f);
    lua_pushliteral(L, "waiting");
    return 1;
}

/* dist.fiber_wait(): within a fiber: the resumer goes on, until it resumes this one again. */
static int core_fiber_wait(lua_State *L) {
    binding *b = BINDING(L);
    fiber *f = b->fiber;
    if (!f) return binding_fail(L, b, AG_E_STATE, "fiber", "", "no fiber runs");
    sigset_t before = block_signals();
    hand_over(f, false);
    await_turn(f, true, &before);
    note_thread(L);
    if (!f->must_end) return 0;
    lua_pushlightuserdata(L, (void *)&end_key);
    return lua_error(L);
}

/* A fiber that never ended sleeps on with what it holds: nothing can unwind it from within the collector. */
static int fiber_gc(lua_State *L) {
    fiber **slot = lua_touserdata(L, 1), *f = *slot;
    *slot = NULL;
    if (!f) return 0;
    luaL_unref(L, LUA_REGISTRYINDEX, f->ref);
    if (f->is_started) {
        pthread_detach(f->thread);
        return 0;
    }
    pthread_mutex_destroy(&f->mutex);
    pthread_cond_destroy(&f->turn_changed);
    free(f);
    return 0;
}

void fiber_register(lua_State *L, binding *b, int table) {
    lua_pushlightuserdata(L, (void *)&metatable_key);
    lua_newtable(L);
    binding_function(L, b, lua_gettop(L), "__gc", fiber_gc);
    lua_pushliteral(L, "fiber");
    lua_setfield(L, -2, "__metatable");
    lua_rawset(L, LUA_REGISTRYINDEX);
    binding_function(L, b, table, "fiber", core_fiber);
    binding_function(L, b, table, "fiber_resume", core_fiber_resume);
    binding_function(L, b, table, "fiber_wait", core_fiber_wait);
    lua_pushlightuserdata(L, (void *)&end_key);
    lua_setfield(L, table, "fiber_end");
}
