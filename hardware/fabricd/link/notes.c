/* Notes between the two ends of a cable
 *
 * Theory of Operation
 *
 * Credits (credits.c) and retries (retry.c) need the other end to be told something all the time.  That is said by notes of
 * eight bytes, a control block of the cable's line code each, which are no frames: no capture has them, and no fault strikes
 * them.  But they take their time on the cable.  A port that owes notes sends them when the frame on its way has left,
 * before the next.  What a note says is always a sum since the cable came up, so the newest stands for all before it: a port
 * owes each at most once.
 */
#include "base/units.h"
#include "engine/event.h"
#include "engine/fabric.h"
#include "link/credits.h"
#include "link/notes.h"
#include "link/port.h"
#include "link/retry.h"

#define NOTE_BITS 64

/* notes_owe() - The other end is to be told something, as it is when the note is sent */
void notes_owe(struct fabric *f, struct port *p, unsigned note)
{
	if (!p->cable->p.up)
		return; /* both begin anew when it is */
	p->owed |= 1u << note;
	port_kick(f, p);
}

static uint64_t said(const struct port *p, unsigned note)
{
	if (note == NOTE_ACK)
		return p->retry->came;
	if (note == NOTE_NACK)
		return 0;
	return note < NOTE_TOTAL ? credits_limit(p, note) : p->credits->of[note - NOTE_TOTAL].sent;
}

/* notes_send() - Put all that is owed onto the cable now */
void notes_send(struct fabric *f, struct port *p)
{
	struct port *to = p->peer;
	int64_t rate = p->cable->p.rate_bps;
	ps_t takes = (NOTE_BITS * PS_PER_S + rate / 2) / rate;

	p->busy_until = f->clock.now;
	for (unsigned note = 0; p->owed; note++) {
		if (!(p->owed >> note & 1))
			continue;
		p->owed &= ~(1u << note);
		p->notes++;
		p->busy_until += takes;
		ps_t arrives = p->busy_until + p->cable->p.delay;
		if (arrives < p->arrives)
			arrives = p->arrives; /* nothing overtakes on a cable */
		p->arrives = arrives;
		event_add(f, arrives, EV_NOTE, to->node->index, to->number, note, (uint64_t)p->cable->epoch << 32 | (uint32_t)p->notes, to,
			  said(p, note));
	}
}

/* notes_receive() - A note has come in
 * @epoch:	The cable's when it was sent: a cut since then lost it
 */
void notes_receive(struct fabric *f, struct port *p, unsigned note, uint64_t value, uint32_t epoch)
{
	if (epoch != p->cable->epoch)
		return;
	if (note == NOTE_ACK)
		retry_acked(f, p, value);
	else if (note == NOTE_NACK)
		retry_again(f, p);
	else if (note < NOTE_TOTAL)
		credits_raised(f, p, note, value);
	else
		credits_total(f, p, note - NOTE_TOTAL, value);
}
