/* Passes: what goes round a NIC-side ring, from a request to its end
 *
 * Theory of Operation
 *
 * A request is some passes; each goes round with a part of every chunk.  The messages of
 * a pass, one for each hop, are handed to the queue pair when there is room (admitted);
 * from then on packets that come in count for it.  A request is done when all results of
 * its passes are in memory; a pass is forgotten when its packets have also been sent.
 */
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "engine/fabric.h"
#include "nic/nic.h"
#include "offload/offload.h"
#include "offload/ring/ring.h"
#include "transport/qp.h"
#include "vector/element.h"
#include "worker/services.h"

/* ring_later() - Look again at @t */
void ring_later(struct ring_member *r, ps_t t)
{
	if (r->member)
		offload_later(r->f, r->member, t, (uint64_t)t);
}

/* How many packets go each way */
static void measure(const struct ring_member *r, struct ring_pass *q)
{
	uint64_t start;

	if (!q->hops)
		return;
	q->own = ring_packets(r, ring_part(r, q, ring_sends(r, q, 0), &start));
	q->sends = q->own;
	for (uint32_t hop = 0; hop < q->hops; hop++) {
		uint64_t n = ring_packets(r, ring_part(r, q, ring_receives(r, q, hop), &start));
		q->receives += n;
		q->sends += hop + 1 < q->hops ? n : 0;
	}
}

/* Take our part of the parameters into the NIC's memory */
static void load(struct ring_member *r, struct ring_pass *q)
{
	uint64_t start, chunk = ring_chunk(r, q->wr.count, r->index, &start);
	const uint8_t *from = ring_memory(r, q->wr.in_key, q->wr.in + 4 * start, 4 * chunk);

	if (from)
		memcpy(r->parameters, from, 4 * chunk);
	for (uint32_t i = 0; i + 1 < optimizer_arrays(r->optimizer); i++)
		memset(r->state[i], 0, 4 * chunk);
	q->visible = r->f->clock.now + r->nic->p.pcie_latency;
	for (uint64_t left = chunk; left; left -= left < r->packet_elements ? left : r->packet_elements)
		q->visible = pcie_read(r->nic, r->f->clock.now, 4 * (uint32_t)(left < r->packet_elements ? left : r->packet_elements));
}

/* ring_next() - The next pass that sends and receives */
struct ring_pass *ring_next(const struct ring_pass *q)
{
	struct ring_pass *next = q->next;

	while (next && !next->hops)
		next = next->next;
	return next;
}

/* ring_admit() - Hand the messages of passes to the queue pair, as many as it takes */
void ring_admit(struct ring_member *r)
{
	struct ring_pass *q = r->passes;
	uint64_t start;

	while (q && q->admitted)
		q = q->next;
	for (; q && r->right->sq.tail - r->right->sq.head + q->hops <= WRS_MAX; q = q->next) {
		q->admitted = true;
		q->base = r->right->next_packet;
		if (!q->hops)
			load(r, q);
		for (uint32_t hop = 0; hop < q->hops; hop++) {
			uint64_t n = ring_part(r, q, ring_sends(r, q, hop), &start);
			uint64_t whole = n / r->packet_elements, rest = n % r->packet_elements;
			qp_post_send(r->f, r->right,
				     &(struct send_wr){.opcode = WR_SEND,
						       .length = whole * r->slot_bytes + ring_wire_bytes(r, (uint32_t)rest)});
		}
	}
}

static void pass_new(struct ring_member *r, const struct offload_wr *wr, uint64_t part, bool last)
{
	struct ring_pass *q = ring_array(1, sizeof *q), **at = &r->passes;
	uint32_t half = r->ranks - 1;

	q->wr = *wr;
	q->part = part;
	q->last = last;
	q->reducing = wr->collective == RING_ALL_REDUCE || wr->collective == RING_REDUCE_SCATTER ? half : 0;
	q->hops = q->reducing + (wr->collective == RING_ALL_REDUCE || wr->collective == RING_ALL_GATHER ? half : 0);
	q->visible = r->f->clock.now;
	measure(r, q);
	while (*at)
		at = &(*at)->next;
	*at = q;
	if (!r->own_of && q->hops)
		r->own_of = q;
	if (!r->local_of && q->hops)
		r->local_of = q;
	if (!r->receiving && q->hops)
		r->receiving = q;
	if (!r->sending && q->hops)
		r->sending = q;
}

/* ring_post() - A request has reached the NIC */
void ring_post(struct fabric *f, struct member *m, const struct offload_wr *wr)
{
	struct ring_member *r = m->state;
	uint64_t start, chunk = ring_chunk(r, wr->count, 0, &start), each = (uint64_t)r->pass_packets * r->packet_elements;

	(void)f;
	r->requests++;
	for (uint64_t part = 0; part < chunk; part += each) {
		bool last = part + each >= chunk || wr->collective == RING_LOAD;
		pass_new(r, wr, part, last);
		if (last)
			break;
	}
	ring_admit(r);
	ring_advance(r);
}

static void say_done(struct ring_member *r, struct ring_pass *q)
{
	q->reported = true;
	r->visible = q->visible > r->visible ? q->visible : r->visible;
	if (!q->last)
		return;
	r->requests--;
	if (r->member && !r->member->failed)
		offload_done(r->f, r->member, q->wr.wr_id, WC_SUCCESS, q->wr.count * element_bytes[r->element], r->visible);
	r->visible = 0;
}

/* ring_settle() - Tell the worker what is done; forget what has also been sent */
void ring_settle(struct ring_member *r)
{
	for (struct ring_pass *q = r->passes; q && q->admitted; q = q->next) {
		if (q->reported)
			continue;
		if (q->own_ready < q->own || q->worked < q->receives)
			break;
		say_done(r, q);
	}
	while (r->passes && r->passes->reported && r->right->sent_max >= r->passes->base + r->passes->sends) {
		struct ring_pass *q = r->passes;
		r->passes = q->next;
		free(q);
	}
}

/* ring_advance() - Something has happened: let every part do what it can */
void ring_advance(struct ring_member *r)
{
	gate_own_ready(r);
	engine_done(r);
	result_write(r);
	gate_read_ahead(r);
	engine_give(r);
	gate_open(r);
	ring_settle(r);
}

/* ring_due() - Has something been waiting for that time? */
bool ring_due(const struct member *m, uint64_t what)
{
	const struct ring_member *r = m->state;
	const struct ring_read *own = &r->own.at[r->own.head % r->own.room];
	const struct ring_arrival *a = &r->arrival[r->arrival_head % r->arrival_room];

	return (r->own.head != r->own.tail && own->t <= (ps_t)what) ||
	       (r->arrival_head != r->arrival_given && a->t <= (ps_t)what) ||
	       r->write_due <= (ps_t)what || r->read_due <= (ps_t)what;
}
