/* Flows as Open vSwitch tells them apart: tuple space search
 *
 * Theory of Operation
 *
 * Rules look at few header fields, and Open vSwitch says which bits it has looked
 * at (megaflow_text.c).  Frames that are alike in these, its mask, are one flow: its
 * megaflow.  A flow is found by its mask's number and its key under that mask.  A
 * switch lists the masks of its flows, and a frame is looked for under
 * one after the other: there are rarely more than three.  A frame may belong to several
 * flows; what they say is the same.
 *
 * The ingress port counts where anything looks at it (trace_text.c).  Where nothing does, a decision holds
 * for frames from each port but those where copies leave.
 *
 * Before Open vSwitch has said what it looks at, frames are presumed to be one flow
 * that are alike in all that was looked at in others of that switch; at first all
 * that come in there.  So of many frames that start at once few go through
 * Open vSwitch, as the others wait for what becomes of these.  Where that was presumed too
 * boldly the next one of them goes through it then: each tells more of what is looked at.  Such flows stand under
 * masks of their own.  When one is decided about, there may be a flow by then that it
 * is part of: it is superseded.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/fabric.h"
#include "fast_path/flow_cache.h"
#include "fast_path/megaflows.h"

#define BUCKET_BITS_LEAST 8
#define MASKS_MAX UINT16_MAX
#define WORDS (sizeof(struct flow_key) / 8)

union masked {
	uint64_t word[WORDS];
	struct flow_key key;
};

static inline union masked under(const struct flow_key *key, const struct mask *mask)
{
	union masked k = {.key = *key}, bits = {.key = mask->bits};

	for (size_t i = 0; i < WORDS; i++)
		k.word[i] &= bits.word[i];
	if (mask->ecmp.links)
		k.key.sport = (uint16_t)ecmp_link(&mask->ecmp, key);
	return k;
}

static inline struct flow **place(const struct megaflows *m, const union masked *k)
{
	uint64_t hash = 0x9e3779b97f4a7c15;

	for (size_t i = 0; i < WORDS; i++) {
		hash = (hash ^ k->word[i]) * 0xff51afd7ed558ccd;
		hash ^= hash >> 32;
	}
	return &m->bucket[hash >> (64 - m->bucket_bits)];
}

static inline struct flow *find_under(const struct megaflows *m, uint16_t mask, const struct flow_key *key)
{
	union masked k = under(key, &m->mask[mask]);
	struct flow *flow = *place(m, &k);

	while (flow && (flow->mask != mask || memcmp(&flow->key, &k, sizeof k) != 0))
		flow = flow->next;
	return flow;
}

static struct flow **buckets(unsigned bits)
{
	struct flow **bucket = calloc(1u << bits, sizeof *bucket);

	if (!bucket)
		abort();
	return bucket;
}

/* As many buckets as flows, and not many more: they are looked for at random, and are to stay near */
static void grow(struct megaflows *m)
{
	struct flow **old = m->bucket;
	unsigned count = 1u << m->bucket_bits;

	m->bucket = buckets(++m->bucket_bits);
	for (unsigned i = 0; i < count; i++)
		for (struct flow *flow = old[i], *next; flow; flow = next) {
			union masked k = {.key = flow->key};
			struct flow **at = place(m, &k);
			next = flow->next;
			flow->next = *at;
			*at = flow;
		}
	free(old);
}

/* megaflows_open() - There are none yet */
void megaflows_open(struct megaflows *m)
{
	m->bucket = buckets(m->bucket_bits = BUCKET_BITS_LEAST);
	m->mask = calloc(MASKS_MAX, sizeof *m->mask);
	if (!m->mask)
		abort();
	for (int presumed = 0; presumed < 2; presumed++) {
		struct mask *exact = &m->mask[presumed ? MASK_EXACT_PRESUMED : MASK_EXACT];
		memset(&exact->bits, 0xff, sizeof exact->bits);
		exact->presumed = presumed;
	}
	m->mask_count = MASKS_MIN;
}

/* Does a frame come in where one of the copies leaves?  Open vSwitch leaves out such a one */
static inline bool goes_back(const struct flow *flow, uint16_t port)
{
	if (flow->alone)
		return flow->alone == port;
	for (uint16_t i = 0; i < flow->copies; i++)
		if (flow->copy[i].port == port)
			return true;
	return false;
}

/* megaflows_find() - The flow that a frame belongs to, if one is decided about; or NULL */
struct flow *megaflows_find(const struct megaflows *m, const struct flow_key *key)
{
	if (!m->count)
		return NULL;
	const struct mask_list *at = &m->at[key->sw].told;
	for (uint16_t i = 0; i < at->count; i++) {
		struct flow *flow = find_under(m, at->number[i], key);
		if (flow && !(flow->any_port && goes_back(flow, key->port)))
			return flow;
	}
	return NULL;
}

/* megaflows_undecided() - The flow that it is presumed to belong to, and that is not decided about; or NULL */
struct flow *megaflows_undecided(const struct megaflows *m, const struct flow_key *key)
{
	struct flow *flow = NULL;
	const struct mask_list *at = m->count ? &m->at[key->sw].presumed : NULL;

	for (uint16_t i = 0; at && i < at->count && !flow; i++)
		flow = find_under(m, at->number[i], key);
	return flow;
}

