/* Swift: a window by delay against a target (Kumar et al., SIGCOMM 2020)
 *
 *	target = base_target + hop_scale x switches on the way + flow scaling,
 *	flow scaling = clamp(a / sqrt(W) + b, 0, flow_range), with a and b such that
 *	it is flow_range at flow_min_window and 0 at flow_max_window (packets).
 * For each acknowledgement (algorithm 1), W in packets, min_window at least:
 *	delay < target		W += ai_packets x (packets acknowledged) / W, or without the
 *				division when W < 1
 *	otherwise, once a round trip
 *				W = W max(1 - beta (delay - target) / delay, 1 - max_decrease)
 *
 * Loss that a NAK tells of, and a timeout, count as the worst of delays, likewise once a
 * round trip: W = W (1 - max_decrease).  After RESET_TIMEOUTS in a row W = min_window.
 *
 * A window below one packet becomes a rate: a packet each rtt / W.  The delay is that of
 * the fabric; W starts at the bandwidth-delay product, cable rate x base_rtt.
 */
#include <math.h>

#include "base/units.h"
#include "cc/cc.h"
#include "engine/fabric.h"
#include "nic/params.h"
#include "transport/congestion.h"
#include "transport/qp.h"
#include "wire/ethernet.h"
#include "wire/ip.h"
#include "wire/roce.h"
#include "wire/telemetry.h"

#define RESET_TIMEOUTS 5

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

/* What a packet takes of the cable */
static double packet_bits(const struct qp *q)
{
	return 8.0 * wire_bytes(q->mtu + ETH_BYTES + IPV4_BYTES + UDP_BYTES + BTH_BYTES + ICRC_BYTES + TELEMETRY_BYTES(0));
}

/* The window is W packets from now on */
static void follow(struct fabric *f, struct qp *q, double w)
{
	struct cc_state *s = &q->cc_state;
	double most = cc_param(q, CC_WINDOW) / q->mtu, least = cc_param(q, CC_MIN_WINDOW);

	w = most > 0 && w > most ? most : w;
	s->reference = w < least ? least : w;
	cc_set_window(q, s->reference * q->mtu);
	bool paced = s->reference < 1 && s->previous_rtt;
	double rate = paced ? s->reference * packet_bits(q) * PS_PER_S / (double)s->previous_rtt : s->line_rate;
	cc_set_rate(q, rate, f->clock.now);
}

static bool can_decrease(const struct fabric *f, const struct cc_state *s)
{
	return f->clock.now - s->last_decrease >= s->previous_rtt;
}

static void acked(struct fabric *f, struct qp *q, const struct cc_ack *ack)
{
	struct cc_state *s = &q->cc_state;
	double w = s->reference, delay = (double)ack->rtt / PS_PER_NS;

	if (!ack->rtt)
		return;
	s->timeouts = 0;
	s->previous_rtt = ack->rtt;
	double target = target_ns(q, w, ack->switches);
	if (delay < target) {
		w += cc_param(q, CC_AI_PACKETS) * (double)ack->packets / (w > 1 ? w : 1);
	} else if (can_decrease(f, s)) {
		double keep = 1 - cc_param(q, CC_BETA) * (delay - target) / delay, keeps = 1 - cc_param(q, CC_MAX_DECREASE);
		w *= keep > keeps ? keep : keeps;
		s->last_decrease = f->clock.now;
	}
	follow(f, q, w);
}

static void lost(struct fabric *f, struct qp *q, enum cc_loss how, uint32_t packets)
{
	struct cc_state *s = &q->cc_state;

	(void)packets;
	s->timeouts = how == CC_LOSS_TIMEOUT ? s->timeouts + 1 : 0;
	bool reset = s->timeouts >= RESET_TIMEOUTS;
	if (!reset && !can_decrease(f, s))
		return;
	s->last_decrease = f->clock.now;
	follow(f, q, reset ? 0 : s->reference * (1 - cc_param(q, CC_MAX_DECREASE)));
}

static const struct cc_algorithm swift = {
	.name = "swift", .telemetry = true, .start = start, .acked = acked, .lost = lost};
CC_CONTROL(swift);
