/* The clock and the event loop
 *
 * Theory of Operation
 *
 * Virtual clock: emulated time jumps from event to event.  An event runs as
 * soon as nothing real can still put something before it:
 *  - a frame in Open vSwitch acts at its deadline, not before;
 *  - a worker that is running acts through its NIC's doorbell, so not before
 *    its own time + the cost of a post + the PCIe latency; only its CONNECT and
 *    SYNC act at its own time, so whoever waits for one wakes after it;
 *  - while the controller is being waited for, time stands still.
 * clock_limit() is the earliest of these; events strictly before it run, and
 * then the process sleeps until something real answers.
 *
 * Real clock: emulated time = wall time / dilation.  An event runs when it is
 * due, with its nominal time, so that lateness does not add up; how late it
 * ran is kept in a histogram.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>

#include "offload.h"

#define OVS_PATIENCE_NS 300000LL	/* then ask with a fence */
#define REAL_OVS_PATIENCE_NS 20000000LL
#define NAP_NS 100000000LL
#define BURST 4096

int64_t wall_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000000000LL + ts.tv_nsec;
}

/* clock_workers_changed() - Work out anew how far running workers let the clock go */
void clock_workers_changed(struct fabric *f)
{
	struct clock *c = &f->clock;

	c->workers = c->workers_now = PS_NEVER;
	if (c->mode == CLOCK_REAL)
		return;
	for (uint32_t i = 0; i < f->nic_count; i++) {
		const struct worker *w = &f->workers[i];
		ps_t acts = w->now + f->nics[i].p.post + f->nics[i].p.pcie_latency;
		if (w->state == WORKER_ABSENT && w->expected)
			c->workers = c->workers_now = 0;
		if (w->state == WORKER_RUNNING && acts < c->workers)
			c->workers = acts;
		if (w->state == WORKER_RUNNING && w->now < c->workers_now)
			c->workers_now = w->now;
	}
}

/* clock_limit() - Events before this time may run */
ps_t clock_limit(const struct fabric *f)
{
	const struct clock *c = &f->clock;

	if (c->mode == CLOCK_REAL)
		return clock_real_now(f) + 1;
	if (!c->started)
		return 0;
	ps_t limit = c->workers;
	if (f->ovs.head && f->ovs.head->deadline < limit)
		limit = f->ovs.head->deadline;
	if (c->hold_left && c->hold < limit)
		limit = c->hold;
	return limit;
}

void clock_start_real(struct fabric *f)
{
	f->clock.wall_start_ns = wall_ns();
	f->clock.started = true;
}

ps_t clock_real_now(const struct fabric *f)
{
	int64_t wall = wall_ns() - f->clock.wall_start_ns;

	return (ps_t)((__int128)wall * PS_PER_NS / f->clock.dilation);
}

/* clock_late() - Keep how late an event ran, in wall time: 16 buckets an octave */
void clock_late(struct fabric *f, int64_t late)
{
	struct clock *c = &f->clock;
	unsigned bucket = 0;

	if (late < 0)
		late = 0;
	if (late > c->lateness_max)
		c->lateness_max = late;
	if (late < 16) {
		bucket = (unsigned)late;
	} else {
		unsigned octave = 63 - (unsigned)__builtin_clzll((uint64_t)late);
		bucket = (octave - 3) * 16 + (unsigned)(late >> (octave - 4) & 15);
	}
	c->lateness[bucket < LATENESS_BUCKETS ? bucket : LATENESS_BUCKETS - 1]++;
	c->lateness_count++;
}

/* clock_lateness_ns() - Upper bound of the bucket in which that share of events lies */
int64_t clock_lateness_ns(const struct fabric *f, double quantile)
{
	const struct clock *c = &f->clock;
	uint64_t seen = 0;

	for (unsigned i = 0; i < LATENESS_BUCKETS; i++) {
		seen += c->lateness[i];
		if (seen && (double)seen >= quantile * (double)c->lateness_count)
			return i < 16 ? (int64_t)i : (int64_t)(17 + i % 16) << (i / 16 - 1);
	}
	return 0;
}

