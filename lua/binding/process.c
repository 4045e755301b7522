/* process.c: processes, pipes and signals for `argand run`: core.process, which is internal.
 *
 * The child of a spawn dies with this process: the kernel sends it SIGKILL when its parent ends, and it looks once whether that
 * has happened already. Between fork and exec it makes async-signal-safe calls only, on memory prepared before the fork.
 * Signals are taken from a signalfd, so that one poll waits for output, for the end of children and for Ctrl-C.
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "binding.h"

#define READ_BYTES   65536
#define MAX_POLLED   4096
#define MAX_GUARDED  4096
#define GUARD_FDS    1024 /* what a guard closes of what it inherits; a guard is made before anything else is opened */
#define STATUS_BYTES 480
#define MAX_CPUS     (1 << 18) /* more than any kernel numbers */

enum { STDIN_SLOT, STDOUT_SLOT, STDERR_SLOT, STATUS_SLOT, NUM_SLOTS };
static const char *const slot_names[NUM_SLOTS] = {"stdin", "stdout", "stderr", "status"};

static int return_errno(lua_State *L, const char *what) {
    lua_pushnil(L);
    lua_pushfstring(L, "%s: %s", what, strerror(errno));
    return 2;
}

/* The processors that this process may use, to be freed by CPU_FREE; NULL where the system does not tell. */
static cpu_set_t *allowed_cpus(size_t *num_bytes) {
    /* The kernel refuses a set smaller than its own: grow until it fits. */
    for (int num_cpus = CPU_SETSIZE; num_cpus <= MAX_CPUS; num_cpus *= 4) {
        cpu_set_t *set = CPU_ALLOC((size_t)num_cpus);
        if (!set) return NULL;
        *num_bytes = CPU_ALLOC_SIZE((size_t)num_cpus);
        if (sched_getaffinity(0, *num_bytes, set) == 0) return set;
        CPU_FREE(set);
    }
    return NULL;
}

static void close_fd(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

/* ---- spawn ---- */

/* What a spawn needs; ours and theirs are the two ends of each slot, -1 where it is inherited. */
typedef struct spawn_request {
    char *path, **argv, **env;
    const char *cwd;
    int ours[NUM_SLOTS], theirs[NUM_SLOTS];
    int report[2]; /* of a failed exec: an errno */
    int num_env;
    const cpu_set_t *cpus; /* NULL: those of this process */
    size_t cpus_bytes;
    char status[64];
    pid_t parent;
} spawn_request;

/* Signals that process.signal_fd blocks. */
static void managed_signals(sigset_t *set) {
    sigemptyset(set);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGHUP);
    sigaddset(set, SIGCHLD);
}

/* Runs in the child. Does not return. */
static void run_child(const spawn_request *r) {
    sigset_t set;
    int error;
    setpgid(0, 0);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0) goto failed;
    if (getppid() != r->parent) _exit(127);
    for (int i = STDIN_SLOT; i <= STDERR_SLOT; i++)
        if (r->theirs[i] >= 0 && dup2(r->theirs[i], i) < 0) goto failed;
    if (r->theirs[STATUS_SLOT] >= 0 && fcntl(r->theirs[STATUS_SLOT], F_SETFD, 0) != 0) goto failed;
    if (r->cwd && chdir(r->cwd) != 0) goto failed;
    if (r->cpus && sched_setaffinity(0, r->cpus_bytes, r->cpus) != 0) goto failed; /* a system call and no more */
    managed_signals(&set);
    sigaddset(&set, SIGPIPE);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    execve(r->path, r->argv, r->env);
failed:
    error = errno;
    while (write(r->report[1], &error, sizeof error) < 0 && errno == EINTR) {}
    _exit(127);
}

/* Descriptors 0 to 2 are the child's own: ends lie above them. */
static int lift(int fd) {
    if (fd > STDERR_FILENO || fd < 0) return fd;
    int lifted = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    int error = errno;
    close(fd);
    errno = error;
    return lifted;
}

