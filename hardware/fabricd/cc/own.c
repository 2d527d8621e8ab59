/* Congestion controls of users' own files: plugin/railbed.h, on one side, as a cc_algorithm on the other
 *
 * The configuration's `controls` name each with its compiled file and the keys of its parameters.  NICs may use them by
 * name from then on.  They are loaded later (plugins_load), before there are queue pairs.
 *
 * Behind a queue pair stands what the control sees of it, and its own state.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/units.h"
#include "cc/cc.h"
#include "cc/puller.h"
#include "engine/fabric.h"
#include "nic/params.h"
#include "plugin/plugin.h"
#include "plugin/railbed.h"
#include "transport/congestion.h"
#include "transport/qp.h"
#include "transport/responder.h"

#define MOST_OWED 1e9 /* bytes */
#define LEAST_TIMER (100 * PS_PER_NS) /* between two calls: whoever wants less would not come to an end */

struct own {
	struct cc_algorithm cc; /* first */
	struct plugin plugin;
	const struct railbed_control *control;
	unsigned slot[RAILBED_PARAMETERS], cnp_gap; /* places of its parameters in cc_params */
};

struct own_flow {
	struct railbed_flow flow;
	double parameter[RAILBED_PARAMETERS];
	_Alignas(16) unsigned char state[];
};

/* A call, and its arguments */
struct call {
	const struct railbed_control *control;
	struct railbed_flow *flow;
	const struct railbed_ack *ack;
	const struct railbed_arrival *arrival;
	struct railbed_claim *claim;
	enum railbed_loss how;
	uint32_t number;
	bool heeded;
};

_Static_assert(sizeof(struct railbed_stamp) == sizeof(struct hop), "stamps are passed as they are");

static void call_start(void *call)
{
	const struct call *c = call;

	c->control->start(c->flow);
}

static void call_acked(void *call)
{
	const struct call *c = call;

	c->control->acked(c->flow, c->ack);
}

static void call_lost(void *call)
{
	const struct call *c = call;

	c->control->lost(c->flow, c->how, c->number);
}

static void call_sent(void *call)
{
	const struct call *c = call;

	c->control->sent(c->flow, c->number);
}

static void call_timer(void *call)
{
	const struct call *c = call;

	c->control->timer(c->flow);
}

static void call_arrived(void *call)
{
	const struct call *c = call;

	c->control->arrived(c->arrival, c->claim);
}

static void call_granted(void *call)
{
	const struct call *c = call;

	c->control->granted(c->flow, c->number);
}

static void call_notified(void *call)
{
	struct call *c = call;

	c->heeded = c->control->notified(c->flow);
}

/* Carry it out as of @t, and take over what it has set */
static void carry_out(struct fabric *f, struct qp *q, ps_t t, const char *entry, void (*how)(void *), struct call *c)
{
	const struct own *own = (const struct own *)q->cc;
	struct cc_state *s = &q->cc_state;
	struct own_flow *its = cc_own(q);
	struct railbed_flow *flow = &its->flow;
	double timer = flow->timer;

	c->control = own->control;
	c->flow = flow;
	flow->now = (double)t / PS_PER_NS;
	flow->rate = s->rate;
	flow->window = s->window;
	flow->sent = qp_all_left(q);
	flow->acked = qp_all_done(q);
	flow->timeouts = q->retries;
	flow->parameter = its->parameter;
	flow->state = its->state;
	if (!plugin_call(f, &own->plugin, entry, how, c))
		return;
	if (!isfinite(flow->rate) || !isfinite(flow->window) || isnan(flow->timer)) {
		plugin_failed(f, &own->plugin, entry, "sets a rate, window or timer that is not a number");
		return;
	}
	if (flow->window != s->window)
		cc_set_window(q, flow->window);
	if (flow->rate != s->rate)
		cc_set_rate(q, flow->rate, t);
	if (flow->timer != timer) {
		double least = flow->now + (double)LEAST_TIMER / PS_PER_NS, at = flow->timer > least ? flow->timer : least;
		s->rate_timer = own->control->timer && at < 9e15 ? ps(at) : PS_NEVER;
	}
}

static void start(struct fabric *f, struct qp *q)
{
	const struct own *own = (const struct own *)q->cc;
	struct own_flow *its = cc_own(q);

	its->flow.line_rate = q->cc_state.line_rate;
	its->flow.mtu = q->mtu;
	its->flow.timer = INFINITY;
	for (unsigned i = 0; i < RAILBED_PARAMETERS; i++)
		its->parameter[i] = own->control->parameters[i].name[0] ? cc_param(q, own->slot[i]) : 0;
	if (own->control->start)
		carry_out(f, q, f->clock.now, "start", call_start, &(struct call){0});
}

static void catch_up(struct fabric *f, struct qp *q)
{
	struct cc_state *s = &q->cc_state;
	struct own_flow *its = cc_own(q);

	while (s->rate_timer <= f->clock.now && !f->failed) {
		ps_t t = s->rate_timer;
		s->rate_timer = PS_NEVER;
		its->flow.timer = INFINITY;
		carry_out(f, q, t, "timer", call_timer, &(struct call){0});
	}
}

static void acked(struct fabric *f, struct qp *q, const struct cc_ack *ack)
{
	struct railbed_ack told = {
		.bytes = (double)ack->bytes,
		.packets = (double)ack->packets,
		.rtt = (double)ack->rtt / PS_PER_NS,
		.seen = ack->t->seen,
		.marked = ack->t->marked,
		.switches = ack->switches,
		.stamps = ack->t->hops,
		.stamp = (const struct railbed_stamp *)ack->t->hop,
		.round = q->cc->rounds && cc_round_over(q, ack),
	};

	carry_out(f, q, f->clock.now, "acked", call_acked, &(struct call){.ack = &told});
}

