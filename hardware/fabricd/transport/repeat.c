/* Selective repeat, sending side: which packets are lost, and sent again
 *
 * Theory of Operation
 *
 * A hole is a packet that is not known to have come, though something sent after it has
 * (RFC 6675, section 4; IRN, section 3.1).  All else below `known` has come.  On one path
 * nothing overtakes, so a hole counts as lost at once, and is sent again before anything new.
 * What was sent again is lost in its turn when something sent after it has come: a new packet,
 * or another that was sent again (RFC 8985, section 6.2: by the order of sending, not of
 * numbers).  At a timeout all that has left the NIC and is not known to have come is lost.
 *
 * The network reorders if a hole is acknowledged before it was sent again, or less than three
 * quarters of the shortest round trip after that.  From then on a hole waits before it counts
 * as lost: a quarter longer than the longest that one has been late.  What was sent again
 * does not wait a second time.  After 16 holes in a row that were lost all the same, none
 * waits any more (RFC 8985, sections 6.2 and 7: no window before reordering is seen, 16
 * recoveries until it is given up).
 *
 * When the last packets are lost, nothing comes that would show it.  So the sender probes when
 * nothing was sent or heard for two smoothed round trips (RFC 8985, section 7: tail loss
 * probe), or for one and four times its variation (RFC 9002, section 6.2), if that is longer.
 * A probe is a new packet, even if the window is full; without a new one, the packet that was
 * sent last.  It says of no packet that it is lost, but when it has come, all that are missing
 * are holes.  Further probes follow, each after twice the time, until one is answered or the
 * timeout.  A packet that is waited for asks for an acknowledgement at once, so the time needs
 * no share for delayed ones.  In a lossless class there are no probes: a pause may last longer
 * than any round trip before (IRN, section 4.1: no timeouts where there is PFC).
 */
#include <stdlib.h>

#include "base/units.h"
#include "engine/fabric.h"
#include "link/port.h"
#include "transport/holes.h"
#include "transport/qp.h"
#include "transport/repeat.h"
#include "transport/round_trip.h"

#define LOSSES_UNTIL_IN_ORDER 16
#define MOST_DOUBLED 16

struct repeat {
	struct holes holes;
	uint32_t open, lost; /* of them: not known to have come; and of those, to be sent again */
	uint32_t next;	   /* of the holes: before it none is lost */
	uint64_t known;	   /* below this all has come but the holes */
	uint64_t came;	   /* behind the highest that has come */
	uint64_t turns, turn_came; /* times that something was sent again, and the last of them that came */
	uint64_t oldest, oldest_before; /* of what was sent again and is not known to have come, or 0: the first */
	uint32_t found;	   /* lost, and not reported yet: repeat_found() */
	ps_t window;	   /* that a hole waits */
	ps_t due;	   /* when the first wait is over, or PS_NEVER */
	uint32_t losses;   /* holes in a row that were lost, since one was late */
	struct round_trip trips;
	ps_t probe;	   /* when to ask, or PS_NEVER */
	uint32_t probes;   /* in a row, without an answer */
};

static struct repeat *repeat_of(struct qp *q)
{
	if (!q->repeat) {
		q->repeat = calloc(1, sizeof *q->repeat);
		if (!q->repeat)
			abort();
		q->repeat->known = q->repeat->came = q->acked;
		q->repeat->due = q->repeat->probe = PS_NEVER;
	}
	return q->repeat;
}

/* Everything from `known` to @end is missing */
static void add_holes(struct repeat *r, uint64_t end, ps_t since)
{
	for (; r->known < end; r->known++, r->open++)
		holes_add(&r->holes, &(struct hole){.number = r->known, .turn = r->turns, .before = r->known + 1, .since = since});
}

static void lose(struct repeat *r, uint32_t i)
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

