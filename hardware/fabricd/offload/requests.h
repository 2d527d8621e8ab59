/* The requests of a member, which are done in order (requests.c) */
#ifndef OFFLOAD_REQUESTS_H
#define OFFLOAD_REQUESTS_H

#include <stdint.h>

#include "base/units.h"
#include "worker/services.h"

#define REQUESTS_MAX 64

struct request {
	struct request *next;
	struct offload_wr wr;
	/* Of an aggregation: slot of the first block, blocks that are not here yet, and when the last one is to be seen */
	uint32_t first;
	uint64_t left;
	ps_t visible;
};

struct requests {
	struct request *head, *tail; /* head: the oldest */
	uint32_t count;
};

void requests_add(struct requests *q, const struct offload_wr *wr);
void requests_drop(struct requests *q);
void requests_free(struct requests *q);

#endif
