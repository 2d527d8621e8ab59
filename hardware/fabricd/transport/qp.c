/* Queue pairs: made, found, connected, given requests, broken, given back.  What they do is in send.c and receive.c. */
#include <stdlib.h>
#include <string.h>

#include "base/ring.h"
#include "base/units.h"
#include "engine/event.h"
#include "engine/fabric.h"
#include "engine/report.h"
#include "nic/nic.h"
#include "recovery/reorder.h"
#include "transport/congestion.h"
#include "transport/credit.h"
#include "transport/multipath.h"
#include "transport/pacer.h"
#include "transport/qp.h"
#include "transport/repeat.h"
#include "transport/responder.h"
#include "wire/roce.h"

#define FIRST_QP_NUMBER 16

/* qp_find() - The queue pair of that number, or NULL.  While none has been destroyed its number says its place */
struct qp *qp_find(struct nic *n, uint32_t number)
{
	uint32_t i = number - FIRST_QP_NUMBER - n->qp_first;

	if (i < n->qp_count && n->qps[i]->number == number)
		return n->qps[i];
	uint32_t low = 0, high = n->qp_count;
	while (low < high) {
		uint32_t middle = (low + high) / 2;
		if (n->qps[middle]->number < number)
			low = middle + 1;
		else
			high = middle;
	}
	return low < n->qp_count && n->qps[low]->number == number ? n->qps[low] : NULL;
}

static void begin(struct qp *q)
{
	q->timer = q->timer_event = q->pace_event = PS_NEVER;
	q->cnp_sent = -PS_PER_S;
	q->cc = &cc_none;
	q->made = q->trimmed = q->barred = UINT64_MAX;
}

/* qp_numbered() - A queue pair of that number, which no other has, without a peer yet; NULL if the NIC has QPS_MAX already */
struct qp *qp_numbered(struct nic *n, struct qp_owner *owner, uint32_t number)
{
	if (n->qp_count == QPS_MAX)
		return NULL;
	if (n->qp_count == n->qp_room) {
		uint32_t room = n->qp_room ? 2 * n->qp_room : 16;
		struct qp **qps = realloc(n->qps, room * sizeof(struct qp *));
		if (!qps)
			return NULL;
		n->qps = qps;
		n->qp_room = room;
	}
	struct qp *q = lines_new(1, sizeof *q + cc_own_bytes());
	if (!q)
		return NULL;
	q->source.ops = &qp_tx_ops;
	q->owner = owner;
	q->nic = n;
	q->p = q->answers = &n->p;
	q->transport = n->transport;
	if (!n->qp_count)
		n->qp_first = number - FIRST_QP_NUMBER;
	q->number = number;
	begin(q);
	uint32_t at = n->qp_count++;
	for (; at && n->qps[at - 1]->number > number; at--)
		n->qps[at] = n->qps[at - 1];
	n->qps[at] = q;
	return q;
}

/* qp_new() - Likewise of the next number; NULL, too, if the NIC has given all out */
struct qp *qp_new(struct nic *n, struct qp_owner *owner)
{
	if (n->qp_next >= QP_NUMBERS / 2 - FIRST_QP_NUMBER)
		return NULL;
	struct qp *q = qp_numbered(n, owner, FIRST_QP_NUMBER + n->qp_next);
	n->qp_next += q != NULL;
	return q;
}

static void let_go(struct qp *q)
{
	if (q->own && q->own->shared)
		q->owner->ops->take_back(q);
	for (; q->sq.head != q->sq.tail; q->sq.head++)
		free(SEND_WR(q, q->sq.head)->pieces);
	for (; q->rq.head != q->rq.tail; q->rq.head++)
		free(RECV_WR(q, q->rq.head)->pieces);
	free(q->sq.at);
	free(q->rq.at);
	reorder_release(q->reorder);
	repeat_release(q);
	responder_release(q);
	telemetry_release(&q->last);
	multipath_release(q);
	credit_release(q);
	cc_stop(q);
}

void qp_release(struct qp *q)
{
	if (q->owner->ops->release)
		q->owner->ops->release(q);
	let_go(q);
	free(q->own);
	free(q);
}

/* qp_restart() - It is as it was when it was made; nothing under way has to do with it any more (destroy.c) */
void qp_restart(struct qp *q)
{
	struct qp was = *q;

	let_go(q);
	memset(q, 0, sizeof *q + cc_own_bytes());
	q->source.ops = &qp_tx_ops;
	q->owner = was.owner;
	q->nic = was.nic;
	q->p = q->answers = &was.nic->p;
	q->transport = was.transport;
	q->number = was.number;
	q->own = was.own;
	begin(q);
}

