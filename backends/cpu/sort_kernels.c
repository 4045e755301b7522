/* sort_kernels.c: stable sort, top-k and unique of a row.
 *
 * Elements become unsigned keys that sort as the elements do, joined with their position in a record. Keys of up to 32 bits
 * share one uint64_t with the position, so that comparing two records also settles ties; f64 and i64 take a pair. Long
 * rows are sorted by radix (bytes of the key from the lowest, each pass stable), short ones by insertion and
 * merging. */
#include "cpu/sort_kernels.h"

#include <string.h>

#include "platform/interrupt.h"

#define RUN_LEN 16             /* insertion sort up to here */
#define RADIX_MIN_LEN 64       /* times key bytes: below it merging is faster than counting */
#define TOPK_HEAP_SHARE 64     /* a heap while k <= n / this, else the whole row is sorted */
#define TOPK_CHUNK 256         /* records made at a time for the heap */
#define POLL_RECORDS (1 << 18) /* a few milliseconds of a pass over a long row */
#define POLL_SCATTERED 16      /* each may be the first to touch a page, which the system then clears: up to 2 MiB */

typedef uint64_t narrow_record; /* key << 32 | position */
typedef struct wide_record {
    uint64_t key, position;
} wide_record;

/* ---- keys ---- */

/* Sign and magnitude become one unsigned scale: negative numbers are complemented, the others get the top bit. */
static inline uint32_t key_f32(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (x == 0) bits = 0;
    bits ^= bits >> 31 ? UINT32_MAX : UINT32_C(1) << 31;
    return x == x ? bits : UINT32_MAX;
}

static inline uint64_t key_f64(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (x == 0) bits = 0;
    bits ^= bits >> 63 ? UINT64_MAX : UINT64_C(1) << 63;
    return x == x ? bits : UINT64_MAX;
}

static inline uint64_t key_i64(int64_t x) { return (uint64_t)x ^ UINT64_C(1) << 63; }
static inline uint32_t key_i32(int32_t x) { return (uint32_t)x ^ UINT32_C(1) << 31; }
static inline uint32_t key_i16(int16_t x) { return (uint16_t)x ^ 0x8000u; }
static inline uint32_t key_i8(int8_t x) { return (uint8_t)x ^ 0x80u; }
static inline uint32_t key_u8(uint8_t x) { return x; }

/* load makes the records of x[begin, end); flip is 0 or the mask of all key bits, which turns the order round. */
typedef void (*load_fn)(const void *x, int64_t begin, int64_t end, uint64_t flip, void *records);

#define DEFINE_NARROW_LOAD(DTYPE, X)                                                                                \
    static void load_##DTYPE(const void *x, int64_t begin, int64_t end, uint64_t flip, void *records) {             \
        narrow_record *record = records;                                                                            \
        for (int64_t i = begin; i < end; i++)                                                                       \
            *record++ = (key_##DTYPE(((const X *)x)[i]) ^ flip) << 32 | (uint64_t)i;                                \
    }
#define DEFINE_WIDE_LOAD(DTYPE, X)                                                                                  \
    static void load_##DTYPE(const void *x, int64_t begin, int64_t end, uint64_t flip, void *records) {             \
        wide_record *record = records;                                                                              \
        for (int64_t i = begin; i < end; i++)                                                                       \
            *record++ = (wide_record){key_##DTYPE(((const X *)x)[i]) ^ flip, (uint64_t)i};                          \
    }
DEFINE_WIDE_LOAD(f64, double)
DEFINE_NARROW_LOAD(f32, float)
DEFINE_WIDE_LOAD(i64, int64_t)
DEFINE_NARROW_LOAD(i32, int32_t)
DEFINE_NARROW_LOAD(i16, int16_t)
DEFINE_NARROW_LOAD(i8, int8_t)
DEFINE_NARROW_LOAD(u8, uint8_t)

/* NULL for f16 and bf16. The key has as many bytes as the element. */
static const load_fn loads[AG_DTYPE_COUNT] = {
    [AG_F64] = load_f64, [AG_F32] = load_f32, [AG_I64] = load_i64, [AG_I32] = load_i32,
    [AG_I16] = load_i16, [AG_I8] = load_i8,   [AG_U8] = load_u8,   [AG_BOOL] = load_u8,
};

