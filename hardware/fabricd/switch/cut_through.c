/* Cut-through
 *
 * Theory of Operation
 *
 * A cut-through switch (Kermani, Kleinrock, Computer Networks 1979) looks up a frame by its header, while the rest of it
 * still comes in: its latency counts from CUT_HEADER_BYTES on.  Then the frame
 *
 *  - waits until a latency after its last bit, as in other switches, if its way out is faster than its way in: it would
 *    run dry;
 *  - goes to the queue, if all of it has come in by now;
 *  - starts on the cable at once, if that is free and nothing waits for it, and the class is not paused, held by its shaper, or without credits;
 *  - goes to the queue with its last bit otherwise.  Chips do not begin to send what is not whole once it has waited.
 *
 * So it goes through n such switches by cables of one rate in one serialization and n headers.
 *
 * What starts at once takes no place in the buffer.  Its checksum stands at its end: if that is wrong, or the end does not
 * come, the switch can only make the checksum wrong on purpose (it is stomped).  The frame, which may have started on its
 * next cables too, is dropped by whoever first has all of it before it is sent on: a NIC, or a switch that stores it.
 */
#include "engine/event.h"
#include "engine/fabric.h"
#include "link/credits.h"
#include "link/frame.h"
#include "link/port.h"
#include "link/scheduler.h"
#include "switch/cut_through.h"
#include "switch/switch.h"

#define CUT_HEADER_BYTES 72 /* the preamble, and as much as the shortest frame has */

/* cut_decides() - When a switch has what it looks up of a frame; its last bit comes in at @t_in
 *
 * On a cable that is slowed down or shortened meanwhile no header overtakes the frame before.
 */
ps_t cut_decides(struct port *in, const struct frame *fr, ps_t t_in)
{
	if (!in->node->cuts_through)
		return t_in;
	ps_t before = in->came, rate = in->cable->p.rate_bps;
	ps_t header = t_in - port_serialization(in, fr->len) + (CUT_HEADER_BYTES * 8 * PS_PER_S + rate / 2) / rate;
	in->came = t_in;
	if (header < before)
		header = before;
	return header < t_in ? header : t_in;
}

/* cut_wholly() - Has a frame whose last bit comes in now left by each port that it goes to? */
bool cut_wholly(const struct frame *fr)
{
	return fr->passage->ahead && fr->passage->refs == 1 && fr->refs == 1;
}

static bool is_free(const struct fabric *f, const struct port *out, unsigned class, const struct frame *fr)
{
	return out->cable && f->clock.now >= out->busy_until && !out->classes_used && !out->control.head &&
	       !((out->paused | scheduler_held(f, out)) >> class & 1) && !out->owed && credits_enough(out, class, fr);
}

static void later(struct fabric *f, struct port *out, struct frame *fr, ps_t t)
{
	event_add(f, t, EV_FORWARD, out->node->index, fr->passage->in->number, out->number, fr->id, fr, 0);
}

/* cut_forward() - A frame has gone through the pipeline of a cut-through switch
 * Return: what goes to the queue of @out now, or NULL: it will come again
 */
struct frame *cut_forward(struct fabric *f, struct port *out, struct frame *fr)
{
	const struct sw *s = (const struct sw *)out->node;
	struct passage *passage = fr->passage;
	const struct port *in = passage->in;
	ps_t whole = passage->t_in + s->latency;

	if (f->clock.now < whole && in->cable && out->cable && out->cable->p.rate_bps > in->cable->p.rate_bps) {
		later(f, out, fr, whole);
		return NULL;
	}
	if (f->clock.now >= passage->t_in)
		return fr;
	if (!is_free(f, out, buffer_class(s, fr), fr) || f->clock.now + port_serialization(out, fr->len) < passage->t_in) {
		later(f, out, fr, passage->t_in);
		return NULL;
	}
	struct frame *goes = frame_twin(f, fr); /* the frame itself comes in at its time */
	goes->id = fr->id;
	goes->passage = passage_join(passage);
	frame_release(f, fr);
	return goes;
}
