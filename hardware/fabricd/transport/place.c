/* Payload into memory, in any order
 *
 * Theory of Operation
 *
 * With `ordering: any` each packet of a write is a write of its own on the wire (WRITE_ONLY), with the address of its
 * payload: so it is placed when it comes, whatever is missing before it (UEC 1.0: RUD; mlx5: out-of-order data placement).
 * What comes a second time is not placed again: by then the memory may be the worker's.  Sends, engines, and what may
 * not be written wait for their turn (recovery/reorder.c).
 *
 * Two bits that the BTH reserves otherwise say what such packets are parts of:
 *
 *	part	of the same message as the packet before
 *	after	first of its message; the message before is a write without an immediate
 *
 * So a packet with neither begins a row of messages of which the last has an immediate.  When all of the row is there, that
 * one completes, whatever is missing before the row: nobody was told of the row's other messages, so its immediate
 * speaks for them, too, as it does in order.  If a receive is lacking then, or a send is half taken, it completes in its turn.
 */
#include <stdlib.h>

#include "base/copies.h"
#include "base/ring.h"
#include "engine/fabric.h"
#include "link/frame.h"
#include "nic/nic.h"
#include "recovery/reorder.h"
#include "transport/place.h"
#include "transport/qp.h"
#include "wire/roce.h"

/* Return: whether it was made here, and not left to the thread that copies */
static bool copy(uint8_t *to, const uint8_t *from, uint32_t bytes, const struct frame *fr)
{
	if (fr && fr->lent && copies_taken()) {
		copies_add(to, from, bytes);
		return false;
	}
	copies_make(to, from, bytes);
	return true;
}

/* place_copy() - Write a packet's payload, or have it written; if here, bring the next one's place near
 * @left:	Bytes of the message behind it
 */
void place_copy(struct fabric *f, struct qp *q, uint8_t *to, const struct roce_packet *pkt, const struct frame *fr, uint64_t left)
{
	uint32_t bytes = pkt->payload_bytes;

	if (copy(to, pkt->payload, bytes, fr) && left)
		q->ahead = ahead_name(&f->ahead, q->ahead, to + bytes, pkt->payload + bytes, left < bytes ? (uint32_t)left : bytes);
}

/* Into the pieces of a receive request, from byte @at of all of them on */
static bool scatter(struct qp *q, const struct pieces *pieces, uint64_t at, const struct roce_packet *pkt, const struct frame *fr)
{
	const uint8_t *from = pkt->payload;
	uint32_t left = pkt->payload_bytes;

	for (uint32_t i = 0; i < pieces->count && left; i++) {
		const struct piece *p = &pieces->piece[i];
		uint8_t *to;
		if (at >= p->bytes) {
			at -= p->bytes;
			continue;
		}
		uint32_t bytes = p->bytes - (uint32_t)at < left ? p->bytes - (uint32_t)at : left;
		if (!q->owner->ops->memory(q, LOCAL_WRITE, p->key, p->at + at, bytes, &to))
			return false;
		copy(to, from, bytes, fr);
		from += bytes;
		left -= bytes;
		at = 0;
	}
	return true;
}

/* place_pieces() - Into memory of a request's own, from its byte @at on: pieces, or one place
 * @fr:		What @pkt was parsed from; NULL: its payload is elsewhere
 */
bool place_pieces(struct qp *q, const struct pieces *pieces, uint32_t key, uint64_t address, uint64_t at, const struct roce_packet *pkt,
		  const struct frame *fr)
{
	uint8_t *to;

	if (pieces)
		return scatter(q, pieces, at, pkt, fr);
	if (!q->owner->ops->memory(q, LOCAL_WRITE, key, address + at, pkt->payload_bytes, &to))
		return false;
	copy(to, pkt->payload, pkt->payload_bytes, fr);
	return true;
}

/* place_payload() - Write the payload of the expected packet where its message goes on.  Return: false if that may not be written */
bool place_payload(struct fabric *f, struct qp *q, const struct roce_packet *pkt, const struct frame *fr)
{
	bool send = roce_is_send(pkt->opcode);
	const struct pieces *pieces = send && !q->owner->ops->generated ? RECV_WR(q, q->rq.head)->pieces : NULL;
	uint8_t *at;

	if (pieces)
		return scatter(q, pieces, q->message_at, pkt, fr);
	if (!q->owner->ops->memory(q, send ? LOCAL_WRITE : REMOTE_WRITE, q->message_rkey, q->message_at, pkt->payload_bytes, &at))
		return false;
	if (at)
		place_copy(f, q, at, pkt, fr, q->message_left - pkt->payload_bytes);
	return true;
}

