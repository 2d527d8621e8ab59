/* Selective repeat, receiving side: what came ahead (reorder.c) */
#ifndef RECOVERY_REORDER_H
#define RECOVERY_REORDER_H

#include <stdbool.h>
#include <stdint.h>

struct fabric;
struct frame;

/* A packet that came ahead: it waits in its frame, or its payload was placed.  Nothing of both: it has not come */
struct early {
	struct frame *frame; /* of what was placed: only of an immediate that has not completed */
	bool placed, ends;   /* it was placed; and has an immediate */
	bool part, after;    /* see place.c */
	bool asks;	     /* it is to be acknowledged */
};

struct reorder {
	uint32_t room, held;
	uint64_t *here; /* a bit for each packet that came ahead: of packet n bit n of a ring of `bits`, a power of two */
	uint64_t bits;
	uint32_t open; /* immediates that were placed and have not completed */
	uint64_t end; /* behind the highest that came ahead */
	uint64_t unsaid_from; /* the first that is here and that the sender was not told of; UINT64_MAX: none */
	uint32_t unsaid; /* packets that came since something was said (answer.c) */
	struct early slot[];
};

enum kept { KEPT_NOT, KEPT_BEFORE, KEPT };

enum kept reorder_keep(struct reorder **at, uint32_t room, uint64_t expected, uint32_t ahead, const struct early *e);
bool reorder_take(struct reorder *r, uint64_t n, struct early *e);
struct early *reorder_at(struct reorder *r, uint64_t expected, uint64_t n);
bool reorder_has(const struct reorder *r, uint64_t expected, uint64_t n);
uint32_t reorder_bits(const struct reorder *r, uint64_t n);
uint64_t reorder_next(const struct reorder *r, uint64_t n);
void reorder_drop(struct fabric *f, struct reorder *r, void (*release)(struct fabric *f, struct frame *fr));
void reorder_release(struct reorder *r);

#endif
