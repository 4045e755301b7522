/* hot_thread_local.h: thread-local variables that every small call reads.
 *
 * In a shared library an ordinary _Thread_local costs a function call an access. These are reached from the thread register directly;
 * in exchange they take of the little room that the loader keeps for libraries that are loaded late, so all of them together stay
 * below 400 bytes.
 */
#ifndef ARGAND_PLATFORM_HOT_THREAD_LOCAL_H
#define ARGAND_PLATFORM_HOT_THREAD_LOCAL_H

#if defined(__GNUC__) && defined(__ELF__)
#define HOT_THREAD_LOCAL _Thread_local __attribute__((tls_model("initial-exec")))
#else
#define HOT_THREAD_LOCAL _Thread_local
#endif

#endif
