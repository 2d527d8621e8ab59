/* What Open vSwitch has looked at, from what it tells
 *
 * `ofproto/trace` (ovs-vswitchd(8)) has a line
 *
 *	Megaflow: recirc_id=0,eth,udp,in_port=1,nw_dst=10.0.0.8/29,nw_ecn=2,nw_frag=no,tp_src=0x8000/0x8000
 *
 * of the fields that decided, in the form of ovs-fields(7), with masks where not all
 * bits did.  If it tells of anything that is not known here, all bits count.
 */
#include <arpa/inet.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fast_path/megaflows.h"

#define FIELD_MAX 64
#define MAC_BYTES 6

static bool mac(uint8_t *to, const char *mask)
{
	int end = 0;

	if (!mask) {
		memset(to, 0xff, MAC_BYTES);
		return true;
	}
	return sscanf(mask, "%2hhx:%2hhx:%2hhx:%2hhx:%2hhx:%2hhx%n", to, to + 1, to + 2, to + 3, to + 4, to + 5, &end) ==
		       MAC_BYTES && !mask[end];
}

static bool address(uint32_t *to, const char *mask)
{
	struct in_addr dotted;
	char *end;

	if (!mask) {
		*to = ~0u;
		return true;
	}
	if (inet_pton(AF_INET, mask, &dotted) == 1) {
		*to = ntohl(dotted.s_addr);
		return true;
	}
	unsigned long bits = strtoul(mask, &end, 10);
	if (!bits || bits > 32 || *end)
		return false;
	*to = ~0u << (32 - bits);
	return true;
}

static bool udp_port(uint16_t *to, const char *mask)
{
	char *end;

	*to = 0xffff;
	if (mask)
		*to = (uint16_t)strtoul(mask, &end, 16);
	return !mask || (end != mask && !*end);
}

static bool is_one_of(const char *name, const char *const *names)
{
	while (*names && strcmp(name, *names) != 0)
		names++;
	return *names;
}

/* One field: `name`, `name=value` or `name=value/mask` */
static bool field(struct flow_key *m, char *name)
{
	static const char *const alike[] = {"recirc_id", "in_port", "vlan_tci", "dl_vlan", "dl_vlan_pcp", NULL};
	static const char *const of_all[] = {"eth", "ip", "udp", NULL};
	char *value = strchr(name, '='), *mask = value ? strchr(value, '/') : NULL;

	if (!value)
		return is_one_of(name, of_all);
	*value++ = 0;
	if (is_one_of(name, alike) || (!strcmp(name, "nw_frag") && !strcmp(value, "no")))
		return true;
	mask += mask != NULL;
	if (!strcmp(name, "dl_dst"))
		return mac(m->mac, mask);
	if (!strcmp(name, "dl_src"))
		return mac(m->mac + MAC_BYTES, mask);
	if (!strcmp(name, "nw_src"))
		return address(&m->src, mask);
	if (!strcmp(name, "nw_dst"))
		return address(&m->dst, mask);
	if (!strcmp(name, "tp_src"))
		return udp_port(&m->sport, mask);
	if (!strcmp(name, "tp_dst"))
		return udp_port(&m->dport, mask);
	if (mask)
		return false;
	if (!strcmp(name, "nw_tos"))
		m->tos |= 0xfc;
	else if (!strcmp(name, "nw_ecn"))
		m->tos |= 3;
	else if (!strcmp(name, "nw_ttl"))
		m->ttl = 0xff;
	else
		return false;
	return true;
}

/* megaflow_mask() - The bits that decided, from an answer of Open vSwitch's
 *
 * Ingress port and VLAN tag count in any case: Open vSwitch tells of every port, whether it was looked at or not
 * (trace_text.c), and where a packet begins follows from the tag.
 * If it cannot be read all bits do.
 */
void megaflow_mask(struct flow_key *mask, const char *text)
{
	static const char line[] = "Megaflow: ";
	const char *at = strstr(text, line);
	char one[FIELD_MAX];
	size_t len = 0;

	*mask = (struct flow_key){.sw = UINT16_MAX, .port = UINT16_MAX, .vlan = UINT16_MAX};
	for (at = at ? at + sizeof line - 1 : NULL; at && *at && *at != '\n'; at += len + (at[len] == ',')) {
		len = strcspn(at, ",\n");
		if (len >= sizeof one)
			break;
		memcpy(one, at, len);
		one[len] = 0;
		if (!field(mask, one))
			break;
	}
	if (!at || *at != '\n')
		memset(mask, 0xff, sizeof *mask);
}
