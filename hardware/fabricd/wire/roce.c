/* RoCEv2 packets
 *
 * Theory of Operation
 *
 * A packet is built straight into its frame buffer, payload included or not, and
 * sealed with the invariant CRC, at once or when somebody looks: CRC-32 over eight bytes of ones (where
 * InfiniBand has its local route header), the IP header with type of service,
 * TTL and checksum as ones, the UDP header with its checksum as ones, the BTH
 * with its reserved byte (FECN, BECN) as ones, and everything behind it
 * (RoCEv2 annex A17).  So a switch may mark ECN or change DSCP without
 * breaking it, and anything else that changes is found.
 *
 * Parsing never trusts a length: all bytes come through the getters of base/bytes.h.
 */
#include <libdeflate.h>
#include <string.h>

#include "base/bytes.h"
#include "wire/ethernet.h"
#include "wire/ip.h"
#include "wire/roce.h"

#define BECN (1u << 30)
#define PART (1u << 30)  /* bits of the BTH that are reserved otherwise */
#define AFTER (1u << 29)

/* roce_frame_bytes() - Frame length, FCS not counted
 * @op:		Opcode: decides which extension headers there are
 * @payload:	Payload bytes, before padding to a multiple of four
 */
uint32_t roce_frame_bytes(uint8_t op, uint32_t payload)
{
	return ETH_BYTES + IPV4_BYTES + UDP_BYTES + BTH_BYTES + roce_extension_bytes[op] + ((payload + 3) & ~3u) + ICRC_BYTES;
}

static uint16_t ipv4_checksum(const uint8_t *ip)
{
	uint32_t sum = 0;

	for (int i = 0; i < IPV4_BYTES; i += 2)
		sum += (uint32_t)(ip[i] << 8 | ip[i + 1]);
	sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)~((sum & 0xffff) + (sum >> 16));
}

/* roce_icrc() - Invariant CRC of a packet
 * @ip:		First byte of the IPv4 header (20 bytes, no options)
 * @len:	Bytes from there up to, not including, the ICRC; at least IP + UDP + BTH
 */
uint32_t roce_icrc(const uint8_t *ip, size_t len)
{
	enum { HEAD = IPV4_BYTES + UDP_BYTES + BTH_BYTES };
	uint8_t masked[8 + HEAD];

	memset(masked, 0xff, 8);
	memcpy(masked + 8, ip, HEAD);
	uint8_t *m = masked + 8;
	m[1] = 0xff;		  /* type of service */
	m[8] = 0xff;		  /* TTL */
	m[10] = m[11] = 0xff;	  /* IP checksum */
	m[26] = m[27] = 0xff;	  /* UDP checksum */
	m[IPV4_BYTES + UDP_BYTES + 4] = 0xff; /* BTH: FECN, BECN, reserved */
	uint32_t crc = libdeflate_crc32(0, masked, sizeof masked);
	return libdeflate_crc32(crc, ip + HEAD, len - HEAD);
}

/* roce_set_icrc() - Write the ICRC that belongs to a frame into its last four bytes
 * Return: false if the frame is too short to have one
 */
bool roce_set_icrc(uint8_t *frame, size_t len)
{
	if (len < ETH_BYTES + IPV4_BYTES + UDP_BYTES + BTH_BYTES + ICRC_BYTES)
		return false;
	put_le32(frame + len - ICRC_BYTES, roce_icrc(frame + ETH_BYTES, len - ETH_BYTES - ICRC_BYTES));
	return true;
}

/* roce_seal() - Likewise of a packet of roce_build_headers(), which may have something behind its IP packet */
void roce_seal(uint8_t *frame)
{
	const uint8_t *ip = frame + ETH_BYTES;

	roce_set_icrc(frame, ETH_BYTES + (size_t)(ip[2] << 8 | ip[3]));
}

