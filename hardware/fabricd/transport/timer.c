/* Queue pairs: when they look again by themselves
 *
 * Theory of Operation
 *
 * A queue pair has one event for all it waits for, the earliest: the timeout, and what selective
 * repeat (repeat.c) and credit (credit.c) wait for.  A time that moves on leaves its event where it is: when that comes, the
 * next is set.
 *
 * With selective repeat, when the last packets are lost, nothing comes that would show it.  So the sender probes when
 * nothing was sent or heard for two smoothed round trips (RFC 8985, section 7: tail loss
 * probe), or for one and four times its variation (RFC 9002, section 6.2), if that is longer.
 * A probe is what is lost and waits for the window; a new packet, even if the window is full; or else
 * the packet that was sent last.  It says of no packet that it is lost, but when it has come, all
 * that are missing are holes.  Further probes follow, each after twice the
 * time, until one is answered or the timeout.  Who has heard of no packet yet knows no round trip: where packets may
 * overtake each other it takes UNHEARD times what a hole waits (an idle round trip) for one, otherwise it does not probe.  A packet that is waited for asks for an
 * acknowledgement at once, so the time needs no share for delayed ones.  In a lossless class there
 * are no probes: a pause may last longer than any round trip before (IRN, section 4.1: no timeouts
 * where there is PFC).
 */
#include "base/units.h"
#include "engine/event.h"
#include "engine/fabric.h"
#include "link/port.h"
#include "nic/nic.h"
#include "nic/params.h"
#include "transport/congestion.h"
#include "transport/credit.h"
#include "transport/multipath.h"
#include "transport/qp.h"
#include "transport/repeat.h"

#define MOST_DOUBLED 16
#define UNHEARD 8 /* idle round trips: nothing is known of those under load */

/* probe_wait() - Something was heard, or has left: when to ask if that is all.  Not if nothing waits for an answer */
void probe_wait(struct repeat *r, const struct qp *q, ps_t now)
{
	uint32_t class = q->own_class ? q->class : q->p->data_class;
	bool paused = q->tx->port->p.pfc_rx && q->nic->p.lossless >> class & 1;
	bool waits = q->p->probes && !paused && q->tx == &q->nic->tx[0] && (r->open || q->left_asked > r->known);

	ps_t usual = r->trips.smoothed, more = 4 * r->trips.varies;

	if (!usual && nic_bears_reordering(q->p)) {
		usual = UNHEARD * q->p->loss_after;
		more = 0;
	}

	r->probe = waits && usual ? now + ((usual + (more > usual ? more : usual)) << r->probes) : PS_NEVER;
}

/* probe_news() - Something was heard */
void probe_news(struct repeat *r, const struct qp *q, ps_t now)
{
	r->probes = 0;
	probe_wait(r, q, now);
}

/* probe_ask() - Nothing is heard of what has left, if the time for it has come: send one packet more, a new one if there is one
 * @idle:	Nothing is left to be sent but new packets that the window holds back
 */
void probe_ask(struct fabric *f, struct qp *q, bool idle, bool new)
{
	struct repeat *r = q->repeat;

	if (f->clock.now < r->probe)
		return;
	probe_wait(r, q, f->clock.now);
	if (!idle || r->probe == PS_NEVER)
		return;
	r->probes += r->probes < MOST_DOUBLED;
	q->probes = true;
	q->nic->loss_probes += nic_bears_reordering(q->p);
	if (new && !r->lost)
		return;
	repeat_missing(r, q->send, PS_NEVER);
	if (!r->lost) {
		repeat_lose(r, holes_sent_last(&r->holes));
		r->found--; /* nobody says so */
	}
	uint64_t n;
	repeat_next(q, &n);
	holes_at(&r->holes, r->next)->asked = true;
}

static ps_t next_look(const struct qp *q)
{
	ps_t due = repeat_due(q) < credit_due(q) ? repeat_due(q) : credit_due(q);

	return due < q->timer ? due : q->timer;
}