static bool open_pair(int fds[2], bool is_socket) {
    int failed = is_socket ? socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) : pipe2(fds, O_CLOEXEC);
    if (failed) {
        fds[0] = fds[1] = -1;
        return false;
    }
    fds[0] = lift(fds[0]);
    fds[1] = lift(fds[1]);
    return fds[0] >= 0 && fds[1] >= 0;
}

/* Slots say "pipe", "null", a file to append to, or nothing, which inherits. */
static bool open_slot(spawn_request *r, int slot, const char *how) {
    int fds[2] = {-1, -1};
    if (!how) return true;
    if (strcmp(how, "pipe") != 0) {
        bool is_null = strcmp(how, "null") == 0;
        r->theirs[slot] =
            lift(open(is_null ? "/dev/null" : how, O_RDWR | O_CLOEXEC | (is_null ? 0 : O_CREAT | O_APPEND), 0666));
        return r->theirs[slot] >= 0;
    }
    bool is_open = open_pair(fds, slot == STATUS_SLOT);
    int ours = slot == STDIN_SLOT ? 1 : 0;
    r->ours[slot] = fds[ours];
    r->theirs[slot] = fds[1 - ours];
    return is_open && fcntl(r->ours[slot], F_SETFL, O_NONBLOCK) == 0;
}

/* The strings of the list at `index`, which must stay on the stack; NULL-terminated, with room for `extra` more. */
static char **string_list(lua_State *L, int index, int extra) {
    int count = (int)lua_objlen(L, index);
    char **list = lua_newuserdata(L, ((size_t)count + (size_t)extra + 1) * sizeof *list);
    for (int i = 0; i < count; i++) {
        lua_rawgeti(L, index, i + 1);
        if (lua_type(L, -1) != LUA_TSTRING) luaL_error(L, "spawn: item %d of a list is no string", i + 1);
        list[i] = (char *)lua_tostring(L, -1);
        lua_pop(L, 1);
    }
    for (int i = 0; i <= extra; i++) list[count + i] = NULL;
    return list;
}

/* The set of the processors listed at `index`, which must stay on the stack. */
static cpu_set_t *cpu_list(lua_State *L, int index, size_t *num_bytes) {
    int count = (int)lua_objlen(L, index), most = 0;
    for (int i = 1; i <= count; i++) {
        lua_rawgeti(L, index, i);
        lua_Number cpu = lua_tonumber(L, -1);
        if (lua_type(L, -1) != LUA_TNUMBER || !(cpu >= 0 && cpu < MAX_CPUS) || cpu != (int)cpu)
            luaL_error(L, "spawn: item %d of processors is no number of one", i);
        if (cpu > most) most = (int)cpu;
        lua_pop(L, 1);
    }
    if (count == 0) luaL_error(L, "spawn: processors is empty");
    *num_bytes = CPU_ALLOC_SIZE((size_t)most + 1);
    cpu_set_t *set = lua_newuserdata(L, *num_bytes);
    CPU_ZERO_S(*num_bytes, set);
    for (int i = 1; i <= count; i++) {
        lua_rawgeti(L, index, i);
        CPU_SET_S((size_t)lua_tointeger(L, -1), *num_bytes, set);
        lua_pop(L, 1);
    }
    return set;
}

/* The file that `name` means, as a shell would find it; pushes it. */
static char *find_program(lua_State *L, const char *name) {
    const char *path = getenv("PATH");
    bool is_path = strchr(name, '/') || !path;
    while (!is_path && *path) {
        size_t len = strcspn(path, ":");
        lua_pushlstring(L, len ? path : ".", len ? len : 1);
        lua_pushfstring(L, "%s/%s", lua_tostring(L, -1), name);
        lua_remove(L, -2);
        struct stat info;
        const char *candidate = lua_tostring(L, -1);
        if (access(candidate, X_OK) == 0 && stat(candidate, &info) == 0 && S_ISREG(info.st_mode)) return (char *)candidate;
        lua_pop(L, 1);
        path += len + (path[len] == ':');
    }
    lua_pushstring(L, name);
    return (char *)lua_tostring(L, -1);
}