static inline bool is_wide(ag_dtype dtype) { return dtype_size(dtype) == 8; }
static inline size_t record_bytes(ag_dtype dtype) { return is_wide(dtype) ? sizeof(wide_record) : sizeof(narrow_record); }
static inline uint64_t key_mask(ag_dtype dtype) { return UINT64_MAX >> (64 - 8 * dtype_size(dtype)); }

/* ---- sorting records ---- */

#define NARROW_KEY(record) ((record) >> 32)
#define NARROW_POSITION(record) ((record) & UINT32_MAX)
#define NARROW_BEFORE(a, b) ((a) < (b))
#define WIDE_KEY(record) ((record).key)
#define WIDE_POSITION(record) ((record).position)
#define WIDE_BEFORE(a, b) ((a).key < (b).key || ((a).key == (b).key && (a).position < (b).position))

/* Both sorts take a: [n] and other: [n], and return the one of the two that holds the result. */
#define DEFINE_MERGE_SORT(KIND, BEFORE)                                                                             \
    static KIND##_record *KIND##_merge_sort(KIND##_record *a, KIND##_record *other, int64_t n) {                    \
        for (int64_t start = 0; start < n; start += RUN_LEN) {                                                      \
            int64_t end = n - start < RUN_LEN ? n : start + RUN_LEN;                                                \
            for (int64_t i = start + 1; i < end; i++) {                                                             \
                KIND##_record moved = a[i];                                                                         \
                int64_t j = i;                                                                                      \
                for (; j > start && BEFORE(moved, a[j - 1]); j--) a[j] = a[j - 1];                                  \
                a[j] = moved;                                                                                       \
            }                                                                                                       \
        }                                                                                                           \
        for (int64_t len = RUN_LEN; len < n; len *= 2) {                                                            \
            for (int64_t start = 0; start < n; start += 2 * len) {                                                  \
                int64_t middle = n - start < len ? n : start + len;                                                 \
                int64_t end = n - start < 2 * len ? n : start + 2 * len;                                            \
                int64_t left = start, right = middle;                                                               \
                for (int64_t i = start; i < end; i++) {                                                             \
                    bool from_right = left == middle || (right < end && BEFORE(a[right], a[left]));                 \
                    other[i] = from_right ? a[right++] : a[left++];                                                 \
                }                                                                                                   \
            }                                                                                                       \
            KIND##_record *swap = a;                                                                                \
            a = other;                                                                                              \
            other = swap;                                                                                           \
        }                                                                                                           \
        return a;                                                                                                   \
    }

/* Records must come in the order of their positions. All bytes are counted in one pass; a byte that is the same in every
 * record costs no pass of its own. */
#define DEFINE_RADIX_SORT(KIND, KEY)                                                                                \
    static KIND##_record *KIND##_radix_sort(KIND##_record *a, KIND##_record *other, int64_t n, int key_bytes) {     \
        uint32_t counts[8][256];                                                                                    \
        memset(counts, 0, (size_t)key_bytes * sizeof counts[0]);                                                    \
        for (int64_t block = 0; block < n; block += POLL_RECORDS) {                                                 \
            int64_t end = n - block < POLL_RECORDS ? n : block + POLL_RECORDS;                                      \
            if (interrupt_pending()) return a;                                                                      \
            for (int64_t i = block; i < end; i++)                                                                   \
                for (int b = 0; b < key_bytes; b++) counts[b][KEY(a[i]) >> 8 * b & 255]++;                          \
        }                                                                                                           \
        for (int b = 0; b < key_bytes; b++) {                                                                       \
            uint32_t *next = counts[b], start = 0;                                                                  \
            if (next[KEY(a[0]) >> 8 * b & 255] == n) continue;                                                      \
            for (int bucket = 0; bucket < 256; bucket++) {                                                          \
                uint32_t count = next[bucket];                                                                      \
                next[bucket] = start;                                                                               \
                start += count;                                                                                     \
            }                                                                                                       \
            for (int64_t block = 0; block < n && !interrupt_pending(); block += POLL_SCATTERED) {                   \
                int64_t end = n - block < POLL_SCATTERED ? n : block + POLL_SCATTERED;                              \
                for (int64_t i = block; i < end; i++) other[next[KEY(a[i]) >> 8 * b & 255]++] = a[i];               \
            }                                                                                                       \
            if (interrupt_pending()) return a;                                                                      \
            KIND##_record *swap = a;                                                                                \
            a = other;                                                                                              \
            other = swap;                                                                                           \
        }                                                                                                           \
        return a;                                                                                                   \
    }

