/* IPv4 headers: read and changed where they lie. */
#include <string.h>

#include "base/bytes.h"
#include "wire/ethernet.h"
#include "wire/ip.h"

#define IHL_5 0x45
#define PROTO_UDP 17
#define UDP_HEADER_BYTES 8

/* is_ipv4() - Does a frame carry a whole IPv4 header? */
bool is_ipv4(const uint8_t *frame, size_t len)
{
	return len >= ETH_BYTES + IPV4_BYTES && frame[12] == 0x08 && frame[13] == 0x00;
}

/* RFC 1624: the checksum after one 16-bit word of the header has changed */
static void checksum_update(uint8_t *ip, uint16_t before, uint16_t after)
{
	uint32_t sum = (uint16_t) ~(ip[10] << 8 | ip[11]) + (uint32_t)(uint16_t)~before + after;

	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	put_be16(ip + 10, (uint16_t)~sum);
}

/* ip_set_tos() - Give a frame another type of service byte (DSCP and ECN) */
void ip_set_tos(uint8_t *frame, uint8_t tos)
{
	uint8_t *ip = frame + ETH_BYTES;
	uint16_t before = (uint16_t)(ip[0] << 8 | ip[1]);

	ip[1] = tos;
	checksum_update(ip, before, (uint16_t)(ip[0] << 8 | tos));
}

/* ip_cut() - An IPv4 packet ends with byte @len of its frame, and says so, as does the UDP datagram in it
 *
 * What reads it further on takes a packet that claims to be longer than it is for malformed (Open vSwitch reads no addresses).
 */
void ip_cut(uint8_t *frame, uint32_t len)
{
	uint8_t *ip = frame + ETH_BYTES;
	uint16_t before = (uint16_t)(ip[2] << 8 | ip[3]), after = (uint16_t)(len - ETH_BYTES);

	put_be16(ip + 2, after);
	checksum_update(ip, before, after);
	if (ip[0] == IHL_5 && ip[9] == PROTO_UDP && after >= IPV4_BYTES + UDP_HEADER_BYTES)
		put_be16(ip + IPV4_BYTES + 4, (uint16_t)(after - IPV4_BYTES));
}

/* ip_hop() - One hop less to live
 * Return: false if none is left
 */
bool ip_hop(uint8_t *frame, size_t len)
{
	uint8_t *ip = frame + ETH_BYTES;
	uint16_t before = (uint16_t)(ip[8] << 8 | ip[9]);

	if (!is_ipv4(frame, len))
		return true;
	if (ip[8] <= 1)
		return false;
	ip[8]--;
	checksum_update(ip, before, (uint16_t)(ip[8] << 8 | ip[9]));
	return true;
}

/* mac_of() - The MAC address that belongs to an IP address: 02:00 and its bytes, or a multicast group's */
void mac_of(uint32_t ip, uint8_t mac[6])
{
	uint8_t unicast[6] = {2, 0, (uint8_t)(ip >> 24), (uint8_t)(ip >> 16), (uint8_t)(ip >> 8), (uint8_t)ip};
	uint8_t multicast[6] = {1, 0, 0x5e, (uint8_t)(ip >> 16 & 0x7f), (uint8_t)(ip >> 8), (uint8_t)ip};

	memcpy(mac, ip >> 28 == 14 ? multicast : unicast, 6);
}
