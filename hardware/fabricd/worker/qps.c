/* A worker's queue pairs: payload is in its memory, and what has ended becomes a record. */
#include "base/units.h"
#include "engine/fabric.h"
#include "nic/nic.h"
#include "transport/qp.h"
#include "wire/roce.h"
#include "worker/records.h"
#include "worker/worker.h"

static const uint8_t *payload(struct fabric *f, struct qp *q, const struct send_wr *wr, uint64_t n)
{
	const struct region *r = wr->length ? worker_region(q->nic->worker, wr->lkey, wr->local, wr->length) : NULL;

	(void)f;
	return r ? r->base + wr->local + (n - wr->first) * q->mtu : NULL;
}

static void sent(struct fabric *f, struct qp *q, const struct send_wr *wr, enum wc_status status)
{
	if (!wr->signaled && status == WC_SUCCESS)
		return;
	worker_record(f, q->nic->worker,
		      &(struct record){.kind = REC_SENT,
				       .status = status,
				       .wr_id = wr->wr_id,
				       .t = f->clock.now + q->nic->p.pcie_latency,
				       .qp = q->number,
				       .bytes = wr->length});
}

static bool memory(struct qp *q, uint32_t key, uint64_t offset, uint64_t length, uint8_t **at)
{
	const struct region *r = worker_region(q->nic->worker, key, offset, length);

	*at = r ? r->base + offset : NULL;
	return r;
}

static void received(struct fabric *f, struct qp *q, const struct recv_wr *wr, const struct roce_packet *last, ps_t t)
{
	struct record r = {.kind = REC_RECEIVED, .wr_id = wr->wr_id, .t = t, .qp = q->number};

	if (!last) {
		r.status = WC_FLUSHED;
	} else {
		r.kind = roce_has_imm(last->opcode) ? REC_RECEIVED_IMM : REC_RECEIVED;
		r.imm = last->imm;
		r.bytes = q->message_bytes;
	}
	worker_record(f, q->nic->worker, &r);
}

static const struct qp_owner_ops ops = {.lends = true, .payload = payload, .sent = sent, .memory = memory, .received = received};
struct qp_owner worker_qp_owner = {.ops = &ops};
