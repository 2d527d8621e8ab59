/* GateKeeper: reads ahead what a NIC-side ring needs from memory, and lets packets go
 *
 * Theory of Operation
 *
 * What a rank contributes is read over PCIe once: its own chunk, to be sent, and the
 * chunks that incoming packets are added to, the latter at most
 * nic.engine_prefetch_bytes ahead of the adder.  Own packets come first when they are
 * about to be sent (URGENT ahead of the port); else what is to be added does, for it
 * is what the right neighbour waits for next.
 *
 * A packet that goes out stands in the NIC's memory, in the slot of its number, until
 * it is acknowledged, so that sending again costs no PCIe.  The queue pair sends what
 * has become ready without a gap (`made`).
 */
#include <string.h>

#include "base/units.h"
#include "engine/fabric.h"
#include "nic/nic.h"
#include "offload/ring/ring.h"
#include "transport/qp.h"
#include "vector/element.h"

static uint32_t elements_at(const struct ring_member *r, uint64_t length, uint64_t packet)
{
	uint64_t left = length - packet * r->packet_elements;

	return left < r->packet_elements ? (uint32_t)left : r->packet_elements;
}

/* Our own packet comes into its slot, as it will go out */
static void keep(struct ring_member *r, const struct ring_pass *q, uint64_t start, uint32_t elements)
{
	uint32_t size = element_bytes[r->element];
	const uint8_t *from = ring_memory(r, q->wr.in_key, q->wr.in + start * size, (uint64_t)elements * size);
	uint8_t *to = r->memory + (size_t)((q->base + q->own_read) % r->slots) * r->slot_bytes;

	if (from && r->compressed)
		bfp_encode(to, (const float *)from, elements);
	else if (from)
		memcpy(to, from, (size_t)elements * size);
}

static void fetch(struct ring_member *r, struct ring_reads *reads, struct ring_pass *of, uint32_t elements)
{
	ps_t t = pcie_read(r->nic, r->f->clock.now, elements * element_bytes[r->element]);

	reads->at[reads->tail++ % reads->room] = (struct ring_read){.t = t, .of = of};
	reads->ahead++;
}

/* Is there a packet of our own to be read, and a slot for it? */
static bool own_wanted(const struct ring_member *r)
{
	const struct ring_pass *q = r->own_of;

	return q && q->admitted && q->base + q->own_read < r->right->acked + r->slots;
}

static void read_own(struct ring_member *r)
{
	struct ring_pass *q = r->own_of;
	uint64_t start, length = ring_part(r, q, ring_sends(r, q, 0), &start);
	uint32_t elements = elements_at(r, length, q->own_read);

	keep(r, q, start + q->own_read * r->packet_elements, elements);
	fetch(r, &r->own, q, elements);
	ring_later(r, r->own.at[(r->own.tail - 1) % r->own.room].t);
	if (++q->own_read == q->own)
		r->own_of = ring_next(q);
}

/* Is there a packet to be read that one that comes in will be added to, and room for it? */
static bool local_wanted(struct ring_member *r)
{
	while (r->local_of && r->local_of->admitted && r->local_of->add_hop == r->local_of->reducing)
		r->local_of = ring_next(r->local_of);
	return r->local_of && r->local_of->admitted && r->local.ahead < r->local.most;
}

static void read_local(struct ring_member *r)
{
	struct ring_pass *q = r->local_of;
	uint64_t start, length = ring_part(r, q, ring_receives(r, q, q->add_hop), &start);

	fetch(r, &r->local, q, elements_at(r, length, q->add_packet));
	if (++q->add_packet == ring_packets(r, length)) {
		q->add_packet = 0;
		q->add_hop++;
	}
}

/* gate_read_ahead() - Ask for what is wanted next, as long as PCIe does not queue more than a packet; then go on */
void gate_read_ahead(struct ring_member *r)
{
	struct nic *n = r->nic;
	ps_t last = n->pcie_tx_free, now = r->f->clock.now;

	if (r->read_due != PS_NEVER && r->read_due > now)
		return;
	for (; last <= now; last = n->pcie_tx_free) {
		bool own = own_wanted(r), urgent = own && r->own_of == r->sending && r->own.ahead < r->own.most;
		if (!urgent && local_wanted(r))
			read_local(r);
		else if (own)
			read_own(r);
		else
			break;
	}
	r->read_due = last <= now ? PS_NEVER : last;
	if (r->read_due != PS_NEVER)
		ring_later(r, last);
}

/* gate_own_ready() - Our own packets that have been read by now may go */
void gate_own_ready(struct ring_member *r)
{
	for (; r->own.head != r->own.tail; r->own.head++) {
		const struct ring_read *l = &r->own.at[r->own.head % r->own.room];
		if (l->t > r->f->clock.now)
			return;
		l->of->own_ready++;
	}
}

/* gate_open() - Let go what is ready without a gap */
void gate_open(struct ring_member *r)
{
	uint64_t made = r->right->made;

	while (r->sending && r->sending->admitted) {
		const struct ring_pass *q = r->sending;
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
	for (const struct ring_pass *q = r->passes; q && q->admitted; q = q->next)
		if (n >= q->base && n < q->base + q->sends)
			return n < q->base + q->own;
	return false;
}

/* gate_payload() - Packet @n goes out; when it does so for the first time, one of our own leaves room to read on */
const uint8_t *gate_payload(struct fabric *f, struct qp *q, const struct send_wr *wr, uint64_t n)
{
	struct ring_member *r = (struct ring_member *)q->owner;

	(void)f;
	(void)wr;
	if (n >= q->sent_max && r->member && is_own(r, n)) {
		r->own.ahead--;
		gate_read_ahead(r);
	}
	return r->memory + (size_t)(n % r->slots) * r->slot_bytes;
}
