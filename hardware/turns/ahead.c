/* What a schedule will say to what comes next, said beforehand (FORESEE): so its rank need not be woken for it
 *
 * Theory of Operation
 *
 * A lane that waits goes on in one way when the message comes for which it waits, or when its reduction is through.  As long
 * as it has nothing to do then but post messages, what it will say is known now, and what it will say to the next message
 * behind that.  So before the rank waits, its lanes that have stopped are followed into the future, and fabricd is told: a
 * chain of records and answers (fabricd's records/foreseen.c).  It ends with a record to which more has to be done, of which
 * the rank is told when it comes, as it is of all that comes out of turn.
 *
 * Both ends keep the same chain.  A record that fabricd has answered is the first of it, and the lane does here what it has
 * said, and says nothing.  A record of which we are told leaves it; one that was not the first ends it, as what was foreseen
 * holds no longer.  New chains begin when all that has come has been handed out: nothing is under way to us then.
 *
 * What a reduction makes is needed as soon as its time is over.  So where that is answered beforehand, it is computed when
 * the time begins: nobody looks at it meanwhile.
 */
#include "turns.h"

#include <stdlib.h>
#include <string.h>

#include "wire.h"

#define CHAINS 1024 /* of a session */
#define ANSWERED 0x8000u
#define TO_BE_TOLD 1u
#define SENDS 8 /* of one answer */
#define LINES 32 /* that one chain looks at */

/* As fabricd lays it out */
struct foresee {
	uint32_t chain;
	uint16_t kind, flags;
	uint64_t key;
	uint8_t said[16 + SENDS * POST_SEND_BYTES];
};
#define FORESEE_BYTES offsetof(struct foresee, said)

/* A lane's future: it has done so many steps, and these lines are further than they are now */
struct future {
	struct turns *t;
	const struct execution *x;
	const struct lane_plan *plan;
	uint32_t at, lines;
	struct {
		uint32_t line, taken, sent;
	} of[LINES];
};

/* Where a line stands then.  Return: NULL if there are too many */
static uint32_t *further(struct future *f, uint32_t line, bool sent)
{
	uint32_t k = 0;

	while (k < f->lines && f->of[k].line != line)
		k++;
	if (k == LINES)
		return NULL;
	if (k == f->lines) {
		f->of[k].line = line;
		f->of[k].taken = f->x->lines[line].taken;
		f->of[k].sent = f->x->lines[line].sent;
		f->lines++;
	}
	return sent ? &f->of[k].sent : &f->of[k].taken;
}

static const struct step *step_then(const struct future *f)
{
	return f->at < f->plan->count ? &f->x->plan->steps[f->plan->first + f->at] : NULL;
}

/* The record of the message that it waits for then */
static struct expected message_then(struct future *f, const struct step *s)
{
	const uint32_t *taken = further(f, s->other, false);
	const struct line *line = &f->x->lines[s->other];

	return (struct expected){.kind = taken ? REC_RECEIVED_IMM : 0, .key = (uint64_t)line->qp << 32 | (f->x->first + (taken ? *taken : 0))};
}

/* Is nothing to be done for the message but to take note of it?  Not if it has to be moved, if a receive is to be posted for
 * it, or if the one behind it has overtaken it: then both are there
 */
static bool plain(const struct future *f, const struct step *s, uint32_t number)
{
	const struct line_plan *plan = &f->x->plan->lines[s->other];
	const struct place *from = &f->x->plan->places[plan->own + number];
	const struct line *line = &f->x->lines[s->other];
	const struct receives *r = line->receives;
	uint32_t behind = number + 1;

	if (behind < plan->own_count && line->early[behind / 64] >> behind % 64 & 1)
		return false;
	return !s->reduce && plan->later_ps == NO_TIME && from->region == s->region && from->at == s->at && (!r || r->bound <= r->posted);
}

