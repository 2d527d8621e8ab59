/* Addresses and routes: whose they are, and the path that the fabric has there */
#include "rdmacm.h"

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define PACKET_LIFE 16 /* 4.096 us << 16: as Linux says it for RoCE */

static void set_gid(union ibv_gid *g, uint32_t address)
{
	memset(g, 0, sizeof *g);
	g->raw[10] = g->raw[11] = 0xff;
	memcpy(&g->raw[12], &address, 4);
}

/* route_set_peer() - Both addresses are known: their GIDs */
void route_set_peer(struct id *i)
{
	struct rdma_addr *a = &i->id.route.addr;

	set_gid(&a->addr.ibaddr.sgid, a->src_sin.sin_addr.s_addr);
	set_gid(&a->addr.ibaddr.dgid, a->dst_sin.sin_addr.s_addr);
	a->addr.ibaddr.pkey = 0xffff;
}

/* route_av() - The peer, as requests and queue pairs name it */
void route_av(const struct id *i, struct ibv_ah_attr *a)
{
	*a = (struct ibv_ah_attr){
		.grh = {.dgid = i->id.route.addr.addr.ibaddr.dgid, .sgid_index = railbed_gid_index(), .hop_limit = 64, .traffic_class = i->tos},
		.sl = i->tos >> 5,
		.is_global = 1,
		.port_num = PORT,
	};
}

/* route_set_path() - As the subnet's administration would say it; 0, or an error */
int route_set_path(struct id *i)
{
	struct rdma_route *r = &i->id.route;
	struct ibv_port_attr port;
	int wrong = ibv_query_port(i->id.verbs, PORT, &port);
	struct ibv_sa_path_rec *p = wrong ? NULL : calloc(1, sizeof *p);

	if (!p)
		return wrong ? wrong : ENOMEM;
	*p = (struct ibv_sa_path_rec){
		.dgid = r->addr.addr.ibaddr.dgid,
		.sgid = r->addr.addr.ibaddr.sgid,
		.hop_limit = 64,
		.traffic_class = i->tos,
		.reversible = 1,
		.numb_path = 1,
		.pkey = htobe16(0xffff),
		.sl = i->tos >> 5,
		.mtu_selector = 2, /* exactly */
		.mtu = (uint8_t)port.active_mtu,
		.rate_selector = 2,
		.packet_life_time_selector = 2,
		.packet_life_time = PACKET_LIFE,
	};
	free(r->path_rec);
	r->path_rec = p;
	r->num_paths = 1;
	return 0;
}

int rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *from, struct sockaddr *to, int timeout_ms)
{
	struct id *i = (struct id *)id;
	struct sockaddr_in any = {.sin_family = AF_INET};
	uint32_t rank;

	(void)timeout_ms; /* it is known at once */
	if (!id || !to || (i->state != IDLE && i->state != BOUND))
		return cm_fail(EINVAL);
	if (to->sa_family != AF_INET)
		return cm_fail(EAFNOSUPPORT);
	if (i->state == IDLE && rdma_bind_addr(id, from && from->sa_family == AF_INET ? from : (struct sockaddr *)&any))
		return -1;
	struct rdma_addr *a = &id->route.addr;
	memcpy(&a->dst_sin, to, sizeof a->dst_sin);
	a->src_sin.sin_addr.s_addr = railbed_address(railbed_rank());
	bool self = ntohl(a->dst_sin.sin_addr.s_addr) >> 24 == 127;
	if (self)
		a->dst_sin.sin_addr = a->src_sin.sin_addr;
	bool there = railbed_rank_of(a->dst_sin.sin_addr.s_addr, &rank);
	pthread_mutex_lock(&cm_lock);
	if (there) {
		id_use_device(i);
		route_set_peer(i);
		i->state = ADDRESSED;
	}
	event_add(i, there ? RDMA_CM_EVENT_ADDR_RESOLVED : RDMA_CM_EVENT_ADDR_ERROR, there ? 0 : -ETIMEDOUT, NULL);
	pthread_mutex_unlock(&cm_lock);
	return cm_complete(i);
}

int rdma_resolve_route(struct rdma_cm_id *id, int timeout_ms)
{
	struct id *i = (struct id *)id;

	if (!id || i->state != ADDRESSED)
		return cm_fail(EINVAL);
	i->patience_ns = timeout_ms * INT64_C(1000000);
	int wrong = route_set_path(i);
	if (wrong)
		return cm_fail(wrong);
	pthread_mutex_lock(&cm_lock);
	i->state = ROUTED;
	event_add(i, RDMA_CM_EVENT_ROUTE_RESOLVED, 0, NULL);
	pthread_mutex_unlock(&cm_lock);
	return cm_complete(i);
}
