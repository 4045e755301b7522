/* pool.c: worker threads, one job at a time, chunks claimed off one atomic word.
 *
 * Protocol. `claim` holds (generation << CHUNK_BITS | chunks not yet claimed). The caller writes the job's fields, then
 * publishes claim. Whoever wants work loads claim, reads the fields, and takes a chunk by compare-and-swap of the very word it
 * loaded. The swap succeeds only while that generation still has unclaimed chunks, and the job cannot end before the winner
 * has counted its chunk in `done`; so what the winner read belongs to this job, and a worker that comes late loses the swap
 * and never touches the task or its context.
 */
#include "platform/pool.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#ifdef __linux__
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "platform/clock.h"
#include "platform/cpu.h"
#include "platform/lock.h"

#define MAX_THREADS 256
#define CHUNK_BITS 24
#define CHUNK_MASK (((uint64_t)1 << CHUNK_BITS) - 1)
#define MAX_CHUNKS 1024 /* enough to balance 256 threads; more would only cost claims */
#define SPIN_NS 40000   /* a worker stays awake between the ops of a training step */
#define PAUSES_PER_CLOCK 32
#define MAX_PLACED_WORKERS 16             /* with more, the system has enough processors to choose from */
#define MIN_PLACEMENT_INTERVAL_NS 1000000 /* callers on different processors may take turns */

static struct {
    /* The job: written by the caller between jobs, read by anybody (see the protocol above). */
    _Atomic(pool_task) task;
    _Atomic(void *) context;
    _Atomic int64_t num_items;
    _Atomic int64_t chunk_items;
    _Atomic int64_t num_chunks;

    _Alignas(64) _Atomic uint64_t claim;
    _Alignas(64) _Atomic uint32_t done;   /* chunks finished; a futex word for the caller */
    _Atomic uint32_t is_caller_asleep;
    _Alignas(64) _Atomic uint32_t wakeup; /* a futex word for the workers, changed to wake them */
    _Atomic int num_asleep;
    _Atomic int64_t spin_ns;
    atomic_bool is_stopping;
    atomic_int num_threads; /* callers included; 0 = not asked yet */

    /* Held by the caller for the length of a job, and by who starts or stops workers; it guards what follows. */
    pthread_mutex_t mutex;
    pthread_t workers[MAX_THREADS - 1];
    int num_workers;
    bool is_started;
} pool = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local bool is_inside; /* this thread is running a chunk: calls it makes run inline */
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

/* ---- sleeping on a word ---- */

#ifdef __linux__
static void word_wait(_Atomic uint32_t *word, uint32_t expected) {
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, NULL, NULL, 0);
}

static void word_wake(_Atomic uint32_t *word, int count) { syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0); }
#else
static pthread_mutex_t word_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t word_changed = PTHREAD_COND_INITIALIZER;

static void word_wait(_Atomic uint32_t *word, uint32_t expected) {
    pthread_mutex_lock(&word_mutex);
    while (atomic_load(word) == expected) pthread_cond_wait(&word_changed, &word_mutex);
    pthread_mutex_unlock(&word_mutex);
}

/* Both words share one condition, so everybody wakes and looks at his own. */
static void word_wake(_Atomic uint32_t *word, int count) {
    (void)word, (void)count;
    pthread_mutex_lock(&word_mutex);
    pthread_cond_broadcast(&word_changed);
    pthread_mutex_unlock(&word_mutex);
}
#endif

/* ---- placement ---- */

/* Left alone, the system likes to wake a worker on the very processor of the caller that woke it; the two then take turns and
 * nothing is gained. So the workers may run anywhere but there. Guarded by pool.mutex. */
#ifdef __linux__
static struct {
    cpu_set_t allowed;
    bool is_active;
    int avoided; /* processor that is kept free of workers, -1 = none */
    int64_t last_change_ns;
} placement;

