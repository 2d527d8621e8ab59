/* What a receiver says to its sender
 *
 * Theory of Operation
 *
 * An acknowledgement names the last packet that was taken.  A NAK names the expected one.  What came ahead of
 * that is said in one of two ways:
 *
 *	sack_bits 0	each such packet is answered by a NAK (sequence error) whose message number is the one that has
 *			come: the two numbers of IRN's NACK (SIGCOMM 2018, section 3.1)
 *	otherwise	acknowledgements have a bitmap, behind their AETH: a packet's number, and a bit for it and each
 *			of those behind it, set if it has come (UEC 1.0, 3.5: SACK).  They are sent when a packet
 *			asks, and for every sack_every-th that came ahead or closed a gap.
 *
 * A bitmap begins with the first packet that nobody was told of; where there is room left, older ones are said once
 * more, in case that a bitmap was lost (RFC 2018, section 4).  A duplicate shows that one was: then all is said.
 */
#include <string.h>

#include "base/bytes.h"
#include "engine/fabric.h"
#include "link/frame.h"
#include "link/port.h"
#include "nic/nic.h"
#include "nic/params.h"
#include "recovery/reorder.h"
#include "transport/answer.h"
#include "transport/congestion.h"
#include "transport/qp.h"
#include "wire/ip.h"
#include "wire/roce.h"
#include "wire/telemetry.h"

#define BITMAPS_AT_ONCE 8

static void send_answer(struct fabric *f, struct qp *q, struct roce_packet *pkt, uint32_t dscp, uint32_t class)
{
	struct frame *fr = frame_small(f);
	bool sprays = q->answers->multipath.policy && q->tx == &q->nic->tx[0];

	pkt->src_ip = q->nic->ip;
	pkt->dst_ip = q->peer->ip;
	pkt->src_port = sprays && pkt->opcode == RC_ACK ? q->came_by : q->src_port;
	pkt->becn = sprays && pkt->opcode == RC_ACK && q->came_marked;
	pkt->tos = (uint8_t)(dscp << 2);
	pkt->ttl = TTL_SENT;
	pkt->dst_qp = q->peer_number;
	memcpy(pkt->dst_mac, q->peer->mac, 6);
	memcpy(pkt->src_mac, q->nic->mac, 6);
	fr->len = roce_build_unsealed(fr->data, FRAME_HEAD_BYTES - TRAILER_BYTES - TELEMETRY_BYTES(0), pkt);
	fr->unsealed = true;
	bool acks = (pkt->opcode == RC_ACK && !AETH_IS_TRIMMED(pkt->syndrome)) || pkt->opcode == RC_READ_ACK;
	if (acks && q->last.present) {
		q->last.seen = (uint16_t)(q->seen < UINT16_MAX ? q->seen : UINT16_MAX);
		q->last.marked = (uint16_t)(q->marked < UINT16_MAX ? q->marked : UINT16_MAX);
		q->last.room = q->last.hops;
		if (fr->len + TELEMETRY_BYTES(q->last.room) + TRAILER_BYTES > FRAME_HEAD_BYTES)
			frame_grow(f, fr);
		fr->len = telemetry_append(fr->data, fr->len, &q->last);
		q->seen = q->marked = 0;
	}
	fr->id = frame_number(&q->nic->n); /* made in the NIC: needs no fetch */
	fr->class = (uint8_t)class;
	fr->to = &q->peer->port[1];
	fr->taker = q->peer_qp;
	port_enqueue(f, q->tx->port, fr);
}

/* answer() - An acknowledgement or NAK without a bitmap */
void answer(struct fabric *f, struct qp *q, uint8_t syndrome, uint64_t packet, uint32_t msn)
{
	if (syndrome & 0x60)
		q->trimmed = UINT64_MAX; /* what is behind that packet is sent again */
	struct roce_packet pkt = {
		.opcode = RC_ACK, .psn = (uint32_t)packet & PSN_MASK, .syndrome = syndrome, .msn = msn & PSN_MASK};

	send_answer(f, q, &pkt, q->answers->ack_dscp, q->answers->ack_class);
}

/* answer_trimmed() - Of a packet no more than its beginning has come */
void answer_trimmed(struct fabric *f, struct qp *q, uint32_t psn, bool last_hop)
{
	uint8_t syndrome = last_hop ? AETH_NAK_TRIMMED_LAST_HOP : AETH_NAK_TRIMMED;
	struct roce_packet pkt = {.opcode = RC_ACK, .psn = psn, .syndrome = syndrome, .msn = (uint32_t)q->expected & PSN_MASK};

	send_answer(f, q, &pkt, q->answers->ack_dscp, q->answers->ack_class);
}

