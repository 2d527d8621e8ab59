/* TCP's window (RFC 5681, NewReno's one cut a window): a packet more each round trip, half of it at a loss
 *
 * What DCTCP was held against: it hears of nothing but loss, so it fills whatever buffer there is.
 */
#include <math.h>

#include "railbed.h"

struct reno {
	uint64_t recover; /* no second cut before this many packets are acknowledged */
	double threshold; /* slow start below it */
};

static void start(struct railbed_flow *flow)
{
	struct reno *own = flow->state;

	flow->window = 10 * flow->mtu; /* RFC 6928 */
	own->threshold = INFINITY;
}

static void acked(struct railbed_flow *flow, const struct railbed_ack *ack)
{
	struct reno *own = flow->state;

	if (flow->window < own->threshold)
		flow->window += ack->bytes;
	else
		flow->window += flow->mtu * ack->bytes / flow->window;
}

static void lost(struct railbed_flow *flow, enum railbed_loss how, uint32_t packets)
{
	struct reno *own = flow->state;

	(void)packets;
	if (flow->acked < own->recover)
		return;
	own->threshold = fmax(flow->window / 2, 2 * flow->mtu);
	flow->window = how == RAILBED_TIMEOUT ? flow->mtu : own->threshold;
	own->recover = flow->sent;
}

RAILBED_CONTROL(1,
	.summary = "a window that a loss halves", .source = "RFC 5681", .state_bytes = sizeof(struct reno),
	.start = start, .acked = acked, .lost = lost);
