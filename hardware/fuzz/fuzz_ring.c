/* NIC-side rings: requests of the members in any order, packets near what the left neighbour would send, and ends.
 *
 * Ranks 0 to 2 are a ring whose frames really cross the switch, so that requests are carried out.
 */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "engine/fabric.h"
#include "link/frame.h"
#include "nic/nic.h"
#include "offload/offload.h"
#include "offload/ring/ring.h"
#include "transport/qp.h"
#include "vector/element.h"
#include "wire/roce.h"
#include "worker/services.h"
#include "worker/worker.h"
#include "harness.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

#define COUNT 4096u

static void open_group(struct fabric *f, uint8_t how)
{
	const uint64_t args[] = {
		4 * COUNT,
		how & 96 ? EL_FLOAT32 : how >> 2 & 3,
		(how & 96) == 96,
		(how >> 5 & 3) % 3,
	};

	harness_join(f, "ring", args, sizeof args / sizeof *args);
	harness_run(f, 20);
}

static uint64_t odd(uint8_t x)
{
	return x < 200 ? x * 61ull : x < 250 ? 1ull << (x - 200) : UINT64_MAX - (255u - x);
}

/* A request of a rank; most hold */
static void request(struct fabric *f, struct input *in)
{
	uint8_t body[80] = {0}, packet[128], rank = next(in) % RANKS, what = next(in), shape = next(in);
	const struct member *m = offload_member(&f->nics[rank], 1);
	const struct ring_member *r = m ? m->state : NULL;
	uint8_t element = r && !(shape & 128) ? (uint8_t)r->element : shape & 7;
	uint8_t *p = put_u8(put_u8(put_u8(put_u8(put_le32(body, 1), what % 5), shape % 6), element), 0);

	p = put_le32(put_le32(put_le64(p, 7), 1), what & 64 ? next(in) : 1);
	p = put_le64(put_le64(p, what & 32 ? odd(next(in)) : 0), what & 128 ? odd(next(in)) : 32768);
	put_le64(p, shape & 64 ? odd(next(in)) : shape & 32 ? COUNT : next(in) * 16u + 1u);
	size_t n = command(packet, 13, body, sizeof body);
	harness_say(f, rank, packet, n + wait_for(packet + n, what & 16 ? 1 : 99, UINT64_MAX), -1);
}

/* What the left neighbour might send, or a stranger */
static void packet(struct fabric *f, struct input *in)
{
	static const uint8_t payload[2048] = {1, 2, 3, 255};
	uint8_t rank = next(in) % RANKS, flags = next(in), opcode = next(in);
	const struct nic *n = &f->nics[rank];
	uint32_t number = 16u + (flags & 1 ? next(in) % 4 : 1);
	struct qp *q = qp_find(&f->nics[rank], number);
	struct roce_packet pkt = {
		.src_ip = q && q->peer ? q->peer->ip : f->nics[0].ip,
		.dst_ip = n->ip,
		.src_port = 0xc000,
		.ttl = 64,
		.opcode = flags & 2 ? opcode : opcode % 5,
		.ack_request = flags & 4,
		.dst_qp = number,
		.psn = ((q ? (uint32_t)q->expected : 0) + (flags & 8 ? next(in) : 0)) & PSN_MASK,
		.syndrome = flags & 16 ? next(in) : AETH_ACK,
		.payload = payload,
		.payload_bytes = flags & 32 ? next(in) * 8u : q ? q->mtu : 0,
	};

	memcpy(pkt.dst_mac, n->mac, 6);
	harness_receive(f, rank, &pkt);
}

static void leave(struct fabric *f, unsigned rank)
{
	uint8_t body[8], said[64];

	put_le32(put_le32(body, 1), 0);
	size_t n = command(said, 14, body, sizeof body);
	harness_say(f, rank, said, n + wait_for(said + n, 1, UINT64_MAX), -1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct input in = input_of(data, len);
	uint8_t setting = next(&in);
	struct fabric *f = harness_open(setting & 2);

	open_group(f, setting);
	for (int steps = 0; in.v.left && steps < 200; steps++) {
		uint8_t what = next(&in);
		switch (what % 4) {
		case 0: harness_run(f, 1 + what / 4 % 8); break;
		case 1: request(f, &in); break;
		default: packet(f, &in); break;
		}
		if (what == 252)
			worker_end(f, &f->workers[next(&in) % RANKS], WORKER_LOST, "died");
		else if (what == 248)
			leave(f, next(&in) % RANKS);
	}
	harness_run(f, 60);
	for (unsigned r = 0; r < RANKS; r++)
		worker_end(f, &f->workers[r], WORKER_LOST, "over");
	harness_run(f, 60);
	for (unsigned r = 0; r < RANKS; r++)
		if (!f->groups && f->nics[r].engine_used)
			abort(); /* memory that nobody gives back */
	harness_close(f);
	return 0;
}
