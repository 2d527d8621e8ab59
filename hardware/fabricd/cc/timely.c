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
#include "engine/fabric.h"
#include "nic/params.h"
#include "transport/congestion.h"
#include "transport/qp.h"

enum { AI = CC_OWN, EWMA, BETA, T_LOW, T_HIGH, MIN_RTT, HAI_AFTER, MAX_DECREASE };

struct timely {
	double rtt_diff;
	ps_t previous_rtt;
	uint32_t falling;
};

static void acked(struct fabric *f, struct qp *q, const struct cc_ack *ack)
{
	struct cc_state *s = &q->cc_state;
	struct timely *own = cc_own(q);
	double rtt = (double)ack->rtt / PS_PER_NS, ewma = cc_param(q, EWMA), high = cc_param(q, T_HIGH),
	       beta = cc_param(q, BETA), ai = cc_param(q, AI), least = s->rate * (1 - cc_param(q, MAX_DECREASE));

	if (!ack->rtt || !cc_round_over(q, ack))
		return;
	if (!own->previous_rtt)
		own->previous_rtt = ack->rtt;
	own->rtt_diff = (1 - ewma) * own->rtt_diff + ewma * (double)(ack->rtt - own->previous_rtt) / PS_PER_NS;
	own->previous_rtt = ack->rtt;
	double gradient = own->rtt_diff / cc_param(q, MIN_RTT), rate = s->rate;
	own->falling = gradient < 0 ? own->falling + 1 : 0;
	if (rtt < cc_param(q, T_LOW))
		rate += ai;
	else if (rtt > high)
		rate *= 1 - beta * (1 - high / rtt);
	else if (gradient <= 0)
		rate += ((double)own->falling >= cc_param(q, HAI_AFTER) ? 5 : 1) * ai;
	else
		rate *= 1 - beta * gradient;
	cc_set_rate(q, rate > least ? rate : least, f->clock.now);
}

static const struct cc_algorithm timely = {
	.name = "timely",
	.params = {[AI] = "ai_bps", [EWMA] = "ewma", [BETA] = "beta", [T_LOW] = "t_low_ns", [T_HIGH] = "t_high_ns",
		   [MIN_RTT] = "min_rtt_ns", [HAI_AFTER] = "hai_after", [MAX_DECREASE] = "max_decrease"},
	.state_bytes = sizeof(struct timely),
	.telemetry = true,
	.rounds = true,
	.acked = acked,
};
CC_CONTROL(timely);
