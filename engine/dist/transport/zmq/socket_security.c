/* socket_security.c: the job's keys: their files, the ZAP thread that admits them alone, and the proof that it does.
 *
 * ZAP (RFC 27): for every handshake of a CURVE server ZeroMQ asks a handler at a fixed inproc address. A CURVE server without
 * a handler admits every key, unless ZMQ_ZAP_ENFORCE_DOMAIN is set: so it is, and the handler runs before the first bind.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <zmq.h>

#include "core/error.h"
#include "dist/transport/zmq/socket_private.h"
#include "platform/clock.h"

#define ZAP_ADDRESS    "inproc://zeromq.zap.01"
#define ZAP_DOMAIN     "argand"
#define ZAP_PARTS      7 /* version, request, domain, address, identity, mechanism, key */
#define ZAP_PART_BYTES 255
#define CHECK_NS       5000000000

/* ---- keys ---- */

static ag_status no_curve(ag_status code) {
    return error_set(code, NULL, NULL, NULL, "install a libzmq with libsodium", "this ZeroMQ library has no CURVE security");
}

ag_status socket_keys_make(socket_keys *out) {
    socket_keys made;
    if (zmq_curve_keypair(made.public_key, made.secret_key) != 0)
        return errno == ENOTSUP ? no_curve(AG_E_UNSUPPORTED) : socket_network_error(NULL, "a key pair", errno);
    *out = made;
    explicit_bzero(&made, sizeof made);
    return AG_OK;
}

#define KEY_FILE_BYTES (7 + 40 + 1 + 7 + 40 + 1)

static bool keys_parse(const char *text, size_t len, socket_keys *out) {
    if (len == KEY_FILE_BYTES - 1) len++; /* the last newline may be missing: text ends with 0 */
    if (len != KEY_FILE_BYTES || memcmp(text, "public ", 7) != 0 || text[47] != '\n' || memcmp(text + 48, "secret ", 7) != 0 ||
        (text[95] != '\n' && text[95] != '\0'))
        return false;
    memcpy(out->public_key, text + 7, 40);
    memcpy(out->secret_key, text + 55, 40);
    out->public_key[40] = out->secret_key[40] = '\0';
    uint8_t raw[32];
    char derived[41];
    bool is_right = strlen(out->public_key) == 40 && strlen(out->secret_key) == 40 && zmq_z85_decode(raw, out->public_key) &&
                    zmq_z85_decode(raw, out->secret_key) && zmq_curve_public(derived, out->secret_key) == 0 &&
                    strcmp(derived, out->public_key) == 0;
    explicit_bzero(raw, sizeof raw);
    return is_right;
}

static ag_status key_file_error(const char *path, int error_number) {
    return error_set(AG_E_FILE, NULL, "key_file", NULL, error_number == ENOENT ? "make one with `argand keygen FILE`" : NULL,
                     "%s: %s", path, strerror(error_number));
}

static ag_status check_key_file(int fd, const char *path) {
    struct stat info;
    if (fstat(fd, &info) != 0) return key_file_error(path, errno);
    if (!S_ISREG(info.st_mode)) return error_set(AG_E_FILE, NULL, "key_file", NULL, NULL, "%s is no regular file", path);
    if (info.st_mode & (S_IRWXG | S_IRWXO)) {
        char hint[200];
        snprintf(hint, sizeof hint, "chmod 600 %s", path);
        return error_set(AG_E_VALUE, NULL, "key_file", "a file that only its owner may use", hint, "%s with mode %03o", path,
                         (unsigned)(info.st_mode & 0777));
    }
    if (info.st_uid != geteuid() && geteuid() != 0)
        return error_set(AG_E_VALUE, NULL, "key_file", "a file of this user", NULL, "%s of user %u", path,
                         (unsigned)info.st_uid);
    return AG_OK;
}

