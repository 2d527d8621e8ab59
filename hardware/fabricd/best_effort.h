/* Best-effort aggregation: what the rank's end and the server's end share. */
#ifndef BEST_EFFORT_H
#define BEST_EFFORT_H

#include "offload.h"

/* The sum of a block at the parameter server */
struct server_entry {
	uint32_t number;
	bool used, complete, answered, queued;
	bool announce;	      /* the sum is to go to all */
	uint64_t seen, asked; /* bits of ranks: in the sum, and those to be told once more */
	uint16_t count, flags;
	int16_t exponent, next;
	int32_t *sum;
};

struct server {
	uint32_t window, elements, group_ip;
	double reduce_bps;
	uint64_t all;
	ps_t free; /* when the host is done with what has come */
	int32_t *sums;
	uint32_t *queue, queue_head, queued; /* entries with something to send */
	struct server_entry entry[];	     /* two of each lane: the last use and the one before */
};

/* A sum, or part of one */
struct partial {
	uint32_t number;
	uint64_t ranks;
	uint16_t count, flags;
	int16_t exponent, next;
	const uint8_t *payload;
};

struct server *server_new(const struct group *g, uint32_t window, uint32_t elements, double reduce_bps, uint32_t group_ip);
void server_free(struct server *s);
bool server_merge(struct fabric *f, struct member *m, struct server *s, const struct partial *part, ps_t t);
bool server_due(const struct server *s, uint32_t number);
const struct server_entry *server_sum(const struct server *s, uint32_t number);
uint64_t server_missing(const struct server *s, uint32_t number);
void server_answer(struct fabric *f, struct member *m, struct server *s, uint32_t number);
uint32_t server_build(struct fabric *f, struct member *m, struct server *s, struct frame *fr);

uint32_t best_effort_frame(struct fabric *f, const struct member *m, uint32_t to, uint8_t opcode,
			   const struct partial *part, struct frame *fr);

#define SERVER_EVENT (1ull << 62)

#endif
