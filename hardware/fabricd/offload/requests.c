/* The requests of a member, in order. */
#include <stdlib.h>

#include "offload/requests.h"
#include "worker/services.h"

/* requests_add() - Behind the others */
void requests_add(struct requests *q, const struct offload_wr *wr)
{
	struct request *r = malloc(sizeof *r);

	if (!r)
		abort();
	*r = (struct request){.wr = *wr};
	if (q->tail)
		q->tail->next = r;
	else
		q->head = r;
	q->tail = r;
	q->count++;
}

/* requests_drop() - The one at the head is done */
void requests_drop(struct requests *q)
{
	struct request *r = q->head;

	q->head = r->next;
	if (!q->head)
		q->tail = NULL;
	q->count--;
	free(r);
}

void requests_free(struct requests *q)
{
	while (q->head)
		requests_drop(q);
}
