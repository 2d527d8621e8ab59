/* Work requests: posted to fabricd, and ended by its records */
#include "railbed.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "wire.h"

#define MESSAGE_MAX (1ull << 31)

static int opcode_of(enum ibv_wr_opcode opcode)
{
	switch (opcode) {
	case IBV_WR_RDMA_WRITE: return WIRE_WRITE;
	case IBV_WR_RDMA_WRITE_WITH_IMM: return WIRE_WRITE_IMM;
	case IBV_WR_SEND: return WIRE_SEND;
	case IBV_WR_SEND_WITH_IMM: return WIRE_SEND_IMM;
	case IBV_WR_RDMA_READ: return WIRE_READ;
	case IBV_WR_ATOMIC_CMP_AND_SWP: return WIRE_COMPARE_SWAP;
	case IBV_WR_ATOMIC_FETCH_AND_ADD: return WIRE_FETCH_ADD;
	case IBV_WR_SEND_WITH_INV: return WIRE_SEND_INV;
	case IBV_WR_BIND_MW: return WIRE_BIND;
	case IBV_WR_LOCAL_INV: return WIRE_LOCAL_INV;
	default: return -1;
	}
}

static bool reads(int opcode)
{
	return opcode >= WIRE_READ && opcode <= WIRE_FETCH_ADD;
}

/* Does it need no packet? */
static bool is_local(int opcode)
{
	return opcode == WIRE_BIND || opcode == WIRE_LOCAL_INV;
}

static int wrong_with(const struct qp *q, const struct ibv_send_wr *wr, uint64_t *length)
{
	if (q->forks != session.forks)
		return EIO;
	if (opcode_of(wr->opcode) < 0)
		return EOPNOTSUPP;
	if (q->qp.qp_type == IBV_QPT_UD && ((wr->opcode != IBV_WR_SEND && wr->opcode != IBV_WR_SEND_WITH_IMM) || !wr->wr.ud.ah))
		return EINVAL;
	if (q->qp.qp_type == IBV_QPT_UC && (reads(opcode_of(wr->opcode)) || wr->opcode == IBV_WR_SEND_WITH_INV))
		return EINVAL;
	if (q->qp.state < IBV_QPS_RTS || q->qp.state > IBV_QPS_ERR)
		return EINVAL;
	if (wr->num_sge < 0 || (unsigned)wr->num_sge > (q->cap.max_send_sge ? q->cap.max_send_sge : 1))
		return EINVAL;
	if (wr->opcode == IBV_WR_BIND_MW && (!wr->bind_mw.mw || (wr->bind_mw.mw->rkey ^ wr->bind_mw.rkey) >> 8))
		return EINVAL;
	if (reads(opcode_of(wr->opcode)) && (wr->send_flags & IBV_SEND_INLINE || !q->attr.max_rd_atomic))
		return EINVAL; /* its answer needs a place; and it would wait for ever */
	*length = 0;
	for (int i = 0; i < wr->num_sge && !is_local(opcode_of(wr->opcode)); i++)
		*length += wr->sg_list[i].length;
	if (*length > MESSAGE_MAX || (wr->send_flags & IBV_SEND_INLINE && *length > q->cap.max_inline_data))
		return EINVAL;
	return q->sq_tail - q->sq_head >= q->cap.max_send_wr ? ENOMEM : 0;
}

static void put_pieces(uint8_t *to, const struct ibv_sge *list, int count)
{
	for (int i = 0; i < count; i++, to += sizeof(struct wire_piece))
		memcpy(to, &(struct wire_piece){list[i].addr, list[i].length, list[i].lkey}, sizeof(struct wire_piece));
}

/* Where a datagram goes */
static void address(struct wire_send *s, const struct ibv_send_wr *wr)
{
	const struct ah *h = (const struct ah *)wr->wr.ud.ah;

	s->remote = (uint64_t)wr->wr.ud.remote_qpn << 32 | h->address;
	s->rkey = wr->wr.ud.remote_qkey;
	s->compare = h->traffic_class ? 1u | (uint32_t)(h->traffic_class >> 2) << 8 | (uint32_t)h->sl << 16 : 0;
}

/* What a request needs beside its memory, by its opcode */
static void particulars(struct wire_send *s, const struct ibv_send_wr *wr)
{
	const struct ibv_mw_bind_info *bind = &wr->bind_mw.bind_info;

	switch (s->opcode) {
	case WIRE_WRITE_IMM: s->imm = ntohl(wr->imm_data); /* fall through */
	case WIRE_WRITE:
	case WIRE_READ:
		s->remote = wr->wr.rdma.remote_addr;
		s->rkey = wr->wr.rdma.rkey;
		break;
	case WIRE_SEND_IMM: s->imm = ntohl(wr->imm_data); break;
	case WIRE_SEND_INV: s->imm = wr->invalidate_rkey; break;
	case WIRE_COMPARE_SWAP:
	case WIRE_FETCH_ADD:
		s->remote = wr->wr.atomic.remote_addr;
		s->rkey = wr->wr.atomic.rkey;
		s->compare = wr->wr.atomic.compare_add;
		s->swap = wr->wr.atomic.swap;
		break;
	case WIRE_BIND:
		s->rkey = wr->bind_mw.rkey;
		s->imm = bind->mr ? bind->mr->lkey : 0;
		s->remote = bind->addr;
		s->compare = bind->length;
		s->swap = bind->mw_access_flags;
		break;
	case WIRE_LOCAL_INV: s->rkey = wr->invalidate_rkey; break;
	default: break;
	}
	if (is_local(s->opcode))
		s->count = 0;
}

