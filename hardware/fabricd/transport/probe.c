/* Selective repeat, sending side: when to ask what has come
 *
 * Theory of Operation
 *
 * When the last packets are lost, nothing comes that would show it.  So the sender probes when
 * nothing was sent or heard for two smoothed round trips (RFC 8985, section 7: tail loss
 * probe), or for one and four times its variation (RFC 9002, section 6.2), if that is longer.
 * A probe is what is lost and waits for the window; a new packet, even if the window is full; or else
 * the packet that was sent last.  It says of no packet that it is lost, but when it has come, all
 * that are missing are holes.  Further probes follow, each after twice the
 * time, until one is answered or the timeout.  A packet that is waited for asks for an
 * acknowledgement at once, so the time needs no share for delayed ones.  In a lossless class there
 * are no probes: a pause may last longer than any round trip before (IRN, section 4.1: no timeouts
 * where there is PFC).
 */
#include "base/units.h"
#include "engine/fabric.h"
#include "link/port.h"
#include "nic/params.h"
#include "transport/qp.h"
#include "transport/repeat.h"

#define MOST_DOUBLED 16

/* probe_wait() - Something was heard, or has left: when to ask if that is all.  Not if nothing waits for an answer */
void probe_wait(struct repeat *r, const struct qp *q, ps_t now)
{
	uint32_t class = q->own_class ? q->class : q->p->data_class;
	bool paused = q->tx->port->p.pfc_rx && q->nic->p.lossless >> class & 1;
	bool waits = q->p->probes && !paused && q->tx == &q->nic->tx[0] && (r->open || q->left_asked > r->known);

	ps_t usual = r->trips.smoothed, more = 4 * r->trips.varies;

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
