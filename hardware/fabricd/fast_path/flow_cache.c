/* The fast path
 *
 * Theory of Operation
 *
 * As in a switch's chip, a flow's first frames take the slow path, through Open
 * vSwitch, and the others go by a cache of what it decided: for a key (flow_key.h)
 * the ports, and each copy's headers.  The cache is asked when a frame
 * starts on its cable, as Open vSwitch would be, and what it says happens at the
 * same emulated time: no figure depends on which way a frame went.
 *
 * A flow is cached when a frame has shown what happens, Open vSwitch has said that
 * nothing but headers decides (trace.c), and whoever changes that switch's tables
 * will be heard of (tables_watch.c).
 *
 * It is never stale:
 *  - the controller's changes are made while the clock stands still; with its
 *    answer everything is forgotten;
 *  - when anybody changes a bridge, its flows are forgotten, and Open vSwitch is
 *    made to forget what it has cached; the run is not exact, as the moment of the
 *    change in emulated time is an accident;
 *  - of one frame in `sample` of each flow a twin goes through Open vSwitch all the
 *    same.  Nobody waits for it: the frame itself goes by the cache.  What becomes of
 *    the twin must be what the cache says, or all is forgotten, and the run is not exact.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/units.h"
#include "engine/event.h"
#include "engine/fabric.h"
#include "link/frame.h"
#include "link/port.h"
#include "fast_path/flow_cache.h"

#define BUCKET_BITS 16
#define FLOWS_MAX (1u << 18)

/* flow_cache_new() - Nothing is known yet
 * @folder:	Of Open vSwitch's sockets; kept open: later we may not go through the folders above it
 * @sample:	One frame in so many of a flow goes through Open vSwitch all the same
 */
struct flow_cache *flow_cache_new(const char *folder, uint32_t sample, uint32_t switches)
{
	struct flow_cache *c = calloc(1, sizeof *c);

	if (!c)
		abort();
	c->sample = sample;
	c->folder = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
	c->bucket = calloc(1u << BUCKET_BITS, sizeof(struct flow *));
	c->bridge = calloc(switches + 1, sizeof *c->bridge);
	if (!c->bucket || !c->bridge)
		abort();
	return c;
}

static struct flow **find(const struct flow_cache *c, const struct flow_key *key)
{
	struct flow **at = &c->bucket[flow_key_hash(key) >> (64 - BUCKET_BITS)];

	while (*at && memcmp(&(*at)->key, key, sizeof *key) != 0)
		at = &(*at)->next;
	return at;
}

static void flow_free(struct flow_cache *c, struct flow *flow)
{
	rules_count(flow);
	free(flow->rules);
	free(flow->copy);
	free(flow);
	c->count--;
}

/* flow_cache_forget() - The tables of a switch may be others from now on; NULL: of all */
void flow_cache_forget(struct fabric *f, const struct node *sw)
{
	struct flow_cache *c = f->flow_cache;

	c->epoch++;
	c->decided++;
	c->forgotten += c->count != 0;
	for (uint32_t i = 0; c->count && i < 1u << BUCKET_BITS; i++)
		for (struct flow **at = &c->bucket[i]; *at;) {
			struct flow *flow = *at;
			if (sw && flow->sw != sw) {
				at = &flow->next;
				continue;
			}
			*at = flow->next;
			flow_free(c, flow);
		}
}

/* flow_cache_changed() - Somebody has changed the tables of a switch
 *
 * While the controller is being waited for it is the controller, who says when the change is in force.  From anybody
 * else it bites at once: Open vSwitch's own cache would keep to what it decided for half a second.
 */
void flow_cache_changed(struct fabric *f, const struct node *sw)
{
	struct flow_cache *c = f->flow_cache;

	flow_cache_forget(f, sw);
	if (f->clock.hold_left)
		return;
	c->changed += f->clock.started;
	c->purges += trace_purge(f);
}

/* flow_cache_settled() - The controller's changes are in force, and no others have been heard of that came before */
void flow_cache_settled(struct fabric *f)
{
	tables_settled(f);
	flow_cache_forget(f, NULL);
}

static bool has_udp_checksum(const struct flow_key *key, const struct frame *fr)
{
	const uint8_t *sum = fr->data + 40 + (key->vlan ? 4 : 0);

	return sum[0] | sum[1];
}

/* A copy of a frame that is on its way to a switch, as it will leave it
 * @key:	Of the frame
 */
static struct frame *copied(struct fabric *f, struct frame *fr, const struct flow_key *key, const struct flow_copy *copy)
{
	struct frame *out = frame_twin(f, fr);

