/* A switch's packet buffer
 *
 * Theory of Operation
 *
 * A frame occupies the buffer from its last bit in (t_in) until the last copy of
 * it starts on a cable or is dropped, and is counted once, for the port and class
 * that it came in at (a priority group).  The buffer is split into
 *
 *	reserve		so much for each lossless group, always
 *	headroom	for each lossless group: what still comes in after XOFF
 *	shared		the rest, for everybody
 *
 * A lossless group may hold its reserve and, of the shared part, up to the dynamic
 * threshold: alpha x (shared part - what is occupied of it).  What comes in beyond
 * that goes into the headroom, and XOFF is sent; when the headroom has no room the
 * frame is dropped, and XOFF is sent all the same: it is the threshold that asserts
 * it.  XON follows when the headroom is empty and the group is xon_offset below the
 * threshold, or holds nothing of the shared part; and when a frame that was dropped
 * would find room now, which may be due to what other groups let go.  This is
 * the memory management of the HPCC paper's simulator (Li et al., SIGCOMM 2019).
 *
 * A group whose sender has credits for it (link/credits.c) has the room of these for itself, and neither headroom
 * nor pauses.
 *
 * A lossy frame needs room in the shared part when it comes in (else: tail), and
 * a place in its output queue, which may be as long as the dynamic threshold
 * (else: lossy).  Where there is none, it may be trimmed (trim.c).
 *
 * What is occupied of the shared part follows from the groups alone, so that it
 * can be made anew when a parameter changes.
 */
#include "engine/fabric.h"
#include "link/credits.h"
#include "link/frame.h"
#include "link/params.h"
#include "link/pfc.h"
#include "link/port.h"
#include "switch/switch.h"
#include "wire/ethernet.h"
#include "wire/ip.h"

/* buffer_class() - The class of a frame: by the DSCP that it has now */
uint8_t buffer_class(const struct sw *s, const struct frame *fr)
{
	return s->p.dscp_class[is_ipv4(fr->data, fr->len) ? fr->data[ETH_BYTES + 1] >> 2 : 0];
}

static bool lossless(const struct sw *s, unsigned class)
{
	return s->p.lossless >> class & 1;
}

/* What a group has for itself: the reserve of a lossless one, and of one under credits all that its sender has credits for */
static uint64_t own_part(const struct sw *s, const struct port *in, unsigned class)
{
	if (credits_on(in, class))
		return (uint64_t)in->cable->p.credit_blocks * CREDIT_BLOCK_BYTES;
	return lossless(s, class) ? s->p.reserve_bytes : 0;
}

static uint64_t headroom_of(const struct port *in, unsigned class)
{
	return credits_on(in, class) ? 0 : in->p.headroom_bytes;
}

/* Does it pause its sender? */
static bool pauses(const struct sw *s, const struct port *in, unsigned class)
{
	return in->p.pfc_tx && lossless(s, class) && !credits_on(in, class);
}

static uint64_t shared_part(const struct sw *s, const struct port *in, unsigned class)
{
	uint64_t bytes = in->tc[class].in.bytes, own = own_part(s, in, class);

	return bytes > own ? bytes - own : 0;
}

static uint64_t shared_free(const struct sw *s)
{
	uint64_t taken = s->set_aside + s->shared;

	return s->p.buffer_bytes > taken ? s->p.buffer_bytes - taken : 0;
}

/* buffer_threshold() - What one group, or one lossy queue, may hold of the shared part now */
uint64_t buffer_threshold(const struct sw *s)
{
	return shared_free(s) * s->p.alpha_1024 / 1024;
}

static void xoff(struct fabric *f, struct sw *s, struct port *in, unsigned class)
{
	struct priority_group *g = &in->tc[class].in;

	if (g->xoff || !pauses(s, in, class))
		return;
	if (g->headroom || shared_part(s, in, class) >= buffer_threshold(s)) {
		g->xoff = true;
		pfc_say(f, in, (uint8_t)(1u << class), true);
	}
}

static void xon(struct fabric *f, struct sw *s, struct port *in, unsigned class)
{
	struct priority_group *g = &in->tc[class].in;
	uint64_t shared = shared_part(s, in, class);

	if (!g->xoff)
		return;
	if (pauses(s, in, class) &&
	    (g->headroom || g->refused > buffer_threshold(s) || (shared && shared + s->p.xon_offset_bytes > buffer_threshold(s))))
		return;
	g->xoff = false;
	s->refusing -= g->refused > 0;
	g->refused = 0;
	pfc_say(f, in, (uint8_t)(1u << class), false);
}

