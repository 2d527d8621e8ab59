/* Reports to the outside: passed on to those who listen
 *
 * While partitions run in a window, what they report is kept.  At its end it is passed on in the order of the events by which
 * it happened: as it would have been in an undivided fabric.
 */
#include <stdlib.h>

#include "engine/division.h"
#include "engine/fabric.h"
#include "engine/report.h"

struct told {
	struct event by; /* what happened */
	ps_t now;
	uint32_t number; /* in the window */
	enum { TOLD_EVENT, TOLD_NOTE, TOLD_PAUSE } how;
	enum report kind;
	json_t *fields;
	const struct port *port; /* a pause's */
	unsigned class;
	bool on;
};

/* report_name() - What an event is called outside */
const char *report_name(enum report kind)
{
	static const char *const names[] = {
#define REPORT(kind, name, fields, meaning) [REPORT_##kind] = #name,
#include "engine/reports.def"
#undef REPORT
	};

	return names[kind];
}

static void keep(struct fabric *f, struct told told)
{
	struct division *d = f->division;

	if (d->told_count == d->told_room) {
		d->told_room = d->told_room ? 2 * d->told_room : 64;
		d->told = realloc(d->told, d->told_room * sizeof *d->told);
		if (!d->told)
			abort();
	}
	told.by = *d->running;
	told.now = f->clock.now;
	told.number = d->told_count;
	d->told[d->told_count++] = told;
}

static int by_event(const void *a, const void *b)
{
	const struct told *x = a, *y = b;

	if (x->by.t != y->by.t)
		return x->by.t < y->by.t ? -1 : 1;
	if (x->by.key != y->by.key)
		return x->by.key < y->by.key ? -1 : 1;
	if (x->by.seq != y->by.seq)
		return x->by.seq < y->by.seq ? -1 : 1;
	return x->number < y->number ? -1 : 1;
}

/* report_window() - A window is over: pass on what was reported in it */
void report_window(struct fabric *f)
{
	struct division *d = f->division;
	ps_t now = f->clock.now;

	if (!d->told_count)
		return;
	qsort(d->told, d->told_count, sizeof *d->told, by_event);
	for (uint32_t i = 0; i < d->told_count; i++) {
		const struct told *t = &d->told[i];
		f->clock.now = t->now;
		switch (t->how) {
		case TOLD_EVENT: f->listener->event(f, t->kind, t->fields); break;
		case TOLD_NOTE: f->listener->note(f, t->kind, t->fields); break;
		case TOLD_PAUSE: f->listener->pause(f, t->port, t->class, t->on); break;
		}
	}
	d->told_count = 0;
	f->clock.now = now;
}

void report_event(struct fabric *f, enum report kind, json_t *fields)
{
	if (division_runs(f)) {
		keep(f, (struct told){.how = TOLD_EVENT, .kind = kind, .fields = fields});
		return;
	}
	f->listener->event(f, kind, fields);
}

void report_note(struct fabric *f, enum report kind, json_t *fields)
{
	if (division_runs(f)) {
		keep(f, (struct told){.how = TOLD_NOTE, .kind = kind, .fields = fields});
		return;
	}
	f->listener->note(f, kind, fields);
}

struct asked report_ask(struct fabric *f, const char *who, uint64_t id, json_t *event)
{
	return f->listener->ask(f, who, id, event);
}

void report_settle(struct fabric *f, uint64_t id)
{
	f->listener->settle(f, id);
}

bool report_acts(const struct fabric *f, const char *who)
{
	return f->listener->acts(f, who);
}

bool report_waits(const struct fabric *f, uint64_t id)
{
	return f->listener->waits(f, id);
}

void report_pause(struct fabric *f, const struct port *p, unsigned class, bool on)
{
	if (division_runs(f)) {
		if (f->sampler) /* nobody else looks at them */
			keep(f, (struct told){.how = TOLD_PAUSE, .port = p, .class = class, .on = on});
		return;
	}
	f->listener->pause(f, p, class, on);
}