	if (copy->rewritten) {
		if (!flow_key_same_packet(key, &copy->headers))
			frame_whole(f, out); /* with the ICRC of what it was */
		out->len = out->away + (uint32_t)flow_key_rewrite(&copy->headers, out->data, frame_near(out));
	}
	out->id = fr->id;
	if (fr->passage)
		out->passage = passage_join(fr->passage);
	return out;
}

/* flow_cache_carried() - A frame goes by the cache and by nothing else */
void flow_cache_carried(struct flow_cache *c, struct flow *flow, const struct frame *fr)
{
	c->hits++;
	flow->packets++;
	flow->bytes += fr->len;
}

/* flow_cache_checks() - A frame goes by the cache, and a twin of it will go through Open vSwitch */
void flow_cache_checks(struct flow_cache *c, struct flow *flow, const struct frame *fr)
{
	c->checked++;
	flow->left = c->sample;
	flow->packets++;
	flow->bytes += fr->len;
}

/* flow_cache_twin_goes() - It goes: Open vSwitch counts it for its rules, and nobody else does */
void flow_cache_twin_goes(struct flow *flow, const struct frame *twin)
{
	flow->packets--; /* below zero for a while, if it was counted meanwhile */
	flow->bytes -= twin->len;
}

/* flow_cache_awaits() - Is something awaited from Open vSwitch before a frame may go by the cache, or teach it?
 * @flow:	Set to the flow that is being decided about; or NULL: the switch is not watched yet
 */
bool flow_cache_awaits(struct fabric *f, const struct port *in, const struct frame *fr, struct flow **flow)
{
	struct flow_key key;

	if (!flow_key_of(&key, in->index, fr->data, frame_near(fr)) || has_udp_checksum(&key, fr))
		return false;
	*flow = *find(f->flow_cache, &key);
	return *flow ? flow_is_undecided(*flow) : !tables_watched(f, in->node) && tables_watch_begins(f->flow_cache, in->node);
}

/* flow_cache_forward() - A frame has started on its cable: forward it if it is known how
 *
 * @t:	When it has come in and gone through the pipeline
 *
 * The frame itself is one of the copies, unless its headers change.
 *
 * Return: its flow, for flow_cache_carried() or, if none are `left`, flow_cache_checks(); or NULL: Open vSwitch has to be
 * asked
 */
struct flow *flow_cache_forward(struct fabric *f, struct port *in, struct frame *fr, ps_t t)
{
	struct flow_cache *c = f->flow_cache;
	struct flow_key key;

	if (!c->count || !flow_key_of(&key, in->index, fr->data, frame_near(fr)))
		return NULL;
	struct flow *flow = *find(c, &key);
	if (!flow || flow->state != FLOW_CACHED || has_udp_checksum(&key, fr))
		return NULL;
	bool shared = false;

	flow->left -= flow->left > 0;
	if (t < f->clock.now)
		t = f->clock.now;
	if (flow->alone) {
		event_add(f, t, EV_FORWARD, in->node->index, in->number, flow->alone, fr->id, fr, 0);
		return flow;
	}
	if (flow->ways) {
		struct frame *out = flow->copy->rewritten ? copied(f, fr, &key, flow->copy) : fr;
		event_add(f, t, EV_FORWARD, in->node->index, in->number, 0, fr->id, out, (uintptr_t)flow->ways);
		if (out != fr)
			frame_release(f, fr);
		return flow;
	}
	for (uint16_t i = 0; i < flow->copies; i++) {
		const struct flow_copy *copy = &flow->copy[i];
		struct frame *out = fr;
		if (copy->rewritten || shared)
			out = copied(f, fr, &key, copy);
		else
			shared = true;
		event_add(f, t, EV_FORWARD, in->node->index, in->number, copy->port, fr->id, out, 0);
	}
	if (!flow->copies)
		event_add(f, t, EV_FORWARDING_DROP, in->node->index, in->number, 0, fr->id, fr, 0);
	else if (!shared)
		frame_release(f, fr);
	return flow;
}

/* flow_cache_learns() - Is it worth to look at what becomes of a frame that Open vSwitch gets?
 * Return: its flow, or NULL
 */
struct flow *flow_cache_learns(struct fabric *f, const struct port *in, const struct frame *fr)
{
	struct flow_cache *c = f->flow_cache;
	struct flow_key key;

