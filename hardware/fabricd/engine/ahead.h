/* Memory that is copied soon is brought near in slices, while something else is done
 *
 * Payload lies where nobody has looked for long.  A core that has to wait for each line of it does nothing else for as
 * long as all else takes that is done for a packet.  When a packet is copied it is known where the next one of its
 * message lies, and where it goes.  So some lines of that are asked for with each event that runs, and nobody waits for
 * them.  What is asked for too early, too late or in vain changes nothing.
 *
 * Of many messages at once the next packet comes late, when what was asked for would have made room for others' again.
 * But they take turns: what is copied next is, as a rule, what was named next.  So no more than AHEAD_RANGES behind the
 * one that is just copied are asked for, and none before it.
 */
#ifndef ENGINE_AHEAD_H
#define ENGINE_AHEAD_H

#include <stdint.h>

#include "base/lines.h"

#define AHEAD_RANGES 24
#define AHEAD_LINES 11 /* lines with each event; a packet of 4 KiB takes six events on its way through a switch */
#define AHEAD_ROOM 1024

struct ahead {
	struct ahead_range {
		uintptr_t from, to, end; /* end: of `from` */
	} range[AHEAD_ROOM]; /* by their numbers */
	uint64_t next, until, last; /* to be asked for, not beyond that, and not named yet */
};

/* ahead_name() - So many bytes will be copied
 * @number:	What was returned when those were named that have just been copied, or 0
 *
 * Return: a number for the next call
 */
static inline uint64_t ahead_name(struct ahead *a, uint64_t number, const void *to, const void *from, uint32_t bytes)
{
	if (number + AHEAD_RANGES > a->until)
		a->until = number + AHEAD_RANGES;
	if (number > a->next)
		a->next = number;
	if (a->last - a->next == AHEAD_ROOM)
		a->next++;
	a->range[a->last++ % AHEAD_ROOM] =
		(struct ahead_range){.from = (uintptr_t)from, .to = (uintptr_t)to, .end = (uintptr_t)from + bytes};
	return a->last;
}

/* ahead_step() - Ask for the next lines */
static inline void ahead_step(struct ahead *a)
{
	if (a->next >= a->until || a->next == a->last)
		return;
	struct ahead_range *r = &a->range[a->next % AHEAD_ROOM];
	for (int i = 0; i < AHEAD_LINES; i++) {
		__builtin_prefetch((const void *)r->from, 0, 2);
		__builtin_prefetch((const void *)r->to, 0, 2);
		r->from += LINE_BYTES;
		r->to += LINE_BYTES;
	}
	if (r->from >= r->end)
		a->next++;
}

#endif
