/* The PFC watchdog of a switch (as SONiC's)
 *
 * Theory of Operation
 *
 * There is a storm at a queue that has frames and has been paused without a break for
 * `detect`.  With `drop`, the watchdog then drops what the queue holds and what comes
 * for it; otherwise the queue ignores pauses.  The storm is over when no XOFF has come
 * for `restore`.
 *
 * There is one event for a queue at a time: `detect` after it had frames and was
 * paused, again if another pause has begun since, and during a storm `restore` after
 * the last XOFF.
 *
 * A queue under credits is paused as long as its next frame finds none.  What it holds is dropped then whatever was asked for:
 * there are no pauses that could be ignored.
 */
#include "base/units.h"
#include "engine/event.h"
#include "engine/fabric.h"
#include "engine/report.h"
#include "link/credits.h"
#include "link/params.h"
#include "link/pfc.h"
#include "link/port.h"
#include "switch/params.h"
#include "switch/switch.h"

static void look_later(struct fabric *f, struct port *p, unsigned class, ps_t t)
{
	event_add(f, t, EV_WATCHDOG, p->node->index, p->number, class, 0, p, class);
}

/* watchdog_paused() - A queue has frames and is paused */
void watchdog_paused(struct fabric *f, struct port *p, unsigned class)
{
	struct traffic_class *tc = &p->tc[class];

	if (!((struct sw *)p->node)->p.watchdog.on || tc->watchdog_from != PS_NEVER ||
	    !p->queue[class].head)
		return;
	tc->watchdog_from = f->clock.now;
	look_later(f, p, class, tc->watchdog_from + ((struct sw *)p->node)->p.watchdog.detect);
}

static void say(struct fabric *f, const struct port *p, unsigned class, bool drop, bool on)
{
	report_event(f, REPORT_PFC_WATCHDOG,
		      json_pack("{s:s, s:i, s:i, s:s, s:b}", "switch", p->node->name, "port", p->number, "class",
				(int)class, "action", drop ? "drop" : "forward", "on", on));
}

/* Of a queue that is paused */
static void begin(struct fabric *f, struct port *p, unsigned class, const struct watchdog_params *w)
{
	uint8_t bit = (uint8_t)(1u << class);
	bool drop = w->drop || credits_on(p, class);

	p->tc[class].storms++;
	p->deaf |= bit;
	if (credits_on(p, class))
		p->tc[class].pause_seen = f->clock.now;
	pfc_resume(f, p, class);
	if (drop) {
		p->dropping |= bit;
		port_flush_class(f, p, class, DROP_WATCHDOG);
	}
	say(f, p, class, drop, true);
	look_later(f, p, class, p->tc[class].pause_seen + w->restore);
	port_kick(f, p);
}

static void end(struct fabric *f, struct port *p, unsigned class)
{
	bool drop = p->dropping >> class & 1;

	p->deaf &= (uint8_t)~(1u << class);
	p->dropping &= (uint8_t)~(1u << class);
	p->tc[class].watchdog_from = PS_NEVER;
	say(f, p, class, drop, false);
}

/* watchdog_changed() - A switch's watchdog is another from now on: what it had decided is void */
void watchdog_changed(struct fabric *f, struct sw *s)
{
	PORTS_EACH(&s->n, p)
		CLASSES_EACH(c) {
			if (p->deaf >> c & 1)
				end(f, p, c);
			p->tc[c].watchdog_from = PS_NEVER;
			if (p->paused >> c & 1)
				watchdog_paused(f, p, c);
		}
}

/* watchdog_look() - The time has come to look at a queue */
void watchdog_look(struct fabric *f, struct port *p, unsigned class)
{
	const struct watchdog_params *w = &((struct sw *)p->node)->p.watchdog;
	struct traffic_class *tc = &p->tc[class];

	if (p->deaf >> class & 1) {
		if (w->on && f->clock.now < tc->pause_seen + w->restore)
			look_later(f, p, class, tc->pause_seen + w->restore);
		else
			end(f, p, class);
		return;
	}
	ps_t from = tc->paused_since > tc->watchdog_from ? tc->paused_since : tc->watchdog_from;
	tc->watchdog_from = PS_NEVER;
	if (!w->on || !(p->paused >> class & 1) || !p->queue[class].head)
		return; /* the next pause, or frame, asks anew */
	tc->watchdog_from = from;
	if (f->clock.now < from + w->detect)
		look_later(f, p, class, from + w->detect);
	else
		begin(f, p, class, w);
}
