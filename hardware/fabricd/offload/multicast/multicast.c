/* Multicast broadcast and all-gather: the rank's end
 *
 * Theory of Operation
 *
 * A vector is one part, the root's (broadcast), or one of each member's (all-gather), in
 * chunks that are numbered through (chunks.c): the number is the PSN of the datagram
 * that carries the chunk, and says where it belongs (Khalilov et al., SC 2024:
 * datagrams with sequence numbers, a bitmap per receiver).
 *
 * A rank first arms an operation: from then on what comes in for it is placed
 * straight into the vector, once; a bit per chunk says what is here.  What comes
 * before is dropped and counted, as by a queue without receives, and what belongs to
 * an earlier operation is a late duplicate.  Then, when the workers know that all are
 * armed, it is started: the member sends its part, once, to the group's address, from
 * where the switches copy it.  Nothing is acknowledged.  A group may have several trees,
 * each with an address of its own: chunks take them in turn.
 *
 * All-gather has `chains` senders at a time: member i is number i / chains of chain
 * i mod chains.  So many share the way into each receiver, so each leaves as many
 * frames' time from one of its frames to the next (one less when all send at once:
 * nobody receives its own).  Turns need no messages: whoever comes later in a chain
 * sees from every packet how much is left before its turn, and starts that much later;
 * where the chain is silent, it starts when it should have been heard, and `slack`
 * later for each sender of which it heard nothing.
 *
 * The operation ends when the part is sent and every chunk is here, or when it is cut
 * off: S/B + turns x slack after its start, or slack after the last chunk that came,
 * whichever is later, S/B being the time that all chunks take on this NIC's cable.  But
 * a sender with 8 chunks or more of which none has come is late rather than unlucky: a
 * message of the barrier was lost, and is sent again after the NIC's timeout.  It is
 * waited for until four of these have passed since the start.
 *
 * When it is cut off, the bitmap is written to the worker's memory.  The record's
 * `bytes` is the number of chunks that are missing; getting them is the workers' matter.
 * When of some sender's last 64 chunks over one tree none has come, the group is given
 * up, and all members are told: there is no way for it, and waiting each time would be in
 * vain.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "engine/fabric.h"
#include "link/port.h"
#include "nic/nic.h"
#include "offload/multicast/chunks.h"
#include "offload/multicast/multicast.h"
#include "offload/offload.h"
#include "transport/qp.h"
#include "wire/roce.h"
#include "worker/services.h"
#include "worker/worker.h"

#define CHUNKS_MAX (1ull << 24) /* of an operation: as many as there are PSNs */
#define VECTOR_MAX (1ull << 40)
#define SLACK_MAX ((uint64_t)PS_PER_S)
#define LATE_TIMEOUTS 4
#define TREES_MAX 8

enum group_args { ARG_PAYLOAD, ARG_TREES };
enum wants { MC_ARM, MC_START };
enum arm_args { ARM_NUMBER, ARM_ROOT, ARM_ELEMENT };
enum start_args { START_NUMBER, START_SLACK, START_CHAINS };
#define NO_ROOT UINT64_MAX /* every member has a part */

static const char *check(const struct fabric *f, const struct group *g)
{
	(void)f;
	if (g->args[ARG_PAYLOAD] < 1 || g->args[ARG_PAYLOAD] > 9000)
		return "GROUP: multicast: payload of a packet from 1 to 9000 bytes";
	return g->args[ARG_TREES] <= TREES_MAX ? NULL : "GROUP: multicast: up to 8 trees";
}

static const char *group_opened(struct fabric *f, struct group *g)
{
	uint32_t ip = (uint32_t)json_integer_value(group_granted(g, "group_ip"));
	uint32_t trees = g->args[ARG_TREES] ? (uint32_t)g->args[ARG_TREES] : 1;

	(void)f;
	if (ip >> 28 != 14 || (ip - ((trees - 1) << MULTICAST_NETWORK_SHIFT)) >> 28 != 14)
		return "the controller's answer has no multicast address";
	for (uint32_t i = 0; i < g->count; i++)
		if (g->args[ARG_PAYLOAD] > g->member[i].nic->mtu)
			return "payload of a packet is longer than the MTU";
	for (uint32_t i = 0; i < g->count; i++) {
		struct multicast *s = calloc(1, sizeof *s + g->count * trees * sizeof s->silent[0]);
		if (!s)
			abort();
		s->group_ip = ip;
		s->trees = trees;
		s->pace_event = s->turn = s->cutoff = PS_NEVER;
		g->member[i].state = s;
	}
	return NULL;
}

