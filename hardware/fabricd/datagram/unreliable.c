/* Unreliable connections, sending side (InfiniBand specification, 9.8.2)
 *
 * Theory of Operation
 *
 * A queue pair with a peer, whose messages are cut into packets as those of a reliable one.  Nothing is acknowledged and
 * nothing sent again: a request is done when its last packet has left the NIC.  No window and no credit can hold its
 * packets back; a control that goes by notifications does, by its rate.  Its packets go one way through the network
 * whatever the NIC's policy is, as its peer takes what comes ahead for a loss (receive.c).
 */
#include "datagram/datagram.h"

#include <string.h>

#include "base/copies.h"
#include "engine/fabric.h"
#include "link/frame.h"
#include "link/port.h"
#include "nic/nic.h"
#include "transport/pacer.h"
#include "transport/place.h"
#include "transport/qp.h"
#include "wire/ethernet.h"
#include "wire/ip.h"
#include "wire/roce.h"

static bool has_packet(const struct fabric *f, const struct tx_source *s)
{
	const struct qp *q = (const struct qp *)s;

	return q->state == QP_READY && !q->holds && qp_has_new(q) && !pacer_full(f, q);
}

static void none(struct fabric *f, struct tx_source *s)
{
	(void)f;
	(void)s;
}

static uint32_t build(struct fabric *f, struct tx_source *s, struct frame *fr)
{
	struct qp *q = (struct qp *)s;
	const struct send_wr *wr = SEND_WR(q, q->send_wr_index);
	uint64_t i = q->send - wr->first, left = wr->length - i * q->mtu;
	bool last = i + 1 == wr->packets;
	const uint8_t *payload = q->owner->ops->payload(f, q, wr, q->send);
	uint32_t bytes = payload ? (uint32_t)(left < q->mtu ? left : q->mtu) : 0;
	struct roce_packet pkt = {
		.src_ip = q->nic->ip,
		.dst_ip = q->peer->ip,
		.src_port = q->src_port,
		.tos = (uint8_t)((q->own_class ? q->dscp : q->p->data_dscp) << 2 | ECN_ECT0),
		.ttl = TTL_SENT,
		.opcode = wr_opcode_of(wr, i == 0, last),
		.unreliable = true,
		.dst_qp = q->peer_number,
		.psn = (uint32_t)q->send & PSN_MASK,
		.remote_offset = wr->remote,
		.rkey = wr->rkey,
		.dma_bytes = (uint32_t)wr->length,
		.imm = wr->imm,
		.payload = payload,
		.payload_bytes = bytes,
	};

	memcpy(pkt.dst_mac, q->peer->mac, 6);
	memcpy(pkt.src_mac, q->nic->mac, 6);
	frame_grow(f, fr);
	copies_settle();
	fr->len = roce_build(fr->data, f->frame_room - TRAILER_BYTES, &pkt);
	fr->class = (uint8_t)(q->own_class ? q->class : q->p->data_class);
	fr->to = &q->peer->port[1];
	fr->from = s;
	fr->number = q->send;
	fr->payload = (uint16_t)bytes;
	fr->data_of_worker = q->tx == &q->nic->tx[0];
	q->sent_max = ++q->send;
	if (last) {
		q->send_wr_index++;
		qp_local(f, q);
	}
	q->fetched_bytes += fr->len;
	return place_in_nic(q, wr) ? IN_NIC : bytes;
}

/* One has left, or is lost in the NIC: all before it have */
static void gone(struct fabric *f, struct frame *fr)
{
	struct qp *q = (struct qp *)fr->from;

	pacer_gone(f, fr);
	qp_advance(f, q, fr->number + 1, false);
	qp_barred(f, q);
}

const struct tx_ops unreliable_tx_ops = {
	.has_packet = has_packet, .build = build, .none = none, .passes = pacer_passes, .on_wire = pacer_sent, .gone = gone};
