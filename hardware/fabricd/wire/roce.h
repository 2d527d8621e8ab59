/* RoCEv2 packets: Ethernet / IPv4 / UDP 4791 / BTH .. payload / ICRC.
 *
 * Pure functions over bytes: nothing here knows a queue pair or a port.
 */
#ifndef ROCE_H
#define ROCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/ethernet.h"
#include "wire/ip.h"
#include "wire/opcode.h"

#define ROCE_UDP_PORT 4791
#define UDP_BYTES 8
#define BTH_BYTES 12
#define RETH_BYTES 16
#define AETH_BYTES 4
#define DETH_BYTES 8
#define ATOMIC_BYTES 28
#define ATOMIC_ACK_BYTES 8
#define IMM_BYTES 4
#define ICRC_BYTES 4
#define SACK_BITS_MAX 512
#define SACK_BYTES(bits) (4 + (bits) / 8) /* behind an AETH: a packet's number, and a bit for it and those behind it */
#define OFFLOAD_BYTES 24
#define ROCE_MAX_HEADER (ETH_BYTES + IPV4_BYTES + UDP_BYTES + BTH_BYTES + RETH_BYTES + IMM_BYTES)
#define CNP_BYTES 16 /* reserved, all zero */
#define PSN_MASK 0xffffffu

/* RC opcodes, and two of unreliable datagrams (InfiniBand specification, table "OpCode field") */
enum roce_opcode {
	RC_SEND_FIRST = 0x00,
	RC_SEND_MIDDLE = 0x01,
	RC_SEND_LAST = 0x02,
	RC_SEND_LAST_IMM = 0x03,
	RC_SEND_ONLY = 0x04,
	RC_SEND_ONLY_IMM = 0x05,
	RC_WRITE_FIRST = 0x06,
	RC_WRITE_MIDDLE = 0x07,
	RC_WRITE_LAST = 0x08,
	RC_WRITE_LAST_IMM = 0x09,
	RC_WRITE_ONLY = 0x0a,
	RC_WRITE_ONLY_IMM = 0x0b,
	RC_READ_REQUEST = 0x0c,
	RC_READ_FIRST = 0x0d, /* responses */
	RC_READ_MIDDLE = 0x0e,
	RC_READ_LAST = 0x0f,
	RC_READ_ONLY = 0x10,
	RC_ACK = 0x11,
	RC_ATOMIC_ACK = 0x12,
	RC_COMPARE_SWAP = 0x13,
	RC_FETCH_ADD = 0x14,
	RC_SEND_LAST_INV = 0x16,
	RC_SEND_ONLY_INV = 0x17,
	UD_SEND_ONLY = 0x64,
	UD_SEND_ONLY_IMM = 0x65,
	UC = 0x20, /* of unreliable connections: those of SEND and WRITE, with this bit */
	RC_CNP = 0x81,
	/* of the range that is free for manufacturers: offloaded collectives */
	OFF_CONTRIBUTE = 0xc0,
	OFF_RESULT = 0xc1,
	OFF_MULTICAST = 0xc2,
	OFF_PARTIAL = 0xc3, /* a sum of some ranks, by best effort: `offset` is their bitmap, `more` the number */
	RC_CREDIT = 0xc4, /* what a sender was granted so far (wire/credit.c) */
	RC_REQUEST = 0xc5, /* and what it asks for */
	RC_READ_ACK = 0xc6, /* which responses were taken (transport/responder.c) */
};

/* Our extension header behind the BTH of an offload's packets */
struct roce_offload {
	uint64_t offset;   /* where in the vector, in elements or bytes */
	uint16_t slot;
	uint16_t child;	   /* who contributes; in a sum by best effort: the slot of the lane's next block */
	uint16_t count;	   /* elements in the payload */
	int16_t exponent;  /* block scaling: of this block, and of the slot's next */
	int16_t next;
	uint16_t flags;
	uint32_t more; /* in aggregation: the address of the rank that alone wants the block's sum (0: all want it) */
};
#define OFF_REDUCTION 7  /* flags: how to combine */
#define OFF_RESEND 8	 /* sent again: let go of what is held for it */
#define OFF_CONGESTED 16 /* something in it was marked on its way */
#define OFF_COLLIDED 32	 /* something in it met a slot that another block had */
#define OFF_DIRECT 64	 /* something in it was sent past the accelerators, since they brought no sum */

