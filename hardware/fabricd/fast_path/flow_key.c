/* What OpenFlow can match on in a frame, and rewriting it
 *
 * Theory of Operation
 *
 * Two frames with the same key are the same to every rule that looks at headers.
 * What has fields that are not in the key (fragments, IP options, TCP flags, other
 * protocols) has no key.
 *
 * A rule may have changed headers.  To do the same to another frame, fields of
 * the key are written over its own; lengths, the packet's identification and the
 * payload stay.  Which fields, a mask says, which is a key too: Open vSwitch counts
 * what it changes to what it has looked at, so in all else frames keep what they have.
 */
#include <string.h>

#include "base/bytes.h"
#include "base/text.h"
#include "fast_path/flow_key.h"
#include "wire/ethernet.h"
#include "wire/ip.h"

#define VLAN_BYTES 4
#define MACS_BYTES 12
#define TYPE_IPV4 0x0800
#define TYPE_VLAN 0x8100
#define IHL_5 0x45
#define PROTO_UDP 17
#define UDP_BYTES 8
#define HEADERS_BYTES (ETH_BYTES + IPV4_BYTES + UDP_BYTES)
#define FRAGMENT 0x3fff /* offset and "more" */

/* flow_key_of() - The key of a frame, but for where it came in
 * Return: false if it has none
 */
bool flow_key_of(struct flow_key *key, const uint8_t *data, size_t len)
{
	bool tagged = len > ETH_BYTES && data[MACS_BYTES] == TYPE_VLAN >> 8 && data[MACS_BYTES + 1] == (TYPE_VLAN & 0xff);
	const uint8_t *from_type = data + MACS_BYTES + (tagged ? VLAN_BYTES : 0);
	struct view v = view_of(from_type, HEADERS_BYTES - MACS_BYTES);

	memset(key, 0, sizeof *key);
	if (len < HEADERS_BYTES + (tagged ? VLAN_BYTES : 0)) /* asked once, so that nothing below has to */
		return false;
	uint16_t type = get_be16(&v);
	uint8_t first = get_u8(&v);
	key->tos = get_u8(&v);
	view_take(&v, 4); /* length, identification */
	uint16_t fragment = get_be16(&v);
	key->ttl = get_u8(&v);
	uint8_t protocol = get_u8(&v);
	get_be16(&v);
	key->src = get_be32(&v);
	key->dst = get_be32(&v);
	key->sport = get_be16(&v);
	key->dport = get_be16(&v);
	if (type != TYPE_IPV4 || first != IHL_5 || fragment & FRAGMENT || protocol != PROTO_UDP)
		return false;
	if (tagged)
		key->vlan = (uint16_t)(from_type[-2] << 8 | from_type[-1]) | FLOW_TAGGED;
	memcpy(key->mac, data, sizeof key->mac);
	return true;
}

/* flow_key_has_checksum() - Has a frame with that key a UDP checksum, which a rewrite would have to change? */
bool flow_key_has_checksum(const struct flow_key *key, const uint8_t *data)
{
	const uint8_t *sum = data + ETH_BYTES + IPV4_BYTES + 6 + (key->vlan ? VLAN_BYTES : 0);

	return sum[0] | sum[1];
}

/* flow_key_headers() - Bytes before the UDP payload of a frame with that key */
size_t flow_key_headers(const struct flow_key *key)
{
	return HEADERS_BYTES + (key->vlan ? VLAN_BYTES : 0);
}

/* flow_key_join() - A mask gets the bits of another as well */
void flow_key_join(struct flow_key *mask, const struct flow_key *with)
{
	const uint8_t *from = (const uint8_t *)with;
	uint8_t *to = (uint8_t *)mask;

	for (size_t i = 0; i < sizeof *mask; i++)
		to[i] |= from[i];
}

/* flow_key_overlay() - A key takes another's bits where a mask has them; but for where it came in */
void flow_key_overlay(struct flow_key *key, const struct flow_key *with, const struct flow_key *mask)
{
	const uint8_t *from = (const uint8_t *)with, *bits = (const uint8_t *)mask;
	uint8_t *to = (uint8_t *)key;

	for (size_t i = offsetof(struct flow_key, mac); i < sizeof *key; i++)
		to[i] = (uint8_t)((to[i] & ~bits[i]) | (from[i] & bits[i]));
}

