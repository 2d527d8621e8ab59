/* TIMELY: rate control by the gradient of the round-trip time (Mittal et al., SIGCOMM 2015, algorithm 1)
 *
 * Once a round trip, by the round-trip time of the packet that ends it; with D the
 * smoothed difference of two of them (weight ewma) and D / min_rtt the gradient:
 *	rtt < t_low		R += AI
 *	rtt > t_high		R = R (1 - beta (1 - t_high / rtt))
 *	gradient <= 0		R += AI, or 5 AI from the hai_after-th negative gradient in a
 *				row on, in whatever region these fell
 *	otherwise		R = R (1 - beta x gradient)
 * and R loses max_decrease of itself at most.
 *
 * The paper updates when a segment of 16 to 64 KB has been acknowledged, which is about
 * a round trip there; the HPCC authors' rdma-hw.cc (UpdateRateTimely) does it once a round
 * trip, and so do we.  Counting of gradients and the least that is left are the
 * authors' published snippet's.  R starts at the cable's rate.
 */
#include "base/units.h"
#include "cc/cc.h"
#include "engine/fabric.h"
#include "nic/params.h"
#include "transport/congestion.h"
#include "transport/qp.h"

static void start(struct fabric *f, struct qp *q)
{
	(void)f;
	(void)q;
}

static void acked(struct fabric *f, struct qp *q, const struct cc_ack *ack)
{
	struct cc_state *s = &q->cc_state;
	double rtt = (double)ack->rtt / PS_PER_NS, ewma = cc_param(q, CC_EWMA), high = cc_param(q, CC_T_HIGH),
	       beta = cc_param(q, CC_BETA), ai = cc_param(q, CC_AI), least = s->rate * (1 - cc_param(q, CC_MAX_DECREASE));

	if (!ack->rtt || !cc_round_over(q, ack))
		return;
	if (!s->previous_rtt)
		s->previous_rtt = ack->rtt;
	s->rtt_diff = (1 - ewma) * s->rtt_diff + ewma * (double)(ack->rtt - s->previous_rtt) / PS_PER_NS;
	s->previous_rtt = ack->rtt;
	double gradient = s->rtt_diff / cc_param(q, CC_MIN_RTT), rate = s->rate;
	s->falling = gradient < 0 ? s->falling + 1 : 0;
	if (rtt < cc_param(q, CC_T_LOW))
		rate += ai;
	else if (rtt > high)
		rate *= 1 - beta * (1 - high / rtt);
	else if (gradient <= 0)
		rate += ((double)s->falling >= cc_param(q, CC_HAI_AFTER) ? 5 : 1) * ai;
	else
		rate *= 1 - beta * gradient;
	cc_set_rate(q, rate > least ? rate : least, f->clock.now);
}

static const struct cc_algorithm timely = {
	.name = "timely", .telemetry = true, .rounds = true, .start = start, .acked = acked};
CC_CONTROL(timely);
