/* Cables: their parameters, their ends, and what the controller is told of them
 *
 * Theory of Operation
 *
 * A cable is up or down, and has a rate and a delay.  These are configured, may be
 * changed over the control socket, and faults may override them.  When a cable goes
 * down or is unplugged, the frames on it are lost: each cut begins another epoch, and
 * a frame sent in an earlier one is dropped on arrival (port.c).  The controller is
 * told of a change control.reaction later.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "engine/event.h"
#include "engine/fabric.h"
#include "engine/report.h"
#include "link/cable.h"
#include "link/credits.h"
#include "link/impairment.h"
#include "link/params.h"
#include "link/pfc.h"
#include "link/port.h"
#include "link/retry.h"

/* change_new() - A change that may be scheduled: kept until the fabric ends, as events point to it */
struct change *change_new(struct fabric *f, const struct change *what)
{
	struct change *c = malloc(sizeof *c);

	if (!c)
		abort();
	*c = *what;
	c->next = f->changes;
	f->changes = c;
	f->last_change++;
	return c;
}

/* The links at both ends have gone down or come up */
static void note_link(struct fabric *f, const struct cable *cable, bool up)
{
	for (int i = 0; i < 2; i++)
		report_note(f, REPORT_LINK, json_pack("{s:s, s:i, s:b}", "node", cable->end[i]->node->name, "port",
						      (int)cable->end[i]->number, "up", (int)up));
}

/* cable_unplug() - A cable is pulled out at both ends: what is on it and what waits for it is lost */
void cable_unplug(struct fabric *f, struct cable *cable)
{
	cable->epoch++;
	for (int i = 0; i < 2; i++)
		port_cut(f, cable->end[i]);
	if (cable->p.up)
		note_link(f, cable, false);
}

/* cable_restart() - The ends begin to count anew what goes over the cable, or for the first time */
void cable_restart(struct fabric *f, struct cable *cable)
{
	credits_restart(f, cable);
	retry_restart(cable);
	for (int i = 0; cable->p.credit_classes && i < 2; i++)
		if (cable->end[i]->node->ops->reconfigured)
			cable->end[i]->node->ops->reconfigured(f, cable->end[i]); /* what it has set aside for them */
}

/* cable_plug() - A cable is put in where it is wanted */
void cable_plug(struct fabric *f, struct cable *cable)
{
	cable->epoch++;
	f->wiring++;
	for (int i = 0; i < 2; i++) {
		struct port *p = cable->end[i] = cable->wanted[i];
		p->cable = cable;
		p->peer = cable->wanted[!i];
		p->ser_len = 0;
	}
	cable_restart(f, cable);
	for (int i = 0; i < 2; i++) {
		struct port *p = cable->end[i];
		if (p->xoff)
			pfc_say(f, p, p->xoff, true);
		port_kick(f, p);
	}
	if (cable->p.up)
		note_link(f, cable, true);
}

/* cable_in_force() - A cable's parameters may be others from now on: carry out what that means
 *
 * When it goes up or down and ends at a switch, the controller is told
 * control.reaction later.
 */
void cable_in_force(struct fabric *f, struct cable *cable)
{
	struct cable_params want = cable->base;

	f->impairment->cable(f, cable, &want);
	bool turned = want.up != cable->p.up;
	cable->p = want;
	for (int i = 0; i < 2; i++)
		cable->end[i]->ser_len = 0;
	if (!turned)
		return;
	cable->epoch++;
	f->wiring++;
	note_link(f, cable, want.up);
	cable_restart(f, cable);
	for (int i = 0; i < 2; i++) {
		if (!want.up)
			port_cut(f, cable->end[i]);
		else if (cable->end[i]->xoff)
			pfc_say(f, cable->end[i], cable->end[i]->xoff, true);
	}
	struct change *c = change_new(f, &(struct change){.cable = cable, .set_up = true, .up = want.up});
	event_add(f, f->clock.now + f->reaction, EV_ANNOUNCE, 0, 0, 0, f->last_change, c, 0);
}

/* cable_apply() - Carry out a change of a cable, now */
void cable_apply(struct fabric *f, struct change *c)
{
	struct cable *cable = c->cable;

	if (c->rate_bps)
		cable->base.rate_bps = c->rate_bps;
	if (c->delay >= 0)
		cable->base.delay = c->delay;
	if (c->set_up)
		cable->base.up = c->up;
	cable_in_force(f, cable);
}

/* The event of end @i of a cable. `more`: the other end's follows, and both are one change. */
static json_t *port_event(struct fabric *f, const struct cable *c, int i, bool up)
{
	const struct port *p = c->end[i];
	bool more = i == 0 && c->end[1]->node->kind == NODE_SWITCH;

	return json_pack("{s:I, s:s, s:i, s:b, s:b}", "id", (json_int_t)++f->last_port_event, "switch", p->node->name, "port",
			 p->number, "up", up, "more", more);
}

/* cables_down() - What a controller that has just come is told: the ports that are known to be down */
json_t *cables_down(struct fabric *f)
{
	json_t *events = json_array();

	for (uint32_t k = 0; k < f->cable_count; k++)
		for (int i = 0; f->cables[k].announced_down && i < 2; i++) {
			if (f->cables[k].end[i]->node->kind != NODE_SWITCH)
				continue;
			json_t *o = port_event(f, &f->cables[k], i, false);
			json_object_set_new(o, "event", json_string(report_name(REPORT_PORT)));
			json_object_set_new(o, "time_ns", ns_json(f->clock.now));
			json_array_append_new(events, o);
		}
	return events;
}

/* cable_announce() - Tell the controller that a cable's ports went up or down
 *
 * With the virtual clock, time then stands still until it says that its rules
 * are in, so that they take effect at the same emulated time in every run.
 */
void cable_announce(struct fabric *f, struct change *c)
{
	c->cable->announced_down = !c->up;
	for (int i = 0; i < 2; i++) {
		if (c->cable->end[i]->node->kind != NODE_SWITCH)
			continue;
		report_event(f, REPORT_PORT, port_event(f, c->cable, i, c->up));
		report_settle(f, f->last_port_event);
	}
}

/* fabric_cable() - The cable called @name, A-B or B-A, or NULL */
struct cable *fabric_cable(struct fabric *f, const char *name)
{
	for (uint32_t i = 0; i < f->cable_count; i++) {
		struct cable *c = &f->cables[i];
		char turned[2 * NAME_BYTES];
		snprintf(turned, sizeof turned, "%s-%s", c->base_end[1]->node->name, c->base_end[0]->node->name);
		if (!strcmp(c->name, name) || !strcmp(turned, name))
			return c;
	}
	return NULL;
}
