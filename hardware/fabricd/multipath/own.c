/* Policies of users' own files: plugin/railbed.h, on one side, as a multipath_policy on the other
 *
 * The configuration's `multipath_policies` name each with its compiled file and the keys of its parameters.  NICs may use
 * them by name from then on.  They are loaded later (plugins_load), before there are queue pairs.
 *
 * Behind a queue pair stands what the policy sees of it, and its own state.
 */
#include <stdio.h>

#include "engine/fabric.h"
#include "nic/params.h"
#include "plugin/plugin.h"
#include "plugin/railbed.h"
#include "transport/multipath.h"
#include "transport/qp.h"
#include "transport/repeat.h"

_Static_assert(RAILBED_PARAMETERS == MULTIPATH_PARAMS, "each of its parameters has a place");

struct own {
	struct multipath_policy policy; /* first */
	struct plugin plugin;
	const struct railbed_multipath *entry;
};

struct own_paths {
	struct railbed_paths paths; /* first */
	const struct fabric *f;
	struct qp *q;
	_Alignas(max_align_t) unsigned char state[];
};

/* A call, and its arguments */
struct call {
	const struct railbed_multipath *entry;
	struct railbed_paths *paths;
	struct railbed_returned back;
	uint32_t entropy;
};

static void call_start(void *call)
{
	const struct call *c = call;

	c->entry->start(c->paths);
}

static void call_pick(void *call)
{
	struct call *c = call;

	c->entropy = c->entry->pick(c->paths);
}

static void call_returned(void *call)
{
	const struct call *c = call;

	c->entry->returned(c->paths, &c->back);
}

static void call_lost(void *call)
{
	const struct call *c = call;

	c->entry->lost(c->paths, c->entropy);
}

static void call_trimmed(void *call)
{
	const struct call *c = call;

	c->entry->trimmed(c->paths, c->entropy);
}

static void call_timeout(void *call)
{
	const struct call *c = call;

	c->entry->timeout(c->paths);
}

static uint64_t draw(struct railbed_paths *paths)
{
	struct own_paths *its = (struct own_paths *)paths;

	return multipath_draw(its->f, its->q);
}

static void carry_out(struct fabric *f, struct qp *q, const char *entry, void (*how)(void *), struct call *c)
{
	const struct own *own = (const struct own *)q->multipath->p.policy;
	struct own_paths *its = multipath_own(q);

	its->f = f;
	its->q = q;
	its->paths = (struct railbed_paths){
		.now = (double)f->clock.now / PS_PER_NS,
		.line_rate = q->cc_state.line_rate,
		.mtu = q->mtu,
		.entropies = q->multipath->p.entropies,
		.timeouts = q->retries,
		.sent = q->left,
		.acked = q->acked,
		.delivered = repeat_delivered(q),
		.parameter = q->multipath->p.v,
		.state = its->state,
		.entropy = multipath_own_of_entropies(q),
		.random = draw,
	};
	c->entry = own->entry;
	c->paths = &its->paths;
	plugin_call(f, &own->plugin, entry, how, c);
}

static void start(struct fabric *f, struct qp *q)
{
	carry_out(f, q, "start", call_start, &(struct call){0});
}

static uint32_t pick(struct fabric *f, struct qp *q)
{
	const struct own *own = (const struct own *)q->multipath->p.policy;
	struct call c = {0};
	char wrong[96];

	carry_out(f, q, "pick", call_pick, &c);
	if (c.entropy < q->multipath->p.entropies)
		return c.entropy;
	snprintf(wrong, sizeof wrong, "takes entropy %u, and there are those from 0 to %u", c.entropy, q->multipath->p.entropies - 1);
	plugin_failed(f, &own->plugin, "pick", wrong);
	return 0;
}

static void returned(struct fabric *f, struct qp *q, uint32_t entropy, bool marked)
{
	double took = (double)q->multipath->took / PS_PER_NS;

	carry_out(f, q, "returned", call_returned, &(struct call){.back = {.entropy = entropy, .marked = marked, .took = took}});
}

static void lost(struct fabric *f, struct qp *q, uint32_t entropy)
{
	carry_out(f, q, "lost", call_lost, &(struct call){.entropy = entropy});
}

static void trimmed(struct fabric *f, struct qp *q, uint32_t entropy)
{
	carry_out(f, q, "trimmed", call_trimmed, &(struct call){.entropy = entropy});
}

static void timeout(struct fabric *f, struct qp *q)
{
	carry_out(f, q, "timeout", call_timeout, &(struct call){0});
}

static bool named(struct fabric *f, void *its, const json_t *keys)
{
	struct own *own = its;

	own->policy.name = own->plugin.name;
	multipath_add(&own->policy);
	return plugin_keys(f, keys, own->policy.params, MULTIPATH_PARAMS);
}

static bool loaded(struct fabric *f, void *its)
{
	struct own *own = its;
	struct multipath_policy *policy = &own->policy;
	const struct railbed_multipath *entry = own->entry = own->plugin.entry;

	if (entry->state_bytes > RAILBED_STATE_BYTES || entry->entropy_bytes > RAILBED_ENTROPY_BYTES || !entry->pick)
		return config_fail(f, "%s: too much state, or no pick()", policy->name);
	policy->state_bytes = sizeof(struct own_paths) + (entry->state_bytes + 15u) / 16 * 16;
	policy->entropy_bytes = entry->entropy_bytes;
	policy->hears = entry->marks;
	policy->pick = pick;
	policy->start = entry->start ? start : NULL;
	policy->returned = entry->returned ? returned : NULL;
	policy->lost = entry->lost ? lost : NULL;
	policy->trimmed = entry->trimmed ? trimmed : NULL;
	policy->timeout = entry->timeout ? timeout : NULL;
	return true;
}

static const struct plugin_kind own_paths = {
	.list = "multipath_policies",
	.symbol = "railbed_multipath",
	.bytes = sizeof(struct own),
	.at = offsetof(struct own, plugin),
	.named = named,
	.loaded = loaded,
};
PLUGIN_KIND(own_paths);
