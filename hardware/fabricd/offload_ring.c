/* NIC-side rings: groups and their requests
 *
 * Theory of Operation
 *
 * DirectReduce: a ring collective whose reduction never enters the host.  Neighbours in
 * the group's order are connected NIC to NIC by reliable queue pairs, whose packets an
 * engine makes and takes (struct qp_engine), so loss, congestion control and flow
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
#include "offload_ring.h"

#include <stdlib.h>
#include <string.h>

#define MOST_BYTES (1ull << 34)
#define SPARE_PACKETS 8
#define URGENT 16 /* packets of our own that are to be there before they are sent: more than PCIe takes to answer */
#define UNDER_WAY 256 /* packets that slots are for, if there is memory: sent, and not acknowledged yet */

/* ring_chunk() - Length and start of a chunk, in elements */
uint64_t ring_chunk(const struct ring_member *r, uint64_t count, uint32_t chunk, uint64_t *start)
{
	uint64_t each = count / r->ranks, more = count % r->ranks;

	*start = each * chunk + (chunk < more ? chunk : more);
	return each + (chunk < more);
}

/* ring_part() - Length and start of a chunk's part in a pass, in elements */
uint64_t ring_part(const struct ring_member *r, const struct ring_pass *q, uint32_t chunk, uint64_t *start)
{
	uint64_t length = ring_chunk(r, q->wr.count, chunk, start), most = (uint64_t)r->pass_packets * r->packet_elements;
	uint64_t left = length > q->part ? length - q->part : 0;

	*start += q->part < length ? q->part : length;
	return left < most ? left : most;
}

/* ring_sends() - The chunk that a hop sends to the right */
uint32_t ring_sends(const struct ring_member *r, const struct ring_pass *q, uint32_t hop)
{
	uint32_t back = hop < q->reducing ? hop + 1 : hop - q->reducing;

	return (r->index + r->ranks - back) % r->ranks;
}

/* ring_receives() - The chunk that it receives from the left: that of the next hop, if there is one */
uint32_t ring_receives(const struct ring_member *r, const struct ring_pass *q, uint32_t hop)
{
	return (ring_sends(r, q, hop) + r->ranks - 1) % r->ranks;
}

/* ring_packets() - Packets of a chunk: one at least */
uint64_t ring_packets(const struct ring_member *r, uint64_t elements)
{
	return elements ? (elements + r->packet_elements - 1) / r->packet_elements : 1;
}

/* ring_wire_bytes() - What a packet's elements take on the wire */
uint32_t ring_wire_bytes(const struct ring_member *r, uint32_t elements)
{
	return r->compressed ? bfp_bytes(elements) : elements * element_bytes[r->element];
}

/* ring_memory() - The worker's memory, or NULL if it has gone */
uint8_t *ring_memory(const struct ring_member *r, uint32_t key, uint64_t at, uint64_t bytes)
{
	struct region *g = worker_region(r->nic->worker, key, at, bytes);

	return g ? g->base + at : NULL;
}

/* ring_later() - Look again at @t */
void ring_later(struct ring_member *r, ps_t t)
{
	if (r->member)
		offload_later(r->f, r->member, t, (uint64_t)t);
}

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

static void *array(size_t n, size_t size)
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

static const struct qp_engine_ops engine_ops;

static struct ring_member *member_new(const struct ring_member *planned)
{
	struct ring_member *r = array(1, sizeof *r);
	uint64_t start;

	*r = *planned;
	r->engine.ops = &engine_ops;
	r->nic->engine_used += r->reserved;
	r->memory = array(r->slots, r->slot_bytes);
	r->own.room = power_of_two(r->slots);
	r->local.room = power_of_two(r->local.most);
	r->own.at = array(r->own.room, sizeof *r->own.at);
	r->local.at = array(r->local.room, sizeof *r->local.at);
	r->result_room = power_of_two(r->local.most);
	r->result = array(r->result_room, sizeof *r->result);
	r->read_due = r->write_due = PS_NEVER;
	r->arrival_room = power_of_two(r->slots + 64);
	r->arrival = array(r->arrival_room, sizeof *r->arrival);
	r->scratch = array(r->packet_elements, sizeof *r->scratch);
	r->scratch_out = array(r->slot_bytes, 1);
	uint64_t chunk = ring_chunk(r, elements_of(r), r->index, &start);
	if (r->optimizer)
		r->parameters = array(chunk, sizeof(float));
	for (uint32_t i = 0; i + 1 < optimizer_arrays(r->optimizer); i++)
		r->state[i] = array(chunk, sizeof(float));
	r->member->state = r;
	return r;
}

static const uint8_t *spent_payload(struct fabric *f, struct qp *q, uint64_t n)
{
	(void)f;
	(void)q;
	(void)n;
	return NULL;
}

static enum engine_verdict spent_take(struct fabric *f, struct qp *q, const struct roce_packet *pkt)
{
	(void)f;
	(void)q;
	(void)pkt;
	return ENGINE_REFUSED;
}