/* timer_look() - What a queue pair waits for may now be due earlier */
void timer_look(struct fabric *f, struct qp *q)
{
	ps_t t = next_look(q);

	if (t < q->timer_event) {
		q->timer_event = t;
		event_add(f, t, EV_QP_TIMER, q->nic->n.index, 0, 0, q->number, q, 0);
	}
}

/* timer_set() - The timeout is at @t */
void timer_set(struct fabric *f, struct qp *q, ps_t t)
{
	q->timer = t;
	timer_look(f, q);
}

/* qp_timer_set() - An EV_QP_TIMER of time @t has come: is it the one that counts, and is there still something to look at? */
bool qp_timer_set(struct qp *q, ps_t t)
{
	if (t != q->timer_event)
		return false;
	q->timer_event = PS_NEVER;
	return next_look(q) != PS_NEVER && q->state == QP_READY;
}

static void look_at_repeat(struct fabric *f, struct qp *q)
{
	repeat_look(f, q);
	cc_lost(f, q, CC_LOSS_NAK, repeat_found(q));
	probe_ask(f, q, !q->fetched_bytes && !qp_has_work(f, q), qp_has_new(q));
	qp_ready(f, q);
}

/* qp_timer() - Its event has come: what it was for may have moved on since */
void qp_timer(struct fabric *f, struct qp *q)
{
	if (repeat_due(q) <= f->clock.now)
		look_at_repeat(f, q);
	if (credit_due(q) <= f->clock.now)
		credit_ask(f, q);
	if (f->clock.now < q->timer) {
		timer_look(f, q);
		return;
	}
	if (q->left_asked <= q->acked && f->clock.now < q->next_send && q->cc_state.rate < q->cc_state.line_rate) {
		timer_set(f, q, qp_expires(q, q->next_send)); /* the pacer holds what would be answered */
		return;
	}
	q->timer = PS_NEVER;
	if (q->rnr_until && q->rnr_until <= f->clock.now) {
		q->rnr_until = 0;
		qp_ready(f, q);
		return;
	}
	q->nic->timeouts++;
	uint32_t asked = q->own ? q->own->retry : q->p->retry, most = q->nic->p.retry_most;
	if (q->retries++ >= (asked < most ? asked : most)) {
		qp_fail(f, q, WC_RETRY);
		return;
	}
	if (q->p->selective)
		repeat_timeout(q);
	else
		multipath_lost(f, q, q->acked);
	multipath_timeout(f, q);
	credit_one(q);
	cc_lost(f, q, CC_LOSS_TIMEOUT, q->p->selective ? repeat_found(q) : 1);
	if (!q->p->selective)
		qp_go_back(f, q);
	qp_ready(f, q);
	if (q->timer == PS_NEVER) /* the round has not come to it yet */
		timer_set(f, q, qp_expires(q, f->clock.now));
}

/* qp_not_ready() - The receiver lacks a receive request: try again later, by its timer if it is a program's */
void qp_not_ready(struct fabric *f, struct qp *q, uint8_t syndrome)
{
	/* in units of 10 us (InfiniBand specification, table "Encoding for RNR NAK Timer Field") */
	static const uint32_t timer[] = {65536, 1,   2,	  3,   4,   6,	  8,	12,   16,   24,	  32,	48,   64,    96,    128,   192,
					 256,	384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};
	uint32_t retry = q->own ? q->own->rnr_retry : q->p->rnr_retry;

	q->nic->rnr_naks++;
	if (retry < 7 && q->rnr_retries++ >= retry) {
		qp_fail(f, q, WC_RNR_RETRY);
		return;
	}
	qp_go_back(f, q);
	q->rnr_until = f->clock.now + (q->own ? timer[syndrome & 31] * 10 * PS_PER_US : q->p->rnr_timeout);
	timer_set(f, q, q->rnr_until);
}
