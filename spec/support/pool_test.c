/* pool_test.c: stress of the thread pool; meant to be run under ThreadSanitizer too. One line a case, status 0 when all hold.
 *
 * Every case checks that each item was handled exactly once and that no task ran after its pool_run had returned: contexts
 * lie on the caller's stack, are cleared after the call, and a late access would be seen.
 */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "platform/pool.h"

#define MAX_ITEMS 4096

/* ThreadSanitizer asks for this: the fork case starts threads in the child. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void) { return "die_after_fork=0"; }

typedef struct job {
    int num_handled[MAX_ITEMS]; /* plain ints: two threads on one item would be a race */
    atomic_int num_calls;
    atomic_bool is_over;
    atomic_int num_late;
    int nested_grain; /* 0 = none */
    bool is_slow;
} job;

static void handle_one(void *context, int64_t begin, int64_t end) {
    atomic_fetch_add((atomic_int *)context, (int)(end - begin));
}

static void handle(void *context, int64_t begin, int64_t end) {
    job *j = context;
    if (atomic_load(&j->is_over)) atomic_fetch_add(&j->num_late, 1);
    atomic_fetch_add(&j->num_calls, 1);
    for (int64_t i = begin; i < end; i++) j->num_handled[i]++;
    if (j->nested_grain > 0) {
        atomic_int inner = 0;
        pool_run(handle_one, &inner, 100, j->nested_grain);
        if (inner != 100) atomic_fetch_add(&j->num_late, 1);
    }
    if (j->is_slow) nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
}

/* run_job returns true when each of num_items was handled once; *num_calls gets the number of chunks. */
static bool run_job(int64_t num_items, int64_t grain, int nested_grain, bool is_slow, int *num_calls) {
    job j;
    memset(&j, 0, sizeof j);
    j.nested_grain = nested_grain;
    j.is_slow = is_slow;
    pool_run(handle, &j, num_items, grain);
    atomic_store(&j.is_over, true);
    for (int64_t i = 0; i < MAX_ITEMS; i++)
        if (j.num_handled[i] != (i < num_items)) return false;
    if (num_calls) *num_calls = j.num_calls;
    return j.num_late == 0;
}

static bool test_every_size(void) {
    for (int64_t num_items = 0; num_items < 200; num_items++)
        for (int64_t grain = 1; grain < 40; grain += 3)
            if (!run_job(num_items, grain, 0, false, NULL)) return false;
    return run_job(MAX_ITEMS, 1, 0, false, NULL);
}

static bool test_many_jobs(void) {
    for (int i = 0; i < 20000; i++) {
        /* A short pause now and then lets the workers fall asleep, so both ways of being reached are used. */
        if (i % 500 == 0) nanosleep(&(struct timespec){.tv_nsec = 300000}, NULL);
        if (!run_job(2 + i % 61, 1, 0, false, NULL)) return false;
    }
    return true;
}

static bool test_slow_tasks(void) {
    for (int i = 0; i < 50; i++)
        if (!run_job(7, 1, 0, true, NULL)) return false;
    return true;
}

static bool test_nested(void) {
    for (int i = 0; i < 500; i++)
        if (!run_job(64, 4, 7, false, NULL)) return false;
    return true;
}

static void *call_from_thread(void *result) {
    for (int i = 0; i < 3000; i++)
        if (!run_job(33, 2, 0, false, NULL)) atomic_store((atomic_bool *)result, false);
    return NULL;
}

static bool test_concurrent_callers(void) {
    atomic_bool result = true;
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        if (pthread_create(&threads[i], NULL, call_from_thread, &result) != 0) return false;
    call_from_thread(&result);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    return result;
}

static bool test_bounds_do_not_depend_on_threads(void) {
    int counts[3], num_threads[3] = {1, 2, 5};
    for (int i = 0; i < 3; i++)
        if (!pool_set_num_threads(num_threads[i]) || !run_job(1000, 13, 0, false, &counts[i])) return false;
    return counts[0] == counts[1] && counts[1] == counts[2] && counts[0] == 1000 / 13;
}

static bool test_change_of_number(void) {
    for (int i = 0; i < 40; i++) {
        if (!pool_set_num_threads(1 + i % 7) || pool_num_threads() != 1 + i % 7) return false;
        if (!run_job(50, 1, 0, false, NULL)) return false;
        if (i % 3 == 0) pool_shutdown();
        if (!run_job(50, 1, 0, false, NULL)) return false;
    }
    return !pool_set_num_threads(0) && !pool_set_num_threads(257) && pool_set_num_threads(4);
}

static void set_threads_inside(void *context, int64_t begin, int64_t end) {
    (void)end;
    if (begin == 0) *(bool *)context = pool_set_num_threads(2);
}

static bool test_change_inside_a_task_is_refused(void) {
    bool is_set = true;
    pool_run(set_threads_inside, &is_set, 10, 1);
    return !is_set;
}

static bool test_fork(void) {
    if (!run_job(100, 1, 0, false, NULL)) return false;
    pid_t child = fork();
    if (child == 0) {
        bool is_right = true;
        for (int i = 0; i < 200; i++) is_right = is_right && run_job(100, 1, 0, false, NULL);
        _exit(is_right ? 0 : 1);
    }
    int status = 1;
    return child > 0 && waitpid(child, &status, 0) == child && status == 0 && run_job(100, 1, 0, false, NULL);
}

static pthread_t main_thread;
static volatile sig_atomic_t num_signals, num_elsewhere;

static void on_signal(int number) {
    (void)number;
    num_signals++;
    if (!pthread_equal(pthread_self(), main_thread)) num_elsewhere++;
}

static bool test_signals_reach_the_caller(void) {
    main_thread = pthread_self();
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &action, NULL);
    for (int i = 0; i < 100; i++) {
        kill(getpid(), SIGUSR1);
        if (!run_job(40, 1, 0, false, NULL)) return false;
    }
    return num_signals > 0 && num_elsewhere == 0;
}

static const struct {
    const char *name;
    bool (*run)(void);
} cases[] = {
    {"every size and grain", test_every_size},
    {"many short jobs", test_many_jobs},
    {"tasks longer than the spin", test_slow_tasks},
    {"nested calls run inline", test_nested},
    {"concurrent callers", test_concurrent_callers},
    {"bounds do not depend on threads", test_bounds_do_not_depend_on_threads},
    {"changing the number of threads", test_change_of_number},
    {"no change inside a task", test_change_inside_a_task_is_refused},
    {"fork", test_fork},
    {"signals reach the caller", test_signals_reach_the_caller},
};

int main(void) {
    int num_failed = 0;
    pool_set_num_threads(4);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bool is_right = cases[i].run();
        printf("%s  %s\n", is_right ? "ok  " : "FAIL", cases[i].name);
        fflush(stdout);
        num_failed += !is_right;
    }
    pool_shutdown();
    return num_failed > 0;
}
