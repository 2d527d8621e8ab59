/* What a fault does to the frames that it has picked (effects.c) */
#ifndef FAULT_EFFECTS_H
#define FAULT_EFFECTS_H

#include <stdbool.h>

struct fabric;
struct fault;
struct frame;
struct frame_effect;
struct frame_fate;

const struct frame_effect *effect_find(const char *name);
const char *effects_listed(void);
bool effect_strike(const struct frame_effect *e, struct fabric *f, const struct fault *x, struct frame *fr,
		   struct frame_fate *fate);

#endif
