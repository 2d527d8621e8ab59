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
#include "control/control.h"
#include "engine/clock.h"
#include "engine/division.h"
#include "engine/event.h"
#include "engine/fabric.h"
#include "engine/report.h"
#include "engine/watch.h"
#include "happen.h"
#include "link/frame.h"
#include "loop.h"
#include "near.h"
#include "nic/nic.h"
#include "switch/ovs.h"
#include "windows.h"
#include "worker/worker.h"

#define OVS_PATIENCE_NS 300000LL	/* then ask with a fence */
#define REAL_OVS_PATIENCE_NS 20000000LL
#define NAP_NS 100000000LL
#define BURST 4096

/* clock_limit() - Events before this time may run */
ps_t clock_limit(const struct fabric *f)
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

/* fabric_step() - Run the events that may run, a burst at most
 * Return: whether any ran
 */
bool fabric_step(struct fabric *f)
{
	struct event e;
	int n = 0;

	if (windows_wanted(f))
		return windows_step(f, BURST);
	bool real = f->clock.mode == CLOCK_REAL;
	ps_t real_limit = real ? clock_limit(f) : 0;
	for (; n < BURST && f->heap.n && !f->stop; n++) {
		const struct event *first = event_first(&f->heap);
		ps_t limit = real ? real_limit : clock_limit(f);
		if (first->t >= limit || event_must_wait(f, first))
			break;
		if (f->heap.n == f->heap.background && limit == PS_NEVER)
			break; /* XOFF that is sent again, and nothing else */
		event_pop(&f->heap, &e);
		if (real)
			clock_late(f, (int64_t)((__int128)(real_limit - 1 - e.t) * f->clock.dilation / PS_PER_NS));
		near_what_is_next(f, &f->heap);
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
		division_changed(f);
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
		if (now > f->clock.now && (!f->heap.n || event_first(&f->heap)->t >= now)) /* it is never divided */
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
	struct heap *from;

	if (f->clock.mode == CLOCK_REAL) {
		int64_t ns = NAP_NS;
		const struct event *next = event_next(f, &from);
		if (next) {
			ps_t ahead = next->t - clock_real_now(f);
			if (ahead <= 0)
				ns = event_must_wait(f, next) ? OVS_PATIENCE_NS : 0;
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
	struct heap *from;

	while (!f->stop) {
		ovs_let_go(f);
		bool ran = fabric_step(f);
		ovs_stepped(f);
		const struct event *next = ran ? event_next(f, &from) : NULL;
		if (next && next->t < clock_limit(f) && !event_must_wait(f, next)) {
			watch_dispatch(f, 0); /* a long burst: look up now and then */
			continue;
		}
		tick(f);
		int heard = watch_dispatch(f, sleep_ns(f));
		if (ask_ovs(f, heard == 0))
			ovs_tick(f);
	}
}