static void placement_init(int num_threads) {
    placement.avoided = -1;
    placement.last_change_ns = 0;
    placement.is_active = num_threads - 1 <= MAX_PLACED_WORKERS &&
                          sched_getaffinity(0, sizeof placement.allowed, &placement.allowed) == 0 &&
                          num_threads <= CPU_COUNT(&placement.allowed);
}

static void placement_update(void) {
    if (!placement.is_active) return;
    int processor = sched_getcpu();
    if (processor == placement.avoided || processor < 0) return;
    int64_t now = clock_ns();
    if (now - placement.last_change_ns < MIN_PLACEMENT_INTERVAL_NS) return;
    placement.avoided = processor;
    placement.last_change_ns = now;
    cpu_set_t elsewhere = placement.allowed;
    CPU_CLR(processor, &elsewhere);
    for (int i = 0; i < pool.num_workers; i++) pthread_setaffinity_np(pool.workers[i], sizeof elsewhere, &elsewhere);
}
#else
static void placement_init(int num_threads) { (void)num_threads; }
static void placement_update(void) {}
#endif

/* ---- chunks ---- */

typedef struct split {
    int64_t chunk_items;
    int64_t num_chunks;
} split;

/* Bounds are multiples of chunk_items, itself a multiple of grain; the last chunk takes the remainder as well. */
static split split_items(int64_t num_items, int64_t grain) {
    if (grain < 1) grain = 1;
    int64_t num_grains = num_items / grain;
    int64_t grains_per_chunk = (num_grains + MAX_CHUNKS - 1) / MAX_CHUNKS;
    if (grains_per_chunk < 1) grains_per_chunk = 1;
    split result = {.chunk_items = grain * grains_per_chunk};
    result.num_chunks = num_items / result.chunk_items;
    if (result.num_chunks < 1) result.num_chunks = 1;
    return result;
}

static void run_inline(pool_task task, void *context, int64_t num_items, split s) {
    for (int64_t i = 0; i < s.num_chunks; i++) {
        int64_t begin = i * s.chunk_items;
        task(context, begin, i == s.num_chunks - 1 ? num_items : begin + s.chunk_items);
    }
}

/* run_chunks works on the current job until no chunk is left to claim. */
static void run_chunks(void) {
    for (;;) {
        uint64_t claim = atomic_load_explicit(&pool.claim, memory_order_acquire);
        int64_t remaining = (int64_t)(claim & CHUNK_MASK);
        if (remaining == 0) return;
        pool_task task = atomic_load_explicit(&pool.task, memory_order_relaxed);
        void *context = atomic_load_explicit(&pool.context, memory_order_relaxed);
        int64_t num_items = atomic_load_explicit(&pool.num_items, memory_order_relaxed);
        int64_t chunk_items = atomic_load_explicit(&pool.chunk_items, memory_order_relaxed);
        int64_t num_chunks = atomic_load_explicit(&pool.num_chunks, memory_order_relaxed);
        if (!atomic_compare_exchange_strong_explicit(&pool.claim, &claim, claim - 1, memory_order_acq_rel,
                                                     memory_order_relaxed))
            continue;
        int64_t begin = (num_chunks - remaining) * chunk_items;
        task(context, begin, remaining == 1 ? num_items : begin + chunk_items);

        /* From here on the job may end: only the pool's own words are touched. Order against is_caller_asleep matters. */
        atomic_fetch_add_explicit(&pool.done, 1, memory_order_seq_cst);
        if (atomic_load_explicit(&pool.is_caller_asleep, memory_order_seq_cst)) word_wake(&pool.done, 1);
    }
}

/* ---- workers ---- */

