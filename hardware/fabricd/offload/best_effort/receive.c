/* Best-effort aggregation: what comes in at a rank's end, sums and partial sums. */
#include <stdio.h>

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

#define MTU_OF_ATP 1500 /* bytes */

/* ATP's window (section 3.6): slow start, congestion avoidance, half of it after a mark.  The paper halves it when three
 * sums overtake, too; its published client does not (common/CC_manager.h), nor do we: losses are no congestion where
 * queues are lossless, and one block in ten that is lost would leave a window of four. */

/* A mark: once for all that was under way when the window was last halved */
static void congested(struct best_effort *b, uint32_t number)
{
	if ((int32_t)(number - b->recover) < 0)
		return;
	b->window = b->threshold = b->window > 1 ? b->window / 2 : 1;
	b->recover = b->first + (uint32_t)b->sent;
	b->counted = 0;
}

/* A sum without a mark: below the threshold it makes room for an MTU more, above it a window of them does */
static void roomier(struct best_effort *b)
{
	uint32_t more = MTU_OF_ATP / roce_frame_bytes(OFF_PARTIAL, 4 * b->elements);

	more = more ? more : 1;

	if (b->window >= b->threshold && ++b->counted < b->window)
		return;
	b->counted = 0;
	b->window = b->window + more < b->slots ? b->window + more : b->slots;
}

/* The server begins to add up alone, or accelerators are back.  Marks on its cable in between say nothing of the way by
 * accelerators, nor do those on the last block that each lane sends past them, and on the next, which meets their queue:
 * slow start leads to where the window was (as RFC 4015 does when the reason turns out to be none) */
static void other_way(struct best_effort *b, bool alone, uint32_t number)
{
	if (alone) {
		b->before = b->window > b->threshold ? b->window : b->threshold;
		return;
	}
	b->threshold = b->before;
	b->recover = number + 2 * b->slots;
}

/* The lane that waits for a number, or NULL */
static struct block_lane *waiting(struct best_effort *b, uint32_t number)
{
	struct block_lane *l = &b->lane[number % b->slots];

	return l->state == LANE_IDLE || l->number != number ? NULL : l;
}

/* The sum of a number is here: visible in memory from @t on, without conversion; @alone: to this rank, and no other */
static void result(struct fabric *f, struct member *m, struct block_lane *l, const struct partial *sum, ps_t t, bool alone)
{
	struct best_effort *b = m->state;
	const struct offload_wr *wr = &b->requests.head->wr;
	uint64_t block;

	overdue_over(f, m, l, alone);
	l->state = LANE_IDLE; /* before others are looked at: it waits for nothing any more */
	bool direct = sum->flags & OFF_DIRECT;
	if (direct && !b->alone && !b->server)
		overdue_alone(f, m);
	if (direct != b->alone)
		other_way(b, direct, sum->number);
	b->alone = direct;
	b->slot[sum->number % b->slots] = sum->next_slot;
	b->flying--;
	if (sum->flags & OFF_CONGESTED)
		congested(b, sum->number);
	else
		roomier(b);
	if (best_effort_is_block(b, sum->number, &block)) {
		block_write(m, wr, b->elements, block, b->lead ? b->exponent[block % b->lead] : EXPONENT_ZERO, sum->payload);
		if (b->lead && b->convert_bps) {
			ps_t from = b->convert_rx_free > t ? b->convert_rx_free : t;
			b->convert_rx_free = t = from + block_conversion(m, wr, sum->count, b->convert_bps);
		}
		b->visible = t > b->visible ? t : b->visible;
		b->left--;
	}
	if (b->lead)
		b->exponent[block % b->lead] = sum->next;
	if (b->left)
		best_effort_pump(f, m);
	else
		best_effort_finish(f, m);
}

/* Was to be sent again: too late, the sum is here */
static void unqueue(struct best_effort *b, const struct block_lane *l)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < b->queued; i++) {
		uint32_t lane = b->queue[(b->queue_head + i) % b->slots];
		if (lane != (uint32_t)(l - b->lane))
			b->queue[(b->queue_head + kept++) % b->slots] = lane;
	}
	b->queued = kept;
}

static struct partial of_packet(const struct roce_packet *pkt)
{
	const struct roce_offload *o = &pkt->offload;
	uint16_t marked = (pkt->tos & ECN_CE) == ECN_CE ? OFF_CONGESTED : 0;

	return (struct partial){.number = o->more,
				.ranks = o->offset,
				.count = o->count,
				.flags = o->flags | marked,
				.slot = o->slot,
				.next_slot = o->child,
				.exponent = o->exponent,
				.next = o->next,
				.payload = pkt->payload};
}

/* A partial sum has come to the server */
static bool receive_partial(struct fabric *f, struct member *m, const struct partial *part)
{
	struct best_effort *b = m->state;
	uint32_t ours = b->first + (uint32_t)b->sent;

	/* nobody is further ahead of us than the lanes reach */
	if (!part->ranks || part->ranks & ~b->server->all || part->ranks & 1 ||
	    (int32_t)(part->number - ours) >= (int32_t)b->slots)
		return false;
	ps_t visible = pcie_write(m->nic, f->clock.now, 4u * part->count);
	if (!server_merge(f, m, b->server, part, visible))
		m->nic->duplicate_request++;
	return true;
}

bool best_effort_receive(struct fabric *f, struct member *m, const struct roce_packet *pkt, struct frame *fr)
{
	struct best_effort *b = m->state;
	struct partial part = of_packet(pkt);

	if (part.count > b->elements || pkt->payload_bytes != 4u * part.count)
		return false;
	if (b->server) {
		if (pkt->opcode != OFF_PARTIAL || m->failed || !receive_partial(f, m, &part))
			return false;
		frame_release(f, fr);
		return true;
	}
	if (pkt->opcode != OFF_RESULT || pkt->src_ip != b->server_ip || (part.next_slot >= b->shared && part.next_slot != NO_SLOT))
		return false;
	struct block_lane *l = waiting(b, part.number);
	if (!l || m->failed) {
		m->nic->duplicate_request++;
		frame_release(f, fr);
		return true;
	}
	uint64_t block;
	if (part.count != (best_effort_is_block(b, part.number, &block) ? block_count(&b->requests.head->wr, b->elements, block) : 0))
		return false;
	if (l->state == LANE_READY)
		unqueue(b, l);
	bool alone = pkt->dst_ip == m->nic->ip;
	b->answers = alone ? b->answers + 1 : 0;
	uint64_t under_way = b->packets < b->slots ? b->packets : b->slots;
	result(f, m, l, &part, pcie_write(m->nic, f->clock.now, 4u * part.count), alone);
	frame_release(f, fr);
	if (b->answers > b->retry + under_way / 4) {
		char why[64];
		snprintf(why, sizeof why, "rank %u gets results only when it asks again", m->nic->rank);
		offload_failed(f, m, why);
	}
	return true;
}

/* A block is added up: it goes to all, and the server's rank has it */
void best_effort_added_up(struct fabric *f, struct member *m, uint32_t number)
{
	struct best_effort *b = m->state;
	struct block_lane *l = waiting(b, number);

	server_answer(f, m, b->server, number);
	const struct partial sum = server_partial(server_sum(b->server, number));
	if (l)
		result(f, m, l, &sum, f->clock.now, false);
}