/* qp_entropy() - The source port towards a queue pair, for ECMP, as from a flow label: 0xc000 and 14 bits of both numbers and addresses */
uint16_t qp_entropy(const struct qp *q, const struct nic *to, uint32_t number)
{
	uint32_t h = q->number * 0x9e3779b1u ^ number * 0x85ebca6bu ^ q->nic->ip * 0xc2b2ae35u ^ to->ip * 0x27d4eb2fu;

	return roce_src_port(q->p->fixed_port ? 0 : h);
}

/* qp_reach() - A queue pair learns who its peer is, and may hear of it from now on */
void qp_reach(struct fabric *f, struct qp *q, const struct reach *to)
{
	const struct transports *t = f->transports;
	uint32_t mtu = q->nic->mtu < to->peer->mtu ? q->nic->mtu : to->peer->mtu;

	q->p = t->params(f, q->nic, q->transport);
	q->answers = t->params(f, q->nic, to->transport);
	q->peer = to->peer;
	q->peer_qp = to->peer_qp;
	q->peer_number = to->number;
	q->tx = &q->nic->tx[to->scale_up];
	q->mtu = to->mtu && to->mtu < mtu ? to->mtu : mtu;
	q->first = q->told = q->next_packet = q->asked = q->send = q->acked = q->sent_max = q->left = q->left_asked = to->send_psn;
	q->expected = to->expected_psn;
	q->alone = q->p->any_order && t->params(f, to->peer, q->transport)->any_order;
	q->any_order = q->answers->any_order && t->params(f, to->peer, to->transport)->any_order;
	q->src_port = qp_entropy(q, to->peer, to->number);
	q->state = QP_READY;
	cc_start(f, q);
	multipath_start(f, q);
}

/* qp_connected() - Two queue pairs have found each other */
void qp_connected(struct fabric *f, struct qp *a, struct qp *b)
{
	bool scale_up = a->nic->scale_up && a->nic->scale_up == b->nic->scale_up && !a->no_scale_up && !b->no_scale_up;

	for (int i = 0; i < 2; i++) {
		struct qp *q = i ? b : a, *other = i ? a : b;
		qp_reach(f, q,
			 &(struct reach){.peer = other->nic,
					 .peer_qp = other,
					 .number = other->number,
					 .transport = other->transport,
					 .send_psn = q->nic->p.first_psn,
					 .expected_psn = other->nic->p.first_psn,
					 .scale_up = scale_up});
	}
}

/* qp_post_send() - A send request has reached the NIC */
void qp_post_send(struct fabric *f, struct qp *q, const struct send_wr *wr)
{
	struct send_wr *in = q->state == QP_READY && !(q->own && q->own->sends_broken) ? ring_push(&q->sq, sizeof *in, WRS_MAX) : NULL;

	if (!in) {
		q->owner->ops->sent(f, q, wr, WC_FLUSHED);
		free(wr->pieces);
		return;
	}
	*in = *wr;
	in->bad = q->owner->ops->check ? q->owner->ops->check(q, wr) : WC_SUCCESS;
	if (!in->bad && q->keys_stale[1] && wr->length && !(wr->pieces && wr->pieces->inline_bytes))
		in->bad = WC_LOCAL_PROTECTION;
	if (in->bad && q->barred == UINT64_MAX)
		q->barred = q->next_packet;
	in->first = q->next_packet;
	in->packets = wr_local(wr) ? 0 : wr->length ? (wr->length + q->mtu - 1) / q->mtu : 1;
	q->next_packet += in->packets;
	if (wr_local(wr)) {
		qp_local(f, q);
	} else {
		in->after = q->untold;
		q->untold = wr->opcode == WR_WRITE;
		credit_posted(q, in);
	}
	if (!qp_barred(f, q))
		qp_ready(f, q);
}

/* qp_local() - Requests that need no packet are carried out when all before them have begun (with a fence: have been read), and
 * are done when those are
 */
void qp_local(struct fabric *f, struct qp *q)
{
	while (q->state == QP_READY && !q->holds && q->send_wr_index != q->sq.tail) {
		struct send_wr *wr = SEND_WR(q, q->send_wr_index);
		if (!wr_local(wr) || q->send < wr->first || wr->first >= q->made || (wr->fence && q->reads))
			break;
		if (!wr->done && !wr->bad)
			wr->bad = q->owner->ops->local(q, wr);
		if (wr->bad) {
			q->barred = wr->first < q->barred ? wr->first : q->barred;
			break;
		}
		wr->done = true;
		q->send_wr_index++;
	}
	while (q->sq.head != q->send_wr_index && wr_local(SEND_WR(q, q->sq.head)) && SEND_WR(q, q->sq.head)->first <= q->acked)
		q->owner->ops->sent(f, q, SEND_WR(q, q->sq.head++), WC_SUCCESS);
}

