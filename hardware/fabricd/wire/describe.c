/* A frame in words. */
#include <arpa/inet.h>
#include <stdio.h>

#include "base/bytes.h"
#include "wire/ethernet.h"
#include "wire/ip.h"
#include "wire/roce.h"

/* frame_describe() - A frame's headers in words, for drop reports
 * @data:	Its first bytes
 * @have:	How many of them there are
 * @len:	Length of the whole frame
 */
void frame_describe(const uint8_t *data, size_t have, size_t len, char *text, size_t room)
{
	struct view v = view_of(data, have < len ? have : len);
	const uint8_t *mac = view_take(&v, 12);
	uint16_t type = get_be16(&v);
	char from[INET_ADDRSTRLEN], to[INET_ADDRSTRLEN];

	if (v.bad) {
		snprintf(text, room, "%zu bytes, no Ethernet header", len);
		return;
	}
	const uint8_t *ip = type == 0x0800 ? view_take(&v, IPV4_BYTES) : NULL;
	if (!ip) {
		snprintf(text, room,
			 "%02x:%02x:%02x:%02x:%02x:%02x > %02x:%02x:%02x:%02x:%02x:%02x ethertype 0x%04x, %zu bytes",
			 mac[6], mac[7], mac[8], mac[9], mac[10], mac[11], mac[0], mac[1], mac[2], mac[3], mac[4],
			 mac[5], type, len);
		return;
	}
	inet_ntop(AF_INET, ip + 12, from, sizeof from);
	inet_ntop(AF_INET, ip + 16, to, sizeof to);
	uint16_t src_port = get_be16(&v), dst_port = get_be16(&v);
	view_take(&v, 4);
	uint8_t opcode = get_u8(&v);
	view_take(&v, 4);
	uint32_t qp = get_be24(&v), psn = get_be32(&v) & PSN_MASK;
	if (ip[9] == 17 && dst_port == ROCE_UDP_PORT && !v.bad)
		snprintf(text, room, "%s > %s UDP %u > %u dscp %u RoCE RC %s qp %u psn %u, %zu bytes", from, to, src_port,
			 dst_port, ip[1] >> 2, roce_opcode_name(opcode), qp, psn, len);
	else
		snprintf(text, room, "%s > %s IP protocol %u, %zu bytes", from, to, ip[9], len);
}
