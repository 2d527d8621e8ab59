/* Shared receive queues
 *
 * Receives of one end in any order, so each has an entry of a table, and its place there is what fabricd knows it by.
 */
#include "railbed.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "wire.h"

static struct shared *all;

static uint32_t new_number(uint32_t domain)
{
	const struct wire_shared c = {.domain = domain};
	struct wire_number answer;

	session_begin();
	if (!session_open())
		return 0;
	memcpy(session_command(CREATE_SRQ, sizeof c), &c, sizeof c);
	if (!session_exchange(-1, REPLY_QP))
		return 0;
	memcpy(&answer, session.in + 8, sizeof answer);
	errno = ENOMEM; /* if there are too many */
	return answer.qp;
}

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *a)
{
	const struct ibv_srq_attr *wanted = &a->attr;

	if (!wanted->max_wr || wanted->max_wr > WR_MAX || wanted->max_sge > SGE_MAX) {
		errno = EINVAL;
		return NULL;
	}
	struct shared *s = calloc(1, sizeof *s);
	struct shared_entry *entry = calloc(wanted->max_wr, sizeof *entry);
	if (!s || !entry) {
		free(entry);
		free(s);
		return NULL;
	}
	for (uint32_t i = 0; i < wanted->max_wr; i++)
		entry[i].next = i + 1 < wanted->max_wr ? i + 1 : NOTHING;
	s->entry = entry;
	s->attr = (struct ibv_srq_attr){.max_wr = wanted->max_wr, .max_sge = wanted->max_sge ? wanted->max_sge : 1};
	s->srq = (struct ibv_srq){.context = pd->context, .srq_context = a->srq_context, .pd = pd};
	pthread_mutex_init(&s->srq.mutex, NULL);
	pthread_cond_init(&s->srq.cond, NULL);
	session_lock();
	s->number = s->srq.handle = new_number(pd->handle);
	s->forks = session.forks;
	if (s->number) {
		s->next = all;
		all = s;
		pd_use(pd, 1);
	}
	session_unlock();
	if (!s->number) {
		int wrong = errno;
		free(entry);
		free(s);
		errno = wrong;
		return NULL;
	}
	a->attr = s->attr;
	return &s->srq;
}

static void tell(uint16_t op, const struct shared *s, uint32_t limit)
{
	const struct wire_limit m = {.srq = s->number, .limit = limit};

	session_begin();
	if (session.fd >= 0 && s->forks == session.forks)
		memcpy(session_command(op, sizeof m), &m, sizeof m);
	session_now();
}

/* Its size is what it was created with */
int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *a, int mask)
{
	struct shared *s = (struct shared *)srq;

	if (mask & ~IBV_SRQ_LIMIT || (mask & IBV_SRQ_LIMIT && a->srq_limit > s->attr.max_wr))
		return EINVAL;
	session_lock();
	if (mask & IBV_SRQ_LIMIT) {
		s->attr.srq_limit = a->srq_limit;
		tell(MODIFY_SRQ, s, a->srq_limit);
	}
	session_unlock();
	return 0;
}

int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *a)
{
	*a = ((struct shared *)srq)->attr;
	return 0;
}

int ibv_destroy_srq(struct ibv_srq *srq)
{
	struct shared *s = (struct shared *)srq, **at = &all;

	session_lock();
	if (s->users) {
		session_unlock();
		return EBUSY;
	}
	tell(DESTROY_SRQ, s, 0);
	while (*at != s)
		at = &(*at)->next;
	*at = s->next;
	session_unlock();
	pthread_mutex_lock(&srq->mutex);
	while (srq->events_completed != s->events)
		pthread_cond_wait(&srq->cond, &srq->mutex);
	pthread_mutex_unlock(&srq->mutex);
	pd_use(srq->pd, -1);
	free(s->entry);
	free(s);
	return 0;
}

/* shared_ended() - A receive has ended: the number that its program knows it by */
uint64_t shared_ended(struct ibv_srq *srq, uint64_t entry)
{
	struct shared *s = (struct shared *)srq;

	if (entry >= s->attr.max_wr)
		return 0;
	s->entry[entry].next = s->free;
	s->free = (uint32_t)entry;
	return s->entry[entry].wr_id;
}

/* shared_told() - Its program takes an event of a shared receive queue, and is to acknowledge it; false: the queue is gone */
bool shared_told(const struct ibv_srq *srq)
{
	for (struct shared *s = all; s; s = s->next)
		if (&s->srq == srq) {
			s->events++;
			return true;
		}
	return false;
}

/* shared_low() - Fewer receives are left than its limit */
void shared_low(uint32_t number)
{
	struct shared *s = all;

	while (s && s->number != number)
		s = s->next;
	if (!s)
		return;
	s->attr.srq_limit = 0;
	async_add(s->srq.context, &(struct ibv_async_event){.element.srq = &s->srq, .event_type = IBV_EVENT_SRQ_LIMIT_REACHED});
}
