/* Queue pairs of sessions: payload is in their memory, and what has ended becomes a record. */
#include <string.h>

#include "base/copies.h"
#include "base/units.h"
#include "engine/fabric.h"
#include "nic/nic.h"
#include "records/records.h"
#include "transport/qp.h"
#include "wire/roce.h"
#include "worker/region.h"
#include "worker/shared.h"
#include "worker/worker.h"

#define LAST_WQE_REACHED 16 /* of ibv_event_type: it takes no more from its shared receive queue */
#define REQUEST_BYTES_MAX (1ull << 31)

/* A piece of memory that is to be sent, or NULL */
static const uint8_t *piece(const struct qp *q, uint32_t key, uint64_t at, uint64_t bytes)
{
	const struct region *r = worker_region(worker_of(q), key, at, bytes);

	return r && !r->window && (!q->own || r->pd == q->own->pd) ? region_at(r, at) : NULL;
}

/* Bytes @from to @end of the pieces of a request, one behind the other; they stay until the next call */
static const uint8_t *gather(struct fabric *f, const struct qp *q, const struct pieces *pieces, uint64_t from, uint64_t end)
{
	uint8_t *gathered = f->gathered;
	uint32_t have = 0;

	copies_settle();
	for (uint32_t i = 0; i < pieces->count && from < end; i++) {
		const struct piece *p = &pieces->piece[i];
		uint64_t most = p->bytes < end ? p->bytes : end;
		if (from < most) {
			const uint8_t *at = piece(q, p->key, p->at + from, most - from);
			if (!at || have + (most - from) > sizeof f->gathered)
				return NULL;
			memcpy(gathered + have, at, most - from);
			have += (uint32_t)(most - from);
			from = most;
		}
		from -= p->bytes < from ? p->bytes : from;
		end -= p->bytes < end ? p->bytes : end;
	}
	return gathered;
}

static const uint8_t *payload(struct fabric *f, struct qp *q, const struct send_wr *wr, uint64_t n)
{
	uint64_t at = (n - wr->first) * q->mtu, left = wr->length - at;

	if (!wr->length)
		return NULL;
	if (!wr->pieces) {
		const uint8_t *whole = piece(q, wr->lkey, wr->local, wr->length);
		return whole ? whole + at : NULL;
	}
	if (wr->pieces->inline_bytes)
		return wr->pieces->data + at;
	return gather(f, q, wr->pieces, at, at + (left < q->mtu ? left : q->mtu));
}

/* Is that memory to be sent, or to be written to if it is for what is read? */
static bool may_hold(struct qp *q, const struct send_wr *wr, uint32_t key, uint64_t at, uint64_t bytes)
{
	uint8_t *to;

	return wr_reads(wr) ? q->owner->ops->memory(q, LOCAL_WRITE, key, at, bytes, &to) : piece(q, key, at, bytes) != NULL;
}

/* A program may name what it likes: whether that is its memory shows when its request reaches the NIC */
static enum wc_status check(struct qp *q, const struct send_wr *wr)
{
	if (q->own->datagrams && (!wr->to || (wr->opcode != WR_SEND && wr->opcode != WR_SEND_IMM)))
		return WC_LOCAL_OPERATION;
	if (wr_local(wr))
		return WC_SUCCESS;
	if (q->own->unreliable && (wr_reads(wr) || wr->opcode == WR_SEND_INV))
		return WC_LOCAL_OPERATION;
	if (wr->length > REQUEST_BYTES_MAX || (wr_reads(wr) && wr->opcode != WR_READ && wr->length != 8))
		return WC_LOCAL_LENGTH;
	if (wr_reads(wr) && !q->own->reads_out)
		return WC_LOCAL_OPERATION;
	if (!wr->length || (wr->pieces && wr->pieces->inline_bytes))
		return WC_SUCCESS;
	if (!wr->pieces)
		return may_hold(q, wr, wr->lkey, wr->local, wr->length) ? WC_SUCCESS : WC_LOCAL_PROTECTION;
	for (uint32_t i = 0; i < wr->pieces->count; i++) {
		const struct piece *p = &wr->pieces->piece[i];
		if (p->bytes && !may_hold(q, wr, p->key, p->at, p->bytes))
			return WC_LOCAL_PROTECTION;
	}
	return WC_SUCCESS;
}

/* What was read is there when the NIC's writes up to it are done */
static bool reads_wait(const struct fabric *f, const struct qp *q, const struct send_wr *wr)
{
	return wr_reads(wr) && q->nic->pcie_rx_free > f->clock.now;
}

