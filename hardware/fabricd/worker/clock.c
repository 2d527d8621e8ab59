/* How far running workers let the clock go
 *
 * Theory of Operation
 *
 * The clock may not pass the earliest time at which a worker that runs can act.  Workers
 * take turns by the thousand, so the earliest is kept in a tree: leaf n + i is rank i,
 * node k has the earlier of its children 2k and 2k + 1, and 1 is the root.
 */
#include <stdlib.h>

#include "base/units.h"
#include "engine/clock.h"
#include "engine/fabric.h"
#include "worker/worker.h"

struct turn {
	ps_t acts; /* when what it says can reach its NIC */
	ps_t now;  /* what it shows */
};

static struct turn earlier(struct turn a, struct turn b)
{
	return (struct turn){a.acts < b.acts ? a.acts : b.acts, a.now < b.now ? a.now : b.now};
}

static struct turn turn_of_session(const struct worker *w)
{
	if (w->state == WORKER_RUNNING)
		return (struct turn){worker_acts(w), w->now};
	if (worker_holds(w))
		return (struct turn){worker_acts(w), w->now};
	if (w->state == WORKER_ABSENT && w->expected)
		return (struct turn){0, 0};
	return (struct turn){PS_NEVER, PS_NEVER};
}

/* Of a rank: of its worker and its programs */
static struct turn turn_of(const struct worker *w)
{
	struct turn t = turn_of_session(w);

	for (const struct worker *program = w->next; program; program = program->next)
		t = earlier(t, turn_of_session(program));
	return t;
}

static void take_earliest(struct fabric *f)
{
	f->clock.workers = f->turns[1].acts;
	f->clock.workers_now = f->turns[1].now;
}

/* clock_worker_changed() - A worker's state or time is another one: how far may the clock go now? */
void clock_worker_changed(struct fabric *f, const struct worker *w)
{
	size_t n = f->nic_count, k = n + w->rank;

	if (!f->turns) {
		clock_workers_changed(f);
		return;
	}
	if (f->clock.mode == CLOCK_REAL)
		return;
	f->turns[k] = turn_of(&f->workers[w->rank]);
	for (k /= 2; k; k /= 2)
		f->turns[k] = earlier(f->turns[2 * k], f->turns[2 * k + 1]);
	take_earliest(f);
}

/* clock_workers_changed() - The same after something that concerns all of them */
void clock_workers_changed(struct fabric *f)
{
	size_t n = f->nic_count;

	f->clock.workers = f->clock.workers_now = PS_NEVER;
	if (f->clock.mode == CLOCK_REAL || !n)
		return;
	if (!f->turns)
		f->turns = calloc(2 * n, sizeof *f->turns);
	if (!f->turns)
		abort();
	for (size_t i = 0; i < n; i++)
		f->turns[n + i] = turn_of(&f->workers[i]);
	for (size_t k = n - 1; k; k--)
		f->turns[k] = earlier(f->turns[2 * k], f->turns[2 * k + 1]);
	take_earliest(f);
}
