/* Policies of users' own files, for switches that take one of several ports: plugin/railbed.h, on one side, as a pick_policy
 * on the other
 *
 * The configuration's `adaptive_policies` name each with its compiled file and the keys of its parameters.  Switches may
 * use them by name from then on.  They are loaded later (plugins_load), before there are frames.
 *
 * What a policy remembers stands with the switch, and with each set of ports; a set that has lost a port is another one.
 */
#include <stdio.h>
#include <string.h>

#include "base/random.h"
#include "base/units.h"
#include "engine/fabric.h"
#include "link/frame.h"
#include "link/ways.h"
#include "plugin/plugin.h"
#include "plugin/railbed.h"
#include "switch/adaptive.h"
#include "switch/choice.h"
#include "switch/switch.h"

_Static_assert(RAILBED_PARAMETERS == PICK_PARAMS, "each of its parameters has a place");

struct own {
	struct pick_policy policy; /* first */
	struct plugin plugin;
	const struct railbed_adaptive *entry;
};

/* What is remembered of a set of ports */
struct set {
	_Alignas(max_align_t) unsigned char state[RAILBED_STATE_BYTES];
	struct railbed_port port[];
};

/* A call, and its arguments */
struct call {
	struct railbed_choice choice; /* first */
	const struct railbed_adaptive *entry;
	const struct choice *c;
	uint32_t draws, taken;
};

static void call_pick(void *call)
{
	struct call *c = call;

	c->taken = c->entry->pick(&c->choice);
}

/* The first is what a policy of ours has; the others follow from it */
static uint64_t draw(struct railbed_choice *choice)
{
	struct call *c = (struct call *)choice;
	uint32_t number = c->draws++;

	return number ? random_of(c->c->draw, number, RANDOM_PORT, 0) : c->c->draw;
}

static double load(const struct railbed_choice *choice, uint32_t place)
{
	const struct call *c = (const struct call *)choice;

	return place < c->choice.ports ? choice_load(c->c, (uint16_t)place) : INFINITY;
}

static uint64_t flow(const struct railbed_choice *choice)
{
	return choice_flow(((const struct call *)choice)->c->fr);
}

static struct set *set_of(const struct choice *c)
{
	bool known = c->ways->memory.of == c->s->p.adaptive.policy;
	struct set *set = pick_memory_of(&c->ways->memory, c->s->p.adaptive.policy,
					 sizeof *set + c->ways->count * sizeof *set->port);

	for (uint16_t i = 0; !known && i < c->ways->count; i++)
		set->port[i] = (struct railbed_port){.number = c->ways->way[i].port, .weight = c->ways->way[i].weight};
	return set;
}

static uint16_t pick(const struct choice *c)
{
	const struct adaptive_params *p = &c->s->p.adaptive;
	const struct own *own = (const struct own *)p->policy;
	struct set *set = set_of(c);
	struct call call = {
		.choice = {
			.now = (double)c->f->clock.now / PS_PER_NS,
			.bytes = c->fr->len,
			.ports = c->ways->count,
			.turns = c->ways->copies,
			.port = set->port,
			.turn = c->ways->order,
			.parameter = p->v,
			.state = pick_memory_of(choice_memory(c), p->policy, own->entry->state_bytes + 1),
			.set = set->state,
			.random = draw,
			.load = load,
			.flow = flow,
		},
		.entry = own->entry,
		.c = c,
	};
	char wrong[96];

	plugin_call(c->f, &own->plugin, "pick", call_pick, &call);
	if (call.taken < c->ways->count)
		return (uint16_t)call.taken;
	snprintf(wrong, sizeof wrong, "takes port %u of %u, and their places begin at 0", call.taken, c->ways->count);
	plugin_failed(c->f, &own->plugin, "pick", wrong);
	return 0;
}

static bool named(struct fabric *f, void *its, const json_t *keys)
{
	struct own *own = its;

	own->policy.name = own->plugin.name;
	own->policy.pick = pick;
	pick_policy_add(&own->policy);
	return plugin_keys(f, keys, own->policy.params, PICK_PARAMS);
}

static bool loaded(struct fabric *f, void *its)
{
	struct own *own = its;
	const struct railbed_adaptive *entry = own->entry = own->plugin.entry;

	if (entry->state_bytes > RAILBED_SWITCH_BYTES || entry->set_bytes > RAILBED_STATE_BYTES || !entry->pick)
		return config_fail(f, "%s: too much state, or no pick()", own->policy.name);
	return true;
}

static const struct plugin_kind own_choices = {
	.list = "adaptive_policies",
	.symbol = "railbed_adaptive",
	.bytes = sizeof(struct own),
	.at = offsetof(struct own, plugin),
	.named = named,
	.loaded = loaded,
};
PLUGIN_KIND(own_choices);

/* pick_policy_set() - Take over the parameters of a policy; others are 0
 * Return: NULL, or what is wrong
 */
const char *pick_policy_set(struct adaptive_params *p, const json_t *params)
{
	const char *key;
	json_t *v;

	memset(p->v, 0, sizeof p->v);
	json_object_foreach((json_t *)params, key, v) {
		unsigned i = 0;
		while (i < PICK_PARAMS && !(p->policy->params[i] && !strcmp(p->policy->params[i], key)))
			i++;
		if (i == PICK_PARAMS || !json_is_number(v))
			return "adaptive: params: an unknown parameter, or no number";
		p->v[i] = json_number_value(v);
	}
	return NULL;
}

/* pick_policy_params() - Its parameters, by key; NULL: it has none */
json_t *pick_policy_params(const struct adaptive_params *p)
{
	json_t *params = p->policy->params[0] ? json_object() : NULL;

	for (unsigned i = 0; params && i < PICK_PARAMS && p->policy->params[i]; i++)
		json_object_set_new(params, p->policy->params[i], json_real(p->v[i]));
	return params;
}
