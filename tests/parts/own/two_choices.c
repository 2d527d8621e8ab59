/* fabricd's two_choices written against railbed.h: it must give the same figures */
#include "railbed.h"

static uint32_t pick(struct railbed_choice *choice)
{
	uint64_t draw = railbed_random(choice);
	uint32_t n = choice->turns, first = (uint32_t)draw % n, second = (first + 1 + (uint32_t)(draw >> 32) % (n - 1)) % n;
	uint32_t a = choice->turn[first], b = choice->turn[second];

	return railbed_load(choice, b) < railbed_load(choice, a) ? b : a;
}

RAILBED_ADAPTIVE(2, .pick = pick);
