/* READ and atomic operations at the end that answers
 *
 * Theory of Operation
 *
 * Responses are data like a queue pair's own packets, and wait like them: for the pacer, and under a control with a window
 * or credit for that.  InfiniBand acknowledges no response; it has no control that would need it.  Transports that have
 * one acknowledge responses, too (IRN: an opcode for read acknowledgements; the same in SRD, Falcon and UEC,
 * where a response is a packet of the reverse direction).  So where the responder's control goes by acknowledgements:
 *
 *	response	asks for an acknowledgement when one of its own packets would, and carries what the control wants
 *	requester	answers with a READ_ACK: of that PSN; so many responses it has taken so far, and bytes of the last
 *	responder	under way is what was sent, less what was taken, less what is asked for again
 *
 * A queue pair has one window and one credit for all it sends.  Responses are counted as they are sent.  Which are lost the
 * requester finds out: it asks again (reads.c), with go-back-N for all from there on, with selective repeat for one packet; if
 * for one that was not sent yet, it has waited in vain: nothing is under way any more.
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
#include "transport/credit.h"
#include "transport/place.h"
#include "transport/qp.h"
#include "transport/responder.h"
#include "wire/ip.h"
#include "wire/roce.h"
#include "wire/telemetry.h"

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
	uint64_t behind; /* the number behind the request that came last, new or again */
	/* responses: made; behind the last that asks for an acknowledgement; that its peer has taken; that were asked for again */
	uint64_t made, asked, taken, lost;
};

static struct responder *responder_of(struct qp *q)
{
	if (!q->responder && !(q->responder = calloc(1, sizeof *q->responder)))
		abort();
	return q->responder;
}

static struct job *job_at(struct responder *r, uint32_t i)
{
	return &r->job[i % JOBS_MAX];
}

/* Bytes of a job that have not been sent; what has no payload waits for its turn, too */
static uint64_t rest(const struct qp *q, const struct job *job)
{
	uint64_t sent = job->next * q->mtu, all = job->atomic || !job->length ? 1 : job->length;

	return sent < all ? all - sent : 0;
}

/* A job is of no use any more */
static void drop(struct qp *q, const struct job *job)
{
	if (!job->again)
		credit_dropped(q, rest(q, job));
}

static void owe(struct fabric *f, struct qp *q, const struct job *job)
{
	struct responder *r = responder_of(q);

	if (r->tail - r->head == JOBS_MAX)
		drop(q, job_at(r, r->head++));
	*job_at(r, r->tail++) = *job;
	if (!job->again)
		credit_owed(q, rest(q, job));
	qp_ready(f, q);
}

