/* Cables: their parameters, their ends, and what the controller is told of them
 *
 * Theory of Operation
 *
 * A cable is up or down, and has a rate and a delay.  These are configured, may be
 * changed over the control socket, and faults may override them.  When a cable goes
 * down or is unplugged, the frames on it are lost: each cut begins another epoch, and
 * a frame sent in an earlier one is dropped on arrival (port.c).  The controller is
 * told of a change control.reaction later; of another rate if it asks for that, as one
 * does by whose rules ports weigh by rates.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "engine/division.h"
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

/* The controller is told of a change, when it has had the time to react */
static void announce_later(struct fabric *f, const struct change *what)
{
	struct change *c = change_new(f, what);

	event_add(f, f->clock.now + f->reaction, EV_ANNOUNCE, 0, 0, 0, f->last_change, c, 0);
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
	for (int i = 0; i < 2; i++) /* a pause of the old rate may last longer than any of the new one (switch/deadlock.c) */
		if (want.rate_bps != cable->p.rate_bps && cable->end[i]->paused)
			division_in_order(f, f->clock.now + 2 * pfc_time(cable->end[i], PFC_QUANTA));
	bool turned = want.up != cable->p.up, faster = want.rate_bps != cable->p.rate_bps;
	cable->p = want;
	for (int i = 0; i < 2; i++)
		cable->end[i]->ser_len = 0;
	if (faster && f->tells_rates)
		announce_later(f, &(struct change){.cable = cable, .rate_bps = want.rate_bps});
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
	announce_later(f, &(struct change){.cable = cable, .set_up = true, .up = want.up});
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

/* What end @i of a cable, at a switch, is known to be. `more`: the other end's follows, and both are one change. */
static json_t *end_event(struct fabric *f, const struct cable *c, int i, enum report kind)
{
	const struct port *p = c->end[i];
	bool more = i == 0 && c->end[1]->node->kind == NODE_SWITCH;
	json_t *o = json_pack("{s:I, s:s, s:i, s:b}", "id", (json_int_t)++f->last_port_event, "switch", p->node->name, "port",
			      p->number, "more", more);

	if (kind == REPORT_RATE)
		json_object_set_new(o, "rate_bps", json_integer(c->announced_bps));
	else
		json_object_set_new(o, "up", json_boolean(!c->announced_down));
	return o;
}

/* Its ends at switches, as if it had changed now */
static void add_ends(struct fabric *f, const struct cable *c, enum report kind, json_t *events)
{
	for (int i = 0; i < 2; i++) {
		if (c->end[i]->node->kind != NODE_SWITCH)
			continue;
		json_t *o = end_event(f, c, i, kind);
		json_object_set_new(o, "event", json_string(report_name(kind)));
		json_object_set_new(o, "time_ns", ns_json(f->clock.now));
		json_array_append_new(events, o);
	}
}

/* cables_known() - What a controller that has just come is told: which ports are known to be down, or at another rate */
json_t *cables_known(struct fabric *f)
{
	json_t *events = json_array();

	for (uint32_t k = 0; k < f->cable_count; k++) {
		if (f->cables[k].announced_down)
			add_ends(f, &f->cables[k], REPORT_PORT, events);
		if (f->cables[k].announced_bps)
			add_ends(f, &f->cables[k], REPORT_RATE, events);
	}
	return events;
}

/* cable_announce() - Tell the controller that a cable's ports went up or down, or have another rate
 *
 * With the virtual clock, time then stands still until it says that its rules
 * are in, so that they take effect at the same emulated time in every run.
 */
void cable_announce(struct fabric *f, struct change *c)
{
	enum report kind = c->set_up ? REPORT_PORT : REPORT_RATE;

	if (c->set_up)
		c->cable->announced_down = !c->up;
	else
		c->cable->announced_bps = c->rate_bps;
	for (int i = 0; i < 2; i++) {
		if (c->cable->end[i]->node->kind != NODE_SWITCH)
			continue;
		report_event(f, kind, end_event(f, c->cable, i, kind));
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
