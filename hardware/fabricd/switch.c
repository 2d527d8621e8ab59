/* Switches
 *
 * Theory of Operation
 *
 * A frame's last bit comes in at t_in, which is known as soon as it starts on
 * its cable.  So it goes into the ingress port's TAP then already, and Open
 * vSwitch decides by its OpenFlow tables where it leaves (ovs.c) while the clock
 * may still run a serialization, a cable delay and the switch's latency: the
 * longer that is, the more frames it gets at once.  (A rule that changes
 * meanwhile is met by the frames that start after the change.)  At t_in +
 * latency the frame is offered to the egress queue of each port where a copy
 * came out.  A frame that comes out nowhere is a forwarding drop.
 */
#include "fabric.h"

/* switch_ingress() - A frame has come in at @in, entirely */
void switch_ingress(struct fabric *f, struct port *in, struct frame *fr)
{
	((struct sw *)in->node)->frames_in++;
	frame_free(f, fr);
}

/* switch_forward() - A copy leaves the pipeline for @out */
void switch_forward(struct fabric *f, struct port *out, struct frame *fr)
{
	if (fr->lost)
		frame_free(f, fr);
	else
		port_enqueue(f, out, fr);
}

/* switch_no_way() - A frame has gone through the pipeline, and no rule sends it anywhere */
void switch_no_way(struct fabric *f, struct frame *fr)
{
	if (fr->lost) {
		frame_free(f, fr);
		return;
	}
	((struct sw *)fr->in->node)->forwarding_drops++;
	port_drop(f, fr->in, fr, DROP_FORWARDING);
}