static uint32_t under_way(struct responder *r)
{
	uint32_t count = 0;

	for (uint32_t i = r->head; i != r->tail; i++)
		count += !job_at(r, i)->again;
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
	responder_of(q)->behind = q->expected += job.packets;
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

/* So many of those that are under way will not come, or all (0) */
static void write_off(struct fabric *f, struct qp *q, uint64_t packets)
{
	struct responder *r = q->responder;
	uint64_t most = r->made - r->taken - r->lost;

	cc_lost(f, q, CC_LOSS_NAK, 1);
	r->lost += packets && packets < most ? packets : most;
	q->responses_done = r->taken + r->lost;
}

/* Go-back-N: its peer has gone back to number @n, and asks for all behind it once more, one request after the other */
static void go_back(struct fabric *f, struct qp *q, uint64_t n)
{
	struct responder *r = q->responder;

	if (n < r->behind)
		write_off(f, q, 0);
	while (r->tail != r->head && job_at(r, r->tail - 1)->first + job_at(r, r->tail - 1)->packets > n)
		drop(q, job_at(r, --r->tail));
}

/* Selective repeat: number @n is lost.  Return: whether that is of a response that has its turn still to come */
static bool lose(struct fabric *f, struct qp *q, uint64_t n)
{
	struct responder *r = q->responder;

	for (uint32_t i = r->head; i != r->tail; i++) {
		const struct job *job = job_at(r, i);
		if (n < job->first + job->next || n >= job->first + job->packets)
			continue;
		if (r->made > r->taken + r->lost)
			write_off(f, q, 0);
		qp_ready(f, q);
		return true;
	}
	write_off(f, q, 1);
	return false;
}

/* responder_again() - Likewise one that has come before: a READ, or the rest of one, is answered anew */
void responder_again(struct fabric *f, struct qp *q, const struct roce_packet *pkt)
{
	uint64_t n = q->expected + (uint64_t)(int64_t)psn_ahead(pkt->psn, (uint32_t)q->expected);
	struct responder *r = responder_of(q);
	struct job job = {.first = n, .packets = 1, .address = pkt->remote_offset, .length = pkt->dma_bytes, .key = pkt->rkey,
			  .msn = q->msn, .again = true};
	uint8_t *at;

	if (q->answers->selective) {
		if (lose(f, q, n))
			return;
	} else {
		go_back(f, q, n);
	}
	if (pkt->opcode == RC_READ_REQUEST && job.length)
		job.packets = (job.length + q->mtu - 1) / q->mtu;
	r->behind = n + job.packets;
	if (pkt->opcode == RC_READ_REQUEST) {
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

/* responder_under_way() - Responses that may be on their way, packets */
uint64_t responder_under_way(const struct qp *q)
{
	const struct responder *r = q->responder;

	return r ? r->made - r->taken - r->lost : 0;
}

/* Bytes of jobs that are answered again, or for the first time; @begun: of those that have begun alone */
static uint64_t owed(const struct qp *q, bool again, bool begun)
{
	struct responder *r = q->responder;
	uint64_t bytes = 0;

	for (uint32_t i = r ? r->head : 0; r && i != r->tail; i++)
		if (job_at(r, i)->again == again && (!begun || job_at(r, i)->next))
			bytes += rest(q, job_at(r, i));
	return bytes;
}

/* responder_rest() - Bytes that it owes: of what is sent again, or, of the response under way, what has not left */
uint64_t responder_rest(const struct qp *q, bool again)
{
	return owed(q, again, !again); /* one at a time has begun */
}

/* responder_unsent() - Bytes that it owes and has not sent yet */
uint64_t responder_unsent(const struct qp *q)
{
	return owed(q, false, false);
}

/* responder_begins() - Is the next packet a response, and the first one of a READ?  If so: bytes of that, else 0 */
uint64_t responder_begins(const struct qp *q)
{
	struct responder *r = q->responder;
	const struct job *job = r && r->head != r->tail ? job_at(r, r->head) : NULL;

	return job && !job->next && !job->again ? rest(q, job) : 0;
}

/* Is it told what has been taken? */
static bool hears(const struct qp *q)
{
	return q->cc->acked || q->cc_state.window > 0;
}

static bool window_open(const struct qp *q)
{
	const struct responder *r = q->responder;

	if (r->made > r->taken + r->lost && r->asked <= r->taken + r->lost)
		return true; /* the window has shrunk since, and nothing under way asks to be acknowledged: the next will */
	return cc_window_open(q, qp_under_way(q));
}

/* responder_ready() - Likewise, of one that has answered before */
bool responder_ready(const struct qp *q)
{
	return q->responder->head != q->responder->tail && q->state == QP_READY && window_open(q) &&
	       (credit_open(q) || (q->cc->by_message && responder_begins(q)));
}

static uint8_t opcode_of(const struct job *job)
{
	bool first = !job->next, last = job->next + 1 == job->packets;

	if (job->atomic)
		return RC_ATOMIC_ACK;
	return first ? (last ? RC_READ_ONLY : RC_READ_FIRST) : (last ? RC_READ_LAST : RC_READ_MIDDLE);
}

/* Must its requester answer the next response?  As send.c has it for its own packets */
static bool asks(const struct qp *q, bool last, uint32_t frame_bytes)
{
	const struct responder *r = q->responder;

	return hears(q) && (last || r->made + 1 >= r->asked + cc_ack_gap(q) || qp_slow(q, frame_bytes) ||
	       !cc_window_open(q, qp_under_way(q) + 1) || !credit_open(q));
}

static void write_frame(struct fabric *f, struct qp *q, struct frame *fr, const struct roce_packet *pkt)
{
	copies_settle();
	frame_grow(f, fr);
	fr->len = roce_build(fr->data, f->frame_room - TRAILER_BYTES - TELEMETRY_MAX_BYTES, pkt);
	if (q->cc->telemetry)
		fr->len = telemetry_append(fr->data, fr->len, &(struct telemetry){.room = cc_hops(q)});
}

/* responder_build() - The next response.  Its payload is read now.  Return: bytes to be fetched */
uint32_t responder_build(struct fabric *f, struct qp *q, struct frame *fr)
{
	struct responder *r = q->responder;
	struct job *job = job_at(r, r->head);
	uint64_t at = job->next * q->mtu, left = job->length - at, begins = responder_begins(q);
	uint32_t bytes = job->atomic ? 0 : (uint32_t)(left < q->mtu ? left : q->mtu);
	uint8_t *from = NULL;

	if (bytes && !q->owner->ops->memory(q, REMOTE_READ, job->key, job->address + at, bytes, &from))
		bytes = 0; /* it has gone meanwhile: what comes there is no response, and is asked for again in vain */
	credit_answers(q, bytes, begins, !job->again);
	struct roce_packet pkt = {.src_ip = q->nic->ip, .dst_ip = q->peer->ip, .src_port = q->src_port,
				  .tos = (uint8_t)((q->own_class ? q->dscp : q->p->data_dscp) << 2 | ECN_ECT0), .ttl = TTL_SENT,
				  .opcode = opcode_of(job), .dst_qp = q->peer_number, .psn = (uint32_t)(job->first + job->next) & PSN_MASK,
				  .ack_request = asks(q, job->next + 1 == job->packets, q->mtu + ROCE_MAX_HEADER),
				  .syndrome = AETH_ACK, .msn = job->msn, .original = job->original, .payload = from, .payload_bytes = bytes};
	memcpy(pkt.dst_mac, q->peer->mac, 6);
	memcpy(pkt.src_mac, q->nic->mac, 6);
	write_frame(f, q, fr, &pkt);
	fr->class = (uint8_t)(q->own_class ? q->class : q->p->data_class);
	fr->to = &q->peer->port[1];
	fr->from = &q->source;
	fr->payload = (uint16_t)bytes;
	fr->response = true;
	fr->asks = pkt.ack_request;
	fr->data_of_worker = q->tx == &q->nic->tx[0];
	fr->number = r->made++;
	r->asked = fr->asks ? r->made : r->asked;
	if (!hears(q))
		r->lost = r->made - r->taken;
	uint32_t key = job->key;
	bool atomic = job->atomic;
	if (++job->next == job->packets)
		r->head++;
	credit_say(f, q, fr);
	credit_look(f, q);
	q->fetched_bytes += fr->len;
	return atomic || !place_crosses(q, key, 1) ? IN_NIC : bytes;
}

/* responder_left() - A response starts on the cable */
void responder_left(struct qp *q, const struct frame *fr)
{
	struct responder *r = q->responder;

	q->responses_left++;
	if (fr->asks && r && r->asked <= fr->number)
		r->asked = fr->number + 1;
}

/* responder_told() - That has come */
void responder_told(struct fabric *f, struct qp *q, const struct roce_packet *pkt, const struct frame *fr)
{
	struct view v = view_of(pkt->payload, pkt->payload_bytes);
	uint32_t taken = get_be32(&v), bytes = get_be32(&v);
	struct responder *r = q->responder;
	int64_t more = r ? (int32_t)(taken - (uint32_t)r->taken) : 0;

	if (v.bad || v.left || !r || more < 0 || (uint64_t)more > r->made - r->taken)
		return; /* old, or of what was never sent */
	r->taken += (uint64_t)more;
	r->lost = r->lost < r->made - r->taken ? r->lost : r->made - r->taken;
	q->responses_done = r->taken + r->lost;
	struct cc_ack ack = {.packets = (uint64_t)more, .full = bytes == q->mtu};
	cc_told(f, q, &ack, pkt, fr);
	qp_ready(f, q);
}

void responder_release(struct qp *q)
{
	free(q->responder);
}
