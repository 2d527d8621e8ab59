/* The clock: emulated time, and how far it may go.  loop.c makes it go; control/hold.c makes it stand still for
 * an answer, control/until.c at a time. */
#ifndef ENGINE_CLOCK_H
#define ENGINE_CLOCK_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/units.h"

#define LATENESS_BUCKETS 640

struct fabric;
struct hold;

enum clock_mode { CLOCK_VIRTUAL, CLOCK_REAL };

struct clock {
	enum clock_mode mode;
	int64_t dilation;
	int64_t wall_start_ns;
	ps_t now;
	bool started;	 /* `start` was asked for */
	ps_t workers;	 /* no running worker can act before this */
	ps_t workers_now; /* the earliest time that a running worker shows */
	ps_t until;	 /* if `bounded`: it goes no further (control/until.c) */
	bool bounded;
	bool held;	 /* and has come there */
	ps_t hold;	 /* the controller is being waited for: stand still here */
	struct hold *holds; /* answers still missing (control/hold.c) */
	uint32_t hold_left, hold_room;
	int64_t ticked_ns;
	uint64_t events;
	uint64_t lateness[LATENESS_BUCKETS]; /* wall ns, 16 buckets an octave */
	uint64_t lateness_count;
	int64_t lateness_max;
	uint64_t controller_timeouts; /* events that nobody answered */
	uint64_t controller_silent;   /* times that a controller was judged dead with its connection open */
};

void clock_start_real(struct fabric *f);
ps_t clock_real_now(const struct fabric *f);
void clock_late(struct fabric *f, int64_t late_ns);
int64_t clock_lateness_ns(const struct fabric *f, double quantile);

#endif
