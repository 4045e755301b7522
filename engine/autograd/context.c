/* context.c: the autodiff context of a thread: recording or not, and what is kept for backward. */
#include "autograd/tape.h"
#include "core/error.h"

#define MAX_DEPTH 4096

typedef struct context_state {
    bool enabled;
    uint8_t checkpointing; /* ag_checkpointing */
} context_state;

static _Thread_local context_state stack[MAX_DEPTH];
static _Thread_local int depth;
static _Thread_local int paused;

ag_status ag_autodiff_push(bool enabled, ag_checkpointing checkpointing) {
    if (depth == MAX_DEPTH)
        return error_set(AG_E_STATE, "autodiff", NULL, "contexts nested at most 4096 deep",
                         "look for a context that is entered without end", "more");
    if (checkpointing == AG_CHECKPOINT_INHERIT) checkpointing = context_checkpointing();
    stack[depth++] = (context_state){enabled, (uint8_t)checkpointing};
    return AG_OK;
}

void ag_autodiff_pop(void) {
    if (depth) depth--;
}

int ag_autodiff_depth(void) { return depth; }
bool ag_autodiff_is_enabled(void) { return depth ? stack[depth - 1].enabled : true; }
bool context_is_recording(void) { return !paused && ag_autodiff_is_enabled(); }
ag_checkpointing context_checkpointing(void) {
    return depth ? (ag_checkpointing)stack[depth - 1].checkpointing : AG_CHECKPOINT_NONE;
}
void context_pause(void) { paused++; }
void context_resume(void) { paused--; }
