/* Which of several ports a frame takes
 *
 * Theory of Operation
 *
 * Open vSwitch has said by which ports a frame may leave, and how much each of them weighs; the chip takes one, when
 * the frame has gone through the pipeline, by what then stands in the queues.
 *
 * What is compared is time: until the frame, behind all that is queued at a port and on its way out of it, is on the
 * cable.  A port that weighs less than others leads to where less fits through, which its own queue does not show.  So
 * what it has been given counts until it would be through at that share of the heaviest port's rate.  Other switches send
 * there, too, so of what its set is given it gets no more than its share by weight: what it had beyond that has to be made
 * good first.  A chip may see less of that (`quality`): when a frame asks, and its last look is so long ago, it looks at all
 * its ports, and keeps in how many such times each will have drained, up to a number of bands.
 *
 * Frames of a flow may keep their port as long as none comes later than `gap` after the one before (flowlets: Sinha,
 * Kandula, Katabi, HotNets 2004; CONGA, SIGCOMM 2014).  The table has no keys: flows that meet in an entry are one.
 *
 * A port whose cable is down is passed over, at once; or not until the controller has said so.
 *
 * Draws follow from the switch and the frame, so that they are the same whichever way the frame came (random.h).
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "engine/event.h"
#include "engine/fabric.h"
#include "link/frame.h"
#include "link/port.h"
#include "link/ways.h"
#include "switch/adaptive.h"
#include "switch/choice.h"
#include "switch/ovs.h"
#include "switch/switch.h"

#define OVER_ITS_SHARE 1e18 /* ps: no queue takes so long */

struct flowlet {
	ps_t last;
	uint16_t port; /* 0: none yet */
};

/* What it knows of a port's queue */
struct seen {
	bool kept;    /* it is out of order: this is what it was, then */
	ps_t then;
	double drain; /* as drain() has it */
	uint8_t band;
};

struct adaptive {
	struct flowlet *flowlet;
	uint32_t flowlets;
	bool stale;  /* one of its ports is out of order */
	bool looked; /* at its ports, then */
	ps_t then;
	struct pick_memory memory;
	struct seen port[];
};

/* Until all that is at a port, and so many bytes more, are on the cable */
static double drain(const struct fabric *f, const struct port *p, uint32_t more)
{
	ps_t left = p->busy_until > f->clock.now ? p->busy_until - f->clock.now : 0;

	if (!p->cable)
		return 0;
	return (double)left + (double)(p->queued_bytes + more) * 8 * (double)PS_PER_S / (double)p->cable->p.rate_bps;
}

/* What is seen of that now.  Of a port that is out of order (`stale`) it is looked at seldom, or never again */
static double sees(const struct fabric *f, const struct sw *s, const struct port *p, uint32_t more)
{
	struct seen *x = &s->adaptive->port[p->number - 1];

	if (!s->adaptive->stale || !p->p.stale)
		return drain(f, p, more);
	if (!x->kept || f->clock.now - x->then >= p->p.stale) {
		x->kept = true;
		x->then = f->clock.now;
		x->drain = drain(f, p, 0);
	}
	return x->drain;
}

/* adaptive_reconfigured() - A port may be out of order from now on, or in order again */
void adaptive_reconfigured(struct sw *s, const struct port *p)
{
	if (!s->adaptive)
		return;
	if (!p->p.stale)
		s->adaptive->port[p->number - 1].kept = false;
	s->adaptive->stale = false;
	PORTS_EACH(&s->n, any)
		s->adaptive->stale |= any->p.stale != 0;
}

/* Does it see queues in bands?  Faults that were laid over each other may have left bands without their time */
static bool sees_bands(const struct adaptive_params *a)
{
	return a->bands && a->every;
}

/* Unless the last look is recent enough */
static void look(const struct fabric *f, struct sw *s)
{
	const struct adaptive_params *a = &s->p.adaptive;

	if (s->adaptive->looked && f->clock.now - s->adaptive->then < a->every)
		return;
	s->adaptive->looked = true;
	s->adaptive->then = f->clock.now;
	PORTS_EACH(&s->n, p) {
		double bands = sees(f, s, p, 0) / (double)a->every;
		s->adaptive->port[p->number - 1].band = bands < a->bands - 1 ? (uint8_t)bands : (uint8_t)(a->bands - 1);
	}
}

/* How long the frame takes through what lies behind a way's port, by its weight; 0: no longer than out of the port */
static ps_t through(const struct choice *c, const struct way *w)
{
	const struct way *most = &c->ways->way[c->ways->heaviest];
	const struct port *p = &c->s->n.ports[most->port - 1];

	if (w->weight == most->weight || !p->cable)
		return 0;
	return (ps_t)((double)c->fr->len * 8 * (double)PS_PER_S / (double)p->cable->p.rate_bps * most->weight / w->weight);
}

/* The set is given the frame, by this way */
static void give(const struct choice *c, struct way *w)
{
	struct ways *ways = c->ways;
	ps_t now = c->f->clock.now;

	w->busy_until = (w->busy_until > now ? w->busy_until : now) + through(c, w);
	if (w->weight < ways->way[ways->heaviest].weight)
		w->next = (w->next > ways->given ? w->next : ways->given) + (uint64_t)c->fr->len * ways->copies / w->weight;
	ways->given += c->fr->len;
}

