/* Shared receive queues (shared.c) */
#ifndef WORKER_SHARED_H
#define WORKER_SHARED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/ring.h"

struct fabric;
struct post;
struct qp;
struct worker;

struct shared {
	struct shared *next; /* of its session's */
	struct worker *owner;
	uint32_t number, pd;
	uint32_t limit; /* its owner is told, once, when fewer are left; 0: no more */
	struct ring rq;
};

struct shared *shared_of(const struct worker *w, uint32_t number);
bool shared_lend(struct fabric *f, struct qp *q);
void shared_take_back(struct qp *q);
void shared_reaches(struct fabric *f, struct post *p);
void shared_over(struct worker *w);

#endif
