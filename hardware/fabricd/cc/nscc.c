/* NSCC: network-signal congestion control of Ultra Ethernet (UEC 1.0, section 3.6.13)
 *
 * Theory of Operation
 *
 * As in htsim's uec.cpp (updateCwndOnAck_NSCC and what it calls).  d = rtt - base_rtt, t = target_queue,
 * n the bytes that an acknowledgement is about, CE whether it brings marks:
 *
 *	d < t, no CE	gained += proportional_packets x MTU x n x (t - d) / t;
 *			with d < 1 us for a whole window: W += fast x n instead
 *	d >= t, no CE	gained += ai_packets x MTU x n		fair increase
 *	d >= t, CE	once a base_rtt, if the average delay D > t:
 *			W = W max(1 - beta (D - t) / D, 1 - max_decrease)
 *	d < t, CE	nothing: the packet had bad luck
 *
 * D = (1 - ewma) D + ewma d; a delay above t without CE counts as base_rtt / 4.
 * Every 8 packets, and every base_rtt, W += gained / W; every base_rtt W += period_packets
 * x MTU too.  Quick adapt: when d > quick_adapt and less than an eighth of `window` was
 * acknowledged in the last base_rtt + t, W becomes what was, and marks of what was under
 * way then are ignored.  A packet that was trimmed is as bad as a base_rtt of delay and a mark (D follows that), counts to
 * what was under way then, and lets quick adapt act at its next time, whatever d is; unless that acts now, or ignores
 * marks, W -= MTU (updateCwndOnNack_NSCC), but not under `uec` if the last switch trimmed it: credit follows the
 * receiver's cable.  After trimmed packets W becomes what was acknowledged in one base_rtt + t in the mean, as many of
 * these may pass while marks are ignored.  (There all of it counts: that may raise W, and "this shouldn't happen".)
 *
 * Each other packet that is found to be lost leaves the window (W -= MTU, mark_packet_for_retransmission), whether by NAK
 * or by timeout.  W starts at `window`, the most that it can be.
 *
 * base_rtt is the longest path's at first.  A path with fewer switches takes hop_rtt less for each
 * (main_uec.cpp, -enable_accurate_base_rtt), and a round trip that is shorter yet, of a packet as
 * long as the MTU, lowers it (update_base_rtt); `window` shrinks with it.  The target, and how often W grows,
 * stay the network's.
 */
#include "base/units.h"
#include "cc/nscc.h"
#include "engine/fabric.h"
#include "nic/params.h"
#include "transport/congestion.h"
#include "transport/qp.h"
#include "transport/responder.h"

#define ADJUST_PACKETS 8
#define IDLE_NS 1000 /* less delay than that is none */
#define ADAPT_SHARE 8

void nscc_start(struct fabric *f, struct qp *q)
{
	struct nscc *own = cc_own(q);

	(void)f;
	own->base_rtt = cc_param(q, BASE_RTT);
	own->most = q->cc_state.window;
}

/* Is the path a shorter one than was thought? */
static void know_path(struct nscc *own, const struct qp *q, const struct cc_ack *ack)
{
	double fewer = cc_param(q, SWITCHES) - ack->switches, rtt = (double)ack->rtt / PS_PER_NS;
	double base = cc_param(q, BASE_RTT) - (fewer > 0 ? fewer : 0) * cc_param(q, HOP_RTT);

	base = ack->full && rtt < base ? rtt : base;
	if (base >= own->base_rtt)
		return;
	own->most *= base / own->base_rtt;
	own->base_rtt = base;
}

static void bound(struct qp *q)
{
	struct cc_state *s = &q->cc_state;
	struct nscc *own = cc_own(q);

	cc_set_window(q, s->window < own->most ? s->window : own->most);
}

static void average(struct qp *q, double delay, bool ce)
{
	struct nscc *own = cc_own(q);
	double weight = cc_param(q, EWMA);
	double sample = !ce && delay > cc_param(q, TARGET_QUEUE) ? own->base_rtt / 4 : delay;

	own->delay = (1 - weight) * own->delay + weight * sample;
}

