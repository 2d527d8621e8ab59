/* Events: a four-way heap ordered by (time, key, sequence number).
 *
 * The key says what the event is and where.  So events of the same time run in an
 * order that follows from the fabric alone, and not from which was entered first:
 * that depends on when Open vSwitch and the workers happen to answer.
 */
#include <stdlib.h>

#include "base/units.h"
#include "engine/event.h"
#include "engine/fabric.h"

static bool before(const struct event *x, const struct event *y)
{
	if (x->t != y->t)
		return x->t < y->t;
	if (x->key != y->key)
		return x->key < y->key;
	return x->seq < y->seq;
}

/* Pauses that come and go without end, and faults, are no reason to wait: where something waits for an answer, a
 * queue pair's timer runs */
static bool background(enum event_kind kind)
{
	return kind == EV_PAUSE_REFRESH || kind == EV_PAUSE_END || kind == EV_WATCHDOG || kind == EV_FAULT;
}

static void push(struct heap *h, const struct event *e)
{
	if (h->n == h->room) {
		size_t room = h->room ? 2 * h->room : 4096;
		struct event *ev = realloc(h->ev, room * sizeof *ev);
		if (!ev)
			abort();
		h->ev = ev;
		h->room = room;
	}
	h->background += background(event_kind(e));
	size_t i = h->n++;
	while (i) {
		size_t up = (i - 1) / 4;
		if (!before(e, &h->ev[up]))
			break;
		h->ev[i] = h->ev[up];
		i = up;
	}
	h->ev[i] = *e;
}

/* event_add() - Enter an event
 * @f:		Fabric
 * @t:		When
 * @kind:	What
 * @node:	Node index, @port: its port, @other: a second port or 0
 * @seq:	Tells events of the same time, kind and place apart
 * @a, @b:	For whoever handles it
 */
void event_add(struct fabric *f, ps_t t, enum event_kind kind, uint32_t node, uint32_t port, uint32_t other,
	       uint64_t seq, void *a, uint64_t b)
{
	push(&f->heap, &(struct event){
		.t = t,
		.key = (uint64_t)kind << 56 | (uint64_t)(node & 0xffffff) << 32 | (uint64_t)(port & 0xffff) << 16 |
		       (other & 0xffff),
		.seq = seq,
		.a = a,
		.b = b,
	});
}

/* event_forget() - Take events out that are not to happen
 * @over:	Which; what they own it frees
 */
void event_forget(struct fabric *f, bool (*over)(struct event *e, void *context), void *context)
{
	struct heap old = f->heap;

	f->heap = (struct heap){0};
	for (size_t i = 0; i < old.n; i++)
		if (!over(&old.ev[i], context))
			push(&f->heap, &old.ev[i]);
	free(old.ev);
}

/* event_pop() - Take the first event out
 * Return: false if there is none
 */
bool event_pop(struct heap *h, struct event *first)
{
	if (!h->n)
		return false;
	*first = h->ev[0];
	h->background -= background(event_kind(first));
	struct event e = h->ev[--h->n];
	size_t i = 0;
	for (;;) {
		size_t child = 4 * i + 1, end = child + 4, least = child;
		if (child >= h->n)
			break;
		if (end > h->n)
			end = h->n;
		while (++child < end)
			if (before(&h->ev[child], &h->ev[least]))
				least = child;
		if (!before(&h->ev[least], &e))
			break;
		h->ev[i] = h->ev[least];
		i = least;
	}
	if (h->n)
		h->ev[i] = e;
	return true;
}
