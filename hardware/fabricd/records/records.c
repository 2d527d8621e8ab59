/* What has happened to a worker, in the order of time
 *
 * Theory of Operation
 *
 * Records are added in any order, many of them with a later time, and are fetched from
 * the front.  A worker decides how many there are, so no operation may go through all of
 * them.  They are kept in blocks, sorted within a block and from block to block.  A new
 * record's block is found by bisection, and only what is behind it in that block moves;
 * a full block is cut in two.  The n-th record is found by counting blocks.
 */
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "records/records.h"

#define BLOCK_RECORDS 256

struct record_block {
	uint32_t first, end; /* of `r`, what is in use */
	struct record r[BLOCK_RECORDS];
};

static bool before(const struct record *x, const struct record *y)
{
	if (x->t != y->t)
		return x->t < y->t;
	if (x->kind != y->kind)
		return x->kind < y->kind;
	if (x->qp != y->qp)
		return x->qp < y->qp;
	return x->wr_id < y->wr_id;
}

static uint32_t in_block(const struct record_block *b)
{
	return b->end - b->first;
}

/* A new empty block at @at */
static struct record_block *insert_block(struct records *q, uint32_t at)
{
	struct record_block *b = q->spare ? q->spare : malloc(sizeof *b);

	q->spare = NULL;
	if (q->blocks == q->room) {
		q->room = q->room ? 2 * q->room : 4;
		q->block = realloc(q->block, q->room * sizeof *q->block);
	}
	if (!b || !q->block)
		abort();
	memmove(q->block + at + 1, q->block + at, (q->blocks - at) * sizeof *q->block);
	q->block[at] = b;
	q->blocks++;
	b->first = b->end = 0;
	return b;
}

/* The block in which a record belongs: the last one that does not begin behind it */
static uint32_t block_of(const struct records *q, const struct record *r)
{
	uint32_t low = 0, high = q->blocks - 1;

	while (low < high) {
		uint32_t middle = (low + high + 1) / 2;
		const struct record_block *b = q->block[middle];
		if (before(r, &b->r[b->first]))
			high = middle - 1;
		else
			low = middle;
	}
	return low;
}

/* Make room for one more in a full block; the record belongs at @at of it, or of the block returned */
static struct record_block *make_room(struct records *q, uint32_t number, uint32_t *at)
{
	struct record_block *b = q->block[number];

	if (b->first) {
		memmove(b->r, b->r + b->first, in_block(b) * sizeof *b->r);
		*at -= b->first;
		b->end -= b->first;
		b->first = 0;
		return b;
	}
	uint32_t stay = *at == BLOCK_RECORDS && number + 1 == q->blocks ? BLOCK_RECORDS : BLOCK_RECORDS / 2;
	struct record_block *next = insert_block(q, number + 1);
	next->end = BLOCK_RECORDS - stay;
	memcpy(next->r, b->r + stay, next->end * sizeof *b->r);
	b->end = stay;
	if (*at < stay || (*at == stay && stay < BLOCK_RECORDS))
		return b;
	*at -= stay;
	return next;
}

/* records_add() - Keep one, behind all that are not after it */
void records_add(struct records *q, const struct record *r)
{
	if (!q->blocks)
		insert_block(q, 0);
	uint32_t number = block_of(q, r);
	struct record_block *b = q->block[number];
	uint32_t low = b->first, high = b->end;
	while (low < high) {
		uint32_t middle = (low + high) / 2;
		if (before(r, &b->r[middle]))
			high = middle;
		else
			low = middle + 1;
	}
	if (b->end == BLOCK_RECORDS)
		b = make_room(q, number, &low);
	memmove(b->r + low + 1, b->r + low, (b->end - low) * sizeof *r);
	b->r[low] = *r;
	b->end++;
	q->count++;
}

/* records_nth() - The n-th from the front, from 0, or NULL */
const struct record *records_nth(const struct records *q, size_t n)
{
	for (uint32_t i = 0; i < q->blocks && n < q->count; i++) {
		const struct record_block *b = q->block[i];
		if (n < in_block(b))
			return &b->r[b->first + n];
		n -= in_block(b);
	}
	return NULL;
}

/* records_due() - How many there are up to and at that time */
size_t records_due(const struct records *q, ps_t t)
{
	size_t due = 0;

	for (uint32_t i = 0; i < q->blocks; i++) {
		const struct record_block *b = q->block[i];
		if (b->r[b->end - 1].t <= t) {
			due += in_block(b);
			continue;
		}
		for (uint32_t k = b->first; b->r[k].t <= t; k++)
			due++;
		break;
	}
	return due;
}

static void drop_block(struct records *q)
{
	free(q->spare);
	q->spare = q->block[0];
	q->blocks--;
	memmove(q->block, q->block + 1, q->blocks * sizeof *q->block);
}

/* records_drop() - The first @n have been fetched */
void records_drop(struct records *q, size_t n)
{
	q->count -= n;
	while (n) {
		struct record_block *b = q->block[0];
		uint32_t here = n < in_block(b) ? (uint32_t)n : in_block(b);
		b->first += here;
		n -= here;
		if (b->first == b->end)
			drop_block(q);
	}
}

/* records_free() - Forget all of them */
void records_free(struct records *q)
{
	for (uint32_t i = 0; i < q->blocks; i++)
		free(q->block[i]);
	free(q->block);
	free(q->spare);
	*q = (struct records){0};
}
