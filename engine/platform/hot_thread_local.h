/* hot_thread_local.h: thread-local variables that every small call reads.
 *
 * In a shared library an ordinary _Thread_local costs a function call an access; these are reached from the thread register
 * directly. In exchange all thread-locals of the library take of the little room that the loader keeps for libraries that are
 * loaded late. Together they stay below 400 bytes: larger things hang on a pointer. spec/install loads the library late.
 */
#ifndef ARGAND_PLATFORM_HOT_THREAD_LOCAL_H
#define ARGAND_PLATFORM_HOT_THREAD_LOCAL_H

#if defined(__GNUC__) && defined(__ELF__)
#define HOT_THREAD_LOCAL _Thread_local __attribute__((tls_model("initial-exec")))
#else
#define HOT_THREAD_LOCAL _Thread_local
#endif

#endif
