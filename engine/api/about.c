/* about.c: devices, dtypes, random state, threads, files and build facts of argand.h: thin forwards to the layers that own
 * them. */
#include <stdio.h>
#include <string.h>
#include <threads.h>

#include "backend/backend.h"
#include "core/dtype.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/random.h"
#include "exec/exec.h"
#include "io/io.h"
#include "platform/cpu.h"
#include "platform/interrupt.h"
#include "platform/pool.h"

const ag_error *ag_last_error(void) { return error_record(); }
const char *ag_status_word(ag_status status) {
    static const char *const words[] = {
#define WORD(constant, word) [constant] = word,
        AG_STATUS_MAP(WORD)
#undef WORD
    };
    return status >= 0 && status < AG_STATUS_COUNT ? words[status] : "unknown";
}

/* cut moves *from past the first `mark` and writes what stood before it; all of it, and false, when there is no mark. */
static bool cut(const char **from, const char *mark, char *buffer, size_t len) {
    const char *end = strstr(*from, mark);
    size_t count = end ? (size_t)(end - *from) : strlen(*from), kept = count < len ? count : len - 1;
    memcpy(buffer, *from, kept);
    buffer[kept] = 0;
    *from += count + (end ? strlen(mark) : 0);
    return end != NULL;
}

ag_status ag_raise(ag_status code, const char *op, const char *arg, const char *message) {
    char body[512], expected[160];
    const char *rest = message, *at = body;
    bool has_hint = cut(&rest, "; ", body, sizeof body), has_expected = strncmp(body, "expected ", 9) == 0;
    if (has_expected) {
        at += 9;
        cut(&at, ", got ", expected, sizeof expected);
    }
    return error_set(code, op, arg, has_expected ? expected : NULL, has_hint ? rest : NULL, "%s", at);
}

const char *ag_dtype_name(ag_dtype dtype) { return dtype_name(dtype); }
size_t ag_dtype_size(ag_dtype dtype) { return dtype_size(dtype); }
const char *ag_dtype_kind(ag_dtype dtype) { return kind_name(dtype_kind(dtype)); }
ag_dtype ag_dtype_find(const char *name) { return dtype_find(name); }

ag_status ag_device_find(const char *name, ag_device **out) {
    ag_device *device = registry_find(name);
    if (!device) {
        char names[160] = "";
        for (int i = 0; i < registry_count(); i++) {
            strncat(names, i ? ", " : "", sizeof names - 1 - strlen(names));
            strncat(names, registry_at(i)->name, sizeof names - 1 - strlen(names));
        }
        return error_set(AG_E_DEVICE, NULL, "device", names, NULL, "\"%.60s\"", name); /* a call puts its op in */
    }
    *out = device;
    return AG_OK;
}
int ag_device_count(void) { return registry_count(); }
ag_device *ag_device_at(int position) { return registry_at(position); }
const char *ag_device_name(const ag_device *device) { return device->name; }
const char *ag_device_description(const ag_device *device) { return device->description; }
bool ag_device_has_collectives(const ag_device *device) { return device->backend->has_collectives; }

void ag_manual_seed(uint64_t seed) { ag_generator_seed(random_default(), seed); }
ag_generator *ag_generator_new(uint64_t seed) {
    ag_generator *generator = heap_alloc(sizeof *generator);
    if (generator)
        *generator = (ag_generator){.seed = seed};
    else
        error_memory("generator", sizeof *generator);
    return generator;
}
void ag_generator_free(ag_generator *generator) { heap_free(generator); }
void ag_generator_seed(ag_generator *generator, uint64_t seed) { ag_generator_set_state(generator, seed, 0); }
void ag_generator_state(const ag_generator *generator, uint64_t *seed, uint64_t *offset) {
    if (!generator) generator = random_default();
    *seed = generator->seed;
    *offset = generator->offset;
}
void ag_generator_set_state(ag_generator *generator, uint64_t seed, uint64_t offset) {
    if (!generator) generator = random_default();
    generator->seed = seed;
    generator->offset = offset;
}

ag_status ag_set_num_threads(int count) {
    if (count < 1 || count > 256) return error_set(AG_E_VALUE, "set_num_threads", "count", "1 to 256", NULL, "%d", count);
    if (!pool_set_num_threads(count))
        return error_set(AG_E_STATE, "set_num_threads", "count", "threads that the system can start", NULL, "%d", count);
    return AG_OK;
}
int ag_get_num_threads(void) { return pool_num_threads(); }
void ag_interrupt(void) { interrupt_raise(); }
bool ag_interrupt_pending(void) { return interrupt_pending(); }
void ag_interrupt_clear(void) { interrupt_clear(); }

ag_status ag_npy_load(const char *path, ag_tensor **out) { return npy_read(path, NULL, out); }
ag_status ag_idx_load(const char *path, ag_tensor **out) { return idx_read(path, NULL, out); }
ag_status ag_npy_save(const char *path, ag_tensor *tensor) {
    if (!tensor->storage->device->is_host)
        return error_set(AG_E_DEVICE, "npy_save", "tensor", "a tensor in host memory", "t:to(\"cpu\")", "%s",
                         tensor->storage->device->name);
    return npy_write(path, tensor);
}

const char *ag_version(void) { return AG_VERSION; }
const char *ag_build_info(void) { return ARGAND_BUILD_INFO; }
static char cpu_text[160];

static void describe_cpu(void) {
    snprintf(cpu_text, sizeof cpu_text, "%s, %d processors, %s kernels", cpu_model(), cpu_count(), cpu_isa_name(cpu_detect()));
}

int ag_num_processors(void) { return cpu_count(); }

const char *ag_cpu_info(void) {
    static once_flag is_described = ONCE_FLAG_INIT;
    call_once(&is_described, describe_cpu);
    return cpu_text;
}
const char *ag_blas_info(void) {
    return registry_default()->backend->blas_info ? registry_default()->backend->blas_info() : "none";
}
