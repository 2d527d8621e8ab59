/* NIC-side rings: their groups, and what the engines need
 *
 * Theory of Operation
 *
 * DirectReduce: a ring collective whose reduction never enters the host.  Neighbours in
 * the group's order are connected NIC to NIC by reliable queue pairs, whose packets an
 * engine makes and takes (struct qp_owner), so loss, congestion control and flow
 * control are those of any queue pair.  Packet i of hop k + 1 may go as soon as packet i
 * of hop k has come in and was added: a hop costs one packet of pipeline fill.
 *
 * The vector is cut into one chunk per rank, longest first.  All-reduce has n - 1
 * reducing hops, after which rank i holds the sums of chunk i, then n - 1 gathering
 * hops; reduce-scatter and all-gather have one half each.  Only results are written to
 * memory.  Sums are those of a host ring with the same schedule, to the last bit.
 *
 * A vector goes round in passes, each with a part of every chunk, so that the memory it
 * takes does not grow with the vector: sums of a hop wait in the NIC while it still
 * sends the hop before.  Passes, also of different requests, follow each other without a
 * gap: the GateKeeper, the receiving side and the sending side each work at their own
 * oldest unfinished one.  A part is 256 packets, or less if the engine of some rank has
 * not the memory for it; while that takes longer to send than a packet takes to the
 * next neighbour, the cable is never idle.
 *
 * Memory of the engine: slots for two parts and what is under way, the GateKeeper's
 * buffer, as much for results, and an optimizer's arrays.  A ring that does not fit
 * with one packet to a part is refused.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "engine/fabric.h"
#include "link/frame.h"
#include "nic/nic.h"
#include "nic/params.h"
#include "offload/offload.h"
#include "offload/ring/ring.h"
#include "transport/qp.h"
#include "vector/element.h"
#include "wire/roce.h"
#include "worker/services.h"
#include "worker/worker.h"

#define MOST_BYTES (1ull << 34)
#define SPARE_PACKETS 8
#define URGENT 16 /* packets of our own that are to be there before they are sent: more than PCIe takes to answer */
#define UNDER_WAY 256 /* packets that slots are for, if there is memory: sent, and not acknowledged yet */

static uint32_t packet_elements(uint32_t mtu, enum element e, bool compressed)
{
	return compressed ? mtu / (BFP_BLOCK + 1) * BFP_BLOCK : mtu / element_bytes[e];
}

static const char *check(const struct fabric *f, const struct group *g)
{
	const uint64_t *a = g->args;

	(void)f;
	if (a[RING_ELEMENT] >= ELEMENTS || a[RING_COMPRESSION] > 1 || a[RING_OPTIMIZER] >= OPTIMIZERS)
		return "GROUP: ring: unknown element, compression or optimizer";
	if (a[RING_MOST] < 1 || a[RING_MOST] > MOST_BYTES)
		return "GROUP: ring: a vector from 1 byte to 16 GiB";
	if ((a[RING_COMPRESSION] || a[RING_OPTIMIZER]) && a[RING_ELEMENT] != EL_FLOAT32)
		return "GROUP: ring: compression and optimizers are for float32";
	if (a[RING_COMPRESSION] && a[RING_OPTIMIZER])
		return "GROUP: ring: parameters are not compressed: an optimizer or compression, not both";
	return NULL;
}

static uint64_t elements_of(const struct ring_member *r)
{
	return (r->most + element_bytes[r->element] - 1) / element_bytes[r->element];
}

static uint64_t optimizer_bytes(const struct ring_member *r, uint64_t chunk)
{
	return 4 * chunk * optimizer_arrays(r->optimizer);
}

/* What a member of the group would be, as far as it needs no memory; @reason says if the NIC cannot have it */
static struct ring_member plan(struct fabric *f, struct group *g, uint32_t i, uint32_t mtu, char *reason, size_t room)
{
	struct nic *n = g->member[i].nic;
	const struct nic_params *p = &n->p;
	struct ring_member r = {.f = f, .nic = n, .member = &g->member[i], .ranks = g->count, .index = i,
				.element = (enum element)g->args[RING_ELEMENT], .compressed = g->args[RING_COMPRESSION],
				.optimizer = (enum ring_optimizer)g->args[RING_OPTIMIZER], .most = g->args[RING_MOST]};
	uint64_t start;

