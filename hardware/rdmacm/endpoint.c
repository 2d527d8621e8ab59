/* Endpoints: an identifier with its queue pair in one call, and those that a listening one accepts; names of addresses */
#include "rdmacm.h"

#include <errno.h>
#include <netdb.h>
#include <rdma/rdma_verbs.h>
#include <stdlib.h>
#include <string.h>

#define RESOLVE_MS 2000

static int prepare_active(struct id *i, struct rdma_addrinfo *res, struct ibv_pd *pd, struct ibv_qp_init_attr *a)
{
	if (rdma_resolve_addr(&i->id, res->ai_src_addr, res->ai_dst_addr, RESOLVE_MS) ||
	    rdma_resolve_route(&i->id, RESOLVE_MS))
		return -1;
	if (res->ai_connect_len > sizeof i->connect)
		return cm_fail(EINVAL);
	if (res->ai_connect_len)
		memcpy(i->connect, res->ai_connect, res->ai_connect_len);
	i->connect_length = res->ai_connect_len;
	if (!a)
		return 0;
	a->qp_type = (enum ibv_qp_type)res->ai_qp_type;
	return rdma_create_qp(&i->id, pd, a);
}

static int prepare_passive(struct id *i, struct rdma_addrinfo *res, struct ibv_pd *pd, struct ibv_qp_init_attr *a)
{
	if (rdma_bind_addr(&i->id, res->ai_src_addr))
		return -1;
	i->id.pd = pd ? pd : i->id.pd;
	if (!a)
		return 0;
	i->attr = malloc(sizeof *a);
	if (!i->attr)
		return cm_fail(ENOMEM);
	*i->attr = *a;
	i->attr->qp_type = (enum ibv_qp_type)res->ai_qp_type;
	return 0;
}

int rdma_create_ep(struct rdma_cm_id **id, struct rdma_addrinfo *res, struct ibv_pd *pd, struct ibv_qp_init_attr *a)
{
	struct rdma_cm_id *new;

	if (!id || !res || rdma_create_id(NULL, &new, NULL, (enum rdma_port_space)res->ai_port_space))
		return id && res ? -1 : cm_fail(EINVAL);
	int wrong = res->ai_flags & RAI_PASSIVE ? prepare_passive((struct id *)new, res, pd, a) :
						  prepare_active((struct id *)new, res, pd, a);
	if (wrong) {
		wrong = errno;
		rdma_destroy_ep(new);
		return cm_fail(wrong);
	}
	*id = new;
	return 0;
}

void rdma_destroy_ep(struct rdma_cm_id *id)
{
	rdma_destroy_qp(id);
	rdma_destroy_srq(id);
	rdma_destroy_id(id);
}

int rdma_get_request(struct rdma_cm_id *listener, struct rdma_cm_id **id)
{
	struct id *l = (struct id *)listener;
	struct rdma_cm_event *event;

	if (!listener || !id || !l->sync)
		return cm_fail(EINVAL);
	if (listener->event)
		rdma_ack_cm_event(listener->event);
	listener->event = NULL;
	if (rdma_get_cm_event(listener->channel, &event))
		return -1;
	int wrong = event->status ? -event->status : event->event != RDMA_CM_EVENT_CONNECT_REQUEST ? EINVAL : 0;
	if (!wrong && l->attr) {
		struct ibv_qp_init_attr a = *l->attr;
		wrong = rdma_create_qp(event->id, listener->pd, &a) ? errno : 0;
	}
	if (wrong) {
		listener->event = event;
		return cm_fail(wrong);
	}
	*id = event->id;
	(*id)->event = event;
	return 0;
}

/* --- addresses --- */
static struct rdma_addrinfo *new_info(const struct rdma_addrinfo *hints, const struct addrinfo *a)
{
	struct rdma_addrinfo *r = calloc(1, sizeof *r);
	struct sockaddr *address = r ? malloc(a->ai_addrlen) : NULL;
	int type = hints ? hints->ai_qp_type : 0, space = hints ? hints->ai_port_space : 0;

	if (!address) {
		free(r);
		return NULL;
	}
	memcpy(address, a->ai_addr, a->ai_addrlen);
	r->ai_flags = hints ? hints->ai_flags : 0;
	r->ai_family = a->ai_family;
	r->ai_port_space = space ? space : type == IBV_QPT_UD ? RDMA_PS_UDP : RDMA_PS_TCP;
	r->ai_qp_type = type ? type : space == RDMA_PS_UDP ? IBV_QPT_UD : IBV_QPT_RC;
	if (r->ai_flags & RAI_PASSIVE) {
		r->ai_src_addr = address;
		r->ai_src_len = a->ai_addrlen;
	} else {
		r->ai_dst_addr = address;
		r->ai_dst_len = a->ai_addrlen;
	}
	return r;
}

/* Where it is to come from, if the program says so */
static int add_source(struct rdma_addrinfo *r, const struct rdma_addrinfo *hints)
{
	if (!hints || !hints->ai_src_len || !hints->ai_src_addr || r->ai_src_addr)
		return 0;
	r->ai_src_addr = malloc(hints->ai_src_len);
	if (!r->ai_src_addr)
		return EAI_MEMORY;
	memcpy(r->ai_src_addr, hints->ai_src_addr, hints->ai_src_len);
	r->ai_src_len = hints->ai_src_len;
	return 0;
}

int rdma_getaddrinfo(const char *node, const char *service, const struct rdma_addrinfo *hints, struct rdma_addrinfo **res)
{
	int flags = hints ? hints->ai_flags : 0;
	struct addrinfo ask = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found;
	int wrong;

	if (!res || (!node && !service && !hints))
		return cm_fail(EINVAL);
	ask.ai_flags = (flags & RAI_PASSIVE ? AI_PASSIVE : 0) | (flags & RAI_NUMERICHOST ? AI_NUMERICHOST : 0);
	if (!node && !service) { /* the addresses are the hints' */
		struct addrinfo of = {.ai_family = AF_INET};
		of.ai_addr = flags & RAI_PASSIVE ? hints->ai_src_addr : hints->ai_dst_addr;
		of.ai_addrlen = flags & RAI_PASSIVE ? hints->ai_src_len : hints->ai_dst_len;
		*res = of.ai_addr && of.ai_addrlen ? new_info(hints, &of) : NULL;
	} else {
		wrong = getaddrinfo(node, service, &ask, &found);
		if (wrong)
			return wrong;
		*res = new_info(hints, found);
		freeaddrinfo(found);
	}
	if (!*res)
		return cm_fail(EINVAL);
	wrong = add_source(*res, hints);
	if (wrong)
		rdma_freeaddrinfo(*res);
	return wrong;
}

void rdma_freeaddrinfo(struct rdma_addrinfo *r)
{
	while (r) {
		struct rdma_addrinfo *next = r->ai_next;
		free(r->ai_src_addr);
		free(r->ai_dst_addr);
		free(r->ai_src_canonname);
		free(r->ai_dst_canonname);
		free(r->ai_route);
		free(r->ai_connect);
		free(r);
		r = next;
	}
}