/* What it says until it waits for a message.  Return: bytes of it, or -1 if it will have more to do than to post */
static int answer(struct future *f, struct foresee *to)
{
	const struct step *s;
	size_t bytes = 0;
	int sends = 0;

	if (f->t->wake_ps)
		bytes = put_command(to->said, SPEND, &f->t->wake_ps, sizeof f->t->wake_ps);
	for (; (s = step_then(f)); f->at++) {
		bool send = s->kind == STEP_SEND;
		uint32_t *number = send || s->kind == STEP_RECV ? further(f, s->other, send) : NULL;
		if (!number || sends == SENDS)
			return -1;
		if (send) {
			struct post_send post = posted(f->x, f->plan, s, (*number)++);
			bytes += put_command(to->said + bytes, POST_SEND, &post, sizeof post);
			sends++;
		} else if (f->x->lines[s->other].seen <= *number) {
			return (int)bytes;
		} else if (!plain(f, s, (*number)++)) {
			return -1;
		}
	}
	return -1; /* its end is looked at */
}

static bool chain_number(struct turns *t, uint32_t *number)
{
	if (t->free_chains.count)
		*number = row_take(&t->free_chains);
	else if (t->chains < CHAINS)
		*number = t->chains++;
	else
		return false;
	return true;
}

/* The chain of a lane.  Return: NULL if there are too many of them */
static struct ahead *ahead_of(struct turns *t, struct lane *l)
{
	uint32_t number;

	if (l->ahead || !chain_number(t, &number))
		return l->ahead;
	l->ahead = calloc(1, sizeof *l->ahead);
	if (!l->ahead)
		abort();
	l->ahead->number = number;
	return l->ahead;
}

static void expect(struct turns *t, struct ahead *a, struct expected what, struct foresee *f, int bytes)
{
	f->chain = a->number;
	f->kind = (uint16_t)what.kind;
	f->flags = bytes < 0 ? TO_BE_TOLD : 0;
	f->key = what.key;
	say(t, FORESEE, f, FORESEE_BYTES + (bytes < 0 ? 0 : (size_t)bytes));
	a->of[a->count++] = what;
}

/* What a lane waits for first, and the step behind it.  Return: whether that can be foreseen */
static bool first_of(struct future *f, const struct lane *l, struct expected *first)
{
	const struct step *s = step_then(f);

	if (!s || f->plan->window >= 0 || f->plan->buffered || f->plan->clocked)
		return false;
	f->at++;
	if (l->reducing) {
		*first = (struct expected){.kind = REC_COMPUTED, .key = l->computing - 1};
		return l->computing && f->x->add;
	}
	if (s->kind != STEP_RECV || f->x->lines[s->other].seen > f->x->lines[s->other].taken || !plain(f, s, f->x->lines[s->other].taken))
		return false;
	*first = message_then(f, s);
	++*further(f, s->other, false);
	return true;
}

static void look(struct turns *t, struct execution *x, uint32_t lane)
{
	struct lane *l = &x->lanes[lane];
	struct future f = {.t = t, .x = x, .plan = &x->plan->lanes[lane], .at = l->at};
	struct foresee said;
	struct expected what;

	if (!x->running || (l->ahead && l->ahead->count) || !first_of(&f, l, &what))
		return;
	int bytes = answer(&f, &said);
	struct ahead *a = bytes < 0 ? NULL : ahead_of(t, l);
	if (!a)
		return;
	a->first = 0;
	if (l->reducing && !l->combined) { /* it is, where a chain was forgotten */
		const struct step *s = &x->plan->steps[x->plan->lanes[lane].first + l->at];
		combine(t, x, s->region, s->at, l->pending, s->bytes);
		l->combined = true;
	}
	while (bytes >= 0) {
		expect(t, a, what, &said, bytes);
		const struct step *s = step_then(&f);
		what = message_then(&f, s);
		if (!what.kind || a->count == AHEAD_MOST - 1 || !plain(&f, s, *further(&f, s->other, false)))
			break;
		++*further(&f, s->other, false);
		f.at++;
		bytes = answer(&f, &said);
	}
	expect(t, a, what, &said, -1);
}

/* ahead_stopped() - A lane has come as far as it can */
void ahead_stopped(struct turns *t, struct execution *x, uint32_t lane)
{
	struct lane *l = &x->lanes[lane];

	if (!t->foresees || !x->foresees || l->stopped || t->quiet)
		return;
	if (t->stopped_count == t->stopped_room) {
		t->stopped_room = t->stopped_room ? 2 * t->stopped_room : 16;
		t->stopped = realloc(t->stopped, t->stopped_room * sizeof *t->stopped);
		if (!t->stopped)
			abort();
	}
	l->stopped = true;
	t->stopped[t->stopped_count++] = (struct stopped){x, lane};
}

