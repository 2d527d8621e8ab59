/* Whom of its senders a NIC lets send next (puller.c) */
#ifndef CC_PULLER_H
#define CC_PULLER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/units.h"

struct demand;
struct fabric;
struct nic;
struct qp;

struct puller {
	struct qp *first, *last; /* by rank, and among equals in turn */
	ps_t free;		 /* when all that was granted has had its time */
	bool due;		 /* an EV_PULL is on its way */
};

void puller_arrived(struct fabric *f, struct qp *q, const struct demand *d, uint32_t bytes, bool request);
void puller_event(struct fabric *f, struct nic *n);
void puller_release(struct nic *n);

#endif
