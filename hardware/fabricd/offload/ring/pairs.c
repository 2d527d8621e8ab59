/* Queue pairs of NIC-side rings: made, left behind, used again
 *
 * Theory of Operation
 *
 * A worker cannot give a queue pair back, and a NIC has only so many.  So the queue pairs
 * of a ring that has ended stay.  They acknowledge what they have taken and do nothing
 * else, until the next ring between the same two NICs goes on with them.
 */
#include <stdlib.h>

#include "engine/fabric.h"
#include "nic/nic.h"
#include "offload/ring/ring.h"
#include "transport/qp.h"
#include "wire/roce.h"

static const uint8_t *spent_payload(struct fabric *f, struct qp *q, const struct send_wr *wr, uint64_t n)
{
	(void)f;
	(void)q;
	(void)wr;
	(void)n;
	return NULL;
}

static enum engine_verdict spent_take(struct fabric *f, struct qp *q, const struct roce_packet *pkt)
{
	(void)f;
	(void)q;
	(void)pkt;
	return ENGINE_REFUSED;
}

static void spent_sent(struct fabric *f, struct qp *q, const struct send_wr *wr, enum wc_status status)
{
	(void)f;
	(void)q;
	(void)wr;
	(void)status;
}

/* Of the queue pairs of a ring that has ended: they acknowledge what they have taken, and no more */
static const struct qp_owner_ops spent_ops = {
	.in_nic = true, .payload = spent_payload, .sent = spent_sent, .take = spent_take};
static struct qp_owner spent = {.ops = &spent_ops};

/* A queue pair to that NIC that a ring before has left behind with nothing to do, or NULL */
static struct qp *idle_qp(struct nic *from, const struct nic *to)
{
	for (uint32_t i = 0; i < from->qp_count; i++) {
		struct qp *q = from->qps[i];
		if (q->owner == &spent && q->peer == to && q->state == QP_READY && q->acked == q->next_packet && q->next_packet &&
		    q->peer_qp->owner == &spent && q->peer_qp->state == QP_READY)
			return q;
	}
	return NULL;
}

static struct qp *new_qp(struct fabric *f, struct nic *from, struct nic *to)
{
	struct qp *a = qp_new(from, &spent), *b = qp_new(to, &spent);

	if (!a || !b)
		abort();
	a->connect_peer = to->rank;
	b->connect_peer = from->rank;
	a->no_scale_up = b->no_scale_up = true; /* from NIC to NIC */
	qp_connected(f, a, b);
	return a;
}

/* ring_connect() - A queue pair from one NIC to the next: one of an earlier ring, or a new one */
void ring_connect(struct fabric *f, struct ring_member *from, struct ring_member *to)
{
	struct qp *a = idle_qp(from->nic, to->nic);

	a = a ? a : new_qp(f, from->nic, to->nic);
	a->mtu = a->peer_qp->mtu = from->slot_bytes;
	a->made = a->next_packet;
	from->right = a;
	to->left = a->peer_qp;
	a->owner = &from->owner;
	a->peer_qp->owner = &to->owner;
}

/* ring_part_with() - A member's queue pairs are of no ring any more */
void ring_part_with(struct ring_member *r)
{
	if (r->right)
		r->right->owner = &spent;
	if (r->left)
		r->left->owner = &spent;
}
