/* Requests of queue pairs: what is posted, and how it ends. */
#ifndef TRANSPORT_REQUEST_H
#define TRANSPORT_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

enum wr_opcode { WR_WRITE, WR_WRITE_IMM, WR_SEND, WR_SEND_IMM, WR_READ, WR_COMPARE_SWAP, WR_FETCH_ADD, WR_OPCODES };

/* What may be done with memory, and what peers may do: as in ibv_access_flags */
enum right { MAY_BE_READ = 0, LOCAL_WRITE = 1, REMOTE_WRITE = 2, REMOTE_READ = 4, REMOTE_ATOMIC = 8, RIGHTS = 15 };

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
	bool after; /* a write without an immediate went before it: nobody was told of that yet */
	bool fence; /* not before all that was read before has come */
	uint64_t first; /* packet number of its first packet, and how many */
	uint64_t packets;
	uint64_t compare, swap; /* of an atomic operation; or what is added, in `swap` */
};

/* Is all that is sent for it in the NIC already? */
static inline bool wr_in_nic(const struct send_wr *wr)
{
	return wr->opcode >= WR_READ || (wr->pieces && wr->pieces->inline_bytes);
}

/* Is it answered with more than an acknowledgement? */
static inline bool wr_reads(const struct send_wr *wr)
{
	return wr->opcode >= WR_READ;
}

struct recv_wr {
	uint64_t wr_id, offset, length;
	struct pieces *pieces; /* likewise */
	uint32_t lkey;
};

#endif