/* Its send queue alone is broken, by its oldest request */
static void break_sends(struct fabric *f, struct qp *q)
{
	enum wc_status why = SEND_WR(q, q->sq.head)->bad;

	q->own->sends_broken = true;
	for (; q->sq.head != q->sq.tail; q->sq.head++, why = WC_FLUSHED) {
		q->owner->ops->sent(f, q, SEND_WR(q, q->sq.head), why);
		free(SEND_WR(q, q->sq.head)->pieces);
	}
	q->send_wr_index = q->sq.tail;
	q->next_packet = q->barred;
	q->barred = UINT64_MAX;
}

/* qp_barred() - All before a bad request is done: the queue pair breaks with that, or its send queue.  Return: whether that is so */
bool qp_barred(struct fabric *f, struct qp *q)
{
	if (q->acked != q->barred || q->state != QP_READY || q->barred >= q->made)
		return false;
	if (q->own && (q->own->datagrams || q->own->unreliable))
		break_sends(f, q);
	else
		qp_fail(f, q, SEND_WR(q, q->sq.head)->bad);
	return true;
}

/* qp_receive_failed() - A receive request has ended without a message, behind all that had come before */
void qp_receive_failed(struct fabric *f, struct qp *q, const struct recv_wr *wr, enum wc_status status)
{
	bool busy = q->own && q->nic->pcie_rx_free >= f->clock.now;
	ps_t t = busy ? q->nic->pcie_rx_free + 1 : f->clock.now;

	q->owner->ops->received(f, q, wr, status, NULL, t + q->nic->p.pcie_latency);
	free(wr->pieces);
}

/* qp_post_recv() - A receive request has reached the NIC; a slow receiver's may be used later only */
void qp_post_recv(struct fabric *f, struct qp *q, const struct recv_wr *wr)
{
	struct recv_wr *in = q->state != QP_ERROR ? ring_push(&q->rq, sizeof *in, WRS_MAX) : NULL;
	ps_t delay = q->nic->p.recv_delay;

	if (!in) {
		qp_receive_failed(f, q, wr, WC_FLUSHED);
		return;
	}
	*in = *wr;
	if (delay)
		event_add(f, f->clock.now + delay, EV_RECV_USABLE, q->nic->n.index, 0, 0, q->number, q, 1);
	else
		q->usable++;
}

/* qp_recv_usable() - So many more receives may be used */
void qp_recv_usable(struct qp *q, uint32_t count)
{
	q->usable += count;
}

/* Broken by @why, or by what its peer asked for */
static void break_down(struct fabric *f, struct qp *q, enum wc_status why, enum wc_status received, uint8_t syndrome)
{
	if (q->state == QP_ERROR)
		return;
	q->state = QP_ERROR;
	q->error = why;
	q->timer = PS_NEVER;
	pacer_flush(f, q);
	credit_forget(q);
	if (q->owner->ops->broken)
		q->owner->ops->broken(f, q, syndrome);
	else if (!q->owner->ops->generated)
		report_event(f, REPORT_QP_ERROR,
		      json_pack("{s:i, s:i, s:i, s:i}", "rank", (int)q->nic->rank, "qp", (int)q->number, "peer",
				(int)q->peer->rank, "status", (int)why));
	lender_recall(f, &q->lent, UINT64_MAX);
	for (; q->sq.head != q->sq.tail; q->sq.head++, why = WC_FLUSHED) {
		q->owner->ops->sent(f, q, SEND_WR(q, q->sq.head), why);
		free(SEND_WR(q, q->sq.head)->pieces);
	}
	for (; q->rq.head != q->rq.tail; q->rq.head++, received = WC_FLUSHED)
		qp_receive_failed(f, q, RECV_WR(q, q->rq.head), received);
}

/* qp_fail() - The queue pair is broken: say so for every request that it still has */
void qp_fail(struct fabric *f, struct qp *q, enum wc_status why)
{
	break_down(f, q, why, WC_FLUSHED, 0);
}

/* qp_refuse() - What its peer asks for is refused, as the answer says: that breaks both, and the receive that it was meant for */
void qp_refuse(struct fabric *f, struct qp *q, uint8_t syndrome)
{
	enum wc_status received = syndrome == AETH_NAK_INVALID     ? WC_LOCAL_LENGTH
				  : syndrome == AETH_NAK_OPERATION ? WC_LOCAL_PROTECTION
								   : WC_FLUSHED;

	break_down(f, q, WC_FLUSHED, received, syndrome);
}