static const char *check_arm(const struct member *m, const struct offload_wr *wr)
{
	const struct group *g = m->group;
	uint64_t root = wr->args[ARM_ROOT], element = wr->args[ARM_ELEMENT];

	if (root != NO_ROOT && root >= g->count)
		return "POST_OFFLOAD: multicast: root: no such member";
	if (element < 1 || element > 256 || !wr->count || wr->count > VECTOR_MAX || wr->count % element)
		return "POST_OFFLOAD: multicast: a vector of 1 byte to 1 TiB, of whole elements of 1 to 256 bytes";
	if (wr->args[ARM_NUMBER] > UINT32_MAX)
		return "POST_OFFLOAD: multicast: number of an operation: up to 2^32 - 1";
	struct layout l = layout_of(wr->count, (uint32_t)element, (uint32_t)g->args[ARG_PAYLOAD],
				    root == NO_ROOT ? g->count : 1, (uint32_t)root);
	uint64_t chunks = layout_chunks(&l);
	if (chunks > CHUNKS_MAX)
		return "POST_OFFLOAD: multicast: more than 2^24 packets";
	if (!worker_region(m->nic->worker, wr->out_key, wr->out, wr->count) ||
	    !worker_region(m->nic->worker, wr->in_key, wr->in, (chunks + 63) / 64 * 8))
		return "POST_OFFLOAD: unknown key, or range outside its region";
	return NULL;
}

static const char *check_wr(const struct member *m, const struct offload_wr *wr)
{
	if (wr->collective == MC_ARM)
		return check_arm(m, wr);
	if (wr->collective != MC_START)
		return "POST_OFFLOAD: multicast: 0 (arm) or 1 (start)";
	if (wr->args[START_SLACK] < 1000 || wr->args[START_SLACK] > SLACK_MAX)
		return "POST_OFFLOAD: multicast: slack from 1 ns to 1 s";
	return wr->args[START_CHAINS] < 1 || wr->args[START_CHAINS] > m->group->count
		       ? "POST_OFFLOAD: multicast: chains from 1 to the number of members"
		       : NULL;
}

#define ALARM_SHIFT 62

/* multicast_alarm() - Have an event of that kind at @t, and no other: the one before counts no more */
void multicast_alarm(struct fabric *f, struct member *m, enum alarm kind, ps_t *at, ps_t t)
{
	*at = t;
	offload_later(f, m, t, (uint64_t)kind << ALARM_SHIFT | (uint64_t)t);
}

static ps_t *alarm_of(struct multicast *s, uint64_t what)
{
	switch ((enum alarm)(what >> ALARM_SHIFT)) {
	case ALARM_PACE: return &s->pace_event;
	case ALARM_TURN: return &s->turn;
	case ALARM_CUTOFF: return &s->cutoff;
	}
	return NULL;
}

static bool due(const struct member *m, uint64_t what)
{
	struct multicast *s = m->state;
	const ps_t *at = alarm_of(s, what);

	return !m->left && s->armed && at && *at == (ps_t)(what & ((1ull << ALARM_SHIFT) - 1));
}

/* multicast_memory() - Memory of the operation, or NULL if the worker has gone */
uint8_t *multicast_memory(const struct member *m, uint32_t key, uint64_t at, uint64_t bytes)
{
	return worker_memory(m->nic->worker, key, at, bytes);
}

/* multicast_ended() - The operation is over: the worker is told how much is missing, and what is here */
void multicast_ended(struct fabric *f, struct member *m)
{
	struct multicast *s = m->state;
	size_t bytes = (size_t)(s->chunks + 63) / 64 * 8;
	uint8_t *bitmap = s->missing ? multicast_memory(m, s->arm.in_key, s->arm.in, bytes) : NULL;

	if (bitmap) {
		memcpy(bitmap, s->here, bytes);
		s->visible = pcie_write(m->nic, f->clock.now, (uint32_t)bytes);
	}
	if (s->missing)
		multicast_listen(f, m);
	else
		memset(s->silent, 0, m->group->count * s->trees * sizeof s->silent[0]);
	s->armed = s->started = s->waits = false;
	s->pace_event = s->turn = s->cutoff = PS_NEVER;
	offload_done(f, m, s->wr_id, WC_SUCCESS, s->missing, s->visible);
}

/* multicast_complete() - All is sent, and all is here */
bool multicast_complete(const struct multicast *s)
{
	return s->started && s->next == s->end && !s->missing;
}

/* What a member sends on its part: nothing, a chunk or more */
bool multicast_sending(const struct multicast *s)
{
	return s->started && s->turn == PS_NEVER && s->next < s->end;
}

static void arm(struct member *m, const struct offload_wr *wr)
{
	struct multicast *s = m->state;
	uint64_t root = wr->args[ARM_ROOT];

	s->arm = *wr;
	s->number = (uint32_t)wr->args[ARM_NUMBER];
	s->layout = layout_of(wr->count, (uint32_t)wr->args[ARM_ELEMENT], (uint32_t)m->group->args[ARG_PAYLOAD],
			      root == NO_ROOT ? m->group->count : 1, (uint32_t)root);
	s->chunks = layout_chunks(&s->layout);
	s->next = s->end = 0;
	if (root == NO_ROOT || root == m->index) {
		uint32_t part = root == NO_ROOT ? m->index : 0;
		s->next = part_first(&s->layout, part);
		s->end = part_first(&s->layout, part + 1);
	}
	s->missing = s->chunks - (s->end - s->next);
	size_t words = (size_t)(s->chunks + 63) / 64;
	if (words > s->here_room) {
		free(s->here);
		s->here = malloc(words * sizeof *s->here);
		if (!s->here)
			abort();
		s->here_room = words;
	}
	memset(s->here, 0, words * sizeof *s->here);
	for (uint64_t c = s->next; c < s->end; c++)
		s->here[c / 64] |= 1ull << c % 64;
	s->armed = true;
	s->started = false;
	s->turn = s->cutoff = s->pace_event = PS_NEVER;
	s->last = s->visible = 0;
}

