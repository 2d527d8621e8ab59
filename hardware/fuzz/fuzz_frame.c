/* Frames: parsed and described as they are; received by a NIC with live queue pairs; put out by Open vSwitch. */
#include <string.h>

#include "accelerator/accelerator.h"
#include "engine/fabric.h"
#include "link/frame.h"
#include "link/port.h"
#include "nic/nic.h"
#include "transport/qp.h"
#include "wire/ethernet.h"
#include "wire/ip.h"
#include "wire/roce.h"
#include "harness.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void parse(const uint8_t *data, size_t len)
{
	struct roce_packet pkt;
	char text[256];

	if (roce_parse(data, len, &pkt) == ROCE_OK && pkt.payload_bytes > len)
		__builtin_trap();
	frame_describe(data, len, len, text, sizeof text);
	frame_describe(data, len < DROPPED_BYTES ? len : DROPPED_BYTES, len, text, sizeof text);
	frame_describe(data, len, len, text, 20);
}

static void receive(struct fabric *f, unsigned rank, const uint8_t *data, size_t len, bool scale_up)
{
	struct frame *fr = frame_new(f);

	fr->len = (uint32_t)(len < f->frame_room - TRAILER_BYTES ? len : f->frame_room - TRAILER_BYTES);
	memcpy(fr->data, data, fr->len);
	fr->id = frame_number(&f->nics[rank % RANKS].n);
	nic_receive(f, &f->nics[rank % RANKS], fr, scale_up);
}

/* A RoCE packet near what a queue pair expects, with a correct ICRC; or what trimming has left of it */
static void near_miss(struct fabric *f, struct input *in)
{
	static uint8_t payload[2048];
	uint8_t rank = next(in) % 2, opcode = next(in), flags = next(in);
	payload[3] = opcode == RC_READ_ACK ? next(in) : 0;
	const struct nic *n = &f->nics[rank], *peer = &f->nics[!rank];
	const struct qp *q = n->qp_count ? n->qps[0] : NULL;
	uint8_t frame[2300];

	if (!q)
		return;
	struct roce_packet pkt = {
		.src_ip = peer->ip,
		.dst_ip = n->ip,
		.src_port = 0xc000,
		.ttl = 64,
		.opcode = opcode == RC_CNP || opcode == RC_READ_ACK ? opcode : opcode & 0x1f,
		.tos = (uint8_t)((opcode & 32 ? 36 << 2 : flags & 128 ? 26 << 2 : 0) | (flags & 128 ? 3 : 0)), /* marked */
		.ack_request = flags & 1,
		.dst_qp = flags & 2 ? next(in) : q->number,
		.psn = (uint32_t)(flags & 4 ? (opcode == RC_ACK ? q->send : q->expected) : q->acked) + (uint32_t)(int8_t)next(in),
		.remote_offset = flags & 8 ? UINT64_MAX - next(in) : next(in) * 300ull,
		.rkey = flags & 16 ? next(in) : 1,
		.dma_bytes = next(in) * 100u,
		.syndrome = next(in),
		.msn = 1,
		.payload = payload,
		.payload_bytes = next(in) * 8u + (flags >> 6),
	};
	memcpy(pkt.dst_mac, n->mac, 6);
	memcpy(pkt.src_mac, peer->mac, 6);
	uint32_t len = roce_build(frame, sizeof frame, &pkt);
	if (flags & 32 && len) {
		frame[next(in) % len] ^= next(in);
		roce_set_icrc(frame, len);
	}
	if (opcode & 32 && opcode != RC_CNP && opcode != RC_READ_ACK && len > 64)
		ip_cut(frame, len = 64);
	if (len)
		receive(f, rank, frame, len, false);
}

