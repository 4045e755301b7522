/* device.h: where storage lives. Core knows of a device only how to get and give back its memory; the rest is the backend's. */
#ifndef ARGAND_CORE_DEVICE_H
#define ARGAND_CORE_DEVICE_H

#include "argand.h"

struct backend;

struct ag_device {
    const char *name;              /* "cpu", "reference" */
    const char *description;       /* one line for people */
    const struct backend *backend; /* backend/backend.h */
    bool is_host;                  /* data can be read and written through a plain pointer */
    void *(*alloc)(ag_device *device, size_t size_bytes);             /* NULL when out */
    void (*free)(ag_device *device, void *block, size_t size_bytes); /* the size asked for */
};

#endif