static void answer_bitmap(struct fabric *f, struct qp *q, uint64_t first)
{
	uint8_t sack[SACK_BYTES(SACK_BITS_MAX)] = {0};

	put_be32(sack, (uint32_t)first & PSN_MASK);
	for (uint32_t i = 0; i < q->answers->sack_bits; i += 32) {
		uint32_t came = reorder_bits(q->reorder, first + i);
		for (uint32_t k = 0; k < 4; k++)
			sack[4 + i / 8 + k] = (uint8_t)(came >> 8 * k);
	}
	struct roce_packet pkt = {.opcode = RC_ACK,
				  .psn = (uint32_t)(q->expected - 1) & PSN_MASK,
				  .syndrome = AETH_ACK,
				  .msn = q->msn & PSN_MASK,
				  .payload = sack,
				  .payload_bytes = SACK_BYTES(q->answers->sack_bits)};
	q->nic->tx_sacks++;
	send_answer(f, q, &pkt, q->answers->ack_dscp, q->answers->ack_class);
}

/* answer_come() - Say how far everything has come, and what has come ahead of that */
void answer_come(struct fabric *f, struct qp *q)
{
	struct reorder *r = q->reorder;
	uint32_t bits = q->answers->sack_bits;

	q->answer_due = false;
	if (!bits || !r || !r->held || r->unsaid_from >= r->end) {
		answer(f, q, AETH_ACK, q->expected - 1, q->msn);
		if (r)
			r->unsaid = 0;
		return;
	}
	uint64_t n = r->unsaid_from > q->expected ? r->unsaid_from : q->expected + 1;
	if (r->end - n < bits)
		n = r->end - q->expected > bits ? r->end - bits : q->expected + 1;
	for (int k = 0; k < BITMAPS_AT_ONCE && n < r->end; k++) {
		answer_bitmap(f, q, n);
		n = reorder_next(r, n + bits);
	}
	r->unsaid_from = n < r->end ? n : UINT64_MAX;
	r->unsaid = 0;
}

/* answer_ahead() - A packet has come ahead, with bitmaps: is it time to say so?
 * @again:	It was there before: not all that was said has come in
 */
void answer_ahead(struct fabric *f, struct qp *q, bool at_once, bool again)
{
	struct reorder *r = q->reorder;

	if (again)
		r->unsaid_from = q->expected + 1;
	if (++r->unsaid >= q->answers->sack_every || at_once || again)
		answer_come(f, q);
}

/* answer_closed() - The expected packet has come, and @taken others that had come ahead were taken with it: likewise */
void answer_closed(struct fabric *f, struct qp *q, uint32_t taken)
{
	struct reorder *r = q->reorder;

	if (r && (taken || r->held))
		r->unsaid += taken ? 2 : 1; /* both ends of what closed */
	if (q->answer_due || (r && r->unsaid >= q->answers->sack_every))
		answer_come(f, q);
}

/* answer_congestion() - A data packet was marked on its way: tell the sender, if its control wants that and was not told
 * just now
 */
void answer_congestion(struct fabric *f, struct qp *q)
{
	static const uint8_t reserved[CNP_BYTES];
	struct nic *n = q->nic;

	n->np_marked++;
	if (!q->answers->cc->cnp_gap || f->clock.now - q->cnp_sent < q->answers->cc->cnp_gap(f, q))
		return;
	q->cnp_sent = f->clock.now;
	n->np_cnps++;
	answer_control(f, q, q->answers, &(struct roce_packet){.opcode = RC_CNP, .payload = reserved, .payload_bytes = CNP_BYTES});
}

/* answer_reads() - An acknowledgement of responses (reads.c) */
void answer_reads(struct fabric *f, struct qp *q, struct roce_packet *pkt)
{
	send_answer(f, q, pkt, q->answers->ack_dscp, q->answers->ack_class);
}

/* answer_control() - A small packet to the peer's congestion control, before all data */
void answer_control(struct fabric *f, struct qp *q, const struct nic_params *by, struct roce_packet *pkt)
{
	send_answer(f, q, pkt, by->cnp_dscp, by->cnp_class);
}
