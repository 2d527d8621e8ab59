/* Retries by a cable's near end (retry.c) */
#ifndef LINK_RETRY_H
#define LINK_RETRY_H

#include <stdbool.h>
#include <stdint.h>

#include "link/port.h"

struct cable;
struct fabric;
struct frame;
struct frame_fate;

struct retry {
	uint64_t sent, acked; /* bytes of frames: what lies between is in the replay buffer */
	uint64_t came;	      /* in order, from the other end */
	bool astray;	      /* a frame was damaged, and the news of it is not here yet */
	uint32_t tries;	      /* of the frame `tried` */
	uint64_t tried;
	struct fifo held;  /* sent since then, and thrown away by the other end */
	struct fifo again; /* to be sent once more, before all others */
};

void retry_restart(struct cable *cable);
bool retry_on(const struct port *p);
bool retry_late(const struct port *p);
bool retry_waits(const struct port *p);
void retry_sent(struct port *p, const struct frame *fr);
bool retry_holds(struct fabric *f, struct port *p, struct port *to, struct frame *fr, struct frame_fate *fate);
struct frame *retry_pop(struct port *p);
void retry_came(struct fabric *f, struct port *p, const struct frame *fr);
void retry_acked(struct fabric *f, struct port *p, uint64_t came);
void retry_again(struct fabric *f, struct port *p);
void retry_damaged(struct fabric *f, struct port *p, uint32_t epoch);
void retry_cut(struct fabric *f, struct port *p);

#endif