/* A packet of an offload near what a slot expects, to a rank or to the accelerator */
static void near_offload(struct fabric *f, struct input *in, bool best_effort)
{
	static const uint8_t payload[512];
	uint8_t flags = next(in), who = next(in);
	const struct nic *n = &f->nics[who % RANKS];
	bool to_accelerator = flags & 1;
	uint8_t buffer[700];
	struct roce_packet pkt = {
		.src_ip = to_accelerator ? n->ip : ACCELERATOR_IP,
		.dst_ip = to_accelerator ? ACCELERATOR_IP : flags & 2 ? n->ip : GROUP_IP,
		.src_port = 0xc000,
		.ttl = 64,
		.opcode = (uint8_t)(OFF_CONTRIBUTE + (flags & 4 ? next(in) % 4 : !to_accelerator)),
		.dst_qp = flags & 8 ? next(in) : 1,
		.psn = (uint32_t)(int8_t)next(in) & PSN_MASK,
		.offload = {.offset = flags & 16 ? next(in) : UINT64_MAX,
			    .slot = next(in) % 6,
			    .child = who % 4,
			    .count = next(in) % 70,
			    .exponent = (int16_t)(next(in) * 20 - 2500),
			    .next = (int16_t)(next(in) * 20 - 2500),
			    .flags = next(in)},
		.payload = payload,
	};

	if (best_effort) { /* a partial sum, or to a rank but the server a sum; of one of the first numbers */
		pkt.opcode = flags & 4 ? pkt.opcode : to_accelerator || !(who % RANKS) ? OFF_PARTIAL : OFF_RESULT;
		pkt.src_ip = pkt.opcode == OFF_RESULT ? f->nics[0].ip : pkt.src_ip;
		pkt.offload.more = flags & 16 ? next(in) : pkt.offload.slot;
		pkt.offload.offset = next(in) & (flags & 16 ? 255 : 6);
	}
	pkt.payload_bytes = flags & 32 ? next(in) : pkt.offload.count * 4u;
	uint32_t len = roce_build(buffer, sizeof buffer, &pkt);
	if (!len)
		return;
	if (!to_accelerator) {
		receive(f, who, buffer, len, false);
		return;
	}
	struct frame *fr = frame_new(f);
	memcpy(fr->data, buffer, len);
	fr->len = len;
	fr->id = frame_number(&f->nics[who % RANKS].n);
	accelerator_ops.receive(f, &f->accelerators[0].port, fr);
}

static void from_ovs(struct input *in, const uint8_t *data, size_t len)
{
	uint8_t frame[4096];
	size_t n;
	const uint8_t *last = ovs_last(&n);
	unsigned port = next(in) % (RANKS + 1);

	if (n > sizeof frame || !n || next(in) & 1) { /* foreign */
		ovs_emits(port, data, len);
		return;
	}
	memcpy(frame, last, n); /* one that was handed over, changed or cut, perhaps once more */
	for (int i = next(in) % 4; i > 0; i--)
		frame[(next(in) | (size_t)next(in) << 8) % n] ^= next(in);
	size_t cut = next(in) % 32;
	ovs_emits(port, frame, n > cut ? n - cut : n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	parse(data, len);
	struct input in = input_of(data, len);
	uint8_t packet[512], setting = next(&in);
	struct fabric *f = harness_open(setting & 128);

	harness_connect(f, 0, 1, true);
	if (setting & 32)
		harness_group(f, setting & 16);
	size_t n = 0;
	for (int i = 0; i < 4; i++)
		n += post_recv(packet + n, 16, 1, 0, 3000);
	if (setting & 32)
		n += post_offload(packet + n, 1, 0, setting % 4, 0, 4096, 300);
	harness_say(f, 1, packet, n + wait_for(packet + n, 99, UINT64_MAX), -1);
	n = post_send(packet, 16, setting % 3, 1, 1, 0, 0, setting * 60u);
	if ((setting & 48) == 48) /* the parameter server's rank */
		n += post_offload(packet + n, 1, 0, setting % 4, 0, 4096, 300);
	harness_say(f, 0, packet, n + wait_for(packet + n, 99, UINT64_MAX), -1);
	harness_say(f, 2, packet, wait_for(packet, 99, UINT64_MAX), -1);
	ovs_silent = setting & 64;
	while (in.v.left) {
		uint8_t what = next(&in);
		switch (what & 3) {
		case 0: harness_run(f, 1 + (what >> 2) % 4); break;
		case 1: what & 64 && f->groups ? near_offload(f, &in, setting & 16) : near_miss(f, &in); break;
		default: {
			size_t raw_bytes;
			const uint8_t *raw = some(&in, &raw_bytes);
			if ((what & 3) == 2)
				receive(f, what >> 2, raw, raw_bytes, what & 128);
			else
				from_ovs(&in, raw, raw_bytes);
		}
		}
	}
	ovs_silent = false;
	harness_run(f, 50);
	harness_close(f);
	return 0;
}
