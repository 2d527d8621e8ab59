/* ibv_wr_*: requests put together call by call, and posted together
 *
 * wr_complete posts the requests as a list: all of them, or as many as come before the first that is wrong, which it
 * reports.  From wr_start on the queue pair is the caller's.
 */
#include "railbed.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define OPERATIONS                                                                                                          \
	(IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM | \
	 IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |               \
	 IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_SEND_WITH_INV)

#define OF_UNRELIABLE                                                                                                       \
	(IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM | \
	 IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW)
#define OF_DATAGRAMS (IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM)

struct request {
	struct ibv_send_wr wr;
	struct ibv_sge sge[SGE_MAX];
	uint8_t data[INLINE_MAX]; /* inline */
};

struct batch {
	struct request *requests;
	size_t count, room;
	int wrong;
};

static struct batch *batch_of(struct ibv_qp_ex *x)
{
	return ((struct qp *)x)->batch;
}

static void start(struct ibv_qp_ex *x)
{
	pthread_mutex_lock(&x->qp_base.mutex);
	batch_of(x)->count = 0;
	batch_of(x)->wrong = 0;
}

static struct request *latest(struct ibv_qp_ex *x)
{
	struct batch *b = batch_of(x);

	if (!b->count)
		b->wrong = EINVAL;
	return b->wrong ? NULL : &b->requests[b->count - 1];
}

static struct ibv_send_wr *begin(struct ibv_qp_ex *x, enum ibv_wr_opcode opcode)
{
	struct batch *b = batch_of(x);

	if (b->count == b->room) {
		size_t room = 2 * b->room + 8;
		struct request *more = realloc(b->requests, room * sizeof *more);
		if (!more) {
			b->wrong = ENOMEM;
			return NULL;
		}
		b->requests = more;
		b->room = room;
	}
	struct ibv_send_wr *wr = &b->requests[b->count++].wr;
	*wr = (struct ibv_send_wr){.wr_id = x->wr_id, .opcode = opcode, .send_flags = x->wr_flags};
	return wr;
}

static void begin_remote(struct ibv_qp_ex *x, enum ibv_wr_opcode opcode, uint32_t rkey, uint64_t address, __be32 imm)
{
	struct ibv_send_wr *wr = begin(x, opcode);

	if (!wr)
		return;
	wr->wr.rdma.rkey = rkey;
	wr->wr.rdma.remote_addr = address;
	wr->imm_data = imm;
}

static void wr_write(struct ibv_qp_ex *x, uint32_t rkey, uint64_t address)
{
	begin_remote(x, IBV_WR_RDMA_WRITE, rkey, address, 0);
}

static void wr_write_imm(struct ibv_qp_ex *x, uint32_t rkey, uint64_t address, __be32 imm)
{
	begin_remote(x, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, address, imm);
}

static void wr_read(struct ibv_qp_ex *x, uint32_t rkey, uint64_t address)
{
	begin_remote(x, IBV_WR_RDMA_READ, rkey, address, 0);
}

static void begin_atomic(struct ibv_qp_ex *x, enum ibv_wr_opcode opcode, uint32_t rkey, uint64_t address, uint64_t compare,
			 uint64_t swap)
{
	struct ibv_send_wr *wr = begin(x, opcode);

	if (!wr)
		return;
	wr->wr.atomic.rkey = rkey;
	wr->wr.atomic.remote_addr = address;
	wr->wr.atomic.compare_add = compare;
	wr->wr.atomic.swap = swap;
}

static void wr_compare_swap(struct ibv_qp_ex *x, uint32_t rkey, uint64_t address, uint64_t compare, uint64_t swap)
{
	begin_atomic(x, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, address, compare, swap);
}

static void wr_fetch_add(struct ibv_qp_ex *x, uint32_t rkey, uint64_t address, uint64_t add)
{
	begin_atomic(x, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, address, add, 0);
}

static void wr_send(struct ibv_qp_ex *x)
{
	begin(x, IBV_WR_SEND);
}

static void begin_invalidating(struct ibv_qp_ex *x, enum ibv_wr_opcode opcode, uint32_t rkey)
{
	struct ibv_send_wr *wr = begin(x, opcode);

	if (wr)
		wr->invalidate_rkey = rkey;
}

static void wr_send_inv(struct ibv_qp_ex *x, uint32_t rkey)
{
	begin_invalidating(x, IBV_WR_SEND_WITH_INV, rkey);
}

static void wr_local_inv(struct ibv_qp_ex *x, uint32_t rkey)
{
	begin_invalidating(x, IBV_WR_LOCAL_INV, rkey);
}

