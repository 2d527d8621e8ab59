/* Queue pairs, receiving side (reliable connection)
 *
 * Theory of Operation
 *
 * Packets are taken in order.  One ahead of the expected number means loss: one
 * NAK (sequence error) is sent, and no other until the expected packet has
 * come.  One behind is a duplicate: acknowledged again if it asks for it.  A
 * message that needs a receive request while none is posted is answered with
 * an RNR NAK and not taken.
 *
 * Payload is written to the worker's region when the packet arrives; that it is
 * there is said when the NIC's PCIe writes up to it are done.
 */
#include <string.h>

#include "fabric.h"
#include "roce.h"

#define ACK_TOS (48 << 2)

static void answer(struct fabric *f, struct qp *q, uint8_t syndrome, uint64_t packet)
{
	struct frame *fr = frame_new(f);
	struct roce_packet pkt = {
		.src_ip = q->nic->ip,
		.dst_ip = q->peer->ip,
		.src_port = q->src_port,
		.tos = ACK_TOS,
		.ttl = 64,
		.opcode = RC_ACK,
		.dst_qp = q->peer_number,
		.psn = (uint32_t)packet & PSN_MASK,
		.syndrome = syndrome,
		.msn = q->msn,
	};

	memcpy(pkt.dst_mac, q->peer->mac, 6);
	memcpy(pkt.src_mac, q->nic->mac, 6);
	fr->len = roce_build(fr->data, f->frame_room - TRAILER_BYTES, &pkt);
	nic_control_frame(f, q, fr);
}

static void refuse_access(struct fabric *f, struct qp *q)
{
	answer(f, q, AETH_NAK_ACCESS, q->expected);
	q->nak_sent = true;
}

/* Is the first packet of a message acceptable?  Sets up the message */
static bool begin(struct fabric *f, struct qp *q, const struct roce_packet *pkt)
{
	struct worker *w = q->nic->worker;

	if (roce_is_write(pkt->opcode)) {
		if (pkt->dma_bytes && !worker_region(w, pkt->rkey, pkt->remote_offset, pkt->dma_bytes)) {
			refuse_access(f, q);
			return false;
		}
		q->message_rkey = pkt->rkey;
		q->message_at = pkt->remote_offset;
		q->message_left = q->message_bytes = pkt->dma_bytes;
		return true;
	}
	const struct recv_wr *wr = ring_at(&q->rq, sizeof *wr, q->rq.head);
	q->message_rkey = wr->lkey;
	q->message_at = wr->offset;
	q->message_left = wr->length;
	q->message_bytes = 0;
	return true;
}

static void received(struct fabric *f, struct qp *q, const struct roce_packet *pkt, ps_t visible)
{
	bool imm = roce_has_imm(pkt->opcode);

	q->in_message = false;
	q->msn = (q->msn + 1) & PSN_MASK;
	if (!imm && !roce_is_send(pkt->opcode))
		return;
	const struct recv_wr *wr = ring_at(&q->rq, sizeof *wr, q->rq.head++);
	worker_record(f, q->nic->worker,
		      &(struct record){.kind = imm ? REC_RECEIVED_IMM : REC_RECEIVED,
				       .wr_id = wr->wr_id,
				       .t = visible,
				       .qp = q->number,
				       .imm = pkt->imm,
				       .bytes = q->message_bytes});
}

/* qp_receive() - A data packet has come in for a queue pair that is ready */
void qp_receive(struct fabric *f, struct qp *q, const struct roce_packet *pkt)
{
	struct nic *n = q->nic;
	int32_t ahead = (int32_t)((pkt->psn - (uint32_t)q->expected) << 8) >> 8;
	bool first = roce_is_first(pkt->opcode), send = roce_is_send(pkt->opcode);

	if (ahead < 0) {
		n->duplicate_request++;
		if (pkt->ack_request)
			answer(f, q, AETH_ACK, q->expected - 1);
		return;
	}
	if (ahead > 0) {
		n->out_of_sequence++;
		if (!q->nak_sent) {
			q->nak_sent = true;
			answer(f, q, AETH_NAK_SEQUENCE, q->expected);
		}
		return;
	}
	if ((!send && !roce_is_write(pkt->opcode)) || first == q->in_message || pkt->payload_bytes > q->mtu ||
	    (!first && send != roce_is_send(q->message_kind))) {
		refuse_access(f, q);
		return;
	}
	if (((first && send) || roce_has_imm(pkt->opcode)) && q->rq.head == q->rq.tail) {
		answer(f, q, AETH_RNR_NAK, q->expected);
		q->nak_sent = true;
		return;
	}
	if (first && !begin(f, q, pkt))
		return;
	if (pkt->payload_bytes > q->message_left ||
	    (!send && roce_is_last(pkt->opcode) && pkt->payload_bytes != q->message_left)) {
		refuse_access(f, q);
		return;
	}
	q->in_message = true;
	q->message_kind = pkt->opcode;
	q->nak_sent = false;
	q->expected++;
	if (pkt->payload_bytes) {
		struct region *r = worker_region(n->worker, q->message_rkey, q->message_at, pkt->payload_bytes);
		if (r)
			memcpy(r->base + q->message_at, pkt->payload, pkt->payload_bytes);
	}
	q->message_at += pkt->payload_bytes;
	q->message_left -= pkt->payload_bytes;
	if (send)
		q->message_bytes += pkt->payload_bytes;
	ps_t visible = q->tx == &n->tx[1] ? f->clock.now : pcie_write(n, f->clock.now, pkt->payload_bytes);
	if (roce_is_last(pkt->opcode))
		received(f, q, pkt, visible);
	if (pkt->ack_request)
		answer(f, q, AETH_ACK, q->expected - 1);
}
