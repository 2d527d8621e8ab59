/* Best-effort aggregation: the rank's end
 *
 * Theory of Operation
 *
 * ATP (Lao et al., NSDI 2021).  A vector is cut into blocks of `elements`; they are
 * numbered through the group's life, and go out in order while fewer than a window are
 * under way.  Block i uses lane i mod slots: it waits until the sum of the lane's block
 * before is there.  A contribution goes to the accelerator of the rank's switch, which
 * adds it up if it can (accelerator/pool.c); what comes out goes to the parameter server, a host
 * (server.c), and from there the sum comes to all.
 *
 * Congestion shows as a mark on the sum, which any contribution or the sum itself has
 * met: the window is halved, at most once for the blocks that were under way; every
 * other sum makes it a block larger, up to `slots` (ATP, section 3.7).
 *
 * A block whose contributions found its slot taken, some before and some after that was
 * let go, leaves a part in the slot that nobody completes.  So three sums in a row of
 * later blocks tell a rank that the sums before them are missing, lost or stuck, and it
 * sends those blocks again at once (ATP, section 3.6; client/p4ml_manager.cc of its code,
 * which does so at the first).
 *
 * When no sum comes for `timeout`, doubled each time, a rank sends again, with a flag
 * that takes whatever accelerators hold for the block along.  From the second time on
 * it sends to the server directly: so a broken accelerator costs time, not the sum.
 * After `retry` times the server is given up, and all members are told.  So are they
 * when sums come to a rank only as answers to what it has sent again: `retry` and a
 * quarter of what can be under way in a row, more than losses leave over.
 *
 * Floating-point numbers travel as fixed point (offload/block.c).  Their exponents go ahead as
 * far as the window reaches: first come as many contributions without elements as there
 * are lanes, which agree on the exponents of the first blocks; then each block carries
 * the exponent of the block one window on, and its sum the maximum.  (The paper scales
 * all by one factor, and corrects what overflows on the hosts.)
 *
 * The server's rank sends nothing: its contribution is added up in its own memory.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accelerator/accelerator.h"
#include "base/units.h"
#include "engine/fabric.h"
#include "link/frame.h"
#include "nic/nic.h"
#include "offload/best_effort/best_effort.h"
#include "offload/block.h"
#include "offload/offload.h"
#include "transport/qp.h"
#include "vector/element.h"
#include "wire/ip.h"
#include "wire/roce.h"
#include "worker/services.h"

#define REQUESTS_MAX 64
#define OVERTAKEN 3 /* sums of later blocks in a row that tell that a block's is missing */

enum args { ARG_SLOTS, ARG_ELEMENTS, ARG_TIMEOUT_PS, ARG_RETRY, ARG_CONVERT_BPS, ARG_REDUCE_BPS };

static const char *check(const struct fabric *f, const struct group *g)
{
	if (g->count > FAN_IN_MAX)
		return "GROUP: best effort: up to 64 members";
	if (g->args[ARG_SLOTS] < 1 || g->args[ARG_SLOTS] > 65535)
		return "GROUP: best effort: slots from 1 to 65535";
	if (g->args[ARG_ELEMENTS] < 1 || g->args[ARG_ELEMENTS] > BLOCK_ELEMENTS_MAX)
		return "GROUP: best effort: elements from 1 to 2250";
	if (roce_frame_bytes(OFF_PARTIAL, 4 * (uint32_t)g->args[ARG_ELEMENTS]) + TRAILER_BYTES > f->frame_room)
		return "GROUP: best effort: more elements than a packet has room for";
	if (g->args[ARG_TIMEOUT_PS] < 1000 || g->args[ARG_TIMEOUT_PS] > (uint64_t)PS_PER_S || g->args[ARG_RETRY] > 1000)
		return "GROUP: best effort: timeout from 1 ns to 1 s, retry up to 1000";
	if (g->args[ARG_CONVERT_BPS] > 1000000000000000ull || g->args[ARG_REDUCE_BPS] > 1000000000000000ull)
		return "GROUP: best effort: convert_bps, reduce_bps up to 1e15";
	return NULL;
}

