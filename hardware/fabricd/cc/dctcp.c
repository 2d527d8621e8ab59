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
 *	by timeout	W = MTU, and then W += acknowledged bytes up to that half (slow start)
 */
#include "cc/cc.h"
#include "engine/fabric.h"
#include "nic/params.h"
#include "transport/congestion.h"
#include "transport/qp.h"

static void start(struct fabric *f, struct qp *q)
{
	(void)f;
	q->cc_state.alpha = 1;
	cc_set_window(q, q->cc_state.line_rate / 8 * cc_param(q, CC_BASE_RTT) * 1e-9);
}

static void acked(struct fabric *f, struct qp *q, const struct cc_ack *ack)
{
	struct cc_state *s = &q->cc_state;
	double g = cc_param(q, CC_G), mtu = q->mtu;

	(void)f;
	s->round_seen += ack->t->seen;
	s->round_marked += ack->t->marked;
	if (cc_round_over(q, ack) && s->round_seen) {
		s->alpha = (1 - g) * s->alpha + g * (double)s->round_marked / (double)s->round_seen;
		s->round_seen = s->round_marked = 0;
	}
	if (s->window < s->slow_start && !ack->t->marked) {
		double grown = s->window + (double)ack->bytes;
		cc_set_window(q, grown < s->slow_start ? grown : s->slow_start);
		return;
	}
	if (ack->acked < s->recover)
		return;
	if (ack->t->marked) {
		cc_set_window(q, s->window * (1 - s->alpha / 2));
		s->slow_start = 0;
		s->recover = q->left;
	} else {
		cc_set_window(q, s->window + cc_param(q, CC_AI_PACKETS) * mtu * (double)ack->bytes / s->window);
	}
}

static void lost(struct fabric *f, struct qp *q, enum cc_loss how, uint32_t packets)
{
	struct cc_state *s = &q->cc_state;
	double half = (double)(q->left - q->acked) * q->mtu / 2, least = 2.0 * q->mtu;

	(void)f;
	(void)packets;
	if (how == CC_LOSS_NAK && q->acked < s->recover)
		return;
	if (q->retries < 2) /* not once more for what is sent for the third time */
		s->slow_start = half > least ? half : least;
	cc_set_window(q, how == CC_LOSS_TIMEOUT ? q->mtu : s->slow_start);
	s->recover = q->left;
}

static const struct cc_algorithm dctcp = {
	.name = "dctcp", .telemetry = true, .rounds = true, .start = start, .acked = acked, .lost = lost};
CC_CONTROL(dctcp);