/* choice_load() - How bad a way is: worse than any queue, if it has had more than its share */
double choice_load(const struct choice *c, uint16_t way)
{
	const struct adaptive_params *a = &c->s->p.adaptive;
	const struct way *w = &c->ways->way[way];
	ps_t now = c->f->clock.now, behind = w->busy_until > now ? w->busy_until - now : 0;

	if (w->next > c->ways->given)
		return OVER_ITS_SHARE + (double)(w->next - c->ways->given);
	if (sees_bands(a)) {
		ps_t band = c->s->adaptive->port[w->port - 1].band, further = behind / a->every;
		return (double)(band > further ? band : further < a->bands ? further : a->bands - 1);
	}
	return fmax(sees(c->f, c->s, &c->s->n.ports[w->port - 1], c->fr->len), (double)(behind + through(c, w)));
}

/* choice_memory() - What is remembered of the switch */
struct pick_memory *choice_memory(const struct choice *c)
{
	return &c->s->adaptive->memory;
}

static struct way *take(const struct choice *c)
{
	const struct adaptive_params *p = &c->s->p.adaptive;
	struct way *way = NULL;

	if (sees_bands(p))
		look(c->f, c->s);
	if (!p->flowlet_gap || !c->s->adaptive->flowlets)
		return &c->ways->way[p->policy->pick(c)];
	struct flowlet *let = &c->s->adaptive->flowlet[choice_flow(c->fr) % c->s->adaptive->flowlets];
	if (let->port && c->f->clock.now - let->last <= p->flowlet_gap)
		way = ways_find(c->ways, let->port);
	if (!way)
		way = &c->ways->way[p->policy->pick(c)];
	*let = (struct flowlet){.last = c->f->clock.now, .port = way->port};
	return way;
}

/* adaptive_forward() - A frame leaves the pipeline for one of these ports */
void adaptive_forward(struct fabric *f, struct sw *s, struct ways *ways, struct frame *fr)
{
	if (fr->passage && fr->passage->lost) {
		ways_drop(ways);
		frame_release(f, fr);
		return;
	}
	struct ways *left = s->p.adaptive.local_repair ? ways_alive(f, &s->n, ways) : ways;
	uint64_t draw = random_of(f->seed, s->n.index, fr->id, RANDOM_PORT);
	struct choice c = {.f = f, .s = s, .ways = left, .fr = fr, .draw = draw};
	struct way *way = left->count == 1 || !s->p.adaptive.policy ? left->way : take(&c); /* no policy: it is stuck */
	struct port *out = &s->n.ports[way->port - 1];

	give(&c, way);
	out->picks++;
	ways->way[left == ways ? way - ways->way : way->whole].picks++;
	ways_taken(ways);
	ways_drop(ways);
	switch_forward(f, out, fr);
}

static int ascending(const void *a, const void *b)
{
	return *(const uint16_t *)a - *(const uint16_t *)b;
}

/* adaptive_came() - All copies of a frame have come out of Open vSwitch: one leaves, if they are alike, otherwise each */
void adaptive_came(struct fabric *f, struct pending *p)
{
	ps_t t = p->deadline > f->clock.now ? p->deadline : f->clock.now;
	uint16_t ports[WAYS_MAX], n = 0;
	bool alike = true;

	for (const struct frame *fr = p->came; fr && alike; fr = fr->next) {
		alike = n < WAYS_MAX && fr->len == p->came->len && !memcmp(fr->data, p->came->data, fr->len);
		if (alike)
			ports[n++] = fr->to->number;
	}
	qsort(ports, n, sizeof *ports, ascending);
	struct node *sw = p->in->node;
	struct ways *ways = alike && n > 1 ? ways_of(sw, ports, n) : NULL;
	for (struct frame *fr = p->came, *next; fr; fr = next) {
		struct port *out = fr->to;
		next = fr->next;
		fr->to = NULL;
		if (!ways || !next)
			event_add(f, t, EV_FORWARD, sw->index, p->in->number, ways ? 0 : out->number, fr->id, fr, (uintptr_t)ways_name(ways));
		else
			frame_release(f, fr);
	}
	p->came = NULL;
}

/* adaptive_init() - A switch that takes one of several ports */
void adaptive_init(struct sw *s)
{
	struct adaptive *a;

	if (!s->base.adaptive.policy)
		return;
	s->n.adaptive = true;
	if (!(s->adaptive = a = calloc(1, sizeof *a + s->n.port_count * sizeof *a->port)))
		abort();
	a->flowlets = s->base.adaptive.flowlet_entries;
	if (a->flowlets && !(a->flowlet = calloc(a->flowlets, sizeof *a->flowlet)))
		abort();
}

/* adaptive_forget() - Nothing has come through it yet, as far as later choices are concerned */
void adaptive_forget(struct sw *s)
{
	for (struct ways *w = s->n.ways; w; w = w->next)
		ways_rest(w);
	if (!s->adaptive)
		return;
	s->adaptive->looked = false;
	PORTS_EACH(&s->n, p)
		s->adaptive->port[p->number - 1].kept = false;
	pick_forget(&s->adaptive->memory);
	for (uint32_t i = 0; i < s->adaptive->flowlets; i++)
		s->adaptive->flowlet[i] = (struct flowlet){0};
}

void adaptive_free(struct adaptive *a)
{
	if (a) {
		pick_forget(&a->memory);
		free(a->flowlet);
	}
	free(a);
}
