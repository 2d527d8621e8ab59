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
 * met: the window and the slow-start threshold become half of it, at most once for the
 * blocks that were under way.  Every other sum makes the window a block larger below the
 * threshold, and a window of sums does above it, up to `slots` (receive.c).
 *
 * A block whose contributions found its slot taken, some before and some after that was
 * let go, leaves a part in the slot that nobody completes.  So do contributions that are
 * lost.  A rank finds such blocks (overdue.c) and sends them again, with a flag that
 * takes whatever accelerators hold for the block along; from the second time on to the
 * server directly: so a broken accelerator costs time, not the sum.  After `retry`
 * silences in a row the server is given up, and all members are told.  So are they
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
#include <stdlib.h>
#include <string.h>

#include "accelerator/accelerator.h"
#include "base/units.h"
#include "engine/fabric.h"
#include "link/frame.h"
#include "offload/best_effort/best_effort.h"
#include "offload/block.h"
#include "offload/offload.h"
#include "offload/requests.h"
#include "transport/qp.h"
#include "vector/element.h"
#include "wire/roce.h"
#include "worker/services.h"

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

static const char *group_opened(struct fabric *f, struct group *g)
{
	const json_t *hops = group_granted(g, "hops");
	uint32_t n = (uint32_t)g->args[ARG_SLOTS], group_ip = (uint32_t)json_integer_value(group_granted(g, "group_ip"));
	json_int_t shared = json_integer_value(group_granted(g, "shared_slots"));
	struct lane_slots *lanes;

	(void)f;
	if (json_array_size(hops) != g->count || !group_ip || shared < 1 || shared > NO_SLOT)
		return "the controller's answer is not one";
	lanes = lane_slots_new(g->id, n, (uint32_t)shared);
	for (uint32_t i = 0; i < g->count; i++) {
		struct best_effort *b = calloc(1, sizeof *b + n * sizeof(struct block_lane));
		if (!b || !(b->queue = calloc(n, sizeof *b->queue)) || !(b->exponent = calloc(n, sizeof *b->exponent)) ||
		    !(b->slot = malloc(n * sizeof *b->slot)))
			abort();
		b->slots = b->window = b->threshold = n;
		b->shared = (uint32_t)shared;
		memcpy(b->slot, lanes->of, n * sizeof *b->slot);
		b->elements = (uint32_t)g->args[ARG_ELEMENTS];
		b->next_ip = (uint32_t)json_integer_value(json_array_get(hops, i));
		b->server_ip = g->member[0].nic->ip;
		b->group_ip = group_ip;
		b->timeout = (ps_t)g->args[ARG_TIMEOUT_PS];
		b->alarm = PS_NEVER;
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

	if (b->requests.count == REQUESTS_MAX)
		return "POST_OFFLOAD: best effort: more than 64 requests";
	return block_check(m, wr);
}

/* Begin the request at the head */
static void begin(struct fabric *f, struct member *m)
{
	struct best_effort *b = m->state;

	if (b->working || !b->requests.head || m->failed)
		return;
	const struct offload_wr *wr = &b->requests.head->wr;
	b->working = true;
	b->visible = f->clock.now;
	b->blocks = b->left = (wr->count + b->elements - 1) / b->elements;
	b->lead = !block_is_scaled(wr) ? 0 : b->blocks < b->slots ? (uint32_t)b->blocks : b->slots;
	b->packets = b->blocks + b->lead;
	b->sent = b->expected = 0;
	for (uint32_t i = 0; i < b->lead; i++)
		b->exponent[i] = EXPONENT_UNKNOWN;
	best_effort_pump(f, m);
}

static void post(struct fabric *f, struct member *m, const struct offload_wr *wr)
{
	struct best_effort *b = m->state;

	requests_add(&b->requests, wr);
	begin(f, m);
}

void best_effort_finish(struct fabric *f, struct member *m)
{
	struct best_effort *b = m->state;
	const struct offload_wr *wr = &b->requests.head->wr;

	offload_done(f, m, wr->wr_id, WC_SUCCESS, wr->count * element_bytes[wr->element], b->visible);
	requests_drop(&b->requests);
	b->working = false;
	b->first += (uint32_t)b->packets;
	b->packets = b->sent = 0;
	begin(f, m);
}

static bool due(const struct member *m, uint64_t what)
{
	const struct best_effort *b = m->state;
	uint32_t number = (uint32_t)what;
	const struct block_lane *l = &b->lane[number % b->slots];

	if (m->failed || m->left)
		return false;
	if (what & TIMER)
		return (ps_t)(what & ~TIMER) == b->alarm;
	if (what & SERVER_EVENT)
		return server_due(b->server, number);
	return l->number == number && l->state == LANE_CONVERTING;
}

static void event(struct fabric *f, struct member *m, ps_t t, uint64_t what)
{
	struct best_effort *b = m->state;
	uint32_t number = (uint32_t)what;
	struct block_lane *l = &b->lane[number % b->slots];

	(void)t;
	if (!due(m, what))
		return;
	if (what & TIMER)
		overdue_listened(f, m);
	else if (what & SERVER_EVENT)
		best_effort_added_up(f, m, number);
	else
		best_effort_converted(f, m, l);
}

static void group_closed(struct fabric *f, struct group *g)
{
	(void)f;
	for (uint32_t i = 0; i < g->count; i++) {
		struct best_effort *b = g->member[i].state;
		requests_free(&b->requests);
		server_free(b->server);
		free(b->queue);
		free(b->exponent);
		free(b->slot);
		free(b);
	}
}

static const struct offload_ops best_effort = {
	.name = "best_effort",
	.asks = true,
	.tx = &best_effort_tx,
	.check = check,
	.open = group_opened,
	.check_wr = check_wr,
	.post = post,
	.receive = best_effort_receive,
	.due = due,
	.event = event,
	.close = group_closed,
};
OFFLOAD_KIND(best_effort);
