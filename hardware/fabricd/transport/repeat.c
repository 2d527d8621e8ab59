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
 * The network reorders if a hole is acknowledged before it was sent again, or less than three quarters of the shortest
 * round trip after that.  From then on a hole waits before it counts as lost: a quarter longer than the longest that one has
 * been late.  What was sent again does not wait a second time.  After 16 holes in a row that were lost all the same, none
 * waits any more (RFC 8985, sections 6.2 and 7: no window before reordering is seen, 16 recoveries until it is given up).
 *
 * Where packets take several paths, loss_after is set.  Then a hole is lost when something has come that left the NIC
 * more than that later, whether the hole was sent again or not (RFC 8985, section 6.2: by the time of sending); or later, if
 * holes have been as late as that.  When it is heard plays no part: bitmaps come late, for many packets at once.  If nothing
 * more is heard, a hole is lost loss_after after it should have been heard of (there: the reordering timer), but no sooner
 * than a round trip after it is known to be overtaken: what has come since would be heard of by then.
 *
 * When the last packets are lost, nothing comes that would show it: then the sender asks (probe.c).
 */
#include <stdlib.h>

#include "base/units.h"
#include "engine/fabric.h"
#include "nic/params.h"
#include "transport/qp.h"
#include "transport/repeat.h"

/* repeat_of() - A queue pair's state, made when it is looked at first */
struct repeat *repeat_of(struct qp *q)
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

/* What has come had left then */
static void had_left(struct repeat *r, ps_t t)
{
	if (t != PS_NEVER && t > r->latest)
		r->latest = t;
}

/* A hole has come: was it late, or was it sent again?
 * @at_once:	That is heard of at once
 */
static void heard(struct qp *q, const struct hole *h, ps_t now, bool at_once)
{
	struct repeat *r = q->repeat;

	if (!h->again && at_once)
		round_trip_over(&r->trips, h->number, now);
	else if (h->again && !r->trips.smoothed && h->left != PS_NEVER)
		round_trip_took(&r->trips, now - h->left); /* not for certain, but nothing else is known */
	if (!h->sure && repeat_is_first(r, h, now, at_once)) {
		q->nic->spurious += h->again && nic_bears_reordering(q->p);
		ps_t late = h->since && h->since != PS_NEVER ? now - h->since : 0;
		if (late + late / 4 > r->window)
			r->window = late + late / 4;
		if (late)
			r->losses = 0;
		had_left(r, round_trip_left_at(&r->trips, h->number));
	} else {
		if (h->turn > r->turn_came) {
			r->turn_came = h->turn;
			r->before_came = h->before;
		}
		had_left(r, repeat_left_at(r, h));
	}
}

/* Which packets are lost, by what was heard now?  Of the holes only those from @from on may be
 *
 * Once a recovery, that is when none was lost of what had been sent before the last one began, the first of them goes
 * whatever the window is (RFC 6675, section 5, step 4.3): what is under way may be lost, too, and nothing would show it.
 */
static void news(struct fabric *f, struct qp *q, uint32_t from)
{
	struct repeat *r = q->repeat;

	from = r->came < r->known && r->turn_came != r->turn_judged ? 0 : from; /* a probe may have overtaken any */
	r->turn_judged = r->turn_came;
	if (!q->reads) /* a response comes when it is that request's turn */
		repeat_overtaken(r, q->send, f->clock.now);
	repeat_judge(r, from, f->clock.now, q->p->loss_after);
	if (!r->found || q->acked < r->recovered)
		return;
	r->recovered = q->send;
	r->enters = true;
}

static void close_hole(struct repeat *r, struct hole *h)
{
	if (h->state == LOST)
		r->lost--;
	if (h->state != CAME)
		r->open--;
	h->state = CAME;
}

/* Packet @n, which is neither acknowledged nor new, has come; @h is its hole, or NULL */
static void came(struct qp *q, uint64_t n, struct hole *h, ps_t now, bool at_once)
{
	struct repeat *r = q->repeat;

	repeat_missing(r, n, now);
	if (r->known == n) {
		r->known++;
		if (at_once)
			round_trip_over(&r->trips, n, now);
		had_left(r, round_trip_left_at(&r->trips, n));
		probe_news(r, q, now);
	}
	if (h && h->state != CAME) {
		heard(q, h, now, at_once);
		close_hole(r, h);
		probe_news(r, q, now);
	}
	if (n >= r->came)
		r->came = n + 1;
}

/* repeat_came() - Packet @n has come; the expected one itself: that one ahead could not be kept */
void repeat_came(struct fabric *f, struct qp *q, uint64_t n)
{
	struct repeat *r = repeat_of(q);
	uint32_t from = r->came < r->known ? 0 : r->holes.count; /* a probe may have overtaken any */

	if (n < q->acked || n >= q->send)
		return;
	if (n == q->acked) {
		repeat_missing(r, n + 1, f->clock.now);
		r->came = n + 1 >= r->came ? n + 2 : r->came;
	} else {
		came(q, n, n < r->known ? holes_find(&r->holes, n) : NULL, f->clock.now, true);
	}
	news(f, q, from);
}

/* Is that the number of a response?  That its peer has the request says nothing of that, but of what is before it */
static bool is_response(const struct qp *q, uint64_t n)
{
	return q->reads && n >= q->acked && n < q->send && wr_reads(qp_request_of(q, n));
}