ag_status socket_keys_read(const char *path, socket_keys *out) {
    if (!socket_has_security()) return no_curve(AG_E_UNSUPPORTED);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); /* not to wait for a pipe's other end */
    if (fd < 0) return key_file_error(path, errno);
    char text[KEY_FILE_BYTES + 2] = {0};
    size_t len = 0;
    socket_keys keys;
    ag_status status = check_key_file(fd, path);
    while (status == AG_OK && len < sizeof text - 1) {
        ssize_t got = read(fd, text + len, sizeof text - 1 - len);
        if (got == 0) break;
        if (got > 0)
            len += (size_t)got;
        else if (errno != EINTR)
            status = key_file_error(path, errno);
    }
    close(fd);
    if (status == AG_OK && !keys_parse(text, len, &keys))
        status =
            error_set(AG_E_FORMAT, NULL, "key_file", "two lines, `public KEY` and `secret KEY`, whose keys belong together",
                      "make one with `argand keygen FILE`", "%s", path);
    if (status == AG_OK) *out = keys;
    explicit_bzero(text, sizeof text);
    explicit_bzero(&keys, sizeof keys);
    return status;
}

ag_status socket_keys_write(const char *path, const socket_keys *keys) {
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 && errno == EEXIST)
        return error_set(AG_E_FILE, NULL, "key_file", NULL, "choose another name; a job that runs may need the old key",
                         "%s exists already", path);
    if (fd < 0) return key_file_error(path, errno);
    char text[KEY_FILE_BYTES + 1];
    int len = snprintf(text, sizeof text, "public %.40s\nsecret %.40s\n", keys->public_key, keys->secret_key), done = 0;
    int error_number = fchmod(fd, 0600) == 0 ? 0 : errno; /* whatever the umask */
    while (error_number == 0 && done < len) {
        ssize_t put = write(fd, text + done, (size_t)(len - done));
        if (put >= 0)
            done += (int)put;
        else if (errno != EINTR)
            error_number = errno;
    }
    explicit_bzero(text, sizeof text);
    if (error_number == 0 && fsync(fd) != 0) error_number = errno;
    if (close(fd) != 0 && error_number == 0) error_number = errno;
    if (error_number == 0) return AG_OK;
    unlink(path);
    return key_file_error(path, error_number);
}

/* ---- the ZAP thread ---- */

typedef struct zap_request {
    unsigned char parts[ZAP_PARTS][ZAP_PART_BYTES];
    size_t lens[ZAP_PARTS];
    int num_parts; /* of all that came */
} zap_request;