static void wr_bind_mw(struct ibv_qp_ex *x, struct ibv_mw *mw, uint32_t rkey, const struct ibv_mw_bind_info *bind)
{
	struct ibv_send_wr *wr = begin(x, IBV_WR_BIND_MW);

	if (!wr)
		return;
	wr->bind_mw.mw = mw;
	wr->bind_mw.rkey = rkey;
	wr->bind_mw.bind_info = *bind;
}

static void wr_send_imm(struct ibv_qp_ex *x, __be32 imm)
{
	struct ibv_send_wr *wr = begin(x, IBV_WR_SEND_WITH_IMM);

	if (wr)
		wr->imm_data = imm;
}

static void set_address(struct ibv_qp_ex *x, struct ibv_ah *ah, uint32_t number, uint32_t qkey)
{
	struct request *r = latest(x);

	if (!r)
		return;
	r->wr.wr.ud.ah = ah;
	r->wr.wr.ud.remote_qpn = number;
	r->wr.wr.ud.remote_qkey = qkey;
}

static void set_sges(struct ibv_qp_ex *x, size_t count, const struct ibv_sge *list)
{
	struct request *r = latest(x);

	if (r && count > SGE_MAX)
		batch_of(x)->wrong = EINVAL;
	else if (r) {
		memcpy(r->sge, list, count * sizeof *list);
		r->wr.num_sge = (int)count;
	}
}

static void set_sge(struct ibv_qp_ex *x, uint32_t lkey, uint64_t address, uint32_t length)
{
	set_sges(x, 1, &(struct ibv_sge){.addr = address, .length = length, .lkey = lkey});
}

static void set_inline_list(struct ibv_qp_ex *x, size_t count, const struct ibv_data_buf *list)
{
	struct request *r = latest(x);
	size_t whole = 0;

	for (size_t i = 0; r && i < count; i++) {
		if (list[i].length > sizeof r->data - whole) {
			batch_of(x)->wrong = EINVAL;
			return;
		}
		memcpy(r->data + whole, list[i].addr, list[i].length);
		whole += list[i].length;
	}
	if (!r)
		return;
	r->wr.send_flags |= IBV_SEND_INLINE;
	r->sge[0] = (struct ibv_sge){.length = (uint32_t)whole};
	r->wr.num_sge = 1;
}

static void set_inline(struct ibv_qp_ex *x, void *data, size_t length)
{
	set_inline_list(x, 1, &(struct ibv_data_buf){.addr = data, .length = length});
}

static int complete(struct ibv_qp_ex *x)
{
	struct batch *b = batch_of(x);
	struct ibv_send_wr *bad;
	int wrong = b->wrong;

	for (size_t i = 0; i < b->count; i++) { /* requests have found their places */
		struct request *r = &b->requests[i];
		if (r->wr.send_flags & IBV_SEND_INLINE && r->wr.num_sge)
			r->sge[0].addr = (uint64_t)(uintptr_t)r->data;
		r->wr.sg_list = r->sge;
		r->wr.next = i + 1 < b->count ? &b->requests[i + 1].wr : NULL;
	}
	if (!wrong && b->count)
		wrong = post_send(&x->qp_base, &b->requests[0].wr, &bad);
	pthread_mutex_unlock(&x->qp_base.mutex);
	return wrong;
}

static void give_up(struct ibv_qp_ex *x)
{
	pthread_mutex_unlock(&x->qp_base.mutex);
}

/* extended_init() - Let a queue pair have these operations; false if it cannot */
bool extended_init(struct qp *q, uint64_t ops)
{
	struct ibv_qp_ex *x = &q->ex;

	if (ops & ~(uint64_t)(q->qp.qp_type == IBV_QPT_UD ? OF_DATAGRAMS : q->qp.qp_type == IBV_QPT_UC ? OF_UNRELIABLE : OPERATIONS))
		return false;
	q->batch = calloc(1, sizeof *q->batch);
	if (!q->batch)
		return false;
	q->extended = true;
	x->wr_start = start;
	x->wr_complete = complete;
	x->wr_abort = give_up;
	x->wr_rdma_write = wr_write;
	x->wr_rdma_write_imm = wr_write_imm;
	x->wr_rdma_read = wr_read;
	x->wr_atomic_cmp_swp = wr_compare_swap;
	x->wr_atomic_fetch_add = wr_fetch_add;
	x->wr_send = wr_send;
	x->wr_send_imm = wr_send_imm;
	x->wr_send_inv = wr_send_inv;
	x->wr_local_inv = wr_local_inv;
	x->wr_bind_mw = wr_bind_mw;
	x->wr_set_ud_addr = set_address;
	x->wr_set_sge = set_sge;
	x->wr_set_sge_list = set_sges;
	x->wr_set_inline_data = set_inline;
	x->wr_set_inline_data_list = set_inline_list;
	return true;
}

void extended_free(struct qp *q)
{
	if (q->batch)
		free(q->batch->requests);
	free(q->batch);
}
