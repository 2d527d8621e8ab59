/* What happens when an event's time has come: its kinds stand in happen.c, and here what is done for each event */
#ifndef HAPPEN_H
#define HAPPEN_H

#include <stdbool.h>

#include "control/sample.h"
#include "engine/ahead.h"
#include "engine/clock.h"
#include "engine/event.h"
#include "engine/fabric.h"

struct event_type {
	void (*run)(struct fabric *f, const struct event *e);
	bool (*due)(const struct event *e);			      /* NULL: always */
	bool (*waits)(const struct fabric *f, const struct event *e); /* NULL: never */
};
extern const struct event_type event_types[EVENT_KINDS];

/* event_run() - An event's time has come: it happens, if it still matters */
static inline void event_run(struct fabric *f, const struct event *e)
{
	const struct event_type *type = &event_types[event_kind(e)];

	if (type->due && !type->due(e))
		return;
	if (f->sampler)
		sample_before(f, e->t);
	if (e->t > f->clock.now)
		f->clock.now = e->t;
	f->clock.events++;
	ahead_step(&f->ahead);
	type->run(f, e);
}

/* event_must_wait() - For somebody real */
static inline bool event_must_wait(const struct fabric *f, const struct event *e)
{
	const struct event_type *type = &event_types[event_kind(e)];

	return type->waits && type->waits(f, e);
}

bool event_may_wait(const struct event *e);

#endif
