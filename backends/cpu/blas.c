/* blas.c: calls the system's BLAS. A build without one has blas_none.c in its place. */
#define _GNU_SOURCE 1 /* RTLD_DEFAULT */
#include "cpu/blas.h"

#include <cblas.h>
#include <dlfcn.h>

/* Functions that only some libraries have are looked up at run time, so that any BLAS links. */
static void *find_symbol(const char *name) { return dlsym(RTLD_DEFAULT, name); }

void blas_init(void)
{
    void (*set_num_threads)(int);
    *(void **)&set_num_threads = find_symbol("openblas_set_num_threads");
    if (set_num_threads != NULL) set_num_threads(1);
}

bool blas_available(void) { return true; }

const char *blas_description(void)
{
    char *(*get_config)(void);
    *(void **)&get_config = find_symbol("openblas_get_config");
    return get_config != NULL ? get_config() : "BLAS";
}

/* How one operand is passed: BLAS knows a leading dimension and a transposition, not two strides. */
struct operand {
    enum CBLAS_TRANSPOSE transpose;
    int leading;
};

/* False when rows x columns with these strides is no such operand. A stride along a dim of size 1 is never used. */
static bool describe(struct operand *operand, int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride)
{
    bool row_major = column_stride == 1 || columns == 1;
    bool column_major = row_stride == 1 || rows == 1;
    int64_t leading = rows == 1 ? columns : row_stride, least = columns;
    if (!row_major || leading < least) {
        leading = columns == 1 ? rows : column_stride;
        least = rows;
        if (!column_major || leading < least) return false;
        operand->transpose = CblasTrans;
    } else {
        operand->transpose = CblasNoTrans;
    }
    if (leading > INT32_MAX) return false;
    operand->leading = (int)leading;
    return true;
}

static bool describe_product(struct operand *a, struct operand *b, int64_t m, int64_t n, int64_t k, int64_t a_rs, int64_t a_cs,
                             int64_t b_rs, int64_t b_cs, int64_t ldc)
{
    if (m > INT32_MAX || n > INT32_MAX || k > INT32_MAX || ldc > INT32_MAX || ldc < n) return false;
    return describe(a, m, k, a_rs, a_cs) && describe(b, k, n, b_rs, b_cs);
}

bool blas_sgemm(int64_t m, int64_t n, int64_t k, const float *a, int64_t a_rs, int64_t a_cs, const float *b, int64_t b_rs,
                int64_t b_cs, float *c, int64_t ldc, bool accumulate)
{
    struct operand left, right;
    if (!describe_product(&left, &right, m, n, k, a_rs, a_cs, b_rs, b_cs, ldc)) return false;
    cblas_sgemm(CblasRowMajor, left.transpose, right.transpose, (int)m, (int)n, (int)k, 1, a, left.leading, b, right.leading,
                accumulate, c, (int)ldc);
    return true;
}

bool blas_dgemm(int64_t m, int64_t n, int64_t k, const double *a, int64_t a_rs, int64_t a_cs, const double *b, int64_t b_rs,
                int64_t b_cs, double *c, int64_t ldc, bool accumulate)
{
    struct operand left, right;
    if (!describe_product(&left, &right, m, n, k, a_rs, a_cs, b_rs, b_cs, ldc)) return false;
    cblas_dgemm(CblasRowMajor, left.transpose, right.transpose, (int)m, (int)n, (int)k, 1, a, left.leading, b, right.leading,
                accumulate, c, (int)ldc);
    return true;
}
