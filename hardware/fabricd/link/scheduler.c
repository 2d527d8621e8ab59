/* Which class a port serves next
 *
 * Theory of Operation
 *
 * Strict classes come first, the highest of them before the others.  The rest
 * share what is left by deficit round robin (Shreedhar, Varghese 1995): a class
 * whose turn comes gets credit for weight x the longest frame (with telemetry of
 * TURN_HOPS switches) and sends while it lasts.  What is left it keeps as long as it
 * has frames.  A paused class is passed over and its credit stays as it is.
 */
#include "engine/fabric.h"
#include "link/params.h"
#include "link/port.h"
#include "link/scheduler.h"

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
void scheduler_sent(struct port *p, unsigned class, uint32_t bytes)
{
	struct traffic_class *tc = &p->tc[class];

	tc->deficit = p->queue[class].head && tc->deficit > (int64_t)bytes ? tc->deficit - bytes : 0;
}
