/* Switches
 *
 * Theory of Operation
 *
 * A frame's last bit comes in at t_in.  The frame goes into the ingress port's
 * TAP, Open vSwitch decides by its OpenFlow tables where it leaves (ovs.c),
 * and at t_in + latency it is offered to the egress queue of each port where a
 * copy came out.  A frame that comes out nowhere is a forwarding drop.
 */
#include "fabric.h"

/* switch_ingress() - A frame has come in at @in, entirely */
void switch_ingress(struct fabric *f, struct port *in, struct frame *fr)
{
	((struct sw *)in->node)->frames_in++;
	ovs_hand_over(f, in, fr);
}

/* switch_forward() - A copy leaves the pipeline for @out */
void switch_forward(struct fabric *f, struct port *out, struct frame *fr)
{
	port_enqueue(f, out, fr);
}
