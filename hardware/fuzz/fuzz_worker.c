/* The worker protocol: three ranks send what they like, while events run.
 *
 * Input: steps.  A step is a byte that says what, and what it needs:
 *  raw packets as they are, commands put together from few bytes so that most of them hold, or a run of events.
 */
#include "base/bytes.h"
#include "engine/fabric.h"
#include "worker/worker.h"
#include "harness.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static uint64_t odd_size(uint8_t x)
{
	static const uint64_t sizes[] = {0,	1,     3,      1023,       1024,	   1025,	  4096, 20000,
					 65535, 65536, 65537,  1ull << 31, (1ull << 31) + 1, UINT64_MAX, UINT64_MAX - 7, 1ull << 63};

	return x < 128 ? sizes[x % 16] : x * 17ull;
}

/* One command from a few bytes; most of them hold */
static size_t cooked(struct input *in, uint8_t *to)
{
	uint8_t body[280] = {0}, op = next(in) % 16, a = next(in), b = next(in), c = next(in);
	uint32_t qp = 16u + a % 3;
	static const char *const kinds[] = {"", "aggregate", "ring", "multicast", "best_effort"};
	uint8_t *p = body;

	switch (op) {
	case 0: /* AWAIT_PROGRAMS */
		put_le64(put_le32(put_le32(p, a % 3), 0), b & 1 ? UINT64_MAX : (uint64_t)b * 100000);
		return command(to, 22, body, 16);
	case 2:
		p = put_le64(put_le64(put_le64(p, a & 1 ? REGION - (c & 64) * 16u : odd_size(b)), c & 64 ? 4096 * 5 : 0), c & 64 ? 4096 : 0);
		put_le64(put_le32(put_le32(p, c), a & 2 ? RIGHTS : b), 0);
		return command(to, op, body, 40);
	case 3:
		p = put_le32(put_le32(put_le32(p, a % (RANKS + 1)), b % 4), c);
		put_le32(put_le32(put_le16(put_le16(p, c & 0x70 ? 0 : c), b >> 7), b >> 5 & 3), 0);
		return command(to, op, body, (uint16_t)(24 + (c & 0x70 ? 0 : (c + 7) & ~7)));
	case 4: {
		uint64_t local = odd_size(next(in)), remote = odd_size(next(in));
		return post_send(to, qp, b % 4, a >> 6, c >> 6, local, remote, odd_size(c));
	}
	case 5: return post_recv(to, qp, b % 3, odd_size(next(in)), odd_size(c));
	case 6:
	case 7:
		put_le64(put_le64(p, a), odd_size(b) * c);
		return command(to, op, body, op == 6 ? 16 : 8);
	case 8: return wait_for(to, a % 4, b & 1 ? UINT64_MAX : (uint64_t)b * 100000 + ((uint64_t)c << 20));
	case 9:
		put_le32(put_le32(p, a % 3), b % (RANKS + 2));
		return command(to, op, body, 8);
	case 10: return command(to, op, body, 0);
	case 11: return command(to, a < 16 ? op : 10, body, 0);
	case 12:
		p = group_head(p, kinds[a % 5], b % 3, c);
		for (int i = 0; i < 8; i++)
			p = put_le64(p, odd_size(next(in)));
		for (uint32_t r = 0; r < RANKS + 1; r++)
			p = put_le32(p, r < RANKS ? (r + a / 128) % (RANKS + a / 192) : 0);
		return command(to, op, body, (uint16_t)(p - body));
	case 13: return post_offload(to, b % 3, c % 6, b >> 6, odd_size(a), odd_size(next(in)), a & 1 ? c * 10u : odd_size(c));
	default: return command(to, op, body, 8);
	}
}

#define ON_DEMAND 64u /* of REGISTER's access */

