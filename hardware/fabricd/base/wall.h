/* Wall time. */
#ifndef BASE_WALL_H
#define BASE_WALL_H

#include <stdint.h>

int64_t wall_ns(void);

#endif
