/* Retries by a cable's near end (UEC's link-level retry, LLR)
 *
 * Theory of Operation
 *
 * The near end of a cable keeps each frame until the far end has acknowledged it.  Of a frame that comes in damaged, the far
 * end throws away all that comes behind it as well, until it comes again: order is kept.  It says so by a note (notes.c), and
 * the near end sends the damaged frame and those behind it once more, before all others, whatever is paused: they have been
 * sent already, and have taken their credits.  So a bit error costs a round trip of the cable, and no frame.
 *
 * What a fault will do to a frame is known when it starts.  So a frame that will come in whole goes on at once, and of those
 * that will not, and of those behind them, this port is the only one that has them: nobody has to take anything back.
 *
 * Acknowledgements come in notes, too.  As long as the replay buffer is full nothing new is sent: it bounds what is under way,
 * as a window does.
 *
 * A frame that was damaged TRIES times in a row is given up, as a link would be that has no working lane.
 *
 * Only what the far end can see is mended: damage on the cable.  What a switch's rule or memory does to frames, retries do not
 * know of.  Pauses are not protected.
 */
#include <stdlib.h>

#include "base/units.h"
#include "engine/event.h"
#include "engine/fabric.h"
#include "link/frame.h"
#include "link/impairment.h"
#include "link/notes.h"
#include "link/port.h"
#include "link/retry.h"
#include "wire/ethernet.h"

#define TRIES 16

/* retry_restart() - A cable has come up, or is plugged in */
void retry_restart(struct cable *cable)
{
	for (int i = 0; i < 2; i++) {
		struct port *p = cable->end[i];
		if (cable->p.retry_bytes && !p->retry && !(p->retry = calloc(1, sizeof *p->retry)))
			abort();
		if (!p->retry)
			continue;
		p->retry->sent = p->retry->acked = p->retry->came = 0;
		p->retry->astray = false;
	}
}

/* retry_on() - Does a port keep what it sends? */
bool retry_on(const struct port *p)
{
	return p->retry && p->cable->p.retry_bytes;
}

/* retry_late() - Are there frames that were sent, and will come in later than what is sent now? */
bool retry_late(const struct port *p)
{
	return p->retry->held.head || p->retry->again.head;
}

/* retry_waits() - Is there no room for a frame that has not been sent yet? */
bool retry_waits(const struct port *p)
{
	return retry_on(p) && p->retry->sent - p->retry->acked >= p->cable->p.retry_bytes;
}

/* retry_sent() - A frame is sent for the first time: it has its place in the replay buffer from now on */
void retry_sent(struct port *p, const struct frame *fr)
{
	p->retry->sent += fr->len + FCS_BYTES;
	p->llr_full += retry_waits(p);
}

static bool given_up(struct retry *r, const struct frame *fr)
{
	if (r->tried != fr->id)
		r->tries = 0;
	r->tried = fr->id;
	return ++r->tries == TRIES;
}

/* retry_holds() - A frame starts on the cable: does it have to be sent once more?  Then it stays here
 * @fate:	What faults do to it; of one that follows a damaged one, nobody has asked
 */
bool retry_holds(struct fabric *f, struct port *p, struct port *to, struct frame *fr, struct frame_fate *fate)
{
	struct retry *r = p->retry;
	bool damaged = fate->damaged || (fate->dropped && fate->shown == SHOWN_CRC);

	fate->duplicates = 0; /* they have the same sequence number */
	if (!r->astray && (!damaged || given_up(r, fr))) {
		fate->dropped = fate->dropped || damaged;
		return false;
	}
	passage_leave(f, fr);
	fifo_add(&r->held, fr);
	if (r->astray)
		return true;
	r->astray = true;
	to->shown[SHOWN_CRC]++;
	event_add(f, p->busy_until + p->cable->p.delay, EV_DAMAGED, to->node->index, to->number, 0, fr->id, to, p->cable->epoch);
	return true;
}

/* retry_pop() - The next frame that is to be sent once more */
struct frame *retry_pop(struct port *p)
{
	p->llr_frames++;
	return fifo_take(&p->retry->again);
}

/* retry_came() - A frame has come in, whole and in order */
void retry_came(struct fabric *f, struct port *p, const struct frame *fr)
{
	p->retry->came += fr->len + FCS_BYTES;
	notes_owe(f, p, NOTE_ACK);
}

/* retry_acked() - The other end has so many bytes: their room is free */
void retry_acked(struct fabric *f, struct port *p, uint64_t came)
{
	p->retry->acked = came;
	port_kick(f, p);
}

/* What is held is to be sent before what had not been sent again yet */
static void all_again(struct retry *r)
{
	r->astray = false;
	if (!r->held.head)
		return;
	if (r->again.head)
		r->held.tail->next = r->again.head;
	else
		r->again.tail = r->held.tail;
	r->again.head = r->held.head;
	r->again.frames += r->held.frames;
	r->again.bytes += r->held.bytes;
	r->held = (struct fifo){0};
}

/* retry_again() - Something was damaged: it, and what was sent behind it, once more */
void retry_again(struct fabric *f, struct port *p)
{
	p->llr_replays++;
	all_again(p->retry);
	port_kick(f, p);
}

/* retry_damaged() - A frame has come in damaged
 * @epoch:	The cable's when it was sent
 */
void retry_damaged(struct fabric *f, struct port *p, uint32_t epoch)
{
	if (epoch == p->cable->epoch)
		notes_owe(f, p, NOTE_NACK);
}

/* retry_cut() - The cable is cut: what had to be sent once more is lost */
void retry_cut(struct fabric *f, struct port *p)
{
	if (!p->retry)
		return;
	all_again(p->retry);
	while (p->retry->again.head)
		port_drop(f, p, fifo_take(&p->retry->again), DROP_CABLE);
}
