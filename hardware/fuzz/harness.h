/* A fabric inside the fuzzer's process: real code, sockets for TAP devices, and a few lines for Open vSwitch. */
#ifndef HARNESS_H
#define HARNESS_H

#include "base/bytes.h"
#include "engine/fabric.h"
#include "worker/worker.h"

#define RANKS 3
#define REGION 65536
#define ACCELERATOR_IP 0xc6120000u + RANKS
#define GROUP_IP 0xef000001u

/* The fuzzer's input, taken byte by byte: what is missing is 0 */
struct input {
	struct view v;
};

static inline struct input input_of(const uint8_t *data, size_t len)
{
	return (struct input){view_of(data, len)};
}

static inline uint8_t next(struct input *in)
{
	return in->v.left ? get_u8(&in->v) : 0;
}

/* Some of what follows: as many bytes as the next two say, or as there are */
static inline const uint8_t *some(struct input *in, size_t *len)
{
	size_t n = (size_t)next(in) | (size_t)next(in) << 8;

	*len = n < in->v.left ? n : in->v.left;
	return view_take(&in->v, *len);
}

struct fabric *harness_open(bool congested);
void harness_group(struct fabric *f, bool best_effort);
size_t post_offload(uint8_t *to, uint32_t group, uint8_t reduction, uint8_t element, uint64_t in, uint64_t out, uint64_t count);
void harness_close(struct fabric *f);
void harness_run(struct fabric *f, int rounds);

/* Workers: rank r's end of its session */
void harness_say(struct fabric *f, unsigned rank, const uint8_t *data, size_t len, int memfd);
int harness_memfd(unsigned kind);
void harness_register(struct fabric *f, struct worker *w, uint32_t access);
struct worker *harness_program(struct fabric *f, unsigned rank);
uint32_t harness_key(const struct worker *w, unsigned which);
void harness_told(struct fabric *f, struct worker *w, const uint8_t *data, size_t len, int memfd);
void harness_connect(struct fabric *f, unsigned a, unsigned b, bool network);
void harness_join(struct fabric *f, const char *kind, const uint64_t *args, unsigned count);

/* What comes in on a rank's cable */
struct roce_packet;
void harness_receive(struct fabric *f, unsigned rank, const struct roce_packet *pkt);

/* Commands */
size_t command(uint8_t *to, uint16_t op, const uint8_t *body, uint16_t body_bytes);
size_t post_send(uint8_t *to, uint32_t qp, uint8_t opcode, uint32_t lkey, uint32_t rkey, uint64_t local, uint64_t remote,
		 uint64_t length);
size_t post_recv(uint8_t *to, uint32_t qp, uint32_t key, uint64_t offset, uint64_t length);
uint8_t *group_head(uint8_t *body, const char *kind, uint32_t tag, uint32_t cookie);
size_t wait_for(uint8_t *to, uint32_t records, uint64_t until);

/* Open vSwitch: what comes out at a switch's port */
void ovs_emits(unsigned port, const uint8_t *data, size_t len);
extern bool ovs_silent; /* it keeps what it gets */
const uint8_t *ovs_last(size_t *len);

#endif