/* positions[i] = where the i-th record came from */
#define DEFINE_POSITIONS(KIND, POSITION)                                                                            \
    static void KIND##_positions(const void *records, int64_t n, int64_t *positions) {                              \
        const KIND##_record *record = records;                                                                      \
        for (int64_t i = 0; i < n; i++) positions[i] = (int64_t)POSITION(record[i]);                                \
    }

/* heap: [k], a record is never before its children, so heap[0] is the last of the k kept. */
#define DEFINE_TOPK(KIND, BEFORE)                                                                                   \
    static void KIND##_sift(KIND##_record *heap, int64_t k, int64_t at, KIND##_record record) {                     \
        for (int64_t child; (child = 2 * at + 1) < k; at = child) {                                                 \
            if (child + 1 < k && BEFORE(heap[child], heap[child + 1])) child++;                                     \
            if (!BEFORE(record, heap[child])) break;                                                                \
            heap[at] = heap[child];                                                                                 \
        }                                                                                                           \
        heap[at] = record;                                                                                          \
    }                                                                                                               \
    static void KIND##_topk(const void *x, int64_t n, int64_t k, load_fn load, uint64_t flip, void *scratch) {      \
        KIND##_record *heap = scratch, chunk[TOPK_CHUNK];                                                           \
        load(x, 0, k, flip, heap);                                                                                  \
        for (int64_t i = k / 2; i-- > 0;) KIND##_sift(heap, k, i, heap[i]);                                         \
        for (int64_t start = k; start < n; start += TOPK_CHUNK) {                                                   \
            int64_t len = n - start < TOPK_CHUNK ? n - start : TOPK_CHUNK;                                          \
            load(x, start, start + len, flip, chunk);                                                               \
            for (int64_t i = 0; i < len; i++)                                                                       \
                if (BEFORE(chunk[i], heap[0])) KIND##_sift(heap, k, 0, chunk[i]);                                   \
        }                                                                                                           \
        for (int64_t left = k - 1; left > 0; left--) {                                                              \
            KIND##_record last = heap[left];                                                                        \
            heap[left] = heap[0];                                                                                   \
            KIND##_sift(heap, left, 0, last);                                                                       \
        }                                                                                                           \
    }

DEFINE_MERGE_SORT(narrow, NARROW_BEFORE)
DEFINE_MERGE_SORT(wide, WIDE_BEFORE)
DEFINE_RADIX_SORT(narrow, NARROW_KEY)
DEFINE_RADIX_SORT(wide, WIDE_KEY)
DEFINE_POSITIONS(narrow, NARROW_POSITION)
DEFINE_POSITIONS(wide, WIDE_POSITION)
DEFINE_TOPK(narrow, NARROW_BEFORE)
DEFINE_TOPK(wide, WIDE_BEFORE)

/* ---- rows ---- */

/* sorted_records returns the sorted records of x: [n], which lie in scratch. */
static const void *sorted_records(ag_dtype dtype, const void *x, int64_t n, uint64_t flip, void *scratch) {
    void *other = (char *)scratch + (size_t)n * record_bytes(dtype);
    int key_bytes = (int)dtype_size(dtype);
    for (int64_t block = 0; block < n; block += POLL_RECORDS) {
        if (interrupt_pending()) return scratch;
        loads[dtype](x, block, n - block < POLL_RECORDS ? n : block + POLL_RECORDS, flip,
                     (char *)scratch + (size_t)block * record_bytes(dtype));
    }
    if (n < RADIX_MIN_LEN * key_bytes)
        return is_wide(dtype) ? (void *)wide_merge_sort(scratch, other, n) : (void *)narrow_merge_sort(scratch, other, n);
    return is_wide(dtype) ? (void *)wide_radix_sort(scratch, other, n, key_bytes)
                          : (void *)narrow_radix_sort(scratch, other, n, key_bytes);
}

static inline int64_t position_of(ag_dtype dtype, const void *records, int64_t i) {
    return is_wide(dtype) ? (int64_t)WIDE_POSITION(((const wide_record *)records)[i])
                          : (int64_t)NARROW_POSITION(((const narrow_record *)records)[i]);
}

