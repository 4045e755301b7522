/* matmul.c: the matrix product of 1-d to n-d tensors.
 *
 * y[.., i, j] = sum over k of a[.., i, k] * b[.., k, j]; leading dims broadcast. A 1-d a is one row and a 1-d b one column,
 * whose dim is absent from y. Floats add up in double and are rounded once; ints wrap.
 */
#include "core/error.h"
#include "reference/kernels.h"
#include "reference/walk.h"

/* What a step in each place of y moves an operand by; `leading` counts from the first leading dim of y. */
struct matrix {
    const ag_tensor *tensor;
    int64_t leading[AG_MAX_NDIM], along_k, along_y;
};

/* num_leading: leading dims of y. The matrix dims of a are (i, k), those of b (k, j). */
static struct matrix matrix_of(const ag_tensor *tensor, int num_leading, bool is_a) {
    struct matrix m = {.tensor = tensor};
    int ndim = tensor->ndim;
    if (ndim == 1) {
        m.along_k = tensor->strides[0];
        return m;
    }
    m.along_k = tensor->strides[is_a ? ndim - 1 : ndim - 2];
    m.along_y = tensor->strides[is_a ? ndim - 2 : ndim - 1];
    int missing = num_leading - (ndim - 2);
    for (int d = 0; d < ndim - 2; d++) m.leading[missing + d] = tensor->dims[d] == 1 ? 0 : tensor->strides[d];
    return m;
}

static void write_dot(const struct matrix *a, int64_t a_offset, const struct matrix *b, int64_t b_offset, int64_t count,
                      ag_tensor *out, int64_t out_offset) {
    ag_dtype a_dtype = (ag_dtype)a->tensor->dtype, b_dtype = (ag_dtype)b->tensor->dtype, dtype = (ag_dtype)out->dtype;
    double real = 0;
    uint64_t whole = 0;
    for (int64_t k = 0; k < count; k++) {
        const void *x = element_at(a->tensor, a_offset + k * a->along_k), *y = element_at(b->tensor, b_offset + k * b->along_k);
        if (dtype_is_float(dtype)) real += element_read(a_dtype, x) * element_read(b_dtype, y);
        else whole += (uint64_t)element_read_int(a_dtype, x) * (uint64_t)element_read_int(b_dtype, y);
    }
    if (dtype_is_float(dtype)) element_write(dtype, element_at(out, out_offset), real);
    else element_write_int(dtype, element_at(out, out_offset), (int64_t)whole);
}

ag_status reference_matmul(ag_call *call) {
    const ag_tensor *left = call->inputs[0], *right = call->inputs[1];
    ag_tensor *out = call->outputs[0];
    int has_row = left->ndim > 1, has_column = right->ndim > 1, num_leading = out->ndim - has_row - has_column;
    struct matrix a = matrix_of(left, num_leading, true), b = matrix_of(right, num_leading, false);
    int64_t count = left->dims[left->ndim - 1], visited = 0;
    shape s = tensor_shape(out);
    struct walk w;
    walk_begin(&w, call, &s, 0);
    int y = walk_add(&w, out);
    for (; walk_more(&w); walk_step(&w)) {
        int64_t a_offset = has_row ? w.index[num_leading] * a.along_y : 0;
        int64_t b_offset = has_column ? w.index[num_leading + has_row] * b.along_y : 0;
        for (int d = 0; d < num_leading; d++) {
            a_offset += w.index[d] * a.leading[d];
            b_offset += w.index[d] * b.leading[d];
        }
        write_dot(&a, a_offset, &b, b_offset, count, out, w.offsets[y]);
        visited += count;
        if (visited >= 16384) { /* a long dot product is worth a look at the flag of its own */
            visited = 0;
            AG_TRY(poll_interrupt(call, 0));
        }
    }
    return w.status;
}
