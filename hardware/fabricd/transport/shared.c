/* Shared receive queues: receives that several queue pairs use (InfiniBand specification, 10.2.9)
 *
 * Theory of Operation
 *
 * A queue pair that needs a receive for a message takes the oldest into its own queue, where it stays until the message
 * has come.  So whatever else is said of receives there goes for these, too.  What a queue pair that is reset or destroyed
 * has not used goes back.
 */
#include <stdlib.h>

#include "engine/fabric.h"
#include "transport/qp.h"
#include "transport/shared.h"

#define SHARED_WR(s, i) ((struct recv_wr *)ring_at(&(s)->rq, sizeof(struct recv_wr), (i)))

/* shared_post() - A receive has reached the NIC.  Return: false if there are WRS_MAX */
bool shared_post(struct shared *s, const struct recv_wr *wr)
{
	struct recv_wr *in = ring_push(&s->rq, sizeof *in, WRS_MAX);

	if (in)
		*in = *wr;
	return in;
}

/* Fewer are left than its owner wants: that is said once */
static void look(struct fabric *f, struct shared *s)
{
	if (s->rq.tail - s->rq.head >= s->limit)
		return;
	s->limit = 0;
	s->owner->ops->low(f, s);
}

/* shared_limit() - From now on its owner is to be told when fewer are left */
void shared_limit(struct fabric *f, struct shared *s, uint32_t limit)
{
	s->limit = limit;
	look(f, s);
}

/* shared_lend() - A queue pair needs a receive, and has none.  Return: whether it has one now */
bool shared_lend(struct fabric *f, struct qp *q)
{
	struct shared *s = q->own ? q->own->shared : NULL;

	if (!s || s->rq.head == s->rq.tail)
		return false;
	struct recv_wr *in = ring_push(&q->rq, sizeof *in, WRS_MAX);
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
	struct shared *s = q->own ? q->own->shared : NULL;

	while (s && q->rq.head != q->rq.tail && shared_post(s, RECV_WR(q, q->rq.head)))
		q->rq.head++;
}

void shared_free(struct shared *s)
{
	for (; s->rq.head != s->rq.tail; s->rq.head++)
		free(SHARED_WR(s, s->rq.head)->pieces);
	free(s->rq.at);
	free(s);
}
