/* In-network aggregation: the rank's end
 *
 * Theory of Operation
 *
 * A vector is cut into blocks of `elements`, which go through the slots in turn; the
 * next request's begin at the slot behind.  Every slot is a conversation of its own: the
 * block's contribution goes to the accelerator, its result comes back and clocks out the
 * slot's next block, or the next request's, with the next number of use (SwitchML,
 * algorithm 4).  When no result comes for `timeout`, the contribution goes again; after
 * `retry` such times the accelerator is given up, and all members are told.  So are they
 * when results come to a rank only as answers to what it has sent again: then nothing
 * copies them.
 *
 * Floating-point sums travel as fixed point (offload/block.c), whose exponent the ranks
 * have to agree on.  It is learnt one block ahead: each contribution carries the exponent
 * of the slot's next block, each result the maximum.  So every slot begins with a
 * contribution without elements.
 *
 * Conversion is the host's work (its vector units), at `convert_bps`; it runs ahead of
 * the NIC in one direction and behind it in the other.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "engine/fabric.h"
#include "link/frame.h"
#include "nic/nic.h"
#include "offload/block.h"
#include "offload/offload.h"
#include "offload/requests.h"
#include "transport/qp.h"
#include "vector/element.h"
#include "wire/ip.h"
#include "wire/roce.h"
#include "worker/services.h"

enum args { ARG_SLOTS, ARG_ELEMENTS, ARG_TIMEOUT_PS, ARG_RETRY, ARG_CONVERT_BPS };

enum slot_state { SLOT_IDLE, SLOT_READY, SLOT_WAITING };

struct aslot {
	enum slot_state state;
	uint32_t use, retries;
	struct request *request; /* NULL: none */
	uint64_t block;		 /* BLOCK_NONE: only the exponent */
	int16_t exponent, next;
};
#define BLOCK_NONE UINT64_MAX

struct aggregate {
	uint32_t slots, elements, parent_ip;
	uint16_t child;
	ps_t timeout;
	uint32_t retry;
	double convert_bps;
	struct requests requests;
	uint32_t answers; /* answers: results in a row that came to this rank alone */
	uint32_t first;			     /* slot of the next request's first block */
	uint32_t *queue, queue_head, queued; /* slots that are ready to be sent */
	struct aslot slot[];
};

static const char *check(const struct fabric *f, const struct group *g)
{
	(void)f;
	if (g->args[ARG_SLOTS] < 1 || g->args[ARG_SLOTS] > 65535)
		return "GROUP: aggregate: slots from 1 to 65535";
	if (g->args[ARG_ELEMENTS] < 1 || g->args[ARG_ELEMENTS] > BLOCK_ELEMENTS_MAX)
		return "GROUP: aggregate: elements from 1 to 2250";
	if (g->args[ARG_TIMEOUT_PS] < 1000 || g->args[ARG_TIMEOUT_PS] > (uint64_t)PS_PER_S || g->args[ARG_RETRY] > 1000)
		return "GROUP: aggregate: timeout from 1 ns to 1 s, retry up to 1000";
	return g->args[ARG_CONVERT_BPS] <= 1000000000000000ull ? NULL : "GROUP: aggregate: convert_bps up to 1e15";
}

static const char *group_opened(struct fabric *f, struct group *g)
{
	const json_t *slots = group_granted(g, "slots"), *parents = group_granted(g, "parents");
	uint32_t n = (uint32_t)json_integer_value(slots);

	(void)f;
	if (n < 1 || n > g->args[ARG_SLOTS] || json_array_size(parents) != g->count)
		return "the controller's answer is not one";
	for (uint32_t i = 0; i < g->count; i++) {
		const json_t *parent = json_array_get(parents, i);
		struct aggregate *a = calloc(1, sizeof *a + n * sizeof(struct aslot));
		if (!a || !(a->queue = calloc(n, sizeof *a->queue)))
			abort();
		a->slots = n;
		a->elements = (uint32_t)g->args[ARG_ELEMENTS];
		a->parent_ip = (uint32_t)json_integer_value(json_array_get(parent, 0));
		a->child = (uint16_t)json_integer_value(json_array_get(parent, 1));
		a->timeout = (ps_t)g->args[ARG_TIMEOUT_PS];
		a->retry = (uint32_t)g->args[ARG_RETRY];
		a->convert_bps = (double)g->args[ARG_CONVERT_BPS];
		g->member[i].state = a;
	}
	return NULL;
}

