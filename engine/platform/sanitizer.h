/* sanitizer.h: tells AddressSanitizer which bytes of our own caches nobody may touch. Nothing in other builds. */
#ifndef ARGAND_PLATFORM_SANITIZER_H
#define ARGAND_PLATFORM_SANITIZER_H

#include <stdbool.h>
#include <stddef.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZER_ADDRESS 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define SANITIZER_ADDRESS 1
#endif

#ifdef SANITIZER_ADDRESS
#include <sanitizer/asan_interface.h>
static inline void sanitizer_poison(void *block, size_t size_bytes) { __asan_poison_memory_region(block, size_bytes); }
static inline void sanitizer_unpoison(void *block, size_t size_bytes) { __asan_unpoison_memory_region(block, size_bytes); }
#else
static inline void sanitizer_poison(void *block, size_t size_bytes) { (void)block, (void)size_bytes; }
static inline void sanitizer_unpoison(void *block, size_t size_bytes) { (void)block, (void)size_bytes; }
#endif

/* True where freed structs must go back to malloc, so that the sanitizer sees who uses them afterwards. */
#if defined(SANITIZER_ADDRESS) || defined(__SANITIZE_THREAD__)
static const bool sanitizer_watches_heap = true;
#else
static const bool sanitizer_watches_heap = false;
#endif

#endif
