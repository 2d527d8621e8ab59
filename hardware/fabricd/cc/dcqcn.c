/* DCQCN: rate control by congestion notifications (Zhu et al., SIGCOMM 2015)
 *
 * Theory of Operation
 *
 * The receiver answers CE with a CNP, at most one a flow and cnp_gap.  The sender
 * has a current rate Rc, a target Rt and the extent of congestion a, 1 at first:
 *
 *	a cut		Rt = Rc (clamp_target);  Rc = Rc (1 - a/2); counters and the rate timer start anew
 *	rate_timer, and every byte_counter bytes sent: an increase.
 *			T and B count both kinds since the last cut, this one included:
 *			max(T, B) <= fast_recovery	Rc = (Rt + Rc) / 2
 *			min(T, B) > fast_recovery	Rt += HAI, then likewise
 *			otherwise			Rt += AI, then likewise
 *			Without a byte counter T alone decides: AI at fast_recovery + 1, HAI later.
 *
 * first_cut says when a CNP cuts, and what a does.
 *	immediate	as in the paper: at once, unless decrease_gap has not passed since the last cut;
 *			a = (1 - g) a + g with each CNP, and (1 - g) a for each alpha_timer since the last one.
 *	armed		as in NICs (Mellanox's, and the HPCC authors' rdma-hw.cc): two timers tick from
 *			the first CNP on.  Each decrease_gap it cuts if a CNP has come since the last tick.
 *			Each alpha_timer a = (1 - g) a + g if one has come since the last tick, otherwise (1 - g) a:
 *			so a shrinks between CNPs that are further apart.  The first CNP only starts the ticks,
 *			and leaves a cut behind for the first of them.
 *
 * clamp_target says whether a cut sets Rt: always (paper), only if the rate timer has increased the
 * rate since the last cut (HPCC authors' code, ConnectX: CLAMP_TGT_RATE off), or only if the byte counter has
 * (the DCQCN authors' ns-3 code).  Otherwise Rt stays, and the rate comes back to where it was before
 * the first of a row of cuts.
 *
 * Rt stays at the cable's rate at most, where it starts.
 */
#include "base/units.h"
#include "engine/fabric.h"
#include "nic/params.h"
#include "transport/congestion.h"
#include "transport/qp.h"

#define DONE_ALPHA 1e-12 /* below this a timer has nothing left to change */

enum {
	AI = CC_OWN, HAI, G, ALPHA_TIMER, RATE_TIMER, BYTE_COUNTER, FAST_RECOVERY, DECREASE_GAP, CNP_GAP,
	CLAMP_TARGET, ARMED
};

struct dcqcn {
	double target_rate, alpha;
	ps_t last_decrease;
	ps_t alpha_timer, cut_timer; /* when they run out next; PS_NEVER: off */
	ps_t armed; /* its ticks began; PS_NEVER: not yet */
	bool told;  /* by a CNP since alpha's last tick */
	uint64_t byte_counter, timer_events, byte_events;
};

enum clamp { CLAMP_ALWAYS, CLAMP_AFTER_TIMER, CLAMP_AFTER_BYTES };

/* A timer that stood still would run out for ever */
static ps_t period(const struct qp *q, unsigned which)
{
	ps_t t = ps(cc_param(q, which));

	return t > PS_PER_NS ? t : PS_PER_NS;
}

/* The first tick after @now of a timer that has been ticking since @since */
static ps_t next_tick(const struct qp *q, unsigned which, ps_t since, ps_t now)
{
	ps_t each = period(q, which);

	return since + ((now - since) / each + 1) * each;
}

static void start(struct fabric *f, struct qp *q)
{
	struct dcqcn *own = cc_own(q);

	(void)f;
	own->alpha = 1;
	own->last_decrease = -PS_PER_S;
	own->alpha_timer = own->cut_timer = own->armed = PS_NEVER;
	own->target_rate = q->cc_state.line_rate;
}

static void increase(struct qp *q, ps_t t)
{
	struct cc_state *s = &q->cc_state;
	struct dcqcn *own = cc_own(q);
	double stages = cc_param(q, FAST_RECOVERY);
	bool timer_alone = cc_param(q, BYTE_COUNTER) < 1;
	uint64_t timer = own->timer_events, bytes = timer_alone ? timer : own->byte_events;
	uint64_t most = timer > bytes ? timer : bytes, least = timer < bytes ? timer : bytes;

	if ((double)least > stages + timer_alone)
		own->target_rate += cc_param(q, HAI);
	else if ((double)most > stages)
		own->target_rate += cc_param(q, AI);
	if (own->target_rate > s->line_rate)
		own->target_rate = s->line_rate;
	double rate = (own->target_rate + s->rate) / 2;
	cc_set_rate(q, s->line_rate - rate < 1 ? s->line_rate : rate, t); /* bits/s: halving the gap would never end */
}

