/* HPCC: a window by in-band telemetry (Li et al., SIGCOMM 2019, algorithm 1)
 *
 * Theory of Operation
 *
 * Every switch on the way stamps time, bytes sent, queue and rate of the output
 * port.  Two stamps of a port give its rate R; its utilization is
 *	u = R / B + min(q, q before) / (B T),	T = base_rtt
 * and the largest of all ports goes into an average U with weight (time between
 * the stamps, T at most) / T.  With eta the utilization aimed at:
 *	U >= eta, or max_stage steps without:	W = Wc / (U / eta) + Wai
 *	otherwise				W = Wc + Wai
 * for every acknowledgement; Wc follows W once a round trip.  Wai = AI x T.
 *
 * Stamps of another path than before say nothing of a rate: they only are what the next
 * ones are compared with (section 4.1, pathID).
 *
 * A packet has room for `hops` stamps: as many as the longest path has switches, or more.
 *
 * The rate is W / T, between min_rate and the cable's, and W follows these bounds
 * (UpdateRateHp of the authors' rdma-hw.cc).  So W may be less than a packet: one
 * packet at a time, at that rate.  U starts at 1, W at the cable's rate x T, and the
 * first acknowledgement only says what to compare with.
 */
#include "engine/fabric.h"
#include "nic/params.h"
#include "transport/congestion.h"
#include "transport/qp.h"
#include "wire/telemetry.h"

enum { AI = CC_OWN, BASE_RTT, ETA, MAX_STAGE };

struct hpcc {
	double reference, utilization;
	uint32_t stage;
	struct telemetry before;
};

static void start(struct fabric *f, struct qp *q)
{
	struct cc_state *s = &q->cc_state;
	struct hpcc *own = cc_own(q);

	(void)f;
	own->reference = s->line_rate / 8 * cc_param(q, BASE_RTT) * 1e-9;
	cc_set_window(q, own->reference);
	own->utilization = 1;
}

static double measure(struct qp *q, const struct telemetry *t)
{
	struct hpcc *own = cc_own(q);
	double base = cc_param(q, BASE_RTT) * 1e-9, u = 0, tau = 0;

	for (unsigned i = 0; i < t->hops; i++) {
		const struct hop *now = &t->hop[i], *before = &own->before.hop[i];
		double seconds = (double)(uint32_t)(now->t - before->t) * 256e-12, bytes = now->tx_bytes - before->tx_bytes;
		double capacity = now->rate_mbps * 1e6 / 8;
		uint32_t queue = now->queue_bytes < before->queue_bytes ? now->queue_bytes : before->queue_bytes;
		if (seconds <= 0 || capacity <= 0)
			continue;
		double here = bytes / seconds / capacity + queue / (capacity * base);
		if (here > u) {
			u = here;
			tau = seconds;
		}
	}
	tau = tau < base ? tau : base;
	return own->utilization = (1 - tau / base) * own->utilization + tau / base * u;
}

static void acked(struct fabric *f, struct qp *q, const struct cc_ack *ack)
{
	struct cc_state *s = &q->cc_state;
	struct hpcc *own = cc_own(q);
	double base = cc_param(q, BASE_RTT) * 1e-9, eta = cc_param(q, ETA);

	if (!ack->t->present || !ack->t->hops)
		return;
	bool round = cc_round_over(q, ack);
	if (own->before.present && own->before.hops == ack->t->hops && own->before.path == ack->t->path) {
		double u = measure(q, ack->t), step = cc_param(q, AI) / 8 * base;
		bool multiply = u >= eta || own->stage >= cc_param(q, MAX_STAGE);
		double w = multiply ? own->reference / (u / eta) + step : own->reference + step;
		cc_set_rate(q, w * 8 / base, f->clock.now);
		w = s->rate / 8 * base;
		cc_set_window(q, w);
		if (round) {
			own->stage = multiply ? 0 : own->stage + 1;
			own->reference = w;
		}
	}
	telemetry_copy(&own->before, ack->t);
}

static void stop(struct qp *q)
{
	struct hpcc *own = cc_own(q);

	telemetry_release(&own->before);
}

static const struct cc_algorithm hpcc = {
	.name = "hpcc",
	.params = {[AI] = "ai_bps", [BASE_RTT] = "base_rtt_ns", [ETA] = "eta", [MAX_STAGE] = "max_stage"},
	.state_bytes = sizeof(struct hpcc),
	.telemetry = true,
	.stamped = true,
	.rounds = true,
	.fills_window = true,
	.start = start,
	.acked = acked,
	.stop = stop,
};
CC_CONTROL(hpcc);
