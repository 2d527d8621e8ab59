/* Multicast: requests of the members, and datagrams near what they expect, of operations before, now and to come.
 *
 * Ranks 0 to 2 are a group, as if the controller had agreed; Open vSwitch sends nothing back, so that whatever
 * comes in is the input's.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bytes.h"
#include "control/control.h"
#include "engine/fabric.h"
#include "link/frame.h"
#include "nic/nic.h"
#include "offload/offload.h"
#include "wire/ip.h"
#include "wire/roce.h"
#include "worker/services.h"
#include "worker/worker.h"
#include "harness.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);
void mac_of(uint32_t ip, uint8_t mac[6]); /* accelerator.c */

#define PAYLOAD 256u

/* Somebody who is asked, and whose answer is ours */
static void controller_comes(struct fabric *f)
{
	struct control_conn *c = calloc(1, sizeof *c);
	int fds[2];

	if (!c || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds))
		abort();
	close(fds[1]);
	c->fd = fds[0];
	strcpy(c->acts, "controller");
	c->next = f->conns;
	f->conns = c;
}

static void open_group(struct fabric *f, uint64_t payload)
{
	harness_join(f, "multicast", &payload, 1);
	harness_run(f, 5);
	if (!f->groups || !f->groups->asked)
		abort();
	json_t *answer = json_pack("{s:I}", "group_ip", (json_int_t)GROUP_IP);
	clock_answered(f, f->groups->asked);
	offload_answered(f, f->groups->asked, answer);
	json_decref(answer);
	harness_run(f, 20);
}

static uint64_t odd(uint8_t x)
{
	return x < 200 ? x * 37ull : x < 250 ? 1ull << (x - 200) : UINT64_MAX - (255u - x);
}

static void request(struct fabric *f, struct input *in)
{
	uint8_t body[80], packet[128], rank = next(in) % RANKS, what = next(in);
	uint8_t *p = put_u8(put_u8(put_u8(put_u8(put_le32(body, 1), what % 3), 0), 0), 0);

	p = put_le32(put_le32(put_le64(p, 7), 1), what & 64 ? next(in) : 1);
	p = put_le64(put_le64(p, odd(next(in))), odd(next(in)));
	p = put_le64(p, odd(next(in)));
	p = put_le64(p, next(in) % 4); /* number */
	if (what % 3 == 0) /* arm: root, element */
		p = put_le64(put_le64(p, what & 128 ? UINT64_MAX : next(in) % 4), what & 32 ? next(in) : 1 + what / 4 % 4);
	else /* start: slack, chains */
		p = put_le64(put_le64(p, 1000 + odd(next(in))), next(in) % 5);
	put_le64(p, 0);
	size_t n = command(packet, 13, body, sizeof body);
	harness_say(f, rank, packet, n + wait_for(packet + n, what & 16 ? 1 : 99, UINT64_MAX), -1);
}

static void datagram(struct fabric *f, struct input *in)
{
	static const uint8_t payload[2048] = {1};
	uint8_t rank = next(in) % RANKS, from = next(in), psn = next(in), flags = next(in);
	uint32_t bytes = flags & 1 ? next(in) * 8u : PAYLOAD;
	struct roce_packet pkt = {
		.src_ip = f->nics[from % RANKS].ip,
		.dst_ip = flags & 2 ? GROUP_IP + 1 : GROUP_IP,
		.src_port = 0xc000,
		.ttl = 64,
		.opcode = flags & 4 ? OFF_RESULT : OFF_MULTICAST,
		.dst_qp = flags & 8 ? next(in) : 1,
		.psn = psn,
		.offload = {.offset = flags & 16 ? odd(next(in)) : psn * PAYLOAD,
			    .child = flags & 32 ? next(in) : from % RANKS,
			    .count = (uint16_t)bytes,
			    .more = flags & 64 ? (uint32_t)odd(next(in)) : from >> 6},
		.payload = payload,
		.payload_bytes = flags & 128 ? next(in) : bytes,
	};

	mac_of(pkt.dst_ip, pkt.dst_mac);
	harness_receive(f, rank, &pkt);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct input in = input_of(data, len);
	uint8_t setting = next(&in);
	struct fabric *f = harness_open(setting & 2);

	controller_comes(f);
	open_group(f, setting & 4 ? 1025 : PAYLOAD); /* longer than the MTU: refused */
	for (int steps = 0; in.v.left && steps < 200; steps++) {
		uint8_t what = next(&in);
		switch (what % 4) {
		case 0: harness_run(f, 1 + what / 4 % 8); break;
		case 1: request(f, &in); break;
		default: datagram(f, &in); break;
		}
		if (what == 252)
			worker_end(f, &f->workers[next(&in) % RANKS], WORKER_LOST, "died");
	}
	harness_run(f, 60);
	for (unsigned r = 0; r < RANKS; r++)
		worker_end(f, &f->workers[r], WORKER_LOST, "over");
	harness_run(f, 60);
	if (f->groups)
		abort(); /* a group that all have left */
	harness_close(f);
	return 0;
}
