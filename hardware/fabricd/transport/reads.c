/* READ and atomic operations at the end that asks
 *
 * Theory of Operation
 *
 * A READ is one packet, and takes as many numbers as its response has packets, which carry them: the next request begins
 * behind them (InfiniBand specification, 9.7.2).  What has come of the response is acknowledged by it, and all requests
 * before it, too.  An acknowledgement of a later request says nothing of a response: it goes in a class of its own and may
 * overtake it.  So it is kept (`told`) until the response is there.
 *
 * A response that is missing is asked for again, by the same READ from there on: with go-back-N with all behind it, with
 * selective repeat packet by packet (to the sender's recovery a response is a packet that has come: repeat.c).  Its peer answers such a
 * duplicate from its memory as that is then; of an atomic operation it has kept the result (9.4.5, 9.7.5.1.1).
 *
 * Responses are held back by the control of who sends them (responder.c), which is told what has been taken where that goes
 * by acknowledgements.  A READ itself is one packet of this end's window.
 */
#include <string.h>

#include "base/bytes.h"
#include "base/copies.h"
#include "base/units.h"
#include "engine/fabric.h"
#include "link/frame.h"
#include "nic/nic.h"
#include "nic/params.h"
#include "transport/answer.h"
#include "transport/congestion.h"
#include "transport/credit.h"
#include "transport/place.h"
#include "transport/qp.h"
#include "transport/reads.h"
#include "transport/repeat.h"
#include "wire/ip.h"
#include "wire/roce.h"
#include "wire/telemetry.h"

#define ATOMIC_WORD 8
#define READ_ACK_BYTES 8

/* reads_ask() - A READ asks for all from there on; if that was lost, for no more than that.  A number of it is no packet of ours */
void reads_ask(const struct qp *q, struct roce_packet *pkt, const struct send_wr *wr, uint64_t i, bool again)
{
	uint64_t left = wr->length - i * q->mtu;

	if (!wr_reads(wr))
		return;
	pkt->remote_offset += i * q->mtu;
	pkt->dma_bytes = (uint32_t)(again && left > q->mtu ? q->mtu : left);
	pkt->swap = wr->swap;
	pkt->compare = wr->compare;
}

/* reads_full() - Likewise, while something is being read */
bool reads_full(const struct qp *q)
{
	if (q->send < q->sent_max || q->send_wr_index == q->sq.tail)
		return false;
	const struct send_wr *wr = SEND_WR(q, q->send_wr_index);
	return wr->fence || (wr_reads(wr) && q->own && q->reads >= q->own->reads_out);
}

/* reads_end() - Likewise */
uint64_t reads_end(const struct qp *q, uint64_t n)
{
	const struct send_wr *wr = qp_request_of(q, n);

	return wr_reads(wr) ? wr->first + wr->packets : n + 1;
}

/* reads_numbers() - Of the numbers that are under way those of responses, of each READ but one: that one is its request's */
uint64_t reads_numbers(const struct qp *q)
{
	uint64_t count = 0;

	for (uint32_t i = q->sq.head; q->reads && i != q->sq.tail && SEND_WR(q, i)->first < q->send; i++) {
		const struct send_wr *wr = SEND_WR(q, i);
		uint64_t first = wr->first > q->acked ? wr->first : q->acked, end = wr->first + wr->packets < q->send ? wr->first + wr->packets : q->send;
		count += wr_reads(wr) && end > first ? end - first - 1 : 0;
	}
	return count;
}

/* reads_limit() - Its peer has taken all before packet @n: how far is that done, as what it reads has come? */
uint64_t reads_limit(struct qp *q, uint64_t n)
{
	q->told = n > q->told ? n : q->told;
	if (!q->reads)
		return n;
	for (uint32_t i = q->sq.head; i != q->sq.tail; i++) {
		const struct send_wr *wr = SEND_WR(q, i);
		if (wr->first >= n)
			break;
		if (wr_reads(wr))
			return q->acked > wr->first ? q->acked : wr->first;
	}
	return n;
}

/* Response @n, of request @wr, into memory.  Return: whether it is one, and could be */
static bool place(struct fabric *f, struct qp *q, const struct send_wr *wr, uint64_t n, const struct roce_packet *pkt, const struct frame *fr)
{
	uint64_t at = (n - wr->first) * q->mtu, left = wr->length - at;
	uint8_t original[ATOMIC_WORD];
	struct roce_packet mine = *pkt;

	if ((pkt->opcode == RC_ATOMIC_ACK) != (wr->opcode != WR_READ))
		return false;
	if (pkt->opcode == RC_ATOMIC_ACK) {
		memcpy(original, &pkt->original, sizeof original);
		mine.payload = original;
		mine.payload_bytes = sizeof original;
	}
	if (mine.payload_bytes != (left < q->mtu ? left : q->mtu))
		return false;
	if (mine.payload_bytes && !place_pieces(q, wr->pieces, wr->lkey, wr->local, at, &mine, pkt->opcode == RC_ATOMIC_ACK ? NULL : fr)) {
		qp_fail(f, q, WC_LOCAL_PROTECTION);
		return false;
	}
	place_pcie(f, q, wr->pieces ? mine.payload_bytes : place_crosses(q, wr->lkey, mine.payload_bytes));
	return true;
}