static uint8_t *write_headers(uint8_t *frame, const struct roce_packet *pkt, uint32_t len)
{
	uint32_t pad = (4 - (pkt->payload_bytes & 3)) & 3;
	uint8_t *p = frame;

	memcpy(p, pkt->dst_mac, 6);
	memcpy(p + 6, pkt->src_mac, 6);
	p = put_be16(p + 12, 0x0800);

	uint8_t *ip = p;
	p = put_be16(p, (uint16_t)(0x4500 | pkt->tos));
	p = put_be16(p, (uint16_t)(len - ETH_BYTES));
	p = put_be16(p, 0);
	p = put_be16(p, 0x4000); /* don't fragment */
	p = put_u8(p, pkt->ttl);
	p = put_u8(p, 17);
	p = put_be16(p, 0);
	p = put_be32(p, pkt->src_ip);
	p = put_be32(p, pkt->dst_ip);
	put_be16(ip + 10, ipv4_checksum(ip));

	p = put_be16(p, pkt->src_port);
	p = put_be16(p, ROCE_UDP_PORT);
	p = put_be16(p, (uint16_t)(len - ETH_BYTES - IPV4_BYTES));
	p = put_be16(p, 0);

	p = put_u8(p, pkt->opcode | (pkt->unreliable ? UC : 0));
	p = put_u8(p, (uint8_t)(0x40 | pad << 4)); /* migration state set, pad count, version 0 */
	p = put_be16(p, 0xffff);		   /* default partition */
	p = put_be32(p, (pkt->becn || pkt->opcode == RC_CNP ? BECN : 0) | (pkt->dst_qp & PSN_MASK));
	p = put_be32(p, (pkt->ack_request ? 1u << 31 : 0) | (pkt->part ? PART : 0) | (pkt->after ? AFTER : 0) |
			    (pkt->psn & PSN_MASK));
	if (!roce_extension_bytes[pkt->opcode])
		return p;
	if (roce_is_datagram(pkt->opcode))
		p = put_be32(put_be32(p, pkt->qkey), pkt->src_qp & PSN_MASK);
	if (roce_has_reth(pkt->opcode)) {
		p = put_be64(p, pkt->remote_offset);
		p = put_be32(p, pkt->rkey);
		p = put_be32(p, pkt->dma_bytes);
	}
	if (roce_is_atomic(pkt->opcode))
		p = put_be64(put_be64(put_be32(put_be64(p, pkt->remote_offset), pkt->rkey), pkt->swap), pkt->compare);
	if (roce_has_aeth(pkt->opcode))
		p = put_be32(p, (uint32_t)pkt->syndrome << 24 | (pkt->msn & PSN_MASK));
	if (roce_has_original(pkt->opcode))
		p = put_be64(p, pkt->original);
	if (roce_has_imm(pkt->opcode) || roce_invalidates(pkt->opcode))
		p = put_be32(p, pkt->imm);
	if (roce_is_offload(pkt->opcode)) {
		const struct roce_offload *o = &pkt->offload;
		p = put_be16(put_be16(put_be16(put_be64(p, o->offset), o->slot), o->child), o->count);
		p = put_be16(put_be16(put_be16(p, (uint16_t)o->exponent), (uint16_t)o->next), o->flags);
		p = put_be32(p, o->more);
	}
	return p;
}

/* roce_build_headers() - Write a frame but for payload, padding and ICRC
 * Return: its length with them, without FCS
 */
uint32_t roce_build_headers(uint8_t *frame, const struct roce_packet *pkt)
{
	uint32_t len = roce_frame_bytes(pkt->opcode, pkt->payload_bytes);

	write_headers(frame, pkt, len);
	return len;
}

/* roce_build_unsealed() - Write a whole frame but for its ICRC
 * @frame:	Where to
 * @room:	Bytes there
 * @pkt:	What; payload may already lie in place, then it is not copied
 *
 * Return: frame length without FCS, or 0 if it does not fit
 */
uint32_t roce_build_unsealed(uint8_t *frame, size_t room, const struct roce_packet *pkt)
{
	uint32_t len = roce_frame_bytes(pkt->opcode, pkt->payload_bytes);

	if (len > room)
		return 0;
	uint8_t *p = write_headers(frame, pkt, len);
	if (pkt->payload_bytes && pkt->payload != p)
		memcpy(p, pkt->payload, pkt->payload_bytes);
	p += pkt->payload_bytes;
	memset(p, 0, (size_t)(frame + len - p));
	return len;
}

