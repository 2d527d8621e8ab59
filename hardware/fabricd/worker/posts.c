/* Commands of workers: requests are posted, and reach the NIC. */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "connection/destroy.h"
#include "engine/event.h"
#include "engine/fabric.h"
#include "transport/qp.h"
#include "worker/command.h"
#include "worker/region.h"
#include "worker/services.h"
#include "worker/shared.h"
#include "worker/worker.h"

#define LENGTH_MAX (1ull << 31)	  /* of one request, as in reliable connections */

#define PIECES_MAX 32
#define INLINE_MAX 1024

/* Flags of POST_SEND_LIST */
#define SIGNALED 1u
#define FENCE 2u
#define INLINE 8u

/* worker_doorbell_at() - Something reaches the NIC then */
void worker_doorbell_at(struct fabric *f, const struct post *what, ps_t t)
{
	struct worker *w = what->w;
	struct post *p = malloc(sizeof *p);

	if (!p)
		abort();
	*p = *what;
	w->posts_under_way++;
	event_add(f, t, EV_DOORBELL, w->nic->n.index, 0, w->program & 0xffff, ++w->posts, p, 0);
}

static const char *ring_then(struct message *m, const struct post *what, ps_t t)
{
	if (m->w->posts_under_way >= POSTS_MAX)
		return "more than 65536 posts that have not reached the NIC yet";
	worker_doorbell_at(m->f, what, t);
	return NULL;
}

/* worker_ring() - Something reaches the NIC when a post would, in order with those, whether others may write to its memory
 * or not (worker_acts): the clock may be nearly that far
 */
const char *worker_ring(struct message *m, const struct post *what)
{
	const struct nic_params *p = &m->w->nic->p;

	return ring_then(m, what, m->w->now + p->post + p->pcie_latency);
}

/* A post takes post_ns of the worker's time before that */
static const char *post(struct message *m, struct post *what)
{
	what->w = m->w;
	if (m->w->posts_under_way < POSTS_MAX)
		worker_busy(m->w, (uint64_t)m->w->nic->p.post);
	return ring_then(m, what, m->w->now + m->w->nic->p.pcie_latency);
}

static struct qp *usable_qp(struct worker *w, uint32_t number)
{
	struct qp *q = qp_find(w->nic, number);

	return q && (w->program || q->state != QP_CONNECTING) && q->owner == &w->owner ? q : NULL;
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
	if (wr->opcode >= WR_READ || flags > 1)
		return "POST_SEND: unknown opcode or flag";
	if (wr->length > LENGTH_MAX)
		return "POST_SEND: longer than 2 GiB";
	if (wr->length && !m->w->program && !worker_region(m->w, wr->lkey, wr->local, wr->length))
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
	if (p.receive.length && !m->w->program && !worker_region(m->w, p.receive.lkey, p.receive.offset, p.receive.length))
		return "POST_RECV: unknown lkey, or range outside its region";
	return post(m, &p);
}

/* Read up to PIECES_MAX pieces of memory: one by itself needs no list.  Return: NULL, or what is wrong */
static const char *read_pieces(struct view *v, uint32_t count, struct piece *one, struct pieces **list, uint64_t *length)
{
	struct piece read[PIECES_MAX];

	if (count > PIECES_MAX || v->left != (size_t)count * 16)
		return "a list of more than 32 pieces, or not of the length named";
	*length = 0;
	for (uint32_t i = 0; i < count; i++) {
		read[i].at = get_le64(v);
		read[i].bytes = get_le32(v);
		read[i].key = get_le32(v);
		*length += read[i].bytes;
	}
	*one = count ? read[0] : (struct piece){0};
	if (count < 2)
		return NULL;
	*list = malloc(sizeof **list + count * sizeof read[0]);
	if (!*list)
		abort();
	(*list)->count = count;
	(*list)->inline_bytes = 0;
	memcpy((*list)->piece, read, count * sizeof read[0]);
	return NULL;
}

static const char *read_inline(struct view *v, uint32_t bytes, struct pieces **list)
{
	const uint8_t *data = view_take(v, bytes);

	if (bytes > INLINE_MAX || !data || v->left >= 8)
		return "POST_SEND_LIST: more than 1024 bytes inline, or not of the length named";
	if (!bytes)
		return NULL;
	*list = malloc(sizeof **list + bytes);
	if (!*list)
		abort();
	(*list)->count = 0;
	(*list)->inline_bytes = bytes;
	memcpy((*list)->data, data, bytes);
	return NULL;
}

/* A datagram says where it goes: NIC and number for an address, and its class */
static void read_destination(struct fabric *f, struct send_wr *wr)
{
	uint64_t how = wr->compare;

	wr->to = worker_nic(f, (uint32_t)wr->remote);
	wr->number = (uint32_t)(wr->remote >> 32) & PSN_MASK;
	wr->own_class = how & 1;
	wr->dscp = how >> 8 & 63;
	wr->class = how >> 16 & 7;
}

