/* DataDirector: takes what comes in for a NIC-side ring, before it reaches memory
 *
 * Theory of Operation
 *
 * Packets come in order over a reliable queue pair, so the place of each in the
 * schedule is known by counting: its pass, hop, chunk and place there.  It goes
 * through the engine, and from there to the right neighbour as a packet of the next
 * hop, to memory as a result, or both.  A packet that finds no room, or whose request
 * has not been posted yet, is answered with RNR: it comes again.
 *
 * No deadlock: the packet that comes as number x goes on as number x + P, P packets to
 * a chunk's part in a pass.  A rank with S slots takes it if x + P < A + S, A packets being acknowledged
 * by its right neighbour, which has taken X of them, less than a batch of
 * acknowledgements more than A.  If all ranks refused, X would fall by more than
 * S - P - batch > 0 from each to the next, all the way round the ring.
 */
#include <string.h>

#include "engine/fabric.h"
#include "offload/ring/ring.h"
#include "transport/qp.h"
#include "vector/element.h"
#include "wire/roce.h"
#include "worker/services.h"

/* What a rank does with the elements of one packet */
struct taken {
	struct ring_pass *q;
	uint64_t start;	  /* in the vector */
	uint64_t place;	  /* in the chunk */
	uint32_t elements;
	bool add, result, forward;
	uint8_t *slot;	  /* where it is sent on from, or NULL */
};

static bool last_reducing(const struct ring_pass *q, uint32_t hop)
{
	return hop + 1 == q->reducing;
}

/* The sums are complete: divide, update parameters, as the request says */
static void complete_sums(struct ring_member *r, const struct taken *t, uint8_t *sums)
{
	if (t->q->wr.reduction == RED_AVG)
		elements_divide(r->element, sums, t->elements, r->ranks);
	if (r->optimizer)
		optimizer_step(r, &t->q->wr, t->place, t->elements, (float *)sums);
}

static void combine(struct ring_member *r, const struct taken *t, uint8_t *with, bool complete)
{
	uint32_t size = element_bytes[r->element];
	const struct offload_wr *wr = &t->q->wr;
	const uint8_t *mine = ring_memory(r, wr->in_key, wr->in + t->start * size, (uint64_t)t->elements * size);

	if (mine)
		engine_combine(r->element, wr->reduction, with, mine, t->elements);
	if (complete)
		complete_sums(r, t, with);
}

static void work_compressed(struct ring_member *r, const struct taken *t, const struct roce_packet *pkt, uint8_t *out)
{
	bfp_decode(r->scratch, pkt->payload, t->elements);
	if (t->add)
		combine(r, t, (uint8_t *)r->scratch, t->result);
	if (t->slot && t->add)
		bfp_encode(t->slot, r->scratch, t->elements);
	else if (t->slot)
		memcpy(t->slot, pkt->payload, pkt->payload_bytes);
	if (t->slot && t->add && t->result)
		bfp_decode(r->scratch, t->slot, t->elements); /* all ranks get the same */
	if (out)
		memcpy(out, r->scratch, 4ul * t->elements);
}

static void work(struct ring_member *r, const struct taken *t, const struct roce_packet *pkt)
{
	uint64_t bytes = (uint64_t)t->elements * element_bytes[r->element];
	const struct offload_wr *wr = &t->q->wr;
	uint8_t *out = t->result ? ring_memory(r, wr->out_key, wr->out + t->start * element_bytes[r->element], bytes) : NULL;
	uint8_t *at = t->slot ? t->slot : r->scratch_out;

	if (!t->elements)
		return;
	if (r->compressed) {
		work_compressed(r, t, pkt, out);
		return;
	}
	memcpy(at, pkt->payload, bytes);
	if (t->add)
		combine(r, t, at, t->result);
	if (out)
		memcpy(out, at, bytes);
}

static void next_packet(struct ring_member *r, struct ring_pass *q, uint64_t packets)
{
	q->received++;
	if (++q->packet < packets)
		return;
	q->packet = 0;
	if (++q->hop == q->hops)
		r->receiving = ring_next(q);
}

/* director_take() - The next packet from the left neighbour */
enum engine_verdict director_take(struct fabric *f, struct qp *qp, const struct roce_packet *pkt)
{
	struct ring_member *r = (struct ring_member *)qp->owner;
	struct ring_pass *q = r->receiving;
	uint64_t start;

	if (!q || !q->admitted)
		return ENGINE_NOT_YET;
	uint64_t length = ring_part(r, q, ring_receives(r, q, q->hop), &start);
	uint64_t packets = ring_packets(r, length), place = q->packet * r->packet_elements, left = length - place;
	struct taken t = {
		.q = q,
		.start = start + place,
		.place = q->part + place,
		.elements = (uint32_t)(left < r->packet_elements ? left : r->packet_elements),
		.add = q->hop < q->reducing,
		.result = q->hop >= q->reducing || last_reducing(q, q->hop),
		.forward = q->hop + 1 < q->hops,
	};
	if (!roce_is_send(pkt->opcode) || roce_is_first(pkt->opcode) != !q->packet ||
	    roce_is_last(pkt->opcode) != (q->packet + 1 == packets) || pkt->payload_bytes != ring_wire_bytes(r, t.elements))
		return ENGINE_REFUSED;
	uint64_t number = q->base + q->own + q->received;
	if ((t.forward && number >= r->right->acked + r->slots) ||
	    r->arrival_tail - r->arrival_head == r->arrival_room) {
		r->nic->engine_full++;
		return ENGINE_NOT_YET;
	}
	if (t.forward)
		t.slot = r->memory + (size_t)(number % r->slots) * r->slot_bytes;
	work(r, &t, pkt);
	r->arrival[r->arrival_tail++ % r->arrival_room] = (struct ring_arrival){
		.t = f->clock.now, .of = q, .elements = t.elements, .add = t.add, .forward = t.forward, .result = t.result};
	r->nic->engine_diverted++;
	next_packet(r, q, packets);
	ring_advance(r);
	return ENGINE_TAKEN;
}