/* roce_build() - Likewise, with it */
uint32_t roce_build(uint8_t *frame, size_t room, const struct roce_packet *pkt)
{
	uint32_t len = roce_build_unsealed(frame, room, pkt);

	if (len)
		roce_set_icrc(frame, len);
	return len;
}

/* roce_ask() - Let a packet that was built here ask to be acknowledged; its ICRC is another then */
void roce_ask(uint8_t *frame)
{
	frame[ETH_BYTES + IPV4_BYTES + UDP_BYTES + 8] |= 0x80;
}

/* roce_payload_bytes() - Of @bytes of payload, padding and ICRC, by the headers of a packet that was built here */
uint32_t roce_payload_bytes(const uint8_t *frame, uint32_t bytes)
{
	return bytes - ICRC_BYTES - (frame[ETH_BYTES + IPV4_BYTES + UDP_BYTES + 1] >> 4 & 3);
}

/* Return: bytes of padding behind the payload */
static uint8_t parse_bth(struct view *v, struct roce_packet *pkt)
{
	pkt->opcode = get_u8(v);
	pkt->unreliable = pkt->opcode >= UC && pkt->opcode <= (UC | RC_WRITE_ONLY_IMM);
	if (pkt->unreliable)
		pkt->opcode &= (uint8_t)~UC;
	uint8_t pad = (get_u8(v) >> 4) & 3;
	get_be16(v);
	uint32_t dst_qp = get_be32(v), psn = get_be32(v);
	pkt->becn = (dst_qp & BECN) != 0;
	pkt->dst_qp = dst_qp & PSN_MASK;
	pkt->ack_request = psn >> 31;
	pkt->part = psn & PART;
	pkt->after = psn & AFTER;
	pkt->psn = psn & PSN_MASK;
	return pad;
}

/* What follows the BTH, by the opcode */
static void parse_extensions(struct view *v, struct roce_packet *pkt)
{
	if (roce_is_datagram(pkt->opcode)) {
		pkt->qkey = get_be32(v);
		pkt->src_qp = get_be32(v) & PSN_MASK;
	}
	if (roce_has_reth(pkt->opcode)) {
		pkt->remote_offset = get_be64(v);
		pkt->rkey = get_be32(v);
		pkt->dma_bytes = get_be32(v);
	}
	if (roce_is_atomic(pkt->opcode)) {
		pkt->remote_offset = get_be64(v);
		pkt->rkey = get_be32(v);
		pkt->swap = get_be64(v);
		pkt->compare = get_be64(v);
	}
	if (roce_has_aeth(pkt->opcode)) {
		uint32_t aeth = get_be32(v);
		pkt->syndrome = (uint8_t)(aeth >> 24);
		pkt->msn = aeth & PSN_MASK;
	}
	if (roce_has_original(pkt->opcode))
		pkt->original = get_be64(v);
	if (roce_has_imm(pkt->opcode) || roce_invalidates(pkt->opcode))
		pkt->imm = get_be32(v);
	if (roce_is_offload(pkt->opcode)) {
		struct roce_offload *o = &pkt->offload;
		o->offset = get_be64(v);
		o->slot = get_be16(v);
		o->child = get_be16(v);
		o->count = get_be16(v);
		o->exponent = (int16_t)get_be16(v);
		o->next = (int16_t)get_be16(v);
		o->flags = get_be16(v);
		o->more = get_be32(v);
	}
}

#define HEADERS_BYTES (ETH_BYTES + IPV4_BYTES + UDP_BYTES)

/* Bytes of a packet that need not be there */
struct apart {
	uint32_t away; /* payload, padding and ICRC: not in the frame, or 0 */
	bool unsealed; /* the ICRC is not right yet */
	bool cut;      /* only its beginning is left: no ICRC, and perhaps not all of what follows the BTH */
};

static enum roce_verdict parse(const uint8_t *frame, size_t len, const struct apart *apart, struct roce_packet *pkt)
{
	struct view v = view_of(frame, HEADERS_BYTES);

