/* Commands of workers: requests are posted, and reach the NIC. */
#include <stdlib.h>

#include "base/bytes.h"
#include "engine/event.h"
#include "engine/fabric.h"
#include "transport/qp.h"
#include "worker/command.h"
#include "worker/services.h"
#include "worker/worker.h"

#define LENGTH_MAX (1ull << 31)	  /* of one request, as in reliable connections */

/* A post takes post_ns of the worker's time and reaches the NIC a PCIe latency later */
static const char *post(struct message *m, const struct post *what)
{
	struct worker *w = m->w;
	struct post *p = w->posts_under_way < POSTS_MAX ? malloc(sizeof *p) : NULL;

	if (!p)
		return "more than 65536 posts that have not reached the NIC yet";
	*p = *what;
	p->w = w;
	worker_busy(w, (uint64_t)w->nic->p.post);
	w->posts_under_way++;
	event_add(m->f, w->now + w->nic->p.pcie_latency, EV_DOORBELL, w->nic->n.index, 0, 0, ++w->posts, p, 0);
	return NULL;
}

static struct qp *usable_qp(struct worker *w, uint32_t number)
{
	struct qp *q = qp_find(w->nic, number);

	return q && q->state != QP_CONNECTING && q->owner == &worker_qp_owner ? q : NULL;
}

const char *command_post_offload(struct message *m)
{
	struct post p = {.qp = get_le32(&m->v), .kind = POST_KIND_OFFLOAD};
	struct offload_wr wr = {0};

	wr.collective = get_u8(&m->v);
	wr.reduction = get_u8(&m->v);
	wr.element = get_u8(&m->v);
	wr.flags = get_u8(&m->v);
	wr.wr_id = get_le64(&m->v);
	wr.in_key = get_le32(&m->v);
	wr.out_key = get_le32(&m->v);
	wr.in = get_le64(&m->v);
	wr.out = get_le64(&m->v);
	wr.count = get_le64(&m->v);
	for (int i = 0; i < 4; i++)
		wr.args[i] = get_le64(&m->v);
	const char *wrong = m->f->services->check(m->w, p.qp, &wr);
	if (wrong)
		return wrong;
	p.offload = malloc(sizeof wr);
	if (!p.offload)
		abort();
	*p.offload = wr;
	wrong = post(m, &p);
	if (wrong)
		free(p.offload);
	return wrong;
}

const char *command_post_send(struct message *m)
{
	struct post p = {.qp = get_le32(&m->v)};
	struct send_wr *wr = &p.send;

	wr->opcode = get_u8(&m->v);
	uint8_t flags = get_u8(&m->v);
	get_le16(&m->v);
	wr->signaled = flags & 1;
	wr->wr_id = get_le64(&m->v);
	wr->lkey = get_le32(&m->v);
	wr->rkey = get_le32(&m->v);
	wr->local = get_le64(&m->v);
	wr->remote = get_le64(&m->v);
	wr->length = get_le64(&m->v);
	wr->imm = get_le32(&m->v);
	if (!usable_qp(m->w, p.qp))
		return "POST_SEND: no such queue pair, or not connected";
	if (wr->opcode >= WR_OPCODES || flags > 1)
		return "POST_SEND: unknown opcode or flag";
	if (wr->length > LENGTH_MAX)
		return "POST_SEND: longer than 2 GiB";
	if (wr->length && !worker_region(m->w, wr->lkey, wr->local, wr->length))
		return "POST_SEND: unknown lkey, or range outside its region";
	return post(m, &p);
}

const char *command_post_recv(struct message *m)
{
	struct post p = {.qp = get_le32(&m->v), .kind = POST_KIND_RECV};

	p.receive.lkey = get_le32(&m->v);
	p.receive.wr_id = get_le64(&m->v);
	p.receive.offset = get_le64(&m->v);
	p.receive.length = get_le64(&m->v);
	if (!usable_qp(m->w, p.qp))
		return "POST_RECV: no such queue pair, or not connected";
	if (p.receive.length && !worker_region(m->w, p.receive.lkey, p.receive.offset, p.receive.length))
		return "POST_RECV: unknown lkey, or range outside its region";
	return post(m, &p);
}

/* post_free() - Give a post back */
void post_free(struct post *p)
{
	if (p->kind == POST_KIND_OFFLOAD)
		free(p->offload);
	free(p);
}

/* worker_doorbell() - A posted request has reached the NIC */
void worker_doorbell(struct fabric *f, struct post *p)
{
	struct qp *q = qp_find(p->w->nic, p->qp);

	p->w->posts_under_way--;
	switch (p->kind) {
	case POST_KIND_SEND: qp_post_send(f, q, &p->send); break;
	case POST_KIND_RECV: qp_post_recv(f, q, &p->receive); break;
	case POST_KIND_OFFLOAD: f->services->post(f, p->w, p->qp, p->offload); break;
	}
	post_free(p);
}
