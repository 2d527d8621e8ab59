/* The event loop
 *
 * Theory of Operation
 *
 * Virtual clock: emulated time jumps from event to event.  An event runs as
 * soon as nothing real can still put something before it:
 *  - a frame in Open vSwitch acts at its deadline, not before;
 *  - a worker that is running acts through its NIC's doorbell, so not before
 *    its own time + the cost of a post + the PCIe latency; only its CONNECT and
 *    SYNC act at its own time, so whoever waits for one wakes after it;
 *  - while the controller is being waited for, time stands still;
 *  - how far the clock goes at all may have been asked for (control/until.c).
 * clock_limit() is the earliest of these; events strictly before it run, and
 * then the process sleeps until something real answers.
 *
 * Real clock: emulated time = wall time / dilation.  An event runs when it is
 * due, with its nominal time, so that lateness does not add up; how late it
 * ran is kept in a histogram.
 */
#include <sys/epoll.h>
#include <time.h>

#include "base/copies.h"
#include "base/units.h"
#include "base/wall.h"
#include "cc/puller.h"
#include "control/control.h"
#include "control/sample.h"
#include "engine/clock.h"
#include "engine/event.h"
#include "engine/fabric.h"
#include "engine/report.h"
#include "engine/watch.h"
#include "fast_path/flow_cache.h"
#include "fault/fault.h"
#include "link/cable.h"
#include "link/credits.h"
#include "link/frame.h"
#include "link/notes.h"
#include "link/pfc.h"
#include "link/port.h"
#include "link/retry.h"
#include "loop.h"
#include "near.h"
#include "nic/nic.h"
#include "offload/offload.h"
#include "switch/ovs.h"
#include "switch/switch.h"
#include "transport/pacer.h"
#include "transport/qp.h"
#include "worker/worker.h"

#define OVS_PATIENCE_NS 300000LL	/* then ask with a fence */
#define REAL_OVS_PATIENCE_NS 20000000LL
#define NAP_NS 100000000LL
#define BURST 4096

/* clock_limit() - Events before this time may run */
static ps_t clock_limit(const struct fabric *f)
{
	const struct clock *c = &f->clock;

	if (c->mode == CLOCK_REAL)
		return clock_real_now(f) + 1;
	if (!c->started || ovs_checks_late(f->ovs))
		return 0;
	ps_t limit = c->workers;
	if (f->ovs->head && f->ovs->head->deadline < limit)
		limit = f->ovs->head->deadline;
	if (c->bounded && c->until < limit)
		limit = c->until + 1; /* what happens at that time does */
	if (c->hold_left && c->hold < limit)
		limit = c->hold;
	return limit;
}

/* What happens when an event's time has come.  The type of its object stands here and nowhere else */
#define ON(name, type, call)                                          \
	static void name(struct fabric *f, const struct event *e)     \
	{                                                             \
		type *x = e->a;                                       \
		call;                                                 \
	}

