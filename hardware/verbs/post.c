/* Work requests: posted to fabricd, and ended by its records */
#include "railbed.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "wire.h"

/* Room for a post's body: with fabricd, or with us until the queue pair is connected */
static void *room(struct qp *q, uint16_t op, uint16_t body)
{
	uint16_t len = (uint16_t)(8 + body);

	if (q->connected)
		return session_command(op, body);
	if (q->early_len + len > q->early_room) {
		size_t more = 2 * q->early_room + 4096;
		uint8_t *to = realloc(q->early, more);
		if (!to)
			return NULL;
		q->early = to;
		q->early_room = more;
	}
	uint8_t *p = q->early + q->early_len;
	memset(p, 0, len);
	memcpy(p, &op, 2);
	memcpy(p + 2, &len, 2);
	q->early_len += len;
	return p + 8;
}

/* Where the data of a list of pieces is; several, and what is inline, is copied to one place */
static int source(const struct ibv_send_wr *wr, uint32_t *key, uint64_t *offset, uint64_t *length)
{
	const void *parts[SGE_MAX];
	size_t lengths[SGE_MAX];

	*length = 0;
	for (int i = 0; i < wr->num_sge; i++) {
		parts[i] = (const void *)(uintptr_t)wr->sg_list[i].addr;
		lengths[i] = wr->sg_list[i].length;
		*length += lengths[i];
		if (!(wr->send_flags & IBV_SEND_INLINE) && !memory_find(&wr->sg_list[i], key, offset))
			return EINVAL;
	}
	if (!*length || (wr->num_sge == 1 && !(wr->send_flags & IBV_SEND_INLINE)))
		return 0;
	return memory_inline(parts, lengths, wr->num_sge, key, offset) ? 0 : ENOMEM;
}

static int send_one(struct qp *q, const struct ibv_send_wr *wr)
{
	static const int opcodes[] = {
		[IBV_WR_RDMA_WRITE] = WIRE_WRITE + 1, [IBV_WR_RDMA_WRITE_WITH_IMM] = WIRE_WRITE_IMM + 1, [IBV_WR_SEND] = WIRE_SEND + 1};
	struct wire_send s = {.wr_id = q->sq_tail, .imm = ntohl(wr->imm_data)};

	if (wr->opcode >= sizeof opcodes / sizeof *opcodes || !opcodes[wr->opcode])
		return EOPNOTSUPP;
	if (q->qp.state != IBV_QPS_RTS && q->qp.state != IBV_QPS_SQD && q->qp.state != IBV_QPS_ERR)
		return EINVAL;
	if (wr->num_sge < 0 || (unsigned)wr->num_sge > q->cap.max_send_sge)
		return EINVAL;
	if (q->sq_tail - q->sq_head >= q->cap.max_send_wr)
		return ENOMEM;
	int wrong = source(wr, &s.lkey, &s.local, &s.length);
	if (!wrong && wr->send_flags & IBV_SEND_INLINE && s.length > q->cap.max_inline_data)
		wrong = EINVAL;
	if (wrong)
		return wrong;
	s.opcode = (uint8_t)(opcodes[wr->opcode] - 1);
	s.flags = q->signal_all || wr->send_flags & IBV_SEND_SIGNALED;
	if (s.opcode != WIRE_SEND)
		memory_remote(wr->wr.rdma.rkey, wr->wr.rdma.remote_addr, &s.rkey, &s.remote);
	s.qp = q->number;
	void *body = room(q, POST_SEND, sizeof s);
	if (!body)
		return ENOMEM;
	memcpy(body, &s, sizeof s);
	q->sq[q->sq_tail++ % (q->cap.max_send_wr + 1u)] = (struct send_entry){wr->wr_id, (uint8_t)wr->opcode, s.flags};
	return 0;
}

int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	int wrong = 0;

	session_lock();
	while (wr && !wrong) {
		wrong = session.lost ? EIO : send_one((struct qp *)qp, wr);
		if (!wrong)
			wr = wr->next;
	}
	if (session.real)
		session_flush();
	session_unlock();
	if (wrong && bad)
		*bad = wr;
	return wrong;
}

