/* address.c: finding the interface that leads to the coordinator, by the system's own routing. */
#include "dist/group/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/error.h"

#define MAX_HOST 128

/* Splits "tcp://host:port" and "tcp://[v6]:port". */
static bool split(const char *endpoint, char host[MAX_HOST], char port[8]) {
    if (strncmp(endpoint, "tcp://", 6) != 0) return false;
    const char *begin = endpoint + 6, *colon = strrchr(begin, ':');
    if (!colon || colon == begin || strlen(colon + 1) > 5 || colon[1] == '\0') return false;
    size_t len = (size_t)(colon - begin);
    if (*begin == '[') {
        if (len < 2 || begin[len - 1] != ']') return false;
        begin++;
        len -= 2;
    }
    if (len >= MAX_HOST) return false;
    memcpy(host, begin, len);
    host[len] = '\0';
    snprintf(port, 8, "%s", colon + 1);
    return true;
}

/* A datagram socket that is connected has got its own address by the route, and sends nothing. */
static ag_status route_address(const struct addrinfo *to, char *address, size_t len) {
    int fd = socket(to->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return error_set(AG_E_NETWORK, "group", "address", NULL, NULL, "no socket: %s", strerror(errno));
    struct sockaddr_storage own;
    socklen_t own_len = sizeof own;
    ag_status status = AG_OK;
    char text[INET6_ADDRSTRLEN];
    if (connect(fd, to->ai_addr, to->ai_addrlen) != 0 || getsockname(fd, (struct sockaddr *)&own, &own_len) != 0)
        status = error_set(AG_E_NETWORK, "group", "address", NULL, "name this host's address: ARGAND_ADDRESS",
                           "no route to the coordinator: %s", strerror(errno));
    else if (getnameinfo((struct sockaddr *)&own, own_len, text, sizeof text, NULL, 0, NI_NUMERICHOST) != 0)
        status = error_set(AG_E_NETWORK, "group", "address", NULL, NULL, "an address that cannot be written");
    else
        snprintf(address, len, own.ss_family == AF_INET6 ? "[%s]" : "%s", text);
    close(fd);
    return status;
}

ag_status address_pick(const char *coordinator, const char *wanted, char *address, size_t len) {
    char host[MAX_HOST], port[8];
    if (!split(coordinator, host, port))
        return error_set(AG_E_VALUE, "group", "coordinator", "tcp://host:port or ipc://@name", NULL, "\"%.100s\"", coordinator);
    if (wanted && wanted[0]) {
        bool is_bare_v6 = strchr(wanted, ':') && wanted[0] != '[';
        snprintf(address, len, is_bare_v6 ? "[%s]" : "%s", wanted);
        return AG_OK;
    }
    struct addrinfo hints = {.ai_socktype = SOCK_DGRAM, .ai_flags = AI_NUMERICSERV}, *list = NULL;
    int fault = getaddrinfo(strcmp(host, "*") == 0 ? "127.0.0.1" : host, port, &hints, &list);
    if (fault)
        return error_set(AG_E_NETWORK, "group", "coordinator", NULL, "is the name right, and known on this host?",
                         "\"%.100s\" cannot be found: %s", host, gai_strerror(fault));
    ag_status status = route_address(list, address, len);
    freeaddrinfo(list);
    return status;
}

bool address_is_loopback(const char *endpoint) {
    char host[MAX_HOST], port[8];
    if (!split(endpoint, host, port)) return false;
    return strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0 || strcmp(host, "localhost") == 0;
}
