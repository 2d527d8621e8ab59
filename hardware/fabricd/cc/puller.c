/* Credit, receiving side: a NIC's puller
 *
 * Theory of Operation
 *
 * Whoever would like to send to a NIC and has said so has a claim (struct cc_claim), which the control works out: so many
 * bytes are owed to him, and a rank.  Those to whom something is owed stand in one queue, the least rank first and equals
 * in turn.  The first of them is granted CC_GRANT packets at most.  The next one's turn is when the cable has had the time
 * to bring them, at CC_SHARE of its rate, or of PCIe if that is slower: so what is granted fills the cable, and no queue.
 *
 * With CC_ACTIVE only so many that have a place have their turns: a claim may keep its place while nothing is owed to it.
 *
 * What was granted is counted from the beginning, and each credit has the whole count (wire/credit.c).
 */
#include <stdlib.h>

#include "base/units.h"
#include "cc/puller.h"
#include "engine/event.h"
#include "engine/fabric.h"
#include "link/frame.h"
#include "link/port.h"
#include "nic/nic.h"
#include "nic/params.h"
#include "transport/answer.h"
#include "transport/congestion.h"
#include "transport/credit.h"
#include "transport/qp.h"
#include "wire/ethernet.h"
#include "wire/roce.h"
#include "wire/telemetry.h"

static struct puller *puller_of(struct nic *n)
{
	if (!n->puller && !(n->puller = calloc(1, sizeof *n->puller)))
		abort();
	return n->puller;
}

/* A queue pair has no claim any more */
static void forget(struct qp *q)
{
	struct credit *c = q->credit;
	struct puller *p = q->nic->puller;

	if (!c || !c->queued)
		return;
	*(c->prev ? &c->prev->credit->next : &p->first) = c->next;
	*(c->next ? &c->next->credit->prev : &p->last) = c->prev;
	c->next = c->prev = NULL;
	c->queued = false;
}

/* Behind all whose rank is not greater */
static void join(struct puller *p, struct qp *q)
{
	struct credit *c = q->credit;
	struct qp *before = p->last;

	while (before && before->credit->rank > c->rank)
		before = before->credit->prev;
	c->prev = before;
	c->next = before ? before->credit->next : p->first;
	*(c->prev ? &c->prev->credit->next : &p->first) = q;
	*(c->next ? &c->next->credit->prev : &p->last) = q;
	c->queued = true;
	c->forget = forget;
}

/* Whose turn is it? */
static struct qp *next_of(const struct puller *p)
{
	double active = p->first ? cc_answer_param(p->first, CC_ACTIVE) : 0, place = 0;

	for (struct qp *q = p->first; q && (active <= 0 || place < active); q = q->credit->next, place++)
		if (q->credit->owed)
			return q;
	return NULL;
}

static void kick(struct fabric *f, struct nic *n)
{
	struct puller *p = n->puller;

	if (p->due || !next_of(p))
		return;
	p->due = true;
	event_add(f, p->free > f->clock.now ? p->free : f->clock.now, EV_PULL, n->n.index, 0, 0, 0, n, 0);
}

/* Its claim is another: so many bytes have come, or it asks, or something was granted */
static void claim(struct fabric *f, struct qp *q, uint32_t came, bool asks)
{
	struct credit *c = q->credit;
	struct puller *p = puller_of(q->nic);
	struct cc_arrival a = {.came = came, .asks = asks, .wants = (int32_t)(c->target - c->granted), .owed = (double)c->owed,
			     .again = (double)c->again};
	struct cc_claim claim = {0};
	int32_t rest = (int32_t)(c->end - c->granted);

	a.rest = rest > 0 ? rest : 0;
	a.under_way = c->rest - a.rest;

	q->answers->cc->claims(f, q, &a, &claim);
	c->owed = claim.owed > 0 ? (uint64_t)claim.owed : 0;
	c->stays = claim.stays;
	if (c->queued && (claim.rank != c->rank || (!c->owed && !c->stays)))
		forget(q);
	c->rank = claim.rank;
	if (!c->queued && (c->owed || c->stays))
		join(p, q);
	kick(f, q->nic);
}

/* How long the cable takes for so many bytes of a queue pair's packets */
static ps_t takes(const struct qp *q, uint32_t bytes)
{
	const struct nic *n = q->nic;
	double rate = n->port[0].cable ? (double)n->port[0].cable->p.rate_bps : 1e12, pcie = (double)n->p.pcie_bps;
	const struct cc_algorithm *cc = q->answers->cc;
	uint32_t hops = cc->stamped ? (uint32_t)cc_answer_param(q, CC_HOPS) : 0;
	uint32_t behind = DEMAND_BYTES + (cc->telemetry ? TELEMETRY_BYTES(hops) : 0);
	uint32_t head = wire_bytes(roce_frame_bytes(q->any_order ? RC_WRITE_ONLY : RC_WRITE_MIDDLE, 0) + behind);
	double wire = (bytes + (double)((bytes + q->mtu - 1) / q->mtu) * head) / rate, share = cc_answer_param(q, CC_SHARE);
	double slowest = wire > bytes / pcie ? wire : bytes / pcie;

	return (ps_t)(slowest * 8e12 / (share > 0 ? share : 1) + 0.5);
}

static void say(struct fabric *f, struct qp *q)
{
	uint8_t payload[CREDIT_BYTES];

	credit_write(payload, q->credit->granted);
	q->nic->tx_credits++;
	struct roce_packet pkt = {.opcode = RC_CREDIT, .payload = payload, .payload_bytes = sizeof payload};
	answer_control(f, q, q->answers, &pkt);
}

/* puller_event() - The cable is free for the next one's packets */
void puller_event(struct fabric *f, struct nic *n)
{
	struct puller *p = n->puller;
	struct qp *q = next_of(p);

	p->due = false;
	if (!q)
		return;
	struct credit *c = q->credit;
	uint64_t most = (uint64_t)(cc_answer_param(q, CC_GRANT) * q->mtu);
	uint32_t bytes = (uint32_t)(c->owed < most || !most ? c->owed : most);
	c->granted += bytes;
	c->owed -= bytes;
	c->again -= bytes < c->again ? bytes : c->again;
	p->free = f->clock.now + takes(q, bytes);
	say(f, q);
	forget(q);
	claim(f, q, 0, false);
}

/* puller_arrived() - A data packet has come in, and says what its sender would like to have; or a request */
void puller_arrived(struct fabric *f, struct qp *q, const struct demand *d, uint32_t bytes, bool request)
{
	struct credit *c = credit_of(q);

	if ((int32_t)(d->target - c->target) > 0)
		c->target = d->target;
	if (d->end != c->end || d->rest < c->rest)
		c->rest = d->rest; /* of another message, or of the same one later */
	if ((int32_t)(d->end - c->end) > 0)
		c->end = d->end;
	if (request) /* it may not have heard of what it was granted last */
		say(f, q);
	claim(f, q, request ? 0 : bytes ? bytes : 1, request);
}

void puller_release(struct nic *n)
{
	free(n->puller);
	n->puller = NULL;
}
