/* The bytes on the worker socket, by fabricd's own tables (docs/fabricd-protocol.md) */
#ifndef WIRE_H
#define WIRE_H

#include <stdint.h>

#define HELLO_MAGIC 0x31574252u
#define WORKER_PROTOCOL 6

enum {
#define COMMAND(number, name, handler, bytes, more, body) name = number,
#include "worker/commands.def"
#undef COMMAND
};

enum {
#define REPLY(number, name, bytes, more, body) REPLY_##name = number,
#include "worker/replies.def"
#undef REPLY
};

enum {
#define RECORD(number, name, what, behind) REC_##name = number,
#include "records/records.def"
#undef RECORD
};

enum { WIRE_WRITE, WIRE_WRITE_IMM, WIRE_SEND, WIRE_SEND_IMM, WIRE_READ, WIRE_COMPARE_SWAP, WIRE_FETCH_ADD, WIRE_SEND_INV, WIRE_BIND, WIRE_LOCAL_INV };
enum { WIRE_SIGNALED = 1, WIRE_FENCE = 2, WIRE_SOLICITED = 4, WIRE_INLINE = 8 };
#define HELLO_PROGRAM 1u
#define PLACE_MOST 2047u

struct wire_hello {
	uint32_t magic;
	uint16_t version, flags;
};
struct wire_register {
	uint64_t length, address, place;
	uint32_t cookie, access, domain, zero;
};
struct wire_pages {
	uint32_t key, flags;
	uint64_t address, length;
};
#define PAGES_THERE 1u
struct wire_alloc_dm {
	uint64_t length;
	uint32_t cookie, zero;
};
struct wire_register_dm {
	uint64_t length, offset;
	uint32_t key, cookie, access, domain;
};
struct wire_alloc_mw {
	uint32_t cookie, domain, type, zero;
};
struct wire_key {
	uint32_t key, zero;
};
struct wire_create_qp {
	uint32_t cookie;
	uint8_t type, zero, zeros[2];
	uint32_t domain, shared, more[2];
};
struct wire_modify_qp {
	uint32_t qp;
	uint8_t state, mtu, timeout, retry, rnr_retry, rnr_timer, reads, peers_reads;
	uint32_t expected_psn, send_psn, peer, address;
	uint8_t flags, dscp, class, access;
	uint32_t rate, qkey;
};
struct wire_qp {
	uint32_t qp, zero;
};
struct wire_send {
	uint32_t qp;
	uint8_t opcode, flags;
	uint16_t count;
	uint64_t wr_id, remote;
	uint32_t rkey, imm;
	uint64_t compare, swap;
};
struct wire_receive {
	uint32_t qp, count;
	uint64_t wr_id;
};
struct wire_piece {
	uint64_t address;
	uint32_t length, key;
};
#define WAIT_WRITTEN 1u
#define WAIT_OUTSIDE 2u
#define WAIT_FORESEEN 4u
struct wire_wait {
	uint32_t records, flags;
	uint64_t until;
};
struct wire_region {
	uint32_t cookie, key;
};
struct wire_records {
	uint64_t now;
	uint32_t count, more;
	uint64_t host, sent;
};
struct wire_record {
	uint16_t kind, length;
	uint32_t status;
	uint64_t wr_id, t;
	uint32_t qp, imm;
	uint64_t bytes;
};

struct wire_rights {
	uint32_t key, access, domain, zero;
};
struct wire_shared {
	uint32_t cookie, domain;
};
struct wire_limit {
	uint32_t srq, limit;
};
struct wire_cookie {
	uint32_t cookie, zero;
};
struct wire_port {
	uint32_t cookie, flags;
	uint64_t rate_bps;
	uint32_t mtu, qkey_violations;
};
#define PORT_UP 1u
#define PORT_GIDS_MOVED 2u
struct wire_number {
	uint32_t cookie, qp;
};

_Static_assert(sizeof(struct wire_register) == 40 && sizeof(struct wire_modify_qp) == 40 && sizeof(struct wire_send) == 48 &&
		       sizeof(struct wire_receive) == 16 && sizeof(struct wire_record) == 40,
	       "as fabricd lays them out");

#endif