/* Quick adapt: is the window what has come through of late, or does this acknowledgement belong to the time before? */
static bool adapt(struct fabric *f, struct qp *q, double delay, bool ce)
{
	struct nscc *own = cc_own(q);
	ps_t period = ps(own->base_rtt + cc_param(q, TARGET_QUEUE));
	bool acted = false;

	if (own->ignored < own->to_ignore && ce)
		return true;
	if (f->clock.now <= own->adapt_at)
		return false;
	if (own->adapt_at && (own->trimmed || delay > cc_param(q, QUICK_ADAPT)) && own->achieved < own->most / ADAPT_SHARE) {
		ps_t periods = own->trimmed ? 1 + (f->clock.now - own->adapt_at) / period : 1;
		cc_set_window(q, own->achieved / (double)periods);
		own->to_ignore = (double)((qp_all_left(q) - qp_all_done(q)) * q->mtu);
		own->ignored = 0;
		own->trimmed = false;
		acted = true;
	}
	own->achieved = 0;
	own->adapt_at = f->clock.now + period;
	return acted;
}

static void low_delay(struct qp *q, double delay, double bytes)
{
	struct cc_state *s = &q->cc_state;
	struct nscc *own = cc_own(q);
	double target = cc_param(q, TARGET_QUEUE);

	own->idle = delay < IDLE_NS ? own->idle + bytes : 0;
	own->fast = delay < IDLE_NS && (own->fast || own->idle > s->window);
	if (own->fast)
		s->window += cc_param(q, FAST) * bytes;
	else
		own->gained += cc_param(q, PROPORTIONAL_PACKETS) * q->mtu * bytes * (target - delay) / target;
}

static void high_delay_and_marks(struct fabric *f, struct qp *q)
{
	struct cc_state *s = &q->cc_state;
	struct nscc *own = cc_own(q);
	double target = cc_param(q, TARGET_QUEUE), least = 1 - cc_param(q, MAX_DECREASE);

	own->fast = false;
	own->idle = 0;
	if (own->delay <= target || f->clock.now - own->last_decrease <= ps(own->base_rtt))
		return;
	double keep = 1 - cc_param(q, BETA) * (own->delay - target) / own->delay;
	s->window *= keep > least ? keep : least;
	own->last_decrease = f->clock.now;
}

static void fulfill(struct fabric *f, struct qp *q)
{
	struct cc_state *s = &q->cc_state;
	struct nscc *own = cc_own(q);
	ps_t since = f->clock.now - own->adjusted, base = ps(cc_param(q, BASE_RTT));

	if (own->came <= ADJUST_PACKETS * q->mtu && since <= base)
		return;
	s->window += own->gained / s->window;
	if (since >= base) {
		s->window += cc_param(q, PERIOD_PACKETS) * q->mtu;
		own->adjusted = f->clock.now;
	}
	own->gained = own->came = 0;
}

void nscc_acked(struct fabric *f, struct qp *q, const struct cc_ack *ack)
{
	struct nscc *own = cc_own(q);
	double target = cc_param(q, TARGET_QUEUE), bytes = (double)ack->bytes;
	bool ce = ack->t->marked;

	if (!ack->rtt)
		return;
	know_path(own, q, ack);
	double delay = (double)ack->rtt / PS_PER_NS - own->base_rtt;
	own->achieved += bytes;
	own->came += bytes;
	own->ignored += bytes;
	if (delay >= 0)
		average(q, delay, ce);
	else
		delay = own->delay;
	if (adapt(f, q, delay, ce)) {
		own->gained = own->came = 0;
		return;
	}
	if (!ce && delay >= target)
		own->gained += cc_param(q, AI_PACKETS) * q->mtu * bytes;
	else if (!ce)
		low_delay(q, delay, bytes);
	else if (delay >= target)
		high_delay_and_marks(f, q);
	bound(q);
	fulfill(f, q);
	bound(q);
}

/* updateCwndOnNack_NSCC */
static bool adapts_to_trimmed(struct fabric *f, struct qp *q, double bytes)
{
	struct nscc *own = cc_own(q);

	own->ignored += bytes;
	average(q, cc_param(q, BASE_RTT), true);
	own->trimmed = true;
	if (!adapt(f, q, 0, true))
		return false;
	own->gained = own->came = 0;
	return true;
}

void nscc_lost(struct fabric *f, struct qp *q, enum cc_loss how, uint32_t packets)
{
	bool trimmed = how == CC_LOSS_TRIMMED || how == CC_LOSS_TRIMMED_LAST_HOP;

	if (trimmed && adapts_to_trimmed(f, q, (double)packets * q->mtu))
		return;
	if (how == CC_LOSS_TRIMMED_LAST_HOP && q->cc->arrived)
		return;
	cc_set_window(q, q->cc_state.window - (double)packets * q->mtu);
}

static const struct cc_algorithm nscc = {
	.name = "nscc",
	NSCC,
};
CC_CONTROL(nscc);