/* 0 or the errno with which the child failed before its exec was done. */
static int read_report(int fd) {
    int error = 0;
    ssize_t len;
    do len = read(fd, &error, sizeof error);
    while (len < 0 && errno == EINTR);
    return len == (ssize_t)sizeof error ? error : 0;
}

static int fork_child(spawn_request *r, pid_t *pid) {
    r->parent = getpid();
    *pid = fork();
    if (*pid < 0) return errno;
    if (*pid == 0) run_child(r);
    setpgid(*pid, *pid); /* whoever comes first; too late when the child has its program already */
    close_fd(&r->report[1]);
    int error = read_report(r->report[0]);
    if (error) waitpid(*pid, NULL, 0);
    return error;
}

/* Reads the table at 1. What it allocates lies on the stack. */
static void read_request(lua_State *L, spawn_request *r, const char *how[NUM_SLOTS]) {
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 1);
    for (int i = 0; i < NUM_SLOTS; i++) {
        lua_getfield(L, 1, slot_names[i]);
        how[i] = lua_tostring(L, -1);
    }
    lua_getfield(L, 1, "cwd");
    r->cwd = lua_tostring(L, -1);
    lua_getfield(L, 1, "argv");
    luaL_checktype(L, -1, LUA_TTABLE);
    r->argv = string_list(L, lua_gettop(L), 0);
    if (!r->argv[0]) luaL_error(L, "spawn: argv is empty");
    lua_getfield(L, 1, "env");
    luaL_checktype(L, -1, LUA_TTABLE);
    r->num_env = (int)lua_objlen(L, -1);
    r->env = string_list(L, lua_gettop(L), 1);
    lua_getfield(L, 1, "processors");
    if (!lua_isnil(L, -1)) {
        luaL_checktype(L, -1, LUA_TTABLE);
        r->cpus = cpu_list(L, lua_gettop(L), &r->cpus_bytes);
    }
    r->path = find_program(L, r->argv[0]);
}

/* Opens all ends and puts the status socket into the environment; 0 or an errno. */
static int open_ends(spawn_request *r, const char *const how[NUM_SLOTS]) {
    for (int i = 0; i < NUM_SLOTS; i++)
        if (!open_slot(r, i, how[i])) return errno;
    int fd = r->theirs[STATUS_SLOT];
    if (fd >= 0) {
        struct stat info;
        if (fstat(fd, &info) != 0) return errno;
        snprintf(r->status, sizeof r->status, "ARGAND_STATUS_FD=%d:%llu", fd, (unsigned long long)info.st_ino);
        r->env[r->num_env] = r->status;
    }
    return open_pair(r->report, false) ? 0 : errno;
}

/* process.spawn{argv = {...}, env = {"NAME=value", ...}, cwd =, stdin =, stdout =, stderr =, status =, processors = {...}}
 * -> {pid =, stdin =, ...} or nil, message. A slot is "pipe", "null" or a file; none: inherited. `status` gives the child
 * ARGAND_STATUS_FD. It runs on no other than `processors`, by their numbers, from its exec on. The child leads a
 * process group. */
static int process_spawn(lua_State *L) {
    spawn_request r = {.ours = {-1, -1, -1, -1}, .theirs = {-1, -1, -1, -1}, .report = {-1, -1}};
    const char *how[NUM_SLOTS];
    pid_t pid = -1;
    read_request(L, &r, how);
    int error = open_ends(&r, how);
    if (!error) error = fork_child(&r, &pid);
    for (int i = 0; i < NUM_SLOTS; i++) {
        close_fd(&r.theirs[i]);
        if (error) close_fd(&r.ours[i]);
    }
    close_fd(&r.report[0]);
    close_fd(&r.report[1]);
    if (error) {
        errno = error;
        return return_errno(L, r.path);
    }
    lua_createtable(L, 0, NUM_SLOTS + 1);
    lua_pushinteger(L, pid);
    lua_setfield(L, -2, "pid");
    for (int i = 0; i < NUM_SLOTS; i++) {
        if (r.ours[i] < 0) continue;
        lua_pushinteger(L, r.ours[i]);
        lua_setfield(L, -2, slot_names[i]);
    }
    return 1;
}