	r.packet_elements = packet_elements(mtu, r.element, r.compressed);
	r.slot_bytes = ring_wire_bytes(&r, r.packet_elements);
	uint64_t chunk = ring_chunk(&r, elements_of(&r), 0, &start), packets = ring_packets(&r, chunk);
	uint64_t ahead = p->engine_prefetch_bytes / (r.packet_elements * element_bytes[r.element]);
	ahead = ahead < 4 ? 4 : ahead > 65536 ? 65536 : ahead;
	r.own.most = URGENT;
	r.local.most = (uint32_t)ahead;
	uint64_t fixed = 2 * ahead * r.packet_elements * element_bytes[r.element] + optimizer_bytes(&r, chunk);
	uint64_t free_bytes = p->engine_memory_bytes > n->engine_used ? p->engine_memory_bytes - n->engine_used : 0;
	uint64_t fit = free_bytes > fixed ? (free_bytes - fixed) / r.slot_bytes : 0, under_way = p->ack_every + SPARE_PACKETS;

	if (!p->engine_memory_bytes)
		snprintf(reason, room, "the NIC of rank %u has no engine", n->rank);
	else if (fit < under_way + 2)
		snprintf(reason, room, "the engine of rank %u's NIC has %llu of %llu bytes free, at least %llu are needed", n->rank,
			 (unsigned long long)free_bytes, (unsigned long long)p->engine_memory_bytes,
			 (unsigned long long)(fixed + (under_way + 2) * r.slot_bytes));
	else if (n->qp_count + 2 > QPS_MAX)
		snprintf(reason, room, "rank %u has no queue pairs left", n->rank);
	uint64_t most = packets < RING_PASS_PACKETS ? packets : RING_PASS_PACKETS;
	r.pass_packets = fit < under_way + 2 * most ? (uint32_t)(fit - under_way) / 2 : (uint32_t)most;
	most = 2 * r.pass_packets + 2 * p->ack_every + UNDER_WAY;
	r.slots = (uint32_t)(fit < most ? fit : most);
	r.reserved = fixed + (uint64_t)r.slots * r.slot_bytes;
	return r;
}

/* ring_array() - Zeroed memory, be it for nothing */
void *ring_array(size_t n, size_t size)
{
	void *at = calloc(n ? n : 1, size);

	if (!at)
		abort();
	return at;
}

static uint32_t power_of_two(uint32_t least)
{
	uint32_t n = 2;

	while (n < least)
		n *= 2;
	return n;
}

static const struct qp_owner_ops owner_ops;

static struct ring_member *member_new(const struct ring_member *planned)
{
	struct ring_member *r = ring_array(1, sizeof *r);
	uint64_t start;

	*r = *planned;
	r->owner.ops = &owner_ops;
	r->nic->engine_used += r->reserved;
	r->memory = ring_array(r->slots, r->slot_bytes);
	r->own.room = power_of_two(r->slots);
	r->local.room = power_of_two(r->local.most);
	r->own.at = ring_array(r->own.room, sizeof *r->own.at);
	r->local.at = ring_array(r->local.room, sizeof *r->local.at);
	r->result_room = power_of_two(r->local.most);
	r->result = ring_array(r->result_room, sizeof *r->result);
	r->read_due = r->write_due = PS_NEVER;
	r->arrival_room = power_of_two(r->slots + 64);
	r->arrival = ring_array(r->arrival_room, sizeof *r->arrival);
	r->scratch = ring_array(r->packet_elements, sizeof *r->scratch);
	r->scratch_out = ring_array(r->slot_bytes, 1);
	uint64_t chunk = ring_chunk(r, elements_of(r), r->index, &start);
	if (r->optimizer)
		r->parameters = ring_array(chunk, sizeof(float));
	for (uint32_t i = 0; i + 1 < optimizer_arrays(r->optimizer); i++)
		r->state[i] = ring_array(chunk, sizeof(float));
	r->member->state = r;
	return r;
}

static const char *group_opened(struct fabric *f, struct group *g)
{
	uint32_t mtu = UINT32_MAX, pass_packets = UINT32_MAX;

	for (uint32_t i = 0; i < g->count; i++)
		mtu = g->member[i].nic->mtu < mtu ? g->member[i].nic->mtu : mtu;
	for (uint32_t i = 0; i < g->count && !g->reason[0]; i++) {
		struct ring_member planned = plan(f, g, i, mtu, g->reason, sizeof g->reason);
		pass_packets = planned.pass_packets < pass_packets ? planned.pass_packets : pass_packets;
	}
	if (g->reason[0])
		return g->reason;
	for (uint32_t i = 0; i < g->count; i++) {
		struct ring_member planned = plan(f, g, i, mtu, g->reason, sizeof g->reason);
		planned.pass_packets = pass_packets; /* the same for all: they count alike */
		member_new(&planned);
	}
	for (uint32_t i = 0; i < g->count; i++)
		ring_connect(f, g->member[i].state, g->member[(i + 1) % g->count].state);
	return NULL;
}

