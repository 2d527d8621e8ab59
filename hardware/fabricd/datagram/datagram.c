/* Unreliable datagrams (InfiniBand specification, 9.8.3)
 *
 * Theory of Operation
 *
 * A queue pair without a peer: each request names the NIC, the number and the Q_Key of the queue pair that it is for, and
 * is one packet of up to the MTU.  Nothing is acknowledged and nothing sent again: a request is done when its packet
 * starts on the cable.  Of a longer message no packet is sent, and that is no error (C10-93.1.1).  Nobody says how fast:
 * no congestion control hears of datagrams, which are not ECN capable either.
 *
 * Where one comes in it is dropped unless there is such a queue pair, with that Q_Key, and a receive posted.  In the
 * receive 40 bytes come first, with the packet's IP header in their last 20.  One that is longer than its receive breaks the queue pair.
 *
 * What a NIC sends to itself does not leave it (nic_loop).
 */
#include "datagram/datagram.h"

#include <stdlib.h>
#include <string.h>

#include "base/copies.h"
#include "base/ring.h"
#include "base/units.h"
#include "engine/fabric.h"
#include "link/frame.h"
#include "link/port.h"
#include "nic/nic.h"
#include "transport/place.h"
#include "transport/qp.h"
#include "wire/ethernet.h"
#include "wire/ip.h"
#include "wire/roce.h"

#define CONTROLLED (1u << 31) /* of a request's Q_Key: that of the queue pair is meant */

static bool too_long(const struct qp *q, const struct send_wr *wr)
{
	return wr->length > q->mtu;
}

static bool has_packet(const struct fabric *f, const struct tx_source *s)
{
	const struct qp *q = (const struct qp *)s;
	uint64_t there = q->next_packet < q->barred ? q->next_packet : q->barred;

	(void)f;
	there = there < q->made ? there : q->made;
	return q->state == QP_READY && !q->holds && q->send < there && !too_long(q, SEND_WR(q, q->send_wr_index));
}

/* The oldest request is done */
static void done(struct fabric *f, struct qp *q)
{
	struct send_wr *wr = SEND_WR(q, q->sq.head++);

	q->acked = q->left = wr->first + wr->packets;
	q->owner->ops->sent(f, q, wr, WC_SUCCESS);
	free(wr->pieces);
	if (q->owner->ops->acked)
		q->owner->ops->acked(f, q);
}

/* Those that are too long are done when all before them are */
static void pass_over(struct fabric *f, struct qp *q)
{
	while (q->state == QP_READY && !q->holds && q->send_wr_index != q->sq.tail && q->send != q->barred && q->send < q->made &&
	       too_long(q, SEND_WR(q, q->send_wr_index)))
		q->send = q->sent_max = q->send + SEND_WR(q, q->send_wr_index++)->packets;
	while (q->sq.head != q->send_wr_index && q->sq.head != q->sq.tail && too_long(q, SEND_WR(q, q->sq.head)))
		done(f, q);
	qp_barred(f, q);
}

static void none(struct fabric *f, struct tx_source *s)
{
	pass_over(f, (struct qp *)s);
	if (has_packet(f, s))
		nic_tx_ready(f, ((struct qp *)s)->tx, s);
}

static uint32_t build(struct fabric *f, struct tx_source *s, struct frame *fr)
{
	struct qp *q = (struct qp *)s;
	struct send_wr *wr = SEND_WR(q, q->send_wr_index++);
	struct nic *n = q->nic, *to = wr->to;
	bool itself = to == n, imm = wr->opcode == WR_SEND_IMM;
	const uint8_t *payload = q->owner->ops->payload(f, q, wr, q->send);
	struct roce_packet pkt = {
		.src_ip = n->ip,
		.dst_ip = to->ip,
		.src_port = qp_entropy(q, to, wr->number),
		.tos = (uint8_t)((wr->own_class ? wr->dscp : q->p->data_dscp) << 2),
		.ttl = TTL_SENT,
		.opcode = imm ? UD_SEND_ONLY_IMM : UD_SEND_ONLY,
		.dst_qp = wr->number,
		.psn = (uint32_t)q->send & PSN_MASK,
		.qkey = wr->rkey & CONTROLLED ? q->own->qkey : wr->rkey,
		.src_qp = q->number,
		.imm = wr->imm,
		.payload = payload,
		.payload_bytes = payload ? (uint32_t)wr->length : 0,
	};

	memcpy(pkt.dst_mac, to->mac, 6);
	memcpy(pkt.src_mac, n->mac, 6);
	frame_grow(f, fr);
	copies_settle();
	fr->len = roce_build(fr->data, f->frame_room - TRAILER_BYTES, &pkt);
	fr->class = (uint8_t)(wr->own_class ? wr->class : q->p->data_class);
	fr->to = &to->port[1];
	fr->from = s;
	fr->number = q->send;
	fr->payload = (uint16_t)pkt.payload_bytes;
	fr->data_of_worker = !itself;
	q->send = q->sent_max = q->send + 1;
	q->fetched_bytes += fr->len;
	if (itself)
		nic_loop(n);
	return itself || place_in_nic(q, wr) ? IN_NIC : pkt.payload_bytes;
}

