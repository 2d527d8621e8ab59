/* Packets that a switch has trimmed, at both ends of a queue pair
 *
 * Theory of Operation
 *
 * What is left of a packet says whose it is and which.  It has no ICRC that could be looked at, and nothing of its
 * payload is used.
 *
 * With selective repeat its receiver answers each of them by a NAK of its own, which names the packet and returns its
 * source port, and says nothing else (UEC 1.0, 3.5: NACK).  The sender counts that packet as lost, now and not by what
 * overtook it, and sends it again at once, as far as its window lets it; what was sent before it may still come, as
 * trimmed packets overtake others.  If it has been lost in another way before, and is still to be sent again, nothing
 * is new.
 *
 * A switch may give what it trims before the receiver's NIC another DSCP.  Then the receiver says so, too: who is granted
 * credit by it need not hear of that by its window, and no path was worse than another (htsim: last_hop).
 *
 * If it asked for an acknowledgement, its sender may wait for that with all it has under way.  So what has come is said
 * now, and of each packet that comes when it does, until the one that was to be answered comes, or one behind it that asks.
 *
 * With go-back-N all behind the expected packet is thrown away, so there is nothing to be sent again before that one is:
 * the NAK waits until the packet is the expected one, behind an acknowledgement of those before.  It is sent each time
 * that the expected packet comes trimmed: the NAK before has been answered, or it would not have come.  Whatever NAK goes
 * out, all behind the expected packet is sent again: what was trimmed of that counts no more.
 */
#include <string.h>

#include "base/units.h"
#include "engine/fabric.h"
#include "link/frame.h"
#include "link/port.h"
#include "nic/nic.h"
#include "nic/params.h"
#include "recovery/reorder.h"
#include "transport/answer.h"
#include "transport/congestion.h"
#include "transport/credit.h"
#include "transport/multipath.h"
#include "transport/qp.h"
#include "transport/repeat.h"
#include "wire/ip.h"
#include "wire/roce.h"

/* What has come is said, unless that is done */
static void say_what_came(struct fabric *f, struct qp *q)
{
	if (q->seen || !q->last.present)
		answer_come(f, q);
}

/* go-back-N: the expected packet will not come */
static void say_lost(struct fabric *f, struct qp *q, bool last_hop)
{
	q->trimmed = UINT64_MAX;
	say_what_came(f, q);
	answer_trimmed(f, q, (uint32_t)q->expected & PSN_MASK, last_hop);
	q->nak_sent = true;
}

/* trimmed_turn() - Go-back-N: all before a trimmed packet has come */
void trimmed_turn(struct fabric *f, struct qp *q)
{
	bool lost = q->trimmed == q->expected;

	q->trimmed = UINT64_MAX;
	if (lost)
		say_lost(f, q, q->trimmed_last_hop);
}

/* Selective repeat: packet @n is to be sent again */
static void say_trimmed(struct fabric *f, struct qp *q, const struct roce_packet *pkt, uint64_t n, bool last_hop)
{
	answer_trimmed(f, q, pkt->psn, last_hop);
	if (!pkt->ack_request)
		return;
	q->owed = n >= q->owed ? n + 1 : q->owed;
	say_what_came(f, q);
}

/* It has come as a whole before: the answer to that may have been lost, or this is a copy */
static void came_before(struct fabric *f, struct qp *q, const struct roce_packet *pkt, int32_t ahead)
{
	q->nic->duplicate_request++;
	if (ahead < 0 || q->answers->sack_bits) {
		if (q->reorder)
			q->reorder->unsaid_from = q->expected + 1;
		answer_come(f, q);
	} else {
		answer(f, q, AETH_NAK_SEQUENCE, q->expected, pkt->psn);
	}
}

static void data_trimmed(struct fabric *f, struct qp *q, const struct roce_packet *pkt)
{
	int32_t ahead = psn_ahead(pkt->psn, (uint32_t)q->expected);
	uint64_t n = q->expected + (uint64_t)(int64_t)ahead;
	bool last_hop = pkt->tos >> 2 != q->nic->p.trimmed_dscp;

	q->nic->rx_trimmed++;
	q->came_by = pkt->src_port;
	q->came_marked = (pkt->tos & ECN_CE) == ECN_CE;
	if (ahead < 0 || (q->reorder && reorder_has(q->reorder, q->expected, n)))
		came_before(f, q, pkt, ahead);
	else if (q->answers->selective)
		say_trimmed(f, q, pkt, n, last_hop);
	else if (!ahead)
		say_lost(f, q, last_hop);
	else if (n < q->trimmed) {
		q->trimmed = n;
		q->trimmed_last_hop = last_hop;
	}
	credit_trimmed(f, q);
}

/* trimmed_receive() - What is left of a packet has come in at a NIC */
void trimmed_receive(struct fabric *f, struct nic *n, const struct roce_packet *pkt, struct frame *fr)
{
	struct qp *q = memcmp(pkt->dst_mac, n->mac, 6) ? NULL : qp_find(n, pkt->dst_qp);
	bool data = roce_is_write(pkt->opcode) || roce_is_send(pkt->opcode);

	if (!data || pkt->unreliable || !q || q->state != QP_READY || !q->peer || pkt->src_ip != q->peer->ip) {
		port_drop(f, &n->port[0], fr, data && !pkt->unreliable ? DROP_NO_QP : DROP_TRIMMED);
		return;
	}
	nic_count(&n->rx_rdma, &n->port[0], fr);
	data_trimmed(f, q, pkt);
	frame_release(f, fr);
}

/* Packet @n, which has left, is lost; what was sent before it may still come.  Return: false if that is no news */
static bool lose(struct qp *q, uint64_t n)
{
	struct repeat *r = repeat_of(q);

	repeat_missing(r, n + 1, PS_NEVER);
	struct hole *h = holes_find(&r->holes, n);
	if (!h || h->state != UNDER_WAY || (h->again && h->left == PS_NEVER)) /* sent again, and still in the NIC */
		return false;
	repeat_lose(r, holes_index(&r->holes, n));
	r->found--; /* told here */
	h->trimmed = true;
	return true;
}

/* trimmed_told() - A receiver says that a packet of ours was trimmed */
void trimmed_told(struct fabric *f, struct qp *q, const struct roce_packet *pkt, const struct frame *fr)
{
	bool last_hop = pkt->syndrome == AETH_NAK_TRIMMED_LAST_HOP;
	int32_t ahead = psn_ahead(pkt->psn, (uint32_t)q->acked);
	uint64_t n = q->acked + (uint64_t)(int64_t)ahead;

	q->nic->trim_naks++;
	if (last_hop) /* all paths end there: that one was no worse than others */
		multipath_returned(f, q, pkt, fr);
	else
		multipath_trimmed(f, q, pkt->src_port);
	if (ahead < 0 || n >= q->left || n >= q->send)
		return; /* old, or never sent */
	if (q->p->selective && !lose(q, n))
		return;
	cc_lost(f, q, last_hop ? CC_LOSS_TRIMMED_LAST_HOP : CC_LOSS_TRIMMED, 1);
	if (q->p->selective)
		probe_news(repeat_of(q), q, f->clock.now);
	else
		qp_go_back(f, q);
	timer_set(f, q, qp_expires(q, f->clock.now));
	qp_ready(f, q);
}
