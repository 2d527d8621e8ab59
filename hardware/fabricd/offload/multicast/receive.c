/* Multicast: what comes in
 *
 * Theory of Operation
 *
 * A datagram is placed into the vector if it is a chunk of the armed operation, of the
 * right length and not here yet.  One of an operation that is not armed yet is dropped,
 * as by a queue without receives; one of an operation that has ended is late.
 */
#include <string.h>

#include "base/units.h"
#include "engine/fabric.h"
#include "link/frame.h"
#include "link/port.h"
#include "nic/nic.h"
#include "offload/multicast/chunks.h"
#include "offload/multicast/multicast.h"
#include "offload/offload.h"
#include "wire/roce.h"

/* Is it a chunk of the operation, from the member that has it, as it should be? */
static bool belongs(const struct member *m, const struct roce_packet *pkt)
{
	const struct multicast *s = m->state;
	const struct group *g = m->group;
	uint32_t bytes, from = pkt->offload.child;

	return pkt->psn < s->chunks && from == sender_of(&s->layout, pkt->psn) && from != m->index &&
	       pkt->src_ip == g->member[from].nic->ip && pkt->offload.offset == chunk_offset(&s->layout, pkt->psn, &bytes) &&
	       pkt->offload.count == bytes && pkt->payload_bytes == bytes;
}

/* A packet of our chain, from before us: when does it leave the cable to us? */
static void look_ahead(struct fabric *f, struct member *m, uint32_t from, uint64_t chunk)
{
	struct multicast *s = m->state;

	if (s->turn == PS_NEVER || from >= m->index || (m->index - from) % s->chains)
		return;
	ps_t t = multicast_turn_after(f, m, from, chunk);
	if (t != s->turn)
		multicast_alarm(f, m, ALARM_TURN, &s->turn, t);
}

static void take(struct fabric *f, struct member *m, const struct roce_packet *pkt)
{
	struct multicast *s = m->state;
	uint8_t *to = multicast_memory(m, s->arm.out_key, s->arm.out + pkt->offload.offset, pkt->payload_bytes);

	if (to)
		memcpy(to, pkt->payload, pkt->payload_bytes);
	s->here[pkt->psn / 64] |= 1ull << pkt->psn % 64;
	s->missing--;
	s->last = f->clock.now;
	if (s->waits) {
		s->waits = false;
		multicast_alarm(f, m, ALARM_CUTOFF, &s->cutoff, f->clock.now + multicast_on_cable(m, s->chunks) + s->slack);
	}
	ps_t visible = pcie_write(m->nic, f->clock.now, pkt->payload_bytes);
	s->visible = visible > s->visible ? visible : s->visible;
	if (s->started)
		look_ahead(f, m, pkt->offload.child, pkt->psn);
	if (multicast_complete(s))
		multicast_ended(f, m);
}

/* multicast_receive() - A datagram for a member
 *
 * Return: false if it is none of the group's
 */
bool multicast_receive(struct fabric *f, struct member *m, const struct roce_packet *pkt, struct frame *fr)
{
	struct multicast *s = m->state;
	struct nic *n = m->nic;
	int32_t ahead = (int32_t)(pkt->offload.more - s->number);

	if (pkt->opcode != OFF_MULTICAST || pkt->dst_ip != multicast_ip(s, pkt->psn))
		return false;
	bool posted = ahead <= 0 && (s->armed || s->chunks);
	if (!posted || (s->armed && !ahead && !nic_rx_room(f, n, pkt->payload_bytes))) {
		n->out_of_buffer++;
		n->port[0].rx_full += posted;
		port_drop(f, &n->port[0], fr, DROP_NO_RECEIVE_BUFFER);
		return true;
	}
	if (ahead < 0 || !s->armed) {
		if (pkt->offload.child < m->group->count)
			*multicast_silent(s, pkt->offload.child, pkt->psn) = 0; /* late, but there is a way */
		n->duplicate_request++;
		frame_release(f, fr);
		return true;
	}
	if (!belongs(m, pkt))
		return false;
	if (s->here[pkt->psn / 64] >> pkt->psn % 64 & 1)
		n->duplicate_request++;
	else
		take(f, m, pkt);
	frame_release(f, fr);
	return true;
}
