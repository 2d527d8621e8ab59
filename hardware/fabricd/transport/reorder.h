/* Selective repeat, receiving side: what came ahead (reorder.c) */
#ifndef TRANSPORT_REORDER_H
#define TRANSPORT_REORDER_H

#include <stdbool.h>
#include <stdint.h>

struct fabric;
struct frame;
struct qp;

struct reorder {
	uint32_t room, held;
	uint64_t end; /* behind the highest that came ahead */
	uint64_t unsaid_from; /* the first that is here and that the sender was not told of; UINT64_MAX: none */
	uint32_t unsaid; /* packets that came since something was said (answer.c) */
	struct frame *slot[];
};

enum kept { KEPT_NOT, KEPT_BEFORE, KEPT };

enum kept reorder_keep(struct qp *q, uint32_t ahead, struct frame *fr);
struct frame *reorder_take(struct qp *q);
bool reorder_has(const struct qp *q, uint64_t n);
void reorder_drop(struct fabric *f, struct qp *q);
void reorder_release(struct qp *q);

#endif