static void event_run(struct fabric *f, const struct event *e)
{
	if (event_kind(e) == EV_QP_TIMER && !qp_timer_set(e->a, e->t))
		return; /* everything was acknowledged: nothing happens, and no time passes */
	if (event_kind(e) == EV_WAKE && !worker_wakes(e->a, e->seq))
		return;
	if (event_kind(e) == EV_OFFLOAD && !offload_due(e->a, e->b, e->seq))
		return;
	if (f->sampler)
		sample_before(f, e->t);
	if (e->t > f->clock.now)
		f->clock.now = e->t;
	f->clock.events++;
	switch (event_kind(e)) {
	case EV_CABLE: cable_apply(f, e->a); break;
	case EV_ANNOUNCE: cable_announce(f, e->a); break;
	case EV_DOORBELL: worker_doorbell(f, e->a); break;
	case EV_FETCHED: {
		struct frame *fr = e->a;
		port_enqueue(f, fr->credit->port, fr);
		break;
	}
	case EV_HAND_OVER: ovs_hand_over(f, e->a); break;
	case EV_PORT_FREE: port_free(f, e->a); break;
	case EV_PAUSE_END: pfc_end(f, e->a, e->t); break;
	case EV_PAUSE_AGAIN: pfc_again(f, e->a); break;
	case EV_WATCHDOG: watchdog_look(f, e->a, (unsigned)e->b); break;
	case EV_PAUSE_ARRIVE:
	case EV_ARRIVE: {
		uint32_t node = (uint32_t)(e->key >> 32) & 0xffffff, port = (uint32_t)(e->key >> 16) & 0xffff;
		struct node *n = f->nodes[node];
		port_arrive(f, &n->ports[port - 1], e->a, (uint32_t)e->b);
		break;
	}
	case EV_FORWARD: {
		uint32_t node = (uint32_t)(e->key >> 32) & 0xffffff, port = (uint32_t)e->key & 0xffff;
		switch_forward(f, &f->nodes[node]->ports[port - 1], e->a);
		break;
	}
	case EV_NO_WAY: switch_no_way(f, e->a); break;
	case EV_DELIVER: {
		struct frame *fr = e->a;
		nic_receive(f, fr->to, fr, true);
		break;
	}
	case EV_QP_TIMER: qp_timer(f, e->a); break;
	case EV_OFFLOAD: offload_event(f, e->a, e->b, e->t, e->seq); break;
	case EV_GROUP: offload_ask(f, e->a); break;
	case EV_GROUP_OPEN: offload_open(f, e->a); break;
	case EV_GROUP_LEFT: offload_left(f, e->a); break;
	case EV_QP_SEND: pacer_event(f, e->a, e->t); break;
	case EV_RX_DRAINED: nic_drained(f, e->a); break;
	case EV_RECV_USABLE: qp_recv_usable(e->a, (uint32_t)e->b); break;
	case EV_FAULT_NOW:
	case EV_FAULT: fault_event(f, e->a, e->b); break;
	case EV_TRAFFIC: traffic_start(f, e->a); break;
	case EV_WAKE: worker_wake(f, e->a); break;
	}
}

/* Must the first event wait for room in, or an answer of, Open vSwitch? */
static bool held_up(const struct fabric *f, const struct event *e)
{
	enum event_kind kind = event_kind(e);

	if (kind == EV_HAND_OVER)
		return !ovs_room(f, ((const struct frame *)e->a)->way->in);
	if (kind == EV_WAKE)
		return worker_must_wait(f, e->a);
	if (kind == EV_FAULT && f->clock.workers_now <= e->t)
		return true; /* a worker may end before that */
	/* the controller's new rules must not meet frames from before */
	if ((kind == EV_GROUP || kind == EV_GROUP_LEFT) && f->clock.workers_now <= e->t && f->clock.mode == CLOCK_VIRTUAL)
		return true; /* another may call at the same time */
	return (kind == EV_ANNOUNCE || kind == EV_GROUP || kind == EV_GROUP_LEFT || kind == EV_FAULT || kind == EV_FAULT_NOW) && f->ovs.head && f->clock.mode == CLOCK_VIRTUAL;
}

/* fabric_step() - Run the events that may run, a burst at most
 * Return: whether any ran
 */