static const char *check_wr(const struct member *m, const struct offload_wr *wr)
{
	const struct aggregate *a = m->state;

	return a->requests.count == REQUESTS_MAX ? "POST_OFFLOAD: aggregate: more than 64 requests" : block_check(m, wr);
}

/* Elements of a slot's block */
static uint32_t count_of(const struct aggregate *a, const struct aslot *s)
{
	return s->block == BLOCK_NONE ? 0 : block_count(&s->request->wr, a->elements, s->block);
}

/* Who alone wants the sum of a slot's block (0: all do) */
static uint32_t owner_of(const struct member *m, const struct aslot *s)
{
	const struct aggregate *a = m->state;

	return s->block == BLOCK_NONE ? 0 : block_owner(m, &s->request->wr, a->elements, s->block);
}

static uint64_t blocks_of(const struct aggregate *a, const struct request *r)
{
	return (r->wr.count + a->elements - 1) / a->elements;
}

static void ready(struct fabric *f, struct member *m, uint32_t slot)
{
	struct aggregate *a = m->state;

	a->slot[slot].state = SLOT_READY;
	a->queue[(a->queue_head + a->queued++) % a->slots] = slot;
	nic_tx_ready(f, &m->nic->tx[0], &m->source);
}

#define WHAT(slot, use, timer) ((uint64_t)(timer) << 63 | (uint64_t)(slot) << 32 | (use))

/* The host converts a block, then its contribution can go */
static void convert(struct fabric *f, struct member *m, uint32_t slot)
{
	struct aggregate *a = m->state;
	struct aslot *s = &a->slot[slot];

	if (!a->convert_bps || element_is_integer(s->request->wr.element) || s->block == BLOCK_NONE) {
		ready(f, m, slot);
		return;
	}
	ps_t from = m->nic->converts_out > f->clock.now ? m->nic->converts_out : f->clock.now;
	m->nic->converts_out = from + block_conversion(m, &s->request->wr, count_of(a, s), a->convert_bps);
	offload_later(f, m, m->nic->converts_out, WHAT(slot, s->use, 0));
}

/* The first block of a request that goes through a slot, if it has so many */
static uint32_t first_of(const struct aggregate *a, const struct request *r, uint32_t slot)
{
	return (slot + a->slots - r->first) % a->slots;
}

/* A slot that is free begins a request, or the first one behind it that has a block for the slot */
static void begin(struct fabric *f, struct member *m, uint32_t slot, struct request *r)
{
	struct aggregate *a = m->state;
	struct aslot *s = &a->slot[slot];

	while (r && first_of(a, r, slot) >= blocks_of(a, r))
		r = r->next;
	s->request = r;
	if (!r)
		return;
	s->block = block_is_scaled(&r->wr) ? BLOCK_NONE : first_of(a, r, slot);
	s->exponent = EXPONENT_ZERO;
	s->next = block_exponent(m, &r->wr, a->elements, first_of(a, r, slot));
	s->retries = 0;
	convert(f, m, slot);
}

static void post(struct fabric *f, struct member *m, const struct offload_wr *wr)
{
	struct aggregate *a = m->state;

	requests_add(&a->requests, wr);
	struct request *r = a->requests.tail;
	r->first = a->first;
	r->left = blocks_of(a, r);
	r->visible = f->clock.now;
	for (uint32_t i = 0; i < a->slots && i < r->left && !m->failed; i++)
		if (!a->slot[(r->first + i) % a->slots].request)
			begin(f, m, (r->first + i) % a->slots, r);
	a->first = (uint32_t)((a->first + r->left) % a->slots);
}

