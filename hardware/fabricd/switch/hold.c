/* Frames that wait until their flow is decided about
 *
 * Theory of Operation
 *
 * The first frame of a flow goes through Open vSwitch, which then is asked whether headers
 * alone decide (fast_path/).  Frames that come behind it meanwhile would go through Open
 * vSwitch, too: of a flow that carries few frames, all of them.  With the virtual clock they
 * need not.  They are held: they take their slots, so that the clock waits for them, and go by
 * the fast path when it is known how, at the time at which they would have left all the same.
 *
 * They are held, too, while a switch is asked to tell of changes of its tables, as nothing is
 * learned before it does; and after such a change, until Open vSwitch has forgotten what it has
 * cached itself, as what comes out may follow old rules before.
 *
 * Should nothing be decided for LATE_NS of wall time they go through Open vSwitch.
 */
#include "base/wall.h"
#include "engine/clock.h"
#include "engine/fabric.h"
#include "fast_path/flow_cache.h"
#include "link/frame.h"
#include "link/port.h"
#include "switch/ovs.h"
#include "switch/switch.h"

#define LATE_NS 5000000000LL

static void decided_now(struct fabric *f)
{
	f->ovs->decided = f->flow_cache->decided;
	f->ovs->decided_ns = wall_ns();
	f->ovs->late = false;
}

static bool is_undecided(const struct fabric *f, const struct pending *p)
{
	if (f->ovs->late || p->epoch != f->flow_cache->epoch)
		return false;
	if (p->flow)
		return flow_is_undecided(p->flow);
	return f->flow_cache->purges || tables_watch_begins(f->flow_cache, p->in->node);
}

/* ovs_hold() - A frame waits if its flow is just being decided about
 * @deadline:	When it leaves the switch
 *
 * Return: false if Open vSwitch has to get it
 */
bool ovs_hold(struct fabric *f, struct frame *fr, ps_t deadline)
{
	struct ovs *o = f->ovs;
	struct port *in = fr->passage->in;
	struct flow *flow;

	if (f->clock.mode != CLOCK_VIRTUAL || o->held == HELD_MAX ||
	    (o->late && o->decided == f->flow_cache->decided) || !flow_cache_awaits(f, in, fr, &flow))
		return false;
	if (!o->held++)
		decided_now(f);
	ovs_pend(f, in, fr, deadline, flow)->epoch = f->flow_cache->epoch;
	return true;
}

/* ovs_let_go() - Frames whose flows are decided about go on; should answers not come, they go through Open vSwitch */
void ovs_let_go(struct fabric *f)
{
	struct ovs *o = f->ovs;
	struct frame *going[HELD_MAX];
	uint32_t n = 0;

	if (!o->held)
		return;
	if (o->decided != f->flow_cache->decided)
		decided_now(f);
	else if (wall_ns() - o->decided_ns > LATE_NS)
		o->late = true;
	else
		return;
	for (struct pending *p = o->head, *next; p; p = next) {
		next = p->next;
		if (p->number != HELD || is_undecided(f, p))
			continue;
		going[n++] = p->frame;
		ovs_take_out(o, p);
	}
	o->held -= n;
	for (uint32_t i = 0; i < n; i++)
		switch_decide(f, going[i]); /* which may hold it again, until the next decision */
}
