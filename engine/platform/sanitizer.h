/* sanitizer.h: tells AddressSanitizer which bytes of our own caches nobody may touch. Nothing in other builds. */
#ifndef ARGAND_PLATFORM_SANITIZER_H
#define ARGAND_PLATFORM_SANITIZER_H

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

#endif
