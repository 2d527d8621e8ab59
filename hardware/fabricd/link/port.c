/* Ports
 *
 * Theory of Operation
 *
 * A port has one queue per class (scheduler.c says which is served next).  A frame
 * occupies the cable for (frame + FCS + preamble and gap) at the cable's rate
 * and arrives, last bit, a cable delay later: store and forward.  A port that
 * runs empty leaves no event behind; the next frame looks at busy_until.
 *
 * A switch's queues share its buffer (switch/buffer.c).  A NIC's queues are bounded
 * by its transmit buffer (nic/nic.c), which is told as soon as a frame starts on the
 * cable.
 *
 * The scale-up port of a NIC is a port whose far end is chosen for each frame.
 */
#include "base/units.h"
#include "engine/event.h"
#include "engine/fabric.h"
#include "engine/report.h"
#include "link/capture.h"
#include "link/credits.h"
#include "link/frame.h"
#include "link/impairment.h"
#include "link/notes.h"
#include "link/params.h"
#include "link/pfc.h"
#include "link/port.h"
#include "link/retry.h"
#include "link/scheduler.h"
#include "wire/ethernet.h"

/* port_serialization() - Time that a frame of @len bytes takes on the port's cable */
ps_t port_serialization(struct port *p, uint32_t len)
{
	if (p->ser_len != len) {
		p->ser_len = len;
		p->ser_ps = ((ps_t)wire_bytes(len) * 8 * PS_PER_S + p->cable->p.rate_bps / 2) / p->cable->p.rate_bps;
	}
	return p->ser_ps;
}

/* Classes with frames that may go */
static uint8_t ready(const struct fabric *f, const struct port *p)
{
	return p->retry && retry_waits(p) ? 0 : (uint8_t)(p->classes_used & ~p->paused & ~scheduler_held(f, p));
}

static bool may_send(const struct fabric *f, const struct port *p)
{
	return p->control.head || p->owed || (p->retry && p->retry->again.head) || ready(f, p);
}

/* The port is busy: go on when it is free, if there is something to go on with */
static void free_later(struct fabric *f, struct port *p)
{
	if (!may_send(f, p)) {
		if (p->classes_used)
			pfc_waits(f, p);
	} else if (!p->free_event) {
		p->free_event = true;
		event_add(f, p->busy_until, EV_PORT_FREE, p->node->index, p->number, 0, 0, p, 0);
	}
}

static struct frame *queue_pop(struct port *p, unsigned class)
{
	struct frame *fr = fifo_take(&p->queue[class]);

	p->queued_bytes -= fr->len;
	if (!p->queue[class].head)
		p->classes_used &= (uint8_t)~(1u << class);
	return fr;
}

/* A frame comes in at @to when its last bit does */
static void propagate(struct fabric *f, struct port *p, struct port *to, struct frame *fr, ps_t arrives)
{
	passage_cut(f, fr);
	passage_leave(f, fr);
	event_add(f, arrives, fr->pause ? EV_PAUSE_ARRIVE : EV_ARRIVE, to->node->index, to->number, 0, fr->id, fr,
		  p->cable->epoch);
	if (to->node->ops->announce && !fr->pause)
		to->node->ops->announce(f, to, fr, arrives);
}

static void duplicate(struct fabric *f, struct port *p, struct port *to, struct frame *fr, ps_t arrives)
{
	struct frame *copy = frame_twin(f, fr);

	copy->class = fr->class;
	copy->to = fr->to;
	copy->id = frame_number(p->node);
	propagate(f, p, to, copy, arrives);
}

static void capture(struct fabric *f, struct port *p, struct frame *fr, bool outgoing)
{
	frame_whole(f, fr);
	capture_frame(f, p, fr->data, fr->len, outgoing);
}

static void drop_injected(struct fabric *f, struct port *p, struct frame *fr)
{
	p->tc[fr->class].injected++;
	p->tc[fr->class].injected_bytes += fr->len + FCS_BYTES;
	port_drop(f, p, fr, DROP_FAULT);
}

/* Put a frame on the cable now; it comes in whole, a serialization and a delay later */
static void transmit(struct fabric *f, struct port *p, struct frame *fr, bool again)
{
	struct port *to = p->peer ? p->peer : fr->to;
	struct frame_fate fate = {0};

	bool kept = p->retry && !fr->pause && retry_on(p);
	fr->uncounted = false;
	if (p->frame_faults && !fr->pause && !(kept && p->retry->astray))
		fate = f->impairment->frame(f, p, fr);
	p->busy_until = f->clock.now + port_serialization(p, fr->len);
	if (!again) {
		p->tx_frames++;
		p->tx_bytes += fr->len + FCS_BYTES;
		if (p->capture)
			capture(f, p, fr, true);
		if (kept)
			retry_sent(p, fr);
	}
	if (fr->tx_buffer)
		fr->tx_buffer->ops->on_wire(f, fr);
	frame_off_buffer(f, fr);
	if (kept && retry_holds(f, p, to, fr, &fate))
		return;
	if (fate.dropped) {
		to->shown[fate.shown]++;
		fr->bad = to->node->cuts_through && fate.shown == SHOWN_CRC; /* it may have gone on before that is seen */
		if (!fr->bad) {
			drop_injected(f, to, fr);
			return;
		}
	}
	ps_t arrives = p->busy_until + p->cable->p.delay + fate.delay;
	if (arrives < p->arrives && !fate.reorder)
		arrives = p->arrives; /* the cable has become shorter; nothing overtakes on it all the same */
	if (!fate.reorder)
		p->arrives = arrives;
	for (; fate.duplicates; fate.duplicates--)
		duplicate(f, p, to, fr, arrives);
	propagate(f, p, to, fr, arrives);
}

