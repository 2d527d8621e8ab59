/* TCP Reno's window with ECN (RFC 3168, section 6.1.2; RFC 5681): what DCTCP has to live beside where both are marked
 *
 * A packet more each round trip; a mark halves the window, at most once a window of data, and while that is acknowledged it
 * does not grow (congestion window reduced).  With a share p of packets marked that is a window of some 1.22 / sqrt(p)
 * packets (Mathis et al., CCR 1997).
 */
#include <math.h>

#include "railbed.h"

struct reno {
	uint64_t recover; /* no second cut before this many packets are acknowledged */
};

static void start(struct railbed_flow *flow)
{
	flow->window = flow->line_rate / 8 * flow->parameter[0] * 1e-9;
}

static void acked(struct railbed_flow *flow, const struct railbed_ack *ack)
{
	struct reno *own = flow->state;

	if (flow->acked < own->recover)
		return;
	if (ack->marked) {
		flow->window = fmax(flow->window / 2, flow->mtu);
		own->recover = flow->sent;
	} else {
		flow->window += flow->mtu * ack->bytes / flow->window;
	}
}

RAILBED_CONTROL(1,
	.summary = "a window that a mark halves", .source = "RFC 3168", .state_bytes = sizeof(struct reno),
	.hears = RAILBED_MARKS, .rounds = true,
	.parameters = {{"base_rtt", RAILBED_TIME, {1, RAILBED_BASE_RTT}, 0, 0, "round-trip time of the idle fabric"}},
	.start = start, .acked = acked);
