/* READ and atomic operations, at both ends
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
 * Responses wait for the queue pair's pacer like its own packets: a control that goes by rates holds them back, by what
 * its notifications say.  Nothing acknowledges them, so no window and no credit of
 * its holds them back; at the end that asks, what has not come is under way, and a window bounds that.
 */
#include <stdlib.h>
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
#include "transport/place.h"
#include "transport/qp.h"
#include "transport/reads.h"
#include "transport/repeat.h"
#include "wire/ip.h"
#include "wire/roce.h"

#define JOBS_MAX 64    /* answers that have not left: asked for again and again, the oldest are forgotten */
#define RESULTS_KEPT 16 /* of atomic operations: as many as may be under way */
#define ATOMIC_WORD 8

struct job {
	uint64_t first, packets, next; /* by the peer's numbers */
	uint64_t address, length, original;
	uint32_t key, msn;
	bool atomic, again;
};

struct responder {
	struct job job[JOBS_MAX];
	uint32_t head, tail;
	struct result {
		uint64_t number, original;
		uint32_t msn;
		bool there;
	} result[RESULTS_KEPT];
	uint32_t results;
};

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

/* reads_hold() - Must the next new request wait, as too much is read already, or it is to come behind that? */
bool reads_hold(const struct qp *q)
{
	if (!q->reads || q->send < q->sent_max || q->send_wr_index == q->sq.tail)
		return false;
	const struct send_wr *wr = SEND_WR(q, q->send_wr_index);
	return wr->fence || (wr_reads(wr) && q->own && q->reads >= q->own->reads_out);
}

