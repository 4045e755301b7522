/* dtype.h: element types, their kinds, promotion, and half-precision conversion of single values. */
#ifndef ARGAND_CORE_DTYPE_H
#define ARGAND_CORE_DTYPE_H

#include "argand.h"

typedef enum ag_kind { KIND_FLOAT, KIND_INT, KIND_BOOL } ag_kind;

/* A set of dtypes, one bit each: what a kernel can do, what a rule admits. */
typedef uint16_t dtype_set;
#define DTYPE_BIT(dtype) ((dtype_set)(1u << (dtype)))
#define DTYPES_FLOAT (DTYPE_BIT(AG_F64) | DTYPE_BIT(AG_F32) | DTYPE_BIT(AG_F16) | DTYPE_BIT(AG_BF16))
#define DTYPES_INT (DTYPE_BIT(AG_I64) | DTYPE_BIT(AG_I32) | DTYPE_BIT(AG_I16) | DTYPE_BIT(AG_I8) | DTYPE_BIT(AG_U8))
#define DTYPES_BOOL DTYPE_BIT(AG_BOOL)
#define DTYPES_NUMBER (DTYPES_FLOAT | DTYPES_INT)
#define DTYPES_ALL (DTYPES_NUMBER | DTYPES_BOOL)

extern const uint8_t dtype_sizes[AG_DTYPE_COUNT];
extern const uint8_t dtype_kinds[AG_DTYPE_COUNT]; /* ag_kind */

static inline size_t dtype_size(ag_dtype dtype) { return dtype_sizes[dtype]; }
static inline ag_kind dtype_kind(ag_dtype dtype) { return (ag_kind)dtype_kinds[dtype]; }
static inline bool dtype_is_float(ag_dtype dtype) { return dtype <= AG_BF16; }
static inline bool dtype_is_int(ag_dtype dtype) { return dtype >= AG_I64 && dtype <= AG_U8; }
static inline bool dtype_is_half(ag_dtype dtype) { return dtype == AG_F16 || dtype == AG_BF16; }

const char *dtype_name(ag_dtype dtype);
const char *kind_name(ag_kind kind);
ag_dtype dtype_find(const char *name);
/* dtype_promote returns the smallest dtype that holds both, floats above ints above bool; f16 with bf16 gives f32. */
ag_dtype dtype_promote(ag_dtype a, ag_dtype b);

float half_to_float(uint16_t bits);
uint16_t float_to_half(float value); /* round to nearest even, overflow to Inf, NaN kept */
float bfloat_to_float(uint16_t bits);
uint16_t float_to_bfloat(float value);

/* element_read and element_write convert one element; floats to ints truncate toward zero and saturate, NaN gives 0. The _int
 * forms keep all 64 bits; an int too large for a smaller int type wraps. To bool, everything but zero is true. Addresses need
 * not be aligned. */
double element_read(ag_dtype dtype, const void *address);
void element_write(ag_dtype dtype, void *address, double value);
int64_t element_read_int(ag_dtype dtype, const void *address);
void element_write_int(ag_dtype dtype, void *address, int64_t value);

#endif
