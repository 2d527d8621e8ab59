/* Credit-based flow control (InfiniBand, volume 1, 7.9; UEC's CBFC)
 *
 * Theory of Operation
 *
 * The receiver of a cable has room for so many blocks of 64 bytes in each class that is under credits.  The sender counts
 * the blocks that it has sent, and has a limit: a frame goes when all of it stays below.  The receiver counts what has
 * come, and says with a note (notes.c) how far the sender may go: what came, and what room is free.  A switch's room is
 * free when the last copy of the frame has left it, a NIC's when the frame has gone over PCIe.  So nothing is lost for want
 * of room, nobody sends a pause, and how fast a class can go at most is its room over the time from a block's being sent
 * to the news that it is free.
 *
 * A class whose next frame finds no credit is paused, as by PFC, until a note comes: so pauses are counted, circles of
 * buffers that wait for each other are found (switch/deadlock.c), and the watchdog takes frames away (switch/watchdog.c; what
 * InfiniBand's head of queue lifetime does).
 *
 * A frame that is lost on the cable takes its credits with it: the receiver does not know that it was sent.  With `resync`
 * the sender says from time to time how much it has sent.  The note comes behind the frames that it counts, so that what is
 * missing then is lost, and counts as come.  (While frames are to be sent once more, the note would come before them: it
 * waits for the next time.)
 */
#include <stdlib.h>

#include "base/units.h"
#include "engine/event.h"
#include "engine/fabric.h"
#include "engine/report.h"
#include "link/credits.h"
#include "link/frame.h"
#include "link/notes.h"
#include "link/pfc.h"
#include "link/port.h"
#include "link/retry.h"
#include "wire/ethernet.h"

static uint32_t blocks_of(const struct frame *fr)
{
	return (fr->len + FCS_BYTES + CREDIT_BLOCK_BYTES - 1) / CREDIT_BLOCK_BYTES;
}

/* credits_on() - Is a class under credits here? */
bool credits_on(const struct port *p, unsigned class)
{
	return p->credits && p->cable->p.credit_classes >> class & 1;
}

/* credits_restart() - A cable has come up, or is plugged in, or another job begins: both ends begin to count, and know what
 * room there is
 */
void credits_restart(struct fabric *f, struct cable *cable)
{
	if (!cable->p.credit_classes)
		return;
	for (int i = 0; i < 2; i++) {
		struct port *p = cable->end[i];
		if (!p->credits && !(p->credits = calloc(1, sizeof *p->credits)))
			abort();
		p->credits->began++;
		p->credits->look_event = false;
		CLASSES_EACH(c)
			p->credits->of[c].sent = p->credits->of[c].said = p->credits->of[c].came = 0;
	}
	for (int i = 0; i < 2; i++)
		CLASSES_EACH(c) {
			cable->end[i]->credits->of[c].limit = credits_limit(cable->end[!i], c);
			credits_look(f, cable->end[i], c);
		}
}

/* credits_limit() - What the other end of a port's cable may send in all */
uint64_t credits_limit(const struct port *p, unsigned class)
{
	const struct credit_class *x = &p->credits->of[class];
	uint64_t room = p->cable->p.credit_blocks;

	return x->came + (room > x->held ? room - x->held : 0);
}

/* credits_left() - Blocks that a port may still send */
uint64_t credits_left(const struct port *p, unsigned class)
{
	const struct credit_class *x = &p->credits->of[class];

	return x->limit > x->sent ? x->limit - x->sent : 0;
}

/* credits_enough() - Are there credits for a frame? */
bool credits_enough(const struct port *p, unsigned class, const struct frame *fr)
{
	return !credits_on(p, class) || blocks_of(fr) <= credits_left(p, class);
}

static void event_later(struct fabric *f, struct port *p)
{
	if (p->credits->look_event)
		return;
	p->credits->look_event = true;
	ps_t every = p->cable->p.resync ? p->cable->p.resync : pfc_time(p, PFC_QUANTA / 2);
	event_add(f, f->clock.now + every, EV_CREDITS, p->node->index, p->number, 0, 0, p, p->credits->began);
}

/* credits_look() - A class's next frame is another, or there are more credits: may it go? */
void credits_look(struct fabric *f, struct port *p, unsigned class)
{
	struct traffic_class *tc = &p->tc[class];
	const struct frame *next = p->queue[class].head;
	bool dry = next && !credits_enough(p, class, next), was = p->paused >> class & 1;

	if (was && !dry)
		pfc_resume(f, p, class);
	if (was || !dry)
		return;
	tc->waits++;
	pfc_hold(f, p, class, PS_NEVER);
	event_later(f, p);
}

/* credits_sent() - A frame starts on the cable */
void credits_sent(struct fabric *f, struct port *p, const struct frame *fr)
{
	if (!credits_on(p, fr->class))
		return;
	p->credits->of[fr->class].sent += blocks_of(fr);
	if (p->cable->p.resync)
		event_later(f, p);
}

/* credits_came() - A frame has come in
 * Return: the blocks that are to be freed with it
 */
uint32_t credits_came(struct port *p, const struct frame *fr)
{
	struct credit_class *x = &p->credits->of[fr->class];
	uint32_t blocks = blocks_of(fr);

	if (!credits_on(p, fr->class) || fr->uncounted)
		return 0;
	x->came += blocks;
	x->held += blocks;
	return blocks;
}

/* credits_free() - So much room is free again */
void credits_free(struct fabric *f, struct port *p, unsigned class, uint32_t blocks)
{
	p->credits->of[class].held -= blocks;
	if (credits_on(p, class))
		notes_owe(f, p, NOTE_LIMIT + class);
}

/* credits_free_at() - Likewise, then */
void credits_free_at(struct fabric *f, struct port *p, unsigned class, uint32_t blocks, ps_t t)
{
	if (t <= f->clock.now)
		credits_free(f, p, class, blocks);
	else
		event_add(f, t, EV_CREDITS_FREE, p->node->index, p->number, class, ++p->freed, p, blocks);
}

/* credits_raised() - The other end has said how far this one may go */
void credits_raised(struct fabric *f, struct port *p, unsigned class, uint64_t limit)
{
	p->credits->of[class].limit = limit;
	credits_look(f, p, class);
	port_kick(f, p);
}

/* credits_total() - The other end has said how much it has sent: what has not come by now is lost */
void credits_total(struct fabric *f, struct port *p, unsigned class, uint64_t total)
{
	struct credit_class *x = &p->credits->of[class];

	if (total <= x->came)
		return;
	x->found += total - x->came;
	x->came = total;
	notes_owe(f, p, NOTE_LIMIT + class);
}

/* credits_event() - It is time to say what was sent, and to look at those that wait; again as long as there is either
 * @began:	When it was set: not before the cable began anew
 */
void credits_event(struct fabric *f, struct port *p, uint64_t began)
{
	bool more = false, late = p->retry && retry_late(p);

	if (began != p->credits->began)
		return;
	p->credits->look_event = false;
	CLASSES_EACH(c) {
		struct credit_class *x = &p->credits->of[c];
		if (!credits_on(p, c))
			continue;
		if (p->cable->p.resync && x->said != x->sent) {
			more = true;
			if (!late) {
				x->said = x->sent;
				notes_owe(f, p, NOTE_TOTAL + c);
			}
		}
		if (!(p->paused >> c & 1))
			continue;
		more = true;
		if (p->node->ops->pause_refreshed)
			p->node->ops->pause_refreshed(f, p, c);
	}
	if (more)
		event_later(f, p);
}
