/* Queue pairs, sending side (reliable connection)
 *
 * Theory of Operation
 *
 * Packets of a queue pair are counted from 0 over all its requests; the PSN on
 * the wire is the low 24 bits.  `acked` <= `send` <= `next_packet`:
 *
 *	acked		first packet not acknowledged
 *	send		next packet to go out (goes back on loss: go-back-N)
 *	next_packet	number that the next posted request starts with
 *
 * A NAK (sequence error) acknowledges what came before it and takes `send`
 * back to it.  When nothing is acknowledged for nic.timeout, `send` goes back
 * to `acked`, and the first packet asks for an acknowledgement, so that the
 * receiver says how far it is.  After nic.retry timeouts in a row the queue pair
 * fails.  An RNR NAK does the same after a pause.  Every acknowledgement that moves
 * `acked` restarts the timer and forgets the retries.
 *
 * With selective repeat (repeat.c), `send` never goes back; what was lost is sent
 * again in between.  The window of congestion control (congestion.h) may hold back the
 * next packet; its rate counts later, at the cable (pacer.c).  What has come and what is
 * lost is not in the window (RFC 6675, "pipe").  Some controls send on credit only (credit.c).  A sender that may send nothing until it
 * hears something asks for an acknowledgement.
 *
 * Payload is read when a packet is built, and again when it is sent again.  A worker's stays
 * in its memory until it is delivered (link/lent.c); what is still under way when a request
 * ends is recalled before its owner hears.
 *
 * Packets of an engine (an owner inside the NIC) become available one by one, up to
 * `made`, and stay in the NIC's memory until they are acknowledged.
 */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/copies.h"
#include "base/units.h"
#include "engine/event.h"
#include "engine/fabric.h"
#include "link/frame.h"
#include "nic/nic.h"
#include "nic/params.h"
#include "transport/congestion.h"
#include "transport/credit.h"
#include "transport/multipath.h"
#include "transport/pacer.h"
#include "transport/place.h"
#include "transport/qp.h"
#include "transport/reads.h"
#include "transport/repeat.h"
#include "transport/responder.h"
#include "wire/ethernet.h"
#include "wire/ip.h"
#include "wire/roce.h"
#include "wire/telemetry.h"
#define WINDOW (1u << 23) /* packets under way: half of all PSNs, so that older and newer ones are distinct */

/* qp_ready() - A queue pair may have something to send */
void qp_ready(struct fabric *f, struct qp *q)
{
	credit_look(f, q);
	nic_tx_ready(f, q->tx, &q->source);
}

/* Of the numbers under way those that are packets of its own */
static uint64_t own_under_way(const struct qp *q, uint64_t numbers)
{
	uint64_t reads = q->reads ? reads_numbers(q) : 0;

	return numbers > reads ? numbers - reads : numbers > 0;
}

/* qp_under_way() - Packets that may be on their way, of its own and responses */
inline uint64_t qp_under_way(const struct qp *q)
{
	return own_under_way(q, repeat_under_way(q)) + (q->responder ? responder_under_way(q) : 0);
}

static bool window_open(const struct qp *q)
{
	if (q->cc_state.window <= 0 || (q->asked <= q->acked && repeat_under_way(q)))
		return true; /* the window has shrunk since, and nothing under way asks to be acknowledged: the next will */
	return cc_window_open(q, qp_under_way(q)) || repeat_enters(q);
}

/* qp_has_new() - Is there a new packet, and room for it at the receiver? */
inline bool qp_has_new(const struct qp *q)
{
	uint64_t there = q->made < q->next_packet ? q->made : q->next_packet;
	there = there < q->barred ? there : q->barred;
	uint64_t most = q->p->selective ? q->p->reorder_packets : WINDOW;

	return q->send < there && q->send - q->acked < most && !reads_hold(q);
}

/* qp_has_work() - Is there something to send? */
inline bool qp_has_work(const struct fabric *f, const struct qp *q)
{
	uint64_t n;

	if (q->state != QP_READY || q->holds || f->clock.now < q->rnr_until)
		return false;
	return (repeat_next(q, &n) || qp_has_new(q)) && (q->probes || (window_open(q) && credit_open(q)));
}

static bool has_packet(const struct fabric *f, const struct tx_source *s)
{
	const struct qp *q = (const struct qp *)s;

	return (responder_has(q) || qp_has_work(f, q)) && !pacer_full(f, q);
}

