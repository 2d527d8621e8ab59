/* What a fault does to the frames that it has picked (effects.c) */
#ifndef FAULT_EFFECTS_H
#define FAULT_EFFECTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/random.h"

struct fabric;
struct fault;
struct frame;
struct frame_effect;
struct frame_fate;
struct watched;

/* A frame that a fault has picked */
struct strike {
	struct fabric *f;
	const struct fault *fault;
	const struct watched *at;
	struct frame *fr;
	struct frame_fate *fate;
	bool retries; /* the cable sends once more what is damaged */
};

const struct frame_effect *effect_find(const char *name);
const char *effects_listed(void);
bool effect_strike(const struct strike *s);
uint64_t fault_bits(const struct fabric *f, const struct fault *x, const struct watched *at, enum random_use use);
double fault_draw(const struct fabric *f, const struct fault *x, const struct watched *at, enum random_use use);

#endif
