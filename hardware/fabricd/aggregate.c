/* In-network aggregation: the rank's end
 *
 * Theory of Operation
 *
 * A vector is cut into blocks of `elements`; block i goes through slot i mod slots.
 * Every slot is a conversation of its own: the block's contribution goes to the
 * accelerator, its result comes back and clocks out the slot's next block, with the
 * next number of use (SwitchML, algorithm 4).  When no result comes for `timeout`, the
 * contribution goes again; after `retry` such times the accelerator is given up, and
 * all members are told.  So are they when results come to a rank only as answers to
 * what it has sent again: then nothing copies them.
 *
 * Floating-point numbers travel as fixed point: a block is multiplied by
 * 2^(30 - e - ceil(log2 n)), where e is the largest exponent of that block of any of
 * the n ranks.  It is learnt one block ahead: each contribution carries the exponent
 * of the slot's next block, each result the maximum.  So every slot begins with a
 * contribution without elements.  The scale is a power of two, so a value that needs
 * no more than the bits that are left is exact; others are rounded to the nearest,
 * each by half of 2^(e + ceil(log2 n) - 30) at most.  A block in which some rank has an
 * infinity or a NaN becomes NaN everywhere.
 *
 * Conversion is the host's work (its vector units), at `convert_bps`; it runs ahead of
 * the NIC in one direction and behind it in the other.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "accelerator.h"

#define REQUESTS_MAX 64
#define ECT0 2
#define TTL 64
#define MANTISSA_BITS 30

enum args { ARG_SLOTS, ARG_ELEMENTS, ARG_TIMEOUT_PS, ARG_RETRY, ARG_CONVERT_BPS };

enum slot_state { SLOT_IDLE, SLOT_READY, SLOT_WAITING };

struct aslot {
	enum slot_state state;
	uint32_t use, retries;
	uint64_t block; /* BLOCKS_NONE: only the exponent */
	int16_t exponent, next;
};
#define BLOCK_NONE UINT64_MAX

struct request {
	struct request *next;
	struct offload_wr wr;
};

struct aggregate {
	uint32_t slots, elements, parent_ip;
	uint16_t child;
	int log_ranks;
	ps_t timeout, convert_tx_free, convert_rx_free;
	uint32_t retry;
	double convert_bps;
	struct request *head, *tail;
	uint32_t requests, answers; /* answers: results in a row that came to this rank alone */
	uint64_t blocks, left; /* of the request at the head: in all, not yet here */
	ps_t visible;
	bool working;
	uint32_t *queue, queue_head, queued; /* slots that are ready to be sent */
	struct aslot slot[];
};

static const char *check(const struct fabric *f, const struct group *g)
{
	(void)f;
	if (g->args[ARG_SLOTS] < 1 || g->args[ARG_SLOTS] > 65535)
		return "GROUP: aggregate: slots from 1 to 65535";
	if (g->args[ARG_ELEMENTS] < 1 || g->args[ARG_ELEMENTS] > 2250)
		return "GROUP: aggregate: elements from 1 to 2250";
	if (g->args[ARG_TIMEOUT_PS] < 1000 || g->args[ARG_TIMEOUT_PS] > (uint64_t)PS_PER_S || g->args[ARG_RETRY] > 1000)
		return "GROUP: aggregate: timeout from 1 ns to 1 s, retry up to 1000";
	return g->args[ARG_CONVERT_BPS] <= 1000000000000000ull ? NULL : "GROUP: aggregate: convert_bps up to 1e15";
}

static const char *open(struct fabric *f, struct group *g)
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
		while (1u << a->log_ranks < g->count)
			a->log_ranks++;
		g->member[i].state = a;
	}
	return NULL;
}

static const char *check_wr(const struct member *m, const struct offload_wr *wr)
{
	const struct aggregate *a = m->state;
	struct worker *w = m->nic->worker;

	if (wr->element >= ELEMENTS || wr->reduction >= REDUCTIONS || wr->reduction == RED_PROD ||
	    (wr->element != EL_INT32 && wr->reduction != RED_SUM && wr->reduction != RED_AVG))
		return "POST_OFFLOAD: aggregate: int32 sum, avg, min, max; float32, float16, bfloat16 sum, avg";
	if (!wr->count || wr->count > 1ull << 34)
		return "POST_OFFLOAD: aggregate: from 1 to 2^34 elements";
	if (a->requests == REQUESTS_MAX)
		return "POST_OFFLOAD: aggregate: more than 64 requests";
	uint64_t bytes = wr->count * element_bytes[wr->element];
	if (!worker_region(w, wr->in_key, wr->in, bytes) || !worker_region(w, wr->out_key, wr->out, bytes))
		return "POST_OFFLOAD: unknown key, or range outside its region";
	return NULL;
}

