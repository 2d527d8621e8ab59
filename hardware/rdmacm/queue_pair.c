/* Queue pairs of identifiers: made with what they need, and brought from state to state as the messages say */
#include "rdmacm.h"

#include <errno.h>
#include <rdma/rdma_verbs.h>
#include <stdlib.h>
#include <string.h>

#define ACK_TIMEOUT 17 /* 4.096 us << 17: twice what Linux takes for a packet's life */

/* --- completion queues, where the program names none --- */
static struct ibv_cq *new_cq(struct rdma_cm_id *id, uint32_t entries, struct ibv_comp_channel **channel)
{
	*channel = ibv_create_comp_channel(id->verbs);
	return *channel ? ibv_create_cq(id->verbs, (int)(entries ? entries : 1), id, *channel, 0) : NULL;
}

static void destroy_cqs(struct rdma_cm_id *id)
{
	if (id->send_cq)
		ibv_destroy_cq(id->send_cq);
	if (id->send_cq_channel)
		ibv_destroy_comp_channel(id->send_cq_channel);
	if (id->recv_cq)
		ibv_destroy_cq(id->recv_cq);
	if (id->recv_cq_channel)
		ibv_destroy_comp_channel(id->recv_cq_channel);
	id->send_cq = id->recv_cq = NULL;
	id->send_cq_channel = id->recv_cq_channel = NULL;
}

static bool create_cqs(struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *a)
{
	if (!a->recv_cq && !(a->recv_cq = id->recv_cq))
		a->recv_cq = id->recv_cq = new_cq(id, a->cap.max_recv_wr, &id->recv_cq_channel);
	if (!a->send_cq)
		a->send_cq = id->send_cq = new_cq(id, a->cap.max_send_wr, &id->send_cq_channel);
	return a->recv_cq && a->send_cq;
}

/* --- states --- */
static void to_init(const struct id *i, struct ibv_qp_attr *a, int *mask)
{
	a->qp_state = IBV_QPS_INIT;
	a->pkey_index = 0;
	a->port_num = PORT;
	*mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
	if (is_datagram(i)) {
		a->qkey = RDMA_UDP_QKEY;
		*mask |= IBV_QP_QKEY;
		return;
	}
	a->qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
	if (i->responder_resources)
		a->qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	*mask |= IBV_QP_ACCESS_FLAGS;
}

static void to_rtr(const struct id *i, struct ibv_qp_attr *a, int *mask)
{
	a->qp_state = IBV_QPS_RTR;
	*mask = IBV_QP_STATE;
	if (is_datagram(i))
		return;
	route_av(i, &a->ah_attr);
	a->path_mtu = i->id.route.path_rec ? (enum ibv_mtu)i->id.route.path_rec->mtu : IBV_MTU_1024;
	a->dest_qp_num = i->peer_qp;
	a->rq_psn = i->peer_psn;
	a->max_dest_rd_atomic = i->responder_resources;
	a->min_rnr_timer = 0; /* 655 ms, as Linux has it */
	*mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
}

static void to_rts(const struct id *i, struct ibv_qp_attr *a, int *mask)
{
	a->qp_state = IBV_QPS_RTS;
	a->sq_psn = is_datagram(i) ? 0 : i->psn;
	*mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
	if (is_datagram(i))
		return;
	a->timeout = i->ack_timeout ? i->ack_timeout : ACK_TIMEOUT;
	a->retry_cnt = i->retry_count;
	a->rnr_retry = i->in.rnr_retry_count & 7; /* of a sender, what its peer has said */
	a->max_rd_atomic = i->initiator_depth;
	*mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
}

int rdma_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *a, int *mask)
{
	const struct id *i = (struct id *)id;

	if (!id || !a || !mask)
		return cm_fail(EINVAL);
	switch (a->qp_state) {
	case IBV_QPS_INIT: to_init(i, a, mask); return 0;
	case IBV_QPS_RTR: to_rtr(i, a, mask); return 0;
	case IBV_QPS_RTS: to_rts(i, a, mask); return 0;
	default: return cm_fail(EINVAL);
	}
}