const char *command_post_send_list(struct message *m)
{
	struct post p = {.qp = get_le32(&m->v)};
	struct send_wr *wr = &p.send;
	struct piece one = {0};

	wr->opcode = get_u8(&m->v);
	uint8_t flags = get_u8(&m->v);
	uint16_t count = get_le16(&m->v);
	wr->signaled = flags & SIGNALED;
	wr->wr_id = get_le64(&m->v);
	wr->remote = get_le64(&m->v);
	wr->rkey = get_le32(&m->v);
	wr->imm = get_le32(&m->v);
	wr->compare = get_le64(&m->v);
	wr->swap = get_le64(&m->v);
	wr->fence = flags & FENCE;
	if (!usable_qp(m->w, p.qp))
		return "POST_SEND_LIST: no such queue pair";
	if (usable_qp(m->w, p.qp)->own->datagrams)
		read_destination(m->f, wr);
	else if (wr->opcode == WR_FETCH_ADD)
		wr->swap = wr->compare;
	if (wr->opcode >= WR_OPCODES || flags & ~(SIGNALED | FENCE | INLINE) || (flags & INLINE && wr_reads(wr)) || (wr_local(wr) && (count || flags & INLINE)))
		return "POST_SEND_LIST: unknown opcode or flag";
	wr->length = count;
	const char *wrong = flags & INLINE ? read_inline(&m->v, count, &wr->pieces)
					   : read_pieces(&m->v, count, &one, &wr->pieces, &wr->length);
	wr->local = one.at;
	wr->lkey = one.key;
	wrong = wrong ? wrong : post(m, &p);
	if (wrong)
		free(wr->pieces);
	return wrong;
}

static const char *post_recv_list(struct message *m, struct post *p)
{
	struct recv_wr *wr = &p->receive;
	uint32_t count = get_le32(&m->v);
	struct piece one;

	wr->wr_id = get_le64(&m->v);
	const char *wrong = read_pieces(&m->v, count, &one, &wr->pieces, &wr->length);
	wr->offset = one.at;
	wr->lkey = one.key;
	wrong = wrong ? wrong : post(m, p);
	if (wrong)
		free(wr->pieces);
	return wrong;
}

const char *command_post_recv_list(struct message *m)
{
	struct post p = {.qp = get_le32(&m->v), .kind = POST_KIND_RECV};

	return usable_qp(m->w, p.qp) ? post_recv_list(m, &p) : "POST_RECV_LIST: no such queue pair";
}

const char *command_post_srq_recv(struct message *m)
{
	struct post p = {.qp = get_le32(&m->v), .kind = POST_KIND_SHARED_RECV};

	return shared_of(m->w, p.qp) ? post_recv_list(m, &p) : "POST_SRQ_RECV: no such shared receive queue";
}

/* post_free() - Give a post back that has not reached the NIC */
void post_free(struct post *p)
{
	if (p->kind == POST_KIND_OFFLOAD)
		free(p->offload);
	else if (p->kind == POST_KIND_SEND)
		free(p->send.pieces);
	else if (p->kind == POST_KIND_RECV || p->kind == POST_KIND_SHARED_RECV)
		free(p->receive.pieces);
	free(p);
}

/* What concerns a queue pair, which may be gone by now.  Return: whether it has taken the request's pieces */
static bool reaches_qp(struct fabric *f, struct qp *q, const struct post *p)
{
	if (!q)
		return false;
	switch (p->kind) {
	case POST_KIND_SEND: qp_post_send(f, q, &p->send); return true;
	case POST_KIND_RECV: qp_post_recv(f, q, &p->receive); return true;
	case POST_KIND_MODIFY: qp_modify(f, q, &p->wanted); return false;
	case POST_KIND_DESTROY:
		q->gone = true;
		qps_gone(f);
		qps_destroy(f, q->nic);
		return false;
	default: return false;
	}
}

/* worker_doorbell() - Something has reached the NIC */
void worker_doorbell(struct fabric *f, struct post *p)
{
	struct worker *w = p->w;

	w->posts_under_way--;
	switch (p->kind) {
	case POST_KIND_OFFLOAD: f->services->post(f, w, p->qp, p->offload); break;
	case POST_KIND_DEREGISTER: memory_deregister(f, w, p->qp); break;
	case POST_KIND_REGION:
		region_grant(w, p->qp, p->region.access, p->region.domain);
		clock_worker_changed(f, w);
		break;
	case POST_KIND_PAGES: memory_pages(f, w, p); break;
	case POST_KIND_END: program_over(f, w); break;
	case POST_KIND_SHARED_RECV:
	case POST_KIND_SHARED_LIMIT:
	case POST_KIND_SHARED_DESTROY: shared_reaches(f, p); break;
	default:
		if (reaches_qp(f, qp_find(w->nic, p->qp), p)) {
			free(p);
			return;
		}
	}
	post_free(p);
}
