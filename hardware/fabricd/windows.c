/* Windows: the events of a divided fabric
 *
 * Theory of Operation
 *
 * Of a large fabric each frame finds that what belongs to it is in no cache, as all others have passed since the last one.
 * So the fabric is divided (divide.c): each partition, some switches and their NICs, has its own events, and runs for as
 * long as no other can reach it.  That is a window [T, E): T is the time of the earliest event of all, and E the least of
 *
 *  - T + lookahead: the least delay of a cable between two partitions, and of whatever else leads from one to another;
 *  - how far the clock may go (clock_limit());
 *  - the next event that concerns all of the fabric: a fault, a cable, a group.  It runs by itself, in its turn;
 *  - the next sample.
 *
 * What one partition does before E depends on no other's events of that window.  So its own order, by time, key and number,
 * is the order of all events with the others left out, and each figure is what it is in an undivided fabric, whatever the
 * number of partitions and whichever of them runs first.  A partition may stop anywhere: its next event then begins the next
 * window.  So one stops at an event that may have to wait for somebody, which runs when it is the first of all.
 *
 * What is reported in a window is kept, and put in order at its end.
 *
 * Where somebody looks at all partitions at once (a deadlock is looked for, collectives are offloaded, frames are captured),
 * and where code of users' own may remember what it saw last, all events run in one order, as in an undivided fabric.
 */
#include "base/random.h"
#include "base/units.h"
#include "control/sample.h"
#include "engine/division.h"
#include "engine/event.h"
#include "engine/fabric.h"
#include "engine/report.h"
#include "happen.h"
#include "loop.h"
#include "near.h"
#include "switch/ovs.h"
#include "windows.h"

#define WORTH_PS 20000 /* of lookahead: below that a window has hardly any events */

/* May partitions run ahead of each other?  Not where something that is not a frame leads from one to another */
static bool may_divide(const struct fabric *f)
{
	return f->clock.mode == CLOCK_VIRTUAL && !f->groups && !f->captures && !f->plugins && !f->programs;
}

/* windows_wanted() - Does the fabric run in windows from here on?  Events are moved to where they belong then */
bool windows_wanted(struct fabric *f)
{
	struct division *d = f->division;
	struct heap *from;

	if (!d)
		return false;
	const struct event *first = event_next(f, &from);
	if (!first)
		return d->in_force;
	bool wanted = may_divide(f) && first->t >= d->in_order_until;
	if (wanted && d->lookahead < 0)
		d->lookahead = division_lookahead(f);
	wanted = wanted && d->lookahead >= WORTH_PS;
	if (f->clock.now > d->furthest)
		d->furthest = f->clock.now;
	if (wanted == d->in_force)
		return wanted;
	if (!wanted && first->t < d->furthest)
		return true; /* some are further than others: until they have caught up events run one by one */
	if (wanted)
		for (uint32_t i = 0; i < d->count; i++)
			d->partition[i].now = f->clock.now;
	events_divide(f, wanted);
	return wanted;
}

/* One event by itself, the first of all */
static void step(struct fabric *f, struct heap *from)
{
	struct division *d = f->division;
	struct partition *p = from == &f->heap ? NULL : (struct partition *)from;
	struct event e;

	event_pop(from, &e);
	f->clock.now = p ? p->now : d->furthest;
	event_run(f, &e);
	if (p)
		p->now = f->clock.now;
	if (event_of_all(event_kind(&e)))
		division_changed(f);
}

/* A partition's events before @end, as far as none of them may have to wait */
static int run_before(struct fabric *f, struct partition *p, ps_t end)
{
	struct event e;
	int n = 0;

	f->clock.now = p->now;
	f->division->by = (uint32_t)(p - f->division->partition) + 1;
	for (; p->heap.n; n++) {
		const struct event *first = event_first(&p->heap);
		if (first->t >= end || event_may_wait(first) || ovs_checks_late(f->ovs))
			break;
		event_pop(&p->heap, &e);
		near_what_is_next(f, &p->heap);
		f->division->running = &e;
		event_run(f, &e);
	}
	f->division->running = NULL;
	f->division->by = 0;
	p->now = f->clock.now;
	return n;
}

/* Numbers of partitions, in the order in which they run in this window */
static void in_order(const struct division *d, uint8_t *number)
{
	for (uint32_t i = 0; i < d->count; i++)
		number[i] = (uint8_t)i;
	for (uint32_t i = d->order ? d->count : 0; i-- > 1;) {
		uint32_t other = (uint32_t)(random_of(d->order, d->windows, i, 0) % (i + 1));
		uint8_t was = number[i];
		number[i] = number[other];
		number[other] = was;
	}
}

static int window(struct fabric *f, ps_t end)
{
	struct division *d = f->division;
	uint8_t number[PARTITIONS_MAX];
	int n = 0;

	in_order(d, number);
	d->windows++;
	for (uint32_t i = 0; i < d->count; i++) {
		struct partition *p = &d->partition[number[i]];
		n += run_before(f, p, end);
		if (p->now > d->furthest)
			d->furthest = p->now;
	}
	report_window(f);
	return n;
}

/* Where a window ends that begins with @first; at its time: there is none
 * @limit:	How far the clock may go
 */
static ps_t window_end(struct fabric *f, const struct event *first, ps_t limit)
{
	struct division *d = f->division;

	if (!may_divide(f) || first->t < d->in_order_until || event_may_wait(first))
		return first->t;
	if (d->lookahead < 0)
		d->lookahead = division_lookahead(f);
	ps_t end = first->t + d->lookahead, sample = sample_next(f);
	if (limit < end)
		end = limit;
	if (f->heap.n && event_first(&f->heap)->t < end)
		end = event_first(&f->heap)->t;
	if (sample < end)
		end = sample + 1; /* what happens at that time is in it */
	/* Pauses that come and go without end must not go on when nothing else is left */
	ps_t latest = events_latest(f);
	return limit == PS_NEVER && (latest < end || latest <= d->furthest) ? first->t : end;
}

/* windows_step() - Run the events that may run, a burst at most
 * Return: whether any ran
 */
bool windows_step(struct fabric *f, int burst)
{
	struct division *d = f->division;
	const struct event *first;
	struct heap *from;
	int n = 0;

	while (n < burst && !f->stop && (first = event_next(f, &from))) {
		ps_t limit = clock_limit(f);
		if (first->t >= limit || event_must_wait(f, first) || (limit == PS_NEVER && events_idle(f)))
			break;
		ps_t end = window_end(f, first, limit);
		if (end <= first->t || from == &f->heap) {
			step(f, from);
			n++;
		} else {
			n += window(f, end);
		}
		if (f->clock.now > d->furthest)
			d->furthest = f->clock.now;
		f->clock.now = d->furthest;
	}
	return n > 0;
}
