/* Integers combined: one with another, and blocks of int32 as they travel. */
#include <string.h>

#include "vector/element.h"

/* int_combined() - Two integers: sums and products wrap around */
int32_t int_combined(enum reduction how, int32_t mine, int32_t with)
{
	switch (how) {
	case RED_MIN: return mine < with ? mine : with;
	case RED_MAX: return mine > with ? mine : with;
	case RED_PROD: return (int32_t)((uint32_t)mine * (uint32_t)with);
	case RED_BAND: return mine & with;
	case RED_BOR: return mine | with;
	case RED_BXOR: return mine ^ with;
	default: return (int32_t)((uint32_t)mine + (uint32_t)with);
	}
}

/* block_add() - Combine int32 as a switch does */
void block_add(int32_t *sum, const uint8_t *with, uint32_t count, uint8_t reduction)
{
	for (uint32_t i = 0; i < count; i++) {
		int32_t x;
		memcpy(&x, with + 4 * i, sizeof x);
		sum[i] = int_combined(reduction, sum[i], x);
	}
}