static const char *open(struct fabric *f, struct group *g)
{
	const json_t *hops = group_granted(g, "hops");
	uint32_t n = (uint32_t)g->args[ARG_SLOTS], group_ip = (uint32_t)json_integer_value(group_granted(g, "group_ip"));
	json_int_t shared = json_integer_value(group_granted(g, "shared_slots"));
	struct lane_slots *lanes;

	(void)f;
	if (json_array_size(hops) != g->count || !group_ip || shared < 1 || shared > 65536)
		return "the controller's answer is not one";
	lanes = lane_slots_new(g->id, n, (uint32_t)shared);
	for (uint32_t i = 0; i < g->count; i++) {
		struct best_effort *b = calloc(1, sizeof *b + n * sizeof(struct block_lane));
		if (!b || !(b->queue = calloc(n, sizeof *b->queue)) || !(b->exponent = calloc(n, sizeof *b->exponent)) ||
		    !(b->slot = malloc(n * sizeof *b->slot)))
			abort();
		b->slots = b->window = n;
		b->shared = (uint32_t)shared;
		memcpy(b->slot, lanes->of, n * sizeof *b->slot);
		b->elements = (uint32_t)g->args[ARG_ELEMENTS];
		b->next_ip = (uint32_t)json_integer_value(json_array_get(hops, i));
		b->server_ip = g->member[0].nic->ip;
		b->group_ip = group_ip;
		b->timeout = (ps_t)g->args[ARG_TIMEOUT_PS];
		b->retry = (uint32_t)g->args[ARG_RETRY];
		b->convert_bps = (double)g->args[ARG_CONVERT_BPS];
		g->member[i].state = b;
	}
	struct best_effort *first = g->member[0].state;
	first->server = server_new(g, n, first->elements, (double)g->args[ARG_REDUCE_BPS], group_ip, lanes);
	return NULL;
}

static const char *check_wr(const struct member *m, const struct offload_wr *wr)
{
	const struct best_effort *b = m->state;

	if (b->requests == REQUESTS_MAX)
		return "POST_OFFLOAD: best effort: more than 64 requests";
	return block_check(m, wr);
}

/* Begin the request at the head */
static void begin(struct fabric *f, struct member *m)
{
	struct best_effort *b = m->state;

	if (b->working || !b->head || m->failed)
		return;
	const struct offload_wr *wr = &b->head->wr;
	b->working = true;
	b->visible = f->clock.now;
	b->blocks = b->left = (wr->count + b->elements - 1) / b->elements;
	b->lead = element_is_integer(wr->element) ? 0 : b->blocks < b->slots ? (uint32_t)b->blocks : b->slots;
	b->packets = b->blocks + b->lead;
	b->sent = b->expected = b->ahead = 0;
	b->lowest = UINT64_MAX;
	for (uint32_t i = 0; i < b->lead; i++)
		b->exponent[i] = EXPONENT_UNKNOWN;
	best_effort_pump(f, m);
}

static void post(struct fabric *f, struct member *m, const struct offload_wr *wr)
{
	struct best_effort *b = m->state;
	struct request *r = malloc(sizeof *r);

	if (!r)
		abort();
	*r = (struct request){.wr = *wr};
	if (b->tail)
		b->tail->next = r;
	else
		b->head = r;
	b->tail = r;
	b->requests++;
	begin(f, m);
}

static void finish(struct fabric *f, struct member *m)
{
	struct best_effort *b = m->state;
	struct request *r = b->head;

	offload_done(f, m, r->wr.wr_id, WC_SUCCESS, r->wr.count * element_bytes[r->wr.element], b->visible);
	b->head = r->next;
	if (!b->head)
		b->tail = NULL;
	b->requests--;
	b->working = false;
	b->first += (uint32_t)b->packets;
	b->packets = b->sent = 0;
	free(r);
	begin(f, m);
}

static void congestion(struct best_effort *b, const struct partial *sum)
{
	if (!(sum->flags & OFF_CONGESTED)) {
		b->window += b->window < b->slots;
	} else if ((int32_t)(sum->number - b->recover) >= 0) {
		b->window = b->window > 1 ? b->window / 2 : 1;
		b->recover = b->first + (uint32_t)b->sent;
	}
}

/* The lane that waits for a number, or NULL */
static struct block_lane *waiting(struct best_effort *b, uint32_t number)
{
	struct block_lane *l = &b->lane[number % b->slots];

	return l->state == LANE_IDLE || l->number != number ? NULL : l;
}

/* The request's packet that sum number @k belongs to is done: send what it has overtaken again, once */
static void sequence(struct fabric *f, struct member *m, uint32_t k)
{
	struct best_effort *b = m->state;

	if (k > b->expected) {
		b->ahead++;
		b->lowest = k < b->lowest ? k : b->lowest;
	} else if (k == b->expected) {
		b->ahead = 0;
		b->lowest = UINT64_MAX;
	}
	bool overtaken = b->ahead == OVERTAKEN && !b->server;
	uint64_t until = overtaken ? b->lowest : b->sent;
	for (; b->expected < until; b->expected++) {
		struct block_lane *l = waiting(b, b->first + (uint32_t)b->expected);
		if (l && !overtaken)
			break;
		if (l && l->state == LANE_WAITING && !l->retries) {
			l->overtaken = true;
			best_effort_ready(f, m, l->number % b->slots);
		}
	}
	if (overtaken) {
		b->ahead = 0;
		b->lowest = UINT64_MAX;
	}
}

