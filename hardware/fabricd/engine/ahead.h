/* Memory that is copied soon is brought near in slices, while something else is done
 *
 * Payload lies where nobody has looked for long.  A core that has to wait for each line of it does nothing else for as
 * long as all else takes that is done for a packet.  When a packet is copied it is known where the next one of its
 * message lies, and where it goes.  So some lines of that are asked for with each event that runs, and nobody waits for
 * them.  What is asked for too early, too late or in vain changes nothing.
 */
#ifndef ENGINE_AHEAD_H
#define ENGINE_AHEAD_H

#include <stdint.h>

#define AHEAD_RANGES 8 /* what is asked for meanwhile replaces the oldest */
#define AHEAD_LINES 10 /* with each event: as many as a core has under way */
#define LINE_BYTES 64

struct ahead {
	struct ahead_range {
		uintptr_t from, to, end; /* end: of `from` */
	} range[AHEAD_RANGES];
	uint32_t first, last;
};

/* ahead_copy() - So many bytes will be copied soon */
static inline void ahead_copy(struct ahead *a, const void *to, const void *from, uint32_t bytes)
{
	if (a->last - a->first == AHEAD_RANGES)
		a->first++;
	a->range[a->last++ % AHEAD_RANGES] =
		(struct ahead_range){.from = (uintptr_t)from, .to = (uintptr_t)to, .end = (uintptr_t)from + bytes};
}

/* ahead_step() - Ask for the next lines */
static inline void ahead_step(struct ahead *a)
{
	if (a->first == a->last)
		return;
	struct ahead_range *r = &a->range[a->first % AHEAD_RANGES];
	for (int i = 0; i < AHEAD_LINES; i++) {
		__builtin_prefetch((const void *)r->from, 0, 2);
		__builtin_prefetch((const void *)r->to, 0, 2);
		r->from += LINE_BYTES;
		r->to += LINE_BYTES;
	}
	if (r->from >= r->end)
		a->first++;
}

#endif
