/* Shared receive queues: receives that several queue pairs of a program use (InfiniBand specification, 10.2.9)
 *
 * Theory of Operation
 *
 * A queue pair that needs a receive for a message takes the oldest into its own queue, where it stays until the message
 * has come.  So whatever is said of receives there goes for these, too.  What a queue pair that is reset or destroyed
 * has not used goes back.
 */
#include <stdlib.h>

#include "base/bytes.h"
#include "engine/fabric.h"
#include "nic/nic.h"
#include "transport/qp.h"
#include "worker/command.h"
#include "worker/records.h"
#include "worker/shared.h"
#include "worker/worker.h"

#define SHARED_MAX 1024
#define SHARED_WR(s, i) ((struct recv_wr *)ring_at(&(s)->rq, sizeof(struct recv_wr), (i)))

static bool keep(struct shared *s, const struct recv_wr *wr)
{
	struct recv_wr *in = ring_push(&s->rq, sizeof *in, WRS_MAX);

	if (in)
		*in = *wr;
	return in;
}

/* Fewer are left than its owner wants: that is said once */
static void look(struct fabric *f, struct shared *s)
{
	struct worker *w = s->owner;

	if (s->rq.tail - s->rq.head >= s->limit)
		return;
	s->limit = 0;
	worker_record(f, w, &(struct record){.kind = REC_SRQ_LIMIT, .t = f->clock.now + w->nic->p.pcie_latency, .qp = s->number});
}

/* shared_lend() - A queue pair needs a receive, and has none.  Return: whether it has one now */
bool shared_lend(struct fabric *f, struct qp *q)
{
	struct shared *s = q->own->shared;
	struct recv_wr *in = s->rq.head != s->rq.tail ? ring_push(&q->rq, sizeof *in, WRS_MAX) : NULL;

	if (!in)
		return false;
	*in = *SHARED_WR(s, s->rq.head++);
	q->usable++;
	look(f, s);
	return true;
}

/* shared_take_back() - What a queue pair has not used is there for others */
void shared_take_back(struct qp *q)
{
	while (q->rq.head != q->rq.tail && keep(q->own->shared, RECV_WR(q, q->rq.head)))
		q->rq.head++;
}

static void give_back(struct shared *s)
{
	for (; s->rq.head != s->rq.tail; s->rq.head++)
		free(SHARED_WR(s, s->rq.head)->pieces);
	free(s->rq.at);
	free(s);
}

/* shared_of() - The queue of that number, or NULL */
struct shared *shared_of(const struct worker *w, uint32_t number)
{
	struct shared *s = w->shared;

	while (s && s->number != number)
		s = s->next;
	return s;
}

const char *command_create_srq(struct message *m)
{
	struct worker *w = m->w;
	uint32_t cookie = get_le32(&m->v), count = 0;
	uint8_t reply[REPLY_QP_BYTES];
	struct shared *s = NULL;

	for (const struct shared *each = w->shared; each; each = each->next)
		count++;
	if (count < SHARED_MAX) {
		s = calloc(1, sizeof *s);
		if (!s)
			abort();
		*s = (struct shared){.next = w->shared, .owner = w, .number = ++w->shared_numbers, .pd = get_le32(&m->v)};
		w->shared = s;
	}
	put_le32(put_le32(reply_head(reply, REPLY_QP, sizeof reply), cookie), s ? s->number : 0);
	worker_send(m->f, w, reply, sizeof reply);
	return NULL;
}

const char *command_modify_srq(struct message *m)
{
	struct post p = {.w = m->w, .qp = get_le32(&m->v), .kind = POST_KIND_SHARED_LIMIT};

	p.limit = get_le32(&m->v);
	return shared_of(m->w, p.qp) ? worker_ring(m, &p) : "MODIFY_SRQ: no such shared receive queue";
}

const char *command_destroy_srq(struct message *m)
{
	struct post p = {.w = m->w, .qp = get_le32(&m->v), .kind = POST_KIND_SHARED_DESTROY};

	return shared_of(m->w, p.qp) ? worker_ring(m, &p) : "DESTROY_SRQ: no such shared receive queue";
}

/* Queue pairs that still use it receive nothing more */
static void destroy(struct worker *w, struct shared *s)
{
	struct shared **at = &w->shared;

	for (uint32_t i = 0; i < w->nic->qp_count; i++) {
		struct qp *q = w->nic->qps[i];
		if (q->own && q->own->shared == s)
			q->own->shared = NULL;
	}
	while (*at != s)
		at = &(*at)->next;
	*at = s->next;
	give_back(s);
}

/* shared_reaches() - Something that concerns a shared receive queue, which may be gone by now, has reached the NIC */
void shared_reaches(struct fabric *f, struct post *p)
{
	struct shared *s = shared_of(p->w, p->qp);

	if (!s)
		return;
	if (p->kind == POST_KIND_SHARED_RECV && keep(s, &p->receive))
		p->receive.pieces = NULL;
	else if (p->kind == POST_KIND_SHARED_LIMIT)
		s->limit = p->limit;
	if (p->kind == POST_KIND_SHARED_DESTROY)
		destroy(p->w, s);
	else
		look(f, s);
}

/* shared_over() - A session has ended, and its queue pairs are gone */
void shared_over(struct worker *w)
{
	struct shared *next = w->shared;

	for (struct shared *s; (s = next);) {
		next = s->next;
		give_back(s);
	}
	w->shared = NULL;
}
