/* The fabric that the fuzzers play with: three ranks on one switch, all in one scale-up domain.
 *
 * Plain, it is one buffer without PFC, ECN or congestion control.  Congested, it has
 * all of them, with thresholds and timers so small that a few packets reach them.
 */
#include "accelerator/accelerator.h"
#include "base/bytes.h"
#include "base/units.h"
#include "config/config.h"
#include "control/control.h"
#include "engine/fabric.h"
#include "link/frame.h"
#include "loop.h"
#include "nic/nic.h"
#include "offload/offload.h"
#include "switch/ovs.h"
#include "switch/switch.h"
#include "wire/roce.h"
#include "worker/services.h"
#include "worker/worker.h"
#include "world.h"
#include "harness.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

void taps_close(void);
void ovs_turn(void);

static const char config[] =
	"{'fabric': 'fuzz', 'clock': {'mode': 'virtual'}, 'fence_tap': 'fence', 'control': {'reaction_ns': 1000},"
	" 'switches': [{'name': 'sw0', 'latency_ns': 500, 'taps': ['port1', 'port2', 'port3', 'port4'], %s,"
	" 'accelerator': {'slots': 12, 'shared_slots': 4, 'elements': 64, 'fan_in': 3, 'ip': 3323068419, 'rate_bps': 1.2e12, 'latency_ns': 0}}],"
	" 'nics': [%s], 'cables': [%s], 'scale_up': [{'nics': ['h0', 'h1', 'h2'], 'rate_bps': 3600e9, 'delay_ns': 300}]}";

static const char plain_switch[] =
	"'buffer_bytes': 20000, 'alpha': 0.25, 'dscp': {'36': 5}, 'trimming': {'classes': [0, 3], 'bytes': 64, 'dscp': 36, 'queue': 5}";
static const char congested_switch[] =
	"'buffer_bytes': 40000, 'alpha': 0.5, 'reserve_bytes': 1200, 'xon_offset_bytes': 1200, 'headroom_bytes': 5000,"
	" 'lossless': [3], 'strict': [6, 7], 'weights': {'0': 1, '3': 2}, 'dscp': {'26': 3, '48': 6}, 'pfc': true,"
	" 'ecn': {'3': {'kmin_bytes': 1000, 'kmax_bytes': 5000, 'pmax': 0.5}},"
	" 'watchdog': {'detect_ns': 3000, 'restore_ns': 5000, 'action': 'drop'}";

/* One control of each kind: by notifications, by what switches stamp, by the round-trip time */
static const char *const congested_nic[RANKS] = {
	"'recovery': 'selective_repeat', 'reorder_packets': 8, 'ordering': 'any', 'cc': {'algorithm': 'dcqcn', 'params': {'min_rate_bps': 1e8,"
	" 'ai_bps': 4e8, 'hai_bps': 2e9, 'g': 0.25, 'alpha_timer_ns': 2000, 'rate_timer_ns': 2000, 'byte_counter_bytes': 8000,"
	" 'fast_recovery': 2, 'decrease_gap_ns': 0, 'cnp_gap_ns': 500}}",
	"'cc': {'algorithm': 'hpcc', 'params': {'min_rate_bps': 1e8, 'base_rtt_ns': 4000, 'window_bytes': 20000, 'eta': 0.95,"
	" 'max_stage': 2, 'ai_bps': 8e8, 'cnp_gap_ns': 500}}",
	"'recovery': 'selective_repeat', 'reorder_packets': 8, 'sack_bits': 32, 'sack_every': 2, 'loss_after_ns': 2000, 'ordering': 'any',"
	" 'multipath': {'policy': 'reps', 'entropies': 16, 'params': {'buffer': 4, 'freeze_ns': 3000, 'explore': 3}},"
	" 'cc': {'algorithm': 'swift', 'params': {'min_rate_bps': 1e8, 'base_rtt_ns': 4000, 'window_bytes': 20000, 'beta': 0.8,"
	" 'max_decrease': 0.5, 'base_target_ns': 5000, 'hop_scale_ns': 100, 'flow_range_ns': 4000, 'flow_min_window': 0.1,"
	" 'flow_max_window': 100, 'ai_packets': 1}}",
};
static const char congested_nics[] =
	", 'pfc': true, 'lossless': [3], 'rx_buffer_bytes': 8192, 'rx_xoff_bytes': 5000, 'rx_xon_bytes': 2500, ";

static int worker_end_fd[RANKS];

#define PROGRAM_FDS 64
static int program_fd[PROGRAM_FDS];
static unsigned program_fds;

