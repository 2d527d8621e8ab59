/* What a worker says when something comes, said beforehand
 *
 * Theory of Operation
 *
 * A schedule often knows what it will post when a certain record comes, and nothing but that: the next message when one has
 * arrived, or when a reduction is through.  To be woken for it costs a worker and us a hundred times what the post does.  So
 * it says that beforehand (FORESEE): records that it expects one after the other, a chain, and with each the commands that
 * it would answer with before it waits again.  When a wait ends, and what has come is the first of a chain and nothing else,
 * those commands are carried out and it goes on waiting.  It is told of the record with the next one that wakes it.
 *
 * What it says then is what it would have said, at the same emulated time: who looks from outside sees no difference.  That
 * holds as long as things come as expected.  So a record is not answered when another one is due with it, or when it has
 * failed; and where one comes before those that stand before it in its chain, the chain is forgotten, by us and by the
 * worker, who is told of that record and begins a new one.  The last of a chain is always one of which the worker is to be
 * told: what it says then depends on more than the chain.
 */
#include <stdlib.h>
#include <string.h>

#include "records/foreseen.h"
#include "records/records.h"

#define BUCKETS 64

struct chain {
	struct foreseen *first, *last;
};

struct foresight {
	struct foreseen *bucket[BUCKETS];
	uint32_t count, answered_count;
	struct record answered[ANSWERED_MAX]; /* the worker has not been told yet */
	struct chain chain[CHAINS_MAX];
};

static struct foreseen **bucket_of(struct foresight *s, uint16_t kind, uint64_t key)
{
	return &s->bucket[(key ^ key >> 32 ^ kind) % BUCKETS];
}

/* By what a record is known: its number, or its queue pair and immediate */
static uint64_t key_of(const struct record *r)
{
	return r->kind == REC_COMPUTED ? r->wr_id : (uint64_t)r->qp << 32 | r->imm;
}

static struct foreseen *find(struct foresight *s, uint16_t kind, uint64_t key)
{
	struct foreseen *x = *bucket_of(s, kind, key);

	while (x && (x->kind != kind || x->key != key))
		x = x->other;
	return x;
}

/* Take the first of a chain out of it; it is the caller's */
static void take_first(struct foresight *s, struct foreseen *x)
{
	struct foreseen **at = bucket_of(s, x->kind, x->key);
	struct chain *c = &s->chain[x->chain];

	while (*at != x)
		at = &(*at)->other;
	*at = x->other;
	c->first = x->behind;
	if (!c->first)
		c->last = NULL;
	s->count--;
}

static void forget_chain(struct foresight *s, struct chain *c)
{
	while (c->first) {
		struct foreseen *x = c->first;
		take_first(s, x);
		free(x);
	}
}

/* foreseen_add() - Expect a record, behind all others of its chain
 * Return: whether there is room for it, and it is not expected already
 */
bool foreseen_add(struct foresight **all, const struct foreseen *what, const uint8_t *said)
{
	if (!*all && !(*all = calloc(1, sizeof **all)))
		abort();
	struct foresight *s = *all;
	if (s->count == FORESEEN_MAX || find(s, what->kind, what->key))
		return false;
	struct foreseen *x = malloc(sizeof *x + what->bytes), **at = bucket_of(s, what->kind, what->key);
	struct chain *c = &s->chain[what->chain];
	if (!x)
		abort();
	*x = *what;
	x->other = *at;
	if (what->bytes)
		memcpy(x->said, said, what->bytes);
	*at = x;
	if (c->last)
		c->last->behind = x;
	else
		c->first = x;
	c->last = x;
	s->count++;
	return true;
}

/* foreseen_answer() - A record has come alone: is what is said to it known?  Then it counts as answered
 * Return: what is said, which is the caller's; or NULL
 */
struct foreseen *foreseen_answer(struct foresight *s, const struct record *r)
{
	struct foreseen *x = s && s->count && s->answered_count < ANSWERED_MAX && !r->status ? find(s, r->kind, key_of(r)) : NULL;

	if (!x || x->told || s->chain[x->chain].first != x)
		return NULL;
	s->answered[s->answered_count++] = *r;
	take_first(s, x);
	return x;
}

/* foreseen_answered() - Records that were answered, and of which the worker is told now
 * Return: how many there are at @records
 */
uint32_t foreseen_answered(struct foresight *s, const struct record **records)
{
	if (!s)
		return 0;
	uint32_t count = s->answered_count;
	s->answered_count = 0;
	*records = s->answered;
	return count;
}

/* foreseen_told() - The worker is told of a record that was not answered */
void foreseen_told(struct foresight *s, const struct record *r)
{
	struct foreseen *x = s && s->count ? find(s, r->kind, key_of(r)) : NULL;

	if (!x)
		return;
	if (s->chain[x->chain].first != x) {
		forget_chain(s, &s->chain[x->chain]);
		return;
	}
	take_first(s, x);
	free(x);
}

/* foreseen_free() - The session is over */
void foreseen_free(struct foresight **all)
{
	for (uint32_t i = 0; *all && i < CHAINS_MAX; i++)
		forget_chain(*all, &(*all)->chain[i]);
	free(*all);
	*all = NULL;
}