/* The sum of a number is here: visible in memory from @t on, without conversion */
static void result(struct fabric *f, struct member *m, struct block_lane *l, const struct partial *sum, ps_t t)
{
	struct best_effort *b = m->state;
	const struct offload_wr *wr = &b->head->wr;
	uint64_t block;

	l->state = LANE_IDLE;
	b->slot[sum->number % b->slots] = sum->next_slot;
	b->flying--;
	sequence(f, m, sum->number - b->first);
	congestion(b, sum);
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
		finish(f, m);
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

static bool receive(struct fabric *f, struct member *m, const struct roce_packet *pkt, struct frame *fr)
{
	struct best_effort *b = m->state;
	struct partial part = of_packet(pkt);

	if (part.count > b->elements || pkt->payload_bytes != 4u * part.count)
		return false;
	if (b->server) {
		if (pkt->opcode != OFF_PARTIAL || m->failed || !receive_partial(f, m, &part))
			return false;
		frame_free(f, fr);
		return true;
	}
	if (pkt->opcode != OFF_RESULT || pkt->src_ip != b->server_ip || part.next_slot >= b->shared)
		return false;
	struct block_lane *l = waiting(b, part.number);
	if (!l || m->failed) {
		m->nic->duplicate_request++;
		frame_free(f, fr);
		return true;
	}
	uint64_t block;
	if (part.count != (best_effort_is_block(b, part.number, &block) ? block_count(&b->head->wr, b->elements, block) : 0))
		return false;
	if (l->state == LANE_READY)
		unqueue(b, l);
	b->answers = pkt->dst_ip == m->nic->ip ? b->answers + 1 : 0;
	uint64_t under_way = b->packets < b->slots ? b->packets : b->slots;
	result(f, m, l, &part, pcie_write(m->nic, f->clock.now, 4u * part.count));
	frame_free(f, fr);
	if (b->answers > b->retry + under_way / 4) {
		char why[64];
		snprintf(why, sizeof why, "rank %u gets results only when it asks again", m->nic->rank);
		offload_failed(f, m, why);
	}
	return true;
}

/* A block is added up: it goes to all, and the server's rank has it */
static void added_up(struct fabric *f, struct member *m, uint32_t number)
{
	struct best_effort *b = m->state;
	struct block_lane *l = waiting(b, number);

	server_answer(f, m, b->server, number);
	const struct partial sum = server_partial(server_sum(b->server, number));
	if (l)
		result(f, m, l, &sum, f->clock.now);
}

static void timed_out(struct fabric *f, struct member *m, struct block_lane *l)
{
	struct best_effort *b = m->state;
	char why[64];

	if (b->server && server_sum(b->server, l->number)) { /* all there, the host is still busy with it */
		best_effort_set_timer(f, m, l);
		return;
	}
	m->nic->timeouts++;
	if (l->retries++ < b->retry + (b->server != NULL)) {
		if (b->server)
			best_effort_set_timer(f, m, l);
		else
			best_effort_ready(f, m, l->number % b->slots);
		return;
	}
	if (b->server)
		snprintf(why, sizeof why, "nothing comes from rank %u",
			 m->group->member[__builtin_ctzll(server_missing(b->server, l->number))].nic->rank);
	else
		snprintf(why, sizeof why, "no parameter server answers rank %u", m->nic->rank);
	offload_failed(f, m, why);
}

static bool due(const struct member *m, uint64_t what)
{
	const struct best_effort *b = m->state;
	uint32_t number = (uint32_t)what;
	const struct block_lane *l = &b->lane[number % b->slots];

	if (m->failed || m->left)
		return false;
	if (what & SERVER_EVENT)
		return server_due(b->server, number);
	return l->number == number && l->state == (what & TIMER ? LANE_WAITING : LANE_CONVERTING);
}

static void event(struct fabric *f, struct member *m, ps_t t, uint64_t what)
{
	struct best_effort *b = m->state;
	uint32_t number = (uint32_t)what;
	struct block_lane *l = &b->lane[number % b->slots];

	(void)t;
	if (!due(m, what))
		return;
	if (what & SERVER_EVENT)
		added_up(f, m, number);
	else if (what & TIMER && f->clock.now >= l->deadline) /* else: sent again since, there is another */
		timed_out(f, m, l);
	else if (!(what & TIMER))
		best_effort_converted(f, m, l);
}

static void close(struct fabric *f, struct group *g)
{
	(void)f;
	for (uint32_t i = 0; i < g->count; i++) {
		struct best_effort *b = g->member[i].state;
		while (b->head) {
			struct request *r = b->head;
			b->head = r->next;
			free(r);
		}
		server_free(b->server);
		free(b->queue);
		free(b->exponent);
		free(b->slot);
		free(b);
	}
}

const struct offload_ops best_effort_ops = {
	.name = "best_effort",
	.asks = true,
	.tx = &best_effort_tx,
	.check = check,
	.open = open,
	.check_wr = check_wr,
	.post = post,
	.receive = receive,
	.due = due,
	.event = event,
	.close = close,
};
