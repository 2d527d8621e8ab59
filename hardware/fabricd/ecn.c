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
#include "bytes.h"
#include "fabric.h"
#include "random.h"
#include "roce.h"

#define CE 3

/* RFC 1624: the checksum after one 16-bit word of the header has changed */
static void checksum_update(uint8_t *ip, uint16_t before, uint16_t after)
{
	uint32_t sum = (uint16_t) ~(ip[10] << 8 | ip[11]) + (uint32_t)(uint16_t)~before + after;

	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	put_be16(ip + 10, (uint16_t)~sum);
}

/* ip_set_tos() - Give a frame another type of service byte (DSCP and ECN) */
void ip_set_tos(struct frame *fr, uint8_t tos)
{
	uint8_t *ip = fr->data + ETH_BYTES;
	uint16_t before = (uint16_t)(ip[0] << 8 | ip[1]);

	ip[1] = tos;
	checksum_update(ip, before, (uint16_t)(ip[0] << 8 | tos));
}

/* ip_hop() - One hop less to live
 * Return: false if none is left
 */
bool ip_hop(struct frame *fr)
{
	uint8_t *ip = fr->data + ETH_BYTES;
	uint16_t before = (uint16_t)(ip[8] << 8 | ip[9]);

	if (!is_ipv4(fr))
		return true;
	if (ip[8] <= 1)
		return false;
	ip[8]--;
	checksum_update(ip, before, (uint16_t)(ip[8] << 8 | ip[9]));
	return true;
}

/* is_ipv4() - Does a frame carry a whole IPv4 header? */
bool is_ipv4(const struct frame *fr)
{
	return fr->len >= ETH_BYTES + IPV4_BYTES && fr->data[12] == 0x08 && fr->data[13] == 0x00;
}

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

	if (!ecn->on || bytes <= ecn->kmin_bytes || !is_ipv4(fr))
		return;
	uint8_t tos = fr->data[ETH_BYTES + 1];
	if (!(tos & CE) || (tos & CE) == CE)
		return;
	if (bytes <= ecn->kmax_bytes) {
		double share = ecn->pmax * (double)(bytes - ecn->kmin_bytes) / (double)(ecn->kmax_bytes - ecn->kmin_bytes);
		if (random_unit(f->seed, (uint64_t)p->node->index << 16 | p->number, fr->id, RANDOM_ECN) >= share)
			return;
	}
	ip_set_tos(fr, tos | CE);
	p->lane[class].marked++;
}