static bool passes(struct fabric *f, struct frame *fr)
{
	(void)f;
	(void)fr;
	return true;
}

static void on_wire(struct fabric *f, struct frame *fr)
{
	struct qp *q = (struct qp *)fr->from;

	(void)f;
	q->tx_packets++;
	q->tx_bytes += fr->payload;
}

/* One has left, or is lost in the NIC: of a queue pair's requests, which end in order, the next is done */
static void gone(struct fabric *f, struct frame *fr)
{
	struct qp *q = (struct qp *)fr->from;

	q->fetched_bytes -= fr->len;
	if (q->sq.head == q->sq.tail)
		return; /* it is broken: they have ended */
	done(f, q);
	pass_over(f, q);
}

static const struct tx_ops datagram_tx_ops = {
	.has_packet = has_packet, .build = build, .none = none, .passes = passes, .on_wire = on_wire, .gone = gone};

/* datagram_start() - A queue pair may receive from now on */
void datagram_start(struct fabric *f, struct qp *q)
{
	q->p = q->answers = f->transports->params(f, q->nic, q->transport);
	q->source.ops = &datagram_tx_ops;
	q->tx = &q->nic->tx[0];
	q->mtu = q->nic->mtu;
	q->connect_peer = q->nic->rank;
	q->cc_state.rate = q->cc_state.line_rate = q->tx->port->cable ? (double)q->tx->port->cable->p.rate_bps : 1e12;
	q->holds = true;
	q->state = QP_READY;
}

/* datagram_ready_to_send() - And send, its first packet with that number */
void datagram_ready_to_send(struct qp *q, uint32_t psn)
{
	if (q->sq.head == q->sq.tail)
		q->next_packet = q->send = q->acked = q->left = q->sent_max = psn;
	q->holds = false;
}

/* What a queue pair may not do with what has come breaks it */
static void breaks(struct fabric *f, struct qp *q, enum wc_status why)
{
	qp_receive_failed(f, q, RECV_WR(q, q->rq.head), why);
	q->rq.head++;
	qp_fail(f, q, WC_FLUSHED);
}

static void take(struct fabric *f, struct qp *q, const struct roce_packet *pkt, const struct frame *fr, bool scale_up)
{
	struct recv_wr *wr = RECV_WR(q, q->rq.head);
	uint8_t grh[GRH_BYTES] = {0};
	const struct roce_packet head = {.payload = grh, .payload_bytes = sizeof grh};

	q->message_bytes = GRH_BYTES + pkt->payload_bytes;
	if (q->message_bytes > wr->length) {
		breaks(f, q, WC_LOCAL_LENGTH);
		return;
	}
	memcpy(grh + GRH_BYTES - IPV4_BYTES, fr->data + ETH_BYTES, IPV4_BYTES);
	if (!place_pieces(q, wr->pieces, wr->lkey, wr->offset, 0, &head, NULL) ||
	    !place_pieces(q, wr->pieces, wr->lkey, wr->offset, GRH_BYTES, pkt, fr)) {
		breaks(f, q, WC_LOCAL_PROTECTION);
		return;
	}
	place_complete(f, q, pkt, scale_up ? f->clock.now : pcie_write(q->nic, f->clock.now, (uint32_t)q->message_bytes));
}

/* datagram_receive() - One has come in at a NIC, whole and right */
void datagram_receive(struct fabric *f, struct nic *n, const struct roce_packet *pkt, struct frame *fr, bool scale_up)
{
	struct port *p = &n->port[scale_up];
	struct qp *q = memcmp(pkt->dst_mac, n->mac, 6) ? NULL : qp_find(n, pkt->dst_qp);

	if (!q || q->state != QP_READY || !q->own || !q->own->datagrams || pkt->qkey != q->own->qkey) {
		n->qkey_viol += q && q->own && q->own->datagrams && pkt->qkey != q->own->qkey;
		port_drop(f, p, fr, DROP_NO_QP);
		return;
	}
	bool room = scale_up || nic_rx_room(f, n, pkt->payload_bytes);
	if (!room || !place_has_receive(f, q)) {
		n->out_of_buffer++;
		p->rx_full += !room;
		port_drop(f, p, fr, DROP_NO_RECEIVE_BUFFER);
		return;
	}
	nic_count(&n->rx_rdma, p, fr);
	n->np_marked += (pkt->tos & ECN_CE) == ECN_CE;
	take(f, q, pkt, fr, scale_up);
	frame_release(f, fr);
	if (!scale_up)
		nic_pressure(f, n);
}
