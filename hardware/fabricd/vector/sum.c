/* Sums of blocks of int32, as they travel. */
#include <string.h>

#include "vector/element.h"

/* block_add() - Combine int32 as a switch does: sums wrap around */
void block_add(int32_t *sum, const uint8_t *with, uint32_t count, uint8_t reduction)
{
	for (uint32_t i = 0; i < count; i++) {
		int32_t x;
		memcpy(&x, with + 4 * i, sizeof x);
		if (reduction == RED_MIN)
			sum[i] = x < sum[i] ? x : sum[i];
		else if (reduction == RED_MAX)
			sum[i] = x > sum[i] ? x : sum[i];
		else
			sum[i] = (int32_t)((uint32_t)sum[i] + (uint32_t)x);
	}
}
