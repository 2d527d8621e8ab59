/* Reports to the outside: passed on to those who listen. */
#include "engine/fabric.h"
#include "engine/report.h"

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

void report_event(struct fabric *f, enum report kind, json_t *fields)
{
	f->listener->event(f, kind, fields);
}

void report_note(struct fabric *f, enum report kind, json_t *fields)
{
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
	f->listener->pause(f, p, class, on);
}
