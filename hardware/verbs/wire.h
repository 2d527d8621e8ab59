/* The bytes on the worker socket, by fabricd's own tables (docs/fabricd-protocol.md) */
#ifndef WIRE_H
#define WIRE_H

#include <stdint.h>

#define HELLO_MAGIC 0x31574252u
#define WORKER_PROTOCOL 5

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
#include "worker/records.def"
#undef RECORD
};

enum { WIRE_WRITE, WIRE_WRITE_IMM, WIRE_SEND };
enum { CONNECT_NETWORK_ONLY = 1, CONNECT_OWN_CLASS = 2 };

struct wire_register {
	uint64_t length;
	uint32_t cookie, zero;
};
struct wire_connect {
	uint32_t peer, tag, cookie;
	uint16_t private_bytes, flags;
	uint32_t transport, zero;
};
struct wire_send {
	uint32_t qp;
	uint8_t opcode, flags;
	uint16_t zero;
	uint64_t wr_id;
	uint32_t lkey, rkey;
	uint64_t local, remote, length;
	uint32_t imm, zero2;
};
struct wire_receive {
	uint32_t qp, lkey;
	uint64_t wr_id, offset, length;
};
struct wire_wait {
	uint32_t records, zero;
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

/* fabricd's endings of a request, as verbs numbers them (transport/qp.h) */
#define WIRE_FLUSHED 5

_Static_assert(sizeof(struct wire_send) == 56 && sizeof(struct wire_receive) == 32 && sizeof(struct wire_record) == 40,
	       "as fabricd lays them out");

#endif