/* Who has nothing to send is ready again when it has, or when something fetched for it has left */
static void none(struct fabric *f, struct tx_source *s)
{
	(void)f;
	(void)s;
}

/* The request that packet @n belongs to; @n has been handed out and is not acknowledged */
static uint32_t request_of(const struct qp *q, uint64_t n)
{
	uint32_t i = q->sq.head;

	while (n >= SEND_WR(q, i)->first + SEND_WR(q, i)->packets)
		i++;
	return i;
}

/* Is @n a multiple?  Dividing 64 bits takes several times as long as 32 */
static bool every(uint64_t n, uint32_t m)
{
	return (n <= UINT32_MAX ? (uint32_t)n % m : n % m) == 0;
}

/* Must the receiver answer this packet, or nothing would go on? */
static bool asks(const struct qp *q, uint64_t n, bool last, uint32_t frame_bytes)
{
	const struct nic_params *p = q->p;
	uint32_t gap = cc_ack_gap(q);
	uint64_t under_way = own_under_way(q, p->sack_bits ? repeat_under_way(q) + 1 : n + 1 - q->acked);
	bool due = gap < p->ack_every ? n + 1 >= q->asked + gap : every(n + 1 - q->first, p->ack_every);

	return last || due || q->probes || qp_slow(q, frame_bytes) || (q->retries && n == q->acked) ||
	       (p->selective && n < q->sent_max) || !cc_window_open(q, under_way) || !credit_open(q) ||
	       (p->selective && n + 2 - q->acked > p->reorder_packets);
}

/* Only what is sent for the first time is lent (link/lent.c) */
static void write_frame(struct fabric *f, struct qp *q, struct frame *fr, const struct roce_packet *pkt, bool lends)
{
	if (lends && pkt->payload_bytes) {
		fr->len = roce_build_headers(fr->data, pkt);
		frame_lend(fr, &q->lent, pkt->payload, pkt->payload_bytes);
	} else {
		frame_grow(f, fr);
		copies_settle();
		fr->len = roce_build(fr->data, f->frame_room - TRAILER_BYTES - TELEMETRY_MAX_BYTES, pkt);
	}
	if (!q->cc->telemetry)
		return;
	uint8_t hops = cc_hops(q);
	if (frame_near(fr) + TELEMETRY_BYTES(hops) + TRAILER_BYTES > FRAME_HEAD_BYTES)
		frame_grow(f, fr);
	fr->len = fr->away + telemetry_append(fr->data, frame_near(fr), &(struct telemetry){.room = hops});
}

static void sent_new(struct fabric *f, struct qp *q, const struct send_wr *wr, bool last)
{
	q->reads += wr_reads(wr) && q->send == q->sent_max;
	q->send = wr_reads(wr) ? wr->first + wr->packets : q->send + 1;
	last = last || wr_reads(wr);
	if (q->send > q->sent_max)
		q->sent_max = q->send;
	if (last) {
		q->send_wr_index++;
		qp_local(f, q);
	}
}

