/* What an adaptive switch makes of copies: one of them leaves, by a port that it takes then (switch/adaptive.c). */
#include "fast_path/flow_cache.h"
#include "link/port.h"
#include "link/ways.h"

/* flow_ways() - The ports of which an adaptive switch takes one, or NULL: copies that are not alike, or a multicast */
struct ways *flow_ways(const struct flow *flow)
{
	uint16_t ports[WAYS_MAX];

	if (flow->copies < 2 || flow->copy->headers.mac[0] & 1)
		return NULL;
	for (uint16_t i = 0; i < flow->copies; i++) {
		if (!flow_key_same_headers(&flow->copy[i].headers, &flow->copy->headers))
			return NULL;
		ports[i] = flow->copy[i].port;
	}
	return ways_of(flow->sw, ports, flow->copies);
}
