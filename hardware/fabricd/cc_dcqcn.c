/* DCQCN: rate control by congestion notifications (Zhu et al., SIGCOMM 2015)
 *
 * Theory of Operation
 *
 * The receiver answers CE with a CNP, at most one a flow and cnp_gap.  The sender
 * has a current rate Rc and a target Rt:
 *
 *	CNP		Rt = Rc;  Rc = Rc (1 - a/2);  a = (1 - g) a + g; counters and
 *			timers start anew.  Within decrease_gap of the last
 *			decrease only a grows.
 *	alpha_timer	without a CNP: a = (1 - g) a
 *	rate_timer, and every byte_counter bytes sent: an increase.
 *			T and B count both kinds since the last CNP, this one included:
 *			max(T, B) <= fast_recovery	Rc = (Rt + Rc) / 2
 *			min(T, B) > fast_recovery	Rt += HAI, then likewise
 *			otherwise			Rt += AI, then likewise
 *			Without a byte counter T alone decides.
 *
 * Rt stays at the cable's rate at most.  It starts at that rate with a = 1.
 */
#include "cc.h"
#include "fabric.h"

#define DONE_ALPHA 1e-12 /* below this, with the full rate, timers have nothing left to change */

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

static void start(struct fabric *f, struct qp *q)
{
	(void)f;
	q->cc_state.alpha = 1;
	q->cc_state.last_decrease = -PS_PER_S;
}

static void increase(struct qp *q, ps_t t)
{
	struct cc_state *s = &q->cc_state;
	uint64_t timer = s->timer_events, bytes = cc_param(q, CC_BYTE_COUNTER) >= 1 ? s->byte_events : timer;
	uint64_t most = timer > bytes ? timer : bytes, least = timer < bytes ? timer : bytes;
	double stages = cc_param(q, CC_FAST_RECOVERY);

	if ((double)least > stages)
		s->target_rate += cc_param(q, CC_HAI);
	else if ((double)most > stages)
		s->target_rate += cc_param(q, CC_AI);
	if (s->target_rate > s->line_rate)
		s->target_rate = s->line_rate;
	double rate = (s->target_rate + s->rate) / 2;
	cc_set_rate(q, s->line_rate - rate < 1 ? s->line_rate : rate, t); /* bits/s: halving the gap would never end */
}

static void catch_up(struct fabric *f, struct qp *q)
{
	struct cc_state *s = &q->cc_state;

	while (s->alpha_timer <= f->clock.now || s->rate_timer <= f->clock.now) {
		if (s->alpha_timer <= s->rate_timer) {
			s->alpha *= 1 - cc_param(q, CC_G);
			s->alpha_timer += period(q, CC_ALPHA_TIMER);
		} else {
			s->timer_events++;
			increase(q, s->rate_timer);
			s->rate_timer += period(q, CC_RATE_TIMER);
		}
		if (s->rate >= s->line_rate)
			s->rate_timer = PS_NEVER;
		if (s->alpha < DONE_ALPHA)
			s->alpha_timer = PS_NEVER;
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

static bool notified(struct fabric *f, struct qp *q)
{
	struct cc_state *s = &q->cc_state;
	double g = cc_param(q, CC_G);
	bool again = f->clock.now - s->last_decrease >= ps(cc_param(q, CC_DECREASE_GAP));

	if (again) {
		s->target_rate = s->rate;
		cc_set_rate(q, s->rate * (1 - s->alpha / 2), f->clock.now);
		s->last_decrease = f->clock.now;
		s->timer_events = s->byte_events = s->byte_counter = 0;
		s->rate_timer = f->clock.now + period(q, CC_RATE_TIMER);
	}
	s->alpha = (1 - g) * s->alpha + g;
	s->alpha_timer = f->clock.now + period(q, CC_ALPHA_TIMER);
	return again;
}

const struct cc_algorithm cc_dcqcn = {
	.name = "dcqcn", .cnp = true, .start = start, .catch_up = catch_up, .sent = sent, .notified = notified,
};
