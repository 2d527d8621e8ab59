/* Credits: a frame is sent when the other end has room for it (credits.c) */
#ifndef LINK_CREDITS_H
#define LINK_CREDITS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/units.h"
#include "link/params.h"

#define CREDIT_BLOCK_BYTES 64

struct cable;
struct fabric;
struct frame;
struct port;

/* Of one class at one end, in blocks since the cable came up; in brackets what InfiniBand calls it */
struct credit_class {
	uint64_t sent;	/* to the other end (FCTBS) */
	uint64_t limit; /* that it may be (FCCL) */
	uint64_t said;	/* of `sent`, when the other end was told last */
	uint64_t came;	/* from the other end (ABR) */
	uint64_t held;	/* of what came: not freed yet, whenever it came */
	uint64_t found; /* that the other end had sent and that never came */
};

struct credits {
	bool look_event; /* EV_CREDITS is due */
	uint64_t began;	 /* times that it began to count */
	struct credit_class of[CLASSES];
};

bool credits_on(const struct port *p, unsigned class);
void credits_restart(struct fabric *f, struct cable *cable);
uint64_t credits_limit(const struct port *p, unsigned class);
uint64_t credits_left(const struct port *p, unsigned class);
bool credits_enough(const struct port *p, unsigned class, const struct frame *fr);
void credits_look(struct fabric *f, struct port *p, unsigned class);
void credits_sent(struct fabric *f, struct port *p, const struct frame *fr);
uint32_t credits_came(struct port *p, const struct frame *fr);
void credits_free(struct fabric *f, struct port *p, unsigned class, uint32_t blocks);
void credits_free_at(struct fabric *f, struct port *p, unsigned class, uint32_t blocks, ps_t t);
void credits_raised(struct fabric *f, struct port *p, unsigned class, uint64_t limit);
void credits_total(struct fabric *f, struct port *p, unsigned class, uint64_t total);
void credits_event(struct fabric *f, struct port *p, uint64_t began);

#endif
