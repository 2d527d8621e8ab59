/* Switches
 *
 * Theory of Operation
 *
 * t_in is when the last bit of a frame comes in.  It is known as soon as the frame
 * starts on its cable, so the frame goes into the ingress port's TAP then already, and
 * Open vSwitch decides by its OpenFlow tables where it leaves (ovs.c).  Meanwhile the
 * clock may still run a serialization, a cable delay and the switch's latency: the
 * longer that is, the more frames Open vSwitch gets at once.  (A rule that changes is
 * met by the frames that start after the change.)
 *
 * At t_in the frame takes its place in the buffer, if there is one (buffer.c).  At
 * t_in + latency each copy is offered to the egress queue of the port where it came out,
 * its TTL one less, in the class of its DSCP, which a rule may have changed.  A frame
 * that comes out nowhere is a forwarding drop.
 *
 * A cut-through switch decides by the header, while the rest still comes in (cut_through.c).
 */
#include "base/units.h"
#include "engine/event.h"
#include "engine/fabric.h"
#include "fast_path/flow_cache.h"
#include "link/credits.h"
#include "link/frame.h"
#include "link/port.h"
#include "switch/adaptive.h"
#include "switch/cut_through.h"
#include "switch/ovs.h"
#include "switch/switch.h"
#include "wire/ethernet.h"
#include "wire/ip.h"

/* By the fast path, now or when its flow is decided about?  Return: false if Open vSwitch has to get it */
static bool known(struct fabric *f, struct port *in, struct frame *fr)
{
	ps_t leaves = fr->passage->through;

	fr->refs++; /* for a frame that has come in already, and whose copies are all other frames, nobody else has one */
	struct flow *flow = flow_cache_forward(f, in, fr, leaves);
	if (flow)
		ovs_spared(f, in, fr, flow);
	frame_release(f, fr);
	return flow || ovs_hold(f, fr, leaves);
}

/* switch_decide() - It is to be decided where a frame leaves; without room in Open vSwitch that waits */
void switch_decide(struct fabric *f, struct frame *fr)
{
	struct port *in = fr->passage->in;

	if (f->flow_cache && known(f, in, fr))
		return;
	if (ovs_room(f, in))
		ovs_hand_over(f, fr);
	else
		event_add(f, f->clock.now, EV_HAND_OVER, in->node->index, in->number, 0, fr->id, fr, 0);
}

/* Open vSwitch may think about a frame from the time that it starts on its cable */
static void announce(struct fabric *f, struct port *in, struct frame *fr, ps_t t_in)
{
	fr->passage = passage_new(f, in, t_in, fr->len);
	fr->passage->through = cut_decides(in, fr, t_in) + ((struct sw *)in->node)->latency;
	fr->refs = 2;
	switch_decide(f, fr);
}

/* A frame has come in at @in, entirely */
static void receive(struct fabric *f, struct port *in, struct frame *fr)
{
	struct sw *s = (struct sw *)in->node;
	struct passage *passage = fr->passage;
	enum drop why;

	s->frames_in++;
	passage->blocks = in->credits ? credits_came(in, fr) : 0;
	passage->class = fr->class = passage->blocks ? fr->class : buffer_class(s, fr); /* credits are of their sender's class */
	in->tc[fr->class].rx_frames++;
	in->tc[fr->class].rx_bytes += fr->len + FCS_BYTES;
	if (cut_wholly(fr) || buffer_admit(f, s, passage, &why) || trim_admit(f, s, fr)) {
		frame_release(f, fr);
		return;
	}
	passage->lost = true;
	port_drop(f, in, fr, why);
}

/* Is there a place for all of a frame in its queue? */
static bool has_place(const struct sw *s, const struct port *out, const struct frame *fr)
{
	return !(fr->passage && fr->passage->trims) && !buffer_queue_full(s, out, fr->class, fr->len);
}

/* switch_forward() - A copy leaves the pipeline for @out */
void switch_forward(struct fabric *f, struct port *out, struct frame *fr)
{
	struct sw *s = (struct sw *)out->node;

	if (fr->passage && fr->passage->lost) {
		frame_release(f, fr);
		return;
	}
	if (s->n.cuts_through && fr->passage && !(fr = cut_forward(f, out, fr)))
		return;
	fr->class = buffer_class(s, fr);
	if (!ip_hop(fr->data, fr->len)) {
		port_drop(f, out, fr, DROP_TTL);
		return;
	}
	if (out->dropping >> fr->class & 1)
		port_drop(f, out, fr, DROP_WATCHDOG);
	else if (has_place(s, out, fr))
		port_enqueue(f, out, fr);
	else if (!trim_forward(f, out, fr))
		port_drop(f, out, fr, DROP_LOSSY);
}

/* switch_leave() - It leaves the pipeline for a port, or, if none is said, for one of several */
void switch_leave(struct fabric *f, struct sw *s, uint32_t port, struct ways *ways, struct frame *fr)
{
	if (port)
		switch_forward(f, &s->n.ports[port - 1], fr);
	else
		adaptive_forward(f, s, ways, fr);
}

/* switch_forwarding_drop() - A frame has gone through the pipeline, and no rule sends it anywhere */
void switch_forwarding_drop(struct fabric *f, struct frame *fr)
{
	struct port *in = fr->passage->in;

	if (fr->passage->lost) {
		frame_release(f, fr);
		return;
	}
	((struct sw *)in->node)->forwarding_drops++;
	port_drop(f, in, fr, DROP_FORWARDING);
}

static void leaving(struct fabric *f, struct port *out, struct frame *fr)
{
	out->tc[fr->class].trim_sent += fr->passage && fr->passage->trims;
	ecn_dequeued(f, out, fr->class, fr);
	if (f->stamps)
		switch_stamp(f, out, fr->class, fr);
}

static void reconfigured(struct fabric *f, struct port *p)
{
	buffer_changed(f, (struct sw *)p->node);
	adaptive_reconfigured((struct sw *)p->node, p);
}

static void passed(struct fabric *f, struct passage *passage)
{
	buffer_release(f, (struct sw *)passage->in->node, passage);
}

const struct node_ops switch_ops = {
	.announce = announce,
	.receive = receive,
	.leaving = leaving,
	.paused = watchdog_paused,
	.pause_refreshed = deadlock_look,
	.reconfigured = reconfigured,
	.passed = passed,
};