/* place_pcie() - When so many bytes that have come for a queue pair are in memory, and what came before them
 *
 * An engine's stay in the NIC.
 */
ps_t place_pcie(struct fabric *f, struct qp *q, uint32_t bytes)
{
	bool over_pcie = q->tx == &q->nic->tx[0] && !q->owner->ops->take;

	return over_pcie ? pcie_write(q->nic, f->clock.now, bytes) : f->clock.now;
}

/* place_has_receive() - Is there a receive request that the NIC may use? */
bool place_has_receive(struct fabric *f, struct qp *q)
{
	return q->owner->ops->generated || (uint32_t)q->usable != q->rq.head ||
	       (q->own && q->own->shared && q->owner->ops->lend(f, q));
}

/* place_complete() - A message that needs a receive request has ended with @pkt: use one */
void place_complete(struct fabric *f, struct qp *q, const struct roce_packet *pkt, ps_t visible)
{
	if (q->owner->ops->generated)
		return;
	const struct recv_wr *wr = RECV_WR(q, q->rq.head++);
	q->owner->ops->received(f, q, wr, WC_SUCCESS, pkt, visible);
	free(wr->pieces);
}

/* place_look() - What is to be done with a packet that has come ahead of its turn
 * @at:		Set to where its payload goes now, or to NULL
 */
struct early place_look(const struct qp *q, const struct roce_packet *pkt, struct frame *fr, bool asks, uint8_t **at)
{
	const struct qp_owner_ops *ops = q->owner->ops;
	struct early e = {.frame = fr, .asks = asks, .part = pkt->part, .after = pkt->after};
	bool alone = pkt->opcode == RC_WRITE_ONLY || pkt->opcode == RC_WRITE_ONLY_IMM;

	*at = NULL;
	if (!q->any_order || ops->take || !alone || pkt->payload_bytes != pkt->dma_bytes || pkt->payload_bytes > q->mtu)
		return e;
	e.placed = !pkt->dma_bytes || ops->memory((struct qp *)q, REMOTE_WRITE, pkt->rkey, pkt->remote_offset, pkt->dma_bytes, at);
	e.ends = e.placed && roce_has_imm(pkt->opcode);
	if (e.placed && !e.ends)
		e.frame = NULL;
	return e;
}

/* The immediate that ends the row of packet @n, if all from there to it are here */
static struct early *end_of_row(const struct qp *q, uint64_t *n)
{
	struct early *e = reorder_at(q->reorder, q->expected, *n);

	while (e && e->placed && !e->ends) {
		e = reorder_at(q->reorder, q->expected, ++*n);
		if (e && !e->part && !e->after)
			return NULL;
	}
	return e && e->ends ? e : NULL;
}

/* Are all packets of a row before packet @n here? */
static bool row_is_here(const struct qp *q, uint64_t n)
{
	const struct early *e = reorder_at(q->reorder, q->expected, n);

	while (e && e->placed && (e->part || e->after))
		e = reorder_at(q->reorder, q->expected, --n);
	return e && e->placed;
}

/* place_end() - Packet @n was placed ahead of its turn, and is visible at that time: does it complete a message? */
void place_end(struct fabric *f, struct qp *q, uint64_t n, ps_t visible)
{
	if (!q->reorder->open || q->in_message || !place_has_receive(f, q))
		return;
	struct early *e = end_of_row(q, &n);
	if (!e || !e->frame || !row_is_here(q, n))
		return;
	uint64_t in_order = q->message_bytes;
	struct roce_packet pkt;
	struct frame *fr = e->frame;

	frame_parse(fr, &pkt);
	q->message_bytes = pkt.payload_bytes;
	for (; reorder_at(q->reorder, q->expected, n)->part; n--)
		q->message_bytes += q->mtu;
	place_complete(f, q, &pkt, visible);
	q->message_bytes = in_order;
	e->frame = NULL;
	q->reorder->open--;
	frame_release(f, fr);
}

/* place_alone() - In any order, packet @i of a write is a write by itself, with its own address (place.c) */
void place_alone(const struct qp *q, struct roce_packet *pkt, const struct send_wr *wr, uint64_t i, uint32_t bytes)
{
	bool ends = wr->opcode == WR_WRITE_IMM && i + 1 == wr->packets;

	if (!q->alone || (wr->opcode != WR_WRITE && wr->opcode != WR_WRITE_IMM))
		return;
	pkt->opcode = ends ? RC_WRITE_ONLY_IMM : RC_WRITE_ONLY;
	pkt->part = i;
	pkt->after = !i && wr->after;
	pkt->remote_offset += i * q->mtu;
	pkt->dma_bytes = bytes;
}
