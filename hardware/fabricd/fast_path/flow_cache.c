/* The fast path
 *
 * Theory of Operation
 *
 * As in a switch's chip, a flow's first frames take the slow path, through Open
 * vSwitch, and the others go by a cache of what it decided: for all frames that are
 * alike in what it looked at (megaflows.c) the ports, and what changes in each copy's
 * headers.  The cache is asked when a frame
 * starts on its cable, as Open vSwitch would be, and what it says happens at the
 * same emulated time: no figure depends on which way a frame went.
 *
 * A flow is cached when a frame has shown what happens, Open vSwitch has said that
 * nothing but headers decides (learning.c, trace.c), and whoever changes that switch's
 * tables will be heard of (tables_watch.c).
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

/* flow_cache_key() - The key of a frame that is on its way to a switch
 * Return: false if it has none
 */
bool flow_cache_key(struct flow_key *key, const struct port *in, const struct frame *fr)
{
	bool known = flow_key_of(key, fr->data, frame_near(fr));

	key->sw = (uint16_t)in->node->index;
	key->port = in->number;
	return known;
}

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
	megaflows_open(&c->flows);
	c->bridge = calloc(switches + 1, sizeof *c->bridge);
	c->looked = calloc(switches + 1, sizeof *c->looked);
	if (!c->bridge || !c->looked)
		abort();
	return c;
}

/* flow_cache_forget() - The tables of a switch may be others from now on; NULL: of all */
void flow_cache_forget(struct fabric *f, const struct node *sw)
{
	struct flow_cache *c = f->flow_cache;

	c->epoch++;
	c->decided++;
	c->forgotten += c->flows.count != 0;
	megaflows_forget(&c->flows, sw);
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

/* flow_copy_of() - A copy of a frame that is on its way to a switch, as it will leave it
 * @key:	Of the frame
 * @mask:	The bits of it that the copy's headers replace
 */
struct frame *flow_copy_of(struct fabric *f, struct frame *fr, const struct flow_key *key, const struct flow_copy *copy,
			   const struct flow_key *mask)
{
	struct frame *out = frame_twin(f, fr);

	if (copy->rewritten) {
		struct flow_key headers = *key;
		flow_key_overlay(&headers, &copy->headers, mask);
		if (!flow_key_same_packet(key, &headers))
			frame_whole(f, out); /* with the ICRC of what it was */
		out->len = out->away + (uint32_t)flow_key_rewrite(&headers, out->data, frame_near(out));
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

/* flow_cache_awaits() - Is something awaited from Open vSwitch before a frame may go by the cache, teach it, or go in?
 * @flow:	Set to the flow that is being decided about; or NULL: the switch is not watched yet, or what Open vSwitch
 *		has cached is not forgotten yet
 */
bool flow_cache_awaits(struct fabric *f, const struct port *in, const struct frame *fr, struct flow **flow)
{
	struct flow_key key;

	*flow = NULL;
	if (f->flow_cache->purges)
		return true;
	if (!flow_cache_key(&key, in, fr) || flow_key_has_checksum(&key, fr->data))
		return false;
	if (megaflows_find(&f->flow_cache->flows, &key))
		return false;
	*flow = megaflows_undecided(&f->flow_cache->flows, &key);
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

	if (!c->flows.count || !flow_cache_key(&key, in, fr))
		return NULL;
	struct flow *flow = megaflows_find(&c->flows, &key);
	if (!flow || flow->state != FLOW_CACHED || flow_key_has_checksum(&key, fr->data))
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
		struct frame *out = flow->as_it_is ? fr : flow_copy_of(f, fr, &key, flow->copy, &c->flows.mask[flow->mask].bits);
		event_add(f, t, EV_FORWARD, in->node->index, in->number, 0, fr->id, out, (uintptr_t)ways_name(flow->ways));
		if (out != fr)
			frame_release(f, fr);
		return flow;
	}
	for (uint16_t i = 0; i < flow->copies; i++) {
		const struct flow_copy *copy = &flow->copy[i];
		struct frame *out = fr;
		if (copy->rewritten || shared)
			out = flow_copy_of(f, fr, &key, copy, &c->flows.mask[flow->mask].bits);
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

/* flow_cache_count() - What has gone by the cache is counted for the rules */
void flow_cache_count(struct flow_cache *c)
{
	megaflows_each(&c->flows, rules_count);
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
	megaflows_close(&c->flows);
	free(c->bridge);
	free(c->looked);
	free(c);
	f->flow_cache = NULL;
}