/* reads_behind() - The number behind packet @n of ours, which has not been acknowledged: a READ takes several */
uint64_t reads_behind(const struct qp *q, uint64_t n)
{
	const struct send_wr *wr = q->reads ? qp_request_of(q, n) : NULL;

	return wr && wr_reads(wr) ? wr->first + wr->packets : n + 1;
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

/* Go-back-N: what is missing is asked for once; if that is lost, after the timeout */
static void ask_again(struct fabric *f, struct qp *q)
{
	if (q->read_again == q->acked + 1)
		return;
	q->read_again = q->acked + 1;
	q->nic->packet_seq_err++;
	cc_lost(f, q, CC_LOSS_NAK, 1);
	qp_go_back(f, q);
	timer_set(f, q, qp_expires(q, f->clock.now));
	qp_ready(f, q);
}

/* reads_came() - A response has come in */
void reads_came(struct fabric *f, struct qp *q, const struct roce_packet *pkt, const struct frame *fr)
{
	int32_t ahead = psn_ahead(pkt->psn, (uint32_t)q->acked);
	uint64_t n = q->acked + (uint64_t)(int64_t)ahead;

	q->came_marked = (pkt->tos & ECN_CE) == ECN_CE;
	if (q->came_marked)
		answer_congestion(f, q);
	if (ahead < 0 || !q->reads || n >= q->left)
		return; /* it has come before, or nobody asked for it */
	const struct send_wr *wr = qp_request_of(q, n);
	if (!wr_reads(wr))
		return;
	uint64_t first = wr->first;
	if (q->acked < first)
		qp_advance(f, q, reads_limit(q, first), false); /* all before it was taken */
	if (n > q->acked && !q->p->selective) {
		ask_again(f, q);
		return;
	}
	wr = qp_request_of(q, n);
	if (!place(f, q, wr, n, pkt, fr))
		return;
	if (n > q->acked) {
		repeat_came(f, q, n);
		timer_look(f, q);
	} else {
		uint64_t behind = n + 1;
		while (behind < first + wr->packets && has_come(q, behind))
			behind++;
		qp_advance(f, q, behind, true);
		qp_advance(f, q, reads_limit(q, q->told), true);
	}
	if (!qp_barred(f, q))
		qp_ready(f, q);
}

static struct responder *responder_of(struct qp *q)
{
	if (!q->responder && !(q->responder = calloc(1, sizeof *q->responder)))
		abort();
	return q->responder;
}

static void owe(struct fabric *f, struct qp *q, const struct job *job)
{
	struct responder *r = responder_of(q);

	if (r->tail - r->head == JOBS_MAX)
		r->head++;
	r->job[r->tail++ % JOBS_MAX] = *job;
	nic_tx_ready(f, q->tx, &q->source);
}

static uint32_t under_way(const struct responder *r)
{
	uint32_t count = 0;

	for (uint32_t i = r->head; i != r->tail; i++)
		count += !r->job[i % JOBS_MAX].again;
	return count;
}

/* Carry an atomic operation out, on a word of the host's; its result in wire order is that of numbers there */
static void carry_out(uint8_t *at, const struct roce_packet *pkt, uint64_t *original)
{
	uint64_t word;

	copies_settle();
	memcpy(&word, at, sizeof word);
	*original = word;
	if (pkt->opcode == RC_FETCH_ADD)
		word += pkt->swap;
	else if (word == pkt->compare)
		word = pkt->swap;
	memcpy(at, &word, sizeof word);
}

/* responder_take() - The expected packet is a READ, or an atomic operation
 * Return: whether it may be: if not the queue pair is broken
 */
bool responder_take(struct fabric *f, struct qp *q, const struct roce_packet *pkt)
{
	bool atomic = roce_is_atomic(pkt->opcode);
	uint64_t length = atomic ? ATOMIC_WORD : pkt->dma_bytes;
	uint8_t *at = NULL, wrong = 0;

	if (q->in_message || !q->own || length > 1u << 31 || (atomic && pkt->remote_offset % ATOMIC_WORD) ||
	    under_way(responder_of(q)) >= q->own->reads_in)
		wrong = AETH_NAK_INVALID;
	else if (length && (q->keys_stale[0] || !q->owner->ops->memory(q, atomic ? REMOTE_ATOMIC : REMOTE_READ, pkt->rkey, pkt->remote_offset, length, &at)))
		wrong = AETH_NAK_ACCESS;
	if (wrong) {
		q->nic->resp_access += wrong == AETH_NAK_ACCESS;
		answer(f, q, wrong, q->expected, q->msn);
		if (q->own)
			qp_refuse(f, q, wrong);
		return false;
	}
	struct job job = {.first = q->expected, .packets = length ? (length + q->mtu - 1) / q->mtu : 1, .address = pkt->remote_offset,
			  .length = length, .key = pkt->rkey, .atomic = atomic};
	q->expected += job.packets;
	job.msn = q->msn = (q->msn + 1) & PSN_MASK;
	if (atomic) {
		struct responder *r = responder_of(q);
		carry_out(at, pkt, &job.original);
		r->result[r->results++ % RESULTS_KEPT] = (struct result){job.first, job.original, job.msn, true};
		q->nic->rx_atomic_requests++;
	} else {
		q->nic->rx_read_requests++;
	}
	owe(f, q, &job);
	return true;
}

/* responder_again() - Likewise one that has come before: a READ, or the rest of one, is answered anew */
void responder_again(struct fabric *f, struct qp *q, const struct roce_packet *pkt)
{
	uint64_t n = q->expected + (uint64_t)(int64_t)psn_ahead(pkt->psn, (uint32_t)q->expected);
	struct responder *r = responder_of(q);
	struct job job = {.first = n, .packets = 1, .address = pkt->remote_offset, .length = pkt->dma_bytes, .key = pkt->rkey,
			  .msn = q->msn, .again = true};
	uint8_t *at;

	if (pkt->opcode == RC_READ_REQUEST) {
		const struct job *now = &r->job[r->head % JOBS_MAX];
		if (r->head != r->tail && !q->answers->selective && now->first <= n && n < now->first + now->packets)
			r->head++; /* its rest is of no use any more */
		job.packets = job.length ? (job.length + q->mtu - 1) / q->mtu : 1;
		if (n + job.packets > q->expected || !q->own ||
		    (job.length && !q->owner->ops->memory(q, REMOTE_READ, job.key, job.address, job.length, &at)))
			return;
		owe(f, q, &job);
		return;
	}
	for (uint32_t i = 0; i < RESULTS_KEPT; i++)
		if (r->result[i].there && r->result[i].number == n) {
			job.atomic = true;
			job.original = r->result[i].original;
			job.msn = r->result[i].msn;
			owe(f, q, &job);
			return;
		}
}

/* responder_has() - Is there a response to be sent? */
bool responder_has(const struct qp *q)
{
	return q->responder && q->responder->head != q->responder->tail && q->state == QP_READY;
}

static uint8_t opcode_of(const struct job *job)
{
	bool first = !job->next, last = job->next + 1 == job->packets;

	if (job->atomic)
		return RC_ATOMIC_ACK;
	return first ? (last ? RC_READ_ONLY : RC_READ_FIRST) : (last ? RC_READ_LAST : RC_READ_MIDDLE);
}

/* responder_build() - The next response.  Its payload is read now.  Return: bytes to be fetched */
uint32_t responder_build(struct fabric *f, struct qp *q, struct frame *fr)
{
	struct responder *r = q->responder;
	struct job *job = &r->job[r->head % JOBS_MAX];
	uint64_t at = job->next * q->mtu, left = job->length - at;
	uint32_t bytes = job->atomic ? 0 : (uint32_t)(left < q->mtu ? left : q->mtu);
	uint8_t *from = NULL;

	if (bytes && !q->owner->ops->memory(q, REMOTE_READ, job->key, job->address + at, bytes, &from))
		bytes = 0; /* it has gone meanwhile: what comes there is no response, and is asked for again in vain */
	struct roce_packet pkt = {.src_ip = q->nic->ip, .dst_ip = q->peer->ip, .src_port = q->src_port,
				  .tos = (uint8_t)((q->own_class ? q->dscp : q->p->data_dscp) << 2 | ECN_ECT0), .ttl = TTL_SENT,
				  .opcode = opcode_of(job), .dst_qp = q->peer_number, .psn = (uint32_t)(job->first + job->next) & PSN_MASK,
				  .syndrome = AETH_ACK, .msn = job->msn, .original = job->original, .payload = from, .payload_bytes = bytes};
	memcpy(pkt.dst_mac, q->peer->mac, 6);
	memcpy(pkt.src_mac, q->nic->mac, 6);
	copies_settle();
	frame_grow(f, fr);
	fr->len = roce_build(fr->data, f->frame_room - TRAILER_BYTES, &pkt);
	fr->class = (uint8_t)(q->own_class ? q->class : q->p->data_class);
	fr->to = &q->peer->port[1];
	fr->from = &q->source;
	fr->payload = (uint16_t)bytes;
	fr->response = true;
	fr->data_of_worker = q->tx == &q->nic->tx[0];
	q->fetched_bytes += fr->len;
	uint32_t key = job->key;
	if (++job->next == job->packets)
		r->head++;
	return job->atomic || !place_crosses(q, key, 1) ? IN_NIC : bytes;
}

void responder_release(struct qp *q)
{
	free(q->responder);
}
