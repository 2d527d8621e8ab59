/* Entropies in turn: each once before any comes again.  There is a power of two of them; the order of a time round follows
 * from one random number, which is drawn anew for the next.
 */
#ifndef MULTIPATH_TURN_H
#define MULTIPATH_TURN_H

#include <stdint.h>

#include "transport/multipath.h"
#include "transport/qp.h"

struct turn {
	uint32_t at, order;
};

static inline void turn_start(struct fabric *f, struct qp *q, struct turn *t)
{
	t->at = 0;
	t->order = (uint32_t)multipath_draw(f, q) & (q->multipath->p.entropies - 1);
}

static inline uint32_t turn_next(struct fabric *f, struct qp *q, struct turn *t)
{
	uint32_t entropy = t->at ^ t->order;

	if (++t->at == q->multipath->p.entropies)
		turn_start(f, q, t);
	return entropy;
}

#endif
