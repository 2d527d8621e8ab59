/* Best-effort aggregation: the parameter server's end
 *
 * Theory of Operation
 *
 * The server of a job is the host of its first member.  What comes are partial sums
 * with the bitmap of the ranks in them: whole ones when every slot worked, single
 * contributions after collisions, whatever slots had when they were evicted.  The host
 * adds them up, one after the other at its speed of reduction; the first of a block
 * costs nothing, it stays where it came in.  A partial sum that has only some ranks in
 * common with what is there cannot be told apart any more: it is dropped, and the other
 * ranks in it send again (ATP, section 3.6).
 *
 * The whole sum goes to the job's multicast group, past the accelerators, which free
 * the block's slot.  It is kept until the lane's next block but one, and goes to those
 * alone who send again after it: nobody starts a use of a lane before it has the sum of
 * the last but one.
 *
 * A sum says which slot its lane's next block has: another one where it has met another
 * job's block (slots.c), none where accelerators do nothing (alone.c).
 *
 * The server's rank is at home here: its contributions and sums never travel.
 */
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "engine/fabric.h"
#include "link/frame.h"
#include "nic/nic.h"
#include "offload/best_effort/best_effort.h"
#include "offload/offload.h"
#include "vector/element.h"
#include "wire/roce.h"
#include "worker/worker.h"

/* server_new() - The server of a group; @lanes is its own from now on */
struct server *server_new(const struct group *g, uint32_t window, uint32_t elements, double reduce_bps, uint32_t group_ip,
			  struct lane_slots *lanes)
{
	struct server *s = calloc(1, sizeof *s + 2 * (size_t)window * sizeof s->entry[0]);

	if (!s || !(s->sums = calloc(2 * (size_t)window * elements, sizeof *s->sums)) ||
	    !(s->queue = calloc(2 * (size_t)window, sizeof *s->queue)) || !(s->tries = calloc(window, sizeof *s->tries)))
		abort();
	s->window = window;
	s->elements = elements;
	s->reduce_bps = reduce_bps;
	s->group_ip = group_ip;
	s->lanes = lanes;
	s->accelerators = json_array_size(group_granted(g, "tree"));
	s->all = g->count == 64 ? ~0ull : (1ull << g->count) - 1;
	for (uint32_t i = 0; i < 2 * window; i++)
		s->entry[i].sum = s->sums + (size_t)i * elements;
	return s;
}

void server_free(struct server *s)
{
	if (!s)
		return;
	lane_slots_free(s->lanes);
	free(s->sums);
	free(s->queue);
	free(s->tries);
	free(s);
}

static uint32_t index_of(const struct server *s, uint32_t number)
{
	return number % s->window * 2 + (number / s->window & 1);
}

static void enqueue(struct server *s, struct server_entry *e)
{
	if (!e->queued)
		s->queue[(s->queue_head + s->queued++) % (2 * s->window)] = (uint32_t)(e - s->entry);
	e->queued = true;
}

static void dequeue(struct server *s, const struct server_entry *e)
{
	uint32_t kept = 0, room = 2 * s->window;

	for (uint32_t i = 0; i < s->queued; i++) {
		uint32_t index = s->queue[(s->queue_head + i) % room];
		if (index != (uint32_t)(e - s->entry))
			s->queue[(s->queue_head + kept++) % room] = index;
	}
	s->queued = kept;
}

/* The lane's next block but one: whoever still asks for what was there has got it meanwhile */
static void begin(struct server *s, struct server_entry *e, const struct partial *part)
{
	int32_t *sum = e->sum;

	if (e->queued)
		dequeue(s, e);
	*e = (struct server_entry){.used = true,
				   .number = part->number,
				   .count = part->count,
				   .flags = part->flags & OFF_REDUCTION,
				   .exponent = part->exponent,
				   .next = part->next,
				   .sum = sum};
}

/* server_merge() - A partial sum has come in
 * @t:		When it is in memory
 *
 * Return: false if it was of no use
 */
