/* Swift: a window by delay against a target (Kumar et al., SIGCOMM 2020)
 *
 *	target = base_target + hop_scale x switches on the way + flow scaling,
 *	flow scaling = clamp(a / sqrt(W) + b, 0, flow_range), with a and b such that
 *	it is flow_range at flow_min_window and 0 at flow_max_window (packets).
 *	delay < target		W += ai_packets / W for each packet acknowledged
 *	otherwise, once a round trip
 *				W = W max(1 - beta (delay - target) / delay, 1 - max_decrease)
 *
 * A window below one packet becomes a rate: W packets a round-trip time.
 */
#include <math.h>

#include "cc.h"
#include "fabric.h"

#define LEAST_WINDOW 0.01 /* packets */

static void start(struct fabric *f, struct qp *q)
{
	struct cc_state *s = &q->cc_state;

	(void)f;
	s->reference = s->line_rate / 8 * cc_param(q, CC_BASE_RTT) * 1e-9 / q->mtu; /* W in packets */
	cc_set_window(q, s->reference * q->mtu);
	s->last_decrease = -PS_PER_S;
}

static double target_ns(const struct qp *q, double w, uint32_t switches)
{
	double low = 1 / sqrt(cc_param(q, CC_FLOW_MIN_WINDOW)), high = 1 / sqrt(cc_param(q, CC_FLOW_MAX_WINDOW));
	double range = cc_param(q, CC_FLOW_RANGE), a = range / (low - high);
	double flow = a / sqrt(w) - a * high;

	flow = flow < 0 ? 0 : flow > range ? range : flow;
	return cc_param(q, CC_BASE_TARGET) + cc_param(q, CC_HOP_SCALE) * switches + flow;
}

static void acked(struct fabric *f, struct qp *q, const struct cc_ack *ack)
{
	struct cc_state *s = &q->cc_state;
	double w = s->reference, delay = (double)ack->rtt / PS_PER_NS, most = cc_param(q, CC_WINDOW) / q->mtu;

	if (!ack->rtt)
		return;
	double target = target_ns(q, w, ack->switches);
	if (delay < target) {
		w += cc_param(q, CC_AI_PACKETS) / w * (double)ack->packets;
	} else if (f->clock.now - s->last_decrease >= ack->rtt) {
		double keep = 1 - cc_param(q, CC_BETA) * (delay - target) / delay, least = 1 - cc_param(q, CC_MAX_DECREASE);
		w *= keep > least ? keep : least;
		s->last_decrease = f->clock.now;
	}
	s->reference = w > most ? most : w < LEAST_WINDOW ? LEAST_WINDOW : w;
	cc_set_window(q, s->reference * q->mtu);
	cc_set_rate(q, s->reference < 1 ? s->reference * q->mtu * 8e12 / (double)ack->rtt : s->line_rate);
}

const struct cc_algorithm cc_swift = {.name = "swift", .telemetry = true, .start = start, .acked = acked};