/* A frame crosses the threshold and finds no headroom: XOFF, unless the buffer could never hold it */
static void refuse(struct fabric *f, struct sw *s, struct port *in, unsigned class, uint32_t bytes)
{
	struct priority_group *g = &in->tc[class].in;
	uint64_t needs = bytes > s->p.reserve_bytes ? bytes - s->p.reserve_bytes : 1;

	if (!pauses(s, in, class) || s->p.buffer_bytes < s->set_aside ||
	    needs > (s->p.buffer_bytes - s->set_aside) * s->p.alpha_1024 / 1024)
		return;
	s->refusing += !g->refused;
	g->refused = needs > g->refused ? needs : g->refused;
	if (g->xoff)
		return;
	g->xoff = true;
	pfc_say(f, in, (uint8_t)(1u << class), true);
}

/* Groups that wait for what others let go */
static void look_at_refused(struct fabric *f, struct sw *s)
{
	PORTS_EACH(&s->n, p)
		CLASSES_EACH(c)
			if (p->tc[c].in.refused)
				xon(f, s, p, c);
}

/* buffer_changed() - Parameters are new: split the buffer anew, and pause who is over now and whom nothing holds */
void buffer_changed(struct fabric *f, struct sw *s)
{
	s->set_aside = s->shared = 0;
	PORTS_EACH(&s->n, p) {
		CLASSES_EACH(c) {
			s->set_aside += own_part(s, p, c) + (lossless(s, c) ? headroom_of(p, c) : 0);
			s->shared += shared_part(s, p, c);
		}
	}
	PORTS_EACH(&s->n, p)
		CLASSES_EACH(c) {
			xoff(f, s, p, c);
			xon(f, s, p, c);
		}
}

/* buffer_admit() - A frame has come in entirely: is there room for it?
 * @passage:	Its way through the switch, with port, class and length
 * @why:	Set if not
 *
 * Return: whether it has been taken in
 */
bool buffer_admit(struct fabric *f, struct sw *s, struct passage *passage, enum drop *why)
{
	struct port *in = passage->in;
	struct priority_group *g = &in->tc[passage->class].in;
	uint32_t bytes = passage->bytes;

	if (!lossless(s, passage->class)) {
		if (bytes > shared_free(s)) {
			*why = DROP_TAIL;
			return false;
		}
		g->bytes += bytes;
		s->shared += bytes;
	} else {
		uint64_t before = shared_part(s, in, passage->class);
		uint64_t own = own_part(s, in, passage->class);
		uint64_t fill = g->bytes + bytes, over = fill > own ? fill - own : 0;
		if (over && over > buffer_threshold(s)) {
			if (g->headroom + bytes > headroom_of(in, passage->class)) {
				refuse(f, s, in, passage->class, bytes);
				*why = DROP_HEADROOM;
				return false;
			}
			g->headroom += bytes;
			if (g->headroom > g->headroom_max)
				g->headroom_max = g->headroom;
		} else {
			g->bytes = fill;
			s->shared += over - before;
		}
		xoff(f, s, in, passage->class);
	}
	if (g->bytes + g->headroom > g->max_bytes)
		g->max_bytes = g->bytes + g->headroom;
	passage->admitted = true;
	s->used += bytes;
	if (s->used > s->used_max)
		s->used_max = s->used;
	return true;
}

/* buffer_release() - The last copy of a frame is gone */
void buffer_release(struct fabric *f, struct sw *s, struct passage *passage)
{
	struct port *in = passage->in;
	struct priority_group *g = &in->tc[passage->class].in;
	uint64_t headroom = g->headroom < passage->bytes ? g->headroom : passage->bytes;
	uint64_t before = shared_part(s, in, passage->class);

	g->headroom -= headroom;
	g->bytes -= passage->bytes - headroom;
	s->shared -= before - shared_part(s, in, passage->class);
	s->used -= passage->bytes;
	xon(f, s, in, passage->class);
	if (s->refusing)
		look_at_refused(f, s);
}

/* buffer_shrink() - Of a frame no more than @bytes are left */
void buffer_shrink(struct fabric *f, struct sw *s, struct passage *passage, uint32_t bytes)
{
	struct passage gone = *passage;

	gone.bytes -= bytes;
	passage->bytes = bytes;
	buffer_release(f, s, &gone);
}

/* buffer_queue_full() - Is a lossy class's output queue too long for one more frame? */
bool buffer_queue_full(const struct sw *s, const struct port *out, unsigned class, uint32_t bytes)
{
	/* the frame itself occupies the shared part already: as if it did not */
	uint64_t threshold = (shared_free(s) + bytes) * s->p.alpha_1024 / 1024;

	return !lossless(s, class) && out->queue[class].bytes + bytes > threshold;
}
