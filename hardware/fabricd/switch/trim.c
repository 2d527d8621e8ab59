/* Packet trimming
 *
 * Theory of Operation
 *
 * Where a lossy frame of certain classes would be dropped for want of buffer, it is cut to its first bytes instead, gets
 * another DSCP, and goes on by another queue, which is short and goes first: so its receiver hears at once what is
 * missing (NDP: Handley et al., SIGCOMM 2017; UEC 1.0; SAI's packet trimming).
 *
 * A frame that comes in and finds no room is known to be trimmed then, and occupies what trimming will leave of it; where
 * it goes, and what is in it, Open vSwitch decides on by all of it.  It is cut when it leaves the pipeline, and so is one
 * that finds its output queue too long: what it lets go of the buffer is free from then on.
 *
 * One that is no longer than what is left of others keeps all its bytes, and goes by that queue all the same (SONiC).
 * Frames to several receivers, and what is not IPv4, are dropped as without trimming.
 */
#include "engine/fabric.h"
#include "link/frame.h"
#include "link/port.h"
#include "switch/switch.h"
#include "wire/ethernet.h"
#include "wire/ip.h"

/* What of a frame is left, to the end of its IP packet at most */
static uint32_t left_of(const struct sw *s, const struct frame *fr)
{
	uint32_t end = ETH_BYTES + (uint32_t)(fr->data[ETH_BYTES + 2] << 8 | fr->data[ETH_BYTES + 3]);

	return end < s->p.trim.bytes || fr->len < s->p.trim.bytes ? fr->len : s->p.trim.bytes;
}

static bool trims(const struct sw *s, const struct frame *fr, unsigned class)
{
	bool unicast = !(fr->data[0] & 1);

	return s->p.trim.on && (s->p.trim.classes & ~s->p.lossless) >> class & 1 && unicast && is_ipv4(fr->data, fr->len);
}

/* trim_admit() - A frame has come in and finds no room: is there some for what will be left of it? */
bool trim_admit(struct fabric *f, struct sw *s, struct frame *fr)
{
	struct passage *passage = fr->passage;
	uint32_t whole = passage->bytes;
	enum drop why;

	if (!trims(s, fr, fr->class) || left_of(s, fr) >= whole)
		return false;
	passage->bytes = left_of(s, fr);
	passage->trims = buffer_admit(f, s, passage, &why);
	if (!passage->trims)
		passage->bytes = whole;
	return passage->trims;
}

/* trim_forward() - A frame leaves the pipeline for @out, where its queue is too long or because it came in so
 * Return: false if it is not trimmed
 */
bool trim_forward(struct fabric *f, struct port *out, struct frame *fr)
{
	struct sw *s = (struct sw *)out->node;
	struct passage *passage = fr->passage;
	const struct trim_params *p = &s->p.trim;

	if (!passage || !is_ipv4(fr->data, fr->len))
		return false;
	if (!passage->trims && ((passage->admitted && passage->refs > 1) || !trims(s, fr, fr->class)))
		return false;
	uint32_t left = left_of(s, fr);
	if (left < fr->len) {
		frame_cut(f, fr, left);
		ip_cut(fr->data, left);
	}
	if (passage->admitted && left < passage->bytes)
		buffer_shrink(f, s, passage, left);
	passage->trims = true;
	bool last_hop = out->peer && out->peer->node->kind == NODE_NIC;
	ip_set_tos(fr->data, (uint8_t)((last_hop ? p->last_hop_dscp : p->dscp) << 2 | (fr->data[ETH_BYTES + 1] & ECN_CE)));
	out->tc[fr->class].trimmed++;
	fr->class = p->queue;
	if (!buffer_queue_full(s, out, fr->class, fr->len)) {
		port_enqueue(f, out, fr);
		return true;
	}
	out->tc[fr->class].trim_dropped++;
	port_drop(f, out, fr, DROP_TRIMMED);
	return true;
}
