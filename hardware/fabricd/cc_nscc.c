/* NSCC: network-signal congestion control of Ultra Ethernet (UEC 1.0, section 3.6.13), its four quadrants
 *
 * Queueing delay d = rtt - base_rtt against target_queue t, and CE on what is
 * acknowledged:
 *	d < t, no CE	W += g x (acknowledged bytes) x (t - d) / t	proportional increase
 *	d >= t, no CE	W += ai_packets x MTU x (acknowledged bytes) / W	fair increase
 *	d >= t, CE	once a round trip W = W max(1 - beta (d - t) / d, 1 - max_decrease)
 *	d < t, CE	W stays
 */
#include "cc.h"
#include "fabric.h"

static void start(struct fabric *f, struct qp *q)
{
	(void)f;
	cc_set_window(q, q->cc_state.line_rate / 8 * cc_param(q, CC_BASE_RTT) * 1e-9);
	q->cc_state.last_decrease = -PS_PER_S;
}

static void acked(struct fabric *f, struct qp *q, const struct cc_ack *ack)
{
	struct cc_state *s = &q->cc_state;
	double queue = (double)ack->rtt / PS_PER_NS - cc_param(q, CC_BASE_RTT), target = cc_param(q, CC_TARGET_QUEUE),
	       bytes = (double)ack->bytes, w = s->window;

	if (!ack->rtt)
		return;
	if (queue < 0)
		queue = 0;
	if (queue < target && !ack->t->marked) {
		w += cc_param(q, CC_G) * bytes * (target - queue) / target;
	} else if (!ack->t->marked) {
		w += cc_param(q, CC_AI_PACKETS) * q->mtu * bytes / w;
	} else if (queue >= target && f->clock.now - s->last_decrease >= ack->rtt) {
		double keep = 1 - cc_param(q, CC_BETA) * (queue - target) / (queue > 0 ? queue : 1),
		       least = 1 - cc_param(q, CC_MAX_DECREASE);
		w *= keep > least ? keep : least;
		s->last_decrease = f->clock.now;
	}
	cc_set_window(q, w);
}

const struct cc_algorithm cc_nscc = {.name = "nscc", .telemetry = true, .start = start, .acked = acked};
