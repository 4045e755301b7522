/* blas_none.c: what stands in the place of blas.c in a build without a BLAS: there is none to ask. */
#include "cpu/blas.h"

void blas_init(void) {}
bool blas_available(void) { return false; }
const char *blas_description(void) { return "none"; }

bool blas_sgemm(int64_t m, int64_t n, int64_t k, const float *a, int64_t a_rs, int64_t a_cs, const float *b, int64_t b_rs,
                int64_t b_cs, float *c, int64_t ldc, bool accumulate)
{
    (void)m, (void)n, (void)k, (void)a, (void)a_rs, (void)a_cs, (void)b, (void)b_rs, (void)b_cs, (void)c, (void)ldc;
    (void)accumulate;
    return false;
}

bool blas_dgemm(int64_t m, int64_t n, int64_t k, const double *a, int64_t a_rs, int64_t a_cs, const double *b, int64_t b_rs,
                int64_t b_cs, double *c, int64_t ldc, bool accumulate)
{
    (void)m, (void)n, (void)k, (void)a, (void)a_rs, (void)a_cs, (void)b, (void)b_rs, (void)b_cs, (void)c, (void)ldc;
    (void)accumulate;
    return false;
}
