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
#include "cc/cc.h"
#include "engine/fabric.h"
#include "nic/params.h"
#include "transport/congestion.h"
#include "transport/qp.h"

#define DONE_ALPHA 1e-12 /* below this a timer has nothing left to change */

enum clamp { CLAMP_ALWAYS, CLAMP_AFTER_TIMER, CLAMP_AFTER_BYTES };

static ps_t ps(double ns)
{
	return (ps_t)(ns * PS_PER_NS + 0.5);
}

/* A timer that stood still would run out for ever */
static ps_t period(const struct qp *q, enum cc_param which)
{
	ps_t t = ps(cc_param(q, which));

	return t > PS_PER_NS ? t : PS_PER_NS;
}

/* The first tick after @now of a timer that has been ticking since @since */
static ps_t next_tick(const struct qp *q, enum cc_param which, ps_t since, ps_t now)
{
	ps_t each = period(q, which);

	return since + ((now - since) / each + 1) * each;
}

static void start(struct fabric *f, struct qp *q)
{
	(void)f;
	q->cc_state.alpha = 1;
	q->cc_state.last_decrease = -PS_PER_S;
	q->cc_state.cut_timer = q->cc_state.armed = PS_NEVER;
}

static void increase(struct qp *q, ps_t t)
{
	struct cc_state *s = &q->cc_state;
	double stages = cc_param(q, CC_FAST_RECOVERY);
	bool timer_alone = cc_param(q, CC_BYTE_COUNTER) < 1;
	uint64_t timer = s->timer_events, bytes = timer_alone ? timer : s->byte_events;
	uint64_t most = timer > bytes ? timer : bytes, least = timer < bytes ? timer : bytes;

	if ((double)least > stages + timer_alone)
		s->target_rate += cc_param(q, CC_HAI);
	else if ((double)most > stages)
		s->target_rate += cc_param(q, CC_AI);
	if (s->target_rate > s->line_rate)
		s->target_rate = s->line_rate;
	double rate = (s->target_rate + s->rate) / 2;
	cc_set_rate(q, s->line_rate - rate < 1 ? s->line_rate : rate, t); /* bits/s: halving the gap would never end */
}

static void cut(struct qp *q, ps_t t)
{
	struct cc_state *s = &q->cc_state;
	enum clamp clamp = (enum clamp)cc_param(q, CC_CLAMP_TARGET);

	if (clamp == CLAMP_ALWAYS || (clamp == CLAMP_AFTER_TIMER ? s->timer_events : s->byte_events))
		s->target_rate = s->rate;
	cc_set_rate(q, s->rate * (1 - s->alpha / 2), t);
	s->last_decrease = t;
	s->timer_events = s->byte_events = s->byte_counter = 0;
	s->rate_timer = t + period(q, CC_RATE_TIMER);
}

static void alpha_tick(struct qp *q)
{
	struct cc_state *s = &q->cc_state;
	double g = cc_param(q, CC_G);

	s->alpha = (1 - g) * s->alpha + (s->told ? g : 0);
	s->told = false;
	s->alpha_timer = s->alpha < DONE_ALPHA ? PS_NEVER : s->alpha_timer + period(q, CC_ALPHA_TIMER);
}

static void rate_tick(struct qp *q)
{
	struct cc_state *s = &q->cc_state;

	s->timer_events++;
	increase(q, s->rate_timer);
	s->rate_timer = s->rate >= s->line_rate ? PS_NEVER : s->rate_timer + period(q, CC_RATE_TIMER);
}

static void catch_up(struct fabric *f, struct qp *q)
{
	struct cc_state *s = &q->cc_state;

	for (;;) {
		ps_t first = s->cut_timer < s->rate_timer ? s->cut_timer : s->rate_timer;
		if (s->alpha_timer <= first && s->alpha_timer <= f->clock.now) {
			alpha_tick(q);
		} else if (first > f->clock.now) {
			return;
		} else if (s->cut_timer <= s->rate_timer) {
			cut(q, s->cut_timer);
			s->cut_timer = PS_NEVER; /* until another CNP comes, its ticks do nothing */
		} else {
			rate_tick(q);
		}
	}
}

static void sent(struct fabric *f, struct qp *q, uint32_t bytes)
{
	struct cc_state *s = &q->cc_state;
	uint64_t each = (uint64_t)cc_param(q, CC_BYTE_COUNTER);

	if (s->rate >= s->line_rate || !each)
		return;
	s->byte_counter += bytes;
	while (s->byte_counter >= each) {
		s->byte_counter -= each;
		s->byte_events++;
		increase(q, f->clock.now);
	}
}

static bool armed(struct cc_state *s, const struct qp *q, ps_t now)
{
	bool first = s->armed == PS_NEVER, heeded = s->cut_timer == PS_NEVER;

	if (first)
		s->armed = now;
	s->told = !first;
	if (s->alpha_timer == PS_NEVER)
		s->alpha_timer = next_tick(q, CC_ALPHA_TIMER, s->armed, now);
	if (heeded)
		s->cut_timer = next_tick(q, CC_DECREASE_GAP, s->armed, now);
	return heeded;
}

static bool notified(struct fabric *f, struct qp *q)
{
	struct cc_state *s = &q->cc_state;
	double g = cc_param(q, CC_G);

	if (cc_param(q, CC_ARMED) > 0)
		return armed(s, q, f->clock.now);
	bool again = f->clock.now - s->last_decrease >= ps(cc_param(q, CC_DECREASE_GAP));
	if (again)
		cut(q, f->clock.now);
	s->alpha = (1 - g) * s->alpha + g;
	s->alpha_timer = f->clock.now + period(q, CC_ALPHA_TIMER);
	return again;
}

static const struct cc_algorithm dcqcn = {
	.name = "dcqcn", .cnp = true, .start = start, .catch_up = catch_up, .sent = sent, .notified = notified,
};
CC_CONTROL(dcqcn);