static int bring(struct id *i, void (*to)(const struct id *, struct ibv_qp_attr *, int *))
{
	struct ibv_qp_attr a = {0};
	int mask;

	to(i, &a, &mask);
	return ibv_modify_qp(i->id.qp, &a, mask);
}

/* qp_connect() - Its peer is known: ready to receive and to send; 0, or an error */
int qp_connect(struct id *i)
{
	int wrong = bring(i, to_init);

	wrong = wrong ? wrong : bring(i, to_rtr);
	return wrong ? wrong : bring(i, to_rts);
}

/* qp_break() - The connection ends: what is posted is flushed */
void qp_break(struct id *i)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_ERR};

	if (i->id.qp && !is_datagram(i))
		ibv_modify_qp(i->id.qp, &a, IBV_QP_STATE);
}

/* A datagram's is ready at once, a connection's may have receives posted */
static int begin(struct id *i)
{
	int wrong = bring(i, to_init);

	if (is_datagram(i)) {
		wrong = wrong ? wrong : bring(i, to_rtr);
		wrong = wrong ? wrong : bring(i, to_rts);
	}
	return wrong;
}

int rdma_create_qp_ex(struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *a)
{
	struct id *i = (struct id *)id;
	int wrong;

	if (!id || id->qp || !id->verbs || !a || a->qp_type != id->qp_type)
		return cm_fail(EINVAL);
	if (!(a->comp_mask & IBV_QP_INIT_ATTR_PD)) {
		a->comp_mask |= IBV_QP_INIT_ATTR_PD;
		a->pd = id->pd;
	}
	if (!a->pd || a->pd->context != id->verbs)
		return cm_fail(EINVAL);
	a->srq = a->srq ? a->srq : id->srq;
	if (create_cqs(id, a))
		id->qp = ibv_create_qp_ex(id->verbs, a);
	wrong = id->qp ? begin(i) : errno;
	if (wrong) {
		rdma_destroy_qp(id);
		return cm_fail(wrong);
	}
	id->pd = a->pd;
	return 0;
}

int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *a)
{
	struct ibv_qp_init_attr_ex x = {0};

	if (!a)
		return cm_fail(EINVAL);
	memcpy(&x, a, sizeof *a);
	x.comp_mask = pd ? IBV_QP_INIT_ATTR_PD : 0;
	x.pd = pd;
	int wrong = rdma_create_qp_ex(id, &x);
	memcpy(a, &x, sizeof *a);
	return wrong;
}

void rdma_destroy_qp(struct rdma_cm_id *id)
{
	if (id->qp)
		ibv_destroy_qp(id->qp);
	id->qp = NULL;
	destroy_cqs(id);
}

/* --- shared receive queues --- */
int rdma_create_srq_ex(struct rdma_cm_id *id, struct ibv_srq_init_attr_ex *a)
{
	if (!id || id->srq || !id->verbs || !a)
		return cm_fail(EINVAL);
	if (!(a->comp_mask & IBV_SRQ_INIT_ATTR_PD) || !a->pd) {
		a->comp_mask |= IBV_SRQ_INIT_ATTR_PD;
		a->pd = id->pd;
	}
	struct ibv_srq_init_attr plain = {.srq_context = a->srq_context, .attr = a->attr};
	if (a->comp_mask & IBV_SRQ_INIT_ATTR_TYPE && a->srq_type != IBV_SRQT_BASIC)
		return cm_fail(EOPNOTSUPP);
	id->srq = ibv_create_srq(a->pd, &plain);
	if (!id->srq)
		return -1;
	a->attr = plain.attr;
	id->pd = a->pd;
	return 0;
}

int rdma_create_srq(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_srq_init_attr *a)
{
	struct ibv_srq_init_attr_ex x = {.comp_mask = pd ? IBV_SRQ_INIT_ATTR_PD : 0, .pd = pd};

	if (!a)
		return cm_fail(EINVAL);
	memcpy(&x, a, sizeof *a);
	int wrong = rdma_create_srq_ex(id, &x);
	memcpy(a, &x, sizeof *a);
	return wrong;
}

void rdma_destroy_srq(struct rdma_cm_id *id)
{
	if (id->srq)
		ibv_destroy_srq(id->srq);
	id->srq = NULL;
}