/* Build its next packet: one that is to be sent again, or the next new one */
static uint32_t build_own(struct fabric *f, struct qp *q, struct frame *fr)
{
	struct nic *n = q->nic;
	uint64_t number;
	bool again = repeat_next(q, &number);
	uint32_t index = again ? request_of(q, number) : q->send_wr_index;

	number = again ? number : q->send;
	const struct send_wr *wr = SEND_WR(q, index);
	uint64_t i = number - wr->first, left = wr->length - i * q->mtu;
	bool last = i + 1 == wr->packets;
	const uint8_t *payload = wr_reads(wr) ? NULL : q->owner->ops->payload(f, q, wr, number);
	uint32_t bytes = !payload ? 0 : (uint32_t)(left < q->mtu ? left : q->mtu);

	credit_spend(q, bytes, !again && number == q->sent_max);
	struct roce_packet pkt = {
		.src_ip = n->ip,
		.dst_ip = q->peer->ip,
		.src_port = multipath_port(f, q, number, again && repeat_is_news(q)),
		.tos = (uint8_t)((q->own_class ? q->dscp : q->p->data_dscp) << 2 | ECN_ECT0),
		.ttl = TTL_SENT,
		.opcode = wr_opcode_of(wr, i == 0, last),
		.ack_request = asks(q, number, last || wr_reads(wr), q->mtu + ROCE_MAX_HEADER),
		.dst_qp = q->peer_number,
		.psn = (uint32_t)number & PSN_MASK,
		.remote_offset = wr->remote,
		.rkey = wr->rkey,
		.dma_bytes = (uint32_t)wr->length,
		.imm = wr->imm,
		.payload = payload,
		.payload_bytes = bytes,
	};
	place_alone(q, &pkt, wr, i, bytes);
	reads_ask(q, &pkt, wr, i, again);
	memcpy(pkt.dst_mac, q->peer->mac, 6);
	memcpy(pkt.src_mac, n->mac, 6);
	fr->number = number;
	write_frame(f, q, fr, &pkt, q->owner->ops->lends && !wr->pieces && !again && number == q->sent_max);

	fr->class = (uint8_t)(q->own_class ? q->class : q->p->data_class);
	fr->to = &q->peer->port[1];
	if (pkt.ack_request && number >= q->asked)
		q->asked = wr_reads(wr) ? wr->first + wr->packets : number + 1;
	fr->from = &q->source;
	fr->taker = q->peer_qp;
	fr->payload = (uint16_t)pkt.payload_bytes;
	fr->asks = pkt.ack_request;
	fr->data_of_worker = q->tx == &n->tx[0] && !q->owner->ops->generated;
	q->probes = false;
	if (again)
		repeat_sent(q);
	else
		sent_new(f, q, wr, last);
	credit_say(f, q, fr);
	credit_look(f, q);
	if (q->timer == PS_NEVER)
		timer_set(f, q, qp_expires(q, f->clock.now));
	q->fetched_bytes += fr->len;
	return q->owner->ops->in_nic || place_in_nic(q, wr) ? IN_NIC : pkt.payload_bytes;
}

/* In turn with responses to its peer */
static uint32_t build(struct fabric *f, struct tx_source *s, struct frame *fr)
{
	struct qp *q = (struct qp *)s;

	if (responder_has(q) && (!qp_has_work(f, q) || (q->responds = !q->responds)))
		return responder_build(f, q, fr);
	return build_own(f, q, fr);
}

const struct tx_ops qp_tx_ops = {.has_packet = has_packet, .build = build, .none = none, .passes = pacer_passes,
				.on_wire = pacer_sent, .gone = pacer_gone};

/* qp_go_back() - Start anew from the first packet that is not acknowledged */
void qp_go_back(struct fabric *f, struct qp *q)
{
	pacer_flush(f, q);
	repeat_forget(q);
	q->asked = q->acked;
	q->send = q->acked;
	q->send_wr_index = q->sq.head;
	qp_local(f, q);
}

/* qp_request_of() - The request that packet @n belongs to, likewise */
struct send_wr *qp_request_of(const struct qp *q, uint64_t n)
{
	return SEND_WR(q, request_of(q, n));
}

/* qp_advance() - Everything before packet @n has arrived; an acknowledgement says so, or a NAK, or a response */
void qp_advance(struct fabric *f, struct qp *q, uint64_t n, bool ack)
{
	uint64_t before = q->acked;

	if (n <= q->acked)
		return;
	q->acked = n;
	repeat_acked(f, q, before, ack);
	q->retries = q->rnr_retries = 0;
	while (q->sq.head != q->sq.tail) {
		struct send_wr *wr = SEND_WR(q, q->sq.head);
		if (wr->first + wr->packets > n || (wr_local(wr) && !wr->done))
			break;
		lender_recall(f, &q->lent, wr->first + wr->packets);
		q->reads -= wr_reads(wr);
		q->owner->ops->sent(f, q, wr, WC_SUCCESS);
		free(wr->pieces);
		if (q->send_wr_index == q->sq.head)
			q->send_wr_index++;
		q->sq.head++;
	}
	if (q->send < q->acked)
		qp_go_back(f, q); /* had gone back further than was needed */
	if (q->acked == q->send)
		q->timer = PS_NEVER;
	else
		timer_set(f, q, qp_expires(q, f->clock.now));
	if (q->owner->ops->acked)
		q->owner->ops->acked(f, q);
	qp_local(f, q);
}

/* Is packet @n, which is not acknowledged, as long as the MTU? */
static bool full(const struct qp *q, uint64_t n)
{
	if (n < q->acked || n >= q->send)
		return false;
	const struct send_wr *wr = SEND_WR(q, request_of(q, n));
	return (n - wr->first + 1) * q->mtu <= wr->length;
}