/* AETH syndromes */
#define AETH_ACK 0x1f
#define AETH_RNR_NAK 0x20
#define AETH_NAK_SEQUENCE 0x60
#define AETH_NAK_INVALID 0x61
#define AETH_NAK_ACCESS 0x62
#define AETH_NAK_OPERATION 0x63
#define AETH_NAK_TRIMMED 0x7f /* reserved otherwise: of this packet the headers have come */
#define AETH_NAK_TRIMMED_LAST_HOP 0x7e /* likewise, and the switch before the receiver has cut the rest off */
#define AETH_IS_TRIMMED(syndrome) ((syndrome) == AETH_NAK_TRIMMED || (syndrome) == AETH_NAK_TRIMMED_LAST_HOP)

struct roce_packet {
	uint8_t dst_mac[6], src_mac[6];
	uint32_t src_ip, dst_ip; /* host byte order */
	uint16_t src_port;
	uint8_t tos; /* DSCP << 2 | ECN */
	uint8_t ttl;
	uint8_t opcode;
	bool unreliable; /* of an unreliable connection; `opcode` is that of the same packet of a reliable one */
	bool ack_request;
	bool becn; /* what is acknowledged was marked */
	bool part, after; /* it goes on with the message of the packet before; with a row of writes, of which the last has an immediate */
	uint32_t dst_qp;
	uint32_t psn;
	/* RETH, on the first packet of a write, or on each */
	uint64_t remote_offset;
	uint32_t rkey;
	uint32_t dma_bytes;
	uint32_t imm; /* or (roce_invalidates) the key that its receiver is to invalidate */
	uint32_t qkey, src_qp; /* DETH, on datagrams */
	uint64_t swap, compare; /* AtomicETH; what is added stands in `swap` */
	uint64_t original; /* AtomicAckETH: what was there before */
	/* AETH, on acknowledgements, and on the first and last response to a READ */
	uint8_t syndrome;
	uint32_t msn;
	struct roce_offload offload;
	const uint8_t *payload;
	uint32_t payload_bytes; /* without padding */
};

/* psn_ahead() - By how many packets a PSN lies ahead of another (behind: less than 0): they wrap after 24 bits */
static inline int32_t psn_ahead(uint32_t psn, uint32_t of)
{
	return (int32_t)((psn - of) << 8) >> 8;
}

/* roce_src_port() - The UDP source port for a hash: 0xc000 and 14 bits, the entropy that ECMP goes by */
static inline uint16_t roce_src_port(uint32_t hash)
{
	return (uint16_t)(0xc000 | hash >> 18);
}

#define ROCE_PORTS 0x4000u

/* roce_entropy_port() - The source port of an entropy of a queue pair: that many behind its own */
static inline uint16_t roce_entropy_port(uint16_t own, uint32_t entropy)
{
	return (uint16_t)(0xc000 | ((own + entropy) & (ROCE_PORTS - 1)));
}

/* roce_entropy() - The entropy of a source port */
static inline uint32_t roce_entropy(uint16_t own, uint16_t port)
{
	return (uint32_t)(port - own) & (ROCE_PORTS - 1);
}

/* roce_job_port() - Likewise of all packets of an offloaded job */
static inline uint16_t roce_job_port(uint32_t job)
{
	return roce_src_port(job * 0x9e3779b1u);
}

uint32_t roce_frame_bytes(uint8_t opcode, uint32_t payload_bytes);
uint32_t roce_build_headers(uint8_t *frame, const struct roce_packet *pkt);
uint32_t roce_build_unsealed(uint8_t *frame, size_t room, const struct roce_packet *pkt);
uint32_t roce_build(uint8_t *frame, size_t room, const struct roce_packet *pkt);

enum roce_verdict { ROCE_OK, ROCE_NOT_ROCE, ROCE_MALFORMED, ROCE_BAD_ICRC };
enum roce_verdict roce_parse(const uint8_t *frame, size_t len, struct roce_packet *pkt);
enum roce_verdict roce_parse_unsealed(const uint8_t *frame, size_t len, uint32_t away, struct roce_packet *pkt);
enum roce_verdict roce_parse_trimmed(const uint8_t *frame, size_t len, struct roce_packet *pkt);
uint32_t roce_icrc(const uint8_t *ip, size_t len);
bool roce_set_icrc(uint8_t *frame, size_t len);
void roce_seal(uint8_t *frame);
void roce_ask(uint8_t *frame);
uint32_t roce_payload_bytes(const uint8_t *frame, uint32_t bytes);

#endif
