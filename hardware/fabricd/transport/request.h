/* Requests of queue pairs: what is posted, and how it ends. */
#ifndef TRANSPORT_REQUEST_H
#define TRANSPORT_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/roce.h"

struct nic;

enum wr_opcode { WR_WRITE, WR_WRITE_IMM, WR_SEND, WR_SEND_IMM, WR_READ, WR_COMPARE_SWAP, WR_FETCH_ADD, WR_SEND_INV, WR_BIND, WR_LOCAL_INV, WR_OPCODES };

/* What may be done with memory, and what peers may do: as in ibv_access_flags */
enum right { MAY_BE_READ = 0, LOCAL_WRITE = 1, REMOTE_WRITE = 2, REMOTE_READ = 4, REMOTE_ATOMIC = 8, RIGHTS = 15, BIND_WINDOWS = 16, REGION_RIGHTS = 31 };

enum wc_status {
#define STATUS(number, name, words) WC_##name = number,
#include "transport/status.def"
#undef STATUS
};

/* Memory of a request in several pieces, or (inline) its bytes, which came with it */
struct pieces {
	uint32_t count;
	uint32_t inline_bytes; /* 0: there are pieces */
	union {
		struct piece {
			uint64_t at;
			uint32_t bytes, key;
		} piece[1];
		uint8_t data[1];
	};
};

struct send_wr {
	uint64_t wr_id, local, remote, length;
	struct pieces *pieces; /* NULL: one, `length` bytes from `local` on; otherwise it goes with the request */
	uint32_t lkey, rkey, imm;
	uint8_t opcode;
	uint8_t bad; /* enum wc_status that it ends with, as soon as all before it is done: it cannot be carried out */
	bool signaled;
	bool done; /* one that needs no packet: it was carried out */
	bool after; /* a write without an immediate went before it: nobody was told of that yet */
	bool fence; /* not before all that was read before has come */
	uint64_t first; /* packet number of its first packet, and how many */
	uint64_t packets;
	union {
		struct {
			uint64_t compare, swap; /* of an atomic operation; or what is added, in `swap` */
		};
		struct { /* of a window (BIND): what it is of, and what may be done there; the new key stands in `rkey` */
			uint64_t bound_bytes, bound_rights;
		};
		struct { /* of a datagram: where it goes; its Q_Key stands in `rkey` */
			struct nic *to; /* NULL: nowhere */
			uint32_t number;
			uint8_t dscp, class;
			bool own_class; /* not the NIC's */
		};
	};
};

/* Is it answered with more than an acknowledgement? */
static inline bool wr_reads(const struct send_wr *wr)
{
	return wr->opcode >= WR_READ && wr->opcode <= WR_FETCH_ADD;
}

/* Has all that is sent for it come to the NIC with it? */
static inline bool wr_in_nic(const struct send_wr *wr)
{
	return wr_reads(wr) || (wr->pieces && wr->pieces->inline_bytes);
}

/* Does it need no packet? */
static inline bool wr_local(const struct send_wr *wr)
{
	return wr->opcode == WR_BIND || wr->opcode == WR_LOCAL_INV;
}

struct recv_wr {
	uint64_t wr_id, offset, length;
	struct pieces *pieces; /* likewise */
	uint32_t lkey;
};

/* The opcode of a packet of a request */
static inline uint8_t wr_opcode_of(const struct send_wr *wr, bool first, bool last)
{
	if (wr_reads(wr))
		return wr->opcode == WR_READ ? RC_READ_REQUEST : wr->opcode == WR_FETCH_ADD ? RC_FETCH_ADD : RC_COMPARE_SWAP;
	bool imm = wr->opcode == WR_WRITE_IMM || wr->opcode == WR_SEND_IMM;
	if (wr->opcode == WR_SEND_INV && last)
		return first ? RC_SEND_ONLY_INV : RC_SEND_LAST_INV;
	if (wr->opcode == WR_SEND || wr->opcode == WR_SEND_INV || wr->opcode == WR_SEND_IMM)
		return first && last ? (imm ? RC_SEND_ONLY_IMM : RC_SEND_ONLY)
		       : last	     ? (imm ? RC_SEND_LAST_IMM : RC_SEND_LAST)
		       : first	     ? RC_SEND_FIRST
				     : RC_SEND_MIDDLE;
	if (first && last)
		return imm ? RC_WRITE_ONLY_IMM : RC_WRITE_ONLY;
	if (last)
		return imm ? RC_WRITE_LAST_IMM : RC_WRITE_LAST;
	return first ? RC_WRITE_FIRST : RC_WRITE_MIDDLE;
}

#endif