/* spin_for_work returns true when there is a chunk, or a stop, within spin_ns. */
static bool spin_for_work(void) {
    int64_t spin_ns = atomic_load_explicit(&pool.spin_ns, memory_order_relaxed);
    if (spin_ns == 0) return false;
    int64_t deadline = clock_ns() + spin_ns;
    do {
        for (int i = 0; i < PAUSES_PER_CLOCK; i++) {
            if (atomic_load_explicit(&pool.claim, memory_order_relaxed) & CHUNK_MASK) return true;
            cpu_pause();
        }
        if (atomic_load_explicit(&pool.is_stopping, memory_order_relaxed)) return true;
    } while (clock_ns() < deadline);
    return false;
}

/* The caller publishes, then looks at num_asleep; the worker counts itself, then looks at what was published: one of the
 * two sees the other. `wakeup` is read first, so a change in between makes the wait return at once. */
static void sleep_until_work(void) {
    uint32_t seen = atomic_load_explicit(&pool.wakeup, memory_order_seq_cst);
    atomic_fetch_add_explicit(&pool.num_asleep, 1, memory_order_seq_cst);
    if (!(atomic_load_explicit(&pool.claim, memory_order_seq_cst) & CHUNK_MASK) &&
        !atomic_load_explicit(&pool.is_stopping, memory_order_seq_cst))
        word_wait(&pool.wakeup, seen);
    atomic_fetch_sub_explicit(&pool.num_asleep, 1, memory_order_seq_cst);
}

static void wake_workers(int count) {
    if (atomic_load_explicit(&pool.num_asleep, memory_order_seq_cst) == 0) return;
    atomic_fetch_add_explicit(&pool.wakeup, 1, memory_order_seq_cst);
    word_wake(&pool.wakeup, count);
}

static void *worker_main(void *unused) {
    (void)unused;
    is_inside = true;
    while (!atomic_load_explicit(&pool.is_stopping, memory_order_acquire)) {
        run_chunks();
        if (!spin_for_work()) sleep_until_work();
    }
    return NULL;
}

/* After fork the child has the caller only. Its lock may have been held by a thread that is not there. */
static void reset_in_child(void) {
    pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
    memcpy(&pool.mutex, &fresh, sizeof fresh);
    atomic_store(&pool.claim, 0);
    atomic_store(&pool.done, 0);
    atomic_store(&pool.is_caller_asleep, 0);
    atomic_store(&pool.num_asleep, 0);
    atomic_store(&pool.is_stopping, false);
    pool.num_workers = 0;
    pool.is_started = false;
}

static void register_fork_handler(void) { pthread_atfork(NULL, NULL, reset_in_child); }

static void stop_workers(void) {
    atomic_store(&pool.is_stopping, true);
    wake_workers(MAX_THREADS);
    for (int i = 0; i < pool.num_workers; i++) pthread_join(pool.workers[i], NULL);
    atomic_store(&pool.is_stopping, false);
    pool.num_workers = 0;
    pool.is_started = false;
}

/* start_workers makes num_threads - 1 workers, or as many as the system allows; false when that is fewer. Signals are blocked
 * in them, so that SIGINT reaches the thread that runs the user's script. */
static bool start_workers(int num_threads) {
    pthread_once(&fork_once, register_fork_handler);
    /* With more threads than processors a spinning worker would keep a working one from running. */
    atomic_store(&pool.spin_ns, num_threads <= cpu_count() ? SPIN_NS : 0);
    placement_init(num_threads);
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    pool.num_workers = 0;
    while (pool.num_workers < num_threads - 1 &&
           pthread_create(&pool.workers[pool.num_workers], NULL, worker_main, NULL) == 0)
        pool.num_workers++;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pool.is_started = true;
    return pool.num_workers == num_threads - 1;
}

/* ---- the caller's side ---- */

