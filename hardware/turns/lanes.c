/* Lanes of a schedule, from step to step as completions come in: Execution of workloads/collectives/execution.py
 *
 * The order in which lanes go on is the order of commands, and so of emulated time: it is kept exactly.
 */
#include "turns.h"

#include <stdlib.h>
#include <string.h>

#define OWN_CLOCKS (1ull << 32) /* the first number of a time that a lane with a clock of its own waits for */

/* As fabricd lays them out (worker/commands.def) */
struct post_recv {
	uint32_t qp, lkey;
	uint64_t wr_id, offset, length;
};
struct compute {
	uint64_t wr_id, ps;
	uint32_t stream, zero;
};
_Static_assert(sizeof(struct post_send) == 56 && sizeof(struct post_recv) == 32 && sizeof(struct compute) == 24, "as fabricd lays them out");

void row_add(struct row *row, uint32_t item)
{
	if (row->count == row->room) {
		uint32_t room = row->room ? 2 * row->room : 16, *items = malloc(room * sizeof *items);
		if (!items)
			abort();
		for (uint32_t i = 0; i < row->count; i++)
			items[i] = row->items[(row->first + i) % row->room];
		free(row->items);
		*row = (struct row){.items = items, .count = row->count, .room = room};
	}
	row->items[(row->first + row->count++) % row->room] = item;
}

uint32_t row_take(struct row *row)
{
	uint32_t item = row->items[row->first];

	row->first = (row->first + 1) % row->room;
	row->count--;
	return item;
}

/* Records of one time come in the order of their numbers: so these are Python's */
static uint64_t compute(struct turns *t, struct execution *x, enum waited what, uint32_t index, int64_t ps, uint32_t stream)
{
	uint64_t number = x->together ? ++t->token : what == REDUCED ? index : OWN_CLOCKS + ++x->waits;

	table_add(&t->computations, (struct entry){.execution = x, .key = number, .index = index, .what = what});
	say(t, COMPUTE, &(struct compute){.wr_id = number, .ps = (uint64_t)ps, .stream = stream}, sizeof(struct compute));
	return number;
}

/* Sending */

/* posted() - A line's message of that number */
struct post_send posted(const struct execution *x, const struct lane_plan *lane, const struct step *s, uint32_t number)
{
	const struct line *line = &x->lines[s->other];
	const struct line_plan *plan = &x->plan->lines[s->other];
	uint32_t region = s->region;
	const struct place *there = &x->plan->places[plan->there + number];
	uint64_t from = s->at;

	if (lane->buffered) {
		region = 1;
		from = x->plan->copies[plan->copies + number];
	}
	/* completions of a connection are in order: the last says it all, if nothing waits for one before it */
	bool signaled = number + 1 == plan->there_count || lane->window >= 0;
	return (struct post_send){.qp = line->qp,
				  .opcode = WIRE_WRITE_IMM,
				  .flags = signaled ? WIRE_SIGNALED : 0,
				  .wr_id = x->first + number,
				  .lkey = x->keys[region],
				  .rkey = line->keys[there->region],
				  .local = x->at[region] + from,
				  .remote = line->at[there->region] + there->at,
				  .length = s->message,
				  .imm = x->first + number};
}

static void post(struct turns *t, struct execution *x, const struct lane_plan *lane, const struct step *s)
{
	struct post_send post = posted(x, lane, s, x->lines[s->other].sent++);

	say(t, POST_SEND, &post, sizeof post);
}

/* Who counts messages under way, and where those that wait for the window stand */
struct limited {
	uint32_t *under_way, *outbox, *outbox_last;
};

static struct limited limited(struct execution *x, uint32_t lane, uint32_t line)
{
	struct lane *a = &x->lanes[lane];
	struct line *b = &x->lines[line];

	if (x->plan->lanes[lane].per_peer)
		return (struct limited){&b->under_way, &b->outbox, &b->outbox_last};
	return (struct limited){&a->under_way, &a->outbox, &a->outbox_last};
}

static void post_in_turn(struct turns *t, struct execution *x, uint32_t lane, uint32_t step)
{
	const struct lane_plan *plan = &x->plan->lanes[lane];
	struct limited l = limited(x, lane, x->plan->steps[step].other);

	if (plan->window >= 0 && *l.under_way == (uint64_t)plan->window) {
		x->next[step] = 0;
		if (*l.outbox)
			x->next[*l.outbox_last - 1] = step + 1;
		else
			*l.outbox = step + 1;
		*l.outbox_last = step + 1;
		return;
	}
	++*l.under_way;
	post(t, x, plan, &x->plan->steps[step]);
}

