/* Best-effort aggregation: which contributions are lost
 *
 * Theory of Operation
 *
 * A block is sent again
 *
 *	when the sums of three later blocks are here (ATP, section 3.6).  Each rank sends
 *	its blocks in order, so a later sum says that all have sent this one, too.
 *
 *	when it was sent again, and the sums of three contributions are here that this rank
 *	has sent after that: as often as it is lost.
 *
 *	when no sum at all has come for a while: the oldest block, and no other (in ATP's
 *	client the timer runs from the last sum, too).
 *
 * Where there is nothing left that could bring three, one later sum is enough: when all of
 * the request is sent or no more than three blocks are under way (as RFC 5827 has it), and
 * for what was sent before a silence.
 *
 * So there are two lines, of blocks that were sent once and of those that were sent
 * again, each in the order of sending: what is lost stands in front.
 *
 * If what went again after a silence brings an answer to this rank alone, its sum had come
 * to the others: all that this rank sent before the silence goes again at once.
 *
 * What was sent again may have its sum by what somebody else has sent.  Then it says
 * nothing of this rank's packets.  It does if it comes to this rank alone, or no sooner
 * than any sum has come of what was sent once (RFC 8985, section 6.2).
 *
 * The while is twice the shortest time that a sum has taken lately, in the last one to
 * two windows of sums, of contributions that were sent once: the others say what ranks
 * wait for each other.  It is `timeout` at most, and as long as nothing is known.  From
 * the third silence in a row on it doubles, up to 8 times `timeout`, and is as it was
 * with the next sum.
 *
 * On the server's rank a block waits for the contributions of others, which nothing can
 * hurry.  It counts silences all the same, and one fewer than the others do: it knows
 * who is missing.
 */
#include <stdio.h>

#include "base/units.h"
#include "engine/fabric.h"
#include "offload/best_effort/best_effort.h"
#include "offload/offload.h"

#define LONGEST_WAIT 8 /* times `timeout` */

/* The shortest time that a sum has taken lately; 0: none has come */
static ps_t shortest(const struct best_effort *b)
{
	const ps_t *s = b->shortest;

	return s[1] && (s[1] < s[0] || !s[0]) ? s[1] : s[0];
}

static void took(struct best_effort *b, ps_t time)
{
	if (!b->shortest[0] || time < b->shortest[0])
		b->shortest[0] = time;
	if (++b->timed < b->slots)
		return;
	b->shortest[1] = b->shortest[0];
	b->shortest[0] = b->timed = 0;
}

static ps_t wait(const struct best_effort *b)
{
	ps_t w = shortest(b) && 2 * shortest(b) < b->timeout ? 2 * shortest(b) : b->timeout;

	for (uint32_t i = 1; i < b->silences && w < LONGEST_WAIT * b->timeout; i++)
		w *= 2;
	return w < LONGEST_WAIT * b->timeout ? w : LONGEST_WAIT * b->timeout;
}

/* The silence begins now */
static void listen(struct fabric *f, struct member *m)
{
	struct best_effort *b = m->state;

	b->deadline = f->clock.now + wait(b);
	if (b->alarm > f->clock.now && b->alarm <= b->deadline)
		return; /* that looks again */
	b->alarm = b->deadline;
	offload_later(f, m, b->alarm, TIMER | (uint64_t)b->alarm);
}

static bool anything_waits(const struct best_effort *b)
{
	return b->line[0].oldest || b->line[1].oldest;
}

static struct line *line_of(struct best_effort *b, const struct block_lane *l)
{
	return &b->line[l->again > 0];
}

/* overdue_sent() - A block's contribution goes out: from now on it waits, as the last in its line */
void overdue_sent(struct fabric *f, struct member *m, struct block_lane *l)
{
	struct best_effort *b = m->state;
	struct line *line = line_of(b, l);
	bool first = !anything_waits(b);

	l->state = LANE_WAITING;
	l->sent_as = ++b->sends;
	l->sent_at = f->clock.now;
	if (!l->again)
		l->first_as = l->sent_as;
	l->older = line->newest;
	l->newer = NULL;
	*(l->older ? &l->older->newer : &line->oldest) = l;
	line->newest = l;
	if (first)
		listen(f, m);
}

static void out_of_line(struct best_effort *b, const struct block_lane *l)
{
	struct line *line = line_of(b, l);

	*(l->older ? &l->older->newer : &line->oldest) = l->newer;
	*(l->newer ? &l->newer->older : &line->newest) = l->older;
	if (!anything_waits(b))
		b->alarm = PS_NEVER;
}

