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
#include "cc/cc.h"
#include "engine/fabric.h"
#include "nic/params.h"
#include "transport/congestion.h"
#include "transport/qp.h"
#include "wire/telemetry.h"

static void start(struct fabric *f, struct qp *q)
{
	struct cc_state *s = &q->cc_state;

	(void)f;
	s->reference = s->line_rate / 8 * cc_param(q, CC_BASE_RTT) * 1e-9;
	cc_set_window(q, s->reference);
	s->utilization = 1;
}

static double measure(struct qp *q, const struct telemetry *t)
{
	struct cc_state *s = &q->cc_state;
	double base = cc_param(q, CC_BASE_RTT) * 1e-9, u = 0, tau = 0;

	for (unsigned i = 0; i < t->hops; i++) {
		const struct hop *now = &t->hop[i], *before = &s->before.hop[i];
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
	return s->utilization = (1 - tau / base) * s->utilization + tau / base * u;
}

static void acked(struct fabric *f, struct qp *q, const struct cc_ack *ack)
{
	struct cc_state *s = &q->cc_state;
	double base = cc_param(q, CC_BASE_RTT) * 1e-9, eta = cc_param(q, CC_ETA);

	if (!ack->t->present || !ack->t->hops)
		return;
	bool round = cc_round_over(q, ack);
	if (s->before.present && s->before.hops == ack->t->hops && s->before.path == ack->t->path) {
		double u = measure(q, ack->t), step = cc_param(q, CC_AI) / 8 * base;
		bool multiply = u >= eta || s->stage >= cc_param(q, CC_MAX_STAGE);
		double w = multiply ? s->reference / (u / eta) + step : s->reference + step;
		cc_set_rate(q, w * 8 / base, f->clock.now);
		w = s->rate / 8 * base;
		cc_set_window(q, w);
		if (round) {
			s->stage = multiply ? 0 : s->stage + 1;
			s->reference = w;
		}
	}
	telemetry_copy(&s->before, ack->t);
}

static const struct cc_algorithm hpcc = {
	.name = "hpcc",
	.telemetry = true,
	.stamped = true,
	.rounds = true,
	.fills_window = true,
	.start = start,
	.acked = acked,
};
CC_CONTROL(hpcc);
