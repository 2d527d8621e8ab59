/* Round trips of a queue pair's packets (round_trip.c) */
#ifndef RECOVERY_ROUND_TRIP_H
#define RECOVERY_ROUND_TRIP_H

#include <stdint.h>

#include "base/units.h"

struct round_trip {
	ps_t *left; /* when packets left, by number: a ring of a power of two */
	uint32_t room;
	ps_t shortest, smoothed, varies; /* 0: none yet */
};

void round_trip_left(struct round_trip *r, uint64_t n, uint64_t acked, ps_t now);
ps_t round_trip_left_at(const struct round_trip *r, uint64_t n);
void round_trip_took(struct round_trip *r, ps_t took);
void round_trip_over(struct round_trip *r, uint64_t n, ps_t now);

#endif