/* Memory of a request, or NULL if the worker has gone */
static uint8_t *memory(const struct member *m, uint32_t key, uint64_t at, uint64_t bytes)
{
	struct region *r = worker_region(m->nic->worker, key, at, bytes);

	return r ? r->base + at : NULL;
}

static uint32_t block_count(const struct aggregate *a, uint64_t block)
{
	uint64_t left = a->head->wr.count - block * a->elements;

	return left < a->elements ? (uint32_t)left : a->elements;
}

/* The largest exponent in a block of ours */
static int16_t exponent_of(const struct member *m, uint64_t block)
{
	const struct aggregate *a = m->state;
	const struct offload_wr *wr = &a->head->wr;
	uint32_t size = element_bytes[wr->element];

	if (wr->element == EL_INT32 || block >= a->blocks)
		return EXPONENT_ZERO;
	uint32_t count = block_count(a, block);
	const uint8_t *in = memory(m, wr->in_key, wr->in + block * a->elements * size, (uint64_t)count * size);
	return in ? (int16_t)element_exponent(wr->element, in, count) : EXPONENT_ZERO;
}

static void ready(struct fabric *f, struct member *m, uint32_t slot)
{
	struct aggregate *a = m->state;

	a->slot[slot].state = SLOT_READY;
	a->queue[(a->queue_head + a->queued++) % a->slots] = slot;
	nic_tx_ready(f, &m->nic->tx[0], &m->source);
}

#define WHAT(slot, use, timer) ((uint64_t)(timer) << 63 | (uint64_t)(slot) << 32 | (use))

/* Time that the host takes to convert so many elements */
static ps_t conversion(struct member *m, uint32_t count)
{
	const struct aggregate *a = m->state;
	ps_t took = (ps_t)(8e12 * count * element_bytes[a->head->wr.element] / a->convert_bps + 0.5);

	m->nic->worker->host += took;
	return took;
}

/* The host converts a block, then its contribution can go */
static void convert(struct fabric *f, struct member *m, uint32_t slot)
{
	struct aggregate *a = m->state;
	struct aslot *s = &a->slot[slot];

	if (!a->convert_bps || a->head->wr.element == EL_INT32 || s->block == BLOCK_NONE) {
		ready(f, m, slot);
		return;
	}
	ps_t from = a->convert_tx_free > f->clock.now ? a->convert_tx_free : f->clock.now;
	a->convert_tx_free = from + conversion(m, block_count(a, s->block));
	offload_later(f, m, a->convert_tx_free, WHAT(slot, s->use, 0));
}

/* Begin the request at the head */
static void begin(struct fabric *f, struct member *m)
{
	struct aggregate *a = m->state;

	if (a->working || !a->head || m->failed)
		return;
	const struct offload_wr *wr = &a->head->wr;
	a->working = true;
	a->visible = f->clock.now;
	a->blocks = (wr->count + a->elements - 1) / a->elements;
	a->left = a->blocks;
	for (uint32_t i = 0; i < a->slots && i < a->blocks; i++) {
		struct aslot *s = &a->slot[i];
		s->block = wr->element == EL_INT32 ? i : BLOCK_NONE;
		s->exponent = EXPONENT_ZERO;
		s->next = exponent_of(m, i);
		s->retries = 0;
		convert(f, m, i);
	}
}

static void post(struct fabric *f, struct member *m, const struct offload_wr *wr)
{
	struct aggregate *a = m->state;
	struct request *r = malloc(sizeof *r);

	if (!r)
		abort();
	*r = (struct request){.wr = *wr};
	if (a->tail)
		a->tail->next = r;
	else
		a->head = r;
	a->tail = r;
	a->requests++;
	begin(f, m);
}

