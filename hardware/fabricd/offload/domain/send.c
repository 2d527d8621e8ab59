/* What a GPU sends to the switch of its domain: how many requests it has posted, sums for all, loads, its shares. */
#include <string.h>

#include "engine/fabric.h"
#include "link/frame.h"
#include "nic/nic.h"
#include "offload/domain/domain.h"
#include "vector/element.h"
#include "wire/ip.h"
#include "wire/roce.h"

/* Whether all members have posted the request that we are at */
static bool all_there(const struct member *m)
{
	const struct domain *d = m->state;

	for (uint32_t i = 0; i < m->group->count; i++)
		if ((int32_t)(d->heard[i] - d->at) <= 0)
			return false;
	return true;
}

/* May a block of our part be begun? */
static bool begins(const struct member *m)
{
	const struct domain *d = m->state;

	if (d->at == d->posted || !all_there(m))
		return false;
	const struct request *r = domain_request(d, d->at);
	return !(r->wr.collective & DOMAIN_SUMS) || d->open < LOADS_MAX;
}

/* Past requests of which we own no more */
static void advance(const struct member *m)
{
	struct domain *d = m->state;
	uint64_t first;

	while (d->at != d->posted) {
		const struct request *r = domain_request(d, d->at);
		if (r && d->next < domain_part(m->group, &r->wr, m->index, &first))
			return;
		d->at++;
		d->next = 0;
	}
}

static bool has_packet(const struct fabric *f, const struct tx_source *source)
{
	const struct member *m = (const struct member *)source;
	const struct domain *d = m->state;

	(void)f;
	if (m->failed || m->left)
		return false;
	advance(m);
	return d->told != d->posted || d->sums.count || begins(m) || d->asked.count;
}

static void none(struct fabric *f, struct tx_source *source)
{
	(void)f;
	(void)source;
}

/* The next block of our part */
static struct block block_begun(struct member *m, const struct request *r)
{
	struct domain *d = m->state;
	uint64_t first, length = domain_part(m->group, &r->wr, m->index, &first);
	uint32_t most = domain_elements(m->group, &r->wr);
	struct block b = {.number = d->at, .first = first + d->next, .owner = (uint16_t)m->index};

	b.count = (uint16_t)(length - d->next < most ? length - d->next : most);
	d->next += b.count;
	if (r->wr.collective & DOMAIN_SUMS) {
		b.slot = (uint16_t)(d->loads++ % LOADS_MAX);
		d->open++;
	}
	return b;
}

static void make(struct fabric *f, struct member *m, struct frame *fr, uint8_t opcode, const struct block *b,
		 const uint8_t *payload, uint32_t bytes)
{
	struct nic *n = m->nic;
	struct roce_packet pkt = {
		.src_ip = n->ip,
		.dst_ip = n->ip,
		.src_port = roce_job_port(m->group->id),
		.tos = (uint8_t)(n->p.data_dscp << 2),
		.ttl = TTL_SENT,
		.opcode = opcode,
		.dst_qp = m->group->id,
		.psn = b->number & PSN_MASK,
		.offload = {.offset = b->first, .slot = b->slot, .child = b->owner, .count = b->count, .more = n->rank},
		.payload = payload,
		.payload_bytes = bytes,
	};

	memcpy(pkt.dst_mac, n->mac, 6);
	memcpy(pkt.src_mac, n->mac, 6);
	if (bytes)
		frame_grow(f, fr);
	fr->len = roce_build_unsealed(fr->data, bytes ? f->frame_room - TRAILER_BYTES : FRAME_HEAD_BYTES - TRAILER_BYTES, &pkt);
	fr->unsealed = true;
	fr->class = (uint8_t)n->p.data_class;
	fr->to = &n->scale_up->port;
}

/* With what lies at the block's place.  A worker that has gone sends nothing of it */
static void make_full(struct fabric *f, struct member *m, struct frame *fr, uint8_t opcode, const struct request *r, bool out,
		      const struct block *b)
{
	static const uint8_t nothing[1 << 14];
	uint32_t bytes = (uint32_t)b->count * element_bytes[r->wr.element];
	const uint8_t *payload = domain_memory(m, &r->wr, out, b);

	make(f, m, fr, opcode, b, payload ? payload : nothing, bytes);
}

/* A sum for all, or the next block of our part: its load, or if there is nothing to be added up, itself */
static void make_ours(struct fabric *f, struct member *m, struct frame *fr)
{
	struct domain *d = m->state;

	if (d->sums.count) {
		struct block b = blocks_take(&d->sums);
		d->open--;
		make_full(f, m, fr, OFF_MULTICAST, domain_request(d, b.number), true, &b);
		return;
	}
	const struct request *r = domain_request(d, d->at);
	struct block b = block_begun(m, r);
	if (r->wr.collective & DOMAIN_SUMS)
		make(f, m, fr, OFF_CONTRIBUTE, &b, NULL, 0);
	else
		make_full(f, m, fr, OFF_MULTICAST, r, false, &b);
}

static uint32_t build(struct fabric *f, struct tx_source *source, struct frame *fr)
{
	struct member *m = (struct member *)source;
	struct domain *d = m->state;

	advance(m);
	if (d->told != d->posted) {
		struct block b = {.number = d->told = d->posted, .owner = (uint16_t)m->index};
		make(f, m, fr, OFF_MULTICAST, &b, NULL, 0);
	} else if (d->sums.count || begins(m)) {
		make_ours(f, m, fr);
	} else {
		struct block b = blocks_take(&d->asked);
		struct request *r = domain_request(d, b.number);
		make_full(f, m, fr, OFF_CONTRIBUTE, r, false, &b);
		domain_took(f, m, r);
	}
	return IN_NIC;
}

const struct tx_ops domain_tx = {.has_packet = has_packet, .build = build, .none = none};
