/* Selective repeat, receiving side: packets that came ahead of the expected one
 *
 * Theory of Operation
 *
 * A packet ahead of the expected one is kept, up to reorder_packets ahead, until all
 * before it are there.  Its payload goes over PCIe when it arrives, not when it is taken:
 * it does not wait in the NIC (receive.c; Mittal et al., "Revisiting Network Support for
 * RDMA", SIGCOMM 2018, section 5.3).  What is placed in any order needs no frame from then on
 * (place.c).  What is said of it is in answer.c, and what the sender makes of that in repeat.c.
 */
#include <stdlib.h>

#include "engine/fabric.h"
#include "link/frame.h"
#include "transport/qp.h"
#include "transport/reorder.h"

static bool here(const struct early *e)
{
	return e->frame || e->placed;
}

/* reorder_keep() - Keep what came @ahead of the expected packet, unless there is no room or it is there already */
enum kept reorder_keep(struct qp *q, uint32_t ahead, const struct early *e)
{
	struct reorder *r = q->reorder;
	uint32_t room = q->answers->reorder_packets;

	if (!r) {
		r = q->reorder = calloc(1, sizeof *r + room * sizeof(struct early));
		if (!r)
			abort();
		r->room = room;
		r->unsaid_from = UINT64_MAX;
	}
	if (ahead >= r->room)
		return KEPT_NOT;
	uint64_t n = q->expected + ahead;
	struct early *slot = &r->slot[n % r->room];
	if (here(slot))
		return KEPT_BEFORE;
	*slot = *e;
	r->held++;
	r->open += e->ends;
	if (n >= r->end)
		r->end = n + 1;
	if (n < r->unsaid_from)
		r->unsaid_from = n;
	return KEPT;
}

/* reorder_take() - The expected packet
 * @e:		Set to what is known of it
 *
 * Return: whether it has come already
 */
bool reorder_take(struct qp *q, struct early *e)
{
	struct reorder *r = q->reorder;

	if (!r)
		return false;
	struct early *slot = &r->slot[q->expected % r->room];
	*e = *slot;
	*slot = (struct early){0};
	r->held -= here(e);
	r->open -= e->ends && e->frame;
	return here(e);
}

/* reorder_at() - Packet @n, if it has come ahead; or NULL */
struct early *reorder_at(const struct qp *q, uint64_t n)
{
	struct reorder *r = q->reorder;

	return n > q->expected && n < r->end && here(&r->slot[n % r->room]) ? &r->slot[n % r->room] : NULL;
}

/* reorder_has() - Has packet @n come ahead? */
bool reorder_has(const struct qp *q, uint64_t n)
{
	return reorder_at(q, n);
}

/* reorder_drop() - Forget everything that came ahead: the sender starts anew from the expected packet */
void reorder_drop(struct fabric *f, struct qp *q)
{
	struct reorder *r = q->reorder;

	for (uint32_t i = 0; r && i < r->room; i++)
		if (here(&r->slot[i])) {
			if (r->slot[i].frame)
				frame_release(f, r->slot[i].frame);
			r->slot[i] = (struct early){0};
			r->held--;
		}
	if (r) {
		r->unsaid_from = UINT64_MAX;
		r->open = 0;
	}
}

void reorder_release(struct qp *q)
{
	free(q->reorder);
}
