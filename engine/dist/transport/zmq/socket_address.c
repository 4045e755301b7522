/* socket_address.c: reads addresses, resolves their names, and tells which of them only this host can reach. */
#include <errno.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "core/error.h"
#include "dist/transport/zmq/socket_private.h"

static ag_status bad_address(const char *address) {
    return error_set(AG_E_VALUE, NULL, "address", "tcp://host:port, tcp://[IPv6 address]:port, ipc://path or ipc://@name", NULL,
                     "\"%s\"", address);
}

static bool is_loopback(const struct sockaddr *address) {
    if (address->sa_family == AF_INET) return ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >> 24 == 127;
    const struct in6_addr *v6 = &((const struct sockaddr_in6 *)address)->sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(v6) || (IN6_IS_ADDR_V4MAPPED(v6) && v6->s6_addr[12] == 127);
}

static ag_status write_place(const struct sockaddr *address, socklen_t len, const char *port, socket_place *out) {
    char host[NI_MAXHOST];
    int error = getnameinfo(address, len, host, sizeof host, NULL, 0, NI_NUMERICHOST);
    if (error != 0)
        return error_set(AG_E_NETWORK, NULL, NULL, NULL, NULL, "an address cannot be written: %s", gai_strerror(error));
    out->is_v6 = address->sa_family == AF_INET6;
    out->is_local = is_loopback(address);
    snprintf(out->text, sizeof out->text, out->is_v6 ? "tcp://[%.128s]:%.8s" : "tcp://%.128s:%.8s", host, port);
    return AG_OK;
}

/* The port in canonical form: "*" for any, which only a listener may want. */
static bool read_port(const char *text, bool is_listening, char port[8]) {
    if (strcmp(text, "*") == 0 || strcmp(text, "0") == 0) {
        memcpy(port, "*", 2);
        return is_listening;
    }
    size_t len = strlen(text);
    if (len == 0 || len > 5 || strspn(text, "0123456789") != len) return false;
    long number = strtol(text, NULL, 10);
    snprintf(port, 8, "%ld", number);
    return number >= 1 && number <= 65535;
}

static ag_status resolve_error(const char *host, int error) {
    if (error == EAI_AGAIN)
        return error_set(AG_E_NETWORK, NULL, NULL, NULL, NULL, "the name %s cannot be looked up: no name server answers", host);
    if (error == EAI_MEMORY) return error_memory(NULL, 0);
    if (error == EAI_SYSTEM && (errno == EMFILE || errno == ENFILE)) return socket_network_error(NULL, host, ENFILE);
    return error_set(AG_E_NETWORK, NULL, NULL, NULL, "use a name that all hosts know, or an IP address",
                     "the name %s is not found (%s)", host, error == EAI_SYSTEM ? strerror(errno) : gai_strerror(error));
}

static ag_status find_tcp(const char *address, bool is_listening, socket_place *out) {
    const char *start = address + strlen("tcp://"), *colon = strrchr(start, ':');
    char host[200], port[8];
    if (!colon || colon == start || (size_t)(colon - start) >= sizeof host || strpbrk(start, "; /@") ||
        !read_port(colon + 1, is_listening, port))
        return bad_address(address);
    size_t len = (size_t)(colon - start);
    memcpy(host, start, len);
    host[len] = '\0';
    if (host[0] == '[') {
        if (host[len - 1] != ']' || len < 4) return bad_address(address);
        memmove(host, host + 1, len - 2);
        host[len - 2] = '\0';
    }
    if (strcmp(host, "*") == 0) {
        if (!is_listening) return bad_address(address);
        snprintf(out->text, sizeof out->text, "tcp://*:%s", port);
        return AG_OK;
    }
    /* Not left to the resolver, which answers ::1 on some hosts and 127.0.0.1 on others. */
    if (strcmp(host, "localhost") == 0) strcpy(host, "127.0.0.1");
    struct addrinfo want = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST}, *found = NULL;
    int error = getaddrinfo(host, NULL, &want, &found);
    if (error != 0 && is_listening && if_nametoindex(host) != 0) { /* ZeroMQ takes the interface's first address */
        snprintf(out->text, sizeof out->text, "tcp://%s:%s", host, port);
        return AG_OK;
    }
    if (error != 0) {
        want.ai_flags = AI_ADDRCONFIG;
        error = getaddrinfo(host, NULL, &want, &found);
    }
    if (error != 0) return resolve_error(host, error);
    ag_status status = write_place(found->ai_addr, found->ai_addrlen, port, out);
    freeaddrinfo(found);
    return status;
}

ag_status socket_place_find(const char *address, bool is_listening, socket_place *out) {
    *out = (socket_place){.is_local = false};
    if (!address || strlen(address) >= sizeof out->text) return bad_address(address ? address : "");
    if (strncmp(address, "tcp://", 6) == 0) return find_tcp(address, is_listening, out);
    bool is_ipc = strncmp(address, "ipc://", 6) == 0;
    if (!is_ipc && strncmp(address, "inproc://", 9) != 0) return bad_address(address);
    if (address[is_ipc ? 6 : 9] == '\0') return bad_address(address);
    out->is_local = true;
    out->is_ipc = is_ipc;
    snprintf(out->text, sizeof out->text, "%s", address);
    return AG_OK;
}

ag_status socket_place_of_fd(int fd, socket_place *out) {
    *out = (socket_place){.is_local = false};
    struct sockaddr_storage address = {0};
    socklen_t len = sizeof address, int_len = sizeof(int);
    int listens = 0;
    if (getsockname(fd, (struct sockaddr *)&address, &len) != 0 ||
        getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &int_len) != 0)
        return error_set(AG_E_NETWORK, NULL, "coordinator_fd", NULL, NULL, "file descriptor %d is no socket: %s", fd,
                         strerror(errno));
    if (!listens || (address.ss_family != AF_INET && address.ss_family != AF_INET6))
        return error_set(AG_E_NETWORK, NULL, "coordinator_fd", NULL, NULL, "file descriptor %d is no listening TCP socket", fd);
    in_port_t number = address.ss_family == AF_INET ? ((struct sockaddr_in *)&address)->sin_port
                                                    : ((struct sockaddr_in6 *)&address)->sin6_port;
    char port[8];
    snprintf(port, sizeof port, "%u", (unsigned)ntohs(number));
    return write_place((struct sockaddr *)&address, len, port, out);
}
