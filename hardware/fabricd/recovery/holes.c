/* Selective repeat, sending side: the holes of a queue pair, in the order of their numbers */
#include <stdlib.h>

#include "recovery/holes.h"

/* Twice the room; what was there is at the beginning */
static void grow(struct holes *h)
{
	uint32_t room = h->room ? 2 * h->room : 16;
	struct hole *hole = calloc(room, sizeof *hole);

	if (!hole)
		abort();
	for (uint32_t i = 0; i < h->count; i++)
		hole[i] = *holes_at(h, i);
	free(h->hole);
	h->hole = hole;
	h->room = room;
	h->first = 0;
}

/* holes_add() - One more, behind all others */
void holes_add(struct holes *h, const struct hole *hole)
{
	if (h->count == h->room)
		grow(h);
	*holes_at(h, h->count++) = *hole;
}

void holes_drop_first(struct holes *h)
{
	h->first = (h->first + 1) & (h->room - 1);
	h->count--;
}

/* holes_index() - Where the one of that number is, or would be */
uint32_t holes_index(const struct holes *h, uint64_t n)
{
	uint32_t least = 0, most = h->count;

	while (least < most) {
		uint32_t i = least + (most - least) / 2;
		if (holes_at(h, i)->number < n)
			least = i + 1;
		else
			most = i;
	}
	return least;
}

/* holes_walk() - The one of that number, or NULL; @at is where one of a lower number is looked for no more */
struct hole *holes_walk(const struct holes *h, uint32_t *at, uint64_t n)
{
	while (*at < h->count && holes_at(h, *at)->number < n)
		++*at;
	return *at < h->count && holes_at(h, *at)->number == n ? holes_at(h, *at) : NULL;
}

/* holes_find() - The one of that number, or NULL */
struct hole *holes_find(const struct holes *h, uint64_t n)
{
	uint32_t i = holes_index(h, n);

	return holes_walk(h, &i, n);
}

static bool sent_later(const struct hole *a, const struct hole *b)
{
	return a->before != b->before ? a->before > b->before : a->again && (!b->again || a->turn > b->turn);
}

/* holes_sent_last() - The one under way that was sent last; there is one */
uint32_t holes_sent_last(const struct holes *h)
{
	uint32_t last = UINT32_MAX;

	for (uint32_t i = 0; i < h->count; i++)
		if (holes_at(h, i)->state != CAME && (last == UINT32_MAX || sent_later(holes_at(h, i), holes_at(h, last))))
			last = i;
	return last;
}
