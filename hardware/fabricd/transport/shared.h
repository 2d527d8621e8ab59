/* Shared receive queues (shared.c) */
#ifndef TRANSPORT_SHARED_H
#define TRANSPORT_SHARED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/ring.h"

struct fabric;
struct qp;
struct qp_owner;
struct recv_wr;

struct shared {
	struct shared *next; /* of its owner's */
	struct qp_owner *owner;
	uint32_t number, pd;
	uint32_t limit; /* its owner is told, once, when fewer are left; 0: no more */
	struct ring rq;
};

bool shared_post(struct shared *s, const struct recv_wr *wr);
bool shared_lend(struct fabric *f, struct qp *q);
void shared_take_back(struct qp *q);
void shared_limit(struct fabric *f, struct shared *s, uint32_t limit);
void shared_free(struct shared *s);

#endif