static const char *check_wr(const struct member *m, const struct offload_wr *wr)
{
	const struct ring_member *r = m->state;
	uint32_t size = element_bytes[r->element];
	struct worker *w = m->nic->worker;

	if (wr->collective >= RING_COLLECTIVES || wr->element != r->element || !reduction_fits(wr->reduction, r->element) || wr->flags)
		return "POST_OFFLOAD: ring: unknown collective, reduction or flag, or not the group's element";
	if (!wr->count || wr->count > r->most / size)
		return "POST_OFFLOAD: ring: no elements, or more than the group was made for";
	if (wr->in % size || wr->out % size)
		return "POST_OFFLOAD: ring: a vector that is not aligned to its elements";
	if (!worker_region(w, wr->in_key, wr->in, wr->count * size) || !worker_region(w, wr->out_key, wr->out, wr->count * size))
		return "POST_OFFLOAD: unknown key, or range outside its region";
	if (r->compressed && wr->collective == RING_ALL_GATHER)
		return "POST_OFFLOAD: ring: all-gather is not compressed";
	if (wr->collective == RING_LOAD && (!r->optimizer || r->passes))
		return "POST_OFFLOAD: ring: load: there is no optimizer, or it is at work";
	if (r->optimizer && (wr->count != r->most / size || wr->collective == RING_ALL_GATHER ||
			     wr->collective == RING_REDUCE_SCATTER || !optimizer_args_good(r->optimizer, wr)))
		return "POST_OFFLOAD: ring: an optimizer takes the group's whole vector, and arguments that are numbers";
	if (r->requests >= RING_REQUESTS_MAX)
		return "POST_OFFLOAD: ring: more than 64 requests";
	return NULL;
}

static void event(struct fabric *f, struct member *m, ps_t t, uint64_t what)
{
	(void)f;
	(void)t;
	(void)what;
	ring_advance(m->state);
}

static void member_free(struct ring_member *r)
{
	ring_part_with(r);
	while (r->passes) {
		struct ring_pass *q = r->passes;
		r->passes = q->next;
		free(q);
	}
	free(r->memory);
	free(r->own.at);
	free(r->local.at);
	free(r->arrival);
	free(r->result);
	free(r->scratch);
	free(r->scratch_out);
	free(r->parameters);
	free(r->state[0]);
	free(r->state[1]);
	free(r);
}

static bool drained(const struct qp *q)
{
	return q->state == QP_ERROR || q->acked == q->next_packet;
}

/* The right neighbour has acknowledged something: slots are free */
static void acked(struct fabric *f, struct qp *q)
{
	struct ring_member *r = (struct ring_member *)q->owner;

	(void)f;
	if (!r->member) {
		if (drained(q))
			member_free(r);
		return;
	}
	ring_admit(r);
	gate_read_ahead(r);
	ring_settle(r);
}

static void sent(struct fabric *f, struct qp *q, const struct send_wr *wr, enum wc_status status)
{
	struct ring_member *r = (struct ring_member *)q->owner;
	char why[128];

	(void)wr;
	if (status == WC_SUCCESS || !r->member)
		return;
	snprintf(why, sizeof why, "rank %u does not acknowledge what rank %u's NIC sends", q->peer->rank, r->nic->rank);
	offload_failed(f, r->member, why);
}

static void release(struct qp *q)
{
	struct ring_member *r = (struct ring_member *)q->owner;

	if (q == r->right)
		r->right = NULL;
	else
		r->left = NULL;
	if (!r->right && !r->left)
		member_free(r);
}

static const struct qp_owner_ops owner_ops = {
	.in_nic = true, .payload = gate_payload, .sent = sent, .take = director_take, .acked = acked, .release = release};

/* The members have left.  What has been taken but not acknowledged yet still is; a ring left in mid-work is cut. */
static void group_closed(struct fabric *f, struct group *g)
{
	(void)f;
	for (uint32_t i = 0; i < g->count; i++) {
		struct ring_member *r = g->member[i].state;
		r->member = NULL;
		r->nic->engine_used -= r->reserved;
		if (r->right->peer_qp->expected != r->right->next_packet && r->right->acked != r->right->next_packet)
			r->right->state = r->right->peer_qp->state = QP_ERROR;
	}
	for (uint32_t i = 0; i < g->count; i++) {
		struct ring_member *r = g->member[i].state;
		if (drained(r->right))
			member_free(r);
	}
}

/* Its packets are queue pairs' */
static bool receive(struct fabric *f, struct member *m, const struct roce_packet *pkt, struct frame *fr)
{
	(void)f;
	(void)m;
	(void)pkt;
	(void)fr;
	return false;
}

static const struct offload_ops ring = {
	.name = "ring",
	.check = check,
	.open = group_opened,
	.check_wr = check_wr,
	.post = ring_post,
	.receive = receive,
	.due = ring_due,
	.event = event,
	.close = group_closed,
};
OFFLOAD_KIND(ring);
