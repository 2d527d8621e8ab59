/* What happens when an event's time has come: all kinds of events
 *
 * Theory of Operation
 *
 * Each kind has a function, and may have a condition: some events no longer matter when their time has come, and some have to
 * wait for Open vSwitch, for room in it, or for a worker that may act before them.
 */
#include "base/units.h"
#include "cc/puller.h"
#include "engine/event.h"
#include "engine/fabric.h"
#include "fault/fault.h"
#include "happen.h"
#include "link/cable.h"
#include "link/credits.h"
#include "link/frame.h"
#include "link/notes.h"
#include "link/pfc.h"
#include "link/port.h"
#include "link/retry.h"
#include "nic/nic.h"
#include "offload/offload.h"
#include "switch/ovs.h"
#include "switch/switch.h"
#include "transport/pacer.h"
#include "transport/qp.h"
#include "worker/worker.h"

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
const struct event_type event_types[EVENT_KINDS] = {
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

/* event_may_wait() - May it have to, by what others do that is not known yet? */
bool event_may_wait(const struct event *e)
{
	return event_kind(e) == EV_WAKE ? wake_due(e) && worker_hears(e->a) : event_types[event_kind(e)].waits != NULL;
}
