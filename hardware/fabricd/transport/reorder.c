/* Selective repeat, receiving side: packets that came ahead of the expected one
 *
 * Theory of Operation
 *
 * A packet ahead of the expected one is kept, up to reorder_packets ahead, until all
 * before it are there.  Its payload goes over PCIe when it arrives, not when it is taken:
 * it does not wait in the NIC (receive.c; Mittal et al., "Revisiting Network Support for
 * RDMA", SIGCOMM 2018, section 5.3).  Each such packet is answered by a NAK (sequence
 * error) that names the expected packet and, in the field of the message number, the one
 * that has come: the two numbers of IRN's NACK (section 3.1).  What the sender makes of
 * that is in repeat.c.
 */
#include <stdlib.h>

#include "engine/fabric.h"
#include "link/frame.h"
#include "transport/qp.h"
#include "transport/reorder.h"

struct reorder {
	uint32_t room;
	struct frame *slot[];
};

/* reorder_keep() - Keep a frame that came @ahead of the expected one, unless there is no room or it is there already */
enum kept reorder_keep(struct qp *q, uint32_t ahead, struct frame *fr)
{
	struct reorder *r = q->reorder;
	uint32_t room = q->nic->p.reorder_packets;

	if (!r) {
		r = q->reorder = calloc(1, sizeof *r + room * sizeof(struct frame *));
		if (!r)
			abort();
		r->room = room;
	}
	if (ahead >= r->room)
		return KEPT_NOT;
	struct frame **slot = &r->slot[(q->expected + ahead) % r->room];
	if (*slot)
		return KEPT_BEFORE;
	*slot = fr;
	return KEPT;
}

/* reorder_take() - The expected packet, if it has come already */
struct frame *reorder_take(struct qp *q)
{
	struct reorder *r = q->reorder;

	if (!r)
		return NULL;
	struct frame **slot = &r->slot[q->expected % r->room], *fr = *slot;
	*slot = NULL;
	return fr;
}

/* reorder_drop() - Forget everything that came ahead: the sender starts anew from the expected packet */
void reorder_drop(struct fabric *f, struct qp *q)
{
	struct reorder *r = q->reorder;

	for (uint32_t i = 0; r && i < r->room; i++)
		if (r->slot[i]) {
			frame_release(f, r->slot[i]);
			r->slot[i] = NULL;
		}
}

void reorder_release(struct qp *q)
{
	free(q->reorder);
}
