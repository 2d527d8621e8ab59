/* Elements combined: one with another, and blocks of int32 as they travel; sums divided. */
#include <math.h>
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

/* float_combined() - Two floating-point numbers: min and max of anything and a NaN are NaN */
float float_combined(enum reduction how, float mine, float with)
{
	switch (how) {
	case RED_MIN: return mine < with || isnan(mine) ? mine : with;
	case RED_MAX: return mine > with || isnan(mine) ? mine : with;
	case RED_PROD: return mine * with;
	default: return mine + with;
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

/* elements_divide() - Sums become averages; integers are truncated towards zero */
void elements_divide(enum element e, uint8_t *at, size_t n, uint32_t ranks)
{
	for (size_t i = 0; i < n; i++) {
		if (element_is_integer(e))
			element_put_int(e, at, i, (int32_t)((int64_t)element_get_int(e, at, i) / (int64_t)ranks));
		else
			element_put(e, at, i, element_get(e, at, i) / (float)ranks);
	}
}
