/* Wall time. */
#include <time.h>

#include "base/wall.h"

/* wall_ns() - Of the monotonic clock */
int64_t wall_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000000000LL + ts.tv_nsec;
}
