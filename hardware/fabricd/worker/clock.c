/* How far running workers let the clock go. */
#include "base/units.h"
#include "engine/clock.h"
#include "engine/fabric.h"
#include "worker/worker.h"

/* clock_workers_changed() - Work out anew how far running workers let the clock go */
void clock_workers_changed(struct fabric *f)
{
	struct clock *c = &f->clock;

	c->workers = c->workers_now = PS_NEVER;
	if (c->mode == CLOCK_REAL)
		return;
	for (uint32_t i = 0; i < f->nic_count; i++) {
		const struct worker *w = &f->workers[i];
		if (w->state == WORKER_ABSENT && w->expected)
			c->workers = c->workers_now = 0;
		if (w->state == WORKER_RUNNING && worker_acts(w) < c->workers)
			c->workers = worker_acts(w);
		if (w->state == WORKER_RUNNING && w->now < c->workers_now)
			c->workers_now = w->now;
	}
}
