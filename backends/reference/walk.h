/* walk.h: how the kernels here get from element to element.
 *
 * A walk visits the elements of a shape in row-major order, like an odometer, and knows for each operand how far its element
 * lies from the operand's first one. Operands may have any strides, and sizes of 1 that broadcast. Dims can be held still,
 * which leaves the other dims to a second walk: that is how reductions and lines are written.
 *
 *   struct walk w;
 *   walk_begin(&w, call, &s, 0);
 *   int x = walk_add(&w, tensor);
 *   for (; walk_more(&w); walk_step(&w)) use(walk_at(&w, x));
 *   return w.status;
 */
#ifndef ARGAND_REFERENCE_WALK_H
#define ARGAND_REFERENCE_WALK_H

#include "ops/op.h"

enum { WALK_MAX_OPERANDS = 5 };

struct walk {
    shape shape;
    int64_t count;    /* elements to visit */
    int64_t position; /* of the element visited now, 0 .. count - 1 */
    int64_t index[AG_MAX_NDIM];
    ag_status status; /* AG_E_INTERRUPTED ends the walk early */
    const ag_call *call;
    int num_operands;
    const ag_tensor *operands[WALK_MAX_OPERANDS];
    int64_t strides[WALK_MAX_OPERANDS][AG_MAX_NDIM]; /* elements; 0 where the operand broadcasts */
    int64_t offsets[WALK_MAX_OPERANDS];              /* elements from the operand's first */
};

/* walk_begin starts at the first element of s. Dims in the mask `still` stay at index 0, whatever their size. */
void walk_begin(struct walk *w, const ag_call *call, const shape *s, uint32_t still);
/* walk_add joins an operand whose shape broadcasts to the walk's, and returns its number. Borrowed. */
int walk_add(struct walk *w, const ag_tensor *tensor);
/* walk_add_part joins an operand with as many dims as the walk, which covers part of it from index 0 on. */
int walk_add_part(struct walk *w, const ag_tensor *tensor);
void walk_step(struct walk *w);
static inline bool walk_more(const struct walk *w) { return w->position < w->count && w->status == AG_OK; }

/* element_at is the address of the element that lies `offset` elements from the tensor's first. */
static inline void *element_at(const ag_tensor *tensor, int64_t offset) {
    return (char *)tensor_address(tensor) + offset * (int64_t)dtype_size((ag_dtype)tensor->dtype);
}
static inline void *walk_at(const struct walk *w, int operand) {
    return element_at(w->operands[operand], w->offsets[operand]);
}

/* element_convert copies one element to another dtype: floats to ints truncate and saturate, ints to smaller ints wrap. */
void element_convert(ag_dtype source_dtype, const void *source, ag_dtype target_dtype, void *target);
/* element_move converts element `from` of source into element `to` of target, both counted from the tensor's first. */
void element_move(const ag_tensor *source, int64_t from, ag_tensor *target, int64_t to);
/* element_compare: < 0, 0 or > 0. NaN counts as larger than everything and equal to NaN. */
int element_compare(ag_dtype dtype, const void *a, const void *b);
bool element_is_nan(ag_dtype dtype, const void *address);

/* A tensor along one dim; a 0-d tensor is a line of one element. */
static inline int64_t line_length(const ag_tensor *tensor, int dim) { return tensor->ndim ? tensor->dims[dim] : 1; }
static inline int64_t line_stride(const ag_tensor *tensor, int dim) { return tensor->ndim ? tensor->strides[dim] : 0; }

/* A line of memory, and the positions 0 .. length - 1 that put it in order; sort.c. Stable; NaN comes last ascending and first
 * descending. positions: [length]. */
struct line {
    ag_dtype dtype;
    const void *start;
    int64_t length, stride; /* elements */
};
ag_status sort_positions(const ag_call *call, struct line line, bool descending, int64_t *positions);

/* poll_interrupt fails with AG_E_INTERRUPTED; it looks at the flag when step is a multiple of 16,384: once in a while in a
 * loop that counts its steps, at each call with step 0. */
ag_status poll_interrupt(const ag_call *call, int64_t step);
/* index_position reads the position at `offset` of index (index_base on, or negative from the end) and maps it to
 * 0 .. size - 1. `element` is its place among all positions, for the error about a bad one. */
ag_status index_position(const ag_call *call, const ag_tensor *index, int64_t offset, int64_t size, int64_t element,
                         int64_t *out);
/* scratch_new allocates count * size_bytes for the time of a call; given back with memory_free of the same product. */
ag_status scratch_new(const ag_call *call, int64_t count, size_t size_bytes, void *out);

#endif
