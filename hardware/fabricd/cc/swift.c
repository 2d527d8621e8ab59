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
#include "engine/fabric.h"
#include "nic/params.h"
#include "transport/congestion.h"
#include "transport/qp.h"
#include "wire/ethernet.h"
#include "wire/ip.h"
#include "wire/roce.h"
#include "wire/telemetry.h"

#define RESET_TIMEOUTS 5

enum {
	BASE_RTT = CC_OWN, BETA, BASE_TARGET, HOP_SCALE, FLOW_RANGE, FLOW_MIN_WINDOW, FLOW_MAX_WINDOW,
	MAX_DECREASE, AI_PACKETS, MIN_WINDOW
};

struct swift {
	double reference; /* W in packets */
	ps_t previous_rtt, last_decrease;
	uint32_t timeouts;
};

static void start(struct fabric *f, struct qp *q)
{
	struct cc_state *s = &q->cc_state;
	struct swift *own = cc_own(q);

	(void)f;
	own->reference = s->line_rate / 8 * cc_param(q, BASE_RTT) * 1e-9 / q->mtu;
	cc_set_window(q, own->reference * q->mtu);
}

static double target_ns(const struct qp *q, double w, uint32_t switches)
{
	double low = 1 / sqrt(cc_param(q, FLOW_MIN_WINDOW)), high = 1 / sqrt(cc_param(q, FLOW_MAX_WINDOW));
	double range = cc_param(q, FLOW_RANGE), a = range / (low - high);
	double flow = a / sqrt(w) - a * high;

	flow = flow < 0 ? 0 : flow > range ? range : flow;
	return cc_param(q, BASE_TARGET) + cc_param(q, HOP_SCALE) * switches + flow;
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
	struct swift *own = cc_own(q);
	double most = cc_param(q, CC_WINDOW) / q->mtu, least = cc_param(q, MIN_WINDOW);

	w = most > 0 && w > most ? most : w;
	own->reference = w < least ? least : w;
	cc_set_window(q, own->reference * q->mtu);
	bool paced = own->reference < 1 && own->previous_rtt;
	double rate = paced ? own->reference * packet_bits(q) * PS_PER_S / (double)own->previous_rtt : s->line_rate;
	cc_set_rate(q, rate, f->clock.now);
}

static bool can_decrease(const struct fabric *f, const struct swift *own)
{
	return f->clock.now - own->last_decrease >= own->previous_rtt;
}

static void acked(struct fabric *f, struct qp *q, const struct cc_ack *ack)
{
	struct swift *own = cc_own(q);
	double w = own->reference, delay = (double)ack->rtt / PS_PER_NS;

	if (!ack->rtt)
		return;
	own->timeouts = 0;
	own->previous_rtt = ack->rtt;
	double target = target_ns(q, w, ack->switches);
	if (delay < target) {
		w += cc_param(q, AI_PACKETS) * (double)ack->packets / (w > 1 ? w : 1);
	} else if (can_decrease(f, own)) {
		double keep = 1 - cc_param(q, BETA) * (delay - target) / delay, keeps = 1 - cc_param(q, MAX_DECREASE);
		w *= keep > keeps ? keep : keeps;
		own->last_decrease = f->clock.now;
	}
	follow(f, q, w);
}

static void lost(struct fabric *f, struct qp *q, enum cc_loss how, uint32_t packets)
{
	struct swift *own = cc_own(q);

	(void)packets;
	own->timeouts = how == CC_LOSS_TIMEOUT ? own->timeouts + 1 : 0;
	bool reset = own->timeouts >= RESET_TIMEOUTS;
	if (!reset && !can_decrease(f, own))
		return;
	own->last_decrease = f->clock.now;
	follow(f, q, reset ? 0 : own->reference * (1 - cc_param(q, MAX_DECREASE)));
}

static const struct cc_algorithm swift = {
	.name = "swift",
	.params = {[BASE_RTT] = "base_rtt_ns", [BETA] = "beta", [BASE_TARGET] = "base_target_ns", [HOP_SCALE] = "hop_scale_ns",
		   [FLOW_RANGE] = "flow_range_ns", [FLOW_MIN_WINDOW] = "flow_min_window",
		   [FLOW_MAX_WINDOW] = "flow_max_window", [MAX_DECREASE] = "max_decrease", [AI_PACKETS] = "ai_packets",
		   [MIN_WINDOW] = "min_window"},
	.state_bytes = sizeof(struct swift),
	.telemetry = true,
	.start = start,
	.acked = acked,
	.lost = lost,
};
CC_CONTROL(swift);
