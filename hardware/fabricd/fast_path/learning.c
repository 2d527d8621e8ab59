/* What becomes of a flow's frames is learned, and checked
 *
 * Theory of Operation
 *
 * A frame of a flow that is not known goes through Open vSwitch, and what comes out is
 * noted: it is shown.  At the same time Open vSwitch is asked what decides (trace.c), as each
 * of its turns takes long in a large fabric.  When both are known
 * all frames that are alike in what decides are the flow.
 *
 * Later a twin of one of its frames goes through Open vSwitch now and then, and has to
 * come out as the flow's copies say.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/fabric.h"
#include "fast_path/flow_cache.h"
#include "link/frame.h"
#include "link/port.h"

#define FLOWS_MAX (1u << 18)

/* flow_cache_learns() - Is it worth to look at what becomes of a frame that Open vSwitch gets?
 * Return: its flow, or NULL
 */
struct flow *flow_cache_learns(struct fabric *f, const struct port *in, const struct frame *fr)
{
	struct flow_cache *c = f->flow_cache;
	struct flow_key key;

	if (c->purges || !flow_cache_key(&key, in, fr) || flow_key_has_checksum(&key, fr->data))
		return NULL;
	if (megaflows_find(&c->flows, &key))
		return NULL; /* as is known, it has to get it */
	struct flow *flow = megaflows_undecided(&c->flows, &key);
	if (!flow) {
		if (!tables_watched(f, in->node))
			return NULL;
		if (c->flows.count == FLOWS_MAX)
			flow_cache_forget(f, NULL);
		flow = megaflows_new(&c->flows, f, &key);
		flow->sw = in->node;
		flow->number = ++c->last_number;
	}
	if (flow->state != FLOW_NEW || !trace_ready(f))
		return NULL;
	uint64_t epoch = c->epoch;
	flow->state = FLOW_SHOWN;
	return trace_ask(f, flow, &key) && c->epoch == epoch ? flow : NULL;
}

/* Does a rewriting of headers, or none, make one frame of the other? */
static bool explains(struct fabric *f, const struct flow_key *key, const struct flow_copy *copy, struct frame *before,
		     const struct frame *after)
{
	struct frame *made = flow_copy_of(f, before, key, copy, &f->flow_cache->flows.mask[MASK_EXACT].bits);
	bool same = made->len == after->len && !memcmp(made->data, after->data, made->len);

	frame_release(f, made);
	return same;
}

/* decision_begin() - A frame goes into Open vSwitch, and what becomes of it is noted */
void decision_begin(struct decision *d, const struct port *in, const struct frame *before)
{
	d->copies = 0;
	d->strange = !flow_cache_key(&d->before, in, before);
}

/* decision_add() - A copy of a frame has come out of Open vSwitch */
void decision_add(struct fabric *f, struct decision *d, struct frame *before, uint16_t port, const struct frame *after)
{
	struct flow_copy *copy = &d->copy[d->copies];

	if (d->copies == FLOW_COPIES_MAX || !flow_key_of(&copy->headers, after->data, after->len)) {
		d->strange = true;
		return;
	}
	copy->port = port;
	copy->rewritten = !flow_key_same_headers(&d->before, &copy->headers);
	d->strange |= !explains(f, &d->before, copy, before, after);
	d->copies++;
}

static int by_port(const void *a, const void *b)
{
	const struct flow_copy *x = a, *y = b;

	return x->port != y->port ? x->port - y->port : memcmp(&x->headers, &y->headers, sizeof x->headers);
}

/* Has become of a frame what its flow's copies say?
 * @key:	Of the frame
 */
static bool as_cached(const struct flow_cache *c, const struct flow *flow, const struct flow_key *key,
		      const struct flow_copy *copy, uint16_t copies)
{
	bool same = copies == flow->copies;

	for (uint16_t i = 0; same && i < copies; i++) {
		struct flow_key headers = *key;
		flow_key_overlay(&headers, &flow->copy[i].headers, &c->flows.mask[flow->mask].bits);
		same = copy[i].port == flow->copy[i].port && flow_key_same_headers(&copy[i].headers, &headers);
	}
	return same;
}

static void found_stale(struct fabric *f)
{
	f->flow_cache->stale++;
	f->flow_cache->trust.differs = true; /* for all that is known */
	flow_cache_forget(f, NULL);
}

/* A flow, of which a frame has shown what happens, is part of one that is decided about; it may be forgotten then */
static void supersede(struct fabric *f, struct flow *flow, const struct flow_key *key, const struct flow *by)
{
	struct flow_cache *c = f->flow_cache;

	if (by->state == FLOW_CACHED && !as_cached(c, by, key, flow->copy, flow->copies)) {
		found_stale(f);
		return;
	}
	megaflows_supersede(&c->flows, flow);
	c->decided++;
}

/* Do copies keep, of the frame that they were seen of, what a mask leaves out? */
static bool keeps(const struct flow *flow, const struct flow_key *key, const struct flow_key *mask)
{
	bool kept = true;

	for (uint16_t i = 0; kept && i < flow->copies; i++) {
		struct flow_key headers = *key;
		flow_key_overlay(&headers, &flow->copy[i].headers, mask);
		kept = flow_key_same_headers(&headers, &flow->copy[i].headers);
	}
	return kept;
}

