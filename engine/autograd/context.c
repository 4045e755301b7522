/* context.c: the autodiff context of a thread: recording or not, and what is kept for backward. */
#include "autograd/tape.h"
#include "core/error.h"
#include "core/memory.h"
#include "platform/hot_thread_local.h"

#define MAX_DEPTH 4096

typedef struct context_state {
    bool enabled;
    uint8_t checkpointing; /* ag_checkpointing */
} context_state;

/* What current was when a context was entered. */
typedef struct enclosing_context {
    context_state state;
    struct enclosing_context *next;
} enclosing_context;

static HOT_THREAD_LOCAL context_state current = {.enabled = true, .checkpointing = AG_CHECKPOINT_NONE};
static HOT_THREAD_LOCAL enclosing_context *enclosing; /* [depth] of them, the innermost first */
static HOT_THREAD_LOCAL int depth;
static HOT_THREAD_LOCAL int paused;

ag_status ag_autodiff_push(bool enabled, ag_checkpointing checkpointing) {
    if (depth == MAX_DEPTH)
        return error_set(AG_E_STATE, "autodiff", NULL, "contexts nested at most 4096 deep",
                         "look for a context that is entered without end", "more");
    enclosing_context *entered = heap_take(sizeof *entered);
    if (!entered) return error_memory("autodiff", sizeof *entered);
    *entered = (enclosing_context){.state = current, .next = enclosing};
    enclosing = entered;
    depth++;
    if (checkpointing != AG_CHECKPOINT_INHERIT) current.checkpointing = (uint8_t)checkpointing;
    current.enabled = enabled;
    return AG_OK;
}

void ag_autodiff_pop(void) {
    enclosing_context *left = enclosing;
    if (!left) return;
    current = left->state;
    enclosing = left->next;
    depth--;
    heap_give(left, sizeof *left);
}

int ag_autodiff_depth(void) { return depth; }
bool ag_autodiff_is_enabled(void) { return current.enabled; }
bool context_is_recording(void) { return !paused && current.enabled; }
ag_checkpointing context_checkpointing(void) { return (ag_checkpointing)current.checkpointing; }
void context_pause(void) { paused++; }
void context_resume(void) { paused--; }