/* process.environment() -> list of "NAME=value" */
static int process_environment(lua_State *L) {
    lua_newtable(L);
    for (int i = 0; environ && environ[i]; i++) {
        lua_pushstring(L, environ[i]);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

/* ---- the end of children ---- */

/* process.wait() -> pid, exit code or nil, signal or nil; nil while all children run, false when there are none. */
static int process_wait(lua_State *L) {
    int status;
    pid_t pid;
    do pid = waitpid(-1, &status, WNOHANG);
    while (pid < 0 && errno == EINTR);
    if (pid <= 0) {
        if (pid == 0)
            lua_pushnil(L);
        else
            lua_pushboolean(L, 0);
        return 1;
    }
    lua_pushinteger(L, pid);
    if (WIFSIGNALED(status))
        lua_pushnil(L);
    else
        lua_pushinteger(L, WEXITSTATUS(status));
    if (WIFSIGNALED(status))
        lua_pushinteger(L, WTERMSIG(status));
    else
        lua_pushnil(L);
    return 3;
}

/* process.kill(pid, signal): a negative pid means a process group. */
static int process_kill(lua_State *L) {
    int pid = (int)binding_whole(L, BINDING(L), 1, "kill", "pid", INT_MIN, INT_MAX);
    if (pid == 0 || pid == -1 || pid == 1) return luaL_error(L, "kill: %d is not one process or group", pid);
    if (kill(pid, (int)luaL_checkinteger(L, 2)) != 0) return return_errno(L, "kill");
    lua_pushboolean(L, 1);
    return 1;
}

/* process.signal_name(number) -> "SIGKILL", or "signal 40" */
static int process_signal_name(lua_State *L) {
    int number = (int)luaL_checkinteger(L, 1);
    static const struct {
        int number;
        const char *name;
    } names[] = {{SIGHUP, "SIGHUP"},   {SIGINT, "SIGINT"},   {SIGQUIT, "SIGQUIT"}, {SIGILL, "SIGILL"},   {SIGTRAP, "SIGTRAP"},
                 {SIGABRT, "SIGABRT"}, {SIGBUS, "SIGBUS"},   {SIGFPE, "SIGFPE"},   {SIGKILL, "SIGKILL"}, {SIGUSR1, "SIGUSR1"},
                 {SIGSEGV, "SIGSEGV"}, {SIGUSR2, "SIGUSR2"}, {SIGPIPE, "SIGPIPE"}, {SIGALRM, "SIGALRM"}, {SIGTERM, "SIGTERM"},
                 {SIGXCPU, "SIGXCPU"}, {SIGXFSZ, "SIGXFSZ"}, {SIGSYS, "SIGSYS"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].number == number) return lua_pushstring(L, names[i].name), 1;
    lua_pushfstring(L, "signal %d", number);
    return 1;
}

/* process.adopt(): orphans among the descendants become children of this process, so that it can end them. */
static int process_adopt(lua_State *L) {
    lua_pushboolean(L, prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0);
    return 1;
}

/* process.signal_fd() -> fd; from now on SIGINT, SIGTERM, SIGHUP and SIGCHLD of this thread come from it, and a write to a
 * closed pipe fails. A SIGHUP that nohup has this process ignore stays ignored: blocked, it would be kept and read. For good:
 * the process ends with the job. */
static int process_signal_fd(lua_State *L) {
    sigset_t set, blocked;
    struct sigaction of_hangup;
    managed_signals(&set);
    if (sigaction(SIGHUP, NULL, &of_hangup) == 0 && of_hangup.sa_handler == SIG_IGN) sigdelset(&set, SIGHUP);
    blocked = set;
    sigaddset(&blocked, SIGPIPE);
    if (sigprocmask(SIG_BLOCK, &blocked, NULL) != 0) return return_errno(L, "sigprocmask");
    int fd = lift(signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
    if (fd < 0) return return_errno(L, "signalfd");
    lua_pushinteger(L, fd);
    return 1;
}

/* process.read_signals(fd) -> list of signal numbers */
static int process_read_signals(lua_State *L) {
    struct signalfd_siginfo info;
    int fd = (int)luaL_checkinteger(L, 1), count = 0;
    lua_newtable(L);
    while (read(fd, &info, sizeof info) == (ssize_t)sizeof info) {
        lua_pushinteger(L, (lua_Integer)info.ssi_signo);
        lua_rawseti(L, -2, ++count);
    }
    return 1;
}

/* ---- the guard ---- */

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *place) {
    (void)info, (void)kind, (void)place;
    remove(path);
    return 0;
}

/* Removes a folder with all that is in it; again, while somebody who is ending writes there. */
static void remove_folder(const char *path) {
    for (int i = 0; i < 100 && access(path, F_OK) == 0; i++) {
        if (i > 0) usleep(20000);
        nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    }
}

/* Runs in the guard. Records: a pid to guard, or minus a pid whose guard ends. */
static void run_guard(int fd, const char *folder) {
    int32_t guarded[MAX_GUARDED], record;
    int count = 0;
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    setsid();
    for (int i = 0; i < GUARD_FDS; i++)
        if (i != fd) close(i);
    for (;;) {
        ssize_t len = read(fd, &record, sizeof record);
        if (len < 0 && errno == EINTR) continue;
        if (len != (ssize_t)sizeof record) break;
        if (record > 0 && count < MAX_GUARDED) guarded[count++] = record;
        for (int i = 0; record < 0 && i < count; i++)
            if (guarded[i] == -record) guarded[i--] = guarded[--count];
    }
    for (int i = 0; i < count; i++) kill(-guarded[i], SIGKILL);
    if (*folder) remove_folder(folder);
    _exit(0);
}

/* process.guard(file or nil) -> pid, fd: a process that, when this one ends in whatever way, kills the process groups it was
 * told of, and removes the folder that the file lies in, which is this process's own, with all that is in it. */
static int process_guard(lua_State *L) {
    const char *file = luaL_optstring(L, 1, NULL);
    char folder[PATH_MAX] = "";
    int fds[2];
    const char *slash = file ? strrchr(file, '/') : NULL;
    if (slash) snprintf(folder, sizeof folder, "%.*s", (int)(slash - file), file);
    if (!open_pair(fds, false)) return return_errno(L, "pipe");
    pid_t pid = fork();
    if (pid == 0) {
        close(fds[1]);
        run_guard(fds[0], folder);
    }
    close(fds[0]);
    if (pid < 0) {
        int error = errno;
        close(fds[1]);
        errno = error;
        return return_errno(L, "fork");
    }
    lua_pushinteger(L, pid);
    lua_pushinteger(L, fds[1]);
    return 2;
}

/* process.guard_tell(fd, pid): guards the group of pid; of minus a pid no more. */
static int process_guard_tell(lua_State *L) {
    int32_t record = (int32_t)luaL_checkinteger(L, 2);
    lua_pushboolean(L, write((int)luaL_checkinteger(L, 1), &record, sizeof record) == (ssize_t)sizeof record);
    return 1;
}

/* ---- descriptors ---- */

static int add_polled(lua_State *L, int list, short events, struct pollfd *fds, int count) {
    int len = lua_istable(L, list) ? (int)lua_objlen(L, list) : 0;
    if (count + len > MAX_POLLED) luaL_error(L, "poll: more than %d descriptors", MAX_POLLED);
    for (int i = 1; i <= len; i++) {
        lua_rawgeti(L, list, i);
        fds[count++] = (struct pollfd){.fd = (int)lua_tointeger(L, -1), .events = events};
        lua_pop(L, 1);
    }
    return count;
}

/* process.poll(readers, writers or nil, seconds) -> list of those that are ready or closed */
static int process_poll(lua_State *L) {
    double seconds = luaL_checknumber(L, 3);
    lua_settop(L, 3);
    struct pollfd *fds = lua_newuserdata(L, MAX_POLLED * sizeof *fds);
    int count = add_polled(L, 2, POLLOUT, fds, add_polled(L, 1, POLLIN, fds, 0));
    int timeout_ms = seconds <= 0 ? 0 : seconds > 3600 ? 3600000 : (int)(seconds * 1000) + 1;
    int ready = poll(fds, (nfds_t)count, timeout_ms);
    lua_newtable(L);
    for (int i = 0, found = 0; ready > 0 && i < count; i++) {
        if (!fds[i].revents) continue;
        lua_pushinteger(L, fds[i].fd);
        lua_rawseti(L, -2, ++found);
    }
    return 1;
}

/* process.read(fd) -> what is there; nil when nothing is, false at the end */
static int process_read(lua_State *L) {
    char buffer[READ_BYTES];
    ssize_t len;
    do len = read((int)luaL_checkinteger(L, 1), buffer, sizeof buffer);
    while (len < 0 && errno == EINTR);
    if (len > 0)
        lua_pushlstring(L, buffer, (size_t)len);
    else if (len < 0 && errno == EAGAIN)
        lua_pushnil(L);
    else
        lua_pushboolean(L, 0);
    return 1;
}

/* process.write(fd, bytes) -> how many were written without waiting, or nil, message. A blocking descriptor takes all. */
static int process_write(lua_State *L) {
    int fd = (int)luaL_checkinteger(L, 1);
    size_t len, done = 0;
    const char *bytes = luaL_checklstring(L, 2, &len);
    while (done < len) {
        ssize_t part = write(fd, bytes + done, len - done);
        if (part >= 0)
            done += (size_t)part;
        else if (errno == EAGAIN)
            break;
        else if (errno != EINTR)
            return return_errno(L, "write");
    }
    lua_pushnumber(L, (double)done);
    return 1;
}

static int process_close(lua_State *L) {
    close((int)luaL_checkinteger(L, 1));
    return 0;
}

/* ---- files and the machine ---- */

/* process.temporary_folder() -> path of a new folder that is this user's alone */
static int process_temporary_folder(lua_State *L) {
    char path[PATH_MAX];
    const char *base = getenv("TMPDIR");
    int len = snprintf(path, sizeof path, "%s/argand-XXXXXX", base && *base ? base : "/tmp");
    if (len >= (int)sizeof path) return luaL_error(L, "TMPDIR is too long");
    if (!mkdtemp(path)) return return_errno(L, path);
    lua_pushstring(L, path);
    return 1;
}

/* process.write_private(path, bytes): a new file of mode 0600 */
static int process_write_private(lua_State *L) {
    const char *path = luaL_checkstring(L, 1);
    size_t len;
    const char *bytes = luaL_checklstring(L, 2, &len);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) return return_errno(L, path);
    ssize_t written = write(fd, bytes, len);
    int failed = written != (ssize_t)len, error = written < 0 ? errno : ENOSPC;
    if (close(fd) != 0 && !failed) failed = 1, error = errno;
    if (failed) {
        unlink(path);
        errno = error;
        return return_errno(L, path);
    }
    lua_pushboolean(L, 1);
    return 1;
}

/* process.make_folder(path): true also when it is there already */
static int process_make_folder(lua_State *L) {
    const char *path = luaL_checkstring(L, 1);
    struct stat info;
    bool is_there = mkdir(path, 0777) == 0 || (errno == EEXIST && stat(path, &info) == 0 && S_ISDIR(info.st_mode));
    if (!is_there) return return_errno(L, path);
    lua_pushboolean(L, 1);
    return 1;
}

/* process.processors() -> list of the numbers, from 0 and rising, of those that this process may use; empty where the system
 * does not tell. */
static int process_processors(lua_State *L) {
    size_t num_bytes;
    cpu_set_t *set = allowed_cpus(&num_bytes);
    lua_newtable(L);
    for (size_t cpu = 0, found = 0; set && cpu < num_bytes * 8; cpu++) {
        if (!CPU_ISSET_S(cpu, num_bytes, set)) continue;
        lua_pushinteger(L, (lua_Integer)cpu);
        lua_rawseti(L, -2, (int)++found);
    }
    if (set) CPU_FREE(set);
    return 1;
}

/* process.self() -> {pid =, program =, folder =, host =, processors =} of this process */
static int process_self(lua_State *L) {
    char text[PATH_MAX];
    lua_createtable(L, 0, 5);
    lua_pushinteger(L, getpid());
    lua_setfield(L, -2, "pid");
    ssize_t len = readlink("/proc/self/exe", text, sizeof text);
    if (len > 0) lua_pushlstring(L, text, (size_t)len), lua_setfield(L, -2, "program");
    if (getcwd(text, sizeof text)) lua_pushstring(L, text), lua_setfield(L, -2, "folder");
    text[sizeof text - 1] = '\0';
    lua_pushstring(L, gethostname(text, sizeof text - 1) == 0 ? text : "localhost");
    lua_setfield(L, -2, "host");
    lua_pushinteger(L, ag_num_processors());
    lua_setfield(L, -2, "processors");
    return 1;
}

/* ---- a rank's side ---- */

/* The socket to the launcher, -1 without one. A process further down may have the variable and not the socket, hence the
 * number of its inode. */
static int status_fd(void) {
    const char *text = getenv("ARGAND_STATUS_FD");
    int fd;
    unsigned long long inode;
    struct stat info;
    if (!text || sscanf(text, "%d:%llu", &fd, &inode) != 2) return -1;
    if (fstat(fd, &info) != 0 || !S_ISSOCK(info.st_mode) || info.st_ino != inode) return -1;
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    return fd;
}

/* process.status(text[, kind]): tells the launcher what this rank does ("note", the default) or why it fails ("fail", "peer").
 * False when there is no launcher or it does not listen: never waits. */
static int process_status(lua_State *L) {
    size_t len;
    const char *text = luaL_checklstring(L, 1, &len);
    char line[STATUS_BYTES + 16];
    int fd = status_fd();
    if (fd < 0) return lua_pushboolean(L, 0), 1;
    int prefix = snprintf(line, 16, "%.8s ", luaL_optstring(L, 2, "note"));
    if (len > STATUS_BYTES) len = STATUS_BYTES;
    for (size_t i = 0; i < len; i++) line[prefix + (int)i] = (unsigned char)text[i] < 32 ? ' ' : text[i];
    len += (size_t)prefix;
    line[len++] = '\n';
    lua_pushboolean(L, send(fd, line, len, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)len);
    return 1;
}

static const luaL_Reg functions[] = {{"spawn", process_spawn},
                                     {"environment", process_environment},
                                     {"wait", process_wait},
                                     {"kill", process_kill},
                                     {"signal_name", process_signal_name},
                                     {"adopt", process_adopt},
                                     {"signal_fd", process_signal_fd},
                                     {"read_signals", process_read_signals},
                                     {"guard", process_guard},
                                     {"guard_tell", process_guard_tell},
                                     {"poll", process_poll},
                                     {"read", process_read},
                                     {"write", process_write},
                                     {"close", process_close},
                                     {"temporary_folder", process_temporary_folder},
                                     {"write_private", process_write_private},
                                     {"make_folder", process_make_folder},
                                     {"processors", process_processors},
                                     {"self", process_self},
                                     {"status", process_status},
                                     {NULL, NULL}};

void process_register(lua_State *L, binding *b, int module) {
    lua_newtable(L);
    int table = lua_gettop(L);
    for (const luaL_Reg *r = functions; r->name; r++) binding_function(L, b, table, r->name, r->func);
    lua_setfield(L, module, "process");
}
