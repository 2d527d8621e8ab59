/* What opcodes of RoCEv2 packets say of them, and their names. */
#include "wire/roce.h"

bool roce_has_reth(uint8_t op)
{
	return op == RC_WRITE_FIRST || op == RC_WRITE_ONLY || op == RC_WRITE_ONLY_IMM || op == RC_READ_REQUEST;
}

bool roce_has_imm(uint8_t op)
{
	return op == RC_WRITE_LAST_IMM || op == RC_WRITE_ONLY_IMM || op == RC_SEND_LAST_IMM || op == RC_SEND_ONLY_IMM ||
	       op == UD_SEND_ONLY_IMM;
}

/* roce_invalidates() - Has its receiver to invalidate a key? */
bool roce_invalidates(uint8_t op)
{
	return op == RC_SEND_LAST_INV || op == RC_SEND_ONLY_INV;
}

bool roce_is_first(uint8_t op)
{
	return op == RC_SEND_FIRST || op == RC_SEND_ONLY || op == RC_SEND_ONLY_INV || op == RC_SEND_ONLY_IMM || (roce_has_reth(op) && op != RC_READ_REQUEST);
}

bool roce_is_last(uint8_t op)
{
	return op == RC_SEND_LAST || op == RC_SEND_ONLY || op == RC_WRITE_LAST || op == RC_WRITE_ONLY ||
	       roce_has_imm(op) || roce_invalidates(op);
}

bool roce_is_atomic(uint8_t op)
{
	return op == RC_COMPARE_SWAP || op == RC_FETCH_ADD;
}

/* roce_is_response() - Does it bring what a READ or an atomic operation asked for? */
bool roce_is_response(uint8_t op)
{
	return (op >= RC_READ_FIRST && op <= RC_READ_ONLY) || op == RC_ATOMIC_ACK;
}

bool roce_is_write(uint8_t op)
{
	return op >= RC_WRITE_FIRST && op <= RC_WRITE_ONLY_IMM;
}

bool roce_is_send(uint8_t op)
{
	return op <= RC_SEND_ONLY_IMM || roce_invalidates(op);
}

bool roce_is_datagram(uint8_t op)
{
	return op == UD_SEND_ONLY || op == UD_SEND_ONLY_IMM;
}

bool roce_is_offload(uint8_t op)
{
	return op >= OFF_CONTRIBUTE && op <= OFF_PARTIAL;
}

const char *roce_opcode_name(uint8_t op)
{
	switch (op) {
	case RC_SEND_FIRST: return "SEND_FIRST";
	case RC_SEND_MIDDLE: return "SEND_MIDDLE";
	case RC_SEND_LAST: return "SEND_LAST";
	case RC_SEND_LAST_IMM: return "SEND_LAST_IMM";
	case RC_SEND_ONLY: return "SEND_ONLY";
	case RC_SEND_ONLY_IMM: return "SEND_ONLY_IMM";
	case RC_WRITE_FIRST: return "WRITE_FIRST";
	case RC_WRITE_MIDDLE: return "WRITE_MIDDLE";
	case RC_WRITE_LAST: return "WRITE_LAST";
	case RC_WRITE_LAST_IMM: return "WRITE_LAST_IMM";
	case RC_WRITE_ONLY: return "WRITE_ONLY";
	case RC_WRITE_ONLY_IMM: return "WRITE_ONLY_IMM";
	case RC_READ_REQUEST: return "READ_REQUEST";
	case RC_READ_FIRST: return "READ_RESPONSE_FIRST";
	case RC_READ_MIDDLE: return "READ_RESPONSE_MIDDLE";
	case RC_READ_LAST: return "READ_RESPONSE_LAST";
	case RC_READ_ONLY: return "READ_RESPONSE_ONLY";
	case RC_ACK: return "ACKNOWLEDGE";
	case RC_ATOMIC_ACK: return "ATOMIC_ACKNOWLEDGE";
	case RC_COMPARE_SWAP: return "COMPARE_SWAP";
	case RC_FETCH_ADD: return "FETCH_ADD";
	case RC_SEND_LAST_INV: return "SEND_LAST_INV";
	case RC_SEND_ONLY_INV: return "SEND_ONLY_INV";
	case UD_SEND_ONLY: return "UD_SEND_ONLY";
	case UD_SEND_ONLY_IMM: return "UD_SEND_ONLY_IMM";
	case UC | RC_SEND_FIRST: return "UC_SEND_FIRST";
	case UC | RC_SEND_MIDDLE: return "UC_SEND_MIDDLE";
	case UC | RC_SEND_LAST: return "UC_SEND_LAST";
	case UC | RC_SEND_LAST_IMM: return "UC_SEND_LAST_IMM";
	case UC | RC_SEND_ONLY: return "UC_SEND_ONLY";
	case UC | RC_SEND_ONLY_IMM: return "UC_SEND_ONLY_IMM";
	case UC | RC_WRITE_FIRST: return "UC_WRITE_FIRST";
	case UC | RC_WRITE_MIDDLE: return "UC_WRITE_MIDDLE";
	case UC | RC_WRITE_LAST: return "UC_WRITE_LAST";
	case UC | RC_WRITE_LAST_IMM: return "UC_WRITE_LAST_IMM";
	case UC | RC_WRITE_ONLY: return "UC_WRITE_ONLY";
	case UC | RC_WRITE_ONLY_IMM: return "UC_WRITE_ONLY_IMM";
	case RC_CNP: return "CNP";
	case RC_CREDIT: return "CREDIT";
	case RC_REQUEST: return "REQUEST";
	case RC_READ_ACK: return "READ_ACK";
	case OFF_CONTRIBUTE: return "CONTRIBUTE";
	case OFF_RESULT: return "RESULT";
	case OFF_MULTICAST: return "MULTICAST";
	case OFF_PARTIAL: return "PARTIAL";
	default: return "opcode?";
	}
}