static bool has_packet(const struct fabric *f, const struct tx_source *source)
{
	const struct member *m = (const struct member *)source;
	const struct aggregate *a = m->state;

	(void)f;
	return a->queued && !m->failed && !m->left;
}

static void held(struct fabric *f, struct tx_source *source)
{
	(void)f;
	(void)source;
}

/* A block of ours as int32: fixed point with the exponent that all ranks have agreed on */
static void quantise(const struct member *m, const struct aslot *s, uint32_t count, int32_t *to)
{
	const struct aggregate *a = m->state;
	const struct offload_wr *wr = &a->head->wr;
	uint32_t size = element_bytes[wr->element];
	const uint8_t *in = memory(m, wr->in_key, wr->in + s->block * a->elements * size, (uint64_t)count * size);
	int shift = MANTISSA_BITS - s->exponent - a->log_ranks;

	if (!in || s->exponent == EXPONENT_ZERO || s->exponent == EXPONENT_BAD) {
		memset(to, 0, 4u * count);
		if (in && wr->element == EL_INT32)
			memcpy(to, in, 4u * count);
		return;
	}
	element_to_fixed(wr->element, in, count, shift, to);
}

static uint32_t build(struct fabric *f, struct tx_source *source, struct frame *fr)
{
	struct member *m = (struct member *)source;
	struct aggregate *a = m->state;
	struct nic *n = m->nic;
	uint32_t slot = a->queue[a->queue_head];
	struct aslot *s = &a->slot[slot];
	uint32_t count = s->block == BLOCK_NONE ? 0 : block_count(a, s->block);
	int32_t payload[2250];
	struct roce_packet pkt = {
		.src_ip = n->ip,
		.dst_ip = a->parent_ip,
		.src_port = (uint16_t)(0xc000 | (m->group->id * 0x9e3779b1u >> 18)),
		.tos = (uint8_t)(n->p.data_dscp << 2 | ECT0),
		.ttl = TTL,
		.opcode = OFF_CONTRIBUTE,
		.dst_qp = m->group->id,
		.psn = s->use & PSN_MASK,
		.offload = {.offset = count ? s->block * a->elements : BLOCK_NONE,
			    .slot = (uint16_t)slot,
			    .child = a->child,
			    .count = (uint16_t)count,
			    .exponent = s->exponent,
			    .next = s->next,
			    .flags = a->head->wr.reduction & OFF_REDUCTION},
		.payload = (const uint8_t *)payload,
		.payload_bytes = 4 * count,
	};

	a->queue_head = (a->queue_head + 1) % a->slots;
	a->queued--;
	if (count)
		quantise(m, s, count, payload);
	mac_of(pkt.dst_ip, pkt.dst_mac);
	memcpy(pkt.src_mac, n->mac, 6);
	fr->len = roce_build(fr->data, f->frame_room - TRAILER_BYTES, &pkt);
	fr->class = (uint8_t)n->p.data_class;
	nic_sent(f, n, fr->len);
	if (s->state == SLOT_READY && s->retries)
		n->retransmitted++;
	s->state = SLOT_WAITING;
	offload_later(f, m, f->clock.now + a->timeout, WHAT(slot, s->use, 1));
	return 4 * count;
}

static const struct tx_ops tx_ops = {.has_packet = has_packet, .build = build, .held = held};

static int32_t divided(int32_t sum, uint32_t n)
{
	return (int32_t)((int64_t)sum / (int64_t)n);
}

/* The sums of a block have come: into memory, as what the worker wants */
static void write_out(struct fabric *f, struct member *m, const struct aslot *s, const struct roce_packet *pkt)
{
	struct aggregate *a = m->state;
	const struct offload_wr *wr = &a->head->wr;
	uint32_t size = element_bytes[wr->element], n = m->group->count, count = pkt->offload.count;
	uint8_t *out = memory(m, wr->out_key, wr->out + s->block * a->elements * size, (uint64_t)count * size);
	int shift = MANTISSA_BITS - s->exponent - a->log_ranks;

	int32_t sums[2250];

	memcpy(sums, pkt->payload, 4u * count);
	for (uint32_t i = 0; out && wr->element == EL_INT32 && wr->reduction == RED_AVG && i < count; i++)
		sums[i] = divided(sums[i], n);
	if (out && wr->element == EL_INT32)
		memcpy(out, sums, 4u * count);
	else if (out && s->exponent == EXPONENT_BAD)
		for (uint32_t i = 0; i < count; i++)
			element_put(wr->element, out, i, NAN);
	else if (out)
		element_from_fixed(wr->element, out, count, s->exponent == EXPONENT_ZERO ? 0 : shift,
				   wr->reduction == RED_AVG ? n : 1, sums);
	ps_t visible = pcie_write(m->nic, f->clock.now, 4 * count);
	if (a->convert_bps && wr->element != EL_INT32) {
		ps_t from = a->convert_rx_free > visible ? a->convert_rx_free : visible;
		a->convert_rx_free = visible = from + conversion(m, count);
	}
	a->visible = visible > a->visible ? visible : a->visible;
}