static void sent(struct fabric *f, struct qp *q, const struct send_wr *wr, enum wc_status status)
{
	if (!wr->signaled && status == WC_SUCCESS)
		return;
	worker_record(f, worker_of(q),
		      &(struct record){.kind = REC_SENT,
				       .status = status,
				       .wr_id = wr->wr_id,
				       .t = (reads_wait(f, q, wr) ? q->nic->pcie_rx_free : f->clock.now) + q->nic->p.pcie_latency,
				       .qp = q->number,
				       .bytes = wr->length});
}

/* Memory of receives that are shared is in the domain of these */
static bool in_domain(const struct qp *q, const struct region *r, enum right right)
{
	if (r->window && (right == LOCAL_WRITE || (r->qp && r->qp != q->number)))
		return false;
	return r->pd == q->own->pd || (right == LOCAL_WRITE && q->own->shared && r->pd == q->own->shared->pd);
}

static bool memory(struct qp *q, enum right right, uint32_t key, uint64_t address, uint64_t length, uint8_t **at)
{
	const struct region *r = worker_region(worker_of(q), key, address, length);
	bool may = !q->own || (r && in_domain(q, r, right) && (r->rights & right) && (right == LOCAL_WRITE || q->own->rights & right));

	*at = r ? region_at(r, address) : NULL;
	return r && may;
}

static bool on_device(const struct qp *q, uint32_t key)
{
	const struct region *r = region_of(worker_of(q), key);

	return r && r->on_device;
}

static bool invalidate(struct qp *q, uint32_t key)
{
	return region_invalidate(worker_of(q), key, q);
}

/* A window is bound, or invalidated */
static enum wc_status local(struct qp *q, const struct send_wr *wr)
{
	const struct region wanted = {.key = wr->rkey, .address = wr->remote, .bytes = wr->bound_bytes, .rights = (uint32_t)wr->bound_rights};
	bool is_done = wr->opcode == WR_BIND ? region_bind(worker_of(q), &wanted, wr->imm, q) : invalidate(q, wr->rkey);

	return is_done ? WC_SUCCESS : WC_BIND;
}

static void received(struct fabric *f, struct qp *q, const struct recv_wr *wr, enum wc_status status, const struct roce_packet *last, ps_t t)
{
	struct record r = {.kind = REC_RECEIVED, .status = status, .wr_id = wr->wr_id, .t = t, .qp = q->number};

	if (last) {
		bool imm = roce_has_imm(last->opcode);
		r.kind = roce_invalidates(last->opcode) ? REC_RECEIVED_SEND_INV : !imm ? REC_RECEIVED : roce_is_send(last->opcode) ? REC_RECEIVED_SEND_IMM : REC_RECEIVED_IMM;
		r.imm = last->imm;
		r.bytes = q->message_bytes;
		if (q->own && q->own->datagrams) {
			r.kind = imm ? REC_RECEIVED_DATAGRAM_IMM : REC_RECEIVED_DATAGRAM;
			r.bytes |= (uint64_t)last->src_qp << 32;
		}
	}
	worker_record(f, worker_of(q), &r);
}

static void written(struct fabric *f, struct qp *q, ps_t t)
{
	worker_written(f, worker_of(q), t);
}

static void event(struct fabric *f, struct qp *q, uint32_t type)
{
	worker_record(f, worker_of(q),
		      &(struct record){.kind = REC_QP_EVENT, .t = f->clock.now + q->nic->p.pcie_latency, .qp = q->number, .imm = type});
}

#define SQ_DRAINED 5

/* Behind what was read last */
static void drained(struct fabric *f, struct qp *q)
{
	ps_t t = q->nic->pcie_rx_free > f->clock.now ? q->nic->pcie_rx_free : f->clock.now;

	worker_record(f, worker_of(q),
		      &(struct record){.kind = REC_QP_EVENT, .t = t + q->nic->p.pcie_latency, .qp = q->number, .imm = SQ_DRAINED});
}

/* What peers have asked for breaks it by itself; what it asked for itself is in its completions */
static void broken(struct fabric *f, struct qp *q, uint8_t syndrome)
{
	static const struct {
		uint8_t syndrome, event;
	} events[] = {{AETH_NAK_OPERATION, 1}, {AETH_NAK_INVALID, 2}, {AETH_NAK_ACCESS, 3}};

	if (q->own->shared)
		event(f, q, LAST_WQE_REACHED);
	for (size_t i = 0; i < sizeof events / sizeof events[0]; i++)
		if (events[i].syndrome == syndrome)
			event(f, q, events[i].event);
}

const struct qp_owner_ops worker_qp_ops = {.lends = true, .payload = payload, .sent = sent, .memory = memory, .received = received};
const struct qp_owner_ops program_qp_ops = {
	.lends = true, .check = check, .on_device = on_device, .local = local, .invalidate = invalidate, .payload = payload, .sent = sent, .memory = memory, .received = received, .lend = shared_lend, .take_back = shared_take_back, .written = written, .broken = broken, .acked = qp_look_drained, .drained = drained};