bool fabric_step(struct fabric *f)
{
	struct event e;
	int n = 0;

	bool real = f->clock.mode == CLOCK_REAL;
	ps_t real_limit = real ? clock_limit(f) : 0;
	for (; n < BURST && f->heap.n && !f->stop; n++) {
		const struct event *first = &f->heap.ev[0];
		ps_t limit = real ? real_limit : clock_limit(f);
		if (first->t >= limit || held_up(f, first))
			break;
		if (f->heap.n == f->heap.background && limit == PS_NEVER)
			break; /* pauses that are said again, and nothing else */
		event_pop(&f->heap, &e);
		if (real)
			clock_late(f, (int64_t)((__int128)(real_limit - 1 - e.t) * f->clock.dilation / PS_PER_NS));
		event_run(f, &e);
	}
	return n > 0;
}

/* fabric_idle() - Nothing is left that could happen by itself */
bool fabric_idle(const struct fabric *f)
{
	return f->heap.n == f->heap.background && !f->ovs.head && !f->clock.hold_left;
}

static void say_stalled(struct fabric *f)
{
	json_t *waiting = json_array();

	for (uint32_t i = 0; i < f->nic_count; i++) {
		struct worker *w = &f->workers[i];
		if (w->state == WORKER_RUNNING || (w->state == WORKER_ABSENT && w->expected)) {
			json_decref(waiting);
			return;
		}
		if (w->state == WORKER_WAITING) {
			char text[256];
			worker_waits_for(w, text, sizeof text);
			json_array_append_new(waiting, json_pack("{s:i, s:s}", "rank", (int)w->rank, "waits_for", text));
		}
	}
	if (json_array_size(waiting)) {
		f->stalled_said = true;
		control_event(f, "stalled", json_pack("{s:o}", "waiting", waiting));
	} else {
		json_decref(waiting);
	}
}

static void tick(struct fabric *f)
{
	int64_t now = wall_ns();

	if (now - f->clock.ticked_ns > NAP_NS / 2) {
		f->clock.ticked_ns = now;
		worker_look_after(f);
		clock_look_after(f);
	}
	if (fabric_idle(f) && f->clock.started) {
		control_idle(f);
		if (!f->stalled_said && f->clock.mode == CLOCK_VIRTUAL)
			say_stalled(f);
	}
}

/* How long to sleep when no event may run, in wall time */
static int64_t sleep_ns(const struct fabric *f)
{
	if (f->clock.mode == CLOCK_REAL) {
		int64_t ns = NAP_NS;
		if (f->heap.n) {
			ps_t ahead = f->heap.ev[0].t - clock_real_now(f);
			if (ahead <= 0)
				ns = held_up(f, &f->heap.ev[0]) ? OVS_PATIENCE_NS : 0;
			else if (ahead < NAP_NS / f->clock.dilation * PS_PER_NS + PS_PER_NS)
				ns = (int64_t)((__int128)ahead * f->clock.dilation / PS_PER_NS);
		}
		return f->ovs.head && ns > REAL_OVS_PATIENCE_NS ? REAL_OVS_PATIENCE_NS : ns;
	}
	return f->ovs.head && !f->ovs.fence_round ? OVS_PATIENCE_NS : NAP_NS;
}

/* Has a frame been in Open vSwitch for so long that a fence should ask? */
static bool ask_ovs(const struct fabric *f, bool silence)
{
	const struct pending *p = f->ovs.head;

	if (!p)
		return false;
	if (p->many && p->copies == 0)
		return silence;
	if (f->clock.mode == CLOCK_VIRTUAL)
		return silence || p->many;
	return (clock_real_now(f) - p->frame->way->t_in) / PS_PER_NS * f->clock.dilation > REAL_OVS_PATIENCE_NS || p->many;
}

/* fabric_run() - The event loop: until a stop is asked for */
void fabric_run(struct fabric *f)
{
	while (!f->stop) {
		bool ran = fabric_step(f);
		if (ran && f->heap.n && f->heap.ev[0].t < clock_limit(f) && !held_up(f, &f->heap.ev[0])) {
			watch_dispatch(f, 0); /* a long burst: look up now and then */
			continue;
		}
		tick(f);
		int heard = watch_dispatch(f, sleep_ns(f));
		if (ask_ovs(f, heard == 0))
			ovs_tick(f);
	}
}