/* The next frame of a class that may send, or NULL: all that there were are deferred */
static struct frame *data_pop(struct fabric *f, struct port *p)
{
	while (ready(f, p)) {
		struct frame *fr = queue_pop(p, scheduler_pick(f, p, ready(f, p)));
		bool goes = !fr->tx_buffer || fr->tx_buffer->ops->passes(f, fr);
		if (goes && p->credits)
			credits_sent(f, p, fr);
		if (p->credits)
			credits_look(f, p, fr->class);
		if (goes)
			return fr;
	}
	return NULL;
}

static void port_start(struct fabric *f, struct port *p)
{
	struct frame *fr;

	if (p->control.head) {
		transmit(f, p, fifo_take(&p->control), false);
	} else if (p->owed) {
		notes_send(f, p);
	} else if (p->retry && p->retry->again.head) {
		transmit(f, p, retry_pop(p), true);
	} else if ((fr = data_pop(f, p))) {
		unsigned class = fr->class;
		struct traffic_class *tc = &p->tc[class];
		tc->tx_frames++;
		tc->tx_bytes += fr->len + FCS_BYTES;
		if (p->node->schedule)
			scheduler_sent(f, p, class, fr->len);
		if (p->node->ops->leaving)
			p->node->ops->leaving(f, p, fr);
		transmit(f, p, fr, false);
	}
	free_later(f, p);
}

/* port_kick() - Something may have become ready to be sent */
void port_kick(struct fabric *f, struct port *p)
{
	if (p->free_event)
		return;
	if (f->clock.now >= p->busy_until && may_send(f, p))
		port_start(f, p);
	else
		free_later(f, p);
}

/* port_enqueue() - Offer a frame to a port's egress queue
 *
 * The frame belongs to the port from here on; it may be dropped.
 */
void port_enqueue(struct fabric *f, struct port *p, struct frame *fr)
{
	struct fifo *q = &p->queue[fr->class];

	if (!p->cable || !p->cable->p.up) {
		port_drop(f, p, fr, DROP_CABLE);
		return;
	}
	if (p->cable->p.mtu && fr->len > p->cable->p.mtu + ETH_BYTES) {
		port_drop(f, p, fr, DROP_MTU);
		return;
	}
	fifo_add(q, fr);
	if (q->bytes > p->tc[fr->class].queue_max)
		p->tc[fr->class].queue_max = q->bytes;
	p->classes_used |= (uint8_t)(1u << fr->class);
	if (p->credits)
		credits_look(f, p, fr->class);
	if (p->paused >> fr->class & 1 && p->node->ops->paused)
		p->node->ops->paused(f, p, fr->class);
	p->queued_bytes += fr->len;
	if (p->queued_bytes > p->queued_max)
		p->queued_max = p->queued_bytes;
	port_kick(f, p);
}

/* port_became_idle() - The last bit has left: start the next frame, if any */
void port_became_idle(struct fabric *f, struct port *p)
{
	p->free_event = false;
	if (may_send(f, p))
		port_start(f, p);
	else
		free_later(f, p);
	if (p->node->ops->idle)
		p->node->ops->idle(f, p);
}

/* A frame has come in that is of no use.  Where it has been sent on already it ends at a port that has not done so */
static void refuse(struct fabric *f, struct port *p, struct frame *fr, enum drop why)
{
	struct passage *passage = fr->passage;

	if (passage)
		passage->bad = passage->lost = true;
	if (passage && passage->ahead && why != DROP_CABLE)
		frame_release(f, fr);
	else if (why == DROP_FAULT)
		drop_injected(f, p, fr);
	else
		port_drop(f, p, fr, why);
}

/* port_arrive() - A frame's last bit has come in
 * @epoch:	The cable's when the frame was sent: a cut since then lost it
 */
void port_arrive(struct fabric *f, struct port *p, struct frame *fr, uint32_t epoch)
{
	bool struck = fr->bad;

	passage_ends(f, fr);
	if (epoch != p->cable->epoch) {
		p->cut_off++;
		refuse(f, p, fr, DROP_CABLE);
		return;
	}
	if (fr->bad) {
		p->stomped += !struck;
		refuse(f, p, fr, struck ? DROP_FAULT : DROP_STOMPED);
		return;
	}
	p->rx_frames++;
	p->rx_bytes += fr->len + FCS_BYTES;
	if (p->capture)
		capture(f, p, fr, false);
	if (fr->pause) {
		pfc_receive(f, p, fr);
		return;
	}
	if (p->retry && retry_on(p))
		retry_came(f, p, fr);
	if (p->node->kind != NODE_SWITCH) { /* which knows the class that it puts the frame into */
		p->tc[fr->class].rx_frames++;
		p->tc[fr->class].rx_bytes += fr->len + FCS_BYTES;
	}
	p->node->ops->receive(f, p, fr);
}

/* port_flush_class() - Drop all that waits in one queue */
void port_flush_class(struct fabric *f, struct port *p, unsigned class, enum drop why)
{
	while (p->queue[class].head)
		port_drop(f, p, queue_pop(p, class), why);
	if (p->credits)
		credits_look(f, p, class);
}

/* port_cut() - The cable is cut: what waits is lost, and what was agreed over it is forgotten */
void port_cut(struct fabric *f, struct port *p)
{
	CLASSES_EACH(c) {
		port_flush_class(f, p, c, DROP_CABLE);
		if (p->paused >> c & 1) {
			p->tc[c].paused_total += f->clock.now - p->tc[c].paused_since;
			report_pause(f, p, c, false);
		}
	}
	while (p->control.head)
		frame_release(f, fifo_take(&p->control));
	retry_cut(f, p);
	p->owed = 0;
	p->paused = 0;
}
