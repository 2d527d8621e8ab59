/* Selective repeat, sending side: which packets are lost, and sent again
 *
 * Theory of Operation
 *
 * A packet that is overtaken is a hole: something sent after it is known to have come, it
 * is not (RFC 6675, section 4; IRN, section 3.1).  All else below `known` has come.  On one path nothing overtakes,
 * so a hole is lost at once, and sent again before anything new.  It was lost once more as
 * soon as something has come that was sent after it: a new packet, or another that was
 * sent again (RFC 8985, section 6.2: by the order of sending, not of numbers).  At a
 * timeout everything that has left the NIC and is not known to have come is lost.
 *
 * A network that reorders shows itself: a hole is heard of sooner than it can have been
 * sent again, or before it was.  Then a hole has to wait before it counts as lost, a
 * quarter longer than the longest that one has been late so far; a hole that was sent again
 * has had its wait.  After 16 holes in a row that were losses all the same the wait is over
 * (RFC 8985, sections 6.2 and 7: no window before reordering is seen, 16 recoveries until
 * it is given up).  "Sooner" means less than three quarters of the shortest round trip.  That is
 * measured on new packets that ask to be acknowledged while nothing is missing.
 */
#include <stdlib.h>

#include "base/units.h"
#include "engine/fabric.h"
#include "transport/qp.h"
#include "transport/repeat.h"

#define LOSSES_UNTIL_IN_ORDER 16

enum hole_state { UNDER_WAY, LOST, CAME };

struct hole {
	uint64_t number;
	uint64_t turn;	/* the how manieth to be sent again it was, the last time; 0: not yet */
	uint64_t before; /* and the packet that was to be sent next then */
	ps_t since;	/* overtaken; 0: it counts as lost by a timeout */
	ps_t left;	/* sent again on the cable then; PS_NEVER: it is still in the NIC */
	enum hole_state state;
};

struct repeat {
	struct hole *hole; /* a ring, by number */
	uint32_t room, first, count;
	uint32_t open, lost; /* of them: not known to have come; and of those, to be sent again */
	uint32_t next;	   /* behind `first` so many, of which none is lost */
	uint64_t known;	   /* below this all has come but the holes */
	uint64_t came;	   /* behind the highest that has come */
	uint64_t turns, turn_came; /* times that something was sent again, and the last of them that came */
	uint64_t oldest, oldest_before; /* of what was sent again and is not known to have come, or 0: the first */
	uint32_t found;	   /* lost, and not told yet: repeat_found() */
	ps_t window;	   /* that a hole waits */
	ps_t due;	   /* when the first wait is over, or PS_NEVER */
	uint32_t losses;   /* holes in a row that were lost, since one was late */
	uint64_t timed;	   /* the round trip of the packet before this one is being measured, unless it is acknowledged */
	ps_t timed_left, round_trip; /* when that one left; the shortest, 0: none yet */
};

static struct hole *at(const struct repeat *r, uint32_t i)
{
	return &r->hole[(r->first + i) % r->room];
}

static struct repeat *repeat_of(struct qp *q)
{
	if (!q->repeat) {
		q->repeat = calloc(1, sizeof *q->repeat);
		if (!q->repeat)
			abort();
		q->repeat->known = q->repeat->came = q->acked;
		q->repeat->due = PS_NEVER;
	}
	return q->repeat;
}

/* Twice the room; what was there is at the beginning */
static void grow(struct repeat *r)
{
	uint32_t room = r->room ? 2 * r->room : 16;
	struct hole *hole = calloc(room, sizeof *hole);

	if (!hole)
		abort();
	for (uint32_t i = 0; i < r->count; i++)
		hole[i] = *at(r, i);
	free(r->hole);
	r->hole = hole;
	r->room = room;
	r->first = 0;
}

/* Everything from `known` to @end is missing */
static void add_holes(struct repeat *r, uint64_t end, ps_t since)
{
	for (; r->known < end; r->known++) {
		if (r->count == r->room)
			grow(r);
		*at(r, r->count++) = (struct hole){.number = r->known, .since = since};
		r->open++;
	}
}

