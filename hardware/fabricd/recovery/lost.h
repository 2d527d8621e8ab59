/* Selective repeat, sending side: what is known of packets that left, and which of them are lost by now (lost.c) */
#ifndef RECOVERY_LOST_H
#define RECOVERY_LOST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/units.h"
#include "recovery/holes.h"
#include "recovery/round_trip.h"

struct repeat {
	struct holes holes;
	uint32_t open, lost; /* of them: not known to have come; and of those, to be sent again */
	uint32_t next;	   /* of the holes: before it none is lost */
	uint32_t over;	   /* of the holes: so many at the beginning have come */
	uint64_t uneven;   /* behind the last that was sent again, or of which it is not known when it left or was overtaken */
	uint64_t known;	   /* below this all has come but the holes */
	uint64_t came;	   /* behind the highest that has come */
	uint64_t turns, turn_came; /* times that something was sent again, and the last of them that came */
	uint64_t before_came; /* and the packet that was to be sent next when that was sent */
	uint64_t turn_judged; /* that is taken into account up to here */
	uint64_t recovered; /* when all before this has come the recovery is over */
	bool enters;	   /* it has just begun: what is lost goes whatever the window is */
	uint64_t oldest, oldest_before; /* of what was sent again and is not known to have come, or 0: the first */
	uint32_t found;	   /* lost, and not reported yet: transport/repeat.c */
	ps_t window;	   /* that a hole waits, after lateness that was seen */
	ps_t answers;	   /* when the packet had left that is answered now; 0: that is not known */
	ps_t latest;	   /* when what left last of all that has come had left */
	ps_t due;	   /* when the first wait is over, or PS_NEVER */
	uint32_t losses;   /* holes in a row that were lost, since one was late */
	struct round_trip trips;
	ps_t probe;	   /* when to ask, or PS_NEVER */
	uint32_t probes;   /* in a row, without an answer */
};

void repeat_missing(struct repeat *r, uint64_t end, ps_t since);
void repeat_overtaken(struct repeat *r, uint64_t send, ps_t now);
bool repeat_is_first(const struct repeat *r, const struct hole *h, ps_t now, bool at_once);
void repeat_lose(struct repeat *r, uint32_t i);
void repeat_judge(struct repeat *r, uint32_t i, ps_t now, ps_t after);
void repeat_uneven_until(struct repeat *r, uint64_t end);
ps_t repeat_left_at(const struct repeat *r, const struct hole *h);

#endif
