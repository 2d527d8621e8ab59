/* Best-effort aggregation: how a rank's blocks go out
 *
 * Theory of Operation
 *
 * A block begins when the window has room, its lane is free and the ranks have agreed on
 * its exponent; then the host converts it, and it goes out when the NIC's round comes to
 * the group (struct tx).  On the server's rank a converted block is merged in memory
 * instead, and what goes out are sums.
 */
#include <string.h>

#include "base/units.h"
#include "engine/fabric.h"
#include "link/frame.h"
#include "nic/nic.h"
#include "offload/best_effort/best_effort.h"
#include "offload/block.h"
#include "offload/offload.h"
#include "vector/element.h"
#include "wire/ip.h"
#include "wire/roce.h"
#include "worker/services.h"

/* best_effort_ready() - A lane's block can go */
void best_effort_ready(struct fabric *f, struct member *m, uint32_t lane)
{
	struct best_effort *b = m->state;

	b->lane[lane].state = LANE_READY;
	b->queue[(b->queue_head + b->queued++) % b->slots] = lane;
	nic_tx_ready(f, &m->nic->tx[0], &m->source);
}

/* best_effort_is_block() - What a number of the request at the head stands for: a block, or only its exponent */
bool best_effort_is_block(const struct best_effort *b, uint32_t number, uint64_t *block)
{
	uint64_t k = (uint32_t)(number - b->first);

	*block = k < b->lead ? k : k - b->lead;
	return k >= b->lead;
}

/* Our contribution of a number, its elements in @values */
static struct partial contribution(const struct member *m, uint32_t number, int32_t *values)
{
	const struct best_effort *b = m->state;
	const struct offload_wr *wr = &b->requests.head->wr;
	struct partial part = {.number = number,
			       .slot = b->slot[number % b->slots],
			       .ranks = 1ull << m->index,
			       .flags = wr->reduction & OFF_REDUCTION,
			       .exponent = EXPONENT_ZERO,
			       .payload = (const uint8_t *)values};
	uint64_t block;

	if (best_effort_is_block(b, number, &block)) {
		part.exponent = b->lead ? b->exponent[block % b->lead] : EXPONENT_ZERO;
		part.count = (uint16_t)block_count(wr, b->elements, block);
		block_read(m, wr, b->elements, block, part.exponent, values);
		block += b->lead;
	}
	part.next = block_exponent(m, wr, b->elements, block);
	return part;
}

/* best_effort_converted() - A contribution is converted: it can go */
void best_effort_converted(struct fabric *f, struct member *m, struct block_lane *l)
{
	struct best_effort *b = m->state;
	int32_t values[BLOCK_ELEMENTS_MAX];

	if (!b->server) {
		best_effort_ready(f, m, l->number % b->slots);
		return;
	}
	struct partial part = contribution(m, l->number, values);
	overdue_sent(f, m, l);
	server_merge(f, m, b->server, &part, f->clock.now);
}

static bool may_go(const struct best_effort *b)
{
	uint32_t number = b->first + (uint32_t)b->sent;
	uint64_t block;

	if (b->sent == b->packets || b->lane[number % b->slots].state != LANE_IDLE || (!b->server && b->flying >= b->window))
		return false;
	return !best_effort_is_block(b, number, &block) || !b->lead || b->exponent[block % b->lead] != EXPONENT_UNKNOWN;
}

/* best_effort_pump() - Begin as many blocks as the window and the lanes allow */
void best_effort_pump(struct fabric *f, struct member *m)
{
	struct best_effort *b = m->state;

	while (b->working && !m->failed && may_go(b)) {
		uint32_t number = b->first + (uint32_t)b->sent++;
		struct block_lane *l = &b->lane[number % b->slots];
		uint64_t block;
		*l = (struct block_lane){.state = LANE_CONVERTING, .number = number};
		b->flying++;
		if (!best_effort_is_block(b, number, &block) || !b->lead || !b->convert_bps) {
			best_effort_converted(f, m, l);
			continue;
		}
		ps_t from = b->convert_tx_free > f->clock.now ? b->convert_tx_free : f->clock.now;
		b->convert_tx_free = from + block_conversion(m, &b->requests.head->wr, block_count(&b->requests.head->wr, b->elements, block),
							     b->convert_bps);
		offload_later(f, m, b->convert_tx_free, number);
	}
}

static bool has_packet(const struct fabric *f, const struct tx_source *source)
{
	const struct member *m = (const struct member *)source;
	const struct best_effort *b = m->state;

	(void)f;
	return (b->server ? b->server->queued : b->queued) && !m->failed && !m->left;
}

static void none(struct fabric *f, struct tx_source *source)
{
	(void)f;
	(void)source;
}

/* best_effort_frame() - Write a packet of a group into a frame
 * Return: bytes of its payload
 */
uint32_t best_effort_frame(struct fabric *f, const struct member *m, uint32_t to, uint8_t opcode,
			   const struct partial *part, struct frame *fr)
{
	struct nic *n = m->nic;
	struct roce_packet pkt = {
		.src_ip = n->ip,
		.dst_ip = to,
		.src_port = roce_job_port(m->group->id),
		.tos = (uint8_t)(n->p.data_dscp << 2 | ECN_ECT0),
		.ttl = TTL_SENT,
		.opcode = opcode,
		.dst_qp = m->group->id,
		.psn = part->number & PSN_MASK,
		.offload = {.offset = part->ranks,
			    .more = part->number,
			    .slot = part->slot,
			    .child = part->next_slot,
			    .count = part->count,
			    .exponent = part->exponent,
			    .next = part->next,
			    .flags = part->flags},
		.payload = part->payload,
		.payload_bytes = 4u * part->count,
	};

	mac_of(to, pkt.dst_mac);
	memcpy(pkt.src_mac, n->mac, 6);
	frame_grow(f, fr);
	fr->len = roce_build(fr->data, f->frame_room - TRAILER_BYTES, &pkt);
	fr->class = (uint8_t)n->p.data_class;
	fr->data_of_worker = true;
	return pkt.payload_bytes;
}

static uint32_t build(struct fabric *f, struct tx_source *source, struct frame *fr)
{
	struct member *m = (struct member *)source;
	struct best_effort *b = m->state;
	int32_t values[BLOCK_ELEMENTS_MAX];

	if (b->server)
		return server_build(f, m, b->server, fr);
	struct block_lane *l = &b->lane[b->queue[b->queue_head]];
	struct partial part = contribution(m, l->number, values);
	b->queue_head = (b->queue_head + 1) % b->slots;
	b->queued--;
	bool past = part.slot == NO_SLOT || l->again >= 2;
	if (l->again) {
		part.flags |= OFF_RESEND | (past && (l->silent || b->alone) ? OFF_DIRECT : 0);
		m->nic->retransmitted++;
	}
	overdue_sent(f, m, l);
	return best_effort_frame(f, m, past ? b->server_ip : b->next_ip, OFF_PARTIAL, &part, fr);
}

const struct tx_ops best_effort_tx = {.has_packet = has_packet, .build = build, .none = none};