/* A contribution goes again: by the accelerators, or @past them at once */
static void again(struct fabric *f, struct member *m, struct block_lane *l, bool past)
{
	struct best_effort *b = m->state;

	out_of_line(b, l);
	l->again = past && !l->again ? 2 : l->again + 1;
	best_effort_ready(f, m, l->number % b->slots);
}

/* The sum of what was sent as that number is here: keep the three newest */
static void heard(struct line *line, uint64_t sent_as)
{
	for (int i = 0; i < OVERTAKEN; i++)
		if (sent_as > line->heard[i]) {
			uint64_t older = line->heard[i];
			line->heard[i] = sent_as;
			sent_as = older;
		}
}

/* What later sums have overtaken goes again */
static void send_overtaken(struct fabric *f, struct member *m, struct line *line)
{
	struct best_effort *b = m->state;

	for (struct block_lane *l = line->oldest; l; l = line->oldest) {
		bool silent = l->sent_as <= b->silent_before;
		bool one = silent || b->sent == b->packets || b->flying <= OVERTAKEN;
		if (l->sent_as >= line->heard[one ? 0 : OVERTAKEN - 1] && !(silent && b->answered > b->silent_before))
			break;
		again(f, m, l, b->alone);
	}
}

/* overdue_over() - The sum of a block is here
 * @alone:	It has come to this rank alone, which has asked for it
 */
void overdue_over(struct fabric *f, struct member *m, struct block_lane *l, bool alone)
{
	struct best_effort *b = m->state;
	ps_t time = f->clock.now - l->sent_at;

	if (l->state == LANE_WAITING)
		out_of_line(b, l);
	if (!l->again)
		took(b, time);
	b->past = l->again >= 2 && (l->silent || b->past);
	heard(&b->line[0], l->first_as);
	if (l->state == LANE_WAITING && (alone || time >= shortest(b)))
		heard(&b->line[1], l->sent_as);
	if (alone && l->sent_as > b->answered)
		b->answered = l->sent_as;
	b->silences = 0;
	for (int i = 0; i < 2 && !b->server; i++)
		send_overtaken(f, m, &b->line[i]);
	if (anything_waits(b))
		listen(f, m);
}

/* overdue_alone() - The server adds up alone from now on: no lane has a slot, and what waits for accelerators waits in vain */
void overdue_alone(struct fabric *f, struct member *m)
{
	struct best_effort *b = m->state;

	for (uint32_t i = 0; i < b->slots; i++) {
		b->slot[i] = NO_SLOT;
		if (b->lane[i].state == LANE_WAITING && b->lane[i].again < 2) {
			b->lane[i].silent = true;
			again(f, m, &b->lane[i], true);
		}
	}
}

/* The first block of the request whose sum is not here */
static struct block_lane *awaited(struct best_effort *b)
{
	struct block_lane *l;

	do {
		l = &b->lane[(b->first + b->expected) % b->slots];
	} while ((l->state == LANE_IDLE || l->number != (uint32_t)(b->first + b->expected)) && ++b->expected < b->sent);
	return l;
}

static void give_up(struct fabric *f, struct member *m)
{
	struct best_effort *b = m->state;
	const struct group *g = m->group;
	uint64_t missing = b->server ? server_missing(b->server, awaited(b)->number) : 0;
	char why[96];

	if (!b->server)
		snprintf(why, sizeof why, "no parameter server answers rank %u", m->nic->rank);
	else if (missing & (missing - 1) && missing == server_all(b->server))
		snprintf(why, sizeof why, "nothing comes to the parameter server, rank %u", m->nic->rank);
	else
		snprintf(why, sizeof why, "nothing comes from rank %u", g->member[__builtin_ctzll(missing)].nic->rank);
	offload_failed(f, m, why);
}

/* overdue_listened() - The time that a silence may last could be over */
void overdue_listened(struct fabric *f, struct member *m)
{
	struct best_effort *b = m->state;

	b->alarm = PS_NEVER;
	if (f->clock.now < b->deadline) { /* a sum has come since */
		b->alarm = b->deadline;
		offload_later(f, m, b->alarm, TIMER | (uint64_t)b->alarm);
		return;
	}
	if (b->server && server_sum(b->server, awaited(b)->number)) { /* all there, the host is still busy with it */
		listen(f, m);
		return;
	}
	m->nic->timeouts++;
	if (b->silences++ == b->retry - (b->server && b->retry)) {
		give_up(f, m);
		return;
	}
	b->silent_before = b->sends;
	struct block_lane *l = awaited(b);
	if (!b->server && l->state == LANE_WAITING) {
		l->silent = b->silences > 1 || b->past;
		again(f, m, l, b->past || b->alone); /* if nothing else has helped last */
	}
	if (anything_waits(b))
		listen(f, m);
}