static void cut(struct qp *q, ps_t t)
{
	struct cc_state *s = &q->cc_state;
	struct dcqcn *own = cc_own(q);
	enum clamp clamp = (enum clamp)cc_param(q, CLAMP_TARGET);

	if (clamp == CLAMP_ALWAYS || (clamp == CLAMP_AFTER_TIMER ? own->timer_events : own->byte_events))
		own->target_rate = s->rate;
	cc_set_rate(q, s->rate * (1 - own->alpha / 2), t);
	own->last_decrease = t;
	own->timer_events = own->byte_events = own->byte_counter = 0;
	s->rate_timer = t + period(q, RATE_TIMER);
}

static void alpha_tick(struct qp *q)
{
	struct dcqcn *own = cc_own(q);
	double g = cc_param(q, G);

	own->alpha = (1 - g) * own->alpha + (own->told ? g : 0);
	own->told = false;
	own->alpha_timer = own->alpha < DONE_ALPHA ? PS_NEVER : own->alpha_timer + period(q, ALPHA_TIMER);
}

static void rate_tick(struct qp *q)
{
	struct cc_state *s = &q->cc_state;
	struct dcqcn *own = cc_own(q);

	own->timer_events++;
	increase(q, s->rate_timer);
	s->rate_timer = s->rate >= s->line_rate ? PS_NEVER : s->rate_timer + period(q, RATE_TIMER);
}

static void catch_up(struct fabric *f, struct qp *q)
{
	struct cc_state *s = &q->cc_state;
	struct dcqcn *own = cc_own(q);

	for (;;) {
		ps_t first = own->cut_timer < s->rate_timer ? own->cut_timer : s->rate_timer;
		if (own->alpha_timer <= first && own->alpha_timer <= f->clock.now) {
			alpha_tick(q);
		} else if (first > f->clock.now) {
			return;
		} else if (own->cut_timer <= s->rate_timer) {
			cut(q, own->cut_timer);
			own->cut_timer = PS_NEVER; /* until another CNP comes, its ticks do nothing */
		} else {
			rate_tick(q);
		}
	}
}

static void sent(struct fabric *f, struct qp *q, uint32_t bytes)
{
	struct cc_state *s = &q->cc_state;
	struct dcqcn *own = cc_own(q);
	uint64_t each = (uint64_t)cc_param(q, BYTE_COUNTER);

	if (s->rate >= s->line_rate || !each)
		return;
	own->byte_counter += bytes;
	while (own->byte_counter >= each) {
		own->byte_counter -= each;
		own->byte_events++;
		increase(q, f->clock.now);
	}
}

static bool armed(struct dcqcn *own, const struct qp *q, ps_t now)
{
	bool first = own->armed == PS_NEVER, heeded = own->cut_timer == PS_NEVER;

	if (first)
		own->armed = now;
	own->told = !first;
	if (own->alpha_timer == PS_NEVER)
		own->alpha_timer = next_tick(q, ALPHA_TIMER, own->armed, now);
	if (heeded)
		own->cut_timer = next_tick(q, DECREASE_GAP, own->armed, now);
	return heeded;
}

static bool notified(struct fabric *f, struct qp *q)
{
	struct dcqcn *own = cc_own(q);
	double g = cc_param(q, G);

	if (cc_param(q, ARMED) > 0)
		return armed(own, q, f->clock.now);
	bool again = f->clock.now - own->last_decrease >= ps(cc_param(q, DECREASE_GAP));
	if (again)
		cut(q, f->clock.now);
	own->alpha = (1 - g) * own->alpha + g;
	own->alpha_timer = f->clock.now + period(q, ALPHA_TIMER);
	return again;
}

/* The gap is so many whole packets.  A sender that looks at ticks would miss one if the gap is as long as a tick and
 * ended a packet later: for it, it is rounded down, by the time since the packet before.
 */
static ps_t cnp_gap(const struct fabric *f, const struct qp *q)
{
	return ps(cc_answer_param(q, CNP_GAP)) - (cc_answer_param(q, ARMED) > 0 ? f->clock.now - q->came : 0);
}

static const struct cc_algorithm dcqcn = {
	.name = "dcqcn",
	.params = {[AI] = "ai_bps", [HAI] = "hai_bps", [G] = "g", [ALPHA_TIMER] = "alpha_timer_ns",
		   [RATE_TIMER] = "rate_timer_ns", [BYTE_COUNTER] = "byte_counter_bytes", [FAST_RECOVERY] = "fast_recovery",
		   [DECREASE_GAP] = "decrease_gap_ns", [CNP_GAP] = "cnp_gap_ns", [CLAMP_TARGET] = "clamp_target",
		   [ARMED] = "first_cut"},
	.state_bytes = sizeof(struct dcqcn),
	.start = start,
	.catch_up = catch_up,
	.sent = sent,
	.notified = notified,
	.cnp_gap = cnp_gap,
};
CC_CONTROL(dcqcn);
