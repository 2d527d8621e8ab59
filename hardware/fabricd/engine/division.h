/* A fabric that is divided: partitions with events and a clock of their own, which run one after the other in windows of
 * time (windows.c).
 */
#ifndef ENGINE_DIVISION_H
#define ENGINE_DIVISION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/lines.h"
#include "base/units.h"
#include "engine/event.h"
#include "engine/fabric.h"

#define PARTITIONS_MAX 64

struct partition {
	_Alignas(LINE_BYTES) struct heap heap;
	ps_t now; /* it is that far */
};

/* What was said in a window, until it is put in order (report.c) */
struct told;

struct division {
	bool in_force; /* events stand with their partitions; else all of them in fabric.heap */
	uint32_t count;
	uint8_t *of; /* each node's partition, by its index */
	ps_t lookahead; /* nothing that happens in one reaches another sooner; below 0: to be found out anew */
	ps_t furthest; /* that any of them has come */
	ps_t in_order_until; /* no windows before: somebody looks at all of them */
	uint64_t order; /* of partitions in a window: 0: as they are numbered, else drawn by this seed */
	uint64_t windows; /* there were */
	const struct event *running; /* in a window, or NULL */
	uint32_t by; /* and whose it is, from 1 */
	struct told *told;
	uint32_t told_count, told_room;
	struct partition partition[PARTITIONS_MAX];
};

/* division_in_order() - Whoever looks beyond his own partition has to know that all have come equally far until then */
static inline void division_in_order(struct fabric *f, ps_t until)
{
	if (f->division && until > f->division->in_order_until)
		f->division->in_order_until = until;
}

/* division_runs() - Does a window run? */
static inline bool division_runs(const struct fabric *f)
{
	return f->division && f->division->running;
}

/* division_changed() - Whoever has asked for something may have changed what leads from one to another */
static inline void division_changed(struct fabric *f)
{
	if (f->division)
		f->division->lookahead = -1;
}

void events_divide(struct fabric *f, bool on);

#endif