/* repeat_told() - A NAK says that its peer has packet @n */
void repeat_told(struct fabric *f, struct qp *q, uint64_t n)
{
	struct repeat *r = repeat_of(q);
	uint32_t from = r->came < r->known ? 0 : r->holes.count;

	if (n == q->acked || !is_response(q, n)) {
		repeat_came(f, q, n);
		return;
	}
	repeat_missing(r, n, f->clock.now);
	r->came = n >= r->came ? n + 1 : r->came;
	news(f, q, from);
}

static bool is_set(const uint8_t *bits, uint64_t i)
{
	return bits[i / 8] >> (i % 8) & 1;
}

/* repeat_sack() - A bitmap says which packets have come, from @first on; only of the last of them that is heard of at once
 *
 * Most of it was said before.  Of packets below `known` it says something new only of holes.
 */
void repeat_sack(struct fabric *f, struct qp *q, uint64_t first, const uint8_t *bits, uint32_t bytes)
{
	struct repeat *r = repeat_of(q);
	uint32_t from = r->came < r->known ? 0 : r->holes.count, last = 8 * bytes;
	int64_t taken = (int64_t)(q->acked + 1 - first);

	while (last && !bits[last / 8 - 1])
		last -= 8;
	while (last && !is_set(bits, last - 1))
		last--;
	uint64_t n = taken > 0 ? q->acked + 1 : first, all = q->left < q->send ? q->left : q->send;
	uint64_t end = taken < last && first + last < all ? first + last : taken < last ? all : n;
	for (uint32_t i = holes_index(&r->holes, n); i < r->holes.count && holes_at(&r->holes, i)->number < end; i++) {
		struct hole *h = holes_at(&r->holes, i);
		if (h->state != CAME && is_set(bits, h->number - first) && !is_response(q, h->number))
			came(q, h->number, h, f->clock.now, h->number + 1 == first + last);
	}
	for (uint64_t new = n > r->known ? n : r->known; new < end; new++)
		if (is_set(bits, new - first) && !is_response(q, new))
			came(q, new, NULL, f->clock.now, new + 1 == first + last);
	while (end > n && !is_set(bits, end - 1 - first))
		end--;
	if (end > n && end > r->came)
		r->came = end;
	news(f, q, from);
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
	repeat_missing(r, end, 0);
	for (uint32_t i = 0; i < r->holes.count; i++) {
		struct hole *h = holes_at(&r->holes, i);
		h->since = 0;
		if (h->state == UNDER_WAY && !(h->again && h->left == PS_NEVER && in_nic))
			repeat_lose(r, i);
	}
	repeat_uneven_until(r, r->known);
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
	if (q->acked > r->known)
		had_left(r, round_trip_left_at(&r->trips, q->acked - 1));
	while (r->holes.count && holes_at(&r->holes, 0)->number < q->acked) {
		struct hole *h = holes_at(&r->holes, 0);
		if (h->number == before && h->state != CAME)
			heard(q, h, f->clock.now, true);
		close_hole(r, h);
		holes_drop_first(&r->holes);
		r->next -= r->next > 0;
		r->over -= r->over > 0;
	}
	r->known = r->known > q->acked ? r->known : q->acked;
	r->came = r->came > q->acked ? r->came : q->acked;
	news(f, q, r->holes.count);
	probe_news(r, q, f->clock.now);
}

/* repeat_forget() - The receiver has forgotten what came ahead */
void repeat_forget(struct qp *q)
{
	struct repeat *r = q->repeat;

	if (!r)
		return;
	r->holes.count = r->open = r->lost = r->next = r->over = 0;
	r->before_came = r->recovered = 0;
	r->enters = false;
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

/* repeat_answers() - What is heard next answers a packet that left at @t; 0: that is not known */
void repeat_answers(struct qp *q, ps_t t)
{
	if (q->repeat)
		q->repeat->answers = t;
}

/* repeat_enters() - Does what repeat_next() said go whatever the window is? */
bool repeat_enters(const struct qp *q)
{
	return q->repeat && q->repeat->enters && q->repeat->lost;
}

/* repeat_is_news() - Is what repeat_next() said lost, as nobody has said?  A probe only asks what has come */
bool repeat_is_news(const struct qp *q)
{
	const struct hole *h = holes_at(&q->repeat->holes, q->repeat->next);

	return !h->asked && !h->trimmed;
}

/* repeat_sent() - That packet is made now */
void repeat_sent(struct qp *q)
{
	struct repeat *r = q->repeat;
	struct hole *h = holes_at(&r->holes, r->next);

	r->enters = false;
	h->state = UNDER_WAY;
	h->sure = h->trimmed || h->asked;
	h->trimmed = false;
	h->again = true;
	h->turn = ++r->turns;
	repeat_uneven_until(r, h->number + 1);
	h->before = q->send;
	h->left = PS_NEVER;
	if (q->p->loss_after)
		h->since = PS_NEVER;
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
	if (n > q->left)
		repeat_uneven_until(r, n); /* those before it were dropped in the NIC */
	if (n >= q->left)
		round_trip_left(&r->trips, n, q->acked, f->clock.now);
	probe_wait(r, q, f->clock.now);
}

/* repeat_due() - When to look again, or PS_NEVER */
ps_t repeat_due(const struct qp *q)
{
	const struct repeat *r = q->repeat;

	return !r ? PS_NEVER : r->due < r->probe ? r->due : r->probe;
}

/* repeat_look() - A wait may be over */
void repeat_look(struct fabric *f, struct qp *q)
{
	repeat_judge(q->repeat, q->repeat->holes.count, f->clock.now, q->p->loss_after);
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
