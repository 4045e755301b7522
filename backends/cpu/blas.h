/* blas.h: the system's BLAS, where the build has one. Used one thread at a time: the engine's pool does the splitting. */
#ifndef ARGAND_CPU_BLAS_H
#define ARGAND_CPU_BLAS_H

#include <stdbool.h>
#include <stdint.h>

/* blas_init tells the library to stay on the calling thread. Call it once, before the first product. */
void blas_init(void);
bool blas_available(void);
/* blas_description returns one line about the library ("OpenBLAS 0.3.21 ... Haswell"), "none" without one. */
const char *blas_description(void);

/* blas_sgemm computes c = accumulate * c + a b, as gemm_f32 does, on the calling thread. It returns false, with c untouched,
 * when the library cannot be asked: a stride that is not one in either direction, or a number above 2^31 - 1. */
bool blas_sgemm(int64_t m, int64_t n, int64_t k, const float *a, int64_t a_rs, int64_t a_cs, const float *b, int64_t b_rs,
                int64_t b_cs, float *c, int64_t ldc, bool accumulate);
bool blas_dgemm(int64_t m, int64_t n, int64_t k, const double *a, int64_t a_rs, int64_t a_cs, const double *b, int64_t b_rs,
                int64_t b_cs, double *c, int64_t ldc, bool accumulate);

#endif
