/* Selective repeat, sending side: which holes are lost by now (the rules are in transport/repeat.c)
 *
 * Where packets take several paths there are many holes, and every acknowledgement may be what makes one of them lost.
 * But those that were never sent again have left, and were overtaken, in the order of their numbers, and so are lost in
 * that order: behind one that still waits none is.  Behind `uneven` all holes are of that sort.
 */
#include <assert.h>

#include "base/units.h"
#include "recovery/holes.h"
#include "recovery/lost.h"
#include "recovery/round_trip.h"

#define LOSSES_UNTIL_IN_ORDER 16

/* repeat_uneven_until() - Holes below that are looked at one by one */
void repeat_uneven_until(struct repeat *r, uint64_t end)
{
	r->uneven = end > r->uneven ? end : r->uneven;
}

/* repeat_missing() - Everything from `known` to @end is missing */
void repeat_missing(struct repeat *r, uint64_t end, ps_t since)
{
	if (!since || since == PS_NEVER)
		repeat_uneven_until(r, end);
	for (; r->known < end; r->known++, r->open++)
		holes_add(&r->holes, &(struct hole){.number = r->known, .turn = r->turns, .before = r->known + 1, .since = since});
}

/* repeat_lose() - A hole is lost, and to be sent again */
void repeat_lose(struct repeat *r, uint32_t i)
{
	holes_at(&r->holes, i)->state = LOST;
	holes_at(&r->holes, i)->asked = false;
	r->lost++;
	r->found++;
	if (i < r->next)
		r->next = i;
}

/* Has something come that was sent after what was sent again as @turn, when packet @before was next? */
static bool overtaken(const struct repeat *r, uint64_t turn, uint64_t before)
{
	return r->came > before || r->turn_came > turn;
}

/* repeat_left_at() - When a hole left last; PS_NEVER: that is not known, or it is to leave again */
ps_t repeat_left_at(const struct repeat *r, const struct hole *h)
{
	return h->again ? h->left : round_trip_left_at(&r->trips, h->number);
}

/* repeat_is_first() - Is it what was sent first, though it may have been sent again since?  An answer that says when the packet that it
 * answers had left says so for certain (RFC 3522); otherwise it is judged by the shortest round trip.
 */
bool repeat_is_first(const struct repeat *r, const struct hole *h, ps_t now, bool at_once)
{
	if (!h->again || h->left == PS_NEVER)
		return true;
	return at_once && r->answers ? r->answers < h->left : now - h->left < r->trips.shortest / 4 * 3;
}

/* repeat_overtaken() - What was sent again has come: all that left before it, and is not known, was overtaken by it, or has
 * come by now (RFC 8985, section 6.2)
 * @send:	The packet that is to be sent next
 */
void repeat_overtaken(struct repeat *r, uint64_t send, ps_t now)
{
	uint64_t end = r->before_came < send ? r->before_came : send;

	for (; r->known < end; r->known++, r->open++)
		holes_add(&r->holes, &(struct hole){.number = r->known, .turn = r->turn_came - 1, .before = r->known + 1, .since = now});
}

/* Until when does a hole that was overtaken wait? */
static ps_t waits_until(const struct repeat *r, const struct hole *h, ps_t after)
{
	if (!after)
		return h->again ? h->since : h->since + r->window;
	ps_t left = repeat_left_at(r, h), ahead = left == PS_NEVER ? 0 : r->latest - left;
	ps_t least = r->window > r->trips.smoothed ? r->window : r->trips.smoothed;
	if (ahead > after && ahead > r->window)
		return h->since;
	return h->since + (after - ahead > least ? after - ahead : least);
}

/* Is a hole lost?
 * Return: whether none behind it is: it waits, and they have left and were overtaken in the order of their numbers
 */
static bool judge(struct repeat *r, uint32_t i, ps_t now, ps_t after)
{
	struct hole *h = holes_at(&r->holes, i);

	if (h->state != UNDER_WAY)
		return false;
	bool late = overtaken(r, h->turn, h->before);
	if (late && h->since == PS_NEVER)
		h->since = now;
	if (!late) {
		if (h->again && (!r->oldest || h->turn < r->oldest)) {
			r->oldest = h->turn;
			r->oldest_before = h->before;
		}
	} else if (now < waits_until(r, h, after)) {
		ps_t until = waits_until(r, h, after);
		r->due = until < r->due ? until : r->due;
		return after && h->number >= r->uneven && repeat_left_at(r, h) != PS_NEVER;
	} else {
		repeat_lose(r, i);
		if (!h->again && r->window && ++r->losses == LOSSES_UNTIL_IN_ORDER)
			r->window = 0;
	}
	return false;
}

/* Where mistakes are looked for (--sanitize): none from @i on is lost, or has to be looked at before it is due anyway */
static void none_is_lost(const struct repeat *r, uint32_t i, ps_t now, ps_t after)
{
#if defined(__SANITIZE_ADDRESS__)
	for (; i < r->holes.count; i++) {
		const struct hole *h = holes_at(&r->holes, i);
		assert(h->state != UNDER_WAY || (!h->again && h->since && overtaken(r, h->turn, h->before)));
		assert(h->state != UNDER_WAY || (now < waits_until(r, h, after) && r->due <= waits_until(r, h, after)));
	}
#else
	(void)r, (void)i, (void)now, (void)after;
#endif
}

/* repeat_judge() - Which holes are lost by now?  Only those from @i on may be, unless what was sent again is overtaken, or a wait is over
 * @after:	Something that left so much later has come: a hole is lost; 0: packets take one path
 */
void repeat_judge(struct repeat *r, uint32_t i, ps_t now, ps_t after)
{
	if (after || (r->oldest && overtaken(r, r->oldest, r->oldest_before)) || r->due <= now) {
		i = 0;
		r->oldest = 0;
		r->due = PS_NEVER;
	}
	while (r->over < r->holes.count && holes_at(&r->holes, r->over)->state == CAME)
		r->over++;
	for (i = i > r->over ? i : r->over; i < r->holes.count && !judge(r, i, now, after); i++)
		;
	none_is_lost(r, i, now, after);
}