ON(fault_goes, struct fault, fault_event(f, x, e->b))
ON(flow_starts, struct generated, traffic_start(f, x))
ON(cable_changes, struct change, cable_apply(f, x))
ON(controller_learns, struct change, cable_announce(f, x))
ON(member_left, struct member, offload_left(f, x))
ON(group_called, struct group, offload_ask(f, x))
ON(group_opens, struct group, offload_open(f, x))
ON(doorbell, struct post, worker_doorbell(f, x))
ON(fetched, struct frame, nic_fetched(f, x))
ON(hand_over, struct frame, switch_decide(f, x))
ON(port_idle, struct port, port_became_idle(f, x))
ON(pause_ends, struct port, pfc_end(f, x, e->t))
ON(pause_refresh, struct port, pfc_refresh(f, x))
ON(arrives, struct frame, port_arrive(f, &f->nodes[event_node(e)]->ports[event_port(e) - 1], x, (uint32_t)e->b))
ON(credits_look_again, struct port, credits_event(f, x, e->b))
ON(credits_are_free, struct port, credits_free(f, x, event_other(e), (uint32_t)e->b))
ON(note, struct port, notes_receive(f, x, event_other(e), e->b, (uint32_t)(e->seq >> 32)))
ON(damaged, struct port, retry_damaged(f, x, (uint32_t)e->b))
ON(forward, struct frame, switch_leave(f, (struct sw *)f->nodes[event_node(e)], event_other(e), (struct ways *)(uintptr_t)e->b, x))
ON(forwarding_drop, struct frame, switch_forwarding_drop(f, x))
ON(deliver, struct frame, nic_receive(f, (struct nic *)x->to->node, x, true))
ON(watchdog, struct port, watchdog_look(f, x, (unsigned)e->b))
ON(timer, struct qp, qp_timer(f, x))
ON(pacer, struct qp, pacer_event(f, x, e->t))
ON(pull, struct nic, puller_event(f, x))
ON(offload, struct nic, offload_event(f, x, e->b, e->t, e->seq))
ON(drained, struct nic, nic_drained(f, x))
ON(recv_usable, struct qp, (void)f; qp_recv_usable(x, (uint32_t)e->b))
ON(wakes, struct worker, worker_wake(f, x))

/* Does an event still matter?  If not nothing happens, and no time passes */
static bool timer_due(const struct event *e)
{
	return qp_timer_set(e->a, e->t);
}

static bool wake_due(const struct event *e)
{
	return worker_wakes(e->a, e->seq);
}

static bool offload_matters(const struct event *e)
{
	return offload_due(e->a, e->b, e->seq);
}

/* Healed before its time */
static bool fault_due(const struct event *e)
{
	return !((const struct fault *)e->a)->healed;
}

/* Must an event wait for room in, or an answer of, Open vSwitch, or for a worker that may act before it? */
static bool no_room(const struct fabric *f, const struct event *e)
{
	return !ovs_room(f, ((const struct frame *)e->a)->passage->in);
}

static bool wake_waits(const struct fabric *f, const struct event *e)
{
	return wake_due(e) && worker_must_wait(f, e->a); /* one that has been planned anew may wait for ever */
}

/* The controller's new rules must not meet frames from before */
static bool frames_out(const struct fabric *f, const struct event *e)
{
	(void)e;
	return f->ovs->head && f->clock.mode == CLOCK_VIRTUAL;
}

/* A worker that runs may make a queue pair before that: their numbers decide on paths */
static bool workers_out(const struct fabric *f, const struct event *e)
{
	return f->clock.workers_now <= e->t;
}

/* And another worker may call at the same time */
static bool calls_out(const struct fabric *f, const struct event *e)
{
	return f->clock.mode == CLOCK_VIRTUAL && (workers_out(f, e) || f->ovs->head);
}

/* And a worker may end before that */
static bool fault_waits(const struct fabric *f, const struct event *e)
{
	return workers_out(f, e) || frames_out(f, e);
}