	*pkt = (struct roce_packet){0};
	if (len - apart->away < HEADERS_BYTES) /* asked once, so that nothing below has to */
		return ROCE_NOT_ROCE;
	const uint8_t *mac = view_take(&v, 12);
	if (get_be16(&v) != 0x0800)
		return ROCE_NOT_ROCE;
	memcpy(pkt->dst_mac, mac, 6);
	memcpy(pkt->src_mac, mac + 6, 6);

	const uint8_t *ip = v.p;
	uint8_t version = get_u8(&v);
	pkt->tos = get_u8(&v);
	uint16_t ip_bytes = get_be16(&v);
	get_be16(&v);
	uint16_t fragment = get_be16(&v);
	pkt->ttl = get_u8(&v);
	uint8_t protocol = get_u8(&v);
	get_be16(&v);
	pkt->src_ip = get_be32(&v);
	pkt->dst_ip = get_be32(&v);
	pkt->src_port = get_be16(&v);
	uint16_t dst_port = get_be16(&v);
	uint16_t udp_bytes = get_be16(&v);
	get_be16(&v);
	if (version != 0x45 || protocol != 17 || dst_port != ROCE_UDP_PORT || (fragment & 0x3fff))
		return ROCE_NOT_ROCE;
	uint32_t behind = apart->cut ? 0 : apart->away ? apart->away : ICRC_BYTES;
	if (ip_bytes < IPV4_BYTES + UDP_BYTES + BTH_BYTES || ip_bytes > len - ETH_BYTES || udp_bytes != ip_bytes - IPV4_BYTES)
		return ROCE_MALFORMED;

	if (ip_bytes < IPV4_BYTES + UDP_BYTES + BTH_BYTES + behind)
		return ROCE_MALFORMED;
	v = view_of(ip + IPV4_BYTES + UDP_BYTES, (size_t)ip_bytes - IPV4_BYTES - UDP_BYTES - behind);
	struct view bth = view_of(v.p, BTH_BYTES);
	uint8_t pad = parse_bth(&bth, pkt);
	view_take(&v, BTH_BYTES);
	if (apart->cut)
		return ROCE_OK;
	if (roce_extension_bytes[pkt->opcode])
		parse_extensions(&v, pkt);
	size_t left = apart->away ? apart->away - ICRC_BYTES : v.left;
	if (v.bad || left < pad)
		return ROCE_MALFORMED;
	pkt->payload = apart->away ? NULL : v.p;
	pkt->payload_bytes = (uint32_t)(left - pad);
	if (apart->unsealed)
		return ROCE_OK;

	struct view tail = view_of(ip + ip_bytes - ICRC_BYTES, ICRC_BYTES);
	if (get_le32(&tail) != roce_icrc(ip, (size_t)ip_bytes - ICRC_BYTES))
		return ROCE_BAD_ICRC;
	return ROCE_OK;
}

/* roce_parse() - Take a frame apart
 * @frame:	Ethernet frame without FCS
 * @len:	Its length; bytes behind the IP packet (padding) are ignored
 * @pkt:	Filled in; payload points into @frame
 *
 * Return: ROCE_OK, or why not
 */
enum roce_verdict roce_parse(const uint8_t *frame, size_t len, struct roce_packet *pkt)
{
	return parse(frame, len, &(struct apart){0}, pkt);
}

/* roce_parse_unsealed() - Likewise of one that was built here, and has no ICRC yet
 * @away:	Bytes of payload, padding and ICRC that are not in the frame: its payload is then elsewhere; or 0
 */
enum roce_verdict roce_parse_unsealed(const uint8_t *frame, size_t len, uint32_t away, struct roce_packet *pkt)
{
	return parse(frame, len, &(struct apart){.away = away, .unsealed = true}, pkt);
}

/* roce_parse_trimmed() - Likewise of one of which a switch has left the beginning: what its IP, UDP and BTH say, nothing else */
enum roce_verdict roce_parse_trimmed(const uint8_t *frame, size_t len, struct roce_packet *pkt)
{
	return parse(frame, len, &(struct apart){.cut = true}, pkt);
}
