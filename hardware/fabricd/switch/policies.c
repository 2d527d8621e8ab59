/* Which way a policy takes, of those that an adaptive switch has for a frame (adaptive.c); users' own are in own.c */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/random.h"
#include "fast_path/ecmp.h"
#include "fast_path/flow_key.h"
#include "link/frame.h"
#include "switch/adaptive.h"
#include "switch/choice.h"
#include "switch/switch.h"
#include "wire/roce.h"

/* The one after the other */
static uint16_t round_robin(const struct choice *c)
{
	return c->ways->order[c->ways->turn++ % c->ways->copies];
}

static uint16_t at_random(const struct choice *c)
{
	return c->ways->order[(uint32_t)c->draw % c->ways->copies];
}

/* The better of two that are drawn (Mitzenmacher, 1996; DRILL, SIGCOMM 2017, without its memory of the last best) */
static uint16_t two_choices(const struct choice *c)
{
	uint32_t n = c->ways->copies, first = (uint32_t)c->draw % n, second = (first + 1 + (uint32_t)(c->draw >> 32) % (n - 1)) % n;
	uint16_t a = c->ways->order[first], b = c->ways->order[second];

	return choice_load(c, b) < choice_load(c, a) ? b : a;
}

/* The best of all; of equals one that is drawn, each as likely as it weighs */
static uint16_t shortest(const struct choice *c)
{
	uint16_t equal[WAYS_MAX], copies = 0;
	double least = INFINITY;

	for (uint16_t way = 0; way < c->ways->count; way++) {
		double l = choice_load(c, way);
		if (l < least) {
			least = l;
			copies = 0;
		}
		for (uint16_t k = 0; l <= least && k < c->ways->way[way].weight; k++)
			equal[copies++] = way;
	}
	return equal[(uint32_t)c->draw % copies];
}

/* Of what has no key: frames of the host's kernel, by their MACs */
static uint64_t hash_of_macs(const struct frame *fr)
{
	struct view macs = view_of(fr->data, 12);

	return random_of(get_be64(&macs), get_be32(&macs), 0, 0);
}

/* The one that addresses, ports and the destination's queue pair hash to
 *
 * Open vSwitch cannot look at that queue pair, and some switches' chips can (by a field of the user's own; SAI has one for
 * it): E-ECMP, with which flows that have the same ports are told apart (Gangidi et al., "RDMA over Ethernet for
 * Distributed AI Training at Meta Scale", SIGCOMM 2024).
 */
static uint16_t hashed(const struct choice *c)
{
	struct view v = view_of(c->fr->data, frame_near(c->fr));
	struct flow_key key;
	uint64_t hash;

	if (flow_key_of(&key, c->fr->data, frame_near(c->fr))) {
		view_take(&v, flow_key_headers(&key) + 4);
		uint32_t qp = get_be32(&v) & PSN_MASK;
		hash = ecmp_hash_with(c->s->p.adaptive.basis, &key, v.bad || key.dport != ROCE_UDP_PORT ? 0 : qp);
	} else
		hash = hash_of_macs(c->fr);
	return c->ways->order[hash % c->ways->copies];
}

static const struct pick_policy policies[] = {
	{.name = "two_choices", .pick = two_choices},
	{.name = "shortest", .pick = shortest},
	{.name = "round_robin", .pick = round_robin},
	{.name = "random", .pick = at_random},
	{.name = "hash", .pick = hashed},
};

/* pick_memory_of() - What a policy remembers, @bytes of it: zeros after another policy, or none */
void *pick_memory_of(struct pick_memory *m, const struct pick_policy *policy, size_t bytes)
{
	if (m->of == policy)
		return m->state;
	pick_forget(m);
	if (!(m->state = calloc(1, bytes)))
		abort();
	m->of = policy;
	return m->state;
}

void pick_forget(struct pick_memory *m)
{
	free(m->state);
	*m = (struct pick_memory){0};
}

static struct pick_policy *added;

/* pick_policy_add() - One that is not among them */
void pick_policy_add(struct pick_policy *policy)
{
	policy->next = added;
	added = policy;
}

/* pick_policy_find() - The policy of that name, or NULL */
const struct pick_policy *pick_policy_find(const char *name)
{
	for (size_t i = 0; name && i < sizeof policies / sizeof *policies; i++)
		if (!strcmp(policies[i].name, name))
			return &policies[i];
	for (const struct pick_policy *policy = added; name && policy; policy = policy->next)
		if (!strcmp(policy->name, name))
			return policy;
	return NULL;
}

const char *pick_policy_name(const struct pick_policy *policy)
{
	return policy->name;
}

/* choice_flow() - The same number for all frames of a flow */
uint64_t choice_flow(const struct frame *fr)
{
	struct flow_key key;

	if (flow_key_of(&key, fr->data, frame_near(fr)))
		return random_of(key.src, key.dst, key.sport, key.dport);
	return hash_of_macs(fr);
}