static bool zap_receive(void *zap, zap_request *r) {
    r->num_parts = 0;
    memset(r->lens, 0, sizeof r->lens);
    int more = 1;
    size_t more_len = sizeof more;
    while (more) {
        unsigned char spare[ZAP_PART_BYTES];
        bool is_kept = r->num_parts < ZAP_PARTS;
        int got = zmq_recv(zap, is_kept ? r->parts[r->num_parts] : spare, ZAP_PART_BYTES, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return false;
        if (is_kept) r->lens[r->num_parts] = (size_t)got < ZAP_PART_BYTES ? (size_t)got : ZAP_PART_BYTES;
        r->num_parts++;
        if (zmq_getsockopt(zap, ZMQ_RCVMORE, &more, &more_len) != 0) return false;
    }
    return true;
}

static bool part_is(const zap_request *r, int i, const char *text) {
    return r->lens[i] == strlen(text) && memcmp(r->parts[i], text, r->lens[i]) == 0;
}

/* Takes the same time whatever the key is. */
static bool is_admitted(const socket_context *c, const zap_request *r) {
    if (r->num_parts != ZAP_PARTS || !part_is(r, 0, "1.0") || !part_is(r, 2, ZAP_DOMAIN) || !part_is(r, 5, "CURVE") ||
        r->lens[6] != sizeof c->public_key)
        return false;
    volatile uint8_t difference = 0;
    for (size_t i = 0; i < sizeof c->public_key; i++) difference |= (uint8_t)(r->parts[6][i] ^ c->public_key[i]);
    return difference == 0;
}

static bool zap_answer(void *zap, const zap_request *r, bool is_right) {
    const struct {
        const void *bytes;
        size_t len;
    } parts[] = {{"1.0", 3},
                 {r->parts[1], r->lens[1]},
                 {is_right ? "200" : "400", 3},
                 {is_right ? "OK" : "unknown key", is_right ? 2 : 11},
                 {"", 0},  /* user */
                 {"", 0}}; /* metadata */
    const int count = sizeof parts / sizeof *parts;
    for (int i = 0; i < count; i++)
        while (zmq_send(zap, parts[i].bytes, parts[i].len, i + 1 < count ? ZMQ_SNDMORE : 0) < 0)
            if (errno != EINTR) return false;
    return true;
}

static void *zap_run(void *argument) {
    socket_context *c = argument;
    void *zap = c->zap;
    zap_request request;
    while (zap_receive(zap, &request)) { /* until the context shuts down */
        bool is_right = is_admitted(c, &request);
        /* A statistic; nothing is published by it. */
        if (!is_right) atomic_fetch_add_explicit(&c->num_refused, 1, memory_order_relaxed);
        if (!zap_answer(zap, &request, is_right)) break;
    }
    zmq_close(zap);
    return NULL;
}

ag_status security_start(socket_context *c) {
    if (!socket_has_security()) return no_curve(AG_E_STATE);
    if (strlen(c->keys.public_key) != 40 || !zmq_z85_decode(c->public_key, c->keys.public_key))
        return error_set(AG_E_VALUE, NULL, "keys", NULL, NULL, "the public key is no Z85 text of 40 characters");
    c->zap = zmq_socket(c->zmq, ZMQ_REP);
    if (!c->zap) return socket_network_error(c, NULL, errno);
    ag_status status = socket_set_int(c->zap, ZMQ_LINGER, 0);
    if (status == AG_OK && zmq_bind(c->zap, ZAP_ADDRESS) != 0) status = socket_network_error(c, ZAP_ADDRESS, errno);
    if (status == AG_OK) {
        sigset_t all, before; /* signals are for the program's threads */
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        int error_number = pthread_create(&c->zap_thread, NULL, zap_run, c); /* orders c before the thread's reads */
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        c->has_zap_thread = error_number == 0;
        if (error_number != 0)
            status = error_set(AG_E_STATE, NULL, NULL, NULL, NULL, "no thread can be started: %s", strerror(error_number));
    }
    if (status != AG_OK) zmq_close(c->zap);
    return status;
}

void security_stop(socket_context *c) {
    if (c->has_zap_thread) pthread_join(c->zap_thread, NULL);
    c->has_zap_thread = false;
}

ag_status security_apply_server(void *zmq, const socket_keys *own) {
    /* Without keys and handler the domain has one effect: peers that speak ZMTP 1.0 or 2.0 are refused. Any bytes pass for such
     * a peer's messages, and libzmq 4.3.4 aborts when one comes while the socket closes. */
    AG_TRY(socket_set(zmq, ZMQ_ZAP_DOMAIN, ZAP_DOMAIN, strlen(ZAP_DOMAIN)));
    if (!own) return AG_OK;
    AG_TRY(socket_set_int(zmq, ZMQ_CURVE_SERVER, 1));
    AG_TRY(socket_set(zmq, ZMQ_CURVE_SECRETKEY, own->secret_key, 41));
    return socket_set_int(zmq, SOCKET_ZAP_ENFORCE_DOMAIN, 1);
}

ag_status security_apply_client(void *zmq, const socket_keys *own, const char *server_public) {
    AG_TRY(socket_set(zmq, ZMQ_CURVE_PUBLICKEY, own->public_key, 41));
    AG_TRY(socket_set(zmq, ZMQ_CURVE_SECRETKEY, own->secret_key, 41));
    return socket_set(zmq, ZMQ_CURVE_SERVERKEY, server_public, 41);
}

/* ---- the check at start ---- */

static ag_status check_failed(const char *what) {
    return error_set(AG_E_STATE, NULL, NULL, NULL, "use another build of libzmq", "the check of ZeroMQ's security failed: %s",
                     what);
}

/* A client with `own` keys that sends one byte as soon as it is let in; one that is refused already has no room for it. */
static ag_status check_dial(socket_context *c, const socket_keys *own, const char *endpoint, const char *byte, void **out) {
    void *client = zmq_socket(c->zmq, ZMQ_DEALER);
    if (!client) return socket_network_error(c, NULL, errno);
    ag_status status = socket_set_int(client, ZMQ_LINGER, 0);
    if (status == AG_OK) status = socket_set_int(client, ZMQ_RECONNECT_IVL, -1);
    if (status == AG_OK) status = security_apply_client(client, own, c->keys.public_key);
    if (status == AG_OK &&
        (zmq_connect(client, endpoint) != 0 || (zmq_send(client, byte, 1, ZMQ_DONTWAIT) != 1 && errno != EAGAIN)))
        status = socket_network_error(c, endpoint, errno);
    if (status == AG_OK)
        *out = client;
    else
        zmq_close(client);
    return status;
}

/* Waits for a message at the server, or for the first refusal. 0: time is over, 1: refused, else the byte that came. */
static ag_status check_wait(socket_context *c, void *server, bool awaits_refusal, int *what) {
    int64_t end_ns = clock_ns() + CHECK_NS;
    *what = 0;
    while (*what == 0 && clock_ns() < end_ns) {
        bool is_ready, received;
        socket_message message;
        AG_TRY(socket_poll(&server, NULL, 1, NULL, 0, awaits_refusal ? 1 : 50, &is_ready));
        AG_TRY(socket_receive(server, NULL, &message, &received));
        if (received)
            *what = message.header_bytes == 1 ? *(const char *)message.header : '?';
        else if (awaits_refusal && socket_context_num_refused(c) > 0)
            *what = 1;
        socket_message_free(&message);
    }
    return AG_OK;
}

ag_status security_check(socket_context *c) {
    socket_settings settings = {.max_message_bytes = 64, .send_queue = 4, .receive_queue = 4};
    uint64_t random[2];
    char address[64];
    socket_keys strange;
    void *server = NULL, *stranger = NULL, *member = NULL;
    int what;
    if (getrandom(random, sizeof random, 0) != sizeof random) return check_failed("no random numbers");
    snprintf(address, sizeof address, "ipc://@argand-check-%016llx%016llx", (unsigned long long)random[0],
             (unsigned long long)random[1]);
    ag_status status = socket_keys_make(&strange);
    if (status == AG_OK) status = socket_listen(c, SOCKET_ROUTER, &settings, address, &server, NULL, 0);
    if (status == AG_OK) status = check_dial(c, &strange, address, "s", &stranger);
    if (status == AG_OK) status = check_wait(c, server, true, &what);
    if (status == AG_OK && what > 1) status = check_failed("an unknown key was admitted");
    if (status == AG_OK && what == 0) status = check_failed("an unknown key was not refused in time");
    if (status == AG_OK) status = check_dial(c, &c->keys, address, "m", &member);
    if (status == AG_OK) status = check_wait(c, server, false, &what);
    if (status == AG_OK && what == 's') status = check_failed("an unknown key was admitted");
    if (status == AG_OK && what != 'm') status = check_failed("the job's own key was not admitted");
    if (stranger) zmq_close(stranger);
    if (member) zmq_close(member);
    socket_close(c, server);
    explicit_bzero(&strange, sizeof strange);
    atomic_store_explicit(&c->num_refused, 0, memory_order_relaxed); /* the check's own */
    return status;
}