/* All kinds of events: a new one gets a line here and a place in `enum event_kind` */
static const struct event_type {
	void (*run)(struct fabric *f, const struct event *e);
	bool (*due)(const struct event *e);			     /* NULL: always */
	bool (*waits)(const struct fabric *f, const struct event *e); /* NULL: never */
} events[EVENT_KINDS] = {
	[EV_FAULT_NOW] = {fault_goes, fault_due, frames_out},
	[EV_FAULT] = {fault_goes, fault_due, fault_waits},
	[EV_TRAFFIC] = {flow_starts, NULL, workers_out},
	[EV_CABLE] = {cable_changes, NULL, NULL},
	[EV_ANNOUNCE] = {controller_learns, NULL, frames_out},
	[EV_GROUP_LEFT] = {member_left, NULL, calls_out},
	[EV_GROUP] = {group_called, NULL, calls_out},
	[EV_GROUP_OPEN] = {group_opens, NULL, NULL},
	[EV_DOORBELL] = {doorbell, NULL, NULL},
	[EV_FETCHED] = {fetched, NULL, NULL},
	[EV_HAND_OVER] = {hand_over, NULL, no_room},
	[EV_PORT_FREE] = {port_idle, NULL, NULL},
	[EV_PAUSE_END] = {pause_ends, NULL, NULL},
	[EV_PAUSE_REFRESH] = {pause_refresh, NULL, NULL},
	[EV_ARRIVE] = {arrives, NULL, NULL},
	[EV_PAUSE_ARRIVE] = {arrives, NULL, NULL},
	[EV_DAMAGED] = {damaged, NULL, NULL},
	[EV_NOTE] = {note, NULL, NULL},
	[EV_CREDITS_FREE] = {credits_are_free, NULL, NULL},
	[EV_CREDITS] = {credits_look_again, NULL, NULL},
	[EV_FORWARD] = {forward, NULL, NULL},
	[EV_FORWARDING_DROP] = {forwarding_drop, NULL, NULL},
	[EV_DELIVER] = {deliver, NULL, NULL},
	[EV_WATCHDOG] = {watchdog, NULL, NULL},
	[EV_QP_TIMER] = {timer, timer_due, NULL},
	[EV_QP_SEND] = {pacer, NULL, NULL},
	[EV_PULL] = {pull, NULL, NULL},
	[EV_OFFLOAD] = {offload, offload_matters, NULL},
	[EV_RX_DRAINED] = {drained, NULL, NULL},
	[EV_RECV_USABLE] = {recv_usable, NULL, NULL},
	[EV_WAKE] = {wakes, wake_due, wake_waits},
};

static void event_run(struct fabric *f, const struct event *e)
{
	const struct event_type *type = &events[event_kind(e)];

	if (type->due && !type->due(e))
		return;
	if (f->sampler)
		sample_before(f, e->t);
	if (e->t > f->clock.now)
		f->clock.now = e->t;
	f->clock.events++;
	ahead_step(&f->ahead);
	type->run(f, e);
}

static bool must_wait(const struct fabric *f, const struct event *e)
{
	const struct event_type *type = &events[event_kind(e)];

	return type->waits && type->waits(f, e);
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
		const struct event *first = event_first(&f->heap);
		ps_t limit = real ? real_limit : clock_limit(f);
		if (first->t >= limit || must_wait(f, first))
			break;
		if (f->heap.n == f->heap.background && limit == PS_NEVER)
			break; /* XOFF that is sent again, and nothing else */
		event_pop(&f->heap, &e);
		if (real)
			clock_late(f, (int64_t)((__int128)(real_limit - 1 - e.t) * f->clock.dilation / PS_PER_NS));
		near_what_is_next(f);
		event_run(f, &e);
	}
	return n > 0;
}


static void dispatch(struct fabric *f, const struct epoll_event *ev)
{
	void *object = (void *)(uintptr_t)(ev->data.u64 & ~7ull);

	switch ((enum watch)(ev->data.u64 & 7)) {
	case WATCH_TAP: ovs_readable(f, object); break;
	case WATCH_FENCE: ovs_fence_readable(f); break;
	case WATCH_NETDEV: nic_netdev_readable(f, object); break;
	case WATCH_READER: ((struct reader *)object)->readable(f, object); break;
	case WATCH_WORKER_LISTEN: worker_accept(f, object); break;
	case WATCH_WORKER: worker_readable(f, object); break;
	case WATCH_CONTROL_LISTEN: control_accept(f); break;
	case WATCH_CONTROL:
		copies_settle();
		if (ev->events & EPOLLOUT)
			control_writable(f, object);
		if (ev->events & (EPOLLIN | EPOLLHUP | EPOLLERR))
			control_readable(f, object);
		break;
	}
}

/* watch_dispatch() - Sleep until something is heard, and handle it
 * @timeout_ns:	Sleep no longer
 *
 * Return: how many descriptors were ready
 */