static struct hole *find(const struct repeat *r, uint64_t n)
{
	uint32_t least = 0, most = r->count;

	while (least < most) {
		uint32_t i = least + (most - least) / 2;
		if (at(r, i)->number < n)
			least = i + 1;
		else
			most = i;
	}
	return least < r->count && at(r, least)->number == n ? at(r, least) : NULL;
}

static void lose(struct repeat *r, uint32_t i)
{
	at(r, i)->state = LOST;
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

static void judge(struct repeat *r, uint32_t i, ps_t now)
{
	const struct hole *h = at(r, i);

	if (h->state != UNDER_WAY)
		return;
	if (h->turn && !overtaken(r, h->turn, h->before)) {
		if (!r->oldest || h->turn < r->oldest) {
			r->oldest = h->turn;
			r->oldest_before = h->before;
		}
	} else if (!h->turn && now < h->since + r->window) {
		if (h->since + r->window < r->due)
			r->due = h->since + r->window;
	} else {
		lose(r, i);
		if (!h->turn && r->window && ++r->losses == LOSSES_UNTIL_IN_ORDER)
			r->window = 0;
	}
}

/* Which holes are lost by now?  Only new ones may be, unless what was sent again has been overtaken, or a wait is over */
static void look(struct repeat *r, uint32_t i, ps_t now)
{
	if ((r->oldest && overtaken(r, r->oldest, r->oldest_before)) || r->due <= now) {
		i = 0;
		r->oldest = 0;
		r->due = PS_NEVER;
	}
	for (; i < r->count; i++)
		judge(r, i, now);
}

/* A hole has come, and that is heard of at once: was it late, or was it sent again? */
static void heard(struct repeat *r, const struct hole *h, ps_t now)
{
	if (!h->turn || h->left == PS_NEVER || now - h->left < r->round_trip / 4 * 3) {
		ps_t late = h->since ? now - h->since : 0;
		if (late + late / 4 > r->window)
			r->window = late + late / 4;
		if (late)
			r->losses = 0;
	} else if (h->turn > r->turn_came) {
		r->turn_came = h->turn;
	}
}

static void close_hole(struct repeat *r, struct hole *h)
{
	if (h->state == LOST)
		r->lost--;
	if (h->state != CAME)
		r->open--;
	h->state = CAME;
}

/* repeat_came() - A NAK says that packet @n has come; the expected one itself: that one ahead could not be kept */
void repeat_came(struct fabric *f, struct qp *q, uint64_t n)
{
	struct repeat *r = repeat_of(q);
	uint32_t holes = r->count;

	r->timed = 0;
	if (n < q->acked || n >= q->send)
		return;
	struct hole *h = n < r->known ? find(r, n) : NULL;
	if (n == q->acked) {
		add_holes(r, n + 1, f->clock.now);
	} else {
		add_holes(r, n, f->clock.now);
		if (r->known == n)
			r->known++;
		if (n >= r->came)
			r->came = n + 1;
		if (h && h->state != CAME) {
			heard(r, h, f->clock.now);
			close_hole(r, h);
		}
	}
	look(r, holes, f->clock.now);
}

/* repeat_timeout() - Nothing was heard: what has left and is not known to have come is lost, sent again or not.
 *
 * If the expected packet is said to have come, the receiver has forgotten what it had (RFC 2018, section 8).
 */
void repeat_timeout(struct qp *q)
{
	struct repeat *r = repeat_of(q);
	bool in_nic = q->fetched_bytes; /* what is not there any more was dropped there, if it has not left */
	uint64_t end = in_nic && q->left < q->send ? q->left : q->send;

	if (r->known > q->acked && (!r->count || at(r, 0)->number != q->acked || at(r, 0)->state == CAME))
		repeat_forget(q);
	add_holes(r, end, 0);
	for (uint32_t i = 0; i < r->count; i++) {
		struct hole *h = at(r, i);
		h->since = 0;
		if (h->state == UNDER_WAY && !(h->turn && h->left == PS_NEVER && in_nic))
			lose(r, i);
	}
	r->oldest = 0;
	r->due = PS_NEVER;
}

/* repeat_acked() - Everything below q->acked has come; it was @before
 * @heard_of:	By an acknowledgement: of the packet before q->acked
 */
void repeat_acked(struct fabric *f, struct qp *q, uint64_t before, bool heard_of)
{
	struct repeat *r = q->repeat;

	if (!r)
		return;
	while (r->count && at(r, 0)->number < q->acked) {
		struct hole *h = at(r, 0);
		if (h->number == before && h->state != CAME)
			heard(r, h, f->clock.now);
		close_hole(r, h);
		r->first = (r->first + 1) % r->room;
		r->count--;
		r->next -= r->next > 0;
	}
	r->known = r->known > q->acked ? r->known : q->acked;
	r->came = r->came > q->acked ? r->came : q->acked;
	look(r, r->count, f->clock.now);
	if (!r->timed || r->timed > q->acked)
		return;
	ps_t took = f->clock.now - r->timed_left;
	if (heard_of && (!r->round_trip || took < r->round_trip))
		r->round_trip = took;
	r->timed = 0;
}

/* repeat_forget() - The receiver has forgotten what came ahead */
void repeat_forget(struct qp *q)
{
	struct repeat *r = q->repeat;

	if (!r)
		return;
	r->first = r->count = r->open = r->lost = r->next = 0;
	r->known = r->came = q->acked;
	r->oldest = 0;
	r->due = PS_NEVER;
}

/* repeat_next() - The next packet to be sent again
 * Return: whether there is one
 */
bool repeat_next(const struct qp *q, uint64_t *n)
{
	struct repeat *r = q->repeat;

	if (!r || !r->lost)
		return false;
	while (at(r, r->next)->state != LOST)
		r->next++;
	*n = at(r, r->next)->number;
	return true;
}

/* repeat_sent() - That packet is made now */
void repeat_sent(struct qp *q)
{
	struct repeat *r = q->repeat;
	struct hole *h = at(r, r->next);

	h->state = UNDER_WAY;
	h->turn = ++r->turns;
	h->before = q->send;
	h->left = PS_NEVER;
	r->lost--;
	if (!r->oldest) {
		r->oldest = h->turn;
		r->oldest_before = h->before;
	}
}

/* repeat_left() - Packet @n starts on the cable, for the first time or again */
void repeat_left(struct fabric *f, struct qp *q, uint64_t n, bool asks)
{
	struct repeat *r = repeat_of(q);
	struct hole *h = n < q->left ? find(r, n) : NULL;

	if (h && h->turn)
		h->left = f->clock.now;
	if (n < q->left || !asks || r->timed || r->open)
		return;
	r->timed = n + 1;
	r->timed_left = f->clock.now;
}

/* repeat_due() - When to look again, or PS_NEVER */
ps_t repeat_due(const struct qp *q)
{
	return q->repeat ? q->repeat->due : PS_NEVER;
}

/* repeat_look() - A wait may be over */
void repeat_look(struct fabric *f, struct qp *q)
{
	look(q->repeat, q->repeat->count, f->clock.now);
}

/* repeat_found() - So many packets have been found to be lost since this was asked last, some perhaps once more */
uint32_t repeat_found(struct qp *q)
{
	uint32_t found = q->repeat ? q->repeat->found : 0;

	if (found)
		q->repeat->found = 0;
	return found;
}

/* repeat_under_way() - Packets that may be on their way: neither known to have come nor lost (RFC 6675: "pipe") */
uint64_t repeat_under_way(const struct qp *q)
{
	const struct repeat *r = q->repeat;

	return r ? q->send - r->known + r->open - r->lost : q->send - q->acked;
}

void repeat_release(struct qp *q)
{
	if (q->repeat)
		free(q->repeat->hole);
	free(q->repeat);
}
