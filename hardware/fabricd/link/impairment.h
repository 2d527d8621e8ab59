/* What faults do to frames and cables: fault/ fills the table in. */
#ifndef LINK_IMPAIRMENT_H
#define LINK_IMPAIRMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/units.h"
#include "link/port.h"

struct cable_params;
struct cable;
struct fabric;
struct frame;

struct frame_fate {
	bool dropped, reorder;
	bool damaged; /* its checksum no longer fits: a port that retries sees it, and others pass it on */
	enum shown shown; /* dropped: what an operator's counters call it */
	uint32_t duplicates;
	ps_t delay;
};

struct impairment {
	/* A frame is about to start on the cable from @p: what becomes of it? */
	struct frame_fate (*frame)(struct fabric *f, const struct port *p, struct frame *fr);
	/* Lay over a cable's parameters what is in force */
	void (*cable)(struct fabric *f, const struct cable *cable, struct cable_params *params);
};

#endif
