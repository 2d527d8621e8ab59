/* Until: the virtual clock goes to a time that was asked for, and stands still there
 *
 * Theory of Operation
 *
 * `run_until` names a time T.  All events up to T run, those at T included, and none
 * later.  T is reached when nothing real can still put something before or at it:
 *
 *  - no frame is in Open vSwitch, and nobody is waited for (hold.c);
 *  - no worker is running.  One that was woken by T acts first and goes on to its next
 *    wait.  What it has taken may lead its own clock past T: what it has posted then
 *    happens then, so after T.
 *
 * Then the clock shows T, `held` is reported, and everything stands still.  So what can
 * be read at T follows from the fabric and from what was asked of it, however fast the
 * machine is.  Where nothing is left to happen the clock goes to T all the same: faults
 * come and go, watchdogs look, pauses are sent again.
 *
 * A request acts at T.  What it enters happens at T, so it runs at once.  Who wants to
 * know that it has run asks for T once more: `held` is reported anew.
 *
 * While it stands still nothing is judged by wall time: it is nobody's turn to say
 * anything.  As soon as somebody is waited for again, his silence counts (base/patience.h).
 */
#include "base/json.h"
#include "base/units.h"
#include "control/control.h"
#include "control/sample.h"
#include "engine/clock.h"
#include "engine/event.h"
#include "engine/fabric.h"
#include "engine/report.h"
#include "switch/ovs.h"

#define UNTIL_MAX_NS 1e12

/* until_rests() - Has all happened that happens up to the time that was asked for? */
bool until_rests(struct fabric *f)
{
	const struct clock *c = &f->clock;

	if (!c->bounded || !c->started || f->ovs->head || c->hold_left || c->workers_now != PS_NEVER)
		return false;
	struct heap *from;
	const struct event *first = event_next(f, &from);
	return !first || first->t > c->until;
}

/* until_look() - No event may run: is it because the time has come? */
void until_look(struct fabric *f)
{
	struct clock *c = &f->clock;

	if (c->held || !until_rests(f))
		return;
	if (f->sampler)
		sample_before(f, c->until + 1);
	if (c->until > c->now)
		c->now = c->until;
	c->held = true;
	report_event(f, REPORT_HELD, json_object());
}

/* until_ask() - The request `run_until`
 * Return: NULL, or what is wrong
 */
const char *until_ask(struct fabric *f, const json_t *request)
{
	const json_t *time = json_object_get(request, "time_ns");
	double ns = json_number_value(time);
	struct clock *c = &f->clock;

	if (c->mode != CLOCK_VIRTUAL)
		return "run_until: only the virtual clock can stand still";
	if (!time) {
		c->bounded = c->held = false;
		return NULL;
	}
	if (!json_is_number(time) || !(ns >= 0) || ns > UNTIL_MAX_NS)
		return "run_until: time_ns: from 0 to 1e12";
	ps_t t = (ps_t)(ns * PS_PER_NS + 0.5);
	if (t < c->now)
		return "run_until: time_ns: that time is over";
	c->bounded = true;
	c->held = false;
	c->until = t;
	return NULL;
}
