/* Queue pairs whose program says what they do
 *
 * Theory of Operation
 *
 * A program brings each of its queue pairs from state to state by itself (InfiniBand specification, 10.3.1): INIT, in
 * which receives may be posted; ready to receive, from when on it knows its peer's NIC and number; ready to send.  Its peer
 * is not asked: what comes for a queue pair that may not receive yet is dropped, and sent again when the timeout is over.
 * With the state come attributes that others have from their NIC.
 *
 * A send queue is drained (10.3.1.5): requests of which a packet has been built are carried out, what stands behind them is
 * kept and does not begin.  When all of the former are done its program is told.  From then on it may be brought back.  So
 * may one of which a request was bad, if its connection is none that is reliable (SQE: 10.3.1.6): it receives all the while.
 */
#include "base/units.h"
#include "connection/attributes.h"
#include "connection/destroy.h"
#include "datagram/datagram.h"
#include "engine/fabric.h"
#include "nic/nic.h"
#include "transport/congestion.h"
#include "transport/multipath.h"
#include "transport/qp.h"

#define TIMEOUT_UNIT ((ps_t)4096000) /* of the code: 4.096 us */

/* qp_may_become() - May a queue pair go from one state to the other? */
bool qp_may_become(uint8_t from, uint8_t to)
{
	if (to == ASK_RESET || to == ASK_ERROR)
		return true;
	if (from == ASK_ERROR)
		return false;
	if (from == ASK_SQD)
		return to == ASK_SQD || to == ASK_RTS;
	return to == from + 1 || (to == from && to != ASK_RTR);
}

static void take_attributes(struct qp *q, const struct qp_wanted *a)
{
	struct qp_attributes *own = q->own;

	own->timeout = a->timeout && !own->unreliable ? TIMEOUT_UNIT << (a->timeout & 31) : PS_NEVER;
	own->retry = a->retry;
	own->rnr_retry = a->rnr_retry;
	own->rnr_timer = a->rnr_timer & 31;
	own->reads_out = a->reads_out;
	own->reads_in = a->reads_in;
	own->rights = a->rights;
	own->qkey = a->qkey;
	own->rate = (double)a->rate_kbps * 1000;
	q->own_class = a->own_class;
	q->dscp = a->dscp & 63;
	q->class = a->class & 7;
}

static void ready_to_receive(struct fabric *f, struct qp *q, const struct qp_wanted *a)
{
	struct qp *peer_qp = qp_find(a->peer, a->peer_number);
	bool itself = a->peer == q->nic;

	if (itself)
		nic_loop(q->nic);
	q->connect_peer = a->peer->rank;
	q->holds = true;
	qp_reach(f, q,
		 &(struct reach){.peer = a->peer,
				 .number = a->peer_number,
				 .transport = peer_qp ? peer_qp->transport : a->peer->transport,
				 .mtu = 128u << a->mtu,
				 .send_psn = a->send_psn & PSN_MASK,
				 .expected_psn = a->expected_psn & PSN_MASK,
				 .scale_up = itself});
	if (q->own->unreliable) {
		q->source.ops = &unreliable_tx_ops;
		q->alone = q->any_order = false;
	}
}

/* Only now it is known with which number it begins */
static void ready_to_send(struct fabric *f, struct qp *q, const struct qp_wanted *a)
{
	if (q->sq.head == q->sq.tail) {
		q->first = q->told = q->next_packet = q->asked = q->send = q->acked = q->sent_max = q->left = q->left_asked = a->send_psn & PSN_MASK;
		multipath_release(q);
		multipath_start(f, q);
	}
	q->holds = false;
	cc_restart(f, q);
	qp_local(f, q);
}

/* qp_look_drained() - A queue pair that is drained: are all requests done that had begun? */
void qp_look_drained(struct fabric *f, struct qp *q)
{
	if (!q->own || !q->own->draining || q->acked < q->made)
		return;
	q->own->draining = false;
	q->owner->ops->drained(f, q);
}

/* Where the first request begins of which no packet has been built */
static void drain(struct fabric *f, struct qp *q)
{
	q->made = q->sent_max;
	for (uint32_t i = q->sq.head; i != q->sq.tail; i++) {
		const struct send_wr *wr = SEND_WR(q, i);
		if (wr->first < q->sent_max && wr->first + wr->packets > q->made)
			q->made = wr->first + wr->packets;
	}
	q->own->draining = true;
	qp_look_drained(f, q);
}

static void resume(struct fabric *f, struct qp *q)
{
	q->made = UINT64_MAX;
	q->own->draining = q->own->sends_broken = false;
	qp_local(f, q);
	qp_barred(f, q);
}

/* qp_modify() - What a program asked for has reached the NIC */
void qp_modify(struct fabric *f, struct qp *q, const struct qp_wanted *a)
{
	if (a->state == ASK_RESET) {
		q->own->draining = q->own->sends_broken = false;
		qp_reset(f, q);
		return;
	}
	if (a->state == ASK_ERROR) {
		qp_fail(f, q, WC_FLUSHED);
		return;
	}
	if (q->state == QP_ERROR)
		return;
	bool rate = q->own->rate != (double)a->rate_kbps * 1000;
	take_attributes(q, a);
	if (a->state == ASK_RTR && q->state == QP_CONNECTING && q->own->datagrams)
		datagram_start(f, q);
	else if (a->state == ASK_RTR && q->state == QP_CONNECTING)
		ready_to_receive(f, q, a);
	else if (a->state == ASK_RTS && q->holds && q->own->datagrams)
		datagram_ready_to_send(q, a->send_psn & PSN_MASK);
	else if (a->state == ASK_RTS && q->holds)
		ready_to_send(f, q, a);
	else if (a->state == ASK_SQD && q->made == UINT64_MAX)
		drain(f, q);
	else if (a->state == ASK_RTS && (q->made != UINT64_MAX || q->own->sends_broken))
		resume(f, q);
	else if (rate && q->state == QP_READY && !q->own->datagrams)
		cc_restart(f, q);
	if (q->state == QP_READY)
		qp_ready(f, q);
}
