/* Multicast: a member's own chunks go out, paced. */
#include <string.h>

#include "base/units.h"
#include "engine/fabric.h"
#include "link/frame.h"
#include "nic/nic.h"
#include "offload/multicast/chunks.h"
#include "offload/multicast/multicast.h"
#include "offload/offload.h"
#include "wire/ip.h"
#include "wire/roce.h"

static bool has_packet(const struct fabric *f, const struct tx_source *source)
{
	const struct member *m = (const struct member *)source;
	const struct multicast *s = m->state;

	return !m->left && multicast_sending(s) && f->clock.now >= s->next_send;
}

/* If only its rate keeps the member from sending, wake it in time */
static void none(struct fabric *f, struct tx_source *source)
{
	struct member *m = (struct member *)source;
	struct multicast *s = m->state;

	if (m->left || !multicast_sending(s) || s->next_send <= f->clock.now || s->pace_event == s->next_send)
		return;
	multicast_alarm(f, m, ALARM_PACE, &s->pace_event, s->next_send);
}

static uint32_t build(struct fabric *f, struct tx_source *source, struct frame *fr)
{
	struct member *m = (struct member *)source;
	struct multicast *s = m->state;
	struct nic *n = m->nic;
	uint32_t bytes;
	uint64_t chunk = s->next++, offset = chunk_offset(&s->layout, chunk, &bytes);
	const uint8_t *payload = multicast_memory(m, s->arm.out_key, s->arm.out + offset, bytes);
	struct roce_packet pkt = {
		.src_ip = n->ip,
		.dst_ip = multicast_ip(s, chunk),
		.src_port = roce_job_port(m->group->id),
		.tos = (uint8_t)(n->p.data_dscp << 2 | ECN_ECT0),
		.ttl = TTL_SENT,
		.opcode = OFF_MULTICAST,
		.dst_qp = m->group->id,
		.psn = (uint32_t)chunk & PSN_MASK,
		.offload = {.offset = offset, .child = (uint16_t)m->index, .count = (uint16_t)bytes, .more = s->number},
		.payload = payload,
		.payload_bytes = payload ? bytes : 0,
	};

	mac_of(pkt.dst_ip, pkt.dst_mac);
	memcpy(pkt.src_mac, n->mac, 6);
	frame_grow(f, fr);
	fr->len = roce_build(fr->data, f->frame_room - TRAILER_BYTES, &pkt);
	fr->class = (uint8_t)n->p.data_class;
	fr->data_of_worker = true;
	s->next_send = (f->clock.now > s->next_send ? f->clock.now : s->next_send) + s->interval;
	ps_t fetched = f->clock.now + 2 * n->p.pcie_latency; /* and said so */
	s->visible = fetched > s->visible ? fetched : s->visible;
	if (multicast_complete(s))
		multicast_ended(f, m);
	return pkt.payload_bytes;
}

const struct tx_ops multicast_tx = {.has_packet = has_packet, .build = build, .none = none};
