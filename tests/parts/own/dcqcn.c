/* fabricd's dcqcn.c against railbed.h, with `first_cut: immediate` and `clamp_target: always`: timers, CNPs, bytes sent */
#include "railbed.h"

enum { AI, HAI, G, ALPHA_TIMER, RATE_TIMER, BYTE_COUNTER, FAST_RECOVERY, CNP_GAP, WINDOW };

struct dcqcn {
	double target, alpha, alpha_at, counted;
	uint64_t timer, bytes;
};

static void start(struct railbed_flow *flow)
{
	struct dcqcn *own = flow->state;

	own->alpha = 1;
	own->alpha_at = INFINITY;
	own->target = flow->line_rate;
}

static void increase(struct railbed_flow *flow)
{
	struct dcqcn *own = flow->state;
	double most = (double)(own->timer > own->bytes ? own->timer : own->bytes);
	double least = (double)(own->timer < own->bytes ? own->timer : own->bytes);

	if (least > flow->parameter[FAST_RECOVERY])
		own->target += flow->parameter[HAI];
	else if (most > flow->parameter[FAST_RECOVERY])
		own->target += flow->parameter[AI];
	own->target = fmin(own->target, flow->line_rate);
	flow->rate = (own->target + flow->rate) / 2;
	if (flow->line_rate - flow->rate < 1)
		flow->rate = flow->line_rate;
}

static void timer(struct railbed_flow *flow)
{
	struct dcqcn *own = flow->state;

	own->timer++;
	increase(flow);
	flow->timer = flow->rate >= flow->line_rate ? INFINITY : flow->now + flow->parameter[RATE_TIMER];
}

static void sent(struct railbed_flow *flow, uint32_t frame_bytes)
{
	struct dcqcn *own = flow->state;

	if (flow->rate >= flow->line_rate)
		return;
	for (own->counted += frame_bytes; own->counted >= flow->parameter[BYTE_COUNTER];) {
		own->counted -= flow->parameter[BYTE_COUNTER];
		own->bytes++;
		increase(flow);
	}
}

static bool notified(struct railbed_flow *flow)
{
	struct dcqcn *own = flow->state;
	double g = flow->parameter[G];

	for (; own->alpha_at <= flow->now && own->alpha >= 1e-12; own->alpha_at += flow->parameter[ALPHA_TIMER])
		own->alpha *= 1 - g; /* nobody looks at it in between */
	own->target = flow->rate;
	flow->rate *= 1 - own->alpha / 2;
	own->timer = own->bytes = 0;
	own->counted = 0;
	own->alpha = (1 - g) * own->alpha + g;
	own->alpha_at = flow->now + flow->parameter[ALPHA_TIMER];
	flow->timer = flow->now + flow->parameter[RATE_TIMER];
	return true;
}

RAILBED_CONTROL(1,
	.state_bytes = sizeof(struct dcqcn), .hears = RAILBED_MARKS,
	.parameters = {
		[AI] = {"ai", RAILBED_RATE, {40e6}, 0, 0, "additive increase"},
		[HAI] = {"hai", RAILBED_RATE, {200e6}, 0, 0, "hyper increase"},
		[G] = {"g", RAILBED_NUMBER, {1.0 / 256}, 0, 1, "weight of a notification"},
		[ALPHA_TIMER] = {"alpha_timer", RAILBED_TIME, {55e3}, 1, 0, "without a notification alpha shrinks"},
		[RATE_TIMER] = {"rate_timer", RAILBED_TIME, {55e3}, 1, 0, "an increase so often"},
		[BYTE_COUNTER] = {"byte_counter", RAILBED_SIZE, {10e6}, 1, 0, "and each so many bytes"},
		[FAST_RECOVERY] = {"fast_recovery", RAILBED_NUMBER, {5}, 0, 100, "increases that halve the gap"},
		[CNP_GAP] = {"cnp_gap", RAILBED_TIME, {50e3}, 0, 0, "between two notifications"},
		[WINDOW] = {"window", RAILBED_SIZE, {0}, 0, 0, "bytes under way at most"},
	},
	.start = start, .timer = timer, .sent = sent, .notified = notified);