static json_t *config_json(bool congested)
{
	char nics[4096] = "", cables[1024] = "", text[8192];

	for (unsigned i = 0; i < RANKS; i++) {
		snprintf(nics + strlen(nics), sizeof nics - strlen(nics),
			 "%s{'name': 'h%u', 'rank': %u, 'mac': '02:00:0a:00:00:%02x', 'ip': '10.0.0.%u', 'mtu': 1024,"
			 " 'pcie_rate_bps': 512e9, 'pcie_latency_ns': 500, 'post_ns': 100, 'tx_buffer_bytes': 8192,"
			 " 'ack_every': 4, 'timeout_ns': 20000, 'retry': 3, 'rnr_timeout_ns': 3000, 'rnr_retry': 3,"
			 " 'trimmed_dscp': 36, 'engine_memory_bytes': 100000, 'engine_prefetch_bytes': 8192%s%s}",
			 i ? "," : "", i, i, i, i + 1, congested ? congested_nics : "", congested ? congested_nic[i] : "");
		snprintf(cables + strlen(cables), sizeof cables - strlen(cables),
			 "%s{'name': 'sw0-h%u', 'a': ['sw0', %u], 'b': ['h%u', 1], 'rate_bps': 400e9, 'delay_ns': 500}",
			 i ? "," : "", i, i + 1, i);
	}
	snprintf(text, sizeof text, config, congested ? congested_switch : plain_switch, nics, cables);
	for (char *c = text; *c; c++)
		if (*c == '\'')
			*c = '"';
	return json_loads(text, 0, NULL);
}

/* harness_open() - A fabric whose clock runs and whose ranks have all said HELLO */
struct fabric *harness_open(bool congested)
{
	struct fabric *f = calloc(1, sizeof *f);
	uint8_t hello[8] = {0x52, 0x42, 0x57, 0x31, WORKER_PROTOCOL}, packet[16];

	if (!f)
		abort();
	f->control_fd = -1;
	world_join(f);
	f->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	f->config = config_json(congested);
	if (!f->config || !config_load(f, f->config)) {
		fprintf(stderr, "fuzz: %s\n", f->error);
		abort();
	}
	f->clock.started = true;
	for (unsigned r = 0; r < RANKS; r++) {
		int fds[2];
		if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds))
			abort();
		f->workers[r].fd = fds[0];
		worker_end_fd[r] = fds[1];
		harness_say(f, r, packet, command(packet, 1, hello, sizeof hello), -1);
		if (f->workers[r].state != WORKER_RUNNING)
			abort(); /* everything after would be refused */
	}
	return f;
}

void harness_close(struct fabric *f)
{
	int epoll_fd = f->epoll_fd;

	fabric_free(f);
	free(f);
	close(epoll_fd);
	for (unsigned r = 0; r < RANKS; r++)
		close(worker_end_fd[r]);
	while (program_fds)
		close(program_fd[--program_fds]);
	taps_close();
}

static void program(struct fabric *f, json_t *said)
{
	if (!said || accelerator_program(f, said))
		abort();
	json_decref(said);
}

/* harness_group() - All ranks open a group whose accelerator adds up, as the controller would have granted it; job 1
 * @best_effort:	In shared slots, with rank 0 as parameter server
 */
void harness_group(struct fabric *f, bool best_effort)
{
	static struct offload_ops granted;
	static const uint32_t ranks[RANKS] = {0, 1, 2};
	struct group_call asked = {.tag = 1, .count = RANKS, .cookie = 1, .args = {4, 16, 20000000, 2}};

	strcpy(asked.kind, best_effort ? "best_effort" : "aggregate");
	for (unsigned r = 0; r < RANKS; r++)
		if (offload_group(f, &f->workers[r], &asked, ranks))
			abort();
	granted = *f->groups->ops;
	granted.asks = false;
	f->groups->ops = &granted;
	if (best_effort) {
		f->groups->granted = json_pack("{s:i, s:i, s:I, s:[I, I, I]}", "slots", 4, "shared_slots", 4, "group_ip", (json_int_t)GROUP_IP, "hops",
					       (json_int_t)ACCELERATOR_IP, (json_int_t)ACCELERATOR_IP,
					       (json_int_t)ACCELERATOR_IP);
		program(f, json_pack("{s:s, s:i, s:b, s:I, s:I, s:[i, i], s:i, s:i}", "switch", "sw0", "job", 1, "shared", 1,
				     "group_ip", (json_int_t)GROUP_IP, "next_ip", (json_int_t)f->nics[0].ip, "ranks", 1, 2,
				     "window", 4, "age_ns", 20000));
	} else {
		f->groups->granted = json_pack("{s:i, s:[[I, i], [I, i], [I, i]]}", "slots", 4, "parents",
					       (json_int_t)ACCELERATOR_IP, 0, (json_int_t)ACCELERATOR_IP, 1,
					       (json_int_t)ACCELERATOR_IP, 2);
		program(f, json_pack("{s:s, s:i, s:i, s:I, s:[{s:I}, {s:I}, {s:I}]}", "switch", "sw0", "job", 1, "slots", 4,
				     "group_ip", (json_int_t)GROUP_IP, "children", "ip", (json_int_t)f->nics[0].ip, "ip",
				     (json_int_t)f->nics[1].ip, "ip", (json_int_t)f->nics[2].ip));
	}
	for (unsigned r = 0; r < RANKS; r++) {
		uint8_t packet[64];
		harness_say(f, r, packet, wait_for(packet, 1, UINT64_MAX), -1);
	}
	harness_run(f, 20);
	if (!f->groups || f->groups->state != GROUP_OPEN)
		abort();
}

