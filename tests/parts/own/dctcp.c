/* fabricd's dctcp.c written against railbed.h: it must give the same figures */
#include "railbed.h"

enum { G, BASE_RTT, AI_PACKETS };

struct dctcp {
	double alpha, slow_start;
	uint64_t recover, round_seen, round_marked;
};

static void start(struct railbed_flow *flow)
{
	struct dctcp *own = flow->state;

	own->alpha = 1;
	flow->window = flow->line_rate / 8 * flow->parameter[BASE_RTT] * 1e-9;
}

static void acked(struct railbed_flow *flow, const struct railbed_ack *ack)
{
	struct dctcp *own = flow->state;
	double g = flow->parameter[G];

	own->round_seen += ack->seen;
	own->round_marked += ack->marked;
	if (ack->round && own->round_seen) {
		own->alpha = (1 - g) * own->alpha + g * (double)own->round_marked / (double)own->round_seen;
		own->round_seen = own->round_marked = 0;
	}
	if (flow->window < own->slow_start && !ack->marked) {
		flow->window = fmin(flow->window + ack->bytes, own->slow_start);
		return;
	}
	if (flow->acked < own->recover)
		return;
	if (ack->marked) {
		flow->window *= 1 - own->alpha / 2;
		own->slow_start = 0;
		own->recover = flow->sent;
	} else {
		flow->window += flow->parameter[AI_PACKETS] * flow->mtu * ack->bytes / flow->window;
	}
}

static void lost(struct railbed_flow *flow, enum railbed_loss how, uint32_t packets)
{
	struct dctcp *own = flow->state;
	double half = (double)(flow->sent - flow->acked) * flow->mtu / 2;

	(void)packets;
	if (how == RAILBED_NAK && flow->acked < own->recover)
		return;
	if (flow->timeouts < 2)
		own->slow_start = fmax(half, 2 * flow->mtu);
	flow->window = how == RAILBED_TIMEOUT ? flow->mtu : own->slow_start;
	own->recover = flow->sent;
}

RAILBED_CONTROL(1,
	.summary = "a window by the share of marked packets", .state_bytes = sizeof(struct dctcp),
	.hears = RAILBED_MARKS | RAILBED_LOSSES, .rounds = true,
	.parameters = {
		[G] = {"g", RAILBED_NUMBER, {1.0 / 16}, 0, 1, "weight of a round trip in alpha"},
		[BASE_RTT] = {"base_rtt", RAILBED_TIME, {1, RAILBED_BASE_RTT}, 0, 0, "round-trip time of the idle fabric"},
		[AI_PACKETS] = {"ai_packets", RAILBED_NUMBER, {1}, 0, 1000, "additive increase a round trip"},
	},
	.kmin = {1.0 / 7, RAILBED_BDP}, .kmax = {1.0 / 7, RAILBED_BDP}, .pmax = 1,
	.start = start, .acked = acked, .lost = lost);
