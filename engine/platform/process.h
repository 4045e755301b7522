/* process.h: which process this is. */
#ifndef ARGAND_PLATFORM_PROCESS_H
#define ARGAND_PLATFORM_PROCESS_H

#include <sys/types.h>

/* process_id is getpid without a system call: it is asked in every call of a group, in case this is a forked child. */
pid_t process_id(void);

#endif