/* Likewise of a program, whose keys are told to it, and whose queue pairs are any of its NIC's */
static size_t of_program(struct input *in, const struct fabric *f, const struct worker *w, uint8_t *to)
{
	uint8_t body[320] = {0}, op = next(in) % 16, a = next(in), b = next(in), c = next(in);
	const struct worker *other = f->workers[b % RANKS].next;
	size_t n;
	uint32_t qp = 16u + a % 6, key = harness_key(w, c % 3), rkey = harness_key(other ? other : w, b % 3);
	uint8_t *p = body;

	switch (op) {
	case 0: return command(to, 15, put_le32(body, c & 8 ? key : c) - 4, 8);
	case 1:
		put_le32(put_le32(put_le32(put_u8(put_le32(p, c), a & 15 ? (2 + a / 16 % 3) : a) + 3, 0), b & 3), 0);
		return command(to, 16, body, 24);
	case 2:
	case 3:
	case 4:
		for (unsigned state = op == 2 ? b : 1; state <= (op == 2 ? b : 3); state++, to += 48) {
			p = put_u8(put_u8(put_u8(put_u8(put_u8(put_u8(put_le32(body, qp), (uint8_t)(state % 7)), c % 7), a & 31), a >> 5), b & 7), c & 31);
			p = put_le32(put_le32(put_le32(put_u8(put_u8(p, a % 5), b % 5), c & 1 ? 0xfffffe : 0), c & 1 ? 0xfffffe : 0), 16u + b % 6);
			p = put_le32(p, f->nics[(b >> 4) % RANKS].ip + (c == 255));
			put_le32(put_le32(put_u8(put_u8(put_u8(put_u8(p, a >> 7), b & 63), b & 7), 15), c & 32 ? 1000000 : 0), c >> 6);
			command(to, 17, body, 40);
		}
		return op == 2 ? 48 : 144;
	case 5: return command(to, 18, put_le32(body, qp) - 4, 8);
	case 6:
	case 7: {
		bool local = b % WR_OPCODES >= WR_BIND;
		uint16_t count = local ? 0 : c & 128 ? c : c % 5;
		p = put_le16(put_u8(put_u8(put_le32(p, qp), b % WR_OPCODES), c & 128 && !local ? 9 : 1 | (a & 2)), count);
		uint64_t to_number = (uint64_t)(16u + b % 6) << 32 | f->nics[c % RANKS].ip; /* of a datagram */
		p = put_le64(put_le64(p, a), c & 32 ? to_number : odd_size(next(in)));
		p = put_le32(put_le32(p, b & 64 ? rkey : local ? harness_key(w, a % 4) + (c & 3) : b & 63), local ? key : 5);
		p = put_le64(put_le64(p, c & 64 ? a * 257u : 0), local ? a & 15 : 0);
		for (uint16_t i = 0; !(c & 128) && i < count; i++)
			p = put_le32(put_le32(put_le64(p, odd_size(next(in))), (uint32_t)odd_size(next(in))), key);
		return command(to, 19, body, (uint16_t)(48 + (c & 128 && !local ? (count + 7) & ~7 : 16 * count)));
	}
	case 8:
		p = put_le64(put_le32(put_le32(p, qp), c % 4), a);
		for (uint8_t i = 0; i < c % 4; i++)
			p = put_le32(put_le32(put_le64(p, odd_size(next(in))), (uint32_t)odd_size(next(in))), key);
		if (b & 32)
			put_le32(body, a % 4);
		return command(to, b & 32 ? 25 : 20, body, (uint16_t)(16 + 16 * (c % 4)));
	case 10: put_le32(put_le32(p, a % 4), b % 9); return command(to, 22 + c % 3, body, 8);
	case 11: put_le32(put_le32(put_le32(p, key), a), b & 1); return command(to, 26, body, 16);
	case 12:
		put_le64(put_le64(put_le32(put_le32(p, key), a), odd_size(b)), odd_size(c));
		return command(to, 28, body, 24);
	case 13:
		put_le32(put_le32(put_le32(put_le32(put_le64(put_le64(p, odd_size(b)), odd_size(c)), harness_key(w, a % 4)), 1), 15), b & 1);
		return command(to, 30, body, 32);
	case 14: put_le32(put_le32(put_le32(put_le32(p, 1), b & 1), 1 + a % 2), 0); return command(to, 31, body, 16);
	case 9: return command(to, 21, put_le32(body, c) - 4, 8);
	default: n = wait_for(to, a % 4, b & 1 ? UINT64_MAX : (uint64_t)b * 100000 + ((uint64_t)c << 20));
		to[12] = b >> 1 & 1; /* or until a peer has written */
		return n;
	}
}

/* Some commands of a program, with memory of its own */
static void program_says(struct input *in, struct fabric *f, unsigned rank, uint8_t what)
{
	static uint8_t packet[MESSAGE_MAX];
	struct worker *w = harness_program(f, rank);
	uint8_t body[16];
	size_t n = 0;

	if (what & 4 && w->regions.count < 3)
		harness_register(f, w, (what & 8 ? REGION_RIGHTS : LOCAL_WRITE) | (what & 3 ? 0 : ON_DEMAND));
	if (what & 4 && what & 16 && w->regions.count < 4) {
		put_le64(put_le64(body, 4096u << (what & 3)), 1);
		harness_told(f, w, packet, command(packet, 29, body, 16), harness_memfd(0));
	}
	for (int i = 0; i <= (what >> 3 & 7) && n < 4096; i++)
		n += of_program(in, f, w, packet + n);
	harness_told(f, w, packet, n, -1);
	if (what == 191)
		worker_end(f, w, WORKER_LOST, "died");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct input in = input_of(data, len);
	uint8_t setting = next(&in);
	struct fabric *f = harness_open(setting & 2);
	static uint8_t packet[MESSAGE_MAX];

	if (setting & 1) {
		harness_connect(f, 0, 1, setting & 2); /* congested: two senders to one port */
		harness_connect(f, 1, 2, true);
		if (setting & 4)
			harness_group(f, setting & 8);
	}
	for (int steps = 0; in.v.left && steps < 64; steps++) {
		uint8_t what = next(&in);
		unsigned rank = what & 3;
		if (what < 64) {
			harness_run(f, 1 + what % 8);
		} else if (what < 128) {
			size_t n;
			const uint8_t *raw = some(&in, &n);
			harness_say(f, rank, raw, n, harness_memfd(what >> 2));
		} else if (what < 192) {
			program_says(&in, f, rank, what);
		} else {
			size_t n = 0;
			for (int i = 0; i <= (what >> 2 & 7) && n < 4096; i++)
				n += cooked(&in, packet + n);
			harness_say(f, rank, packet, n, harness_memfd(what >> 5 & 1 ? 0 : 4));
		}
		if (what == 63)
			worker_end(f, &f->workers[next(&in) % RANKS], WORKER_LOST, "died");
	}
	harness_run(f, 30);
	for (unsigned r = 0; r < RANKS; r++)
		worker_end(f, &f->workers[r], WORKER_LOST, "over");
	harness_run(f, 30);
	harness_close(f);
	return 0;
}
