/* Queue pairs, receiving side (reliable connection)
 *
 * Theory of Operation
 *
 * Packets are taken in order.  A packet ahead of the expected number means loss.  It is answered by one NAK (sequence
 * error), and no other is sent until the expected packet has come.  With selective repeat it is kept until then
 * (recovery/reorder.c), and its payload crosses PCIe at once: what is left for its turn is the completion, and with
 * `ordering: any` not even that (place.c).  What is said of it, and when, is in answer.c.  A packet behind the expected
 * number is a duplicate, and acknowledged again if it asks for it.  A message that needs a receive request while none is
 * posted is answered with an RNR NAK and not taken.
 *
 * Payload is written to the worker's region when the packet arrives, from the frame or from the sender's memory
 * (link/lent.c); in the latter case perhaps by another processor (base/copies.c).  The worker is told when the NIC's PCIe
 * writes up to it are done.
 */
#include <string.h>

#include "base/copies.h"
#include "base/ring.h"
#include "base/units.h"
#include "engine/fabric.h"
#include "link/frame.h"
#include "link/port.h"
#include "nic/nic.h"
#include "nic/params.h"
#include "recovery/reorder.h"
#include "transport/answer.h"
#include "transport/congestion.h"
#include "transport/credit.h"
#include "transport/multipath.h"
#include "transport/place.h"
#include "transport/qp.h"
#include "transport/reads.h"
#include "transport/responder.h"
#include "wire/ip.h"
#include "wire/roce.h"
#include "wire/telemetry.h"

/* What a peer asks for cannot be: it is told, and a program's queue pair is broken by it (InfiniBand specification, 9.9.3) */
static void refuse(struct fabric *f, struct qp *q, uint8_t syndrome)
{
	if (!qp_unreliable(q))
		answer(f, q, syndrome, q->expected, q->msn);
	q->nak_sent = true;
	if (q->own && (!qp_unreliable(q) || syndrome == AETH_NAK_OPERATION))
		qp_refuse(f, q, syndrome);
}

/* Likewise what it may not do to our memory, or what is no message */
static void refuse_access(struct fabric *f, struct qp *q)
{
	q->nic->resp_access++;
	refuse(f, q, AETH_NAK_ACCESS);
}

static void answer_not_ready(struct fabric *f, struct qp *q)
{
	if (qp_unreliable(q))
		return;
	answer(f, q, (uint8_t)(AETH_RNR_NAK | (q->own ? q->own->rnr_timer : 0)), q->expected, q->msn);
	q->nak_sent = true;
	if (!q->any_order) /* what has completed in any order must not come twice */
		reorder_drop(f, q->reorder, frame_release);
}

/* Is the first packet of a message acceptable?  Sets up the message */
static bool begin(struct fabric *f, struct qp *q, const struct roce_packet *pkt)
{
	uint8_t *at;

	if (roce_is_write(pkt->opcode)) {
		if (pkt->dma_bytes && (q->keys_stale[0] || !q->owner->ops->memory(q, REMOTE_WRITE, pkt->rkey, pkt->remote_offset, pkt->dma_bytes, &at))) {
			refuse_access(f, q);
			return false;
		}
		q->message_rkey = pkt->rkey;
		q->message_at = pkt->remote_offset;
		q->message_left = pkt->dma_bytes;
		q->message_bytes = (pkt->part ? q->message_bytes : 0) + pkt->dma_bytes;
		return true;
	}
	const struct recv_wr *wr = RECV_WR(q, q->rq.head);
	q->message_rkey = wr->pieces ? 0 : wr->lkey;
	q->message_at = wr->pieces ? 0 : wr->offset;
	q->message_left = wr->length;
	q->message_bytes = 0;
	return true;
}

/* A message has come whole, but the key that it is to invalidate cannot be: its receive and the queue pair end, and its sender is
 * told nothing (class J of 9.9.3.2)
 */
static void invalidates_nothing(struct fabric *f, struct qp *q)
{
	qp_receive_failed(f, q, RECV_WR(q, q->rq.head++), WC_REMOTE_INVALID);
	qp_fail(f, q, WC_FLUSHED);
}

