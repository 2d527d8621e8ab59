/* What opcodes of RoCEv2 packets say of them: one look at a table, as each packet is asked several times */
#ifndef OPCODE_H
#define OPCODE_H

#include <stdbool.h>
#include <stdint.h>

enum opcode_says {
	OP_SEND = 1 << 0,
	OP_WRITE = 1 << 1,
	OP_BEGINS = 1 << 2, /* a message */
	OP_ENDS = 1 << 3,
	OP_RESPONSE = 1 << 4, /* it brings what a READ or an atomic operation asked for */
	OP_ATOMIC = 1 << 5,
	OP_DATAGRAM = 1 << 6,
	OP_OFFLOAD = 1 << 7,
	/* and what stands behind the BTH beside */
	OP_RETH = 1 << 8,
	OP_IMM = 1 << 9,
	OP_INVALIDATES = 1 << 10, /* a key, in the place of an immediate */
	OP_AETH = 1 << 11,
	OP_ORIGINAL = 1 << 12, /* AtomicAckETH */
};

extern const uint16_t roce_says[256];
extern const uint8_t roce_extension_bytes[256]; /* of all that stands between the BTH and the payload */

#define SAYS(function, what)                                                                                                \
	static inline bool roce_##function(uint8_t opcode)                                                                  \
	{                                                                                                                   \
		return roce_says[opcode] & (what);                                                                          \
	}
SAYS(has_reth, OP_RETH)
SAYS(has_imm, OP_IMM)
SAYS(has_aeth, OP_AETH)
SAYS(has_original, OP_ORIGINAL)
SAYS(invalidates, OP_INVALIDATES)
SAYS(is_first, OP_BEGINS)
SAYS(is_last, OP_ENDS)
SAYS(is_write, OP_WRITE)
SAYS(is_send, OP_SEND)
SAYS(is_atomic, OP_ATOMIC)
SAYS(is_response, OP_RESPONSE)
SAYS(is_datagram, OP_DATAGRAM)
SAYS(is_offload, OP_OFFLOAD)
#undef SAYS

const char *roce_opcode_name(uint8_t opcode);

#endif
