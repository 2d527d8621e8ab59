/* GateKeeper: reads ahead what a NIC-side ring needs from memory, and lets packets go
 *
 * Theory of Operation
 *
 * What a rank contributes is read over PCIe once, in the order in which it is needed:
 * first its own chunk, to be sent, then the chunks that incoming packets are added to.
 * At most nic.engine_prefetch_bytes of it are read and not yet sent or added.
 *
 * A packet that goes out stands in the NIC's memory, in the slot of its number, until
 * it is acknowledged, so that sending again costs no PCIe.  The queue pair sends what
 * has become ready without a gap (`made`).
 */
#include <string.h>

#include "offload_ring.h"

/* Local packet @i of a request: its chunk and place there */
static uint32_t locate(const struct ring_member *r, const struct ring_request *q, uint64_t *start, bool *own)
{
	uint64_t i = q->fetched, chunk_start, length;
	uint32_t hop = 0, chunk = ring_sends(r, q, 0);

	*own = i < q->own;
	if (!*own) {
		i -= q->own;
		chunk = ring_receives(r, q, 0);
		for (length = ring_chunk(r, q->wr.count, chunk, &chunk_start); i >= ring_packets(r, length);
		     length = ring_chunk(r, q->wr.count, chunk, &chunk_start)) {
			i -= ring_packets(r, length);
			chunk = ring_receives(r, q, ++hop);
		}
	}
	length = ring_chunk(r, q->wr.count, chunk, &chunk_start);
	uint64_t at = i * r->packet_elements;
	*start = chunk_start + at;
	return (uint32_t)(length - at < r->packet_elements ? length - at : r->packet_elements);
}

/* Our own packet comes into its slot, as it will go out */
static void keep(struct ring_member *r, const struct ring_request *q, uint64_t start, uint32_t elements)
{
	uint32_t size = element_bytes[r->element];
	const uint8_t *from = ring_memory(r, q->wr.in_key, q->wr.in + start * size, (uint64_t)elements * size);
	uint8_t *to = r->memory + (size_t)((q->base + q->fetched) % r->slots) * r->slot_bytes;

	if (from && r->compressed)
		bfp_encode(to, (const float *)from, elements);
	else if (from)
		memcpy(to, from, (size_t)elements * size);
}

/* gate_read_ahead() - Ask for as much as there is room for */
void gate_read_ahead(struct ring_member *r)
{
	while (r->fetching && r->fetching->admitted && r->ahead < r->ahead_most) {
		struct ring_request *q = r->fetching;
		uint64_t start;
		bool own;
		if (q->fetched < q->own && q->base + q->fetched >= r->right->acked + r->slots)
			return;
		uint32_t elements = locate(r, q, &start, &own);
		if (own)
			keep(r, q, start, elements);
		ps_t t = pcie_read(r->nic, r->f->clock.now, elements * element_bytes[r->element]);
		r->local[r->local_tail++ % r->local_room] = (struct ring_local){.t = t, .of = q, .own = own};
		r->ahead++;
		if (own)
			ring_later(r, t);
		if (++q->fetched == q->reads)
			r->fetching = ring_next(q);
	}
}

/* gate_own_ready() - Our own packets that have been read by now may go */
void gate_own_ready(struct ring_member *r)
{
	while (r->local_head != r->local_tail) {
		const struct ring_local *l = &r->local[r->local_head % r->local_room];
		if (!l->own || l->t > r->f->clock.now)
			return;
		l->of->own_ready++;
		r->local_head++;
	}
}

/* gate_open() - Let go what is ready without a gap */
void gate_open(struct ring_member *r)
{
	uint64_t made = r->right->made;

	while (r->sending && r->sending->admitted) {
		const struct ring_request *q = r->sending;
		uint64_t ready = q->own_ready < q->own ? q->own_ready : q->own + q->forwards_ready;
		made = q->base + ready;
		if (ready < q->sends)
			break;
		r->sending = ring_next(q);
	}
	if (made == r->right->made)
		return;
	r->right->made = made;
	qp_ready(r->f, r->right);
}

/* Is packet @n one of our own? */
static bool is_own(const struct ring_member *r, uint64_t n)
{
	for (const struct ring_request *q = r->requests; q && q->admitted; q = q->next)
		if (n >= q->base && n < q->base + q->sends)
			return n < q->base + q->own;
	return false;
}

/* gate_payload() - Packet @n goes out; when it does so for the first time, one of our own leaves room to read on */
const uint8_t *gate_payload(struct fabric *f, struct qp *q, uint64_t n)
{
	struct ring_member *r = (struct ring_member *)q->engine;

	(void)f;
	if (n >= q->sent_max && r->member && is_own(r, n)) {
		r->ahead--;
		gate_read_ahead(r);
	}
	return r->memory + (size_t)(n % r->slots) * r->slot_bytes;
}
