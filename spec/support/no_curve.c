/* no_curve.c: preloaded, makes of any ZeroMQ library one that was built without CURVE, and tells on standard error of each address
 * that is about to be bound or connected to. Compiled by security_spec.lua. */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT int zmq_has(const char *capability) {
    int (*next)(const char *) = (int (*)(const char *))dlsym(RTLD_NEXT, "zmq_has");
    return strcmp(capability, "curve") == 0 ? 0 : next(capability);
}

EXPORT int zmq_curve_keypair(char *public_key, char *secret_key) {
    (void)public_key, (void)secret_key;
    errno = ENOTSUP;
    return -1;
}

EXPORT int zmq_curve_public(char *public_key, const char *secret_key) {
    (void)public_key, (void)secret_key;
    errno = ENOTSUP;
    return -1;
}

EXPORT int zmq_bind(void *socket, const char *address) {
    int (*next)(void *, const char *) = (int (*)(void *, const char *))dlsym(RTLD_NEXT, "zmq_bind");
    fprintf(stderr, "opens %s\n", address);
    return next(socket, address);
}

EXPORT int zmq_connect(void *socket, const char *address) {
    int (*next)(void *, const char *) = (int (*)(void *, const char *))dlsym(RTLD_NEXT, "zmq_connect");
    fprintf(stderr, "opens %s\n", address);
    return next(socket, address);
}
