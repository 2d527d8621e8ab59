/* TIMELY: rate control by the gradient of the round-trip time (Mittal et al., SIGCOMM 2015, algorithm 1)
 *
 * For each acknowledgement that brings a round-trip time, with D the smoothed
 * difference of two of them (weight ewma) and D / min_rtt the gradient:
 *	rtt < t_low		R += AI
 *	rtt > t_high		R = R (1 - beta (1 - t_high / rtt))
 *	gradient <= 0		R += AI, or 5 AI from the hai_after-th such in a row
 *	otherwise		R = R (1 - beta x gradient)
 */
#include "cc.h"
#include "fabric.h"

static void start(struct fabric *f, struct qp *q)
{
	(void)f;
	(void)q;
}

static void acked(struct fabric *f, struct qp *q, const struct cc_ack *ack)
{
	struct cc_state *s = &q->cc_state;
	double rtt = (double)ack->rtt / PS_PER_NS, ewma = cc_param(q, CC_EWMA), high = cc_param(q, CC_T_HIGH),
	       beta = cc_param(q, CC_BETA);

	(void)f;
	if (!ack->rtt)
		return;
	if (!s->previous_rtt)
		s->previous_rtt = ack->rtt;
	s->rtt_diff = (1 - ewma) * s->rtt_diff + ewma * (double)(ack->rtt - s->previous_rtt) / PS_PER_NS;
	s->previous_rtt = ack->rtt;
	double gradient = s->rtt_diff / cc_param(q, CC_MIN_RTT);
	if (rtt < cc_param(q, CC_T_LOW)) {
		s->low_count = 0;
		cc_set_rate(q, s->rate + cc_param(q, CC_AI));
	} else if (rtt > high) {
		s->low_count = 0;
		cc_set_rate(q, s->rate * (1 - beta * (1 - high / rtt)));
	} else if (gradient <= 0) {
		double times = (double)++s->low_count >= cc_param(q, CC_HAI_AFTER) ? 5 : 1;
		cc_set_rate(q, s->rate + times * cc_param(q, CC_AI));
	} else {
		s->low_count = 0;
		cc_set_rate(q, s->rate * (1 - beta * (gradient < 1 ? gradient : 1)));
	}
}

const struct cc_algorithm cc_timely = {.name = "timely", .telemetry = true, .start = start, .acked = acked};