static void finish(struct fabric *f, struct member *m)
{
	struct aggregate *a = m->state;
	struct request *r = a->head;

	offload_done(f, m, r->wr.wr_id, WC_SUCCESS, r->wr.count * element_bytes[r->wr.element], a->visible);
	a->head = r->next;
	if (!a->head)
		a->tail = NULL;
	a->requests--;
	a->working = false;
	free(r);
	begin(f, m);
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
		frame_free(f, fr);
		return true;
	}
	uint32_t due = s->block == BLOCK_NONE ? 0 : block_count(a, s->block);
	if (o->count != due)
		return false;
	if (s->state == SLOT_READY) { /* was to be sent again: too late, the result is here */
		uint32_t kept = 0;
		for (uint32_t i = 0; i < a->queued; i++) {
			uint32_t slot = a->queue[(a->queue_head + i) % a->slots];
			if (slot != o->slot)
				a->queue[(a->queue_head + kept++) % a->slots] = slot;
		}
		a->queued = kept;
	}
	a->answers = pkt->dst_ip == m->nic->ip ? a->answers + 1 : 0;
	s->state = SLOT_IDLE;
	s->use++;
	s->retries = 0;
	if (due) {
		write_out(f, m, s, pkt);
		a->left--;
	}
	s->block = s->block == BLOCK_NONE ? o->slot : s->block + a->slots;
	s->exponent = o->next;
	if (s->block < a->blocks) {
		s->next = exponent_of(m, s->block + a->slots);
		convert(f, m, o->slot);
	}
	frame_free(f, fr);
	if (!a->left)
		finish(f, m);
	if (a->answers > a->retry) {
		char why[64];
		snprintf(why, sizeof why, "rank %u gets results only when it asks again", m->nic->rank);
		offload_failed(f, m, why);
	}
	return true;
}

static void event(struct fabric *f, struct member *m, ps_t t, uint64_t what)
{
	struct aggregate *a = m->state;
	uint32_t slot = (uint32_t)(what >> 32 & 0x7fffffff);
	struct aslot *s = &a->slot[slot];

	(void)t;
	if (m->failed || m->left || s->use != (uint32_t)what)
		return;
	if (!(what >> 63)) {
		ready(f, m, slot);
		return;
	}
	if (s->state != SLOT_WAITING)
		return;
	m->nic->timeouts++;
	if (s->retries++ < a->retry) {
		ready(f, m, slot);
		return;
	}
	char why[64];
	snprintf(why, sizeof why, "no accelerator answers rank %u", m->nic->rank);
	offload_failed(f, m, why);
}

static bool due(const struct member *m, uint64_t what)
{
	const struct aggregate *a = m->state;
	const struct aslot *s = &a->slot[what >> 32 & 0x7fffffff];

	return !m->failed && !m->left && s->use == (uint32_t)what && (!(what >> 63) || s->state == SLOT_WAITING);
}

static void close(struct fabric *f, struct group *g)
{
	for (uint32_t i = 0; i < g->count; i++) {
		struct aggregate *a = g->member[i].state;
		(void)f;
		while (a->head) {
			struct request *r = a->head;
			a->head = r->next;
			free(r);
		}
		free(a->queue);
		free(a);
	}
}

const struct offload_ops aggregate_ops = {
	.name = "aggregate",
	.asks = true,
	.tx = &tx_ops,
	.check = check,
	.open = open,
	.check_wr = check_wr,
	.post = post,
	.receive = receive,
	.due = due,
	.event = event,
	.close = close,
};
