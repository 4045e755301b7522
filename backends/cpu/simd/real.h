/* real.h: names the element type for the next inclusion of a kernel body: REAL_IS_F64 0 = float, 1 = double.
 * Included again for each type, so it has no include guard. REAL(name) is name_f32 or name_f64, VREAL the vector of LANES. */
#undef real
#undef VREAL
#undef LANES
#undef REAL
#undef real_exp
#undef real_log
#if REAL_IS_F64
#define real double
#define VREAL vf64
#define LANES SIMD_F64
#define REAL(name) name##_f64
#define real_exp vd_exp
#define real_log vd_log
#else
#define real float
#define VREAL vf32
#define LANES SIMD_F32
#define REAL(name) name##_f32
#define real_exp vm_exp
#define real_log vm_log
#endif