/* What is looked at, as far as flows go by it; the copies of one have been seen
 * @link:	That its frame has got, if there is a hash
 */
static const struct mask *relied(struct flow_cache *c, const struct flow *flow, const struct flow_key *key, struct mask *told,
				 uint32_t link)
{
	const struct looked *looked = &c->looked[flow->sw->index];

	if (looked->in_port)
		told->bits.port = UINT16_MAX;
	struct mask by_link = *told;
	if (told->ecmp.links && ecmp_relied(&c->trust, &told->ecmp, key, link) &&
	    !looked->source_port) {
		by_link.bits.sport = 0;
		if (keeps(flow, key, &by_link.bits)) {
			*told = by_link;
			return told;
		}
	}
	told->ecmp.links = told->ecmp.basis = 0;
	return keeps(flow, key, &told->bits) ? told : &c->flows.mask[MASK_EXACT];
}

/* A frame of a flow has come out, and Open vSwitch has said what decides about it
 * @key:	Of that frame
 */
static void conclude(struct fabric *f, struct flow *flow, const struct flow_key *key, struct answer *answer)
{
	struct flow_cache *c = f->flow_cache;
	uint64_t epoch = c->epoch;

	tables_read(f, flow->sw); /* the rules that are told of: they may be new, and the flow forgotten */
	if (c->epoch != epoch)
		return;
	const struct mask *mask = answer->copies >= 0 && answer->copies != flow->copies
					  ? &c->flows.mask[MASK_EXACT]
					  : relied(c, flow, key, &answer->told, answer->link);
	const struct flow *by = megaflows_decided(&c->flows, flow, key, mask);
	if (by) {
		supersede(f, flow, key, by);
		return;
	}
	flow->state = answer->copies == flow->copies ? FLOW_CACHED : FLOW_UNCACHED;
	flow->as_it_is = flow->copies && !flow->copy->rewritten;
	flow->alone = flow->copies == 1 && flow->as_it_is ? flow->copy->port : 0;
	ways_drop(flow->ways);
	flow->ways = flow->sw->adaptive ? ways_name(flow_ways(flow)) : NULL;
	flow->left = c->sample;
	c->decided++;
	if (flow->state == FLOW_CACHED)
		rules_met(c, flow, answer->text);
}

/* flow_cache_decided() - It is settled what has become of a frame of a flow
 *
 * In which order copies were read from their ports is an accident.
 */
void flow_cache_decided(struct fabric *f, struct flow *flow, struct decision *d)
{
	struct flow_cache *c = f->flow_cache;

	qsort(d->copy, d->copies, sizeof *d->copy, by_port);
	if (flow->state == FLOW_CACHED) {
		if (d->strange || !as_cached(c, flow, &d->before, d->copy, d->copies))
			found_stale(f);
		return;
	}
	if (flow->state != FLOW_SHOWN)
		return;
	c->decided++;
	if (d->strange) {
		flow->state = FLOW_UNCACHED;
		megaflows_decided(&c->flows, flow, &d->before, &c->flows.mask[MASK_EXACT]);
		return;
	}
	flow->state = FLOW_ASKED;
	flow->copies = d->copies;
	if (d->copies) {
		flow->copy = calloc(d->copies, sizeof *flow->copy);
		if (!flow->copy)
			abort();
		memcpy(flow->copy, d->copy, d->copies * sizeof *flow->copy);
	}
	struct answer *answer = flow->answer;
	const struct flow *by = megaflows_find(&c->flows, &d->before);
	flow->answer = NULL;
	if (by)
		supersede(f, flow, &d->before, by);
	else if (answer)
		conclude(f, flow, &d->before, answer);
	free(answer);
}

static struct flow *asked(const struct flow_cache *c, const struct flow_key *key, uint32_t number)
{
	struct flow *flow = megaflows_undecided(&c->flows, key);

	return flow && flow->number == number && flow_is_undecided(flow) ? flow : NULL;
}

/* flow_cache_asked() - The flow of that number, if it is to be asked about; or NULL
 *
 * That of another question may have told what becomes of it.
 */
const struct flow *flow_cache_asked(struct fabric *f, const struct flow_key *key, uint32_t number)
{
	struct flow_cache *c = f->flow_cache;
	struct flow *flow = asked(c, key, number);
	const struct flow *by = flow ? megaflows_find(&c->flows, key) : NULL;

	if (!by)
		return flow;
	if (flow->state == FLOW_ASKED)
		supersede(f, flow, key, by);
	return NULL;
}

/* flow_cache_explained() - Open vSwitch has said what decides about a flow
 * @key:	Of the frame that it was asked about
 * @number:	Of its flow, which may be forgotten
 * @answer:	Taken over
 */
void flow_cache_explained(struct fabric *f, const struct flow_key *key, uint32_t number, struct answer *answer)
{
	struct flow *flow = asked(f->flow_cache, key, number);

	if (flow && flow->state == FLOW_SHOWN && !flow->answer) {
		flow->answer = answer;
		return;
	}
	if (flow && flow->state == FLOW_ASKED)
		conclude(f, flow, key, answer);
	free(answer);
}
