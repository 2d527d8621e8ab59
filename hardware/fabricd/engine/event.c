/* Events: a four-way heap ordered by (time, key, sequence number), and lanes
 *
 * The key says what the event is and where.  So events of the same time run in an
 * order that follows from the fabric alone, and not from which was entered first:
 * that depends on when Open vSwitch and the workers happen to answer.
 *
 * What comes in at a port, leaves it, or is fetched for it, is nearly always entered in
 * the order in which it happens.  So events with the same key stand in a lane, one behind
 * the other, and only the first of them is in the heap.  One that belongs before the last
 * of its lane, or finds its lane taken by another key, goes into the heap by itself.
 */
#include <stdlib.h>

#include "base/units.h"
#include "engine/event.h"
#include "engine/fabric.h"

#define LANE_BITS 13
#define SLAB_EVENTS 1024
#define IN_NO_LANE UINT32_MAX

struct queued {
	struct event e;
	struct queued *next; /* in its lane, or free */
	uint32_t lane;
};

struct lane {
	uint64_t key;
	struct queued *last; /* NULL: it is empty */
};

/* What decides the order stands in the heap itself */
struct heap_entry {
	ps_t t;
	uint64_t key, seq;
	struct queued *event;
};

static inline bool before(const struct heap_entry *x, const struct heap_entry *y)
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

static struct heap_entry entry_of(struct queued *q)
{
	return (struct heap_entry){.t = q->e.t, .key = q->e.key, .seq = q->e.seq, .event = q};
}

static void grow(struct heap *h)
{
	size_t room = h->room ? 2 * h->room : SLAB_EVENTS;
	struct heap_entry *at = realloc(h->at, room * sizeof *at);

	if (!at)
		abort();
	h->at = at;
	h->room = room;
}

static void more(struct heap *h)
{
	struct queued *slab = malloc(SLAB_EVENTS * sizeof *slab);
	void **slabs = realloc(h->slabs, (h->slab_count + 1) * sizeof *slabs);

	if (!slab || !slabs)
		abort();
	h->slabs = slabs;
	slabs[h->slab_count++] = slab;
	for (size_t i = SLAB_EVENTS; i-- > 0;) {
		slab[i].next = h->free;
		h->free = &slab[i];
	}
	if (!h->lanes && !(h->lanes = calloc(1u << LANE_BITS, sizeof *h->lanes)))
		abort();
}

static uint32_t lane_of(uint64_t key)
{
	return (uint32_t)(key * 0x9e3779b97f4a7c15 >> (64 - LANE_BITS));
}

/* Stand behind the last of the same key, if that is the place
 * Return: false if it has to go into the heap
 */
static bool line_up(struct heap *h, struct queued *q)
{
	struct lane *lane = &h->lanes[lane_of(q->e.key)];
	struct queued *last = lane->last;

	q->next = NULL;
	q->lane = IN_NO_LANE;
	if (last && (lane->key != q->e.key || last->e.t > q->e.t || (last->e.t == q->e.t && last->e.seq > q->e.seq)))
		return false;
	q->lane = lane_of(q->e.key);
	lane->key = q->e.key;
	lane->last = q;
	if (last)
		last->next = q;
	return last;
}

static void push(struct heap *h, const struct event *e)
{
	if (!h->free)
		more(h);
	struct queued *q = h->free;
	h->free = q->next;
	q->e = *e;
	h->n++;
	h->background += background(event_kind(e));
	if (line_up(h, q))
		return;
	if (h->entries == h->room)
		grow(h);
	struct heap_entry new = entry_of(q);
	size_t i = h->entries++;
	while (i) {
		size_t up = (i - 1) / 4;
		if (!before(&new, &h->at[up]))
			break;
		h->at[i] = h->at[up];
		i = up;
	}
	h->at[i] = new;
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

/* event_first() - The event that is next; there is one */
const struct event *event_first(const struct heap *h)
{
	return &h->at[0].event->e;
}

/* event_forget() - Take events out that are not to happen
 * @over:	Which; what they own it frees
 */
void event_forget(struct fabric *f, bool (*over)(struct event *e, void *context), void *context)
{
	struct heap old = f->heap;

	f->heap = (struct heap){0};
	for (size_t i = 0; i < old.entries; i++)
		for (struct queued *q = old.at[i].event; q; q = q->next)
			if (!over(&q->e, context))
				push(&f->heap, &q->e);
	events_free(&old);
}

/* Put an entry where the first one was */
static void sift_down(struct heap *h, const struct heap_entry *e)
{
	size_t i = 0;

	for (;;) {
		size_t child = 4 * i + 1, end = child + 4, least = child;
		if (child >= h->entries)
			break;
		if (end > h->entries)
			end = h->entries;
		while (++child < end)
			if (before(&h->at[child], &h->at[least]))
				least = child;
		if (!before(&h->at[least], e))
			break;
		h->at[i] = h->at[least];
		i = least;
	}
	h->at[i] = *e;
}

/* event_pop() - Take the first event out
 * Return: false if there is none
 */
bool event_pop(struct heap *h, struct event *first)
{
	if (!h->n)
		return false;
	struct queued *q = h->at[0].event;
	struct heap_entry e;
	*first = q->e;
	h->n--;
	h->background -= background(event_kind(first));
	if (q->next) {
		e = entry_of(q->next);
	} else {
		if (q->lane != IN_NO_LANE)
			h->lanes[q->lane].last = NULL;
		e = h->at[--h->entries];
	}
	q->next = h->free;
	h->free = q;
	if (h->entries)
		sift_down(h, &e);
	return true;
}

/* events_free() - Forget all of them */
void events_free(struct heap *h)
{
	while (h->slab_count)
		free(h->slabs[--h->slab_count]);
	free(h->slabs);
	free(h->lanes);
	free(h->at);
	*h = (struct heap){0};
}
