/* DCTCP's window on RDMA (Alizadeh et al., SIGCOMM 2010)
 *
 * Once a round trip, with F the share of marked packets in it:
 *	a = (1 - g) a + g F;  with marks W = W (1 - a/2), without W += one packet.
 * A round trip ends when everything is acknowledged that had been sent when it
 * began.  W starts at the bandwidth-delay product, cable rate x base_rtt.
 */
#include "cc.h"
#include "fabric.h"

static void start(struct fabric *f, struct qp *q)
{
	(void)f;
	cc_set_window(q, q->cc_state.line_rate / 8 * cc_param(q, CC_BASE_RTT) * 1e-9);
}

static void acked(struct fabric *f, struct qp *q, const struct cc_ack *ack)
{
	struct cc_state *s = &q->cc_state;
	double g = cc_param(q, CC_G);

	(void)f;
	s->round_seen += ack->t->seen;
	s->round_marked += ack->t->marked;
	if (ack->acked < s->window_end || !s->round_seen)
		return;
	s->alpha = (1 - g) * s->alpha + g * (double)s->round_marked / (double)s->round_seen;
	cc_set_window(q, s->round_marked ? s->window * (1 - s->alpha / 2) : s->window + q->mtu);
	s->round_seen = s->round_marked = 0;
	s->window_end = q->sent_max;
}

const struct cc_algorithm cc_dctcp = {.name = "dctcp", .telemetry = true, .start = start, .acked = acked};