/* Is packet @n, which is not acknowledged, known to have come? */
static bool has_come(const struct qp *q, uint64_t n)
{
	const struct hole *h = q->repeat ? holes_find(&q->repeat->holes, n) : NULL;

	return q->repeat && n < q->repeat->known && (!h || h->state == CAME);
}

/* Tell its sender what has been taken so far, after a response of so many bytes */
static void say(struct fabric *f, struct qp *q, uint32_t psn, uint32_t bytes)
{
	uint8_t payload[READ_ACK_BYTES];

	put_be32(put_be32(payload, (uint32_t)q->responses_taken), bytes);
	struct roce_packet pkt = {.opcode = RC_READ_ACK, .psn = psn, .payload = payload, .payload_bytes = sizeof payload};
	answer_reads(f, q, &pkt);
}

/* Is that response to be acknowledged? */
static bool asks(const struct qp *q, const struct roce_packet *pkt)
{
	return pkt->ack_request || (q->answers->cc->answers_marks && q->came_marked);
}

/* Go-back-N: what is missing is asked for once; if that is lost, after the timeout.  Its sender hears first what has come */
static void ask_again(struct fabric *f, struct qp *q)
{
	if (q->read_again == q->acked + 1)
		return;
	q->read_again = q->acked + 1;
	q->nic->packet_seq_err++;
	if (q->answers->cc->acked)
		say(f, q, (uint32_t)(q->acked - 1) & PSN_MASK, 0);
	qp_go_back(f, q);
	timer_set(f, q, qp_expires(q, f->clock.now));
	qp_ready(f, q);
}

/* Response @n has come ahead of its turn.  What it shows to be lost are responses: that says nothing of the way there */
static void came_ahead(struct fabric *f, struct qp *q, uint64_t n)
{
	uint32_t found = q->repeat ? q->repeat->found : 0;

	repeat_came(f, q, n);
	q->repeat->found = found;
	timer_look(f, q);
}

/* Response @n of what it asked for has come.  Return: false if it is of no use */
static bool take(struct fabric *f, struct qp *q, uint64_t n, const struct roce_packet *pkt, const struct frame *fr)
{
	const struct send_wr *wr = qp_request_of(q, n);

	if (!wr_reads(wr) || (n > q->acked && has_come(q, n)))
		return false;
	uint64_t first = wr->first;
	if (q->acked < first)
		qp_advance(f, q, reads_limit(q, first), false); /* all before it was taken */
	if (n > q->acked && !q->p->selective) {
		ask_again(f, q);
		return false;
	}
	wr = qp_request_of(q, n);
	if (!place(f, q, wr, n, pkt, fr))
		return false;
	q->responses_taken++;
	if (n > q->acked) {
		came_ahead(f, q, n);
		return true;
	}
	uint64_t behind = n + 1;
	while (behind < first + wr->packets && has_come(q, behind))
		behind++;
	qp_advance(f, q, behind, true);
	qp_advance(f, q, reads_limit(q, q->told), true);
	return true;
}

/* reads_came() - A response has come in */
void reads_came(struct fabric *f, struct qp *q, const struct roce_packet *pkt, const struct frame *fr)
{
	int32_t ahead = psn_ahead(pkt->psn, (uint32_t)q->acked);
	uint64_t n = q->acked + (uint64_t)(int64_t)ahead;

	q->came_marked = (pkt->tos & ECN_CE) == ECN_CE;
	if (q->came_marked)
		answer_congestion(f, q);
	if (q->answers->cc->telemetry) {
		q->seen++;
		q->marked += q->came_marked;
		telemetry_read(fr->data, frame_near(fr), fr->away, &q->last);
	}
	credit_arrived(f, q, fr, pkt->payload_bytes);
	bool wanted = ahead >= 0 && q->reads && n < q->left; /* or it has come before, or nobody asked for it */
	bool taken = wanted && take(f, q, n, pkt, fr);
	if (asks(q, pkt) && q->state == QP_READY)
		say(f, q, pkt->psn, pkt->payload_bytes);
	if (taken && !qp_barred(f, q))
		qp_ready(f, q);
}