/* ahead_look() - All that has come is handed out, and the rank will wait */
void ahead_look(struct turns *t)
{
	for (uint32_t i = 0; i < t->stopped_count; i++) {
		t->stopped[i].execution->lanes[t->stopped[i].lane].stopped = false;
		look(t, t->stopped[i].execution, t->stopped[i].lane);
	}
	t->stopped_count = 0;
}

/* Of which lane's chain a record can be, or NULL */
static struct ahead *chain_of(const struct entry *e, uint32_t kind)
{
	const struct execution *x = e->execution;
	int64_t lane = -1;

	if (kind == REC_COMPUTED && e->what == REDUCED)
		lane = e->index;
	else if (kind == REC_RECEIVED_IMM)
		lane = x->plan->lines[e->index].receiver;
	return lane < 0 ? NULL : x->lanes[lane].ahead;
}

static struct expected expected_of(const struct wire_record *r)
{
	uint32_t kind = r->kind & ~ANSWERED;

	return (struct expected){.kind = kind, .key = kind == REC_COMPUTED ? r->wr_id : (uint64_t)r->qp << 32 | r->imm};
}

/* ahead_told() - We are told of a record to which nothing has been said */
void ahead_told(const struct entry *e, const struct wire_record *r)
{
	struct ahead *a = chain_of(e, r->kind);
	struct expected what = expected_of(r);

	for (uint32_t i = 0; a && i < a->count; i++) {
		const struct expected *at = &a->of[a->first + i];
		if (at->kind != what.kind || at->key != what.key)
			continue;
		a->first = i ? 0 : a->first + 1;
		a->count = i ? 0 : a->count - 1;
		return;
	}
}

/* A record that fabricd has answered.  Return: whether it is the one that was expected */
static bool answered(struct turns *t, struct wire_record *r)
{
	r->kind &= (uint16_t)~ANSWERED;
	const struct entry *e = owner(t, r);
	struct ahead *a = e ? chain_of(e, r->kind) : NULL;
	struct expected what = expected_of(r);

	t->odd_kind = r->kind;
	t->odd_imm = r->imm;
	if (!a || !a->count || a->of[a->first].kind != what.kind || a->of[a->first].key != what.key)
		return false;
	a->first++;
	a->count--;
	t->quiet = true;
	bool on = hand_out(t, e, r) == TURNED_ON;
	t->quiet = false;
	return on;
}

/* ahead_answered() - Take records out of a packet that fabricd has answered, and do what has been said
 *
 * Return: whether they were those that were expected
 */
bool ahead_answered(struct turns *t, size_t *bytes)
{
	struct wire_records head;
	struct head packet;
	size_t at = RECORDS_HEAD;
	uint32_t count = 0;

	if (*bytes < RECORDS_HEAD)
		return true;
	memcpy(&packet, t->in, sizeof packet);
	memcpy(&head, t->in + sizeof packet, sizeof head);
	if (packet.op != REPLY_RECORDS)
		return true;
	for (; at + sizeof(struct wire_record) <= *bytes; at += sizeof(struct wire_record), count++) {
		struct wire_record r;
		memcpy(&r, t->in + at, sizeof r);
		if (!(r.kind & ANSWERED))
			break;
		if (!answered(t, &r))
			return false;
	}
	if (!count)
		return true;
	memmove(t->in + RECORDS_HEAD, t->in + at, *bytes - at);
	*bytes -= at - RECORDS_HEAD;
	packet.zero = (uint32_t)*bytes;
	head.count -= count;
	memcpy(t->in, &packet, sizeof packet);
	memcpy(t->in + sizeof packet, &head, sizeof head);
	return true;
}

/* ahead_removed() - An execution is over: its lanes' chains have ended, as all that they expected has come */
void ahead_removed(struct turns *t, struct execution *x)
{
	uint32_t left = 0;

	for (uint32_t i = 0; i < t->stopped_count; i++)
		if (t->stopped[i].execution != x)
			t->stopped[left++] = t->stopped[i];
	t->stopped_count = left;
	for (uint32_t k = 0; k < x->plan->lane_count; k++) {
		struct lane *l = &x->lanes[k];
		l->stopped = false;
		if (!l->ahead)
			continue;
		if (!l->ahead->count)
			row_add(&t->free_chains, l->ahead->number);
		free(l->ahead);
		l->ahead = NULL;
	}
}