static void received(struct fabric *f, struct qp *q, const struct roce_packet *pkt, ps_t visible)
{
	q->in_message = false;
	q->msn = (q->msn + 1) & PSN_MASK;
	if (roce_is_write(pkt->opcode) && q->owner->ops->written)
		q->owner->ops->written(f, q, visible);
	if (roce_invalidates(pkt->opcode) && !(q->owner->ops->invalidate && q->owner->ops->invalidate(q, pkt->imm))) {
		invalidates_nothing(f, q);
		return;
	}
	if (roce_has_imm(pkt->opcode) || roce_is_send(pkt->opcode))
		place_complete(f, q, pkt, visible);
}

/* Is the packet one that is expected now, and is there a place for it?  Answers if not */
static bool acceptable(struct fabric *f, struct qp *q, const struct roce_packet *pkt)
{
	bool first = roce_is_first(pkt->opcode), send = roce_is_send(pkt->opcode);

	if ((!send && !roce_is_write(pkt->opcode)) || first == q->in_message || pkt->payload_bytes > q->mtu ||
	    (!first && send != roce_is_send(q->message_kind))) {
		refuse(f, q, AETH_NAK_INVALID);
		return false;
	}
	if (((first && send) || roce_has_imm(pkt->opcode)) && !place_has_receive(f, q)) {
		answer_not_ready(f, q);
		return false;
	}
	if (first && !begin(f, q, pkt))
		return false;
	if (pkt->payload_bytes > q->message_left ||
	    (!send && roce_is_last(pkt->opcode) && pkt->payload_bytes != q->message_left)) {
		refuse(f, q, AETH_NAK_INVALID);
		return false;
	}
	return true;
}

/* Is a packet to be acknowledged when it is taken? */
static bool answers(const struct qp *q, const struct roce_packet *pkt)
{
	const struct multipath_policy *policy = q->answers->multipath.policy;
	bool hears = q->answers->cc->answers_marks || (policy && policy->hears);

	return pkt->ack_request || q->owed || (hears && (pkt->tos & ECN_CE) == ECN_CE);
}

/* A packet was taken: with bitmaps, one acknowledgement for all that are taken with it comes later */
static void say_taken(struct fabric *f, struct qp *q, bool asks)
{
	if (!asks || qp_unreliable(q))
		return;
	if (q->answers->sack_bits)
		q->answer_due = true;
	else
		answer(f, q, AETH_ACK, q->expected - 1, q->msn);
}

/* The expected packet is here, and an engine in the NIC takes it */
static bool divert(struct fabric *f, struct qp *q, const struct roce_packet *pkt)
{
	copies_settle(); /* it looks at the payload */
	switch (q->owner->ops->take(f, q, pkt)) {
	case ENGINE_NOT_YET: answer_not_ready(f, q); return false;
	case ENGINE_REFUSED: refuse_access(f, q); return false;
	case ENGINE_TAKEN: break;
	}
	q->nak_sent = false;
	q->expected++;
	if (roce_is_last(pkt->opcode))
		q->msn = (q->msn + 1) & PSN_MASK;
	say_taken(f, q, answers(q, pkt));
	return true;
}

/* The expected packet is here
 * @fr:		The frame that @pkt was parsed from
 * @e:		It came ahead, and its payload crossed PCIe then: nothing but a completion is left to be written; or NULL
 *
 * Return: whether it was taken
 */
static bool take(struct fabric *f, struct qp *q, const struct roce_packet *pkt, const struct frame *fr, const struct early *e)
{
	if (q->owner->ops->take)
		return divert(f, q, pkt);
	if (pkt->opcode == RC_READ_REQUEST || roce_is_atomic(pkt->opcode)) {
		q->nak_sent = false;
		return responder_take(f, q, pkt);
	}
	if (!acceptable(f, q, pkt))
		return false;
	if (pkt->payload_bytes && !(e && e->placed) && !place_payload(f, q, pkt, fr) && q->own) {
		refuse(f, q, roce_is_send(pkt->opcode) ? AETH_NAK_OPERATION : AETH_NAK_ACCESS);
		return false;
	}
	q->in_message = true;
	q->message_kind = pkt->opcode;
	q->nak_sent = false;
	q->expected++;
	q->message_at += pkt->payload_bytes;
	q->message_left -= pkt->payload_bytes;
	if (roce_is_send(pkt->opcode))
		q->message_bytes += pkt->payload_bytes;
	ps_t visible = place_pcie(f, q, e ? 0 : place_crosses(q, q->message_rkey, pkt->payload_bytes));
	if (roce_is_last(pkt->opcode))
		received(f, q, pkt, visible);
	if (q->state != QP_READY)
		return false;
	say_taken(f, q, answers(q, pkt));
	return true;
}