static bool has_packet(const struct fabric *f, const struct tx_source *source)
{
	const struct member *m = (const struct member *)source;
	const struct aggregate *a = m->state;

	(void)f;
	return a->queued && !m->failed && !m->left;
}

static void none(struct fabric *f, struct tx_source *source)
{
	(void)f;
	(void)source;
}

static uint32_t build(struct fabric *f, struct tx_source *source, struct frame *fr)
{
	struct member *m = (struct member *)source;
	struct aggregate *a = m->state;
	struct nic *n = m->nic;
	uint32_t slot = a->queue[a->queue_head];
	struct aslot *s = &a->slot[slot];
	uint32_t count = count_of(a, s);
	int32_t payload[BLOCK_ELEMENTS_MAX];
	struct roce_packet pkt = {
		.src_ip = n->ip,
		.dst_ip = a->parent_ip,
		.src_port = roce_job_port(m->group->id),
		.tos = (uint8_t)(n->p.data_dscp << 2 | ECN_ECT0),
		.ttl = TTL_SENT,
		.opcode = OFF_CONTRIBUTE,
		.dst_qp = m->group->id,
		.psn = s->use & PSN_MASK,
		.offload = {.offset = count ? s->block * a->elements : BLOCK_NONE,
			    .slot = (uint16_t)slot,
			    .child = a->child,
			    .count = (uint16_t)count,
			    .exponent = s->exponent,
			    .next = s->next,
			    .flags = s->request->wr.reduction & OFF_REDUCTION,
			    .more = owner_of(m, s)},
		.payload = (const uint8_t *)payload,
		.payload_bytes = 4 * count,
	};

	a->queue_head = (a->queue_head + 1) % a->slots;
	a->queued--;
	if (count)
		block_read(m, &s->request->wr, a->elements, s->block, s->exponent, payload);
	mac_of(pkt.dst_ip, pkt.dst_mac);
	memcpy(pkt.src_mac, n->mac, 6);
	frame_grow(f, fr);
	fr->len = roce_build(fr->data, f->frame_room - TRAILER_BYTES, &pkt);
	fr->class = (uint8_t)n->p.data_class;
	fr->data_of_worker = true;
	if (s->state == SLOT_READY && s->retries)
		n->retransmitted++;
	s->state = SLOT_WAITING;
	offload_later(f, m, f->clock.now + a->timeout, WHAT(slot, s->use, 1));
	return 4 * count;
}

static const struct tx_ops tx_ops = {.has_packet = has_packet, .build = build, .none = none};

/* The sums of a block have come: into memory, as what the worker wants */
static void write_out(struct fabric *f, struct member *m, const struct aslot *s, const struct roce_packet *pkt)
{
	struct aggregate *a = m->state;
	struct request *r = s->request;
	const struct offload_wr *wr = &r->wr;
	uint32_t count = pkt->offload.count;

	r->left--;
	if (!count) { /* for somebody else */
		r->visible = f->clock.now > r->visible ? f->clock.now : r->visible;
		return;
	}
	block_write(m, wr, a->elements, s->block, s->exponent, pkt->payload);
	ps_t visible = pcie_write(m->nic, f->clock.now, 4 * count);
	if (a->convert_bps && !element_is_integer(wr->element)) {
		ps_t from = m->nic->converts_in > visible ? m->nic->converts_in : visible;
		m->nic->converts_in = visible = from + block_conversion(m, wr, count, a->convert_bps);
	}
	r->visible = visible > r->visible ? visible : r->visible;
}

/* Tell of the requests that are done, in their order */
static void finish(struct fabric *f, struct member *m)
{
	struct aggregate *a = m->state;
	ps_t visible = 0;

	while (a->requests.head && !a->requests.head->left) {
		const struct request *r = a->requests.head;
		visible = r->visible > visible ? r->visible : visible;
		offload_done(f, m, r->wr.wr_id, WC_SUCCESS, r->wr.count * element_bytes[r->wr.element], visible);
		requests_drop(&a->requests);
	}
}