bool server_merge(struct fabric *f, struct member *m, struct server *s, const struct partial *part, ps_t t)
{
	struct server_entry *e = &s->entry[index_of(s, part->number)];

	if (e->used && (int32_t)(part->number - e->number) < 0)
		return false;
	if (!e->used || e->number != part->number)
		begin(s, e, part);
	if (part->count != e->count || (part->flags & OFF_REDUCTION) != (e->flags & OFF_REDUCTION))
		return false;
	if (e->complete) {
		if (part->flags & OFF_RESEND && part->ranks & ~1ull) {
			e->asked |= part->ranks & ~1ull;
			if (e->answered) {
				enqueue(s, e);
				nic_tx_ready(f, &m->nic->tx[0], &m->source);
			}
		}
		return false;
	}
	if (e->seen & part->ranks)
		return false;
	ps_t took = 0;
	if (e->seen) {
		block_add(e->sum, part->payload, part->count, part->flags & OFF_REDUCTION);
		took = s->reduce_bps ? (ps_t)(8e12 * 4 * part->count / s->reduce_bps + 0.5) : 0;
	} else if (part->count) {
		memcpy(e->sum, part->payload, 4u * part->count);
	}
	e->seen |= part->ranks;
	e->exponent = part->exponent > e->exponent ? part->exponent : e->exponent;
	e->next = part->next > e->next ? part->next : e->next;
	e->flags |= part->flags & (OFF_CONGESTED | OFF_COLLIDED);
	e->past = e->past || part->flags & OFF_DIRECT;
	m->nic->worker->host += took;
	s->free = (s->free > t ? s->free : t) + took;
	if (e->seen == s->all) {
		e->complete = true;
		e->slot = s->lanes->of[part->number % s->window];
		e->next_slot = server_next_slot(f, m, s, e);
		e->alone = s->alone;
		offload_later(f, m, s->free, SERVER_EVENT | part->number);
	}
	return true;
}

/* server_sum() - The whole sum of a block, or NULL */
const struct server_entry *server_sum(const struct server *s, uint32_t number)
{
	const struct server_entry *e = &s->entry[index_of(s, number)];

	return e->used && e->complete && e->number == number ? e : NULL;
}

/* server_partial() - A whole sum as it travels */
struct partial server_partial(const struct server_entry *e)
{
	return (struct partial){.number = e->number,
				.ranks = e->seen,
				.count = e->count,
				.flags = e->flags | (e->alone ? OFF_DIRECT : 0),
				.slot = e->slot,
				.next_slot = e->next_slot,
				.exponent = e->exponent,
				.next = e->next,
				.payload = (const uint8_t *)e->sum};
}

/* server_all() - All ranks but the server's */
uint64_t server_all(const struct server *s)
{
	return s->all & ~1ull;
}

/* server_missing() - The ranks whose contributions to a block have not come */
uint64_t server_missing(const struct server *s, uint32_t number)
{
	const struct server_entry *e = &s->entry[index_of(s, number)];

	return e->used && e->number == number ? s->all & ~e->seen : server_all(s);
}

/* server_due() - Does the end of the last addition of a block still matter? */
bool server_due(const struct server *s, uint32_t number)
{
	const struct server_entry *e = server_sum(s, number);

	return e && !e->answered;
}

/* server_answer() - The host has added up a block: it goes to all */
void server_answer(struct fabric *f, struct member *m, struct server *s, uint32_t number)
{
	struct server_entry *e = &s->entry[index_of(s, number)];

	e->answered = e->announce = true;
	enqueue(s, e);
	nic_tx_ready(f, &m->nic->tx[0], &m->source);
}

/* server_build() - The next sum goes out: to all, or to one who has asked
 * Return: bytes of its payload
 */
uint32_t server_build(struct fabric *f, struct member *m, struct server *s, struct frame *fr)
{
	struct server_entry *e = &s->entry[s->queue[s->queue_head]];
	const struct partial part = server_partial(e);
	uint32_t to = s->group_ip;

	s->queue_head = (s->queue_head + 1) % (2 * s->window);
	s->queued--;
	e->queued = false;
	if (e->announce) {
		e->announce = false;
		e->asked = 0;
	} else {
		uint32_t rank = (uint32_t)__builtin_ctzll(e->asked);
		e->asked &= e->asked - 1;
		to = m->group->member[rank].nic->ip;
		m->nic->retransmitted++;
	}
	uint32_t bytes = best_effort_frame(f, m, to, OFF_RESULT, &part, fr);
	if (e->asked)
		enqueue(s, e);
	return bytes;
}
