/* ECN marking
 *
 * Theory of Operation
 *
 * When a frame of a class with ECN starts on the cable, the queue that it leaves
 * behind decides: nothing is marked up to kmin, everything above kmax, and in
 * between with a probability that grows from 0 to pmax (the congestion point of
 * DCQCN, Zhu et al., SIGCOMM 2015).  Only frames that say ECT are marked.  The IP
 * checksum is kept right; the ICRC does not cover the ECN bits.
 */
#include "base/random.h"
#include "engine/fabric.h"
#include "link/frame.h"
#include "link/params.h"
#include "link/port.h"
#include "switch/switch.h"
#include "wire/ethernet.h"
#include "wire/ip.h"

/* What a port marks by: its own parameters (they go with its cable's rate), or what a fault lays over its switch's */
static const struct ecn_params *ecn_of(const struct port *p, unsigned class)
{
	const struct sw *s = (const struct sw *)p->node;
	const struct ecn_params *now = &s->p.ecn[class], *base = &s->base.ecn[class];
	bool faulty = now->on != base->on || now->kmin_bytes != base->kmin_bytes ||
		      now->kmax_bytes != base->kmax_bytes || now->pmax < base->pmax || now->pmax > base->pmax;

	return p->p.own_ecn && !faulty ? &p->p.ecn[class] : now;
}

/* ecn_dequeued() - A frame leaves a switch's queue: mark it? */
void ecn_dequeued(struct fabric *f, struct port *p, unsigned class, struct frame *fr)
{
	const struct ecn_params *ecn = ecn_of(p, class);
	uint64_t bytes = p->queue[class].bytes;

	if (!ecn->on || bytes <= ecn->kmin_bytes || !is_ipv4(fr->data, fr->len))
		return;
	uint8_t tos = fr->data[ETH_BYTES + 1];
	if (!(tos & ECN_CE) || (tos & ECN_CE) == ECN_CE)
		return;
	if (bytes <= ecn->kmax_bytes) {
		double share = ecn->pmax * (double)(bytes - ecn->kmin_bytes) / (double)(ecn->kmax_bytes - ecn->kmin_bytes);
		if (random_unit(f->seed, (uint64_t)p->node->index << 16 | p->number, fr->id, RANDOM_ECN) >= share)
			return;
	}
	ip_set_tos(fr->data, tos | ECN_CE);
	p->tc[class].marked++;
}
