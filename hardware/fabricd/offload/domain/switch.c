/* The switch of a scale-up domain: it copies what is for all, and adds up shares
 *
 * A load makes room for a sum, and goes on to all members, who answer with their shares.  The last of these completes
 * it: it goes to its owner.  Floating-point numbers are added up in float32 and rounded once, as NCCL asks for
 * (`.acc::f32`).
 */
#include <stdlib.h>
#include <string.h>

#include "engine/fabric.h"
#include "link/frame.h"
#include "link/port.h"
#include "nic/nic.h"
#include "offload/domain/domain.h"
#include "vector/element.h"
#include "wire/ip.h"
#include "wire/roce.h"

/* domain_sums() - Room for those of all members' loads */
struct domain_sum *domain_sums(uint32_t members)
{
	struct domain_sum *sums = calloc((size_t)members * LOADS_MAX, sizeof *sums);

	if (!sums)
		abort();
	return sums;
}

void domain_sums_free(struct domain_sum *sums, uint32_t members)
{
	for (uint32_t i = 0; i < members * LOADS_MAX; i++)
		free(sums[i].at);
	free(sums);
}

/* domain_block() - Which block a packet is about */
struct block domain_block(const struct roce_packet *pkt)
{
	const struct roce_offload *o = &pkt->offload;

	return (struct block){.first = o->offset, .number = pkt->psn, .count = o->count, .owner = o->child, .slot = o->slot};
}

/* Into a GPU, behind what is on its way there already */
static void deliver(struct fabric *f, const struct member *to, struct frame *fr)
{
	fr->to = &to->nic->port[1];
	port_arrive(f, fr->to, fr, fr->to->cable->epoch);
}

static void copy_to_all(struct fabric *f, struct group *g, struct frame *fr)
{
	for (uint32_t i = 0; i < g->count; i++) {
		const struct member *to = &g->member[i];
		struct frame *copy = frame_twin(f, fr);
		copy->class = fr->class;
		copy->id = frame_number(&to->nic->scale_up->n);
		deliver(f, to, copy);
	}
	frame_release(f, fr);
}

static void sum_begin(struct domain_sum *s, const struct block *b, uint32_t most)
{
	if (!s->at && !(s->at = malloc(most * sizeof *s->at)))
		abort();
	s->block = *b;
	s->seen = 0;
}

static void sum_add(struct domain_sum *s, const struct offload_wr *wr, const uint8_t *share)
{
	bool integer = element_is_integer(wr->element);

	for (uint32_t i = 0; i < s->block.count; i++) {
		if (integer) {
			int32_t x = element_get_int(wr->element, share, i);
			s->at[i].i = s->seen ? int_combined(wr->reduction, s->at[i].i, x) : x;
		} else {
			float x = element_get(wr->element, share, i);
			s->at[i].f = s->seen ? float_combined(wr->reduction, s->at[i].f, x) : x;
		}
	}
	s->seen++;
}

/* The sum goes to its owner, as a frame like that of the last share */
static void sum_sent(struct fabric *f, struct group *g, const struct domain_sum *s, const struct offload_wr *wr,
		     const struct roce_packet *like, struct frame *fr)
{
	uint8_t sums[1 << 14];
	struct roce_packet pkt = *like;
	const struct member *owner = &g->member[s->block.owner];

	for (uint32_t i = 0; i < s->block.count; i++) {
		if (element_is_integer(wr->element))
			element_put_int(wr->element, sums, i, s->at[i].i);
		else
			element_put(wr->element, sums, i, s->at[i].f);
	}
	pkt.opcode = OFF_RESULT;
	pkt.dst_ip = owner->nic->ip;
	pkt.ttl = TTL_SENT;
	memcpy(pkt.dst_mac, owner->nic->mac, 6);
	pkt.payload = sums;
	fr->len = roce_build_unsealed(fr->data, f->frame_room - TRAILER_BYTES, &pkt);
	fr->unsealed = true;
	deliver(f, owner, fr);
}

/* domain_switch() - A member's frame is at the switch
 * Return: false if it is none of its group's
 */
bool domain_switch(struct fabric *f, struct member *m, const struct roce_packet *pkt, struct frame *fr)
{
	struct group *g = m->group;
	struct block b = domain_block(pkt);

	if (m->failed || (pkt->opcode != OFF_MULTICAST && pkt->opcode != OFF_CONTRIBUTE))
		return false;
	if (pkt->opcode == OFF_MULTICAST) {
		copy_to_all(f, g, fr);
		return true;
	}
	struct request *r = b.owner < g->count ? domain_request(g->member[b.owner].state, b.number) : NULL;
	if (!r || b.slot >= LOADS_MAX || !domain_has(g, &r->wr, &b))
		return false;
	struct domain_sum *s = &((const struct domain *)m->state)->in_switch[b.owner * LOADS_MAX + b.slot];
	if (!pkt->payload_bytes) {
		sum_begin(s, &b, g->member[0].nic->mtu);
		copy_to_all(f, g, fr);
		return true;
	}
	if (s->block.first != b.first || s->block.number != b.number || s->block.count != b.count || s->seen == g->count ||
	    pkt->payload_bytes != (uint32_t)b.count * element_bytes[r->wr.element])
		return false;
	sum_add(s, &r->wr, pkt->payload);
	if (s->seen == g->count)
		sum_sent(f, g, s, &r->wr, pkt, fr);
	else
		frame_release(f, fr);
	return true;
}
