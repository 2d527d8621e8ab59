/* DCTCP's window on RDMA (RFC 8257; Alizadeh et al., SIGCOMM 2010)
 *
 * Once a round trip, with F the share of marked packets in it (section 3.3):
 *	a = (1 - g) a + g F,	a = 1 at first
 * A round trip ends with the acknowledgement of the first packet that was sent after
 * it began.  For each acknowledgement that brings
 *	marks		W = W (1 - a/2), at most once a window of data: not again until
 *			all that had been sent then is acknowledged
 *	no marks	W += ai_packets x MTU x (acknowledged bytes) / W: ai_packets a round
 *			trip (congestion avoidance, RFC 5681), not while such a cut is being
 *			acknowledged
 * W starts at the bandwidth-delay product, cable rate x base_rtt: there is no slow start.
 *
 * Loss is answered as TCP does (section 3.5, RFC 5681 section 3.1), with what is under way:
 *	by NAK		W = half of that, 2 MTU at least, at most once a window of data, marks included
 *			the loss of what was sent again is one more (RFC 5681, section 4.3): half of W, or of that
 *	by timeout	W = MTU, and then W += acknowledged bytes up to that half (slow start)
 */
#include "engine/fabric.h"
#include "nic/params.h"
#include "transport/congestion.h"
#include "transport/qp.h"
#include "transport/responder.h"

enum { G = CC_OWN, BASE_RTT, AI_PACKETS };

struct dctcp {
	double alpha;
	double slow_start; /* the window grows by what is acknowledged until it is so large */
	uint64_t recover;  /* no second cut before this many packets are acknowledged */
	uint64_t asked_for; /* by the last NAK */
	uint64_t round_seen, round_marked;
};

static void start(struct fabric *f, struct qp *q)
{
	struct dctcp *own = cc_own(q);

	(void)f;
	own->alpha = 1;
	own->asked_for = UINT64_MAX;
	cc_set_window(q, q->cc_state.line_rate / 8 * cc_param(q, BASE_RTT) * 1e-9);
}

static void acked(struct fabric *f, struct qp *q, const struct cc_ack *ack)
{
	struct cc_state *s = &q->cc_state;
	struct dctcp *own = cc_own(q);
	double g = cc_param(q, G), mtu = q->mtu;

	(void)f;
	own->round_seen += ack->t->seen;
	own->round_marked += ack->t->marked;
	if (cc_round_over(q, ack) && own->round_seen) {
		own->alpha = (1 - g) * own->alpha + g * (double)own->round_marked / (double)own->round_seen;
		own->round_seen = own->round_marked = 0;
	}
	if (s->window < own->slow_start && !ack->t->marked) {
		double grown = s->window + (double)ack->bytes;
		cc_set_window(q, grown < own->slow_start ? grown : own->slow_start);
		return;
	}
	if (ack->acked < own->recover)
		return;
	if (ack->t->marked) {
		cc_set_window(q, s->window * (1 - own->alpha / 2));
		own->slow_start = 0;
		own->recover = qp_all_left(q);
	} else {
		cc_set_window(q, s->window + cc_param(q, AI_PACKETS) * mtu * (double)ack->bytes / s->window);
	}
}

static void lost(struct fabric *f, struct qp *q, enum cc_loss how, uint32_t packets)
{
	struct dctcp *own = cc_own(q);
	double half = (double)(qp_all_left(q) - qp_all_done(q)) * q->mtu / 2, least = 2.0 * q->mtu;

	/* go-back-N asks for one packet, and for the same again only if what was sent again has not come either */
	bool again = !q->p->selective && qp_all_done(q) == own->asked_for && how != CC_LOSS_TIMEOUT;

	(void)f;
	(void)packets;
	own->asked_for = how == CC_LOSS_TIMEOUT ? UINT64_MAX : qp_all_done(q);
	if (how != CC_LOSS_TIMEOUT && qp_all_done(q) < own->recover && !again)
		return;
	if (again && half > q->cc_state.window / 2)
		half = q->cc_state.window / 2; /* nothing new has left meanwhile */
	own->slow_start = half > least ? half : least;
	cc_set_window(q, how == CC_LOSS_TIMEOUT ? q->mtu : own->slow_start);
	own->recover = qp_all_left(q);
}

static const struct cc_algorithm dctcp = {
	.name = "dctcp",
	.params = {[G] = "g", [BASE_RTT] = "base_rtt_ns", [AI_PACKETS] = "ai_packets"},
	.state_bytes = sizeof(struct dctcp),
	.telemetry = true,
	.rounds = true,
	.start = start,
	.acked = acked,
	.lost = lost,
};
CC_CONTROL(dctcp);