static void judge(struct repeat *r, uint32_t i, ps_t now)
{
	struct hole *h = holes_at(&r->holes, i);

	if (h->state != UNDER_WAY)
		return;
	bool late = overtaken(r, h->turn, h->before);
	if (late && h->since == PS_NEVER)
		h->since = now;
	if (!late) {
		if (h->again && (!r->oldest || h->turn < r->oldest)) {
			r->oldest = h->turn;
			r->oldest_before = h->before;
		}
	} else if (!h->again && now < h->since + r->window) {
		if (h->since + r->window < r->due)
			r->due = h->since + r->window;
	} else {
		lose(r, i);
		if (!h->again && r->window && ++r->losses == LOSSES_UNTIL_IN_ORDER)
			r->window = 0;
	}
}

/* Which holes are lost by now?  Only those from @i on may be, unless what was sent again is overtaken, or a wait is over */
static void look(struct repeat *r, uint32_t i, ps_t now)
{
	if ((r->oldest && overtaken(r, r->oldest, r->oldest_before)) || r->due <= now) {
		i = 0;
		r->oldest = 0;
		r->due = PS_NEVER;
	}
	for (; i < r->holes.count; i++)
		judge(r, i, now);
}

/* A hole has come, and that is heard of at once: was it late, or was it sent again? */
static void heard(struct repeat *r, const struct hole *h, ps_t now)
{
	if (!h->again)
		round_trip_over(&r->trips, h->number, now);
	else if (!r->trips.smoothed && h->left != PS_NEVER)
		round_trip_took(&r->trips, now - h->left); /* not for certain, but nothing else is known */
	if (!h->asked && (!h->again || h->left == PS_NEVER || now - h->left < r->trips.shortest / 4 * 3)) {
		ps_t late = h->since && h->since != PS_NEVER ? now - h->since : 0;
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

/* Something was heard, or has left: when to ask if that is all.  Not if nothing waits for an answer */
static void wait_on(struct repeat *r, const struct qp *q, ps_t now)
{
	uint32_t class = q->own_class ? q->class : q->nic->p.data_class;
	bool paused = q->tx->port->p.pfc_rx && q->nic->p.lossless >> class & 1;
	bool waits = !paused && q->tx == &q->nic->tx[0] && (r->open || q->left_asked > r->known);

	ps_t usual = r->trips.smoothed, more = 4 * r->trips.varies;

	r->probe = waits && usual ? now + ((usual + (more > usual ? more : usual)) << r->probes) : PS_NEVER;
}

static void news(struct repeat *r, const struct qp *q, ps_t now)
{
	r->probes = 0;
	wait_on(r, q, now);
}

/* repeat_came() - A NAK says that packet @n has come; the expected one itself: that one ahead could not be kept */
void repeat_came(struct fabric *f, struct qp *q, uint64_t n)
{
	struct repeat *r = repeat_of(q);
	uint32_t from = r->came < r->known ? 0 : r->holes.count; /* a probe may have overtaken any */
	ps_t now = f->clock.now;

	if (n < q->acked || n >= q->send)
		return;
	struct hole *h = n < r->known ? holes_find(&r->holes, n) : NULL;
	if (n == q->acked) {
		add_holes(r, n + 1, now);
		n++;
	} else {
		add_holes(r, n, now);
		if (r->known == n) {
			r->known++;
			round_trip_over(&r->trips, n, now);
			news(r, q, now);
		}
		if (h && h->state != CAME) {
			heard(r, h, now);
			close_hole(r, h);
			news(r, q, now);
		}
	}
	if (n >= r->came)
		r->came = n + 1;
	look(r, from, now);
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

	const struct hole *first = r->holes.count ? holes_at(&r->holes, 0) : NULL;
	if (r->known > q->acked && (!first || first->number != q->acked || first->state == CAME))
		repeat_forget(q);
	add_holes(r, end, 0);
	for (uint32_t i = 0; i < r->holes.count; i++) {
		struct hole *h = holes_at(&r->holes, i);
		h->since = 0;
		if (h->state == UNDER_WAY && !(h->again && h->left == PS_NEVER && in_nic))
			lose(r, i);
	}
	r->oldest = r->probes = 0;
	r->due = r->probe = PS_NEVER;
}

/* repeat_acked() - Everything below q->acked has come; it was @before
 * @heard_of:	By an acknowledgement: of the packet before q->acked
 */
void repeat_acked(struct fabric *f, struct qp *q, uint64_t before, bool heard_of)
{
	struct repeat *r = q->repeat;

	if (!r)
		return;
	if (heard_of && q->acked > r->known)
		round_trip_over(&r->trips, q->acked - 1, f->clock.now);
	while (r->holes.count && holes_at(&r->holes, 0)->number < q->acked) {
		struct hole *h = holes_at(&r->holes, 0);
		if (h->number == before && h->state != CAME)
			heard(r, h, f->clock.now);
		close_hole(r, h);
		holes_drop_first(&r->holes);
		r->next -= r->next > 0;
	}
	r->known = r->known > q->acked ? r->known : q->acked;
	r->came = r->came > q->acked ? r->came : q->acked;
	look(r, r->holes.count, f->clock.now);
	news(r, q, f->clock.now);
}

/* repeat_forget() - The receiver has forgotten what came ahead */
void repeat_forget(struct qp *q)
{
	struct repeat *r = q->repeat;

	if (!r)
		return;
	r->holes.count = r->open = r->lost = r->next = 0;
	r->known = r->came = q->acked;
	r->oldest = 0;
	r->due = r->probe = PS_NEVER;
}

/* repeat_next() - The next packet to be sent again
 * Return: whether there is one
 */
bool repeat_next(const struct qp *q, uint64_t *n)
{
	struct repeat *r = q->repeat;

	if (!r || !r->lost)
		return false;
	while (holes_at(&r->holes, r->next)->state != LOST)
		r->next++;
	*n = holes_at(&r->holes, r->next)->number;
	return true;
}

/* repeat_sent() - That packet is made now */
void repeat_sent(struct qp *q)
{
	struct repeat *r = q->repeat;
	struct hole *h = holes_at(&r->holes, r->next);

	h->state = UNDER_WAY;
	h->again = true;
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
void repeat_left(struct fabric *f, struct qp *q, uint64_t n)
{
	struct repeat *r = repeat_of(q);
	struct hole *h = n < q->left ? holes_find(&r->holes, n) : NULL;

	if (h && h->again)
		h->left = f->clock.now;
	if (n >= q->left)
		round_trip_left(&r->trips, n, q->acked, f->clock.now);
	wait_on(r, q, f->clock.now);
}

/* repeat_due() - When to look again, or PS_NEVER */
ps_t repeat_due(const struct qp *q)
{
	const struct repeat *r = q->repeat;

	return !r ? PS_NEVER : r->due < r->probe ? r->due : r->probe;
}

/* repeat_ask() - Nothing is heard of what has left, if the time for it has come: send one packet more, a new one if there is one
 * @idle:	Nothing is left to be sent but new packets that the window holds back
 */
void repeat_ask(struct fabric *f, struct qp *q, bool idle, bool new)
{
	struct repeat *r = q->repeat;

	if (f->clock.now < r->probe)
		return;
	wait_on(r, q, f->clock.now);
	if (!idle || r->probe == PS_NEVER)
		return;
	r->probes += r->probes < MOST_DOUBLED;
	q->probes = true;
	if (new)
		return;
	add_holes(r, q->send, PS_NEVER);
	uint32_t last = holes_sent_last(&r->holes);
	lose(r, last);
	r->found--; /* nobody says so */
	holes_at(&r->holes, last)->asked = true;
}

/* repeat_look() - A wait may be over */
void repeat_look(struct fabric *f, struct qp *q)
{
	look(q->repeat, q->repeat->holes.count, f->clock.now);
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

/* repeat_delivered() - Packets that are known to have come */
uint64_t repeat_delivered(const struct qp *q)
{
	const struct repeat *r = q->repeat;

	return r ? r->known - r->open : q->acked;
}

void repeat_release(struct qp *q)
{
	if (q->repeat) {
		free(q->repeat->holes.hole);
		free(q->repeat->trips.left);
	}
	free(q->repeat);
}