/* @ack: whatever is known before the packet was read */
static void tell_cc(struct fabric *f, struct qp *q, struct cc_ack *ack, const struct roce_packet *pkt, const struct frame *fr)
{
	uint64_t delivered = repeat_delivered(q);

	ack->packets = delivered > ack->packets ? delivered - ack->packets : 0;
	cc_told(f, q, ack, pkt, fr);
}

/* What an acknowledgement's bitmap says of packets ahead */
static void read_bitmap(struct fabric *f, struct qp *q, const struct roce_packet *pkt)
{
	struct view v = view_of(pkt->payload, pkt->payload_bytes);
	int32_t ahead = psn_ahead(get_be32(&v), (uint32_t)q->acked);

	if (v.bad || ahead < -SACK_BITS_MAX || v.left > SACK_BITS_MAX / 8)
		return;
	q->nic->rx_sacks++;
	repeat_sack(f, q, q->acked + (uint64_t)(int64_t)ahead, v.p, (uint32_t)v.left);
	timer_look(f, q);
}

/* A NAK for a sequence error: what it says of other packets, and what is to be sent again */
static void missing(struct fabric *f, struct qp *q, struct cc_ack *ack, const struct roce_packet *pkt, const struct frame *fr)
{
	q->nic->packet_seq_err++;
	if (q->p->selective)
		repeat_told(f, q, q->acked + ((pkt->msn - (uint32_t)q->acked) & PSN_MASK));
	tell_cc(f, q, ack, pkt, fr);
	if (q->p->selective) {
		timer_look(f, q);
		cc_lost(f, q, CC_LOSS_NAK, repeat_found(q));
	} else {
		cc_lost(f, q, CC_LOSS_NAK, 1);
		multipath_lost(f, q, q->acked);
		qp_go_back(f, q);
	}
	timer_set(f, q, qp_expires(q, f->clock.now));
	qp_ready(f, q);
}

/* qp_acknowledged() - An ACK or NAK has come in */
void qp_acknowledged(struct fabric *f, struct qp *q, const struct roce_packet *pkt, const struct frame *fr)
{
	uint8_t syndrome = pkt->syndrome;
	int32_t ahead = psn_ahead(pkt->psn, (uint32_t)q->acked);
	bool ack = (syndrome & 0x60) == 0, more = syndrome == AETH_NAK_SEQUENCE && q->p->selective;
	uint64_t n = q->acked + (uint64_t)(int64_t)(ahead + ack);

	if (n <= q->left || ahead + ack < 0)
		multipath_returned(f, q, pkt, fr);
	if (ahead + ack < 0 || n > q->left)
		return; /* old, or never sent */
	uint64_t answered = ack ? n - 1 : n + (more ? (pkt->msn - pkt->psn) & PSN_MASK : 0);
	bool bitmap = ack && pkt->payload_bytes && q->p->selective;
	struct cc_ack told = {.packets = repeat_delivered(q), .full = !bitmap && full(q, answered)};
	if (q->repeat && q->repeat->holes.count)
		repeat_answers(q, cc_answered(q, fr));
	qp_advance(f, q, reads_limit(q, n), ack);
	if (bitmap)
		read_bitmap(f, q, pkt);
	if (!ack && syndrome == AETH_NAK_SEQUENCE && q->acked != q->next_packet) {
		missing(f, q, &told, pkt, fr);
		return;
	}
	if (qp_barred(f, q))
		return;
	tell_cc(f, q, &told, pkt, fr);
	if (ack) {
		cc_lost(f, q, CC_LOSS_NAK, repeat_found(q));
		qp_ready(f, q);
		return;
	}
	if (q->acked == q->next_packet)
		return;
	q->nic->req_access += syndrome == AETH_NAK_ACCESS;
	if (syndrome == AETH_NAK_ACCESS)
		qp_fail(f, q, WC_REMOTE_ACCESS);
	else if (syndrome == AETH_NAK_INVALID)
		qp_fail(f, q, WC_REMOTE_INVALID);
	else if (syndrome == AETH_NAK_OPERATION)
		qp_fail(f, q, WC_REMOTE_OPERATION);
	else
		qp_not_ready(f, q, syndrome);
}
