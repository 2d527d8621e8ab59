/* Selective repeat, sending side: packets that are not known to have come, by number (holes.c) */
#ifndef RECOVERY_HOLES_H
#define RECOVERY_HOLES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/units.h"

enum hole_state { UNDER_WAY, LOST, CAME };

struct hole {
	uint64_t number;
	bool trimmed; /* it is lost, and its receiver has said so */
	bool again, asked; /* it was sent again; to ask what has come (transport/probe.c) */
	bool sure; /* if it comes now, that is what was sent again */
	uint64_t turn;	/* so many times something had been sent again when it was sent last, this one included */
	uint64_t before; /* and the packet that was to be sent next then */
	ps_t since;	/* overtaken; PS_NEVER: not yet; 0: it counts as lost by a timeout */
	ps_t left;	/* sent again on the cable then; PS_NEVER: it is still in the NIC */
	enum hole_state state;
};

struct holes {
	struct hole *hole; /* a ring */
	uint32_t room, first, count;
};

static inline struct hole *holes_at(const struct holes *h, uint32_t i)
{
	return &h->hole[(h->first + i) % h->room];
}

void holes_add(struct holes *h, const struct hole *hole);
void holes_drop_first(struct holes *h);
uint32_t holes_index(const struct holes *h, uint64_t n);
struct hole *holes_find(const struct holes *h, uint64_t n);
uint32_t holes_sent_last(const struct holes *h);

#endif
