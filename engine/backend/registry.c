/* registry.c: the devices of this process. */
#include <string.h>

#include "backend/backend.h"
#include "core/device.h"

#define MAX_DEVICES 16

static ag_device *devices[MAX_DEVICES];
static int num_devices;

void registry_init(const backend *const *backends, int count) {
    if (num_devices) return;
    for (int i = 0; i < count && num_devices < MAX_DEVICES; i++) {
        ag_device *device = backends[i]->open();
        if (device) devices[num_devices++] = device;
    }
}

ag_device *registry_default(void) { return devices[0]; }

ag_device *registry_find(const char *name) {
    for (int i = 0; i < num_devices; i++)
        if (strcmp(devices[i]->name, name) == 0) return devices[i];
    return NULL;
}

int registry_count(void) { return num_devices; }
ag_device *registry_at(int position) { return position >= 0 && position < num_devices ? devices[position] : NULL; }