static int send_one(void *queue, const void *request)
{
	struct qp *q = queue;
	const struct ibv_send_wr *wr = request;
	uint64_t length;
	int wrong = wrong_with(q, wr, &length);

	if (wrong)
		return wrong;
	bool inlined = wr->send_flags & IBV_SEND_INLINE && !is_local(opcode_of(wr->opcode)), signaled = q->signal_all || wr->send_flags & IBV_SEND_SIGNALED;
	struct wire_send s = {
		.qp = q->number,
		.opcode = (uint8_t)opcode_of(wr->opcode),
		.flags = (signaled ? WIRE_SIGNALED : 0) | (inlined ? WIRE_INLINE : 0) |
			 (wr->send_flags & IBV_SEND_FENCE ? WIRE_FENCE : 0),
		.count = (uint16_t)(inlined ? length : (unsigned)wr->num_sge),
		.wr_id = q->sq_tail,
	};
	particulars(&s, wr);
	if (q->qp.qp_type == IBV_QPT_UD)
		address(&s, wr);
	struct ibv_sge sge[SGE_MAX];
	const struct ibv_sge *list = inlined ? NULL : demand_named(wr->sg_list, s.count, sge);
	uint8_t *body = session_command(POST_SEND_LIST, (uint16_t)(sizeof s + (inlined ? length : s.count * sizeof(struct wire_piece))));
	memcpy(body, &s, sizeof s);
	body += sizeof s;
	if (!inlined)
		put_pieces(body, list, s.count);
	for (int i = 0; inlined && i < wr->num_sge; body += wr->sg_list[i++].length)
		memcpy(body, (const void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length);
	q->sq[q->sq_tail++ % (q->cap.max_send_wr + 1u)] = (struct send_entry){wr->wr_id, wr->opcode, signaled};
	return 0;
}

/* A list of requests, up to the first that is wrong.  Of both kinds the second member is the next one */
static int post_list(void *queue, void *first, void **bad, int (*one)(void *queue, const void *wr))
{
	struct {
		uint64_t wr_id;
		void *next;
	} *wr = first;
	int wrong = 0;

	session_lock();
	session_begin();
	while (wr && !wrong) {
		wrong = session.lost ? EIO : one(queue, wr);
		if (wrong)
			break;
		wr = wr->next;
		session_room();
	}
	session_now();
	session_unlock();
	if (wrong && bad)
		*bad = wr;
	return wrong;
}

int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	return post_list(qp, wr, (void **)bad, send_one);
}

static void put_receive(uint16_t op, uint32_t number, uint64_t wr_id, const struct ibv_recv_wr *wr)
{
	struct ibv_sge sge[SGE_MAX];
	const struct ibv_sge *list = demand_named(wr->sg_list, wr->num_sge, sge);
	struct wire_receive r = {.qp = number, .count = (uint32_t)wr->num_sge, .wr_id = wr_id};
	uint8_t *body = session_command(op, (uint16_t)(sizeof r + r.count * sizeof(struct wire_piece)));

	memcpy(body, &r, sizeof r);
	put_pieces(body + sizeof r, list, wr->num_sge);
}

static int receive_one(void *queue, const void *request)
{
	struct qp *q = queue;
	const struct ibv_recv_wr *wr = request;

	if (q->forks != session.forks)
		return EIO;
	if (q->qp.srq || q->qp.state == IBV_QPS_RESET || wr->num_sge < 0 ||
	    (unsigned)wr->num_sge > (q->cap.max_recv_sge ? q->cap.max_recv_sge : 1))
		return EINVAL;
	if (q->rq_tail - q->rq_head >= q->cap.max_recv_wr)
		return ENOMEM;
	put_receive(POST_RECV_LIST, q->number, q->rq_tail, wr);
	q->rq[q->rq_tail++ % (q->cap.max_recv_wr + 1u)] = wr->wr_id;
	return 0;
}

int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	return post_list(qp, wr, (void **)bad, receive_one);
}