static void put(struct megaflows *m, struct flow *flow, uint16_t mask, const struct flow_key *key)
{
	union masked k = under(key, &m->mask[mask]);
	struct flow **at = place(m, &k);

	memcpy(&flow->key, &k, sizeof k);
	flow->mask = mask;
	flow->any_port = !m->mask[mask].bits.port;
	flow->next = *at;
	*at = flow;
}

static void take_off(struct megaflows *m, struct flow *flow)
{
	union masked k = {.key = flow->key};
	struct flow **at = place(m, &k);

	while (*at != flow)
		at = &(*at)->next;
	*at = flow->next;
}

static bool is_same(const struct mask *a, const struct mask *b)
{
	return !memcmp(&a->bits, &b->bits, sizeof a->bits) && a->ecmp.links == b->ecmp.links &&
	       a->ecmp.basis == b->ecmp.basis && a->presumed == b->presumed;
}

/* The number of a mask at a port; where there are too many all bits count */
static uint16_t number_at(struct megaflows *m, struct mask_list *at, const struct mask *mask)
{
	uint32_t number = 0;

	for (uint16_t i = 0; i < at->count; i++)
		if (is_same(&m->mask[at->number[i]], mask))
			return at->number[i];
	while (number < m->mask_count && !is_same(&m->mask[number], mask))
		number++;
	if (number == MASKS_MAX || at->count >= MASK_LIST_MAX - 1)
		number = mask->presumed ? MASK_EXACT_PRESUMED : MASK_EXACT;
	if (number == m->mask_count)
		m->mask[m->mask_count++] = *mask;
	if (at->count < MASK_LIST_MAX)
		at->number[at->count++] = (uint16_t)number;
	return (uint16_t)number;
}

/* megaflows_new() - One more that is not decided about */
struct flow *megaflows_new(struct megaflows *m, const struct fabric *f, const struct flow_key *key)
{
	const struct mask first = {
		.bits = {.sw = UINT16_MAX, .port = f->flow_cache->looked[key->sw].in_port ? UINT16_MAX : 0, .vlan = UINT16_MAX},
		.presumed = true,
	};
	struct flow *flow = lines_new(1, sizeof *flow);

	if (!m->at)
		m->at = calloc(f->switch_count, sizeof *m->at);
	if (!flow || !m->at)
		abort();
	*flow = (struct flow){0};
	struct flow_masks *at = &m->at[key->sw];
	put(m, flow, number_at(m, &at->presumed, at->told.count ? &at->next : &first), key);
	if (++m->count > 1u << m->bucket_bits)
		grow(m);
	return flow;
}

/* What was looked at this time will be, next time */
static void presume(struct mask *next, const struct mask *told)
{
	next->presumed = true;
	flow_key_join(&next->bits, &told->bits);
	if (told->ecmp.links) {
		next->ecmp = told->ecmp;
		next->bits.sport = 0;
	} else if (told->bits.sport) {
		next->ecmp.links = 0;
	}
}

/* megaflows_decided() - It is known of a flow what is looked at
 * @key:	Of a frame of it
 *
 * Return: the flow that it is part of and that is there already; or NULL
 */
struct flow *megaflows_decided(struct megaflows *m, struct flow *flow, const struct flow_key *key, const struct mask *told)
{
	struct flow_masks *at = &m->at[key->sw];
	uint16_t number = number_at(m, &at->told, told);
	struct flow *other = find_under(m, number, key);

	presume(&at->next, told);
	if (other)
		return other;
	take_off(m, flow);
	put(m, flow, number, key);
	return NULL;
}

/* megaflows_supersede() - A flow is not decided about, as it is part of another */
void megaflows_supersede(struct megaflows *m, struct flow *flow)
{
	take_off(m, flow);
	flow->state = FLOW_UNCACHED;
	flow->next = m->superseded;
	m->superseded = flow;
}

static void flow_free(struct megaflows *m, struct flow *flow)
{
	rules_count(flow);
	ways_drop(flow->ways);
	free(flow->rules);
	free(flow->answer);
	free(flow->copy);
	free(flow);
	m->count--;
}

/* megaflows_forget() - A switch's flows are gone; NULL: all */
void megaflows_forget(struct megaflows *m, const struct node *sw)
{
	for (uint32_t i = 0; m->count && i < 1u << m->bucket_bits; i++)
		for (struct flow **at = &m->bucket[i]; *at;) {
			struct flow *flow = *at;
			if (sw && flow->sw != sw) {
				at = &flow->next;
				continue;
			}
			*at = flow->next;
			m->at[flow->key.sw] = (struct flow_masks){0};
			flow_free(m, flow);
		}
	for (struct flow *flow = m->superseded, *next; flow; flow = next) {
		next = flow->next;
		flow_free(m, flow);
	}
	m->superseded = NULL;
	if (!m->count)
		m->mask_count = MASKS_MIN;
}

/* megaflows_each() - Do something with each */
void megaflows_each(const struct megaflows *m, void (*act)(struct flow *flow))
{
	for (uint32_t i = 0; m->count && i < 1u << m->bucket_bits; i++)
		for (struct flow *flow = m->bucket[i]; flow; flow = flow->next)
			act(flow);
}

void megaflows_close(struct megaflows *m)
{
	megaflows_forget(m, NULL);
	free(m->at);
	free(m->mask);
	free(m->bucket);
}