static void nothing(struct fabric *f, struct qp *q)
{
	(void)f;
	(void)q;
}

static void nothing_to_release(struct qp *q)
{
	(void)q;
}

/* Of the queue pairs of a ring that has ended: they acknowledge what they have taken, and no more */
static const struct qp_engine_ops spent_ops = {
	.payload = spent_payload, .take = spent_take, .acked = nothing, .failed = nothing, .release = nothing_to_release};
static struct qp_engine spent = {.ops = &spent_ops};

/* A queue pair to that NIC that a ring before has left behind with nothing to do, or NULL */
static struct qp *idle_qp(struct nic *from, const struct nic *to)
{
	for (uint32_t i = 0; i < from->qp_count; i++) {
		struct qp *q = from->qps[i];
		if (q->engine == &spent && q->peer == to && q->state == QP_READY && q->acked == q->next_packet && q->next_packet &&
		    q->peer_qp->engine == &spent && q->peer_qp->state == QP_READY)
			return q;
	}
	return NULL;
}

static struct qp *new_qp(struct fabric *f, struct nic *from, struct nic *to)
{
	struct qp *a = qp_new(from), *b = qp_new(to);

	if (!a || !b)
		abort();
	a->connect_peer = to->rank;
	b->connect_peer = from->rank;
	a->no_scale_up = b->no_scale_up = true; /* from NIC to NIC */
	qp_connected(f, a, b);
	return a;
}

static void connect(struct fabric *f, struct ring_member *from, struct ring_member *to)
{
	struct qp *a = idle_qp(from->nic, to->nic);

	a = a ? a : new_qp(f, from->nic, to->nic);
	a->mtu = a->peer_qp->mtu = from->slot_bytes;
	a->made = a->next_packet;
	from->right = a;
	to->left = a->peer_qp;
	a->engine = &from->engine;
	a->peer_qp->engine = &to->engine;
}

static const char *open(struct fabric *f, struct group *g)
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
		connect(f, g->member[i].state, g->member[(i + 1) % g->count].state);
	return NULL;
}