static void read_answers(void)
{
	static uint8_t answer[1 << 17];

	for (unsigned r = 0; r < RANKS; r++)
		while (recv(worker_end_fd[r], answer, sizeof answer, MSG_DONTWAIT) > 0)
			;
	for (unsigned k = 0; k < program_fds; k++)
		while (recv(program_fd[k], answer, sizeof answer, MSG_DONTWAIT) > 0)
			;
}

/* harness_run() - Let events happen and Open vSwitch answer, for so many turns at most */
void harness_run(struct fabric *f, int rounds)
{
	ps_t before = f->clock.now;
	bool ran = true;

	for (; rounds > 0 && (ran || f->ovs->head); rounds--) {
		ran = fabric_step(f);
		ovs_turn();
		for (uint16_t i = 0; i < f->switches[0].n.port_count; i++)
			ovs_readable(f, &f->switches[0].n.ports[i]);
		if (!ran && f->ovs->head)
			ovs_tick(f);
		ovs_fence_readable(f);
		read_answers();
		control_idle(f);
		control_sweep(f);
		programs_sweep(f);
		if (f->clock.now < before)
			abort(); /* time went back */
		before = f->clock.now;
	}
}

/* harness_told() - A packet from a session */
void harness_told(struct fabric *f, struct worker *w, const uint8_t *data, size_t len, int memfd)
{
	if (w->fd >= 0)
		worker_message(f, w, data, len, memfd);
	read_answers();
}

/* harness_say() - A packet from a worker */
void harness_say(struct fabric *f, unsigned rank, const uint8_t *data, size_t len, int memfd)
{
	harness_told(f, &f->workers[rank % RANKS], data, len, memfd);
}

/* harness_program() - A program of that rank: the one that there is, or a new one; or its worker, if there were too many */
struct worker *harness_program(struct fabric *f, unsigned rank)
{
	struct worker *w = f->workers[rank % RANKS].next;
	uint8_t hello[8] = {0x52, 0x42, 0x57, 0x31, WORKER_PROTOCOL, 0, 1}, packet[16];
	int fds[2];

	while (w && w->fd < 0)
		w = w->next;
	if (w || program_fds == PROGRAM_FDS)
		return w ? w : &f->workers[rank % RANKS];
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds))
		abort();
	w = program_new(f, &f->workers[rank % RANKS]);
	w->fd = fds[0];
	program_fd[program_fds++] = fds[1];
	harness_told(f, w, packet, command(packet, 1, hello, sizeof hello), -1);
	return w;
}

/* harness_key() - The key of a region of a session, or one that it has not */
uint32_t harness_key(const struct worker *w, unsigned which)
{
	for (uint32_t i = 0; i < w->regions.room; i++)
		for (const struct region *r = w->regions.bucket[i]; r; r = r->next)
			if (!which--)
				return r->key;
	return which;
}

/* harness_memfd() - Memory of a good or bad kind; made once */
int harness_memfd(unsigned kind)
{
	static int fds[4] = {-1, -1, -1, -1};
	static const int seals[4] = {F_SEAL_SHRINK, F_SEAL_SHRINK | F_SEAL_GROW, 0, F_SEAL_SHRINK | F_SEAL_WRITE};
	static const off_t sizes[4] = {REGION, 4096, REGION, REGION};

	kind %= 5;
	if (kind == 4)
		return -1;
	if (fds[kind] < 0) {
		fds[kind] = memfd_create("fuzz", MFD_ALLOW_SEALING | MFD_CLOEXEC);
		if (fds[kind] < 0 || ftruncate(fds[kind], sizes[kind]) || fcntl(fds[kind], F_ADD_SEALS, seals[kind]))
			abort();
	}
	return fds[kind];
}

/* harness_register() - A session registers a region of good memory, with that access */
void harness_register(struct fabric *f, struct worker *w, uint32_t access)
{
	uint8_t body[40], packet[64];
	uint8_t *p = put_le64(put_le64(put_le64(body, REGION), 0), 0);

	put_le64(put_le32(put_le32(p, 1), access), 0);
	harness_told(f, w, packet, command(packet, 2, body, sizeof body), harness_memfd(0));
}

