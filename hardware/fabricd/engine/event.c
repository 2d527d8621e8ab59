/* Events: a heap ordered by (time, key, sequence number), and lanes
 *
 * The key says what the event is and where.  So events of the same time run in an
 * order that follows from the fabric alone, and not from which was entered first:
 * that depends on when Open vSwitch and the workers happen to answer.
 *
 * What is entered later nearly always belongs behind what was entered before, if it is of
 * the same kind and as long from now: cables, pipelines and frames of one length differ little.
 * So such events stand in a lane, one behind the other, and only the first of them is in the
 * heap.  One that belongs before the last of that lane, or finds it taken, tries the lane of
 * its own key: what comes in at one port, leaves it, or is fetched for it, is in order, too.
 * If it has no place there either it goes into the heap by itself.  So the heap is small, in
 * a large fabric, too; two ways are then better than four.
 *
 * An event that runs nearly always enters another.  So the place of one that was taken out
 * stays empty until the next is entered, or looked for: that is one way through the heap
 * and not two.
 *
 * In a large fabric events lie further apart than a cache is large.  So the heap has what
 * orders them beside each other, and does not look at the events themselves.
 */
#include <stdlib.h>
#include <string.h>

#include "base/lines.h"
#include "base/units.h"
#include "engine/division.h"
#include "engine/event.h"
#include "engine/fabric.h"

#define LANE_BITS 13
#define SLAB_EVENTS 1024
#define IN_NO_LANE UINT32_MAX

struct lane {
	uint64_t name;
	struct queued *last; /* NULL: it is empty */
};

static inline unsigned __int128 when(const struct heap_entry *x)
{
	return (unsigned __int128)(uint64_t)x->t << 64 | x->key;
}

/* Which of two is first is unpredictable, so there is no branch on it, unless they differ in their number alone */
static inline bool before(const struct heap_entry *x, const struct heap_entry *y)
{
	unsigned __int128 a = when(x), b = when(y);

	if (__builtin_expect(a == b, 0))
		return x->q->e.seq < y->q->e.seq;
	return a < b;
}

/* Pauses that come and go without end, and faults, do not keep the fabric busy: whatever waits for an answer has a
 * queue pair's timer as well */
static inline bool background(enum event_kind kind)
{
	return (1ull << EV_PAUSE_REFRESH | 1ull << EV_PAUSE_END | 1ull << EV_WATCHDOG | 1ull << EV_FAULT | 1ull << EV_CREDITS) >> kind & 1;
}

static void heap_free(struct heap *h)
{
	if (h->at)
		free(h->at - (LINE_BYTES / sizeof *h->at - 1));
}

static void grow(struct heap *h)
{
	size_t room = h->room ? 2 * h->room : SLAB_EVENTS;
	struct heap_entry *at = aligned_alloc(LINE_BYTES, (room + LINE_BYTES / sizeof *at) * sizeof *at);

	if (!at)
		abort();
	at += LINE_BYTES / sizeof *at - 1; /* the first has no sibling */
	if (h->at)
		memcpy(at, h->at, h->entries * sizeof *at);
	heap_free(h);
	h->at = at;
	h->room = room;
}

