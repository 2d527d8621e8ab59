/* Commands of programs: shared receive queues, by their numbers in the session. */
#include <stdlib.h>

#include "base/bytes.h"
#include "engine/fabric.h"
#include "nic/nic.h"
#include "transport/qp.h"
#include "transport/shared.h"
#include "worker/command.h"
#include "worker/worker.h"

#define SHARED_MAX 1024

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
		*s = (struct shared){.next = w->shared, .owner = &w->owner, .number = ++w->shared_numbers, .pd = get_le32(&m->v)};
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
	shared_free(s);
}

/* shared_reaches() - Something that concerns a shared receive queue, which may be gone by now, has reached the NIC */
void shared_reaches(struct fabric *f, struct post *p)
{
	struct shared *s = shared_of(p->w, p->qp);

	if (!s)
		return;
	if (p->kind == POST_KIND_SHARED_RECV && shared_post(s, &p->receive))
		p->receive.pieces = NULL;
	else if (p->kind == POST_KIND_SHARED_LIMIT)
		shared_limit(f, s, p->limit);
	else if (p->kind == POST_KIND_SHARED_DESTROY)
		destroy(p->w, s);
}

/* shared_over() - A session has ended, and its queue pairs are gone */
void shared_over(struct worker *w)
{
	struct shared *next = w->shared;

	for (struct shared *s; (s = next);) {
		next = s->next;
		shared_free(s);
	}
	w->shared = NULL;
}