/* Posts a message, or has it wait until the window lets it; what a buffered lane sends is copied now */
static void send_step(struct turns *t, struct execution *x, uint32_t lane, uint32_t step)
{
	const struct step *s = &x->plan->steps[step];

	if (x->plan->lanes[lane].buffered) {
		uint64_t to = x->plan->copies[x->plan->lines[s->other].copies + x->lines[s->other].copied++];
		copy(x, 1, to, (struct place){.at = s->at, .region = s->region}, s->bytes);
	}
	post_in_turn(t, x, lane, step);
}

static void acknowledged(struct turns *t, struct execution *x, uint32_t number, uint32_t lane, uint32_t line)
{
	struct limited l = limited(x, lane, line);

	x->lines[line].acknowledged = number + 1 == x->plan->lines[line].there_count;
	--*l.under_way;
	if (*l.outbox) {
		uint32_t step = *l.outbox - 1;
		*l.outbox = x->next[step];
		post_in_turn(t, x, lane, step);
	}
}

/* Steps */

/* Puts what stands there where a step wants it.  Return: whether the lane must wait for a stream to do it */
static bool into(struct turns *t, struct execution *x, uint32_t lane, const struct step *s, struct place from)
{
	if (!s->reduce) {
		copy(x, s->region, s->at, from, s->bytes);
		return false;
	}
	uint32_t stream = x->lanes[lane].stream;
	if (s->ps != NO_TIME && stream != ON_HOST) {
		x->lanes[lane].reducing = true;
		x->lanes[lane].pending = from;
		x->lanes[lane].computing = compute(t, x, REDUCED, lane, s->ps, stream) + 1;
		return true;
	}
	if (s->ps != NO_TIME)
		say(t, SPEND, &(uint64_t){(uint64_t)s->ps}, 8);
	combine(t, x, s->region, s->at, from, s->bytes);
	return false;
}

static void busy(struct turns *t, struct execution *x, uint32_t lane, int64_t ps, enum waited what)
{
	x->lanes[lane].reducing = true;
	compute(t, x, what, lane, ps, NO_STREAM);
}

static void wait_for(struct lane *other, uint32_t until, uint32_t lane)
{
	if (other->waiting_count == other->waiting_room) {
		other->waiting_room = other->waiting_room ? 2 * other->waiting_room : 4;
		other->waiting = realloc(other->waiting, other->waiting_room * sizeof *other->waiting);
		if (!other->waiting)
			abort();
	}
	other->waiting[other->waiting_count++] = (struct waiting){until, lane};
}

/* One step.  Return: whether the lane may do the next one */
static bool step_once(struct turns *t, struct execution *x, uint32_t lane, uint32_t step)
{
	const struct step *s = &x->plan->steps[step];

	switch ((enum step_kind)s->kind) {
	case STEP_SEND:
		if (!x->plan->lanes[lane].clocked)
			send_step(t, x, lane, step);
		return true;
	case STEP_RECV: {
		struct line *line = &x->lines[s->other];
		if (line->seen == line->taken)
			return false;
		return !into(t, x, lane, s, x->plan->places[x->plan->lines[s->other].own + line->taken++]);
	}
	case STEP_COPY: return !into(t, x, lane, s, (struct place){.at = s->from, .region = s->source});
	case STEP_WORK: busy(t, x, lane, s->ps, BUSY); return false;
	case STEP_WAIT:
		if (x->lanes[s->other].at >= s->message)
			return true;
		wait_for(&x->lanes[s->other], (uint32_t)s->message, lane);
		return false;
	}
	return false;
}

/* A lane's own clock goes on with its work before the host posts what it has done */
static void go_on(struct turns *t, struct execution *x, uint32_t lane)
{
	const struct lane_plan *plan = &x->plan->lanes[lane];
	struct lane *l = &x->lanes[lane];
	uint32_t began = l->at;

	while (l->at < plan->count && !l->reducing && step_once(t, x, lane, plan->first + l->at))
		l->at++;
	for (uint32_t k = began; plan->clocked && k < l->at; k++)
		if (x->plan->steps[plan->first + k].kind == STEP_SEND)
			send_step(t, x, lane, plan->first + k);
	ahead_stopped(t, x, lane);
}

static void release(struct turns *t, struct lane *l)
{
	uint32_t left = 0;

	for (uint32_t i = 0; i < l->waiting_count; i++)
		if (l->waiting[i].until <= l->at)
			row_add(&t->going, l->waiting[i].lane);
		else
			l->waiting[left++] = l->waiting[i];
	l->waiting_count = left;
}

/* Takes a lane as far as it comes, and then those that waited for what it has done */
static void advance(struct turns *t, struct execution *x, uint32_t lane)
{
	row_add(&t->going, lane);
	while (t->going.count) {
		uint32_t one = row_take(&t->going);
		go_on(t, x, one);
		release(t, &x->lanes[one]);
	}
}

/* What has come */

