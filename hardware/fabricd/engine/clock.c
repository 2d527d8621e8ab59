/* The clock: real time, and how late events ran.
 *
 * Real clock: emulated time = wall time / dilation.  An event runs when it is
 * due, with its nominal time, so that lateness does not add up; how late it
 * ran is kept in a histogram.
 */
#include <string.h>

#include "base/units.h"
#include "base/wall.h"
#include "engine/clock.h"
#include "engine/fabric.h"

void clock_start_real(struct fabric *f)
{
	f->clock.wall_start_ns = wall_ns();
	f->clock.started = true;
}

ps_t clock_real_now(const struct fabric *f)
{
	int64_t wall = wall_ns() - f->clock.wall_start_ns;

	return (ps_t)((__int128)wall * PS_PER_NS / f->clock.dilation);
}

/* clock_late() - Keep how late an event ran, in wall time: 16 buckets an octave */
void clock_late(struct fabric *f, int64_t late)
{
	struct clock *c = &f->clock;
	unsigned bucket = 0;

	if (late < 0)
		late = 0;
	if (late > c->lateness_max)
		c->lateness_max = late;
	if (late < 16) {
		bucket = (unsigned)late;
	} else {
		unsigned octave = 63 - (unsigned)__builtin_clzll((uint64_t)late);
		bucket = (octave - 3) * 16 + (unsigned)(late >> (octave - 4) & 15);
	}
	c->lateness[bucket < LATENESS_BUCKETS ? bucket : LATENESS_BUCKETS - 1]++;
	c->lateness_count++;
}

/* clock_lateness_ns() - Upper bound of the bucket in which that share of events lies */
int64_t clock_lateness_ns(const struct fabric *f, double quantile)
{
	const struct clock *c = &f->clock;
	uint64_t seen = 0;

	for (unsigned i = 0; i < LATENESS_BUCKETS; i++) {
		seen += c->lateness[i];
		if (seen && (double)seen >= quantile * (double)c->lateness_count)
			return i < 16 ? (int64_t)i : (int64_t)(17 + i % 16) << (i / 16 - 1);
	}
	return 0;
}