static const char *check_wr(const struct member *m, const struct offload_wr *wr)
{
	const struct ring_member *r = m->state;
	uint32_t size = element_bytes[r->element];
	struct worker *w = m->nic->worker;

	if (wr->collective >= RING_COLLECTIVES || wr->element != r->element || wr->reduction >= REDUCTIONS || wr->flags)
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

/* How many packets go each way */
static void measure(const struct ring_member *r, struct ring_pass *q)
{
	uint64_t start;

	if (!q->hops)
		return;
	q->own = ring_packets(r, ring_part(r, q, ring_sends(r, q, 0), &start));
	q->sends = q->own;
	for (uint32_t hop = 0; hop < q->hops; hop++) {
		uint64_t n = ring_packets(r, ring_part(r, q, ring_receives(r, q, hop), &start));
		q->receives += n;
		q->sends += hop + 1 < q->hops ? n : 0;
	}
}

/* Take our part of the parameters into the NIC's memory */
static void load(struct ring_member *r, struct ring_pass *q)
{
	uint64_t start, chunk = ring_chunk(r, q->wr.count, r->index, &start);
	const uint8_t *from = ring_memory(r, q->wr.in_key, q->wr.in + 4 * start, 4 * chunk);

	if (from)
		memcpy(r->parameters, from, 4 * chunk);
	for (uint32_t i = 0; i + 1 < optimizer_arrays(r->optimizer); i++)
		memset(r->state[i], 0, 4 * chunk);
	q->visible = r->f->clock.now + r->nic->p.pcie_latency;
	for (uint64_t left = chunk; left; left -= left < r->packet_elements ? left : r->packet_elements)
		q->visible = pcie_read(r->nic, r->f->clock.now, 4 * (uint32_t)(left < r->packet_elements ? left : r->packet_elements));
}

/* ring_next() - The next pass that sends and receives */
struct ring_pass *ring_next(const struct ring_pass *q)
{
	struct ring_pass *next = q->next;

	while (next && !next->hops)
		next = next->next;
	return next;
}

/* ring_admit() - Hand the messages of passes to the queue pair, as many as it takes */
void ring_admit(struct ring_member *r)
{
	struct ring_pass *q = r->passes;
	uint64_t start;

	while (q && q->admitted)
		q = q->next;
	for (; q && r->right->sq.tail - r->right->sq.head + q->hops <= WRS_MAX; q = q->next) {
		q->admitted = true;
		q->base = r->right->next_packet;
		if (!q->hops)
			load(r, q);
		for (uint32_t hop = 0; hop < q->hops; hop++) {
			uint64_t n = ring_part(r, q, ring_sends(r, q, hop), &start);
			uint64_t whole = n / r->packet_elements, rest = n % r->packet_elements;
			qp_post_send(r->f, r->right,
				     &(struct send_wr){.opcode = WR_SEND,
						       .length = whole * r->slot_bytes + ring_wire_bytes(r, (uint32_t)rest)});
		}
	}
}

static void pass_new(struct ring_member *r, const struct offload_wr *wr, uint64_t part, bool last)
{
	struct ring_pass *q = array(1, sizeof *q), **at = &r->passes;
	uint32_t half = r->ranks - 1;

	q->wr = *wr;
	q->part = part;
	q->last = last;
	q->reducing = wr->collective == RING_ALL_REDUCE || wr->collective == RING_REDUCE_SCATTER ? half : 0;
	q->hops = q->reducing + (wr->collective == RING_ALL_REDUCE || wr->collective == RING_ALL_GATHER ? half : 0);
	q->visible = r->f->clock.now;
	measure(r, q);
	while (*at)
		at = &(*at)->next;
	*at = q;
	if (!r->own_of && q->hops)
		r->own_of = q;
	if (!r->local_of && q->hops)
		r->local_of = q;
	if (!r->receiving && q->hops)
		r->receiving = q;
	if (!r->sending && q->hops)
		r->sending = q;
}

static void post(struct fabric *f, struct member *m, const struct offload_wr *wr)
{
	struct ring_member *r = m->state;
	uint64_t start, chunk = ring_chunk(r, wr->count, 0, &start), each = (uint64_t)r->pass_packets * r->packet_elements;

	(void)f;
	r->requests++;
	for (uint64_t part = 0; part < chunk; part += each) {
		bool last = part + each >= chunk || wr->collective == RING_LOAD;
		pass_new(r, wr, part, last);
		if (last)
			break;
	}
	ring_admit(r);
	ring_advance(r);
}

static void say_done(struct ring_member *r, struct ring_pass *q)
{
	q->said = true;
	r->visible = q->visible > r->visible ? q->visible : r->visible;
	if (!q->last)
		return;
	r->requests--;
	if (r->member && !r->member->failed)
		offload_done(r->f, r->member, q->wr.wr_id, WC_SUCCESS, q->wr.count * element_bytes[r->element], r->visible);
	r->visible = 0;
}

/* Tell the worker what is done; forget what has also been sent */
static void settle(struct ring_member *r)
{
	for (struct ring_pass *q = r->passes; q && q->admitted; q = q->next) {
		if (q->said)
			continue;
		if (q->own_ready < q->own || q->worked < q->receives)
			break;
		say_done(r, q);
	}
	while (r->passes && r->passes->said && r->right->sent_max >= r->passes->base + r->passes->sends) {
		struct ring_pass *q = r->passes;
		r->passes = q->next;
		free(q);
	}
}

/* ring_advance() - Something has happened: let every part do what it can */
void ring_advance(struct ring_member *r)
{
	gate_own_ready(r);
	engine_done(r);
	result_write(r);
	gate_read_ahead(r);
	engine_give(r);
	gate_open(r);
	settle(r);
}

static void event(struct fabric *f, struct member *m, ps_t t, uint64_t what)
{
	(void)f;
	(void)t;
	(void)what;
	ring_advance(m->state);
}

/* Has something been waiting for that time? */
static bool due(const struct member *m, uint64_t what)
{
	const struct ring_member *r = m->state;
	const struct ring_read *own = &r->own.at[r->own.head % r->own.room];
	const struct ring_arrival *a = &r->arrival[r->arrival_head % r->arrival_room];

	return (r->own.head != r->own.tail && own->t <= (ps_t)what) ||
	       (r->arrival_head != r->arrival_given && a->t <= (ps_t)what) ||
	       r->write_due <= (ps_t)what || r->read_due <= (ps_t)what;
}

static void member_free(struct ring_member *r)
{
	if (r->right)
		r->right->engine = &spent;
	if (r->left)
		r->left->engine = &spent;
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
	struct ring_member *r = (struct ring_member *)q->engine;

	(void)f;
	if (!r->member) {
		if (drained(q))
			member_free(r);
		return;
	}
	ring_admit(r);
	gate_read_ahead(r);
	settle(r);
}

static void failed(struct fabric *f, struct qp *q)
{
	struct ring_member *r = (struct ring_member *)q->engine;

	char why[128];

	if (!r->member)
		return;
	snprintf(why, sizeof why, "rank %u does not acknowledge what rank %u's NIC sends", q->peer->rank, r->nic->rank);
	offload_failed(f, r->member, why);
}

static void release(struct qp *q)
{
	struct ring_member *r = (struct ring_member *)q->engine;

	if (q == r->right)
		r->right = NULL;
	else
		r->left = NULL;
	if (!r->right && !r->left)
		member_free(r);
}

static const struct qp_engine_ops engine_ops = {
	.payload = gate_payload, .take = director_take, .acked = acked, .failed = failed, .release = release};

/* The members have left.  What has been taken but not acknowledged yet still is; a ring left in mid-work is cut. */
static void close(struct fabric *f, struct group *g)
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

const struct offload_ops ring_ops = {
	.name = "ring",
	.check = check,
	.open = open,
	.check_wr = check_wr,
	.post = post,
	.receive = receive,
	.due = due,
	.event = event,
	.close = close,
};
