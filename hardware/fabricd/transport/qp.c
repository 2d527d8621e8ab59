/* Queue pairs: made, found, connected, given requests, broken, given back.  What they do is in send.c and receive.c. */
#include <stdlib.h>

#include "base/ring.h"
#include "base/units.h"
#include "engine/event.h"
#include "engine/fabric.h"
#include "engine/report.h"
#include "nic/nic.h"
#include "transport/congestion.h"
#include "transport/credit.h"
#include "transport/multipath.h"
#include "transport/pacer.h"
#include "transport/qp.h"
#include "transport/reorder.h"
#include "transport/repeat.h"
#include "wire/roce.h"

#define FIRST_QP_NUMBER 16

/* qp_find() - The queue pair of that number, or NULL */
struct qp *qp_find(struct nic *n, uint32_t number)
{
	uint32_t i = number - FIRST_QP_NUMBER - n->qp_first;

	return number >= FIRST_QP_NUMBER + n->qp_first && i < n->qp_count ? n->qps[i] : NULL;
}

/* qp_new() - A queue pair without a peer yet; NULL if the NIC has QPS_MAX already */
struct qp *qp_new(struct nic *n, struct qp_owner *owner)
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
	q->number = FIRST_QP_NUMBER + n->qp_first + n->qp_count;
	q->timer = q->timer_event = q->pace_event = PS_NEVER;
	q->cnp_sent = -PS_PER_S;
	q->cc = &cc_none;
	q->made = q->trimmed = UINT64_MAX;
	n->qps[n->qp_count++] = q;
	return q;
}

void qp_release(struct qp *q)
{
	if (q->owner->ops->release)
		q->owner->ops->release(q);
	free(q->sq.at);
	free(q->rq.at);
	reorder_release(q);
	repeat_release(q);
	telemetry_release(&q->last);
	multipath_release(q);
	credit_release(q);
	cc_stop(q);
	free(q);
}

/* qp_connected() - Two queue pairs have found each other */
void qp_connected(struct fabric *f, struct qp *a, struct qp *b)
{
	bool scale_up = a->nic->scale_up && a->nic->scale_up == b->nic->scale_up && !a->no_scale_up && !b->no_scale_up;

	for (int i = 0; i < 2; i++) {
		struct qp *q = i ? b : a, *other = i ? a : b;
		q->p = f->transports->params(f, q->nic, q->transport);
		q->answers = f->transports->params(f, q->nic, other->transport);
	}
	for (int i = 0; i < 2; i++) {
		struct qp *q = i ? b : a, *other = i ? a : b;
		q->peer = other->nic;
		q->peer_qp = other;
		q->peer_number = other->number;
		q->tx = &q->nic->tx[scale_up];
		q->mtu = a->nic->mtu < b->nic->mtu ? a->nic->mtu : b->nic->mtu;
		q->next_packet = q->asked = q->send = q->acked = q->sent_max = q->left = q->left_asked = q->nic->p.first_psn;
		q->expected = q->peer->p.first_psn;
		q->alone = q->p->any_order && other->answers->any_order;
		q->any_order = q->answers->any_order && other->p->any_order;
		/* entropy for ECMP, as from a flow label: 0xc000 and 14 bits of both numbers and addresses */
		uint32_t h = (q->number * 0x9e3779b1u ^ other->number * 0x85ebca6bu ^ q->nic->ip * 0xc2b2ae35u ^
			      other->nic->ip * 0x27d4eb2fu);
		q->src_port = roce_src_port(q->p->fixed_port ? 0 : h);
		q->state = QP_READY;
		cc_start(f, q);
		multipath_start(f, q);
	}
}

/* qp_post_send() - A send request has reached the NIC */
void qp_post_send(struct fabric *f, struct qp *q, const struct send_wr *wr)
{
	struct send_wr *in = q->state == QP_READY ? ring_push(&q->sq, sizeof *in, WRS_MAX) : NULL;

	if (!in) {
		q->owner->ops->sent(f, q, wr, WC_FLUSHED);
		return;
	}
	*in = *wr;
	in->first = q->next_packet;
	in->packets = wr->length ? (wr->length + q->mtu - 1) / q->mtu : 1;
	q->next_packet += in->packets;
	in->after = q->untold;
	q->untold = wr->opcode == WR_WRITE;
	credit_posted(q, in);
	qp_ready(f, q);
}

static void flush_recv(struct fabric *f, struct qp *q, const struct recv_wr *wr)
{
	q->owner->ops->received(f, q, wr, NULL, f->clock.now + q->nic->p.pcie_latency);
}

/* qp_post_recv() - A receive request has reached the NIC; a slow receiver's may be used later only */
void qp_post_recv(struct fabric *f, struct qp *q, const struct recv_wr *wr)
{
	struct recv_wr *in = q->state == QP_READY ? ring_push(&q->rq, sizeof *in, WRS_MAX) : NULL;
	ps_t delay = q->nic->p.recv_delay;

	if (!in) {
		flush_recv(f, q, wr);
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

/* qp_fail() - The queue pair is broken: say so for every request that it still has */
void qp_fail(struct fabric *f, struct qp *q, enum wc_status why)
{
	if (q->state == QP_ERROR)
		return;
	q->state = QP_ERROR;
	q->error = why;
	q->timer = PS_NEVER;
	pacer_flush(f, q);
	credit_forget(q);
	if (!q->owner->ops->generated)
		report_event(f, REPORT_QP_ERROR,
		      json_pack("{s:i, s:i, s:i, s:i}", "rank", (int)q->nic->rank, "qp", (int)q->number, "peer",
				(int)q->peer->rank, "status", (int)why));
	lender_recall(f, &q->lent, UINT64_MAX);
	for (; q->sq.head != q->sq.tail; q->sq.head++, why = WC_FLUSHED)
		q->owner->ops->sent(f, q, SEND_WR(q, q->sq.head), why);
	for (; q->rq.head != q->rq.tail; q->rq.head++)
		flush_recv(f, q, ring_at(&q->rq, sizeof(struct recv_wr), q->rq.head));
}