static inline uint64_t key_of(ag_dtype dtype, const void *records, int64_t i) {
    return is_wide(dtype) ? WIDE_KEY(((const wide_record *)records)[i]) : NARROW_KEY(((const narrow_record *)records)[i]);
}

/* y[i] = x[position of record i]; only the size of the element matters */
static void gather(ag_dtype dtype, const void *x, const void *records, int64_t n, void *y) {
    switch (dtype_size(dtype)) {
    case 8:
        for (int64_t i = 0; i < n; i++) memcpy((char *)y + 8 * i, (const char *)x + 8 * position_of(AG_I64, records, i), 8);
        break;
    case 4:
        for (int64_t i = 0; i < n; i++) memcpy((char *)y + 4 * i, (const char *)x + 4 * position_of(AG_I32, records, i), 4);
        break;
    case 2:
        for (int64_t i = 0; i < n; i++) memcpy((char *)y + 2 * i, (const char *)x + 2 * position_of(AG_I16, records, i), 2);
        break;
    default:
        for (int64_t i = 0; i < n; i++) ((char *)y)[i] = ((const char *)x)[position_of(AG_I8, records, i)];
        break;
    }
}

static void write_results(ag_dtype dtype, const void *x, const void *records, int64_t n, void *y, int64_t *positions) {
    for (int64_t block = 0; block < n && !interrupt_pending(); block += POLL_RECORDS) {
        int64_t len = n - block < POLL_RECORDS ? n - block : POLL_RECORDS;
        const char *from = (const char *)records + (size_t)block * record_bytes(dtype);
        if (y) gather(dtype, x, from, len, (char *)y + (size_t)block * dtype_size(dtype));
        if (positions && is_wide(dtype)) wide_positions(from, len, positions + block);
        if (positions && !is_wide(dtype)) narrow_positions(from, len, positions + block);
    }
}

size_t sort_scratch_bytes(ag_dtype dtype, int64_t n) { return 2 * (size_t)n * record_bytes(dtype); }

void sort_row(ag_dtype dtype, const void *x, int64_t n, bool descending, void *y, int64_t *positions, void *scratch) {
    if (n == 0) return;
    const void *records = sorted_records(dtype, x, n, descending ? key_mask(dtype) : 0, scratch);
    if (interrupt_pending()) return;
    write_results(dtype, x, records, n, y, positions);
}

static bool topk_uses_heap(int64_t n, int64_t k) { return k <= n / TOPK_HEAP_SHARE; }

size_t topk_scratch_bytes(ag_dtype dtype, int64_t n, int64_t k) {
    return topk_uses_heap(n, k) ? (size_t)k * record_bytes(dtype) : sort_scratch_bytes(dtype, n);
}

void topk_row(ag_dtype dtype, const void *x, int64_t n, int64_t k, bool largest, void *y, int64_t *positions, void *scratch) {
    uint64_t flip = largest ? key_mask(dtype) : 0;
    const void *records = scratch;
    if (k == 0) return;
    if (!topk_uses_heap(n, k))
        records = sorted_records(dtype, x, n, flip, scratch);
    else if (is_wide(dtype))
        wide_topk(x, n, k, loads[dtype], flip, scratch);
    else
        narrow_topk(x, n, k, loads[dtype], flip, scratch);
    if (interrupt_pending()) return;
    write_results(dtype, x, records, k, y, positions);
}

int64_t unique_flat(ag_dtype dtype, const void *x, int64_t n, void *values, int64_t *inverse, int64_t *counts, void *scratch) {
    if (n == 0) return 0;
    const void *records = sorted_records(dtype, x, n, 0, scratch);
    if (interrupt_pending()) return 0;
    size_t size = dtype_size(dtype);
    int64_t found = 0;
    uint64_t last = 0;
    for (int64_t i = 0; i < n; i++) {
        if (i % POLL_RECORDS == 0 && interrupt_pending()) return 0;
        uint64_t key = key_of(dtype, records, i);
        int64_t position = position_of(dtype, records, i);
        bool is_nan = dtype_is_float(dtype) && key == key_mask(dtype);
        if (i == 0 || key != last || is_nan) {
            memcpy((char *)values + (size_t)found * size, (const char *)x + (size_t)position * size, size);
            if (counts) counts[found] = 0;
            found++;
        }
        if (counts) counts[found - 1]++;
        if (inverse) inverse[position] = found - 1;
        last = key;
    }
    return found;
}
