/* clock.h: time that only goes forward. */
#ifndef ARGAND_PLATFORM_CLOCK_H
#define ARGAND_PLATFORM_CLOCK_H

#include <stdint.h>

int64_t clock_ns(void);

#endif
