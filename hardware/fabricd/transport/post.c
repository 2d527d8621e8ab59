/* Requests reach a queue pair, and are given back when it fails. */
#include "base/ring.h"
#include "base/units.h"
#include "engine/event.h"
#include "engine/fabric.h"
#include "engine/report.h"
#include "transport/credit.h"
#include "transport/pacer.h"
#include "transport/qp.h"

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
	puller_forget(q);
	puller_forget(q);
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
