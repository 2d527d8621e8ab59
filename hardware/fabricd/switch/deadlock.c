/* Buffers that wait for each other
 *
 * Theory of Operation
 *
 * A paused queue waits for the priority group at the other end of its cable to shrink.
 * The frames of that group are in queues of that switch.  If one of those is paused,
 * too, it waits for the next group, and so on.  If that comes back to the first queue,
 * nothing in the circle can move until frames are taken away from outside: a deadlock.
 *
 * It is looked for when XOFF is sent again, and as often where credits are waited for.  Only queues count that have been
 * paused for longer than one XOFF lasts, so that a jam which dissolves by itself
 * is none.
 *
 * Who looks sees all switches, so they have to have come equally far.  One that is paused for so long has been told so before:
 * after each XOFF that is sent again there are no windows (windows.c) for as long as two of them last.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/division.h"
#include "engine/fabric.h"
#include "engine/report.h"
#include "link/credits.h"
#include "link/frame.h"
#include "link/params.h"
#include "link/pfc.h"
#include "link/port.h"
#include "switch/switch.h"

#define DEPTH_MAX 256

struct wait {
	struct port *port;
	unsigned class;
};

struct walk {
	struct fabric *f;
	struct wait path[DEPTH_MAX];
	unsigned depth;
	uint8_t *seen; /* a bit a class, by port */
};

static bool stuck(const struct fabric *f, const struct port *p, unsigned class)
{
	const struct traffic_class *tc = &p->tc[class];

	return p->paused >> class & 1 && p->queue[class].head && f->clock.now - tc->paused_since > pfc_time(p, 0xffff);
}

static bool holds_frame_of(const struct port *p, unsigned class, const struct port *in, unsigned in_class)
{
	for (const struct frame *fr = p->queue[class].head; fr; fr = fr->next)
		if (fr->passage && fr->passage->in == in && fr->passage->class == in_class)
			return true;
	return false;
}

/* Follow what a stuck queue waits for, depth first.  Return: whether it leads back to the first */
static bool leads_back(struct walk *w, struct port *p, unsigned class)
{
	struct port *in = p->peer;

	if (w->depth == DEPTH_MAX || !in || in->node->kind != NODE_SWITCH)
		return false;
	w->path[w->depth++] = (struct wait){p, class};
	PORTS_EACH(in->node, out)
		CLASSES_EACH(c) {
			if (!stuck(w->f, out, c) || !holds_frame_of(out, c, in, class))
				continue;
			if (out == w->path[0].port && c == w->path[0].class)
				return true;
			uint8_t *seen = &w->seen[out->index];
			if (*seen >> c & 1)
				continue;
			*seen |= (uint8_t)(1u << c);
			if (leads_back(w, out, c))
				return true;
		}
	w->depth--;
	return false;
}

/* deadlock_look() - Is this queue, whose XOFF was sent again, part of a circle?  Reported once a switch */
void deadlock_look(struct fabric *f, struct port *p, unsigned class)
{
	struct walk w = {.f = f};

	if (!credits_on(p, class)) /* a look at those is an event of all the fabric */
		division_in_order(f, f->clock.now + 2 * pfc_time(p, 0xffff));
	if (!stuck(f, p, class) || ((struct sw *)p->node)->deadlock_reported)
		return;
	w.seen = calloc(f->port_count, 1);
	if (!w.seen)
		abort();
	if (leads_back(&w, p, class)) {
		json_t *circle = json_array();
		bool watchdog = false; /* will break it */
		for (unsigned i = 0; i < w.depth; i++) {
			struct sw *s = (struct sw *)w.path[i].port->node;
			s->deadlock_reported = true;
			watchdog = watchdog || (s->p.watchdog.on &&
						(s->p.watchdog.drop || credits_on(w.path[i].port, w.path[i].class)));
			json_array_append_new(circle, json_pack("{s:s, s:i, s:i}", "switch", w.path[i].port->node->name,
								"port", (int)w.path[i].port->number, "class",
								(int)w.path[i].class));
		}
		f->deadlocks++;
		report_event(f, REPORT_DEADLOCK, json_pack("{s:o, s:b}", "ports", circle, "watchdog", watchdog));
	}
	free(w.seen);
}