static void seen(struct turns *t, struct execution *x, uint32_t line)
{
	int32_t receiver = x->plan->lines[line].receiver;

	x->lines[line].seen++;
	if (receiver >= 0 && x->running)
		advance(t, x, (uint32_t)receiver);
}

static void arrived(struct turns *t, struct execution *x, uint32_t line)
{
	int64_t later = x->plan->lines[line].later_ps;

	if (later == NO_TIME)
		seen(t, x, line);
	else
		compute(t, x, SEEN, line, later, NO_STREAM);
}

static void post_receive(struct turns *t, struct receives *r)
{
	say(t, POST_RECV, &(struct post_recv){.qp = r->qp, .lkey = r->key, .offset = r->at}, sizeof(struct post_recv));
	r->posted++;
}

/* One was used up */
static void receives_took(struct turns *t, struct receives *r)
{
	r->posted--;
	r->bound--;
	if (r->posted < r->bound && r->posted < r->depth)
		post_receive(t, r);
}

/* lanes_take() - A completion.  Return: whether it is one that may come now */
bool lanes_take(struct turns *t, struct execution *x, uint32_t line, bool sent, uint64_t wr_id, uint32_t imm)
{
	const struct line_plan *plan = &x->plan->lines[line];
	struct line *l = &x->lines[line];
	uint32_t number = imm - x->first;

	if (sent) {
		if (plan->sender < 0 || !x->running)
			return false;
		acknowledged(t, x, (uint32_t)(wr_id - x->first), (uint32_t)plan->sender, line);
		return true;
	}
	if (l->receives)
		receives_took(t, l->receives);
	if (number < l->arrived || number >= plan->own_count || l->early[number / 64] >> number % 64 & 1)
		return false;
	l->early[number / 64] |= 1ull << number % 64;
	while (l->arrived < plan->own_count && l->early[l->arrived / 64] >> l->arrived % 64 & 1) {
		l->early[l->arrived / 64] &= ~(1ull << l->arrived % 64);
		l->arrived++;
		arrived(t, x, line);
	}
	return true;
}

/* lanes_computed() - A time is over that a lane, or what has come, has waited for */
void lanes_computed(struct turns *t, struct execution *x, uint32_t what, uint32_t index)
{
	if (what == SEEN) {
		seen(t, x, index);
		return;
	}
	struct lane *l = &x->lanes[index];
	const struct step *s = &x->plan->steps[x->plan->lanes[index].first + l->at];
	if (what == REDUCED && !l->combined)
		combine(t, x, s->region, s->at, l->pending, s->bytes);
	l->reducing = false;
	l->combined = false;
	l->computing = 0;
	l->at += what != BEGUN;
	advance(t, x, index);
}

/* turns_done() - Has all been received, and is all that was sent acknowledged? */
bool turns_done(const struct execution *x)
{
	for (uint32_t k = 0; k < x->plan->lane_count; k++)
		if (x->lanes[k].at < x->plan->lanes[k].count || x->lanes[k].outbox)
			return false;
	for (uint32_t k = 0; k < x->plan->line_count; k++)
		if (!x->lines[k].acknowledged)
			return false;
	return true;
}

/* turns_start() - Takes every lane as far as it comes.  Return: whether that was all */
bool turns_start(struct turns *t, struct execution *x)
{
	x->running = true;
	for (uint32_t k = 0; k < x->plan->lane_count; k++)
		if (x->plan->lanes[k].begin_ps != NO_TIME)
			busy(t, x, k, x->plan->lanes[k].begin_ps, BEGUN);
		else
			advance(t, x, k);
	x->running = !turns_done(x);
	return !x->running;
}

/* turns_reset() - Back to the beginning */
void turns_reset(struct execution *x)
{
	for (uint32_t k = 0; k < x->plan->line_count; k++) {
		const struct line_plan *plan = &x->plan->lines[k];
		struct line *l = &x->lines[k];
		l->sent = l->copied = l->arrived = l->taken = l->seen = l->under_way = l->outbox = 0;
		l->acknowledged = !plan->there_count;
		memset(l->early, 0, (plan->own_count + 63) / 64 * 8);
	}
	for (uint32_t k = 0; k < x->plan->lane_count; k++) {
		struct lane *l = &x->lanes[k];
		l->at = l->under_way = l->reducing = l->outbox = l->waiting_count = l->combined = 0;
		l->computing = 0;
	}
	x->foresees = true;
	for (uint32_t k = 0; k < x->plan->step_count; k++)
		x->foresees &= x->plan->steps[k].kind != STEP_WAIT;
	x->running = false;
}

/* turns_free() - What lanes have taken of the C library's memory */
void turns_free(struct execution *x)
{
	for (uint32_t k = 0; k < x->plan->lane_count; k++) {
		struct lane *l = &x->lanes[k];
		free(l->waiting);
		l->waiting = NULL;
		l->waiting_count = l->waiting_room = 0;
	}
}
