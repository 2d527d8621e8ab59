/* Which class a port serves next
 *
 * Theory of Operation
 *
 * Strict classes come first, the highest of them before the others.  The rest
 * share what is left by deficit round robin (Shreedhar, Varghese 1995): a class
 * whose turn comes gets credit for weight x the longest frame (with telemetry of
 * TURN_HOPS switches) and sends while it lasts.  What is left it keeps as long as it
 * has frames.  A paused class is passed over and its credit stays as it is.
 *
 * A class may have a shaper.  What is over its most share waits, whatever else the port has to do.  Its least share
 * goes before all others, strict ones too, that which has waited longest first, and is nobody's turn: what is left is
 * shared as without, so that a class has its least share and its part of the rest (as in Linux's htb).  Both are token
 * buckets, kept as the time at which they are even: a frame may go when that is past, and moves it on by the time that
 * it takes of the cable, over the share.  A class that has sent less for a while may catch up on `burst_bytes`.
 */
#include "base/units.h"
#include "engine/fabric.h"
#include "link/params.h"
#include "link/port.h"
#include "link/scheduler.h"

/* How long what a class may catch up on takes it at a share of the port */
static ps_t burst(const struct fabric *f, struct port *p, const struct shaper *of, double share)
{
	uint64_t bytes = of->burst_bytes ? of->burst_bytes : 2ull * (uint64_t)f->turn_bytes;

	return (ps_t)((double)bytes * 8 * (double)PS_PER_S / ((double)p->cable->p.rate_bps * share));
}

/* scheduler_reset() - Nothing waits: the round begins anew, and all buckets are full */
void scheduler_reset(struct port *p)
{
	p->scheduled = 0;
	CLASSES_EACH(c)
		p->tc[c].due = p->tc[c].allowed = -PS_NEVER / 2;
}

/* scheduler_held() - The classes that have had their most share */
uint8_t scheduler_held(const struct fabric *f, const struct port *p)
{
	const struct schedule *s = p->node->schedule;
	uint8_t held = 0;

	if (!s || !s->shaped)
		return 0;
	CLASSES_EACH(c)
		if (s->shaper[c].max > 0 && p->tc[c].allowed > f->clock.now)
			held |= (uint8_t)(1u << c);
	return held;
}

/* The class that has been below its least share for longest, or CLASSES */
static unsigned overdue(const struct fabric *f, const struct port *p, uint8_t ready)
{
	const struct schedule *s = p->node->schedule;
	unsigned first = CLASSES;

	CLASSES_EACH(c)
		if (ready >> c & 1 && s->shaper[c].min > 0 && p->tc[c].due <= f->clock.now &&
		    (first == CLASSES || p->tc[c].due <= p->tc[first].due))
			first = c;
	return first;
}

/* A frame goes at a share: the bucket's time after it */
static ps_t moved(const struct fabric *f, ps_t at, ps_t takes, ps_t lag)
{
	return (at > f->clock.now - lag ? at : f->clock.now - lag) + takes;
}

static void shape(const struct fabric *f, struct port *p, unsigned class, uint32_t bytes)
{
	const struct shaper *of = &p->node->schedule->shaper[class];
	struct traffic_class *tc = &p->tc[class];
	double ser = (double)port_serialization(p, bytes);

	if (of->max > 0)
		tc->allowed = moved(f, tc->allowed, (ps_t)(ser / of->max + 0.5), burst(f, p, of, of->max));
	if (of->min > 0 && p->by_right)
		tc->due = moved(f, tc->due, (ps_t)(ser / of->min + 0.5), burst(f, p, of, of->min));
}

static uint8_t strict_classes(const struct port *p)
{
	return p->node->schedule ? p->node->schedule->strict : 0xff;
}

/* scheduler_pick() - The class to send from
 * @ready:	Classes with frames that are not paused; not 0
 */
unsigned scheduler_pick(const struct fabric *f, struct port *p, uint8_t ready)
{
	uint8_t first = ready & strict_classes(p);
	unsigned least = p->node->schedule && p->node->schedule->shaped ? overdue(f, p, ready) : CLASSES;

	p->by_right = least < CLASSES;
	if (p->by_right)
		return least;
	if (first)
		return 31 - (unsigned)__builtin_clz(first);
	if (!(ready & (ready - 1)))
		return (unsigned)__builtin_ctz(ready);
	const uint8_t *weight = p->node->schedule->weight;
	for (;;) {
		unsigned c = p->scheduled;
		if (ready >> c & 1 && p->tc[c].deficit >= (int64_t)p->queue[c].head->len)
			return c;
		c = p->scheduled = (uint8_t)((c + 1) % CLASSES);
		if (ready >> c & 1)
			p->tc[c].deficit += (int64_t)weight[c] * f->turn_bytes;
	}
}

/* scheduler_sent() - A frame of that class has left its queue */
void scheduler_sent(const struct fabric *f, struct port *p, unsigned class, uint32_t bytes)
{
	struct traffic_class *tc = &p->tc[class];

	if (p->node->schedule->shaped >> class & 1)
		shape(f, p, class, bytes);
	if (p->by_right && p->queue[class].head)
		return;
	tc->deficit = p->queue[class].head && tc->deficit > (int64_t)bytes ? tc->deficit - bytes : 0;
}
