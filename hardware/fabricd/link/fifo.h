/* Frames one behind the other: queues of ports, of what is sent once more, of what the pacer holds back */
#ifndef LINK_FIFO_H
#define LINK_FIFO_H

#include <stdint.h>

#include "link/frame.h"

struct fifo {
	struct frame *head, *tail;
	uint32_t frames;
	uint64_t bytes;
};

/* fifo_add() - Put a frame at the end, or, if it is early, before all that are not */
static inline void fifo_add(struct fifo *q, struct frame *fr)
{
	struct frame **at = &q->head;

	while (fr->early && *at && (*at)->early)
		at = &(*at)->next;
	if (!fr->early && q->tail)
		at = &q->tail->next;
	fr->next = *at;
	*at = fr;
	if (!fr->next)
		q->tail = fr;
	q->frames++;
	q->bytes += fr->len;
}

/* fifo_take() - The first frame, which has to be there */
static inline struct frame *fifo_take(struct fifo *q)
{
	struct frame *fr = q->head;

	q->head = fr->next;
	if (!q->head)
		q->tail = NULL;
	q->frames--;
	q->bytes -= fr->len;
	return fr;
}

#endif