/* wait_for_done returns when the chunks that workers hold are finished too. */
static void wait_for_done(uint32_t num_chunks) {
    int64_t deadline = 0;
    for (int i = 1; atomic_load_explicit(&pool.done, memory_order_acquire) != num_chunks; i++) {
        cpu_pause();
        if (i % PAUSES_PER_CLOCK) continue;
        int64_t now = clock_ns();
        if (deadline == 0) deadline = now + atomic_load_explicit(&pool.spin_ns, memory_order_relaxed);
        if (now < deadline) continue;
        atomic_store_explicit(&pool.is_caller_asleep, 1, memory_order_seq_cst);
        uint32_t done;
        while ((done = atomic_load_explicit(&pool.done, memory_order_seq_cst)) != num_chunks) word_wait(&pool.done, done);
        atomic_store_explicit(&pool.is_caller_asleep, 0, memory_order_relaxed);
        return;
    }
}

static void run_shared(pool_task task, void *context, int64_t num_items, split s) {
    placement_update();
    atomic_store_explicit(&pool.task, task, memory_order_relaxed);
    atomic_store_explicit(&pool.context, context, memory_order_relaxed);
    atomic_store_explicit(&pool.num_items, num_items, memory_order_relaxed);
    atomic_store_explicit(&pool.chunk_items, s.chunk_items, memory_order_relaxed);
    atomic_store_explicit(&pool.num_chunks, s.num_chunks, memory_order_relaxed);
    atomic_store_explicit(&pool.done, 0, memory_order_relaxed);
    uint64_t generation = atomic_load_explicit(&pool.claim, memory_order_relaxed) >> CHUNK_BITS;
    atomic_store_explicit(&pool.claim, (generation + 1) << CHUNK_BITS | (uint64_t)s.num_chunks, memory_order_seq_cst);
    wake_workers((int)s.num_chunks - 1);

    is_inside = true;
    run_chunks();
    is_inside = false;
    wait_for_done((uint32_t)s.num_chunks);
}

void pool_run(pool_task task, void *context, int64_t num_items, int64_t grain) {
    if (num_items <= 0) return;
    split s = split_items(num_items, grain);
    if (s.num_chunks == 1) {
        task(context, 0, num_items);
        return;
    }
    int num_threads = pool_num_threads();
    if (is_inside || num_threads == 1 || pthread_mutex_trylock(&pool.mutex) != 0) {
        run_inline(task, context, num_items, s);
        return;
    }
    if (!pool.is_started) start_workers(num_threads);
    run_shared(task, context, num_items, s);
    pthread_mutex_unlock(&pool.mutex);
}

bool pool_set_num_threads(int count) {
    if (count < 1 || count > MAX_THREADS || is_inside) return false;
    int old = pool_num_threads();
    pthread_mutex_lock(&pool.mutex);
    stop_workers();
    bool is_complete = start_workers(count);
    if (!is_complete) {
        stop_workers();
        start_workers(old);
    }
    atomic_store(&pool.num_threads, is_complete ? count : old);
    pthread_mutex_unlock(&pool.mutex);
    return is_complete;
}

int pool_num_threads(void) {
    int count = atomic_load_explicit(&pool.num_threads, memory_order_relaxed);
    if (count > 0) return count;
    const char *text = getenv("ARGAND_THREADS");
    long wanted = text ? strtol(text, NULL, 10) : 0;
    count = wanted >= 1 ? (int)(wanted < MAX_THREADS ? wanted : MAX_THREADS) : cpu_count();
    if (count > MAX_THREADS) count = MAX_THREADS;
    int expected = 0; /* somebody may have set it meanwhile: then that number holds */
    return atomic_compare_exchange_strong(&pool.num_threads, &expected, count) ? count : expected;
}

void pool_shutdown(void) {
    if (is_inside) return;
    pthread_mutex_lock(&pool.mutex);
    stop_workers();
    pthread_mutex_unlock(&pool.mutex);
}

/* The library may be unloaded (a Lua state closes its modules) while workers sleep in its code. */
__attribute__((destructor)) static void stop_at_unload(void) {
    if (is_inside || pthread_mutex_trylock(&pool.mutex) != 0) return;
    stop_workers();
    pthread_mutex_unlock(&pool.mutex);
}
