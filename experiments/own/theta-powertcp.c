/* Theta-PowerTCP: a window by the power of the round-trip time (Addanki et al., NSDI 2022, algorithm 2)
 *
 * Once a round trip, with tau that of the idle path and dt the time since the last look (tau at most):
 *	power	= (d rtt / dt + 1) x rtt / tau,	the gradient term half at least
 *	smooth	= (smooth (tau - dt) + power dt) / tau
 *	W	= gamma (W / smooth + beta) + (1 - gamma) W
 * beta is the share of the bandwidth-delay product that each of so many flows adds.  W starts at that product.
 * The authors' simulation bounds the gradient term likewise (rdma-hw.cc of inet-tub/ns3-datacenter).
 */
#include "railbed.h"

enum { TAU, GAMMA, FLOWS };

struct theta {
	double smooth, rtt, looked;
};

static double bdp(const struct railbed_flow *flow)
{
	return flow->line_rate / 8 * flow->parameter[TAU] * 1e-9;
}

static void start(struct railbed_flow *flow)
{
	struct theta *own = flow->state;

	own->smooth = 1;
	flow->window = bdp(flow);
}

static void acked(struct railbed_flow *flow, const struct railbed_ack *ack)
{
	struct theta *own = flow->state;
	double tau = flow->parameter[TAU], gamma = flow->parameter[GAMMA], dt = flow->now - own->looked;

	if (!ack->round || ack->rtt <= 0 || dt <= 0)
		return;
	if (own->rtt > 0) {
		double power = fmax((ack->rtt - own->rtt) / dt + 1, 0.5) * ack->rtt / tau;
		double share = fmin(dt, tau) / tau;
		own->smooth = own->smooth * (1 - share) + power * share;
		flow->window = gamma * (flow->window / own->smooth + bdp(flow) / flow->parameter[FLOWS]) + (1 - gamma) * flow->window;
	}
	own->rtt = ack->rtt;
	own->looked = flow->now;
}

RAILBED_CONTROL(1,
	.summary = "a window by the power of the round-trip time", .source = "Addanki et al., NSDI 2022, algorithm 2",
	.state_bytes = sizeof(struct theta), .hears = RAILBED_DELAY, .rounds = true,
	.parameters = {
		[TAU] = {"base_rtt", RAILBED_TIME, {1, RAILBED_NETWORK_RTT}, 1, 0, "round-trip time of the idle fabric"},
		[GAMMA] = {"gamma", RAILBED_NUMBER, {0.9}, 0.01, 1, "weight of the new window"},
		[FLOWS] = {"flows", RAILBED_NUMBER, {10}, 1, 1e6, "flows at a bottleneck, as expected"},
	},
	.start = start, .acked = acked);