static void lost(struct fabric *f, struct qp *q, enum cc_loss how, uint32_t packets)
{
	enum railbed_loss told = how == CC_LOSS_TIMEOUT ? RAILBED_TIMEOUT : RAILBED_NAK;

	carry_out(f, q, f->clock.now, "lost", call_lost, &(struct call){.how = told, .number = packets});
}

static void sent(struct fabric *f, struct qp *q, uint32_t bytes)
{
	carry_out(f, q, f->clock.now, "sent", call_sent, &(struct call){.number = bytes});
}

static bool notified(struct fabric *f, struct qp *q)
{
	struct call c = {0};

	carry_out(f, q, f->clock.now, "notified", call_notified, &c);
	return c.heeded;
}

static void granted(struct fabric *f, struct qp *q, uint32_t bytes)
{
	carry_out(f, q, f->clock.now, "granted", call_granted, &(struct call){.number = bytes});
}

/* At the receiver, which has no flow of the sender's: its parameters are those that the sender sends by */
static void claims(struct fabric *f, struct qp *q, const struct cc_arrival *a, struct cc_claim *claim)
{
	const struct own *own = (const struct own *)q->answers->cc;
	double parameter[RAILBED_PARAMETERS];
	struct railbed_claim its = {0};

	for (unsigned i = 0; i < RAILBED_PARAMETERS && own->control->parameters[i].name[0]; i++)
		parameter[i] = cc_answer_param(q, own->slot[i]);
	struct railbed_arrival told = {
		.now = (double)f->clock.now / PS_PER_NS,
		.line_rate = q->nic->port[0].cable ? (double)q->nic->port[0].cable->p.rate_bps : 1e12,
		.mtu = q->mtu,
		.came = a->came,
		.asks = a->asks,
		.wants = a->wants,
		.owed = a->owed,
		.under_way = a->under_way,
		.rest = a->rest,
		.parameter = parameter,
	};
	struct call c = {.control = own->control, .arrival = &told, .claim = &its};
	if (!plugin_call(f, &own->plugin, "arrived", call_arrived, &c))
		return;
	if (!isfinite(its.owed) || isnan(its.rank)) {
		plugin_failed(f, &own->plugin, "arrived", "claims what is not a number");
		return;
	}
	*claim = (struct cc_claim){.owed = its.owed < MOST_OWED ? its.owed : MOST_OWED, .rank = its.rank, .stays = its.stays};
}

static ps_t cnp_gap(const struct fabric *f, const struct qp *q)
{
	const struct own *own = (const struct own *)q->answers->cc;

	(void)f;
	return ps(cc_answer_param(q, own->cnp_gap));
}

static bool named(struct fabric *f, void *its, const json_t *keys)
{
	struct own *own = its;
	const char *key[RAILBED_PARAMETERS + CC_OWN + CC_PARAMS - CC_CREDIT] = {0};
	unsigned next = CC_OWN;

	own->cc.name = own->plugin.name;
	if (!plugin_keys(f, keys, key, sizeof key / sizeof *key))
		return false;
	for (unsigned k = 0; k < sizeof key / sizeof *key && key[k]; k++) {
		unsigned place = cc_find_param(&cc_none, key[k]);
		if (place == CC_PARAMS && next == CC_CREDIT)
			return config_fail(f, "%s: params: too many", own->cc.name);
		if (place == CC_PARAMS)
			own->cc.params[place = next++] = key[k];
		if (k < RAILBED_PARAMETERS)
			own->slot[k] = place;
		if (!strcmp(key[k], "cnp_gap_ns"))
			own->cnp_gap = place;
	}
	cc_add(&own->cc);
	return true;
}

static bool loaded(struct fabric *f, void *its)
{
	struct own *own = its;
	struct cc_algorithm *cc = &own->cc;
	const struct railbed_control *control = own->control = own->plugin.entry;

	if (control->state_bytes > RAILBED_STATE_BYTES)
		return config_fail(f, "%s: too much state", cc->name);
	if (!control->arrived != !(control->hears & RAILBED_CREDIT))
		return config_fail(f, "%s: `arrived` and RAILBED_CREDIT go together", cc->name);
	cc->state_bytes = sizeof(struct own_flow) + control->state_bytes;
	cc->telemetry = control->acked || control->hears & RAILBED_STAMPS;
	cc->stamped = control->hears & RAILBED_STAMPS;
	cc->rounds = control->rounds;
	cc->fills_window = control->fills_window;
	cc->answers_marks = control->answers_marks;
	cc->start = start;
	cc->catch_up = control->timer ? catch_up : NULL;
	cc->acked = control->acked ? acked : NULL;
	cc->lost = control->lost ? lost : NULL;
	cc->sent = control->sent ? sent : NULL;
	cc->notified = control->notified ? notified : NULL;
	cc->cnp_gap = control->notified ? cnp_gap : NULL;
	cc->by_message = control->by_message;
	cc->speculates = control->speculates;
	cc->arrived = control->arrived ? puller_arrived : NULL;
	cc->claims = control->arrived ? claims : NULL;
	cc->granted = control->granted ? granted : NULL;
	f->stamps = f->stamps || cc->stamped;
	return true;
}

static const struct plugin_kind own_controls = {
	.list = "controls",
	.symbol = "railbed_control",
	.bytes = sizeof(struct own),
	.at = offsetof(struct own, plugin),
	.named = named,
	.loaded = loaded,
};
PLUGIN_KIND(own_controls);