/* multicast_on_cable() - Time of so many frames of a whole chunk, one after the other on the NIC's cable */
ps_t multicast_on_cable(const struct member *m, uint64_t frames)
{
	uint32_t payload = ((const struct multicast *)m->state)->layout.payload;

	return (ps_t)frames * port_serialization(&m->nic->port[0], roce_frame_bytes(OFF_MULTICAST, payload));
}

/* multicast_turn_after() - When the member's turn comes if its chain is now through with @chunk, which is @sender's */
ps_t multicast_turn_after(const struct fabric *f, const struct member *m, uint32_t sender, uint64_t chunk)
{
	const struct multicast *s = m->state;
	uint64_t left = part_first(&s->layout, sender + 1) - chunk - 1;
	uint32_t unheard = 0;

	for (uint32_t i = sender + s->chains; i < m->index; i += s->chains, unheard++)
		left += part_chunks(&s->layout, i);
	return f->clock.now + (ps_t)left * s->interval + unheard * s->slack;
}

static void start(struct fabric *f, struct member *m, const struct offload_wr *wr)
{
	struct multicast *s = m->state;
	bool all = s->layout.root == UINT32_MAX;
	uint32_t n = m->group->count;

	s->started = true;
	s->begin = f->clock.now;
	s->wr_id = wr->wr_id;
	s->slack = (ps_t)wr->args[START_SLACK];
	s->chains = all ? (uint32_t)wr->args[START_CHAINS] : n;
	s->interval = multicast_on_cable(m, !all ? 1 : s->chains == n ? n - 1 : s->chains);
	s->next_send = f->clock.now;
	s->visible = s->visible > f->clock.now ? s->visible : f->clock.now;
	uint32_t turns = all ? (n + s->chains - 1) / s->chains : 1;
	multicast_alarm(f, m, ALARM_CUTOFF, &s->cutoff, f->clock.now + multicast_on_cable(m, s->chunks) + turns * s->slack);
	if (all && m->index >= s->chains) {
		uint32_t first = m->index % s->chains;
		uint64_t chunk = part_first(&s->layout, first) - 1; /* before its first */
		multicast_alarm(f, m, ALARM_TURN, &s->turn, multicast_turn_after(f, m, first, chunk) + s->slack);
	}
	if (multicast_complete(s))
		multicast_ended(f, m);
	else
		nic_tx_ready(f, &m->nic->tx[0], &m->source);
}

static void post(struct fabric *f, struct member *m, const struct offload_wr *wr)
{
	struct multicast *s = m->state;

	if (wr->collective == MC_ARM && !s->started)
		arm(m, wr);
	else if (wr->collective == MC_START && s->armed && !s->started && s->number == wr->args[START_NUMBER])
		start(f, m, wr);
	else
		offload_done(f, m, wr->wr_id, WC_FLUSHED, 0, f->clock.now + m->nic->p.pcie_latency);
}

static void cut_off(struct fabric *f, struct member *m)
{
	struct multicast *s = m->state;
	ps_t again = s->next < s->end ? f->clock.now + s->slack : s->last + s->slack;
	ps_t patience = s->begin + LATE_TIMEOUTS * m->nic->p.timeout;

	if (again <= f->clock.now && patience > f->clock.now && multicast_somebody_late(s)) {
		s->waits = true;
		again = patience;
	}

	if (again > f->clock.now) {
		multicast_alarm(f, m, ALARM_CUTOFF, &s->cutoff, again);
		return;
	}
	m->nic->timeouts++;
	multicast_ended(f, m);
}

static void event(struct fabric *f, struct member *m, ps_t t, uint64_t what)
{
	struct multicast *s = m->state;

	(void)t;
	switch ((enum alarm)(what >> ALARM_SHIFT)) {
	case ALARM_PACE: s->pace_event = PS_NEVER; break;
	case ALARM_TURN:
		s->turn = PS_NEVER;
		s->next_send = f->clock.now;
		break;
	case ALARM_CUTOFF: cut_off(f, m); return;
	}
	nic_tx_ready(f, &m->nic->tx[0], &m->source);
}

static void group_closed(struct fabric *f, struct group *g)
{
	(void)f;
	for (uint32_t i = 0; i < g->count; i++) {
		struct multicast *s = g->member[i].state;
		free(s->here);
		free(s);
	}
}

static const struct offload_ops multicast = {
	.name = "multicast",
	.asks = true,
	.tx = &multicast_tx,
	.check = check,
	.open = group_opened,
	.check_wr = check_wr,
	.post = post,
	.receive = multicast_receive,
	.due = due,
	.event = event,
	.close = group_closed,
};
OFFLOAD_KIND(multicast);