/* Likewise one that was placed ahead of its turn, and of which there is nothing more to be told: a message of its own */
static bool pass(struct fabric *f, struct qp *q, const struct early *e)
{
	if (q->in_message) {
		refuse_access(f, q);
		return false;
	}
	q->nak_sent = false;
	q->expected++;
	q->msn = (q->msn + 1) & PSN_MASK;
	q->message_bytes = (e->part ? q->message_bytes : 0) + q->mtu;
	say_taken(f, q, e->asks);
	return true;
}

/* Take what was kept until its turn, and say how far that leads */
static void take_kept(struct fabric *f, struct qp *q)
{
	struct roce_packet pkt;
	struct early e;
	uint32_t count = 0;
	bool taken = true, told = true;

	for (; taken && reorder_take(q->reorder, q->expected, &e); count += taken) {
		if (!e.frame)
			taken = pass(f, q, &e);
		else
			taken = frame_parse(e.frame, &pkt) == ROCE_OK && take(f, q, &pkt, e.frame, &e);
		told = !taken || e.asks;
		if (e.frame)
			frame_release(f, e.frame);
	}
	if (q->answers->sack_bits)
		answer_closed(f, q, count);
	else if (!told)
		answer(f, q, AETH_ACK, q->expected - 1, q->msn);
}

static void count_early(const struct qp *q, uint32_t ahead, bool placed)
{
	struct nic *n = q->nic;

	if (!nic_bears_reordering(q->answers))
		return;
	n->reorder_sum += ahead;
	n->reorder_most = ahead > n->reorder_most ? ahead : n->reorder_most;
	n->placed_early += placed;
}

/* One ahead of the expected: something is lost, or comes later.  Return: whether the frame is kept */
static bool came_ahead(struct fabric *f, struct qp *q, const struct roce_packet *pkt, uint32_t ahead, struct frame *fr)
{
	uint8_t *at;
	struct early e = place_look(q, pkt, fr, answers(q, pkt), &at);
	bool keeps = q->answers->selective && !q->nic->p.takes_in_order;
	enum kept kept = keeps ? reorder_keep(&q->reorder, q->answers->reorder_packets, q->expected, ahead, &e) : KEPT_NOT;

	if (kept == KEPT_BEFORE)
		q->nic->duplicate_request++;
	else
		q->nic->out_of_sequence++;
	if (kept == KEPT) {
		count_early(q, ahead, e.placed);
		ps_t visible = place_pcie(f, q, place_crosses(q, e.placed ? pkt->rkey : q->message_rkey, pkt->payload_bytes));
		if (at)
			place_copy(f, q, at, pkt, fr, 0);
		if (e.placed && !e.ends && q->owner->ops->written)
			q->owner->ops->written(f, q, visible);
		if (e.placed)
			place_end(f, q, q->expected + ahead, visible);
	}
	if (kept != KEPT_NOT && q->answers->sack_bits)
		answer_ahead(f, q, e.asks, kept == KEPT_BEFORE);
	else if (kept != KEPT_NOT)
		answer(f, q, AETH_NAK_SEQUENCE, q->expected, pkt->psn);
	else if (!q->nak_sent)
		answer(f, q, AETH_NAK_SEQUENCE, q->expected, q->answers->selective ? (uint32_t)q->expected : q->msn);
	q->nak_sent = true;
	return kept == KEPT && e.frame;
}

/* Of an unreliable connection: a message with a hole, or that cannot be taken, is dropped as a whole, and what it had of a
 * receive is the next one's (InfiniBand specification, 9.8.2.2; class D of 9.9.3.2)
 */
