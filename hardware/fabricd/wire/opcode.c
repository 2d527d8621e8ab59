/* Opcodes of RoCEv2 packets as tables, and their names. */
#include "wire/opcode.h"
#include "wire/roce.h"

#define OPCODE(value, name, says) [value] = says,
const uint16_t roce_says[256] = {
#include "wire/opcode.def"
};
#undef OPCODE

#define BYTES(says)                                                                                                         \
	(((says) & OP_DATAGRAM ? DETH_BYTES : 0) + ((says) & OP_RETH ? RETH_BYTES : 0) +                                    \
	 ((says) & (OP_IMM | OP_INVALIDATES) ? IMM_BYTES : 0) + ((says) & OP_AETH ? AETH_BYTES : 0) +                       \
	 ((says) & OP_ATOMIC ? ATOMIC_BYTES : 0) + ((says) & OP_ORIGINAL ? ATOMIC_ACK_BYTES : 0) +                          \
	 ((says) & OP_OFFLOAD ? OFFLOAD_BYTES : 0))
#define OPCODE(value, name, says) [value] = BYTES(says),
const uint8_t roce_extension_bytes[256] = {
#include "wire/opcode.def"
};
#undef OPCODE

const char *roce_opcode_name(uint8_t op)
{
	switch (op) {
#define OPCODE(value, name, says) \
	case value: return name;
#include "wire/opcode.def"
#undef OPCODE
	default: return "opcode?";
	}
}