	if (c->purges || !flow_key_of(&key, in->index, fr->data, frame_near(fr)) || has_udp_checksum(&key, fr))
		return NULL;
	struct flow **at = find(c, &key), *flow = *at;
	if (!flow) {
		if (!tables_watched(f, in->node))
			return NULL;
		if (c->count == FLOWS_MAX) {
			flow_cache_forget(f, NULL);
			at = find(c, &key);
		}
		flow = *at = lines_new(1, sizeof *flow);
		if (!flow)
			abort();
		*flow = (struct flow){.key = key, .sw = in->node, .number = ++c->last_number,
				.in_port = in->number};
		c->count++;
	}
	if (flow->state != FLOW_NEW || !trace_ready(f))
		return NULL;
	flow->state = FLOW_SHOWN;
	return flow;
}

/* Does a rewriting of headers, or none, make one frame of the other? */
static bool explains(struct fabric *f, const struct flow_key *key, const struct flow_copy *copy, struct frame *before,
		     const struct frame *after)
{
	struct frame *made = copied(f, before, key, copy);
	bool same = made->len == after->len && !memcmp(made->data, after->data, made->len);

	frame_release(f, made);
	return same;
}

/* decision_add() - A copy of a frame has come out of Open vSwitch */
void decision_add(struct fabric *f, struct decision *d, struct frame *before, uint16_t port, const struct frame *after)
{
	struct flow_copy *copy = &d->copy[d->copies];
	struct flow_key key;

	if (d->copies == FLOW_COPIES_MAX || !flow_key_of(&key, 0, before->data, before->len) ||
	    !flow_key_of(&copy->headers, 0, after->data, after->len)) {
		d->strange = true;
		return;
	}
	copy->port = port;
	copy->rewritten = !flow_key_same_headers(&key, &copy->headers);
	d->strange |= !explains(f, &key, copy, before, after);
	d->copies++;
}

static int by_port(const void *a, const void *b)
{
	const struct flow_copy *x = a, *y = b;

	return x->port != y->port ? x->port - y->port : memcmp(&x->headers, &y->headers, sizeof x->headers);
}

static bool as_cached(const struct flow *flow, const struct decision *d)
{
	bool same = !d->strange && d->copies == flow->copies;

	for (uint16_t i = 0; same && i < d->copies; i++)
		same = d->copy[i].port == flow->copy[i].port &&
		       flow_key_same_headers(&d->copy[i].headers, &flow->copy[i].headers);
	return same;
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
		if (as_cached(flow, d))
			return;
		c->stale++;
		flow_cache_forget(f, NULL);
		return;
	}
	if (flow->state != FLOW_SHOWN)
		return;
	c->decided++;
	if (d->strange) {
		flow->state = FLOW_UNCACHED;
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
	if (!trace_ask(f, flow))
		flow_cache_forget(f, NULL);
}

/* flow_cache_asked() - The flow of that number, if it is to be asked about; or NULL */
const struct flow *flow_cache_asked(const struct flow_cache *c, const struct flow_key *key, uint32_t number)
{
	const struct flow *flow = *find(c, key);

	return flow && flow->number == number && flow->state == FLOW_ASKED ? flow : NULL;
}

/* flow_cache_explained() - Open vSwitch has said what decides about a flow
 * @number:	Of the flow that was asked about, which may be forgotten
 * @copies:	How many there are if headers alone decide, else -1
 *
 * Return: the flow, if it is cached from now on
 */
struct flow *flow_cache_explained(struct fabric *f, const struct flow_key *key, uint32_t number, int copies)
{
	struct flow_cache *c = f->flow_cache;
	struct flow *flow = *find(c, key);

	if (flow && flow->number == number)
		tables_read(f, flow->sw); /* the rules that are told of: they may be new, and the flow forgotten */
	flow = *find(c, key);
	if (!flow || flow->number != number || flow->state != FLOW_ASKED)
		return NULL;
	flow->state = copies == flow->copies ? FLOW_CACHED : FLOW_UNCACHED;
	flow->alone = flow->copies == 1 && !flow->copy->rewritten ? flow->copy->port : 0;
	flow->ways = flow->sw->adaptive ? flow_ways(flow) : NULL;
	flow->left = c->sample;
	c->decided++;
	return flow->state == FLOW_CACHED ? flow : NULL;
}

/* flow_cache_count() - What has gone by the cache is counted for the rules */
void flow_cache_count(struct flow_cache *c)
{
	for (uint32_t i = 0; c->count && i < 1u << BUCKET_BITS; i++)
		for (struct flow *flow = c->bucket[i]; flow; flow = flow->next)
			rules_count(flow);
}

void flow_cache_free(struct fabric *f)
{
	struct flow_cache *c = f->flow_cache;

	if (!c)
		return;
	flow_cache_forget(f, NULL);
	trace_free(f);
	tables_unwatch(f);
	rules_free(c);
	if (c->folder >= 0)
		close(c->folder);
	free(c->bridge);
	free(c->bucket);
	free(c);
	f->flow_cache = NULL;
}