static bool receive(struct fabric *f, struct member *m, const struct roce_packet *pkt, struct frame *fr)
{
	struct aggregate *a = m->state;
	const struct roce_offload *o = &pkt->offload;

	if (pkt->opcode != OFF_RESULT || o->slot >= a->slots || pkt->payload_bytes != 4u * o->count)
		return false;
	struct aslot *s = &a->slot[o->slot];
	if (s->state == SLOT_IDLE || pkt->psn != (s->use & PSN_MASK) || m->failed) {
		m->nic->duplicate_request++;
		frame_release(f, fr);
		return true;
	}
	uint32_t due = count_of(a, s), owner = owner_of(m, s);
	bool elsewhere = owner && !o->count; /* the sum is for somebody else, or on another way here */
	if (!elsewhere && o->count != due)
		return false;
	if (elsewhere && owner == m->nic->ip) {
		frame_release(f, fr);
		return true;
	}
	if (s->state == SLOT_READY) { /* was to be sent again: too late, the result is here */
		uint32_t kept = 0;
		for (uint32_t i = 0; i < a->queued; i++) {
			uint32_t slot = a->queue[(a->queue_head + i) % a->slots];
			if (slot != o->slot)
				a->queue[(a->queue_head + kept++) % a->slots] = slot;
		}
		a->queued = kept;
	}
	a->answers = pkt->dst_ip == m->nic->ip && owner != m->nic->ip ? a->answers + 1 : 0;
	s->state = SLOT_IDLE;
	s->use++;
	s->retries = 0;
	if (due)
		write_out(f, m, s, pkt);
	uint64_t blocks = blocks_of(a, s->request);
	s->block = s->block == BLOCK_NONE ? first_of(a, s->request, o->slot) : s->block + a->slots;
	s->exponent = o->next;
	if (s->block < blocks) {
		s->next = block_exponent(m, &s->request->wr, a->elements, s->block + a->slots);
		convert(f, m, o->slot);
	} else {
		begin(f, m, o->slot, s->request->next);
	}
	frame_release(f, fr);
	finish(f, m);
	uint64_t under_way = a->slots < blocks ? a->slots : blocks;
	if (a->answers > a->retry + under_way / 4) { /* not by chance, as after losses */
		char why[64];
		snprintf(why, sizeof why, "rank %u gets results only when it asks again", m->nic->rank);
		offload_failed(f, m, why);
	}
	return true;
}

static bool due(const struct member *m, uint64_t what)
{
	const struct aggregate *a = m->state;
	const struct aslot *s = &a->slot[what >> 32 & 0x7fffffff];

	return !m->failed && !m->left && s->use == (uint32_t)what && (!(what >> 63) || s->state == SLOT_WAITING);
}

static void event(struct fabric *f, struct member *m, ps_t t, uint64_t what)
{
	struct aggregate *a = m->state;
	uint32_t slot = (uint32_t)(what >> 32 & 0x7fffffff);
	bool timer = what >> 63;

	(void)t;
	if (!due(m, what))
		return;
	m->nic->timeouts += timer;
	if (!timer || a->slot[slot].retries++ < a->retry) {
		ready(f, m, slot);
		return;
	}
	char why[64];
	snprintf(why, sizeof why, "no accelerator answers rank %u", m->nic->rank);
	offload_failed(f, m, why);
}

static void group_closed(struct fabric *f, struct group *g)
{
	for (uint32_t i = 0; i < g->count; i++) {
		struct aggregate *a = g->member[i].state;
		(void)f;
		requests_free(&a->requests);
		free(a->queue);
		free(a);
	}
}

static const struct offload_ops aggregate = {
	.name = "aggregate",
	.asks = true,
	.tx = &tx_ops,
	.check = check,
	.open = group_opened,
	.check_wr = check_wr,
	.post = post,
	.receive = receive,
	.due = due,
	.event = event,
	.close = group_closed,
};
OFFLOAD_KIND(aggregate);