/* flow_key_same_headers() - Are they equal but for where they came in? */
bool flow_key_same_headers(const struct flow_key *a, const struct flow_key *b)
{
	return !memcmp(a->mac, b->mac, sizeof *a - offsetof(struct flow_key, mac));
}

/* flow_key_same_packet() - Are they alike in all that a RoCE packet's ICRC covers, and in where the packet begins? */
bool flow_key_same_packet(const struct flow_key *a, const struct flow_key *b)
{
	return !(a->vlan | b->vlan) && a->src == b->src && a->dst == b->dst && a->sport == b->sport && a->dport == b->dport;
}

static uint16_t ip_checksum(const uint8_t *ip)
{
	uint32_t sum = 0;

	for (int i = 0; i < IPV4_BYTES; i += 2)
		sum += i == 10 ? 0 : (uint32_t)(ip[i] << 8 | ip[i + 1]);
	sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)~((sum & 0xffff) + (sum >> 16));
}

/* flow_key_rewrite() - Give a frame that has a key the headers of another key
 * @data:	Has room for FLOW_GROWS more bytes
 *
 * Return: its new length, or 0 if it has a UDP checksum, which would change: nothing is done then
 */
size_t flow_key_rewrite(const struct flow_key *to, uint8_t *data, size_t len)
{
	size_t had = data[MACS_BYTES] == 0x08 && data[MACS_BYTES + 1] == 0 ? 0 : VLAN_BYTES;
	size_t has = to->vlan ? VLAN_BYTES : 0;
	uint8_t *ip = data + ETH_BYTES + had;

	if (ip[IPV4_BYTES + 6] | ip[IPV4_BYTES + 7])
		return 0;
	memmove(data + ETH_BYTES + has, ip, len - ETH_BYTES - had);
	memcpy(data, to->mac, sizeof to->mac);
	uint8_t *p = data + MACS_BYTES;
	if (to->vlan)
		p = put_be16(put_be16(p, TYPE_VLAN), to->vlan & (uint16_t)~FLOW_TAGGED);
	ip = put_be16(p, TYPE_IPV4);
	ip[1] = to->tos;
	ip[8] = to->ttl;
	put_be32(put_be32(ip + 12, to->src), to->dst);
	put_be16(put_be16(ip + IPV4_BYTES, to->sport), to->dport);
	put_be16(ip + 10, ip_checksum(ip));
	return len + has - had;
}

static void add_mac(struct text *t, const uint8_t *mac)
{
	for (int i = 0; i < 6; i++) {
		text_add(t, ":", i > 0);
		text_hex(t, mac[i], 2);
	}
}

static void add_ip(struct text *t, uint32_t ip)
{
	for (int shift = 24; shift >= 0; shift -= 8) {
		text_add(t, ".", shift < 24);
		text_number(t, ip >> shift & 255);
	}
}

/* flow_key_print() - As ovs-ofctl(8) writes a flow */
void flow_key_print(const struct flow_key *k, struct text *t)
{
	TEXT_ADD(t, "in_port=");
	text_number(t, k->port);
	TEXT_ADD(t, ",dl_dst=");
	add_mac(t, k->mac);
	TEXT_ADD(t, ",dl_src=");
	add_mac(t, k->mac + 6);
	if (k->vlan) {
		TEXT_ADD(t, ",vlan_tci=0x");
		text_hex(t, k->vlan, 4);
	}
	TEXT_ADD(t, ",udp,nw_src=");
	add_ip(t, k->src);
	TEXT_ADD(t, ",nw_dst=");
	add_ip(t, k->dst);
	TEXT_ADD(t, ",nw_tos=");
	text_number(t, k->tos & 0xfc);
	TEXT_ADD(t, ",nw_ecn=");
	text_number(t, k->tos & 3);
	TEXT_ADD(t, ",nw_ttl=");
	text_number(t, k->ttl);
	TEXT_ADD(t, ",udp_src=");
	text_number(t, k->sport);
	TEXT_ADD(t, ",udp_dst=");
	text_number(t, k->dport);
}
