/* Queue pairs that go while the fabric lives
 *
 * Theory of Operation
 *
 * Much under way knows a queue pair: events of its timers, frames that its NIC has not put on the cable yet, the round of
 * those who send, payload that is lent.  Whoever lets queue pairs of a NIC go marks them (`gone`), all at a time, since all
 * events are looked through for them.  Frames that were fetched are still sent, and are nobody's from then on.  What has
 * left the NIC knows its queue pair by its number only.
 *
 * A number is not given out a second time: what is late for the old one never meets another.
 */
#include "connection/destroy.h"
#include "engine/event.h"
#include "engine/fabric.h"
#include "link/frame.h"
#include "link/port.h"
#include "nic/nic.h"
#include "recovery/reorder.h"
#include "transport/pacer.h"
#include "transport/qp.h"

static void disown(struct frame *fr)
{
	if (fr->from && ((const struct qp *)fr->from)->gone)
		fr->from = NULL;
}

static bool of_gone(struct event *e, void *context)
{
	(void)context;
	switch (event_kind(e)) {
	case EV_QP_TIMER:
	case EV_QP_SEND:
	case EV_RECV_USABLE: return ((const struct qp *)e->a)->gone;
	case EV_FETCHED: disown(e->a); return false;
	default: return false;
	}
}

/* qps_gone() - Queue pairs were marked: no event has to do with them any more */
void qps_gone(struct fabric *f)
{
	event_forget(f, of_gone, NULL);
}

/* Nor has what a NIC holds */
static void forget(struct fabric *f, struct nic *n)
{
	for (int i = 0; i < 2; i++)
		CLASSES_EACH(c)
			for (struct frame *fr = n->port[i].queue[c].head; fr; fr = fr->next)
				disown(fr);
	for (uint32_t i = 0; i < n->qp_count; i++) {
		struct qp *q = n->qps[i];
		if (!q->gone)
			continue;
		lender_recall(f, &q->lent, UINT64_MAX);
		pacer_flush(f, q);
		if (q->tx)
			nic_tx_forget(q->tx, &q->source);
		reorder_drop(f, q->reorder, frame_release);
	}
}

/* qps_destroy() - After that: the marked queue pairs of a NIC are no more */
void qps_destroy(struct fabric *f, struct nic *n)
{
	uint32_t left = 0;

	forget(f, n);
	for (uint32_t i = 0; i < n->qp_count; i++) {
		if (n->qps[i]->gone)
			qp_release(n->qps[i]);
		else
			n->qps[left++] = n->qps[i];
	}
	n->qp_count = left;
}

/* qp_reset() - A queue pair begins anew, without a peer: what was posted to it is forgotten, and nobody hears of that */
void qp_reset(struct fabric *f, struct qp *q)
{
	q->gone = true;
	qps_gone(f);
	forget(f, q->nic);
	qp_restart(q);
}