static void more(struct heap *h)
{
	struct queued *slab = aligned_alloc(LINE_BYTES, SLAB_EVENTS * sizeof *slab);
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

/* Kinds of which many are as long from now */
static inline bool steady(enum event_kind kind)
{
	return (1ull << EV_FETCHED | 1ull << EV_PORT_FREE | 1ull << EV_ARRIVE | 1ull << EV_PAUSE_ARRIVE | 1ull << EV_FORWARD) >> kind & 1;
}

static inline bool in_order(const struct event *x, const struct event *y)
{
	if (x->t != y->t)
		return x->t < y->t;
	return x->key != y->key ? x->key < y->key : x->seq <= y->seq;
}

enum joined { BEHIND_OTHERS, ALONE, NOT_THERE };

/* Stand behind the last of the lane called @name, if that is the place */
static inline enum joined join(struct heap *h, struct queued *q, uint64_t name)
{
	uint32_t i = (uint32_t)(name * 0x9e3779b97f4a7c15 >> (64 - LANE_BITS));
	struct lane *lane = &h->lanes[i];
	struct queued *last = lane->last;

	if (last && (lane->name != name || !in_order(&last->e, &q->e)))
		return NOT_THERE;
	q->lane = i;
	lane->name = name;
	lane->last = q;
	if (!last)
		return ALONE;
	last->next = q;
	return BEHIND_OTHERS;
}

/* Return: false if it has to go into the heap
 * @by:	The partition that enters it: each goes through a window by itself, so of each the next belongs behind the last
 */
static inline bool line_up(struct heap *h, struct queued *q, ps_t now, uint64_t by)
{
	enum event_kind kind = event_kind(&q->e);
	enum joined joined = NOT_THERE;

	q->next = NULL;
	q->lane = IN_NO_LANE;
	if (steady(kind))
		joined = join(h, q, (uint64_t)kind << 56 ^ by << 48 ^ (uint64_t)(q->e.t - now));
	if (joined == NOT_THERE)
		joined = join(h, q, q->e.key);
	return joined == BEHIND_OTHERS;
}

static inline struct heap_entry entry_of(struct queued *q)
{
	return (struct heap_entry){.t = q->e.t, .key = q->e.key, .q = q, .a = q->e.a};
}

/* Put an event where the first one was */
static void sift_down(struct heap *h, struct heap_entry x)
{
	struct heap_entry *at = h->at;
	size_t i = 0;

	for (;;) {
		size_t child = 2 * i + 1;
		if (child + 1 < h->entries)
			child += before(&at[child + 1], &at[child]);
		else if (child >= h->entries)
			break;
		if (!before(&at[child], &x))
			break;
		at[i] = at[child];
		i = child;
	}
	at[i] = x;
}

/* The first place is empty, and nothing was entered since: the last event goes there */
static void close_gap(struct heap *h)
{
	if (!h->gap)
		return;
	h->gap = false;
	struct heap_entry last = h->at[--h->entries];
	if (h->entries)
		sift_down(h, last);
}

static struct queued *take(struct heap *h)
{
	if (!h->free)
		more(h);
	struct queued *q = h->free;
	h->free = q->next;
	line_near(h->free); /* whoever enters the next one would wait for it */
	return q;
}

static void push(struct heap *h, struct queued *q, ps_t now, uint64_t by)
{
	bool alone = background(event_kind(&q->e));

	h->n++;
	h->background += alone;
	if (!alone && q->e.t > h->latest)
		h->latest = q->e.t;
	if (line_up(h, q, now, by))
		return;
	struct heap_entry x = entry_of(q);
	if (h->gap) {
		h->gap = false;
		sift_down(h, x);
		return;
	}
	if (h->entries == h->room)
		grow(h);
	size_t i = h->entries++;
	while (i) {
		size_t up = (i - 1) / 2;
		if (!before(&x, &h->at[up]))
			break;
		h->at[i] = h->at[up];
		i = up;
	}
	h->at[i] = x;
}

static inline struct heap *heap_of(struct fabric *f, enum event_kind kind, uint32_t node)
{
	struct division *d = f->division;

	return d && d->in_force && !event_of_all(kind) ? &d->partition[d->of[node]].heap : &f->heap;
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
	struct heap *h = heap_of(f, kind, node);
	struct queued *q = take(h);

	q->e.t = t;
	q->e.key = (uint64_t)kind << 56 | (uint64_t)(node & 0xffffff) << 32 | (uint64_t)(port & 0xffff) << 16 |
		   (other & 0xffff);
	q->e.seq = seq;
	q->e.a = a;
	q->e.b = b;
	push(h, q, f->clock.now, f->division ? f->division->by : 0);
}

/* event_first() - The event that is next; there is one */
const struct event *event_first(struct heap *h)
{
	close_gap(h);
	return &h->at[0].q->e;
}

/* event_forget() - Take events out that are not to happen
 * @over:	Which; what they own it frees
 */
void event_forget(struct fabric *f, bool (*over)(struct event *e, void *context), void *context)
{
	uint32_t heaps = 1 + (f->division ? f->division->count : 0);
	struct heap old[1 + PARTITIONS_MAX];

	for (uint32_t k = 0; k < heaps; k++) {
		struct heap *h = k ? &f->division->partition[k - 1].heap : &f->heap;
		close_gap(h);
		old[k] = *h;
		*h = (struct heap){0};
	}
	for (uint32_t k = 0; k < heaps; k++) {
		for (size_t i = 0; i < old[k].entries; i++)
			for (const struct queued *q = old[k].at[i].q; q; q = q->next) {
				struct event e = q->e;
				if (!over(&e, context))
					event_add(f, e.t, event_kind(&e), event_node(&e), event_port(&e), event_other(&e), e.seq, e.a, e.b);
			}
		events_free(&old[k]);
	}
}

static bool none(struct event *e, void *context)
{
	(void)e;
	(void)context;
	return false;
}

/* events_divide() - Events stand with their partitions from now on, or together */
void events_divide(struct fabric *f, bool on)
{
	f->division->in_force = on;
	event_forget(f, none, NULL);
}

/* event_next() - The event that is next of all, or NULL
 * @from:	Set to the heap that has it
 */
const struct event *event_next(struct fabric *f, struct heap **from)
{
	uint32_t count = f->division && f->division->in_force ? f->division->count : 0;
	struct heap *first = NULL;

	for (uint32_t k = 0; k <= count; k++) {
		struct heap *h = k ? &f->division->partition[k - 1].heap : &f->heap;
		if (!h->n)
			continue;
		close_gap(h);
		if (!first || before(h->at, first->at))
			first = h;
	}
	*from = first;
	return first ? &first->at[0].q->e : NULL;
}

/* events_idle() - Is nothing left but what leads to nothing? */
bool events_idle(const struct fabric *f)
{
	bool idle = f->heap.n == f->heap.background;

	for (uint32_t k = 0; idle && f->division && k < f->division->count; k++)
		idle = f->division->partition[k].heap.n == f->division->partition[k].heap.background;
	return idle;
}

/* events_latest() - The time of the latest event that leads to something, of those that there were */
ps_t events_latest(const struct fabric *f)
{
	ps_t latest = f->heap.latest;

	for (uint32_t k = 0; f->division && k < f->division->count; k++)
		if (f->division->partition[k].heap.latest > latest)
			latest = f->division->partition[k].heap.latest;
	return latest;
}

/* event_pop() - Take the first event out
 * Return: false if there is none
 */
bool event_pop(struct heap *h, struct event *first)
{
	if (!h->n)
		return false;
	close_gap(h);
	struct queued *q = h->at[0].q, *next = q->next;
	first->t = q->e.t; /* one by one: what was just written in pieces cannot be read at once */
	first->key = q->e.key;
	first->seq = q->e.seq;
	first->a = q->e.a;
	first->b = q->e.b;
	h->n--;
	h->background -= background(event_kind(first));
	h->behind = next;
	if (next) {
		sift_down(h, entry_of(next));
	} else {
		if (q->lane != IN_NO_LANE)
			h->lanes[q->lane].last = NULL;
		h->gap = true;
	}
	q->next = h->free;
	h->free = q;
	return true;
}

/* events_free() - Forget all of them */
void events_free(struct heap *h)
{
	while (h->slab_count)
		free(h->slabs[--h->slab_count]);
	free(h->slabs);
	free(h->lanes);
	heap_free(h);
	*h = (struct heap){0};
}
