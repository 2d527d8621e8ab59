/* Address handles: where datagrams go
 *
 * A handle is all that a request needs: the NIC's address, its class.  fabricd does not know of it.
 */
#include "railbed.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/ip.h>
#include <stdlib.h>
#include <string.h>

#include "wire.h"

struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *a)
{
	uint32_t rank;

	if (!a->is_global || a->port_num != PORT || a->grh.sgid_index != railbed_gid_index()) {
		errno = EINVAL;
		return NULL;
	}
	if (!place_rank_of(&a->grh.dgid, &rank)) {
		errno = EHOSTUNREACH;
		return NULL;
	}
	struct ah *h = calloc(1, sizeof *h);
	if (!h)
		return NULL;
	h->ah = (struct ibv_ah){.context = pd->context, .pd = pd};
	h->address = ntohl(place()->nics[rank].address);
	h->traffic_class = a->grh.traffic_class;
	h->sl = a->sl & 7;
	pd_use(pd, 1);
	return &h->ah;
}

int ibv_destroy_ah(struct ibv_ah *ah)
{
	pd_use(ah->pd, -1);
	free(ah);
	return 0;
}

/* Of the 40 bytes before a datagram the last 20 are its IPv4 header */
int ibv_init_ah_from_wc(struct ibv_context *c, uint8_t port, struct ibv_wc *wc, struct ibv_grh *grh, struct ibv_ah_attr *a)
{
	struct iphdr ip;

	(void)c;
	if (port != PORT || !(wc->wc_flags & IBV_WC_GRH))
		return errno = EINVAL;
	memcpy(&ip, (const uint8_t *)grh + sizeof *grh - sizeof ip, sizeof ip);
	if (ip.version != 4 || ip.ihl != 5)
		return errno = EPROTONOSUPPORT;
	*a = (struct ibv_ah_attr){.is_global = 1, .port_num = PORT};
	a->grh.dgid.raw[10] = a->grh.dgid.raw[11] = 0xff;
	memcpy(&a->grh.dgid.raw[12], &ip.saddr, 4);
	a->grh.hop_limit = ip.ttl;
	a->grh.traffic_class = ip.tos;
	return 0;
}

struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh, uint8_t port)
{
	struct ibv_ah_attr a;

	return ibv_init_ah_from_wc(pd->context, port, wc, grh, &a) ? NULL : ibv_create_ah(pd, &a);
}