static int receive_one(struct qp *q, const struct ibv_recv_wr *wr)
{
	struct wire_receive r = {.qp = q->number};

	if (q->qp.state == IBV_QPS_RESET || wr->num_sge < 0 || (unsigned)wr->num_sge > q->cap.max_recv_sge)
		return EINVAL;
	if (wr->num_sge > 1)
		return EOPNOTSUPP;
	if (q->rq_tail - q->rq_head >= q->cap.max_recv_wr)
		return ENOMEM;
	if (wr->num_sge && wr->sg_list->length && !memory_find(wr->sg_list, &r.lkey, &r.offset))
		return EINVAL;
	r.length = wr->num_sge ? wr->sg_list->length : 0;
	void *body = room(q, POST_RECV, sizeof r);
	if (!body)
		return ENOMEM;
	memcpy(body, &r, sizeof r);
	q->rq[q->rq_tail++ % (q->cap.max_recv_wr + 1u)] = wr->wr_id;
	return 0;
}

int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	int wrong = 0;

	session_lock();
	while (wr && !wrong) {
		wrong = session.lost ? EIO : receive_one((struct qp *)qp, wr);
		if (!wrong)
			wr = wr->next;
	}
	if (session.real)
		session_flush();
	session_unlock();
	if (wrong && bad)
		*bad = wr;
	return wrong;
}

static enum ibv_wc_opcode completed(uint8_t opcode)
{
	switch (opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM: return IBV_WC_RDMA_WRITE;
	case IBV_WR_RDMA_READ: return IBV_WC_RDMA_READ;
	case IBV_WR_ATOMIC_CMP_AND_SWP: return IBV_WC_COMP_SWAP;
	case IBV_WR_ATOMIC_FETCH_AND_ADD: return IBV_WC_FETCH_ADD;
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
	if (status)
		q->qp.state = IBV_QPS_ERR;
	if (!e->signaled && !status)
		return;
	const struct ibv_wc wc = {.wr_id = e->wr_id,
				  .status = status,
				  .opcode = completed(e->opcode),
				  .byte_len = (uint32_t)bytes,
				  .qp_num = q->qp.qp_num};
	cq_add(q->qp.send_cq, &wc, false);
}

/* post_received() - The oldest receive of a queue pair has ended */
void post_received(bool immediate, uint32_t status, uint32_t number, uint32_t imm, uint64_t bytes)
{
	struct qp *q = qp_of(number);

	if (!q || q->rq_head == q->rq_tail)
		return;
	const struct ibv_wc wc = {.wr_id = q->rq[q->rq_head++ % (q->cap.max_recv_wr + 1u)],
				  .status = status,
				  .opcode = immediate ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV,
				  .wc_flags = immediate ? IBV_WC_WITH_IMM : 0,
				  .imm_data = htonl(imm),
				  .byte_len = (uint32_t)bytes,
				  .qp_num = q->qp.qp_num,
				  .src_qp = q->attr.dest_qp_num};
	cq_add(q->qp.recv_cq, &wc, true);
}

/* qp_error() - A queue pair is broken: all that was posted ends, flushed */
void qp_error(struct qp *q)
{
	q->qp.state = IBV_QPS_ERR;
	while (q->sq_head != q->sq_tail) {
		const struct send_entry *e = &q->sq[q->sq_head++ % (q->cap.max_send_wr + 1u)];
		const struct ibv_wc wc = {.wr_id = e->wr_id,
					  .status = IBV_WC_WR_FLUSH_ERR,
					  .opcode = completed(e->opcode),
					  .qp_num = q->qp.qp_num};
		cq_add(q->qp.send_cq, &wc, false);
	}
	while (q->rq_head != q->rq_tail) {
		const struct ibv_wc wc = {.wr_id = q->rq[q->rq_head++ % (q->cap.max_recv_wr + 1u)],
					  .status = IBV_WC_WR_FLUSH_ERR,
					  .opcode = IBV_WC_RECV,
					  .qp_num = q->qp.qp_num};
		cq_add(q->qp.recv_cq, &wc, true);
	}
	q->early_len = 0;
}
