/* Best-effort aggregation: where accelerators do nothing, the server adds up alone
 *
 * Theory of Operation
 *
 * A dead accelerator swallows what comes to it.  Then no sums come, and each rank sends
 * its oldest block again, in the end past the accelerators: with a flag that says so.
 * When several blocks in a row had such a contribution, the server gives its job's lanes
 * no slots any more: their blocks go to the server at once.  The sums say so, too: what
 * still waits for the accelerators goes past them.  All members are told, and why.
 *
 * Once in a window a block has its slot all the same.  The first one of these that needs
 * nothing past the accelerators ends it.
 */
#include <stdio.h>
#include <string.h>

#include "nic/nic.h"
#include "offload/best_effort/best_effort.h"
#include "offload/offload.h"
#include "wire/roce.h"

#define MISSED 6 /* blocks in a row: losses leave silences, but not one after the other */

static void change(struct fabric *f, struct member *m, struct server *s)
{
	char text[96], why[192] = "";
	const char *culprit = offload_culprit(f, m->group, text, sizeof text);

	s->alone = !s->alone;
	s->missed = s->untried = 0;
	memset(s->tries, 0, s->window * sizeof *s->tries);
	if (s->alone)
		snprintf(why, sizeof why, "the parameter server, rank %u, adds up alone: %s", m->nic->rank,
			 *culprit ? culprit : "accelerators bring nothing");
	offload_noted(f, m->group, why);
}

/* server_next_slot() - A block's sum is whole: which slot its lane's next block has */
uint16_t server_next_slot(struct fabric *f, struct member *m, struct server *s, const struct server_entry *e)
{
	uint32_t lane = e->number % s->window;

	if (s->accelerators && (!s->alone || s->tries[lane])) {
		s->missed = e->past ? s->missed + 1 : 0;
		if (s->alone ? !s->missed : s->missed == MISSED)
			change(f, m, s);
	}
	s->tries[lane] = s->alone && ++s->untried == s->window;
	if (s->alone && !s->tries[lane])
		return NO_SLOT;
	s->untried = 0;
	return e->flags & OFF_COLLIDED ? lane_slots_move(s->lanes, lane) : s->lanes->of[lane];
}