static void receive_unreliable(struct fabric *f, struct qp *q, const struct roce_packet *pkt, const struct frame *fr, int32_t ahead)
{
	bool first = roce_is_first(pkt->opcode);

	q->nic->out_of_sequence += ahead != 0;
	q->expected += (uint64_t)(int64_t)ahead;
	if (first || ahead)
		q->in_message = false;
	if ((first || q->in_message) && take(f, q, pkt, fr, NULL))
		return;
	q->in_message = false;
	q->expected++;
}

/* qp_receive() - A data packet has come in for a queue pair that is ready
 * @fr:		The frame that @pkt was parsed from
 *
 * Return: whether the frame is kept; if not, it is the caller's still
 */
bool qp_receive(struct fabric *f, struct qp *q, const struct roce_packet *pkt, struct frame *fr)
{
	struct nic *n = q->nic;
	int32_t ahead = psn_ahead(pkt->psn, (uint32_t)q->expected);

	q->seen++;
	q->came_by = pkt->src_port;
	q->came_marked = (pkt->tos & ECN_CE) == ECN_CE;
	if (q->came_marked) {
		q->marked++;
		answer_congestion(f, q);
	}
	q->came = f->clock.now;
	if (pkt->unreliable) {
		receive_unreliable(f, q, pkt, fr, ahead);
		return false;
	}
	if (q->answers->cc->telemetry)
		telemetry_read(fr->data, frame_near(fr), fr->away, &q->last);
	credit_arrived(f, q, fr, pkt->payload_bytes);
	if (ahead < 0) {
		n->duplicate_request++;
		if (pkt->opcode == RC_READ_REQUEST || roce_is_atomic(pkt->opcode)) {
			responder_again(f, q, pkt);
			return false;
		}
		if (pkt->ack_request && q->reorder)
			q->reorder->unsaid_from = q->expected + 1;
		if (pkt->ack_request)
			answer_come(f, q);
		return false;
	}
	if (pkt->ack_request && q->expected + (uint64_t)ahead + 1 >= q->owed)
		q->owed = 0;
	if (ahead > 0)
		return came_ahead(f, q, pkt, (uint32_t)ahead, fr);
	if (take(f, q, pkt, fr, NULL))
		take_kept(f, q);
	if (q->trimmed <= q->expected)
		trimmed_turn(f, q);
	return false;
}

/* transport_receive() - A packet that is right has come in at a NIC */
void transport_receive(struct fabric *f, struct nic *n, const struct roce_packet *pkt, struct frame *fr, bool scale_up)
{
	struct port *p = &n->port[scale_up];
	struct qp *q = memcmp(pkt->dst_mac, n->mac, 6) ? NULL : qp_find(n, pkt->dst_qp);
	bool ours = q && q->state == QP_READY && q->peer && pkt->src_ip == q->peer->ip;
	if (!ours || (pkt->opcode != RC_CNP && pkt->unreliable != qp_unreliable(q))) {
		port_drop(f, p, fr, DROP_NO_QP);
		return;
	}
	if (!scale_up && !nic_rx_room(f, n, pkt->payload_bytes)) {
		n->out_of_buffer++;
		p->rx_full++;
		port_drop(f, p, fr, DROP_NO_RECEIVE_BUFFER);
		return;
	}
	nic_count(&n->rx_rdma, p, fr);
	bool kept = false;
	if (pkt->opcode == RC_ACK && AETH_IS_TRIMMED(pkt->syndrome))
		trimmed_told(f, q, pkt, fr);
	else if (pkt->opcode == RC_ACK)
		qp_acknowledged(f, q, pkt, fr);
	else if (roce_is_response(pkt->opcode))
		reads_came(f, q, pkt, fr);
	else if (pkt->opcode == RC_READ_ACK)
		responder_told(f, q, pkt, fr);
	else if (pkt->opcode == RC_CNP)
		cc_notified(f, q);
	else if (pkt->opcode == RC_CREDIT)
		credit_granted(f, q, pkt);
	else if (pkt->opcode == RC_REQUEST)
		credit_asked(f, q, pkt);
	else
		kept = qp_receive(f, q, pkt, fr);
	if (!kept)
		frame_release(f, fr);
	if (!scale_up)
		nic_pressure(f, n);
}