/* register_memory() - A rank registers a region of good memory, key 1 */
static void register_memory(struct fabric *f, unsigned rank)
{
	harness_register(f, &f->workers[rank], RIGHTS);
}

/* harness_connect() - Both ranks register memory and connect; both are running afterwards */
void harness_connect(struct fabric *f, unsigned a, unsigned b, bool network)
{
	for (unsigned i = 0; i < 2; i++) {
		unsigned one = i ? b : a, other = i ? a : b;
		uint8_t body[24], packet[64];
		register_memory(f, one);
		uint8_t *p = put_le32(put_le32(put_le32(body, other), 1), 1);
		put_le64(put_le16(put_le16(p, 0), network), 0);
		size_t n = command(packet, 3, body, 24);
		harness_say(f, one, packet, n + wait_for(packet + n, 1, UINT64_MAX), -1);
	}
	harness_run(f, 20);
}

/* harness_join() - All ranks register memory and ask for one group; @args are its first @count arguments */
void harness_join(struct fabric *f, const char *kind, const uint64_t *args, unsigned count)
{
	uint8_t body[32 + 8 * GROUP_ARGS + 16], packet[512];

	for (unsigned r = 0; r < RANKS; r++) {
		register_memory(f, r);
		memset(body, 0, sizeof body);
		uint8_t *p = group_head(body, kind, 1, 1);
		for (unsigned i = 0; i < count; i++)
			p = put_le64(p, args[i]);
		p = body + 32 + 8 * GROUP_ARGS;
		put_le32(put_le32(put_le32(put_le32(p, 0), 1), 2), 0);
		size_t n = command(packet, 12, body, sizeof body);
		harness_say(f, r, packet, n + wait_for(packet + n, 1, UINT64_MAX), -1);
	}
}

/* harness_receive() - A packet reaches a rank's NIC */
void harness_receive(struct fabric *f, unsigned rank, const struct roce_packet *pkt)
{
	uint8_t bytes[2300];
	struct frame *fr = frame_new(f);

	fr->len = roce_build(bytes, sizeof bytes, pkt);
	if (fr->len > f->frame_room - TRAILER_BYTES)
		fr->len = f->frame_room - TRAILER_BYTES;
	memcpy(fr->data, bytes, fr->len);
	fr->id = frame_number(&f->nics[rank].n);
	nic_receive(f, &f->nics[rank], fr, false);
}

size_t command(uint8_t *to, uint16_t op, const uint8_t *body, uint16_t body_bytes)
{
	put_le32(put_le16(put_le16(to, op), (uint16_t)(8 + body_bytes)), 0);
	if (body_bytes)
		memcpy(to + 8, body, body_bytes);
	return 8u + body_bytes;
}

size_t post_send(uint8_t *to, uint32_t qp, uint8_t opcode, uint32_t lkey, uint32_t rkey, uint64_t local, uint64_t remote,
		 uint64_t length)
{
	uint8_t body[56];
	uint8_t *p = put_le16(put_u8(put_u8(put_le32(body, qp), opcode), 1), 0);

	p = put_le32(put_le32(put_le64(p, 1), lkey), rkey);
	p = put_le64(put_le64(put_le64(p, local), remote), length);
	put_le32(put_le32(p, 7), 0);
	return command(to, 4, body, sizeof body);
}

size_t post_offload(uint8_t *to, uint32_t group, uint8_t reduction, uint8_t element, uint64_t in, uint64_t out, uint64_t count)
{
	uint8_t body[80] = {0};
	uint8_t *p = put_u8(put_u8(put_u8(put_u8(put_le32(body, group), 0), reduction), element), 0);

	p = put_le32(put_le32(put_le64(p, 9), 1), 1);
	put_le64(put_le64(put_le64(p, in), out), count);
	return command(to, 13, body, sizeof body);
}

size_t post_recv(uint8_t *to, uint32_t qp, uint32_t key, uint64_t offset, uint64_t length)
{
	uint8_t body[32];
	uint8_t *p = put_le64(put_le32(put_le32(body, qp), key), 2);

	put_le64(put_le64(p, offset), length);
	return command(to, 5, body, sizeof body);
}

/* group_head() - How the body of a GROUP of all ranks begins; arguments and ranks follow at what is returned */
uint8_t *group_head(uint8_t *body, const char *kind, uint32_t tag, uint32_t cookie)
{
	memset(body, 0, GROUP_KIND_BYTES);
	memcpy(body, kind, strlen(kind));
	return put_le32(put_le32(put_le32(put_le32(body + GROUP_KIND_BYTES, tag), cookie), RANKS), 0);
}

size_t wait_for(uint8_t *to, uint32_t records, uint64_t until)
{
	uint8_t body[16];

	put_le64(put_le32(put_le32(body, records), 0), until);
	return command(to, 8, body, sizeof body);
}
