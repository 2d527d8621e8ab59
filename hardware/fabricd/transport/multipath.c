/* Several paths of one queue pair: what is common to all policies
 *
 * Theory of Operation
 *
 * A packet's entropy is chosen when it is built.  The acknowledgement comes back with the source port of the packet that it
 * answers, so it takes as many ways as the data, and with its mark, in the BECN bit of its BTH (as InfiniBand's
 * congestion control has it: annex A10).  An acknowledgement that speaks for several packets returns one entropy, that of
 * the packet that triggered it, as UEC's do.  Of a lost packet nothing comes back: the sender knows which entropy it had.
 */
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "engine/fabric.h"
#include "link/frame.h"
#include "nic/nic.h"
#include "nic/params.h"
#include "transport/congestion.h"
#include "transport/multipath.h"
#include "transport/qp.h"
#include "wire/roce.h"

static struct multipath_policy *added;

/* multipath_add() - A policy that is in no table */
void multipath_add(struct multipath_policy *policy)
{
	policy->next = added;
	added = policy;
}

/* multipath_find() - The policy of that name, or NULL */
const struct multipath_policy *multipath_find(const char *name)
{
	REGISTRY_EACH(struct multipath_policy, multipath_policies, policy)
		if (!strcmp((*policy)->name, name))
			return *policy;
	for (const struct multipath_policy *policy = added; policy; policy = policy->next)
		if (!strcmp(policy->name, name))
			return policy;
	return NULL;
}

static bool same(const struct multipath_params *a, const struct multipath_params *b)
{
	return a->policy == b->policy && a->entropies == b->entropies && !memcmp(a->v, b->v, sizeof a->v);
}

static void *zeroed(size_t count, size_t bytes)
{
	void *room = calloc(count, bytes);

	if (!room)
		abort();
	return room;
}

/* multipath_start() - A queue pair is connected, or its NIC's parameters are new */
void multipath_start(struct fabric *f, struct qp *q)
{
	const struct multipath_params *p = &q->p->multipath;
	struct multipath *m = q->multipath;

	if (m && same(&m->p, p))
		return;
	multipath_release(q);
	if (!p->policy || q->tx != &q->nic->tx[0] || qp_unreliable(q)) /* which takes what comes ahead for a loss */
		return;
	size_t own = p->policy->state_bytes + p->entropies * p->policy->entropy_bytes;
	m = q->multipath = zeroed(1, sizeof *m + own);
	m->p = *p;
	m->first = q->send;
	for (m->room = 1; m->room < q->p->reorder_packets;)
		m->room *= 2;
	m->used = zeroed(m->room, sizeof *m->used);
	if (p->entropies <= ENTROPIES_COUNTED)
		m->count = zeroed(p->entropies, sizeof *m->count);
	if (p->policy->start)
		p->policy->start(f, q);
}

void multipath_release(struct qp *q)
{
	if (q->multipath) {
		free(q->multipath->used);
		free(q->multipath->count);
	}
	free(q->multipath);
	q->multipath = NULL;
}

/* multipath_own() - The state of a queue pair's policy */
void *multipath_own(const struct qp *q)
{
	return q->multipath + 1;
}

/* multipath_own_of_entropies() - Likewise of its entropies */
void *multipath_own_of_entropies(const struct qp *q)
{
	return (char *)(q->multipath + 1) + q->multipath->p.policy->state_bytes;
}

double multipath_param(const struct qp *q, unsigned which)
{
	return q->multipath->p.v[which];
}

/* multipath_draw() - 64 random bits */
uint64_t multipath_draw(const struct fabric *f, struct qp *q)
{
	return random_of(f->seed, RANDOM_ENTROPY, (uint64_t)q->nic->rank << 32 | q->number, q->multipath->draws++);
}

/* multipath_lost() - Packet @n is lost */
void multipath_lost(struct fabric *f, struct qp *q, uint64_t n)
{
	struct multipath *m = q->multipath;

	if (!m || n < m->first || q->send - n > m->room)
		return;
	uint32_t entropy = m->used[n & (m->room - 1)];
	if (m->count)
		m->count[entropy].lost++;
	if (m->p.policy->lost)
		m->p.policy->lost(f, q, entropy);
}

/* multipath_port() - The source port of packet @n, which is sent now
 * @lost:	Again, as it was lost
 */
uint16_t multipath_port(struct fabric *f, struct qp *q, uint64_t n, bool lost)
{
	struct multipath *m = q->multipath;

	if (!m)
		return q->src_port;
	if (lost)
		multipath_lost(f, q, n);
	uint32_t entropy = m->p.policy->pick(f, q);
	m->used[n & (m->room - 1)] = (uint16_t)entropy;
	if (m->count)
		m->count[entropy].sent++;
	return roce_entropy_port(q->src_port, entropy);
}

/* multipath_returned() - An acknowledgement has come back with an entropy */
void multipath_returned(struct fabric *f, struct qp *q, const struct roce_packet *pkt, const struct frame *fr)
{
	struct multipath *m = q->multipath;
	uint32_t entropy = roce_entropy(q->src_port, pkt->src_port);

	if (!m || entropy >= m->p.entropies)
		return;
	q->marks += pkt->becn;
	ps_t left = cc_answered(q, fr);
	m->took = left ? f->clock.now - left : 0;
	if (m->count) {
		m->count[entropy].returned++;
		m->count[entropy].marked += pkt->becn;
		m->count[entropy].timed += m->took > 0;
		m->count[entropy].took += m->took;
	}
	if (m->p.policy->returned)
		m->p.policy->returned(f, q, entropy, pkt->becn);
}

/* multipath_trimmed() - A packet with that source port was trimmed */
void multipath_trimmed(struct fabric *f, struct qp *q, uint16_t port)
{
	struct multipath *m = q->multipath;
	uint32_t entropy = roce_entropy(q->src_port, port);

	if (!m || entropy >= m->p.entropies)
		return;
	if (m->count)
		m->count[entropy].trimmed++;
	if (m->p.policy->trimmed)
		m->p.policy->trimmed(f, q, entropy);
}

/* multipath_timeout() - Nothing was heard for long */
void multipath_timeout(struct fabric *f, struct qp *q)
{
	if (q->multipath && q->multipath->p.policy->timeout)
		q->multipath->p.policy->timeout(f, q);
}