static int watch_dispatch(struct fabric *f, int64_t timeout_ns)
{
	struct epoll_event ev[128];
	if (timeout_ns)
		copies_settle(); /* nothing else is to be done, and somebody may look */
	struct timespec ts = {.tv_sec = timeout_ns / 1000000000, .tv_nsec = timeout_ns % 1000000000};
	int n = epoll_pwait2(f->epoll_fd, ev, 128, &ts, NULL);

	if (f->clock.mode == CLOCK_REAL && n > 0) {
		fabric_step(f); /* what was due before it was heard */
		ps_t now = clock_real_now(f);
		if (now > f->clock.now && (!f->heap.n || event_first(&f->heap)->t >= now))
			f->clock.now = now;
	}
	for (int i = 0; i < n; i++)
		dispatch(f, &ev[i]);
	control_sweep(f);
	programs_sweep(f);
	control_carried_out(f);
	return n;
}

static void say_stalled(struct fabric *f)
{
	if (f->clock.workers_now != PS_NEVER)
		return; /* somebody runs, holds, or is expected */
	json_t *waiting = json_array();

	SESSIONS_EACH(f, w) {
		if (w->state == WORKER_WAITING) {
			char text[256];
			worker_waits_for(w, text, sizeof text);
			json_array_append_new(waiting, json_pack("{s:i, s:s}", "rank", (int)w->rank, "waits_for", text));
		}
	}
	if (json_array_size(waiting)) {
		f->stalled_reported = true;
		report_event(f, REPORT_STALLED, json_pack("{s:o}", "waiting", waiting));
	} else {
		json_decref(waiting);
	}
}

static void tick(struct fabric *f)
{
	int64_t now = wall_ns();

	if (now - f->clock.ticked_ns > NAP_NS / 2) {
		f->clock.ticked_ns = now;
		if (!until_rests(f)) {
			worker_look_after(f);
			clock_look_after(f);
		}
	}
	if (fabric_idle(f) && f->clock.started) {
		control_idle(f);
		if (!f->stalled_reported && f->clock.mode == CLOCK_VIRTUAL)
			say_stalled(f);
	}
	until_look(f);
}

/* How long to sleep when no event may run, in wall time */
static int64_t sleep_ns(struct fabric *f)
{
	if (f->clock.mode == CLOCK_REAL) {
		int64_t ns = NAP_NS;
		if (f->heap.n) {
			ps_t ahead = event_first(&f->heap)->t - clock_real_now(f);
			if (ahead <= 0)
				ns = must_wait(f, event_first(&f->heap)) ? OVS_PATIENCE_NS : 0;
			else if (ahead < NAP_NS / f->clock.dilation * PS_PER_NS + PS_PER_NS)
				ns = (int64_t)((__int128)ahead * f->clock.dilation / PS_PER_NS);
		}
		return f->ovs->head && ns > REAL_OVS_PATIENCE_NS ? REAL_OVS_PATIENCE_NS : ns;
	}
	return f->ovs->inside && !f->ovs->fence_round ? OVS_PATIENCE_NS : NAP_NS;
}

/* Has a frame been in Open vSwitch for so long that a fence should ask? */
static bool ask_ovs(const struct fabric *f, bool silence)
{
	const struct pending *p = f->ovs->head;

	if (!f->ovs->inside)
		return false;
	if (p->multicast && p->copies == 0)
		return silence;
	if (f->clock.mode == CLOCK_VIRTUAL || p->deadline == PS_NEVER)
		return silence || p->multicast;
	return (clock_real_now(f) - p->frame->passage->t_in) / PS_PER_NS * f->clock.dilation > REAL_OVS_PATIENCE_NS || p->multicast;
}

/* fabric_run() - The event loop: until a stop is asked for */
void fabric_run(struct fabric *f)
{
	while (!f->stop) {
		ovs_let_go(f);
		bool ran = fabric_step(f);
		ovs_stepped(f);
		if (ran && f->heap.n && event_first(&f->heap)->t < clock_limit(f) && !must_wait(f, event_first(&f->heap))) {
			watch_dispatch(f, 0); /* a long burst: look up now and then */
			continue;
		}
		tick(f);
		int heard = watch_dispatch(f, sleep_ns(f));
		if (ask_ovs(f, heard == 0))
			ovs_tick(f);
	}
}