static int receive_shared(void *queue, const void *request)
{
	struct shared *s = queue;
	const struct ibv_recv_wr *wr = request;

	if (s->forks != session.forks)
		return EIO;
	if (wr->num_sge < 0 || (unsigned)wr->num_sge > s->attr.max_sge)
		return EINVAL;
	if (s->free == NOTHING)
		return ENOMEM;
	put_receive(POST_SRQ_RECV, s->number, s->free, wr);
	s->entry[s->free].wr_id = wr->wr_id;
	s->free = s->entry[s->free].next;
	return 0;
}

int post_shared_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	return post_list(srq, wr, (void **)bad, receive_shared);
}

static enum ibv_wc_opcode completed(enum ibv_wr_opcode opcode)
{
	switch (opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM: return IBV_WC_RDMA_WRITE;
	case IBV_WR_RDMA_READ: return IBV_WC_RDMA_READ;
	case IBV_WR_ATOMIC_CMP_AND_SWP: return IBV_WC_COMP_SWAP;
	case IBV_WR_ATOMIC_FETCH_AND_ADD: return IBV_WC_FETCH_ADD;
	case IBV_WR_BIND_MW: return IBV_WC_BIND_MW;
	case IBV_WR_LOCAL_INV: return IBV_WC_LOCAL_INV;
	default: return IBV_WC_SEND;
	}
}

/* post_sent() - A send, the @seq-th of its queue pair, has ended, and with it all before it */
void post_sent(uint64_t seq, uint32_t status, uint32_t number, uint64_t bytes)
{
	struct qp *q = qp_of(number);

	if (!q || seq >= q->sq_tail)
		return;
	const struct send_entry *e = &q->sq[seq % (q->cap.max_send_wr + 1u)];
	q->sq_head = seq + 1;
	if (status && q->qp.state != IBV_QPS_SQE)
		q->qp.state = q->qp.qp_type != IBV_QPT_RC && status != IBV_WC_WR_FLUSH_ERR && q->qp.state != IBV_QPS_ERR ? IBV_QPS_SQE : IBV_QPS_ERR;
	if (!e->signaled && !status)
		return;
	const struct ibv_wc wc = {.wr_id = e->wr_id,
				  .status = status,
				  .opcode = completed(e->opcode),
				  .byte_len = (uint32_t)bytes,
				  .qp_num = q->number};
	cq_add(q->qp.send_cq, &wc, false);
}

static uint64_t receive_ended(struct qp *q, const struct wire_record *r)
{
	return q->qp.srq ? shared_ended(q->qp.srq, r->wr_id) : q->rq[q->rq_head++ % (q->cap.max_recv_wr + 1u)];
}

/* post_received() - The oldest receive of a queue pair has ended, or one of its shared queue */
void post_received(const struct wire_record *r)
{
	bool datagram = r->kind == REC_RECEIVED_DATAGRAM || r->kind == REC_RECEIVED_DATAGRAM_IMM;
	bool invalidates = r->kind == REC_RECEIVED_SEND_INV;
	bool imm = r->kind != REC_RECEIVED && r->kind != REC_RECEIVED_DATAGRAM && !invalidates;
	struct qp *q = qp_of(r->qp);

	if (!q || (!q->qp.srq && q->rq_head == q->rq_tail))
		return;
	if (r->status)
		q->qp.state = IBV_QPS_ERR;
	const struct ibv_wc wc = {.wr_id = receive_ended(q, r),
				  .status = r->status,
				  .opcode = r->kind == REC_RECEIVED_IMM ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV,
				  .wc_flags = (imm ? IBV_WC_WITH_IMM : 0) | (invalidates ? IBV_WC_WITH_INV : 0) | (datagram ? IBV_WC_GRH : 0),
				  .imm_data = invalidates ? r->imm : htonl(r->imm),
				  .byte_len = (uint32_t)r->bytes,
				  .qp_num = q->number,
				  .sl = datagram ? HEADER_IPV4 : 0,
				  .src_qp = datagram ? (uint32_t)(r->bytes >> 32) : q->attr.dest_qp_num};
	cq_add(q->qp.recv_cq, &wc, true);
}

/* qp_lost() - The NIC is gone: all that was posted ends, flushed */
void qp_lost(struct qp *q)
{
	q->qp.state = IBV_QPS_ERR;
	while (q->sq_head != q->sq_tail) {
		const struct send_entry *e = &q->sq[q->sq_head++ % (q->cap.max_send_wr + 1u)];
		const struct ibv_wc wc = {.wr_id = e->wr_id,
					  .status = IBV_WC_WR_FLUSH_ERR,
					  .opcode = completed(e->opcode),
					  .qp_num = q->number};
		cq_add(q->qp.send_cq, &wc, false);
	}
	while (q->rq_head != q->rq_tail) {
		const struct ibv_wc wc = {.wr_id = q->rq[q->rq_head++ % (q->cap.max_recv_wr + 1u)],
					  .status = IBV_WC_WR_FLUSH_ERR,
					  .opcode = IBV_WC_RECV,
					  .qp_num = q->number};
		cq_add(q->qp.recv_cq, &wc, true);
	}
}
