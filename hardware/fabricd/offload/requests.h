/* The requests of a member that are carried out one after the other (requests.c) */
#ifndef OFFLOAD_REQUESTS_H
#define OFFLOAD_REQUESTS_H

#include <stdint.h>

#include "worker/services.h"

#define REQUESTS_MAX 64

struct request {
	struct request *next;
	struct offload_wr wr;
};

struct requests {
	struct request *head, *tail; /* head: the one at work */
	uint32_t count;
};

void requests_add(struct requests *q, const struct offload_wr *wr);
void requests_drop(struct requests *q);
void requests_free(struct requests *q);

#endif
